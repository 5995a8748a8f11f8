//! Finds documents. Ranking is pure, SQL stays in the store, and every leg applies the same filter.
mod answer;
mod auto;
mod batch;
pub mod bm25;
mod expand;
mod explain;
mod facets;
mod forgiving;
mod fulltext;
mod fusing;
mod groups;
mod legs;
pub(crate) mod maxsim;
mod paging;
pub(crate) mod portfolio;
mod reorder;
pub(crate) mod rerank;
pub(crate) mod results;
mod similar;
mod snippets;
pub mod synthesize;
pub mod titles;

use crate::{
    access::Caller,
    core::Core,
    error::OrFail,
    store::{
        self,
        search::{Composed, Eligible, groups::Member},
    },
    usetype::{Indexed, Usetype},
};
pub use auto::auto;
pub use batch::{batch, by_any};
use bm25::Query;
use expand::Added;
use forgiving::correct;
use fulltext::Minus;
use fusing::{Fusing, FusingOpen, NotHeld, fusing, places};
use legs::{Leg, bm25_leg, vector_leg};
use paging::Page;
use reorder::Reorder;
use results::Shows;
pub use similar::similar;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    pin::Pin,
    time::Instant,
};
use svc_client::{
    Code, Failure,
    wire::{
        Bm25Search, ContextConfig, Facet, FulltextSearch, Fusion, GroupBy, HybridSearch, HybridWeights, Leg as WireLeg,
        LegExplanation, Legs, MaxsimSearch, RerankMethod, SearchFilter, SearchMethod, SearchResponse, Sorting,
        VectorSearch,
    },
};
use svc_ids::DocumentId;
use svc_ranking::{Weighted, Weights};

/// The fewest results that a leg of a hybrid search contributes.
const LEG_DEPTH: u32 = 100;

/// The fewest documents that late interaction takes from each leg.
const MAXSIM_DEPTH: u32 = 200;

/// The most candidates that a search may ask to have ranked again.
const RANKED_AGAIN: u32 = 100;

/// By how much more the first stage is asked for, as long as its results are too few.
const GROWTH: u32 = 4;

/// How deep the legs are read for a ranking of this length: rung by rung, the first one for all that are not longer. What one rung has ranked stays
/// in its place on the next one, where the legs know more, so that no page skips or repeats what a page before it has moved past.
fn rungs(first: u32, depth: u32) -> Vec<u32> {
    let (mut rungs, mut last, mut deeper) = (vec![first], first, LEG_DEPTH);
    while last < depth {
        deeper = deeper.saturating_mul(GROWTH);
        if deeper > first {
            last = deeper;
            rungs.push(last);
        }
    }
    rungs
}

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

/// Whether a node is found by its title as well; one of a caller's own usetype is.
fn has_title(usetype: &str) -> bool {
    Usetype::named(usetype).map_or(Indexed::TitleAndContent, Usetype::indexed) == Indexed::TitleAndContent
}

/// The text by which a node is found, without the titles above it.
pub fn text(usetype: &str, title: &str, content: &str) -> String {
    if has_title(usetype) { format!("{title}\n{content}") } else { content.to_owned() }
}

/// What a search asks for, by whatever method.
struct Asked<'a> {
    method: SearchMethod,
    started: Instant,
    query: &'a str,
    limit: u32,
    page: Page,
    /// How many results the first stage is asked for.
    depth: u32,
    second_stage: Option<RerankMethod>,
    reorder: Option<Reorder>,
    sorting: Option<Sorting>,
    shows: Shows,
    include_scores: bool,
    explain: bool,
    group_by: GroupBy,
    with_whole: bool,
    per_group: u32,
    snippets: bool,
    facets: &'a [Facet],
}

impl Asked<'_> {
    /// Whether its first stage only chooses candidates, which are then ranked again or sorted.
    fn ranks_again(&self) -> bool {
        self.second_stage.is_some() || self.reorder.is_some() || self.sorting.is_some()
    }

    /// How many results with all words of the query are enough for a full-text search that returns this many.
    fn enough(&self, depth: u32) -> u32 {
        // Many candidates are sorted, also where no more than a page of them has all words.
        self.page.enough(if self.sorting.is_some() { self.limit } else { depth })
    }
}

