//! Archives of which a password opens members. They are read in one go, because the password is kept nowhere: as a text with a
//! section for each member.

use super::{Directory, Entry, Sealing, read_at, u16_at};
use crate::{
    Access, Extraction, Format, FormatError, Heading, LeftOut, Limits, Secret,
    cipher::{Hash, counted, derived},
    detect_named,
    extraction::check_text,
    markdown::one_line,
    opened,
};
use flate2::{Crc, read::DeflateDecoder};
use serde_json::json;
use std::{
    collections::BTreeMap,
    io::{self, Cursor, Read, Seek},
};

/// The bytes of a member's own header before its name.
const HEADER: u64 = 30;
/// A password that opens none of so many locked members opens none of the others either.
const TRIED: u32 = 20;
/// How many members that were not read are named.
const NAMED: usize = 100;
/// The method that stands for another one below AES.
const SEALED: u16 = 99;
/// What stands before a member that is locked by the old cipher.
const OLD_HEAD: usize = 12;

/// What an archive with locked members shows once the password has opened one of them; `None` if none is locked.
///
/// # Errors
/// [`FormatError::Encrypted`] if the password opens none.
pub(super) fn read<R: Read + Seek>(
    source: &mut R,
    password: &Secret,
    limits: &Limits,
) -> Result<Option<Extraction>, FormatError> {
    let Some(directory) = Directory::read(source)? else { return Ok(None) };
    if !directory.entries().any(|entry| entry.is_file() && entry.encrypted()) {
        return Ok(None);
    }
    let access = Access { limits, password: Some(password), pages: None };
    let mut sections = Sections { read: Extraction::default(), left_out: Unread::default(), access };
    let (mut members, mut room) = (limits.members, limits.member_bytes);
    let (mut opened, mut closed) = (0u64, 0);
    for entry in directory.entries().filter(Entry::is_file) {
        let name = entry.readable_name();
        let content = match (members, room) {
            (0, _) => Err(LeftOut::Members),
            (_, 0) => Err(LeftOut::MemberBytes),
            _ => unlocked(source, directory.shift, &entry, password, limits)?,
        };
        match content {
            Ok(content) if content.len() as u64 > room => {
                room = 0;
                sections.left_out.add(&name, LeftOut::MemberBytes.as_str());
            }
            Ok(content) => {
                opened += u64::from(entry.encrypted());
                (members, room) = (members - 1, room - content.len() as u64);
                sections.add(&name, &content)?;
            }
            Err(reason) => {
                closed += u32::from(reason == LeftOut::Encrypted);
                sections.left_out.add(&name, reason.as_str());
            }
        }
        if opened == 0 && closed >= TRIED {
            break;
        }
    }
    if opened == 0 {
        return Err(FormatError::Encrypted { format: Format::Zip });
    }
    sections.finish().map(Some)
}

/// The bytes of a member, which the password opens if the member is locked.
fn unlocked<R: Read + Seek>(
    source: &mut R,
    shift: u64,
    entry: &Entry<'_>,
    password: &Secret,
    limits: &Limits,
) -> io::Result<Result<Vec<u8>, LeftOut>> {
    if entry.is_link() {
        return Ok(Err(LeftOut::Link));
    }
    let most = limits.input_bytes;
    if entry.packed > most {
        return Ok(Err(LeftOut::InputBytes));
    }
    let Some(start) = entry.header.checked_add(shift) else { return Ok(Err(LeftOut::Damaged)) };
    let header = read_at(source, start, HEADER)?;
    if header.len() < HEADER as usize || !header.starts_with(b"PK\x03\x04") {
        return Ok(Err(LeftOut::Damaged));
    }
    let names = u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
    let packed = read_at(source, start.saturating_add(HEADER + names), entry.packed)?;
    if (packed.len() as u64) < entry.packed {
        return Ok(Err(LeftOut::Damaged));
    }
    let is_locked = entry.encrypted();
    let (packed, method, has_sum) = match entry.sealing.filter(|_| entry.method == SEALED) {
        _ if !is_locked => (Some(packed), entry.method, true),
        // The second version has no sum of its own, because that would tell something of what is locked.
        Some(sealing) => (sealing.open(&packed, password), sealing.method, sealing.version == 1),
        None => (of_old(packed, password), entry.method, true),
    };
    let Some(packed) = packed else { return Ok(Err(LeftOut::Encrypted)) };
    // What a wrong password makes of a member looks damaged.
    let spoilt = if is_locked { LeftOut::Encrypted } else { LeftOut::Damaged };
    let bytes = match method {
        0 => packed,
        8 => {
            let mut bytes = Vec::new();
            if DeflateDecoder::new(packed.as_slice()).take(most.saturating_add(1)).read_to_end(&mut bytes).is_err() {
                return Ok(Err(spoilt));
            }
            bytes
        }
        _ => return Ok(Err(LeftOut::Compression)),
    };
    let length = bytes.len() as u64;
    if length > most {
        return Ok(Err(LeftOut::InputBytes));
    }
    if length > Limits::RATIO_FREE_BYTES && length > entry.packed.saturating_mul(u64::from(limits.zip_ratio)) {
        return Ok(Err(LeftOut::ZipRatio));
    }
    let mut sum = Crc::new();
    sum.update(&bytes);
    let is_whole = length == entry.unpacked && (!has_sum || sum.sum() == entry.crc);
    Ok(if is_whole { Ok(bytes) } else { Err(spoilt) })
}

