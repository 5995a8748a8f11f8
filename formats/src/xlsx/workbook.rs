//! What a workbook declares about itself: its sheets, its day zero, its names.

use super::{
    book::{Book, Comments, Scan},
    moment::DateEpoch,
    ods::OpenDocument,
    office::Office,
    records::LooseRow,
    shared_strings::{self, SharedStrings},
    value::Interpreter,
    xls,
};
use crate::{Format, FormatError, Limits, delimited::Table, detect, ole2};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashSet},
    fs::File,
    io::{Cursor, Read, Seek},
};

/// A workbook before any sheet is opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workbook {
    /// In the order of the tabs.
    pub sheets: Vec<Sheet>,
    pub date_epoch: DateEpoch,
    /// At most [`Workbook::MAX_NAMES`].
    pub defined_names: Vec<DefinedName>,
}

impl Workbook {
    /// How many defined names are reported; some workbooks have tens of thousands of broken ones.
    pub const MAX_NAMES: usize = 1_000;

    /// The sheet with a name; an exact match wins over one that differs in case.
    pub fn sheet(&self, name: &str) -> Option<&Sheet> {
        self.sheets
            .iter()
            .find(|sheet| sheet.name == name)
            .or_else(|| self.sheets.iter().find(|sheet| sheet.name.to_lowercase() == name.to_lowercase()))
    }
}

/// A tab of the workbook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sheet {
    /// Its position among the tabs, from 0; the other steps ask for a sheet by it.
    pub index: u32,
    pub name: String,
    pub kind: SheetKind,
    pub state: SheetState,
}

/// What is on a tab; only worksheets have cells that are read as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SheetKind {
    Worksheet,
    Chartsheet,
    Dialogsheet,
    /// A sheet of macros or modules.
    Macrosheet,
}

/// Whether users see the tab; only code can show a very hidden one again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SheetState {
    #[default]
    Visible,
    Hidden,
    VeryHidden,
}

/// A name for a range, a constant or a formula.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinedName {
    pub name: String,
    /// As written, without a leading `=`: `Sheet1!$A$1:$C$9`.
    pub refers_to: String,
    /// The sheet it belongs to; `None` if it is valid in the whole workbook.
    pub sheet: Option<u32>,
}

/// The only sheet of a table in text, as spreadsheets call a new one.
const ONLY_SHEET: &str = "Sheet1";
/// The characters of a sheet's name, which is stored with each of its rows; Excel takes 31.
const NAME_CHARACTERS: usize = 255;

/// A workbook of any format that is ready to be read.
pub(super) struct Opened<'a> {
    book: Box<dyn Book + 'a>,
    format: Format,
    pub workbook: Workbook,
    /// The shared strings as an earlier reading wrote them.
    written_strings: Option<File>,
}

