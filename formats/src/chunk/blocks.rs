//! Blocks of a text, line by line: what stands between blank lines, and the Markdown that must not be cut like prose.

use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Heading,
    /// Sentences; a line break within is a blank.
    Prose,
    /// A fenced code block or a table.
    Whole,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub kind: Kind,
    pub range: Range<usize>,
}

/// The blocks of a range, in order, holding everything but blank lines.
pub(super) fn blocks(text: &str, range: Range<usize>) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    // Whether the next line may go on the last block.
    let mut goes_on = false;
    let mut fence: Option<&str> = None;
    let mut at = range.start;
    for line in text[range].split_inclusive('\n') {
        let start = at;
        at += line.len();
        let content = line.trim();
        let (kind, joins, open_after) = if let Some(mark) = fence {
            if content.starts_with(mark) && content.trim_start_matches(&mark[..1]).is_empty() {
                fence = None;
            }
            (Kind::Whole, true, fence.is_some())
        } else if let Some(mark) = fence_mark(content) {
            fence = Some(mark);
            (Kind::Whole, false, true)
        } else if content.is_empty() {
            goes_on = false;
            continue;
        } else if is_heading(content) {
            (Kind::Heading, false, false)
        } else if content.starts_with('|') {
            (Kind::Whole, true, true)
        } else {
            (Kind::Prose, !is_list_item(content), true)
        };
        match blocks.last_mut() {
            Some(last) if goes_on && joins && last.kind == kind => last.range.end = at,
            _ => blocks.push(Block { kind, range: start..at }),
        }
        goes_on = open_after;
    }
    blocks
}

fn fence_mark(content: &str) -> Option<&str> {
    let mark = content.as_bytes().first().copied().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let length = content.bytes().take_while(|&byte| byte == mark).count();
    (length >= 3 && !content[length..].contains(char::from(mark))).then(|| &content[..length])
}

fn is_heading(content: &str) -> bool {
    let level = content.bytes().take_while(|&byte| byte == b'#').count();
    (1..=6).contains(&level) && content[level..].starts_with([' ', '\t'])
}

fn is_list_item(content: &str) -> bool {
    let digits = content.bytes().take_while(u8::is_ascii_digit).count();
    let rest = match digits {
        0 => content.strip_prefix(['-', '*', '+', '•', '–']),
        1..=4 => content[digits..].strip_prefix(['.', ')']),
        _ => None,
    };
    rest.is_some_and(|rest| rest.starts_with([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(Kind, &str)> {
        blocks(text, 0..text.len()).into_iter().map(|block| (block.kind, text[block.range].trim_end())).collect()
    }

    #[test]
    fn markdown_falls_into_its_blocks() {
        let text =
            "# Title\nProse over\ntwo lines.\n- item\n- other\n\n| a |\n| - |\n\n```rust\n# code\n\n```\nafter\n";
        let expected = [
            (Kind::Heading, "# Title"),
            (Kind::Prose, "Prose over\ntwo lines."),
            (Kind::Prose, "- item"),
            (Kind::Prose, "- other"),
            (Kind::Whole, "| a |\n| - |"),
            (Kind::Whole, "```rust\n# code\n\n```"),
            (Kind::Prose, "after"),
        ];
        assert_eq!(of(text), expected);
    }

    #[test]
    fn an_unclosed_fence_runs_to_the_end() {
        assert_eq!(of("a\n~~~\nb\n\n# c"), [(Kind::Prose, "a"), (Kind::Whole, "~~~\nb\n\n# c")]);
    }
}
