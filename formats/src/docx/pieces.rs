//! Parts of a document in other formats (`altChunk`). Programs that make documents of web pages put all of their text there, and Word takes it in when it
//! opens the document.

use crate::{
    Extraction, Format, FormatError, Limits, charset, detect_named, html, mail, markdown,
    package::{Package, Relationship},
    rtf,
};
use std::{
    collections::HashMap,
    io::{Cursor, Read, Seek},
};

/// How the relationship to such a part is called.
const KIND: &str = "aFChunk";

/// The parts by the ids by which the main part refers to them, and how many cannot be read.
pub(super) fn read<R: Read + Seek>(
    package: &mut Package<R>,
    related: &[Relationship],
    limits: &Limits,
) -> Result<(HashMap<String, Extraction>, u64), FormatError> {
    let (mut pieces, mut unread) = (HashMap::new(), 0);
    for Relationship { id, target, .. } in related.iter().filter(|relation| relation.kind == KIND) {
        let read = match package.part(target) {
            Ok(None) => continue,
            Ok(Some(mut part)) => {
                let mut bytes = Vec::new();
                part.read_to_end(&mut bytes).map_err(FormatError::from).map(|_| bytes)
            }
            Err(error) => Err(error),
        };
        match read.and_then(|bytes| piece(bytes, target, limits)) {
            Ok(Some(piece)) => {
                pieces.insert(id.clone(), piece);
            }
            // One damaged part keeps the rest of the document from nobody; what costs too much does.
            Ok(None) => unread += 1,
            Err(error) if error.limit().is_none() => unread += 1,
            Err(error) => return Err(error),
        }
    }
    Ok((pieces, unread))
}

/// What a part holds; `None` if its format has no text that could stand in a document.
fn piece(bytes: Vec<u8>, name: &str, limits: &Limits) -> Result<Option<Extraction>, FormatError> {
    let format = detect_named(&mut Cursor::new(&bytes), Some(name))?.format;
    Ok(Some(match format {
        Some(Format::Html) => html::Source::decode(&bytes, None).body(limits)?,
        Some(Format::Eml) => mail::content(&bytes, limits)?,
        Some(Format::Rtf) => rtf::extract(Cursor::new(bytes), limits)?,
        // A document may hold itself, so that its own parts are not read.
        Some(Format::Docx) => super::read(Cursor::new(bytes), limits, false)?.0,
        Some(Format::Text) => {
            let mut text = String::new();
            markdown::push_text(&mut text, &charset::decode(&bytes).text);
            Extraction { text, ..Extraction::default() }
        }
        _ => return Ok(None),
    }))
}
