//! Follows the ingestion of one file to its end: by the service's stream of events or, while there is none, by asking
//! at intervals.
use futures_util::StreamExt;
use indicatif::ProgressBar;
use std::{cell::Cell, collections::BTreeMap, time::Duration};
use svc_client::{
    Client, Code, Failure, Remote,
    wire::{BlockedBy, DocumentPath, FrontierResponse},
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
/// The time between two looks at what keeps all tasks of a file from running. What two of them see is told.
const LOOKS: Duration = Duration::from_secs(5);
/// What may keep tasks from running for long, and what is said of it.
const HINDRANCES: [(BlockedBy, &str); 6] = [
    (BlockedBy::NoWorker, "no worker is alive: start svc-worker, or the service with SVC_INGEST_WORKER_ENABLED=true"),
    (BlockedBy::NoWorkerForBadge, "no living worker serves the badge of its tasks: `svc status` names it"),
    (BlockedBy::NoHandler, "no living worker can run its tasks: `svc status` names their type"),
    (BlockedBy::Paused, "the type of its tasks is paused: `svc status` names it"),
    (BlockedBy::BatchParked, "its tasks are in batches of a language model's provider, which may take up to a day"),
    (BlockedBy::Backoff, "its tasks failed or were put off, and are tried again"),
];

/// Returns the last frontier of a file when no work is left, or `None` if somebody has deleted the file. `seen` is
/// called with each frontier. Above the bar it says, once of each reason, why none of the file's tasks runs.
pub async fn follow(
    client: &Client<Remote>,
    id: i64,
    bar: &ProgressBar,
    seen: impl Fn(&FrontierResponse),
) -> Result<Option<FrontierResponse>, Failure> {
    let hindered = Cell::new(None);
    let seen = |frontier: &FrontierResponse| {
        hindered.set(hindrance(frontier));
        seen(frontier);
    };
    tokio::select! {
        followed = followed(client, id, &seen) => followed,
        never = tell_hindrances(id, &hindered, bar) => never,
    }
}

/// What keeps all tasks of a file from running, if it may last: its place among [`HINDRANCES`].
fn hindrance(frontier: &FrontierResponse) -> Option<usize> {
    let reprocess = frontier.reprocess.as_ref().map(|running| (running.tasks_unfinished, &running.blocked_by));
    let trees = [Some((frontier.tasks_unfinished, &frontier.blocked_by)), reprocess];
    let any = |of: &dyn Fn(i64, &BTreeMap<BlockedBy, i64>) -> bool| {
        trees.iter().flatten().any(|(unfinished, blocked)| of(*unfinished, blocked))
    };
    if any(&|unfinished, blocked| unfinished > blocked.values().sum::<i64>()) {
        return None;
    }
    HINDRANCES.iter().position(|(reason, _)| any(&|_, blocked| blocked.contains_key(reason)))
}

/// Tells of each hindrance once it has lasted. This never ends by itself.
async fn tell_hindrances<T>(id: i64, hindered: &Cell<Option<usize>>, bar: &ProgressBar) -> T {
    let (mut before, mut told) = (None, [false; HINDRANCES.len()]);
    loop {
        tokio::time::sleep(LOOKS).await;
        let now = hindered.get();
        if let Some(place) = now.filter(|place| before == now && !told[*place]) {
            told[place] = true;
            bar.suspend(|| crate::cli::output::tell!("document {id} waits: {}", HINDRANCES[place].1));
        }
        before = now;
    }
}

async fn followed(
    client: &Client<Remote>,
    id: i64,
    seen: &impl Fn(&FrontierResponse),
) -> Result<Option<FrontierResponse>, Failure> {
    let mut away = 0;
    loop {
        match streamed(client, id, seen).await {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A frontier with so many unfinished tasks, which wait for these reasons.
    fn frontier(unfinished: i64, blocked: &Value, reprocess: Option<Value>) -> FrontierResponse {
        let mut frontier = json!({
            "document_id": 7, "settled": "in_flight", "nodes_total": 3, "nodes_settled": 0, "nodes_in_flight": 3, "nodes_failed": 0,
            "tasks_unfinished": unfinished, "stages": [], "oldest_seconds": null, "blocked_by": blocked, "warnings": [],
        });
        if let Some(blocked) = reprocess {
            frontier["reprocess"] = json!({
                "root_id": 8, "started_at": "2026-11-25T10:00:00Z", "nodes_total": 0, "nodes_settled": 0, "nodes_in_flight": 0,
                "nodes_failed": 0, "tasks_unfinished": 1, "blocked_by": blocked,
            });
        }
        serde_json::from_value(frontier).expect("a frontier")
    }

    #[test]
    fn a_file_waits_for_what_keeps_all_of_its_tasks_from_running() {
        for (unfinished, blocked, reprocess, want) in [
            (3, json!({"dependency": 2, "no_worker": 1}), None, Some(BlockedBy::NoWorker)),
            (2, json!({"dependency": 1, "batch_parked": 1}), None, Some(BlockedBy::BatchParked)),
            // One runs.
            (3, json!({"dependency": 1, "paused": 1}), None, None),
            (2, json!({"dependency": 1, "workers_busy": 1}), None, None),
            (0, json!({}), None, None),
            (0, json!({}), Some(json!({"paused": 1})), Some(BlockedBy::Paused)),
            (1, json!({"backoff": 1}), Some(json!({})), None),
        ] {
            let place = hindrance(&frontier(unfinished, &blocked, reprocess.clone()));
            assert_eq!(place.map(|place| HINDRANCES[place].0), want, "{unfinished} {blocked} {reprocess:?}");
        }
    }
}
