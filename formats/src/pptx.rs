//! Presentations: recognised and probed; their text has no reader yet.

use std::io::{Read, Seek};

use crate::{Format, FormatError, Limits, Pattern, Patterns, package::Package, xml::Node};

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let mut package = Package::open(source, Format::Pptx, limits)?;
    let main = package.main_part()?;
    let mut has_slides = false;
    if let Some(mut xml) = package.xml(&main)? {
        while let Some(node) = xml.next()? {
            has_slides |= matches!(node, Node::Start(element) if element.name == "sldId");
        }
    }
    Ok(Patterns::default().with(Pattern::HasSlides, has_slides))
}
