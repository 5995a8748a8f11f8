//! extract:sheet: a record node for each row below a header that names the columns, and chunks of what is in no record. If
//! tables are not looked for, only a header in the first row counts, and a sheet without one gives nothing but the reason.
//!
//! A sheet may have a million rows, so they wait in a spool file and are never all in memory.
mod batches;

use super::{Apply, OrTaskFailure, another_answer, apply::Transaction, embed, sheets, structure::model};
use crate::{
    embedding::Model,
    ingest::{
        Tools,
        options::{Profile, Structure},
        records::{Fit, NewPiece, NewRecord, NewRow, Packer, record},
        tree,
    },
    reader::limits,
    spool,
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::{Frontier, IngestNode},
        nodes::{NewNode, ROWS},
        places::Place,
    },
    usetype::Usetype,
};
use batches::{Leaf, Leaves};
use serde_json::{Map, Value, json};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write},
};
use svc_actors::{CancelToken, Grant, Outcome, TaskFailure};
use svc_formats::{
    ChunkOptions,
    isolated::{Answer, Request, Step},
    xlsx::{CellRef, LooseRow, Range, Record, RecordsHead, RecordsPart, Reference},
};
use svc_ids::DocumentId;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let Spooled { head, file, records, pieces } = read(tools, &apply).await?;
    let mut evidence = evidence(&head, records, pieces);

    let mut tx = apply.begin_creating().await?;
    let long = insert(tools, &mut tx, &head, file).await?;
    evidence.insert("in_pieces".to_owned(), long.into());
    let recorded = Value::Object(evidence.clone());
    store::evidence::record(tx.conn(), grant.document_id, Evidence::ExtractSheet, &recorded).await.classified()?;
    // What the attempt log says needs no list.
    evidence.retain(|_, value| !value.is_array());
    tx.complete(evidence).await
}

/// The most tables and other blocks in the evidence.
const LISTED: usize = 100;
/// The most columns of a table in the evidence.
const LISTED_COLUMNS: usize = 200;

fn evidence(head: &RecordsHead, records: u64, pieces: u64) -> Map<String, Value> {
    let mut evidence = Map::new();
    evidence.insert("records".to_owned(), records.into());
    evidence.insert("header".to_owned(), json!(head.header));
    if head.tables.is_empty() {
        let reason = head.unsearched.as_deref().unwrap_or(&head.header.reason);
        evidence.insert("reason".to_owned(), reason.into());
    }
    if head.header.is_header {
        return evidence;
    }
    let tables: Vec<Value> = head
        .tables
        .iter()
        .take(LISTED)
        .map(|table| {
            let mut listed = json!(table);
            if let Some(columns) = listed["columns"].as_array_mut() {
                columns.truncate(LISTED_COLUMNS);
            }
            listed["column_count"] = table.columns.len().into();
            listed
        })
        .collect();
    evidence.insert("table_count".to_owned(), head.tables.len().into());
    evidence.insert("tables".to_owned(), tables.into());
    evidence.insert("others".to_owned(), json!(head.others.get(..LISTED).unwrap_or(&head.others)));
    evidence.insert("chunks".to_owned(), pieces.into());
    evidence
}

/// The nodes of a sheet on disk, one line of JSON each.
struct Spooled {
    head: RecordsHead,
    file: BufReader<File>,
    records: u64,
    /// Chunks of what is in no record.
    pieces: u64,
}

async fn read(tools: &Tools, apply: &Apply<'_>) -> Result<Spooled, TaskFailure> {
    let grant = apply.grant;
    let Profile { tables, .. } = serde_json::from_value(grant.params["profile"].clone()).unwrap_or_default();
    let step = Step::Records { sheet: sheets::sheet_index(grant)?, tables };
    let request = Request::new(step, limits(&tools.settings));
    let input = sheets::workbook_of_sheet(tools, grant).await?;
    let mut writer = Writer {
        model: model(tools).await?,
        cancel: apply.cancel.clone(),
        options: chunk_options(tools, grant),
        out: BufWriter::with_capacity(1 << 18, spool::nameless(tools.spool.folder()).classified()?),
        head: None,
        packer: Packer::default(),
        records: 0,
        pieces: 0,
    };
    let mut answers = tools.reader.stream(input, &request).classified()?;
    while let Some(answer) = answers.next().await.classified()? {
        let Answer::Records(part) = answer else { return Err(another_answer()) };
        writer =
            tokio::task::spawn_blocking(move || writer.take(part).map(|()| writer)).await.classified()?.classified()?;
    }
    tokio::task::spawn_blocking(move || writer.finish()).await.classified()?.classified()
}

fn chunk_options(tools: &Tools, grant: &Grant) -> ChunkOptions {
    let options: Structure = serde_json::from_value(grant.params["structure"].clone()).unwrap_or_default();
    ChunkOptions {
        max_tokens: options.max_tokens,
        min_chunk_length: options.min_chunk_length,
        max_chars: tools.settings.chunk_max_chars,
        ..ChunkOptions::default()
    }
}

