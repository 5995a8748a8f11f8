//! embed: vectors and postings for a batch of leaves, or for documents that were written over REST.
use super::{
    Apply, OrTaskFailure,
    apply::Transaction,
    beside::Beside,
    structure::model,
    types::EMBED,
    windows::{self, Embedded},
};
use crate::{
    embedding::Model,
    ingest::{
        Tools,
        postings::Postings,
        queueing::{Queueing, Work},
        segments::outdate_sums,
        settle,
    },
    search::maxsim,
    store::{self, evidence::Evidence, growth::Timed, nodes::TextRow, places::Place},
};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use svc_actors::{Grant, LeafRange, Outcome, TaskFailure, WriteMode};
use svc_client::wire::Settled;
use svc_ids::{DocumentId, RootId};
use svc_models::TokenVectors;

pub async fn run(tools: &Tools, mut apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let model = model(tools).await?;
    let mut beside = Beside::claim(tools, &apply).await;
    loop {
        let made = tokio::select! {
            made = make(tools, &apply, beside.grants(), &model) => made,
            failure = beside.kept() => Err(failure),
        };
        let failure = match made {
            Ok(made) => {
                let mut tx = apply.begin_by_keys().await?;
                match write(tools, &mut tx, made, &beside, model.identity()).await {
                    Ok(detail) => {
                        let outcome = tx.complete(detail).await?;
                        if outcome == Outcome::Completed {
                            beside.have_ended();
                        }
                        return Ok(outcome);
                    }
                    Err(failure) if beside.grants().is_empty() => return Err(failure),
                    Err(failure) => {
                        apply = tx.undo().await?;
                        failure
                    }
                }
            }
            // What is away is away for one document too.
            Err(failure) if beside.grants().is_empty() || !failure.counts => return Err(failure),
            Err(failure) => failure,
        };
        beside = beside.given_up(&failure);
    }
}

/// What was made of the texts of a task, until it is written.
struct Made {
    /// The task embeds leaves of a file.
    is_batch: bool,
    /// The documents that the task's parameters name, with the times of their last changes.
    together: Option<Vec<(DocumentId, DateTime<Utc>)>>,
    rows: Vec<TextRow>,
    is_sum: bool,
    embedded: Embedded,
    tokens: Vec<(DocumentId, TokenVectors)>,
    postings: Postings,
}

/// What the model takes of a task, which is told at its end, whatever came of it: what waits for a model does not wait for the database.
struct Encoding<'a> {
    tools: &'a Tools,
    took: Duration,
}

impl Encoding<'_> {
    /// Counts what the model takes for this.
    async fn of<T>(&mut self, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = work.await;
        self.took += begun.elapsed();
        done
    }
}

impl Drop for Encoding<'_> {
    fn drop(&mut self) {
        self.tools.load.record(Timed::Encode, self.took);
    }
}

/// Makes the vectors and postings of what a task embeds, and of the documents of the tasks beside it.
async fn make(tools: &Tools, apply: &Apply<'_>, beside: &[Grant], model: &Model) -> Result<Made, TaskFailure> {
    let grant = apply.grant;
    let batch = leaves_of(&grant.params);
    let mut together = None;
    let rows = {
        let mut conn = tools.pool.acquire().await.classified()?;
        match (&batch, documents_of(&grant.params)) {
            (Some(runs), _) => store::nodes::leaves(&mut conn, grant.document_id, runs).await,
            (None, Some(ids)) => {
                // A change after this counts as one, even if the text read below has it already.
                together = Some(store::batch::times(&mut conn, &ids).await.classified()?);
                store::nodes::texts(&mut conn, &ids).await
            }
            (None, None) => {
                let ids: Vec<DocumentId> =
                    std::iter::once(grant).chain(beside).map(|grant| grant.document_id).collect();
                store::nodes::texts(&mut conn, &ids).await
            }
        }
        .classified()?
    };
    let ids: Vec<DocumentId> = rows.iter().map(|row| row.id).collect();
    let postings = Postings::prepare(tools, &rows).await.classified()?;
    let is_sum = match (&batch, &together, beside) {
        (None, None, []) => {
            let mut conn = tools.pool.acquire().await.classified()?;
            store::segments::sums::is_sum(&mut conn, grant.document_id).await.classified()?
        }
        _ => false,
    };
    let mut encoding = Encoding { tools, took: Duration::ZERO };
    let texts: &[TextRow] = if is_sum { &[] } else { &rows };
    let embedded = windows::embed_counted(model, texts, tools.settings.title_paths, &apply.meter);
    let embedded = encoding.of(embedded).await?;
    // A document that had token vectors before its text changed has them again.
    let had_tokens = grant.params["tokens"].as_bool() == Some(true);
    let wanted: HashSet<DocumentId> = {
        let mut conn = tools.pool.acquire().await.classified()?;
        store::token_vectors::wanted(&mut conn, &ids).await.classified()?.into_iter().collect()
    };
    let of_tokens: Vec<&TextRow> = rows.iter().filter(|row| had_tokens || wanted.contains(&row.id)).collect();
    let tokens = encoding.of(maxsim::made(&tools.settings, model, &of_tokens)).await.classified()?;
    Ok(Made { is_batch: batch.is_some(), together, rows, is_sum, embedded, tokens, postings })
}

