//! Reads spreadsheets in the OpenDocument format (ISO 26300): `content.xml` in a zip.

mod content;
mod data_style;
mod formula;
mod styles;
#[cfg(test)]
mod tests;

use super::{
    book::{Book, Comments, Scan},
    markup::{Mark, Markup},
    moment::DateEpoch,
    office::check_sheets,
    styles::Styles,
    workbook::{DefinedName, Sheet, SheetKind, SheetState, Workbook},
};
use crate::{
    Format, FormatError, Limits, Pattern, Patterns, odf,
    package::{CappedPart, Package},
};
use content::Content;
use std::io::{Read, Seek};
use styles::CellStyles;

/// An open document, with what its cells refer to.
pub(super) struct OpenDocument<R> {
    package: Package<R>,
    styles: CellStyles,
    /// For each sheet, how many tables of the document come before it.
    places: Vec<u32>,
    has_comments: bool,
}

impl<R: Read + Seek> OpenDocument<R> {
    pub(super) fn open(source: R, limits: &Limits) -> Result<(Self, Workbook), FormatError> {
        let mut package = Package::open(source, Format::Ods, limits)?;
        odf::check_encryption(Format::Ods, &mut package)?;
        let mut styles = CellStyles::default();
        if let Some(part) = package.part("styles.xml")? {
            read_common_styles(&mut Markup::of_format(part, Format::Ods, limits), &mut styles)?;
        }
        let part = package.part(odf::CONTENT)?.ok_or_else(|| damaged("the package has no content.xml"))?;
        let mut list = List { styles, tables: Vec::new(), places: Vec::new(), ..List::default() };
        list.read(&mut Markup::of_format(part, Format::Ods, limits), limits)?;
        let List { mut styles, tables, places, names, date_epoch, has_comments, .. } = list;
        styles.finish();
        let sheets = (0..).zip(tables).map(|(index, (name, style))| Sheet {
            index,
            name,
            kind: SheetKind::Worksheet,
            state: if styles.hides_table(&style) { SheetState::Hidden } else { SheetState::Visible },
        });
        let workbook = Workbook { sheets: sheets.collect(), date_epoch, defined_names: names };
        Ok((Self { package, styles, places, has_comments }, workbook))
    }

    fn content(&mut self, sheet: u32, limits: &Limits) -> Result<Content<'_, CappedPart<'_, R>>, FormatError> {
        let place = self.places.get(sheet as usize).copied();
        let place = place.ok_or_else(|| damaged(format_args!("it has no table number {sheet}")))?;
        let part = self.package.part(odf::CONTENT)?.ok_or_else(|| damaged("the package has no content.xml"))?;
        Content::open(Markup::of_format(part, Format::Ods, limits), place, &self.styles, limits)
    }
}

impl<R: Read + Seek> Book for OpenDocument<R> {
    fn scan(&mut self, sheet: u32, limits: &Limits) -> Result<Box<dyn Scan + '_>, FormatError> {
        Ok(Box::new(self.content(sheet, limits)?))
    }

    fn styles(&mut self, _limits: &Limits) -> Result<Styles, FormatError> {
        Ok(self.styles.formats())
    }

    fn comments(&mut self, sheet: u32, limits: &Limits) -> Result<Comments, FormatError> {
        // A comment stands in its cell, so that the whole sheet is read for them.
        if self.has_comments { self.content(sheet, limits)?.into_comments() } else { Ok(Comments::default()) }
    }
}

/// Measures what the document lists.
pub(super) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let (document, workbook) = OpenDocument::open(source, limits)?;
    Ok(Patterns::default()
        .with(Pattern::HasSheets, !workbook.sheets.is_empty())
        .with(Pattern::SheetCount, workbook.sheets.len())
        .with(Pattern::HasComments, document.has_comments)
        .with(Pattern::HasImages, odf::has_images(&document.package)))
}

/// What `content.xml` lists besides cells.
#[derive(Default)]
struct List {
    styles: CellStyles,
    /// The name and the style of each sheet's table.
    tables: Vec<(String, String)>,
    places: Vec<u32>,
    names: Vec<DefinedName>,
    date_epoch: DateEpoch,
    has_comments: bool,
    /// How many tables were met, with those that are no sheets.
    met: u32,
}

