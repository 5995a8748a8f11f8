//! Recognises and reads tables that are written as text (RFC 4180): a row a line, with a comma, a semicolon, a tab or a
//! bar between its values.
//!
//! Nothing in a text says that it is a table, so a name must say it ([`by_name`]), and the rows must agree on their
//! columns ([`is_table`]). A table is read as the one sheet of a workbook.

use crate::{
    Format, FormatError, Limit, Limits, Pattern, Patterns,
    charset::{self, Charset},
    extraction::check_text,
    xlsx::MAX_COLUMN,
};
use csv_core::{ReadFieldResult, ReaderBuilder};
use std::{
    collections::HashMap,
    io::{BufRead, Read, Seek, SeekFrom},
};

/// As much of a text as tells whether it is a table.
const HEAD: u64 = 64 << 10;
/// What separates values. Where two agree in every row, the one that is rarer within values comes first.
const DELIMITERS: [u8; 4] = [b'\t', b';', b'|', b','];
/// So large a share of the rows has the same number of values; the others are titles, notes, slips, or lack empty ones.
const AGREEING: f64 = 0.6;
/// So large a share of the lines of a single column are values.
const VALUES: f64 = 0.8;
/// Fewer rows than this, with a blank after each comma, are a sentence or two.
const FEW_ROWS: usize = 5;
/// A longer line without any delimiter is a sentence.
const VALUE_CHARACTERS: usize = 100;
/// A quote of a table with so many columns or more is a letter where what it holds is so many rows or more, or where it [`runs_on`] into
/// other rows. How many lines are read until that is found out.
const FEWEST_COLUMNS: usize = 3;
const FEWEST_ROWS: usize = 2;
const DOUBTED_LINES: usize = 64;

/// The format that the name of a file promises, if it is a table's.
pub(crate) fn by_name(name: &str) -> Option<Format> {
    let (_, extension) = name.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "csv" => Some(Format::Csv),
        // Many programs call the tables that they export as text workbooks, so that Excel opens them.
        "tsv" | "tab" | "xls" => Some(Format::Tsv),
        _ => None,
    }
}

/// Whether a text, of which this is the head, reads as a table. `whole` says that nothing follows.
pub(crate) fn is_table(head: &str, whole: bool) -> bool {
    Shape::of(head, whole).is_some()
}

/// What is measured of a table before it is read.
pub(crate) fn probe() -> Patterns {
    Patterns::default().with(Pattern::HasSheets, true).with(Pattern::SheetCount, 1).with(Pattern::HasComments, false)
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    delimiter: u8,
    /// The number of values in most rows.
    columns: usize,
    /// Whether the first line only names the delimiter, as spreadsheets write it: `sep=;`.
    is_named: bool,
    /// Whether quotes hold values. They are letters otherwise.
    is_quoted: bool,
}

impl Shape {
    /// That of a table of one column.
    const LIST: Self = Self { delimiter: b',', columns: 1, is_named: false, is_quoted: true };

    fn of(head: &str, whole: bool) -> Option<Self> {
        let head = head.trim_start_matches('\u{FEFF}');
        let head = match head.rfind('\n') {
            // The end of the head may cut a row.
            Some(end) if !whole => &head[..end],
            _ => head,
        };
        let start = head.trim_start();
        // Data of programs has commas in every line, too.
        if start.is_empty() || start.starts_with(['{', '[', '<']) {
            return None;
        }
        if let Some((delimiter, rest)) = named(head) {
            let (counts, is_quoted) = Counts::of(rest, delimiter);
            return Some(Self { delimiter, columns: counts.columns.max(1), is_named: true, is_quoted });
        }
        let mut best: Option<(Counts, Self)> = None;
        for delimiter in DELIMITERS {
            let (counts, is_quoted) = Counts::of(head, delimiter);
            if counts.is_table() && best.as_ref().is_none_or(|(best, _)| counts.agreeing() > best.agreeing()) {
                let columns = counts.columns;
                best = Some((counts, Self { delimiter, columns, is_named: false, is_quoted }));
            }
        }
        match best {
            Some((_, shape)) => Some(shape),
            None => is_list(head).then_some(Self::LIST),
        }
    }
}

