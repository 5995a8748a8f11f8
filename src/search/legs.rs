//! The legs: what a search ranks by vectors, and what it ranks by BM25.
use super::{
    Ranked, Total, bm25,
    explain::{milliseconds, parts_read, plan, ran},
};
use crate::{
    core::Core,
    error::OrFail,
    store::{
        self,
        growth::Timed,
        indexes::postings::Resolved,
        search::{EXACT_LIMIT, Eligible, Expected},
        transaction::Transaction,
        vectors::{FEW, LOOKED_AT, Layout, Nearest, Plans, Stored, WIDEST},
    },
};
use bm25::{Allowed, Answer, Query, Verify};
use sqlx::PgConnection;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};
use svc_client::{
    Code, Failure,
    wire::{LegExplanation, LegPlan, LegWay, SearchMethod},
};
use svc_ids::IndexId;

/// What one leg found, and how many documents match it in all.
pub(super) struct Leg {
    pub ranked: Ranked,
    pub total: Total,
    pub ran: LegExplanation,
}

/// A vector leg whose transaction has not ended, so that more can be read in it. The leg has no transaction if the query has no vector.
pub(super) struct Open {
    pub leg: Leg,
    pub reading: Option<Reading>,
}

/// The transaction of a vector leg, and which vectors it meets. Its owner holds a connection, and so must wait for nothing but the database.
pub(super) struct Reading {
    pub tx: Transaction,
    pub layout: Layout,
    /// The model whose vectors these are.
    pub model: String,
}

impl Open {
    pub async fn close(self) -> Result<Leg, Failure> {
        if let Some(Reading { tx, .. }) = self.reading {
            tx.commit().await.or_fail()?;
        }
        Ok(self.leg)
    }
}

/// How many spare candidates for each result the HNSW index is asked for where everything is eligible, because it may miss some
/// of the nearest.
const SPARE: f64 = 3.0;

/// Where the index returns the entries of its first look in order, so large a share of the results is read beside them: some of the entries may not be
/// eligible, and of equal ones the index may not have the first ones first.
const BESIDE: f64 = 0.25;

/// The share of the entries of one look that are counted on.
const SURE: f64 = 0.75;

/// Behind a filter the index is looked at this much more widely than the expected share asks for: one wide look finds what two ordinary
/// ones find, in two thirds of the time.
const WIDER: f64 = 1.6;

/// Among so many documents these looks are wide enough. A larger store has more documents that are nearer to the question than those that pass, so the looks
/// grow with the root of its size: of the nearest ten of 26 and of 10 % of 500,000 documents, .98 are found with it, and .96 without.
const WIDE_ENOUGH: f64 = 40_000.0;

/// How many vectors are compared in the time in which the HNSW index returns one entry and its document is looked up, as measured.
const ENTRY: f64 = 10.0;

/// How many candidates are read where more than that of a usual search are as near as the last result. They are no fewer than for the longest ranking that pages
/// show, so that each page has the same of them.
const EQUALS: i64 = 4_000;

/// Below this share of the documents the eligible ones are listed before anything is scored, if they are few.
const LISTED_SHARE: f64 = 0.01;

/// How the nearest vectors are found.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// By comparing all that are eligible, if they are at most this many.
    Exact { most: i64 },
    /// By this many candidates of the HNSW index, which looks at this many entries at a time.
    Approximate { candidates: i64, entries: i64 },
}

impl Way {
    /// Whichever is faster. Behind a filter it is exact for up to [`EXACT_LIMIT`] documents in any case: what passes may be far from the query, and
    /// there the index misses more.
    fn choose(expected: Expected, limit: i64, layout: &Layout, is_open: bool) -> Way {
        if layout.unindexed {
            return Way::Exact { most: i64::MAX };
        }
        let way = Way::approximate(expected, limit);
        let Way::Approximate { candidates, .. } = way else { return way };
        let candidates = candidates.max(layout.least_candidates());
        let entries = (candidates as f64 / expected.share()).max(LOOKED_AT.max(layout.least_entries()) as f64);
        let in_any_case = if is_open { FEW } else { EXACT_LIMIT };
        let faster = (ENTRY * entries).max(in_any_case as f64);
        if expected.eligible > faster {
            return way;
        }
        // If the planner is wrong, this ends before it takes long, and the index is asked.
        Way::Exact { most: 2 * expected.eligible.max(EXACT_LIMIT as f64) as i64 }
    }

