//! Finds the characters of glyphs whose font has no usable ToUnicode map.

use super::drawn_fonts::DrawnFonts;
use encoding_rs::MACINTOSH;
use hayro_interpret::{
    font::{Glyph, GlyphId, OutlineGlyph},
    hayro_cmap::{BfString, CMap, CMapName, CidFamily, load_embedded},
};
use hayro_syntax::object::{Array, Dict, Name, Stream, String as PdfString};
use rustc_hash::FxHashMap;
use skrifa::{FontRef, MetadataProvider};
use std::{cell::RefCell, rc::Rc};

/// No document has more fonts.
const MOST_FONTS: usize = 1000;

/// What is known of fonts besides what they tell themselves.
#[derive(Default)]
pub(super) struct Unicode {
    /// Composite fonts by their PostScript names, which is all that a drawn glyph tells of its font.
    fonts: FxHashMap<String, Font>,
    collections: FxHashMap<CidFamily, Rc<CMap>>,
    /// Characters by glyph for each font program, by the program's hash.
    programs: RefCell<FxHashMap<u128, FxHashMap<u32, char>>>,
    drawn: DrawnFonts,
}

/// The character that a glyph is if its font has its glyphs in the usual order.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    /// The key of the font's program.
    pub font: u128,
    pub character: char,
}

enum Font {
    /// The font uses one of Adobe's character collections.
    Collection { encoding: Box<CMap>, collection: Rc<CMap> },
    /// The font's codes are UTF-16.
    Utf16,
    /// The font's codes are the numbers of its glyphs.
    GlyphNumbers,
}

impl Unicode {
    /// Records a font if it is a composite or a drawn one without a map of its own.
    pub(super) fn add(&mut self, font: &Dict<'_>) {
        let Some(kind) = font.get::<Name<'_>>(b"Subtype") else { return };
        if kind.as_ref() == b"Type3" {
            return self.drawn.add(font);
        }
        if kind.as_ref() != b"Type0" || self.fonts.len() >= MOST_FONTS {
            return;
        }
        let Some(name) = font.get::<Name<'_>>(b"BaseFont") else { return };
        let name = name.as_str();
        let name = name.split_once('+').filter(|(tag, _)| tag.len() == 6).map_or(name, |(_, name)| name);
        let map = font.get::<Name<'_>>(b"ToUnicode");
        let found = match &map {
            // This is not what the standard says, but what producers mean.
            Some(map) if map.as_ref().starts_with(b"Identity") => Some(Font::Utf16),
            None if !font.contains_key(b"ToUnicode") => {
                self.of_collection(font).or_else(|| has_glyph_numbers(font).then_some(Font::GlyphNumbers))
            }
            _ => None,
        };
        self.fonts.extend(found.map(|found| (name.to_owned(), found)));
    }

    fn of_collection(&mut self, font: &Dict<'_>) -> Option<Font> {
        let descendant = font.get::<Array<'_>>(b"DescendantFonts")?.iter::<Dict<'_>>().next()?;
        let info = descendant.get::<Dict<'_>>(b"CIDSystemInfo")?;
        let registry = info.get::<PdfString<'_>>(b"Registry")?;
        let ordering = info.get::<PdfString<'_>>(b"Ordering")?;
        let family = CidFamily::from_registry_ordering(registry.as_bytes(), ordering.as_bytes());
        let collection = match self.collections.get(&family) {
            Some(collection) => Rc::clone(collection),
            None => {
                let collection = Rc::new(CMap::parse(load_embedded(family.ucs2_cmap()?)?, load_embedded)?);
                self.collections.insert(family, Rc::clone(&collection));
                collection
            }
        };
        // Encodings that the file brings itself are rare enough to be left to their ToUnicode maps.
        let encoding = match CMapName::from_bytes(font.get::<Name<'_>>(b"Encoding")?.as_ref()) {
            CMapName::IdentityH => CMap::identity_h(),
            CMapName::IdentityV => CMap::identity_v(),
            name => CMap::parse(load_embedded(name)?, load_embedded)?,
        };
        Some(Font::Collection { encoding: Box::new(encoding), collection })
    }

