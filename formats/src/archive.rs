//! Zip archives. The directory tells what an archive says of its members, and nothing is unpacked for that.

mod locked;
mod members;

use crate::{Access, Extraction, Format, FormatError, Pattern, Patterns, markdown::has_text, tables::has_tables};
use flate2::{Crc, read::DeflateDecoder};
pub(crate) use members::members;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Seek, SeekFrom};

/// The record at the end of an archive is within this distance of the file's end; a comment may follow it.
const TAIL: u64 = (64 << 10) + 22;
/// How many bytes of a directory are read.
const DIRECTORY: u64 = 8 << 20;
/// How many members a listing names.
const LISTED: usize = 1000;
/// How many characters of a member's name are kept.
const NAME: usize = 255;

/// What an archive says it holds. Sizes are its own claims, because nothing is unpacked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Archive {
    /// The number of members; for a directory over 8 MiB, the number that its beginning names.
    pub members: u64,
    pub packed_bytes: u64,
    pub unpacked_bytes: u64,
    /// The number of members that need a password.
    pub encrypted: u64,
    /// The first thousand members.
    pub listed: Vec<Member>,
}

/// A member of an archive; a folder's name ends in `/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub name: String,
    pub packed_bytes: u64,
    pub unpacked_bytes: u64,
    pub encrypted: bool,
}

/// Tells whether an archive names a file, or what its text shows if a password opens members of it.
pub(crate) fn probe<R: Read + Seek>(mut source: R, access: Access<'_>) -> Result<Patterns, FormatError> {
    match unlocked(&mut source, access)? {
        Some(read) => Ok(Patterns::default()
            .with(Pattern::HasTextLayer, has_text(&read.text))
            .with(Pattern::HasHeadings, !read.headings.is_empty())
            .with(Pattern::HasTables, has_tables(&read.text))
            .with(Pattern::IsEncrypted, true)),
        None => members::probe(source),
    }
}

/// Reads an archive as a text if a password opens members of it; the files of others are read one by one.
pub(crate) fn extract<R: Read + Seek>(mut source: R, access: Access<'_>) -> Result<Extraction, FormatError> {
    const NO_TEXT: &str = "an archive has no text of its own; its files are read one by one";
    unlocked(&mut source, access)?.ok_or_else(|| FormatError::unsupported(Format::Zip, NO_TEXT))
}

fn unlocked<R: Read + Seek>(source: &mut R, access: Access<'_>) -> Result<Option<Extraction>, FormatError> {
    match access.password {
        Some(password) => locked::read(source, password, access.limits),
        None => Ok(None),
    }
}

impl Archive {
    /// Unpacked bytes per packed byte, by the archive's own claim.
    pub fn ratio(&self) -> f64 {
        self.unpacked_bytes as f64 / self.packed_bytes.max(1) as f64
    }

    /// Reads the listing; returns `None` if the archive has lost its directory.
    pub(crate) fn read<R: Read + Seek>(source: &mut R) -> io::Result<Option<Self>> {
        let Some(directory) = Directory::read(source)? else { return Ok(None) };
        let mut archive = Self::default();
        for entry in directory.entries() {
            archive.members += 1;
            archive.packed_bytes = archive.packed_bytes.saturating_add(entry.packed);
            archive.unpacked_bytes = archive.unpacked_bytes.saturating_add(entry.unpacked);
            archive.encrypted += u64::from(entry.encrypted());
            if archive.listed.len() < LISTED {
                archive.listed.push(Member {
                    name: entry.readable_name(),
                    packed_bytes: entry.packed,
                    unpacked_bytes: entry.unpacked,
                    encrypted: entry.encrypted(),
                });
            }
        }
        Ok(Some(archive))
    }
}

/// The directory, found by the record after it.
pub(crate) struct Directory {
    bytes: Vec<u8>,
    /// The number of bytes before the archive, which the directory's offsets do not count.
    shift: u64,
    /// The number of members that the record claims.
    pub claimed: u64,
}

/// A member as the directory describes it.
pub(crate) struct Entry<'a> {
    pub name: &'a [u8],
    /// The name in UTF-8, where the archive has it beside that of its tool's code page, with the checksum of that one.
    unicode_name: Option<(u32, &'a [u8])>,
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    unpacked: u64,
    /// What the system that made the archive says of the file.
    attributes: u32,
    header: u64,
    /// How AES has locked it, if it has.
    sealing: Option<Sealing>,
}

