//! What is open while the main part is read.

use super::{evidence::Mark, numbering::Place};
use crate::{
    markdown::{self, Block},
    math::Math,
};

pub(super) enum Frame {
    Paragraph(Paragraph),
    Table(Table),
    Cell(Cell),
}

/// What belongs to a piece of text without being part of it.
#[derive(Default)]
pub(super) struct Noted {
    pub marks: Vec<Mark>,
    /// Blocks of text boxes anchored in it, which follow it.
    pub after: Vec<(Block, Vec<Mark>)>,
}

#[derive(Default)]
pub(super) struct Paragraph {
    pub text: String,
    /// Where its own text begins, after the text carried into it.
    pub own_from: usize,
    pub style: Option<String>,
    pub place: Place,
    /// Its heading level, if it has an outline level of its own.
    pub heading: Option<u8>,
    /// Its style hides its text, unless a run says otherwise.
    pub hidden: bool,
    pub mark_deleted: bool,
    /// Whether its mark is hidden, if it says so itself.
    pub mark_hidden: Option<bool>,
    /// Its mark ends a section.
    pub ends_section: bool,
    pub fields: Fields,
    pub math: Math,
    /// Whether its last text is raised.
    pub was_raised: bool,
    pub noted: Noted,
}

/// The text of a paragraph whose mark was deleted.
pub(super) struct Carried {
    /// How many frames are around it.
    pub depth: usize,
    pub text: String,
    pub noted: Noted,
}

#[derive(Default)]
pub(super) struct Run {
    pub hidden: Option<bool>,
    /// It stands above the line.
    pub is_raised: bool,
    pub font: Option<String>,
}

/// The fields that began in a paragraph, the innermost last. Instructions end
/// with their paragraph, so that an unclosed field hides no more than that.
#[derive(Default)]
pub(super) struct Fields {
    /// For each one whether it is at its result.
    open: Vec<bool>,
    /// How many of them are still in their instructions.
    in_instructions: usize,
    /// What forms show unless a result says it, each with how many fields are open where it stands.
    forms: Vec<(usize, String)>,
}

impl Fields {
    /// Takes in a part of a field, and returns what a form shows where one ends without a result.
    pub(super) fn note(&mut self, part: Option<&str>) -> Option<String> {
        match part {
            Some("begin") => {
                self.open.push(false);
                self.in_instructions += 1;
            }
            Some("separate") => {
                if let Some(is_at_result) = self.open.last_mut().filter(|is_at_result| !**is_at_result) {
                    *is_at_result = true;
                    self.in_instructions -= 1;
                }
            }
            Some("end") => {
                let form = self.take_form();
                let is_at_result = self.open.pop()?;
                self.in_instructions -= usize::from(!is_at_result);
                return form;
            }
            _ => {}
        }
        None
    }

    /// Keeps what a form shows in the field that began last.
    pub(super) fn shows(&mut self, form: String) {
        self.take_form();
        if !self.open.is_empty() {
            self.forms.push((self.open.len(), form));
        }
    }

    fn take_form(&mut self) -> Option<String> {
        let depth = self.open.len();
        self.forms.pop_if(|(at, _)| *at == depth).map(|(_, form)| form)
    }

    /// A field whose result has a text shows no other. The text is in the result of every open field, because instructions
    /// hide what is in them.
    pub(super) fn has_result(&mut self) {
        if !self.in_instructions() {
            self.forms.clear();
        }
    }

    pub(super) fn in_instructions(&self) -> bool {
        self.in_instructions > 0
    }
}

#[derive(Default)]
pub(super) struct Table {
    pub markdown: markdown::Table,
    pub blanks_after: usize,
    /// Who deleted the open row, and when.
    pub row_deleted: Option<(String, String)>,
    pub noted: Noted,
}

impl Table {
    pub(super) fn begin_row(&mut self) {
        self.blanks_after = 0;
        self.row_deleted = None;
    }
}

pub(super) struct Cell {
    pub text: String,
    /// The separator between its text and what comes next.
    pub separator: &'static str,
    pub span: usize,
    /// It is a part of the cell above it or to its left.
    pub continues: bool,
    pub deleted: bool,
    pub noted: Noted,
}

impl Default for Cell {
    fn default() -> Self {
        Self { text: String::new(), separator: " ", span: 1, continues: false, deleted: false, noted: Noted::default() }
    }
}

impl Cell {
    /// Takes in a block as text.
    pub(super) fn take(&mut self, block: Block, marks: Vec<Mark>) {
        self.noted.marks.extend(marks);
        let text = match block {
            Block::Heading { text, .. } | Block::Paragraph(text) | Block::ListItem { text, .. } => text,
            Block::Written(piece) => markdown::one_line(&piece.text),
            Block::Table(_) => String::new(),
        };
        if !text.is_empty() {
            if !self.text.is_empty() {
                self.text.push_str(self.separator);
            }
            self.text.push_str(&text);
        }
        self.separator = " ";
    }
}
