//! Locked workbooks. The heads of records stay plain, and so do the bodies of some.

use super::{BOUND_SHEET, FILE_PASS, records::BEGIN};
use crate::{
    Format, FormatError, Secret,
    binary_lock::{Lock, OpenStream, Veil},
    compound::short,
};

/// The bytes of a record before its body.
const HEAD: usize = 4;
/// The bytes that are locked with one key.
const BLOCK: usize = 1024;
/// Besides the beginnings of parts, these records are plain, because programs look for them before they ask for the password.
const PLAIN: [u16; 5] = [0x0194, 0x0195, 0x00E1, 0x0196, 0x0138];
/// The record of a sheet begins with this many plain bytes, which say where the sheet is.
const PLACE: usize = 4;
/// A kind that no record has, for a record that no longer counts.
const NOTHING: u16 = u16::MAX;

/// What opens the bodies of records.
enum Opening {
    Cipher(Box<OpenStream>),
    Veil(Veil),
}

impl Opening {
    /// How to open bodies by a password and the record of the lock.
    fn new(body: &[u8], password: &Secret) -> Result<Self, FormatError> {
        const OLDER: usize = 4;
        let number = |at: usize| short(body, at).ok_or_else(damaged);
        let veiled = |at: usize| {
            let veil = Veil::new(password, number(at)?, number(at + 2)?);
            veil.map(Self::Veil).ok_or(FormatError::Encrypted { format: Format::Xls })
        };
        // Before Excel 97 there was one kind of lock.
        match number(0)? {
            _ if body.len() == OLDER => veiled(0),
            0 => veiled(2),
            1 => {
                let keys = Lock::read(Format::Xls, &body[2..])?.keys(Some(password))?;
                Ok(Self::Cipher(Box::new(keys.stream(BLOCK))))
            }
            _ => Err(FormatError::Sealed { format: Format::Xls }),
        }
    }

    /// Opens a body that ends at `end` in the stream, behind its first `plain` bytes.
    fn open(&mut self, end: usize, plain: usize, body: &mut [u8]) {
        match self {
            Self::Cipher(stream) => {
                stream.pass(HEAD + plain);
                stream.open(&mut body[plain..]);
            }
            Self::Veil(veil) => veil.clear(end, plain, &mut body[plain..]),
        }
    }
}

/// Opens the stream of a workbook in place, and takes the record of its lock out.
pub(super) fn open(stream: &mut [u8], password: &Secret) -> Result<(), FormatError> {
    let mut opening: Option<Opening> = None;
    let mut at = 0;
    while let (Some(kind), Some(length)) = (short(stream, at), short(stream, at + 2)) {
        let (start, end) = (at + HEAD, at + HEAD + usize::from(length));
        // The reader reports a stream that is cut. Parts may be padded with zeros, and so may the end; these are empty records.
        let Some(body) = stream.get_mut(start..end) else { break };
        match &mut opening {
            Some(opening) => {
                let plain = match kind {
                    BEGIN => body.len(),
                    BOUND_SHEET => PLACE.min(body.len()),
                    _ if PLAIN.contains(&kind) => body.len(),
                    _ => 0,
                };
                opening.open(end, plain, body);
            }
            None if kind == FILE_PASS => {
                let mut new = Opening::new(body, password)?;
                if let Opening::Cipher(cipher) = &mut new {
                    cipher.pass(end);
                }
                opening = Some(new);
                stream[at..at + 2].copy_from_slice(&NOTHING.to_le_bytes());
            }
            None => {}
        }
        at = end;
    }
    if opening.is_some() { Ok(()) } else { Err(damaged()) }
}

fn damaged() -> FormatError {
    FormatError::corrupt(Format::Xls, "the description of its encryption cannot be read")
}
