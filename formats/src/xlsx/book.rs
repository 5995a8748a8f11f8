//! What every kind of workbook gives to the readers of its sheets.

use super::{
    range::CellRef,
    records::LooseRow,
    sheet::{Comment, SheetProfile},
    styles::Styles,
    worksheet::{Item, RawFormula},
};
use crate::{FormatError, Limits, extraction::check_text};

/// Takes a shared text and its index, and says whether it wants more of them.
pub(super) type See<'a> = dyn FnMut(u32, &str) -> Result<bool, FormatError> + 'a;

/// A workbook that was opened. Sheets are given by their positions among the tabs.
pub(super) trait Book {
    /// A sheet from its beginning.
    fn scan(&mut self, sheet: u32, limits: &Limits) -> Result<Box<dyn Scan + '_>, FormatError>;

    /// The number formats that the styles of cells stand for.
    fn styles(&mut self, _limits: &Limits) -> Result<Styles, FormatError> {
        Ok(Styles::default())
    }

    /// Passes the shared texts to `see`, in their order.
    fn strings(&mut self, _limits: &Limits, _see: &mut See<'_>) -> Result<(), FormatError> {
        Ok(())
    }

    /// The texts of the boxes that lie on a sheet, by the cells where they begin.
    fn boxes(&mut self, _sheet: u32, _limits: &Limits) -> Result<Vec<LooseRow>, FormatError> {
        Ok(Vec::new())
    }

    /// The comments of a sheet.
    fn comments(&mut self, _sheet: u32, _limits: &Limits) -> Result<Comments, FormatError> {
        Ok(Comments::default())
    }
}

/// A sheet that is read once from its beginning.
pub(super) trait Scan {
    /// The next item; `None` at the end.
    fn next(&mut self) -> Result<Option<Item<'_>>, FormatError>;

    /// A formula with its `=`, written out for its cell. Of a formula that cannot be written out only the `=` is left.
    fn formula_text(&self, formula: &RawFormula, at: CellRef) -> String;

    /// Goes on to the items after the cells without reading the cells, by at most `bytes` bytes; `None` if they are
    /// further away.
    fn behind_cells<'a>(self: Box<Self>, bytes: u64) -> Result<Option<Box<dyn Scan + 'a>>, FormatError>
    where
        Self: 'a;
}

/// The comments of a sheet that are kept, and how many there are in all.
#[derive(Default)]
pub(super) struct Comments {
    pub kept: Vec<Comment>,
    pub count: u64,
    text_bytes: usize,
}

impl Comments {
    pub(super) fn add(&mut self, comment: Comment, limits: &Limits) -> Result<(), FormatError> {
        self.count += 1;
        if self.kept.len() < SheetProfile::MAX_COMMENTS {
            self.text_bytes += comment.text.len() + comment.author.len();
            check_text(self.text_bytes, limits)?;
            self.kept.push(comment);
        }
        Ok(())
    }
}