impl Sealing {
    /// Opens what AES has locked, with the keys that a salt and the password give; `None` if the password is wrong, or the bytes
    /// are not those that were locked.
    fn open(self, sealed: &[u8], password: &Secret) -> Option<Vec<u8>> {
        /// The bytes by which a password is checked, and those by which the member is.
        const CHECK: usize = 2;
        const CODE: usize = 10;
        /// How often a password is hashed.
        const TURNS: u32 = 1000;
        let key_bytes = match self.strength {
            1 => 16,
            2 => 24,
            3 => 32,
            _ => return None,
        };
        let (salt, rest) = sealed.split_at_checked(key_bytes / 2)?;
        let (check, rest) = rest.split_at_checked(CHECK)?;
        let (locked, code) = rest.split_at_checked(rest.len().checked_sub(CODE)?)?;
        let keys = derived(password.reveal().as_bytes(), salt, TURNS, 2 * key_bytes + CHECK);
        let (key, rest) = keys.split_at_checked(key_bytes)?;
        let (of_code, expected) = rest.split_at_checked(key_bytes)?;
        if check != expected || !Hash::Sha1.mac(of_code, locked).starts_with(code) {
            return None;
        }
        let mut bytes = locked.to_vec();
        counted(key, &mut bytes)?;
        Some(bytes)
    }
}

/// Opens what the cipher of the first zip tools has locked. `None` if it is cut; whether the password is right is only known by what
/// comes out. The cipher is broken, and serves here only to read what it has locked.
fn of_old(mut bytes: Vec<u8>, password: &Secret) -> Option<Vec<u8>> {
    let mut keys = Keys([0x1234_5678, 0x2345_6789, 0x3456_7890]);
    password.reveal().bytes().for_each(|byte| keys.take_in(byte));
    for byte in &mut bytes {
        *byte ^= keys.turn();
        keys.take_in(*byte);
    }
    (bytes.len() >= OLD_HEAD).then(|| bytes.split_off(OLD_HEAD))
}

/// The state of that cipher.
struct Keys([u32; 3]);

impl Keys {
    fn take_in(&mut self, byte: u8) {
        let [first, second, third] = &mut self.0;
        *first = summed(*first, byte);
        *second = second.wrapping_add(*first & 0xFF).wrapping_mul(134_775_813).wrapping_add(1);
        *third = summed(*third, (*second >> 24) as u8);
    }

    /// The next byte of the key stream.
    fn turn(&self) -> u8 {
        let of_third = (self.0[2] & 0xFFFF) | 2;
        (of_third.wrapping_mul(of_third ^ 1) >> 8) as u8
    }
}

/// One step of CRC-32.
fn summed(sum: u32, byte: u8) -> u32 {
    SUMS[usize::from(sum as u8 ^ byte)] ^ (sum >> 8)
}

const SUMS: [u32; 256] = {
    let mut sums = [0; 256];
    let mut at = 0;
    while at < sums.len() {
        let (mut sum, mut bit) = (at as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 0 { sum >> 1 } else { (sum >> 1) ^ 0xEDB8_8320 };
            bit += 1;
        }
        sums[at] = sum;
        at += 1;
    }
    sums
};

/// Which members were not read.
#[derive(Default)]
struct Unread {
    count: u64,
    reasons: BTreeMap<String, u64>,
    first: Vec<serde_json::Value>,
}

impl Unread {
    fn add(&mut self, name: &str, reason: &str) {
        self.count += 1;
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
        if self.first.len() < NAMED {
            self.first.push(json!({"name": name, "reason": reason}));
        }
    }
}

/// The text of an archive, member by member.
struct Sections<'a> {
    read: Extraction,
    left_out: Unread,
    access: Access<'a>,
}

impl Sections<'_> {
    /// Adds a member; one that cannot be read is left out with its reason.
    fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), FormatError> {
        match text_of(name, bytes, self.access) {
            Ok(read) => self.section(name, read),
            Err(error) if error.is_permanent() => {
                self.left_out.add(name, error.limit().map_or(error.code(), |limit| limit.as_str()));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn section(&mut self, name: &str, read: Extraction) -> Result<(), FormatError> {
        let Extraction { text, headings, .. } = &mut self.read;
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        let title = one_line(name);
        headings.push(Heading { level: 1, title: title.clone(), start: text.len() });
        text.push_str("# ");
        text.push_str(&title);
        if !read.text.is_empty() {
            text.push_str("\n\n");
            let start = text.len();
            headings.extend(read.headings.into_iter().map(|heading| Heading {
                level: heading.level.saturating_add(1).min(9),
                start: start + heading.start,
                ..heading
            }));
            text.push_str(read.text.trim_end());
        }
        check_text(self.read.text.len(), self.access.limits)
    }

    /// The whole text, with the fact `locked_format`.
    fn finish(self) -> Result<Extraction, FormatError> {
        let Self { mut read, left_out: Unread { count, reasons, first }, access } = self;
        read.headings_from = Some("members".to_owned());
        read.facts.insert("locked_format".to_owned(), Format::Zip.as_str().into());
        if count > 0 {
            let left_out = json!({"count": count, "reasons": reasons, "first": first});
            read.facts.insert("members.left_out".to_owned(), left_out);
        }
        read.within(access.limits)
    }
}

/// The text of a member. An archive within an archive is not opened: each is to be uploaded by itself.
fn text_of(name: &str, bytes: &[u8], access: Access<'_>) -> Result<Extraction, FormatError> {
    let format = detect_named(&mut Cursor::new(bytes), Some(name))?.format.ok_or(FormatError::UnknownFormat)?;
    if format == Format::Zip {
        return Err(FormatError::unsupported(format, "it lies within a locked archive"));
    }
    let sheets = format.has_sheets().then(|| opened::sheets(bytes, access.limits));
    match sheets {
        // The same password may lock it, too.
        None | Some(Err(FormatError::Encrypted { .. })) => crate::extract(format, Cursor::new(bytes), access),
        Some(read) => read,
    }
}

#[cfg(test)]
mod tests;
