//! Workbooks: recognised and probed; their cells have no reader yet.

use std::io::{Read, Seek};

use crate::{Format, FormatError, Limits, Pattern, Patterns, package::Package, xml::Node};

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let mut package = Package::open(source, Format::Xlsx, limits)?;
    let main = package.main_part()?;
    let mut sheets = 0u64;
    if let Some(mut xml) = package.xml(&main)? {
        while let Some(node) = xml.next()? {
            sheets += u64::from(matches!(node, Node::Start(element) if element.name == "sheet"));
        }
    }
    let has_comments = package.names().any(|name| {
        let file = name.rsplit('/').next().unwrap_or_default();
        name.starts_with("xl/")
            && (file.starts_with("comments") || file.starts_with("threadedcomment"))
            && file.ends_with(".xml")
    });
    Ok(Patterns::default()
        .with(Pattern::HasSheets, sheets > 0)
        .with(Pattern::SheetCount, sheets)
        .with(Pattern::HasComments, has_comments))
}
