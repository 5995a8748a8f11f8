//! Which lost leases count: those of workers that are gone.
use crate::{
    admin::worker_command,
    crash::Process,
    queue::{app, claimer, finish, node, status, task},
    support::{TestApp, invariants, sample, until},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sqlx::Connection;
use std::time::Duration;
use svc::{
    store::{
        admin,
        advisory::AdvisoryLock,
        leases::{self, Lapsed},
        tasks::{self, Claimer, NewTask},
        upkeep,
        workers::{self, WorkerRow},
    },
    worker::queue::PgQueue,
};
use svc_actors::{Grant, Lane, Queue, TaskFailure, WriteMode};
use svc_client::wire::{DocumentPath, ErrorType, FindingKind, Settled, TaskPath, WorkerQuery};
use svc_ids::{DocumentId, RootId, TaskId};
use uuid::Uuid;

/// So short that it has expired by the next look.
const LEASE: Duration = Duration::from_millis(50);

/// The worker "w" presents itself, or sends a heartbeat.
async fn beat(app: &TestApp, boot_nonce: Uuid) {
    let row = WorkerRow {
        worker_id: "w".to_owned(),
        boot_nonce,
        version: "test".to_owned(),
        badges: Vec::new(),
        strict: false,
        holds_folder: false,
        task_types: vec!["test".to_owned()],
        lease: LEASE,
    };
    workers::beat(&mut app.pool.acquire().await.unwrap(), &row, &serde_json::json!({})).await.unwrap();
}

/// Claims with a lease that expires soon.
async fn claim(app: &TestApp, count: usize) -> Vec<Grant> {
    let claimer = Claimer { lease: LEASE, ..claimer("w") };
    tasks::claim(&app.pool, &claimer, &[(Lane::Io, count)]).await.unwrap().grants
}

/// Writes that a task runs, as its worker does before a task begins that runs alone.
async fn start(app: &TestApp, grant: &Grant) {
    let mut conn = app.pool.acquire().await.unwrap();
    assert_eq!(tasks::start(&mut conn, &[grant.task_id], &[grant.token], LEASE).await.unwrap(), [grant.token]);
}

/// Takes back what has expired, once it has.
async fn reap(app: &TestApp) -> leases::Reaped {
    until("the lease to run out", async || {
        let mut tx = app.pool.begin().await.unwrap();
        let reaped = leases::reap(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        (!reaped.again.is_empty() || !reaped.to_end.is_empty()).then_some(reaped)
    })
    .await
}

/// The losses of a task that count, and all of its leases that expired.
async fn losses(app: &TestApp, id: TaskId) -> (i32, i32) {
    sqlx::query_as("SELECT lease_losses, lapses FROM task_queue WHERE id = $1")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_task_that_kills_its_worker_three_times_is_given_up() {
    let app = app().await;
    let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    let last_error = async || app.client.read_task(TaskPath { id: id.0 }).await.unwrap().last_error.unwrap().code;
    // Each time the task was put off before.
    let put_off = async || {
        let grant = claim(&app, 1).await.remove(0);
        let away = TaskFailure::away("runner_away", "the runner is away");
        let mut conn = app.pool.acquire().await.unwrap();
        assert!(upkeep::put_off(&mut conn, &grant, &away, Duration::ZERO).await.unwrap());
        drop(conn);
        assert_eq!(last_error().await.as_deref(), Some("runner_away"));
    };
    for _ in 0..2 {
        put_off().await;
        // Each time it is another start under the same name.
        beat(&app, Uuid::new_v4()).await;
        let grant = claim(&app, 1).await.remove(0);
        if grant.runs_alone {
            start(&app, &grant).await;
        }
        assert_eq!(reap(&app).await.again, [Lapsed { id, counts: true }]);
        assert_eq!(last_error().await.as_deref(), Some("lease_expired"), "it says why it waits now");
    }
    put_off().await;
    beat(&app, Uuid::new_v4()).await;
    let last = claim(&app, 1).await.remove(0);
    start(&app, &last).await;
    assert_eq!(last.attempt, 3);
    assert_eq!(reap(&app).await.to_end.len(), 1);
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), LEASE, None);
    assert_eq!(queue.reap().await.unwrap(), 1);
    let task = app.client.read_task(TaskPath { id: id.0 }).await.unwrap();
    assert_eq!((task.finished, task.error_type, task.lease_losses), (true, Some(ErrorType::Timeout), 3), "{task:?}");
    assert_eq!(last_error().await.as_deref(), Some("lease_expired"), "it says why it failed");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_task_that_cannot_be_ended_keeps_neither_others_held_nor_the_upkeep_away() {
    let app = app().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await);
    }
    beat(&app, Uuid::new_v4()).await;
    for grant in claim(&app, 2).await {
        start(&app, &grant).await;
    }
    let refuse = format!(
        "UPDATE task_queue SET lease_losses = 2;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON task_queue FOR EACH ROW WHEN (NEW.final AND NEW.id = {}) EXECUTE FUNCTION refuse()",
        ids[0].0
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&app.pool).await.unwrap();
    until("both leases to run out", async || (reap(&app).await.to_end.len() == 2).then_some(())).await;
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), LEASE, None);
    queue.reap().await.unwrap_err();
    let finished = async |id: TaskId| app.client.read_task(TaskPath { id: id.0 }).await.unwrap().finished;
    assert_eq!((finished(ids[0]).await, finished(ids[1]).await), (false, true));
    let turns = "SELECT count(*) FROM upkeep_turn WHERE name = 'unserved'";
    assert_eq!(sqlx::query_scalar::<_, i64>(turns).fetch_one(&app.pool).await.unwrap(), 1, "the upkeep went on");
    sqlx::query("DROP TRIGGER refuse ON task_queue").execute(&app.pool).await.unwrap();
    assert_eq!(queue.reap().await.unwrap(), 1);
    assert!(finished(ids[0]).await);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_task_ends_though_the_count_of_its_node_does_not_fit() {
    let app = app().await;
    let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let embed = NewTask {
        task_type: "embed",
        lane: Lane::Model,
        document_id: DocumentId(file),
        path: &[],
        root_id: RootId(file),
        write_mode: WriteMode::Itself,
        leaves: None,
        dependencies: &[],
        params: &json!({"leaves": []}),
        badge: None,
        priority: 0,
        traceparent: None,
    };
    // The node of the file counts none of its tasks, of which the probe still waits.
    let held = async || {
        tasks::enqueue(&mut app.pool.acquire().await.unwrap(), &embed).await.unwrap();
        sqlx::query("UPDATE ingest_node SET open_tasks = 0").execute(&app.pool).await.unwrap();
        tasks::claim(&app.pool, &claimer("w"), &[(Lane::Model, 1)]).await.unwrap().grants.remove(0)
    };
    let ended = async |grant: &Grant| {
        let task = app.client.read_task(TaskPath { id: grant.task_id.0 }).await.unwrap();
        let open = "SELECT open_tasks FROM ingest_node";
        let open: i32 = sqlx::query_scalar(open).fetch_one(&app.pool).await.unwrap();
        (task.finished, open)
    };
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), LEASE, None);
    let failed = held().await;
    assert!(queue.fail(&failed, &TaskFailure::permanent("corrupt", "it is not whole")).await.unwrap());
    assert_eq!(ended(&failed).await, (true, 1), "the probe is counted again");
    let cancelled = held().await;
    sqlx::query("UPDATE task_queue SET cancel_requested_at = clock_timestamp() WHERE id = $1")
        .bind(cancelled.task_id)
        .execute(&app.pool)
        .await
        .unwrap();
    queue.give_back(&[cancelled.token]).await.unwrap();
    assert_eq!(ended(&cancelled).await, (true, 1));
    invariants::check(&app.pool).await;
    app.client.delete_document(DocumentPath { id: file }).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_task_that_waits_to_run_alone_is_not_blamed_for_what_another_one_does() {
    let app = app().await;
    let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    beat(&app, Uuid::new_v4()).await;
    assert!(!claim(&app, 1).await[0].runs_alone);
    assert_eq!(reap(&app).await.again, [Lapsed { id, counts: true }], "a short task runs before anybody writes so");
    // It waits for the others of its worker, one of which takes the worker down, however often that happens.
    for lapses in 2..6 {
        beat(&app, Uuid::new_v4()).await;
        assert!(claim(&app, 1).await[0].runs_alone);
        assert_eq!(reap(&app).await.again, [Lapsed { id, counts: false }]);
        assert_eq!(losses(&app, id).await, (1, lapses));
    }
    beat(&app, Uuid::new_v4()).await;
    let begun = claim(&app, 1).await.remove(0);
    start(&app, &begun).await;
    assert_eq!(reap(&app).await.again, [Lapsed { id, counts: true }]);
    // What always keeps it from beginning ends it in the end.
    sqlx::query("UPDATE task_queue SET lapses = 100").execute(&app.pool).await.unwrap();
    beat(&app, Uuid::new_v4()).await;
    assert_eq!(claim(&app, 1).await.len(), 1);
    assert_eq!(reap(&app).await.to_end.len(), 1);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_worker_that_is_there_again_costs_its_tasks_nothing() {
    let app = app().await;
    let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    let boot = Uuid::new_v4();
    // The worker is back before anybody looks.
    for round in 1..5 {
        beat(&app, boot).await;
        assert_eq!(claim(&app, 1).await[0].attempt, round);
        sqlx::query("UPDATE task_queue SET lease_until = now() - interval '1 hour', heartbeat_at = now() - interval '1 hour' WHERE id = $1")
            .bind(id)
            .execute(&app.pool)
            .await
            .unwrap();
        sqlx::query(
            "UPDATE workers SET started_at = now() - interval '2 hours', beat_at = now(), lease = interval '1 hour'",
        )
        .execute(&app.pool)
        .await
        .unwrap();
        assert_eq!(reap(&app).await.again, [Lapsed { id, counts: false }]);
        assert_eq!(losses(&app, id).await, (0, round));
    }
    // The worker is back after the loss was counted.
    beat(&app, boot).await;
    for _ in 0..2 {
        let grant = claim(&app, 1).await.remove(0);
        start(&app, &grant).await;
        assert_eq!(reap(&app).await.again, [Lapsed { id, counts: true }]);
    }
    assert_eq!(losses(&app, id).await, (2, 6));
    beat(&app, boot).await;
    let mut tx = app.pool.begin().await.unwrap();
    leases::reap(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(losses(&app, id).await, (0, 6));
    // Its process is a new one: the task may well have killed the old one.
    assert_eq!(claim(&app, 1).await.len(), 1);
    beat(&app, Uuid::new_v4()).await;
    assert_eq!(reap(&app).await.again, [Lapsed { id, counts: true }]);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_loss_over_a_restart_of_the_server_counts_only_after_the_tenth() {
    let app = app().await;
    let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    for round in 1..=11 {
        beat(&app, Uuid::new_v4()).await;
        assert_eq!(claim(&app, 1).await.len(), 1);
        for change in [
            "UPDATE task_queue SET lease_until = now() - interval '1 minute', heartbeat_at = pg_postmaster_start_time() - interval '1 minute' WHERE claim_token IS NOT NULL",
            "UPDATE workers SET started_at = pg_postmaster_start_time() - interval '1 hour', beat_at = pg_postmaster_start_time() - interval '1 minute'",
        ] {
            sqlx::query(change).execute(&app.pool).await.unwrap();
        }
        if round % 2 == 0 {
            // A container that starts again has the name that it had.
            beat(&app, Uuid::new_v4()).await;
        }
        assert_eq!(reap(&app).await.again, [Lapsed { id, counts: round == 11 }], "round {round}");
    }
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn what_a_dead_holder_of_the_data_folder_held_comes_back_at_once_and_what_others_hold_stays() {
    let app = app().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await);
    }
    let look = async || {
        let mut tx = app.pool.begin().await.unwrap();
        let reaped = leases::reap_holders_of_folder(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        assert!(reaped.to_end.is_empty(), "{reaped:?}");
        reaped.again
    };
    let mut held = Vec::new();
    for (worker_id, holds_folder) in [("beside", false), ("service", true)] {
        assert!(look().await.is_empty(), "nobody of that folder is dead");
        let row = WorkerRow {
            worker_id: worker_id.to_owned(),
            boot_nonce: Uuid::new_v4(),
            version: "test".to_owned(),
            badges: Vec::new(),
            strict: false,
            holds_folder,
            task_types: vec!["test".to_owned()],
            lease: crate::queue::LEASE,
        };
        workers::beat(&mut app.pool.acquire().await.unwrap(), &row, &serde_json::json!({})).await.unwrap();
        held.extend(tasks::claim(&app.pool, &claimer(worker_id), &[(Lane::Io, 1)]).await.unwrap().grants);
    }
    // The last task was held when three services died.
    held.extend(tasks::claim(&app.pool, &claimer("service"), &[(Lane::Io, 1)]).await.unwrap().grants);
    sqlx::query("UPDATE task_queue SET lapses = 3 WHERE id = $1").bind(ids[2]).execute(&app.pool).await.unwrap();
    // After such a death, another server runs on the data folder.
    for change in [
        "UPDATE task_queue SET heartbeat_at = pg_postmaster_start_time() - interval '1 second' WHERE claimed_by = 'service'",
        "UPDATE workers SET started_at = pg_postmaster_start_time() - interval '1 second' - lease / 2, beat_at = pg_postmaster_start_time() - interval '1 second'
          WHERE worker_id = 'service'",
    ] {
        sqlx::query(change).execute(&app.pool).await.unwrap();
    }
    // Somebody beside it looks at the leases at that moment.
    let mut reaper = app.pool.begin().await.unwrap();
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(AdvisoryLock::Reap.key());
    lock.execute(&mut *reaper).await.unwrap();
    assert_eq!(look().await, [Lapsed { id: ids[1], counts: false }]);
    assert!(look().await.is_empty());
    reaper.rollback().await.unwrap();
    assert_eq!(status(&app, ids[0]).await.0, "claimed");
    assert_eq!(status(&app, ids[2]).await.0, "claimed", "it waits for the lease");
    assert_eq!(status(&app, ids[1]).await, ("pending".to_owned(), true, None));
    let alive = workers::alive(&mut app.pool.acquire().await.unwrap()).await.unwrap();
    assert_eq!(alive.iter().map(|worker| worker.worker_id.as_str()).collect::<Vec<_>>(), ["beside"]);
    // A service that served for longer than a lease before it died shows that the next one will have time to serve.
    sqlx::query("UPDATE workers SET started_at = beat_at - 2 * lease WHERE worker_id = 'service'")
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(look().await, [Lapsed { id: ids[2], counts: false }]);
    assert!(finish(&app.pool, &held[0]).await);
    assert!(!finish(&app.pool, &held[1]).await && !finish(&app.pool, &held[2]).await);
    for (id, attempt) in [(ids[1], 2), (ids[2], 5)] {
        let again = tasks::claim(&app.pool, &claimer("next"), &[(Lane::Io, 1)]).await.unwrap().grants.remove(0);
        assert_eq!((again.task_id, again.attempt), (id, attempt));
        assert!(finish(&app.pool, &again).await);
    }
    app.end().await;
}

#[tokio::test]
async fn a_worker_that_is_stopped_past_its_lease_and_goes_on_costs_its_tasks_nothing() {
    let app = app().await;
    let timing =
        ["--heartbeat-seconds", "0.5", "--lease-seconds", "2", "--reap-seconds", "0.2", "--poll-seconds", "0.1"];
    let reaper = [&["--badge", "none", "--strict-badges", "--worker-id", "reaper"][..], &timing[..]].concat();
    let _reaper = Process(worker_command(&app, &reaper).spawn().unwrap());
    let victim =
        Process(worker_command(&app, &[&["--worker-id", "victim"][..], &timing[..]].concat()).spawn().unwrap());
    until("both workers", async || {
        (app.client.list_workers(WorkerQuery::default()).await.unwrap().workers.len() == 2).then_some(())
    })
    .await;
    let pid = Pid::from_child(&victim.0);
    let mut locker = sqlx::PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE extractions IN SHARE MODE").execute(&mut locker).await.unwrap();
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let lost = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM task_attempts WHERE outcome = 'lease_lost'")
            .fetch_one(&app.pool)
            .await
            .unwrap()
    };
    // This is one more than a task may lose.
    for stops in 1..=4 {
        until("the task that waits for the lock", async || {
            let held: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM task_queue WHERE claimed_by = 'victim' AND claim_token IS NOT NULL AND task_type = 'extract:text'",
            )
            .fetch_one(&app.pool)
            .await
            .unwrap();
            (held > 0).then_some(())
        })
        .await;
        kill_process(pid, Signal::STOP).unwrap();
        until("the loss of its lease", async || (lost().await >= stops).then_some(())).await;
        kill_process(pid, Signal::CONT).unwrap();
        until("the loss to be forgiven", async || {
            let counted: i64 = sqlx::query_scalar("SELECT coalesce(sum(lease_losses), 0) FROM task_queue")
                .fetch_one(&app.pool)
                .await
                .unwrap();
            (counted == 0).then_some(())
        })
        .await;
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut locker).await.unwrap();
    locker.close().await.unwrap();
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    drop(victim);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn workers_with_unequal_leases_are_told_of() {
    let app = app().await;
    let findings = async || {
        let mut conn = app.pool.acquire().await.unwrap();
        let patience = Duration::from_secs(600);
        let found = admin::findings(&mut conn, patience, patience, admin::Outside::default()).await.unwrap();
        found.into_iter().filter(|finding| finding.kind == FindingKind::UnequalLeases).collect::<Vec<_>>()
    };
    let join = async |worker_id: &str, seconds: f64| {
        sqlx::query("INSERT INTO workers (worker_id, boot_nonce, version, badges, task_types, lease) VALUES ($1, gen_random_uuid(), 'test', '{}', '{}', make_interval(secs => $2))")
            .bind(worker_id)
            .bind(seconds)
            .execute(&app.pool)
            .await
            .unwrap();
    };
    beat(&app, Uuid::new_v4()).await;
    sqlx::query("UPDATE workers SET lease = interval '90 seconds', beat_at = now()").execute(&app.pool).await.unwrap();
    join("same", 90.0).await;
    assert!(findings().await.is_empty());
    join("hasty", 5.0).await;
    let found = findings().await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].about.contains("5 s of hasty") && found[0].about.contains("90 s of"), "{found:?}");
    assert!(found[0].remedy.contains("SVC_WORKER_LEASE_SECONDS"));
    // A worker that is gone holds nothing.
    sqlx::query("UPDATE workers SET beat_at = now() - interval '1 hour' WHERE worker_id = 'hasty'")
        .execute(&app.pool)
        .await
        .unwrap();
    assert!(findings().await.is_empty());
    app.end().await;
}
