//! reembed: makes vectors of the coming model for some documents, beside those that serve. `worker/moving.rs` queues these tasks; what they miss,
//! because somebody writes meanwhile, is found by the next pass. Sums are made as soon as nothing under them waits for a vector any more, so
//! those of a whole tree come with its last texts.
use super::{
    Apply, OrTaskFailure,
    apply::Transaction,
    embed::record,
    summary,
    windows::{self, Embedded},
};
use crate::{
    embedding::Model,
    ingest::{Tools, sums},
    search::{self, maxsim, titles},
    store::{
        self,
        model_moves::{self, Kind},
        nodes::TextRow,
    },
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};
use svc_actors::{Outcome, TaskFailure};
use svc_client::wire::Settled;
use svc_ids::DocumentId;
use svc_models::TokenVectors;

/// The parameter that lists the documents of a task.
pub const PAGE: &str = "page";
/// The parameter that names the model to which they are moved.
pub const MODEL: &str = "model";
/// The parameter that says whether their token vectors are made anew too, where they have some of another model.
pub const TOKENS: &str = "tokens";
/// After this time a worker with that model may have come.
const ANOTHER: Duration = Duration::from_secs(10);
/// Why nothing is made.
const OVER: &str = "the move to this model is over, or was called off";
/// Why there is no sum.
const NOTHING_UNDER_IT: &str =
    "embed what is under it: POST /documents/{id}/embed of each; until then only its words are searchable";

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let params = &grant.params;
    let page: Vec<DocumentId> = serde_json::from_value(params[PAGE].clone()).classified()?;
    let to = params[MODEL].as_str().unwrap_or_default().to_owned();
    let model = coming(tools, &to).await?;
    let mut conn = tools.pool.acquire().await.classified()?;
    let kinds = model_moves::kinds(&mut conn, &page, &to).await.classified()?;
    let above: BTreeSet<DocumentId> = kinds.iter().flat_map(|kind| kind.path.iter().copied().map(DocumentId)).collect();
    let own = kinds.iter().filter(|kind| kind.is_sum).map(|kind| kind.id);
    let sums: Vec<DocumentId> = above.into_iter().chain(own).collect();
    let sums = model_moves::containers(&mut conn, &sums).await.classified()?;
    let texts: Vec<DocumentId> =
        kinds.iter().filter(|kind| !kind.is_sum && kind.summary.is_none()).map(|kind| kind.id).collect();
    let rows = store::nodes::texts(&mut conn, &texts).await.classified()?;
    let stale = match params[TOKENS].as_bool() {
        Some(true) => model_moves::stale_tokens(&mut conn, &page, &to).await.classified()?,
        _ => Vec::new(),
    };
    let stale = store::nodes::texts(&mut conn, &stale).await.classified()?;
    drop(conn);
    let mut embedded = windows::embed_counted(&model, &rows, tools.settings.title_paths, &apply.meter).await?;
    let summaries = kinds.iter().filter_map(|kind| Some(summary::row(kind.id, kind.summary.as_deref()?)));
    let mut summaries = windows::embed(&model, &summaries.collect::<Vec<_>>()).await?;
    let tokens = maxsim::made(&tools.settings, &model, &stale.iter().collect::<Vec<_>>()).await.classified()?;

    let mut tx = apply.begin().await?;
    let Some(serves) = model_moves::serves(tx.conn(), &to).await.classified()? else {
        return tx.skip(OVER.to_owned(), Map::new()).await;
    };
    let told: Vec<DocumentId> = kinds.iter().filter(|kind| kind.summary.is_some()).map(|kind| kind.id).collect();
    let tops: Vec<DocumentId> = sums.iter().chain(&told).copied().collect();
    let of_tokens = stale.iter().map(|row| row.id);
    let locked: Vec<DocumentId> = texts.iter().chain(&tops).copied().chain(of_tokens).collect();
    store::locks::documents(tx.conn(), &locked).await.classified()?;
    // Those that settled meanwhile are of what had vectors then, and no pass looks at them again.
    let sums = model_moves::sums_of(tx.conn(), &sums).await.classified()?;
    let lacked = model_moves::kinds(tx.conn(), &tops, &to).await.classified()?.len();
    embedded.keep(&unchanged(&mut tx, &rows).await?);
    write(&mut tx, &embedded, &to).await?;
    let ready = ready(&mut tx, &told, &to, serves).await?;
    summaries.keep(&ready);
    model_moves::add_sums(tx.conn(), &summaries.ids, &to).await.classified()?;
    model_moves::add_summaries(tx.conn(), &summaries.ids, &summaries.vectors, &to).await.classified()?;
    refuse(&mut tx, &summaries).await?;
    climb(&mut tx, &sums, &to, serves).await?;
    replace_tokens(tools, &mut tx, &stale, tokens, &to).await?;
    let lacking = model_moves::kinds(tx.conn(), &tops, &to).await.classified()?.len();
    let made = embedded.ids.len() + lacked.saturating_sub(lacking);
    if !model_moves::count(tx.conn(), &to, i64::try_from(made).unwrap_or(i64::MAX)).await.classified()? {
        return tx.anew().await?.skip(OVER.to_owned(), Map::new()).await;
    }
    // The task stands at one document, whose readers need not know how many others there are.
    let detail = Map::from_iter([("model".to_owned(), Value::from(to))]);
    tx.complete(detail).await
}

