//! What fonts tell of glyphs.
use crate::pdf::unicode::Unicode;
use hayro_interpret::{font::Glyph as Drawn, hayro_cmap::BfString};

/// The number of one-byte codes.
const CODES: usize = 256;
/// The most bytes of a glyph's text that are remembered; a glyph with more is hostile.
const MOST_REMEMBERED: usize = 64;

/// What a font tells of the characters of a run. Each is asked for once, because the font looks names up in tables.
#[derive(Default)]
pub(super) struct Known {
    /// Counts the runs. All glyphs of a run have the same font, which a glyph does not tell.
    run: u64,
    /// For each one-byte code, what was told and in which run.
    told: Vec<(u64, Told)>,
    /// The last answer for any other code, or for a long text.
    last: Told,
}

#[derive(Clone, Default)]
pub(super) struct Told {
    pub text: Option<BfString>,
    /// In thousandths of the size.
    pub width: Option<f32>,
}

impl Known {
    pub(super) fn begin_run(&mut self) {
        self.run += 1;
        self.told.resize(CODES, (0, Told::default()));
    }

    pub(super) fn get(&mut self, glyph: &Drawn<'_>, unicode: &Unicode) -> &Told {
        let ask = || {
            let width = match glyph {
                Drawn::Outline(outline) => outline.advance_width(),
                Drawn::Type3(drawn) => drawn.advance_width(),
            };
            Told { text: glyph.as_unicode().or_else(|| unicode.lookup(glyph)), width }
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