/// Makes it from any body of a search. Its page is that of the query as it was typed, and carries the words that are put into it.
macro_rules! asked {
    ($method:ident, $body:ident, $started:ident, $page:ident) => {
        Asked {
            method: SearchMethod::$method,
            started: $started,
            query: &$body.query,
            limit: $body.limit,
            // A cursor that the service did not make cannot ask for more than a request may.
            depth: $page.candidates($body.depth()).min(if $body.sorting().is_some() { u32::MAX } else { RANKED_AGAIN }),
            page: $page,
            second_stage: $body.second_stage(),
            reorder: Reorder::of($body.mmr_lambda, $body.recency_half_life_days),
            sorting: $body.sorting(),
            shows: Shows::of($body.fields.as_deref(), $body.include_content, $body.include_embed),
            include_scores: $body.include_scores,
            explain: $body.explain,
            group_by: $body.grouping(),
            with_whole: $body.with_whole.unwrap_or_default(),
            per_group: $body.per_group,
            snippets: $body.shows_snippets(),
            facets: facets::of(&$body.facets),
        }
    };
}

/// How the first stage ranks; some ways take terms that are added to the query, and one may choose them as it first ranks. It can be asked again for more results.
enum Ranking<'a> {
    Vector(&'a VectorSearch),
    Similar(&'a similar::Similar),
    Fulltext(&'a FulltextSearch, Minus),
    Bm25(&'a Bm25Search, &'a [Weighted]),
    Maxsim(&'a MaxsimSearch),
    Hybrid(&'a HybridSearch, &'a Added),
}

/// The results of the first stage.
struct Found {
    ranked: Ranked,
    total: Total,
    /// Whether nothing else matches.
    is_whole: bool,
    /// Whether these have all words of the query, and others have some of them.
    is_narrow: bool,
    legs: HashMap<DocumentId, Legs>,
    no_tokens: HashSet<DocumentId>,
    /// How the legs came to it.
    ran: Vec<LegExplanation>,
    /// By what two legs made one ranking.
    fusion: Option<Fusion>,
    /// The documents of which the groups of these results consist, if the first stage has read them along.
    members: Option<Vec<Member>>,
}

impl Found {
    /// The results of one leg, which is a member of [`Legs`].
    fn alone(ranked: Ranked, total: Total, set: fn(&mut Legs, Option<WireLeg>)) -> Found {
        let mut found = Found::new(ranked, total);
        found.legs = ranks(&found.ranked)
            .map(|(id, leg)| {
                let mut legs = Legs::default();
                set(&mut legs, Some(leg));
                (id, legs)
            })
            .collect();
        found
    }

    fn new(ranked: Ranked, total: Total) -> Found {
        let is_whole = total.exact && total.count == ranked.len() as u64;
        Found {
            ranked,
            total,
            is_whole,
            is_narrow: false,
            legs: HashMap::new(),
            no_tokens: HashSet::new(),
            ran: Vec::new(),
            fusion: None,
            members: None,
        }
    }
}

impl Ranking<'_> {
    /// The `depth` best documents. A full-text search is content with those that have all of its words if they are `enough`.
    fn first<'a>(
        &'a self,
        core: &'a Core,
        eligible: &'a Eligible,
        depth: u32,
        enough: u32,
    ) -> Pin<Box<dyn Future<Output = Result<Found, Failure>> + Send + 'a>> {
        // Futures of searches are large. Made in an `async` function they would have their room on its stack while they run.
        match self {
            Ranking::Vector(body) => Box::pin(vector_first(core, eligible, body, depth)),
            Ranking::Similar(similar) => Box::pin(similar.first(core, eligible, depth)),
            Ranking::Fulltext(body, minus) => {
                Box::pin(fulltext_first(core, eligible, (body.query.as_str(), *minus), enough, depth))
            }
            Ranking::Bm25(body, added) => Box::pin(bm25_first(core, eligible, body, added, depth)),
            Ranking::Maxsim(body) => Box::pin(maxsim_first(core, eligible, body, depth)),
            Ranking::Hybrid(body, added) if added.is_decided() => {
                Box::pin(hybrid_first(core, eligible, body, added.terms(), depth))
            }
            Ranking::Hybrid(body, added) => Box::pin(expand::where_agreed(core, eligible, body, added, depth)),
        }
    }

    /// The BM25 index that it names.
    fn index(&self) -> Option<&str> {
        match self {
            Ranking::Vector(_) | Ranking::Similar(_) | Ranking::Fulltext(..) => None,
            Ranking::Bm25(body, _) => body.index.as_deref(),
            Ranking::Maxsim(body) => body.index.as_deref(),
            Ranking::Hybrid(body, _) => body.index.as_deref(),
        }
    }

    /// The index whose build makes what this searches: that of BM25, or the one with which the words of full text are made.
    fn built(&self) -> Option<&str> {
        let is_by_words = self.has_words() || matches!(self, Ranking::Fulltext(..));
        is_by_words.then(|| self.index().unwrap_or(store::indexes::DEFAULT))
    }

    /// Whether this searches an index of BM25.
    fn has_words(&self) -> bool {
        matches!(self, Ranking::Bm25(..) | Ranking::Maxsim(_) | Ranking::Hybrid(..))
    }

    /// Whether it compares the vector of the query, so that there is a model.
    fn has_vectors(&self) -> bool {
        !matches!(self, Ranking::Similar(_) | Ranking::Fulltext(..) | Ranking::Bm25(..))
    }
}

