//! Boxes drawn around text, as in a diagram or a side note: upright rectangles, possibly with rounded corners.

use kurbo::{Affine, BezPath, PathEl, Rect, Shape};

/// In points; a thinner shape is a line or the mark of a list.
const LEAST: f64 = 12.0;
/// A page with more of them is a table or a drawing.
const MOST: usize = 500;
/// The share of its bounds that a rectangle with rounded corners covers.
const COVERED: f64 = 0.94;
/// How many lines and curves a rectangle with rounded corners has.
const SIDES: std::ops::RangeInclusive<usize> = 3..=13;

/// The boxes of a page, in points, with y growing downwards.
#[derive(Default)]
pub(super) struct Boxes {
    found: Vec<Rect>,
    crowded: bool,
}

impl Boxes {
    /// Records the boxes in a drawn path.
    pub(super) fn add(&mut self, path: &BezPath, transform: Affine) {
        let mut rest = path.elements();
        while !rest.is_empty() && !self.crowded {
            let next = rest[1..].iter().position(|element| matches!(element, PathEl::MoveTo(_)));
            let (part, tail) = rest.split_at(next.map_or(rest.len(), |next| next + 1));
            if SIDES.contains(&(part.len() - 1))
                && let Some(drawn) = upright(part, transform)
            {
                self.push(drawn);
            }
            rest = tail;
        }
    }

    /// Records a drawn rectangle.
    pub(super) fn add_rect(&mut self, rect: &Rect, transform: Affine) {
        let [a, b, c, d, ..] = transform.as_coeffs();
        if (a == 0.0 && d == 0.0) || (b == 0.0 && c == 0.0) {
            self.push(transform.transform_rect_bbox(*rect));
        }
    }

    fn push(&mut self, drawn: Rect) {
        if drawn.is_finite() && drawn.width() >= LEAST && drawn.height() >= LEAST {
            self.crowded |= self.found.len() >= MOST;
            self.found.push(drawn);
        }
    }

    pub(super) fn finish(self) -> Vec<Rect> {
        if self.crowded { Vec::new() } else { self.found }
    }
}

/// The bounds of a closed line that fills them.
fn upright(part: &[PathEl], transform: Affine) -> Option<Rect> {
    let mut outline = transform * BezPath::from_vec(part.to_vec());
    if !matches!(part.last(), Some(PathEl::ClosePath)) {
        outline.close_path();
    }
    let bounds = outline.control_box();
    (bounds.area() > 0.0 && outline.area().abs() >= COVERED * bounds.area()).then_some(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kurbo::{Circle, RoundedRect};

    fn found(path: BezPath) -> Vec<Rect> {
        let mut boxes = Boxes::default();
        boxes.add(&path, Affine::IDENTITY);
        boxes.finish()
    }

    #[test]
    fn rectangles_are_boxes_and_other_shapes_are_not() {
        let rect = Rect::new(10.0, 10.0, 110.0, 60.0);
        assert_eq!(found(rect.to_path(0.1)), [rect]);
        assert_eq!(found(RoundedRect::from_rect(rect, 4.0).to_path(0.1)), [rect]);
        assert_eq!(found(Circle::new((50.0, 50.0), 30.0).to_path(0.1)), []);
        assert_eq!(found(BezPath::from_svg("M 0 0 L 100 0 L 50 100 Z").unwrap()), [], "a triangle");
        assert_eq!(found(Rect::new(0.0, 0.0, 100.0, 1.0).to_path(0.1)), [], "a line");
        let mut two = rect.to_path(0.1);
        two.extend((rect + kurbo::Vec2::new(200.0, 0.0)).to_path(0.1));
        assert_eq!(found(two).len(), 2);
    }

    #[test]
    fn a_crowded_page_has_none() {
        let mut boxes = Boxes::default();
        for _ in 0..=MOST {
            boxes.add_rect(&Rect::new(0.0, 0.0, 20.0, 20.0), Affine::IDENTITY);
        }
        assert_eq!(boxes.finish(), []);
    }
}
