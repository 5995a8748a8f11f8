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
}

impl Shape {
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
            return Some(Self { delimiter, columns: Counts::of(rest, delimiter).columns.max(1), is_named: true });
        }
        let mut best: Option<(Counts, u8)> = None;
        for delimiter in DELIMITERS {
            let counts = Counts::of(head, delimiter);
            if counts.is_table() && best.as_ref().is_none_or(|(best, _)| counts.agreeing() > best.agreeing()) {
                best = Some((counts, delimiter));
            }
        }
        match best {
            Some((counts, delimiter)) => Some(Self { delimiter, columns: counts.columns, is_named: false }),
            None => is_list(head).then_some(Self { delimiter: b',', columns: 1, is_named: false }),
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
    /// How many rows have the number of values that most have.
    same: usize,
    /// How many rows have two values or more, and no more than the first.
    within: usize,
    /// Values behind a delimiter, and those of them that begin with a blank.
    behind: usize,
    spaced: usize,
}

impl Counts {
    fn of(head: &str, delimiter: u8) -> Self {
        let mut counts = Self { rows: 0, columns: 0, same: 0, within: 0, behind: 0, spaced: 0 };
        let mut by_columns: HashMap<usize, usize> = HashMap::new();
        let mut fields = Fields::new(head.as_bytes(), delimiter, &Limits::default());
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
        (counts.columns, counts.same) = most.unwrap_or_default();
        counts.columns = counts.columns.max(first);
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
        let shape = shape.unwrap_or(Shape { delimiter: b',', columns: 1, is_named: false });
        Ok(Self { source, charset, shape, limits: limits.clone() })
    }

    pub(crate) fn rows(&mut self) -> Result<Rows<'_>, FormatError> {
        let Shape { delimiter, columns, is_named } = self.shape;
        let bytes = self.charset.reader(&mut self.source)?;
        let mut rows = Rows {
            fields: Fields::new(bytes, delimiter, &self.limits),
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
}

impl<R: BufRead> Fields<R> {
    fn new(source: R, delimiter: u8, limits: &Limits) -> Self {
        let core = ReaderBuilder::new().delimiter(delimiter).build();
        Self { source, core, buffer: vec![0; 1024], length: 0, limits: limits.clone() }
    }

    /// Reads the next field, and says whether it is the last of its row; `None` at the end.
    fn next(&mut self) -> Result<Option<bool>, FormatError> {
        self.length = 0;
        loop {
            let input = self.source.fill_buf()?;
            let (result, read, written) = self.core.read_field(input, &mut self.buffer[self.length..]);
            self.source.consume(read);
            self.length += written;
            match result {
                ReadFieldResult::InputEmpty => {}
                ReadFieldResult::OutputFull => {
                    check_text(self.length, &self.limits)?;
                    self.buffer.resize(self.buffer.len() * 2, 0);
                }
                ReadFieldResult::Field { record_end } => return Ok(Some(record_end)),
                ReadFieldResult::End => return Ok(None),
            }
        }
    }

    /// The field that was read.
    fn field(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

#[cfg(test)]
mod tests;
