//! embed:titles: embeds and indexes the chunks at and under a document anew, because titles above them changed, and indexes a container of a file
//! anew, because its own did. Each task takes some of them in the order of the tree and queues the next one, so that none is long; until then a chunk
//! is found by what was made of the old titles. A container gets the sum of the new vectors once all that is under it is done.
use super::{Apply, OrTaskFailure, apply::Transaction, embed::record, structure::model, types::EMBED_TITLES, windows};
use crate::{
    ingest::{
        Tools,
        postings::{AsRead, Postings},
        queueing::{Queueing, Work},
        segments::outdate_sums,
        sums,
    },
    search::titles,
    store::{self, evidence::Evidence, nodes::TextRow, places::Place, titles::Below},
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use svc_actors::{Grant, Outcome, TaskFailure};
use svc_client::wire::Settled;
use svc_ids::DocumentId;

/// The most documents that one task looks at, and the bytes of text after which it looks at no more.
const DOCUMENTS: usize = 256;
const BYTES: i64 = 128 << 10;
/// The parameter that says where the task before ended: the ids from the document's child down.
const AFTER: &str = "after";
/// The parameter that leaves the chunks alone, where titles do not count for these.
pub const ALONE: &str = "alone";

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let place = Place::of_claim(grant);
    let after: Option<Vec<i64>> = grant.params.get(AFTER).and_then(|after| serde_json::from_value(after.clone()).ok());
    let model = model(tools).await?;
    let mut conn = tools.pool.acquire().await.classified()?;
    let above = store::titles::above(&mut conn, &place).await.classified()?;
    let is_alone = grant.params[ALONE].as_bool() == Some(true);
    let (below, next) = match is_alone {
        true => (Vec::new(), None),
        false => {
            cut(store::titles::page(&mut conn, &place, after.as_deref(), DOCUMENTS as i64 + 1).await.classified()?)
        }
    };
    let chunks: Vec<DocumentId> = below.iter().filter(|below| below.is_chunk).map(|below| below.id).collect();
    let rows = store::nodes::texts(&mut conn, &chunks).await.classified()?;
    drop(conn);
    let mut postings = Postings::prepare(tools, &rows).await.classified()?;
    let mut embedded = windows::embed_counted(&model, &rows, tools.settings.title_paths, &apply.meter).await?;
    let ended = match is_alone {
        true => BTreeMap::new(),
        false => ended(grant, &place, after.as_deref(), &below, next.as_ref()),
    };
    // The first of these tasks indexes the container.
    let container = above.filter(|above| above.is_container && after.is_none()).map(|_| place.id());
    let own = AsRead::prepare(tools, container.as_slice()).await.classified()?;

    let mut tx = apply.begin().await?;
    // The file's own row is among them, because it counts the parts without a vector.
    let above = ended.values().flatten().copied();
    let roots = [grant.root_id.document()].into_iter().chain(container);
    let locked: Vec<DocumentId> = chunks.iter().copied().chain(above).chain(roots).collect();
    store::locks::documents(tx.conn(), &locked).await.classified()?;
    // What is in flight enters the indexes when it settles.
    let container = match container {
        Some(id) if store::nodes::are_settled(tx.conn(), &[id]).await.classified()? => Some(id),
        _ => None,
    };
    if own.write(tools, tx.conn(), container.as_slice()).await.classified()?.is_err() {
        let message = "the title, or which indexes there are, changed again";
        return Err(TaskFailure { counts: false, ..TaskFailure::retryable("titles_changed", message) });
    }
    let unchanged = unchanged(&mut tx, &rows).await?;
    embedded.keep(&unchanged);
    postings.keep(&unchanged);
    let done: Vec<DocumentId> = unchanged.into_iter().collect();
    let without: Vec<DocumentId> = done.iter().copied().filter(|id| !embedded.ids.contains(id)).collect();
    store::rollups::forget_vectors(tx.conn(), &without).await.classified()?;
    store::vectors::set(tx.conn(), &place, &embedded.ids, &embedded.vectors, model.identity()).await.classified()?;
    postings.write(tools, tx.conn()).await.classified()?;
    let part = store::edits::part(tx.conn(), &place).await.classified()?;
    let file = part.filter(|part| part.is_container || part.file.is_some()).map(|_| grant.root_id);
    store::edits::forget_notes(tx.conn(), &done, file).await.classified()?;
    record(tx.conn(), &embedded).await.classified()?;
    for (_, reason) in embedded.refused().filter(|_| file.is_some()) {
        let file = grant.root_id.document();
        store::evidence::count(tx.conn(), file, Evidence::WithoutVector, reason, 1).await.classified()?;
    }
    outdate_sums(&tools.settings.task_badges, tx.conn(), &done).await.classified()?;
    let levels: Vec<Vec<DocumentId>> = ended.into_values().rev().collect();
    sums::make_anew(&tools.settings.task_badges, tx.conn(), &levels, grant.root_id, model.identity())
        .await
        .classified()?;
    let begins_anew = store::titles::waits(tx.conn(), &place, EMBED_TITLES.name, &[json!({})]).await.classified()?;
    if let (Some(_), Some(last), false) = (&next, below.last(), begins_anew) {
        let work = Work::of(&EMBED_TITLES).params(json!({AFTER: last.way}));
        let queueing = Queueing::of_file(grant.root_id, &tools.settings.task_badges);
        queueing.add(tx.conn(), &place, work).await.classified()?;
    }
    let mut detail = Map::new();
    detail.insert("embedded".to_owned(), embedded.ids.len().into());
    detail.insert("model".to_owned(), Value::from(model.identity()));
    tx.complete(detail).await
}

