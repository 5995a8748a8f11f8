//! What a workbook declares about itself: its sheets, its day zero, its names.

use super::{
    markup::{Mark, Markup, damaged, is_true},
    moment::DateEpoch,
    scan::{Scan, TableScan},
    shared_strings::SharedStrings,
    styles::Styles,
    value::Interpreter,
    worksheet::Worksheet,
};
use crate::{
    Format, FormatError, Limit, Limits,
    delimited::Table,
    detect,
    package::{CappedPart, Package, Relationship},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Seek},
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

/// What a workbook is stored in.
pub(super) enum Parts<R> {
    Package(Package<R>),
    /// A table in text: a workbook of one sheet, without any part.
    Table(Table<R>),
}

impl<R: Read + Seek> Parts<R> {
    /// The part's bytes, or `None` if there is no part of that name.
    pub(super) fn part(&mut self, name: &str) -> Result<Option<CappedPart<'_, R>>, FormatError> {
        match self {
            Self::Package(package) => package.part(name),
            Self::Table(_) => Ok(None),
        }
    }

    pub(super) fn relationships(&mut self, part: &str) -> Result<Vec<Relationship>, FormatError> {
        match self {
            Self::Package(package) => package.relationships(part),
            Self::Table(_) => Ok(Vec::new()),
        }
    }
}

/// The only sheet of a table in text, as spreadsheets call a new one.
const ONLY_SHEET: &str = "Sheet1";

/// A workbook's package, with the names of the parts that its sheets need.
pub(super) struct Opened<R> {
    pub package: Parts<R>,
    pub workbook: Workbook,
    /// One part per sheet, in their order; `None` if the workbook names none, or one that does not exist.
    sheet_parts: Vec<Option<String>>,
    pub shared_strings: Option<String>,
    /// The shared strings as an earlier reading wrote them.
    written_strings: Option<File>,
    pub styles: Option<String>,
    pub persons: Vec<String>,
}

impl<R: Read + Seek> Opened<R> {
    /// Opens what was recognised as a workbook before: a package, or else a table in text.
    pub(super) fn open(mut source: R, limits: &Limits) -> Result<Self, FormatError> {
        match detect(&mut source)?.format {
            Some(Format::Text) => Ok(Self::of_table(Table::open(source, limits)?)),
            _ => Self::of_package(source, limits),
        }
    }

    fn of_table(table: Table<R>) -> Self {
        let name = ONLY_SHEET.to_owned();
        let sheet = Sheet { index: 0, name, kind: SheetKind::Worksheet, state: SheetState::Visible };
        Self {
            package: Parts::Table(table),
            workbook: Workbook { sheets: vec![sheet], date_epoch: DateEpoch::default(), defined_names: Vec::new() },
            sheet_parts: vec![Some(ONLY_SHEET.to_owned())],
            shared_strings: None,
            written_strings: None,
            styles: None,
            persons: Vec::new(),
        }
    }

    fn of_package(source: R, limits: &Limits) -> Result<Self, FormatError> {
        let mut package = Package::open(source, Format::Xlsx, limits)?;
        let main = main_part(&mut package)?;
        let relations = package.relationships(&main)?;
        let mut declared = Declared::default();
        let part = package.part(&main)?.ok_or_else(|| damaged("the package has no main part"))?;
        declared.read(&mut Markup::new(part, limits), limits)?;
        let first = |kind: &str| {
            relations.iter().find(|relation| relation.kind == kind).map(|relation| relation.target.clone())
        };
        let mut sheets = Vec::with_capacity(declared.sheets.len());
        let mut sheet_parts = Vec::with_capacity(declared.sheets.len());
        let by_id: HashMap<&str, &Relationship> =
            relations.iter().map(|relation| (relation.id.as_str(), relation)).collect();
        for (index, (sheet, id)) in (0..).zip(declared.sheets) {
            let relation = by_id.get(id.as_str());
            let kind = match relation.map(|relation| relation.kind.as_str()) {
                Some("chartsheet") => SheetKind::Chartsheet,
                Some("dialogsheet") => SheetKind::Dialogsheet,
                // A sheet of modules has no part at all.
                Some("xlMacrosheet" | "xlIntlMacrosheet" | "macrosheet") | None => SheetKind::Macrosheet,
                Some(_) => SheetKind::Worksheet,
            };
            sheets.push(Sheet { index, kind, ..sheet });
            sheet_parts.push(relation.map(|relation| relation.target.clone()).filter(|target| package.has(target)));
        }
        Ok(Self {
            sheet_parts,
            shared_strings: first("sharedStrings"),
            written_strings: None,
            styles: first("styles"),
            persons: relations
                .iter()
                .filter(|relation| relation.kind == "person")
                .map(|relation| relation.target.clone())
                .collect(),
            workbook: Workbook { sheets, date_epoch: declared.date_epoch, defined_names: declared.names },
            package: Parts::Package(package),
        })
    }

    /// Takes the shared strings from a table that an earlier reading wrote, if there is one.
    pub(super) fn with_strings(self, written: Option<File>) -> Self {
        Self { written_strings: written, ..self }
    }

    /// Reads the shared strings that an earlier reading wrote.
    pub(super) fn written_strings(&mut self, limits: &Limits) -> Result<Option<SharedStrings>, FormatError> {
        self.written_strings.take().map(|table| SharedStrings::read_written(table, limits)).transpose()
    }

