//! How far an ingestion has come: once, or as a stream of events until no work is left.
use crate::{
    access::Caller,
    admission,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{self, admin::Unfinished, evidence::Evidence, ingest_nodes::Belongs, scope::Readable},
};
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use sqlx::{PgConnection, PgPool};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{
    Call, Code, Event, EventStream, Failure, Sent, ops,
    wire::{BlockedBy, FrontierResponse, FrontierStage, ReprocessProgress, Settled},
};
use svc_ids::DocumentId;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The time between two looks at the queue after a change.
const SOONEST: Duration = Duration::from_millis(200);
/// The time between two looks at the queue while nothing changes.
const LATEST: Duration = Duration::from_secs(1);
/// The pause after a look is at least this many times its duration, so that slow looks are rarer.
const PAUSES: u32 = 10;
/// The reason of a file without text whose pages are pictures, and what is to be done.
const NEEDS_OCR: &str = "needs_ocr";
const OCR_REMEDY: &str = "set SVC_OCR_ENGINE, and reprocess the file";
/// The reason of pages that only OCR can read, in a file with other text.
const NO_OCR_ENGINE: &str = "no_ocr_engine";
/// How many pages that were not read are named in the warning of their file.
const NAMED_PAGES: usize = 10;
/// How many files within a file that were not read are named in its warning.
const NAMED_MEMBERS: usize = 5;
/// The reason of files within a file that only a password opens, and what is to be done: tasks read the files, and no task has a password.
const LOCKED: &str = "encrypted";
const LOCKED_REMEDY: &str = "reprocess the archive with its password as the option `extract.password`, or unpack it and upload what was locked in it";
/// How many times in a row the database may be unreachable before a stream ends.
const AWAY: u32 = 30;

impl Handle<ops::read_frontier> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_frontier>) -> Result<FrontierResponse, Failure> {
        look(&self.pool, caller, DocumentId(call.path.id)).await
    }
}

impl Handle<ops::follow_frontier> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::follow_frontier>,
    ) -> Result<EventStream<FrontierResponse>, Failure> {
        let place = self.admission.event_stream(caller.principal_id())?;
        let (id, caller) = (DocumentId(call.path.id), caller.clone());
        // A call that is refused gets an ordinary answer and not a stream.
        let first = look(&self.pool, &caller, id).await?;
        let watch = Watch {
            pool: self.pool.clone(),
            caller,
            id,
            seen: Some(first),
            last_sent: call.meta.last_event_id,
            pause: SOONEST,
            looking: self.watching.clone(),
            ending: self.ending.clone(),
            _place: place,
        };
        let sent = stream::unfold(Some(watch), async |watch| watch?.next().await);
        Ok(EventStream::new(sent.map(|sent| sent.map(Sent::Event))))
    }
}

/// A stream of one file's frontiers. Each look uses the rights that the caller has then. No connection is held between two looks.
struct Watch {
    pool: PgPool,
    caller: Caller,
    id: DocumentId,
    /// A frontier that was read and has not been sent yet.
    seen: Option<FrontierResponse>,
    /// The id of the last frontier that the caller knows.
    last_sent: Option<String>,
    pause: Duration,
    looking: Arc<Semaphore>,
    ending: CancellationToken,
    _place: admission::Place,
}

type Item = Result<Event<FrontierResponse>, Failure>;

impl Watch {
    /// The next event and the rest of the stream; `None` when the service ends.
    async fn next(mut self) -> Option<(Item, Option<Watch>)> {
        loop {
            let frontier = match self.seen.take() {
                Some(first) => first,
                None => match self.look().await? {
                    Ok(frontier) => frontier,
                    Err(failure) => return Some((Err(failure), None)),
                },
            };
            let id = identity(&frontier);
            if frontier.is_at_rest() {
                return Some((Ok(Event { id: Some(id), name: "end".into(), data: frontier }), None));
            }
            if self.last_sent.as_deref() != Some(&id) {
                self.last_sent = Some(id.clone());
                self.pause = SOONEST;
                return Some((Ok(Event { id: Some(id), name: "frontier".into(), data: frontier }), Some(self)));
            }
            self.pause = self.pause.mul_f32(1.5).min(LATEST);
        }
    }