/// Makes nodes of rows and writes them to the spool.
struct Writer {
    model: Model,
    cancel: CancelToken,
    options: ChunkOptions,
    out: BufWriter<File>,
    head: Option<RecordsHead>,
    packer: Packer,
    records: u64,
    pieces: u64,
}

impl Writer {
    fn take(&mut self, part: RecordsPart) -> io::Result<()> {
        match part {
            RecordsPart::Head(head) => self.head = Some(head),
            RecordsPart::Batch(rows) => {
                let head = self.head.take().ok_or_else(|| io::Error::other("records came before their header"))?;
                // What is above a table comes before its rows.
                self.pack(None)?;
                for row in &rows {
                    self.go_on()?;
                    self.write(&head, row)?;
                }
                self.head = Some(head);
            }
            RecordsPart::Loose(rows) => {
                for row in &rows {
                    self.go_on()?;
                    self.pack(Some(row))?;
                }
            }
            RecordsPart::End { .. } => self.pack(None)?,
        }
        Ok(())
    }

    fn go_on(&self) -> io::Result<()> {
        if self.cancel.is_cancelled() { Err(io::Error::other("the task was stopped")) } else { Ok(()) }
    }

    fn write(&mut self, head: &RecordsHead, row: &Record) -> io::Result<()> {
        let table = head.tables.get(row.table as usize).ok_or_else(|| io::Error::other("a record is of no table"))?;
        let made = self.fit(|fit| record(table, row, fit));
        self.records += 1;
        self.put(&NewRow::Record(made))
    }

    /// Packs a row, or ends the piece that is open.
    fn pack(&mut self, row: Option<&LooseRow>) -> io::Result<()> {
        let mut packer = std::mem::take(&mut self.packer);
        let pieces: Vec<NewPiece> = self.fit(|fit| match row {
            Some(row) => packer.add(row, fit),
            None => packer.rest(fit).into_iter().collect(),
        });
        self.packer = packer;
        self.pieces += pieces.len() as u64;
        pieces.into_iter().try_for_each(|piece| self.put(&NewRow::Piece(piece)))
    }

    fn fit<T>(&self, make: impl FnOnce(&Fit<'_>) -> T) -> T {
        let model = &self.model;
        // A tokenizer that fails on a sentence has a defect; then the length in bytes is a safe upper bound.
        let tokens = |text: &str| model.count_content_tokens(text).unwrap_or(text.len());
        let special = model.count_tokens("").unwrap_or(0);
        let window = model.document_window().saturating_sub(special).max(1);
        make(&Fit { chunk: &self.options, window, tokens: &tokens })
    }

    fn put(&mut self, made: &NewRow) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, made)?;
        self.out.write_all(b"\n")
    }

    fn finish(self) -> io::Result<Spooled> {
        let mut file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let head = self.head.ok_or_else(|| io::Error::other("the reader sent no head for the sheet"))?;
        let file = BufReader::with_capacity(1 << 18, file);
        Ok(Spooled { head, file, records: self.records, pieces: self.pieces })
    }
}

/// The next nodes of a spool; empty at its end.
fn next(file: &mut BufReader<File>) -> io::Result<Vec<NewRow>> {
    let mut records = Vec::new();
    let mut line = Vec::new();
    let mut bytes = 0;
    // A row may hold megabytes, so a batch is limited in rows and bytes.
    while records.len() < ROWS && bytes < 8 << 20 {
        line.clear();
        bytes += file.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            break;
        }
        records.push(serde_json::from_slice(&line)?);
    }
    Ok(records)
}

/// Stores the nodes and queues their embedding; returns how many records are in pieces.
async fn insert(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    head: &RecordsHead,
    mut file: BufReader<File>,
) -> Result<u64, TaskFailure> {
    let grant = tx.grant();
    let place = Place::of_claim(grant);
    let mut sum = Sum::default();
    let mut leaves = Leaves::default();
    loop {
        let (back, records) = tokio::task::spawn_blocking(move || {
            let records = next(&mut file);
            (file, records)
        })
        .await
        .classified()?;
        file = back;
        let records = records.classified()?;
        if records.is_empty() {
            break;
        }
        let count = records.iter().map(|record| 1 + record.pieces().len()).sum();
        let ids = store::nodes::reserve_ids(tx.conn(), count).await.classified()?;
        let rows = rows(grant, head, &records, &ids, sum.records);
        // If rows have megabytes, one statement would not do, because PostgreSQL's messages are limited to a gigabyte.
        store::nodes::insert(tx.conn(), &tools.lexicon, &place, &grant.task_type, &rows.nodes).await.classified()?;
        store::ingest_nodes::insert(tx.conn(), grant.root_id, &rows.containers).await.classified()?;
        for batch in leaves.add(rows.leaves) {
            embed::enqueue(tools, tx.conn(), grant.root_id, batch.under(&place)).await?;
        }
        sum.add(&records, rows.nodes.len());
    }
    if let Some(batch) = leaves.rest() {
        embed::enqueue(tools, tx.conn(), grant.root_id, batch.under(&place)).await?;
    }
    let (tasks, children) = (leaves.batches, i32::try_from(sum.records).unwrap_or(i32::MAX));
    store::ingest_nodes::grow(tx.conn(), grant.document_id, tasks, children, sum.tokens).await.classified()?;
    let frontier = Frontier { total: sum.nodes, in_flight: sum.nodes, ..Frontier::default() };
    store::ingest_nodes::count(tx.conn(), grant.root_id.document(), frontier).await.classified()?;
    Ok(sum.long)
}

