//! Makes record nodes of a sheet's rows: labelled prose to find them by, typed values to compute with. What is in no record
//! is packed into pieces of the grid.
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value as Json};
use svc_formats::{
    ChunkOptions, TokenCounter, chunk,
    xlsx::{CellRef, LooseCell, LooseRow, Range, Record, Table, Value},
};

/// A node to be made of a sheet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewRow {
    Record(NewRecord),
    Piece(NewPiece),
}

impl NewRow {
    /// The tokens of its text.
    pub fn tokens(&self) -> i64 {
        match self {
            NewRow::Record(record) => record.tokens,
            NewRow::Piece(piece) => piece.tokens,
        }
    }

    /// The texts that the text is cut into.
    pub fn pieces(&self) -> &[(usize, usize, i64)] {
        match self {
            NewRow::Record(record) => &record.pieces,
            NewRow::Piece(_) => &[],
        }
    }
}

/// A record node to be made. It waits in a spool file until all records of its sheet are there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewRecord {
    /// The worksheet's number for the row.
    pub row: u32,
    /// Where its table is among those of the sheet.
    pub table: u32,
    /// Hidden by hand or by a filter.
    pub hidden: bool,
    /// For example `Year: 2019; Ducks: 200`.
    pub prose: String,
    /// Header to value, for the filled cells.
    pub values: Map<String, Json>,
    /// The number of tokens in the prose.
    pub tokens: i64,
    /// The prose in pieces if it is too long for a chunk: byte ranges with their tokens. Otherwise empty.
    pub pieces: Vec<(usize, usize, i64)>,
}

/// A piece of the grid: rows without a header, a line each, as the sheet shows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewPiece {
    pub range: Range,
    pub text: String,
    pub tokens: i64,
}

/// The bounds of a piece of text.
pub struct Fit<'a> {
    pub chunk: &'a ChunkOptions,
    /// How many tokens the model's window holds besides the special ones.
    pub window: usize,
    pub tokens: &'a dyn TokenCounter,
}

/// Makes the node of a row. A row is one text, whatever `max_tokens` says, as long as it fits the model's window and
/// the hard cap of a chunk, because half a row says little. Beyond that it is cut as any text is.
pub fn record(table: &Table, record: &Record, fit: &Fit<'_>) -> NewRecord {
    let prose = prose(table, record);
    let short = prose.chars().nth(fit.chunk.max_chars).is_none();
    // A text over the hard cap is cut in any case, so it is not worth counting as a whole.
    let tokens = if short { fit.tokens.count(&prose) } else { usize::MAX };
    let (tokens, pieces) = if tokens <= fit.window {
        (tokens, Vec::new())
    } else {
        let options = ChunkOptions { max_tokens: fit.chunk.max_tokens.min(fit.window), ..fit.chunk.clone() };
        let chunks = chunk(&prose, 0..prose.len(), &options, fit.tokens);
        let sum = chunks.iter().map(|chunk| chunk.tokens).sum();
        (sum, chunks.iter().map(|chunk| (chunk.start, chunk.end, count(chunk.tokens))).collect())
    };
    NewRecord {
        row: record.row,
        table: record.table,
        hidden: record.hidden,
        prose,
        values: values(table, record),
        tokens: count(tokens),
        pieces,
    }
}

fn count(tokens: usize) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// For example `Year: 2019; Ducks: 200`: the values as the sheet shows them, in the order of the columns.
fn prose(table: &Table, record: &Record) -> String {
    let mut prose = String::new();
    for cell in &record.cells {
        let shown = one_line(cell.shown());
        let Some(column) = table.columns.get(cell.column as usize).filter(|_| !shown.is_empty()) else { continue };
        if !prose.is_empty() {
            prose.push_str("; ");
        }
        prose.push_str(one_line(&column.header).trim_end_matches(':').trim_end());
        prose.push_str(": ");
        prose.push_str(&shown);
    }
    prose
}

/// The filled cells by their column's header. A formula without a stored value is null.
fn values(table: &Table, record: &Record) -> Map<String, Json> {
    let cells = record.cells.iter().filter_map(|cell| {
        let header = &table.columns.get(cell.column as usize)?.header;
        Some((header.clone(), cell.value.as_ref().map_or(Json::Null, json)))
    });
    cells.collect()
}

/// Packs rows of a grid into pieces that are no larger than a chunk.
#[derive(Default)]
pub struct Packer {
    text: String,
    tokens: usize,
    /// The cells of the text so far.
    range: Option<Range>,
}

