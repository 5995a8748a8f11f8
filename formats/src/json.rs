//! Recognises and reads JSON, and JSON lines: each value with the keys that it stands under, without punctuation.
//!
//! The text is written while the file is read, so that no more than one value is in memory.

mod tokens;
mod writer;

use crate::{Extraction, Format, FormatError, Limit, Limits, Patterns, charset::Charset};
use std::io::{self, BufRead, Read, Seek, SeekFrom};
pub(crate) use tokens::{Fault, Token, Tokens};
use writer::Writer;

/// What nests deeper is taken for text.
const DEEPEST: usize = 1 << 20;

/// What a first reading tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Survey {
    /// How many objects and arrays follow each other.
    documents: u64,
    has_cells: bool,
    has_version: bool,
}

impl Survey {
    fn of(source: impl BufRead) -> Result<Self, Fault> {
        let mut survey = Self::default();
        let mut tokens = Tokens::of_names(source, DEEPEST);
        while let Some(token) = tokens.next()? {
            match token {
                Token::EndObject | Token::EndArray if tokens.depth() == 0 => survey.documents += 1,
                Token::Key(key) if tokens.depth() == 1 => match key.as_str() {
                    "cells" | "worksheets" => survey.has_cells = true,
                    "nbformat" => survey.has_version = true,
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(survey)
    }
}

/// The format of a text that parses as JSON from its beginning to its end; `head` is its beginning.
pub(crate) fn format<R: Read + Seek>(source: &mut R, head: &str) -> io::Result<Option<Format>> {
    if !head.trim_start().starts_with(['{', '[']) {
        return Ok(None);
    }
    // Most texts that begin with a bracket are told by their beginning, which may end anywhere.
    match Survey::of(head.as_bytes()) {
        Ok(_) | Err(Fault::End | Fault::TooDeep) => {}
        Err(Fault::Io(error)) => return Err(error),
        // The end of the head may cut a number or a word.
        Err(Fault::Syntax { at, .. }) if at as usize >= head.len() => {}
        Err(Fault::Syntax { .. } | Fault::TooLong) => return Ok(None),
    }
    let charset = Charset::of(source)?;
    // Hardly anybody writes JSON so, and it would be decoded as a whole.
    if matches!(charset, Charset::Utf32 { .. }) {
        return Ok(None);
    }
    match Survey::of(charset.reader(source)?) {
        Ok(survey) if survey.documents == 1 && survey.has_cells && survey.has_version => Ok(Some(Format::Ipynb)),
        Ok(_) => Ok(Some(Format::Json)),
        Err(Fault::Io(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    extract(source, limits).map(|read| read.patterns())
}

pub(crate) fn extract<R: Read + Seek>(mut source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let fault = |fault: Fault| fault.of(Format::Json, limits);
    let charset = open(&mut source, limits)?;
    let survey = Survey::of(charset.reader(&mut source)?).map_err(fault)?;
    let mut writer = Writer::new(survey.documents > 1, limits);
    let mut tokens = Tokens::new(charset.reader(&mut source)?, limits);
    while let Some(token) = tokens.next().map_err(fault)? {
        writer.token(token)?;
    }
    let mut read = writer.finish();
    if survey.documents > 1 {
        read.facts.insert("lines".to_owned(), survey.documents.into());
    }
    read.charset = Some(charset.name().to_owned());
    read.within(limits)
}

/// The encoding of a file that is not too large.
pub(crate) fn open<R: Read + Seek>(source: &mut R, limits: &Limits) -> Result<Charset, FormatError> {
    if source.seek(SeekFrom::End(0))? > limits.input_bytes {
        return Err(FormatError::over(Limit::InputBytes, format_args!("over {} bytes", limits.input_bytes)));
    }
    Ok(Charset::of(source)?)
}

#[cfg(test)]
mod tests;
