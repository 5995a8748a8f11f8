//! Reads rows below a header as records.

use super::{
    outline::Outline,
    range::{CellRef, Range, column_letters, column_number},
    regions::Finder,
    sheet::{HeaderEvidence, SheetProfile},
    tables::{Layout, Table, Untitled},
    value::{Interpreter, Seen, Value},
    workbook::{Opened, Sheet},
    worksheet::{Item, RawCell},
};
use crate::{FormatError, Limits, extraction::check_text};
use serde::{Deserialize, Serialize};

/// What a reading of records emits: a head, then batches from top to bottom, an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsPart {
    Head(RecordsHead),
    /// Bounded in rows and bytes, and not empty.
    Batch(Vec<Record>),
    /// What is in no record, row by row; bounded like records, and not empty. No cell is, if tables are not looked for
    /// or the first row is a header. The texts of boxes on the sheet come last.
    Loose(Vec<LooseRow>),
    /// All were emitted; this is the number of records.
    End {
        records: u64,
    },
}

/// What comes before the records of a sheet. If the sheet has no table, no record follows and the evidence says why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordsHead {
    pub sheet: Sheet,
    pub used_range: Option<Range>,
    /// Whether the first row names the columns of the whole sheet, which then is one table.
    pub header: HeaderEvidence,
    /// From top to bottom.
    pub tables: Vec<Table>,
    /// Blocks of cells that are no tables.
    pub others: Vec<Untitled>,
    /// Why no tables were looked for, although the first row is no header.
    pub unsearched: Option<String>,
}

/// A column and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordColumn {
    /// The column's letters.
    pub column: String,
    pub header: String,
}

/// A row with at least one value that is not a blank text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The worksheet's number for the row.
    pub row: u32,
    /// Hidden by hand or by a filter.
    pub hidden: bool,
    /// An index into [`RecordsHead::tables`].
    pub table: u32,
    /// From left to right, without empty and blank ones.
    pub cells: Vec<RecordCell>,
}

/// A row's cells that are in no record: of a title, a header, a note, or of a block without a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LooseRow {
    /// The worksheet's number for the row.
    pub row: u32,
    /// From left to right, without those that show nothing.
    pub cells: Vec<LooseCell>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LooseCell {
    /// Counted from 1.
    pub column: u32,
    /// The value as the sheet shows it.
    pub text: String,
}

/// A filled cell of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordCell {
    /// An index into the columns of the record's table.
    pub column: u32,
    /// `None` for a formula without a stored value.
    pub value: Option<Value>,
    /// The value as the sheet shows it; left out if it is the text that `value` already holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl RecordCell {
    /// The value as the sheet shows it.
    pub fn shown(&self) -> &str {
        match (&self.text, &self.value) {
            (Some(text), _) | (None, Some(Value::Text(text))) => text,
            _ => "",
        }
    }
}

/// A batch ends after this many records, or this many bytes of text.
const BATCH_RECORDS: usize = 500;
const BATCH_BYTES: usize = 512 << 10;
/// A sheet whose every row has cells beside a table would otherwise come row by row.
const EARLY_BATCHES: u32 = 64;

