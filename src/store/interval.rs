//! Durations as the server takes them.
use std::time::Duration;

/// The most that an interval holds in microseconds.
const LONGEST: u64 = i64::MAX as u64;

/// A duration that the server accepts: an interval has microseconds, and nothing finer.
pub(super) fn interval(duration: Duration) -> Duration {
    Duration::from_micros(u64::try_from(duration.as_micros()).map_or(LONGEST, |micros| micros.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::postgres::types::PgInterval;

    #[test]
    fn every_duration_becomes_an_interval() {
        for duration in [Duration::ZERO, Duration::from_secs(4) / 3, Duration::from_nanos(1), Duration::MAX] {
            PgInterval::try_from(interval(duration)).unwrap();
        }
        assert_eq!(interval(Duration::from_secs(4) / 3), Duration::from_micros(1_333_333));
    }
}
