//! Finds documents. Ranking is pure, SQL stays in the store, and every leg applies the same filter.
pub mod bm25;
mod legs;
pub(crate) mod maxsim;
pub(crate) mod portfolio;
pub(crate) mod rerank;
mod results;

use crate::{
    access::Caller,
    core::Core,
    error::OrFail,
    store::{self, documents::Unsettled, search::Eligible},
    usetype::{Indexed, Usetype},
};
use legs::{Leg, bm25_leg, vector_leg};
use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};
use svc_client::{
    Failure,
    wire::{
        Bm25Search, FulltextSearch, HybridSearch, HybridWeights, Leg as WireLeg, Legs, MaxsimSearch, RerankMethod,
        ScopeState, SearchFilter, SearchMethod, SearchResponse, SearchResult, TotalIs, VectorSearch,
    },
};
use svc_ids::DocumentId;
use svc_ranking::{Fused, Place, Weights, fuse};

/// The fewest results that a leg of a hybrid search contributes.
const LEG_DEPTH: u32 = 100;

/// The fewest documents that late interaction takes from each leg.
const MAXSIM_DEPTH: u32 = 200;

/// The most words in a full-text search; each costs a look at every document that has it.
const FULLTEXT_WORDS: usize = 64;

/// Documents with their scores, best first.
type Ranked = Vec<(DocumentId, f64)>;

/// How many documents match, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Total {
    count: u64,
    exact: bool,
}

impl Total {
    /// The total of a ranking that was asked for `asked` results: if it returned fewer, these are all that match.
    fn of(ranked: &Ranked, asked: u32) -> Total {
        Total { count: ranked.len() as u64, exact: ranked.len() < asked as usize }
    }

    /// The total of two legs that found `union` documents together, ignoring a leg without weight.
    fn of_both(vector: &Leg, bm25: &Leg, weights: Weights, union: usize) -> Total {
        let counted = [(vector, weights.vector), (bm25, weights.bm25)].into_iter().filter(|(_, weight)| *weight > 0.0);
        let all_seen = |leg: &Leg| leg.total.exact && leg.total.count == leg.ranked.len() as u64;
        let most = counted.clone().map(|(leg, _)| leg.total.count).max().unwrap_or_default();
        Total { count: most.max(union as u64), exact: counted.map(|(leg, _)| leg).all(all_seen) }
    }
}

/// The text by which a node is found; that of a caller's own usetype has the title.
pub fn text(usetype: &str, title: &str, content: &str) -> String {
    match Usetype::named(usetype).map_or(Indexed::TitleAndContent, Usetype::indexed) {
        Indexed::Content => content.to_owned(),
        Indexed::TitleAndContent => format!("{title}\n{content}"),
    }
}

/// The results of the first stage, and what is still to be done with them.
struct Found<'a> {
    method: SearchMethod,
    started: Instant,
    query: &'a str,
    limit: u32,
    second_stage: Option<RerankMethod>,
    include_content: bool,
    include_embed: bool,
    ranked: Ranked,
    total: Total,
    legs: HashMap<DocumentId, Legs>,
    no_tokens: HashSet<DocumentId>,
}

/// Makes it from any body of a search.
macro_rules! found {
    ($method:ident, $started:ident, $body:ident, $ranked:expr, $total:expr) => {
        Found {
            method: SearchMethod::$method,
            started: $started,
            query: &$body.query,
            limit: $body.limit,
            second_stage: $body.second_stage(),
            include_content: $body.include_content,
            include_embed: $body.include_embed,
            ranked: $ranked,
            total: $total,
            legs: HashMap::new(),
            no_tokens: HashSet::new(),
        }
    };
}

/// Searches by cosine similarity.
pub async fn vector(core: &Core, caller: &Caller, body: VectorSearch) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let Leg { mut ranked, mut total } = vector_leg(core, &eligible, &body.query, body.depth()).await?;
    if let Some(least) = body.min_similarity {
        let found = ranked.len();
        ranked.retain(|(_, score)| *score >= least);
        // If one of these is too far away, so is everything after it, unless an index gave them: it may have left out some that are nearer.
        let is_whole = found as u64 == total.count || ranked.len() < found;
        total = Total { count: ranked.len() as u64, exact: total.exact && is_whole };
    }
    respond(core, &eligible, found!(Vector, started, body, ranked, total)).await
}