/// Searches by cosine similarity.
pub async fn vector(core: &Core, caller: &Caller, mut body: VectorSearch) -> Result<SearchResponse, Failure> {
    let context = preset(core, caller, body.context.take()).await?;
    body.fill(&context);
    let started = Instant::now();
    let mut page = Page::of(SearchMethod::Vector, &body, body.cursor.as_deref(), body.limit)?;
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let searched_instead = Box::pin(correct(core, &eligible, body.forgiving, &mut page, &mut body.query)).await?;
    let asked = asked!(Vector, body, started, page);
    let found = Box::pin(answer::answer(core, &eligible, asked, Ranking::Vector(&body))).await?;
    Ok(SearchResponse { searched_instead, ..found })
}

async fn vector_first(core: &Core, eligible: &Eligible, body: &VectorSearch, depth: u32) -> Result<Found, Failure> {
    let leg = vector_leg(core, eligible, &body.query, depth).await?;
    let are_compared = leg.total.exact;
    Ok(near_enough(leg, are_compared, body.min_similarity))
}

/// What is at least so similar. Where all were compared, as many as the leg has are the nearest ones.
fn near_enough(Leg { mut ranked, total, ran }: Leg, are_compared: bool, least: Option<f64>) -> Found {
    let found_alone =
        |ranked, total| Found { ran: vec![ran], ..Found::alone(ranked, total, |legs, leg| legs.vector = leg) };
    let Some(least) = least else { return found_alone(ranked, total) };
    let found = ranked.len();
    ranked.retain(|(_, score)| *score >= least);
    // If one of these is too far away, so is everything after it, unless an index gave them: it may have left out some that are nearer.
    let is_cut = ranked.len() < found;
    let is_whole = is_cut || total.exact && found as u64 == total.count;
    let total = Total { count: ranked.len() as u64, exact: if is_cut { are_compared } else { is_whole } };
    Found { is_whole, ..found_alone(ranked, total) }
}

/// Searches by PostgreSQL full text.
pub async fn fulltext(core: &Core, caller: &Caller, body: FulltextSearch) -> Result<SearchResponse, Failure> {
    Box::pin(fulltext_by(core, caller, body, Minus::Anything)).await
}

