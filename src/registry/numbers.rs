//! The numbers of a JSON text, before they are read as 64-bit integers or double-precision numbers: a number that those
//! cannot hold would be stored as another one.

/// As many digits as programs write of a double-precision number.
const DIGITS: usize = 17;

/// The first number in a JSON text that would be read as another one. What is no JSON gives any answer.
pub(super) fn first_rounded(json: &[u8]) -> Option<&str> {
    let mut rest = json;
    while let Some(byte) = rest.first() {
        let length = match byte {
            b'"' => quoted(rest),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                let number = str::from_utf8(&rest[..length]).ok()?;
                if is_rounded(number) {
                    return Some(number);
                }
                length
            }
            _ => 1,
        };
        rest = &rest[length..];
    }
    None
}

/// The length of the text that begins here, with its quotes.
fn quoted(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if json[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    json.len()
}

fn is_rounded(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        return number.parse::<i64>().is_err() && number.parse::<u64>().is_err();
    }
    let digits = number.split(['e', 'E']).next().unwrap_or_default();
    let significant = digits.bytes().filter(u8::is_ascii_digit).skip_while(|digit| *digit == b'0');
    let significant: Vec<u8> = significant.collect();
    let zeros = significant.iter().rev().take_while(|digit| **digit == b'0').count();
    let kept = significant.len() - zeros;
    kept > DIGITS || (kept > 0 && number.parse::<f64>().is_ok_and(|value| value == 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_kept_or_named() {
        for kept in [
            "0",
            "-0",
            "9223372036854775807",
            "-9223372036854775808",
            "18446744073709551615",
            "0.1",
            "1e300",
            "-2.5E-7",
            "0.10000000000000001",
            "100000000000000000000.0",
            "0.0000000000000000000000001",
            "1.50000000000000000000000",
            "0e-999",
        ] {
            assert_eq!(first_rounded(format!("{{\"a\": [{kept}]}}").as_bytes()), None, "{kept}");
        }
        for rounded in [
            "18446744073709551616",
            "-9223372036854775809",
            "12345678901234567890123",
            "0.1234567890123456789",
            "1e-400",
            "123456789012345678.5",
        ] {
            let json = format!(r#"{{"18446744073709551616": "1e-400 \" 18446744073709551616 \\", "a": {rounded}}}"#);
            assert_eq!(first_rounded(json.as_bytes()), Some(rounded));
        }
    }

    #[test]
    fn what_is_no_json_ends() {
        for text in ["", "\"", "\"\\", "-", "1e", "\"a\\\"", "--1-e+", "\u{e9}1"] {
            first_rounded(text.as_bytes());
        }
    }
}
