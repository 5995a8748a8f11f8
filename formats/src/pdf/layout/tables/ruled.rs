//! Tables with lines drawn between their cells.

use super::{Found, Ruling, Rulings, TOUCH, append, has_header, is_number, sound};
use crate::{pdf::layout::row_text::Line, tables::TableRule};

/// How many pairs of lines are compared, and how many cells a grid may have.
const MOST_COMPARED: usize = 1_000_000;
const MOST_CELLS: usize = 100_000;
/// Fewer lines than these, along either direction and together, are a frame or a cross.
const FEWEST: usize = 2;
const FEWEST_TOGETHER: usize = 5;
/// The most characters of a cell on average; a layout of a page has more.
const PROSE: usize = 300;
/// How far, in font sizes, text may extend beyond the outermost lines.
const SLACK: f64 = 0.4;
/// As many numbers below each other within one row are rows without lines between them, and so are as many texts in a grid of
/// so few rows.
const STACKED: usize = 3;
const FEW_ROWS: usize = 3;
/// A grid with no more rows and columns than this is a drawing if a box of it is empty; only the first cell of a table may be empty.
const FEW_COLUMNS: usize = 2;
const FEW_CELLS: usize = 100;

pub(super) fn find(lines: &[&Line], rulings: &Rulings) -> Vec<Found> {
    let Rulings { across, down } = rulings;
    if across.len() < FEWEST || down.len() < FEWEST || across.len() * down.len() > MOST_COMPARED {
        return Vec::new();
    }
    let mut by_middle: Vec<(f64, usize)> =
        lines.iter().enumerate().map(|(index, line)| (middle(line), index)).collect();
    by_middle.sort_by(|a, b| a.0.total_cmp(&b.0));
    let grids = grids(across, down);
    let mut taken = vec![false; lines.len()];
    let mut found = Vec::new();
    for grid in grids {
        let Some(table) = grid.table(lines, &by_middle).filter(|table| !table.lines.iter().any(|line| taken[*line]))
        else {
            continue;
        };
        table.lines.iter().for_each(|line| taken[*line] = true);
        found.push(table);
    }
    found
}

/// The height at which a line of text is looked for between rulings.
fn middle(line: &Line) -> f64 {
    line.baseline - 0.3 * line.size
}

/// Lines that meet each other.
struct Grid {
    /// The borders of rows, from top to bottom, and of columns, from left to right.
    ys: Vec<f64>,
    xs: Vec<f64>,
    across: Vec<Ruling>,
    down: Vec<Ruling>,
}

/// The grids that the lines form.
fn grids(across: &[Ruling], down: &[Ruling]) -> Vec<Grid> {
    let mut sets = Sets((0..across.len() + down.len()).collect());
    for (row, one) in across.iter().enumerate() {
        for (column, other) in down.iter().enumerate() {
            let meets = |line: &Ruling, at: f64| line.from - TOUCH <= at && at <= line.to + TOUCH;
            if meets(one, other.at) && meets(other, one.at) {
                sets.join(row, across.len() + column);
            }
        }
    }
    let mut grids: std::collections::BTreeMap<usize, (Vec<Ruling>, Vec<Ruling>)> = std::collections::BTreeMap::new();
    for (index, line) in across.iter().chain(down).enumerate() {
        let (rows, columns) = grids.entry(sets.root(index)).or_default();
        if index < across.len() { rows.push(*line) } else { columns.push(*line) }
    }
    grids.into_values().filter_map(|(across, down)| Grid::new(across, down)).collect()
}

/// Sets of numbers that were joined.
struct Sets(Vec<usize>);

impl Sets {
    fn root(&mut self, mut index: usize) -> usize {
        while self.0[index] != index {
            self.0[index] = self.0[self.0[index]];
            index = self.0[index];
        }
        index
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}

/// Positions without those that are the same as the one before.
fn distinct(mut positions: Vec<f64>) -> Vec<f64> {
    positions.sort_by(f64::total_cmp);
    positions.dedup_by(|next, before| *next - *before <= 2.0 * TOUCH);
    positions
}

/// The cell of a border list that holds a position.
fn cell_at(borders: &[f64], at: f64) -> Option<usize> {
    let after = borders.partition_point(|border| *border <= at);
    after.checked_sub(1).filter(|cell| cell + 1 < borders.len())
}

impl Grid {
    fn new(across: Vec<Ruling>, down: Vec<Ruling>) -> Option<Self> {
        if across.len() < FEWEST || down.len() < FEWEST || across.len() + down.len() < FEWEST_TOGETHER {
            return None;
        }
        // A table may be open at its sides, where only the ends of its lines tell how far it goes.
        let borders = |lines: &[Ruling], others: &[Ruling]| {
            let start = others.iter().map(|line| line.from).fold(f64::INFINITY, f64::min);
            let end = others.iter().map(|line| line.to).fold(f64::NEG_INFINITY, f64::max);
            distinct(lines.iter().map(|line| line.at).chain([start, end]).collect())
        };
        let (ys, xs) = (borders(&across, &down), borders(&down, &across));
        let is_grid = ys.len() > 2 && xs.len() > 2 && ys.len().saturating_mul(xs.len()) <= MOST_CELLS;
        is_grid.then_some(Self { ys, xs, across, down })
    }