impl Packer {
    /// Adds a row; returns the pieces that are full.
    pub fn add(&mut self, row: &LooseRow, fit: &Fit<'_>) -> Vec<NewPiece> {
        let cell = |at: Option<&LooseCell>| CellRef::new(row.row, at?.column);
        let (Some(first), Some(last)) = (cell(row.cells.first()), cell(row.cells.last())) else { return Vec::new() };
        let texts: Vec<String> = row.cells.iter().map(|cell| one_line(&cell.text)).collect();
        let line = texts.join(" | ");
        let range = Range::new(first, last);
        let most = fit.chunk.max_tokens.min(fit.window);
        let is_short = line.chars().nth(fit.chunk.max_chars).is_none();
        let tokens = if is_short { fit.tokens.count(&line) } else { usize::MAX };
        // Rows that blank ones part, or a table, are seldom about one matter.
        let is_apart = self.range.is_some_and(|range| range.last().row() + 1 < row.row || row.row < range.last().row());
        let characters = self.text.chars().count() + 1 + if is_short { line.chars().count() } else { 0 };
        let mut full = Vec::new();
        if is_apart || tokens.saturating_add(self.tokens) > most || characters > fit.chunk.max_chars {
            full.extend(self.rest(fit));
        }
        if tokens > most {
            let options = ChunkOptions { max_tokens: most, ..fit.chunk.clone() };
            let pieces = chunk(&line, 0..line.len(), &options, fit.tokens).into_iter();
            full.extend(pieces.map(|piece| NewPiece {
                range,
                text: line[piece.start..piece.end].to_owned(),
                tokens: count(piece.tokens),
            }));
            return full;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&line);
        self.tokens += tokens;
        self.range = Some(self.range.map_or(range, |before| before.hull(range)));
        full
    }

    /// The piece that is still open.
    pub fn rest(&mut self, fit: &Fit<'_>) -> Option<NewPiece> {
        let Packer { text, range, .. } = std::mem::take(self);
        let tokens = count(fit.tokens.count(&text));
        range.map(|range| NewPiece { range, text, tokens })
    }
}

/// A cell's value as JSON: numbers and booleans as such, dates and durations in ISO 8601, errors as `#DIV/0!`.
pub fn json(value: &Value) -> Json {
    match value {
        Value::Text(text) | Value::Date(text) | Value::Error(text) => text.as_str().into(),
        Value::Number(number) => number_json(*number),
        Value::Boolean(boolean) => (*boolean).into(),
        Value::Duration(duration) => duration.to_string().into(),
    }
}

/// A whole number without its fraction of zero, within the range that a double represents exactly.
fn number_json(number: f64) -> Json {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return (number as i64).into();
    }
    Number::from_f64(number).map_or(Json::Null, Json::Number)
}