/// Searches by PostgreSQL full text.
pub async fn fulltext(core: &Core, caller: &Caller, body: FulltextSearch) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let words = body.query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).count();
    if words > FULLTEXT_WORDS {
        let detail = format!("a full-text search takes at most {FULLTEXT_WORDS} words, but the query has {words}");
        return Err(Failure::field("query", detail).with("limit", FULLTEXT_WORDS));
    }
    let mut tx = store::transaction::begin_search(&core.pool).await.or_fail()?;
    if !store::search::asks(&mut tx, &body.query).await.or_fail()? {
        return Err(Failure::field("query", "it only forbids words: add one that must occur"));
    }
    let (ranked, count) =
        store::search::fulltext(&mut tx, &eligible, &body.query, i64::from(body.depth())).await.or_fail()?;
    tx.commit().await.or_fail()?;
    let total = Total { count: count.unsigned_abs(), exact: true };
    respond(core, &eligible, found!(Fulltext, started, body, ranked, total)).await
}

/// Searches by BM25.
pub async fn bm25(core: &Core, caller: &Caller, body: Bm25Search) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let Leg { ranked, total } = bm25_leg(core, &eligible, body.index.as_deref(), &body.query, body.depth()).await?;
    respond(core, &eligible, found!(Bm25, started, body, ranked, total)).await
}

/// Searches by late interaction over the candidates of vector and BM25.
pub async fn maxsim(core: &Core, caller: &Caller, body: MaxsimSearch) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let depth = MAXSIM_DEPTH.max(body.depth());
    let (vector, bm25) = tokio::try_join!(
        vector_leg(core, &eligible, &body.query, depth),
        bm25_leg(core, &eligible, body.index.as_deref(), &body.query, depth)
    )?;
    let weights = weights(None);
    let fused = fuse(&numbers(&vector), &numbers(&bm25), weights, 2 * depth as usize);
    let total = Total::of_both(&vector, &bm25, weights, fused.len());
    let candidates: Vec<DocumentId> = fused.iter().map(|result| DocumentId(result.id)).collect();
    let (mut ranked, no_tokens) = rerank::by_tokens(core, &body.query, &candidates).await?;
    ranked.truncate(body.depth() as usize);
    respond(core, &eligible, Found { no_tokens, ..found!(Maxsim, started, body, ranked, total) }).await
}

/// Searches by fusing the ranks of both.
pub async fn hybrid(core: &Core, caller: &Caller, body: HybridSearch) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let depth = LEG_DEPTH.max(body.depth());
    let (vector, bm25) = tokio::try_join!(
        vector_leg(core, &eligible, &body.query, depth),
        bm25_leg(core, &eligible, body.index.as_deref(), &body.query, depth)
    )?;
    let weights = weights(body.weights);
    let mut fused = fuse(&numbers(&vector), &numbers(&bm25), weights, 2 * depth as usize);
    let total = Total::of_both(&vector, &bm25, weights, fused.len());
    fused.truncate(body.depth() as usize);
    let legs = fused.iter().map(|result| (DocumentId(result.id), places(result))).collect();
    let ranked = fused.iter().map(|result| (DocumentId(result.id), result.score)).collect();
    respond(core, &eligible, Found { legs, ..found!(Hybrid, started, body, ranked, total) }).await
}

/// Without weights: vector 0.86, BM25 0.14. With an empty object: equal weights.
fn weights(asked: Option<HybridWeights>) -> Weights {
    match asked {
        None => Weights { vector: 0.86, bm25: 0.14 },
        Some(HybridWeights { vector: Some(vector), bm25: Some(bm25) }) => Weights { vector, bm25 },
        Some(_) => Weights { vector: 1.0, bm25: 1.0 },
    }
}

