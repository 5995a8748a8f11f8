//! Pseudo-relevance feedback: the search adds to its query what its best texts have in common.
use super::{
    Ranking,
    paging::{FED_BACK, Page},
};
use crate::{
    core::Core,
    error::OrFail,
    store::{self, documents::Beginning, search::Eligible},
};
use std::collections::HashMap;
use svc_client::{Code, Failure};
use svc_ids::DocumentId;
use svc_ranking::{Analyzer, Weighted, characteristic, idf, relevance_model};

/// Among how many of the best results [`FED_BACK`] texts are looked for: containers have no text of their own.
const LOOKED_AT: u32 = 30;
/// How many terms are added. Ten terms of ten texts are the usual values of RM3.
const ADDED: usize = 10;
/// How much all added terms together count, if the words of the query count 1 together. With 1, as is usual with RM3, questions about a subject hardly gain more, and searches
/// for one text lose more than twice as much (docs/search.md).
const SHARE: f64 = 0.3;
/// How many of the likeliest terms are compared by how rare they are.
const LIKELIEST: usize = 64;
/// How many characters of a text are read.
const READ: i32 = 8_000;

/// The terms to add to the query of a search, which `plain` ranks without them; `None` if nobody asked for any. The terms stand in texts that the search finds, so only
/// in texts that the caller may read. Only the rarity of each term follows from all texts, as in every score of BM25. A further page takes the terms from the texts of the first page. Whoever makes a
/// cursor up can name other texts, but gets no term that none of them has in the index.
pub(super) async fn terms(
    core: &Core,
    eligible: &Eligible,
    is_wanted: Option<bool>,
    page: &mut Page,
    plain: Ranking<'_>,
) -> Result<Option<Vec<Weighted>>, Failure> {
    if !is_wanted.unwrap_or_default() {
        return Ok(None);
    }
    let best: Vec<DocumentId> = if page.is_first() {
        let found = plain.first(core, eligible, LOOKED_AT, LOOKED_AT).await?;
        // A text without any word of the query may be near only because nothing is nearer.
        let has_word = |id: &DocumentId| found.legs.get(id).is_some_and(|legs| legs.bm25.is_some());
        found.ranked.iter().map(|(id, _)| *id).filter(has_word).collect()
    } else {
        page.fed_back.clone()
    };
    if best.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let name = plain.index().unwrap_or(store::indexes::DEFAULT);
    let mut conn = core.pool.acquire().await.or_fail()?;
    let read = store::documents::beginnings(&mut conn, &eligible.scope, &best, READ).await.or_fail()?;
    let index = store::indexes::by_name(&mut conn, name).await.or_fail()?;
    drop(conn);
    // Without a BM25 leg there is no index that the search needs.
    let Some(index) = index else { return Ok(Some(Vec::new())) };
    let mut read: HashMap<DocumentId, Beginning> = read.into_iter().map(|read| (read.id, read)).collect();
    let in_order = best.iter().filter_map(|id| read.remove(id));
    let texts: Vec<Beginning> = in_order.filter(|read| !read.text.trim().is_empty()).take(FED_BACK).collect();
    page.fed_back = texts.iter().map(|read| read.id).collect();
    let config = index.config.0.analyzer;
    let work = tokio::task::spawn_blocking(move || {
        let texts: Vec<String> = texts.iter().map(|read| super::text(&read.usetype, &read.title, &read.text)).collect();
        relevance_model(&Analyzer::new(config), &texts, LIKELIEST)
    });
    let model = work.await.map_err(|error| Failure::new(Code::Internal, error))?;
    let likeliest: Vec<&str> = model.iter().map(|(term, _)| &**term).collect();
    let mut conn = core.pool.acquire().await.or_fail()?;
    let known = store::indexes::terms::frequencies(&mut conn, name, &page.fed_back, &likeliest).await.or_fail()?;
    drop(conn);
    let rarity: HashMap<String, f64> =
        known.into_iter().map(|(term, df, docs)| (term, idf(docs as f64, df.max(0) as f64))).collect();
    // A term that the index does not have for these texts finds none of them.
    let chosen = characteristic(model, |term| rarity.get(term).copied().unwrap_or_default(), ADDED);
    Ok(Some(chosen.into_iter().map(|(term, share)| (term, SHARE * share)).collect()))
}

/// The names of the terms that were added, for the answer.
pub(super) fn named(added: Option<Vec<Weighted>>) -> Option<Vec<String>> {
    added.map(|added| added.into_iter().map(|(term, _)| term.into()).collect())
}
