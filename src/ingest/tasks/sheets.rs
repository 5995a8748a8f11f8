//! structure:sheets: one node for each worksheet of a workbook, and the tasks that read it.
use super::{
    Apply, OrTaskFailure, another_answer,
    apply::Transaction,
    images,
    probe::{input, stored_file},
    types::{EXTRACT_SHEET, PROFILE_SHEET, TaskType},
};
use crate::{
    ingest::{
        Tools,
        queueing::{Queueing, Work},
        tree,
    },
    reader::limits,
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::{Frontier, IngestNode},
        nodes::NewNode,
        places::Place,
    },
    usetype::Usetype,
};
use serde_json::{Map, Value, json};
use svc_actors::{Grant, Outcome, TaskFailure};
use svc_formats::{
    isolated::{Answer, Input, Request, Step},
    xlsx::{Sheet, SheetKind, Workbook},
};
use svc_ids::{DocumentId, RootId};

/// The most sheets of one workbook. No person keeps a workbook of thousands by hand, and each sheet is read twice.
const SHEETS: usize = 2000;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let workbook = workbook(tools, grant.document_id).await?;
    let (sheets, others): (Vec<_>, Vec<_>) =
        workbook.sheets.iter().partition(|sheet| sheet.kind == SheetKind::Worksheet);
    let shape = json!({
        "date_epoch": workbook.date_epoch.year(),
        "sheets": sheets,
        "left_out": others,
        "defined_names": workbook.defined_names,
    });

    let mut tx = apply.begin_creating().await?;
    let ids = store::nodes::reserve_ids(tx.conn(), sheets.len()).await.classified()?;
    let nodes: Vec<NewNode> = sheets
        .iter()
        .zip(&ids)
        .zip(0..)
        .map(|((sheet, id), position)| NewNode {
            id: *id,
            parent_id: grant.document_id,
            path: grant.region.path.clone(),
            title: tree::title(&sheet.name),
            content: String::new(),
            usetype: Usetype::Sheet,
            position,
            structured_content: json!({}),
            anchor: anchor(sheet),
        })
        .collect();
    store::nodes::insert(tx.conn(), &tools.lexicon, &Place::of_claim(grant), &grant.task_type, &nodes)
        .await
        .classified()?;
    // This comes before the counts of the file, as in the task of its charts, so the two never wait for each other.
    images::record_empty(tx.conn(), grant.document_id, sheets.is_empty().then_some("no_sheets")).await?;
    count(&mut tx, grant.document_id, grant.root_id, &ids).await?;
    for (sheet, id) in sheets.iter().zip(&ids) {
        let state = serde_json::to_value(sheet).classified()?;
        store::evidence::record(tx.conn(), *id, Evidence::Sheet, &state).await.classified()?;
        enqueue(tools, &mut tx, sheet, *id).await?;
    }
    store::evidence::record(tx.conn(), grant.document_id, Evidence::StructureSheets, &shape).await.classified()?;
    let mut detail = Map::new();
    detail.insert("sheets".to_owned(), sheets.len().into());
    detail.insert("left_out".to_owned(), others.len().into());
    tx.complete(detail).await
}

async fn workbook(tools: &Tools, document_id: DocumentId) -> Result<Workbook, TaskFailure> {
    let request = Request::new(Step::Workbook, limits(&tools.settings));
    let Answer::Workbook(workbook) =
        tools.reader.read(input(tools, document_id).await?, &request).await.classified()?.0
    else {
        return Err(another_answer());
    };
    if workbook.sheets.len() > SHEETS {
        let message = format!("the workbook has {} sheets; at most {SHEETS} are read: split it", workbook.sheets.len());
        return Err(TaskFailure::permanent("limit_exceeded", message).with_detail("limit", "sheets"));
    }
    Ok(workbook)
}

/// Which sheet of its workbook a node is; its cells are added once they are known.
fn anchor(sheet: &Sheet) -> Value {
    json!({"sheet": sheet.name, "index": sheet.index})
}

async fn count(
    tx: &mut Transaction<'_>,
    file: DocumentId,
    root_id: RootId,
    ids: &[DocumentId],
) -> Result<(), TaskFailure> {
    let row = |id: &DocumentId| IngestNode {
        document_id: *id,
        parent_id: Some(file),
        open_tasks: 2,
        open_children: 0,
        tokens: 0,
    };
    store::ingest_nodes::insert(tx.conn(), root_id, &ids.iter().map(row).collect::<Vec<_>>()).await.classified()?;
    let children = i32::try_from(ids.len()).unwrap_or(i32::MAX);
    store::ingest_nodes::grow(tx.conn(), file, 0, children, 0).await.classified()?;
    let total = i64::from(children);
    let change = Frontier { total, in_flight: total, ..Frontier::default() };
    store::ingest_nodes::count(tx.conn(), root_id.document(), change).await.classified()
}

/// The profile comes first: if a sheet cannot be measured, its records are not tried.
async fn enqueue(tools: &Tools, tx: &mut Transaction<'_>, sheet: &Sheet, id: DocumentId) -> Result<(), TaskFailure> {
    let grant = tx.grant();
    let node = Place::of_claim(grant).of_new(id, grant.region.path.clone());
    let queueing = Queueing::of_file(grant.root_id, &tools.settings.task_badges);
    let params = |task_type: &TaskType| {
        let mut params = task_type.params(&grant.params);
        params.insert("sheet".to_owned(), sheet.index.into());
        Value::Object(params)
    };
    let profile = Work::of(&PROFILE_SHEET).params(params(&PROFILE_SHEET));
    let after = [queueing.add(tx.conn(), &node, profile).await.classified()?];
    let records = Work::of(&EXTRACT_SHEET).params(params(&EXTRACT_SHEET)).after(&after);
    queueing.add(tx.conn(), &node, records).await.classified().map(|_| ())
}

/// Which sheet of its workbook a task is for.
pub(super) fn sheet_index(grant: &Grant) -> Result<u32, TaskFailure> {
    let index = grant.params["sheet"].as_u64().and_then(|index| u32::try_from(index).ok());
    index.ok_or_else(|| TaskFailure::permanent("stored_value", "the task does not say which sheet it is about"))
}

/// The file of the workbook that a sheet's task belongs to, which may itself be a member of another. Segments may lie between the two.
pub(super) async fn file_of(tools: &Tools, grant: &Grant) -> Result<DocumentId, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    let file = store::sheets::workbook_of(&mut conn, grant.document_id).await.classified()?;
    Ok(file.unwrap_or(grant.root_id.document()))
}

/// The workbook that a sheet's task belongs to.
pub(super) async fn workbook_of_sheet(tools: &Tools, grant: &Grant) -> Result<Input, TaskFailure> {
    let file = stored_file(tools, file_of(tools, grant).await?).await?;
    tools.spool.workbook(&file, &tools.reader, &limits(&tools.settings)).await.classified()
}
