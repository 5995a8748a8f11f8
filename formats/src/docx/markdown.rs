//! Blocks of a document written as Markdown.

use crate::{Extraction, FormatError, Heading, Limits, extraction::check_text};

/// A block of the body, in order.
#[derive(Debug)]
pub(super) enum Block {
    Heading {
        level: u8,
        text: String,
    },
    Paragraph(String),
    ListItem {
        level: u8,
        text: String,
    },
    /// Rows of cells; cells a span covers are there, empty.
    Table(Vec<Vec<String>>),
}

impl Block {
    /// The block as text in a table's cell, where no block may stand.
    pub(super) fn into_cell_text(self) -> String {
        match self {
            Self::Heading { text, .. } | Self::Paragraph(text) | Self::ListItem { text, .. } => one_line(&text),
            Self::Table(rows) => rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join("; "),
        }
    }
}

/// Writes blocks into an [`Extraction`].
#[derive(Default)]
pub(super) struct Writer {
    extraction: Extraction,
    after_list_item: bool,
}

impl Writer {
    pub(super) fn write(&mut self, block: Block, limits: &Limits) -> Result<(), FormatError> {
        let is_list_item = matches!(block, Block::ListItem { .. });
        let text = &mut self.extraction.text;
        if !text.is_empty() {
            text.push_str(if is_list_item && self.after_list_item { "\n" } else { "\n\n" });
        }
        self.after_list_item = is_list_item;
        match block {
            Block::Heading { level, text: title } => {
                let title = one_line(&title);
                let start = text.len();
                // Markdown has six levels.
                text.extend(std::iter::repeat_n('#', usize::from(level.min(6))));
                text.push(' ');
                text.push_str(&title);
                self.extraction.headings.push(Heading { level, title, start });
            }
            Block::Paragraph(paragraph) => {
                for (index, line) in paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
                    if index > 0 {
                        text.push('\n');
                    }
                    if line.starts_with(['#', '|']) {
                        text.push('\\');
                    }
                    text.push_str(line);
                }
            }
            Block::ListItem { level, text: item } => {
                text.extend(std::iter::repeat_n("  ", usize::from(level)));
                text.push_str("- ");
                text.push_str(&one_line(&item));
            }
            Block::Table(rows) => write_table(text, &rows),
        }
        check_text(text.len(), limits)
    }

    pub(super) fn finish(mut self) -> Extraction {
        if !self.extraction.headings.is_empty() {
            self.extraction.headings_from = Some("styles".to_owned());
        }
        self.extraction
    }
}

fn write_table(text: &mut String, rows: &[Vec<String>]) {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push('|');
        for cell in row {
            text.push(' ');
            text.push_str(&cell.replace('|', "\\|"));
            text.push_str(" |");
        }
        // The header sets the width; shorter rows below are valid, and padding each to a hostile width would be quadratic.
        if index == 0 {
            text.extend(std::iter::repeat_n("  |", width - row.len()));
            text.push_str("\n|");
            text.extend(std::iter::repeat_n(" --- |", width));
        }
    }
}

/// White space, line ends among it, as single blanks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
