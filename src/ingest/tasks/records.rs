//! extract:sheet: a record node for each row of a sheet whose first row names its columns; otherwise none, and the
//! reason.
//!
//! A sheet may have a million rows, so they wait in a spool file and are never all in memory.
mod batches;

use super::{Apply, OrTaskFailure, another_answer, apply::Transaction, embed, sheets, structure::model};
use crate::{
    embedding::Model,
    ingest::{
        Tools,
        options::Structure,
        records::{Fit, NewRecord, record},
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
    xlsx::{CellRef, Range, Record, RecordsHead, RecordsPart, Reference},
};
use svc_ids::DocumentId;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let Spooled { head, file, records } = read(tools, &apply).await?;
    let mut evidence = json!({"records": records, "header": head.header});
    if !head.header.is_header {
        evidence["reason"] = head.header.reason.as_str().into();
    }

    let mut tx = apply.begin_creating().await?;
    let long = insert(tools, &mut tx, &head, file).await?;
    evidence["in_pieces"] = long.into();
    store::evidence::record(tx.conn(), grant.document_id, Evidence::ExtractSheet, &evidence).await.classified()?;
    let detail = match evidence {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    tx.complete(detail).await
}

/// The records of a sheet on disk, one line of JSON each.
struct Spooled {
    head: RecordsHead,
    file: BufReader<File>,
    records: u64,
}

async fn read(tools: &Tools, apply: &Apply<'_>) -> Result<Spooled, TaskFailure> {
    let grant = apply.grant;
    let request = Request::new(Step::Records { sheet: sheets::sheet_index(grant)? }, limits(&tools.settings));
    let input = sheets::workbook_of_sheet(tools, grant).await?;
    let mut writer = Writer {
        model: model(tools).await?,
        cancel: apply.cancel.clone(),
        options: chunk_options(tools, grant),
        out: BufWriter::with_capacity(1 << 18, spool::nameless(tools.spool.folder()).classified()?),
        head: None,
        records: 0,
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
    records: u64,
}

impl Writer {
    fn take(&mut self, part: RecordsPart) -> io::Result<()> {
        match part {
            RecordsPart::Head(head) => self.head = Some(head),
            RecordsPart::Batch(rows) => {
                let head = self.head.take().ok_or_else(|| io::Error::other("records came before their header"))?;
                for row in &rows {
                    if self.cancel.is_cancelled() {
                        return Err(io::Error::other("the task was stopped"));
                    }
                    self.write(&head, row)?;
                }
                self.head = Some(head);
            }
            RecordsPart::End { .. } => {}
        }
        Ok(())
    }

    fn write(&mut self, head: &RecordsHead, row: &Record) -> io::Result<()> {
        let model = &self.model;
        // A tokenizer that fails on a sentence has a defect; then the length in bytes is a safe upper bound.
        let tokens = |text: &str| model.count_content_tokens(text).unwrap_or(text.len());
        let special = model.count_tokens("").unwrap_or(0);
        let window = model.document_window().saturating_sub(special).max(1);
        let made = record(head, row, &Fit { chunk: &self.options, window, tokens: &tokens });
        serde_json::to_writer(&mut self.out, &made)?;
        self.records += 1;
        self.out.write_all(b"\n")
    }

    fn finish(self) -> io::Result<Spooled> {
        let mut file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let head = self.head.ok_or_else(|| io::Error::other("the reader sent no head for the sheet"))?;
        Ok(Spooled { head, file: BufReader::with_capacity(1 << 18, file), records: self.records })
    }
}

/// The next records of a spool; empty at its end.
fn next(file: &mut BufReader<File>) -> io::Result<Vec<NewRecord>> {
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
        let count = records.iter().map(|record| 1 + record.pieces.len()).sum();
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
    records: usize,
    nodes: i64,
    tokens: i64,
    long: u64,
}

impl Sum {
    fn add(&mut self, records: &[NewRecord], nodes: usize) {
        self.records += records.len();
        self.nodes += i64::try_from(nodes).unwrap_or(i64::MAX);
        self.tokens += records.iter().map(|record| record.tokens).sum::<i64>();
        self.long += records.iter().filter(|record| !record.pieces.is_empty()).count() as u64;
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

/// Makes the rows for the documents table, each record before its pieces; `before` is the number of records stored
/// already.
fn rows(grant: &Grant, head: &RecordsHead, records: &[NewRecord], ids: &[DocumentId], before: usize) -> Rows {
    let mut rows = Rows::default();
    let mut ids = ids.iter().copied();
    let sheet = &head.sheet.name;
    for (index, record) in records.iter().enumerate() {
        let Some(id) = ids.next() else { break };
        let anchor = anchor(sheet, head, record);
        let title = tree::title(&format!("{sheet} row {}", record.row));
        let path = &grant.region.path;
        if record.pieces.is_empty() {
            rows.leaves.push((vec![id.0], record.tokens));
        } else {
            rows.containers.push(IngestNode {
                document_id: id,
                parent_id: Some(grant.document_id),
                open_tasks: 0,
                open_children: i32::try_from(record.pieces.len()).unwrap_or(i32::MAX),
                tokens: record.tokens,
            });
        }
        rows.nodes.push(NewNode {
            id,
            parent_id: grant.document_id,
            path: path.clone(),
            title: title.clone(),
            content: record.prose.clone(),
            usetype: Usetype::Record,
            // Position 0 is the profile's.
            position: i32::try_from(before + index + 1).unwrap_or(i32::MAX),
            structured_content: json!({"record": record.values}),
            anchor: anchor.clone(),
        });
        let below: Vec<i64> = path.iter().copied().chain([id.0]).collect();
        for ((start, end, tokens), position) in record.pieces.iter().zip(0..) {
            let Some(piece) = ids.next() else { break };
            rows.leaves.push((vec![id.0, piece.0], *tokens));
            rows.nodes.push(NewNode {
                id: piece,
                parent_id: id,
                path: below.clone(),
                title: title.clone(),
                content: record.prose.get(*start..*end).unwrap_or_default().to_owned(),
                usetype: Usetype::Chunk,
                position,
                structured_content: json!({}),
                anchor: anchor.clone(),
            });
        }
    }
    rows
}

/// The row's cells within the used range, for example `Sheet!A2:C2`.
fn anchor(sheet: &str, head: &RecordsHead, record: &NewRecord) -> Value {
    let row = |range: Range| {
        let cell = |column| CellRef::new(record.row, column);
        Some(Range::new(cell(range.first().column())?, cell(range.last().column())?))
    };
    let cells =
        head.used_range.and_then(row).map(|range| Reference { sheet: Some(sheet.to_owned()), range }.to_string());
    let mut anchor = json!({"cells": cells});
    if record.hidden {
        anchor["hidden"] = true.into();
    }
    anchor
}
