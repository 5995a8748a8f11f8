//! Decides whether what glyphs may be is what they are.
//!
//! The fonts of one system all have their glyphs in one order, so that a glyph's number tells its character; other fonts
//! number their glyphs in any way. Letters that are read by the first order are a text only if the font has it.

use crate::pdf::unicode::Guess;
use rustc_hash::FxHashMap;

/// With fewer characters, a font is believed if the others of its page are.
const FEWEST: u32 = 40;
/// The fewest small letters among the characters that are not blanks, in percent, and the vowels among them.
const SMALL: u32 = 70;
const VOWELS: std::ops::Range<u32> = 30..58;
/// No file has more fonts.
const MOST_FONTS: usize = 1000;

/// What the unknown glyphs of pages may be.
#[derive(Default)]
pub(super) struct Guesses {
    /// By the keys of the fonts, over all pages so far.
    fonts: FxHashMap<u128, Tally>,
    /// The glyphs of the page.
    glyphs: Vec<(usize, Guess)>,
}

#[derive(Default)]
struct Tally {
    small: u32,
    vowels: u32,
    others: u32,
}

impl Tally {
    fn add(&mut self, character: char) {
        if character.is_lowercase() {
            self.small = self.small.saturating_add(1);
            self.vowels = self.vowels.saturating_add(u32::from(is_vowel(character)));
        } else if !character.is_whitespace() {
            self.others = self.others.saturating_add(1);
        }
    }

    /// Whether it is a text; `None` if there is too little of it.
    fn is_text(&self) -> Option<bool> {
        let all = u64::from(self.small) + u64::from(self.others);
        if all < u64::from(FEWEST) {
            return None;
        }
        let small = u64::from(self.small);
        let vowels = u64::from(self.vowels) * 100;
        let is_mixed = vowels >= small * u64::from(VOWELS.start) && vowels < small * u64::from(VOWELS.end);
        Some(small * 100 >= all * u64::from(SMALL) && is_mixed)
    }
}

fn is_vowel(character: char) -> bool {
    let mut base = ' ';
    unicode_normalization::char::decompose_canonical(character, |part| {
        if part.is_alphabetic() {
            base = part;
        }
    });
    matches!(base, 'a' | 'e' | 'i' | 'o' | 'u' | 'y' | 'æ' | 'œ' | 'ø')
}

impl Guesses {
    /// Adds a glyph of the page.
    pub(super) fn push(&mut self, glyph: usize, guess: Guess) {
        if self.fonts.len() < MOST_FONTS || self.fonts.contains_key(&guess.font) {
            self.fonts.entry(guess.font).or_default().add(guess.character);
            self.glyphs.push((glyph, guess));
        }
    }

    /// Ends the page; returns the glyphs whose guesses hold, with their characters.
    pub(super) fn finish(&mut self) -> Vec<(usize, char)> {
        let glyphs = std::mem::take(&mut self.glyphs);
        let judged = |guess: &Guess| self.fonts.get(&guess.font).and_then(Tally::is_text);
        let verdicts = || glyphs.iter().map(|(_, guess)| judged(guess));
        let others_are =
            verdicts().any(|verdict| verdict == Some(true)) && verdicts().all(|verdict| verdict != Some(false));
        let holds = |guess: &Guess| judged(guess).unwrap_or(others_are);
        glyphs.iter().filter(|(_, guess)| holds(guess)).map(|(glyph, guess)| (*glyph, guess.character)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The glyphs of a page that hold, of texts by fonts.
    fn held(guesses: &mut Guesses, texts: &[(u128, &str)]) -> usize {
        let glyphs = texts.iter().flat_map(|(font, text)| text.chars().map(|character| (*font, character)));
        for (glyph, (font, character)) in glyphs.enumerate() {
            guesses.push(glyph, Guess { font, character });
        }
        guesses.finish().len()
    }

    const TEXT: &str = "Die Herausgeber danken allen, die an diesem Buch mitgewirkt haben";

    #[test]
    fn a_text_holds_and_a_font_of_few_letters_goes_with_the_others() {
        let characters = TEXT.chars().count();
        assert_eq!(held(&mut Guesses::default(), &[(1, TEXT)]), characters);
        assert_eq!(held(&mut Guesses::default(), &[(1, TEXT), (2, "Vorwort")]), characters + 7);
        assert_eq!(held(&mut Guesses::default(), &[(2, "Vorwort")]), 0, "too little to judge by");
        let mut guesses = Guesses::default();
        held(&mut guesses, &[(1, TEXT)]);
        assert_eq!(held(&mut guesses, &[(1, "Ende")]), 4, "what is known of a font stays known");
    }

    #[test]
    fn other_orders_do_not_read_like_text() {
        let shifted: String = TEXT.chars().map(|one| char::from_u32(one as u32 - 20).unwrap()).collect();
        assert_eq!(held(&mut Guesses::default(), &[(1, &shifted)]), 0);
        let by_use: String = (0..60u8).map(|at| char::from(b'!' + at % 30)).collect();
        assert_eq!(held(&mut Guesses::default(), &[(1, &by_use)]), 0);
        assert_eq!(held(&mut Guesses::default(), &[(1, TEXT), (2, &by_use), (3, "few")]), TEXT.chars().count());
    }
}
