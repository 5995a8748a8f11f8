//! Writes blocks of an office file as Markdown.
//!
//! Text stays as it is, except for what would change the structure: see [`escape`]. Parsing the Markdown gives exactly
//! the headings, list items, tables and paragraphs that were written.

mod escape;
mod table;

use crate::{Extraction, FormatError, Heading, Limits, extraction::check_text};
pub(crate) use table::Table;

/// A block, in order of appearance.
#[derive(Debug)]
pub(crate) enum Block {
    /// Levels are 1 to 9; Markdown has six.
    Heading {
        level: u8,
        text: String,
    },
    /// A line end in the text is a soft break.
    Paragraph(String),
    /// Levels count from 0.
    ListItem {
        level: u8,
        text: String,
    },
    Table(Table),
    /// Markdown of another reader, with its headings.
    Written(Extraction),
}

/// Writes blocks into an [`Extraction`].
#[derive(Default)]
pub(crate) struct Writer {
    extraction: Extraction,
    /// Levels of the list items that the next item may nest in, outermost first; empty outside a list.
    list: Vec<u8>,
}

impl Writer {
    /// Writes a block and returns where it begins; a block without text is left out and gives `None`.
    pub(crate) fn write(&mut self, block: Block, limits: &Limits) -> Result<Option<usize>, FormatError> {
        let text = &mut self.extraction.text;
        if block.is_empty() {
            return Ok(None);
        }
        let is_list_item = matches!(block, Block::ListItem { .. });
        if !text.is_empty() {
            text.push_str(if is_list_item && !self.list.is_empty() { "\n" } else { "\n\n" });
        }
        if !is_list_item {
            self.list.clear();
        }
        let start = text.len();
        match block {
            Block::Heading { level, text: title } => {
                let title = one_line(&title);
                push_heading(text, level, &title);
                self.extraction.headings.push(Heading { level, title, start });
            }
            Block::Paragraph(paragraph) => escape::push_paragraph(text, &paragraph),
            Block::ListItem { level, text: item } => {
                // An item is nested only in items above it: four blanks with nothing above would be code.
                while self.list.last().is_some_and(|&above| above >= level) {
                    self.list.pop();
                }
                text.extend(std::iter::repeat_n("  ", self.list.len()));
                self.list.push(level);
                text.push_str("- ");
                escape::push_paragraph(text, &one_line(&item));
            }
            Block::Table(table) => table.write(text),
            Block::Written(piece) => {
                let start = text.len();
                text.push_str(piece.text.trim_end());
                let headings = piece.headings.into_iter();
                self.extraction
                    .headings
                    .extend(headings.map(|heading| Heading { start: start + heading.start, ..heading }));
            }
        }
        check_text(text.len(), limits)?;
        Ok(Some(start))
    }

    /// The number of bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.extraction.text.len()
    }

    /// The text with its headings; `declared` says what declared them.
    pub(crate) fn finish(mut self, declared: &str) -> Extraction {
        if !self.extraction.headings.is_empty() {
            self.extraction.headings_from = Some(declared.to_owned());
        }
        self.extraction
    }
}

impl Block {
    fn is_empty(&self) -> bool {
        match self {
            Self::Heading { text, .. } | Self::Paragraph(text) | Self::ListItem { text, .. } => text.trim().is_empty(),
            Self::Table(table) => table.is_empty(),
            Self::Written(piece) => piece.text.trim().is_empty(),
        }
    }
}

/// Appends a text whose lines are no structure; its empty lines part paragraphs.
pub(crate) fn push_text(out: &mut String, text: &str) {
    let mut paragraph_start = 0;
    let mut is_first = true;
    let mut at = 0;
    for line in text.split_inclusive('\n').chain(["\n"]) {
        if line.trim().is_empty() {
            let paragraph = &text[paragraph_start..at];
            if !paragraph.is_empty() {
                if !is_first {
                    out.push_str("\n\n");
                }
                escape::push_paragraph(out, paragraph);
                is_first = false;
            }
            paragraph_start = (at + line.len()).min(text.len());
        }
        at += line.len();
    }
}

/// Appends a heading of one line.
pub(crate) fn push_heading(out: &mut String, level: u8, title: &str) {
    out.extend(std::iter::repeat_n('#', usize::from(level.clamp(1, 6))));
    out.push(' ');
    escape::push_heading(out, title);
}

/// Whether the Markdown has more than its own marks: the bars of an empty table are not text.
pub(crate) fn has_text(markdown: &str) -> bool {
    markdown.chars().any(|character| !character.is_whitespace() && !matches!(character, '|' | '-' | '#' | '\\'))
}

/// Whether a raised text would read as a part of a number before it: a number, or several, as the marks of notes are.
pub(crate) fn is_raised_number(text: &str) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-', '−', '–']).unwrap_or(text);
    let is_part =
        |part: char| part.is_ascii_digit() || part.is_whitespace() || matches!(part, ',' | ';' | '.' | '-' | '−' | '–');
    digits.starts_with(|first: char| first.is_ascii_digit()) && digits.chars().all(is_part)
}

/// Whether a raised run reads as a part of the number before it: a number, or a minus, which programs may keep in a run of its own.
pub(crate) fn is_raised_run(text: &str) -> bool {
    is_raised_number(text) || matches!(text.trim(), "-" | "−" | "–")
}

/// Whether the text that comes next begins to be raised directly behind a digit. Programs write one raised number in several parts.
pub(crate) fn begins_raised(before: &str, is_raised: bool, was_raised: &mut bool) -> bool {
    let goes_on = std::mem::replace(was_raised, is_raised);
    is_raised && !goes_on && before.ends_with(|last: char| last.is_ascii_digit())
}

/// Marks the raised numbers of a text that legacy programs keep in runs: for each one the UTF-16 unit where it begins, and whether it is raised.
pub(crate) fn mark_raised(text: String, runs: &[(usize, bool)]) -> String {
    if runs.iter().all(|(_, is_raised)| !is_raised) {
        return text;
    }
    let (mut marked, mut rest, mut unit) = (String::with_capacity(text.len() + 1), text.as_str(), 0);
    let (mut is_raised, mut was_raised) = (false, false);
    for (begin, next) in runs.iter().copied().chain([(usize::MAX, false)]) {
        let mut end = 0;
        for character in rest.chars() {
            if unit >= begin {
                break;
            }
            unit += character.len_utf16();
            end += character.len_utf8();
        }
        let (run, after) = rest.split_at(end);
        if !run.is_empty() && begins_raised(&marked, is_raised, &mut was_raised) && is_raised_run(run) {
            marked.push('^');
        }
        marked.push_str(run);
        (rest, is_raised) = (after, next);
    }
    marked
}

/// Replaces white space, including line ends, by single blanks.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

#[cfg(test)]
mod tests;
