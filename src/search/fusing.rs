//! Two legs whose ranks or scores count together.
use super::{
    LEG_DEPTH, Ranked,
    bm25::Query,
    groups::looked_at,
    legs::{Leg, Open, Reading, bm25_leg, vector_leg_after},
};
use crate::{
    core::Core,
    error::OrFail,
    store::{
        self,
        search::{
            self as rows, Eligible,
            groups::{Counted, Member},
        },
    },
};
use std::collections::HashSet;
use svc_client::{
    Failure,
    wire::{Fusion, GroupBy, HybridWeights, Leg as WireLeg, Legs},
};
use svc_ids::DocumentId;
use svc_ranking::{Fused, LegRanking, Place, Weights, fuse_by_rank, fuse_by_score};

/// Two legs, how much each counts, and by what.
pub(super) struct Fusing {
    pub vector: Leg,
    pub bm25: Leg,
    pub weights: Weights,
    pub fusion: Fusion,
    /// How many results each was asked for.
    depth: u32,
}

/// The results of both legs; the transaction of the vector leg has not ended.
pub(super) struct FusingOpen {
    legs: Fusing,
    reading: Option<Reading>,
}

/// What a leg cannot find because it is not in its index, of what the other one found.
#[derive(Default)]
pub(super) struct NotHeld {
    vector: HashSet<i64>,
    bm25: HashSet<i64>,
}

impl FusingOpen {
    /// How many documents are among the first `most` of both legs; none if one of them counts for nothing.
    pub fn shared(&self, most: usize) -> usize {
        self.legs.shared(most)
    }

    pub async fn close(self) -> Result<Fusing, Failure> {
        if let Some(Reading { tx, .. }) = self.reading {
            tx.commit().await.or_fail()?;
        }
        Ok(self.legs)
    }

    /// Ends the transaction and reads in the same message what the fusion still needs: which results of one leg the other cannot hold and,
    /// for groups, what the groups of that many results consist of. The index of BM25 is `default` if none is named. Where only the best `depth` results
    /// count, nothing is asked about one that cannot be among them.
    pub async fn close_with(
        self,
        eligible: &Eligible,
        index: Option<&str>,
        grouped: Option<(GroupBy, u32)>,
        depth: Option<u32>,
    ) -> Result<(Fusing, NotHeld, Option<Vec<Member>>), Failure> {
        let FusingOpen { legs, reading } = self;
        let Some(Reading { tx, layout, model }) = reading else { return Ok((legs, NotHeld::default(), None)) };
        let ids = |leg: &Leg| leg.ranked.iter().map(|(id, _)| *id).collect::<HashSet<DocumentId>>();
        let (near, worded) = (ids(&legs.vector), ids(&legs.bm25));
        let mut only_near: Vec<DocumentId> = near.difference(&worded).copied().collect();
        let mut only_worded: Vec<DocumentId> = worded.difference(&near).copied().collect();
        if let Some(contenders) = depth.and_then(|depth| legs.contenders(&only_near, &only_worded, depth)) {
            only_near.retain(|id| contenders.contains(&id.0));
            only_worded.retain(|id| contenders.contains(&id.0));
        }
        // A leg that found nothing has no result to rank above those that it cannot hold.
        let either_finds_none = near.is_empty() || worded.is_empty();
        let is_split = !either_finds_none && (!only_near.is_empty() || !only_worded.is_empty());
        let mut statements = Vec::with_capacity(2);
        if is_split {
            let near = (only_near.as_slice(), index.unwrap_or("default"));
            statements.push(rows::not_held(near, (only_worded.as_slice(), &model), &layout));
        }
        if let Some((group_by, limit)) = grouped {
            let all: Vec<DocumentId> = near.union(&worded).copied().collect();
            let best =
                |ranked: &Ranked| ranked.iter().take(looked_at(group_by, limit)).map(|(id, _)| *id).collect::<Vec<_>>();
            let among = [best(&legs.vector.ranked), best(&legs.bm25.ranked)].concat();
            let counted = Counted { among: &among, most: 2 * i64::from(limit) };
            statements.push(rows::groups::statement(&eligible.scope, &all, counted));
        }
        let mut answers = tx.commit_after_all(&statements).await.or_fail()?.into_iter();
        let mut not_held = NotHeld::default();
        if is_split {
            let (bm25, vector) = rows::read_not_held(&answers.next().unwrap_or_default()).or_fail()?;
            let numbers = |ids: Vec<DocumentId>| ids.into_iter().map(|id| id.0).collect();
            not_held = NotHeld { vector: numbers(vector), bm25: numbers(bm25) };
        }
        let members = match grouped {
            Some(_) => Some(rows::groups::read(eligible, &answers.next().unwrap_or_default()).or_fail()?),
            None => None,
        };
        Ok((legs, not_held, members))
    }
}

