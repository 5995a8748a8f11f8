//! The last stages of a ranking: newer results before older ones, and results that say something new before those that repeat.
use super::{Found, Ranked, ranks};
use crate::{
    core::Core,
    error::OrFail,
    store::{scope::Readable, search::reorder as rows, vectors::unit},
};
use std::collections::HashMap;
use svc_client::Failure;
use svc_ids::DocumentId;
use svc_ranking::{by_diversity, by_recency, dot, relevance};

/// What counts beside the score. Without either, the order stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reorder {
    /// How much relevance counts against likeness; absent where relevance alone does.
    lambda: Option<f64>,
    /// In days.
    half_life: Option<f64>,
}

impl Reorder {
    pub fn of(lambda: Option<f64>, half_life: Option<f64>) -> Option<Reorder> {
        let lambda = lambda.filter(|lambda| *lambda < 1.0);
        (lambda.is_some() || half_life.is_some()).then_some(Reorder { lambda, half_life })
    }

    /// Gives the results their new order. Each keeps its score, and its legs say what it has here.
    pub async fn run(self, core: &Core, scope: &Readable, found: &mut Found) -> Result<(), Failure> {
        let mut scores: Vec<f64> = (0..found.ranked.len()).map(relevance).collect();
        if let Some(half_life) = self.half_life {
            let mut conn = core.pool.acquire().await.or_fail()?;
            let known = rows::ages(&mut conn, scope, &ids(&found.ranked)).await.or_fail()?;
            drop(conn);
            // What was deleted meanwhile is not shown.
            let ages: Vec<f64> =
                found.ranked.iter().map(|(id, _)| known.get(id).copied().unwrap_or_default() / half_life).collect();
            let order = by_recency(&ages);
            scores = take(found, &order);
            for (id, leg) in ranks(&scored(&found.ranked, &scores)) {
                found.legs.entry(id).or_default().recency = Some(leg);
            }
        }
        if let Some(lambda) = self.lambda {
            let model = core.model().await?;
            let mut conn = core.pool.acquire().await.or_fail()?;
            let known = rows::vectors(&mut conn, scope, &ids(&found.ranked), model.identity()).await.or_fail()?;
            drop(conn);
            let known: HashMap<DocumentId, Vec<f32>> =
                known.into_iter().map(|(id, vector)| (id, unit(&vector))).collect();
            let vectors: Vec<Option<&Vec<f32>>> = found.ranked.iter().map(|(id, _)| known.get(id)).collect();
            // What has no vector is like nothing.
            let cosine = |one: usize, other: usize| match (vectors[one], vectors[other]) {
                (Some(one), Some(other)) => f64::from(dot(one, other)),
                _ => 0.0,
            };
            let order = by_diversity(&scores, lambda, cosine);
            scores = take(found, &order);
            for (id, leg) in ranks(&scored(&found.ranked, &scores)) {
                found.legs.entry(id).or_default().mmr = Some(leg);
            }
        }
        Ok(())
    }
}

fn ids(ranked: &Ranked) -> Vec<DocumentId> {
    ranked.iter().map(|(id, _)| *id).collect()
}

/// Puts the results into an order, and returns what each has there.
fn take(found: &mut Found, order: &[(usize, f64)]) -> Vec<f64> {
    found.ranked = order.iter().filter_map(|(at, _)| found.ranked.get(*at).copied()).collect();
    order.iter().map(|(_, score)| *score).collect()
}

fn scored(ranked: &Ranked, scores: &[f64]) -> Ranked {
    ranked.iter().zip(scores).map(|((id, _), score)| (*id, *score)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_is_no_stage() {
        assert_eq!(Reorder::of(None, None), None);
        assert_eq!(Reorder::of(Some(1.0), None), None);
        assert_eq!(Reorder::of(Some(1.0), Some(7.0)), Some(Reorder { lambda: None, half_life: Some(7.0) }));
    }
}
