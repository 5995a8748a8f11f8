//! Workbooks in packages of parts that refer to each other: as XML (xlsx) or as binary records (xlsb).

use super::{
    book::{Book, Comments, Scan, See},
    boxes,
    comments::Found,
    markup::{Mark, Markup, damaged, is_true},
    moment::DateEpoch,
    records::LooseRow,
    shared_strings,
    styles::Styles,
    tokens::Surroundings,
    workbook::{DefinedName, Sheet, SheetKind, SheetState, Workbook},
    worksheet::Worksheet,
    xlsb,
};
use crate::{
    Format, FormatError, Limit, Limits, Pattern, Patterns,
    package::{Package, Relationship},
};
use std::{
    collections::{HashMap, HashSet},
    io::{Read, Seek},
};

/// A workbook's package, with the names of the parts that its sheets need.
pub(super) struct Office<R> {
    package: Package<R>,
    sheets: Vec<Sheet>,
    /// One part per sheet, in their order; `None` if the workbook names none, or one that does not exist.
    sheet_parts: Vec<Option<String>>,
    shared_strings: Option<String>,
    styles: Option<String>,
    persons: Vec<String>,
    /// What the formulas of binary sheets refer to; `None` if the parts are XML.
    binary: Option<Surroundings>,
}

impl<R: Read + Seek> Office<R> {
    pub(super) fn open(format: Format, source: R, limits: &Limits) -> Result<(Self, Workbook), FormatError> {
        let mut package = Package::open(source, format, limits)?;
        let main = main_part(&mut package)?;
        let relations = package.relationships(&main)?;
        let part = package.part(&main)?.ok_or_else(|| damaged("the package has no main part"))?;
        let (declared, binary) = if is_binary(&main) {
            let (declared, surroundings) = xlsb::declared(part, limits)?;
            (declared, Some(surroundings))
        } else {
            let mut declared = Declared::default();
            declared.read(&mut Markup::new(part, limits), limits)?;
            (declared, None)
        };
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
        let persons = relations.iter().filter(|relation| relation.kind == "person");
        let office = Self {
            sheet_parts,
            shared_strings: first("sharedStrings"),
            styles: first("styles"),
            persons: persons.map(|relation| relation.target.clone()).collect(),
            sheets: sheets.clone(),
            binary,
            package,
        };
        Ok((office, Workbook { sheets, date_epoch: declared.date_epoch, defined_names: declared.names }))
    }

    /// The name of a sheet's part.
    fn sheet_part(&self, sheet: u32) -> Result<String, FormatError> {
        match self.sheet_parts.get(sheet as usize) {
            Some(Some(part)) => Ok(part.clone()),
            _ => {
                let name = self.sheets.get(sheet as usize).map(|sheet| sheet.name.as_str()).unwrap_or_default();
                Err(damaged(format_args!("the part of sheet `{name}` is missing")))
            }
        }
    }
}