    /// Which is faster where more than `read` candidates may be as near as the last result. So many are read that the results are the same on each page.
    fn among_equals(expected: Expected, read: i64) -> Way {
        if expected.eligible <= ENTRY * EQUALS as f64 / expected.share() {
            return Way::Exact { most: i64::MAX };
        }
        Way::Approximate { candidates: read.max(EQUALS), entries: WIDEST }
    }

    /// How many candidates there are for so many results where everything is eligible.
    fn most_candidates(limit: i64) -> i64 {
        limit + (SPARE * limit as f64).ceil() as i64
    }

    /// The spare candidates are a share of the entries and not of the results. So behind a narrow filter the index goes as far beyond
    /// the last result as without a filter.
    fn approximate(expected: Expected, limit: i64) -> Way {
        let share = expected.share();
        let candidates = limit + (SPARE * limit as f64 * share).ceil() as i64;
        let wider = if share < 0.5 { WIDER } else { 1.0 };
        // Where nearly everything passes, hardly anything is nearer.
        let more = (expected.all / WIDE_ENOUGH).max(1.0).powf((1.0 - share).min(0.5));
        let entries = more * (wider * candidates as f64 / share).max(LOOKED_AT as f64);
        Way::Approximate { candidates, entries: entries.min(WIDEST as f64) as i64 }
    }
}

/// How many of `candidates` have to be read where everything is eligible and the index returns the `entries` of its first look in order. Where that look may
/// not have so many, a later one may find nearer ones than it has, and all candidates are read.
fn in_order(candidates: i64, entries: i64, limit: i64, share: f64) -> i64 {
    let wanted = limit + (BESIDE * limit as f64).ceil() as i64;
    if wanted as f64 <= SURE * entries as f64 * share { wanted.min(candidates) } else { candidates }
}

/// Whether the last of `limit` results is as near as the last one of all that were read. Then the index may have others that are as near and come before it
/// by their ids, and a further page, for which more is read, would leave them out.
fn ends_among_equals(nearest: &Ranked, limit: i64, read: i64) -> bool {
    let last = usize::try_from(limit - 1).ok().and_then(|at| nearest.get(at));
    let are_all = (nearest.len() as i64) < read;
    !are_all && matches!((last, nearest.last()), (Some((_, last)), Some((_, end))) if last <= end)
}

/// The next one of some numbers of candidates. Where everything is eligible, each of them is a statement whose plan is kept, and so they are few.
fn rounded(candidates: i64) -> i64 {
    let step = match candidates {
        ..=200 => 20,
        201..=2_000 => 200,
        _ => 2_000,
    };
    (candidates + step - 1) / step * step
}

/// Ranks by cosine similarity to the query.
pub(super) async fn vector_leg(core: &Core, eligible: &Eligible, query: &str, limit: u32) -> Result<Leg, Failure> {
    let (leg, ()) = vector_leg_after(core, eligible, query, limit, async { Ok(()) }).await?;
    leg.close().await
}

/// Does the same after `first`, and embeds the query meanwhile, so that nothing waits for a connection while this leg has one.
pub(super) async fn vector_leg_after<T>(
    core: &Core,
    eligible: &Eligible,
    query: &str,
    limit: u32,
    first: impl Future<Output = Result<T, Failure>>,
) -> Result<(Open, T), Failure> {
    let model = core.model().await?;
    let begun = Instant::now();
    let embed = async {
        let embedded = core.queries.of(&model, query).await.or_fail()?;
        Ok::<_, Failure>((embedded, milliseconds(begun.elapsed())))
    };
    let ((embedded, embed_ms), expected, done) = tokio::try_join!(embed, expected(core, eligible), first)?;
    let Some(embedded) = embedded else {
        let ran = ran(SearchMethod::Vector, begun, limit, 0, plan(LegWay::NoVector, Some(expected)));
        let leg = Leg { ranked: Vec::new(), total: Total { count: 0, exact: true }, ran };
        return Ok((Open { leg, reading: None }, done));
    };
    let query = Stored::new(model.identity(), model.native_width(), &embedded);
    let mut open = nearest_leg(core, eligible, &query, expected, limit).await?;
    open.leg.ran.embed_ms = Some(embed_ms);
    Ok((open, done))
}

