//! Calls that are made again while the service cannot take them, and answers that stop.
use super::SILENT_FOR;
use serde_json::Value;
use std::{
    cell::Cell,
    time::{Duration, Instant},
};
use svc_client::{Code, Failure};

/// The time between two tries of a call, first and later.
const SOONEST: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(30);
/// How long a call is tried again where nobody says for how long.
const USUAL: Duration = Duration::from_secs(30);
/// How long a call that brings something in is tried again.
const LONG: Duration = Duration::from_secs(60);
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

/// What the service says next in an answer that it has begun, and must not be silent in. A proxy that holds the rest up, or a service that was stopped, leaves
/// the connection as it is.
pub(super) async fn unless_silent<T>(next: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let silent = |_| {
        let detail = format!("the service fell silent for {} s in the middle of its answer", SILENT_FOR.as_secs());
        Failure::new(Code::Unreachable, detail)
    };
    tokio::time::timeout(SILENT_FOR, next).await.map_err(silent)?
}

/// Whether the service could not take the call at that moment.
fn is_temporary(failure: &Failure) -> bool {
    let is_held = failure.code == Code::Conflict && failure.members.contains_key("retry_after");
    matches!(failure.code, Code::Unavailable | Code::TooManyRequests) || is_held
}

/// Whether a run has found its service there, by what became of its calls.
#[derive(Default)]
pub(super) struct Presence {
    is_known: Cell<bool>,
}

impl Presence {
    /// Makes a call that brings something in, and makes it again while the service is busy or away, which stores nothing twice. A service that this
    /// run has not found there yet is not waited for: nobody has started it, or it has another address, and a person wants to know that at once.
    pub(super) async fn patient<T>(&self, call: impl AsyncFnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        self.while_there(is_busy, call).await
    }

    /// Does the same with a call that may also have to wait for what somebody else holds, and that is answered with what an earlier one stored.
    pub(super) async fn patient_again<T>(&self, call: impl AsyncFnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        self.while_there(is_temporary, call).await
    }

    async fn while_there<T>(
        &self,
        passes: fn(&Failure) -> bool,
        mut call: impl AsyncFnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let may_pass = |failure: &Failure| passes(failure) || (is_away(failure) && self.is_known.get());
        let noted = async || {
            let done = call().await;
            // What failed before it was sent, such as a file that cannot be read, tells nothing of the service.
            let is_there = |failure: &Failure| failure.request_id.is_some() || was_sent(failure);
            if done.as_ref().map_or_else(is_there, |_| true) {
                self.is_known.set(true);
            }
            done
        };
        patiently(LONG, may_pass, noted).await
    }
}

/// Whether the service has too much to do at that moment. What it has begun to ingest is not brought in once more.
fn is_busy(failure: &Failure) -> bool {
    matches!(failure.code, Code::Unavailable | Code::TooManyRequests) && !failure.members.contains_key("frontier")
}

/// Whether there was no service, or only a proxy that says so.
fn is_away(failure: &Failure) -> bool {
    failure.code == Code::Unreachable && matches!(failure.status, 0 | 502 | 503 | 504)
}

/// Whether the request may have arrived.
fn was_sent(failure: &Failure) -> bool {
    failure.members.get("sent").and_then(Value::as_bool) == Some(true)
}

/// Whether nothing that is sent reaches the service, whatever it is.
pub(super) fn is_out_of_reach(failure: &Failure) -> bool {
    let is_elsewhere = failure.code == Code::Unreachable && matches!(failure.status, 300..400);
    is_elsewhere || (is_away(failure) && !was_sent(failure))
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

    /// A failure without an answer, or with one of a proxy.
    fn away(status: u16, sent: Option<bool>) -> Failure {
        let mut failure = Failure::new(Code::Unreachable, "away");
        failure.status = status;
        failure.members.extend(sent.map(|sent| ("sent".to_owned(), sent.into())));
        failure
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_away_is_waited_for_if_it_was_there() {
        for (failure, is_known, is_waited_for, is_of_all) in [
            (away(0, Some(false)), false, false, true),
            (away(0, Some(false)), true, true, true),
            (away(502, None), false, false, true),
            (away(502, None), true, true, true),
            (away(0, Some(true)), false, true, false),
            (away(413, None), true, false, false),
            (away(301, None), true, false, true),
            (Failure::new(Code::Unavailable, "busy"), false, true, false),
            (Failure::new(Code::Unavailable, "stored").with("frontier", "/ingest/file/1/frontier"), true, false, false),
        ] {
            let (service, mut calls) = (Presence { is_known: Cell::new(is_known) }, 0);
            let call = async || {
                calls += 1;
                if calls > 1 { Ok(()) } else { Err(failure.clone()) }
            };
            let done = service.patient(call).await;
            assert_eq!((done.is_ok(), is_out_of_reach(&failure)), (is_waited_for, is_of_all), "{failure:?}");
        }
    }
}