/// The delimiter that a first line names, and what follows that line.
fn named(head: &str) -> Option<(u8, &str)> {
    let (line, rest) = head.split_once('\n')?;
    let [delimiter] = line.trim_end_matches('\r').strip_prefix("sep=")?.as_bytes() else { return None };
    DELIMITERS.contains(delimiter).then_some((*delimiter, rest))
}

/// How the rows of a head agree on their columns.
struct Counts {
    rows: usize,
    /// The number of values that most rows have, or the first row if it has more.
    columns: usize,
    /// The number of values that most rows have, and how many rows have it.
    most: usize,
    same: usize,
    /// How many rows have two values or more, and no more than the first.
    within: usize,
    /// Values behind a delimiter, and those of them that begin with a blank.
    behind: usize,
    spaced: usize,
}

impl Counts {
    /// How the rows agree, and whether quotes hold values. Many programs that put tabs between values write a quote as a letter: then more
    /// rows agree if it is read as one.
    fn of(head: &str, delimiter: u8) -> (Self, bool) {
        let quoted = Self::read(head, delimiter, true);
        if delimiter == b'\t' && head.contains('"') {
            let plain = Self::read(head, delimiter, false);
            if plain.most == quoted.most && plain.same * quoted.rows > quoted.same * plain.rows {
                return (plain, false);
            }
        }
        (quoted, true)
    }

    fn read(head: &str, delimiter: u8, is_quoted: bool) -> Self {
        let mut counts = Self { rows: 0, columns: 0, most: 0, same: 0, within: 0, behind: 0, spaced: 0 };
        let mut by_columns: HashMap<usize, usize> = HashMap::new();
        let mut fields = Fields::new(head.as_bytes(), delimiter, is_quoted, &Limits::default());
        let (mut columns, mut first) = (0, 0);
        // Memory cannot fail to be read, and a head is shorter than any limit.
        while let Ok(Some(last)) = fields.next() {
            if columns > 0 {
                counts.behind += 1;
                counts.spaced += usize::from(fields.field().starts_with(b" "));
            }
            columns += 1;
            if last {
                counts.rows += 1;
                first = if first == 0 { columns } else { first };
                counts.within += usize::from((2..=first).contains(&columns));
                *by_columns.entry(columns).or_default() += 1;
                columns = 0;
            }
        }
        // Of equally many rows, the wider ones count.
        let most = by_columns.into_iter().max_by_key(|&(columns, same)| (same, columns));
        (counts.most, counts.same) = most.unwrap_or_default();
        counts.columns = counts.most.max(first);
        counts
    }

    fn agreeing(&self) -> f64 {
        // Some programs leave out the empty values at the end of a row, so that most rows are narrower than the header.
        let same = if self.columns >= 3 { self.same.max(self.within) } else { self.same };
        same as f64 / self.rows.max(1) as f64
    }

    fn is_table(&self) -> bool {
        // Prose has a blank after each comma, but seldom as many of them in every line.
        let is_spaced = self.spaced * 2 > self.behind;
        let is_prose = is_spaced && (self.columns < 3 || self.rows < FEW_ROWS || self.same < self.rows);
        self.columns >= 2 && self.agreeing() >= AGREEING && !is_prose
    }
}

/// Whether lines without a delimiter are the values of one column: short, and no sentences.
fn is_list(head: &str) -> bool {
    let lines = head.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let (mut rows, mut values) = (0, 0);
    for line in lines {
        rows += 1;
        let is_long = line.chars().nth(VALUE_CHARACTERS).is_some();
        values += usize::from(!is_long && !line.ends_with(['.', '!', '?', ',', ';', ':', '{', '}']));
    }
    rows >= 2 && values as f64 >= VALUES * rows as f64
}

/// A table whose rows are read from its beginning as often as they are needed.
pub(crate) struct Table<R> {
    source: R,
    charset: Charset,
    shape: Shape,
    limits: Limits,
}

