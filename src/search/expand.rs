//! Pseudo-relevance feedback: the search adds to its query what its best texts have in common.
use super::{
    Found, LEG_DEPTH, Ranking,
    bm25::Query,
    fusing::{Fusing, FusingOpen, fusing},
    joined, joining,
    paging::{FED_BACK, Page},
    rungs,
};
use crate::{
    core::Core,
    error::OrFail,
    store::{self, documents::Beginning, search::Eligible},
};
use std::{collections::HashMap, sync::OnceLock};
use svc_client::{Code, Failure, wire::HybridSearch};
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
/// Where so many documents are among the first [`FIRST`] of both legs, the query is about a subject that many texts have, and terms of the best ones help. Where fewer are,
/// somebody may look for a single text, which the terms of others bring down (docs/search.md).
const AGREED: usize = 3;
const FIRST: usize = 10;

/// The terms that a hybrid search adds to its query. Where the legs decide about them, they are known from its first ranking on.
pub(super) struct Added(OnceLock<Option<Expansion>>);

/// Terms to add to a query, and the texts that they come from.
struct Expansion {
    terms: Vec<Weighted>,
    fed_back: Vec<DocumentId>,
}

impl Added {
    /// Where nothing is left to decide.
    pub fn known(terms: Option<Vec<Weighted>>, page: &Page) -> Added {
        Added(OnceLock::from(terms.map(|terms| Expansion { terms, fed_back: page.fed_back.clone() })))
    }

    /// Nothing.
    pub fn none() -> Added {
        Added(OnceLock::from(None))
    }

    /// What the legs of the first ranking decide.
    pub fn by_agreement() -> Added {
        Added(OnceLock::new())
    }

    pub fn is_decided(&self) -> bool {
        self.0.get().is_some()
    }

    /// Only the first ranking decides.
    fn decide(&self, expansion: Option<Expansion>) {
        self.0.get_or_init(|| expansion);
    }

    fn expansion(&self) -> Option<&Expansion> {
        self.0.get()?.as_ref()
    }

    pub fn terms(&self) -> &[Weighted] {
        self.expansion().map_or(&[], |expansion| &expansion.terms)
    }

    /// The texts that the terms come from.
    pub fn fed_back(&self) -> &[DocumentId] {
        self.expansion().map_or(&[], |expansion| &expansion.fed_back)
    }

    /// The names of the terms, for the answer; `None` if the query was not expanded.
    pub fn named(&self) -> Option<Vec<String>> {
        self.expansion().map(|expansion| names(&expansion.terms))
    }
}

/// The first ranking of a hybrid search whose legs decide whether terms are added to its query. If they do not agree, it is the plain one. If they do, BM25 ranks
/// again with the terms, and what the vectors found stays.
pub(super) async fn where_agreed(
    core: &Core,
    eligible: &Eligible,
    body: &HybridSearch,
    added: &Added,
    depth: u32,
) -> Result<Found, Failure> {
    let (rungs, index) = (rungs(LEG_DEPTH, depth), body.index.as_deref());
    let query = Query::from(body.query.as_str());
    let plain = fusing(core, eligible, (index, query), joining(body), &rungs).await?;
    if plain.shared(FIRST) < AGREED {
        added.decide(None);
        return joined(plain, eligible, body, &rungs, depth).await;
    }
    let (legs, terms, fed_back) = Box::pin(characteristic_of(core, eligible, (plain, &rungs), index)).await?;
    let query = Query { text: &body.query, added: &terms };
    let expanded = legs.again_by_words(core, eligible, (index, query)).await?;
    let found = joined(expanded, eligible, body, &rungs, depth).await?;
    added.decide(Some(Expansion { terms, fed_back }));
    Ok(found)
}

/// The terms of the best texts of both legs, and these texts.
async fn characteristic_of(
    core: &Core,
    eligible: &Eligible,
    (plain, rungs): (FusingOpen, &[u32]),
    index: Option<&str>,
) -> Result<(Fusing, Vec<Weighted>, Vec<DocumentId>), Failure> {
    let counts = (rungs.len() == 1).then_some(LOOKED_AT);
    let (legs, not_held, _) = plain.close_with(eligible, index, None, counts).await?;
    let fused = legs.at_rung(&not_held, LEG_DEPTH);
    let best: Vec<DocumentId> = fused
        .iter()
        .take(LOOKED_AT as usize)
        .filter(|result| result.bm25.is_some())
        .map(|result| DocumentId(result.id))
        .collect();
    let (terms, fed_back) = of_texts(core, eligible, index, &best).await?;
    Ok((legs, terms, fed_back))
}

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
    let (terms, fed_back) = of_texts(core, eligible, plain.index(), &best).await?;
    page.fed_back = fed_back;
    Ok(Some(terms))
}

/// The terms that say most about the best of these documents that have a text, and which these are.
async fn of_texts(
    core: &Core,
    eligible: &Eligible,
    index: Option<&str>,
    best: &[DocumentId],
) -> Result<(Vec<Weighted>, Vec<DocumentId>), Failure> {
    if best.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let name = index.unwrap_or(store::indexes::DEFAULT);
    let mut conn = core.pool.acquire().await.or_fail()?;
    let read = store::documents::beginnings(&mut conn, &eligible.scope, best, READ).await.or_fail()?;
    let index = store::indexes::by_name(&mut conn, name).await.or_fail()?;
    drop(conn);
    // Without a BM25 leg there is no index that the search needs.
    let Some(index) = index else { return Ok((Vec::new(), Vec::new())) };
    let mut read: HashMap<DocumentId, Beginning> = read.into_iter().map(|read| (read.id, read)).collect();
    let in_order = best.iter().filter_map(|id| read.remove(id));
    let texts: Vec<Beginning> = in_order.filter(|read| !read.text.trim().is_empty()).take(FED_BACK).collect();
    let fed_back: Vec<DocumentId> = texts.iter().map(|read| read.id).collect();
    let config = index.config.0.analyzer;
    let work = tokio::task::spawn_blocking(move || {
        let texts: Vec<String> = texts.iter().map(|read| super::text(&read.usetype, &read.title, &read.text)).collect();
        relevance_model(&Analyzer::new(config), &texts, LIKELIEST)
    });
    let model = work.await.map_err(|error| Failure::new(Code::Internal, error))?;
    let likeliest: Vec<&str> = model.iter().map(|(term, _)| &**term).collect();
    let mut conn = core.pool.acquire().await.or_fail()?;
    let known = store::indexes::terms::frequencies(&mut conn, name, &fed_back, &likeliest).await.or_fail()?;
    drop(conn);
    let rarity: HashMap<String, f64> =
        known.into_iter().map(|(term, df, docs)| (term, idf(docs as f64, df.max(0) as f64))).collect();
    // A term that the index does not have for these texts finds none of them.
    let chosen = characteristic(model, |term| rarity.get(term).copied().unwrap_or_default(), ADDED);
    Ok((chosen.into_iter().map(|(term, share)| (term, SHARE * share)).collect(), fed_back))
}

/// The names of terms that were added, for the answer.
pub(super) fn names(added: &[Weighted]) -> Vec<String> {
    added.iter().map(|(term, _)| term.to_string()).collect()
}
