//! Puts a backslash before what would read as structure in a text, and before nothing else.
//!
//! At the start of a line these read as structure: a heading's marks, a list's marker, a quote, a fence, a table's bar
//! or delimiter row, a rule or underline, an HTML block and a link's definition; at the end of a heading, its closing
//! marks. Marks within a line, such as `*`, change no structure and stay.

/// Appends a paragraph, with trimmed lines and without empty ones.
pub(super) fn push_paragraph(out: &mut String, paragraph: &str) {
    // A definition's label may span lines.
    let defines = paragraph.contains("]:");
    let lines = paragraph.lines().map(str::trim).filter(|line| !line.is_empty());
    for (index, line) in lines.enumerate() {
        if index > 0 {
            out.push('\n');
        }
        match mark_at(line, index == 0, defines) {
            Some(at) => {
                out.push_str(&line[..at]);
                out.push('\\');
                out.push_str(&line[at..]);
            }
            None => out.push_str(line),
        }
    }
}

/// Appends the text of a heading of one line.
pub(super) fn push_heading(out: &mut String, title: &str) {
    let body = title.trim_end_matches('#');
    // The marks that close a heading stand apart from its text; those of `C#` do not.
    if body.len() < title.len() && (body.is_empty() || body.bytes().last().is_some_and(is_blank)) {
        out.push_str(body);
        out.push('\\');
        out.push_str(&title[body.len()..]);
    } else {
        out.push_str(title);
    }
}

/// Where in a trimmed, non-empty line the mark is that would make structure of it.
fn mark_at(line: &str, first: bool, defines: bool) -> Option<usize> {
    let bytes = line.as_bytes();
    let ends_after = |length: usize| bytes.get(length).is_none_or(|&byte| is_blank(byte));
    let run = bytes.iter().take_while(|&&byte| byte == bytes[0]).count();
    let structural = match bytes[0] {
        b'#' => run <= 6 && ends_after(run),
        b'>' | b'|' => true,
        b'`' => run >= 3 && !line[run..].contains('`'),
        b'~' => run >= 3,
        b'-' => ends_after(1) || is_rule(line, b'-') || run == bytes.len() || is_delimiter_row(line),
        b'*' => ends_after(1) || is_rule(line, b'*'),
        b'_' => is_rule(line, b'_'),
        b'+' => ends_after(1) || is_rule(line, b'+'),
        b':' => is_delimiter_row(line),
        b'=' => !first && run == bytes.len(),
        b'<' => matches!(bytes.get(1), Some(b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'!' | b'?')),
        b'[' => defines,
        b'0'..=b'9' => {
            let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let marked = digits <= 9 && matches!(bytes.get(digits), Some(b'.' | b')')) && ends_after(digits + 1);
            return marked.then_some(digits);
        }
        _ => false,
    };
    structural.then_some(0)
}

/// Whether the byte separates words within a line. Parsers disagree on the vertical tab and the form feed.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0B | 0x0C)
}

/// Whether the line is three or more of a mark, with nothing but blanks between them.
fn is_rule(line: &str, mark: u8) -> bool {
    line.bytes().all(|byte| byte == mark || is_blank(byte)) && line.bytes().filter(|&byte| byte == mark).count() >= 3
}

/// Whether the line could be the second line of a table, which makes a table of the line above.
fn is_delimiter_row(line: &str) -> bool {
    line.bytes().all(|byte| matches!(byte, b'-' | b':' | b'|') || is_blank(byte)) && line.contains('-')
}
