//! Finds columns side by side that were drawn row by row, each row across all of them.

use super::rows::Row;

/// If fewer rows have a gap at one place, it is a table or chance.
const FEWEST_ROWS: usize = 4;
/// A side is prose, and not cells of a table, from this average number of characters and words on.
const PROSE: (usize, usize) = (18, 3);
const MOST_GUTTERS: usize = 4;

/// Cuts rows at the gutters that they share, if both sides are prose.
pub(super) fn split(mut rows: Vec<Row>) -> Vec<Row> {
    for _ in 0..MOST_GUTTERS {
        let Some(gutter) = gutter(&rows) else { break };
        let mut cut = Vec::with_capacity(rows.len() * 2);
        for row in rows {
            match gap_at(&row, gutter) {
                Some(at) => {
                    let (left, right) = halves(row, at);
                    cut.push(left);
                    cut.push(right);
                }
                None => cut.push(row),
            }
        }
        for (index, row) in cut.iter_mut().enumerate() {
            row.drawn = index;
        }
        rows = cut;
    }
    rows
}

/// The place where most rows have a gap, if it is a gutter.
fn gutter(rows: &[Row]) -> Option<f64> {
    let mut edges: Vec<(f64, i32)> = Vec::new();
    for row in rows {
        for pair in row.segments.windows(2) {
            if pair[1].start - pair[0].end > 0.9 * row.size {
                edges.push((pair[0].end, 1));
                edges.push((pair[1].start, -1));
            }
        }
    }
    if edges.len() < 2 * FEWEST_ROWS {
        return None;
    }
    // A gap that ends where another begins does not overlap it.
    edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut depth, mut deepest, mut gutter) = (0, 0, 0.0);
    for pair in edges.windows(2) {
        depth += pair[0].1;
        if depth > deepest && pair[1].0 > pair[0].0 {
            (deepest, gutter) = (depth, (pair[0].0 + pair[1].0) / 2.0);
        }
    }
    is_between_prose(rows, gutter).then_some(gutter)
}

fn is_between_prose(rows: &[Row], gutter: f64) -> bool {
    let across = rows.iter().filter(|row| row.start < gutter && row.end > gutter).count();
    let (mut count, mut characters, mut words) = (0, [0, 0], [0, 0]);
    for row in rows {
        let Some(at) = gap_at(row, gutter) else { continue };
        count += 1;
        for (side, segments) in [&row.segments[..at], &row.segments[at..]].into_iter().enumerate() {
            characters[side] += segments.iter().map(|segment| segment.characters).sum::<usize>();
            words[side] += segments.iter().map(|segment| segment.words).sum::<usize>();
        }
    }
    count >= FEWEST_ROWS
        && count * 2 > across
        && characters.iter().all(|characters| *characters >= PROSE.0 * count)
        && words.iter().all(|words| *words >= PROSE.1 * count)
}

/// The first segment after the gutter, if the row has a gap there.
fn gap_at(row: &Row, gutter: f64) -> Option<usize> {
    let at = row.segments.partition_point(|segment| segment.start < gutter);
    (at > 0 && at < row.segments.len() && row.segments[..at].iter().all(|segment| segment.end <= gutter)).then_some(at)
}

fn halves(mut row: Row, at: usize) -> (Row, Row) {
    let right = row.segments.split_off(at);
    let left = std::mem::take(&mut row.segments);
    (row.of_segments(left), row.of_segments(right))
}
