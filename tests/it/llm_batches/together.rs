//! Summaries that are asked for and applied many at once.
use super::{app, app_of_context, command, effective, finished, keeper::keeper, once, run_arguments, tasks, waiting};
use crate::{
    crash::Process,
    summarize::{children, evidence, section, upload},
    support::{
        self, TOKEN, TestApp,
        batches::{BatchProvider, Ends, Says},
        invariants,
        statements::{counted, with_rows},
        until, until_a_statement_waits,
    },
};
use serde_json::json;
use sqlx::AssertSqlSafe;
use std::{process::Stdio, sync::Arc, time::Duration};
use svc::{
    llm_batches::{Batching, ProviderName},
    service::Service,
    store::transaction::{self, Transaction},
    worker::{Role, together::Together},
};
use svc_client::{
    FileUpload, Json,
    wire::{DocumentPath, Settled, TaskStatus, UploadQuery, WaitQuery},
};

/// Uploads a file about each subject, whose summaries wait for the batch worker then.
pub(super) async fn files(app: &TestApp, subjects: &[&str]) -> Vec<i64> {
    let mut files = Vec::new();
    for subject in subjects {
        files.push(upload(app, &section("", subject, 80), json!({})).await);
    }
    waiting(app, subjects.len()).await;
    files
}

pub(super) fn batching() -> Arc<Batching> {
    Batching::new(ProviderName::Anthropic, "batch-model".to_owned(), ProviderName::Anthropic.caps())
}

/// What a batch worker does for many tasks at once. Its claims outlast every test.
pub(super) fn together(app: &TestApp, batching: Arc<Batching>) -> Together {
    let embedder = Some(support::engine().into());
    let service = Service::new(app.service.settings.clone(), app.pool.clone(), embedder, TOKEN, support::reader());
    let mut role = Role::of(&service.settings);
    (role.worker_id, role.badges) = ("of-the-batches".to_owned(), vec!["batch".to_owned()]);
    role.lease = Duration::from_secs(600);
    Together::new(&role, service.with_batching(batching).tools())
}

/// What somebody who keeps the settler from whole trees holds.
const TREES: &str = "FROM pg_locks l JOIN pg_database b ON b.oid = l.database AND b.datname = current_database()
                     WHERE l.locktype = 'advisory' AND l.classid = 7378 AND l.mode = 'ExclusiveLock' AND l.granted";

/// Waits until many answers are being applied.
async fn until_many_are_applied(app: &TestApp) {
    let query = format!("SELECT EXISTS (SELECT 1 {TREES})");
    until("the locks of the trees", async || is_so(app, &query).await.then_some(())).await;
}

async fn is_so(app: &TestApp, query: &str) -> bool {
    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&app.pool).await.unwrap()
}

/// How many transactions have written these rows last.
pub(super) async fn transactions(app: &TestApp, rows: &str) -> i64 {
    let query = AssertSqlSafe(format!("SELECT count(DISTINCT xmin::text) FROM {rows}"));
    sqlx::query_scalar(query).fetch_one(&app.pool).await.unwrap()
}

pub(super) const COMPLETED: &str = "task_queue WHERE task_type = 'summarize:llm' AND status = 'completed'";

async fn hurry(app: &TestApp) {
    let query = "UPDATE task_queue SET retry_after = now() WHERE retry_after > now()";
    sqlx::query(query).execute(&app.pool).await.unwrap();
}

