//! Finds the blocks of a text line by line: what is between blank lines, and the Markdown that must not be cut like
//! prose.
//!
//! It accepts more than Markdown does, because texts of every kind come through here, and it never looks back.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Heading,
    /// Sentences; a line break within counts as a blank.
    Prose,
    /// One item of a list.
    Item,
    /// A fenced code block, or metadata at the beginning of a file.
    Code,
    /// Rows. The header is the first row with the row of dashes under it; it is empty if there is none.
    Table {
        header: Range<usize>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub kind: Kind,
    pub range: Range<usize>,
}

/// The blocks of a range, in order. Together they hold everything but blank lines.
pub(super) fn blocks(text: &str, range: Range<usize>) -> Vec<Block> {
    let mut scanner = Scanner { blocks: Vec::new(), goes_on: false, dashes: false, fence: None };
    let mut at = range.start;
    let mut lines = text[range].split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let range = at..at + line.len();
        at = range.end;
        let next = lines.peek().map_or("", |next| next.trim());
        scanner.line(line.trim(), next, range);
    }
    scanner.blocks
}

struct Scanner<'a> {
    blocks: Vec<Block>,
    /// Whether the next line may continue the last block.
    goes_on: bool,
    /// Whether the next line is the row of dashes under a table's header.
    dashes: bool,
    /// The mark that ends the present code block.
    fence: Option<&'a str>,
}

impl<'a> Scanner<'a> {
    fn line(&mut self, content: &'a str, next: &str, range: Range<usize>) {
        if let Some(mark) = self.fence {
            if content.starts_with(mark) && content.trim_start_matches(&mark[..1]).is_empty() {
                self.fence = None;
            }
            return self.join(range);
        }
        if content.is_empty() {
            self.goes_on = false;
            return;
        }
        if let Some(mark) = fence_mark(content).or_else(|| metadata_mark(content, next, &range)) {
            self.fence = Some(mark);
            return self.begin(Kind::Code, range);
        }
        let last = self.blocks.last_mut().filter(|_| self.goes_on);
        match last {
            Some(Block { kind: Kind::Table { header }, .. }) if self.dashes => {
                header.end = range.end;
                self.dashes = false;
                self.join(range);
            }
            Some(Block { kind: kind @ Kind::Prose, .. }) if is_underline(content) => {
                *kind = Kind::Heading;
                self.join(range);
                self.goes_on = false;
            }
            _ if is_heading(content) => {
                self.begin(Kind::Heading, range);
                self.goes_on = false;
            }
            Some(Block { kind: Kind::Table { .. }, .. }) if content.contains('|') => self.join(range),
            _ if is_header(content, next) => {
                self.dashes = true;
                self.begin(Kind::Table { header: range.clone() }, range);
            }
            _ if content.starts_with('|') => self.begin(Kind::Table { header: range.start..range.start }, range),
            _ if is_item(content) => self.begin(Kind::Item, range),
            Some(Block { kind: Kind::Prose | Kind::Item, .. }) => self.join(range),
            _ => self.begin(Kind::Prose, range),
        }
    }

    fn begin(&mut self, kind: Kind, range: Range<usize>) {
        self.blocks.push(Block { kind, range });
        self.goes_on = true;
    }

    fn join(&mut self, range: Range<usize>) {
        if let Some(last) = self.blocks.last_mut() {
            last.range.end = range.end;
        }
    }
}

fn fence_mark(content: &str) -> Option<&str> {
    let mark = content.as_bytes().first().copied().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let length = content.bytes().take_while(|&byte| byte == mark).count();
    (length >= 3 && !content[length..].contains(char::from(mark))).then(|| &content[..length])
}

/// A file may begin with metadata between two lines of dashes.
fn metadata_mark<'a>(content: &'a str, next: &str, range: &Range<usize>) -> Option<&'a str> {
    (range.start == 0 && content == "---" && next.contains(": ")).then_some(content)
}

fn is_heading(content: &str) -> bool {
    let level = content.bytes().take_while(|&byte| byte == b'#').count();
    (1..=6).contains(&level) && content[level..].starts_with([' ', '\t'])
}

/// Whether this is the line under a heading of the other form.
fn is_underline(content: &str) -> bool {
    content.len() > 1 && (content.bytes().all(|byte| byte == b'=') || content.bytes().all(|byte| byte == b'-'))
}