/// Replaces white space of any kind by single spaces, so that a record stays a line.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || c == '\0').filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use svc_formats::xlsx::{Duration, RecordCell, RecordColumn};

    fn head(headers: &[&str]) -> Table {
        let columns = headers
            .iter()
            .zip('A'..)
            .map(|(header, column)| RecordColumn { column: column.into(), header: (*header).into() })
            .collect();
        Table {
            range: "A1:C3".parse().expect("a range"),
            header_rows: vec![1],
            columns,
            titles: Vec::new(),
            totals_row: None,
            renamed: Vec::new(),
            reason: String::new(),
        }
    }

    fn row(cells: Vec<(u32, Option<Value>, Option<&str>)>) -> Record {
        let cells =
            cells.into_iter().map(|(column, value, text)| RecordCell { column, value, text: text.map(Into::into) });
        Record { row: 2, table: 0, hidden: false, cells: cells.collect() }
    }

    fn words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn make(head: &Table, row: &Record, max_chars: usize) -> NewRecord {
        let chunk = ChunkOptions { max_chars, max_tokens: 10, min_chunk_length: 0, ..ChunkOptions::default() };
        record(head, row, &Fit { chunk: &chunk, window: 100, tokens: &words })
    }

    #[test]
    fn a_row_is_a_line_of_prose_and_its_typed_values() {
        let head = head(&["Year:", "Seen on", "Took", "Late", "Ratio", "Note"]);
        let row = row(vec![
            (0, Some(Value::Number(2019.0)), Some("2019")),
            (1, Some(Value::Date("2019-05-04T00:00:00".into())), Some("4 May 2019")),
            (2, Some(Value::Duration(Duration { milliseconds: 90_000 })), Some("0:01:30")),
            (3, Some(Value::Boolean(true)), Some("TRUE")),
            (4, Some(Value::Error("#DIV/0!".into())), Some("#DIV/0!")),
            (5, Some(Value::Text("two\nlines of\ttext".into())), None),
        ]);
        let made = make(&head, &row, 1800);
        assert_eq!(
            made.prose,
            "Year: 2019; Seen on: 4 May 2019; Took: 0:01:30; Late: TRUE; Ratio: #DIV/0!; Note: two lines of text"
        );
        let expected = json!({"Year:": 2019, "Seen on": "2019-05-04T00:00:00", "Took": "PT1M30S", "Late": true,
                              "Ratio": "#DIV/0!", "Note": "two\nlines of\ttext"});
        assert_eq!(Json::Object(made.values), expected);
        assert_eq!((made.row, made.pieces.len(), made.tokens), (2, 0, 18));
    }

    #[test]
    fn what_a_formula_never_calculated_is_null_and_not_said() {
        let made =
            make(&head(&["a", "b"]), &row(vec![(0, None, None), (1, Some(Value::Number(0.5)), Some("50%"))]), 1800);
        assert_eq!((made.prose.as_str(), Json::Object(made.values)), ("b: 50%", json!({"a": null, "b": 0.5})));
    }

    #[test]
    fn a_long_row_is_cut_into_pieces_that_hold_all_of_it() {
        let text = "A sentence of some words stands here. ".repeat(40);
        let made = make(&head(&["Note"]), &row(vec![(0, Some(Value::Text(text.clone())), None)]), 1800);
        assert!(made.pieces.len() > 10, "{} pieces", made.pieces.len());
        let mut at = 0;
        for (start, end, _) in &made.pieces {
            assert!(made.prose[at..*start].trim().is_empty(), "nothing is left out between pieces");
            assert!(words(&made.prose[*start..*end]) <= 12);
            at = *end;
        }
        assert_eq!(at, made.prose.trim_end().len());
        assert_eq!(made.tokens, made.pieces.iter().map(|piece| piece.2).sum::<i64>());
        let by_characters = make(&head(&["Note"]), &row(vec![(0, Some(Value::Text("x".repeat(500))), None)]), 100);
        assert!(by_characters.pieces.len() >= 5, "{:?}", by_characters.pieces);
    }

    #[test]
    fn a_grid_is_packed_into_pieces_that_hold_all_of_it() {
        let chunk = ChunkOptions { max_chars: 200, max_tokens: 12, min_chunk_length: 0, ..ChunkOptions::default() };
        let fit = Fit { chunk: &chunk, window: 100, tokens: &words };
        let long = "a sentence of words. ".repeat(9);
        let lines: [(u32, &[&str]); 6] = [
            (1, &["Ducks"]),
            (2, &["Mill", "14"]),
            (3, &[&long]),
            (4, &["Lock\npond", "3"]),
            (9, &["note"]),
            (10, &["x", "y"]),
        ];
        let mut packer = Packer::default();
        let mut pieces = Vec::new();
        for (row, texts) in lines {
            let cells = (2..).zip(texts).map(|(column, text)| LooseCell { column, text: (*text).to_owned() }).collect();
            pieces.extend(packer.add(&LooseRow { row, cells }, &fit));
        }
        pieces.extend(packer.rest(&fit));
        assert!(packer.rest(&fit).is_none());
        let shown: Vec<_> = pieces.iter().map(|piece| (piece.range.to_string(), piece.text.as_str())).collect();
        assert_eq!(shown[0], ("B1:C2".to_owned(), "Ducks\nMill | 14"));
        assert_eq!(shown[shown.len() - 2], ("B4:C4".to_owned(), "Lock pond | 3"));
        assert_eq!(shown[shown.len() - 1], ("B9:C10".to_owned(), "note\nx | y"));
        let of_long = &shown[1..shown.len() - 2];
        assert!(of_long.len() > 2 && of_long.iter().all(|(range, _)| range == "B3:B3"), "{of_long:?}");
        let joined: Vec<&str> = of_long.iter().flat_map(|(_, text)| text.split_whitespace()).collect();
        assert_eq!(joined, long.split_whitespace().collect::<Vec<_>>());
        assert!(pieces.iter().all(|piece| piece.tokens == words(&piece.text) as i64 && piece.tokens <= 12));
    }

    #[test]
    fn large_and_odd_numbers_keep_their_value() {
        for (number, expected) in [
            (0.0, json!(0)),
            (-3.0, json!(-3)),
            (0.1, json!(0.1)),
            (1e300, json!(1e300)),
            (9e15, json!(9_000_000_000_000_000i64)),
        ] {
            assert_eq!(json(&Value::Number(number)), expected);
        }
        assert_eq!(json(&Value::Number(f64::NAN)), Json::Null);
    }
}
