//! Formulas, which an open document writes in a form of its own (OpenFormula), in the form of other spreadsheets.

/// Turns `of:=SUM([.A1:.B2];1)` into `SUM(A1:B2,1)`.
pub(super) fn formula(text: &str) -> String {
    let (language, text) = match text.split_once('=') {
        Some((language, text)) if language.is_empty() || language.ends_with(':') => (language, text),
        _ => ("", text),
    };
    if language == "msoxl:" {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut braces = 0u32;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            // A doubled quote begins the next text, which has the same effect.
            '"' | '\'' => rest[1..].find(first).map_or(rest.len(), |end| end + 2),
            '[' => {
                let end = bracket(rest);
                out.push_str(&range(rest[..end].trim_matches(['[', ']'])));
                rest = &rest[end..];
                continue;
            }
            other => {
                braces = match other {
                    '{' => braces + 1,
                    '}' => braces.saturating_sub(1),
                    _ => braces,
                };
                out.push(match other {
                    ';' | '~' => ',',
                    // It parts the rows of an array.
                    '|' if braces > 0 => ';',
                    other => other,
                });
                rest = &rest[other.len_utf8()..];
                continue;
            }
        };
        let (copied, after) = rest.split_at(taken);
        out.push_str(copied);
        rest = after;
    }
    out
}

/// Turns a reference such as `$Sheet1.$A$1:.$B$2` into `Sheet1!$A$1:$B$2`.
pub(super) fn range(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut sheet = "";
    for (index, cell) in split(text, ':').enumerate() {
        let (of, cell) = last_split(cell, '.').unwrap_or(("", cell));
        let of = of.trim_start_matches('$');
        if index > 0 {
            out.push(':');
        }
        // The second corner repeats the sheet of the first.
        if !of.is_empty() && (index == 0 || of != sheet) {
            out.push_str(of);
            out.push('!');
        }
        sheet = of;
        out.push_str(cell);
    }
    out
}

/// Where the bracket at the beginning ends; quoted names may contain others.
fn bracket(text: &str) -> usize {
    let mut is_quoted = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\'' => is_quoted = !is_quoted,
            b']' if !is_quoted => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The parts between separators that are in no quoted name.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character| {
        is_quoted ^= character == '\'';
        character == separator && !is_quoted
    })
}

fn last_split(text: &str, separator: char) -> Option<(&str, &str)> {
    let last = split(text, separator).last()?;
    let before = text.len().checked_sub(last.len() + separator.len_utf8())?;
    Some((&text[..before], last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_read_as_in_other_spreadsheets() {
        for (open, other) in [
            ("of:=SUM([.A1:.B2];1)", "SUM(A1:B2,1)"),
            ("oooc:=[.$A$1]*2", "$A$1*2"),
            ("=[$Sheet2.B3]&\"; [.A1]\"", "Sheet2!B3&\"; [.A1]\""),
            ("of:=[$'My. Sheet'.A1:.B2]", "'My. Sheet'!A1:B2"),
            ("of:=[Sheet1.A1:Sheet3.B2]", "Sheet1!A1:Sheet3!B2"),
            ("of:={1;2|3;4}", "{1,2;3,4}"),
            ("of:=SUM([.A1]~[.B1])", "SUM(A1,B1)"),
            ("of:=[.#REF!]", "#REF!"),
            ("msoxl:=SUM(A1,B1)", "SUM(A1,B1)"),
            ("of:=IF([.A1]=1;\"a\"\"b\";2)", "IF(A1=1,\"a\"\"b\",2)"),
            ("of:=[", ""),
            ("of:=\"open", "\"open"),
            ("", ""),
        ] {
            assert_eq!(formula(open), other, "{open}");
        }
        assert_eq!(range("$Sheet1.$A$1:.$B$2"), "Sheet1!$A$1:$B$2");
        assert_eq!(range("$Sheet1.$A$1:$Sheet1.$B$2"), "Sheet1!$A$1:$B$2");
    }
}
