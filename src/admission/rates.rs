//! Rate limits: a bucket of requests for each principal and class of operations, which refills steadily.
//!
//! A bucket is one instant, the one at which it is full again (GCRA). A bucket that is full is the same as none, so
//! only those of the last [`WINDOW`] are kept, and memory is bounded by the principals that called in it.
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};
use svc_client::{Access, Code, Failure, OperationInfo};
use svc_ids::PrincipalId;

/// A full bucket holds as many requests as may be made in this time.
const WINDOW: Duration = Duration::from_secs(10);
/// Fewer buckets than this are never looked through for full ones.
const FEW: usize = 1024;

/// Operations that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    Reads,
    Writes,
    /// What uses the model or reads a file: searches, embeddings and analyses.
    Costly,
}

impl Class {
    /// The class of an operation. `None` if it has no limit: probes must answer under any load, and a runner's callers are
    /// workers and services, whose calls have slots.
    pub fn of(info: &OperationInfo) -> Option<Class> {
        let is_get = info.method == http::Method::GET;
        match info.access {
            Access::Public | Access::Metrics | Access::RunnerKey => None,
            // What reads by another method than GET searches or analyzes.
            Access::Read if !is_get => Some(Class::Costly),
            _ if info.needs.is_some() || info.searches() => Some(Class::Costly),
            _ if is_get => Some(Class::Reads),
            _ => Some(Class::Writes),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Class::Reads => "reads",
            Class::Writes => "writes",
            Class::Costly => "costly",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Class::Reads => "SVC_RATE_READS",
            Class::Writes => "SVC_RATE_WRITES",
            Class::Costly => "SVC_RATE_COSTLY",
        }
    }
}

/// Requests per second of each class, on average over [`WINDOW`]; 0: no limit.
#[derive(Clone, Copy, Debug)]
pub struct PerSecond {
    pub reads: usize,
    pub writes: usize,
    pub costly: usize,
}

impl PerSecond {
    fn of(self, class: Class) -> u32 {
        let limit = match class {
            Class::Reads => self.reads,
            Class::Writes => self.writes,
            Class::Costly => self.costly,
        };
        u32::try_from(limit).unwrap_or(u32::MAX)
    }
}

/// The buckets of a process.
pub struct Rates {
    limits: PerSecond,
    buckets: Mutex<Buckets>,
}

struct Buckets {
    full_at: HashMap<(PrincipalId, Class), Instant>,
    /// The number of buckets at which full ones are dropped.
    sweep_at: usize,
}

/// What a principal has left in a bucket, as the headers `RateLimit-Policy` and `RateLimit` say it
/// (draft-ietf-httpapi-ratelimit-headers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    class: Class,
    quota: u64,
    remaining: u64,
    /// Seconds after which the bucket is full again, or after which another request is taken if none is left.
    reset: u64,
}

impl Standing {
    /// The value of `RateLimit-Policy`.
    pub fn policy(&self) -> String {
        format!("\"{}\";q={};w={}", self.class.name(), self.quota, WINDOW.as_secs())
    }

    /// The value of `RateLimit`.
    pub fn limit(&self) -> String {
        format!("\"{}\";r={};t={}", self.class.name(), self.remaining, self.reset)
    }

    /// The 429 for a request beyond the quota.
    pub fn refusal(&self) -> Failure {
        let detail = format!(
            "this principal may make {} requests of the class `{}` in {} seconds, and has made them",
            self.quota,
            self.class.name(),
            WINDOW.as_secs()
        );
        Failure::new(Code::TooManyRequests, detail)
            .with("setting", self.class.setting())
            .with("remedy", "wait for as long as `Retry-After` says")
            .with("retry_after", self.reset)
    }
}

impl Rates {
    pub fn new(limits: PerSecond) -> Rates {
        Rates { limits, buckets: Mutex::new(Buckets { full_at: HashMap::new(), sweep_at: FEW }) }
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        // No code panics between two states of the map.
        self.buckets.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a request out of a bucket. Returns what is left, as an error if the bucket was empty; `None` if the class has no
    /// limit.
    pub fn take(&self, principal: PrincipalId, class: Class, now: Instant) -> Option<Result<Standing, Standing>> {
        let rate = self.limits.of(class);
        if rate == 0 {
            return None;
        }
        let (each, quota) = (Duration::from_secs(1) / rate, u64::from(rate) * WINDOW.as_secs());
        let mut buckets = self.buckets();
        let key = (principal, class);
        let full_at = buckets.full_at.get(&key).copied().map_or(now, |full_at| full_at.max(now)) + each;
        let missing = full_at.duration_since(now);
        if missing > each * u32::try_from(quota).unwrap_or(u32::MAX) {
            let wait = missing.saturating_sub(WINDOW);
            return Some(Err(Standing { class, quota, remaining: 0, reset: whole_seconds(wait).max(1) }));
        }
        buckets.full_at.insert(key, full_at);
        if buckets.full_at.len() >= buckets.sweep_at {
            buckets.full_at.retain(|_, full_at| *full_at > now);
            buckets.sweep_at = FEW.max(2 * buckets.full_at.len());
        }
        let taken = missing.as_nanos().div_ceil(each.as_nanos().max(1));
        let remaining = quota.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
        Some(Ok(Standing { class, quota, remaining, reset: whole_seconds(missing) }))
    }
}

/// Seconds, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use svc_client::OPERATIONS;

