//! What a cancel of a file or of a task ends, and what it leaves.
use super::{claim, idle, long_text, of_root, waits_for_pause};
use crate::{
    edits::patched,
    extraction,
    queue::{LEASE, claimer, node, task},
    support::{
        TestApp, Wish, invariants,
        llm::{Llm, Reply},
        place, sample, until,
    },
};
use serde_json::json;
use svc::{
    ingest::settle,
    store::{
        admin::{Cancel, cancel_held},
        tasks,
    },
    worker::queue::PgQueue,
};
use svc_actors::{Lane, Queue, TaskFailure, WriteMode};
use svc_client::{
    Json, OptionalJson,
    wire::{
        Bm25Search, DocumentPath, ErrorType, PageQuery, Settled, TaskPath, TaskQuery, TaskStatus, TaskTypePath,
        WaitQuery,
    },
};

#[tokio::test]
async fn a_cancel_in_the_middle_stops_what_runs_and_frees_its_region() {
    let app = TestApp::with(Wish {
        settings: &[("SVC_WORKER_HEARTBEAT_SECONDS", "300"), ("SVC_WORKER_LEASE_SECONDS", "900")],
        ..Default::default()
    })
    .await;
    let id = app.upload_bytes("long.md", long_text()).await.unwrap().document_id;
    let running = until("an embed task that runs", async || {
        let query = TaskQuery { status: Some(TaskStatus::Running), task_type: Some("embed".to_owned()), ..of_root(id) };
        app.client.list_tasks(query).await.unwrap().tasks.pop()
    })
    .await;
    let cancelled = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert!(cancelled.tasks_stopping > 0, "{cancelled:?}");
    let after = app.settled(id).await;
    assert_eq!((after.settled, after.nodes_in_flight), (Settled::Failed, 0), "{after:?}");
    let stopped = app.client.read_task(TaskPath { id: running.id }).await.unwrap();
    assert_eq!((stopped.status, stopped.error_type), (TaskStatus::Failed, Some(ErrorType::Permanent)));
    assert!(app.client.list_reservations(PageQuery::default()).await.unwrap().reservations.is_empty());
    invariants::check_drained(&app.pool).await;
    // Heartbeats are far apart here, so the worker learned of it by the cancel and not by a heartbeat.
    let beaten: bool =
        sqlx::query_scalar("SELECT bool_and(beat_at < started_at + interval '300 seconds') FROM workers")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert!(beaten, "the test took so long that a beat of its own came in between");
    app.end().await;
}

#[tokio::test]
async fn what_ends_while_a_file_is_cancelled_leaves_no_event() {
    let app = TestApp::with(Wish { settings: &[("SVC_WORKER_REAP_SECONDS", "3600")], ..Default::default() }).await;
    app.client.pause_task_type(TaskTypePath { task_type: "embed".to_owned() }).await.unwrap();
    let id = app.upload_bytes("long.md", long_text()).await.unwrap().document_id;
    waits_for_pause(&app, id).await;
    // Stands for a stopped task that ends, with the leaves that fail with it, while the cancel has the file's lock.
    sqlx::raw_sql(
        "CREATE FUNCTION ends_now() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO settle_event (root_id, document_id, done, failed) VALUES (NEW.root_id, NEW.document_id, 40, 40); RETURN NULL; END $$;
         CREATE TRIGGER ends_now AFTER UPDATE ON ingest_node FOR EACH ROW WHEN (OLD.cancelled AND NOT NEW.cancelled) EXECUTE FUNCTION ends_now()",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM settle_event").fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, 0);
    app.end().await;
}

/// Makes nodes under the root of an ingestion that no task knows: records, as a workbook with this many rows has them, or empty sections.
async fn many_nodes(app: &TestApp, root: i64, usetype: &str, count: i64) {
    sqlx::query(
        "WITH nodes AS (
             INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, settled, position, guard)
             SELECT $1, d.path || $1, 'row', CASE $3::text WHEN 'section' THEN '' ELSE 'row ' || n END, $3::text, '', 'in_flight', 1000 + n, d.guard
               FROM documents d, generate_series(1, $2) AS n WHERE d.id = $1
             RETURNING id),
         sections AS (INSERT INTO ingest_node (document_id, parent_id, root_id) SELECT id, $1, $1 FROM nodes WHERE $3::text = 'section'),
         counted AS (UPDATE ingest_node SET open_children = open_children + $2 WHERE document_id = $1)
         INSERT INTO frontier_delta VALUES ($1, $2, $2, 0, 0)",
    )
    .bind(root)
    .bind(count)
    .bind(usetype)
    .execute(&app.pool)
    .await
    .unwrap();
}

