//! Cells of stored workbooks.
mod grid;

use crate::{
    access::Caller,
    error::OrFail,
    ingest::records::json,
    reader::limits,
    registry::Handle,
    service::Service,
    store::{self, blobs::BlobRow, evidence::Evidence},
    words,
};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{CellType, CellsQuery, CellsResponse, MAX_CELLS, RefSource, Settled},
};
use svc_formats::{
    Format, FormatError,
    isolated::{Answer, Request, Step},
    xlsx::{self, Cells, Range, Reference, Sheet, column_letters},
};
use svc_ids::DocumentId;

/// How long reading a rectangle may take; all of a large sheet comes before its last row.
const WALL_TIME: Duration = Duration::from_secs(30);

impl Handle<ops::read_cells> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_cells>) -> Result<CellsResponse, Failure> {
        let id = DocumentId(call.path.id);
        let (workbook, wanted) = {
            let mut conn = self.pool.acquire().await.or_fail()?;
            let scope = caller.readable();
            store::documents::read(&mut conn, &scope, id, false)
                .await
                .or_fail()?
                .ok_or_else(|| Failure::no_document(id.0))?;
            let file = store::sheets::file_of(&mut conn, id).await.or_fail()?.ok_or_else(|| not_a_workbook(id))?;
            // The file is read, so the caller must be allowed to read the file and not only the node. If the caller
            // may not read the file, answer as if there were none.
            let read = store::documents::read(&mut conn, &scope, file.document_id, false).await.or_fail()?;
            let read = read.ok_or_else(|| not_a_workbook(id))?;
            let workbook = Workbook::open(&mut conn, id, file, read.settled.0).await?;
            let wanted = workbook.choose(&mut conn, id, &call.query).await?;
            (workbook, wanted)
        };
        let cells = match wanted.range {
            Some(range) => {
                check_area(range)?;
                Some(read(self, caller, &workbook.file, wanted.sheet.index, range).await?)
            }
            None => None,
        };
        Ok(respond(id, &workbook, &wanted, cells.as_ref()))
    }
}

fn not_a_workbook(id: DocumentId) -> Failure {
    Failure::new(Code::NotAWorkbook, format!("document {id} is in no workbook (xlsx, xlsb, xls, ods, csv or tsv)"))
        .with("remedy", "ask for a workbook, one of its sheets or one of their records")
}

/// A workbook as its structure task recorded it.
struct Workbook {
    file: BlobRow,
    sheets: Vec<Sheet>,
    date_epoch: u16,
}

#[derive(Deserialize)]
struct Recorded {
    sheets: Vec<Sheet>,
    date_epoch: u16,
}

/// The rectangle that a call is about; `None` if its sheet is empty.
struct Wanted {
    sheet: Sheet,
    range: Option<Range>,
    source: RefSource,
}

impl Workbook {
    async fn open(
        conn: &mut sqlx::PgConnection,
        id: DocumentId,
        file: BlobRow,
        settled: Settled,
    ) -> Result<Workbook, Failure> {
        let recorded = store::evidence::read_one(conn, file.document_id, Evidence::StructureSheets).await.or_fail()?;
        let recorded = recorded.and_then(|value| serde_json::from_value::<Recorded>(value).ok());
        let format = match recorded {
            // Bytes keep the format that they arrived with, so that one of an older reader may say another.
            Some(Recorded { sheets, date_epoch }) => return Ok(Workbook { file, sheets, date_epoch }),
            None => file.format.as_deref().and_then(|format| format.parse::<Format>().ok()),
        };
        match format.is_some_and(Format::has_sheets) {
            true => Err(not_yet(settled, "the workbook's sheets are not known")),
            false => Err(not_a_workbook(id)),
        }
    }

