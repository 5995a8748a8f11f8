//! structure:semantic: cuts the children of a container with too many of them into segments where the subject changes.
//!
//! The children are read page by page and their vectors are not kept, so a container may have any number of them.
use super::{Apply, OrTaskFailure, apply::Transaction, structure::model};
use crate::{
    embedding::Model,
    ingest::{
        Tools,
        options::Rollup,
        segments::{Anchors, Children, Levels},
    },
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::{self, ChildrenDone, Frontier, IngestNode},
        nodes::ROWS,
        places::Place,
    },
};
use serde_json::{Map, Value};
use svc_actors::{Outcome, TaskFailure};
use svc_ids::DocumentId;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let options: Rollup = serde_json::from_value(apply.grant.params["rollup"].clone()).unwrap_or_default();
    let model = model(tools).await?;
    let read = read(tools, &apply, &model, &options).await?;
    let children = read.members().len();
    let levels = tokio::task::spawn_blocking(move || read.levels(&options)).await.classified()?;
    let anchors = match &levels {
        Some(levels) => {
            let mut conn = tools.pool.acquire().await.classified()?;
            Some(Anchors::read(&mut conn, levels).await.classified()?)
        }
        None => None,
    };

    let mut tx = apply.begin_creating().await?;
    // A text that was edited since the task was queued is in flight again; the settler queues this task anew once that text has settled.
    if store::rollups::lock(tx.conn(), id, &[id]).await.classified()?.is_empty() {
        return tx.skip("the container was changed or cancelled meanwhile".to_owned(), Map::new()).await;
    }
    let evidence = match (&levels, &anchors) {
        (Some(levels), Some(anchors)) => {
            insert(tools, &mut tx, levels, anchors).await?;
            levels.evidence()
        }
        _ => {
            ingest_nodes::set_rollup(tx.conn(), id, ingest_nodes::Rollup::Segmented).await.classified()?;
            Value::Null
        }
    };
    store::evidence::record(tx.conn(), id, Evidence::StructureSemantic, &evidence).await.classified()?;
    let mut detail = Map::new();
    detail.insert("children".to_owned(), children.into());
    detail.insert("segments".to_owned(), evidence["segments"].clone());
    tx.complete(detail).await
}

async fn read(tools: &Tools, apply: &Apply<'_>, model: &Model, options: &Rollup) -> Result<Children, TaskFailure> {
    let id = apply.grant.document_id;
    let mut read = Children::new(options);
    loop {
        if apply.cancel.is_cancelled() {
            return Err(TaskFailure::cancelled());
        }
        let page = {
            let mut conn = tools.pool.acquire().await.classified()?;
            store::segments::children(&mut conn, id, model.identity(), read.last(), ROWS).await.classified()?
        };
        if page.is_empty() {
            return Ok(read);
        }
        let model = model.clone();
        read = tokio::task::spawn_blocking(move || {
            // A tokenizer that fails on a text has a defect; then the length in bytes is a safe upper bound.
            read.take(page, &|text| model.count_content_tokens(text).unwrap_or(text.len()) as i64);
            read
        })
        .await
        .classified()?;
    }
}

/// Inserts the segments in flight and moves the children under them.
async fn insert(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    levels: &Levels,
    anchors: &Anchors,
) -> Result<(), TaskFailure> {
    let grant = tx.grant();
    let container = Place::of_claim(grant);
    let ids = store::nodes::reserve_ids(tx.conn(), levels.total()).await.classified()?;
    let sections = levels.sections(&container, ids, anchors);
    sections.insert(tx.conn(), &tools.lexicon, &container, &grant.task_type).await.classified()?;
    let (mut counters, mut failed) = (Vec::new(), Vec::new());
    for (node, (level, at)) in sections.nodes.iter().zip(&sections.places) {
        let members = levels.under(*level, *at);
        let (open_children, failures) = match level {
            0 => (0, members.iter().filter(|member| member.has_failed).count()),
            _ => (levels.directly_under(*level, *at), 0),
        };
        counters.push(IngestNode {
            document_id: node.id,
            parent_id: Some(node.parent_id),
            open_tasks: 0,
            open_children: i32::try_from(open_children).unwrap_or(i32::MAX),
            tokens: members.iter().map(|member| member.tokens).sum(),
        });
        failed.push(i32::try_from(failures).unwrap_or(i32::MAX));
    }
    for (counters, failed) in counters.chunks(ROWS).zip(failed.chunks(ROWS)) {
        ingest_nodes::insert(tx.conn(), grant.root_id, counters).await.classified()?;
        let ids: Vec<DocumentId> = counters.iter().map(|counter| counter.document_id).collect();
        store::segments::begin(tx.conn(), &ids, failed).await.classified()?;
    }
    sections.move_members(tx.conn(), &container).await.classified()?;
    let top = sections.levels.last().map_or(0, Vec::len);
    let top = i32::try_from(top).unwrap_or(i32::MAX);
    store::segments::end(tx.conn(), &container, top, failed.iter().sum()).await.classified()?;
    // The settler looks at the lowest segments, whose children are done.
    let lowest = sections.levels.first().into_iter().flatten();
    let root_id = grant.root_id;
    let done: Vec<ChildrenDone> =
        lowest.map(|id| ChildrenDone { root_id, parent_id: *id, done: 0, failed: 0 }).collect();
    ingest_nodes::children_done(tx.conn(), &done).await.classified()?;
    let total = i64::try_from(sections.nodes.len()).unwrap_or(i64::MAX);
    let change = Frontier { total, in_flight: total, ..Frontier::default() };
    ingest_nodes::count(tx.conn(), grant.root_id.document(), change).await.classified()
}