/// What a leg ranked, as plain numbers, which is what fusion works on.
fn numbers(leg: &Leg) -> Vec<(i64, f64)> {
    leg.ranked.iter().map(|(id, score)| (id.0, *score)).collect()
}

fn places(fused: &Fused) -> Legs {
    let leg = |place: Option<Place>| place.map(|Place { rank, score }| WireLeg { rank, score });
    Legs { vector: leg(fused.vector), bm25: leg(fused.bm25) }
}

/// Returns 404 if the parent does not exist or may not be read.
async fn eligible(
    core: &Core,
    caller: &Caller,
    parent_id: Option<i64>,
    usetypes: Option<Vec<String>>,
    filter: Option<SearchFilter>,
) -> Result<Eligible, Failure> {
    if let Some(id) = parent_id {
        let mut conn = core.pool.acquire().await.or_fail()?;
        let there = store::documents::is_readable(&mut conn, &caller.readable(), DocumentId(id)).await.or_fail()?;
        there.then_some(()).ok_or_else(|| Failure::no_document(id))?;
    }
    let filter = filter.unwrap_or_default();
    // Who names a usetype wants it.
    let is_named = |usetype: &&String| usetypes.as_ref().is_some_and(|named| named.contains(usetype));
    let excluded = core.settings.search_exclude_usetypes.iter().filter(|usetype| !is_named(usetype)).cloned();
    let excluded_usetypes = excluded.chain([Usetype::Raptor.as_str().to_owned()]).collect();
    Ok(Eligible {
        scope: caller.readable(),
        parent_id: parent_id.map(DocumentId),
        usetypes,
        excluded_usetypes,
        event_time: (filter.event_time_from, filter.event_time_until),
        created_at: (filter.created_at_from, filter.created_at_until),
        structured_content: filter.structured_content.map(serde_json::Value::Object),
    })
}

async fn respond(core: &Core, eligible: &Eligible, found: Found<'_>) -> Result<SearchResponse, Failure> {
    let Found { mut ranked, mut no_tokens, .. } = found;
    if let Some(method) = found.second_stage {
        let ids: Vec<DocumentId> = ranked.iter().map(|(id, _)| *id).collect();
        // This takes time, and a connection of its own if it needs one.
        (ranked, no_tokens) = rerank::run(core, &eligible.scope, method, found.query, &ids).await?;
    }
    ranked.truncate(found.limit as usize);
    let ids: Vec<DocumentId> = ranked.iter().map(|(id, _)| *id).collect();
    let mut conn = core.pool.acquire().await.or_fail()?;
    let Unsettled { in_flight, failed } =
        store::documents::unsettled(&mut conn, &eligible.scope, eligible.parent_id).await.or_fail()?;
    let mut documents =
        results::show(core, &mut conn, &eligible.scope, &ids, (found.include_content, found.include_embed)).await?;
    drop(conn);
    let results: Vec<SearchResult> = ranked
        .into_iter()
        .filter_map(|(id, score)| {
            let (legs, no_tokens) = (found.legs.get(&id).copied(), no_tokens.contains(&id));
            Some(SearchResult { document: documents.remove(&id)?, score, no_tokens, legs })
        })
        .collect();
    Ok(SearchResponse {
        total: found.total.count,
        total_is: if found.total.exact { TotalIs::Exact } else { TotalIs::AtLeast },
        results,
        latency_ms: found.started.elapsed().as_secs_f64() * 1e3,
        method: found.method,
        reranked: found.second_stage,
        scope_state: ScopeState { in_flight, failed },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_are_the_contract() {
        let object = |vector, bm25| Some(HybridWeights { vector, bm25 });
        assert_eq!(weights(None), Weights { vector: 0.86, bm25: 0.14 });
        assert_eq!(weights(object(None, None)), Weights { vector: 1.0, bm25: 1.0 });
        assert_eq!(weights(object(Some(0.6), Some(0.4))), Weights { vector: 0.6, bm25: 0.4 });
    }
}
