//! Which encoding a text is in, and its characters.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// A decoded text: free of byte order marks and NUL, lines ending in `\n`.
pub(crate) struct Decoded {
    pub text: String,
    pub charset: &'static Encoding,
    /// Whether bytes stood for no character and became U+FFFD.
    pub had_errors: bool,
}

/// Whether the head of a file reads as text; `whole` says that nothing follows it.
pub(crate) fn looks_like_text(head: &[u8], whole: bool) -> bool {
    if Encoding::for_bom(head).is_some() || bare_utf_16(head).is_some() {
        return true;
    }
    if head.contains(&0) {
        return false;
    }
    // Random bytes decode as windows-1252: the density of controls is what tells them from a text.
    let controls = head.iter().filter(|&&byte| matches!(byte, 0x01..=0x08 | 0x0E..=0x1A | 0x1C..=0x1F | 0x7F)).count();
    match std::str::from_utf8(head) {
        Ok(_) => controls * 10 <= head.len(),
        // A character cut by the end of the head is no error.
        Err(error) if !whole && error.error_len().is_none() => controls * 10 <= head.len(),
        Err(_) => controls * 100 <= head.len(),
    }
}

/// UTF-16 without a mark: in Western text every other byte is NUL.
fn bare_utf_16(head: &[u8]) -> Option<&'static Encoding> {
    let head = &head[..head.len().min(1024) & !1];
    if head.len() < 8 {
        return None;
    }
    let zeros = |odd: usize| head.iter().skip(odd).step_by(2).filter(|&&byte| byte == 0).count();
    let (even, odd, pairs) = (zeros(0), zeros(1), head.len() / 2);
    match (even, odd) {
        (0, odd) if odd * 10 >= pairs * 7 => Some(UTF_16LE),
        (even, 0) if even * 10 >= pairs * 7 => Some(UTF_16BE),
        _ => None,
    }
}

/// Decodes a text of unknown encoding: a mark, then UTF-8, then what the bytes are most like.
pub(crate) fn decode(bytes: &[u8]) -> Decoded {
    let charset = match Encoding::for_bom(bytes) {
        Some((marked, _)) => marked,
        None => bare_utf_16(bytes).unwrap_or_else(|| guess(bytes)),
    };
    let (decoded, had_errors) = charset.decode_with_bom_removal(bytes);
    Decoded { text: clean(&decoded), charset, had_errors }
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    if std::str::from_utf8(bytes).is_ok() {
        return UTF_8;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(bytes, true);
    detector.guess(None, Utf8Detection::Allow)
}

/// NUL never reaches the store, and line ends are one character, so that offsets mean the same everywhere.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\0' => {}
            '\r' => {
                characters.next_if_eq(&'\n');
                clean.push('\n');
            }
            other => clean.push(other),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_line_ends_go() {
        let decoded = decode(b"\xEF\xBB\xBFa\r\nb\rc\nd\0e");
        assert_eq!(
            (decoded.text.as_str(), decoded.charset.name(), decoded.had_errors),
            ("a\nb\nc\nde", "UTF-8", false)
        );
    }

    #[test]
    fn utf_16_reads_with_and_without_a_mark() {
        let bare: Vec<u8> = "Plain words.".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(looks_like_text(&bare, true));
        assert_eq!(decode(&bare).text, "Plain words.");
        let marked: Vec<u8> = "\u{FEFF}Żółw".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(decode(&marked).text, "Żółw");
    }

    #[test]
    fn a_character_cut_by_the_window_is_still_text() {
        let head = "é".repeat(10).into_bytes();
        assert!(looks_like_text(&head[..19], false));
    }

    #[test]
    fn noise_is_no_text() {
        let noise: Vec<u8> = (0..4096u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
        assert!(!looks_like_text(&noise, true));
    }
}
