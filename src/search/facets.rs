//! Counts of what a search matches, beyond what it shows.
use super::{
    Asked, Found, Fusing, LEG_DEPTH, MAXSIM_DEPTH, NotHeld, Ranking, Total, bm25::Query, fusing, groups::Tree,
};
use crate::{
    core::Core,
    error::OrFail,
    store::{
        self,
        search::{
            Eligible,
            facets::{self as rows, Counted, Counts, Matched},
            groups,
        },
    },
};
use svc_client::{
    Failure,
    wire::{
        Facet, FacetBy, FacetCounts, FacetValue, FacetsResponse, Fusion, GroupBy, HybridWeights, TimeBucket, TotalIs,
    },
};
use svc_ids::DocumentId;

/// The most matches of each leg that are counted.
const COUNTED: u32 = 10_000;
const _: () = assert!(COUNTED >= LEG_DEPTH && COUNTED >= MAXSIM_DEPTH);

/// Everything that matches, in any order, up to what is counted; and whether it is everything.
async fn matched(
    core: &Core,
    eligible: &Eligible,
    ranking: &Ranking<'_>,
    found: &Found,
    enough: u32,
) -> Result<(Vec<DocumentId>, bool), Failure> {
    let ids = |found: &Found| found.ranked.iter().map(|(id, _)| *id).collect();
    if found.is_whole && found.total.exact {
        return Ok((ids(found), true));
    }
    match ranking {
        Ranking::Hybrid(body, added) => {
            let query = Query { text: &body.query, added: added.terms() };
            Box::pin(of_both(core, eligible, (body.index.as_deref(), query), body.weights)).await
        }
        // What the tokens say changes the order alone.
        Ranking::Maxsim(body) => {
            let query = Query::from(body.query.as_str());
            Box::pin(of_both(core, eligible, (body.index.as_deref(), query), None)).await
        }
        _ => {
            let found = ranking.first(core, eligible, COUNTED, enough).await?;
            Ok((ids(&found), found.is_whole && found.total.exact))
        }
    }
}

/// What either leg finds, in whatever order.
async fn of_both(
    core: &Core,
    eligible: &Eligible,
    asked: (Option<&str>, Query<'_>),
    weights: Option<HybridWeights>,
) -> Result<(Vec<DocumentId>, bool), Failure> {
    let legs = fusing(core, eligible, asked, (weights, Fusion::Rank), &[COUNTED]).await?.close().await?;
    let fused = legs.at_rung(&NotHeld::default(), COUNTED);
    let Fusing { vector, bm25, weights, .. } = legs;
    let total = Total::of_both(&vector, &bm25, weights, fused.len());
    let is_whole = total.exact && total.count == fused.len() as u64;
    Ok((fused.into_iter().map(|result| DocumentId(result.id)).collect(), is_whole))
}

/// Counts what the first stage finds with `enough`, as [`Ranking::first`] takes it, by all facets that are asked for.
pub(super) async fn count(
    core: &Core,
    eligible: &Eligible,
    asked: &Asked<'_>,
    ranking: &Ranking<'_>,
    found: &Found,
    enough: u32,
) -> Result<Option<FacetsResponse>, Failure> {
    if asked.facets.is_empty() {
        return Ok(None);
    }
    let (ids, is_whole) = matched(core, eligible, ranking, found, enough).await?;
    let mut tx = store::transaction::begin_search(&core.pool).await.or_fail()?;
    let groups = match asked.group_by {
        GroupBy::None => ids.clone(),
        GroupBy::File | GroupBy::Section => {
            let mut tree = Tree::new(asked.group_by, eligible.under());
            tree.learn(groups::members(&mut tx, eligible, &ids, groups::Counted::default()).await.or_fail()?);
            ids.iter().map(|id| tree.key(*id)).collect()
        }
    };
    let counted = groups.iter().collect::<std::collections::HashSet<_>>().len() as u64;
    let matched = Matched { ids, groups };
    let mut facets = Vec::with_capacity(asked.facets.len());
    for facet in asked.facets {
        let bucket = facet.bucket.unwrap_or(TimeBucket::Month).as_str();
        let by = match facet.by {
            FacetBy::Usetype => Counted::Usetype,
            FacetBy::Format => Counted::Format,
            FacetBy::StructuredContent => Counted::Key(facet.key.as_deref().unwrap_or_default()),
            FacetBy::Parent => Counted::Parent,
            FacetBy::Root => Counted::Root(eligible.parent_id),
            FacetBy::EventTime => Counted::EventTime(bucket),
            FacetBy::CreatedAt => Counted::CreatedAt(bucket),
        };
        let Counts { values, distinct, with } =
            rows::count(&mut tx, &eligible.scope, &matched, by, i64::from(facet.shown())).await.or_fail()?;
        let named: Vec<DocumentId> = match facet.by {
            FacetBy::Parent | FacetBy::Root => {
                values.iter().filter_map(|(value, _)| value.as_i64()).map(DocumentId).collect()
            }
            _ => Vec::new(),
        };
        let mut titles = match named.is_empty() {
            true => Default::default(),
            false => rows::titles(&mut tx, &eligible.scope, &named).await.or_fail()?,
        };
        let more = distinct.unsigned_abs().saturating_sub(values.len() as u64);
        let shown = |(value, count): (serde_json::Value, i64)| FacetValue {
            title: value.as_i64().and_then(|id| titles.remove(&DocumentId(id))),
            value,
            count: count.unsigned_abs(),
        };
        let is_time = matches!(facet.by, FacetBy::EventTime | FacetBy::CreatedAt);
        facets.push(FacetCounts {
            by: facet.by,
            key: facet.key.clone(),
            bucket: is_time.then(|| facet.bucket.unwrap_or(TimeBucket::Month)),
            values: values.into_iter().map(shown).collect(),
            more,
            without: counted.saturating_sub(with.unsigned_abs()),
        });
    }
    tx.commit().await.or_fail()?;
    let counted_is = if is_whole { TotalIs::Exact } else { TotalIs::AtLeast };
    Ok(Some(FacetsResponse { counted, counted_is, facets }))
}

/// The facets of a body.
pub(super) fn of(asked: &Option<Vec<Facet>>) -> &[Facet] {
    asked.as_deref().unwrap_or_default()
}
