//! Reads headers whose encoded words (RFC 2047) end within a character that the next word ends.

use mail_parser::{
    GetHeader, HeaderName, HeaderValue, Message, MessagePart,
    decoders::{base64::base64_decode, quoted_printable::quoted_printable_decode_char},
    parsers::MessageStream,
};
use std::{borrow::Cow, io::Write};

/// A longer header is not read again.
const LONGEST: usize = 1 << 20;
/// A longer word is not joined with others; RFC 2047 allows 75 characters.
const LONGEST_WORD: usize = 1000;

/// The value of a header. If it shows broken characters, it is read again with neighbouring words as one.
pub(super) fn value<'a>(
    message: &Message<'_>,
    part: &'a MessagePart<'_>,
    name: HeaderName<'static>,
) -> Option<Cow<'a, HeaderValue<'a>>> {
    let header = part.headers.header(name)?;
    let raw = message.raw_message.get(header.offset_start as usize..header.offset_end as usize).unwrap_or_default();
    let joined = if is_broken(&header.value) && raw.len() <= LONGEST { joined(raw) } else { None };
    let Some(joined) = joined else { return Some(Cow::Borrowed(&header.value)) };
    let mut stream = MessageStream::new(&joined);
    let value = match header.name {
        HeaderName::Subject => stream.parse_unstructured(),
        HeaderName::ContentType | HeaderName::ContentDisposition => stream.parse_content_type(),
        _ => stream.parse_address(),
    };
    Some(Cow::Owned(value.into_owned()))
}

fn is_broken(value: &HeaderValue<'_>) -> bool {
    let is_broken = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
    match value {
        HeaderValue::Text(text) => is_broken(text),
        HeaderValue::Address(address) => address.iter().any(|one| one.name().is_some_and(is_broken)),
        HeaderValue::ContentType(kind) => kind.attributes.iter().flatten().any(|attribute| is_broken(&attribute.value)),
        _ => false,
    }
}

/// An encoded word.
struct Word<'a> {
    charset: &'a [u8],
    bytes: Vec<u8>,
    /// How long it is as it is written.
    length: usize,
}

impl<'a> Word<'a> {
    /// The word that the bytes begin with.
    fn at(bytes: &'a [u8]) -> Option<Self> {
        let bytes = &bytes[..bytes.len().min(LONGEST_WORD)];
        let rest = bytes.strip_prefix(b"=?")?;
        let charset = &rest[..memchr::memchr(b'?', rest)?];
        let (encoding, rest) = rest[charset.len() + 1..].split_first_chunk::<2>()?;
        let text = &rest[..memchr::memmem::find(rest, b"?=")?];
        let bytes = match encoding {
            b"B?" | b"b?" => base64_decode(text)?,
            b"Q?" | b"q?" => quoted(text)?,
            _ => return None,
        };
        Some(Self { charset, bytes, length: charset.len() + text.len() + 7 })
    }
}

/// The bytes of a word in the encoding `Q`.
fn quoted(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'=' => {
                let ([high, low], after) = after.split_first_chunk::<2>()?;
                bytes.push(quoted_printable_decode_char(*high, *low)?);
                rest = after;
            }
            b'_' => bytes.push(b' '),
            b'\r' | b'\n' => return None,
            byte => bytes.push(*byte),
        }
    }
    Some(bytes)
}

/// A header in which neighbouring words of one character set are one word; `None` if there are none.
fn joined(header: &[u8]) -> Option<Vec<u8>> {
    let (mut joined, mut kept, mut at) = (Vec::new(), 0, 0);
    while let Some(start) = memchr::memmem::find(&header[at..], b"=?").map(|start| at + start) {
        let Some(mut word) = Word::at(&header[start..]) else {
            at = start + 2;
            continue;
        };
        at = start + word.length;
        let mut is_joined = false;
        loop {
            let next = at + header[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            match Word::at(&header[next..]) {
                Some(other) if other.charset.eq_ignore_ascii_case(word.charset) => {
                    word.bytes.extend_from_slice(&other.bytes);
                    at = next + other.length;
                    is_joined = true;
                }
                _ => break,
            }
        }
        if is_joined {
            joined.extend_from_slice(&header[kept..start]);
            joined.extend_from_slice(b"=?");
            joined.extend_from_slice(word.charset);
            joined.extend_from_slice(b"?Q?");
            for byte in &word.bytes {
                // A vector takes whatever is written.
                let _ = write!(joined, "={byte:02X}");
            }
            joined.extend_from_slice(b"?=");
            kept = at;
        }
    }
    joined.extend_from_slice(&header[kept..]);
    (kept > 0).then_some(joined)
}
