//! What a workbook declares about itself: its sheets, its day zero, its names.

use serde::{Deserialize, Serialize};

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
    /// Defined names that are reported; some workbooks have tens of thousands of broken ones.
    pub const MAX_NAMES: usize = 1_000;

    /// The sheet of a name; names differ by more than case.
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
    /// Its place among the tabs, from 0; what the other steps ask for.
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
    /// A sheet of Excel 4.0 macros.
    Macrosheet,
}

/// Whether users see the tab; only code shows a very hidden one again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SheetState {
    #[default]
    Visible,
    Hidden,
    VeryHidden,
}

/// Which day is number 0, or rather 1: 1 January 1900, with a 29 February that never was, or 2 January 1904.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DateEpoch {
    #[default]
    #[serde(rename = "1900")]
    From1900,
    #[serde(rename = "1904")]
    From1904,
}

impl DateEpoch {
    /// 1900 or 1904.
    pub fn year(self) -> u16 {
        match self {
            Self::From1900 => 1900,
            Self::From1904 => 1904,
        }
    }
}

/// A name for a range, a constant or a formula.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinedName {
    pub name: String,
    /// As written, without a leading `=`: `Sheet1!$A$1:$C$9`.
    pub refers_to: String,
    /// The sheet it belongs to; `None` where it holds in the whole workbook.
    pub sheet: Option<u32>,
}
