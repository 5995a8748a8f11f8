//! What the planner said of filters that were asked about a moment ago.
use super::{Eligible, Expected};
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long an answer is kept. It follows from the statistics of a table, which change by the minute.
const KEPT: Duration = Duration::from_secs(30);

/// The most answers that are kept.
const MOST: usize = 1_024;

/// The last answers of [`expected`](super::expected): a caller who searches again asks the planner once.
#[derive(Debug, Default)]
pub struct Expectations {
    hasher: RandomState,
    known: Mutex<HashMap<u64, (Instant, Expected)>>,
}

impl Expectations {
    /// What was learned of the filter, if that is not old.
    pub fn of(&self, eligible: &Eligible) -> Option<Expected> {
        let key = self.key(eligible);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key).filter(|(since, _)| since.elapsed() < KEPT).map(|(_, expected)| *expected)
    }

    /// Keeps an answer.
    pub fn learn(&self, eligible: &Eligible, expected: Expected) {
        let key = self.key(eligible);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, (since, _)| since.elapsed() < KEPT);
        }
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, (Instant::now(), expected));
    }

    /// Two filters with one key would only cost time.
    fn key(&self, eligible: &Eligible) -> u64 {
        self.hasher.hash_one(format!("{eligible:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::scope::Readable;
    use svc_ids::DocumentId;

    #[test]
    fn each_filter_has_its_own_answer_and_there_is_a_bound() {
        let known = Expectations::default();
        let of = |guard: i64| Eligible { scope: Readable::under(&[DocumentId(guard)]), ..Eligible::default() };
        let expected = |eligible| Expected { eligible, all: 1e6 };
        known.learn(&of(1), expected(10.0));
        known.learn(&of(2), expected(20.0));
        assert_eq!(
            (known.of(&of(1)), known.of(&of(2)), known.of(&of(3))),
            (Some(expected(10.0)), Some(expected(20.0)), None)
        );
        for guard in 0..3 * MOST as i64 {
            known.learn(&of(guard), expected(1.0));
        }
        assert!(known.known.lock().unwrap().len() <= MOST);
    }
}