/// What was stored.
#[derive(Default)]
struct Sum {
    /// Direct children.
    records: usize,
    nodes: i64,
    tokens: i64,
    long: u64,
}

impl Sum {
    fn add(&mut self, records: &[NewRow], nodes: usize) {
        self.records += records.len();
        self.nodes += i64::try_from(nodes).unwrap_or(i64::MAX);
        self.tokens += records.iter().map(NewRow::tokens).sum::<i64>();
        self.long += records.iter().filter(|record| !record.pieces().is_empty()).count() as u64;
    }
}

#[derive(Default)]
struct Rows {
    nodes: Vec<NewNode>,
    /// Records that are split into pieces and wait for their chunks.
    containers: Vec<IngestNode>,
    /// The leaves to embed.
    leaves: Vec<Leaf>,
}

/// Makes the rows for the documents table, each record before its pieces; `before` is the number of children stored
/// already.
fn rows(grant: &Grant, head: &RecordsHead, made: &[NewRow], ids: &[DocumentId], before: usize) -> Rows {
    let mut rows = Rows::default();
    let mut ids = ids.iter().copied();
    let path = &grant.region.path;
    for (index, row) in made.iter().enumerate() {
        let Some(id) = ids.next() else { break };
        if row.pieces().is_empty() {
            rows.leaves.push((vec![id.0], row.tokens()));
        } else {
            rows.containers.push(IngestNode {
                document_id: id,
                parent_id: Some(grant.document_id),
                open_tasks: 0,
                open_children: i32::try_from(row.pieces().len()).unwrap_or(i32::MAX),
                tokens: row.tokens(),
            });
        }
        // Position 0 is the profile's.
        let position = i32::try_from(before + index + 1).unwrap_or(i32::MAX);
        let node = NewNode { id, parent_id: grant.document_id, path: path.clone(), position, ..node(head, row) };
        let at = rows.nodes.len();
        rows.nodes.push(node);
        let below: Vec<i64> = path.iter().copied().chain([id.0]).collect();
        for ((start, end, tokens), position) in row.pieces().iter().zip(0..) {
            let Some(piece) = ids.next() else { break };
            rows.leaves.push((vec![id.0, piece.0], *tokens));
            let node = &rows.nodes[at];
            let piece = NewNode {
                id: piece,
                parent_id: id,
                path: below.clone(),
                content: node.content.get(*start..*end).unwrap_or_default().to_owned(),
                usetype: Usetype::Chunk,
                position,
                structured_content: json!({}),
                title: node.title.clone(),
                anchor: node.anchor.clone(),
            };
            rows.nodes.push(piece);
        }
    }
    rows
}

/// The node of a record or of a piece, without its place in the tree.
fn node(head: &RecordsHead, row: &NewRow) -> NewNode {
    let sheet = &head.sheet.name;
    let (title, content, usetype, structured_content, anchor) = match row {
        NewRow::Record(record) => (
            format!("{sheet} row {}", record.row),
            record.prose.clone(),
            Usetype::Record,
            json!({"record": record.values}),
            anchor(head, record),
        ),
        NewRow::Piece(piece) => {
            let cells = Reference { sheet: Some(sheet.clone()), range: piece.range }.to_string();
            (sheet.clone(), piece.text.clone(), Usetype::Chunk, json!({}), json!({"cells": cells}))
        }
    };
    let title = tree::title(&title);
    NewNode {
        id: DocumentId(0),
        parent_id: DocumentId(0),
        path: Vec::new(),
        title,
        content,
        usetype,
        position: 0,
        structured_content,
        anchor,
    }
}

/// The row's cells within its table, for example `Sheet!A2:C2`.
fn anchor(head: &RecordsHead, record: &NewRecord) -> Value {
    let table = head.tables.get(record.table as usize);
    let row = |range: Range| {
        let cell = |column| CellRef::new(record.row, column);
        Some(Range::new(cell(range.first().column())?, cell(range.last().column())?))
    };
    let cells = table
        .and_then(|table| row(table.range))
        .map(|range| Reference { sheet: Some(head.sheet.name.clone()), range }.to_string());
    let mut anchor = json!({"cells": cells});
    if record.hidden {
        anchor["hidden"] = true.into();
    }
    if table.is_some_and(|table| table.totals_row == Some(record.row)) {
        anchor["totals"] = true.into();
    }
    anchor
}