/// Does the same, and says what a `-` in the query forbids.
async fn fulltext_by(
    core: &Core,
    caller: &Caller,
    mut body: FulltextSearch,
    minus: Minus,
) -> Result<SearchResponse, Failure> {
    let context = preset(core, caller, body.context.take()).await?;
    body.fill(&context);
    let started = Instant::now();
    let mut page = Page::of(SearchMethod::Fulltext, &body, body.cursor.as_deref(), body.limit)?;
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let searched_instead = Box::pin(correct(core, &eligible, body.forgiving, &mut page, &mut body.query)).await?;
    let asked = asked!(Fulltext, body, started, page);
    let found = Box::pin(answer::answer(core, &eligible, asked, Ranking::Fulltext(&body, minus))).await?;
    Ok(SearchResponse { searched_instead, ..found })
}

async fn fulltext_first(
    core: &Core,
    eligible: &Eligible,
    asked: (&str, Minus),
    enough: u32,
    depth: u32,
) -> Result<Found, Failure> {
    let (Leg { ranked, total, ran }, is_narrow) = fulltext::leg(core, eligible, asked, enough, depth).await?;
    Ok(Found { is_narrow, ran: vec![ran], ..Found::alone(ranked, total, |legs, leg| legs.fulltext = leg) })
}

/// Searches by BM25.
pub async fn bm25(core: &Core, caller: &Caller, mut body: Bm25Search) -> Result<SearchResponse, Failure> {
    let context = preset(core, caller, body.context.take()).await?;
    body.fill(&context);
    let started = Instant::now();
    let mut page = Page::of(SearchMethod::Bm25, &body, body.cursor.as_deref(), body.limit)?;
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let searched_instead = Box::pin(correct(core, &eligible, body.forgiving, &mut page, &mut body.query)).await?;
    let plain = Ranking::Bm25(&body, &[]);
    let added = Box::pin(expand::terms(core, &eligible, body.expand, &mut page, plain)).await?;
    let asked = asked!(Bm25, body, started, page);
    let ranking = Ranking::Bm25(&body, added.as_deref().unwrap_or_default());
    let found = Box::pin(answer::answer(core, &eligible, asked, ranking)).await?;
    Ok(SearchResponse { searched_instead, expanded_by: added.as_deref().map(expand::names), ..found })
}

async fn bm25_first(
    core: &Core,
    eligible: &Eligible,
    body: &Bm25Search,
    added: &[Weighted],
    depth: u32,
) -> Result<Found, Failure> {
    let query = Query { text: &body.query, added };
    let Leg { ranked, total, ran } = bm25_leg(core, eligible, body.index.as_deref(), query, depth).await?;
    Ok(Found { ran: vec![ran], ..Found::alone(ranked, total, |legs, leg| legs.bm25 = leg) })
}

/// Searches by late interaction over the candidates of vector and BM25.
pub async fn maxsim(core: &Core, caller: &Caller, mut body: MaxsimSearch) -> Result<SearchResponse, Failure> {
    let context = preset(core, caller, body.context.take()).await?;
    body.fill(&context);
    let started = Instant::now();
    let mut page = Page::of(SearchMethod::Maxsim, &body, body.cursor.as_deref(), body.limit)?;
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let searched_instead = Box::pin(correct(core, &eligible, body.forgiving, &mut page, &mut body.query)).await?;
    let asked = asked!(Maxsim, body, started, page);
    let found = Box::pin(answer::answer(core, &eligible, asked, Ranking::Maxsim(&body))).await?;
    Ok(SearchResponse { searched_instead, ..found })
}

