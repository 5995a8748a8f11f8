//! What an encrypted file keeps closed.

use hayro_syntax::{
    Pdf,
    object::{Dict, FromBytes, Name, ObjectIdentifier},
};
use memchr::memmem;
use std::ops::Range;

const KEY: &[u8] = b"/Encrypt";

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
