//! Reads text documents and presentations in the OpenDocument format (ISO 26300): `content.xml` in a zip, as Markdown.

mod body;
mod images;
mod styles;
#[cfg(test)]
mod tests;

use crate::{Extraction, Format, FormatError, Limits, Pattern, Patterns, package::Package, xml::Node};
use body::Body;
pub(crate) use images::{has_images, images};
use std::io::{Read, Seek};
use styles::Styles;

/// The part with the text.
pub(crate) const CONTENT: &str = "content.xml";

/// The format that the member `mimetype` of a package names.
pub(crate) fn by_mime(mime: &[u8]) -> Option<Format> {
    let mime = std::str::from_utf8(mime).ok()?.trim().to_ascii_lowercase();
    if mime == "application/epub+zip" {
        return Some(Format::Epub);
    }
    match mime.strip_prefix("application/vnd.oasis.opendocument.")? {
        "text" | "text-template" | "text-master" | "text-web" => Some(Format::Odt),
        "presentation" | "presentation-template" => Some(Format::Odp),
        "spreadsheet" | "spreadsheet-template" => Some(Format::Ods),
        _ => None,
    }
}

pub(crate) fn probe<R: Read + Seek>(format: Format, source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let mut package = Package::open(source, format, limits)?;
    let patterns = read(format, &mut package, limits)?.patterns();
    Ok(patterns.with(Pattern::HasImages, has_images(&package)))
}

pub(crate) fn extract<R: Read + Seek>(format: Format, source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    read(format, &mut Package::open(source, format, limits)?, limits)
}

fn read<R: Read + Seek>(format: Format, package: &mut Package<R>, limits: &Limits) -> Result<Extraction, FormatError> {
    check_encryption(format, package)?;
    let mut styles = Styles::default();
    if let Some(mut xml) = package.xml("styles.xml")? {
        while let Some(node) = xml.next()? {
            if let Node::Start(element) = node {
                styles.add(&element);
            }
        }
    }
    let missing = || FormatError::corrupt(format, "the package has no content.xml");
    let mut xml = package.xml(CONTENT)?.ok_or_else(missing)?;
    let mut body = Body::new(styles, format, limits);
    while let Some(node) = xml.next()? {
        match node {
            Node::Start(element) => body.start(element)?,
            Node::Text(text) => body.text(&text)?,
            Node::End => body.end()?,
        }
    }
    body.finish()?.within(limits)
}

/// Refuses a package whose parts are encrypted; its manifest says so.
pub(crate) fn check_encryption<R: Read + Seek>(format: Format, package: &mut Package<R>) -> Result<(), FormatError> {
    let Some(mut xml) = package.xml("META-INF/manifest.xml")? else { return Ok(()) };
    while let Some(node) = xml.next()? {
        if matches!(&node, Node::Start(element) if element.name == "encryption-data") {
            return Err(FormatError::Sealed { format });
        }
    }
    Ok(())
}