/// Writes what was made, and completes the tasks beside this one. Returns the detail of this one's attempt.
async fn write(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    made: Made,
    beside: &Beside<'_>,
    model: &str,
) -> Result<Map<String, Value>, TaskFailure> {
    let grant = tx.grant();
    let Made { is_batch, together, rows, is_sum, mut embedded, mut tokens, mut postings } = made;
    let ids: Vec<DocumentId> = rows.iter().map(|row| row.id).collect();
    // The file's own row is among them if its evidence changes too.
    let file = (is_batch && embedded.refused().next().is_some()).then(|| grant.root_id.document());
    let locked: Vec<DocumentId> = ids.iter().copied().chain(file).collect();
    store::locks::documents(tx.conn(), &locked).await.classified()?;
    if store::titles::have_changed(tx.conn(), &rows).await.classified()? {
        let message = "a title above the texts changed while they were embedded";
        // However often somebody changes it, no text fails.
        return Err(TaskFailure { counts: false, ..TaskFailure::retryable("titles_changed", message) });
    }
    if let Some(seen) = &together {
        let unchanged = leave_out_changed(tools, tx, seen).await?;
        embedded.keep(&unchanged);
        tokens.retain(|(id, _)| unchanged.contains(id));
        postings.keep(&unchanged);
    }
    let within = Place::of_claim(grant);
    store::vectors::set(tx.conn(), &within, &embedded.ids, &embedded.vectors, model).await.classified()?;
    if is_sum {
        store::segments::sums::set(tx.conn(), &within, &ids, model).await.classified()?;
        // A move to another model may have said why they had no vector.
        store::evidence::remove_all(tx.conn(), &ids, Evidence::Embed).await.classified()?;
    }
    if !is_batch {
        outdate_sums(&tools.settings.task_badges, tx.conn(), &ids).await.classified()?;
    }
    for (id, tokens) in &tokens {
        let rows = maxsim::rows(&tools.settings, model, tokens);
        let rows = rows.map_err(|failure| TaskFailure::permanent("token_vectors", failure.detail))?;
        let claim = std::iter::once(grant).chain(beside.grants()).find(|grant| grant.document_id == *id);
        let place = claim.map_or_else(|| within.of_new(*id, within.children_path()), Place::of_claim);
        store::token_vectors::replace(tx.conn(), &place, &rows).await.classified()?;
    }
    postings.write(tools, tx.conn()).await.classified()?;
    record(tx.conn(), &embedded).await.classified()?;
    if is_batch {
        let moved = store::nodes::leave_flight(tx.conn(), &ids, Settled::Settled).await.classified()?;
        settle::leaves_done(tx.conn(), grant.root_id, &moved, Settled::Settled).await.classified()?;
        let settled: Vec<_> = moved.iter().map(|node| (grant.root_id, node.id)).collect();
        store::events::nodes(tx.conn(), &settled).await.classified()?;
    }
    if let Some(file) = file {
        for (reason, count) in refused(&embedded, |_| true) {
            store::evidence::count(tx.conn(), file, Evidence::WithoutVector, reason, count).await.classified()?;
        }
    }
    // Whoever may read a document need not read the others of its pass.
    let alone = |document: DocumentId| detail(&embedded, model, |id| id == document);
    if !beside.grants().is_empty() {
        let others: Vec<_> = beside.grants().iter().map(|other| (other, alone(other.document_id))).collect();
        tx.complete_beside(&others, beside.claimed_at()).await?;
    }
    Ok(match is_batch {
        true => detail(&embedded, model, |_| true),
        false => alone(grant.document_id),
    })
}