#[tokio::test]
async fn one_transaction_asks_and_one_applies_and_what_is_not_as_it_should_be_holds_no_other_up() {
    for name in ["openai", "anthropic"] {
        let (app, provider) = (app().await, BatchProvider::start().await);
        let subjects = ["oven", "volcano", "heron", "bridge", "court", "glacier", "harbour", "comet"];
        let files = files(&app, &subjects).await;
        once(&app, &provider, name, &[]).await;
        assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), subjects.len());
        assert_eq!(transactions(&app, "llm_batch_requests").await, 1);

        // One answer is cut off, one request fails, one text is another by now, and one file is cancelled.
        let about = |message: &str, subject: &str| message.contains(&format!("The {subject} of"));
        provider.will_say(move |asked| match asked.message.as_str() {
            message if about(message, "court") => Says::Cut("A whole sentence. And half a".into()),
            message if about(message, "glacier") => Says::Error(429, "rate_limit_error", "slow down"),
            _ => Says::Text(format!("A summary for {}.", asked.custom_id)),
        });
        let chunk = children(&app, files[6]).await[0].id;
        let change = serde_json::from_value(json!({"content": "The harbour was closed."})).unwrap();
        app.client.update_document(DocumentPath { id: chunk }, WaitQuery::default(), Json(change)).await.unwrap();
        app.client.cancel_ingest(DocumentPath { id: files[7] }).await.unwrap();
        provider.end(Ends::Completed);
        once(&app, &provider, name, &[]).await;
        for file in &files[..4] {
            assert_eq!(app.settled(*file).await.settled, Settled::Settled, "{name}");
            let of_file = evidence(&app, *file).await;
            let took = &of_file["llm.summarize"];
            assert_eq!(of_file["effective_content"]["method"], "llm_summary");
            assert_eq!(
                (&took["calls"], &took["kept_calls"], &took["batched_calls"], &took["prompt_tokens"]),
                (&json!(1), &json!(1), &json!(1), &json!(70)),
                "{name}"
            );
            let attempts = of_file["attempts"].as_array().unwrap();
            let of_summary = attempts.iter().filter(|attempt| attempt["task_type"] == "summarize:llm");
            let outcomes: Vec<_> = of_summary.map(|attempt| attempt["outcome"].as_str().unwrap()).collect();
            assert_eq!(outcomes, ["batched", "completed"], "{name}");
        }
        // The task of the text that is another by now has left the batch, and has nothing to do until that text is whole.
        let answered = format!("{COMPLETED} AND root_id <> {}", files[6]);
        let completed: i64 = sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {answered}")))
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert_eq!((completed, transactions(&app, &answered).await), (4, 1), "{name}");
        invariants::check(&app.pool).await;

        provider.will_say(|asked| Says::Text(format!("A summary for {}.", asked.custom_id)));
        for file in &files[4..7] {
            hurry(&app).await;
            assert_eq!(finished(&app, &provider, name, &[], *file).await, Settled::Settled, "{name}");
            assert_eq!(effective(&app, *file).await["method"], "llm_summary", "{name}");
        }
        assert_eq!(app.settled(files[7]).await.settled, Settled::Failed);
        invariants::check_drained(&app.pool).await;
        app.end().await;
    }
}

/// A transaction that holds the row of a file, which whoever applies an answer about it comes to.
pub(super) async fn held(app: &TestApp, file: i64) -> Transaction {
    let mut held = transaction::begin(&app.pool).await.unwrap();
    let hold = "SELECT 1 FROM documents WHERE id = $1 FOR NO KEY UPDATE";
    sqlx::query(hold).bind(file).execute(&mut *held).await.unwrap();
    held
}

/// A batch worker that looks once, and is killed before it has ended.
fn victim(app: &TestApp, provider: &BatchProvider) -> Process {
    let arguments = [&run_arguments(provider, "openai")[..], &["--once"]].concat();
    let mut command = command(app, &arguments);
    Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[tokio::test]
async fn a_worker_that_is_killed_while_it_applies_many_has_applied_none() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let files = files(&app, &["oven", "volcano", "heron"]).await;
    once(&app, &provider, "openai", &[]).await;
    provider.end(Ends::Completed);
    let held = held(&app, files[2]).await;
    let victim = victim(&app, &provider);
    until_a_statement_waits(&app.pool).await;
    victim.kill();
    held.rollback().await.unwrap();
    assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), files.len(), "they wait where they were");
    invariants::check(&app.pool).await;
    for file in files {
        assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    }
    assert_eq!(provider.batches().len(), 1, "no answer is paid again");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// What ends a worker while it applies many answers is left to a task of its own by the next one, and holds no other up there.
