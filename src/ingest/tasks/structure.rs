//! structure:declared and structure:inferred: the nodes under a file, in flight, and the tasks that embed them.
use super::{
    Apply, OrTaskFailure,
    apply::Transaction,
    embed::{self, Leaves},
    extract,
};
use crate::{
    embedding::Model,
    ingest::{
        Tools, entries,
        options::Structure,
        tree::{self, Batch, CharacterIndex, Kind, Node, TableNode},
    },
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::{ChildrenDone, Frontier, IngestNode},
        nodes::{NewNode, ROWS},
        places::Place,
    },
};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use svc_actors::{CancelToken, LeafRange, Outcome, TaskFailure};
use svc_formats::{ChunkOptions, Extraction};
use svc_ids::{DocumentId, RootId};

pub async fn run(tools: &Tools, apply: Apply<'_>, declared: bool) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let id = grant.document_id;
    let options: Structure = serde_json::from_value(grant.params["structure"].clone()).unwrap_or_default();
    let source = load(tools, id).await?;
    let Planned { extraction, tables, nodes } = build(tools, source, declared, options, apply.cancel.clone()).await?;
    let rule = grant.task_type.clone();
    let of = |kind: Kind| nodes.iter().filter(|node| node.kind == kind).count();
    let (sections, chunks) = (of(Kind::Section), of(Kind::Chunk));
    let mut shape = json!({"rule": rule, "sections": sections, "chunks": chunks, "from": extraction.headings_from});
    if !tables.is_empty() {
        shape["tables"] = tables.len().into();
    }

    let mut tx = apply.begin_creating_by_keys().await?;
    let ids = store::nodes::reserve_ids(tx.conn(), nodes.len()).await.classified()?;
    let batches = tree::batches(&nodes, &ids);
    let file = Place::of_claim(grant);
    let made = Made { file, root_id: grant.root_id, tables: &tables, nodes: &nodes, ids: &ids };
    insert_nodes(tools, &mut tx, &made, &extraction, &rule).await?;
    let begins: Vec<_> = nodes.iter().zip(&ids).map(|(node, id)| (*id, node.start)).collect();
    entries::mark_turns(tx.conn(), &made.file, &begins).await.classified()?;
    insert_counters(&mut tx, &made, &batches).await?;
    for batch in &batches {
        embed::enqueue(tools, tx.conn(), grant.root_id, made.leaves(batch)).await?;
    }
    store::evidence::record(tx.conn(), id, Evidence::Structure, &shape).await.classified()?;
    let detail = match shape {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    tx.complete(detail).await
}

/// What a tree is made of.
struct Source {
    extraction: Extraction,
    title: String,
    /// Whether extract:tables found tables, which then have nodes of their own.
    has_tables: bool,
}

async fn load(tools: &Tools, id: DocumentId) -> Result<Source, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    let extraction = extracted(&mut conn, id).await?;
    let rows = store::nodes::texts(&mut conn, &[id]).await.classified()?;
    let title = rows.into_iter().next().map(|row| row.title).unwrap_or_default();
    let found = store::evidence::read_one(&mut conn, id, Evidence::ExtractTables).await.classified()?;
    Ok(Source { extraction, title, has_tables: found.is_some_and(|found| !found.is_null()) })
}

/// The stored text of a file.
pub(super) async fn extracted(conn: &mut PgConnection, id: DocumentId) -> Result<Extraction, TaskFailure> {
    let stored = store::evidence::extraction(conn, id).await.classified()?;
    let (text, layout) =
        stored.ok_or_else(|| TaskFailure::permanent("no_text", "no text was extracted from this file"))?;
    extract::join(text, layout).classified()
}

/// The nodes to make.
struct Planned {
    extraction: Extraction,
    tables: Vec<TableNode>,
    nodes: Vec<Node>,
}

async fn build(
    tools: &Tools,
    source: Source,
    declared: bool,
    options: Structure,
    cancel: CancelToken,
) -> Result<Planned, TaskFailure> {
    let model = model(tools).await?;
    let options = ChunkOptions {
        max_tokens: options.max_tokens,
        min_chunk_length: options.min_chunk_length,
        max_chars: tools.settings.chunk_max_chars,
        ..ChunkOptions::default()
    };
    tokio::task::spawn_blocking(move || {
        let count = |text: &str| match cancel.is_cancelled() {
            // The tree of a stopped task is not needed, and counting takes most of the time.
            true => text.len(),
            // A tokenizer that fails on a sentence has a defect; then the length in bytes is a safe upper bound.
            false => model.count_content_tokens(text).unwrap_or(text.len()),
        };
        let Source { extraction, title, has_tables } = source;
        let found = if has_tables { svc_formats::tables(&extraction).tables } else { Vec::new() };
        let tables: Vec<TableNode> = found.iter().map(|table| TableNode::new(table, &extraction.text)).collect();
        let nodes = tree::build(&extraction, &tables, &title, declared, &options, &count);
        Planned { extraction, tables, nodes }
    })
    .await
    .classified()
}

