//! Reads text documents and presentations in the OpenDocument format (ISO 26300): `content.xml` in a zip, as Markdown.

mod body;
mod formulas;
mod images;
mod locked;
mod styles;
#[cfg(test)]
mod tests;

use crate::{Access, Extraction, Format, FormatError, Limits, Pattern, Patterns, package::Package, xlsx, xml::Node};
use body::Body;
use formulas::{FORMULA, Formulas, formula};
pub(crate) use images::{has_images, images};
use locked::Lock;
use std::io::{Read, Seek};
use styles::Styles;
pub(crate) use styles::is_above;

/// The part with the text.
pub(crate) const CONTENT: &str = "content.xml";
/// What the types of open documents begin with.
const MIME: &str = "application/vnd.oasis.opendocument.";

/// The format that the member `mimetype` of a package names.
pub(crate) fn by_mime(mime: &[u8]) -> Option<Format> {
    let mime = std::str::from_utf8(mime).ok()?.trim().to_ascii_lowercase();
    if mime == "application/epub+zip" {
        return Some(Format::Epub);
    }
    match mime.strip_prefix(MIME)? {
        "text" | "text-template" | "text-master" | "text-web" => Some(Format::Odt),
        "presentation" | "presentation-template" => Some(Format::Odp),
        "spreadsheet" | "spreadsheet-template" => Some(Format::Ods),
        _ => None,
    }
}

/// The end of the type of a document's format.
fn kind(format: Format) -> &'static str {
    match format {
        Format::Odp => "presentation",
        Format::Ods => "spreadsheet",
        _ => "text",
    }
}

/// Tells what the document shows. Of a locked one that tells nothing without its password, it tells that it is locked.
pub(crate) fn probe<R: Read + Seek>(
    format: Format,
    mut source: R,
    access: Access<'_>,
) -> Result<Patterns, FormatError> {
    let limits = access.limits;
    let mut package = Package::open(&mut source, format, limits)?;
    match Lock::read(format, &mut package)? {
        Some(lock) if access.password.is_some() => lock.open(&mut package, access)?.probe(limits),
        Some(_) => Ok(Patterns::default().with(Pattern::IsEncrypted, true)),
        None if format == Format::Ods => {
            drop(package);
            xlsx::probe(format, source, access)
        }
        None => {
            let patterns = read(format, &mut package, limits)?.patterns();
            Ok(patterns.with(Pattern::HasImages, has_images(&package)))
        }
    }
}

/// Reads the text of the document. A spreadsheet has one only if it is locked; others are read sheet by sheet.
pub(crate) fn extract<R: Read + Seek>(
    format: Format,
    source: R,
    access: Access<'_>,
) -> Result<Extraction, FormatError> {
    let limits = access.limits;
    let mut package = Package::open(source, format, limits)?;
    match Lock::read(format, &mut package)? {
        Some(lock) => lock.open(&mut package, access)?.extract(limits),
        None if format == Format::Ods => Err(FormatError::unsupported(format, xlsx::NO_TEXT)),
        None => read(format, &mut package, limits),
    }
}

fn read<R: Read + Seek>(format: Format, package: &mut Package<R>, limits: &Limits) -> Result<Extraction, FormatError> {
    let mut styles = Styles::default();
    if let Some(mut xml) = package.xml("styles.xml")? {
        while let Some(node) = xml.next()? {
            if let Node::Start(element) = node {
                styles.add(&element);
            }
        }
    }
    let formulas = Formulas::read(format, package, limits)?;
    let missing = || FormatError::corrupt(format, "the package has no content.xml");
    let mut xml = package.xml(CONTENT)?.ok_or_else(missing)?;
    let mut body = Body::new(styles, formulas, format, limits);
    while let Some(node) = xml.next()? {
        match node {
            Node::Start(element) if element.name == FORMULA => body.formula(&formula(&mut xml, 0, limits)?)?,
            Node::Start(element) => body.start(element)?,
            Node::Text(text) => body.text(&text)?,
            Node::End => body.end()?,
        }
    }
    body.finish()?.within(limits)
}

/// Refuses a package whose parts are encrypted; its manifest says so.
pub(crate) fn check_encryption<R: Read + Seek>(format: Format, package: &mut Package<R>) -> Result<(), FormatError> {
    if Lock::read(format, package)?.is_some() { Err(FormatError::Encrypted { format }) } else { Ok(()) }
}