/// What the attempt of a task says of its documents.
fn detail(embedded: &Embedded, model: &str, is_told: impl Fn(DocumentId) -> bool) -> Map<String, Value> {
    let mut detail = Map::new();
    detail.insert("embedded".to_owned(), embedded.ids.iter().filter(|id| is_told(**id)).count().into());
    detail.insert("model".to_owned(), model.into());
    detail.extend(refused(embedded, is_told).map(|(reason, count)| (reason.to_owned(), count.into())));
    detail
}

/// For each reason, how many of these documents have no vector because of it.
fn refused(embedded: &Embedded, is_told: impl Fn(DocumentId) -> bool) -> impl Iterator<Item = (&'static str, usize)> {
    let count =
        move |reason: &&str| embedded.refused().filter(|(id, skipped)| is_told(*id) && skipped == reason).count();
    ["text_too_long", "no_direction", "unknown_tokens", "runner_refuses"]
        .into_iter()
        .map(move |reason| (reason, count(&reason)))
        .filter(|(_, count)| *count > 0)
}

/// Returns the documents of a batch that are still as they were read. Others may have changed, because the task reserves only one
/// document; each of those gets a task of its own.
async fn leave_out_changed(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    seen: &[(DocumentId, DateTime<Utc>)],
) -> Result<HashSet<DocumentId>, TaskFailure> {
    let unchanged = store::batch::unchanged(tx.conn(), seen).await.classified()?;
    let changed: Vec<DocumentId> = seen.iter().map(|(id, _)| *id).filter(|id| !unchanged.contains(id)).collect();
    for place in store::batch::places(tx.conn(), &changed).await.classified()? {
        let queueing = Queueing::of_file(place.id().as_root(), &tools.settings.task_badges);
        // What waits in a batch of a provider would keep the new task waiting for up to a day.
        store::llm_batches::leave(tx.conn(), &place, WriteMode::Itself).await.classified()?;
        queueing.add(tx.conn(), &place, Work::of(&EMBED).write_mode(WriteMode::Itself)).await.classified()?;
    }
    Ok(unchanged)
}

/// The leaves that one task embeds.
pub(super) struct Leaves {
    /// The node that contains the leaves.
    pub under: Place,
    pub range: LeafRange,
    /// The leaves' ids as ranges that contain no other leaf: the first and the last id of each.
    pub runs: Vec<(DocumentId, DocumentId)>,
}

/// Queues the embedding of some leaves; the task reserves only these.
pub(super) async fn enqueue(
    tools: &Tools,
    conn: &mut PgConnection,
    root_id: RootId,
    leaves: Leaves,
) -> Result<(), TaskFailure> {
    let work = Work::of(&EMBED).params(json!({"leaves": leaves.runs})).leaves(&leaves.range);
    let queueing = Queueing::of_file(root_id, &tools.settings.task_badges);
    queueing.add(conn, &leaves.under, work).await.classified().map(|_| ())
}

/// The leaves that a task's parameters name; `None` if the task embeds its own document.
pub fn leaves_of(params: &Value) -> Option<Vec<(DocumentId, DocumentId)>> {
    serde_json::from_value(params.get("leaves")?.clone()).ok()
}

/// The documents that a task's parameters name; `None` if the task embeds leaves or its own document.
fn documents_of(params: &Value) -> Option<Vec<DocumentId>> {
    serde_json::from_value(params.get("documents")?.clone()).ok()
}

/// Records how texts got their vectors, or why they have none.
pub(super) async fn record(conn: &mut PgConnection, embedded: &Embedded) -> sqlx::Result<()> {
    let notes: Vec<_> = embedded.notes.iter().map(|(id, note)| (*id, Evidence::Embed, note.clone())).collect();
    if notes.is_empty() { Ok(()) } else { store::evidence::record_all(conn, &notes).await }
}
