//! Recognises the format of bytes by their content. Only a table in text is told from other text by a file name as well.
//!
//! This runs where the upload is received, so it reads a bounded head, some windows and, for a zip, a bounded
//! directory. Only what begins as JSON is read to its end, a token at a time.

use crate::{
    DetectedBy, Detection, Format,
    archive::{Directory, u16_at},
    charset, delimited, images, json, markup, odf, ole2, rtf,
};
use std::io::{self, Read, Seek, SeekFrom};

const HEAD: u64 = 64 << 10;
const CONTENT_TYPES: u64 = 1 << 20;
/// The member that names the type is among the first so many, and no longer than this.
const MIME_MEMBERS: usize = 1000;
const MIME_BYTES: u64 = 200;
/// How much of a long text is examined at each of three places after its head, and of a PDF behind junk at its end.
const WINDOW: u64 = 4 << 10;

/// Recognises the format of the source. It reads from the beginning and leaves the position anywhere.
///
/// # Errors
/// Only errors of reading the source: bytes of no known format are an answer, not an error.
pub fn detect<R: Read + Seek>(source: &mut R) -> io::Result<Detection> {
    source.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    source.by_ref().take(HEAD).read_to_end(&mut head)?;
    if head.starts_with(b"%PDF-") {
        return Ok(Detection::of(Format::Pdf, DetectedBy::MagicBytes));
    }
    if head.starts_with(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1") {
        return Ok(Detection::of(ole2::format(source)?, DetectedBy::MagicBytes));
    }
    // An archive from a split set begins with a mark of its own.
    let zip = head.strip_prefix(b"PK\x07\x08").or(head.strip_prefix(b"PK00")).unwrap_or(&head);
    if zip.starts_with(b"PK\x03\x04") || zip.starts_with(b"PK\x05\x06") {
        let directory = Directory::read(source)?;
        return archive(source, &head, directory.as_ref());
    }
    // RTF may hold pictures as raw bytes anywhere.
    let is_text = head.starts_with(rtf::MARK.as_bytes()) || is_text(source, &head)?;
    let after_junk = match find(&head[..head.len().min(1024 + 5)], b"%PDF-") {
        Some(at) => is_pdf_after_junk(source, &head, at, is_text)?,
        None => is_postscript_of_pdf(&head),
    };
    if after_junk {
        return Ok(Detection::of(Format::Pdf, DetectedBy::MagicBytes));
    }
    // What begins as a picture and reads as text is text.
    if let Some(mime) = images::file::mime(&head).filter(|_| !is_text || head.contains(&0)) {
        return Ok(Detection::of_picture(mime));
    }
    if !is_other(&head)
        && let Some(directory) = Directory::read(source)?
        && directory.is_anchored(source)?
    {
        return archive(source, &head, Some(&directory));
    }
    if is_text {
        let end = end(source, head.len() as u64)?;
        let head = charset::decode(&head).text;
        let format = match markup::format(&head, &charset::decode(&end).text) {
            Some(format) => Some(format),
            None => json::format(source, &head)?,
        };
        let format = format.unwrap_or(Format::Text);
        return Ok(Detection::of(format, DetectedBy::ContentSniff));
    }
    Ok(Detection::default())
}

/// Recognises the format of a file by its content, and some texts also by its name: a text that is called a table and reads as one is one, and
/// a piece of a page that is called Markdown or a program is none.
///
/// # Errors
/// Only errors of reading the source.
pub fn detect_named<R: Read + Seek>(source: &mut R, name: Option<&str>) -> io::Result<Detection> {
    let detection = detect(source)?;
    if let (Some(Format::Html), Some(name)) = (detection.format, name) {
        source.seek(SeekFrom::Start(0))?;
        let mut head = Vec::new();
        source.by_ref().take(HEAD).read_to_end(&mut head)?;
        let is_page = markup::is_page(&charset::decode(&head).text, name);
        return Ok(if is_page { detection } else { Detection::of(Format::Text, DetectedBy::ContentSniff) });
    }
    let Some(format) = name.and_then(delimited::by_name).filter(|_| detection.format == Some(Format::Text)) else {
        return Ok(detection);
    };
    let length = source.seek(SeekFrom::End(0))?;
    source.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    source.by_ref().take(HEAD).read_to_end(&mut head)?;
    let is_table = delimited::is_table(&charset::decode(&head).text, length == head.len() as u64);
    Ok(if is_table { Detection::of(format, DetectedBy::ContentSniff) } else { detection })
}

/// Images and programs may carry an archive after them; they count as what they begin as.
fn is_other(head: &[u8]) -> bool {
    const MARKS: [&[u8]; 8] = [b"\x89PNG", b"\xFF\xD8\xFF", b"GIF8", b"RIFF", b"MZ", b"\x7FELF", b"\x1F\x8B", b"BM"];
    MARKS.iter().any(|mark| head.starts_with(mark))
}

