//! The task handlers. Each prepares without a transaction, and then applies in one that its claim token fences.
mod apply;
mod asking;
pub(crate) mod beside;
mod embed;
mod extract;
pub(crate) mod facts;
mod images;
mod members;
mod ocr;
pub(super) mod probe;
mod profile;
mod raptor;
mod records;
pub(crate) mod reembed;
mod registered;
pub(super) mod rollup;
mod semantic;
mod sheets;
mod structure;
mod summary;
mod tables;
pub(super) mod titles;
pub(crate) mod together;
pub(crate) mod types;
mod windows;

use crate::{
    blobs::BlobError,
    embedding::EmbedError,
    error::disk_is_full,
    ingest::Tools,
    otlp::{self, Attribute},
    search::bm25,
    spool::SpoolError,
    store::{
        away::{self, Away, connection_was_lost, sql_state},
        growth::Timed,
        queue,
    },
    telemetry, words,
};
pub(super) use apply::Apply;
pub use apply::{Claims, Deadlines};
use async_trait::async_trait;
pub(super) use extract::split as split_extraction;
use futures_util::future::BoxFuture;
use std::time::{Duration, Instant};
use svc_actors::{CancelToken, ErrorClass, Grant, Handler, Lane, Lanes, Outcome, Permit, TaskFailure};
use svc_client::wire::AttemptOutcome;
use svc_formats::FormatError;
use svc_models::ModelError;
use tokio::task::JoinHandle;
use tracing::Instrument;
use types::{EMBED, REEMBED};

/// Runs a task of one type.
type Run = for<'a> fn(&'a Tools, Apply<'a>) -> BoxFuture<'a, Result<Outcome, TaskFailure>>;

/// Runs the tasks of this process.
pub struct TaskHandler {
    tools: Tools,
    claims: Claims,
}

impl TaskHandler {
    /// Makes a handler; `claims` says for whom the ends of tasks claim the next ones.
    pub fn new(tools: Tools, claims: Claims) -> TaskHandler {
        TaskHandler { tools, claims }
    }
}

async fn dispatch(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let (task_id, name) = (apply.grant.task_id, &apply.grant.task_type);
    match tools.types.run(tools, apply).await {
        Some(outcome) => outcome,
        // A newer worker may know this type, so this worker must not fail the task for good.
        None => {
            let message = format!("this worker has no handler for `{name}`; a newer one may have");
            let mut conn = tools.pool.acquire().await.classified()?;
            // Whoever can run it takes it soon; where nobody can, thousands of its kind must not go round.
            let is_served = queue::is_served(&mut conn, task_id).await.classified()?;
            let retry_after = (!is_served).then_some(REFUSED);
            Err(TaskFailure { retry_after, ..TaskFailure::away("no_handler", message) })
        }
    }
}

/// The span of a task, in the trace of what queued it.
fn trace(grant: &Grant, worker: &str) -> otlp::Span {
    otlp::Span::of_queued(&grant.task_type, grant.traceparent.as_deref(), || {
        vec![
            Attribute::new("task.id", grant.task_id.0),
            Attribute::new("task.type", grant.task_type.clone()),
            Attribute::new("task.attempt", i64::from(grant.attempt)),
            Attribute::new("task.worker", worker.to_owned()),
            Attribute::new("document.id", grant.document_id.0),
            Attribute::new("root.id", grant.root_id.0),
        ]
    })
}