    const LIMITS: PerSecond = PerSecond { reads: 5, writes: 0, costly: 1 };
    const ANNA: PrincipalId = PrincipalId(1);
    const BERT: PrincipalId = PrincipalId(2);

    #[test]
    fn a_bucket_holds_ten_seconds_worth_and_refills_steadily() {
        let (rates, start) = (Rates::new(LIMITS), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let take = |principal, class, seconds| rates.take(principal, class, at(seconds));
        for made in 1..=10 {
            let standing = take(ANNA, Class::Costly, 0.0).expect("a limit").expect("some left");
            assert_eq!(standing.limit(), format!("\"costly\";r={};t={made}", 10 - made));
            assert_eq!(standing.policy(), "\"costly\";q=10;w=10");
        }
        let refused = take(ANNA, Class::Costly, 0.0).expect("a limit").expect_err("empty");
        assert_eq!(refused.limit(), "\"costly\";r=0;t=1");
        let failure = refused.refusal();
        assert_eq!((failure.status, &failure.members["retry_after"]), (429, &1.into()));
        assert_eq!(failure.members["setting"], "SVC_RATE_COSTLY");
        assert!(take(ANNA, Class::Costly, 0.9).expect("a limit").is_err(), "a refused request costs nothing");
        assert!(take(ANNA, Class::Costly, 1.0).expect("a limit").is_ok());
        assert!(take(ANNA, Class::Reads, 1.0).expect("a limit").is_ok(), "another class");
        assert!(take(BERT, Class::Costly, 1.0).expect("a limit").is_ok(), "another principal");
        assert!(take(ANNA, Class::Writes, 1.0).is_none(), "no limit");
        assert_eq!(take(ANNA, Class::Costly, 60.0).expect("a limit").expect("full").limit(), "\"costly\";r=9;t=1");
    }

    #[test]
    fn only_buckets_that_are_not_full_take_memory() {
        let (rates, start) = (Rates::new(LIMITS), Instant::now());
        for number in 0..200_000 {
            let now = start + Duration::from_millis(number);
            assert!(rates.take(PrincipalId(number as i64), Class::Reads, now).expect("a limit").is_ok());
            // A bucket of five a second is full again after 200 ms.
            assert!(rates.buckets().full_at.len() <= FEW, "{number}");
        }
    }

    #[test]
    fn every_operation_that_asks_for_a_right_has_a_class() {
        for info in OPERATIONS {
            let is_limited = !matches!(info.access, Access::Public | Access::Metrics | Access::RunnerKey);
            assert_eq!(Class::of(info).is_some(), is_limited, "{}", info.name);
        }
        let class = |name: &str| OPERATIONS.iter().find(|info| info.name == name).and_then(Class::of);
        for (name, expected) in [
            ("read_document", Class::Reads),
            ("create_document", Class::Writes),
            ("upload_file", Class::Writes),
            ("search", Class::Costly),
            ("search_fulltext", Class::Costly),
            ("embed_document", Class::Costly),
            ("embed_many_tokens", Class::Costly),
            ("analyze_file", Class::Costly),
        ] {
            assert_eq!(class(name), Some(expected), "{name}");
        }
        assert_eq!(class("read_health"), None);
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_the_bucket_and_its_refill(steps in prop::collection::vec(0u64..700, 1..200), rate in 1u32..50) {
            let (rates, start) = (Rates::new(PerSecond { reads: rate as usize, ..LIMITS }), Instant::now());
            let (mut now, mut taken) = (Duration::ZERO, 0u128);
            for step in steps {
                now += Duration::from_millis(step);
                for _ in 0..20 {
                    taken += u128::from(rates.take(ANNA, Class::Reads, start + now).expect("a limit").is_ok());
                }
                let most = u128::from(rate) * (now.as_millis() + 10_000) / 1000 + 1;
                prop_assert!(taken <= most, "{} of {}", taken, most);
            }
        }
    }
}
