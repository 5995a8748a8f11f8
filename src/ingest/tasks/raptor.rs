//! raptor: a tree of summaries over the leaves under a document, in place of the one that was there.
mod writer;

use super::{Apply, OrTaskFailure, apply::Transaction, structure::model, windows};
use crate::{
    embedding::Model,
    ingest::{
        Tools,
        postings::Postings,
        raptor::{self, Level, Method, NewSummary, Node, level},
        tree,
    },
    search::bm25,
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::Frontier,
        nodes::{NewNode, ROWS, TextRow},
        places::Place,
        raptor::{Derived, LeafRow, POSITION, RULE},
        vectors::{self, Weighted},
        word::Word,
    },
    usetype::Usetype,
};
use pgvector::HalfVector;
use rand::RngExt;
use serde_json::{Map, Value, json};
use std::{collections::HashMap, time::Duration};
use svc_actors::{CancelToken, Meter, Outcome, TaskFailure};
use svc_client::wire::{EventKind, RAPTOR_BYTES, RAPTOR_LEAVES, RaptorLevel, RaptorRequest, RaptorTree, Settled};
use svc_ids::DocumentId;
use tokio::sync::SemaphorePermit;
use writer::Writer;

/// The texts that the model embeds between two looks at whether the task was stopped.
const TEXTS: usize = 64;
/// How long a tree waits before it asks for its turn again: the more of them wait the longer, so that their asking keeps nobody from embedding.
const LATER: Duration = Duration::from_secs(15);
const LATER_FOR_EACH: Duration = Duration::from_millis(50);
/// What the progress of a level counts.
const SUMMARIES: &str = "summaries";

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let request: RaptorRequest = serde_json::from_value(grant.params.clone()).classified()?;
    let model = model(tools).await?;
    let place = Place::of_claim(grant);
    let mut writer = Writer::new(tools, grant, &model, &request).await?;
    let _turn = match writer.is_some() {
        true => turn(tools, &grant.task_type).await?,
        false => None,
    };
    let leaves = read(tools, &place, &model).await?;
    if leaves.len() < 2 {
        let reason = "fewer than two leaves with a vector are under the document".to_owned();
        return apply.begin().await?.skip(reason, Map::new()).await;
    }
    let ids: Vec<DocumentId> = leaves.iter().map(|leaf| leaf.id).collect();
    let hashes: Vec<String> = leaves.iter().map(|leaf| leaf.content_hash.clone()).collect();
    let titles: Vec<String> = leaves.iter().map(|leaf| leaf.title.clone()).collect();
    let mut made = Made::new(tools, model, request, &apply).await?;
    made.climb(leaves, writer.as_mut()).await?;
    let postings = made.postings(&place).await?;

    // A delete in this tree waits, and then sees the summaries, or it was before this look.
    let mut tx = apply.begin_creating_in_tree(place.id()).await?;
    // A summary has the title of one of its leaves. Whoever changes a leaf from here on waits, and then sees the summaries.
    let unchanged = store::raptor::unchanged(tx.conn(), &place, &ids, &hashes, &titles).await.classified()?;
    if unchanged < ids.len() as i64 {
        return Err(TaskFailure::retryable("changed", "documents were changed while they were being summarised"));
    }
    for old in store::raptor::trees(tx.conn(), &[place.id()]).await.classified()? {
        raptor::remove(tx.conn(), &old).await.classified()?;
    }
    let tree = made.store(&mut tx, &place, ids.len()).await?;
    postings.write(tools, tx.conn()).await.classified()?;
    if let Some(writer) = writer {
        let took = writer.keep(tx.conn()).await?;
        store::evidence::record(tx.conn(), DocumentId(tree.raptor_id), Evidence::LlmSummarize, &took)
            .await
            .classified()?;
    }
    let mut detail = Map::new();
    detail.insert("raptor_id".to_owned(), tree.raptor_id.into());
    detail.insert("leaves".to_owned(), tree.leaves.into());
    detail.insert("summaries".to_owned(), tree.summaries.into());
    detail.insert("levels".to_owned(), tree.levels.len().into());
    tx.complete(detail).await
}