async fn maxsim_first(core: &Core, eligible: &Eligible, body: &MaxsimSearch, depth: u32) -> Result<Found, Failure> {
    let rungs = rungs(MAXSIM_DEPTH, depth);
    let query = Query::from(body.query.as_str());
    let by_rank = (None, Fusion::Rank);
    let legs = fusing(core, eligible, (body.index.as_deref(), query), by_rank, &rungs).await?.close().await?;
    let (mut ranked, mut no_tokens, mut seen) = (Ranked::new(), HashSet::new(), HashSet::new());
    let mut fused = Vec::new();
    for rung in rungs {
        // All of them are candidates, in whatever order.
        fused = legs.at_rung(&NotHeld::default(), rung);
        let ids = fused.iter().map(|result| DocumentId(result.id));
        let candidates: Vec<DocumentId> = ids.filter(|id| seen.insert(*id)).collect();
        let (best, without) = rerank::by_tokens(core, &body.query, &candidates).await?;
        ranked.extend(best);
        no_tokens.extend(without);
    }
    let Fusing { vector, bm25, weights, .. } = legs;
    let total = Total::of_both(&vector, &bm25, weights, fused.len());
    ranked.truncate(depth as usize);
    let mut legs: HashMap<DocumentId, Legs> =
        fused.iter().map(|result| (DocumentId(result.id), places(result))).collect();
    for (id, leg) in ranks(&ranked) {
        legs.entry(id).or_default().maxsim = Some(leg);
    }
    let ran = explain::weighted(vector.ran, bm25.ran, weights);
    Ok(Found { no_tokens, legs, ran, ..Found::new(ranked, total) })
}

/// Searches by fusing what both rank.
pub async fn hybrid(core: &Core, caller: &Caller, body: HybridSearch) -> Result<SearchResponse, Failure> {
    Box::pin(hybrid_by(core, caller, body, false)).await
}

/// Does so, and adds terms to the query where both agree, unless the search says whether to.
async fn hybrid_by(
    core: &Core,
    caller: &Caller,
    mut body: HybridSearch,
    by_agreement: bool,
) -> Result<SearchResponse, Failure> {
    let context = preset(core, caller, body.context.take()).await?;
    body.fill(&context);
    let started = Instant::now();
    let mut page = Page::of(SearchMethod::Hybrid, &body, body.cursor.as_deref(), body.limit)?;
    let eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), body.filter.clone()).await?;
    let searched_instead = Box::pin(correct(core, &eligible, body.forgiving, &mut page, &mut body.query)).await?;
    let added = if by_agreement && body.expand.is_none() && page.is_first() {
        Added::by_agreement()
    } else {
        // A further page does what the first one did.
        let was_expanded = (by_agreement && !page.fed_back.is_empty()).then_some(true);
        let (is_wanted, none) = (body.expand.or(was_expanded), Added::none());
        let plain = Ranking::Hybrid(&body, &none);
        let terms = Box::pin(expand::terms(core, &eligible, is_wanted, &mut page, plain)).await?;
        Added::known(terms, &page)
    };
    let asked = asked!(Hybrid, body, started, page);
    let found = Box::pin(answer::answer(core, &eligible, asked, Ranking::Hybrid(&body, &added))).await?;
    Ok(SearchResponse { searched_instead, expanded_by: added.named(), ..found })
}

/// How much each leg counts, and by what.
fn joining(body: &HybridSearch) -> (Option<HybridWeights>, Fusion) {
    (body.weights, body.fusion.unwrap_or(Fusion::Rank))
}

async fn hybrid_first(
    core: &Core,
    eligible: &Eligible,
    body: &HybridSearch,
    added: &[Weighted],
    depth: u32,
) -> Result<Found, Failure> {
    let (rungs, query) = (rungs(LEG_DEPTH, depth), Query { text: &body.query, added });
    let legs = fusing(core, eligible, (body.index.as_deref(), query), joining(body), &rungs).await?;
    joined(legs, eligible, body, &rungs, depth).await
}