impl<R: Read + Seek> Book for Office<R> {
    fn scan(&mut self, sheet: u32, limits: &Limits) -> Result<Box<dyn Scan + '_>, FormatError> {
        let name = self.sheet_part(sheet)?;
        let bytes = self.package.part(&name)?.ok_or_else(|| damaged(format_args!("the part `{name}` is missing")))?;
        Ok(match &self.binary {
            Some(surroundings) => Box::new(xlsb::BinarySheet::new(bytes, surroundings, limits)),
            None => Box::new(Worksheet::new(bytes, limits)),
        })
    }

    fn styles(&mut self, limits: &Limits) -> Result<Styles, FormatError> {
        let Some(name) = &self.styles else { return Ok(Styles::default()) };
        match self.package.part(name)? {
            Some(part) if self.binary.is_some() => xlsb::styles(part),
            Some(part) => Styles::read(part, limits),
            None => Ok(Styles::default()),
        }
    }

    fn strings(&mut self, limits: &Limits, see: &mut See<'_>) -> Result<(), FormatError> {
        let Some(name) = &self.shared_strings else { return Ok(()) };
        let raised = match &self.styles {
            Some(styles) if self.binary.is_some() => match self.package.part(styles)? {
                Some(part) => xlsb::raised_fonts(part)?,
                None => HashSet::new(),
            },
            _ => HashSet::new(),
        };
        match self.package.part(name)? {
            Some(part) if self.binary.is_some() => xlsb::strings(part, &raised, see),
            Some(part) => shared_strings::each(part, limits, see),
            None => Ok(()),
        }
    }

    fn boxes(&mut self, sheet: u32, limits: &Limits) -> Result<Vec<LooseRow>, FormatError> {
        let part = self.sheet_part(sheet)?;
        let mut all = Vec::new();
        for drawing in self.package.relationships(&part)?.into_iter().filter(|relation| relation.kind == "drawing") {
            if let Some(xml) = self.package.xml(&drawing.target)? {
                all.extend(boxes::read(xml, limits)?);
            }
        }
        Ok(all)
    }

    fn comments(&mut self, sheet: u32, limits: &Limits) -> Result<Comments, FormatError> {
        let part = self.sheet_part(sheet)?;
        let relations = self.package.relationships(&part)?;
        let parts = |kind: &str| -> Vec<String> {
            relations.iter().filter(|relation| relation.kind == kind).map(|relation| relation.target.clone()).collect()
        };
        let mut found = Found::default();
        let threads = parts("threadedComment");
        if !threads.is_empty() {
            for name in &self.persons {
                if let Some(part) = self.package.part(name)? {
                    found.read_persons(part, limits)?;
                }
            }
            for name in threads {
                if let Some(part) = self.package.part(&name)? {
                    found.read_threads(part, limits)?;
                }
            }
        }
        for name in parts("comments") {
            match self.package.part(&name)? {
                Some(part) if self.binary.is_some() => xlsb::notes(part, &mut found, limits)?,
                Some(part) => found.read_notes(part, limits)?,
                None => {}
            }
        }
        Ok(found.comments)
    }
}

/// Reads only the list of sheets and the package's own lists, however large the rest is.
pub(super) fn probe<R: Read + Seek>(format: Format, source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let (office, workbook) = Office::open(format, source, limits)?;
    let has_comments = office.package.names().any(|name| {
        let file = name.rsplit('/').next().unwrap_or_default();
        name.starts_with("xl/")
            && (file.starts_with("comment") || file.starts_with("threadedcomment"))
            && (file.ends_with(".xml") || file.ends_with(".bin"))
    });
    let patterns = Patterns::default()
        .with(Pattern::HasSheets, !workbook.sheets.is_empty())
        .with(Pattern::SheetCount, workbook.sheets.len())
        .with(Pattern::HasComments, has_comments);
    // The newer kinds of charts keep their values in another way, and are not read.
    let is_chart = |name: &str| name.strip_prefix("xl/charts/chart").is_some_and(|rest| !rest.starts_with("ex"));
    let has_images = || office.package.names().any(|name| name.starts_with("xl/media/") || is_chart(name));
    Ok(if format.has_images() { patterns.with(Pattern::HasImages, has_images()) } else { patterns })
}

/// The part that lists the sheets.
fn main_part<R: Read + Seek>(package: &mut Package<R>) -> Result<String, FormatError> {
    const USUAL: [&str; 2] = ["xl/workbook.xml", "xl/workbook.bin"];
    match package.main_part() {
        // Some writers leave out the package's relationships; then the part is looked for in the usual places.
        Err(error @ FormatError::Corrupt { .. }) => {
            USUAL.iter().find(|name| package.has(name)).map(|name| (*name).to_owned()).ok_or(error)
        }
        main => main,
    }
}

fn is_binary(part: &str) -> bool {
    part.to_ascii_lowercase().ends_with(".bin")
}

/// Each sheet needs a part of its own.
pub(super) fn check_sheets(count: usize, limits: &Limits) -> Result<(), FormatError> {
    if count > limits.zip_members as usize {
        let detail = format_args!("the workbook lists over {} sheets", limits.zip_members);
        return Err(FormatError::over(Limit::ZipMembers, detail));
    }
    Ok(())
}

/// What the main part declares.
#[derive(Default)]
pub(super) struct Declared {
    /// Sheets whose kind and index are not known yet, with the ids of their relationships.
    pub sheets: Vec<(Sheet, String)>,
    pub date_epoch: DateEpoch,
    pub names: Vec<DefinedName>,
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
                    check_sheets(self.sheets.len(), limits)?;
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
