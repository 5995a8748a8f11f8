//! The sizes of glyphs whose fonts claim others.
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Glyphs that are separate drawings, as old typesetters made them; their fonts may claim any size.
#[derive(Default)]
pub(super) struct Drawings {
    /// By the claimed size, in hundredths of a point.
    by_size: FxHashMap<i64, Claimed>,
}

#[derive(Default)]
struct Claimed {
    glyphs: Vec<usize>,
    size: f64,
    /// The sum over letters and digits, and how many there are.
    advances: f64,
    letters: usize,
}

/// The average advance of a letter, in sizes, and the possible range.
const ADVANCE: f64 = 0.5;
const ADVANCES: Range<f64> = 0.3..0.85;

impl Drawings {
    /// Adds a glyph, with the `advance` if it is a letter or digit.
    pub(super) fn push(&mut self, glyph: usize, size: f64, advance: Option<f64>) {
        let claimed = self.by_size.entry((size * 100.0).round() as i64).or_default();
        claimed.glyphs.push(glyph);
        claimed.size = size;
        claimed.advances += advance.unwrap_or(0.0);
        claimed.letters += usize::from(advance.is_some());
    }

    /// The sizes that differ from the claimed ones.
    pub(super) fn sizes(&mut self) -> Vec<(usize, f64)> {
        let wrong = self.by_size.drain().filter_map(|(_, Claimed { glyphs, size, advances, letters })| {
            let mean = advances / letters as f64;
            (letters > 0 && mean > 0.0 && !ADVANCES.contains(&(mean / size))).then_some((glyphs, mean / ADVANCE))
        });
        wrong.flat_map(|(glyphs, size)| glyphs.into_iter().map(move |glyph| (glyph, size))).collect()
    }
}
