//! Names the format of bytes by what they are, never by a file name.
//!
//! This runs where the upload is received, so it reads a bounded head and, of a zip, a bounded directory.

use std::io::{self, Read, Seek, SeekFrom};

use flate2::read::DeflateDecoder;

use crate::{DetectedBy, Detection, Format, charset};

const HEAD: u64 = 64 << 10;
const TAIL: u64 = (64 << 10) + 22;
const DIRECTORY: u64 = 8 << 20;
const CONTENT_TYPES: u64 = 1 << 20;

/// Names the format of the source; reads it from its beginning and leaves the position anywhere.
///
/// # Errors
/// Only what reading the source gives: bytes of no known format are an answer, not an error.
pub fn detect<R: Read + Seek>(source: &mut R) -> io::Result<Detection> {
    source.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    source.by_ref().take(HEAD).read_to_end(&mut head)?;
    if head.starts_with(b"%PDF-") {
        return Ok(Detection::of(Format::Pdf, DetectedBy::MagicBytes));
    }
    if head.starts_with(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1") {
        return Ok(Detection::of(Format::Ole2, DetectedBy::MagicBytes));
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return Ok(match zip_kind(source, &head)? {
            Some(format) => Detection::of(format, DetectedBy::ZipManifest),
            None => Detection::of(Format::Zip, DetectedBy::MagicBytes),
        });
    }
    if let Some(at) = find(&head[..head.len().min(1024 + 5)], b"%PDF-")
        && is_pdf_after_junk(&head, at)
    {
        return Ok(Detection::of(Format::Pdf, DetectedBy::MagicBytes));
    }
    if charset::looks_like_text(&head, (head.len() as u64) < HEAD) {
        return Ok(Detection::of(Format::Text, DetectedBy::ContentSniff));
    }
    Ok(Detection::default())
}

/// Text may quote `%PDF-1.7`; a PDF goes on with a digit and has an object soon after.
fn is_pdf_after_junk(head: &[u8], at: usize) -> bool {
    let rest = &head[at + 5..];
    rest.first().is_some_and(u8::is_ascii_digit) && find(&rest[..rest.len().min(16 << 10)], b" obj").is_some()
}

/// Which office format the package is, by its content types, else by the names of its members.
fn zip_kind<R: Read + Seek>(source: &mut R, head: &[u8]) -> io::Result<Option<Format>> {
    let Some(directory) = central_directory(source)? else {
        // A truncated file has lost its directory; the local headers still tell what it was.
        return Ok(kind_by_names(local_names(head)));
    };
    if let Some(entry) = entries(&directory.bytes).find(|entry| entry.name.eq_ignore_ascii_case(b"[Content_Types].xml"))
        && let Ok(types) = read_entry(source, &entry, directory.shift)
        && let Some(format) = kind_by_types(&types)
    {
        return Ok(Some(format));
    }
    Ok(kind_by_names(entries(&directory.bytes).map(|entry| entry.name)))
}

struct Directory {
    bytes: Vec<u8>,
    /// Bytes in front of the archive: offsets in the directory do not count them.
    shift: u64,
}

struct Entry<'a> {
    name: &'a [u8],
    method: u16,
    packed: u64,
    header: u64,
}

fn central_directory<R: Read + Seek>(source: &mut R) -> io::Result<Option<Directory>> {
    let length = source.seek(SeekFrom::End(0))?;
    let from = length.saturating_sub(TAIL);
    source.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    source.by_ref().take(TAIL).read_to_end(&mut tail)?;
    let Some(at) = tail.windows(4).rposition(|window| window == b"PK\x05\x06") else { return Ok(None) };
    let Some(record) = tail.get(at..at + 22) else { return Ok(None) };
    let (size, offset) = (u64::from(u32_at(record, 12)), u64::from(u32_at(record, 16)));
    let end = from + at as u64;
    // zip64 directories say 0xFFFFFFFF here; their directory still ends before this record, so the head decides.
    let Some(start) = end.checked_sub(size) else { return Ok(None) };
    let Some(shift) = start.checked_sub(offset) else { return Ok(None) };
    source.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    source.by_ref().take(size.min(DIRECTORY)).read_to_end(&mut bytes)?;
    Ok(Some(Directory { bytes, shift }))
}

fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    std::iter::from_fn(move || {
        let fixed = bytes.get(..46).filter(|fixed| fixed.starts_with(b"PK\x01\x02"))?;
        let (name, extra, comment) = (u16_at(fixed, 28), u16_at(fixed, 30), u16_at(fixed, 32));
        let entry = Entry {
            name: bytes.get(46..46 + usize::from(name))?,
            method: u16_at(fixed, 10),
            packed: u64::from(u32_at(fixed, 20)),
            header: u64::from(u32_at(fixed, 42)),
        };
        bytes = bytes.get(46 + usize::from(name) + usize::from(extra) + usize::from(comment)..)?;
        Some(entry)
    })
}

fn read_entry<R: Read + Seek>(source: &mut R, entry: &Entry<'_>, shift: u64) -> io::Result<Vec<u8>> {
    source.seek(SeekFrom::Start(entry.header + shift))?;
    let mut fixed = [0; 30];
    source.read_exact(&mut fixed)?;
    let skip = u64::from(u16_at(&fixed, 26)) + u64::from(u16_at(&fixed, 28));
    source.seek(SeekFrom::Current(skip as i64))?;
    let packed = source.by_ref().take(entry.packed);
    let mut bytes = Vec::new();
    match entry.method {
        0 => packed.take(CONTENT_TYPES).read_to_end(&mut bytes)?,
        8 => DeflateDecoder::new(packed).take(CONTENT_TYPES).read_to_end(&mut bytes)?,
        _ => 0,
    };
    Ok(bytes)
}

/// Names in the local headers of the head, for a file that lost its directory.
fn local_names(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = head;
    std::iter::from_fn(move || {
        let at = find(rest, b"PK\x03\x04")?;
        let fixed = rest.get(at..at + 30)?;
        let name = rest.get(at + 30..at + 30 + usize::from(u16_at(fixed, 26)))?;
        rest = &rest[at + 30..];
        Some(name)
    })
}

fn kind_by_types(types: &[u8]) -> Option<Format> {
    // Strict, macro-enabled and template packages share these stems; a binary workbook has none of them.
    const MAIN: [(&[u8], Format); 8] = [
        (b"wordprocessingml.document.main+xml", Format::Docx),
        (b"wordprocessingml.template.main+xml", Format::Docx),
        (b"ms-word.document.macroEnabled.main+xml", Format::Docx),
        (b"presentationml.presentation.main+xml", Format::Pptx),
        (b"presentationml.slideshow.main+xml", Format::Pptx),
        (b"ms-powerpoint.presentation.macroEnabled.main+xml", Format::Pptx),
        (b"spreadsheetml.sheet.main+xml", Format::Xlsx),
        (b"ms-excel.sheet.macroEnabled.main+xml", Format::Xlsx),
    ];
    MAIN.iter().find(|(stem, _)| find(types, stem).is_some()).map(|&(_, format)| format)
}

fn kind_by_names<'a>(names: impl Iterator<Item = &'a [u8]>) -> Option<Format> {
    names.into_iter().find_map(|name| match name {
        b"word/document.xml" | b"word\\document.xml" => Some(Format::Docx),
        b"ppt/presentation.xml" | b"ppt\\presentation.xml" => Some(Format::Pptx),
        b"xl/workbook.xml" | b"xl\\workbook.xml" => Some(Format::Xlsx),
        _ => None,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;

    fn of(bytes: &[u8]) -> Option<Format> {
        detect(&mut Cursor::new(bytes)).unwrap().format
    }

    fn zipped(members: &[(&str, &str)]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, text) in members {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn a_document_about_pdf_is_text() {
        assert_eq!(of(b"A PDF begins with %PDF-1.7 and ends with %%EOF."), Some(Format::Text));
        assert_eq!(of(b"junk\n%PDF-1.4\n1 0 obj\n<<>>\nendobj"), Some(Format::Pdf));
    }

    #[test]
    fn content_types_win_over_member_names() {
        let types = r#"<Override PartName="/other.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>"#;
        let bytes = zipped(&[("[Content_Types].xml", types), ("other.xml", "<x/>")]);
        let found = detect(&mut Cursor::new(bytes)).unwrap();
        assert_eq!((found.format, found.by), (Some(Format::Docx), Some(DetectedBy::ZipManifest)));
    }

    #[test]
    fn a_zip_cut_anywhere_still_answers() {
        let whole = zipped(&[("word/document.xml", "<x/>"), ("b", "text")]);
        for cut in 0..whole.len() {
            of(&whole[..cut]);
        }
        assert_eq!(of(&whole), Some(Format::Docx));
        assert_eq!(of(&zipped(&[("a.txt", "hello")])), Some(Format::Zip));
    }

    #[test]
    fn binaries_are_unknown_and_nothing_is_text() {
        assert_eq!(of(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), None);
        assert_eq!(of(b""), Some(Format::Text));
    }
}
