//! The styles that cells, tables and texts name.

use super::{
    super::{
        markup::{Mark, Markup},
        styles::{Styles, check_styles},
    },
    data_style::DataStyle,
};
use crate::{FormatError, odf};
use std::{
    collections::{HashMap, HashSet},
    io::Read,
};

/// How many styles stand above each other.
const DEPTH: usize = 32;
/// Ids from here on are those of the document's own formats.
const FIRST_ID: u32 = 1 << 16;

/// Styles by their names.
#[derive(Default)]
pub(super) struct CellStyles {
    formats: HashMap<String, DataStyle>,
    cells: HashMap<String, CellStyle>,
    hidden_tables: HashSet<String>,
    /// The styles of texts above the line, and the style that each style of texts derives from.
    raised: HashSet<String>,
    of_texts: HashMap<String, String>,
    /// The ids of the formats of the styles with these indices, and the codes of the ids.
    ids: Vec<u32>,
    codes: HashMap<u32, String>,
}

/// A style of cells.
#[derive(Default)]
struct CellStyle {
    /// The name of its number format.
    format: Option<String>,
    parent: Option<String>,
    index: u32,
}

impl CellStyles {
    /// Reads a group of styles that just began. A later style replaces one of the same name.
    pub(super) fn read<S: Read>(&mut self, xml: &mut Markup<S>) -> Result<(), FormatError> {
        loop {
            match xml.next()? {
                Some(Mark::Start { empty }) => self.style(xml, empty)?,
                Some(Mark::End) | None => return Ok(()),
                Some(_) => {}
            }
        }
    }

    fn style<S: Read>(&mut self, xml: &mut Markup<S>, empty: bool) -> Result<(), FormatError> {
        let name = xml.attribute("name").unwrap_or_default().into_owned();
        if xml.name() == "style" {
            let attribute = |name: &str| xml.attribute(name).map(|value| value.into_owned());
            match xml.attribute("family").as_deref() {
                Some("table-cell") => {
                    let format = attribute("data-style-name");
                    let parent = attribute("parent-style-name");
                    self.cells.insert(name, CellStyle { format, parent, index: 0 });
                }
                Some("table") if !empty => {
                    if says(xml, hides)? {
                        self.hidden_tables.insert(name);
                    }
                    return Ok(());
                }
                Some("text") => {
                    if let Some(parent) = attribute("parent-style-name") {
                        self.of_texts.insert(name.clone(), parent);
                    }
                    if !empty && says(xml, raises)? {
                        self.raised.insert(name);
                    }
                    return check_styles(self.of_texts.len().max(self.raised.len()));
                }
                _ => {}
            }
        } else if let Some(format) = DataStyle::read(xml, empty)? {
            self.formats.insert(name, format);
            return check_styles(self.formats.len());
        }
        if !empty {
            xml.skip()?;
        }
        check_styles(self.cells.len().max(self.hidden_tables.len()))
    }

    /// Gives each style of cells its number format, once all styles were read.
    pub(super) fn finish(&mut self) {
        let mut ids: HashMap<&str, u32> = HashMap::new();
        let mut of_styles = Vec::with_capacity(self.cells.len());
        for name in self.cells.keys() {
            let mut id = 0;
            let mut style = Some(name.as_str());
            for _ in 0..DEPTH {
                let Some(found) = style.and_then(|name| self.cells.get(name)) else { break };
                if let Some(format) = &found.format {
                    let next = FIRST_ID + ids.len() as u32;
                    id = *ids.entry(format).or_insert(next);
                    break;
                }
                style = found.parent.as_deref();
            }
            of_styles.push(id);
        }
        let codes = ids.iter().filter_map(|(name, id)| {
            let format = self.formats.get(*name)?;
            Some((*id, format.code(|name| self.formats.get(name))))
        });
        self.codes = codes.collect();
        // The order of the keys is the same as long as nothing changes.
        for (index, style) in (0..).zip(self.cells.values_mut()) {
            style.index = index;
        }
        self.ids = of_styles;
    }

    pub(super) fn formats(&self) -> Styles {
        Styles::of(&self.ids, &self.codes)
    }

    /// The index of a style of cells; one that is not defined has no number format.
    pub(super) fn index(&self, name: &str) -> u32 {
        self.cells.get(name).map_or(u32::MAX, |style| style.index)
    }

    /// Whether a style of texts, or the one that it derives from, stands above the line.
    pub(super) fn raises(&self, name: &str) -> bool {
        self.raised.contains(name) || self.of_texts.get(name).is_some_and(|parent| self.raised.contains(parent))
    }

    pub(super) fn hides_table(&self, name: &str) -> bool {
        self.hidden_tables.contains(name)
    }
}

/// Whether one of the properties of a style that just began says so.
fn says<S: Read>(xml: &mut Markup<S>, so: fn(&Markup<S>) -> bool) -> Result<bool, FormatError> {
    let mut says = false;
    loop {
        match xml.next()? {
            Some(Mark::Start { empty }) => {
                says |= so(xml);
                if !empty {
                    xml.skip()?;
                }
            }
            Some(Mark::End) | None => return Ok(says),
            Some(_) => {}
        }
    }
}

/// Whether the properties of a table hide it.
fn hides<S: Read>(xml: &Markup<S>) -> bool {
    xml.name() == "table-properties" && xml.attribute("display").is_some_and(|shown| shown == "false")
}

/// Whether the properties of a text raise it.
fn raises<S: Read>(xml: &Markup<S>) -> bool {
    xml.name() == "text-properties" && xml.attribute("text-position").is_some_and(|at| odf::is_above(&at))
}
