//! The characters of Type 3 fonts, whose glyphs are drawings, by the names that typesetters invented for them.
//!
//! A name is a letter and a number, such as `/a224`. Either the number or the code is the character. A font that was cut
//! down to the glyphs of a file has numbers without a meaning; what it draws stays unknown.

use encoding_rs::WINDOWS_1252;
use hayro_syntax::object::{Array, Dict, Name, Object};
use rustc_hash::FxHashMap;

/// No font with codes of one byte has longer lists.
const MOST_ENTRIES: usize = 1024;
/// The most fonts that are looked at.
const MOST_FONTS: usize = 5000;
/// Fonts that number what they use begin here and use nearly every sign up to the digits, which no text does.
const SIGNS: std::ops::RangeInclusive<u8> = b'!'..=b'/';
const MOST_SIGNS: usize = 9;

/// What codes mean in the fonts of a file. A drawn glyph does not tell its font, so fonts that contradict each other leave
/// a code without a meaning.
#[derive(Default)]
pub(super) struct DrawnFonts {
    characters: FxHashMap<u8, Option<char>>,
    fonts: usize,
}

impl DrawnFonts {
    pub(super) fn add(&mut self, font: &Dict<'_>) {
        self.fonts += 1;
        if self.fonts > MOST_FONTS || font.contains_key(b"ToUnicode") {
            return;
        }
        let names = font.get::<Dict<'_>>(b"Encoding").and_then(|encoding| encoding.get::<Array<'_>>(b"Differences"));
        let names = names.map(|names| invented(&names)).unwrap_or_default();
        let characters = meanings(&names);
        for (code, _) in names {
            let character = characters.get(&code).copied();
            let known = self.characters.entry(code).or_insert(character);
            if *known != character {
                *known = None;
            }
        }
    }

    /// The character of a code whose glyph's name means nothing.
    pub(super) fn character(&self, code: u8) -> Option<char> {
        self.characters.get(&code).copied().flatten()
    }
}

/// The codes whose names are invented, with the numbers in them, if most names are.
fn invented(differences: &Array<'_>) -> Vec<(u8, u32)> {
    let (mut code, mut names, mut found) = (0u32, 0, Vec::new());
    for entry in differences.iter::<Object<'_>>().take(MOST_ENTRIES) {
        match entry {
            Object::Number(first) => code = u32::try_from(first.as_i64()).unwrap_or(u32::MAX),
            Object::Name(name) => {
                names += 1;
                found.extend(u8::try_from(code).ok().zip(number(&name)));
                code = code.saturating_add(1);
            }
            _ => {}
        }
    }
    if found.len() * 2 > names { found } else { Vec::new() }
}

/// The number of a name of at most two letters and a number.
fn number(name: &Name<'_>) -> Option<u32> {
    let name = name.as_str();
    let digits = name.trim_start_matches(|first: char| first.is_ascii_alphabetic());
    let letters = &name[..name.len() - digits.len()];
    let is_invented = letters.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_invented)?;
    // The number of a glyph is not that of a character.
    Some(if letters.eq_ignore_ascii_case("g") { u32::MAX } else { number })
}

/// What the codes of a font mean: their numbers, or themselves, whichever are the characters of a text.
fn meanings(names: &[(u8, u32)]) -> FxHashMap<u8, char> {
    let by_number: Vec<(u8, u8)> =
        names.iter().filter_map(|(code, number)| Some((*code, u8::try_from(*number).ok()?))).collect();
    let by_code: Vec<(u8, u8)> = names.iter().map(|(code, _)| (*code, *code)).collect();
    let meant = [by_number, by_code].into_iter().find(|meant| meant.len() == names.len() && is_of_text(meant));
    meant.unwrap_or_default().into_iter().filter_map(|(code, byte)| Some((code, character(byte)?))).collect()
}

/// Whether bytes are those of a text: mostly letters, and not every sign.
fn is_of_text(meant: &[(u8, u8)]) -> bool {
    let characters: Vec<char> = meant.iter().filter_map(|(_, byte)| character(*byte)).collect();
    let letters = characters.iter().filter(|character| character.is_alphabetic()).count();
    let signs = meant.iter().filter(|(_, byte)| SIGNS.contains(byte)).count();
    characters.len() * 5 >= meant.len() * 4 && letters * 2 >= meant.len() && signs <= MOST_SIGNS
}

/// The character of a byte in the encoding of Windows, or among the ligatures that TeX has in the place of controls.
fn character(byte: u8) -> Option<char> {
    match byte {
        11 => Some('ﬀ'),
        12 => Some('ﬁ'),
        13 => Some('ﬂ'),
        14 => Some('ﬃ'),
        15 => Some('ﬄ'),
        byte => {
            let bytes = [byte];
            let (text, _) = WINDOWS_1252.decode_without_bom_handling(&bytes);
            text.chars().next().filter(|character| !character.is_control())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(names: &[(u8, u32)], codes: &[u8]) -> String {
        let meanings = meanings(names);
        codes.iter().map(|code| meanings.get(code).copied().unwrap_or('?')).collect()
    }

    #[test]
    fn numbers_are_characters_and_else_codes_are() {
        assert_eq!(read(&[(1, 224), (2, 192), (3, 101)], &[1, 2, 3]), "àÀe");
        let themselves: Vec<(u8, u32)> = (b'a'..=b'z').map(|code| (code, u32::from(code - b'a'))).collect();
        assert_eq!(read(&themselves, b"duck"), "duck");
        let of_tex: Vec<(u8, u32)> = [12].into_iter().chain(b'a'..=b'z').map(|code| (code, u32::from(code))).collect();
        assert_eq!(read(&of_tex, b"\x0Cn"), "ﬁn");
    }

    #[test]
    fn glyphs_that_are_numbered_by_their_use_stay_unknown() {
        let from =
            |first: u8, count: u8| -> Vec<(u8, u32)> { (0..count).map(|at| (first + at, u32::from(at))).collect() };
        assert_eq!(read(&from(0, 60), b"\x20\x21"), "??");
        assert_eq!(read(&from(b'!', 90), b"!ab"), "???");
    }
}
