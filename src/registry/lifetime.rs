//! How long a request lives: one that changes something is carried out to its end, whatever its client does; one that
//! only reads ends with its client.
use crate::{
    admission::{self, Admission, Place},
    telemetry,
};
use axum::response::Response;
use std::time::Duration;
use svc_client::{Access, Code, Failure, Operation, OperationInfo, ops};
use tokio::{sync::oneshot, task::AbortHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, Span};

/// Whether an operation only reads, so that it may be cancelled when its client leaves. What needs no more than the
/// right to read changes nothing, whatever its method, and a runner stores nothing.
pub(super) fn only_reads(info: &OperationInfo) -> bool {
    info.method == http::Method::GET || matches!(info.access, Access::Read | Access::RunnerKey)
}

/// Waits for a slot to work on a request. Probes need none, so that they answer under any load; the calls of a runner
/// have slots of their own.
pub(super) async fn slot(admission: &Admission, info: &OperationInfo) -> Result<Option<Place>, Failure> {
    match info.access {
        Access::Public | Access::Metrics | Access::RunnerKey => Ok(None),
        Access::Read | Access::Write | Access::Owner => admission.request().await.map(Some),
    }
}

/// Gives up a read or a search that takes longer than `limit`. A runner's calls, and everything that changes something,
/// may take their time. An answer of a language model has its own limits.
pub(super) async fn in_time<T>(
    info: &OperationInfo,
    limit: Duration,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    if !only_reads(info) || info.access == Access::RunnerKey || info.name == ops::synthesize::INFO.name {
        return answer.await;
    }
    within(limit, answer).await
}

/// Gives up what takes longer than `limit`, which SVC_REQUEST_TIMEOUT_SECONDS sets.
pub async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(Failure::new(Code::TimedOut, format!("no answer within {limit:?}"))
            .with("setting", "SVC_REQUEST_TIMEOUT_SECONDS")
            .with("remedy", "ask for less, or try again when the service is less busy")
            .with("retry_after", 5))
    })
}

/// Carries a request out in a task of its own, because the future that waits for it is dropped when the client hangs
/// up. Returns `None` if the task was ended from outside.
pub(super) async fn carry_out(
    tasks: &TaskTracker,
    info: &OperationInfo,
    span: Span,
    work: impl Future<Output = Response> + Send + 'static,
) -> Option<Response> {
    let (answer, answered) = oneshot::channel();
    let gone = CancellationToken::new();
    let work = admission::for_client(gone.clone(), work);
    let task = tasks.spawn(
        async move {
            if let Err(response) = answer.send(work.await) {
                tracing::info!(status = response.status().as_u16(), "the client was gone before it was answered");
            }
        }
        .instrument(span.clone()),
    );
    let mut waiting =
        Waiting { task: only_reads(info).then(|| task.abort_handle()), gone, name: info.name, span, over: false };
    let response = answered.await.ok();
    waiting.over = true;
    response
}

/// If this is dropped early, the client has gone.
struct Waiting {
    /// Set for a request that ends with its client.
    task: Option<AbortHandle>,
    /// Tells the other requests, which are carried out to their end, that nobody waits for the answer.
    gone: CancellationToken,
    name: &'static str,
    span: Span,
    over: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.over {
            self.gone.cancel();
        }
        if let Some(task) = self.task.take().filter(|task| !self.over && !task.is_finished()) {
            // Dropping its transaction cancels what it does in the database.
            task.abort();
            metrics::counter!(telemetry::REQUESTS, "operation" => self.name, "status" => CLIENT_GONE).increment(1);
            self.span.in_scope(|| tracing::info!("the client is gone, and what it asked for was cancelled"));
        }
    }
}

/// The status, only in the metrics, of a request whose client did not wait for the answer.
const CLIENT_GONE: &str = "499";

#[cfg(test)]
mod tests {
    use super::*;
    use svc_client::OPERATIONS;

    /// The operations of a kind that are no GET; a GET always only reads.
    fn posts(is_of_kind: impl Fn(&OperationInfo) -> bool) -> Vec<&'static str> {
        OPERATIONS.iter().filter(|row| row.method != http::Method::GET && is_of_kind(row)).map(|row| row.name).collect()
    }

    #[test]
    fn what_stores_nothing_may_be_cancelled_and_nothing_else_may() {
        assert!(OPERATIONS.iter().all(|row| row.method != http::Method::GET || only_reads(row)));
        let expected = [
            "explain_ingest",
            "analyze_file",
            "choose_portfolio",
            "search_vector",
            "search_fulltext",
            "search_bm25",
            "search_maxsim",
            "search_hybrid",
            "search_auto",
            "search_batch",
            "synthesize",
            "expand_children",
            "render_template",
            "search_templates",
            "find_paths",
            "validate_shape",
            "lint_graph",
            "find_imported",
            "runner_embed",
            "runner_tokens",
        ];
        assert_eq!(posts(only_reads), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn what_only_reads_is_given_up_after_its_time_and_the_rest_is_not() {
        const LIMIT: Duration = Duration::from_secs(1);
        for row in OPERATIONS {
            let answer = async {
                tokio::time::sleep(2 * LIMIT).await;
                Ok(())
            };
            let code = in_time(row, LIMIT, answer).await.err().map(|failure| failure.code);
            let limited = only_reads(row) && row.access != Access::RunnerKey && row.name != "synthesize";
            assert_eq!(code, limited.then_some(Code::TimedOut), "{}", row.name);
        }
    }
}
