//! Lines drawn along the sides of a page, as between the cells of a table: stroked ones, and filled shapes that are as thin.

use hayro_interpret::DrawMode;
use kurbo::{Affine, BezPath, PathEl, Point, Rect};

/// In points; a thicker shape is a box, and a shorter one a mark.
const THICKEST: f64 = 3.0;
const SHORTEST: f64 = 4.0;
/// How far the ends of a line may be off its direction.
const SLANT: f64 = 0.5;
/// A page with more of them is a drawing.
const MOST: usize = 4000;

/// The lines of a page, in points, with y growing downwards; each is as thin as it is drawn.
#[derive(Default)]
pub(super) struct Rulings {
    found: Vec<Rect>,
    crowded: bool,
}

impl Rulings {
    /// Records the lines of a drawn path.
    pub(super) fn add(&mut self, path: &BezPath, transform: Affine, mode: &DrawMode) {
        if self.crowded {
            return;
        }
        match mode {
            DrawMode::Stroke(_) | DrawMode::FillAndStroke(..) => self.stroke(path, transform),
            DrawMode::Fill(_) => self.fill(path, transform),
            DrawMode::Invisible => {}
        }
    }

    /// Records the lines of a drawn rectangle.
    pub(super) fn add_rect(&mut self, rect: &Rect, transform: Affine, mode: &DrawMode) {
        let [a, b, c, d, ..] = transform.as_coeffs();
        if !((a == 0.0 && d == 0.0) || (b == 0.0 && c == 0.0)) || matches!(mode, DrawMode::Invisible) {
            return;
        }
        let drawn = transform.transform_rect_bbox(*rect);
        if matches!(mode, DrawMode::Fill(_)) || drawn.width().min(drawn.height()) <= THICKEST {
            return self.push_thin(drawn);
        }
        let Rect { x0, y0, x1, y1 } = drawn;
        for (from, to) in [((x0, y0), (x1, y0)), ((x0, y1), (x1, y1)), ((x0, y0), (x0, y1)), ((x1, y0), (x1, y1))] {
            self.push(Rect::from_points(from, to));
        }
    }

    fn stroke(&mut self, path: &BezPath, transform: Affine) {
        let (mut start, mut pen) = (Point::ZERO, Point::ZERO);
        for element in path.elements() {
            let end = match *element {
                PathEl::MoveTo(at) => {
                    (start, pen) = (transform * at, transform * at);
                    continue;
                }
                PathEl::LineTo(at) => transform * at,
                PathEl::ClosePath => start,
                PathEl::QuadTo(_, at) | PathEl::CurveTo(_, _, at) => {
                    pen = transform * at;
                    continue;
                }
            };
            if (end.x - pen.x).abs() < SLANT || (end.y - pen.y).abs() < SLANT {
                self.push(Rect::from_points(pen, end));
            }
            pen = end;
        }
    }

    fn fill(&mut self, path: &BezPath, transform: Affine) {
        let mut bounds: Option<Rect> = None;
        let mut is_straight = true;
        for element in path.elements() {
            let at = match *element {
                PathEl::MoveTo(at) => {
                    if let Some(whole) = bounds.take().filter(|_| is_straight) {
                        self.push_thin(whole);
                    }
                    is_straight = true;
                    at
                }
                PathEl::LineTo(at) => at,
                PathEl::ClosePath => continue,
                PathEl::QuadTo(..) | PathEl::CurveTo(..) => {
                    is_straight = false;
                    continue;
                }
            };
            let at = transform * at;
            bounds = Some(bounds.map_or(Rect::from_points(at, at), |bounds| bounds.union_pt(at)));
        }
        if let Some(whole) = bounds.filter(|_| is_straight) {
            self.push_thin(whole);
        }
    }

    /// Records a filled shape if it is thin.
    fn push_thin(&mut self, drawn: Rect) {
        if drawn.width().min(drawn.height()) <= THICKEST {
            self.push(drawn);
        }
    }

    fn push(&mut self, drawn: Rect) {
        if drawn.is_finite() && drawn.width().max(drawn.height()) >= SHORTEST {
            self.crowded |= self.found.len() >= MOST;
            if !self.crowded {
                self.found.push(drawn);
            }
        }
    }

    pub(super) fn finish(self) -> Vec<Rect> {
        if self.crowded { Vec::new() } else { self.found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayro_interpret::{FillRule, StrokeProps};
    use kurbo::Shape;

    fn found(path: &str, mode: &DrawMode) -> Vec<Rect> {
        let mut rulings = Rulings::default();
        rulings.add(&BezPath::from_svg(path).unwrap(), Affine::IDENTITY, mode);
        rulings.finish()
    }

    #[test]
    fn straight_strokes_and_thin_shapes_are_lines() {
        let (stroke, fill) = (DrawMode::Stroke(StrokeProps::default()), DrawMode::Fill(FillRule::NonZero));
        assert_eq!(found("M 0 5 L 100 5 L 100 50 L 0 0", &stroke).len(), 2, "the last one is slanted");
        assert_eq!(found("M 0 5 L 100 5", &fill), [Rect::new(0.0, 5.0, 100.0, 5.0)]);
        assert_eq!(
            found("M 0 0 L 100 0 L 100 1 L 0 1 Z M 0 9 L 2 9 L 2 8 Z", &fill),
            [Rect::new(0.0, 0.0, 100.0, 1.0)]
        );
        assert_eq!(found("M 0 0 L 100 0 L 100 50 L 0 50 Z", &fill), []);
        assert_eq!(found("M 0 0 L 100 0 L 100 50 L 0 50 Z", &stroke).len(), 4);
        assert_eq!(found("M 0 0 L 100 0", &DrawMode::Invisible), []);
        let mut rulings = Rulings::default();
        rulings.add_rect(&Rect::new(0.0, 0.0, 100.0, 50.0), Affine::IDENTITY, &stroke);
        rulings.add_rect(&Rect::new(0.0, 0.0, 100.0, 50.0), Affine::IDENTITY, &fill);
        assert_eq!(rulings.finish().len(), 4);
    }

    #[test]
    fn a_drawing_has_none() {
        let mut rulings = Rulings::default();
        let line = Rect::new(0.0, 0.0, 20.0, 1.0).to_path(0.1);
        for _ in 0..=MOST {
            rulings.add(&line, Affine::IDENTITY, &DrawMode::Fill(FillRule::NonZero));
        }
        assert_eq!(rulings.finish(), []);
    }
}
