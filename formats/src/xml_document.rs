//! Reads XML as what it says. Documents (DocBook, JATS, TEI and the like) become headings, paragraphs, lists and tables;
//! data becomes values under the names of their elements. No tags, no entities but those of XML itself.

mod document;
mod fields;
mod survey;
mod vocabulary;

use crate::{Extraction, Format, FormatError, Limits, Pattern, Patterns, charset, text, xml::XmlReader};
use document::Document;
use encoding_rs::Encoding;
use std::io::{self, Read, Seek, SeekFrom};
use survey::Survey;

/// The declaration stands within so many bytes.
const DECLARATION: usize = 256;

/// Measures a document. What does not say that it is XML and does not parse as such is markup of another kind, as programs
/// have it.
pub(crate) fn probe<R: Read + Seek>(mut source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    match extract(&mut source, limits) {
        Err(FormatError::Corrupt { .. }) if !is_declared(&mut source)? => {
            Ok(Patterns::default().with(Pattern::HasTextLayer, false).with(Pattern::HasMarkup, true))
        }
        read => read.map(|read| read.patterns()),
    }
}

pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let (text, charset) = decode(&text::read_all(source, limits)?);
    let reader = || XmlReader::document(text.trim_start().as_bytes(), Format::Xml, limits);
    let survey = Survey::of(reader())?;
    let mut document = Document::new(&survey, limits);
    let mut reader = reader();
    while let Some(node) = reader.next()? {
        document.node(node)?;
    }
    let mut read = document.finish()?;
    read.charset = Some(charset.to_owned());
    read.within(limits)
}

/// Whether the text begins with a declaration, or with the type of the document.
fn is_declared<R: Read + Seek>(source: &mut R) -> io::Result<bool> {
    source.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    source.take(DECLARATION as u64).read_to_end(&mut head)?;
    let head = charset::decode(&head).text.trim_start().to_ascii_lowercase();
    Ok(head.starts_with("<?xml") || head.starts_with("<!doctype"))
}

/// Decodes by the mark, by the declaration, or by what the bytes resemble.
fn decode(bytes: &[u8]) -> (String, &'static str) {
    let marked = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    match marked.or_else(|| declared(bytes)) {
        Some(encoding) => {
            let (text, encoding, _) = encoding.decode(bytes);
            (charset::clean(&text), encoding.name())
        }
        None => {
            let decoded = charset::decode(bytes);
            (decoded.text, decoded.charset)
        }
    }
}

/// The encoding that the declaration names; one of two bytes a unit would have made it unreadable.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(DECLARATION)];
    let end = memchr::memmem::find(head, b"?>")?;
    let head = std::str::from_utf8(&head[..end]).ok()?.trim_start().strip_prefix("<?xml")?;
    let (_, rest) = head.split_once("encoding")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let name = rest.strip_prefix(['"', '\''])?;
    let encoding = Encoding::for_label(name.split(['"', '\'']).next()?.as_bytes())?;
    encoding.is_ascii_compatible().then_some(encoding)
}

#[cfg(test)]
mod tests;
