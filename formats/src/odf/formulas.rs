//! The formulas of a document (MathML): objects in parts of their own, to which frames refer.

use super::CONTENT;
use crate::{
    Format, FormatError, Limits,
    extraction::check_text,
    math::MathMl,
    package::{Package, resolve},
    xml::{Node, XmlReader},
};
use std::{
    collections::HashMap,
    io::{Read, Seek},
};

/// The element of a formula.
pub(super) const FORMULA: &str = "math";

/// Formulas as text, by the folders of their parts.
pub(super) struct Formulas {
    by_folder: HashMap<String, String>,
}

impl Formulas {
    /// Reads the objects of the package that are formulas.
    pub(super) fn read<R: Read + Seek>(
        format: Format,
        package: &mut Package<R>,
        limits: &Limits,
    ) -> Result<Self, FormatError> {
        let end = format!("/{CONTENT}");
        let folders: Vec<String> =
            package.names().filter_map(|name| name.strip_suffix(end.as_str())).map(str::to_owned).collect();
        let (mut by_folder, mut bytes) = (HashMap::new(), 0);
        for folder in folders {
            let read = match package.part(&format!("{folder}{end}")) {
                // Older programs declare the type of a formula.
                Ok(Some(part)) => object(XmlReader::document(part, format, limits), bytes, limits),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            match read {
                Ok(Some(formula)) => {
                    bytes += formula.len();
                    by_folder.insert(folder, formula);
                }
                // One damaged object keeps the rest of the document from nobody; what costs too much does.
                Ok(None) => {}
                Err(error) if error.limit().is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { by_folder })
    }

    /// The formula to which a frame refers; nothing leads out of the package.
    pub(super) fn get(&self, reference: &str) -> Option<&str> {
        let reference = reference.trim_start_matches('#').replace("%20", " ");
        self.by_folder.get(&resolve("", &reference).to_ascii_lowercase()).map(String::as_str)
    }
}

/// The formula that a part holds; `None` if the part holds another object, such as a chart.
fn object<R: Read>(mut xml: XmlReader<R>, before: usize, limits: &Limits) -> Result<Option<String>, FormatError> {
    while let Some(node) = xml.next()? {
        if let Node::Start(element) = node {
            return match element.name == FORMULA {
                true => formula(&mut xml, before, limits).map(Some),
                false => Ok(None),
            };
        }
    }
    Ok(None)
}

/// Reads a formula that has just begun, to its end. So many bytes of text were read before it.
pub(super) fn formula<R: Read>(xml: &mut XmlReader<R>, before: usize, limits: &Limits) -> Result<String, FormatError> {
    let mut formula = MathMl::default();
    formula.start(FORMULA, |_| None);
    while formula.is_open() {
        let Some(node) = xml.next()? else { break };
        formula.node(node);
        check_text(before + formula.len(), limits)?;
    }
    Ok(formula.finish())
}