/// What one task takes of these documents, and the first one behind that.
fn cut(mut below: Vec<Below>) -> (Vec<Below>, Option<Below>) {
    let mut bytes = 0;
    let fits = |below: &&Below| {
        let fits = bytes < BYTES;
        bytes += if below.is_chunk { below.size } else { 0 };
        fits
    };
    let taken = below.iter().take(DOCUMENTS).take_while(fits).count();
    let next = below.drain(taken..).next();
    (below, next)
}

/// The documents of which all that is under them is done when these are, and those above the task's own once everything is, by their depth.
fn ended(
    grant: &Grant,
    place: &Place,
    after: Option<&[i64]>,
    below: &[Below],
    next: Option<&Below>,
) -> BTreeMap<usize, Vec<DocumentId>> {
    let mut ended: BTreeMap<usize, Vec<DocumentId>> = BTreeMap::new();
    let depth = place.path().len();
    // What was to come after the last document of the task before may be gone.
    let mut open = after.unwrap_or_default();
    for way in below.iter().chain(next).map(|below| below.way.as_slice()) {
        let shared = open.iter().zip(way).take_while(|(one, other)| one == other).count();
        for (at, id) in open.iter().enumerate().skip(shared) {
            ended.entry(depth + 1 + at).or_default().push(DocumentId(*id));
        }
        open = way;
    }
    if next.is_none() {
        for (at, id) in open.iter().enumerate() {
            ended.entry(depth + 1 + at).or_default().push(DocumentId(*id));
        }
        ended.entry(depth).or_default().push(place.id());
        for above in place.containers(grant.root_id.document()) {
            ended.entry(above.path().len()).or_default().push(above.id());
        }
    }
    ended
}

/// The chunks that are as they were read and can be found. What changed has a task of its own, and so has what is in flight, which sees the
/// titles as they are now.
async fn unchanged(tx: &mut Transaction<'_>, rows: &[TextRow]) -> Result<HashSet<DocumentId>, TaskFailure> {
    let ids: Vec<DocumentId> = rows.iter().map(|row| row.id).collect();
    let now = store::nodes::texts(tx.conn(), &ids).await.classified()?;
    let now: HashMap<DocumentId, TextRow> = now.into_iter().map(|row| (row.id, row)).collect();
    let is_same = |row: &&TextRow| {
        now.get(&row.id).is_some_and(|now| {
            now.settled.0 == Settled::Settled
                && (&now.content, &now.usetype) == (&row.content, &row.usetype)
                // A segment that came between tells nothing, and so has nobody embed the chunk anew.
                && titles::telling(&now.titles) == titles::telling(&row.titles)
        })
    };
    Ok(rows.iter().filter(is_same).map(|row| row.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(way: &[i64], size: i64) -> Below {
        Below { id: DocumentId(way.last().copied().unwrap_or(1)), way: way.to_vec(), is_chunk: size > 0, size }
    }

    #[test]
    fn a_task_takes_a_bounded_part_and_always_something() {
        let whole: Vec<Below> = (2..302).map(|id| below(&[id], 100)).collect();
        let (taken, next) = cut(whole);
        assert_eq!((taken.len(), next.map(|next| next.id.0)), (DOCUMENTS, Some(2 + DOCUMENTS as i64)));
        let (taken, next) = cut(vec![below(&[2], 10 * BYTES), below(&[3], 1)]);
        assert_eq!((taken.len(), next.map(|next| next.id.0)), (1, Some(3)));
        let (taken, next) = cut(Vec::new());
        assert!(taken.is_empty() && next.is_none());
    }
}
