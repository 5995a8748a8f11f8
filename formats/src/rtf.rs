//! Reads RTF as Markdown: paragraphs, headings by outline level or style, lists and tables. Pictures, objects, headers
//! and what was deleted are no text.

mod charset;
mod document;
mod state;
mod tokens;

use crate::{Extraction, Format, FormatError, Limits, Patterns, text};
pub(crate) use charset::by_page;
use document::Document;
use std::io::{Read, Seek};
use tokens::Tokens;

/// How a file begins.
pub(crate) const MARK: &str = "{\\rtf";

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    extract(source, limits).map(|read| read.patterns())
}

pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let bytes = text::read_all(source, limits)?;
    let Some(begin) = memchr::memmem::find(&bytes, MARK.as_bytes()) else {
        return Err(FormatError::corrupt(Format::Rtf, format_args!("it has no `{MARK}`")));
    };
    let mut document = Document::new(limits);
    for token in Tokens::new(&bytes[begin..]) {
        if !document.token(token)? {
            break;
        }
    }
    document.finish()?.within(limits)
}

#[cfg(test)]
mod tests;