/// Ranks by cosine similarity to a vector.
pub(super) async fn nearest_leg(
    core: &Core,
    eligible: &Eligible,
    query: &Stored<'_>,
    of_all: Expected,
    depth: u32,
) -> Result<Open, Failure> {
    let (limit, begun) = (i64::from(depth), Instant::now());
    // This is so in most stores: one table with an index of half-precision vectors.
    let entries = match Way::approximate(of_all, limit) {
        Way::Approximate { candidates, entries } => Layout::default().looked_at(entries, candidates),
        Way::Exact { .. } => LOOKED_AT,
    };
    // Few vectors are all compared, by another statement than one whose plan is kept.
    let plans = match Way::choose(of_all, limit, &Layout::default(), eligible.is_open()) {
        Way::Approximate { .. } if eligible.is_open() => Plans::Kept,
        _ => Plans::Anew,
    };
    let (mut tx, layout) = store::vectors::begin(&core.pool, eligible, query, entries, plans).await.or_fail()?;
    let expected = of_all.beside(&layout);
    let mut way = Way::choose(expected, limit, &layout, eligible.is_open());
    let mut exact = None;
    if let Way::Exact { most } = way {
        if plans == Plans::Kept {
            store::vectors::plan_anew(&mut tx).await.or_fail()?;
        }
        exact = store::vectors::exact(&mut tx, eligible, query, limit, most, &layout).await.or_fail()?;
        way = Way::approximate(expected, limit);
    }
    let mut approximate = Vec::new();
    let mut plan = LegPlan { parts: parts_read(&layout), ..plan(LegWay::Exact, Some(of_all)) };
    if let (None, Way::Approximate { candidates, entries }) = (&exact, way) {
        let all = candidates.max(layout.least_candidates());
        let all = if eligible.is_open() { rounded(all) } else { all };
        let comes_in_order = eligible.is_open() && layout.is_in_order();
        let (mut read, mut entries) = (all, entries);
        if comes_in_order {
            read = rounded(in_order(candidates, layout.looked_at(entries, candidates), limit, expected.share()));
        }
        approximate =
            store::vectors::approximate(&mut tx, eligible, query, read, read, entries, &layout).await.or_fail()?;
        // Another look may have to set how widely it looks.
        let again = Layout { set: None, ..layout };
        // Behind a filter there are hardly more candidates than results, and a few equal ones may end behind them.
        for wider in [all, all.max(rounded(Way::most_candidates(limit)))] {
            if read < wider && ends_among_equals(&approximate, limit, read) {
                read = wider;
                let near = store::vectors::approximate(&mut tx, eligible, query, read, read, entries, &again);
                approximate = near.await.or_fail()?;
            }
        }
        let mut are_compared = false;
        if ends_among_equals(&approximate, limit, read) {
            match Way::among_equals(expected, read) {
                Way::Exact { .. } => are_compared = true,
                Way::Approximate { candidates, entries: widest } => {
                    (read, entries) = (candidates, widest);
                    let near = store::vectors::approximate(&mut tx, eligible, query, read, read, entries, &again);
                    approximate = near.await.or_fail()?;
                }
            }
        }
        approximate.truncate(depth as usize);
        plan = LegPlan {
            way: LegWay::Hnsw,
            candidates: Some(read.unsigned_abs()),
            entries: Some(layout.looked_at(entries, read).unsigned_abs()),
            ..plan
        };
        // Behind a filter the index may return too few: a search returns `limit` results whenever that many exist.
        if are_compared || (approximate.len() as i64) < limit {
            plan.way = LegWay::HnswThenExact;
            if plans == Plans::Kept {
                store::vectors::plan_anew(&mut tx).await.or_fail()?;
            }
            exact = store::vectors::exact(&mut tx, eligible, query, limit, i64::MAX, &layout).await.or_fail()?;
        }
    }
    core.load.record(Timed::Search, begun.elapsed());
    let (ranked, total) = match exact {
        Some(Nearest { ranked, count }) => (ranked, Total { count: count.unsigned_abs(), exact: true }),
        None => {
            let total = Total { count: approximate.len() as u64, exact: false };
            (approximate, total)
        }
    };
    let leg = Leg { ran: ran(SearchMethod::Vector, begun, depth, ranked.len(), plan), ranked, total };
    Ok(Open { leg, reading: Some(Reading { tx, layout, model: query.model.to_owned() }) })
}

/// What the planner expects, asked on a connection that is given back at once: the embedding beside it may have to wait.
pub(super) async fn expected(core: &Core, eligible: &Eligible) -> Result<Expected, Failure> {
    if let Some(known) = core.expectations.of(eligible) {
        return Ok(known);
    }
    let mut tx = store::transaction::begin_snapshot(&core.pool).await.or_fail()?;
    let expected = store::search::expected(&mut tx, eligible).await.or_fail()?;
    tx.commit().await.or_fail()?;
    core.expectations.learn(eligible, expected);
    Ok(expected)
}