/// The model of this name among those of this process.
async fn coming(tools: &Tools, to: &str) -> Result<Model, TaskFailure> {
    for embedder in tools.coming.iter().chain(&tools.embedder) {
        let model = embedder.model().await.classified()?;
        if model.identity() == to {
            return Ok(model);
        }
    }
    let message = format!("this worker has not the model {to}: name it in SVC_EMBEDDING_COMING_MODEL");
    Err(TaskFailure { retry_after: Some(ANOTHER), ..TaskFailure::away("another_model", message) })
}

/// Stores vectors of texts, with what is to be known of them, and records which texts have none.
async fn write(tx: &mut Transaction<'_>, embedded: &Embedded, to: &str) -> Result<(), TaskFailure> {
    model_moves::add(tx.conn(), &embedded.ids, &embedded.vectors, to).await.classified()?;
    refuse(tx, embedded).await?;
    let is_made = |(_, note): &&(DocumentId, Value)| note.get("skipped").is_none();
    let notes = embedded.notes.iter().filter(is_made).cloned().collect();
    store::edits::forget_notes(tx.conn(), &embedded.ids, None).await.classified()?;
    record(tx.conn(), &Embedded { notes, ..Embedded::default() }).await.classified()
}

/// Records which texts have no vector of the model.
async fn refuse(tx: &mut Transaction<'_>, embedded: &Embedded) -> Result<(), TaskFailure> {
    let is_refused = |(_, note): &&(DocumentId, Value)| note.get("skipped").is_some();
    let refused: Vec<(DocumentId, Value)> = embedded.notes.iter().filter(is_refused).cloned().collect();
    model_moves::refuse(tx.conn(), &refused).await.classified()
}

/// Those of these containers whose sums can be made. Where the model serves already, what is there is better than nothing, and the texts that are
/// missing come with others of their own.
async fn ready(
    tx: &mut Transaction<'_>,
    containers: &[DocumentId],
    to: &str,
    serves: bool,
) -> Result<HashSet<DocumentId>, TaskFailure> {
    if serves {
        return Ok(containers.iter().copied().collect());
    }
    let ready = model_moves::ready(tx.conn(), containers, to).await.classified()?;
    Ok(ready.into_iter().collect())
}