/// The turn of a tree that a language model writes. It waits for answers most of the time, on a permit that others need to embed.
async fn turn<'a>(tools: &'a Tools, task_type: &str) -> Result<Option<SemaphorePermit<'a>>, TaskFailure> {
    let Some(writing) = &tools.writing else { return Ok(None) };
    if let Ok(turn) = writing.try_acquire() {
        return Ok(Some(turn));
    }
    let mut conn = tools.pool.acquire().await.classified()?;
    let trees = store::model_moves::unfinished(&mut conn, task_type).await.classified()?;
    let message = "this worker has as many other trees of summaries written as it may at once";
    Err(TaskFailure { retry_after: Some(later(trees)), ..TaskFailure::away("others_are_written", message) })
}

/// How long one of so many trees waits, jittered so that they do not return together.
fn later(trees: i64) -> Duration {
    let of_all = LATER_FOR_EACH.saturating_mul(u32::try_from(trees).unwrap_or(u32::MAX));
    LATER.max(of_all).mul_f64(rand::rng().random_range(0.5..1.5))
}

/// The leaves in the order in which they are read.
async fn read(tools: &Tools, place: &Place, model: &Model) -> Result<Vec<LeafRow>, TaskFailure> {
    let excluded = &tools.settings.search_exclude_usetypes;
    let mut tx = store::transaction::begin_search(&tools.pool).await.classified()?;
    let extent =
        store::raptor::extent(&mut tx, place, model.identity(), excluded, RAPTOR_LEAVES + 1).await.classified()?;
    if extent.leaves > RAPTOR_LEAVES || extent.bytes > RAPTOR_BYTES {
        let message = format!("more than {RAPTOR_LEAVES} leaves or {RAPTOR_BYTES} bytes are under the document by now");
        return Err(TaskFailure::permanent("too_large", message));
    }
    let leaves = store::raptor::leaves(&mut tx, place, model.identity(), excluded).await.classified()?;
    let placed: Vec<_> = leaves.iter().map(|leaf| (leaf.id, leaf.path.as_slice(), leaf.position)).collect();
    let keys = store::raptor::reading_keys(&mut tx, place.id(), &placed).await.classified()?;
    tx.commit().await.classified()?;
    let mut keyed: Vec<_> = keys.into_iter().zip(leaves).collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(keyed.into_iter().map(|(_, leaf)| leaf).collect())
}

/// A summary with its id and the level that it is on.
struct Placed {
    id: DocumentId,
    level: usize,
    new: NewSummary,
    members: Vec<DocumentId>,
}

/// The tree as far as it has been made.
struct Made<'a> {
    tools: &'a Tools,
    model: Model,
    request: RaptorRequest,
    cancel: CancelToken,
    /// Counts the summaries of one level.
    meter: Meter,
    id: DocumentId,
    summaries: Vec<Placed>,
    levels: Vec<RaptorLevel>,
    vectors: (Vec<DocumentId>, Vec<Weighted>),
    /// Summaries without a vector, and why.
    notes: Vec<(DocumentId, Value)>,
}