#[tokio::test]
async fn what_a_killed_worker_left_is_applied_one_by_one() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let files = files(&app, &["oven", "volcano", "heron"]).await;
    once(&app, &provider, "openai", &[]).await;
    provider.end(Ends::Completed);
    let held = held(&app, files[2]).await;
    for worker in 0..2 {
        let victim = victim(&app, &provider);
        if worker == 0 {
            until_many_are_applied(&app).await;
            victim.kill();
            // The server does not notice that its client is gone while it waits for a row.
            let end = format!("SELECT pg_terminate_backend(l.pid) {TREES}");
            sqlx::query(AssertSqlSafe(end)).execute(&app.pool).await.unwrap();
            assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), files.len(), "they wait where they were");
        } else {
            for file in &files[..2] {
                assert_eq!(app.settled(*file).await.settled, Settled::Settled);
            }
            victim.kill();
        }
    }
    held.rollback().await.unwrap();
    for file in files {
        assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
        assert_eq!(effective(&app, file).await["method"], "llm_summary");
    }
    assert_eq!(provider.batches().len(), 1, "no answer is paid again");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_summary_that_cannot_be_written_keeps_no_other_from_being_written() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let files = files(&app, &["oven", "volcano", "heron"]).await;
    once(&app, &provider, "openai", &[]).await;
    provider.end(Ends::Completed);
    let refuse = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '40001'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON document_vectors FOR EACH ROW WHEN (NEW.document_id = {}) EXECUTE FUNCTION refuse()",
        files[1]
    );
    sqlx::raw_sql(AssertSqlSafe(refuse)).execute(&app.pool).await.unwrap();
    once(&app, &provider, "openai", &[]).await;
    for file in [files[0], files[2]] {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
    }
    let failed = tasks(&app, TaskStatus::Failed).await;
    assert_eq!((failed.len(), failed[0].retry_count, failed[0].finished), (1, 1, false));
    sqlx::raw_sql("DROP TRIGGER refuse ON document_vectors; DROP FUNCTION refuse()").execute(&app.pool).await.unwrap();
    hurry(&app).await;
    assert_eq!(finished(&app, &provider, "openai", &[], files[1]).await, Settled::Settled);
    assert_eq!(effective(&app, files[1]).await["method"], "llm_summary");
    assert_eq!(provider.batches().len(), 1, "no answer is paid again");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn many_summaries_take_no_more_statements_than_few() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    provider.ends_at_once();
    let caps = ProviderName::Anthropic.caps();
    let batching = Batching::new(ProviderName::Anthropic, "batch-model".to_owned(), caps);
    let embedder = Some(support::engine().into());
    let service = Service::new(app.service.settings.clone(), app.pool.clone(), embedder, TOKEN, support::reader());
    let service = service.with_batching(batching.clone());
    let mut role = Role::of(&service.settings);
    (role.worker_id, role.badges) = ("of-the-batches".to_owned(), vec!["batch".to_owned()]);
    let together = Together::new(&role, service.tools());
    let spool = tempfile::tempdir().unwrap();
    let mut keeper = keeper(&app, &provider, &batching, spool.path());
    let mut counts = Vec::new();
    // The first round makes what is made once.
    let rounds: [&[&str]; 3] =
        [&["oven"], &["volcano", "heron"], &["bridge", "court", "glacier", "harbour", "comet", "tower", "river"]];
    for subjects in rounds {
        let files = files(&app, subjects).await;
        settled_so_far(&app).await;
        let (goes_on, asked) = counted(together.ask()).await;
        assert!(goes_on, "nothing has to be asked of alone");
        assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), subjects.len());
        until("the answers", async || keeper.pass(true).await.unwrap().then_some(())).await;
        let ((), applied) = counted(together.apply()).await;
        for file in files {
            assert_eq!(app.settled(file).await.settled, Settled::Settled);
            assert_eq!(effective(&app, file).await["method"], "llm_summary");
        }
        counts.push((asked, applied));
    }
    // A new connection may add one or two.
    let (few, many) = (counts[1], counts[2]);
    assert!(many.0 <= few.0 + 2 && many.1 <= few.1 + 2, "{counts:?}");
    assert!(few.0 > 5 && few.1 > 10, "they are counted: {counts:?}");
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Two sections about a subject, each of which has a summary.
fn chapters(subject: &str) -> String {
    section("Beginning", subject, 80) + &section("End", &format!("last {subject}"), 80)
}

