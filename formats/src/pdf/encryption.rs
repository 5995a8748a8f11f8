//! What an encrypted file keeps closed.

use crate::cipher::{Rc4, md5};
use hayro_syntax::{
    Pdf,
    object::{Dict, FromBytes, Name, ObjectIdentifier, String as PdfString},
};
use memchr::memmem;
use std::ops::Range;

const KEY: &[u8] = b"/Encrypt";
/// How often the head of one object is looked at; only a file that was changed has it more than once.
const MOST_HEADS: usize = 64;
/// What fills a password up to this length (ISO 32000-1, algorithm 2).
const FILLER: [u8; 32] = [
    0x28, 0xBF, 0x4E, 0x5E, 0x4E, 0x75, 0x8A, 0x41, 0x64, 0x00, 0x4E, 0x56, 0xFF, 0xFA, 0x01, 0x08, 0x2E, 0x2E, 0x00,
    0xB6, 0xD0, 0x68, 0x3E, 0x80, 0x2F, 0x0C, 0xA9, 0xFE, 0x64, 0x53, 0x69, 0x7A,
];

/// Where the file's trailers name its encryption. Trailers are plain even in an encrypted file, and the key is followed
/// by a reference or a dictionary.
fn names(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, Entry<'_>)> {
    memmem::find_iter(bytes, KEY).filter_map(|at| {
        let end = at + KEY.len();
        entry(bytes[end..].trim_ascii_start()).map(|entry| (at..end, entry))
    })
}

enum Entry<'b> {
    Object(ObjectIdentifier),
    Direct(&'b [u8]),
}

fn entry(bytes: &[u8]) -> Option<Entry<'_>> {
    if bytes.starts_with(b"<<") {
        return Some(Entry::Direct(bytes));
    }
    let mut words = bytes[..bytes.len().min(32)].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<i32>().ok();
    let object = ObjectIdentifier::new(u32::try_from(number()?).ok()?, number()?);
    words.next()?.starts_with(b"R").then_some(Entry::Object(object))
}

pub(super) fn is_encrypted(bytes: &[u8]) -> bool {
    names(bytes).next().is_some()
}

/// The password that opens the file, if this one is its owner's (ISO 32000-1, algorithm 7). The engine tries an owner's
/// password only where the encryption is of revision 5 or later. What a wrong password gives opens nothing.
pub(super) fn opened_by_owner(bytes: &[u8], password: &str) -> Option<String> {
    let dict = names(bytes).find_map(|(_, entry)| match entry {
        Entry::Object(object) => plain_dict(bytes, object),
        Entry::Direct(bytes) => Dict::from_bytes(bytes),
    })?;
    let (revision, version) = (dict.get::<u8>(b"R")?, dict.get::<u8>(b"V")?);
    let bits = match (revision, version) {
        (2, _) | (3, 1) => 40,
        (3 | 4, _) => dict.get::<usize>(b"Length").unwrap_or(if version == 4 { 128 } else { 40 }),
        _ => return None,
    };
    let sealed = dict.get::<PdfString<'_>>(b"O")?;
    let mut opened: [u8; 32] = sealed.as_bytes().get(..32)?.try_into().ok()?;
    // Such passwords are hashed in Latin-1 where it has their characters.
    let latin: Option<Vec<u8>> = password.chars().map(|character| u8::try_from(character).ok()).collect();
    let mut filled = latin.unwrap_or_else(|| password.as_bytes().to_vec());
    filled.extend(FILLER);
    let again = if revision == 2 { 0 } else { 50 };
    let hash = (0..again).fold(md5(&filled[..FILLER.len()]), |hash, _| md5(&hash));
    let key = hash.get(..bits / 8).filter(|key| !key.is_empty())?;
    let turns: u8 = if revision == 2 { 1 } else { 20 };
    for turn in (0..turns).rev() {
        let key: Vec<u8> = key.iter().map(|byte| byte ^ turn).collect();
        Rc4::new(&key).apply(&mut opened);
    }
    let end = (0..opened.len()).find(|end| FILLER.starts_with(&opened[*end..])).unwrap_or(opened.len());
    String::from_utf8(opened[..end].to_vec()).ok()
}

/// The dictionary of an object, without its file's table of objects: an encrypted file may keep the others closed.
fn plain_dict(bytes: &[u8], object: ObjectIdentifier) -> Option<Dict<'_>> {
    let head = format!("{} {} obj", object.obj_number, object.gen_number);
    memmem::find_iter(bytes, head.as_bytes()).take(MOST_HEADS).find_map(|at| {
        let is_whole = !at.checked_sub(1).and_then(|before| bytes.get(before)).is_some_and(u8::is_ascii_digit);
        let dict = bytes[at + head.len()..].trim_ascii_start();
        Dict::from_bytes(dict).filter(|dict: &Dict<'_>| is_whole && dict.contains_key(b"O"))
    })
}

/// The file without its encryption, if that closes only its attachments; then its text was never encrypted.
pub(super) fn without(bytes: &[u8]) -> Option<Pdf> {
    let (mut plain, mut entries) = (bytes.to_vec(), Vec::new());
    for (name, entry) in names(bytes) {
        // This name has the same length and means nothing.
        plain[name].copy_from_slice(b"/Ignored");
        entries.push(entry);
    }
    let pdf = Pdf::new(plain).ok()?;
    let closes_text = |entry: &Entry<'_>| {
        let dict = match entry {
            Entry::Object(object) => pdf.xref().get::<Dict<'_>>(*object),
            Entry::Direct(bytes) => Dict::from_bytes(bytes),
        };
        dict.is_none_or(|dict| {
            let is_open = |filter: &[u8]| dict.get::<Name<'_>>(filter).is_none_or(|name| name.as_ref() == b"Identity");
            // Older versions have no filters and encrypt everything.
            dict.get::<u8>(b"V").is_none_or(|version| version < 4) || !is_open(b"StmF") || !is_open(b"StrF")
        })
    };
    (!entries.is_empty() && !entries.iter().any(closes_text)).then_some(pdf)
}
