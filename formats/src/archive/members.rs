//! Unpacks the members of a zip archive, one after the other.

use super::{Directory, Entry, read_at, u16_at};
use crate::{
    Format, FormatError, Limits, Pattern, Patterns,
    members::{Budget, LeftOut, MemberHead, MemberPart, TakePart},
};
use flate2::{Crc, read::DeflateDecoder};
use std::{
    collections::BTreeMap,
    io::{self, Read, Seek, SeekFrom},
};

/// How many bytes of a member are unpacked at once.
const PIECE: usize = 256 << 10;
/// The bytes of a member's own header before its name.
const HEADER: u64 = 30;

/// Members that make an archive one document of a program, such as a sheet of OpenDocument or of Numbers, whose parts are no
/// files of anybody's.
const OF_PACKAGES: [&[u8]; 5] =
    [b"mimetype", b"[Content_Types].xml", b"META-INF/MANIFEST.MF", b"AndroidManifest.xml", b"Index/Document.iwa"];

/// Whether an archive names a file; nothing is measured if it is one document.
pub(crate) fn probe<R: Read + Seek>(mut source: R) -> Result<Patterns, FormatError> {
    let directory = directory(&mut source)?;
    if directory.entries().any(|entry| OF_PACKAGES.contains(&entry.name)) {
        return Ok(Patterns::default());
    }
    // What the directory claims and does not show is named where the members are read.
    let is_short = (directory.entries().count() as u64) < directory.claimed;
    Ok(Patterns::default().with(Pattern::HasMembers, is_short || directory.entries().any(|entry| entry.is_file())))
}

/// The directory of an archive. One that has lost it, because it broke off on its way, is damaged.
fn directory<R: Read + Seek>(source: &mut R) -> Result<Directory, FormatError> {
    let lost = || {
        FormatError::corrupt(Format::Zip, "the list of its files at its end is missing or damaged; upload all of it")
    };
    Directory::read(source)?.ok_or_else(lost)
}

/// Reads every file in the archive.
pub(crate) fn members<R: Read + Seek>(
    mut source: R,
    limits: &Limits,
    budget: &mut Budget,
    take: &mut TakePart<'_>,
) -> Result<(), FormatError> {
    let directory = directory(&mut source)?;
    let mut spans = Spans::default();
    let mut seen = 0;
    for (index, entry) in (0..).zip(directory.entries()) {
        seen += 1;
        if !entry.is_file() {
            continue;
        }
        let head = MemberHead { index, name: entry.readable_name(), declared_mime: None };
        let name = head.name.clone();
        let read = match budget.spent() {
            Some(reason) => Err(reason),
            None => {
                let mut member = Member { entry: &entry, shift: directory.shift, limits, budget };
                match member.open(&mut source, &mut spans)? {
                    Err(reason) => Err(reason),
                    Ok(at) => {
                        take(MemberPart::Begin(head))?;
                        member.unpack(&mut source, at, take)?
                    }
                }
            }
        };
        match read {
            Ok(()) => {
                budget.members -= 1;
                take(MemberPart::End)?;
            }
            Err(reason) => take(MemberPart::LeftOut { name, reason })?,
        }
    }
    if seen < directory.claimed {
        // The directory is longer than what is read of it, or it breaks off.
        take(MemberPart::LeftOut { name: String::new(), reason: LeftOut::Damaged })?;
    }
    Ok(())
}

/// A member that is being read.
struct Member<'a> {
    entry: &'a Entry<'a>,
    shift: u64,
    limits: &'a Limits,
    budget: &'a mut Budget,
}

impl Member<'_> {
    /// Finds where the packed bytes begin, and whether the member can be read as far as its descriptions say.
    fn open<R: Read + Seek>(&self, source: &mut R, spans: &mut Spans) -> io::Result<Result<u64, LeftOut>> {
        let entry = self.entry;
        if entry.encrypted() {
            return Ok(Err(LeftOut::Encrypted));
        }
        if entry.is_link() {
            return Ok(Err(LeftOut::Link));
        }
        if !matches!(entry.method, 0 | 8) {
            return Ok(Err(LeftOut::Compression));
        }
        if entry.unpacked > self.limits.input_bytes {
            return Ok(Err(LeftOut::InputBytes));
        }
        spans.begin(source, self.shift, entry)
    }

    /// Gives the member's bytes, and says whether they are whole.
    fn unpack<R: Read + Seek>(
        &mut self,
        source: &mut R,
        at: u64,
        take: &mut TakePart<'_>,
    ) -> Result<Result<(), LeftOut>, FormatError> {
        source.seek(SeekFrom::Start(at))?;
        let packed = source.by_ref().take(self.entry.packed);
        match self.entry.method {
            8 => self.give(DeflateDecoder::new(packed), take),
            _ => self.give(packed, take),
        }
    }

    fn give(&mut self, mut unpacked: impl Read, take: &mut TakePart<'_>) -> Result<Result<(), LeftOut>, FormatError> {
        let (mut crc, mut length) = (Crc::new(), 0u64);
        loop {
            let mut piece = vec![0; PIECE];
            let read = match unpacked.read(&mut piece) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                    ) =>
                {
                    return Ok(Err(LeftOut::Damaged));
                }
                Err(error) => return Err(error.into()),
            };
            if read == 0 {
                break;
            }
            piece.truncate(read);
            length += read as u64;
            let Some(left) = self.budget.bytes.checked_sub(read as u64) else {
                self.budget.bytes = 0;
                return Ok(Err(LeftOut::MemberBytes));
            };
            self.budget.bytes = left;
            if length > self.limits.input_bytes {
                return Ok(Err(LeftOut::InputBytes));
            }
            let most = self.entry.packed.saturating_mul(u64::from(self.limits.zip_ratio));
            if length > Limits::RATIO_FREE_BYTES && length > most {
                return Ok(Err(LeftOut::ZipRatio));
            }
            crc.update(&piece);
            take(MemberPart::Bytes(piece))?;
        }
        let is_whole = length == self.entry.unpacked && crc.sum() == self.entry.crc;
        Ok(if is_whole { Ok(()) } else { Err(LeftOut::Damaged) })
    }
}

/// The stretches of the archive that members have. Where two overlap, a small archive would hold any number of large
/// members.
#[derive(Default)]
pub(super) struct Spans(BTreeMap<u64, u64>);

impl Spans {
    /// Finds where the packed bytes of a member begin, and takes the member's stretch.
    pub(super) fn begin<R: Read + Seek>(
        &mut self,
        source: &mut R,
        shift: u64,
        entry: &Entry<'_>,
    ) -> io::Result<Result<u64, LeftOut>> {
        let Some(start) = entry.header.checked_add(shift) else { return Ok(Err(LeftOut::Damaged)) };
        let header = read_at(source, start, HEADER)?;
        if header.len() < HEADER as usize || !header.starts_with(b"PK\x03\x04") {
            return Ok(Err(LeftOut::Damaged));
        }
        let begin = start + HEADER + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
        let Some(end) = begin.checked_add(entry.packed) else { return Ok(Err(LeftOut::Damaged)) };
        Ok(if self.claim(start, end) { Ok(begin) } else { Err(LeftOut::Overlap) })
    }

    /// Takes a stretch, unless a part of it is taken.
    fn claim(&mut self, start: u64, end: u64) -> bool {
        let before = self.0.range(..=start).next_back().is_some_and(|(_, before)| *before > start);
        let after = self.0.range(start..).next().is_some_and(|(next, _)| *next < end);
        let is_free = !before && !after;
        if is_free {
            self.0.insert(start, end);
        }
        is_free
    }
}

#[cfg(test)]
mod tests;