async fn settled_so_far(app: &TestApp) {
    until("the settler", async || {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM settle_event").fetch_one(&app.pool).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn many_files_above_applied_summaries_are_settled_by_no_more_statements_than_few() {
    let (app, provider, batching) = (app().await, BatchProvider::start().await, batching());
    provider.ends_at_once();
    let together = together(&app, batching.clone());
    let spool = tempfile::tempdir().unwrap();
    let mut keeper = keeper(&app, &provider, &batching, spool.path());
    let mut counts = Vec::new();
    // The first round makes what is made once.
    let rounds: [&[&str]; 3] =
        [&["oven"], &["volcano", "heron"], &["bridge", "court", "glacier", "harbour", "comet", "tower", "river"]];
    for subjects in rounds {
        let mut files = Vec::new();
        for subject in subjects {
            files.push(upload(&app, &chapters(subject), json!({})).await);
        }
        waiting(&app, 2 * subjects.len()).await;
        settled_so_far(&app).await;
        assert!(together.ask().await, "nothing has to be asked of alone");
        until("the answers", async || keeper.pass(true).await.unwrap().then_some(())).await;
        // What is queued for the files begins after the count.
        sqlx::query("INSERT INTO paused_task_type (task_type) VALUES ('summarize')").execute(&app.pool).await.unwrap();
        let ((), applied) = counted(together.apply()).await;
        let queued = "SELECT count(*) FROM task_queue WHERE task_type = 'summarize' AND NOT final";
        let queued: i64 = sqlx::query_scalar(queued).fetch_one(&app.pool).await.unwrap();
        assert_eq!(usize::try_from(queued).unwrap(), files.len(), "each file goes on");
        invariants::check(&app.pool).await;
        for file in files {
            app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
        }
        sqlx::query("DELETE FROM paused_task_type").execute(&app.pool).await.unwrap();
        counts.push(applied);
    }
    // A new connection may add one or two.
    assert!(counts[1] > 10 && counts[2] <= counts[1] + 2, "{counts:?}");
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_task_that_is_held_until_others_are_asked_of_ends_when_it_is_cancelled() {
    let app = app_of_context("4096").await;
    let together = together(&app, batching());
    let options = json!({"structure": {"max_tokens": 60}, "rollup": {"max_children": 1000}});
    let long = upload(&app, &section("", "oven", 300), options).await;
    let short = upload(&app, &section("", "volcano", 70), json!({})).await;
    waiting(&app, 2).await;
    // Whoever has claimed both waits here, before it puts one into a batch and holds the other.
    let mut first = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("LOCK TABLE llm_answers IN ACCESS EXCLUSIVE MODE").execute(&mut *first).await.unwrap();
    let asks = together.clone();
    let asking = tokio::spawn(async move { asks.ask().await });
    until("the claim", async || {
        let claimed = "SELECT count(*) FROM task_queue WHERE task_type = 'summarize:llm' AND status = 'claimed'";
        let claimed: i64 = sqlx::query_scalar(claimed).fetch_one(&app.pool).await.unwrap();
        (claimed == 2).then_some(())
    })
    .await;
    // The next one that it claims waits for the batch of another model.
    let mut second = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("INSERT INTO llm_batches (provider, model) VALUES ('anthropic', 'other-model')")
        .execute(&mut *second)
        .await
        .unwrap();
    let other = json!({"rollup": {"llm_model": "other-model"}});
    let other = upload(&app, &section("", "heron", 70), other).await;
    waiting(&app, 1).await;
    let cancelled = app.client.cancel_ingest(DocumentPath { id: long }).await.unwrap();
    assert_eq!((cancelled.tasks_cancelled, cancelled.tasks_stopping), (0, 1));
    first.rollback().await.unwrap();
    assert_eq!(app.settled(long).await.settled, Settled::Failed);
    assert!(!asking.is_finished(), "others are still asked of");
    second.rollback().await.unwrap();
    asking.await.unwrap();
    let mut batched: Vec<i64> = tasks(&app, TaskStatus::Batched).await.iter().map(|task| task.root_id).collect();
    batched.sort_unstable();
    assert_eq!(batched, [short, other]);
    invariants::check(&app.pool).await;
    for file in [short, other] {
        app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
    }
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_task_that_is_cancelled_while_many_are_asked_of_ends_without_waiting_for_its_lease() {
    let app = app().await;
    let together = together(&app, batching());
    let files = files(&app, &["oven", "volcano"]).await;
    // Whoever has claimed the tasks waits here, before it puts them into a batch.
    let mut held = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("LOCK TABLE llm_answers IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let asks = together.clone();
    let asking = tokio::spawn(async move { asks.ask().await });
    until("the claim", async || {
        let claimed = "SELECT count(*) FROM task_queue WHERE task_type = 'summarize:llm' AND status = 'claimed'";
        let claimed: i64 = sqlx::query_scalar(claimed).fetch_one(&app.pool).await.unwrap();
        (claimed == 2).then_some(())
    })
    .await;
    let cancelled = app.client.cancel_ingest(DocumentPath { id: files[0] }).await.unwrap();
    assert_eq!((cancelled.tasks_cancelled, cancelled.tasks_stopping), (0, 1));
    held.rollback().await.unwrap();
    asking.await.unwrap();
    let (failed, batched) = (tasks(&app, TaskStatus::Failed).await, tasks(&app, TaskStatus::Batched).await);
    assert_eq!(failed.iter().map(|task| task.root_id).collect::<Vec<_>>(), [files[0]], "nothing holds it any more");
    assert_eq!(batched.iter().map(|task| task.root_id).collect::<Vec<_>>(), [files[1]]);
    assert_eq!(app.settled(files[0]).await.settled, Settled::Failed);
    invariants::check(&app.pool).await;
    app.client.cancel_ingest(DocumentPath { id: files[1] }).await.unwrap();
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn who_asks_of_many_reads_nothing_of_a_text_that_takes_more_than_one_question() {
    let app = app_of_context("2048").await;
    let together = together(&app, batching());
    let options = json!({"structure": {"max_tokens": 60}, "rollup": {"max_children": 1000}});
    let file = upload(&app, &section("", "oven", 200), options).await;
    waiting(&app, 1).await;
    let parts = children(&app, file).await.len();
    let (goes_on, rows) = with_rows(together.ask()).await;
    assert!(!goes_on, "it has to be asked of alone");
    assert!(parts > 30 && rows > 0 && rows < parts, "{rows} rows for a text of {parts} parts");
    assert!(tasks(&app, TaskStatus::Claimed).await.is_empty() && tasks(&app, TaskStatus::Batched).await.is_empty());
    together.stop().await;
    app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_file_that_ends_beside_many_that_are_applied_waits_for_no_sweep() {
    let (app, provider, batching) = (app().await, BatchProvider::start().await, batching());
    provider.ends_at_once();
    let together = together(&app, batching.clone());
    let spool = tempfile::tempdir().unwrap();
    let mut keeper = keeper(&app, &provider, &batching, spool.path());
    let folder = app.create("Folder", "Files lie here.", None).await.id;
    let put = async |name: &str, text: String| {
        let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
        app.client.upload_file(query, FileUpload::from_bytes(name, text, None)).await.unwrap().document_id
    };
    let long = put("long.md", section("", "oven", 80)).await;
    waiting(&app, 1).await;
    together.ask().await;
    until("the answer", async || keeper.pass(true).await.unwrap().then_some(())).await;
    // The transaction that applies the answer keeps the settler from the folder, and waits for a row.
    let mut held = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("SELECT 1 FROM documents WHERE id = $1 FOR NO KEY UPDATE")
        .bind(long)
        .execute(&mut *held)
        .await
        .unwrap();
    let applies = together.clone();
    let applying = tokio::spawn(async move { applies.apply().await });
    until_many_are_applied(&app).await;
    let short = put("short.md", "Herons eat fish.".to_owned()).await;
    let mut last = 0;
    until("the tasks of the other file", async || {
        let left: (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM task_queue WHERE root_id = $1 AND NOT final), (SELECT coalesce(max(id), 0) FROM settle_event WHERE root_id = $1)",
        )
        .bind(short)
        .fetch_one(&app.pool)
        .await
        .unwrap();
        last = left.1;
        (left.0 == 0 && left.1 > 0).then_some(())
    })
    .await;
    held.rollback().await.unwrap();
    applying.await.unwrap();
    let left = format!("SELECT EXISTS (SELECT 1 FROM settle_event WHERE root_id = {short} AND id <= {last})");
    assert!(!is_so(&app, &left).await, "whoever kept the settler away has it look");
    for file in [long, short] {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
    }
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_task_that_may_have_ended_its_worker_is_not_asked_of_with_others() {
    let app = app().await;
    let together = together(&app, batching());
    let files = files(&app, &["oven", "volcano"]).await;
    sqlx::query("UPDATE task_queue SET lease_losses = 1 WHERE root_id = $1 AND task_type = 'summarize:llm'")
        .bind(files[1])
        .execute(&app.pool)
        .await
        .unwrap();
    assert!(!together.ask().await, "one has to be asked of alone");
    let (pending, batched) = (tasks(&app, TaskStatus::Pending).await, tasks(&app, TaskStatus::Batched).await);
    assert_eq!(pending.iter().map(|task| task.root_id).collect::<Vec<_>>(), [files[1]]);
    assert_eq!(batched.iter().map(|task| task.root_id).collect::<Vec<_>>(), [files[0]]);
    together.stop().await;
    for file in files {
        app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