struct StillEligible<'a> {
    eligible: &'a Eligible,
    /// `None` where everything is eligible but for some usetypes.
    expected: Option<Expected>,
    /// How many documents were looked up.
    verified: AtomicU64,
    /// Whether those that are eligible were listed, because they are few.
    are_listed: AtomicBool,
}

impl Verify for StillEligible<'_> {
    fn resolve<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        index: IndexId,
        docnos: &'a [i32],
    ) -> Answer<'a, Vec<Resolved>> {
        Box::pin(store::search::resolve(conn, self.eligible, index, docnos))
    }

    fn eligible(&self) -> Option<&Eligible> {
        // Filters in filters are planned with their values.
        self.eligible.composed.is_open().then_some(self.eligible)
    }

    fn verified(&self, documents: usize) {
        self.verified.fetch_add(documents as u64, Ordering::Relaxed);
    }

    fn list<'a>(&'a self, conn: &'a mut PgConnection, index: IndexId) -> Answer<'a, Option<Vec<Resolved>>> {
        Box::pin(async move {
            let listed = store::search::listed(conn, self.eligible, index).await?;
            self.are_listed.store(listed.is_some(), Ordering::Relaxed);
            Ok(listed)
        })
    }

    fn share(&self) -> f64 {
        self.expected.map_or(1.0, |expected| expected.share())
    }

    fn listed_after(&self) -> usize {
        match self.expected {
            // Most would fail.
            Some(expected) if expected.eligible <= EXACT_LIMIT as f64 && expected.share() < LISTED_SHARE => 0,
            // To find out that they are too many takes as long as to verify thousands.
            Some(expected) if expected.eligible > 2.0 * EXACT_LIMIT as f64 => 8_000,
            _ => 2_000,
        }
    }
}

/// Ranks by BM25.
pub(super) async fn bm25_leg(
    core: &Core,
    eligible: &Eligible,
    index: Option<&str>,
    query: Query<'_>,
    limit: u32,
) -> Result<Leg, Failure> {
    let name = index.unwrap_or("default");
    let expected = match eligible.is_open() {
        true => None,
        false => Some(expected(core, eligible).await?),
    };
    let filter = StillEligible { eligible, expected, verified: AtomicU64::new(0), are_listed: AtomicBool::new(false) };
    let allowed = Allowed::Verify(&filter);
    let begun = Instant::now();
    let hits = bm25::search(&core.pool, &core.postings, name, query, limit as usize, allowed).await.or_fail()?;
    core.load.record(Timed::Bm25, begun.elapsed());
    let hits =
        hits.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no index `{name}`")).with("index", name))?;
    if hits.is_empty() && index.is_some() {
        has_bm25(core, name).await?;
    }
    let ranked: Ranked = hits.into_iter().map(|hit| (hit.document_id, hit.score)).collect();
    let way = if filter.are_listed.into_inner() { LegWay::Listed } else { LegWay::Verified };
    let plan = LegPlan { verified: Some(filter.verified.into_inner()), ..plan(way, expected) };
    let ran = ran(SearchMethod::Bm25, begun, limit, ranked.len(), plan);
    Ok(Leg { total: Total::of(&ranked, limit), ranked, ran })
}