    /// Looks again after a pause; `None` when the service ends.
    async fn look(&mut self) -> Option<Result<FrontierResponse, Failure>> {
        for away in 0.. {
            tokio::select! {
                () = tokio::time::sleep(self.pause) => {}
                () = self.ending.cancelled() => return None,
            }
            // The semaphore is never closed.
            let _turn = self.looking.acquire().await.ok()?;
            let begun = Instant::now();
            let seen = async {
                self.caller = self.caller.again(&self.pool).await?;
                look(&self.pool, &self.caller, self.id).await
            };
            let seen = seen.await;
            self.pause = self.pause.max(begun.elapsed() * PAUSES);
            match seen {
                Err(failure) if failure.code == Code::Unavailable && away < AWAY => self.pause = LATEST,
                seen => return Some(seen),
            }
        }
        None
    }
}

/// Identifies the content of a frontier. The age of the oldest task is left out, because it changes all the time.
fn identity(frontier: &FrontierResponse) -> String {
    let lasting = FrontierResponse { oldest_seconds: None, ..frontier.clone() };
    let text = serde_json::to_vec(&lasting).unwrap_or_default();
    hex::encode(&Sha256::digest(text)[..8])
}

async fn look(pool: &PgPool, caller: &Caller, id: DocumentId) -> Result<FrontierResponse, Failure> {
    // All counts come from one moment, because a file could otherwise look done between two statements.
    let mut tx = store::transaction::begin_snapshot(pool).await.or_fail()?;
    let row = store::documents::read(&mut tx, &caller.readable(), id, false).await.or_fail()?;
    let row = row.ok_or_else(|| Failure::no_document(id.0))?;
    // The stored counts of a file are of all that is under it, so only a caller who may read all of that sees them.
    let scope = match store::access::hides(&mut tx, &caller.readable(), id).await.or_fail()? {
        true => caller.readable(),
        false => Readable::everything(),
    };
    let kept = match scope.is_everything() {
        true => store::ingest_nodes::frontier(&mut tx, id.as_root()).await.or_fail()?,
        false => None,
    };
    let counts = match kept {
        Some(counts) => counts,
        None => store::ingest_nodes::count_by_path(&mut tx, &scope, id).await.or_fail()?,
    };
    let priority = match store::ingest_nodes::belongs(&mut tx, id).await.or_fail()? {
        Some(Belongs { root_id, .. })
            if store::documents::is_readable(&mut tx, &caller.readable(), root_id.document()).await.or_fail()? =>
        {
            store::ingest_nodes::priority(&mut tx, root_id).await.or_fail()?
        }
        _ => None,
    };
    let warnings = warnings(&mut tx, caller, id).await?;
    let line = [row.path.as_slice(), &[id.0]].concat();
    let Unfinished { stages, oldest_seconds, blocked_by } =
        store::admin::frontier(&mut tx, &scope, &line).await.or_fail()?;
    Ok(FrontierResponse {
        document_id: id.0,
        settled: row.settled.0,
        priority,
        nodes_total: counts.total,
        nodes_settled: counts.settled,
        nodes_in_flight: counts.in_flight,
        nodes_failed: counts.failed,
        tasks_unfinished: unfinished_of(&stages),
        stages,
        oldest_seconds,
        blocked_by,
        warnings,
        reprocess: reprocess(&mut tx, id, &line).await?,
    })
}

