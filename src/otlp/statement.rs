//! What a span tells of a statement: its text without its values.

/// The longest text of a statement that is sent.
const LONGEST: usize = 2_000;

/// The text on one line, with `?` for every text and number in it, and cut off where it is long. A text that ends nowhere reaches to the end,
/// so that nothing of it is shown.
pub fn without_values(sql: &str) -> String {
    let mut shown = String::with_capacity(sql.len().min(LONGEST));
    let (mut rest, mut has_escapes) = (sql.trim(), false);
    while let Some(first) = rest.chars().next() {
        if shown.len() > LONGEST {
            shown.push('…');
            break;
        }
        let piece = Piece::first(rest, has_escapes);
        let (length, text) = match piece {
            Piece::Value(length) => (length, "?"),
            Piece::Gap(length) => (length, if shown.ends_with(' ') { "" } else { " " }),
            Piece::Plain(length) => (length, &rest[..length]),
        };
        has_escapes = matches!(text, "E" | "e");
        shown.push_str(text);
        rest = rest.get(length.max(first.len_utf8())..).unwrap_or_default();
    }
    shown.truncate(shown.trim_end().len());
    shown
}

/// The beginning of a text, with its length.
enum Piece {
    Value(usize),
    /// White space or a remark.
    Gap(usize),
    Plain(usize),
}

impl Piece {
    fn first(text: &str, has_escapes: bool) -> Piece {
        let until = |end: fn(char) -> bool| text.find(end).unwrap_or(text.len());
        let after = |mark: &str| text.find(mark).map_or(text.len(), |at| at + mark.len());
        match text.as_bytes() {
            [b'\'', ..] => Piece::Value(quoted(text, '\'', has_escapes)),
            // A name.
            [b'"', ..] => Piece::Plain(quoted(text, '"', false)),
            [b'-', b'-', ..] => Piece::Gap(after("\n")),
            [b'/', b'*', ..] => Piece::Gap(after("*/")),
            // A parameter.
            [b'$', b'0'..=b'9', ..] => {
                Piece::Plain(1 + text[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - 1))
            }
            [b'$', ..] => match text[1..].find('$') {
                // A text between `$mark$` and the same mark.
                Some(end) => {
                    let mark = &text[..end + 2];
                    Piece::Value(text[mark.len()..].find(mark).map_or(text.len(), |at| at + 2 * mark.len()))
                }
                None => Piece::Value(text.len()),
            },
            [b'0'..=b'9', ..] => Piece::Value(until(|c| !(c.is_ascii_alphanumeric() || c == '.'))),
            _ if text.starts_with(char::is_whitespace) => Piece::Gap(until(|c| !c.is_whitespace())),
            _ if text.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                Piece::Plain(until(|c| !(c.is_alphanumeric() || matches!(c, '_' | '$'))))
            }
            _ => Piece::Plain(text.chars().next().map_or(0, char::len_utf8)),
        }
    }
}

/// The length of what begins with a quote, with both quotes. A quote in it is written twice, or after a backslash.
fn quoted(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && has_escapes {
            letters.next();
        } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// A short name for a statement without its values: what its first part does, and where.
pub fn name(statement: &str) -> String {
    let words: Vec<&str> = statement.split(';').next().unwrap_or_default().split(' ').take(200).collect();
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '"'));
    let first = words.first().copied().unwrap_or_default();
    let leads = |word: &str| ["from", "into", "update"].iter().any(|lead| word.eq_ignore_ascii_case(lead));
    let places = words.windows(2).filter(|two| leads(two[0])).map(|two| two[1]);
    let place = places.map(|word| word.split(['(', ',', ')']).next().unwrap_or_default()).find(|word| is_word(word));
    let called = || words.get(1)?.split_once('(').map(|(function, _)| function).filter(|function| is_word(function));
    match (is_word(first), place.or_else(called)) {
        (false, _) => "statement".to_owned(),
        (true, None) => first.to_owned(),
        (true, Some(place)) => format!("{first} {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_left_out_and_the_rest_is_not() {
        for (sql, shown) in [
            ("select id from documents where id = $1 and n = 12", "select id from documents where id = $1 and n = ?"),
            ("select 'it''s', E'a\\'b', x from t2", "select ?, E?, x from t2"),
            ("  select\n   $mark$ $hidden$ $mark$,\t$$x$$ -- it's\n from \"a ' b\"", "select ?,? from \"a ' b\""),
            ("select 'never ends", "select ?"),
            ("select $never", "select ?"),
            ("set local statement_timeout = 30000", "set local statement_timeout = ?"),
            ("select '\\', 'shown?'", "select ?, ?"),
            ("é'x'ü", "é?ü"),
        ] {
            let bare = |text: &str| text.replace(' ', "");
            assert_eq!(bare(&without_values(sql)), bare(shown), "{sql}");
        }
        let long = without_values(&format!("select {}", "a, ".repeat(2_000)));
        assert!(long.len() < LONGEST + 100 && long.ends_with('…'));
    }

    #[test]
    fn a_name_says_what_and_where() {
        for (statement, expected) in [
            ("select id from documents d where true", "select documents"),
            ("insert into task_queue (id) select ? from x", "insert task_queue"),
            ("update documents set a = ?", "update documents"),
            ("select end_task(?, ?); commit", "select end_task"),
            ("select x from (select ? from task_queue) t", "select task_queue"),
            ("begin; select pg_backend_pid()", "begin"),
            ("commit", "commit"),
            ("", "statement"),
            ("?", "statement"),
        ] {
            assert_eq!(name(statement), expected, "{statement}");
        }
    }

    proptest! {
        /// What is written as the store writes a value shows nowhere, wherever it stands.
        #[test]
        fn no_value_is_shown(value in "\\PC{0,40}", has_escapes: bool, before in "[a-z ,(]{0,10}") {
            let secret = format!("s3cret{value}s3cret");
            let literal = match has_escapes {
                true => format!("E'{}'", secret.replace('\\', r"\\").replace('\'', "''")),
                false => format!("'{}'", secret.replace('\'', "''")),
            };
            let shown = without_values(&format!("select {before} {literal}, {literal} from t"));
            prop_assert!(!shown.contains("s3cret"), "{}", shown);
            prop_assert!(shown.ends_with("from t"), "{}", shown);
        }

        #[test]
        fn no_text_is_too_odd(sql in "\\PC{0,200}") {
            without_values(&sql);
            name(&sql);
        }
    }
}
