//! Tables whose cells stand below each other, without lines between all of them.
//!
//! A table grows from two lines with equally many cells: downwards as long as each cell is in one column, then upwards by its
//! header. It counts if its columns have names and one holds numbers, or if lines are drawn across it.

use super::{Found, Ruling, append, has_header, is_number, sound};
use crate::{
    pdf::layout::row_text::{Line, Word},
    tables::{TableRule, is_year},
};

/// A blank at least this wide, in font sizes, is between two cells; beside a number the second does.
const CELL_GAP: f64 = 0.9;
const NUMBER_CELL_GAP: f64 = 0.6;
/// A gap of this width between two numbers is wider than any blank between words.
const GAP_BETWEEN_NUMBERS: f64 = 0.36;
/// How much the blank of a typewriter may differ from the width of its digits, in font sizes; otherwise both are equally wide.
const EVEN: f64 = 0.03;
/// What is left between two columns, in font sizes.
const GUTTER: f64 = 0.2;
/// The least and the most distance of two rows, in font sizes.
const STEP: std::ops::Range<f64> = 0.6..3.2;
/// How much larger a row's font may be than that of the row before.
const SIZE_CHANGE: f64 = 1.3;
/// The most cells of a row.
const MOST_CELLS: usize = 100;
/// The most lines of a header, and lines of one cell in a row.
const HEADER_LINES: usize = 3;
const MOST_SINGLE: usize = 1;
const FEWEST_ROWS: usize = 3;
/// Lines across a table are at least this share of its width long, and there are at least so many.
const ACROSS: f64 = 0.6;
const RULINGS: usize = 2;
/// This share of a column's cells are numbers, if it is one of numbers.
const NUMBERS: f64 = 0.6;
/// The most characters of a cell on average, over all columns and in one of them.
const PROSE: usize = 40;
const PROSE_IN_COLUMN: usize = 90;
/// The share of cells that have text, at least.
const FILLED: f64 = 0.5;

/// Finds the tables in a run of lines, the first of which is at `first` among all; those in `taken` are in other tables.
pub(super) fn find(leaf: &[Line], first: usize, taken: &[bool], rulings: &[Ruling]) -> Vec<Found> {
    let rows: Vec<Row<'_>> =
        leaf.iter().enumerate().map(|(index, line)| Row::new(line, taken[first + index])).collect();
    let mut found: Vec<(Found, usize)> = Vec::new();
    let mut at = 0;
    while at + 1 < rows.len() {
        let Some(mut table) = Grown::begin(&rows, at) else {
            at += 1;
            continue;
        };
        table.grow_down(&rows);
        table.grow_up(&rows, found.last().map_or(0, |(_, end)| *end));
        // Where a table does not hold, none is looked for within it, so that each line is looked at once or twice.
        at = table.end;
        if let Some(made) = table.finish(&rows, first, rulings) {
            found.push((made, table.end));
        }
    }
    found.into_iter().map(|(table, _)| table).collect()
}

/// A line as cells.
struct Row<'a> {
    line: &'a Line,
    /// Empty if the line cannot be in a table.
    cells: Vec<Cell>,
}

struct Cell {
    start: f64,
    end: f64,
    text: String,
}

impl Cell {
    /// Whether the next word belongs to this cell, too.
    fn goes_on(&self, word: &Word, text: &str, size: f64) -> bool {
        let blank = word.start - self.end;
        // Only numbers depend on this, and each of their bytes is a character.
        let is_as_wide =
            |start: f64, end: f64, text: &str| (blank - (end - start) / text.len().max(1) as f64).abs() <= EVEN * size;
        let is_typewriters = is_as_wide(self.start, self.end, &self.text) && is_as_wide(word.start, word.end, text);
        blank < gap(&self.text, text) * size || (is_typewriters && blank < NUMBER_CELL_GAP * size)
    }
}