/// Emits the records of a sheet. A first pass finds the used range and the header; where the first row is none, a second
/// finds the tables. The last pass reads the rows.
pub(super) fn records(
    mut opened: Opened<'_>,
    index: u32,
    tables: bool,
    limits: &Limits,
    emit: &mut dyn FnMut(RecordsPart) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let sheet = opened.sheet(index)?;
    let interpreter = opened.interpreter(limits)?;
    let mut outline = Outline::default();
    let mut worksheet = opened.scan(index, limits)?;
    while let Some(item) = worksheet.next()? {
        if let Item::Cell(at, raw) = item {
            outline.add(at, raw);
        }
    }
    drop(worksheet);
    let (header, names) = outline.header(&interpreter);
    let used_range = outline.used();
    let mut head = RecordsHead { sheet, used_range, header, tables: Vec::new(), others: Vec::new(), unsearched: None };
    let looks_further = tables && !head.header.is_header && used_range.is_some();
    if looks_further {
        match find(&mut opened, index, &interpreter, limits)? {
            Ok(Layout { tables, others }) => (head.tables, head.others) = (tables, others),
            Err(reason) => head.unsearched = Some(reason),
        }
    } else if let (true, Some(range), Some(row)) = (head.header.is_header, used_range, head.header.row) {
        let columns = (range.first().column()..).zip(names);
        head.tables.push(Table {
            range,
            header_rows: vec![row],
            columns: columns.map(|(column, header)| RecordColumn { column: column_letters(column), header }).collect(),
            titles: Vec::new(),
            totals_row: None,
            renamed: Vec::new(),
            reason: head.header.reason.clone(),
        });
    }
    let mut places = Places::of(&head.tables);
    emit(RecordsPart::Head(head))?;
    let mut batch = Batch { records: Vec::new(), loose: Vec::new(), bytes: 0, early: 0, emit, count: 0 };
    if looks_further || !places.all.is_empty() {
        let mut worksheet = opened.scan(index, limits)?;
        let mut hidden_row = false;
        while let Some(item) = worksheet.next()? {
            match item {
                Item::Row { hidden, .. } => hidden_row = hidden,
                Item::Cell(at, raw) => match places.of_cell(at) {
                    Place::Column { table, column } => {
                        if let Some(cell) = record_cell(column, raw, &interpreter) {
                            batch.add(at.row(), hidden_row, table, cell)?;
                        }
                    }
                    Place::Loose if looks_further => {
                        let Some(value) = interpreter.value(raw) else { continue };
                        let text = interpreter.shown(raw, &value);
                        if !text.trim().is_empty() {
                            check_text(text.len(), limits)?;
                            batch.add_loose(at, text.into_owned())?;
                        }
                    }
                    Place::Loose => {}
                },
                _ => {}
            }
        }
    }
    batch.flush()?;
    let records = batch.count;
    let mut boxes = match opened.boxes(index, limits) {
        Ok(boxes) if tables => boxes,
        // A drawing that is damaged keeps nobody from the cells; one that costs too much does.
        Err(error) if error.limit().is_some() => return Err(error),
        _ => Vec::new(),
    };
    boxes.sort_by_key(|shown| (shown.row, shown.cells.first().map(|cell| cell.column)));
    for boxes in boxes.chunks(BATCH_RECORDS) {
        emit(RecordsPart::Loose(boxes.to_vec()))?;
    }
    emit(RecordsPart::End { records })
}

/// The tables of a sheet, or why none were looked for.
fn find(
    opened: &mut Opened<'_>,
    sheet: u32,
    interpreter: &Interpreter,
    limits: &Limits,
) -> Result<Result<Layout, String>, FormatError> {
    let mut finder = Finder::default();
    let mut merged = Vec::new();
    let mut worksheet = opened.scan(sheet, limits)?;
    while let Some(item) = worksheet.next()? {
        match item {
            Item::Cell(at, raw) => finder.add(at, raw, interpreter),
            Item::Merged(range) if merged.len() < SheetProfile::MAX_MERGED => merged.push(range),
            _ => {}
        }
    }
    Ok(finder.finish().map(|regions| Layout::of(regions, &merged)))
}

/// Where a cell belongs.
enum Place {
    Column { table: u32, column: u32 },
    Loose,
}

/// Finds the table of a cell by its place.
struct Places {
    all: Vec<Extent>,
    /// The tables with the present row, from left to right.
    open: Vec<usize>,
    row: u32,
    /// The first table that begins below the present row.
    next: usize,
}

/// The rows of a table below its header, and where its columns are among those of the sheet.
struct Extent {
    range: Range,
    header: u32,
    columns: Vec<Option<u32>>,
}

impl Places {
    fn of(tables: &[Table]) -> Self {
        let extent = |table: &Table| {
            let mut columns = vec![None; table.range.width() as usize];
            for (index, column) in (0..).zip(&table.columns) {
                let at =
                    column_number(&column.column).and_then(|number| number.checked_sub(table.range.first().column()));
                if let Some(slot) = at.and_then(|at| columns.get_mut(at as usize)) {
                    *slot = Some(index);
                }
            }
            Extent { range: table.range, header: table.header_rows.last().copied().unwrap_or_default(), columns }
        };
        Self { all: tables.iter().map(extent).collect(), open: Vec::new(), row: 0, next: 0 }
    }

