//! Unicode's compatibility forms, and where each stood in the text; and the folding of accents.
use std::{borrow::Cow, ops::Range};
use unicode_normalization::{IsNormalized, UnicodeNormalization, char::canonical_combining_class, is_nfkc_quick};

/// The most characters that are normalised together. Unicode's stream-safe text has at most 30 marks on a letter; more are dropped.
const MOST_MARKS: usize = 32;

/// A text in the form NFKC without invisible characters, and where each part of it comes from.
pub struct Normal<'t> {
    pub text: Cow<'t, str>,
    /// Ascending; empty if nothing changed.
    marks: Vec<Mark>,
}

/// From here on the normal text is the original's at `original`, until the next mark.
struct Mark {
    normal: usize,
    original: usize,
    /// The text up to the next mark was changed, and corresponds only as a whole.
    changed: bool,
}

impl<'t> Normal<'t> {
    pub fn new(text: &'t str) -> Normal<'t> {
        if text.is_ascii() {
            return Normal { text: Cow::Borrowed(text), marks: Vec::new() };
        }
        let mut normal = String::with_capacity(text.len());
        let mut marks = Vec::new();
        let mut cluster: Vec<char> = Vec::with_capacity(MOST_MARKS);
        let mut chars = text.char_indices().peekable();
        let mut pictured = false;
        while let Some((start, ch)) = chars.next() {
            let mut end = start + ch.len_utf8();
            cluster.clear();
            cluster.push(ch);
            while let Some((at, next)) = chars.next_if(|(_, next)| joins(*next)) {
                end = at + next.len_utf8();
                if cluster.len() < MOST_MARKS {
                    cluster.push(next);
                }
            }
            let original = &text[start..end];
            let from = normal.len();
            // A joiner between emoji makes one of them.
            match ch {
                '\u{200d}' if pictured => normal.push(ch),
                _ if is_invisible(ch) => {}
                _ if cluster.len() == 1 && is_plain(ch) => normal.push(ch),
                // Their compatibility forms are not how these vowels are written.
                '\u{e33}' | '\u{eb3}' => normal.extend(&cluster),
                _ => normal.extend(cluster.iter().copied().nfkc()),
            }
            pictured = pictured && is_invisible(ch) || is_emoji(ch);
            if normal[from..] != *original {
                marks.push(Mark { normal: from, original: start, changed: true });
                marks.push(Mark { normal: normal.len(), original: end, changed: false });
            }
        }
        Normal { text: Cow::Owned(normal), marks }
    }

    /// The bytes of the original from which these bytes of the normal text were made.
    pub fn original(&self, range: Range<usize>) -> Range<usize> {
        let before = self.marks.partition_point(|mark| mark.normal <= range.start);
        let start = match before.checked_sub(1).map(|at| &self.marks[at]) {
            Some(mark) if mark.changed => mark.original,
            Some(mark) => mark.original + (range.start - mark.normal),
            None => range.start,
        };
        let before = self.marks.partition_point(|mark| mark.normal < range.end);
        let end = match before.checked_sub(1).map(|at| &self.marks[at]) {
            // What was changed always ends with another mark.
            Some(mark) if mark.changed => self.marks.get(before).map_or(mark.original, |next| next.original),
            Some(mark) => mark.original + (range.end - mark.normal),
            None => range.end,
        };
        start..end.max(start)
    }
}

/// Whether a character may combine with those before it.
fn joins(ch: char) -> bool {
    // Half-width voice marks combine once they are full-width.
    !ch.is_ascii()
        && (matches!(ch, '\u{ff9e}' | '\u{ff9f}')
            || canonical_combining_class(ch) != 0
            || is_nfkc_quick(std::iter::once(ch)) == IsNormalized::Maybe)
}

/// Whether a character stays as it is if no other joins it.
fn is_plain(ch: char) -> bool {
    ch.is_ascii() || matches!(ch, '\u{e33}' | '\u{eb3}') || is_nfkc_quick(std::iter::once(ch)) == IsNormalized::Yes
}

/// Characters that tell how to show others: joiners, marks of direction, variants, the soft hyphen.
fn is_invisible(ch: char) -> bool {
    matches!(u32::from(ch),
        0xAD | 0x34F | 0x61C | 0x640 | 0x180B..=0x180F | 0x200C..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F
        | 0xFE00..=0xFE0F | 0xFEFF | 0xE0000..=0xE0FFF)
}

/// Pictures, with the colours of skin and the letters of flags.
pub fn is_emoji(ch: char) -> bool {
    matches!(u32::from(ch),
        0x231A..=0x231B | 0x23E9..=0x23FA | 0x25FB..=0x25FE | 0x2600..=0x27BF | 0x2934..=0x2935 | 0x2B05..=0x2B07
        | 0x2B1B..=0x2B1C | 0x2B50 | 0x2B55 | 0x3030 | 0x303D | 0x1F000..=0x1FAFF)
}

/// The colours of skin.
pub fn is_skin(ch: char) -> bool {
    matches!(u32::from(ch), 0x1F3FB..=0x1F3FF)
}

/// Accents, and the signs of Hebrew and Arabic vowels, which people type or not. In other scripts a mark is as much as a letter.
fn is_accent(ch: char) -> bool {
    matches!(u32::from(ch),
        0x300..=0x36F | 0x483..=0x487 | 0x591..=0x5C7 | 0x610..=0x61A | 0x64B..=0x65F | 0x670 | 0x6D6..=0x6ED
        | 0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF | 0xFE20..=0xFE2F)
}

/// A word in lower case without its accents.
pub fn fold(lower: &str) -> Cow<'_, str> {
    if lower.is_ascii() {
        return Cow::Borrowed(lower);
    }
    let mut base = '\0';
    let bare = lower.nfd().filter(|&ch| {
        if !is_accent(ch) {
            base = ch;
            return true;
        }
        // To a reader of Russian, й is a letter of its own.
        base == 'и' && ch == '\u{306}'
    });
    let mut folded = String::with_capacity(lower.len());
    for ch in bare.nfc() {
        match ch {
            'ß' => folded.push_str("ss"),
            'æ' => folded.push_str("ae"),
            'œ' => folded.push_str("oe"),
            'þ' => folded.push_str("th"),
            'ø' => folded.push('o'),
            'đ' | 'ð' => folded.push('d'),
            'ł' => folded.push('l'),
            'ħ' => folded.push('h'),
            'ı' => folded.push('i'),
            'ς' => folded.push('σ'),
            ch => folded.push(ch),
        }
    }
    Cow::Owned(folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_text_knows_where_it_comes_from() {
        for (text, normal, pieces) in [
            ("plain", "plain", vec![("plain", "plain"), ("la", "la")]),
            ("cafe\u{301} x", "caf\u{e9} x", vec![("caf\u{e9}", "cafe\u{301}"), ("\u{e9}", "e\u{301}"), ("x", "x")]),
            ("\u{fb01}le", "file", vec![("file", "\u{fb01}le"), ("i", "\u{fb01}"), ("le", "le")]),
            ("a\u{ad}b \u{ff21}", "ab A", vec![("ab", "a\u{ad}b"), ("A", "\u{ff21}"), ("b", "b"), ("a", "a")]),
            ("\u{1112}\u{1161}\u{11ab}", "\u{d55c}", vec![("\u{d55c}", "\u{1112}\u{1161}\u{11ab}")]),
        ] {
            let made = Normal::new(text);
            assert_eq!(made.text, normal);
            for (piece, original) in pieces {
                let at = normal.find(piece).unwrap();
                assert_eq!(&text[made.original(at..at + piece.len())], original, "{text:?} {piece:?}");
            }
        }
    }

    #[test]
    fn accents_make_no_difference() {
        for (word, folded) in [
            ("résumé", "resume"),
            ("straße", "strasse"),
            ("i\u{307}stanbul", "istanbul"),
            ("мой", "мой"),
            ("ёлка", "елка"),
            ("كِتَاب", "كتاب"),
            ("हिन्दी", "हिन्दी"),
            ("が", "が"),
            ("한국", "한국"),
        ] {
            assert_eq!(fold(word), folded);
        }
    }
}