impl Fusing {
    fn shared(&self, most: usize) -> usize {
        if self.weights.vector <= 0.0 || self.weights.bm25 <= 0.0 {
            return 0;
        }
        let first = |leg: &Leg| leg.ranked.iter().take(most).map(|(id, _)| *id).collect::<HashSet<DocumentId>>();
        first(&self.vector).intersection(&first(&self.bm25)).count()
    }

    /// Has BM25 rank again, by a query with other terms, while the other leg stays as it is. A transaction begins for what [`FusingOpen::close_with`] reads.
    pub async fn again_by_words(
        self,
        core: &Core,
        eligible: &Eligible,
        (index, query): (Option<&str>, Query<'_>),
    ) -> Result<FusingOpen, Failure> {
        let model = core.model().await?.identity().to_owned();
        let bm25 = Box::pin(bm25_leg(core, eligible, index, query, self.depth)).await?;
        // The vectors may be in another form by now.
        let (tx, layout) = store::vectors::begin_looking_up(&core.pool).await.or_fail()?;
        let reading = Reading { tx, layout, model };
        Ok(FusingOpen { legs: Fusing { bm25, ..self }, reading: Some(reading) })
    }

    /// Those that may be among the best `depth` results if the other leg cannot hold what one leg alone found; `None` if all may. What one result has
    /// does not depend on which others a leg cannot hold, so a result that cannot be among them in any case has no influence on them.
    fn contenders(&self, only_near: &[DocumentId], only_worded: &[DocumentId], depth: u32) -> Option<HashSet<i64>> {
        let worst = self.at_rung(&NotHeld::default(), self.depth);
        let least = worst.get((depth as usize).checked_sub(1)?)?.score;
        let numbers = |ids: &[DocumentId]| ids.iter().map(|id| id.0).collect();
        let best = self.at_rung(&NotHeld { vector: numbers(only_worded), bm25: numbers(only_near) }, self.depth);
        Some(best.into_iter().filter(|fused| fused.score >= least).map(|fused| fused.id).collect())
    }

    /// What the legs rank together as far as a rung, as if they had been asked for no more.
    pub fn at_rung(&self, not_held: &NotHeld, rung: u32) -> Vec<Fused> {
        let (vector, bm25, asked) = (numbers(&self.vector, rung), numbers(&self.bm25, rung), rung as usize);
        let vector = LegRanking { ranked: &vector, asked, cannot_hold: &not_held.vector };
        let bm25 = LegRanking { ranked: &bm25, asked, cannot_hold: &not_held.bm25 };
        match self.fusion {
            Fusion::Rank => fuse_by_rank(vector, bm25, self.weights, 2 * asked),
            Fusion::Score => fuse_by_score(vector, bm25, self.weights, 2 * asked),
        }
    }
}

/// Ranks by both legs, as deep as the last rung: by words while the query is embedded, and then by vectors. Terms that were added to the query
/// count only for BM25.
pub(super) async fn fusing(
    core: &Core,
    eligible: &Eligible,
    (index, query): (Option<&str>, Query<'_>),
    (asked, fusion): (Option<HybridWeights>, Fusion),
    rungs: &[u32],
) -> Result<FusingOpen, Failure> {
    let depth = rungs.last().copied().unwrap_or(LEG_DEPTH);
    // The state of both legs is large, and without a box it would be on the stack at each level that polls them.
    let by_words = Box::pin(bm25_leg(core, eligible, index, query, depth));
    let both = Box::pin(vector_leg_after(core, eligible, query.text, depth, by_words));
    let (Open { leg: vector, reading }, bm25) = both.await?;
    Ok(FusingOpen { legs: Fusing { vector, bm25, weights: weights(asked), fusion, depth }, reading })
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
    use crate::search::{
        Total,
        explain::{plan, ran},
    };
    use std::time::Instant;
    use svc_client::wire::{LegWay, SearchMethod};

    fn leg(method: SearchMethod, ids: impl Iterator<Item = i64>) -> Leg {
        let ranked: Ranked = ids.zip(1_u32..).map(|(id, rank)| (DocumentId(id), 1.0 / f64::from(rank))).collect();
        let ran = ran(method, Instant::now(), LEG_DEPTH, ranked.len(), plan(LegWay::Exact, None));
        Leg { total: Total::of(&ranked, LEG_DEPTH), ranked, ran }
    }

    #[test]
    fn only_what_may_be_among_the_best_is_asked_about() {
        // Half of the nearest are found by words too, and 50 others by words alone.
        let only_near: Vec<DocumentId> = (2..=100).step_by(2).map(DocumentId).collect();
        let only_worded: Vec<DocumentId> = (101..=150).map(DocumentId).collect();
        let equal = Some(HybridWeights { vector: None, bm25: None });
        for (asked, fusion, legs_depth) in [
            (None, Fusion::Rank, LEG_DEPTH),
            (equal, Fusion::Rank, LEG_DEPTH),
            (None, Fusion::Score, LEG_DEPTH),
            (equal, Fusion::Score, LEG_DEPTH),
            // Both legs have all that there is.
            (equal, Fusion::Score, 2 * LEG_DEPTH),
        ] {
            let vector = leg(SearchMethod::Vector, 1..=100);
            let bm25 = leg(SearchMethod::Bm25, (101..=150).rev().chain((1..=100).step_by(2)));
            let legs = Fusing { vector, bm25, weights: weights(asked), fusion, depth: legs_depth };
            for depth in [1, 10, 50, 100, 150] {
                let contenders = legs.contenders(&only_near, &only_worded, depth).unwrap();
                for nth in 1..8_i64 {
                    let lacking = |ids: &[DocumentId], is_asked: bool| {
                        let ids = ids.iter().map(|id| id.0).filter(|id| id % nth == 0);
                        ids.filter(|id| !is_asked || contenders.contains(id)).collect::<HashSet<i64>>()
                    };
                    let best = |is_asked| {
                        let not_held =
                            NotHeld { vector: lacking(&only_worded, is_asked), bm25: lacking(&only_near, is_asked) };
                        let mut fused = legs.at_rung(&not_held, legs_depth);
                        fused.truncate(depth as usize);
                        fused
                    };
                    assert_eq!(best(true), best(false), "{fusion} {depth} {nth}");
                }
                assert!(depth > 1 || contenders.len() < 60, "{}", contenders.len());
            }
            assert_eq!(legs.contenders(&only_near, &only_worded, 151), None, "there are no more than 150");
        }
    }

    #[test]
    fn legs_agree_only_where_both_of_them_count() {
        for (near, worded, shared) in [(1.0, 1.0, 3), (0.86, 0.14, 3), (0.0, 1.0, 0), (1.0, 0.0, 0)] {
            let legs = Fusing {
                vector: leg(SearchMethod::Vector, 1..=20),
                bm25: leg(SearchMethod::Bm25, 8..=30),
                weights: weights(Some(HybridWeights { vector: Some(near), bm25: Some(worded) })),
                fusion: Fusion::Rank,
                depth: LEG_DEPTH,
            };
            assert_eq!(legs.shared(10), shared, "{near} {worded}");
        }
    }

    #[test]
    fn the_weights_are_the_contract() {
        let object = |vector, bm25| Some(HybridWeights { vector, bm25 });
        assert_eq!(weights(None), Weights { vector: 0.86, bm25: 0.14 });
        assert_eq!(weights(object(None, None)), Weights { vector: 1.0, bm25: 1.0 });
        assert_eq!(weights(object(Some(0.6), Some(0.4))), Weights { vector: 0.6, bm25: 0.4 });
    }
}
