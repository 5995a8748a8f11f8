//! What the readers of compound files share: a file of which no more is read than a limit allows, its streams, the numbers
//! in them, and what a probe tells of a legacy document.

use crate::{Access, Extraction, Format, FormatError, Limit, Limits, Pattern, Patterns};
use cfb::CompoundFile;
use std::{
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

/// A file of which no more bytes are read than a limit allows, because many streams may claim the same ones.
pub(crate) struct Bounded<R> {
    source: R,
    left: u64,
}

impl<R> Bounded<R> {
    fn new(source: R, limits: &Limits) -> Self {
        // What the file itself may have is read once in any case.
        Self { source, left: limits.unpacked_bytes.max(limits.input_bytes) }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(bytes)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                return Err(FormatError::over(Limit::UnpackedBytes, "many of its streams claim the same bytes").into());
            }
        }
        Ok(read)
    }
}

impl<R: Seek> Seek for Bounded<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.source.seek(to)
    }
}

pub(crate) fn open<R: Read + Seek>(
    source: R,
    format: Format,
    limits: &Limits,
) -> Result<CompoundFile<Bounded<R>>, FormatError> {
    CompoundFile::open(Bounded::new(source, limits)).map_err(|error| FormatError::corrupt(format, error))
}

/// The bytes of a stream, at most so many; `None` if there is no such stream, or its bytes are not there.
pub(crate) fn read<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    path: &Path,
    most: u64,
) -> Result<Option<Vec<u8>>, FormatError> {
    let mut bytes = Vec::new();
    let read = file.open_stream(path).and_then(|mut stream| match stream.len() <= most {
        true => stream.read_to_end(&mut bytes),
        false => stream.take(most).read_to_end(&mut bytes),
    });
    match read {
        Ok(_) => Ok(Some(bytes)),
        // Only an error of the system is none of the file's.
        Err(error) if error.raw_os_error().is_some() || is_refusal(&error) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Whether the file is refused as a whole, since so much was read of it already.
fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<FormatError>())
}

/// The number at a place; `None` if the bytes end before.
pub(crate) fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk::<2>().copied().map(u16::from_le_bytes)
}

/// The number of four bytes at a place; `None` if the bytes end before.
pub(crate) fn long(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().copied().map(u32::from_le_bytes)
}

/// The text of a legacy document, and whether its password opened it.
pub(crate) struct Opened {
    pub text: Extraction,
    pub was_locked: bool,
}

/// What the text of a legacy document shows, or that it is closed: then it is refused by its name once it is to be read.
pub(crate) fn patterns(read: Result<Opened, FormatError>, access: Access<'_>) -> Result<Patterns, FormatError> {
    let (patterns, is_encrypted) = match read {
        Ok(read) => (read.text.patterns(), read.was_locked),
        Err(FormatError::Compound { encrypted, .. }) => (Patterns::default(), encrypted),
        Err(FormatError::Encrypted { .. }) if access.password.is_none() => (Patterns::default(), true),
        Err(FormatError::Sealed { .. }) => (Patterns::default(), true),
        Err(error) => return Err(error),
    };
    Ok(patterns.with(Pattern::IsEncrypted, is_encrypted).with(Pattern::IsLegacyBinary, true))
}