impl<'a> Row<'a> {
    fn new(line: &'a Line, is_taken: bool) -> Self {
        let mut cells: Vec<Cell> = Vec::new();
        let words: &[Word] = if is_taken || line.annotated { &[] } else { &line.words };
        for word in words {
            let text = line.word(word);
            match cells.last_mut() {
                // A word that is set back over the one before is no cell of a row.
                Some(last) if word.start < last.end - line.size => {
                    cells.clear();
                    break;
                }
                Some(last) if last.goes_on(word, text, line.size) => {
                    append(&mut last.text, text);
                    last.end = last.end.max(word.end);
                }
                _ => cells.push(Cell { start: word.start, end: word.end, text: text.to_owned() }),
            }
        }
        if cells.len() > MOST_CELLS {
            cells.clear();
        }
        Self { line, cells }
    }

    /// Whether this row comes next below another.
    fn follows(&self, above: &Row<'_>) -> bool {
        let (size, other) = (self.line.size, above.line.size);
        let step = (self.line.baseline - above.line.baseline) / size.max(other);
        !self.cells.is_empty()
            && !above.cells.is_empty()
            && STEP.contains(&step)
            && size.max(other) <= SIZE_CHANGE * size.min(other)
    }
}

/// The blank, in font sizes, that divides two words into cells.
fn gap(before: &str, after: &str) -> f64 {
    let last = before.rsplit(' ').next().unwrap_or_default();
    let is_figure = |word: &str| is_number(word) || matches!(word, "-" | "–" | "—");
    match (is_figure(last), is_figure(after)) {
        (true, true) => GAP_BETWEEN_NUMBERS,
        (false, false) => CELL_GAP,
        _ => NUMBER_CELL_GAP,
    }
}

/// A table that still grows: rows `start..end`, and where its columns are.
struct Grown {
    start: usize,
    end: usize,
    columns: Vec<(f64, f64)>,
    size: f64,
    /// For each row, the column of each of its cells.
    places: Vec<Vec<usize>>,
}

