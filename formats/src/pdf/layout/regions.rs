//! Text in boxes beside other text: what is in one box is read together.

use super::{
    columns, order,
    rows::{Row, Segment},
};
use kurbo::Rect;

/// Boxes nest no deeper on any page.
const MOST_DEPTH: u8 = 8;
/// How far, in font sizes, text may extend beyond its box.
const SLACK: f64 = 0.4;
/// How much of a box may be under another.
const TOUCHING: f64 = 0.1;
/// How many rows times boxes are compared.
const MOST_COMPARED: usize = 4_000_000;

/// Runs of rows that are read one after the other. The boxes are in the rows' frame.
pub(super) fn reading_order(rows: Vec<Row>, boxes: &[Rect], rtl: bool) -> Vec<Vec<Row>> {
    let mut leaves = Vec::new();
    let boxes = if rows.len().saturating_mul(boxes.len()) > MOST_COMPARED { &[] } else { boxes };
    arrange(rows, boxes, rtl, 0, &mut leaves);
    leaves
}

fn arrange(rows: Vec<Row>, boxes: &[Rect], rtl: bool, depth: u8, leaves: &mut Vec<Vec<Row>>) {
    let regions = if depth < MOST_DEPTH { regions(&rows, boxes) } else { Vec::new() };
    let (rows, mut insides) = take_out(rows, &regions);
    for leaf in order::reading_order(columns::split(rows), rtl) {
        let mut run = Vec::new();
        for row in leaf {
            let Some(region) = row.region else {
                run.push(row);
                continue;
            };
            leaves.extend((!run.is_empty()).then(|| std::mem::take(&mut run)));
            let inside = std::mem::take(&mut insides[region.index]);
            arrange(inside, boxes, rtl, depth + 1, leaves);
        }
        leaves.extend((!run.is_empty()).then_some(run));
    }
}

/// The outermost boxes that hold rows and have other rows beside them.
fn regions(rows: &[Row], boxes: &[Rect]) -> Vec<Rect> {
    let mut found: Vec<Rect> = boxes.iter().copied().filter(|region| is_region(rows, region)).collect();
    found.sort_by(|a, b| b.area().total_cmp(&a.area()));
    let mut outermost: Vec<Rect> = Vec::new();
    for region in found {
        // Other boxes are inside it, or are its shadow; the edges of neighbours may touch.
        if outermost.iter().all(|outer| outer.intersect(region).area() <= TOUCHING * region.area()) {
            outermost.push(region);
        }
    }
    outermost
}

fn is_region(rows: &[Row], region: &Rect) -> bool {
    let (mut inside, mut cut, mut beside) = (0, 0, false);
    for row in rows {
        if !is_level(row, region) {
            continue;
        }
        let held = row.segments.iter().filter(|segment| holds(region, row, segment)).count();
        inside += usize::from(held > 0);
        cut += usize::from(held > 0 && held < row.segments.len());
        beside |= held < row.segments.len();
    }
    // Cells of rows that are drawn across belong to a table.
    inside > 1 && beside && cut * 2 <= inside
}

fn is_level(row: &Row, region: &Rect) -> bool {
    let middle = row.baseline - 0.3 * row.size;
    region.y0 < middle && middle < region.y1
}

fn holds(region: &Rect, row: &Row, segment: &Segment) -> bool {
    let slack = SLACK * row.size;
    region.x0 - slack < segment.start && segment.end < region.x1 + slack
}

/// The rows with one row in the place of each region, and the rows of each region.
fn take_out(rows: Vec<Row>, regions: &[Rect]) -> (Vec<Row>, Vec<Vec<Row>>) {
    let mut insides = vec![Vec::new(); regions.len()];
    if regions.is_empty() {
        return (rows, insides);
    }
    let mut outside = Vec::new();
    for mut row in rows {
        for (region, inside) in regions.iter().zip(&mut insides) {
            if is_level(&row, region) {
                let (held, rest): (Vec<_>, Vec<_>) =
                    std::mem::take(&mut row.segments).into_iter().partition(|segment| holds(region, &row, segment));
                row.segments = rest;
                inside.extend((!held.is_empty()).then(|| row.of_segments(held)));
            }
        }
        let rest = std::mem::take(&mut row.segments);
        outside.extend((!rest.is_empty()).then(|| row.of_segments(rest)));
    }
    outside.extend(insides.iter().enumerate().filter_map(|(index, inside)| Row::of_region(index, inside)));
    outside.sort_by_key(|row| row.drawn);
    (outside, insides)
}