impl List {
    fn read<S: Read>(&mut self, xml: &mut Markup<S>, limits: &Limits) -> Result<(), FormatError> {
        let mut is_spreadsheet = false;
        while let Some(mark) = xml.next()? {
            let Mark::Start { empty } = mark else { continue };
            match xml.name() {
                "document-content" | "body" => {}
                "automatic-styles" if !empty => self.styles.read(xml)?,
                "spreadsheet" => {
                    is_spreadsheet = true;
                    if !empty {
                        self.spreadsheet(xml, limits)?;
                    }
                }
                _ if !empty => xml.skip()?,
                _ => {}
            }
        }
        if is_spreadsheet { Ok(()) } else { Err(damaged("its content is not a spreadsheet")) }
    }

    fn spreadsheet<S: Read>(&mut self, xml: &mut Markup<S>, limits: &Limits) -> Result<(), FormatError> {
        loop {
            match xml.next()? {
                Some(Mark::Start { empty }) => match xml.name() {
                    "table" => {
                        let name = xml.attribute("name").unwrap_or_default().into_owned();
                        let style = xml.attribute("style-name").unwrap_or_default().into_owned();
                        if !is_copy(&name) {
                            self.tables.push((name, style));
                            self.places.push(self.met);
                            check_sheets(self.tables.len(), limits)?;
                        }
                        self.met = self.met.saturating_add(1);
                        if !empty {
                            self.has_comments |= has_annotation(xml)?;
                        }
                    }
                    "named-expressions" if !empty => self.named_expressions(xml)?,
                    "calculation-settings" if !empty => self.settings(xml)?,
                    _ if !empty => xml.skip()?,
                    _ => {}
                },
                Some(Mark::End) | None => return Ok(()),
                Some(_) => {}
            }
        }
    }

    fn named_expressions<S: Read>(&mut self, xml: &mut Markup<S>) -> Result<(), FormatError> {
        loop {
            match xml.next()? {
                Some(Mark::Start { empty }) => {
                    let refers_to = match xml.name() {
                        "named-range" => xml.attribute("cell-range-address").map(|range| formula::range(&range)),
                        "named-expression" => xml.attribute("expression").map(|text| formula::formula(&text)),
                        _ => None,
                    };
                    if let Some(refers_to) = refers_to.filter(|_| self.names.len() < Workbook::MAX_NAMES) {
                        let name = xml.attribute("name").unwrap_or_default().into_owned();
                        self.names.push(DefinedName { name, refers_to, sheet: None });
                    }
                    if !empty {
                        xml.skip()?;
                    }
                }
                Some(Mark::End) | None => return Ok(()),
                Some(_) => {}
            }
        }
    }

    /// Reads which day is number 0. Dates are not stored as numbers here, but formulas may make them of numbers.
    fn settings<S: Read>(&mut self, xml: &mut Markup<S>) -> Result<(), FormatError> {
        loop {
            match xml.next()? {
                Some(Mark::Start { empty }) => {
                    let is_zero = xml.name() == "null-date";
                    if is_zero && xml.attribute("date-value").is_some_and(|day| day == "1904-01-01") {
                        self.date_epoch = DateEpoch::From1904;
                    }
                    if !empty {
                        xml.skip()?;
                    }
                }
                Some(Mark::End) | None => return Ok(()),
                Some(_) => {}
            }
        }
    }
}

/// Whether a table is a copy of cells in another file, which no tab shows.
fn is_copy(name: &str) -> bool {
    name.starts_with("'file:") || name.starts_with("'http")
}

/// Skips the table that just began, and says whether it has comments.
fn has_annotation<S: Read>(xml: &mut Markup<S>) -> Result<bool, FormatError> {
    let (mut open, mut has) = (1u32, false);
    while open > 0 {
        match xml.next()? {
            Some(Mark::Start { empty: false }) => {
                open += 1;
                has = has || xml.name() == "annotation";
            }
            Some(Mark::End) => open -= 1,
            Some(_) => {}
            None => break,
        }
    }
    Ok(has)
}

/// Reads the styles that all sheets share; those of page headers are of no use.
fn read_common_styles<S: Read>(xml: &mut Markup<S>, styles: &mut CellStyles) -> Result<(), FormatError> {
    while let Some(mark) = xml.next()? {
        let Mark::Start { empty } = mark else { continue };
        match xml.name() {
            "document-styles" => {}
            "styles" if !empty => styles.read(xml)?,
            _ if !empty => xml.skip()?,
            _ => {}
        }
    }
    Ok(())
}

fn damaged(reason: impl ToString) -> FormatError {
    FormatError::corrupt(Format::Ods, reason)
}
