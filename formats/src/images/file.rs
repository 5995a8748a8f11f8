//! Pictures that are files of their own. Only their headers are read; what is written on them, an OCR engine reads.

use super::{
    LEAST_SIDE,
    kind::{Look, look},
};
use crate::{Extraction, FormatError, Page, Pattern, Patterns};
use std::io::{Read, Seek, SeekFrom};

/// The kinds that OCR engines unpack by themselves.
const KINDS: [&str; 6] = ["image/png", "image/jpeg", "image/tiff", "image/bmp", "image/gif", "image/webp"];
/// How far into a file its size is looked for. Cameras put previews and notes before it.
const HEADER: u64 = 16 << 20;
/// More than the entries of a TIFF's directory that are looked at.
const DIRECTORY: u64 = 12 << 10;

/// The media type of a file that begins so; `None` if it is no picture of these kinds.
pub(crate) fn mime(head: &[u8]) -> Option<&'static str> {
    look(head).map(|seen| seen.mime).filter(|mime| KINDS.contains(mime))
}

/// A picture has no text of its own and is read as a scan is, unless it is too small for anything to be seen on it.
pub(crate) fn probe<R: Read + Seek>(source: R) -> Result<Patterns, FormatError> {
    let seen = header(source)?;
    let is_scan = seen.size.is_none_or(|(width, height)| width.min(height) >= LEAST_SIDE);
    Ok(Patterns::default()
        .with(Pattern::HasTextLayer, false)
        .with(Pattern::HasHeadings, false)
        .with(Pattern::IsScanned, is_scan)
        .with(Pattern::HasScannedPages, is_scan))
}

/// One page without text, with these facts: `mime`, and `width` and `height` in pixels if its header tells them.
pub(crate) fn extract<R: Read + Seek>(source: R) -> Result<Extraction, FormatError> {
    let Look { mime, size } = header(source)?;
    let mut extraction = Extraction { pages: vec![Page { number: 1, start: 0, end: 0 }], ..Extraction::default() };
    extraction.facts.insert("mime".to_owned(), mime.into());
    if let Some((width, height)) = size {
        extraction.facts.insert("width".to_owned(), width.into());
        extraction.facts.insert("height".to_owned(), height.into());
    }
    Ok(extraction)
}

fn header<R: Read + Seek>(mut source: R) -> Result<Look, FormatError> {
    source.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    source.by_ref().take(HEADER).read_to_end(&mut head)?;
    let seen = look(&head).ok_or(FormatError::UnknownFormat)?;
    match seen.size {
        None if seen.mime == "image/tiff" => Ok(far_directory(source, &head)?.unwrap_or(seen)),
        _ => Ok(seen),
    }
}

/// Looks at a TIFF whose directory, which tells the size, is behind what was read.
fn far_directory<R: Read + Seek>(mut source: R, head: &[u8]) -> Result<Option<Look>, FormatError> {
    let Some(&[order, second, third, fourth, ref place @ ..]) = head.first_chunk::<8>() else { return Ok(None) };
    let is_little = order == b'I';
    let (at, here) = match is_little {
        true => (u32::from_le_bytes(*place), 8u32.to_le_bytes()),
        false => (u32::from_be_bytes(*place), 8u32.to_be_bytes()),
    };
    source.seek(SeekFrom::Start(at.into()))?;
    let mut moved = vec![order, second, third, fourth];
    moved.extend(here);
    source.take(DIRECTORY).read_to_end(&mut moved)?;
    Ok(look(&moved))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DetectedBy, Format, detect};
    use std::io::Cursor;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend([width, height].map(u32::to_be_bytes).concat());
        png
    }

    #[test]
    fn a_picture_is_known_by_its_first_bytes_and_a_text_that_names_one_is_none() {
        for (bytes, mime) in [
            (&png(640, 480)[..], "image/png"),
            (b"\xFF\xD8\xFF\xE0\0\x04ab\xFF\xD9", "image/jpeg"),
            (b"II*\0\x08\0\0\0\0\0", "image/tiff"),
            (b"GIF89a\x80\x02\xE0\x01\0\0", "image/gif"),
            (b"RIFF\x10\0\0\0WEBPVP8 \0\0\0\0", "image/webp"),
        ] {
            let found = detect(&mut Cursor::new(bytes)).unwrap();
            assert_eq!((found.format, found.mime.as_deref()), (Some(Format::Image), Some(mime)));
            assert_eq!(found.by, Some(DetectedBy::MagicBytes), "{mime}");
        }
        let text = detect(&mut Cursor::new(b"GIF89a is how a moving picture begins.")).unwrap();
        assert_eq!(text.format, Some(Format::Text));
    }

    #[test]
    fn a_picture_is_a_scan_unless_nothing_can_be_seen_on_it() {
        let is_scan = |bytes: Vec<u8>| probe(Cursor::new(bytes)).unwrap().holds(Pattern::IsScanned);
        assert!(is_scan(png(640, 480)) && !is_scan(png(1, 1)));
        assert!(is_scan(png(640, 480)[..18].to_vec()), "nobody knows how large it is");
    }

    #[test]
    fn the_size_of_a_tiff_may_stand_behind_its_pixels() {
        let mut tiff = b"MM\0*".to_vec();
        let pixels = HEADER as usize + 1000;
        tiff.extend((pixels as u32).to_be_bytes());
        tiff.resize(pixels, 0);
        tiff.extend(b"\0\x02\x01\0\0\x04\0\0\0\x01\0\0\x02\x80\x01\x01\0\x04\0\0\0\x01\0\0\x01\xE0");
        let facts = extract(Cursor::new(tiff)).unwrap().facts;
        assert_eq!((&facts["width"], &facts["height"]), (&640.into(), &480.into()));
        let lost = extract(Cursor::new(b"II*\0\xFF\xFF\xFF\xFF")).unwrap();
        assert!(!lost.facts.contains_key("width") && lost.pages.len() == 1);
    }
}