/// Whether the head, and windows after it, read as text: a script may carry a program.
fn is_text<R: Read + Seek>(source: &mut R, head: &[u8]) -> io::Result<bool> {
    let length = source.seek(SeekFrom::End(0))?;
    if !charset::looks_like_text(head, length == head.len() as u64) {
        return Ok(false);
    }
    // Wide characters contain many NUL bytes, and a window may begin in the middle of one.
    if length <= HEAD || !charset::has_few_nuls(head) {
        return Ok(true);
    }
    for quarter in 1..4 {
        source.seek(SeekFrom::Start((length / 4 * quarter).max(HEAD)))?;
        let mut window = Vec::new();
        source.by_ref().take(WINDOW).read_to_end(&mut window)?;
        if !charset::has_text_bytes(&window) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The last bytes of a source, without those that were read from its beginning.
fn end<R: Read + Seek>(source: &mut R, read: u64) -> io::Result<Vec<u8>> {
    let length = source.seek(SeekFrom::End(0))?;
    source.seek(SeekFrom::Start(length.saturating_sub(WINDOW).max(read)))?;
    let mut end = Vec::new();
    source.by_ref().take(WINDOW).read_to_end(&mut end)?;
    Ok(end)
}

/// Text may quote `%PDF-1.7`. In a PDF a digit follows, an object comes soon after, and the end says where to begin.
fn is_pdf_after_junk<R: Read + Seek>(source: &mut R, head: &[u8], at: usize, is_text: bool) -> io::Result<bool> {
    let rest = &head[at + 5..];
    if !rest.first().is_some_and(u8::is_ascii_digit) || find(&rest[..rest.len().min(16 << 10)], b" obj").is_none() {
        return Ok(false);
    }
    if !is_text {
        return Ok(true);
    }
    Ok(find(&end(source, 0)?, b"startxref").is_some())
}

/// Recognises an old form of the first line: `%!PS-Adobe-3.0 PDF-1.4`.
fn is_postscript_of_pdf(head: &[u8]) -> bool {
    let line = &head[..head.len().min(32)];
    line.starts_with(b"%!PS-Adobe-") && find(line, b" PDF-").is_some()
}

/// Recognises the office format of a package by its content types, or else by the names of its members.
fn archive<R: Read + Seek>(source: &mut R, head: &[u8], directory: Option<&Directory>) -> io::Result<Detection> {
    let kind = match directory {
        // A truncated file has lost its directory, but the local headers still tell what it was.
        None => kind_by_names(local_names(head)),
        Some(directory) => kind_by_content_types(source, directory)
            .or_else(|| kind_by_mime(source, directory))
            .or_else(|| kind_by_names(directory.entries().map(|entry| entry.name))),
    };
    Ok(match kind {
        Some(format) => Detection::of(format, DetectedBy::ZipManifest),
        None => Detection::of(Format::Zip, DetectedBy::MagicBytes),
    })
}

fn kind_by_content_types<R: Read + Seek>(source: &mut R, directory: &Directory) -> Option<Format> {
    let entry = directory.entries().find(|entry| entry.name.eq_ignore_ascii_case(b"[Content_Types].xml"))?;
    let mut types = directory.unpack(source, &entry, CONTENT_TYPES).ok()?;
    // A part in UTF-16 reads the same once its NUL bytes are gone.
    types.retain(|&byte| byte != 0);
    types.make_ascii_lowercase();
    kind_by_types(&types)
}

/// Open documents and books name their type in a member of its own, which is stored first.
fn kind_by_mime<R: Read + Seek>(source: &mut R, directory: &Directory) -> Option<Format> {
    let entry = directory.entries().take(MIME_MEMBERS).find(|entry| entry.name == b"mimetype")?;
    odf::by_mime(&directory.unpack(source, &entry, MIME_BYTES).ok()?)
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

/// Recognises a format by the type of the main part, in lower case. An embedded workbook has none of these types.
fn kind_by_types(types: &[u8]) -> Option<Format> {
    const MAIN: [(&[u8], Format); 16] = [
        (b"wordprocessingml.document.main+xml", Format::Docx),
        (b"wordprocessingml.template.main+xml", Format::Docx),
        (b"ms-word.document.macroenabled.main+xml", Format::Docx),
        (b"ms-word.template.macroenabledtemplate.main+xml", Format::Docx),
        (b"presentationml.presentation.main+xml", Format::Pptx),
        (b"presentationml.slideshow.main+xml", Format::Pptx),
        (b"presentationml.template.main+xml", Format::Pptx),
        (b"ms-powerpoint.presentation.macroenabled.main+xml", Format::Pptx),
        (b"ms-powerpoint.slideshow.macroenabled.main+xml", Format::Pptx),
        (b"ms-powerpoint.template.macroenabled.main+xml", Format::Pptx),
        (b"spreadsheetml.sheet.main+xml", Format::Xlsx),
        (b"spreadsheetml.template.main+xml", Format::Xlsx),
        (b"ms-excel.sheet.macroenabled.main+xml", Format::Xlsx),
        (b"ms-excel.template.macroenabled.main+xml", Format::Xlsx),
        (b"ms-excel.addin.macroenabled.main+xml", Format::Xlsx),
        (b"ms-excel.sheet.binary.macroenabled.main", Format::Xlsb),
    ];
    MAIN.iter().find(|(stem, _)| find(types, stem).is_some()).map(|&(_, format)| format)
}

fn kind_by_names<'a>(names: impl Iterator<Item = &'a [u8]>) -> Option<Format> {
    names.into_iter().find_map(|name| match name {
        b"word/document.xml" | b"word\\document.xml" => Some(Format::Docx),
        b"ppt/presentation.xml" | b"ppt\\presentation.xml" => Some(Format::Pptx),
        b"xl/workbook.xml" | b"xl\\workbook.xml" => Some(Format::Xlsx),
        b"xl/workbook.bin" | b"xl\\workbook.bin" => Some(Format::Xlsb),
        _ => None,
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};
    use zip::{ZipWriter, write::SimpleFileOptions};

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
        assert_eq!(of(b"It has %PDF-1.7 first, then 1 0 obj and so on."), Some(Format::Text));
        assert_eq!(of(b"junk\n%PDF-1.4\n1 0 obj\n<<>>\nendobj\nstartxref\n9\n%%EOF"), Some(Format::Pdf));
        assert_eq!(of(b"\0\x01junk\n%PDF-1.4\n1 0 obj\n<<>>"), Some(Format::Pdf), "cut off, but no text either");
        assert_eq!(of(b"%!PS-Adobe-3.0 PDF-1.4\n1 0 obj"), Some(Format::Pdf));
        assert_eq!(of(b"%!PS-Adobe-3.0\n%%Title: x"), Some(Format::Text));
    }

    #[test]
    fn a_package_behind_junk_is_still_one() {
        let package = zipped(&[("[Content_Types].xml", "x"), ("word/document.xml", "<x/>")]);
        for (junk, expected) in [
            (&b"some words\n"[..], Some(Format::Docx)),
            (b"\0\0\0\0", Some(Format::Docx)),
            (b"\x89PNG\r\n\x1a\n", Some(Format::Image)),
            (b"MZ\0\0", None),
        ] {
            assert_eq!(of(&[junk, &package].concat()), expected, "{junk:?}");
        }
    }

    #[test]
    fn other_packages_are_archives() {
        for first in [("mimetype", "application/x-other"), ("META-INF/MANIFEST.MF", "")] {
            assert_eq!(of(&zipped(&[first, ("content.xml", "<x/>")])), Some(Format::Zip), "{first:?}");
        }
        for (mime, format) in [
            ("application/epub+zip", Format::Epub),
            ("application/vnd.oasis.opendocument.text", Format::Odt),
            ("application/vnd.oasis.opendocument.presentation-template\n", Format::Odp),
            ("application/vnd.oasis.opendocument.spreadsheet", Format::Ods),
        ] {
            assert_eq!(of(&zipped(&[("mimetype", mime), ("content.xml", "<x/>")])), Some(format));
        }
        let types = "<Override ContentType=\"application/vnd.ms-powerpoint.slideshow.macroEnabled.main+xml\"/>";
        assert_eq!(of(&zipped(&[("[content_types].xml", types)])), Some(Format::Pptx));
        let types = "<Override ContentType=\"application/vnd.ms-excel.sheet.binary.macroEnabled.main\"/>";
        for members in [[("[Content_Types].xml", types), ("a.bin", "")], [("a", ""), ("xl/workbook.bin", "")]] {
            assert_eq!(of(&zipped(&members)), Some(Format::Xlsb));
        }
    }

    #[test]
    fn a_script_that_carries_a_program_is_no_text() {
        let script = b"#!/bin/sh\n# words\n".repeat(5000);
        assert_eq!(of(&script), Some(Format::Text));
        let noise: Vec<u8> = (0..200_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert_eq!(of(&[script, noise].concat()), None);
    }

    #[test]
    fn a_stray_nul_in_each_line_makes_no_text_another_kind_of_file() {
        let line = "Measured at the mill\0: 72 ducks.\n";
        for lines in [1, 20, 20_000] {
            assert_eq!(of(line.repeat(lines).as_bytes()), Some(Format::Text), "{lines}");
        }
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
    fn noise_is_unknown_and_nothing_is_text() {
        assert_eq!(of(&[0, 159, 146, 150, 0, 1, 2]), None);
        assert_eq!(of(b""), Some(Format::Text));
    }
}