    async fn choose(
        &self,
        conn: &mut sqlx::PgConnection,
        id: DocumentId,
        query: &CellsQuery,
    ) -> Result<Wanted, Failure> {
        let own = store::sheets::cells_of(conn, self.file.document_id, id).await.or_fail()?;
        let asked = query.reference.as_deref().map(|text| reference("ref", text)).transpose()?;
        let of_ref = asked.as_ref().and_then(|reference| reference.sheet.as_deref());
        let sheet = match (query.sheet.as_deref(), of_ref, &own) {
            (Some(name), other, _) => {
                let sheet = self.named("sheet", name)?;
                if let Some(other) = other
                    && self.named("ref", other)? != sheet
                {
                    return Err(Failure::field(
                        "ref",
                        format!("it names the sheet `{other}`, but `sheet` names `{name}`"),
                    ));
                }
                sheet
            }
            (None, Some(name), _) => self.named("ref", name)?,
            (None, None, Some((index, _))) => {
                self.sheets.iter().find(|sheet| i64::from(sheet.index) == i64::from(*index)).ok_or_else(no_sheet)?
            }
            (None, None, None) => self.sheets.first().ok_or_else(no_sheet)?,
        };
        let is_own = own.as_ref().is_some_and(|(index, _)| i64::from(*index) == i64::from(sheet.index));
        let anchor = own.and_then(|(_, cells)| cells).filter(|_| is_own);
        let (range, source) = match (asked, anchor) {
            (Some(reference), _) => (Some(reference.range), RefSource::Ref),
            (None, Some(cells)) => (Some(reference("anchor", &cells)?.range), RefSource::Anchor),
            (None, None) => (self.used_range(conn, sheet).await?, RefSource::UsedRange),
        };
        Ok(Wanted { sheet: sheet.clone(), range, source })
    }

    fn named(&self, field: &str, name: &str) -> Result<&Sheet, Failure> {
        let alike = |sheet: &&Sheet| sheet.name.to_lowercase() == name.to_lowercase();
        let found = self.sheets.iter().find(|sheet| sheet.name == name).or_else(|| self.sheets.iter().find(alike));
        found.ok_or_else(|| {
            let known: Vec<&str> = self.sheets.iter().take(50).map(|sheet| sheet.name.as_str()).collect();
            Failure::field(field, format!("the workbook has no worksheet `{name}`")).with("sheets", known)
        })
    }

    async fn used_range(&self, conn: &mut sqlx::PgConnection, sheet: &Sheet) -> Result<Option<Range>, Failure> {
        let index = i32::try_from(sheet.index).unwrap_or(i32::MAX);
        match store::sheets::profile(conn, self.file.document_id, index).await.or_fail()? {
            Some(profile) => Ok(serde_json::from_value(profile["used_range"].clone()).unwrap_or_default()),
            None => Err(not_yet(Settled::InFlight, "the sheet's used range is not known")),
        }
    }
}

fn no_sheet() -> Failure {
    Failure::new(Code::NotAWorkbook, "the workbook has no worksheet")
}

fn not_yet(settled: Settled, what: &str) -> Failure {
    if settled == Settled::Failed {
        let detail = format!("{what}, since the file could not be read; its evidence has the reason");
        return Failure::new(Code::Conflict, detail)
            .with("remedy", "read the evidence of the file, repair the file, and upload it again");
    }
    Failure::new(Code::Conflict, format!("{what} yet, or could not be read; the evidence says which"))
        .with("remedy", "try again when the workbook is settled, or name a `ref`")
        .with("retry_after", 2)
}

fn reference(field: &str, text: &str) -> Result<Reference, Failure> {
    text.parse::<Reference>().map_err(|error| Failure::field(field, error).with("ref", text))
}

/// Checks only the rectangle, before any byte is read, so that the answer to the same call never depends on what the
/// file holds.
fn check_area(range: Range) -> Result<(), Failure> {
    let cells = range.area();
    if cells <= MAX_CELLS {
        return Ok(());
    }
    Err(Failure::new(Code::TooLarge, format!("{range} spans {cells} cells; at most {MAX_CELLS} are read at once"))
        .with("limit", MAX_CELLS)
        .with("cells", cells)
        .with("ref", range.to_string())
        .with("remedy", "ask for a smaller range with `ref`"))
}

