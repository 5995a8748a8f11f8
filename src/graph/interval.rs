//! Intervals of time, half open: what begins at a moment holds from it on, and what ends at one no longer holds then. No bound is open.
use chrono::{DateTime, Utc};
use std::cmp::Ordering;

/// A part of time that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub from: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
}

impl Interval {
    /// All of time.
    pub const ALWAYS: Interval = Interval { from: None, until: None };

    /// The time between two bounds, at the precision of the store; the contract has refused what is empty.
    pub fn between(from: Option<DateTime<Utc>>, until: Option<DateTime<Utc>>) -> Interval {
        // A leap second is the second after it, as PostgreSQL keeps it.
        let kept = |bound: DateTime<Utc>| DateTime::from_timestamp_micros(bound.timestamp_micros()).unwrap_or(bound);
        Interval { from: from.map(kept), until: until.map(kept) }
    }

    /// Whether a moment is in both.
    pub fn overlaps(self, other: Interval) -> bool {
        self.begins_before_end_of(other) && other.begins_before_end_of(self)
    }

    /// Whether it begins before the other one ends.
    pub fn begins_before_end_of(self, other: Interval) -> bool {
        self.from.zip(other.until).is_none_or(|(from, until)| from < until)
    }

    /// Whether every moment of the other one is in this one.
    pub fn covers(self, other: Interval) -> bool {
        earlier(self.from, other.from).is_le() && later(self.until, other.until).is_ge()
    }

    /// The time from the earlier beginning to the later end. Of two that overlap it has no moment that is in neither.
    pub fn union(self, other: Interval) -> Interval {
        Interval {
            from: if earlier(self.from, other.from).is_le() { self.from } else { other.from },
            until: if later(self.until, other.until).is_ge() { self.until } else { other.until },
        }
    }

    /// The moments that are in both.
    pub fn intersection(self, other: Interval) -> Option<Interval> {
        self.overlaps(other).then(|| Interval {
            from: if earlier(self.from, other.from).is_ge() { self.from } else { other.from },
            until: if later(self.until, other.until).is_le() { self.until } else { other.until },
        })
    }

    /// Whether the other one begins where this one ends.
    pub fn meets(self, other: Interval) -> bool {
        self.until.is_some() && self.until == other.from
    }

    /// What is left of this without a portion of it: nothing, one piece or two.
    pub fn minus(self, portion: Interval) -> Vec<Interval> {
        if !self.overlaps(portion) {
            return vec![self];
        }
        let before =
            (earlier(self.from, portion.from).is_lt()).then_some(Interval { from: self.from, until: portion.from });
        let after =
            (later(self.until, portion.until).is_gt()).then_some(Interval { from: portion.until, until: self.until });
        before.into_iter().chain(after).collect()
    }
}

/// Compares beginnings, of which none is the earliest.
fn earlier(one: Option<DateTime<Utc>>, other: Option<DateTime<Utc>>) -> Ordering {
    one.cmp(&other)
}

/// Compares ends, of which none is the latest.
fn later(one: Option<DateTime<Utc>>, other: Option<DateTime<Utc>>) -> Ordering {
    match (one, other) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Greater,
        (_, None) => Ordering::Less,
        (Some(one), Some(other)) => one.cmp(&other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The days 0 to 7, on which bounds are; the cells -1 and 8 stand for all before and after.
    const CELLS: std::ops::RangeInclusive<i64> = -1..=8;

    fn day(day: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(day * 86_400, 0).unwrap_or_default()
    }

    fn has(interval: Interval, cell: i64) -> bool {
        interval.from.is_none_or(|from| from <= day(cell)) && interval.until.is_none_or(|until| day(cell) < until)
    }

    fn any() -> impl Strategy<Value = Interval> {
        (prop::option::of(0..7_i64), prop::option::of(1..8_i64)).prop_filter_map("empty", |(from, until)| {
            let is_empty = from.zip(until).is_some_and(|(from, until)| from >= until);
            (!is_empty).then(|| Interval { from: from.map(day), until: until.map(day) })
        })
    }

    proptest! {
        #[test]
        fn the_algebra_is_that_of_sets_of_moments(a in any(), b in any()) {
            prop_assert_eq!(a.overlaps(b), CELLS.into_iter().any(|cell| has(a, cell) && has(b, cell)));
            prop_assert_eq!(a.covers(b), CELLS.into_iter().all(|cell| has(a, cell) || !has(b, cell)));
            let both = a.intersection(b);
            prop_assert_eq!(both.is_some(), a.overlaps(b));
            let rest = a.minus(b);
            prop_assert!(rest.len() <= 2);
            for cell in CELLS {
                let times = rest.iter().filter(|piece| has(**piece, cell)).count();
                prop_assert_eq!(times, usize::from(has(a, cell) && !has(b, cell)), "cell {}", cell);
                prop_assert_eq!(both.is_some_and(|both| has(both, cell)), has(a, cell) && has(b, cell));
                if a.overlaps(b) {
                    prop_assert_eq!(has(a.union(b), cell), has(a, cell) || has(b, cell));
                }
            }
        }
    }

    #[test]
    fn bounds_are_kept_to_the_microsecond() {
        let fine = DateTime::from_timestamp(7, 123_456_789).unwrap_or_default();
        let kept = Interval::between(Some(fine), None);
        assert_eq!(kept.from.map(|from| from.timestamp_subsec_nanos()), Some(123_456_000));
        assert!(Interval::ALWAYS.covers(kept) && !kept.covers(Interval::ALWAYS));
        let leap = Interval::between("2016-12-31T23:59:60Z".parse().ok(), None);
        assert_eq!(leap.from, "2017-01-01T00:00:00Z".parse().ok());
    }
}
