//! What a provider answers, and the end of a batch.
use crate::store::{summaries::LlmAnswer, text::storable};
use sqlx::PgConnection;
use svc_client::wire::LlmBatchOutcome;
use svc_ids::TaskId;

/// What a provider says of one request.
#[derive(Clone, Debug)]
pub struct BatchResult {
    pub custom_id: String,
    pub answer: Result<LlmAnswer, Unanswered>,
}

/// Why there is no answer to a request, and what it took all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unanswered {
    pub code: String,
    pub message: String,
    /// The model, as its provider names it; blank where it read nothing.
    pub model: String,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
}

impl Unanswered {
    /// Of a request that no model read.
    pub fn new(code: &str, message: String) -> Unanswered {
        Unanswered { code: code.to_owned(), message, ..Unanswered::default() }
    }
}

impl BatchResult {
    /// The model and its tokens, whether it answered or not.
    fn took(&self) -> (&str, i64, i64) {
        match &self.answer {
            Ok(answer) => (answer.model.as_str(), answer.prompt_tokens, answer.completion_tokens),
            Err(unanswered) => (unanswered.model.as_str(), unanswered.prompt_tokens, unanswered.completion_tokens),
        }
    }
}

/// What came back of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct BatchCounts {
    pub answered: i32,
    pub failed: i32,
    /// Lines that answer no request of this batch.
    pub unknown: i32,
    pub repeated: i32,
    /// Answers that nobody waits for any more.
    pub dropped: i32,
}

impl BatchCounts {
    pub fn add(&mut self, other: BatchCounts) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.repeated += other.repeated;
        self.dropped += other.dropped;
    }
}

/// Keeps results of a batch; each custom id stands among them once. A request that has its result already keeps it.
pub async fn record(conn: &mut PgConnection, batch_id: i64, results: &[BatchResult]) -> sqlx::Result<BatchCounts> {
    let ids: Vec<String> = results.iter().map(|result| storable(&result.custom_id).into_owned()).collect();
    // Documents are locked before anything that hangs on them, as by those who delete them.
    sqlx::query(
        "SELECT count(*) FROM (
             SELECT d.id FROM documents d WHERE d.id IN (
                    SELECT q.document_id FROM llm_batch_requests q WHERE q.batch_id = $1 AND q.custom_id = ANY($2))
              ORDER BY d.id FOR KEY SHARE) held",
    )
    .bind(batch_id)
    .bind(&ids)
    .execute(&mut *conn)
    .await?;
    // Whoever locks several requests does so in this order.
    sqlx::query(
        "SELECT count(*) FROM (SELECT custom_id FROM llm_batch_requests WHERE batch_id = $1 AND custom_id = ANY($2) ORDER BY custom_id FOR UPDATE) held",
    )
    .bind(batch_id)
    .bind(&ids)
    .execute(&mut *conn)
    .await?;
    let answers: Vec<Option<&LlmAnswer>> = results.iter().map(|result| result.answer.as_ref().ok()).collect();
    let errors: Vec<Option<&Unanswered>> = results.iter().map(|result| result.answer.as_ref().err()).collect();
    let took: Vec<(&str, i64, i64)> = results.iter().map(BatchResult::took).collect();
    sqlx::query_as(
        "WITH came AS MATERIALIZED (
             SELECT * FROM unnest($2::text[], $3::text[], $4::boolean[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::text[])
                 AS c(custom_id, answer, is_cut, model, prompt_tokens, completion_tokens, code, message)),
         new AS (
             UPDATE llm_batch_requests q SET is_over = true, line = NULL, error_code = c.code, error_message = c.message
               FROM came c WHERE q.batch_id = $1 AND q.custom_id = c.custom_id AND NOT q.is_over
             RETURNING q.document_id, q.asked, q.is_dropped,
                       coalesce((SELECT task_type FROM task_queue t WHERE t.id = q.task_id), 'summarize:llm') AS task_type, c.*),
         kept AS (
             INSERT INTO llm_answers (document_id, asked, task_type, answer, is_cut, model, prompt_tokens, completion_tokens, batch_id)
             SELECT n.document_id, n.asked, n.task_type, n.answer, n.is_cut, n.model, n.prompt_tokens, n.completion_tokens, $1
               FROM new n WHERE n.answer IS NOT NULL AND NOT n.is_dropped
             ON CONFLICT DO NOTHING),
         used AS (
             INSERT INTO llm_usage AS u (day, purpose, model, is_batched, calls, failed_calls, prompt_tokens, completion_tokens)
             SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date, purpose, model, true, count(*), count(code), sum(prompt_tokens), sum(completion_tokens)
               FROM (SELECT CASE task_type WHEN 'extract:facts' THEN 'extract' ELSE 'summarize' END AS purpose, model, code, prompt_tokens, completion_tokens
                       FROM new) n
              GROUP BY purpose, model ORDER BY 2, 3
             ON CONFLICT (day, purpose, model, is_batched) DO UPDATE SET calls = u.calls + excluded.calls,
                failed_calls = u.failed_calls + excluded.failed_calls, prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
                completion_tokens = u.completion_tokens + excluded.completion_tokens)
         SELECT count(*) FILTER (WHERE n.answer IS NOT NULL AND NOT n.is_dropped)::int AS answered,
                count(*) FILTER (WHERE n.code IS NOT NULL AND NOT n.is_dropped)::int AS failed,
                count(*) FILTER (WHERE q.custom_id IS NULL)::int AS unknown, 0 AS repeated,
                count(*) FILTER (WHERE n.is_dropped)::int AS dropped
           FROM came c LEFT JOIN new n USING (custom_id) LEFT JOIN llm_batch_requests q ON q.batch_id = $1 AND q.custom_id = c.custom_id",
    )
    .bind(batch_id)
    .bind(&ids)
    .bind(answers.iter().map(|one| one.map(|answer| answer.answer.as_str())).collect::<Vec<_>>())
    .bind(answers.iter().map(|one| one.map(|answer| answer.is_cut)).collect::<Vec<_>>())
    .bind(took.iter().map(|(model, ..)| *model).collect::<Vec<_>>())
    .bind(took.iter().map(|(_, prompt_tokens, _)| *prompt_tokens).collect::<Vec<_>>())
    .bind(took.iter().map(|(.., completion_tokens)| *completion_tokens).collect::<Vec<_>>())
    .bind(errors.iter().map(|one| one.map(|unanswered| unanswered.code.as_str())).collect::<Vec<_>>())
    .bind(errors.iter().map(|one| one.map(|unanswered| storable(&unanswered.message).into_owned())).collect::<Vec<_>>())
    .fetch_one(conn)
    .await
}

