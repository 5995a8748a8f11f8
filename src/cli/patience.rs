//! Calls that are made again while the service cannot take them.
use std::time::{Duration, Instant};
use svc_client::{Code, Failure};

/// The time between two tries of a call, first and later.
const SOONEST: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(30);
/// How long a call is tried again where nobody says for how long.
const USUAL: Duration = Duration::from_secs(30);
/// How many times a call is made in any case, unless there is no patience at all: one that waits for another transaction may take all of the time itself.
const LEAST: u32 = 3;

/// Makes a call, and makes it again while its failure may pass and the patience lasts.
pub(super) async fn patiently<T, E>(
    patience: Duration,
    may_pass: impl Fn(&E) -> bool,
    mut call: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let (begun, mut pause, mut calls) = (Instant::now(), SOONEST, 0);
    loop {
        let done = call().await;
        calls += 1;
        let has_patience = begun.elapsed() < patience || (calls < LEAST && !patience.is_zero());
        match done {
            Err(failure) if has_patience && may_pass(&failure) => tokio::time::sleep(pause).await,
            done => return done,
        }
        pause = (pause * 2).min(LATEST);
    }
}

/// Does the same for the usual time, with a call that changes nothing more if the first one was carried out after all.
pub(super) async fn patient<T>(call: impl AsyncFnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    patiently(USUAL, is_temporary, call).await
}

/// Whether the service could not take the call at that moment.
fn is_temporary(failure: &Failure) -> bool {
    let is_held = failure.code == Code::Conflict && failure.members.contains_key("retry_after");
    matches!(failure.code, Code::Unavailable | Code::TooManyRequests) || is_held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_all_of_the_time_itself_is_made_again() {
        for (patience, expected) in [(Duration::from_nanos(1), Ok(LEAST)), (Duration::ZERO, Err(1))] {
            let mut calls = 0;
            let call = async || {
                calls += 1;
                if calls < LEAST { Err(calls) } else { Ok(calls) }
            };
            assert_eq!(patiently(patience, |_: &u32| true, call).await, expected);
        }
    }
}