/// Makes the sums of these documents. The deepest come first, because the others are made of theirs.
async fn climb(tx: &mut Transaction<'_>, sums: &[Kind], to: &str, serves: bool) -> Result<(), TaskFailure> {
    let mut levels: BTreeMap<usize, Vec<&Kind>> = BTreeMap::new();
    for sum in sums {
        levels.entry(sum.path.len()).or_default().push(sum);
    }
    for level in levels.values().rev() {
        let ids: Vec<DocumentId> = level.iter().map(|sum| sum.id).collect();
        let ready = ready(tx, &ids, to, serves).await?;
        let (ripe, unripe): (Vec<&Kind>, Vec<&Kind>) = level.iter().copied().partition(|sum| ready.contains(&sum.id));
        let of = |segments: bool| ripe.iter().filter(|sum| sum.is_segment == segments).map(|sum| sum.id).collect();
        let (segments, containers): (Vec<DocumentId>, Vec<DocumentId>) = (of(true), of(false));
        let made = model_moves::add_sums(tx.conn(), &containers, to).await.classified()?;
        if serves {
            sums::tell_of(tx.conn(), &containers, &made).await.classified()?;
        }
        model_moves::add_segments(tx.conn(), &segments, to).await.classified()?;
        let unripe: Vec<DocumentId> = unripe.iter().map(|sum| sum.id).collect();
        model_moves::take_back(tx.conn(), &unripe, to).await.classified()?;
        let ripe: Vec<DocumentId> = ripe.iter().map(|sum| sum.id).collect();
        let without = model_moves::kinds(tx.conn(), &ripe, to).await.classified()?;
        let without: Vec<DocumentId> = without.into_iter().map(|sum| sum.id).collect();
        // Of what is under these nothing is left to be made.
        let without = model_moves::ready(tx.conn(), &without, to).await.classified()?;
        let note = json!({"skipped": "nothing_under_it", "remedy": NOTHING_UNDER_IT});
        let refused: Vec<(DocumentId, Value)> = without.into_iter().map(|id| (id, note.clone())).collect();
        model_moves::refuse(tx.conn(), &refused).await.classified()?;
    }
    Ok(())
}

/// Puts token vectors of the model in the place of others. A text that gets none loses those, which no search uses.
async fn replace_tokens(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    stale: &[TextRow],
    tokens: Vec<(DocumentId, TokenVectors)>,
    to: &str,
) -> Result<(), TaskFailure> {
    // What changed has a task of its own, which makes them.
    let unchanged = unchanged(tx, stale).await?;
    let made: HashMap<DocumentId, TokenVectors> = tokens.into_iter().collect();
    let ids: Vec<DocumentId> = unchanged.iter().copied().filter(|id| made.contains_key(id)).collect();
    for place in store::batch::places(tx.conn(), &ids).await.classified()? {
        let Some(tokens) = made.get(&place.id()) else { continue };
        let rows = maxsim::rows(&tools.settings, to, tokens);
        let rows = rows.map_err(|failure| TaskFailure::permanent("token_vectors", failure.detail))?;
        store::token_vectors::replace(tx.conn(), &place, &rows).await.classified()?;
    }
    let without: Vec<DocumentId> = unchanged.into_iter().filter(|id| !made.contains_key(id)).collect();
    model_moves::forget_tokens(tx.conn(), &without).await.classified()
}

/// The texts that are as they were read. What changed is found again by the next pass.
async fn unchanged(tx: &mut Transaction<'_>, rows: &[TextRow]) -> Result<HashSet<DocumentId>, TaskFailure> {
    let ids: Vec<DocumentId> = rows.iter().map(|row| row.id).collect();
    let now = store::nodes::texts(tx.conn(), &ids).await.classified()?;
    let now: HashMap<DocumentId, TextRow> = now.into_iter().map(|row| (row.id, row)).collect();
    let text = |row: &TextRow| search::text(&row.usetype, &row.title, &row.content);
    let is_same = |row: &&TextRow| {
        now.get(&row.id).is_some_and(|now| {
            now.settled.0 == Settled::Settled
                && text(now) == text(row)
                && titles::telling(&now.titles) == titles::telling(&row.titles)
        })
    };
    Ok(rows.iter().filter(is_same).map(|row| row.id).collect())
}