    /// The character of a glyph whose font does not tell it.
    pub(super) fn lookup(&self, glyph: &Glyph<'_>) -> Option<BfString> {
        let code = glyph.char_code();
        let blank = BfString::Char(' ');
        let Glyph::Outline(outline) = glyph else {
            let found = u8::try_from(code).ok().and_then(|code| self.drawn.character(code));
            return found.map(BfString::Char).or_else(|| (code == 0x20).then_some(blank));
        };
        let found = self.of_font(outline, code).or_else(|| self.of_program(outline).map(BfString::Char));
        // A glyph that shows nothing is a blank, and so is a missing glyph with the code of one.
        let is_there = outline.glyph_id() != GlyphId::NOTDEF;
        let is_blank = |code: u32| code <= 0x20 || code == 0xA0;
        found.or_else(|| {
            let shows_nothing = (is_there || is_blank(code)) && outline.outline().elements().is_empty();
            shows_nothing.then_some(blank)
        })
    }

    fn of_font(&self, glyph: &OutlineGlyph, code: u32) -> Option<BfString> {
        if self.fonts.is_empty() {
            return None;
        }
        match self.fonts.get(&glyph.font_data()?.postscript_name?)? {
            Font::Utf16 => char::from_u32(code).filter(|character| !character.is_control()).map(BfString::Char),
            Font::GlyphNumbers => None,
            Font::Collection { encoding, collection } => {
                let cid = (1..=4).find_map(|length| encoding.lookup_cid_code(code, length))?;
                collection.lookup_bf_string(cid)
            }
        }
    }

    /// What a glyph may be whose character nothing tells: that of its number in the order of glyphs that Apple's and
    /// Microsoft's fonts share. Other fonts have other orders, so it is only a guess.
    pub(super) fn guess(&self, glyph: &Glyph<'_>) -> Option<Guess> {
        let Glyph::Outline(outline) = glyph else { return None };
        if self.fonts.is_empty() {
            return None;
        }
        let data = outline.font_data()?;
        let Font::GlyphNumbers = self.fonts.get(&data.postscript_name?)? else { return None };
        Some(Guess { font: data.cache_key, character: of_usual_order(outline.char_code())? })
    }

    /// Reads the embedded program's own map from characters to glyphs backwards.
    fn of_program(&self, glyph: &OutlineGlyph) -> Option<char> {
        let font = glyph.font_data()?;
        let mut programs = self.programs.borrow_mut();
        if programs.len() >= MOST_FONTS {
            programs.clear();
        }
        let characters = programs.entry(font.cache_key).or_insert_with(|| {
            let data: &[u8] = (*font.data).as_ref();
            characters(data)
        });
        characters.get(&glyph.glyph_id().to_u32()).copied()
    }
}

/// Whether a composite font without a map has the numbers of its glyphs for codes.
fn has_glyph_numbers(font: &Dict<'_>) -> bool {
    let is_identity = |name: Option<Name<'_>>| name.is_some_and(|name| name.as_ref().starts_with(b"Identity"));
    let descendants = font.get::<Array<'_>>(b"DescendantFonts");
    let descendant = descendants.and_then(|descendants| descendants.iter::<Dict<'_>>().next());
    is_identity(font.get(b"Encoding"))
        && descendant.is_some_and(|descendant| descendant.get::<Stream<'_>>(b"CIDToGIDMap").is_none())
}

/// The character of a glyph's number in the usual order: three glyphs, then ASCII from the blank on, and then the second
/// half of Mac Roman as far as it has letters.
fn of_usual_order(number: u32) -> Option<char> {
    let byte = match number {
        3..=97 => number + 29,
        98..=187 => number + 30,
        _ => return None,
    };
    let bytes = [u8::try_from(byte).ok()?];
    let (text, _) = MACINTOSH.decode_without_bom_handling(&bytes);
    text.chars().next()
}

fn characters(program: &[u8]) -> FxHashMap<u32, char> {
    let mut characters = FxHashMap::default();
    let Ok(font) = FontRef::new(program) else { return characters };
    for (code, glyph) in font.charmap().mappings() {
        let character = char::from_u32(code).filter(|one| !one.is_control() && !matches!(one, '\u{E000}'..='\u{F8FF}'));
        if let Some(character) = character {
            // Of several characters the first is the plain one: `-` before the soft hyphen.
            characters.entry(glyph.to_u32()).or_insert(character);
        }
    }
    characters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_order_of_glyphs_is_ascii_and_then_mac_roman() {
        let read = |numbers: &[u32]| numbers.iter().filter_map(|number| of_usual_order(*number)).collect::<String>();
        assert_eq!(read(&[43, 72, 85, 68, 88, 86, 74, 72, 69, 72, 85, 3, 4, 97]), "Herausgeber !~");
        assert_eq!(read(&[98, 108, 124, 129, 137, 180, 187]), "Ääöüß“Ÿ");
        assert_eq!(read(&[0, 1, 2, 188, 70_000]), "");
    }
}