impl<'a> Made<'a> {
    async fn new(
        tools: &'a Tools,
        model: Model,
        request: RaptorRequest,
        apply: &Apply<'_>,
    ) -> Result<Made<'a>, TaskFailure> {
        let id = reserve(tools, 1).await?.pop();
        let id = id.ok_or_else(|| TaskFailure::retryable("database", "the database reserved no id"))?;
        let vectors = (Vec::new(), Vec::new());
        Ok(Made {
            tools,
            model,
            request,
            cancel: apply.cancel.clone(),
            meter: apply.meter.clone(),
            id,
            summaries: Vec::new(),
            levels: Vec::new(),
            vectors,
            notes: Vec::new(),
        })
    }

    /// Makes level after level until there is one text, or no fewer texts than before.
    async fn climb(&mut self, leaves: Vec<LeafRow>, mut writer: Option<&mut Writer<'_>>) -> Result<(), TaskFailure> {
        let mut nodes = self.count(leaves).await?;
        for number in 1..=self.request.max_levels as usize {
            if nodes.len() < 2 {
                break;
            }
            let mut level;
            (nodes, level) = self.level(nodes).await?;
            if level.summaries.is_empty() || level.summaries.len() + level.alone.len() >= nodes.len() {
                break;
            }
            if let Some(writer) = writer.as_deref_mut() {
                self.meter.set(0, level.summaries.len(), SUMMARIES);
                for new in &mut level.summaries {
                    if self.cancel.is_cancelled() {
                        return Err(stopped());
                    }
                    writer.write(new, &nodes).await?;
                    self.meter.advance(1);
                }
            }
            self.levels.push(RaptorLevel { level: number, nodes: nodes.len(), summaries: level.summaries.len() });
            let mut next: Vec<Node> = level.alone.iter().map(|at| nodes[*at].clone()).collect();
            next.extend(self.embed(number, &nodes, level.summaries).await?);
            next.sort_by_key(|node| (node.first_leaf, node.id));
            nodes = next;
        }
        Ok(())
    }

    async fn count(&self, leaves: Vec<LeafRow>) -> Result<Vec<Node>, TaskFailure> {
        let (model, cancel) = (self.model.clone(), self.cancel.clone());
        let counted = tokio::task::spawn_blocking(move || {
            let node = |(first_leaf, leaf): (usize, LeafRow)| {
                // A stopped task needs no count.
                let tokens = if cancel.is_cancelled() { 0 } else { tokens(&model, &leaf.content) };
                let LeafRow { id, title, content: text, embed, .. } = leaf;
                Node { id, title, text, tokens, first_leaf, vector: unit(&embed) }
            };
            leaves.into_iter().enumerate().map(node).collect()
        });
        counted.await.classified()
    }

    async fn level(&self, nodes: Vec<Node>) -> Result<(Vec<Node>, Level), TaskFailure> {
        let (model, cancel, request) = (self.model.clone(), self.cancel.clone(), self.request);
        let made = tokio::task::spawn_blocking(move || {
            let special = model.count_tokens("").unwrap_or(0);
            let window = model.document_window().saturating_sub(special);
            let count = |text: &str| tokens(&model, text);
            let made = level(&nodes, &request, window, &count, &|| cancel.is_cancelled());
            made.map(|level| (nodes, level))
        });
        made.await.classified()?.ok_or_else(stopped)
    }

    /// Embeds new summaries; returns those that can be clustered in turn.
    async fn embed(&mut self, level: usize, nodes: &[Node], new: Vec<NewSummary>) -> Result<Vec<Node>, TaskFailure> {
        let ids = reserve(self.tools, new.len()).await?;
        self.meter.set(0, new.len(), SUMMARIES);
        let mut next = Vec::with_capacity(new.len());
        let mut open = ids.into_iter().zip(new).peekable();
        while open.peek().is_some() {
            if self.cancel.is_cancelled() {
                return Err(stopped());
            }
            let part: Vec<(DocumentId, NewSummary)> = open.by_ref().take(TEXTS).collect();
            let rows: Vec<TextRow> = part.iter().map(|(id, new)| text_row(*id, new)).collect();
            let embedded = windows::embed(&self.model, &rows).await?;
            self.meter.advance(rows.len());
            let vectors: HashMap<DocumentId, &Weighted> = embedded.ids.iter().copied().zip(&embedded.vectors).collect();
            for (id, new) in part {
                if let Some(vector) = vectors.get(&id) {
                    let (title, text) = (new.title.clone(), new.summary.text.clone());
                    let (tokens, first_leaf) = (new.summary.tokens, new.first_leaf);
                    next.push(Node { id, title, text, tokens, first_leaf, vector: unit(&vector.vector) });
                }
                let members = new.members.iter().map(|(member, _)| nodes[*member].id).collect();
                self.summaries.push(Placed { id, level, new, members });
            }
            self.vectors.0.extend(embedded.ids);
            self.vectors.1.extend(embedded.vectors);
            self.notes.extend(embedded.notes);
        }
        Ok(next)
    }

    /// The postings of the summaries, for the indexes that summaries are not kept out of.
    async fn postings(&self, place: &Place) -> Result<Postings, TaskFailure> {
        let text = |placed: &Placed| {
            let new = &placed.new;
            bm25::Text::new(placed.id, Usetype::Summary.as_str(), &new.title, &new.summary.text, &[])
        };
        let texts = || self.summaries.chunks(ROWS / 4).map(|part| part.iter().map(text).collect()).collect();
        Postings::of_new(self.tools, place.id(), Usetype::Summary, texts).await.classified()
    }

    /// Stores the tree under its document.
    async fn store(&self, tx: &mut Transaction<'_>, place: &Place, leaves: usize) -> Result<RaptorTree, TaskFailure> {
        let tree = RaptorTree {
            raptor_id: self.id.0,
            model: self.model.identity().to_owned(),
            request: self.request,
            leaves,
            summaries: self.summaries.len(),
            by_model: self.summaries.iter().filter(|placed| placed.new.summary.method == Method::Written).count(),
            levels: self.levels.clone(),
            without_vector: self.notes.iter().filter(|(_, note)| note.get("skipped").is_some()).count(),
        };
        let within = place.of_new(self.id, place.children_path());
        let node = |id, parent_id, path: &[i64], title: &str, content: &str, usetype, position| NewNode {
            id,
            parent_id,
            path: path.to_vec(),
            title: title.to_owned(),
            content: content.to_owned(),
            usetype,
            position,
            structured_content: json!({}),
            anchor: Value::Null,
        };
        let holder = node(self.id, place.id(), within.path(), "Summaries", "", Usetype::Raptor, POSITION);
        store::nodes::insert(tx.conn(), &self.tools.lexicon, place, RULE, &[holder]).await.classified()?;
        let below = within.children_path();
        for (part, first) in self.summaries.chunks(ROWS).zip((0..).step_by(ROWS)) {
            let new = |(placed, position): (&Placed, i32)| {
                let (title, text) = (tree::title(&placed.new.title), &placed.new.summary.text);
                node(placed.id, self.id, &below, &title, text, Usetype::Summary, position)
            };
            let rows: Vec<NewNode> = part.iter().zip(first..).map(new).collect();
            store::nodes::insert(tx.conn(), &self.tools.lexicon, place, RULE, &rows).await.classified()?;
        }
        let derived = |placed: &Placed| {
            let of =
                |(of, (_, share)): (&DocumentId, &(usize, f64))| Derived { summary: placed.id, of: *of, share: *share };
            placed.members.iter().zip(&placed.new.members).map(of).collect::<Vec<_>>()
        };
        let derived: Vec<Derived> = self.summaries.iter().flat_map(derived).collect();
        store::raptor::link(tx.conn(), &within, &derived).await.classified()?;
        let made = |placed: &Placed| {
            let summary = &placed.new.summary;
            let mut how = json!({"level": placed.level, "method": summary.method.as_str(), "members": placed.members.len(), "tokens": summary.tokens});
            if let Some(reason) = &placed.new.not_written {
                how["not_written"] = reason.as_str().into();
            }
            (placed.id, how)
        };
        let made: Vec<(DocumentId, Value)> = self.summaries.iter().map(made).collect();
        store::raptor::record(tx.conn(), &within, &made).await.classified()?;
        let shown = serde_json::to_value(&tree).classified()?;
        store::evidence::record(tx.conn(), self.id, Evidence::Raptor, &shown).await.classified()?;
        for (id, note) in &self.notes {
            store::evidence::record(tx.conn(), *id, Evidence::Embed, note).await.classified()?;
        }
        vectors::set(tx.conn(), &within, &self.vectors.0, &self.vectors.1, self.model.identity()).await.classified()?;
        let all: Vec<DocumentId> = made.iter().map(|(id, _)| *id).chain([self.id]).collect();
        store::nodes::leave_flight(tx.conn(), &all, Settled::Settled).await.classified()?;
        store::events::record(tx.conn(), EventKind::DocumentCreated, &[self.id], &json!({})).await.classified()?;
        let count = all.len() as i64;
        let change = Frontier { total: count, settled: count, ..Frontier::default() };
        store::ingest_nodes::count(tx.conn(), place.id(), change).await.classified()?;
        Ok(tree)
    }
}