/// Makes the state after the death of the process that marked the nodes of a cancelled file.
async fn cut_off(app: &TestApp, root: i64) {
    sqlx::query(
        "WITH left_over AS (UPDATE documents SET settled = 'in_flight' WHERE parent_id = $1 AND title = 'row' RETURNING id),
         counted AS (INSERT INTO frontier_delta SELECT $1, 0, count(*), 0, -count(*) FROM left_over)
         UPDATE ingest_node SET cancelled = true WHERE document_id = $1",
    )
    .bind(root)
    .execute(&app.pool)
    .await
    .unwrap();
}

/// Makes such a change fail until the trigger `refuse` is dropped.
async fn refuse(app: &TestApp, change: &str) {
    let refuse = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$;
         CREATE TRIGGER refuse BEFORE {change} EXECUTE FUNCTION refuse()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&app.pool).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_file_of_many_nodes_fails_whole_though_in_parts() {
    let app = TestApp::start().await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let other = app
        .upload_bytes("other.md", b"# Another\n\nIt has nothing to do with that.".to_vec())
        .await
        .unwrap()
        .document_id;
    let (own, beside) =
        (waits_for_pause(&app, id).await.nodes_in_flight, waits_for_pause(&app, other).await.nodes_in_flight);
    many_nodes(&app, id, "record", 12_000).await;
    invariants::check(&app.pool).await;

    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    let at_once = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!((at_once.settled, at_once.tasks_unfinished), (Settled::Failed, 0), "{at_once:?}");
    invariants::check(&app.pool).await;
    let after = until("every node to fail", async || {
        let frontier = app.client.read_frontier(DocumentPath { id }).await.unwrap();
        (frontier.nodes_in_flight == 0).then_some(frontier)
    })
    .await;
    assert_eq!(after.nodes_failed, own + 12_000, "{after:?}");
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(evidence["cancelled"]["nodes_failed"], own + 12_000);
    let untouched = app.client.read_frontier(DocumentPath { id: other }).await.unwrap();
    assert_eq!((untouched.nodes_in_flight, untouched.nodes_failed), (beside, 0), "{untouched:?}");

    // A task that is queued again meanwhile finds a tree that no cancel is working on.
    cut_off(&app, id).await;
    let failed = TaskQuery { status: Some(TaskStatus::Failed), ..of_root(id) };
    let task = app.client.list_tasks(failed).await.unwrap().tasks.remove(0);
    app.client.retry_task(TaskPath { id: task.id }).await.unwrap();
    let again = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert!((1..=own).contains(&again.nodes_in_flight), "{again:?}");
    invariants::check(&app.pool).await;
    // A cancel that took effect says so, even if its nodes could not be marked; the sweep of any worker continues.
    refuse(&app, "UPDATE ON documents FOR EACH ROW WHEN (NEW.settled = 'failed' AND NEW.title = 'row')").await;
    cut_off(&app, id).await;
    assert!(app.client.cancel_ingest(DocumentPath { id }).await.unwrap().tasks_cancelled > 0);
    let marked = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert!(marked.nodes_in_flight >= 12_000 && marked.tasks_unfinished == 0, "{marked:?}");
    sqlx::query("DROP TRIGGER refuse ON documents").execute(&app.pool).await.unwrap();
    settle::sweep(&app.service).await.unwrap();
    assert_eq!(app.client.read_frontier(DocumentPath { id }).await.unwrap().nodes_in_flight, 0);
    app.client.resume_task_type(embed()).await.unwrap();
    assert_eq!(app.settled(other).await.settled, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_cancel_ends_the_tasks_before_the_sections_fail_and_is_resumed_after_a_crash_between() {
    let app = TestApp::start().await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let waiting = waits_for_pause(&app, id).await;
    let own = waiting.nodes_in_flight;
    many_nodes(&app, id, "section", 4_500).await;
    invariants::check(&app.pool).await;

    // Nothing but the cancel itself comes through.
    refuse(&app, "UPDATE ON documents FOR EACH ROW WHEN (NEW.settled = 'failed' AND NEW.title = 'row')").await;
    let cancelled = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!((cancelled.tasks_cancelled, cancelled.tasks_stopping), (waiting.tasks_unfinished, 0));
    let cut = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    let expected = (Settled::Failed, 0, own - 1 + 4_500);
    assert_eq!((cut.settled, cut.tasks_unfinished, cut.nodes_in_flight), expected, "{cut:?}");
    invariants::check(&app.pool).await;

    // What is left to settle does not bring the file back to life, though its sections have nothing left open.
    sqlx::query(
        "INSERT INTO settle_event (root_id, document_id, done, failed) SELECT root_id, document_id, 0, 0 FROM ingest_node WHERE root_id = $1",
    )
    .bind(id)
    .execute(&app.pool)
    .await
    .unwrap();
    app.client.resume_task_type(embed()).await.unwrap();
    assert!(!settle::sweep(&app.service).await.unwrap(), "a rollup was queued");
    let events =
        async || -> i64 { sqlx::query_scalar("SELECT count(*) FROM settle_event").fetch_one(&app.pool).await.unwrap() };
    until("the events to be taken", async || (events().await == 0).then_some(())).await;
    settle::repair(&app.pool).await.unwrap();
    assert_eq!(events().await, 0, "the repair took it for stalled");
    let still = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!((still.settled, still.tasks_unfinished, still.nodes_in_flight), expected, "{still:?}");

    sqlx::query("DROP TRIGGER refuse ON documents").execute(&app.pool).await.unwrap();
    settle::sweep(&app.service).await.unwrap();
    let after = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!((after.nodes_in_flight, after.nodes_failed), (0, own + 4_500), "{after:?}");
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(evidence["cancelled"]["nodes_failed"], own + 4_500);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn one_task_can_be_cancelled_and_takes_its_dependents_along() {
    let app = idle().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let probe = app.client.list_tasks(of_root(id)).await.unwrap().tasks.pop().unwrap();
    let put_off =
        "UPDATE task_queue SET put_off_code = 'runner_away', put_off_message = 'the runner is away' WHERE id = $1";
    sqlx::query(put_off).bind(probe.id).execute(&app.pool).await.unwrap();
    let task = app.client.cancel_task(TaskPath { id: probe.id }).await.unwrap();
    assert_eq!((task.status, task.finished), (TaskStatus::Failed, true));
    assert_eq!(task.last_error.unwrap().code.as_deref(), Some("cancelled"));
    let document = app.client.read_document(DocumentPath { id }, Default::default()).await.unwrap().value().unwrap();
    assert_eq!(document.settled, Settled::Failed);
    assert_eq!(app.client.cancel_task(TaskPath { id: probe.id }).await.unwrap_err().status, 409);
    let outside = node(&app, None).await.0;
    assert_eq!(app.client.cancel_ingest(DocumentPath { id: outside }).await.unwrap_err().status, 409);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

const BIRDS: &str = "# Herons\n\nA heron waits in the shallows.\n\n# Storks\n\nA stork nests on the chimney.\n";

fn of_type(task_type: &str) -> TaskTypePath {
    TaskTypePath { task_type: task_type.to_owned() }
}

/// Has facts extracted of a file, by a task for each of its texts.
async fn begin_extraction(app: &TestApp, id: i64) -> i64 {
    let begun = app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(None)).await;
    let tasks = begun.unwrap().tasks;
    assert!(tasks > 0);
    tasks
}

/// How often somebody was told of a cancel.
async fn cancels_told(app: &TestApp) -> i64 {
    let told = "SELECT count(*) FROM event_outbox WHERE kind = 'ingest.cancelled'";
    sqlx::query_scalar(told).fetch_one(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_adds_to_a_settled_file_is_cancelled_without_a_word_on_its_ingestion() {
    let llm = Llm::start().await;
    let app = extraction::app(&llm, &[]).await;
    let id = app.upload_bytes("birds.md", BIRDS).await.unwrap().document_id;
    app.settled(id).await;
    // As it settled, a part of it had failed.
    sqlx::query("INSERT INTO node_evidence (document_id, name, value) VALUES ($1, 'failed_parts', '{\"nodes\": 1}')")
        .bind(id)
        .execute(&app.pool)
        .await
        .unwrap();
    let frontier = async || app.client.read_frontier(DocumentPath { id }).await.unwrap();
    let before = frontier().await;
    assert_eq!((before.settled, before.warnings.len()), (Settled::Settled, 1), "{before:?}");
    app.client.pause_task_type(of_type("extract:facts")).await.unwrap();
    let tasks = begin_extraction(&app, id).await;
    let waiting = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!((waiting.tasks_cancelled, waiting.tasks_stopping), (tasks, 0));
    assert_eq!(frontier().await, before);

    llm.will_say(|_| Reply::Hold(Vec::new()));
    begin_extraction(&app, id).await;
    app.client.resume_task_type(of_type("extract:facts")).await.unwrap();
    until("a question", async || llm.asked().pop()).await;
    assert!(app.client.cancel_ingest(DocumentPath { id }).await.unwrap().tasks_stopping > 0);
    app.settled(id).await;
    assert_eq!(frontier().await, before);

    assert_eq!(cancels_told(&app).await, 0);
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert!(!evidence.contains_key("cancelled") && evidence.contains_key("failed_parts"), "{evidence:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A section of [`BIRDS`], and its chunk.
async fn section(app: &TestApp, id: i64, title: &str) -> (i64, i64) {
    let tree = app.subtree(id).await;
    let section = tree.iter().find(|node| node.usetype == "section" && node.title == title).unwrap().id;
    let chunk = tree.iter().find(|node| node.usetype == "chunk" && node.path.contains(&section)).unwrap().id;
    (section, chunk)
}

/// Whether the chunk on herons is found by BM25, and whether by its vector.
async fn is_found(app: &TestApp, chunk: i64) -> (bool, bool) {
    let search = Bm25Search { usetype: Some(vec!["chunk".to_owned()]), ..Bm25Search::new("heron") };
    let found = app.client.search_bm25(Json(search)).await.unwrap().results;
    let vectors = "SELECT count(*) FROM document_vectors WHERE document_id = $1";
    let vectors: i64 = sqlx::query_scalar(vectors).bind(chunk).fetch_one(&app.pool).await.unwrap();
    (found.iter().any(|result| result.document.id == chunk), vectors == 1)
}

/// The types of the tasks that have not ended.
async fn unfinished(app: &TestApp) -> Vec<String> {
    let left = "SELECT task_type FROM task_queue WHERE NOT final ORDER BY id";
    sqlx::query_scalar(left).fetch_all(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_of_a_settled_file_leaves_the_tasks_by_which_its_texts_are_found() {
    let llm = Llm::start().await;
    let app = extraction::app(&llm, &[]).await;
    let id = app.upload_bytes("birds.md", BIRDS).await.unwrap().document_id;
    app.settled(id).await;
    let (herons, chunk) = section(&app, id, "Herons").await;
    assert_eq!(is_found(&app, chunk).await, (true, true));
    for name in ["embed:titles", "extract:facts"] {
        app.client.pause_task_type(of_type(name)).await.unwrap();
    }
    app.client.protect_document(DocumentPath { id: herons }).await.unwrap();
    assert_eq!(is_found(&app, chunk).await, (false, false), "its titles are others");

    let tasks = begin_extraction(&app, id).await;
    let cancelled = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!((cancelled.tasks_cancelled, cancelled.tasks_stopping), (tasks, 0));
    let again = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!((again.tasks_cancelled, again.tasks_stopping), (0, 0));
    for name in ["embed:titles", "extract:facts"] {
        app.client.resume_task_type(of_type(name)).await.unwrap();
    }
    until("every task to end", async || unfinished(&app).await.is_empty().then_some(())).await;
    assert_eq!(is_found(&app, chunk).await, (true, true));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_of_a_file_that_an_edit_brought_back_leaves_those_of_its_settled_texts() {
    let app = TestApp::start().await;
    let id = app.upload_bytes("birds.md", BIRDS).await.unwrap().document_id;
    app.settled(id).await;
    let ((herons, chunk), (_, other)) = (section(&app, id, "Herons").await, section(&app, id, "Storks").await);
    for name in ["embed", "embed:titles"] {
        app.client.pause_task_type(of_type(name)).await.unwrap();
    }
    app.client.protect_document(DocumentPath { id: herons }).await.unwrap();
    patched(&app, other, json!({"content": "A stork claps its beak."})).await;
    assert_eq!(is_found(&app, chunk).await, (false, false), "its titles are others");

    assert!(app.client.cancel_ingest(DocumentPath { id }).await.unwrap().tasks_cancelled > 0);
    assert_eq!(unfinished(&app).await, ["embed:titles"]);
    for name in ["embed", "embed:titles"] {
        app.client.resume_task_type(of_type(name)).await.unwrap();
    }
    until("every task to end", async || unfinished(&app).await.is_empty().then_some(())).await;
    assert_eq!(app.settled(id).await.settled, Settled::Failed);
    assert_eq!(is_found(&app, chunk).await, (true, true));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_has_failed_is_cancelled_without_another_word_on_its_ingestion() {
    let llm = Llm::start().await;
    let app = extraction::app(&llm, &[]).await;
    let id = app.upload_bytes("birds.md", BIRDS).await.unwrap().document_id;
    app.settled(id).await;
    // Another text of one chunk brings the file back in flight, and the other chunk stays settled.
    app.client.pause_task_type(of_type("embed")).await.unwrap();
    let chunk = app.subtree(id).await.into_iter().find(|node| node.usetype == "chunk").unwrap().id;
    patched(&app, chunk, json!({"content": "A heron spears a fish."})).await;
    assert!(app.client.cancel_ingest(DocumentPath { id }).await.unwrap().tasks_cancelled > 0);
    let before = app.settled(id).await;
    assert_eq!((before.settled, cancels_told(&app).await), (Settled::Failed, 1), "{before:?}");
    let evidence = async || {
        let mut evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
        evidence.remove("cancelled").unwrap()
    };
    let said = evidence().await;
    assert!(said["nodes_failed"].as_i64() > Some(0), "{said}");

    app.client.pause_task_type(of_type("extract:facts")).await.unwrap();
    let tasks = begin_extraction(&app, id).await;
    let cancelled = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!((cancelled.tasks_cancelled, cancelled.tasks_stopping), (tasks, 0));
    assert_eq!(app.client.read_frontier(DocumentPath { id }).await.unwrap(), before);
    assert_eq!((evidence().await, cancels_told(&app).await), (said, 1));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Its tasks may have been asked to stop one by one, which does not end the file itself.
#[tokio::test]
async fn a_file_whose_only_task_is_being_stopped_is_cancelled_once() {
    let app = idle().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let held = tasks::claim(&app.pool, &claimer("w"), &[(Lane::Cpu, 1)]).await.unwrap().grants.remove(0);
    let asked = app.client.cancel_task(TaskPath { id: held.task_id.0 }).await.unwrap();
    assert!(!asked.finished, "its worker has to end it: {asked:?}");
    let settled = async || app.client.read_frontier(DocumentPath { id }).await.unwrap().settled;
    assert_eq!(settled().await, Settled::InFlight);
    for _ in 0..2 {
        let cancelled = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
        assert_eq!((cancelled.tasks_cancelled, cancelled.tasks_stopping), (0, 1));
        assert_eq!(settled().await, Settled::Failed);
    }
    assert_eq!(cancels_told(&app).await, 1, "the second cancel finds nothing new");
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), LEASE, None);
    assert!(queue.fail(&held, &TaskFailure::cancelled()).await.unwrap());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_cancelled_task_is_cancelled_though_its_file_cannot_be_settled_yet() {
    let app = TestApp::start().await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    waits_for_pause(&app, id).await;
    refuse(&app, "DELETE ON settle_event").await;
    let waiting = app.client.list_tasks(TaskQuery { status: Some(TaskStatus::Pending), ..of_root(id) }).await.unwrap();
    assert!(!waiting.tasks.is_empty());
    for task in waiting.tasks {
        let cancelled = app.client.cancel_task(TaskPath { id: task.id }).await.unwrap();
        assert_eq!((cancelled.status, cancelled.finished), (TaskStatus::Failed, true));
    }
    let in_flight = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!((in_flight.settled, in_flight.tasks_unfinished), (Settled::InFlight, 0), "{in_flight:?}");
    sqlx::query("DROP TRIGGER refuse ON settle_event").execute(&app.pool).await.unwrap();
    // The worker's own sweep may come first.
    settle::sweep(&app.service).await.unwrap();
    until("the file to settle", async || {
        let frontier = app.client.read_frontier(DocumentPath { id }).await.unwrap();
        (frontier.nodes_in_flight == 0).then_some(())
    })
    .await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_cancel_does_not_read_what_other_files_have_finished() {
    let app = idle().await;
    let (file, other) = (node(&app, None).await, node(&app, None).await);
    let held = task(&app, &file, WriteMode::Subtree, 0, None).await;
    assert_eq!(claim(&app, 1).await.len(), 1);
    let mut tx = app.pool.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, status, final, ready)
         SELECT 'test', $1::bigint, 'io', $1::bigint || '/', 0, $1::bigint, 'self', 'completed', true, false FROM generate_series(1, 50000)",
    )
    .bind(other.0)
    .execute(&mut *tx)
    .await
    .unwrap();
    sqlx::query("ANALYZE task_queue").execute(&mut *tx).await.unwrap();
    let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'task_queue'";
    let file = place(&mut tx, file.0).await;
    let before: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
    let mut asked = Vec::new();
    for which in [Cancel::Root(&file), Cancel::Task(held)] {
        asked.push(cancel_held(&mut tx, which).await.unwrap());
    }
    let after: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
    assert_eq!((asked, after - before), (vec![1, 0], 0), "what is held is asked to stop, once, and found by an index");
    tx.rollback().await.unwrap();
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}