/// The model with which this worker embeds and counts.
pub(super) async fn model(tools: &Tools) -> Result<Model, TaskFailure> {
    let none = || TaskFailure::retryable("no_model", "this worker has no embedding model: set SVC_EMBEDDING_MODEL");
    tools.model_of(tools.embedder.as_ref().ok_or_else(none)?).await.classified()
}

/// Nodes with their ids.
struct Made<'a> {
    file: Place,
    root_id: RootId,
    tables: &'a [TableNode],
    nodes: &'a [Node],
    ids: &'a [DocumentId],
}

impl Made<'_> {
    fn parent_id(&self, index: usize) -> DocumentId {
        self.nodes[index].parent.map_or(self.file.id(), |parent| self.ids[parent])
    }

    /// The content of a node, and its values if it is a table.
    fn text(&self, node: &Node, text: &str) -> (String, Value) {
        let table = node.table.and_then(|table| self.tables.get(table));
        match (&node.chunk, table) {
            (Some(chunk), Some(table)) => (chunk.content(&table.content).into_owned(), json!({})),
            (Some(chunk), None) => (chunk.content(text).into_owned(), json!({})),
            (None, Some(table)) => (table.content.clone(), table.structured.clone()),
            (None, None) => (String::new(), json!({})),
        }
    }

    fn place(&self, index: usize) -> Place {
        self.file.of_new(self.ids[index], self.path(index))
    }

    fn leaves(&self, batch: &Batch) -> Leaves {
        Leaves {
            under: batch.under.map_or_else(|| self.file.clone(), |index| self.place(index)),
            range: LeafRange {
                first: self.place(batch.first).children_path(),
                last: self.place(batch.last).children_path(),
            },
            runs: batch.runs.iter().map(|(first, last)| (self.ids[*first], self.ids[*last])).collect(),
        }
    }

    /// The ids of a node's ancestors, root first.
    fn path(&self, index: usize) -> Vec<i64> {
        let mut path = Vec::new();
        let mut above = self.nodes[index].parent;
        while let Some(parent) = above {
            path.push(self.ids[parent].0);
            above = self.nodes[parent].parent;
        }
        path.extend(self.file.children_path().iter().rev());
        path.reverse();
        path
    }
}

async fn insert_nodes(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    made: &Made<'_>,
    extraction: &Extraction,
    rule: &str,
) -> Result<(), TaskFailure> {
    let characters = CharacterIndex::new(&extraction.text);
    for start in (0..made.nodes.len()).step_by(ROWS) {
        let rows: Vec<NewNode> = (start..made.nodes.len().min(start + ROWS))
            .map(|index| {
                let node = &made.nodes[index];
                let (content, structured_content) = made.text(node, &extraction.text);
                NewNode {
                    id: made.ids[index],
                    parent_id: made.parent_id(index),
                    path: made.path(index),
                    title: node.title.clone(),
                    content,
                    usetype: node.kind.usetype(),
                    position: node.position,
                    structured_content,
                    anchor: tree::anchor(node, extraction, &characters),
                }
            })
            .collect();
        tx.meter().set(start, made.nodes.len(), "nodes");
        store::nodes::insert(tx.conn(), &tools.lexicon, &made.file, rule, &rows).await.classified()?;
    }
    Ok(())
}

async fn insert_counters(tx: &mut Transaction<'_>, made: &Made<'_>, batches: &[Batch]) -> Result<(), TaskFailure> {
    let mut tasks = vec![0; made.nodes.len()];
    let mut file_tasks = 0;
    for batch in batches {
        match batch.under {
            Some(index) => tasks[index] += 1,
            None => file_tasks += 1,
        }
    }
    let containers = || made.nodes.iter().enumerate().filter(|(_, node)| !node.is_leaf());
    let rows: Vec<IngestNode> = containers()
        .map(|(index, node)| IngestNode {
            document_id: made.ids[index],
            parent_id: Some(made.parent_id(index)),
            open_tasks: tasks[index],
            open_children: node.children,
            tokens: node.tokens,
        })
        .collect();
    store::ingest_nodes::insert(tx.conn(), made.root_id, &rows).await.classified()?;
    let top = || made.nodes.iter().filter(|node| node.parent.is_none());
    let (children, tokens) = (i32::try_from(top().count()).unwrap_or(i32::MAX), top().map(|node| node.tokens).sum());
    store::ingest_nodes::grow(tx.conn(), made.file.id(), file_tasks, children, tokens).await.classified()?;
    // An empty section has nothing to wait for.
    let bare: Vec<ChildrenDone> = containers()
        .filter(|(_, node)| node.children == 0)
        .map(|(index, _)| ChildrenDone { root_id: made.root_id, parent_id: made.ids[index], done: 0, failed: 0 })
        .collect();
    store::ingest_nodes::children_done(tx.conn(), &bare).await.classified()?;
    let total = made.nodes.len() as i64;
    let change = Frontier { total, in_flight: total, ..Frontier::default() };
    store::ingest_nodes::count(tx.conn(), made.root_id.document(), change).await.classified()
}