    /// A sheet and the name of its part.
    pub(super) fn sheet(&self, index: u32) -> Result<(Sheet, String), FormatError> {
        let sheet = self.workbook.sheets.get(index as usize).ok_or_else(|| {
            let reason =
                format!("the workbook has {} sheets, but none with the index {index}", self.workbook.sheets.len());
            FormatError::unsupported(Format::Xlsx, reason)
        })?;
        match self.sheet_parts.get(index as usize) {
            Some(Some(part)) => Ok((sheet.clone(), part.clone())),
            _ => Err(damaged(format_args!("the part of sheet `{}` is missing", sheet.name))),
        }
    }

    /// A sheet from its beginning, by the name of its part.
    pub(super) fn scan(&mut self, part: &str, limits: &Limits) -> Result<Scan<'_, R>, FormatError> {
        match &mut self.package {
            Parts::Table(table) => Ok(Scan::Table(TableScan::new(table.rows()?, limits))),
            Parts::Package(package) => {
                let bytes = package.part(part)?.ok_or_else(|| missing(part))?;
                Ok(Scan::Part(Worksheet::new(bytes, limits)))
            }
        }
    }

    /// The bytes of a part that must exist.
    pub(super) fn part(&mut self, name: &str) -> Result<impl Read, FormatError> {
        self.package.part(name)?.ok_or_else(|| missing(name))
    }

    /// Reads styles and all shared strings.
    pub(super) fn interpreter(&mut self, limits: &Limits) -> Result<Interpreter, FormatError> {
        if let Some(strings) = self.written_strings(limits)? {
            return self.interpreter_of(strings, limits);
        }
        let strings = match self.shared_strings.clone() {
            Some(name) => self.package.part(&name)?.map(|part| SharedStrings::read(part, limits)).transpose()?,
            None => None,
        };
        self.interpreter_of(strings.unwrap_or_default(), limits)
    }

    /// Reads styles.
    pub(super) fn interpreter_of(
        &mut self,
        strings: SharedStrings,
        limits: &Limits,
    ) -> Result<Interpreter, FormatError> {
        let styles = match self.styles.clone() {
            Some(name) => self.package.part(&name)?.map(|part| Styles::read(part, limits)).transpose()?,
            None => None,
        };
        Ok(Interpreter { styles: styles.unwrap_or_default(), strings, epoch: self.workbook.date_epoch })
    }
}

fn missing(part: &str) -> FormatError {
    damaged(format_args!("the part `{part}` is missing"))
}

/// The part that lists the sheets.
pub(super) fn main_part<R: Read + Seek>(package: &mut Package<R>) -> Result<String, FormatError> {
    const USUAL: &str = "xl/workbook.xml";
    let main = match package.main_part() {
        // Some writers leave out the package's relationships; then the part is looked for in the usual place.
        Err(FormatError::Corrupt { .. }) if package.has(USUAL) => USUAL.to_owned(),
        main => main?,
    };
    if main.to_ascii_lowercase().ends_with(".bin") {
        let reason = "a binary workbook (xlsb) has no reader; save it as xlsx";
        return Err(FormatError::unsupported(Format::Xlsx, reason));
    }
    Ok(main)
}

/// What the main part declares.
#[derive(Default)]
struct Declared {
    /// Sheets whose kind and index are not known yet, with the ids of their relationships.
    sheets: Vec<(Sheet, String)>,
    date_epoch: DateEpoch,
    names: Vec<DefinedName>,
}

impl Declared {
    fn read<S: Read>(&mut self, xml: &mut Markup<S>, limits: &Limits) -> Result<(), FormatError> {
        let mut root = None;
        while let Some(mark) = xml.next()? {
            let Mark::Start { empty } = mark else { continue };
            match xml.name() {
                name if root.is_none() => root = Some(name == "workbook"),
                "workbookPr" if xml.attribute("date1904").is_some_and(|value| is_true(&value)) => {
                    self.date_epoch = DateEpoch::From1904;
                }
                "sheet" => {
                    self.sheets.push(declared_sheet(xml));
                    // Each sheet needs a part of its own.
                    if self.sheets.len() > limits.zip_members as usize {
                        let detail = format_args!("the workbook lists over {} sheets", limits.zip_members);
                        return Err(FormatError::over(Limit::ZipMembers, detail));
                    }
                }
                "definedName" if self.names.len() < Workbook::MAX_NAMES => {
                    let name = xml.attribute("name").unwrap_or_default().into_owned();
                    let sheet = xml.attribute("localSheetId").and_then(|index| index.parse().ok());
                    let mut refers_to = String::new();
                    if !empty {
                        xml.text(&mut refers_to)?;
                    }
                    self.names.push(DefinedName { name, refers_to, sheet });
                }
                _ => {}
            }
        }
        match root {
            Some(true) => Ok(()),
            _ => Err(damaged("its main part is not a workbook")),
        }
    }
}

fn declared_sheet<S: Read>(xml: &Markup<S>) -> (Sheet, String) {
    let (mut name, mut id, mut state) = (String::new(), String::new(), SheetState::Visible);
    for (key, value) in xml.attributes() {
        match key {
            "name" => name = value.into_owned(),
            "id" => id = value.into_owned(),
            "state" => {
                state = match value.as_ref() {
                    "hidden" => SheetState::Hidden,
                    "veryHidden" => SheetState::VeryHidden,
                    _ => SheetState::Visible,
                };
            }
            _ => {}
        }
    }
    (Sheet { index: 0, name, kind: SheetKind::Worksheet, state }, id)
}
