//! Follows the ingestion of one file to its end: by the service's stream of events or, while there is none, by asking
//! at intervals.
use futures_util::StreamExt;
use std::time::Duration;
use svc_client::{
    Client, Code, Failure, Remote,
    wire::{DocumentPath, FrontierResponse},
};

/// How long a stream may be silent. A proxy may have held it up, so the service is then asked directly.
const QUIET: Duration = Duration::from_secs(30);
/// The time between two requests while there is no stream.
const ROUND: Duration = Duration::from_millis(200);
/// How many requests are sent before the stream is tried again.
const ROUNDS: u32 = 10;
/// How many requests in a row may go unanswered while the service is away. The service has stored its state, so nothing
/// is lost.
const AWAY: u32 = 300;

/// Returns the last frontier of a file when no work is left, or `None` if somebody has deleted the file. `seen` is
/// called with each frontier.
pub async fn follow(
    client: &Client<Remote>,
    id: i64,
    seen: impl Fn(&FrontierResponse),
) -> Result<Option<FrontierResponse>, Failure> {
    let mut away = 0;
    loop {
        match streamed(client, id, &seen).await {
            Some(Err(failure)) if failure.code == Code::NotFound => return Ok(None),
            Some(Err(failure)) if !may_pass(&failure) => return Err(failure),
            Some(Ok(frontier)) => return Ok(Some(frontier)),
            Some(Err(_)) | None => {}
        }
        for _ in 0..ROUNDS {
            match client.read_frontier(DocumentPath { id }).await {
                Ok(frontier) => {
                    away = 0;
                    seen(&frontier);
                    if frontier.is_at_rest() {
                        return Ok(Some(frontier));
                    }
                }
                Err(failure) if failure.code == Code::NotFound => return Ok(None),
                Err(failure) if may_pass(&failure) && away < AWAY => away += 1,
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(ROUND).await;
        }
    }
}

/// Whether the same call may succeed later.
pub fn may_pass(failure: &Failure) -> bool {
    match failure.code {
        // A proxy that answers in the place of the service may refuse the same call for good.
        Code::Unreachable => matches!(failure.status, 0 | 408 | 429 | 500..),
        code => matches!(code, Code::Unavailable | Code::TooManyRequests | Code::TimedOut),
    }
}

/// The last frontier of a stream; `None` if the stream ended or went quiet before that.
async fn streamed(
    client: &Client<Remote>,
    id: i64,
    seen: &impl Fn(&FrontierResponse),
) -> Option<Result<FrontierResponse, Failure>> {
    let mut events = match client.follow_frontier(DocumentPath { id }).await {
        Ok(events) => events,
        Err(failure) => return Some(Err(failure)),
    };
    while let Ok(event) = tokio::time::timeout(QUIET, events.next()).await {
        match event? {
            Ok(event) => {
                seen(&event.data);
                if event.name == "end" {
                    return Some(Ok(event.data));
                }
            }
            Err(failure) => return Some(Err(failure)),
        }
    }
    None
}
