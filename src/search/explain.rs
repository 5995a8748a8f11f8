//! How a search came to its answer, for whoever asks.
use crate::store::{scope::Readable, search::Expected, vectors::Layout};
use std::time::{Duration, Instant};
use svc_client::wire::{
    Fusion, LegExplanation, LegPlan, LegWay, SearchExplanation, SearchMethod, SearchStage, StageTime,
};
use svc_ranking::Weights;

/// The times of a search's stages, one after the other.
pub(super) struct Laps {
    last: Instant,
    stages: Vec<StageTime>,
    /// How many times the legs ranked.
    rounds: u32,
}

impl Laps {
    pub fn since(started: Instant) -> Laps {
        Laps { last: started, stages: Vec::new(), rounds: 0 }
    }

    /// All since the end of the stage before was this one, which may go on later.
    pub fn end(&mut self, stage: SearchStage) {
        let ms = milliseconds(self.last.elapsed());
        self.last = Instant::now();
        self.rounds += u32::from(stage == SearchStage::Rank);
        match self.stages.iter_mut().find(|time| time.stage == stage) {
            Some(time) => time.ms += ms,
            None => self.stages.push(StageTime { stage, ms }),
        }
    }

    /// Plans, and what was looked up, follow from documents that the caller may not read, and a query takes no time to be embedded where somebody else
    /// has asked it: who may not read everything is not told.
    pub fn explain(self, mut legs: Vec<LegExplanation>, fusion: Option<Fusion>, scope: &Readable) -> SearchExplanation {
        if !scope.is_everything() {
            legs.iter_mut().for_each(|leg| (leg.plan, leg.embed_ms) = (None, None));
        }
        SearchExplanation { legs, fusion, rounds: self.rounds, stages: self.stages }
    }
}

/// What a leg came to that began at this time.
pub(super) fn ran(leg: SearchMethod, begun: Instant, depth: u32, returned: usize, plan: LegPlan) -> LegExplanation {
    LegExplanation {
        leg,
        weight: None,
        depth,
        returned: returned as u64,
        ms: milliseconds(begun.elapsed()),
        embed_ms: None,
        plan: Some(plan),
    }
}

/// Two legs with their weights.
pub(super) fn weighted(vector: LegExplanation, bm25: LegExplanation, weights: Weights) -> Vec<LegExplanation> {
    vec![
        LegExplanation { weight: Some(weights.vector), ..vector },
        LegExplanation { weight: Some(weights.bm25), ..bm25 },
    ]
}

/// A way that was chosen by what the planner expects, if it was asked.
pub(super) fn plan(way: LegWay, expected: Option<Expected>) -> LegPlan {
    let whole = |number: f64| number.round() as u64;
    LegPlan {
        way,
        eligible: expected.map(|expected| whole(expected.eligible)),
        documents: expected.map(|expected| whole(expected.all)),
        candidates: None,
        entries: None,
        verified: None,
        parts: None,
    }
}

/// How many parts of the vectors a search reads.
pub(super) fn parts_read(layout: &Layout) -> Option<u64> {
    (layout.parts > 0).then(|| if layout.root.is_some() { 1 } else { layout.parts.unsigned_abs() })
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
