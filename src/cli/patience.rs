//! Calls that are made again while the service cannot take them.
use std::time::{Duration, Instant};
use svc_client::{Code, Failure};

/// The time between two tries of a call, first and later.
const SOONEST: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(30);
/// How long a call is tried again where nobody says for how long.
const USUAL: Duration = Duration::from_secs(30);

/// Makes a call, and makes it again while its failure may pass and the patience lasts.
pub(super) async fn patiently<T, E>(
    patience: Duration,
    may_pass: impl Fn(&E) -> bool,
    mut call: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let (begun, mut pause) = (Instant::now(), SOONEST);
    loop {
        match call().await {
            Err(failure) if may_pass(&failure) && begun.elapsed() < patience => tokio::time::sleep(pause).await,
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
