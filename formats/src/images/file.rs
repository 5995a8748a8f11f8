//! Files that are pictures. Only their headers are read; what is written on them, an OCR engine reads. A TIFF may have many
//! pictures, each of which is a page.

use super::{LEAST_SIDE, kind::look};
use crate::{Extraction, FormatError, Limit, Limits, Page, Pattern, Patterns};
use serde_json::json;
use std::{
    collections::HashSet,
    io::{self, Read, Seek, SeekFrom},
    iter,
};

/// The kinds that OCR engines unpack by themselves.
const KINDS: [&str; 6] = ["image/png", "image/jpeg", TIFF, "image/bmp", "image/gif", "image/webp"];
const TIFF: &str = "image/tiff";
/// How far into a file its size is looked for. Cameras put previews and notes before it.
const HEADER: u64 = 16 << 20;
/// The bytes at the beginning of a TIFF, which name its first directory.
const TIFF_HEADER: usize = 8;
/// More than the entries of a TIFF's directory that are looked at.
const DIRECTORY: u64 = 12 << 10;

/// The bytes of an entry of a directory.
const ENTRY: usize = 12;
/// The entries that say where the strips or tiles of a picture are, and those that say how long these are.
const PLACES: [u16; 2] = [273, 324];
const LENGTHS: [u16; 2] = [279, 325];
/// The most strips that the reader looks at in all pictures of a file together, because many directories may name the same strips.
const MOST_STRIPS: u64 = 64 << 10;
const STRIPS_OF_FILE: u64 = 4 << 20;

/// Width and height in pixels, if the header tells them.
type Size = Option<(u32, u32)>;

/// A picture as far as its header tells.
struct Picture {
    size: Size,
    /// The file ends within its pixels.
    is_cut: bool,
}

/// The media type of a file that begins so; `None` if it is no picture of these kinds.
pub(crate) fn mime(head: &[u8]) -> Option<&'static str> {
    look(head).map(|seen| seen.mime).filter(|mime| KINDS.contains(mime))
}

/// A picture has no text of its own and is read as a scan is, unless it is too small for anything to be seen on it.
pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let (_, pictures) = header(source, limits)?;
    let shows = |one: &Picture| one.size.is_none_or(|(width, height)| width.min(height) >= LEAST_SIDE);
    let is_scan = pictures.iter().any(shows);
    Ok(Patterns::default()
        .with(Pattern::HasTextLayer, false)
        .with(Pattern::HasHeadings, false)
        .with(Pattern::IsScanned, is_scan)
        .with(Pattern::HasScannedPages, is_scan))
}

/// A page without text for each picture, with these facts: `mime`; `width` and `height` of the first picture in pixels, if its
/// header tells them; `sizes`, a width and a height for each picture, or null; and `cut`, the numbers of those within whose pixels a
/// TIFF ends.
pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    let (mime, pictures) = header(source, limits)?;
    let sizes: Vec<Size> = pictures.iter().map(|one| one.size).collect();
    let pages = (1..).zip(&sizes).map(|(number, _)| Page { number, start: 0, end: 0 });
    let mut extraction = Extraction { pages: pages.collect(), ..Extraction::default() };
    extraction.facts.insert("mime".to_owned(), mime.into());
    if let Some(Some((width, height))) = sizes.first() {
        extraction.facts.insert("width".to_owned(), (*width).into());
        extraction.facts.insert("height".to_owned(), (*height).into());
    }
    extraction.facts.insert("sizes".to_owned(), json!(sizes));
    let cut: Vec<u32> = (1..).zip(&pictures).filter(|(_, one)| one.is_cut).map(|(number, _)| number).collect();
    extraction.facts.insert("cut".to_owned(), json!(cut));
    Ok(extraction)
}

/// The media type, and the pictures.
fn header<R: Read + Seek>(mut source: R, limits: &Limits) -> Result<(&'static str, Vec<Picture>), FormatError> {
    source.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    source.by_ref().take(HEADER).read_to_end(&mut head)?;
    let mime = mime(&head).ok_or(FormatError::UnknownFormat)?;
    let pictures = match head.first_chunk::<TIFF_HEADER>() {
        Some(begin) if mime == TIFF => directories(source, *begin, limits)?,
        _ => vec![Picture { size: look(&head).and_then(|seen| seen.size), is_cut: false }],
    };
    Ok((mime, pictures))
}

/// How a TIFF writes numbers.
#[derive(Clone, Copy)]
struct Order {
    is_little: bool,
}

