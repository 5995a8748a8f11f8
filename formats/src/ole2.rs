//! Compound files: legacy office documents, and encrypted packages in their wrapper.

use std::io::{Read, Seek, SeekFrom};

use cfb::CompoundFile;

use crate::{Format, FormatError, Pattern, Patterns};

/// The bit of a Word document's header that says its text is encrypted.
const WORD_ENCRYPTED: u16 = 0x100;

pub(crate) fn probe<R: Read + Seek>(source: R) -> Result<Patterns, FormatError> {
    let mut file = CompoundFile::open(source).map_err(|error| FormatError::corrupt(Format::Ole2, error))?;
    let package = file.is_stream("/EncryptedPackage");
    let word = file.is_stream("/WordDocument");
    let legacy = word || ["/Workbook", "/Book", "/PowerPoint Document"].iter().any(|name| file.is_stream(name));
    let encrypted = package || (word && is_word_encrypted(&mut file));
    Ok(Patterns::default().with(Pattern::IsEncrypted, encrypted).with(Pattern::IsLegacyBinary, legacy))
}

fn is_word_encrypted<R: Read + Seek>(file: &mut CompoundFile<R>) -> bool {
    let mut flags = [0; 2];
    let Ok(mut stream) = file.open_stream("/WordDocument") else { return false };
    let read = stream.seek(SeekFrom::Start(10)).and_then(|_| stream.read_exact(&mut flags));
    read.is_ok() && u16::from_le_bytes(flags) & WORD_ENCRYPTED != 0
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    fn with_stream(name: &str, bytes: &[u8]) -> Patterns {
        let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
        file.create_stream(name).unwrap().write_all(bytes).unwrap();
        probe(file.into_inner()).unwrap()
    }

    #[test]
    fn packages_and_legacy_files_are_told_apart() {
        let of = |patterns: Patterns| (patterns.holds(Pattern::IsEncrypted), patterns.holds(Pattern::IsLegacyBinary));
        assert_eq!(of(with_stream("/EncryptedPackage", b"x")), (true, false));
        assert_eq!(of(with_stream("/Workbook", b"x")), (false, true));
        assert_eq!(of(with_stream("/WordDocument", &[0; 32])), (false, true));
        assert_eq!(of(with_stream("/WordDocument", &[1; 32])), (true, true));
        assert_eq!(of(with_stream("/Contents", b"x")), (false, false));
    }

    #[test]
    fn damage_is_permanent() {
        let error = probe(Cursor::new(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")).unwrap_err();
        assert_eq!((error.code(), error.is_permanent()), ("corrupt", true));
    }
}