async fn read(service: &Service, caller: &Caller, file: &BlobRow, sheet: u32, range: Range) -> Result<Cells, Failure> {
    let _permit = service.admission.reader(caller.principal_id()).await?;
    let file = service.spool.open(&service.pool, file).await.or_fail()?;
    let input = file.as_workbook().or_fail()?;
    let mut limits = limits(&service.settings);
    limits.wall_time = limits.wall_time.min(WALL_TIME);
    limits.cpu_time = limits.cpu_time.min(WALL_TIME);
    let request = Request::new(Step::Cells { sheet, range }, limits);
    match service.reader.read(input, &request).await {
        Ok((Answer::Cells(cells), _)) => Ok(cells),
        Ok(_) => Err(Failure::new(Code::Internal, "the reader sent an answer of another kind")),
        Err(error) => Err(refused(&error)),
    }
}

/// Why the cells could not be read: a limit is 413, and damage is reported as the file's.
fn refused(error: &FormatError) -> Failure {
    match error.limit() {
        Some(limit) => Failure::new(Code::TooLarge, error)
            .with("limit", limit.as_str())
            .with("remedy", "ask for a smaller range with `ref`"),
        None if error.is_permanent() => {
            Failure::new(Code::NotAWorkbook, format!("the sheet cannot be read: {error}")).with("reason", error.code())
        }
        None => Failure::new(Code::Unavailable, "the sheet could not be read now").with("retry_after", 2),
    }
}

fn respond(id: DocumentId, workbook: &Workbook, wanted: &Wanted, cells: Option<&Cells>) -> CellsResponse {
    let mut response = CellsResponse {
        document_id: id.0,
        workbook_id: workbook.file.document_id.0,
        sheet: wanted.sheet.name.clone(),
        sheet_index: wanted.sheet.index,
        state: words::sheet_state(wanted.sheet.state),
        date_epoch: workbook.date_epoch,
        reference: wanted.range.map(|range| range.to_string()),
        ref_source: wanted.source,
        columns: Vec::new(),
        rows: Vec::new(),
        values: Vec::new(),
        formulas: Vec::new(),
        types: BTreeMap::new(),
        number_formats: BTreeMap::new(),
        merged: None,
        hidden_rows: Vec::new(),
        grid: String::new(),
    };
    let (Some(range), Some(cells)) = (wanted.range, cells) else { return response };
    response.columns = (range.first().column()..=range.last().column()).map(column_letters).collect();
    response.rows = (range.first().row()..=range.last().row()).collect();
    response.values = vec![vec![Value::Null; response.columns.len()]; response.rows.len()];
    response.formulas = vec![vec![None; response.columns.len()]; response.rows.len()];
    response.merged = cells.merged.as_ref().map(|merged| merged.iter().map(Range::to_string).collect());
    response.hidden_rows = cells.rows.iter().filter(|row| row.hidden).map(|row| row.row).collect();
    for cell in cells.rows.iter().flat_map(|row| &row.cells).filter(|cell| range.contains(cell.cell)) {
        let row = (cell.cell.row() - range.first().row()) as usize;
        let column = (cell.cell.column() - range.first().column()) as usize;
        response.formulas[row][column] = cell.formula.clone();
        if let Some(value) = &cell.value {
            response.values[row][column] = json(value);
            if let Some(kind) = cell_type(value) {
                response.types.insert(cell.cell.to_string(), kind);
            }
        }
        if cell.number_format != "General" {
            response.number_formats.insert(cell.cell.to_string(), cell.number_format.clone());
        }
    }
    response.grid = grid::markdown(range, cells);
    response
}

/// The type of a value whose JSON does not tell it.
fn cell_type(value: &xlsx::Value) -> Option<CellType> {
    match value {
        xlsx::Value::Date(_) => Some(CellType::Date),
        xlsx::Value::Duration(_) => Some(CellType::Duration),
        xlsx::Value::Error(_) => Some(CellType::Error),
        xlsx::Value::Text(_) | xlsx::Value::Number(_) | xlsx::Value::Boolean(_) => None,
    }
}
