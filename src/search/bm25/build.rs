//! Building an index from the documents that are there.
use super::{Error, Text, prepare, remove, replace};
use crate::{
    core::Core,
    search::maxsim,
    store::{
        self,
        indexes::{
            DEFAULT,
            manage::{self, Building},
            postings,
        },
        lexicon::Lexicon,
        nodes::TextRow,
    },
};
use std::collections::{HashMap, HashSet};
use svc_client::wire::Settled;
use svc_ids::{DocumentId, IndexId};

/// How many documents one transaction of a build reads.
const BATCH: i64 = 200;

/// How often documents are read anew that settle while they are put into an index.
const TRIES: usize = 10;

/// It reads no more documents after their texts have this many bytes, because it holds them all, some of them twice.
const BATCH_BYTES: i64 = 16 << 20;

/// Goes on building an index, for at most so many batches; returns true if it is done. Each batch is a transaction of its own, so that a
/// build that is cut off goes on where it was.
pub async fn build(core: &Core, index: IndexId, batches: usize) -> Result<bool, Error> {
    for _ in 0..batches {
        let mut conn = core.pool.acquire().await?;
        let Some(from) = manage::building(&mut conn, index).await? else { return Ok(true) };
        let ids = manage::documents_after(&mut conn, from.at, BATCH, BATCH_BYTES).await?;
        drop(conn);
        if from.has_tokens {
            // These are made again if this step breaks off after them, and then none is missing.
            maxsim::fill(core, &ids).await.map_err(|failure| Error::Tokens(failure.detail))?;
        }
        let step = Some((from, ids.last().copied()));
        put(core, index, &ids, step).await?;
    }
    Ok(false)
}

/// Puts documents into an index, or takes them out if they do not belong there. Returns those that it holds now. The step is that of a
/// build: where it was, and the document that it is at afterwards.
pub async fn put(
    core: &Core,
    index: IndexId,
    ids: &[DocumentId],
    step: Option<(Building, Option<DocumentId>)>,
) -> Result<HashSet<DocumentId>, Error> {
    for _ in 1..TRIES {
        match put_as_read(core, index, ids, step).await {
            // The terms that this process remembers went with what the index held before or were purged, or a document or a title is another one by now.
            Err(Error::StaleTerms(_) | Error::Changed) => {}
            put => return put,
        }
    }
    put_as_read(core, index, ids, step).await
}

async fn put_as_read(
    core: &Core,
    index: IndexId,
    ids: &[DocumentId],
    step: Option<(Building, Option<DocumentId>)>,
) -> Result<HashSet<DocumentId>, Error> {
    let mut conn = core.pool.acquire().await?;
    let covered: HashSet<DocumentId> = (store::indexes::covering(&mut conn, ids).await?.into_iter())
        .filter(|(of, _)| *of == index)
        .map(|(_, id)| id)
        .collect();
    let mut ids = ids.to_vec();
    if step.is_some_and(|(from, _)| !from.replaces) {
        // What the index holds and covers changes with its document.
        let held = postings::held(&mut conn, index, &ids).await?;
        ids.retain(|id| held.contains(id) != covered.contains(id));
    }
    let ids = ids.as_slice();
    let seen = store::batch::times(&mut conn, ids).await?;
    let rows = store::nodes::texts(&mut conn, ids).await?;
    // Full text is built with the index that is there from the start, and in its language, which this process may have been told too late.
    let default = store::indexes::by_name(&mut conn, DEFAULT).await?.filter(|default| default.id == index);
    drop(conn);
    let settled: HashSet<DocumentId> =
        rows.iter().filter(|row| row.settled.0 == Settled::Settled).map(|row| row.id).collect();
    let texts: Vec<Text> = rows
        .iter()
        .filter(|row| settled.contains(&row.id) && covered.contains(&row.id))
        .map(Text::of)
        .filter(|text| !text.is_blank())
        .collect();
    let mut held: HashSet<DocumentId> = texts.iter().map(|text| text.document_id).collect();
    let mut prepared = prepare(&core.pool, &core.postings, index, texts).await?;
    let mut tx = store::transaction::begin(&core.pool).await?;
    store::locks::documents(&mut tx, ids).await?;
    // Another process may have made this step, or have begun anew.
    let is_ours = match step {
        Some((from, _)) => manage::lock_build(&mut tx, index).await? == Some(from),
        None => true,
    };
    if is_ours {
        // The task that embeds chunks anew under another title may have ended before these are written. Whatever settled a document since it was read
        // may have looked for indexes before this one was there, and what is in flight again by now is in none.
        let states: HashMap<DocumentId, Settled> = store::nodes::states(&mut tx, ids).await?;
        let is_other = |row: &TextRow| states.get(&row.id).is_some_and(|settled| *settled != row.settled.0);
        if store::titles::have_changed(&mut tx, &rows).await? || rows.iter().any(is_other) {
            return Err(Error::Changed);
        }
        // What has changed meanwhile has a task of its own.
        let unchanged = store::batch::unchanged(&mut tx, &seen).await?;
        held.retain(|id| unchanged.contains(id));
        prepared.keep(&held);
        // What was in flight is in no index, unless a task has just put it there.
        let others: Vec<DocumentId> =
            settled.into_iter().filter(|id| unchanged.contains(id) && !held.contains(id)).collect();
        remove(&mut tx, Some(index), &others).await?;
        let replaced = replace(&mut tx, &prepared).await;
        if matches!(replaced, Err(Error::StaleTerms(_))) {
            core.postings.forget_term_ids();
        }
        replaced?;
        if let Some((_, to)) = step {
            if let Some(default) = default {
                let words = rows.iter().filter(|row| unchanged.contains(&row.id));
                let lexicon = Lexicon::of(default.config.analyzer.language);
                store::fulltext::renew(&mut tx, &lexicon, words).await?;
            }
            manage::set_built(&mut tx, index, to).await?;
        }
        tx.commit().await?;
    }
    Ok(held)
}