impl<R: Read + Seek> Table<R> {
    pub(crate) fn open(mut source: R, limits: &Limits) -> Result<Self, FormatError> {
        let length = source.seek(SeekFrom::End(0))?;
        if length > limits.input_bytes {
            let detail = format_args!("over {} bytes", limits.input_bytes);
            return Err(FormatError::over(Limit::InputBytes, detail));
        }
        let charset = Charset::of(&mut source)?;
        source.seek(SeekFrom::Start(0))?;
        let mut head = Vec::new();
        source.by_ref().take(HEAD).read_to_end(&mut head)?;
        let head_text = charset::decode(&head).text;
        let shape = Shape::of(&head_text, length == head.len() as u64);
        let shape = shape.unwrap_or(Shape::LIST);
        Ok(Self { source, charset, shape, limits: limits.clone() })
    }

    pub(crate) fn rows(&mut self) -> Result<Rows<'_>, FormatError> {
        let Shape { delimiter, columns, is_named, is_quoted } = self.shape;
        let bytes = self.charset.reader(&mut self.source)?;
        let may_be_letter = delimiter == b'\t' && is_quoted && columns >= FEWEST_COLUMNS;
        let mut rows = Rows {
            fields: Fields {
                doubted: may_be_letter.then_some(columns),
                ..Fields::new(bytes, delimiter, is_quoted, &self.limits)
            },
            delimiter: char::from(delimiter),
            columns: columns.min(MAX_COLUMN as usize),
        };
        if is_named {
            rows.next(&mut Vec::new())?;
        }
        Ok(rows)
    }
}

/// The rows of a table, from top to bottom; blank lines are none.
pub(crate) struct Rows<'a> {
    fields: Fields<Box<dyn BufRead + 'a>>,
    delimiter: char,
    columns: usize,
}

impl Rows<'_> {
    /// Reads the next row into `values`; returns false at the end.
    ///
    /// What stands behind the last column is appended to it as it is written: somebody forgot quotes, and a wider sheet
    /// would have no header.
    pub(crate) fn next(&mut self, values: &mut Vec<String>) -> Result<bool, FormatError> {
        values.clear();
        let (mut bytes, mut pending) = (0, 0);
        while let Some(last) = self.fields.next()? {
            let field = self.fields.field();
            if values.len() < self.columns {
                values.push(text(field));
            } else {
                pending += 1;
                if let Some(value) = values.last_mut().filter(|_| !field.trim_ascii().is_empty()) {
                    value.extend(std::iter::repeat_n(self.delimiter, pending));
                    value.push_str(&text(field));
                    pending = 0;
                }
            }
            bytes += field.len() + 1;
            check_text(bytes, &self.fields.limits)?;
            if last {
                return Ok(true);
            }
        }
        Ok(!values.is_empty())
    }
}

/// The text of a field. What comes here was decoded, so that every byte is part of a character.
fn text(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    if field.iter().any(|byte| matches!(byte, b'\0' | b'\r')) { charset::clean(&text) } else { text.into_owned() }
}

/// Splits bytes into fields, one at a time, so that no more than one is in memory.
struct Fields<R> {
    source: R,
    core: csv_core::Reader,
    buffer: Vec<u8>,
    length: usize,
    limits: Limits,
    /// The number of columns where tabs part them and a quote may yet be a letter.
    doubted: Option<usize>,
    /// How many fields of its row are before the one that is read.
    before: usize,
    /// The field as it is written, as long as its quote is in doubt.
    raw: Vec<u8>,
    /// What is read once more, and how much of it was.
    again: Vec<u8>,
    again_at: usize,
}

impl<R: BufRead> Fields<R> {
    fn new(source: R, delimiter: u8, is_quoted: bool, limits: &Limits) -> Self {
        let core = ReaderBuilder::new().delimiter(delimiter).quoting(is_quoted).build();
        Self {
            source,
            core,
            buffer: vec![0; 1024],
            length: 0,
            limits: limits.clone(),
            doubted: None,
            before: 0,
            raw: Vec::new(),
            again: Vec::new(),
            again_at: 0,
        }
    }