impl<'a> Opened<'a> {
    /// Opens what was recognised as a workbook before. Only a name tells a table in text from other text, so any text is
    /// opened as one.
    pub(super) fn open<R: Read + Seek + 'a>(mut source: R, limits: &Limits) -> Result<Self, FormatError> {
        let format = detect(&mut source)?.format;
        let (book, mut workbook): (Box<dyn Book + 'a>, Workbook) = match format {
            Some(Format::Text) => (Box::new(Table::open(source, limits)?), table()),
            Some(Format::Ods) => {
                let (book, workbook) = OpenDocument::open(source, limits)?;
                (Box::new(book), workbook)
            }
            Some(Format::Xls) => xls::open(source, limits)?,
            Some(Format::Ole2) => {
                let (format, bytes) = ole2::workbook(source, limits)?;
                let (book, workbook) = Office::open(format, Cursor::new(bytes), limits)?;
                (Box::new(book), workbook)
            }
            _ => {
                let (book, workbook) = Office::open(format.unwrap_or(Format::Xlsx), source, limits)?;
                (Box::new(book), workbook)
            }
        };
        for sheet in &mut workbook.sheets {
            if let Some((end, _)) = sheet.name.char_indices().nth(NAME_CHARACTERS) {
                sheet.name.truncate(end);
            }
        }
        name_all(&mut workbook.sheets);
        Ok(Self { book, format: format.unwrap_or(Format::Xlsx), workbook, written_strings: None })
    }

    /// Takes the shared strings from a table that an earlier reading wrote, if there is one.
    pub(super) fn with_strings(self, written: Option<File>) -> Self {
        Self { written_strings: written, ..self }
    }

    /// The sheet at a position among the tabs.
    pub(super) fn sheet(&self, index: u32) -> Result<Sheet, FormatError> {
        self.workbook.sheets.get(index as usize).cloned().ok_or_else(|| {
            let count = self.workbook.sheets.len();
            let reason = format!("the workbook has {count} sheets, but none with the index {index}");
            FormatError::unsupported(self.format, reason)
        })
    }

    /// A sheet from its beginning.
    pub(super) fn scan(&mut self, sheet: u32, limits: &Limits) -> Result<Box<dyn Scan + '_>, FormatError> {
        self.book.scan(sheet, limits)
    }

    pub(super) fn boxes(&mut self, sheet: u32, limits: &Limits) -> Result<Vec<LooseRow>, FormatError> {
        self.book.boxes(sheet, limits)
    }

    pub(super) fn comments(&mut self, sheet: u32, limits: &Limits) -> Result<Comments, FormatError> {
        self.book.comments(sheet, limits)
    }

    /// Hands out all shared strings, in batches.
    pub(super) fn string_batches(
        &mut self,
        limits: &Limits,
        emit: &mut dyn FnMut(Vec<String>) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        shared_strings::batches(|see| self.book.strings(limits, see), emit)
    }

    /// Reads styles and all shared strings.
    pub(super) fn interpreter(&mut self, limits: &Limits) -> Result<Interpreter, FormatError> {
        let strings = match self.written_strings.take() {
            Some(table) => SharedStrings::read_written(table, limits)?,
            None => SharedStrings::read(|see| self.book.strings(limits, see), limits)?,
        };
        self.interpreter_of(strings, limits)
    }

    /// Reads styles, and of the shared strings at least those that are wanted.
    pub(super) fn interpreter_for(
        &mut self,
        wanted: &BTreeSet<u32>,
        limits: &Limits,
    ) -> Result<Interpreter, FormatError> {
        let strings = match self.written_strings.take() {
            Some(table) => SharedStrings::read_written(table, limits)?,
            None => SharedStrings::read_some(|see| self.book.strings(limits, see), wanted, limits)?,
        };
        self.interpreter_of(strings, limits)
    }

    fn interpreter_of(&mut self, strings: SharedStrings, limits: &Limits) -> Result<Interpreter, FormatError> {
        Ok(Interpreter { styles: self.book.styles(limits)?, strings, epoch: self.workbook.date_epoch })
    }
}

/// Names the sheets that have no name, because a reference to their cells needs one: as spreadsheets name a new sheet, by the first number that is free.
fn name_all(sheets: &mut [Sheet]) {
    let taken: HashSet<String> = sheets.iter().map(|sheet| sheet.name.to_lowercase()).collect();
    let mut names = (1_u32..).map(|number| format!("Sheet{number}"));
    for sheet in sheets.iter_mut().filter(|sheet| sheet.name.trim().is_empty()) {
        sheet.name = names.find(|name| !taken.contains(&name.to_lowercase())).unwrap_or_default();
    }
}

fn table() -> Workbook {
    let name = ONLY_SHEET.to_owned();
    let sheet = Sheet { index: 0, name, kind: SheetKind::Worksheet, state: SheetState::Visible };
    Workbook { sheets: vec![sheet], date_epoch: DateEpoch::default(), defined_names: Vec::new() }
}