async fn reserve(tools: &Tools, count: usize) -> Result<Vec<DocumentId>, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    store::nodes::reserve_ids(&mut conn, count).await.classified()
}

fn text_row(id: DocumentId, new: &NewSummary) -> TextRow {
    TextRow {
        id,
        title: tree::title(&new.title),
        content: new.summary.text.clone(),
        usetype: Usetype::Summary.as_str().to_owned(),
        settled: Word(Settled::InFlight),
        titles: Vec::new(),
    }
}

fn stopped() -> TaskFailure {
    TaskFailure::retryable("stopped", "the task was stopped")
}

/// A tokenizer that fails on a text has a defect; then the length in bytes is a safe upper bound.
fn tokens(model: &Model, text: &str) -> usize {
    model.count_content_tokens(text).unwrap_or(text.len())
}

fn unit(vector: &HalfVector) -> Vec<f32> {
    vectors::unit(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_trees_wait_the_longer_each_of_them_does() {
        for (trees, seconds) in [(1, 15.0), (100, 15.0), (1_000, 50.0), (10_000, 500.0)] {
            let waited = later(trees).as_secs_f64();
            assert!((seconds * 0.5..=seconds * 1.5).contains(&waited), "{trees} trees: {waited}");
        }
        assert_ne!(later(1), later(1));
    }
}
