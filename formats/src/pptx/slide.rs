//! A slide as blocks.

use crate::markdown::Block;

#[derive(Debug, Default)]
pub(crate) struct Slide {
    /// The text of the title placeholder.
    pub title: Option<String>,
    /// Everything else, in the order of the shapes.
    pub blocks: Vec<Block>,
    pub notes: Vec<Block>,
    /// The slide is left out when the presentation is shown.
    pub is_hidden: bool,
}

impl Slide {
    /// Whether there is any text, also in notes.
    pub(super) fn has_text(&self) -> bool {
        let has_text = |block: &Block| match block {
            Block::Table(table) => table.has_text(),
            Block::Heading { .. } | Block::Paragraph(_) | Block::ListItem { .. } | Block::Written(_) => true,
        };
        self.title.is_some() || self.blocks.iter().chain(&self.notes).any(has_text)
    }

    /// Whether any table has text; one that turns out to be too small for a table costs no more than a look.
    pub(super) fn has_tables(&self) -> bool {
        self.blocks.iter().chain(&self.notes).any(|block| matches!(block, Block::Table(table) if table.has_text()))
    }
}

/// Takes the first line of text out of the blocks. Cells of tables are not lines, and a table is not taken apart.
pub(super) fn promote(blocks: &mut Vec<Block>) -> Option<String> {
    let (index, text) = blocks.iter_mut().enumerate().find_map(|(index, block)| match block {
        Block::Heading { text, .. } | Block::Paragraph(text) | Block::ListItem { text, .. } => Some((index, text)),
        Block::Table(_) | Block::Written(_) => None,
    })?;
    let whole = text.trim_start();
    let (line, rest) = whole.split_once('\n').unwrap_or((whole, ""));
    let (line, rest) = (line.trim_end().to_owned(), rest.trim().to_owned());
    if rest.is_empty() {
        blocks.remove(index);
    } else {
        *text = rest;
    }
    Some(line)
}
