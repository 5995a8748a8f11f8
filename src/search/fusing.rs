//! Two legs whose ranks count together.
use super::{
    LEG_DEPTH,
    bm25::Query,
    legs::{Leg, bm25_leg, vector_leg},
};
use crate::{
    core::Core,
    error::OrFail,
    store::{self, search::Eligible},
};
use std::collections::HashSet;
use svc_client::{
    Failure,
    wire::{HybridWeights, Leg as WireLeg, Legs},
};
use svc_ids::DocumentId;
use svc_ranking::{Fused, LegRanking, Place, Weights, fuse};

/// Two legs, and how much each counts.
pub(super) struct Fusing {
    pub vector: Leg,
    pub bm25: Leg,
    pub weights: Weights,
}

/// What a leg cannot find because it is not in its index, of what the other one found.
#[derive(Default)]
pub(super) struct NotHeld {
    vector: HashSet<i64>,
    bm25: HashSet<i64>,
}

impl Fusing {
    /// The index of BM25 is `default` if none is named.
    pub async fn not_held(&self, core: &Core, index: Option<&str>) -> Result<NotHeld, Failure> {
        // A leg that found nothing ranks nothing higher than what it cannot hold.
        if self.vector.ranked.is_empty() || self.bm25.ranked.is_empty() {
            return Ok(NotHeld::default());
        }
        let ids = |leg: &Leg| leg.ranked.iter().map(|(id, _)| *id).collect::<HashSet<DocumentId>>();
        let (near, worded) = (ids(&self.vector), ids(&self.bm25));
        let only_near: Vec<DocumentId> = near.difference(&worded).copied().collect();
        let only_worded: Vec<DocumentId> = worded.difference(&near).copied().collect();
        if only_near.is_empty() && only_worded.is_empty() {
            return Ok(NotHeld::default());
        }
        let model = core.model().await?;
        let near = (only_near.as_slice(), index.unwrap_or("default"));
        let worded = (only_worded.as_slice(), model.identity());
        let mut conn = core.pool.acquire().await.or_fail()?;
        let (bm25, vector) = store::search::not_held(&mut conn, near, worded).await.or_fail()?;
        let numbers = |ids: Vec<DocumentId>| ids.into_iter().map(|id| id.0).collect();
        Ok(NotHeld { vector: numbers(vector), bm25: numbers(bm25) })
    }

    /// What the legs rank together as far as a rung.
    pub fn at_rung(&self, not_held: &NotHeld, rung: u32) -> Vec<Fused> {
        let (vector, bm25) = (numbers(&self.vector, rung), numbers(&self.bm25, rung));
        let vector = LegRanking { ranked: &vector, cannot_hold: &not_held.vector };
        let bm25 = LegRanking { ranked: &bm25, cannot_hold: &not_held.bm25 };
        fuse(vector, bm25, self.weights, 2 * rung as usize)
    }
}

/// Ranks by both legs, as deep as the last rung. What is added to the query counts for BM25 alone.
pub(super) async fn fusing(
    core: &Core,
    eligible: &Eligible,
    (index, query): (Option<&str>, Query<'_>),
    asked: Option<HybridWeights>,
    rungs: &[u32],
) -> Result<Fusing, Failure> {
    let deep = rungs.last().copied().unwrap_or(LEG_DEPTH);
    let (vector, bm25) =
        tokio::try_join!(vector_leg(core, eligible, query.text, deep), bm25_leg(core, eligible, index, query, deep))?;
    Ok(Fusing { vector, bm25, weights: weights(asked) })
}

/// Without weights: vector 0.86, BM25 0.14. With an empty object: equal weights.
fn weights(asked: Option<HybridWeights>) -> Weights {
    match asked {
        None => Weights { vector: 0.86, bm25: 0.14 },
        Some(HybridWeights { vector: Some(vector), bm25: Some(bm25) }) => Weights { vector, bm25 },
        Some(_) => Weights { vector: 1.0, bm25: 1.0 },
    }
}

/// What a leg ranked as far as a rung, as plain numbers, which is what fusion works on.
fn numbers(leg: &Leg, rung: u32) -> Vec<(i64, f64)> {
    leg.ranked.iter().take(rung as usize).map(|(id, score)| (id.0, *score)).collect()
}

pub(super) fn places(fused: &Fused) -> Legs {
    let leg = |place: Option<Place>| place.map(|Place { rank, score }| WireLeg { rank, score });
    Legs { vector: leg(fused.vector), bm25: leg(fused.bm25), ..Legs::default() }
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