/// A running task. Dropping it aborts the task. A transaction that is cut off between two statements closes its
/// connection, which ends it. One that is cut off in its commit is either done or not, and its claim token says which.
struct Running(JoinHandle<Result<Outcome, TaskFailure>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[async_trait]
impl Handler for TaskHandler {
    async fn run(&self, grant: &Grant, cancel: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure> {
        let started = Instant::now();
        let asks_by_batches = self.tools.batching.is_some();
        let (tools, owned, claims) = (self.tools.clone(), grant.clone(), self.claims.clone());
        let work = async move { dispatch(&tools, Apply::new(&tools, &owned, &claims, permit, cancel)).await };
        let trace = trace(grant, &self.claims.claimer.worker_id);
        let mut running = Running(tokio::spawn(trace.carry(work).in_current_span()));
        let outcome = match (&mut running.0).await {
            Ok(outcome) => outcome.map_err(|failure| in_lane(&grant.task_type, grant.lane, asks_by_batches, failure)),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => Err(error).classified(),
        };
        if outcome.as_ref().is_err_and(|failure| failure.code == Away::DiskFull.code()) {
            self.tools.disk.refused();
        }
        let label = match &outcome {
            Ok(outcome) => words::attempt_outcome(outcome),
            Err(_) => AttemptOutcome::Failed,
        };
        let code = outcome.as_ref().err().map(|failure| failure.code.as_str());
        trace.end([Attribute::new("task.outcome", label.as_str())], code);
        telemetry::seconds(telemetry::HANDLER_SECONDS, "task_type", grant.task_type.clone(), started.elapsed());
        // What a task waited for that failed, such as a runner that is away, says nothing of the database.
        if grant.task_type == EMBED.name && outcome.is_ok() {
            self.tools.load.record(Timed::Embed, started.elapsed());
        }
        metrics::counter!(telemetry::TASKS_ENDED, "task_type" => grant.task_type.clone(), "outcome" => label.as_str())
            .increment(1);
        outcome
    }
}

/// The time between two tries of a task that waits until somebody corrects something, such as that the runner refuses our calls or the schema does not
/// fit.
const REFUSED: Duration = Duration::from_secs(30);
/// For how long a worker takes nothing in the place of a task for which it lacks the model that serves.
const RESTS: Duration = Duration::from_secs(30);
/// For how long it takes nothing in the place of a task for which a server is away, which may be back soon.
const AWAY_RESTS: Duration = Duration::from_secs(5);
/// The lanes whose tasks all need the model of the vectors that serve.
const OF_MODELS: Lanes = Lanes::of(Lane::Model).with(Lanes::of(Lane::Llm));
/// What tasks lack for which the endpoint of the language model is away, or has too much to do.
const LANGUAGE_MODEL_AWAY: &str = "language_model_away";
const LANGUAGE_MODEL_BUSY: &str = "language_model_busy";

/// The failure as its lane takes it. The slots of a lane rest if all of its tasks need what is lacking: else others can use them, such as probes.
fn in_lane(task_type: &str, lane: Lane, asks_by_batches: bool, failure: TaskFailure) -> TaskFailure {
    let need_it = match failure.code.as_str() {
        // What the model to which vectors are moved lacks keeps nobody from working with the one that serves.
        _ if task_type == REEMBED.name => Lanes::NONE,
        // Of a provider's batches there are answers to be taken, for which nobody calls the endpoint.
        LANGUAGE_MODEL_AWAY | LANGUAGE_MODEL_BUSY if asks_by_batches => Lanes::NONE,
        LANGUAGE_MODEL_AWAY | LANGUAGE_MODEL_BUSY => Lanes::of(Lane::Llm),
        _ => OF_MODELS,
    };
    match failure.rest {
        Some(_) if !need_it.contains(lane) => {
            TaskFailure { retry_after: failure.retry_after.or(failure.rest), rest: None, ..failure }
        }
        _ => failure,
    }
}

/// The reader is of another build, or we have a defect.
fn another_answer() -> TaskFailure {
    TaskFailure::retryable("crashed", "the reader sent an answer of another kind")
}

/// Classifies an inner error at a `?`.
trait Classify {
    fn classify(self) -> TaskFailure;
}

impl Classify for sqlx::Error {
    fn classify(self) -> TaskFailure {
        if let Some(away) = away::away(&self) {
            return TaskFailure::away(away.code(), self.to_string());
        }
        if connection_was_lost(&self) {
            return TaskFailure::retryable("database_away", self.to_string());
        }
        match sql_state(&self).get(..2) {
            // Serialization failures, deadlocks, statement timeouts and errors of the server's files are temporary.
            Some("40" | "55" | "57" | "58") => TaskFailure::retryable("database", self.to_string()),
            // A table or a column that this program knows does not exist, which is not the task's fault.
            Some("42") => {
                tracing::error!(error = %self, "the schema does not fit this program; update this worker, or run `svc migrate`");
                let failure = TaskFailure::away("schema_mismatch", self.to_string());
                TaskFailure { retry_after: Some(REFUSED), ..failure }
            }
            // What breaks a constraint now will break it again.
            Some(_) => TaskFailure::permanent("database", self.to_string()),
            None => TaskFailure::retryable("database", self.to_string()),
        }
    }
}

impl Classify for SpoolError {
    fn classify(self) -> TaskFailure {
        match self {
            SpoolError::Stored(error) => error.classify(),
            SpoolError::File { source, .. } => source.classify(),
        }
    }
}

impl Classify for BlobError {
    fn classify(self) -> TaskFailure {
        let message = self.to_string();
        match self {
            BlobError::Database(error) => error.classify(),
            BlobError::File(error) => error.classify(),
            BlobError::Full => TaskFailure::away(Away::DiskFull.code(), message),
            BlobError::Away { reason } => {
                // Readers of a document see the message, so the store's address stays in the log.
                tracing::warn!(error = reason, "the object store is away; the task waits for it");
                TaskFailure::away("blob_store_away", "the object store that SVC_BLOB_STORE names does not answer")
            }
            BlobError::NotConfigured => {
                TaskFailure { retry_after: Some(REFUSED), ..TaskFailure::away("blob_store_unset", message) }
            }
            BlobError::Missing { .. } => TaskFailure::permanent("missing_bytes", message),
            BlobError::Damaged { .. } | BlobError::Short { .. } => TaskFailure::permanent("damaged_bytes", message),
        }
    }
}

impl Classify for FormatError {
    fn classify(self) -> TaskFailure {
        let class = if self.is_permanent() { ErrorClass::Permanent } else { ErrorClass::Retryable };
        let failure = TaskFailure::new(class, self.code(), self.to_string());
        match self.limit() {
            Some(limit) => failure.with_detail("limit", limit.as_str()),
            None => failure,
        }
    }
}

impl Classify for ModelError {
    fn classify(self) -> TaskFailure {
        match &self {
            ModelError::TextTooLong { .. } => TaskFailure::permanent("text_too_long", self.to_string()),
            ModelError::DeviceLost { retry_after, .. } => {
                let after = Some(*retry_after);
                TaskFailure { retry_after: after, rest: after, ..TaskFailure::away("model_lost", self.to_string()) }
            }
            _ => TaskFailure::retryable("model", self.to_string()),
        }
    }
}

impl Classify for EmbedError {
    fn classify(self) -> TaskFailure {
        let message = self.to_string();
        match self {
            EmbedError::Model(error) => error.classify(),
            EmbedError::TextRefused { .. } => TaskFailure::permanent("runner", message),
            EmbedError::Broken(_) => TaskFailure::retryable("runner", message),
            EmbedError::Away { retry_after, .. } => {
                let rest = Some(retry_after.unwrap_or(AWAY_RESTS));
                TaskFailure { retry_after, rest, ..TaskFailure::away("runner_away", message) }
            }
            // Another worker has the model, and takes the task soon if this one takes no other in its place.
            EmbedError::NotServing { .. } => {
                TaskFailure { rest: Some(RESTS), ..TaskFailure::away("model_not_serving", message) }
            }
            // Somebody has to correct it; after that, the work must still be done.
            EmbedError::Refused(_) => {
                let failure = TaskFailure::away("runner_refuses", message);
                TaskFailure { retry_after: Some(REFUSED), rest: Some(RESTS), ..failure }
            }
        }
    }
}

impl Classify for bm25::Error {
    fn classify(self) -> TaskFailure {
        match self {
            bm25::Error::Database(error) => error.classify(),
            // However often the indexes change, no text fails.
            error @ (bm25::Error::OtherIndexes | bm25::Error::StaleTerms(_)) => {
                TaskFailure { counts: false, ..TaskFailure::retryable("indexes_changed", error.to_string()) }
            }
            // It may take longer than all attempts together to empty a large index.
            error @ bm25::Error::Emptied(_) => {
                TaskFailure { retry_after: Some(REFUSED), ..TaskFailure::away("index_emptied", error.to_string()) }
            }
            // Somebody has to have the index built anew; after that, the work must still be done.
            error @ bm25::Error::Full(_) => {
                TaskFailure { retry_after: Some(REFUSED), ..TaskFailure::away("index_full", error.to_string()) }
            }
            error => TaskFailure::retryable("index", error.to_string()),
        }
    }
}

impl Classify for std::io::Error {
    fn classify(self) -> TaskFailure {
        match disk_is_full(&self) {
            true => TaskFailure::away(Away::DiskFull.code(), self.to_string()),
            false => TaskFailure::retryable("working_file", self.to_string()),
        }
    }
}

impl Classify for tokio::task::JoinError {
    fn classify(self) -> TaskFailure {
        TaskFailure::retryable("panic", self.to_string())
    }
}

impl Classify for serde_json::Error {
    fn classify(self) -> TaskFailure {
        TaskFailure::permanent("stored_value", self.to_string())
    }
}

/// Makes `?` work on inner errors in tasks.
pub(super) trait OrTaskFailure<T> {
    fn classified(self) -> Result<T, TaskFailure>;
}
impl<T, E: Classify> OrTaskFailure<T> for Result<T, E> {
    fn classified(self) -> Result<T, TaskFailure> {
        self.map_err(Classify::classify)
    }
}

#[cfg(test)]
mod tests {
    use super::{types::EXTRACT_FACTS, *};
    use crate::llm::LlmError;

    #[test]
    fn what_is_away_spends_no_attempt_and_what_failed_does() {
        let away = |failure: TaskFailure| (failure.counts, failure.class);
        let retryable = ErrorClass::Retryable;
        assert_eq!(away(sqlx::Error::PoolTimedOut.classify()), (false, retryable));
        assert_eq!(away(EmbedError::Away { reason: String::new(), retry_after: None }.classify()), (false, retryable));
        assert_eq!(away(EmbedError::Refused(String::new()).classify()), (false, retryable));
        assert_eq!(away(EmbedError::NotServing { serving: String::new() }.classify()), (false, retryable));
        let io = |kind: std::io::ErrorKind| sqlx::Error::Io(kind.into()).classify();
        for kind in
            [std::io::ErrorKind::ConnectionRefused, std::io::ErrorKind::NotFound, std::io::ErrorKind::StorageFull]
        {
            assert_eq!(away(io(kind)), (false, retryable), "{kind:?}");
        }
        assert_eq!(away(std::io::Error::from(std::io::ErrorKind::StorageFull).classify()), (false, retryable));
        let lost = ModelError::DeviceLost { message: String::new(), retry_after: Duration::ZERO };
        assert_eq!(away(lost.classify()), (false, retryable));
        assert_eq!(away(bm25::Error::Emptied(svc_ids::IndexId(1)).classify()), (false, retryable));
        // The task itself may have caused it.
        assert_eq!(away(io(std::io::ErrorKind::UnexpectedEof)), (true, retryable));
        assert_eq!(away(sqlx::Error::WorkerCrashed.classify()), (true, retryable));
        assert_eq!(away(EmbedError::Broken(String::new()).classify()), (true, retryable));
        let refused = EmbedError::TextRefused { texts: Vec::new(), reason: String::new() };
        assert_eq!(away(refused.classify()), (true, ErrorClass::Permanent));
    }

    #[test]
    fn slots_rest_only_in_lanes_whose_tasks_all_need_the_model() {
        let times = |lane, failure: TaskFailure| {
            let failure = in_lane(EMBED.name, lane, false, failure);
            (failure.retry_after, failure.rest, failure.counts)
        };
        let (asked, away) =
            (Some(Duration::from_secs(7)), |retry_after| EmbedError::Away { reason: String::new(), retry_after });
        for lane in Lane::ALL {
            let expected = |retry_after: Option<Duration>, rest| match lane {
                Lane::Model | Lane::Llm => (retry_after, Some(rest), false),
                Lane::Cpu | Lane::Io => (retry_after.or(Some(rest)), None, false),
            };
            let not_serving = EmbedError::NotServing { serving: String::new() };
            assert_eq!(times(lane, not_serving.classify()), expected(None, RESTS), "{lane}");
            assert_eq!(times(lane, away(None).classify()), expected(None, AWAY_RESTS), "{lane}");
            assert_eq!(times(lane, away(asked).classify()), expected(asked, Duration::from_secs(7)), "{lane}");
            let refuses = EmbedError::Refused(String::new());
            assert_eq!(times(lane, refuses.classify()), expected(Some(REFUSED), RESTS), "{lane}");
            let broken = EmbedError::Broken(String::new());
            assert_eq!(times(lane, broken.classify()), (None, None, true), "{lane}");
        }
    }

    #[test]
    fn slots_rest_for_a_language_model_where_no_task_goes_on_without_it() {
        let seven = Duration::from_secs(7);
        let busy = |is_named| LlmError::Busy { retry_after: seven, reason: String::new(), is_named }.classify();
        for (failure, retry_after, rest) in
            [(busy(false), Some(seven), seven), (LlmError::Away(String::new()).classify(), None, AWAY_RESTS)]
        {
            let times = |lane, asks_by_batches| {
                let failure = in_lane(EXTRACT_FACTS.name, lane, asks_by_batches, failure.clone());
                (failure.retry_after, failure.rest)
            };
            assert_eq!(times(Lane::Llm, false), (retry_after, Some(rest)), "{failure}");
            let others = (Some(rest), None);
            assert_eq!(times(Lane::Llm, true), others, "answers of batches are taken: {failure}");
            assert_eq!(times(Lane::Model, false), others, "texts are embedded: {failure}");
        }
        let of_one = in_lane(EXTRACT_FACTS.name, Lane::Llm, false, busy(true));
        assert_eq!((of_one.retry_after, of_one.rest), (Some(seven), None), "others ask the model of the settings");
    }

    #[test]
    fn slots_do_not_rest_for_the_model_to_which_vectors_are_moved() {
        let asked = Some(Duration::from_secs(7));
        for (failure, retry_after) in [
            (EmbedError::Away { reason: String::new(), retry_after: asked }, asked),
            (EmbedError::Away { reason: String::new(), retry_after: None }, Some(AWAY_RESTS)),
            (EmbedError::Refused(String::new()), Some(REFUSED)),
        ] {
            let failure = in_lane(REEMBED.name, Lane::Model, false, failure.classify());
            assert_eq!((failure.retry_after, failure.rest), (retry_after, None), "{failure}");
        }
    }
}
