//! Undoes what parts of a message were encoded in for their transfer, also where the encoding breaks off or goes wrong.

use crate::charset;
use mail_parser::{
    Encoding, Message, MessagePart, MimeHeaders,
    decoders::{base64::base64_decode, charsets::map::charset_decoder, quoted_printable::quoted_printable_decode_char},
};
use std::borrow::Cow;

/// A part as it was before it was encoded.
pub(super) struct Sent<'a> {
    /// What was encoded, as far as it can be read.
    pub bytes: Cow<'a, [u8]>,
    /// What follows and is not encoded, such as the footer of a gateway.
    pub rest: &'a [u8],
    /// Whether nothing shows that bytes are missing.
    pub is_whole: bool,
}

/// What the headers say; the parser forgets it of a part that it cannot decode.
pub(super) fn encoding(part: &MessagePart<'_>) -> Encoding {
    match part.content_transfer_encoding() {
        Some(name) if name.eq_ignore_ascii_case("base64") => Encoding::Base64,
        Some(name) if name.eq_ignore_ascii_case("quoted-printable") => Encoding::QuotedPrintable,
        _ => Encoding::None,
    }
}

/// Whether the parser could not decode the part.
pub(super) fn is_broken(part: &MessagePart<'_>) -> bool {
    part.is_encoding_problem && encoding(part) != Encoding::None
}

/// The bytes of a text, which the parser gives in UTF-8 only.
pub(super) fn sent<'a>(message: &'a Message<'_>, part: &'a MessagePart<'_>) -> Sent<'a> {
    let raw = message.raw_message.get(part.offset_body as usize..part.offset_end as usize).unwrap_or_default();
    let whole = |bytes| Sent { bytes, rest: &[], is_whole: true };
    match encoding(part) {
        Encoding::None => whole(Cow::Borrowed(raw)),
        Encoding::QuotedPrintable => whole(Cow::Owned(quoted_printable(raw))),
        Encoding::Base64 if part.is_encoding_problem => base64(raw),
        Encoding::Base64 => whole(base64_decode(raw).map_or(Cow::Borrowed(part.contents()), Cow::Owned)),
    }
}

/// The text of a part that the parser could not decode, with what follows it.
pub(super) fn text(message: &Message<'_>, part: &MessagePart<'_>) -> String {
    let Sent { bytes, rest, .. } = sent(message, part);
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) if !text.is_ascii() => text.to_owned(),
        _ => {
            let declared = part.content_type().and_then(|kind| kind.attribute("charset"));
            let declared = declared.and_then(|name| charset_decoder(name.as_bytes())).map(|decode| decode(&bytes));
            let declared = declared.filter(|text| !text.contains(char::REPLACEMENT_CHARACTER));
            declared.unwrap_or_else(|| charset::decode(&bytes).text)
        }
    };
    match rest.trim_ascii() {
        [] => text,
        rest => format!("{text}\n{}", charset::decode(rest).text),
    }
}

/// Undoes quoted-printable; what is none of it stays as it is.
fn quoted_printable(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len());
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        // A transfer may add white space at the end of a line.
        let mut rest = line.trim_ascii_end();
        let end: &[u8] = match line {
            _ if rest.ends_with(b"=") => {
                rest = &rest[..rest.len() - 1];
                b""
            }
            [.., b'\r', b'\n'] => b"\r\n",
            [.., b'\n'] => b"\n",
            _ => b"",
        };
        while let Some(at) = memchr::memchr(b'=', rest) {
            bytes.extend_from_slice(&rest[..at]);
            let byte = rest.get(at + 1).zip(rest.get(at + 2));
            let byte = byte.and_then(|(high, low)| quoted_printable_decode_char(*high, *low));
            let length = if byte.is_some() { 3 } else { 1 };
            bytes.push(byte.unwrap_or(b'='));
            rest = &rest[at + length..];
        }
        bytes.extend_from_slice(rest);
        bytes.extend_from_slice(end);
    }
    bytes
}

/// Undoes base64 up to the first line that is none.
fn base64(raw: &[u8]) -> Sent<'_> {
    let is_encoded = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let lines = raw.split_inclusive(|byte| *byte == b'\n');
    let end: usize = lines.take_while(|line| line.trim_ascii().iter().all(is_encoded)).map(<[u8]>::len).sum();
    let (encoded, rest) = raw.split_at(end);
    // Only the end of a file is padded; otherwise four letters are three bytes, and a boundary may follow.
    let is_padded = encoded.trim_ascii_end().ends_with(b"=");
    let letters = encoded.iter().filter(|byte| is_encoded(byte)).count();
    let is_whole = is_padded || ((rest.is_empty() || rest.starts_with(b"--")) && letters.is_multiple_of(4));
    Sent { bytes: Cow::Owned(base64_decode(encoded).unwrap_or_default()), rest, is_whole }
}
