//! Worker processes as an operator starts them.
use crate::{
    admin::{idle, run, worker_command, worker_row},
    console::Console,
    crash::{Process, serve_command},
    queue::{node, task},
    support::{self, TOKEN, TestApp, Wish, invariants, sample, until},
};
use sqlx::{
    Connection, PgConnection,
    postgres::{PgListener, PgPoolOptions},
};
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use svc::{
    store::{
        kept::KeptConnections,
        tasks::{self, AttemptRow, Claimer},
        workers::{self, WorkerRow},
    },
    worker::{heart, queue::PgQueue, wakeup},
};
use svc_actors::{
    CancelToken, Grant, Handler, Lane, Lanes, Outcome, Permit, Permits, Queue, TaskFailure, TreeSnapshot, Worker,
    WorkerSettings, WriteMode,
};
use svc_client::{
    Json,
    wire::{
        ActorNode, AttemptOutcome, BlockedBy, DocumentPath, FindingKind, FulltextSearch, IndexLanguage, IndexState,
        PageQuery, Settled, TaskPath, TaskStatus, TaskTypePath, WorkerQuery,
    },
};

/// Waits until a program has logged a line with these words.
async fn until_it_logs(mut command: Command, words: [&str; 2]) {
    let mut process = Process(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(process.0.stderr.take().unwrap()).lines();
    let words = words.map(str::to_owned);
    let said = tokio::task::spawn_blocking(move || {
        let mut heard = Vec::new();
        for line in lines.map_while(Result::ok) {
            if words.iter().all(|word| line.contains(word)) {
                return Ok(());
            }
            heard.push(line);
        }
        Err(heard)
    });
    let said = tokio::time::timeout(support::PATIENCE, said).await.expect("it says so in time").unwrap();
    assert_eq!(said, Ok(()), "it ended without saying so");
    drop(process);
}

#[tokio::test]
async fn what_nobody_serves_is_an_error_in_the_log_of_whoever_looks() {
    let app = idle().await;
    task(&app, &node(&app, None).await, WriteMode::Itself, 0, Some("tpu")).await;
    sqlx::query("UPDATE task_queue SET created_at = now() - interval '1 hour'").execute(&app.pool).await.unwrap();
    let words = ["ERROR", "no living worker answers to this badge"];
    until_it_logs(worker_command(&app, &["--badge", "cpu", "--reap-seconds", "0.2"]), words).await;
    // This is a service whose fleet is gone.
    let mut service = serve_command(&app);
    service.env("SVC_WORKER_REAP_SECONDS", "0.2");
    until_it_logs(service, words).await;
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_badge_for_a_task_type_that_does_not_exist_is_told_when_a_program_starts() {
    let app = idle().await;
    let usual = worker_command(&app, &[]);
    // This one also logs what is no error.
    let mut worker = Command::new(usual.get_program());
    worker.args(["--config", "/dev/null"]).stdin(Stdio::null());
    worker.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    for mut command in [worker, serve_command(&app)] {
        command.env("SVC_TASK_BADGES", r#"{"embed": "gpu", "summarise:llm": "batch"}"#);
        let words = ["SVC_TASK_BADGES has a badge for `summarise:llm`", "did you mean summarize:llm?"];
        until_it_logs(command, words).await;
    }
    app.end().await;
}

#[tokio::test]
async fn a_worker_says_who_it_is_and_shows_its_actors() {
    let app = TestApp::start().await;
    let worker = until("the worker's first beat with its tree", async || {
        let worker = app.client.list_workers(WorkerQuery::default()).await.unwrap().workers.pop()?;
        let root = worker.snapshot.as_ref()?.root.as_ref()?;
        // The first heartbeat may come before its actors.
        (root.children.len() == 4).then_some(worker)
    })
    .await;
    assert!(worker.alive && worker.badges.is_empty() && !worker.strict_badges, "{worker:?}");
    assert_eq!((worker.version.as_str(), worker.lease_seconds), (env!("CARGO_PKG_VERSION"), 6.0));
    assert!(worker.boot_nonce.parse::<uuid::Uuid>().is_ok_and(|nonce| !nonce.is_nil()), "{worker:?}");
    for task_type in ["probe", "extract:text", "embed", "summarize"] {
        assert!(worker.task_types.iter().any(|known| known == task_type), "{task_type} is not in {worker:?}");
    }
    let root = worker.snapshot.unwrap().root.unwrap();
    let kinds: BTreeSet<&str> = root.children.iter().map(|actor| actor.kind.as_str()).collect();
    assert_eq!(kinds, ["dispatcher", "documents", "heart", "lock_manager"].into(), "{root:?}");
    app.end().await;
}

#[tokio::test]
async fn a_worker_reads_files_with_its_own_program_after_another_took_its_place() {
    let app = idle().await;
    let built = Path::new(env!("CARGO_BIN_EXE_svc-worker"));
    // Beside the program a second name for it takes no copy.
    let folder = tempfile::tempdir_in(built.parent().unwrap()).unwrap();
    let program = folder.path().join("svc-worker");
    std::fs::hard_link(built, &program).unwrap();
    let usual = worker_command(&app, &["--poll-seconds", "0.1"]);
    let mut command = Command::new(&program);
    command.args(usual.get_args()).envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let worker = Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    until("its first beat", async || {
        let workers = app.client.list_workers(WorkerQuery::default()).await.unwrap().workers;
        (!workers.is_empty()).then_some(())
    })
    .await;
    let other = folder.path().join("other");
    std::fs::write(&other, "#!/bin/sh\necho of another release\n").unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&other, &program).unwrap();
    let (_, frontier) = app.ingest(&sample("handbook.md")).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    worker.kill();
    app.end().await;
}

/// The actor of a document in the tree of the only worker, at its last heartbeat.
async fn supervisor(app: &TestApp, root: i64) -> Option<ActorNode> {
    let worker = app.client.list_workers(WorkerQuery::default()).await.unwrap().workers.pop()?;
    let documents = worker.snapshot?.root?.children.into_iter().find(|actor| actor.kind == "documents")?;
    documents.children.into_iter().find(|document| document.document_id == Some(root))
}

#[tokio::test]
async fn the_tree_shows_a_document_between_its_tasks_until_it_owes_nothing() {
    let app = TestApp::start().await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let document = until("the document with nothing at work", async || {
        let document = supervisor(&app, id).await?;
        let tasks = document.tasks?;
        (tasks.done == 4 && tasks.open.is_some_and(|open| open > 0)).then_some(document)
    })
    .await;
    assert_eq!((document.kind.as_str(), document.stage.as_deref()), ("document", Some("structure")), "{document:?}");
    assert_eq!(document.title.as_deref(), Some("handbook.md"));
    assert_eq!((document.tasks.unwrap().held, document.tasks.unwrap().failed), (0, 0));
    assert!(document.children.is_empty() && document.last_failure.is_none(), "{document:?}");
    app.client.resume_task_type(embed()).await.unwrap();
    app.settled(id).await;
    until("the end of its supervisor", async || supervisor(&app, id).await.is_none().then_some(())).await;
    app.end().await;
}

/// Does what a handler must not do: keeps the only thread of its worker busy for two leases.
struct Burns {
    kept: KeptConnections,
}

const SHORT_LEASE: Duration = Duration::from_secs(2);

/// The lease of the task that burns. A machine on which other tests run too may give the heart no turn for seconds.
const BURNT_LEASE: Duration = Duration::from_secs(4);

#[async_trait::async_trait]
impl Handler for Burns {
    async fn run(&self, grant: &Grant, _: CancelToken, _: Permit) -> Result<Outcome, TaskFailure> {
        let begun = Instant::now();
        while begun.elapsed() < BURNT_LEASE * 2 {
            std::hint::spin_loop();
        }
        let mut conn = self.kept.lend().await.unwrap();
        let detail = serde_json::Map::new();
        let attempt = AttemptRow {
            grant,
            worker: "burns",
            started_at: chrono::Utc::now(),
            outcome: AttemptOutcome::Completed,
            detail: &detail,
        };
        let ours = tasks::finish(&mut conn, &attempt).await.unwrap();
        conn.keep();
        Ok(if ours { Outcome::Completed } else { Outcome::LostLease })
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_task_that_burns_the_processor_for_two_leases_loses_none() {
    let app = idle().await;
    // This worker takes nothing, and takes back what expires.
    let arguments = ["--badge", "none", "--strict-badges", "--worker-id", "reaper", "--heartbeat-seconds", "0.3"];
    let timing = ["--lease-seconds", "4", "--reap-seconds", "0.2", "--poll-seconds", "0.2"];
    let reaper = Process(worker_command(&app, &[&arguments[..], &timing[..]].concat()).spawn().unwrap());
    until("the reaper", async || {
        (!app.client.list_workers(WorkerQuery::default()).await.unwrap().workers.is_empty()).then_some(())
    })
    .await;
    let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;

    let tools = app.service.tools();
    let row = WorkerRow {
        worker_id: "burns".to_owned(),
        boot_nonce: uuid::Uuid::new_v4(),
        version: "test".to_owned(),
        badges: Vec::new(),
        strict: false,
        holds_folder: false,
        task_types: vec!["test".to_owned()],
        lease: BURNT_LEASE,
    };
    let claimer = Claimer { worker_id: "burns".to_owned(), badges: None, strict: false, lease: BURNT_LEASE };
    let mut settings = WorkerSettings::new("burns", Permits { cpu: 1, model: 1, llm: 1, io: 1 });
    (settings.lease, settings.heartbeat) = (BURNT_LEASE, Duration::from_millis(300));
    let queue = PgQueue::new(&tools, claimer, Duration::from_secs(60), None);
    let handler = Burns { kept: tools.kept.clone() };
    let heart = heart::factory(app.options.clone(), app.pool.clone(), move || row.clone());
    let worker = Worker::start(settings, Arc::new(queue), heart, Arc::new(handler)).await.unwrap();
    let done = until("the task to end", async || {
        let task = app.client.read_task(TaskPath { id: id.0 }).await.unwrap();
        task.finished.then_some(task)
    })
    .await;
    assert_eq!((done.status, done.lease_losses, done.retry_count), (TaskStatus::Completed, 0, 0), "{done:?}");
    worker.stop(Duration::from_secs(10)).await;
    drop(reaper);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Has the database take this many connections; -1: as many as its server.
async fn limit_connections(app: &TestApp, limit: i64) {
    let change = format!("ALTER DATABASE {} CONNECTION LIMIT {limit}", app.options.get_database().unwrap());
    sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&app.pool).await.unwrap();
}

#[tokio::test]
async fn a_heart_that_a_full_server_gives_no_connection_takes_one_of_its_worker_until_it_gets_one() {
    let app = idle().await;
    let pool = PgPoolOptions::new().connect_with(app.options.clone()).await.unwrap();
    let lent: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await.unwrap();
    until("the pool to have a connection to give", async || (pool.num_idle() == 1).then_some(())).await;
    limit_connections(&app, 1).await;
    let refused = PgConnection::connect_with(&app.options).await.unwrap_err();
    assert!(refused.to_string().contains("too many connections"), "{refused}");
    let options = app.options.clone();
    let (beaten, mut beats) = tokio::sync::mpsc::channel(1);
    let (go, going) = std::sync::mpsc::channel();
    let beating = tokio::task::spawn_blocking(move || {
        let mut heart = heart::factory(options, pool, || worker_row("full"))();
        let snapshot = TreeSnapshot {
            worker_id: "full".to_owned(),
            taken_at: chrono::Utc::now(),
            actors: 0,
            omitted: 0,
            totals: Vec::new(),
            lanes: Vec::new(),
            root: None,
        };
        while going.recv().is_ok() {
            beaten.blocking_send(heart.beat(&[], &snapshot)).unwrap();
        }
    });
    for _ in 0..2 {
        go.send(()).unwrap();
        beats.recv().await.unwrap().unwrap();
    }
    limit_connections(&app, -1).await;
    go.send(()).unwrap();
    beats.recv().await.unwrap().unwrap();
    until("the one that was lent to end", async || {
        let is_there = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)";
        let is_there: bool = sqlx::query_scalar(is_there).bind(lent).fetch_one(&app.pool).await.unwrap();
        (!is_there).then_some(())
    })
    .await;
    drop(go);
    beating.await.unwrap();
    let workers = app.client.list_workers(WorkerQuery::default()).await.unwrap().workers;
    assert_eq!(workers.iter().map(|worker| worker.worker_id.as_str()).collect::<Vec<_>>(), ["full"]);
    app.end().await;
}

#[tokio::test]
async fn few_free_connections_are_told_of() {
    let app = idle().await;
    let told = async || {
        let findings = app.client.list_findings().await.unwrap().findings;
        findings.into_iter().find(|finding| finding.kind == FindingKind::Connections)
    };
    assert_eq!(told().await, None);
    let sessions =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'";
    let sessions: i64 = sqlx::query_scalar(sessions).fetch_one(&app.pool).await.unwrap();
    limit_connections(&app, sessions + 4).await;
    let finding = told().await.expect("at most four are free");
    assert!(finding.about.ends_with(&format!(" of {} are free", sessions + 4)), "{finding:?}");
    assert!(finding.remedy.contains("SVC_DATABASE_POOL_SIZE"), "{finding:?}");
    let console = Console::of(&app).await;
    let page = console.text("/", &console.sign_in(TOKEN).await).await;
    assert!(page.contains("The database takes hardly any more connections"), "{page}");
    console.end().await;
    limit_connections(&app, -1).await;
    assert_eq!(told().await, None);
    app.end().await;
}

#[tokio::test]
async fn badges_bind_task_types_to_the_workers_that_have_them() {
    let badges = ("SVC_TASK_BADGES", r#"{"embed": "gpu"}"#);
    let app = TestApp::with(Wish { no_worker: true, settings: &[badges], ..Default::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let work = async |arguments: &[&str]| {
        let mut command = worker_command(&app, arguments);
        command.env(badges.0, badges.1);
        let output = run(command).await;
        assert!(output.status.success(), "{output:?}");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(!log.contains("closed pool"), "a worker that ends looks for nothing more: {log}");
    };
    let attempts = async || {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM task_attempts").fetch_one(&app.pool).await.unwrap();
        count
    };
    work(&["--badge", "cpu", "--max-tasks", "1"]).await;
    assert_eq!(attempts().await, 1);
    work(&["--badge", "cpu", "--drain"]).await;
    let left = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert!(!left.stages.is_empty() && left.stages.iter().all(|stage| stage.task_type == "embed"), "{left:?}");
    work(&["--badge", "cpu", "--badge", "gpu", "--drain"]).await;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_told_no_language_works_in_that_of_the_store() {
    let german = [("SVC_LANGUAGE", "german"), ("SVC_BM25_K1", "2.0")];
    let mut app = TestApp::with(Wish { settings: &german, ..Wish::default() }).await;
    svc::app::weigh_indexes(&app.pool, &app.service.settings).await.unwrap();
    let default = async || app.client.list_indexes(PageQuery::default()).await.unwrap().indexes.remove(0);
    until("the index to be built", async || (default().await.state == IndexState::Ready).then_some(())).await;
    // As a runner starts, or a service whose environment lacks these lines.
    svc::app::weigh_indexes(&app.pool, &support::settings(&[])).await.unwrap();
    let index = default().await;
    assert_eq!((index.analyzer.language, index.state), (IndexLanguage::German, IndexState::Ready));
    assert!(index.k1 > 1.9, "{index:?}");

    app.stop_worker().await;
    let text = "# Häuser\n\nAlte Häuser stehen am Hafen.\n";
    let id = app.upload_bytes("harbour.md", text).await.unwrap().document_id;
    let worked = run(worker_command(&app, &["--drain"])).await;
    assert!(worked.status.success(), "{worked:?}");
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    let wish = Wish { database: Some(app.options.clone()), no_worker: true, ..Wish::default() };
    let untold = TestApp::with(wish).await;
    for client in [&app.client, &untold.client] {
        let found = client.search_fulltext(Json(FulltextSearch::new("Haus"))).await.unwrap();
        assert!(!found.results.is_empty(), "a worker wrote the word in its singular");
    }
    untold.end().await;
    app.end().await;
}

#[tokio::test]
async fn the_nodes_that_fail_with_a_stopped_task_count_as_failed_by_the_cancel() {
    let badges = ("SVC_TASK_BADGES", r#"{"embed": "gpu"}"#);
    let app = TestApp::with(Wish { no_worker: true, settings: &[badges], ..Default::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let mut command = worker_command(&app, &["--badge", "cpu", "--drain"]);
    command.env(badges.0, badges.1);
    assert!(run(command).await.status.success());
    let claimer = Claimer { worker_id: "w".to_owned(), badges: None, strict: false, lease: SHORT_LEASE };
    let held = tasks::claim(&app.pool, &claimer, &[(Lane::Model, 1)]).await.unwrap().grants.remove(0);
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    // Makes the state in which the task is stopped before the cancel has come to its nodes.
    sqlx::query(
        "WITH unmarked AS (UPDATE documents SET settled = 'in_flight' WHERE path @> ARRAY[$1::bigint] AND usetype = 'chunk' RETURNING id),
         counted AS (INSERT INTO frontier_delta SELECT $1, 0, count(*), 0, -count(*) FROM unmarked),
         open AS (UPDATE ingest_node SET cancelled = true WHERE document_id = $1)
         UPDATE node_evidence SET value = jsonb_set(value, '{nodes_failed}', to_jsonb((value->>'nodes_failed')::bigint - (SELECT count(*) FROM unmarked)))
          WHERE document_id = $1 AND name = 'cancelled'",
    )
    .bind(id)
    .execute(&app.pool)
    .await
    .unwrap();
    let queue = PgQueue::new(&app.service.tools(), claimer, Duration::from_secs(60), None);
    assert!(queue.fail(&held, &TaskFailure::cancelled()).await.unwrap());
    queue.sweep().await.unwrap();
    let frontier = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!((frontier.nodes_in_flight, frontier.tasks_unfinished), (0, 0), "{frontier:?}");
    assert_eq!(evidence["cancelled"]["nodes_failed"], frontier.nodes_failed, "{frontier:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_worker_that_hardly_polls_is_woken_by_another_process() {
    let app = idle().await;
    let telling = wakeup::announce(app.pool.clone(), app.service.wake.clone(), None);
    let rarely = ["--poll-seconds", "3600", "--reap-seconds", "3600"];
    let mut worker = Process(worker_command(&app, &rarely).spawn().unwrap());
    // The worker looked into the queue when it began to listen, and does not look again. It only asks now and then
    // whether its connection still listens. This question names all of that too, and the pool may ask it on several
    // connections in turn, so it leaves itself out.
    until("the worker to listen and be quiet", async || {
        assert_eq!(worker.0.try_wait().unwrap(), None, "the worker has ended");
        let quiet: Option<bool> = sqlx::query_scalar(
            "SELECT bool_or(query LIKE 'LISTEN%' OR query = 'SELECT 1')
                    AND max(state_change) FILTER (WHERE query LIKE '%claim_batch%') < now() - interval '1 second'
               FROM pg_stat_activity WHERE datname = current_database() AND query NOT LIKE '%pg_stat_activity%'",
        )
        .fetch_one(&app.pool)
        .await
        .unwrap();
        quiet.filter(|quiet| *quiet).map(drop)
    })
    .await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    telling.abort();
    drop(worker);
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn work_that_is_too_young_to_be_announced_is_announced_once_it_has_waited() {
    let app = idle().await;
    let mut listener = PgListener::connect_with(&app.pool).await.unwrap();
    listener.listen("svc_tasks").await.unwrap();
    task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    let queued = async |ago: &str| {
        let query = format!("UPDATE task_queue SET created_at = clock_timestamp() - interval '{ago}'");
        sqlx::query(sqlx::AssertSqlSafe(query)).execute(&app.pool).await.unwrap();
    };
    queued("-1 hour").await;
    let telling = wakeup::announce(app.pool.clone(), app.service.wake.clone(), None);
    app.service.wake.notify(Lanes::ALL);
    until("a look at the young task", async || {
        let looked = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_notify%' AND query NOT LIKE '%pg_stat_activity%')";
        sqlx::query_scalar::<_, bool>(looked).fetch_one(&app.pool).await.unwrap().then_some(())
    })
    .await;
    queued("1 second").await;
    let said = tokio::time::timeout(support::PATIENCE, listener.recv()).await.expect("it is announced").unwrap();
    assert!(said.payload().ends_with(" io:1000"), "{said:?}");
    telling.abort();
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    drop(listener);
    app.end().await;
}

#[tokio::test]
async fn a_strict_worker_leaves_tasks_without_a_badge_and_the_service_says_so() {
    let app = idle().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let refused = run(worker_command(&app, &["--strict-badges"])).await;
    assert_eq!(refused.status.code(), Some(2), "strict about no badge: {refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("SVC_WORKER_BADGE"), "{refused:?}");
    let strict =
        Process(worker_command(&app, &["--badge", "gpu", "--strict-badges", "--worker-id", "strict"]).spawn().unwrap());
    let alive = async || {
        let list = app.client.list_workers(WorkerQuery::default()).await.unwrap().workers;
        list.into_iter().find(|worker| worker.worker_id == "strict" && worker.strict_badges)
    };
    until("the strict worker", alive).await;
    app.sampled().await;
    let failure = app.client.read_readiness().await.unwrap_err();
    assert!(failure.detail.contains("without a badge"), "{failure}");
    assert_eq!(
        app.client.read_frontier(DocumentPath { id }).await.unwrap().blocked_by[&BlockedBy::NoWorkerForBadge],
        1
    );
    drop(strict);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    sqlx::query("UPDATE documents SET settled = 'failed'").execute(&app.pool).await.unwrap();
    sqlx::query("DELETE FROM frontier_delta").execute(&app.pool).await.unwrap();
    app.end().await;
}

/// A message of a failure may quote a file.
#[tokio::test]
async fn a_worker_whose_snapshot_holds_a_nul_beats_nevertheless() {
    let app = idle().await;
    let row = worker_row("quotes");
    let snapshot = serde_json::json!({"last_failure": {"message": "expected `</w:p\0>`", "\0": 1}});
    let mut conn = app.pool.acquire().await.unwrap();
    workers::beat(&mut conn, &row, &snapshot).await.unwrap();
    let kept: serde_json::Value = sqlx::query_scalar("SELECT snapshot FROM workers WHERE worker_id = 'quotes'")
        .fetch_one(&mut *conn)
        .await
        .unwrap();
    assert_eq!(kept["last_failure"]["message"], "expected `</w:p>`");
    drop(conn);
    app.end().await;
}
