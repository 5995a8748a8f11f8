//! The order in which rows are read.

use super::rows::Row;

/// Regions nest no deeper on any page that a person set.
const MOST_DEPTH: u8 = 12;
/// A gutter is at least this share of the font size wide.
const GUTTER: f64 = 0.6;
/// A row is prose from this average number of characters on.
const PROSE: usize = 18;
/// How many runs beside each other are examined, and how many pairs of rows are compared.
const MOST_BESIDE: usize = 16;
const MOST_COMPARED: usize = 4_000_000;
/// Going up by more than this many font sizes is a jump.
const JUMP: f64 = 1.5;
/// Going down by more than this many font sizes may skip other rows.
const LEAP: f64 = 4.0;

/// Runs of rows that are read one after the other. `rtl` says that columns follow each other leftwards.
pub(super) fn reading_order(rows: Vec<Row>, rtl: bool) -> Vec<Vec<Row>> {
    let mut leaves = Vec::new();
    order(rows, rtl, 0, &mut leaves);
    leaves
}

/// A band of the page: either rows on both sides of a gutter, or rows that cross it.
enum Band {
    Crossing(Vec<Row>),
    Sides(Vec<Row>, Vec<Row>),
}

fn order(rows: Vec<Row>, rtl: bool, depth: u8, leaves: &mut Vec<Vec<Row>>) {
    let gutter = if depth < MOST_DEPTH { gutter(&rows) } else { None };
    let Some(gutter) = gutter else { return leaf(rows, leaves) };
    let bands = bands(rows, gutter);
    if !bands.iter().any(|band| matches!(band, Band::Sides(..))) {
        let rows = bands.into_iter().flat_map(|band| match band {
            Band::Crossing(rows) => rows,
            Band::Sides(left, _) => left,
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|row| row.drawn);
        return leaf(rows, leaves);
    }
    for band in bands {
        match band {
            Band::Crossing(mut rows) => {
                rows.sort_by_key(|row| row.drawn);
                order(rows, rtl, depth + 1, leaves);
            }
            Band::Sides(left, right) => {
                let sides = if rtl { [right, left] } else { [left, right] };
                for mut side in sides {
                    side.sort_by_key(|row| row.drawn);
                    order(side, rtl, depth + 1, leaves);
                }
            }
        }
    }
}

/// The place, with rows on both sides, that the fewest rows cross.
fn gutter(rows: &[Row]) -> Option<f64> {
    let of_each = |value: fn(&Row) -> f64| -> Vec<f64> {
        rows.iter().flat_map(|row| std::iter::repeat_n(value(row), row.count())).collect()
    };
    let (mut starts, mut ends) = (of_each(|row| row.start), of_each(|row| row.end));
    let mut sizes = of_each(|row| row.size);
    let count = sizes.len();
    if count < 4 {
        return None;
    }
    for values in [&mut starts, &mut ends, &mut sizes] {
        values.sort_by(f64::total_cmp);
    }
    let narrowest = GUTTER * sizes[sizes.len() / 2];
    let mut best: Option<(f64, f64)> = None;
    for (index, &end) in ends.iter().enumerate() {
        let left = index + 1;
        let first_right = starts.partition_point(|start| *start < end);
        let Some(&start) = starts.get(first_right) else { break };
        let right = count - first_right;
        // An end that is directly followed by another is not where the side ends.
        if start - end < narrowest || left < 2 || right < 2 {
            continue;
        }
        let crossing = count.saturating_sub(left + right) as f64;
        let score = left.min(right) as f64 - 0.5 * crossing;
        if score > 0.0 && best.is_none_or(|(most, _)| score >= most) {
            best = Some((score, (start + end) / 2.0));
        }
    }
    best.map(|(_, gutter)| gutter)
}

/// The page from top to bottom. Sides that are not columns belong to the rows that cross.
fn bands(mut rows: Vec<Row>, gutter: f64) -> Vec<Band> {
    rows.sort_by(|a, b| a.baseline.total_cmp(&b.baseline));
    let mut bands = Vec::new();
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for row in rows {
        if row.end <= gutter {
            left.push(row);
        } else if row.start >= gutter {
            right.push(row);
        } else {
            close(&mut bands, &mut left, &mut right);
            push_crossing(&mut bands, [row]);
        }
    }
    close(&mut bands, &mut left, &mut right);
    bands
}

fn close(bands: &mut Vec<Band>, left: &mut Vec<Row>, right: &mut Vec<Row>) {
    let (left, right) = (std::mem::take(left), std::mem::take(right));
    if are_columns(&left, &right) {
        bands.push(Band::Sides(left, right));
    } else {
        push_crossing(bands, left.into_iter().chain(right));
    }
}

fn push_crossing(bands: &mut Vec<Band>, rows: impl IntoIterator<Item = Row>) {
    match bands.last_mut() {
        Some(Band::Crossing(crossing)) => crossing.extend(rows),
        _ => {
            let rows: Vec<_> = rows.into_iter().collect();
            if !rows.is_empty() {
                bands.push(Band::Crossing(rows));
            }
        }
    }
}

/// Whether two sides, each from top to bottom, are read one after the other: they are beside each other, and were
/// either drawn so or are prose.
fn are_columns(left: &[Row], right: &[Row]) -> bool {
    let (Some(left_first), Some(left_last)) = (left.first(), left.last()) else { return false };
    let (Some(right_first), Some(right_last)) = (right.first(), right.last()) else { return false };
    // Fields belong to their labels.
    let are_fields = |rows: &[Row]| rows.iter().all(|row| row.annotated);
    let counts = [left, right].map(|rows| rows.iter().map(Row::count).sum::<usize>());
    if counts[0] < 2 || counts[1] < 2 || are_fields(left) != are_fields(right) {
        return false;
    }
    let heights = [left_last.bottom() - left_first.baseline, right_last.bottom() - right_first.baseline];
    let shared = left_last.bottom().min(right_last.bottom()) - left_first.baseline.max(right_first.baseline);
    if shared < 0.5 * heights[0].min(heights[1]) {
        return false;
    }
    let fewer = counts[0].min(counts[1]);
    let is_prose = |rows: &[Row], count| rows.iter().map(Row::characters).sum::<usize>() >= PROSE * count;
    changes_of_side(left, right) <= 1 + left.len().min(right.len()) / 4
        || (fewer >= 3 && is_prose(left, counts[0]) && is_prose(right, counts[1]))
}

/// How often the drawing went from one side to the other.
fn changes_of_side(left: &[Row], right: &[Row]) -> usize {
    let mut drawn: Vec<(usize, bool)> = left.iter().map(|row| (row.drawn, false)).collect();
    drawn.extend(right.iter().map(|row| (row.drawn, true)));
    drawn.sort_unstable();
    drawn.windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
}

/// Rows that are drawn downwards without a jump.
struct Run {
    rows: Vec<Row>,
    top: f64,
    bottom: f64,
    start: f64,
    end: f64,
    is_mixed: bool,
}

impl Run {
    fn new(row: Row) -> Self {
        let (top, bottom, start, end) = (row.baseline - row.size, row.bottom(), row.start, row.end);
        Self { rows: vec![row], top, bottom, start, end, is_mixed: false }
    }

    /// Whether the row is drawn further down, or only a little higher.
    fn goes_on(&self, row: &Row) -> bool {
        self.rows.last().is_some_and(|last| last.baseline - row.baseline < JUMP * row.size.max(last.size))
    }

    fn push(&mut self, row: Row) {
        self.top = self.top.min(row.baseline - row.size);
        self.bottom = self.bottom.max(row.bottom());
        self.start = self.start.min(row.start);
        self.end = self.end.max(row.end);
        match self.rows.last_mut() {
            Some(last) if last.is_level_with(&row) && !last.overlaps(&row) => last.join(row),
            _ => self.rows.push(row),
        }
    }

    fn is_single(&self) -> bool {
        matches!(self.rows.as_slice(), [row] if row.region.is_none())
    }

    /// Whether both runs interleave, so that the order of drawing says nothing. A run that is only beside the other
    /// does not, unless it is a single row. `budget` is how many rows may still be compared; once it is used up, runs
    /// that may interleave count as doing so.
    fn is_mixed_with(&self, other: &Self, budget: &mut usize) -> bool {
        let slack = 0.2 * self.rows[0].size;
        let (top, bottom) = (self.top.max(other.top), self.bottom.min(other.bottom));
        if bottom - top <= slack || self.start >= other.end || other.start >= self.end {
            return bottom - top > slack && (self.is_single() || other.is_single());
        }
        let Some(left) = budget.checked_sub(self.rows.len() + other.rows.len()) else { return true };
        *budget = left;
        // How far the rows extend that are level with some of the other's.
        let reach = |run: &Self| {
            let level = run.rows.iter().filter(|row| row.bottom() > top && row.baseline - row.size < bottom);
            level.fold((f64::INFINITY, f64::NEG_INFINITY), |(start, end), row| (start.min(row.start), end.max(row.end)))
        };
        let ((start, end), (other_start, other_end)) = (reach(self), reach(other));
        (start < other_end && other_start < end) || self.is_single() || other.is_single()
    }
}

/// Where rows are: baseline, start and end, from top to bottom.
struct Places(Vec<(f64, f64, f64)>);

impl Places {
    fn new(rows: &[Row]) -> Self {
        let mut places: Vec<_> = rows.iter().map(|row| (row.baseline, row.start, row.end)).collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self(places)
    }

    /// Whether the drawing jumps over others to reach the row, as from a header to a footer.
    fn lie_between(&self, run: &Run, row: &Row, budget: &mut usize) -> bool {
        let Some(last) = run.rows.last() else { return false };
        if row.baseline - last.bottom() < LEAP * row.size.max(last.size) {
            return false;
        }
        let from = self.0.partition_point(|place| place.0 <= last.bottom());
        let to = self.0.partition_point(|place| place.0 < row.baseline - row.size);
        let between = self.0.get(from..to).unwrap_or_default();
        let Some(left) = budget.checked_sub(between.len()) else { return false };
        *budget = left;
        let (start, end) = (row.start.min(last.start), row.end.max(last.end));
        between.iter().any(|place| place.1 < end && start < place.2)
    }
}

/// Rows of one column, in the order of drawing as far as that runs downwards.
fn leaf(rows: Vec<Row>, leaves: &mut Vec<Vec<Row>>) {
    let (fields, rows): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.annotated);
    let places = Places::new(&rows);
    let mut budget = MOST_COMPARED;
    let mut runs: Vec<Run> = Vec::new();
    for row in rows {
        match runs.last_mut() {
            Some(run) if run.goes_on(&row) && !places.lie_between(run, &row, &mut budget) => run.push(row),
            _ => runs.push(Run::new(row)),
        }
    }
    runs.sort_by(|a, b| a.top.total_cmp(&b.top));
    let mut merged: Vec<Run> = Vec::new();
    for run in runs {
        // A run that extends down to here is among the last few.
        match merged.iter_mut().rev().take(MOST_BESIDE).find(|before| before.is_mixed_with(&run, &mut budget)) {
            Some(before) => {
                before.top = before.top.min(run.top);
                before.bottom = before.bottom.max(run.bottom);
                before.start = before.start.min(run.start);
                before.end = before.end.max(run.end);
                before.rows.extend(run.rows);
                before.is_mixed = true;
            }
            None => merged.push(run),
        }
    }
    let mut leaf: Vec<Row> =
        merged.into_iter().flat_map(|run| if run.is_mixed { sorted(run.rows) } else { run.rows }).collect();
    if leaf.len().saturating_mul(fields.len()) > MOST_COMPARED {
        leaf.extend(fields);
        leaf = sorted(leaf);
    } else {
        fields.into_iter().for_each(|field| insert(&mut leaf, field));
    }
    if !leaf.is_empty() {
        leaves.push(leaf);
    }
}

/// Puts a field on the row it is level with, or below the last row above it.
fn insert(rows: &mut Vec<Row>, field: Row) {
    if let Some(level) = rows.iter_mut().find(|row| row.is_level_with(&field) && !row.overlaps(&field)) {
        return level.join(field);
    }
    let below = rows.iter().rposition(|row| row.baseline < field.baseline).map_or(0, |above| above + 1);
    rows.insert(below, field);
}

/// Rows from top to bottom; rows on one level that do not overlap become one.
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| a.baseline.total_cmp(&b.baseline));
    let mut sorted: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        // A few rows of a level may overlap each other.
        let level = sorted.iter_mut().rev().take(4).find(|last| last.is_level_with(&row) && !last.overlaps(&row));
        match level {
            Some(last) => last.join(row),
            None => sorted.push(row),
        }
    }
    sorted
}