/// Refuses an index that was created without BM25, which finds nothing.
async fn has_bm25(core: &Core, name: &str) -> Result<(), Failure> {
    let mut conn = core.pool.acquire().await.or_fail()?;
    match store::indexes::manage::has_bm25(&mut conn, name).await.or_fail()? {
        true => Ok(()),
        false => Err(Failure::field("index", format!("the index `{name}` was created without the capability bm25"))
            .with("remedy", "search another index, or create one with that capability")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use svc_ids::DocumentId;

    fn way(eligible: f64, all: f64, limit: i64) -> Way {
        Way::choose(Expected { eligible, all }, limit, &Layout::default(), false)
    }

    #[test]
    fn few_vectors_are_all_compared_and_so_are_more_where_the_index_takes_longer() {
        for (eligible, all) in [(0.0, 0.0), (1.0, 1e7), (10_000.0, 10_000.0), (10_000.0, 1e7)] {
            for limit in [1, 10, 100, 1_000] {
                assert!(matches!(way(eligible, all, limit), Way::Exact { most } if most >= 2 * EXACT_LIMIT));
            }
        }
        assert_eq!(way(1e6, 1e6, 10), Way::Approximate { candidates: 40, entries: 200 });
        assert_eq!(way(12_000.0, 40_000.0, 10), Way::Approximate { candidates: 19, entries: 200 });
        assert_eq!(way(3e4, 3e5, 10), Way::Approximate { candidates: 13, entries: 569 });
        assert_eq!(way(1e5, 1e6, 10), Way::Approximate { candidates: 13, entries: 1_000 });
        assert_eq!(way(3e5, 4e5, 10), Way::Approximate { candidates: 33, entries: 355 });
        assert_eq!(way(1e6, 1e6, 100), Way::Approximate { candidates: 400, entries: 400 });
        assert_eq!(way(1e5, 1e6, 100), Way::Approximate { candidates: 130, entries: 1_000 });
        // A tenth of 120,000: the index would look at 1,300 entries for 130 candidates.
        assert_eq!(way(12_000.0, 120_000.0, 100), Way::Exact { most: 24_000 });
    }

    #[test]
    fn of_what_comes_in_order_hardly_more_than_the_results_is_read() {
        assert_eq!(in_order(4, 200, 1, 1.0), 2);
        assert_eq!(in_order(40, 200, 10, 1.0), 13);
        assert_eq!(in_order(400, 400, 100, 1.0), 125);
        assert_eq!(in_order(1_600, 1_000, 400, 0.9), 500);
        // The first look has too few of these, and what a later one finds may be nearer than what was found before.
        assert_eq!(in_order(4_000, 1_000, 1_000, 1.0), 4_000);
        assert_eq!(in_order(200, 666, 100, 0.25), 200);
        let near = |scores: &[f64]| -> Ranked { (1..).map(DocumentId).zip(scores.iter().copied()).collect() };
        assert!(ends_among_equals(&near(&[0.9, 0.5, 0.5]), 2, 3), "a fourth one may be as near as the second");
        assert!(!ends_among_equals(&near(&[0.9, 0.5, 0.4]), 2, 3));
        assert!(!ends_among_equals(&near(&[0.9, 0.5, 0.5]), 2, 4), "there is no fourth one");
        assert!(!ends_among_equals(&near(&[0.5]), 2, 1), "there are too few");
        let asked: HashSet<i64> = (1..=4_000).map(rounded).collect();
        assert_eq!(asked.len(), 20, "the statements are few, however many results are asked for");
        assert!((1..=4_000).all(|wanted| rounded(wanted) >= wanted && rounded(wanted) < wanted + 2_000));
    }

    #[test]
    fn equal_ones_are_all_compared_where_that_takes_no_longer_than_to_read_many_of_the_index() {
        let way = |eligible, all| Way::among_equals(Expected { eligible, all }, 40);
        let compared = Way::Exact { most: i64::MAX };
        assert_eq!(way(40_000.0, 40_000.0), compared);
        assert_eq!(way(1e6, 1e6), Way::Approximate { candidates: EQUALS, entries: WIDEST });
        // Of what few pass, the index would be looked at for long.
        assert_eq!(way(1e5, 1e7), compared);
        let deeper = Way::among_equals(Expected { eligible: 1e6, all: 1e6 }, 6_000);
        assert_eq!(deeper, Way::Approximate { candidates: 6_000, entries: WIDEST });
        assert_eq!(rounded(EQUALS), EQUALS, "its plan is kept");
    }

    #[test]
    fn everything_is_looked_for_in_the_index_from_a_few_thousand_on() {
        let open = |all: f64, limit, layout: Layout| Way::choose(Expected { eligible: all, all }, limit, &layout, true);
        let whole = Layout::default();
        assert_eq!(open(3_001.0, 10, whole), Way::Approximate { candidates: 40, entries: 200 });
        assert_eq!(open(4_001.0, 100, whole), Way::Approximate { candidates: 400, entries: 400 });
        let in_parts = Layout { parts: 64, ..whole };
        let of_bits = Layout { bits: Some(20_000.0), ..whole };
        // More results, or the indexes of many parts, take longer than to compare so few.
        for (all, limit, layout) in [
            (3_000.0, 10, whole),
            (4_000.0, 100, whole),
            (9_000.0, 1_000, whole),
            (9_000.0, 10, in_parts),
            (3_000.0, 10, of_bits),
        ] {
            assert!(matches!(open(all, limit, layout), Way::Exact { .. }), "{all} {limit} {layout:?}");
        }
        let in_one = Layout { root: Some(DocumentId(1)), ..in_parts };
        assert!(matches!(open(9_000.0, 10, in_one), Way::Approximate { .. }), "one part is looked at");
        let unindexed = Layout { unindexed: true, ..whole };
        assert_eq!(open(1e6, 10, unindexed), Way::Exact { most: i64::MAX });
    }
}
