//! Archives of which a password opens members. They are read in one go, because the password is kept nowhere: as a text with a
//! section for each member.

use super::{Directory, Entry, Sealing, members::Spans, read_at};
use crate::{
    Access, Extraction, Format, FormatError, Heading, LeftOut, Limit, Limits, Secret,
    cipher::{Hash, counted, derived},
    detect_named,
    extraction::check_text,
    markdown::one_line,
    members::Budget,
    opened,
};
use flate2::{Crc, read::DeflateDecoder};
use serde_json::json;
use std::{
    collections::BTreeMap,
    io::{self, Cursor, Read, Seek},
};

/// A password that opens none of so many locked members opens none of the others either.
const TRIED: u32 = 20;
/// How many members that were not read are named.
const NAMED: usize = 100;
/// The method that stands for another one below AES.
const SEALED: u16 = 99;
/// What stands before a member that is locked by the old cipher.
const OLD_HEAD: usize = 12;

/// What an archive with locked members shows once the password has opened one of them. `None` if none is locked.
///
/// # Errors
/// [`FormatError::Encrypted`] if the password opens none. If none can be read for another reason than the password, it is the error of the first.
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
    let mut opener = Opener {
        shift: directory.shift,
        password,
        limits,
        budget: Budget { members: limits.members, bytes: limits.member_bytes },
        spans: Spans::default(),
        has_opened: false,
    };
    let (mut seen, mut closed) = (0u64, 0);
    let mut unread = None;
    for entry in directory.entries() {
        seen += 1;
        if !entry.is_file() {
            continue;
        }
        let name = entry.readable_name();
        match opener.open(source, &entry)? {
            Ok(bytes) => {
                opener.budget.members -= 1;
                sections.add(&name, &bytes)?;
            }
            Err(reason) => {
                if reason == LeftOut::Encrypted {
                    // To try a member takes as long as to open it.
                    opener.budget.members -= 1;
                    closed += 1;
                } else if entry.encrypted() {
                    unread.get_or_insert_with(|| not_read(&name, reason));
                }
                sections.left_out.add(&name, reason.as_str());
            }
        }
        if !opener.has_opened && closed >= TRIED {
            break;
        }
    }
    if !opener.has_opened && closed > 0 {
        return Err(FormatError::Encrypted { format: Format::Zip });
    }
    if !opener.has_opened || sections.read.text.is_empty() {
        const NO_TEXT: &str = "none of its locked members has a text; unpack it and upload its files by themselves";
        return Err(unread.unwrap_or_else(|| FormatError::unsupported(Format::Zip, NO_TEXT)));
    }
    if seen < directory.claimed {
        // The directory is longer than what is read of it, or it breaks off.
        sections.left_out.add("", LeftOut::Damaged.as_str());
    }
    sections.finish().map(Some)
}

/// Why a locked member is not read, whatever the password.
fn not_read(name: &str, reason: LeftOut) -> FormatError {
    let limit = match reason {
        LeftOut::Members => Limit::Members,
        LeftOut::MemberBytes => Limit::MemberBytes,
        LeftOut::InputBytes => Limit::InputBytes,
        LeftOut::ZipRatio => Limit::ZipRatio,
        LeftOut::Damaged | LeftOut::Overlap => {
            return FormatError::corrupt(Format::Zip, format_args!("its locked member `{name}` cannot be read"));
        }
        reason => {
            let detail = format_args!("its locked member `{name}` cannot be read ({reason})");
            return FormatError::unsupported(Format::Zip, detail);
        }
    };
    FormatError::over(limit, format_args!("the locked member `{name}` is not read"))
}

/// Opens members one by one, with the password where they are locked.
struct Opener<'a> {
    /// The number of bytes before the archive.
    shift: u64,
    password: &'a Secret,
    limits: &'a Limits,
    budget: Budget,
    spans: Spans,
    /// Whether the password is right for a member, even for one that cannot be read.
    has_opened: bool,
}

impl Opener<'_> {
    /// The bytes of a member.
    fn open<R: Read + Seek>(&mut self, source: &mut R, entry: &Entry<'_>) -> io::Result<Result<Vec<u8>, LeftOut>> {
        if let Some(reason) = self.budget.spent() {
            return Ok(Err(reason));
        }
        if entry.is_link() {
            return Ok(Err(LeftOut::Link));
        }
        if entry.packed.max(entry.unpacked) > self.limits.input_bytes {
            return Ok(Err(LeftOut::InputBytes));
        }
        let begin = match self.spans.begin(source, self.shift, entry)? {
            Ok(begin) => begin,
            Err(reason) => return Ok(Err(reason)),
        };
        let packed = read_at(source, begin, entry.packed)?;
        if (packed.len() as u64) < entry.packed {
            return Ok(Err(LeftOut::Damaged));
        }
        Ok(self.unlock(packed, entry))
    }

    fn unlock(&mut self, packed: Vec<u8>, entry: &Entry<'_>) -> Result<Vec<u8>, LeftOut> {
        if !entry.encrypted() {
            return self.unpack(packed, entry.method, entry, true);
        }
        match entry.sealing.filter(|_| entry.method == SEALED) {
            Some(sealing) => {
                let packed = sealing.open(&packed, self.password).ok_or(LeftOut::Encrypted)?;
                self.has_opened = true;
                // The second version has no sum of its own, because that would tell something of what is locked.
                self.unpack(packed, sealing.method, entry, sealing.version == 1)
            }
            None => {
                let packed = of_old(packed, self.password).ok_or(LeftOut::Damaged)?;
                let bytes = self.unpack(packed, entry.method, entry, true).map_err(|reason| match reason {
                    // What a wrong password makes of a member looks damaged.
                    LeftOut::Damaged => LeftOut::Encrypted,
                    reason => reason,
                })?;
                self.has_opened = true;
                Ok(bytes)
            }
        }
    }

    /// Unpacks bytes as far as the limits allow, and says whether they are those that were packed. What is unpacked counts, even if it
    /// is worthless.
    fn unpack(&mut self, packed: Vec<u8>, method: u16, entry: &Entry<'_>, has_sum: bool) -> Result<Vec<u8>, LeftOut> {
        let of_ratio = entry.packed.saturating_mul(u64::from(self.limits.zip_ratio)).max(Limits::RATIO_FREE_BYTES);
        let room = self.budget.bytes;
        let (bytes, is_cut) = match method {
            0 => (packed, false),
            8 => {
                let most = room.min(of_ratio).min(self.limits.input_bytes).saturating_add(1);
                let mut bytes = Vec::new();
                let read = DeflateDecoder::new(packed.as_slice()).take(most).read_to_end(&mut bytes);
                (bytes, read.is_err())
            }
            _ => return Err(LeftOut::Compression),
        };
        let length = bytes.len() as u64;
        self.budget.bytes = room.saturating_sub(length);
        if length > room {
            return Err(LeftOut::MemberBytes);
        }
        if length > self.limits.input_bytes {
            return Err(LeftOut::InputBytes);
        }
        if length > of_ratio {
            return Err(LeftOut::ZipRatio);
        }
        let mut sum = Crc::new();
        sum.update(&bytes);
        let is_whole = !is_cut && length == entry.unpacked && (!has_sum || sum.sum() == entry.crc);
        if is_whole { Ok(bytes) } else { Err(LeftOut::Damaged) }
    }
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
            let body = read.text.trim_end();
            headings.extend(read.headings.into_iter().map(|heading| Heading {
                level: heading.level.saturating_add(1).min(9),
                // One may stand on an empty page at the end.
                start: start + heading.start.min(body.len()),
                ..heading
            }));
            text.push_str(body);
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
