//! Finds bold type by the strokes of its letters, because many fonts do not say what they are.

use kurbo::{BezPath, PathEl, Point, Shape};
use std::ops::Range;

/// How much thicker than those of most letters the strokes of bold type are; capitals of the same type stay below it.
const BOLDER: f64 = 1.3;
/// Strokes are counted in steps of this many thousandths of the size, up to this many steps.
const STEP: f64 = 2.0;
const STEPS: usize = 200;
/// No letter reaches further, in the same. A curve is halved until its length is exact, and one without a length would be
/// halved a million times.
const FURTHEST: f64 = 1e6;
/// How exactly an outline's length is measured, in thousandths of the size.
const ACCURACY: f64 = 10.0;

/// How thick the strokes of an outline are on average: as a stroke's area is its length by its thickness, and its outline
/// is twice as long as it. `None` if there are none.
pub(super) fn stroke(outline: &BezPath) -> Option<f64> {
    let is_near = |point: &Point| point.x.abs() <= FURTHEST && point.y.abs() <= FURTHEST;
    let is_measurable = outline.elements().iter().all(|element| match element {
        PathEl::MoveTo(to) | PathEl::LineTo(to) => is_near(to),
        PathEl::QuadTo(by, to) => is_near(by) && is_near(to),
        PathEl::CurveTo(from, by, to) => is_near(from) && is_near(by) && is_near(to),
        PathEl::ClosePath => true,
    });
    if !is_measurable {
        return None;
    }
    let (area, length) = (outline.area().abs(), outline.perimeter(ACCURACY));
    let stroke = 2.0 * area / length;
    (stroke.is_finite() && stroke > 0.0).then_some(stroke)
}

/// What runs of glyphs weigh.
#[derive(Default)]
pub(super) struct Weights {
    /// How many letters of all pages so far have strokes of each step.
    letters: Vec<u32>,
    /// The runs of the page, and how thick their strokes are.
    runs: Vec<(Range<usize>, f64)>,
    /// The sum over the letters of the run that is being drawn, and how many there are.
    sum: f64,
    count: u32,
}

impl Weights {
    /// Adds a letter to the run that is being drawn.
    pub(super) fn push(&mut self, stroke: f64) {
        self.letters.resize(STEPS, 0);
        let step = ((stroke / STEP) as usize).min(STEPS - 1);
        self.letters[step] = self.letters[step].saturating_add(1);
        self.sum += stroke;
        self.count += 1;
    }

    /// Ends the run, which has these glyphs of the page.
    pub(super) fn end_run(&mut self, glyphs: Range<usize>) {
        if self.count > 0 && !glyphs.is_empty() {
            self.runs.push((glyphs, self.sum / f64::from(self.count)));
        }
        (self.sum, self.count) = (0.0, 0);
    }

    /// Ends the page; returns the glyphs of its bold runs.
    pub(super) fn bold(&mut self) -> Vec<Range<usize>> {
        (self.sum, self.count) = (0.0, 0);
        let runs = std::mem::take(&mut self.runs);
        let Some(usual) = self.usual() else { return Vec::new() };
        runs.into_iter().filter(|(_, stroke)| *stroke >= BOLDER * usual).map(|(glyphs, _)| glyphs).collect()
    }

    /// How thick the strokes of most letters are: the median.
    fn usual(&self) -> Option<f64> {
        let all: u64 = self.letters.iter().copied().map(u64::from).sum();
        let mut before = 0;
        let step = self.letters.iter().position(|letters| {
            before += u64::from(*letters);
            before * 2 > all
        })?;
        Some((step as f64 + 0.5) * STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kurbo::Rect;

    #[test]
    fn a_stroke_is_as_thick_as_it_is_however_long() {
        let of = |width: f64, height: f64| stroke(&Rect::new(0.0, 0.0, width, height).to_path(0.1)).unwrap();
        assert!((of(70.0, 10_000.0) - 70.0).abs() < 2.0 && (of(10_000.0, 70.0) - 70.0).abs() < 2.0);
        assert_eq!(stroke(&BezPath::new()), None);
    }

    #[test]
    fn curves_without_a_length_or_end_are_not_measured() {
        for wrong in [2e6, f64::MAX, f64::INFINITY, f64::NAN] {
            let mut outline = BezPath::new();
            outline.move_to((0.0, 0.0));
            (0..100_000).for_each(|_| outline.curve_to((wrong, 0.0), (0.0, wrong), (500.0, 0.0)));
            outline.close_path();
            assert_eq!(stroke(&outline), None, "{wrong}");
        }
    }

    #[test]
    fn bold_is_what_is_heavier_than_most_letters_so_far() {
        let mut weights = Weights::default();
        let run = |weights: &mut Weights, glyphs: Range<usize>, stroke: f64| {
            glyphs.clone().for_each(|_| weights.push(stroke));
            weights.end_run(glyphs);
        };
        run(&mut weights, 0..40, 61.0);
        run(&mut weights, 40..50, 93.0);
        run(&mut weights, 50..60, 69.0);
        assert_eq!(weights.bold(), Vec::from_iter(Some(40..50)));
        run(&mut weights, 0..10, 93.0);
        assert_eq!(weights.bold(), Vec::from_iter(Some(0..10)), "a page of titles");
        assert!(weights.bold().is_empty(), "a page without text");
    }
}
