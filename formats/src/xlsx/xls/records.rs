//! The stream of a legacy workbook: records of a kind, a length and so many bytes. A long record goes on in others.

use super::damaged;
use crate::{FormatError, markdown::mark_raised};
use encoding_rs::Encoding;
use std::{
    collections::HashSet,
    io::{self, BufRead, Seek, SeekFrom},
};

pub(super) const BEGIN: u16 = 0x0809;
pub(super) const END: u16 = 0x000A;
const CONTINUE: u16 = 0x003C;

pub(super) struct Records<S> {
    stream: S,
    kind: u16,
    body: Vec<u8>,
    /// Where the next value is read in the body.
    at: usize,
    /// Whether the record is given once more.
    is_unread: bool,
    /// How many parts of the stream are open in each other.
    depth: u32,
    /// The bytes of the records so far, with this one.
    read: u64,
}

impl<S: BufRead + Seek> Records<S> {
    /// The records from a place in the stream on.
    pub(super) fn from(mut stream: S, place: u64) -> Result<Self, FormatError> {
        stream.seek(SeekFrom::Start(place)).map_err(|error| refused(&error))?;
        Ok(Self { stream, kind: 0, body: Vec::new(), at: 0, is_unread: false, depth: 0, read: 0 })
    }

    /// The kind of the next record; `None` at the end of the stream, which may be padded.
    pub(super) fn next(&mut self) -> Result<Option<u16>, FormatError> {
        if std::mem::take(&mut self.is_unread) {
            self.at = 0;
            return Ok(Some(self.kind));
        }
        let mut header = [0; 4];
        if !self.fill(&mut header)? || header == [0; 4] {
            return Ok(None);
        }
        let [kind, length] = [[header[0], header[1]], [header[2], header[3]]].map(u16::from_le_bytes);
        let mut body = std::mem::take(&mut self.body);
        body.resize(usize::from(length), 0);
        if !self.fill(&mut body)? {
            return Err(damaged("it ends within a record"));
        }
        (self.kind, self.body, self.at) = (kind, body, 0);
        self.read += 4 + u64::from(length);
        Ok(Some(kind))
    }

