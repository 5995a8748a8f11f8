//! Pictures that are written into the address of a web page.

/// The bytes of a `data:` address in base64; `None` if it is none, or says that it is no picture. At most `most` bytes are decoded.
pub(crate) fn data_uri(address: &str, most: u64) -> Option<Vec<u8>> {
    let address = address.trim_ascii_start();
    let scheme = address.get(..5)?;
    let (head, payload) = address.get(5..)?.split_once(',')?;
    let head = head.to_ascii_lowercase();
    let is_picture = scheme.eq_ignore_ascii_case("data:") && head.trim_start().starts_with("image/");
    (is_picture && head.trim_end().ends_with(";base64")).then(|| decode(payload.as_bytes(), most))
}

/// Base64 as browsers take it: blanks do not count, and the end may lack its padding.
fn decode(text: &[u8], most: u64) -> Vec<u8> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0u32, 0);
    for byte in text {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => break,
            _ => continue,
        };
        (bits, held) = (bits << 6 | u32::from(digit), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
            if bytes.len() >= most {
                break;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_in_base64_are_read() {
        let read = |address| data_uri(address, 100);
        assert_eq!(read("data:image/gif;base64,R0lG\n ODlh"), Some(b"GIF89a".to_vec()));
        assert_eq!(read("DATA:Image/PNG;BASE64,SGk"), Some(b"Hi".to_vec()));
        assert_eq!(data_uri("data:image/gif;base64,R0lGODlh", 3), Some(b"GIF".to_vec()));
        for other in ["data:text/html;base64,PGI+", "data:image/svg+xml,<svg/>", "https://a.example/b.png", "data:", ""]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
