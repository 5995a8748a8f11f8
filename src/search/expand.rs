//! Pseudo-relevance feedback: what the best texts of a search have in common is searched for too.
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

/// How many of the best results are looked at for [`FED_BACK`] texts: containers have none of their own.
const LOOKED_AT: u32 = 30;
/// How many terms are added: with ten texts RM3's usual values.
const ADDED: usize = 10;
/// How much all of them count, where the words of the query count 1 together. With 1, as RM3 usually has it, questions about a subject hardly gain more, and searches for one text
/// lose more than twice as much (docs/search.md).
const SHARE: f64 = 0.3;
/// How many of the likeliest terms are compared by how rare they are.
const LIKELIEST: usize = 64;
/// How many characters of a text are read.
const READ: i32 = 8_000;

/// The terms that are added to the query of a search, which ranks by `plain` without them; `None` if nobody asked for some. They stand in texts that the search finds, and so in
/// none that its caller may not read: only how rare each of them is, as in every score of BM25, follows from all texts. A further page takes them from the texts of the first.
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
        // What has none of the query's words may be near to it only because nothing is nearer.
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
    let known = store::indexes::terms::frequencies(&mut conn, name, &likeliest).await.or_fail()?;
    drop(conn);
    let rarity: HashMap<String, f64> =
        known.into_iter().map(|(term, df, docs)| (term, idf(docs as f64, df.max(0) as f64))).collect();
    // What the index does not know, it does not find.
    let chosen = characteristic(model, |term| rarity.get(term).copied().unwrap_or_default(), ADDED);
    Ok(Some(chosen.into_iter().map(|(term, share)| (term, SHARE * share)).collect()))
}

/// What an answer says of the terms that were added.
pub(super) fn named(added: Option<Vec<Weighted>>) -> Option<Vec<String>> {
    added.map(|added| added.into_iter().map(|(term, _)| term.into()).collect())
}
