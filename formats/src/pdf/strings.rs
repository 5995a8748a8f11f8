//! Text strings in a PDF's dictionaries.

use crate::charset::clean;
use encoding_rs::{UTF_16BE, UTF_16LE};

/// PDFDocEncoding where it differs from Latin-1: 0x18 to 0x1F, and 0x80 to 0xA0.
const ACCENTS: [char; 8] = ['˘', 'ˇ', 'ˆ', '˙', '˝', '˛', '˚', '˜'];
const HIGH: [char; 33] = [
    '•', '†', '‡', '…', '—', '–', 'ƒ', '⁄', '‹', '›', '−', '‰', '„', '“', '”', '‘', '’', '‚', '™', 'ﬁ', 'ﬂ', 'Ł', 'Œ',
    'Š', 'Ÿ', 'Ž', 'ı', 'ł', 'œ', 'š', 'ž', '\u{FFFD}', '€',
];

/// A text string as one line of text.
pub(super) fn text_string(bytes: &[u8]) -> String {
    text_lines(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text string with its lines.
pub(super) fn text_lines(bytes: &[u8]) -> String {
    let text = match bytes {
        [0xFE, 0xFF, rest @ ..] => UTF_16BE.decode_without_bom_handling(rest).0.into_owned(),
        [0xFF, 0xFE, rest @ ..] => UTF_16LE.decode_without_bom_handling(rest).0.into_owned(),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        other => other.iter().map(|&byte| pdf_doc_character(byte)).collect(),
    };
    clean(&text)
}

fn pdf_doc_character(byte: u8) -> char {
    match byte {
        0x18..=0x1F => ACCENTS[usize::from(byte - 0x18)],
        0x80..=0xA0 => HIGH[usize::from(byte - 0x80)],
        byte => char::from(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_encodings_read() {
        assert_eq!(text_string(b"\xFE\xFF\0A\0\xE9"), "Aé");
        assert_eq!(text_string(b"\xEF\xBB\xBFA\xC3\xA9"), "Aé");
        assert_eq!(text_string(b"A \xE9\x84\r\n b"), "A é— b");
    }
}