    /// Fills the whole buffer, or says that the stream has no more so many bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, FormatError> {
        match self.stream.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(refused(&error)),
        }
    }

    /// The kind of the next record of the part that began with the first one; `None` at its end. Parts within it, such as
    /// charts, are left out.
    pub(super) fn next_of_part(&mut self) -> Result<Option<u16>, FormatError> {
        loop {
            match self.next()? {
                Some(BEGIN) => self.depth += 1,
                Some(END) => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Ok(None);
                    }
                }
                Some(kind) if self.depth == 1 => return Ok(Some(kind)),
                Some(_) if self.depth == 0 => return Err(damaged("a sheet does not begin where the workbook says")),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Has the record given once more.
    pub(super) fn unread(&mut self) {
        self.is_unread = true;
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Where the record begins, counted from the first one.
    pub(super) fn place(&self) -> u64 {
        self.read - 4 - self.body.len() as u64
    }

    /// At most so many bytes from the present place in the body on.
    pub(super) fn rest(&self, most: usize) -> &[u8] {
        let rest = &self.body[self.at..];
        &rest[..rest.len().min(most)]
    }

    /// The two bytes at a place in the body, as a number; 0 behind its end.
    pub(super) fn word(&self, at: usize) -> u16 {
        self.body.get(at..at + 2).map_or(0, |word| u16::from_le_bytes([word[0], word[1]]))
    }

    /// The four bytes at a place in the body.
    pub(super) fn double_word(&self, at: usize) -> u32 {
        u32::from(self.word(at)) | u32::from(self.word(at + 2)) << 16
    }

    /// Goes to a place in the body, for what is read from there on.
    pub(super) fn go_to(&mut self, at: usize) {
        self.at = at.min(self.body.len());
    }

    /// Whether a byte follows, in this record or in one that it goes on in.
    pub(super) fn has_more(&mut self) -> Result<bool, FormatError> {
        while self.at >= self.body.len() {
            match self.next()? {
                Some(CONTINUE) => {}
                Some(_) => {
                    self.unread();
                    // What it holds is no part of the record before it.
                    self.at = self.body.len();
                    return Ok(false);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn u8(&mut self) -> Result<u8, FormatError> {
        if !self.has_more()? {
            return Ok(0);
        }
        self.at += 1;
        Ok(self.body[self.at - 1])
    }

    pub(super) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes([self.u8()?, self.u8()?]))
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from(self.u16()?) | u32::from(self.u16()?) << 16)
    }

    fn skip(&mut self, mut bytes: u64) -> Result<(), FormatError> {
        while bytes > 0 && self.has_more()? {
            let here = bytes.min((self.body.len() - self.at) as u64);
            self.at += here as usize;
            bytes -= here;
        }
        Ok(())
    }

    /// A text of so many characters, which begins with its marks.
    pub(super) fn unicode(&mut self, characters: usize) -> Result<String, FormatError> {
        self.rich(characters, &HashSet::new())
    }

    /// Such a text with marks of the raised numbers, which have one of these fonts.
    pub(super) fn rich(&mut self, characters: usize, raised: &HashSet<u16>) -> Result<String, FormatError> {
        let marks = self.u8()?;
        let runs = if marks & 0x08 != 0 { self.u16()? } else { 0 };
        let hints = if marks & 0x04 != 0 { self.u32()? } else { 0 };
        let text = self.characters(characters, marks & 1 != 0)?;
        if raised.is_empty() {
            self.skip(u64::from(runs) * 4 + u64::from(hints))?;
            return Ok(text);
        }
        let mut begun = Vec::new();
        for _ in 0..runs {
            if !self.has_more()? {
                break;
            }
            begun.push((usize::from(self.u16()?), raised.contains(&self.u16()?)));
        }
        self.skip(hints.into())?;
        Ok(mark_raised(text, &begun))
    }

    /// So many characters of one or two bytes. Where they go on in another record, it says anew which.
    fn characters(&mut self, mut count: usize, mut is_wide: bool) -> Result<String, FormatError> {
        let mut units: Vec<u16> = Vec::with_capacity(count.min(self.body.len()));
        while count > 0 {
            if self.at >= self.body.len() {
                if !self.has_more()? {
                    break;
                }
                is_wide = self.u8()? & 1 != 0;
            }
            let rest = &self.body[self.at..];
            let taken = count.min(if is_wide { rest.len() / 2 } else { rest.len() });
            if is_wide {
                units.extend(rest.chunks_exact(2).take(taken).map(|unit| u16::from_le_bytes([unit[0], unit[1]])));
            } else {
                units.extend(rest[..taken].iter().map(|&byte| u16::from(byte)));
            }
            count -= taken;
            // Half a character at the end of a record is none.
            self.at = if taken == 0 { self.body.len() } else { self.at + taken * if is_wide { 2 } else { 1 } };
        }
        let text = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(text.filter(|character| *character != '\0').collect())
    }

    /// So many bytes in an encoding, which was the form of texts before Unicode.
    pub(super) fn encoded(&mut self, mut count: usize, encoding: &'static Encoding) -> Result<String, FormatError> {
        let mut bytes = Vec::with_capacity(count.min(self.body.len()));
        while count > 0 && self.has_more()? {
            let rest = &self.body[self.at..];
            let taken = count.min(rest.len());
            bytes.extend_from_slice(&rest[..taken]);
            self.at += taken;
            count -= taken;
        }
        let mut text = encoding.decode_without_bom_handling(&bytes).0.into_owned();
        text.retain(|character| character != '\0');
        Ok(text)
    }
}

/// What the container met: its own damage is that of the file.
pub(super) fn refused(error: &io::Error) -> FormatError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => damaged(error),
        _ => FormatError::Io { reason: error.to_string() },
    }
}
