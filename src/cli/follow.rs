//! One file's ingestion, followed to its end: by the service's stream of events, and by asking now and then while there is none.
use futures_util::StreamExt;
use std::time::Duration;
use svc_client::{
    Client, Code, Failure, Remote,
    wire::{DocumentPath, FrontierResponse},
};

/// A stream that brings nothing for so long may have been held up on the way; the service is then asked without it.
const QUIET: Duration = Duration::from_secs(30);
/// The time between two questions, and how many are asked before the stream is tried again.
const ROUND: Duration = Duration::from_millis(200);
const ROUNDS: u32 = 10;
/// Questions in a row that may stay without an answer while the service is away; what it holds is not lost.
const AWAY: u32 = 300;

/// The last frontier of a file, once nothing is left to do; none if somebody deleted it meanwhile. `seen` is told of each.
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
                    if frontier.nodes_in_flight == 0 && frontier.tasks_unfinished == 0 {
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

/// Whether the same call may well succeed later.
fn may_pass(failure: &Failure) -> bool {
    matches!(failure.code, Code::Unavailable | Code::Unreachable | Code::TooManyRequests | Code::TimedOut)
}

/// The last frontier of a stream; none if it ended, or went quiet, before that.
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