fn number(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Ends a batch. Each request that has no result yet gets the code and the message, and the tasks of the batch can be taken up again. Returns false if
/// the batch had ended.
pub async fn end(
    conn: &mut PgConnection,
    batch_id: i64,
    outcome: LlmBatchOutcome,
    counts: BatchCounts,
    (code, message): (&str, &str),
) -> sqlx::Result<bool> {
    let ours: Option<i64> =
        sqlx::query_scalar("SELECT id FROM llm_batches WHERE id = $1 AND state <> 'ended' FOR UPDATE")
            .bind(batch_id)
            .fetch_optional(&mut *conn)
            .await?;
    if ours.is_none() {
        return Ok(false);
    }
    sqlx::query("SELECT count(*) FROM (SELECT custom_id FROM llm_batch_requests WHERE batch_id = $1 ORDER BY custom_id FOR UPDATE) held")
        .bind(batch_id)
        .execute(&mut *conn)
        .await?;
    // What an earlier look kept counts too.
    let (answered, failed, dropped): (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE is_over AND error_code IS NULL AND NOT is_dropped), count(*) FILTER (WHERE is_over AND error_code IS NOT NULL AND NOT is_dropped),
                count(*) FILTER (WHERE is_over AND is_dropped) FROM llm_batch_requests WHERE batch_id = $1",
    )
    .bind(batch_id)
    .fetch_one(&mut *conn)
    .await?;
    let unanswered = sqlx::query(
        "UPDATE llm_batch_requests SET is_over = true, line = NULL, error_code = $2, error_message = left($3, 2000) WHERE batch_id = $1 AND NOT is_over AND NOT is_dropped",
    )
    .bind(batch_id)
    .bind(code)
    .bind(storable(message).as_ref())
    .execute(&mut *conn)
    .await?
    .rows_affected();
    // The provider may have room now for those that wait for it.
    sqlx::query(
        "UPDATE llm_batches o SET put_off_until = NULL FROM llm_batches e
          WHERE e.id = $1 AND o.provider = e.provider AND o.model = e.model AND o.state = 'closed' AND o.put_off_until IS NOT NULL",
    )
    .bind(batch_id)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE llm_batches SET state = 'ended', outcome = $2, ended_at = clock_timestamp(), problem = CASE WHEN $2 = 'completed' AND $8 = 0 THEN NULL ELSE left($9, 2000) END,
                answered = $3, failed = $4, unknown = $5, repeated = $6, dropped = $7, unanswered = $8
          WHERE id = $1",
    )
    .bind(batch_id)
    .bind(outcome.as_str())
    .bind(number(answered))
    .bind(number(failed))
    .bind(counts.unknown)
    .bind(counts.repeated)
    .bind(number(dropped))
    .bind(i32::try_from(unanswered).unwrap_or(i32::MAX))
    .bind(storable(message).as_ref())
    .execute(conn)
    .await?;
    Ok(true)
}

/// What a provider said against a question of a task.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Said {
    #[sqlx(rename = "error_code")]
    pub code: String,
    #[sqlx(rename = "error_message")]
    pub message: String,
    /// In how many batches it said the same.
    pub times: i64,
    /// It was said against this question, and not against another one of the task.
    pub is_own: bool,
}

/// What a provider said last against a question of a task; else what it said against another one, unless its code is one of `alone`, which say nothing of
/// others.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = task_id.0))]
pub async fn said(
    conn: &mut PgConnection,
    task_id: TaskId,
    asked: &[u8],
    alone: &[&str],
) -> sqlx::Result<Option<Said>> {
    sqlx::query_as(
        "SELECT error_code, coalesce(error_message, '') AS error_message, count(*) OVER (PARTITION BY asked = $2, error_code) AS times, asked = $2 AS is_own
           FROM llm_batch_requests
          WHERE task_id = $1 AND (asked = $2 OR error_code <> ALL($3)) AND is_over AND error_code IS NOT NULL AND NOT is_dropped
          ORDER BY is_own DESC, batch_id DESC LIMIT 1",
    )
    .bind(task_id)
    .bind(asked)
    .bind(alone)
    .fetch_optional(conn)
    .await
}

/// Forgets what a provider said against the questions of a task, so that the next attempt asks all of them again. Errors with the codes `kept` stay.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = task_id.0))]
pub async fn forget_said(conn: &mut PgConnection, task_id: TaskId, kept: &[&str]) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM llm_batch_requests WHERE task_id = $1 AND is_over AND error_code IS NOT NULL AND error_code <> ALL($2)",
    )
    .bind(task_id)
    .bind(kept)
    .execute(conn)
    .await
    .map(|_| ())
}