impl Order {
    fn long(self, bytes: [u8; 4]) -> u32 {
        if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    fn short(self, bytes: [u8; 2]) -> u16 {
        if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    /// The numbers of the first of these entries that a directory has, or a very large number if some of them are not in the file;
    /// `None` if the directory has no such entry. Takes their count from `left`, the numbers that may still be looked at.
    fn numbers<R: Read + Seek>(
        self,
        source: &mut R,
        entries: &[u8],
        tags: [u16; 2],
        left: &mut u64,
    ) -> io::Result<Option<Vec<u64>>> {
        const SHORT: u16 = 3;
        const LONG: u16 = 4;
        let is_wanted = |entry: &&[u8; ENTRY]| tags.contains(&self.short([entry[0], entry[1]]));
        let Some(entry) = entries.as_chunks::<ENTRY>().0.iter().find(is_wanted) else { return Ok(None) };
        let [_, _, kind @ .., a, b, c, d, _, _, _, _] = entry;
        let [_, _, _, _, _, _, _, _, value @ ..] = entry;
        let width = match self.short(*kind) {
            SHORT => 2,
            LONG => 4,
            _ => return Ok(None),
        };
        let count = u64::from(self.long([*a, *b, *c, *d])).min(MOST_STRIPS).min(*left);
        *left -= count;
        let length = width * count;
        let mut bytes = value.to_vec();
        if length > value.len() as u64 {
            bytes.clear();
            source.seek(SeekFrom::Start(self.long(*value).into()))?;
            source.by_ref().take(length).read_to_end(&mut bytes)?;
        }
        bytes.truncate(length as usize);
        let mut numbers: Vec<u64> = match width {
            2 => bytes.as_chunks::<2>().0.iter().map(|number| u64::from(self.short(*number))).collect(),
            _ => bytes.as_chunks::<4>().0.iter().map(|number| u64::from(self.long(*number))).collect(),
        };
        if (bytes.len() as u64) < length {
            numbers.push(u64::from(u32::MAX) << 1);
        }
        Ok(Some(numbers))
    }

    /// Whether a file of this length ends within the pixels that a directory names.
    fn is_cut<R: Read + Seek>(self, source: &mut R, entries: &[u8], length: u64, left: &mut u64) -> io::Result<bool> {
        let Some(places) = self.numbers(source, entries, PLACES, left)? else { return Ok(false) };
        let lengths = self.numbers(source, entries, LENGTHS, left)?.unwrap_or_default();
        // A length that the entries do not name counts as zero.
        let ends = places.iter().zip(lengths.into_iter().chain(iter::repeat(0))).map(|(place, long)| place + long);
        Ok(ends.max().is_some_and(|end| end > length))
    }
}

/// The pictures in the directories of a TIFF, each of which names the next one.
fn directories<R: Read + Seek>(
    mut source: R,
    begin: [u8; TIFF_HEADER],
    limits: &Limits,
) -> Result<Vec<Picture>, FormatError> {
    let order = Order { is_little: begin[0] == b'I' };
    let length = source.seek(SeekFrom::End(0))?;
    let [mark @ .., _, _, _, _] = begin;
    let here = if order.is_little { 8u32.to_le_bytes() } else { 8u32.to_be_bytes() };
    let (mut pictures, mut met, mut strips) = (Vec::new(), HashSet::new(), STRIPS_OF_FILE);
    let mut next = begin.last_chunk::<4>().copied().map_or(0, |next| order.long(next));
    // The last one names none. One that names an earlier one would never end.
    while next != 0 && met.insert(next) {
        // The directory as if it came at once.
        let mut moved = [mark, here].concat();
        source.seek(SeekFrom::Start(next.into()))?;
        source.by_ref().take(DIRECTORY).read_to_end(&mut moved)?;
        let Some(count) = moved.get(TIFF_HEADER..).and_then(|entries| entries.first_chunk::<2>()) else { break };
        if pictures.len() >= limits.pages as usize {
            return Err(FormatError::over(Limit::Pages, format_args!("over {} pictures", limits.pages)));
        }
        let end = TIFF_HEADER + 2 + ENTRY * usize::from(order.short(*count));
        let entries = moved.get(TIFF_HEADER + 2..end.min(moved.len())).unwrap_or_default();
        let is_cut = order.is_cut(&mut source, entries, length, &mut strips)?;
        // If a directory is longer than the part that is read, nobody has looked at what follows it.
        let is_whole = end + size_of::<u32>() <= moved.len() || moved.len() < TIFF_HEADER + DIRECTORY as usize;
        pictures.push(Picture { size: look(&moved).and_then(|seen| seen.size).filter(|_| is_whole), is_cut });
        next = moved.get(end..).and_then(|rest| rest.first_chunk::<4>()).copied().map_or(0, |next| order.long(next));
    }
    if pictures.is_empty() {
        pictures.push(Picture { size: None, is_cut: false });
    }
    Ok(pictures)
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
        let is_scan = |bytes: Vec<u8>| probe(Cursor::new(bytes), &Limits::default()).unwrap().holds(Pattern::IsScanned);
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
        let facts = extract(Cursor::new(tiff), &Limits::default()).unwrap().facts;
        assert_eq!((&facts["width"], &facts["height"]), (&640.into(), &480.into()));
        let lost = extract(Cursor::new(b"II*\0\xFF\xFF\xFF\xFF"), &Limits::default()).unwrap();
        assert!(!lost.facts.contains_key("width") && lost.pages.len() == 1);
    }

    /// A TIFF with a directory for each of these widths, the last of which names the place `end`.
    fn tiff(widths: &[u32], end: u32) -> Vec<u8> {
        let mut tiff = b"II*\0\x08\0\0\0".to_vec();
        for (index, width) in widths.iter().enumerate() {
            tiff.extend(2u16.to_le_bytes());
            for (tag, value) in [(256u16, *width), (257, 480)] {
                tiff.extend(tag.to_le_bytes());
                tiff.extend(b"\x04\0\x01\0\0\0");
                tiff.extend(value.to_le_bytes());
            }
            let next = if index + 1 < widths.len() { tiff.len() as u32 + 4 } else { end };
            tiff.extend(next.to_le_bytes());
        }
        tiff
    }

    #[test]
    fn each_picture_of_a_tiff_is_a_page() {
        // A directory that names itself, or one that is not there, is the last one.
        for end in [0, 8, 0xFFFF_FFF0] {
            let read = extract(Cursor::new(tiff(&[640, 0, 3], end)), &Limits::default()).unwrap();
            assert_eq!(read.pages.iter().map(|page| page.number).collect::<Vec<_>>(), [1, 2, 3], "{end}");
            assert_eq!(read.facts["sizes"], serde_json::json!([[640, 480], null, [3, 480]]), "{end}");
        }
        let is_scan =
            |widths: &[u32]| probe(Cursor::new(tiff(widths, 0)), &Limits::default()).unwrap().holds(Pattern::IsScanned);
        assert!(is_scan(&[3, 640]) && !is_scan(&[3, 4]));
        let limits = Limits { pages: 2, ..Limits::default() };
        let error = extract(Cursor::new(tiff(&[640, 640, 640], 0)), &limits).unwrap_err();
        assert_eq!(error.limit(), Some(Limit::Pages));
    }

    #[test]
    fn a_picture_whose_directory_is_not_read_to_its_end_has_no_size() {
        for (entries, is_known) in [(900u16, true), (1100, false)] {
            let mut tiff = tiff(&[640], 0);
            tiff[8..10].copy_from_slice(&entries.to_le_bytes());
            tiff.resize(20_000, 0);
            let facts = extract(Cursor::new(tiff), &Limits::default()).unwrap().facts;
            assert_eq!(facts.contains_key("width"), is_known, "{entries}");
        }
    }

    #[test]
    fn no_more_strips_are_looked_at_than_a_file_may_have() {
        let order = Order { is_little: true };
        let mut entry = [PLACES[0], 4].map(u16::to_le_bytes).concat();
        entry.extend([100u32, 0].map(u32::to_le_bytes).concat());
        let mut left = 150;
        for (expected, rest) in [(100, 50), (50, 0), (0, 0)] {
            let numbers = order.numbers(&mut Cursor::new([1u8; 400]), &entry, PLACES, &mut left).unwrap();
            assert_eq!((numbers.map(|numbers| numbers.len()), left), (Some(expected), rest));
        }
    }

    #[test]
    fn a_picture_within_whose_pixels_the_file_ends_is_cut() {
        /// A TIFF of one picture, with these entries besides its width and height, and with this many bytes in all.
        fn tiff(entries: &[(u16, u16, u32, u32)], bytes: usize) -> Vec<u8> {
            let sides = [(256, 4, 1, 640), (257, 4, 1, 480)];
            let mut tiff = b"II*\0\x08\0\0\0".to_vec();
            tiff.extend((sides.len() as u16 + entries.len() as u16).to_le_bytes());
            for (tag, kind, count, value) in sides.iter().chain(entries) {
                tiff.extend([*tag, *kind].map(u16::to_le_bytes).concat());
                tiff.extend([*count, *value].map(u32::to_le_bytes).concat());
            }
            tiff.resize(bytes, 0);
            // Three strips, and how long they are.
            let words = [500u32, 600, 700, 100, 100, 100].map(u32::to_le_bytes).concat();
            if let Some(place) = tiff.get_mut(200..200 + words.len()) {
                place.copy_from_slice(&words);
            }
            tiff
        }
        let one = [(273, 4, 1, 100), (279, 3, 1, 400)];
        let many = [(273, 4, 3, 200), (279, 4, 3, 212)];
        let tiles = [(324, 4, 3, 200), (325, 4, 3, 212)];
        let far = [(273, 4, u32::MAX, u32::MAX)];
        for (entries, bytes, cut) in [
            (&one[..], 500, 0),
            (&one, 499, 1),
            (&many, 800, 0),
            (&many, 799, 1),
            (&tiles, 799, 1),
            (&many[..1], 700, 0),
            (&many[..1], 699, 1),
            (&[], 100, 0),
            (&far, 800, 1),
        ] {
            let facts = extract(Cursor::new(tiff(entries, bytes)), &Limits::default()).unwrap().facts;
            let expected: Vec<u32> = (1..=cut).collect();
            assert_eq!(facts["cut"], serde_json::json!(expected), "{entries:?} in {bytes} bytes");
            assert_eq!(facts["sizes"], serde_json::json!([[640, 480]]), "{entries:?}");
        }
    }
}