    /// Reads the next field, and says whether it is the last of its row; `None` at the end.
    fn next(&mut self) -> Result<Option<bool>, FormatError> {
        self.length = 0;
        self.raw.clear();
        let (mut doubted, mut lines) = (self.doubted, 0);
        loop {
            let is_again = self.again_at < self.again.len();
            let input = if is_again { &self.again[self.again_at..] } else { self.source.fill_buf()? };
            let (result, read, written) = self.core.read_field(input, &mut self.buffer[self.length..]);
            if doubted.is_some() {
                self.raw.extend_from_slice(&input[..read]);
                lines += memchr::memchr_iter(b'\n', &input[..read]).count();
            }
            if is_again {
                self.again_at += read;
            } else {
                self.source.consume(read);
            }
            self.length += written;
            let ended = match result {
                ReadFieldResult::Field { record_end } => Some(record_end),
                _ => None,
            };
            if let Some(columns) = doubted.filter(|_| lines >= DOUBTED_LINES || (lines > 0 && ended.is_some())) {
                doubted = None;
                let runs_on = |is_last| runs_on(&self.raw, columns, self.before, is_last);
                if holds_rows(&self.raw, columns) || ended.is_some_and(runs_on) {
                    self.read_again_without_quotes();
                    continue;
                }
            }
            match result {
                ReadFieldResult::InputEmpty => {}
                ReadFieldResult::OutputFull => {
                    check_text(self.length, &self.limits)?;
                    self.buffer.resize(self.buffer.len() * 2, 0);
                }
                ReadFieldResult::Field { record_end } => {
                    self.before = if record_end { 0 } else { self.before + 1 };
                    return Ok(Some(record_end));
                }
                ReadFieldResult::End => return Ok(None),
            }
        }
    }

    /// Begins the open field once more. Its quote is a letter, and so are all behind it.
    fn read_again_without_quotes(&mut self) {
        self.core = ReaderBuilder::new().delimiter(b'\t').quoting(false).build();
        (self.again, self.again_at) = (std::mem::take(&mut self.raw), 0);
        (self.doubted, self.length) = (None, 0);
    }

    /// The field that was read.
    fn field(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// Whether a field is made of rows of so many columns. Its first and its last line are parts of rows.
fn holds_rows(field: &[u8], columns: usize) -> bool {
    let mut lines = field.split(|byte| *byte == b'\n');
    lines.next();
    lines.next_back();
    let (mut all, mut rows) = (0_usize, 0);
    for line in lines {
        all += 1;
        // Lines of a program begin with tabs, too.
        rows += usize::from(!line.starts_with(b"\t") && memchr::memchr_iter(b'\t', line).count() + 1 == columns);
    }
    rows >= FEWEST_ROWS && rows as f64 >= AGREEING * all as f64
}

/// Whether a field, with so many before it in its row, goes through the end of that row into others: no other quote ends it as one ends a value,
/// and each of its lines is a whole row, the first one with what is before the field and the last one with what is behind it.
fn runs_on(field: &[u8], columns: usize, before: usize, is_last: bool) -> bool {
    // Before the first field of a row is the end of the row before, and behind a field is what ends it.
    let is_text = |byte: &u8| !matches!(byte, b'\r' | b'\n');
    let start = field.iter().position(is_text).unwrap_or(field.len());
    let end = field.iter().rposition(is_text).map_or(start, |last| last + 1);
    let field = &field[start..end];
    let field = if is_last { field } else { field.strip_suffix(b"\t").unwrap_or(field) };
    let Some(held) = field.strip_prefix(b"\"").filter(|held| !is_closed(held)) else { return false };
    let parts = |line: &[u8]| memchr::memchr_iter(b'\t', line).count() + 1;
    let lines: Vec<&[u8]> = held.split(|byte| *byte == b'\n').collect();
    let [first, between @ .., last] = &lines[..] else { return false };
    before + parts(first) == columns
        && between.iter().all(|line| parts(line) == columns)
        && if is_last { parts(last) == columns } else { parts(last) < columns }
}

/// Whether the next quote that is not doubled is the last of what a quote holds.
fn is_closed(held: &[u8]) -> bool {
    let mut rest = held;
    while let Some(at) = memchr::memchr(b'"', rest) {
        match rest.get(at + 1) {
            Some(b'"') => rest = &rest[at + 2..],
            behind => return behind.is_none(),
        }
    }
    false
}

#[cfg(test)]
mod tests;