/// Whether this is the first row of a table: the row of dashes that follows has as many cells.
fn is_header(content: &str, next: &str) -> bool {
    let dashes = |cell: &str| {
        let cell = cell.trim();
        let cell = cell.strip_prefix(':').unwrap_or(cell);
        let cell = cell.strip_suffix(':').unwrap_or(cell);
        !cell.is_empty() && cell.bytes().all(|byte| byte == b'-')
    };
    next.contains('|')
        && content.contains('|')
        && cells(next).all(dashes)
        && cells(content).count() == cells(next).count()
}

/// The cells of a row; a `|` after a backslash is text.
pub(crate) fn cells(row: &str) -> impl Iterator<Item = &str> {
    let row = row.strip_prefix('|').unwrap_or(row);
    let row = if row.ends_with("\\|") { row } else { row.strip_suffix('|').unwrap_or(row) };
    let mut escaped = false;
    row.split(move |character| {
        let ends = character == '|' && !escaped;
        escaped = character == '\\' && !escaped;
        ends
    })
}

fn is_item(content: &str) -> bool {
    let digits = content.bytes().take_while(u8::is_ascii_digit).count();
    let rest = match digits {
        0 => match content.strip_prefix('(') {
            // For example "(a) ", "(iv) ", "(12) ".
            Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).strip_prefix(')'),
            None => content.strip_prefix(['-', '*', '+', '•', '‣', '–', '·', '▪', '●']),
        },
        1..=3 => content[digits..].strip_prefix(['.', ')']),
        _ => None,
    };
    // A longer label is a remark in brackets.
    rest.is_some_and(|rest| rest.starts_with([' ', '\t']) && content.len() - rest.len() <= 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(&'static str, &str)> {
        let name = |kind: &Kind| match kind {
            Kind::Heading => "heading",
            Kind::Prose => "prose",
            Kind::Item => "item",
            Kind::Code => "code",
            Kind::Table { header } if header.is_empty() => "rows",
            Kind::Table { .. } => "table",
        };
        blocks(text, 0..text.len()).into_iter().map(|block| (name(&block.kind), text[block.range].trim_end())).collect()
    }

    #[test]
    fn markdown_falls_into_its_blocks() {
        let text = "# Title\nProse over\ntwo lines.\n- item\n  more of it\n- other\n\n| a |\n| - |\n\n```rust\n# code\n\n```\nafter\n";
        let expected = [
            ("heading", "# Title"),
            ("prose", "Prose over\ntwo lines."),
            ("item", "- item\n  more of it"),
            ("item", "- other"),
            ("table", "| a |\n| - |"),
            ("code", "```rust\n# code\n\n```"),
            ("prose", "after"),
        ];
        assert_eq!(of(text), expected);
    }

    #[test]
    fn a_table_needs_no_bars_around_it_and_its_header_fits_its_dashes() {
        let text = "Before\na | b\n--- | :-:\nc \\| d | e\nafter";
        assert_eq!(of(text), [("prose", "Before"), ("table", "a | b\n--- | :-:\nc \\| d | e"), ("prose", "after")]);
        let Kind::Table { header } = &blocks(text, 0..text.len())[1].kind else { panic!("a table") };
        assert_eq!(&text[header.clone()], "a | b\n--- | :-:\n");
        assert_eq!(of("a | b\n--- | --- | ---"), [("prose", "a | b\n--- | --- | ---")]);
        assert_eq!(of("| a |\n| b |"), [("rows", "| a |\n| b |")]);
    }

    #[test]
    fn an_underlined_paragraph_is_a_heading_and_metadata_is_none() {
        let text = "---\ntitle: x\n---\nTwo\nlines\n---\ntext\n\n---\n";
        let expected =
            [("code", "---\ntitle: x\n---"), ("heading", "Two\nlines\n---"), ("prose", "text"), ("prose", "---")];
        assert_eq!(of(text), expected);
    }

    #[test]
    fn an_unclosed_fence_runs_to_the_end() {
        assert_eq!(of("a\n~~~\nb\n\n# c"), [("prose", "a"), ("code", "~~~\nb\n\n# c")]);
    }

    #[test]
    fn items_are_told_from_prose() {
        let items = ["- a", "12) a", "(iv) a", "• a"];
        assert!(items.iter().all(|item| of(item)[0].0 == "item"));
        let prose = ["-a", "2025. a year", "(remarkable) a", "1.5 a", "- "];
        assert!(prose.iter().all(|text| of(text)[0].0 == "prose"), "{:?}", prose.map(of));
    }
}
