//! How much of a page its images cover.

use kurbo::{Point, Rect};

/// A picture over more of a page is the page itself, or what is behind it.
pub(super) const WHOLE: f64 = 0.9;
/// The number of cells along each side of the raster in which the images' union is counted.
const CELLS: usize = 64;

/// The images of a page, clipped to it.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    bounds: Rect,
    pub count: usize,
    /// The share of the page that the largest image covers, 0 to 1.
    pub largest: f64,
    /// One bit per cell whose centre is covered; each row of cells is a number.
    cells: Option<Box<[u64; CELLS]>>,
}

impl Coverage {
    pub(super) fn new(bounds: Rect) -> Self {
        Self { bounds, ..Self::default() }
    }

    pub(super) fn add(&mut self, image: Rect) {
        let shown = image.intersect(self.bounds);
        let part = shown.area() / self.bounds.area();
        if !(image.is_finite() && part.is_finite() && shown.width() > 0.0 && shown.height() > 0.0) {
            return;
        }
        self.count += 1;
        self.largest = self.largest.max(part);
        let cells = |low: f64, high: f64, side: f64| {
            let cell = |at: f64| (at / side * CELLS as f64 - 0.5).ceil().clamp(0.0, CELLS as f64) as usize;
            cell(low)..cell(high)
        };
        let columns = cells(shown.x0 - self.bounds.x0, shown.x1 - self.bounds.x0, self.bounds.width());
        let rows = cells(shown.y0 - self.bounds.y0, shown.y1 - self.bounds.y0, self.bounds.height());
        let mask = columns.fold(0u64, |mask, column| mask | 1 << column);
        let covered = self.cells.get_or_insert_with(|| Box::new([0; CELLS]));
        covered[rows].iter_mut().for_each(|row| *row |= mask);
    }

    /// Whether an image covers the cell that a place is in, or the cell on the page next to it.
    pub(super) fn covers(&self, place: Point) -> bool {
        let cell = |at: f64, side: f64| (at / side * CELLS as f64).clamp(0.0, (CELLS - 1) as f64) as usize;
        let column = cell(place.x - self.bounds.x0, self.bounds.width());
        let row = cell(place.y - self.bounds.y0, self.bounds.height());
        self.cells.as_ref().is_some_and(|cells| cells[row] >> column & 1 == 1)
    }

    /// The share of the page that all images cover together, 0 to 1, to about a hundredth.
    pub(super) fn union(&self) -> f64 {
        let covered: u32 = self.cells.iter().flat_map(|cells| cells.iter()).map(|row| row.count_ones()).sum();
        (f64::from(covered) / (CELLS * CELLS) as f64).max(self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Coverage {
        Coverage::new(Rect::new(0.0, 0.0, 600.0, 800.0))
    }

    #[test]
    fn strips_add_up_and_overlaps_do_not() {
        let mut strips = page();
        for strip in 0..10 {
            strips.add(Rect::new(0.0, f64::from(strip) * 80.0, 600.0, f64::from(strip + 1) * 80.0));
        }
        assert_eq!((strips.count, strips.union()), (10, 1.0));
        assert!((strips.largest - 0.1).abs() < 1e-9);
        let mut twice = page();
        twice.add(Rect::new(0.0, 0.0, 300.0, 800.0));
        twice.add(Rect::new(0.0, 0.0, 300.0, 400.0));
        assert_eq!(twice.union(), 0.5);
    }

    #[test]
    fn a_place_is_on_an_image_or_beside_it() {
        let mut half = page();
        assert!(!half.covers(Point::new(10.0, 10.0)));
        half.add(Rect::new(300.0, 0.0, 600.0, 800.0));
        for (x, y, is_on) in [(310.0, 790.0, true), (602.0, -2.0, true), (290.0, 790.0, false), (f64::NAN, 0.0, false)]
        {
            assert_eq!(half.covers(Point::new(x, y)), is_on, "{x}, {y}");
        }
    }

    #[test]
    fn images_end_where_the_page_ends() {
        let mut page = page();
        page.add(Rect::new(-600.0, -800.0, 300.0, 400.0));
        page.add(Rect::new(700.0, 0.0, 900.0, 800.0));
        page.add(Rect::new(f64::NAN, 0.0, 900.0, 800.0));
        assert_eq!((page.count, page.largest), (1, 0.25));
    }
}
