//! What fonts tell of glyphs.
use super::weights::stroke;
use crate::{
    docx::symbols,
    pdf::unicode::{Guess, Unicode},
};
use hayro_interpret::{
    font::{Glyph as Drawn, OutlineGlyph},
    hayro_cmap::BfString,
};
use rustc_hash::FxHashMap;

/// The number of one-byte codes.
const CODES: usize = 256;
/// The most bytes of a glyph's text that are remembered; a glyph with more is hostile.
const MOST_REMEMBERED: usize = 64;
/// The most letters whose strokes are remembered, and the most pieces of outlines that are measured in a file.
const MOST_STROKES: usize = 20_000;
const MOST_PIECES: usize = 4_000_000;
/// From here on come scripts whose characters have many fine strokes.
const WIDE: char = '\u{2E80}';

/// What a font tells of the characters of a run. Each is asked for once, because the font looks names up in tables.
#[derive(Default)]
pub(super) struct Known {
    /// Counts the runs. All glyphs of a run have the same font, which a glyph does not tell.
    run: u64,
    /// For each one-byte code, what was told and in which run.
    told: Vec<(u64, Told)>,
    /// The last answer for any other code, or for a long text.
    last: Told,
    /// How thick the strokes of letters are, by the keys of their outlines, and how many pieces these had.
    strokes: FxHashMap<u128, Option<f64>>,
    pieces: usize,
}

#[derive(Clone, Default)]
pub(super) struct Told {
    pub text: Option<BfString>,
    /// In thousandths of the size.
    pub width: Option<f32>,
    /// How thick the strokes of a letter or digit are, in the same.
    pub stroke: Option<f64>,
    /// What the glyph may be, if nothing tells its text.
    pub guess: Option<Guess>,
}

impl Known {
    pub(super) fn begin_run(&mut self) {
        self.run += 1;
        self.told.resize(CODES, (0, Told::default()));
    }

    pub(super) fn get(&mut self, glyph: &Drawn<'_>, unicode: &Unicode) -> &Told {
        let (strokes, pieces) = (&mut self.strokes, &mut self.pieces);
        let mut ask = || {
            let text = glyph.as_unicode().or_else(|| unicode.lookup(glyph)).map(|text| as_shown(text, glyph));
            let guess = if text.is_none() { unicode.guess(glyph) } else { None };
            match glyph {
                Drawn::Outline(outline) => {
                    let is_measured = matches!(text, Some(BfString::Char(one)) if one.is_alphanumeric() && one < WIDE);
                    let stroke = if is_measured { measured(outline, strokes, pieces) } else { None };
                    Told { text, width: outline.advance_width(), stroke, guess }
                }
                Drawn::Type3(drawn) => Told { text, width: drawn.advance_width(), stroke: None, guess },
            }
        };
        let Some((run, told)) = self.told.get_mut(glyph.char_code() as usize) else {
            self.last = ask();
            return &self.last;
        };
        if *run != self.run {
            let asked = ask();
            if matches!(&asked.text, Some(BfString::String(text)) if text.len() > MOST_REMEMBERED) {
                self.last = asked;
                return &self.last;
            }
            (*run, *told) = (self.run, asked);
        }
        told
    }
}

/// The character that a font of symbols shows for one of the private area. Where the font is not known, only the bullet is.
fn as_shown(text: BfString, glyph: &Drawn<'_>) -> BfString {
    let BfString::Char(private @ '\u{F020}'..='\u{F0FF}') = text else { return text };
    let Drawn::Outline(outline) = glyph else { return text };
    let name = outline.font_data().and_then(|font| font.postscript_name).unwrap_or_default();
    let font = match name.split([',', '-']).next() {
        Some("Symbol" | "SymbolMT") => "Symbol",
        Some("Wingdings") => "Wingdings",
        Some("Wingdings2") => "Wingdings 2",
        Some("Wingdings3") => "Wingdings 3",
        Some("Webdings") => "Webdings",
        _ => "",
    };
    match symbols::shown(private.encode_utf8(&mut [0; 4]), font).chars().next() {
        Some('\u{F0B7}') => BfString::Char('•'),
        Some(shown) => BfString::Char(shown),
        None => text,
    }
}

/// How thick the strokes of a letter are; each is measured once.
fn measured(glyph: &OutlineGlyph, strokes: &mut FxHashMap<u128, Option<f64>>, pieces: &mut usize) -> Option<f64> {
    // A key holds no font in memory.
    let key = glyph.identifier().cache_key();
    if let Some(known) = strokes.get(&key) {
        return *known;
    }
    if *pieces >= MOST_PIECES {
        return None;
    }
    if strokes.len() >= MOST_STROKES {
        strokes.clear();
    }
    let outline = glyph.outline();
    *pieces += 1 + outline.elements().len();
    let found = stroke(&outline);
    strokes.insert(key, found);
    found
}