/// What could not be read of a document or found in it, for a caller who may read it.
pub async fn warnings(conn: &mut PgConnection, caller: &Caller, id: DocumentId) -> Result<Vec<String>, Failure> {
    let mut recorded = store::evidence::read_some(conn, id, &Evidence::WARNINGS).await.or_fail()?;
    let mut take = |name: Evidence| recorded.remove(name.as_str());
    let empty = take(Evidence::ExtractEmpty);
    let pages = take(Evidence::OcrLeftOut).filter(Value::is_object);
    let mut warnings = Vec::new();
    warnings.extend(empty.as_ref().and_then(Value::as_str).map(|reason| match (reason, &pages) {
        // Nobody tried to read the pages.
        (NEEDS_OCR, None) => warning(Evidence::ExtractEmpty, &format!("{reason} ({OCR_REMEDY})")),
        _ => warning(Evidence::ExtractEmpty, reason),
    }));
    warnings.extend(pages.as_ref().map(|pages| warning(Evidence::OcrLeftOut, &pages_left_out(pages))));
    let left_out = take(Evidence::MembersLeftOut);
    warnings.extend(left_out.as_ref().map(|left_out| warning(Evidence::MembersLeftOut, &members_left_out(left_out))));
    if let Some(failed) = take(Evidence::FailedParts) {
        let reasons: Vec<_> = failed["tasks_by_reason"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
        let mut text = format!("{} ({})", failed["nodes"], reasons.join(", "));
        // The names of parts are shown to those who may read them.
        let mut names = Vec::new();
        for part in failed["parts"].as_array().into_iter().flatten().filter_map(Value::as_i64) {
            let row = store::documents::read(conn, &caller.readable(), DocumentId(part), false).await.or_fail()?;
            names.extend(row.map(|row| format!("`{}`", row.title)));
        }
        if !names.is_empty() {
            text = format!("{text} in {}", names.join(", "));
        }
        warnings.push(warning(Evidence::FailedParts, &text));
    }
    let refused = take(Evidence::WithoutVector);
    warnings.extend(refused.iter().filter_map(Value::as_object).map(|reasons| {
        let nodes: i64 = reasons.values().filter_map(Value::as_i64).sum();
        let names: Vec<_> = reasons.keys().cloned().collect();
        warning(Evidence::WithoutVector, &format!("{nodes} ({})", names.join(", ")))
    }));
    Ok(warnings)
}

/// The progress of the reprocess that runs for a file. Whoever may read the file will be able to read all that it makes.
async fn reprocess(
    conn: &mut PgConnection,
    id: DocumentId,
    line: &[i64],
) -> Result<Option<ReprocessProgress>, Failure> {
    let Some(running) = store::reprocess::running(conn, id).await.or_fail()? else { return Ok(None) };
    let counts = store::ingest_nodes::frontier(conn, running.id).await.or_fail()?.unwrap_or_default();
    let Unfinished { stages, mut blocked_by, .. } =
        store::admin::frontier(conn, &Readable::everything(), &[running.id.0]).await.or_fail()?;
    if running.settled.0 == Settled::Settled && store::reservations::is_worked_on(conn, line).await.or_fail()? {
        blocked_by.insert(BlockedBy::Reservation, 1);
    }
    Ok(Some(ReprocessProgress {
        root_id: running.id.0,
        started_at: running.started_at,
        nodes_total: counts.total,
        nodes_settled: counts.settled,
        nodes_in_flight: counts.in_flight,
        nodes_failed: counts.failed,
        tasks_unfinished: unfinished_of(&stages),
        blocked_by,
    }))
}

fn unfinished_of(stages: &[FrontierStage]) -> i64 {
    stages.iter().map(|stage| stage.pending + stage.held + stage.waiting_for_retry).sum()
}

/// How many files within a file were not read, why, the names of the first, and what to do about locked ones.
fn members_left_out(left_out: &Value) -> String {
    let reasons: Vec<_> = left_out["reasons"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
    let first = left_out["first"].as_array().into_iter().flatten().take(NAMED_MEMBERS);
    let names: Vec<_> = first.filter_map(|left| Some(format!("`{}`", left["name"].as_str()?))).collect();
    let text = format!("{} ({}): {}", left_out["count"], reasons.join(", "), names.join(", "));
    if reasons.iter().any(|reason| reason == LOCKED) { format!("{text} ({LOCKED_REMEDY})") } else { text }
}

/// How many pages that only OCR can read were not read, why, the numbers of the first, and what would have them read.
fn pages_left_out(left_out: &Value) -> String {
    let reasons: Vec<_> = left_out["reasons"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
    let first = left_out["first"].as_array().into_iter().flatten().take(NAMED_PAGES);
    let numbers: Vec<_> = first.map(Value::to_string).collect();
    let text = format!("{} ({}): {}", left_out["count"], reasons.join(", "), numbers.join(", "));
    if reasons.iter().any(|reason| reason == NO_OCR_ENGINE) { format!("{text} ({OCR_REMEDY})") } else { text }
}

/// Evidence that a caller should see without asking for it.
fn warning(evidence: Evidence, reason: &str) -> String {
    format!("{}: {reason}", evidence.as_str())
}