    fn of_cell(&mut self, at: CellRef) -> Place {
        if at.row() != self.row {
            self.go_to(at.row());
        }
        let after = self.open.partition_point(|table| self.all[*table].range.first().column() <= at.column());
        let Some(&table) = after.checked_sub(1).and_then(|before| self.open.get(before)) else { return Place::Loose };
        let extent = &self.all[table];
        let column = extent.columns.get((at.column() - extent.range.first().column()) as usize).copied().flatten();
        match (column, u32::try_from(table)) {
            (Some(column), Ok(table)) if at.row() > extent.header => Place::Column { table, column },
            _ => Place::Loose,
        }
    }

    fn go_to(&mut self, row: u32) {
        if row < self.row {
            // Rows of a damaged sheet need not ascend.
            self.open.clear();
            self.next = 0;
        }
        self.row = row;
        self.open.retain(|table| self.all[*table].range.last().row() >= row);
        while self.all.get(self.next).is_some_and(|extent| extent.range.first().row() <= row) {
            if self.all[self.next].range.last().row() >= row {
                let column = |table: &usize| self.all[*table].range.first().column();
                let at = self.open.partition_point(|open| column(open) < column(&self.next));
                self.open.insert(at, self.next);
            }
            self.next += 1;
        }
    }
}

fn record_cell(column: u32, raw: &RawCell, interpreter: &Interpreter) -> Option<RecordCell> {
    let seen = interpreter.value(raw);
    let text = match &seen {
        // A blank text is not worth recording.
        Some(Seen::Text(text)) if text.trim().is_empty() => return None,
        Some(value) => {
            let shown = interpreter.shown(raw, value);
            match value {
                Seen::Text(text) if *text == shown => None,
                _ => Some(shown.into_owned()),
            }
        }
        None => None,
    };
    Some(RecordCell { column, value: seen.map(|value| value.to_value()), text })
}

/// Gathers cells into rows and rows into batches.
struct Batch<'a> {
    records: Vec<Record>,
    loose: Vec<LooseRow>,
    bytes: usize,
    /// How many batches ended because what followed is of the other kind.
    early: u32,
    emit: &'a mut dyn FnMut(RecordsPart) -> Result<(), FormatError>,
    count: u64,
}

impl Batch<'_> {
    fn add(&mut self, row: u32, hidden: bool, table: u32, cell: RecordCell) -> Result<(), FormatError> {
        self.begin(row, self.records.is_empty() && !self.loose.is_empty())?;
        // The memory of a cell besides its text.
        self.bytes += 64 + cell.shown().len();
        let mut last = self.records.iter_mut().rev().take_while(|record| record.row == row);
        match last.find(|record| record.table == table) {
            Some(record) => record.cells.push(cell),
            None => self.records.push(Record { row, hidden, table, cells: vec![cell] }),
        }
        Ok(())
    }

    fn add_loose(&mut self, at: CellRef, text: String) -> Result<(), FormatError> {
        self.begin(at.row(), self.loose.is_empty() && !self.records.is_empty())?;
        self.bytes += 64 + text.len();
        let cell = LooseCell { column: at.column(), text };
        match self.loose.last_mut().filter(|loose| loose.row == at.row()) {
            Some(loose) => loose.cells.push(cell),
            None => self.loose.push(LooseRow { row: at.row(), cells: vec![cell] }),
        }
        Ok(())
    }

    /// Before a new row, hands out a batch that is full, or one of the other kind, so that the parts of a sheet keep their
    /// order.
    fn begin(&mut self, row: u32, is_other: bool) -> Result<(), FormatError> {
        let last = self.records.last().map(|record| record.row).max(self.loose.last().map(|loose| loose.row));
        let is_full = self.records.len() + self.loose.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES;
        let is_early = is_other && self.early < EARLY_BATCHES;
        if (!is_full && !is_early) || last == Some(row) {
            return Ok(());
        }
        self.early += u32::from(!is_full);
        self.flush()
    }

    /// Loose rows come before the records of the same batch, as a title comes before its table. A row of formulas that all
    /// lack a value is no record, because it says nothing.
    fn flush(&mut self) -> Result<(), FormatError> {
        self.bytes = 0;
        if !self.loose.is_empty() {
            (self.emit)(RecordsPart::Loose(std::mem::take(&mut self.loose)))?;
        }
        self.records.retain(|record| record.cells.iter().any(|cell| cell.value.is_some()));
        if self.records.is_empty() {
            return Ok(());
        }
        self.count += self.records.len() as u64;
        (self.emit)(RecordsPart::Batch(std::mem::take(&mut self.records)))
    }
}