/// What both legs found, as one ranking of the `depth` best.
async fn joined(
    legs: FusingOpen,
    eligible: &Eligible,
    body: &HybridSearch,
    rungs: &[u32],
    depth: u32,
) -> Result<Found, Failure> {
    let index = body.index.as_deref();
    let grouped = (body.grouping() != GroupBy::None).then_some((body.grouping(), body.limit));
    // A deeper rung builds upon all of the one before it.
    let counts = (rungs.len() == 1).then_some(depth);
    let (legs, not_held, members) = legs.close_with(eligible, index, grouped, counts).await?;
    let (mut ranked, mut fused) = (Ranked::new(), Vec::new());
    for &rung in rungs {
        // A result that only its leg's depth brought behind the others may be better on the next rung.
        ranked.truncate(rung.div_euclid(GROWTH) as usize);
        let seen: HashSet<DocumentId> = ranked.iter().map(|(id, _)| *id).collect();
        fused = legs.at_rung(&not_held, rung);
        let new = fused.iter().map(|result| (DocumentId(result.id), result.score));
        ranked.extend(new.filter(|(id, _)| !seen.contains(id)));
    }
    let Fusing { vector, bm25, weights, fusion, .. } = legs;
    let total = Total::of_both(&vector, &bm25, weights, fused.len());
    ranked.truncate(depth as usize);
    let legs = fused.iter().map(|result| (DocumentId(result.id), places(result))).collect();
    let ran = explain::weighted(vector.ran, bm25.ran, weights);
    Ok(Found { legs, ran, fusion: Some(fusion), members, ..Found::new(ranked, total) })
}

/// The place of each document in a ranking.
fn ranks(ranked: &Ranked) -> impl Iterator<Item = (DocumentId, WireLeg)> {
    ranked.iter().zip(1..).map(|((id, score), rank)| (*id, WireLeg { rank, score: *score }))
}

/// The values of the context that a search names; 404 if there is none that the caller may see.
pub async fn preset(core: &Core, caller: &Caller, name: Option<String>) -> Result<ContextConfig, Failure> {
    let Some(name) = name else { return Ok(ContextConfig::default()) };
    let mut conn = core.pool.acquire().await.or_fail()?;
    let config = store::contexts::by_name(&mut conn, &caller.readable(), &name).await.or_fail()?;
    config.ok_or_else(|| {
        Failure::new(Code::NotFound, format!("there is no search context `{name}`"))
            .with("remedy", "GET /search-contexts lists them")
    })
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
    let formats = filter.named_formats();
    let few_files = match formats.is_empty() {
        true => BTreeMap::new(),
        false => {
            let mut conn = core.pool.acquire().await.or_fail()?;
            store::search::few_files(&mut conn, &formats).await.or_fail()?
        }
    };
    // Who names a usetype wants it.
    let asked = filter.named_usetypes();
    let is_named = |usetype: &&String| {
        usetypes.as_ref().is_some_and(|named| named.contains(usetype)) || asked.contains(&usetype.as_str())
    };
    let excluded = core.settings.search_exclude_usetypes.iter().filter(|usetype| !is_named(usetype)).cloned();
    let excluded_usetypes = excluded.chain([Usetype::Raptor.as_str().to_owned()]).collect();
    Ok(Eligible {
        scope: caller.readable(),
        parent_id: parent_id.map(DocumentId),
        usetypes,
        excluded_usetypes,
        event_time: (filter.event_time_from, filter.event_time_until),
        created_at: (filter.created_at_from, filter.created_at_until),
        // Every document has no keys at all.
        structured_content: filter.structured_content.filter(|keys| !keys.is_empty()).map(serde_json::Value::Object),
        excluded: filter.exclude.unwrap_or_default().into_iter().map(DocumentId).collect(),
        composed: Composed {
            filter: SearchFilter {
                under: filter.under,
                usetype: filter.usetype,
                format: filter.format,
                keys: filter.keys,
                any: filter.any,
                all: filter.all,
                none: filter.none,
                ..SearchFilter::default()
            },
            only_places: false,
            few_files,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_are_read_as_deep_as_a_rung() {
        for (first, depth, expected) in [
            (100, 1, vec![100]),
            (100, 100, vec![100]),
            (100, 101, vec![100, 400]),
            (200, 200, vec![200]),
            (200, 201, vec![200, 400]),
            (200, 6_400, vec![200, 400, 1_600, 6_400]),
        ] {
            assert_eq!(rungs(first, depth), expected, "{first} {depth}");
        }
    }
}