/// What a member that is locked with AES says of its lock.
#[derive(Debug, Clone, Copy)]
struct Sealing {
    version: u16,
    /// 1 to 3 for keys of 128, 192 and 256 bits.
    strength: u8,
    /// How it is packed below its lock.
    method: u16,
}

impl Directory {
    /// Reads the directory; returns `None` if there is none, or none that fits its record.
    pub(crate) fn read<R: Read + Seek>(source: &mut R) -> io::Result<Option<Self>> {
        let length = source.seek(SeekFrom::End(0))?;
        let from = length.saturating_sub(TAIL);
        let tail = read_at(source, from, TAIL)?;
        // The record's comment may contain its mark. The right mark is the one whose comment ends with the file, or
        // else the last.
        let ends = |at: &usize| tail.len() - at >= 22 && at + 22 + usize::from(u16_at(&tail, at + 20)) == tail.len();
        let mut marks = memchr::memmem::rfind_iter(&tail, b"PK\x05\x06").filter(|at| tail.len() - at >= 22);
        let Some(last) = marks.next() else { return Ok(None) };
        let at = std::iter::once(last).chain(marks).take(64).find(ends).unwrap_or(last);
        let record = &tail[at..at + 22];
        let mut place = Place {
            claimed: u64::from(u16_at(record, 10)),
            size: u64::from(u32_at(record, 12)),
            offset: u64::from(u32_at(record, 16)),
            end: from + at as u64,
        };
        if let Some(large) = large_record(source, &tail[..at], from)? {
            place = large;
        }
        let Some(start) = place.end.checked_sub(place.size) else { return Ok(None) };
        let Some(shift) = start.checked_sub(place.offset) else { return Ok(None) };
        let bytes = read_at(source, start, place.size.min(DIRECTORY))?;
        Ok(Some(Self { bytes, shift, claimed: place.claimed }))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut bytes = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let fixed = bytes.get(..46).filter(|fixed| fixed.starts_with(b"PK\x01\x02"))?;
            let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(fixed, at)));
            let mut entry = Entry {
                name: bytes.get(46..46 + name)?,
                unicode_name: None,
                flags: u16_at(fixed, 8),
                method: u16_at(fixed, 10),
                crc: u32_at(fixed, 16),
                packed: u64::from(u32_at(fixed, 20)),
                unpacked: u64::from(u32_at(fixed, 24)),
                attributes: u32_at(fixed, 38),
                header: u64::from(u32_at(fixed, 42)),
                sealing: None,
            };
            entry.widen(bytes.get(46 + name..46 + name + extra).unwrap_or_default());
            bytes = bytes.get(46 + name + extra + comment..)?;
            Some(entry)
        })
    }

    /// Whether the first member begins where the directory says. Then the bytes before the archive are there on
    /// purpose.
    pub(crate) fn is_anchored<R: Read + Seek>(&self, source: &mut R) -> io::Result<bool> {
        let Some(first) = self.entries().next() else { return Ok(false) };
        Ok(read_at(source, first.header.saturating_add(self.shift), 4)? == b"PK\x03\x04")
    }

    /// Unpacks the beginning of a member.
    pub(crate) fn unpack<R: Read + Seek>(&self, source: &mut R, entry: &Entry<'_>, most: u64) -> io::Result<Vec<u8>> {
        source.seek(SeekFrom::Start(entry.header.saturating_add(self.shift)))?;
        let mut fixed = [0; 30];
        source.read_exact(&mut fixed)?;
        let skip = i64::from(u16_at(&fixed, 26)) + i64::from(u16_at(&fixed, 28));
        source.seek(SeekFrom::Current(skip))?;
        let packed = source.by_ref().take(entry.packed);
        let mut bytes = Vec::new();
        match entry.method {
            0 => packed.take(most).read_to_end(&mut bytes)?,
            8 => DeflateDecoder::new(packed).take(most).read_to_end(&mut bytes)?,
            _ => 0,
        };
        Ok(bytes)
    }
}

/// Where a directory is, according to the record after it.
struct Place {
    claimed: u64,
    size: u64,
    offset: u64,
    end: u64,
}

