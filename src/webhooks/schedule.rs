//! When a delivery is tried again.
use rand::RngExt;
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// The waits before the second and each further try, in seconds. After the last, a delivery is dead.
const WAITS: [u64; 9] = [5, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR];
/// A receiver that asks for more time gets at most this.
const LONGEST: Duration = Duration::from_secs(24 * HOUR);

/// The wait after this many failed tries, up to a fifth longer so that failures do not come back together; `None` after the last.
pub fn again(tries: i32, retry_after: Option<Duration>) -> Option<Duration> {
    let past = usize::try_from(tries.max(1) - 1).unwrap_or(usize::MAX);
    let wait = Duration::from_secs(*WAITS.get(past)?).mul_f64(rand::rng().random_range(1.0..1.2));
    Some(wait.max(retry_after.unwrap_or_default().min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_grow_and_end() {
        for (tries, wait) in (1..).zip(WAITS) {
            let again = again(tries, None).expect("another try").as_secs_f64();
            assert!((wait as f64..=wait as f64 * 1.2).contains(&again), "{tries}: {again}");
        }
        assert_eq!((again(10, None), again(i32::MAX, Some(LONGEST))), (None, None));
    }

    #[test]
    fn a_receiver_may_ask_for_more_time_and_never_for_less() {
        let asked = |seconds| again(1, Some(Duration::from_secs(seconds))).expect("another try").as_secs();
        assert_eq!((asked(3600), asked(u64::MAX)), (3600, LONGEST.as_secs()));
        assert!(asked(0) >= 5);
    }
}