    fn table(&self, lines: &[&Line], by_middle: &[(f64, usize)]) -> Option<Found> {
        let (left, right) = (*self.xs.first()?, *self.xs.last()?);
        let (top, bottom) = (*self.ys.first()?, *self.ys.last()?);
        let first = by_middle.partition_point(|(at, _)| *at < top);
        let last = by_middle.partition_point(|(at, _)| *at < bottom);
        let (rows, columns) = (self.ys.len() - 1, self.xs.len() - 1);
        let roots = self.roots();
        let mut cells = vec![String::new(); rows * columns];
        // How many lines each cell has, and how many of them are numbers.
        let (mut held, mut numbers) = (vec![0usize; rows * columns], vec![0usize; rows * columns]);
        let mut taken = Vec::new();
        for &(at, index) in by_middle.get(first..last)? {
            let line = lines[index];
            let slack = SLACK * line.size;
            if line.end <= left || line.start >= right {
                continue;
            }
            // A line that is only partly within would lose its other words.
            if line.start < left - slack || line.end > right + slack || line.words.is_empty() || line.annotated {
                return None;
            }
            let row = cell_at(&self.ys, at)?;
            let mut pieces: Vec<(usize, String)> = Vec::new();
            for word in &line.words {
                let middle = (0.5 * (word.start + word.end)).clamp(left, right - TOUCH);
                let column = cell_at(&self.xs, middle)?;
                let cell = roots[row * columns + column];
                match pieces.last_mut().filter(|(last, _)| *last == cell) {
                    Some((_, text)) => append(text, line.word(word)),
                    None => pieces.push((cell, line.word(word).to_owned())),
                }
            }
            for (cell, text) in pieces {
                held[cell] += 1;
                numbers[cell] += usize::from(is_number(&text));
                append(&mut cells[cell], &text);
            }
            taken.push(index);
        }
        let stacked = |row: &[usize]| row[0] >= STACKED && row[1..].iter().any(|count| *count >= STACKED);
        let with_text = held.chunks(columns).filter(|row| row.iter().any(|count| *count > 0)).count();
        let is_stacked = numbers.chunks(columns).any(|row| row[1..].iter().any(|count| *count >= STACKED))
            || (with_text <= FEW_ROWS && held.chunks(columns).any(stacked));
        let characters: usize = cells.iter().map(|cell| cell.chars().count()).sum();
        let filled = cells.iter().filter(|cell| !cell.is_empty()).count();
        if is_stacked || characters > PROSE * filled {
            return None;
        }
        let made = sound(cells.chunks(columns).map(<[String]>::to_vec).collect())?;
        let is_small = made.len() <= FEW_ROWS && made[0].len() <= FEW_COLUMNS && cells.len() <= FEW_CELLS;
        if is_small && blanks(&cells, &roots, columns) > usize::from(made[0][0].is_empty()) {
            return None;
        }
        taken.sort_unstable();
        let has_header = has_header(&made);
        Some(Found { lines: taken, rows: made, rule: TableRule::Lines, has_header })
    }

    /// For each cell the one that has its text: the first of those without a line between them.
    fn roots(&self) -> Vec<usize> {
        let (rows, columns) = (self.ys.len() - 1, self.xs.len() - 1);
        let (mut above, mut before) = (vec![false; rows * columns], vec![false; rows * columns]);
        let middles =
            |borders: &[f64]| -> Vec<f64> { borders.windows(2).map(|pair| 0.5 * (pair[0] + pair[1])).collect() };
        let (middle_rows, middle_columns) = (middles(&self.ys), middles(&self.xs));
        let reached = |middles: &[f64], line: &Ruling| {
            middles.partition_point(|at| *at < line.from)..middles.partition_point(|at| *at <= line.to)
        };
        for line in &self.across {
            let row = nearest(&self.ys, line.at);
            if row < rows {
                reached(&middle_columns, line).for_each(|column| above[row * columns + column] = true);
            }
        }
        for line in &self.down {
            let column = nearest(&self.xs, line.at);
            if column < columns {
                reached(&middle_rows, line).for_each(|row| before[row * columns + column] = true);
            }
        }
        let mut roots: Vec<usize> = (0..rows * columns).collect();
        for cell in 0..rows * columns {
            let (row, column) = (cell / columns, cell % columns);
            if column > 0 && !before[cell] {
                roots[cell] = roots[cell - 1];
            } else if row > 0 && !above[cell] {
                roots[cell] = roots[cell - columns];
            }
        }
        roots
    }
}

/// How many empty cells there are that no other cell spans, in rows and columns with text.
fn blanks(cells: &[String], roots: &[usize], columns: usize) -> usize {
    let has_text = |cell: &usize| !cells[*cell].is_empty();
    let is_blank = |cell: &usize| {
        let mut row = (0..cells.len()).filter(|other| other / columns == cell / columns);
        let mut column = (0..cells.len()).filter(|other| other % columns == cell % columns);
        roots[*cell] == *cell
            && !has_text(cell)
            && row.any(|other| has_text(&other))
            && column.any(|other| has_text(&other))
    };
    (0..cells.len()).filter(is_blank).count()
}

/// The border that a line lies on.
fn nearest(borders: &[f64], at: f64) -> usize {
    let after = borders.partition_point(|border| *border < at);
    match (after.checked_sub(1), borders.get(after)) {
        (Some(before), Some(next)) if at - borders[before] <= next - at => before,
        (Some(before), None) => before,
        _ => after,
    }
}