/// Reads the record of an archive with 64-bit sizes. It comes before the other record, and a locator leads to it.
fn large_record<R: Read + Seek>(source: &mut R, before: &[u8], from: u64) -> io::Result<Option<Place>> {
    let Some(locator) = before.len().checked_sub(20).map(|at| &before[at..]) else { return Ok(None) };
    if !locator.starts_with(b"PK\x06\x07") {
        return Ok(None);
    }
    let locator_at = from + (before.len() - 20) as u64;
    // Bytes before the archive shift the offset that the locator names; the record ends where the locator begins.
    for at in [u64_at(locator, 8), locator_at.saturating_sub(56)] {
        let record = read_at(source, at, 56)?;
        if record.len() == 56 && record.starts_with(b"PK\x06\x06") {
            return Ok(Some(Place {
                claimed: u64_at(&record, 32),
                size: u64_at(&record, 40),
                offset: u64_at(&record, 48),
                end: at,
            }));
        }
    }
    Ok(None)
}

impl<'a> Entry<'a> {
    fn encrypted(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether somebody packed it: it is no folder, and nothing that a desktop wrote for itself beside the files.
    fn is_file(&self) -> bool {
        let is_folder = matches!(self.name.last(), Some(b'/' | b'\\'));
        let last = self.name.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or_default();
        let is_of_desktop = matches!(last, b".DS_Store" | b"Thumbs.db" | b"desktop.ini")
            || last.starts_with(b"._")
            || self.name.starts_with(b"__MACOSX/");
        !is_folder && !is_of_desktop
    }

    /// Whether its bytes are the path of another file.
    fn is_link(&self) -> bool {
        (self.attributes >> 16) & 0o170_000 == 0o120_000
    }

    /// Takes the sizes that do not fit their fields from the extra field, the name in UTF-8, and how AES has locked the member.
    fn widen(&mut self, mut extra: &'a [u8]) {
        while extra.len() >= 4 {
            let (id, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
            let Some(body) = extra.get(4..4 + length) else { return };
            if id == 1 {
                let mut values = body.chunks_exact(8).map(|value| u64_at(value, 0));
                for field in [&mut self.unpacked, &mut self.packed, &mut self.header] {
                    if *field == u64::from(u32::MAX) {
                        *field = values.next().unwrap_or(*field);
                    }
                }
            }
            if let (0x7075, [1, rest @ ..]) = (id, body)
                && rest.len() > 4
            {
                self.unicode_name = self.unicode_name.or(Some((u32_at(rest, 0), &rest[4..])));
            }
            if let (0x9901, [_, _, b'A', b'E', strength, _, _, ..]) = (id, body) {
                let (version, method) = (u16_at(body, 0), u16_at(body, 5));
                self.sealing = Some(Sealing { version, strength: *strength, method });
            }
            extra = &extra[4 + length..];
        }
    }

    /// The name as text: UTF-8 if there is one that is valid, else the code page of the first zip tools.
    fn readable_name(&self) -> String {
        let readable = |character: char| if character == '\0' { '\u{FFFD}' } else { character };
        // A tool that does not know of this name renames a member without it; then the checksum is of another name.
        let unicode = self.unicode_name.filter(|(sum, _)| *sum == checksum(self.name));
        let unicode = unicode.and_then(|(_, name)| std::str::from_utf8(name).ok());
        match unicode.map_or_else(|| std::str::from_utf8(self.name), Ok) {
            Ok(name) => name.chars().map(readable).take(NAME).collect(),
            Err(_) if self.flags & 0x800 != 0 => {
                String::from_utf8_lossy(self.name).chars().map(readable).take(NAME).collect()
            }
            Err(_) => {
                let upper: Vec<char> = CODE_PAGE_437.chars().collect();
                let character = |&byte: &u8| match byte.checked_sub(0x80) {
                    Some(index) => upper.get(usize::from(index)).copied().unwrap_or('\u{FFFD}'),
                    None => readable(char::from(byte)),
                };
                self.name.iter().map(character).take(NAME).collect()
            }
        }
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

const CODE_PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{A0}";

/// Reads from a place that the archive names; there is nothing behind its end, however far.
fn read_at<R: Read + Seek>(source: &mut R, at: u64, most: u64) -> io::Result<Vec<u8>> {
    if at >= source.seek(SeekFrom::End(0))? {
        // A file may refuse to go there, which would look as if it could not be read now.
        return Ok(Vec::new());
    }
    source.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    source.by_ref().take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | (u32::from(u16_at(bytes, at + 2)) << 16)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};
    use zip::{ZipWriter, write::SimpleFileOptions};

    fn zipped() -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        writer.set_comment("PK\x05\x06 stands in the comment, and eighteen bytes more").unwrap();
        for (name, size) in [("a/b.txt", 1000), ("ü.txt", 3)] {
            writer.start_file(name, SimpleFileOptions::default()).unwrap();
            writer.write_all(&vec![b'x'; size]).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn read(bytes: &[u8]) -> Option<Archive> {
        Archive::read(&mut Cursor::new(bytes)).unwrap()
    }

    #[test]
    fn members_are_listed_with_their_sizes() {
        let archive = read(&zipped()).unwrap();
        assert_eq!((archive.members, archive.unpacked_bytes, archive.encrypted), (2, 1003, 0));
        let listed: Vec<_> =
            archive.listed.iter().map(|member| (member.name.as_str(), member.unpacked_bytes)).collect();
        assert_eq!(listed, [("a/b.txt", 1000), ("ü.txt", 3)]);
        assert!(archive.ratio() > 10.0);
    }

    #[test]
    fn junk_in_front_shifts_the_archive_and_cuts_are_no_panic() {
        let whole = zipped();
        let shifted = [b"#!/bin/sh\n".repeat(50), whole.clone()].concat();
        assert_eq!(read(&shifted), read(&whole));
        let directory = Directory::read(&mut Cursor::new(&shifted)).unwrap().unwrap();
        assert!(directory.is_anchored(&mut Cursor::new(&shifted)).unwrap());
        for cut in 0..whole.len() {
            read(&whole[..cut]);
        }
    }

    #[test]
    fn sizes_of_64_bits_are_read() {
        // Built by hand: one member that claims 5 GB, the 64-bit record, its locator, the 32-bit record.
        let size = 5u64 << 30;
        let mut entry = b"PK\x01\x02".to_vec();
        entry.extend([0; 16]);
        entry.extend([0xFF; 8]);
        entry.extend([1, 0, 20, 0]);
        entry.extend([0; 14]);
        entry.push(b'n');
        entry.extend([1, 0, 16, 0]);
        entry.extend(size.to_le_bytes());
        entry.extend(7u64.to_le_bytes());
        let mut bytes = entry.clone();
        bytes.extend(b"PK\x06\x06");
        bytes.extend([0; 28]);
        for value in [1, entry.len() as u64, 0] {
            bytes.extend(u64::to_le_bytes(value));
        }
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend((entry.len() as u64).to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(b"PK\x05\x06");
        bytes.extend([0xFF; 16]);
        bytes.extend([0, 0]);
        let archive = read(&bytes).unwrap();
        assert_eq!((archive.members, archive.packed_bytes, archive.unpacked_bytes), (1, 7, size));
    }

    #[test]
    fn a_place_behind_the_end_is_empty_in_a_file_too() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"bytes").unwrap();
        assert_eq!(read_at(&mut file, 2, 9).unwrap(), b"tes");
        for at in [6, i64::MAX as u64, u64::MAX] {
            assert!(read_at(&mut file, at, 9).unwrap().is_empty(), "{at}");
        }
    }

    #[test]
    fn old_names_are_read_by_their_code_page() {
        let name = b"\x81ber\0.txt";
        let entry = Entry {
            name,
            unicode_name: None,
            flags: 0,
            method: 0,
            crc: 0,
            packed: 0,
            unpacked: 0,
            attributes: 0,
            header: 0,
            sealing: None,
        };
        assert_eq!(entry.readable_name(), "über\u{FFFD}.txt");
        assert_eq!(CODE_PAGE_437.chars().count(), 128);
    }

    #[test]
    fn a_name_in_utf_8_beside_that_of_a_code_page_is_the_name_if_it_is_of_the_same_member() {
        // The name is in the code page of a Russian system.
        let name = b"\x8E\xE2\xE7\xA5\xE2.txt";
        let listed = |of: &[u8], unicode: &str| {
            let mut extra = vec![1];
            extra.extend(checksum(of).to_le_bytes());
            extra.extend(unicode.as_bytes());
            let mut bytes = b"PK\x01\x02".to_vec();
            bytes.extend([0; 24]);
            bytes.extend([name.len() as u8, 0, extra.len() as u8 + 4, 0]);
            bytes.extend([0; 14]);
            bytes.extend(name);
            bytes.extend([0x75, 0x70, extra.len() as u8, 0]);
            bytes.extend(extra);
            let directory = Directory { bytes, shift: 0, claimed: 1 };
            let names: Vec<String> = directory.entries().map(|entry| entry.readable_name()).collect();
            names.concat()
        };
        assert_eq!(listed(name, "Отчет.txt"), "Отчет.txt");
        assert_eq!(listed(b"another", "Отчет.txt"), "ÄΓτÑΓ.txt");
        assert_eq!(listed(name, ""), "ÄΓτÑΓ.txt");
    }
}