impl Grown {
    /// Begins with the row at `at` and the next one, if they have equally many cells that stand below each other.
    fn begin(rows: &[Row<'_>], at: usize) -> Option<Self> {
        let (one, next) = (rows.get(at)?, rows.get(at + 1)?);
        if one.cells.len() < 2 || one.cells.len() != next.cells.len() || !next.follows(one) {
            return None;
        }
        let columns = one.cells.iter().map(|cell| (cell.start, cell.end)).collect();
        let places = vec![(0..one.cells.len()).collect()];
        let mut table = Self { start: at, end: at + 1, columns, size: one.line.size, places };
        table.take(next).then_some(table)
    }

    fn grow_down(&mut self, rows: &[Row<'_>]) {
        let mut single = 0;
        while let Some(row) = rows.get(self.end).filter(|row| row.follows(&rows[self.end - 1])) {
            single = if row.cells.len() > 1 { 0 } else { single + 1 };
            if single > MOST_SINGLE || !self.take(row) {
                break;
            }
        }
        // What comes last and has one cell is a note, or the next paragraph.
        while self.end > self.start + 2 && rows[self.end - 1].cells.len() < 2 {
            self.end -= 1;
            self.places.pop();
        }
    }

    /// Takes in the lines of a header, whose cells may span columns; none before `least`.
    fn grow_up(&mut self, rows: &[Row<'_>], least: usize) {
        for _ in 0..HEADER_LINES {
            let Some(above) = self.start.checked_sub(1).filter(|above| *above >= least) else { return };
            let row = &rows[above];
            let is_header = row.cells.len() > 1
                && row.cells.len() <= self.columns.len()
                && rows[self.start].follows(row)
                && !row.cells.iter().any(|cell| is_number(&cell.text) && cell.text.len() != 4);
            let Some(places) = self.header(row).filter(|_| is_header) else { return };
            self.places.insert(0, places);
            self.start = above;
        }
    }

    /// The first column under each cell of a header; `None` if two would stand in one, or one over none.
    fn header(&self, row: &Row<'_>) -> Option<Vec<usize>> {
        let slack = self.size;
        let under = |cell: &Cell| {
            let overlaps = |(start, end): &(f64, f64)| *start < cell.end + slack && cell.start < *end + slack;
            let exactly = |(start, end): &(f64, f64)| *start < cell.end && cell.start < *end;
            self.columns.iter().position(exactly).or_else(|| self.columns.iter().position(overlaps))
        };
        let places: Option<Vec<usize>> = row.cells.iter().map(under).collect();
        places.filter(|places| places.windows(2).all(|pair| pair[0] < pair[1]))
    }

    /// Takes in the next row if each of its cells is in one column, which may become wider.
    fn take(&mut self, row: &Row<'_>) -> bool {
        let gutter = GUTTER * self.size;
        let mut columns = self.columns.clone();
        let mut places = Vec::with_capacity(row.cells.len());
        for cell in &row.cells {
            let first = columns.partition_point(|(_, end)| *end <= cell.start);
            let place = match columns.get(first) {
                Some((start, _)) if *start < cell.end => first,
                // It is between two columns, and belongs to the nearer one.
                next => {
                    let left = first.checked_sub(1).map(|left| cell.start - columns[left].1);
                    let right = next.map(|(start, _)| start - cell.end);
                    match (left, right) {
                        (Some(left), Some(right)) if left <= right => first - 1,
                        (Some(_), None) => first - 1,
                        _ => first,
                    }
                }
            };
            let Some((start, end)) = columns.get_mut(place) else { return false };
            (*start, *end) = (f64::min(*start, cell.start), f64::max(*end, cell.end));
            places.push(place);
        }
        let is_apart = columns.windows(2).all(|pair| pair[0].1 + gutter <= pair[1].0);
        let is_ascending = places.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_apart || !is_ascending {
            return false;
        }
        self.columns = columns;
        self.places.push(places);
        self.end += 1;
        true
    }

    fn finish(&self, rows: &[Row<'_>], first: usize, rulings: &[Ruling]) -> Option<Found> {
        let mut made: Vec<Vec<String>> = Vec::new();
        for (row, places) in rows.get(self.start..self.end)?.iter().zip(&self.places) {
            let mut cells = vec![String::new(); self.columns.len()];
            for (cell, place) in row.cells.iter().zip(places) {
                append(&mut cells[*place], &cell.text);
            }
            let goes_on = cells[0].is_empty() && !cells.iter().any(|cell| is_number(cell));
            match made.last_mut().filter(|_| goes_on) {
                // What stands under a cell without a row of its own is the rest of that cell.
                Some(last) => last.iter_mut().zip(&cells).for_each(|(before, cell)| append(before, cell)),
                None => made.push(cells),
            }
        }
        let is_ruled = self.rulings(rows, rulings) >= RULINGS;
        let made = with_one_header(sound(made)?);
        let has_numbers = (0..made[0].len()).any(|column| is_of_numbers(&made, column));
        let has_header = has_header(&made);
        if made.len() < FEWEST_ROWS || !(is_ruled || (has_numbers && has_header)) || is_other(&made) {
            return None;
        }
        let lines = (first + self.start..first + self.end).collect();
        Some(Found { lines, rows: made, rule: TableRule::Alignment, has_header })
    }

    /// How many lines are drawn across it, counting those just above and below.
    fn rulings(&self, rows: &[Row<'_>], rulings: &[Ruling]) -> usize {
        let (Some((left, _)), Some((_, right))) = (self.columns.first(), self.columns.last()) else { return 0 };
        let (top, bottom) = (rows[self.start].line.baseline, rows[self.end - 1].line.baseline);
        let first = rulings.partition_point(|line| line.at < top - 2.0 * self.size);
        let last = rulings.partition_point(|line| line.at <= bottom + 1.5 * self.size);
        let is_across = |line: &&Ruling| line.to.min(*right) - line.from.max(*left) >= ACROSS * (right - left);
        rulings.get(first..last).map_or(0, |near| near.iter().filter(is_across).count())
    }
}

/// The rows with the lines of their header as one row: those without numbers above rows that have them.
fn with_one_header(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let lines = rows.iter().take_while(|row| !row.iter().any(|cell| is_number(cell))).count();
    if (2..=HEADER_LINES).contains(&lines) && lines < rows.len() {
        let below: Vec<Vec<String>> = rows.drain(1..lines).collect();
        for line in below {
            rows[0].iter_mut().zip(&line).for_each(|(name, more)| append(name, more));
        }
    }
    rows
}

/// Whether most cells of a column, below its name, are numbers.
fn is_of_numbers(rows: &[Vec<String>], column: usize) -> bool {
    let cells = || rows.iter().skip(1).map(|row| &row[column]).filter(|cell| !cell.is_empty());
    let numbers = cells().filter(|cell| is_number(cell)).count();
    numbers >= 2 && numbers as f64 >= NUMBERS * cells().count() as f64
}

/// Whether rows in columns are something else: prose, a list, a table of contents, the labels of a drawing.
fn is_other(rows: &[Vec<String>]) -> bool {
    let width = rows[0].len();
    let cells = || rows.iter().flatten().filter(|cell| !cell.is_empty());
    let length = |cell: &String| cell.chars().count();
    let (filled, characters) = (cells().count(), cells().map(length).sum::<usize>());
    let in_column = |column: usize| {
        let lengths = || rows.iter().map(|row| length(&row[column])).filter(|length| *length > 0);
        lengths().sum::<usize>() > PROSE_IN_COLUMN * lengths().count()
    };
    let is_prose = characters > PROSE * filled || (0..width).any(in_column);
    let is_sparse = (filled as f64) < FILLED * (rows.len() * width) as f64;
    let firsts = || rows.iter().map(|row| row[0].as_str());
    let lasts = || rows.iter().map(|row| row[width - 1].as_str());
    let are_marks = |marks: usize| width == 2 && marks * 2 > rows.len();
    let is_list = are_marks(firsts().filter(|cell| is_mark(cell)).count())
        || are_marks(lasts().filter(|cell| is_mark(cell)).count());
    let is_word = |cell: &str| cell.chars().filter(|character| character.is_alphabetic()).count() > 1;
    let has_words = rows[0].iter().map(String::as_str).chain(firsts()).any(is_word);
    is_prose || is_sparse || is_list || !has_words || is_numbered(rows) || is_contents(rows)
}

/// A bullet or the number of an item.
fn is_mark(cell: &str) -> bool {
    let inner = cell.trim_matches(['(', ')', '[', ']', '.']);
    let is_numbered = inner.len() < cell.len() && inner.len() <= 4 && inner.chars().all(char::is_alphanumeric);
    is_numbered || (cell.chars().count() == 1 && !cell.chars().all(char::is_alphanumeric))
}

/// Lines with their numbers.
fn is_numbered(rows: &[Vec<String>]) -> bool {
    let numbers: Option<Vec<u32>> = rows.iter().skip(1).map(|row| row[0].parse().ok()).collect();
    let follow = |numbers: Vec<u32>| numbers.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
    rows[0].len() == 2 && !is_year(&rows[1][0]) && numbers.is_some_and(follow)
}

/// Titles with the numbers of their pages, which never fall.
fn is_contents(rows: &[Vec<String>]) -> bool {
    let width = rows[0].len();
    let is_title = |row: &Vec<String>| row[0].chars().any(char::is_alphabetic);
    let is_section = |row: &Vec<String>| {
        !is_year(&row[0]) && row[0].chars().all(|character| character.is_ascii_digit() || character == '.')
    };
    let begins = match width {
        2 => rows.iter().skip(1).all(is_title),
        3 => rows.iter().skip(1).all(is_section),
        _ => false,
    };
    let pages: Option<Vec<u32>> = rows.iter().skip(1).map(|row| row[width - 1].parse().ok()).collect();
    begins && pages.is_some_and(|pages| pages.len() > 2 && pages.is_sorted() && pages.first() < pages.last())
}
