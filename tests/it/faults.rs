//! Faults in the surroundings of tasks and requests: a full disk, a server that takes no writes, another schema.
use crate::{
    admin::{run, worker_command},
    crash::url,
    support::{self, TOKEN, TestApp, Wish, disk::Disk, document, invariants, sample, until},
};
use serde_json::Value;
use sqlx::{Connection, PgConnection, PgPool};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};
use svc::{
    app::App,
    embedded::EmbeddedPostgres,
    reader::Reader,
    store::{kept::KeptConnections, schema},
};
use svc_client::{
    Client, Code, FileUpload, Json, Remote,
    wire::{
        CheckedPart, DocumentPath, EmbedQuery, Finding, FindingKind, HealthStatus, PageQuery, ReadinessCheck, Settled,
        UploadQuery, WaitQuery,
    },
};

async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Default::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_away_spends_no_attempt_of_a_sound_file() {
    let mut app = idle().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    sqlx::raw_sql(
        "CREATE TABLE fault (state text);
         CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
         DECLARE wanted text := (SELECT state FROM fault);
         BEGIN IF wanted IS NOT NULL THEN RAISE EXCEPTION 'a fault' USING ERRCODE = wanted; END IF; RETURN NEW; END $$;
         CREATE TRIGGER fault BEFORE INSERT ON node_evidence FOR EACH ROW EXECUTE FUNCTION fail();
         INSERT INTO fault VALUES ('53100')",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    app.start_worker().await;
    // It happens more often than a task may fail.
    for state in ["53100", "53200", "53300", "53400", "57P01", "57P03", "08006", "25006", "42703", "42P01"] {
        sqlx::query("UPDATE fault SET state = $1").bind(state).execute(&app.pool).await.unwrap();
        sqlx::query("UPDATE task_queue SET retry_after = now() - interval '1 second' WHERE NOT final")
            .execute(&app.pool)
            .await
            .unwrap();
        app.service.wake.notify(svc_actors::Lanes::ALL);
        until("the task to be put off", async || {
            sqlx::query_scalar::<_, i64>("SELECT id FROM task_queue WHERE claim_token IS NULL AND retry_after > now()")
                .fetch_optional(&app.pool)
                .await
                .unwrap()
        })
        .await;
        let (retries, is_final, attempts): (i32, bool, i64) =
            sqlx::query_as("SELECT retry_count, final, (SELECT count(*) FROM task_attempts) FROM task_queue")
                .fetch_one(&app.pool)
                .await
                .unwrap();
        assert_eq!((retries, is_final, attempts), (0, false, 0), "{state}");
    }
    sqlx::raw_sql("DROP TRIGGER fault ON node_evidence; UPDATE task_queue SET retry_after = now()")
        .execute(&app.pool)
        .await
        .unwrap();
    app.service.wake.notify(svc_actors::Lanes::ALL);
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Ends every other session of the database, so that the next ones see its present state.
async fn end_sessions(app: &TestApp) {
    let mut conn = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    conn.close().await.unwrap();
}

async fn alter(app: &TestApp, change: &str) {
    let mut conn = PgConnection::connect_with(&app.options).await.unwrap();
    let name = app.options.get_database().unwrap();
    sqlx::raw_sql("SET default_transaction_read_only = off").execute(&mut conn).await.unwrap();
    let change = format!("ALTER DATABASE {name} {change}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

#[tokio::test]
async fn on_a_server_that_became_read_only_reads_go_on_and_writes_are_503() {
    let app = idle().await;
    let id = app.client.create_document(WaitQuery::default(), Json(document("Before", "Text."))).await.unwrap().id;
    alter(&app, "SET default_transaction_read_only = on").await;
    end_sessions(&app).await;
    until("the sessions to be new", async || {
        app.client.read_document(DocumentPath { id }, Default::default()).await.ok()
    })
    .await;
    let refused =
        app.client.create_document(WaitQuery::default(), Json(document("During", "Text."))).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.members["retry_after"].as_u64().is_some()),
        (Code::Unavailable, true),
        "{refused}"
    );
    let upload = app.upload(&sample("handbook.md")).await.unwrap_err();
    assert_eq!((upload.code, upload.status), (Code::Unavailable, 503), "{upload}");
    let answer = app.raw("DELETE", &format!("/documents/{id}")).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    // What only reads the ledger of migrations still can, and a start says what is wrong.
    schema::read(&app.pool).await.unwrap().check().unwrap();
    schema::migrate(&app.pool).await.unwrap();
    // Whether a worker is alive nobody knows, because none can record it there. So the service, which has none, is ready.
    let ready = until("the service to know", async || {
        app.sampled().await;
        app.client.read_readiness().await.ok()
    })
    .await;
    let writes = ready.checks.iter().find(|check| check.name == CheckedPart::Writes).unwrap();
    assert!(ready.ready && !writes.ok && writes.detail.contains("takes no writes"), "{ready:?}");
    let workers = ready.checks.iter().find(|check| check.name == CheckedPart::Workers).unwrap();
    assert!(ready.workers.is_empty() && workers.detail.starts_with("not known"), "{ready:?}");
    assert_eq!(app.client.read_health().await.unwrap().status, HealthStatus::Degraded);
    let worker = run(worker_command(&app, &[])).await;
    let said = String::from_utf8_lossy(&worker.stderr).into_owned();
    assert!(!worker.status.success() && said.contains("takes no writes"), "{said}");
    let told = app.client.list_findings().await.unwrap().findings;
    for findings in [told, doctor(&app).await] {
        let read_only = findings.iter().find(|finding| finding.kind == FindingKind::ReadOnly).unwrap();
        assert!(read_only.remedy.contains("SVC_DATABASE_URL"), "{read_only:?}");
        assert!(findings.iter().all(|finding| finding.kind != FindingKind::Disk), "{findings:?}");
    }
    alter(&app, "RESET default_transaction_read_only").await;
    end_sessions(&app).await;
    until("writes again", async || {
        app.client.create_document(WaitQuery::default(), Json(document("After", "Text."))).await.ok()
    })
    .await;
    // The pool may hold a session that was ended.
    until("the test's own sessions to be new", async || {
        sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.ok()
    })
    .await;
    until("all of them", async || sqlx::query("SELECT wake_tasks()").execute(&app.pool).await.ok()).await;
    app.end().await;
}

/// What a doctor finds.
async fn doctor(app: &TestApp) -> Vec<Finding> {
    let said = String::from_utf8(run(worker_command(app, &["doctor", "--json"])).await.stdout).unwrap();
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let findings = lines.filter(|line| line.get("kind").is_some());
    findings.map(|finding| serde_json::from_value(finding).unwrap()).collect()
}

#[tokio::test]
async fn a_doctor_that_may_make_no_temporary_tables_tells_of_all_else() {
    let app = idle().await;
    let (name, user) = (app.options.get_database().unwrap(), app.options.get_username());
    let revoke = format!("REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC, {user}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(revoke)).execute(&app.pool).await.unwrap();
    let refused = sqlx::query("CREATE TEMPORARY TABLE refused ()").execute(&app.pool).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("42501"));
    let healthy = run(worker_command(&app, &["doctor"])).await;
    assert!(healthy.status.success(), "{healthy:?}");
    app.end().await;
}

/// What the service checks, measured now. It has no worker, and so is not ready.
async fn checks(app: &TestApp) -> Vec<ReadinessCheck> {
    app.sampled().await;
    let failure = app.client.read_readiness().await.unwrap_err();
    serde_json::from_value(failure.members["checks"].clone()).unwrap()
}

#[tokio::test]
async fn a_connection_to_a_server_that_takes_no_writes_is_not_used_again() {
    let app = idle().await;
    let create = async || app.client.create_document(WaitQuery::default(), Json(document("Written", "Text."))).await;
    alter(&app, "SET default_transaction_read_only = on").await;
    end_sessions(&app).await;
    until("a session that takes no writes", async || {
        create().await.err().filter(|failure| failure.detail.contains("takes no writes"))
    })
    .await;
    // As after a failover, those who connect from now on may write, and nobody ends the sessions that are there.
    alter(&app, "RESET default_transaction_read_only").await;
    until("a session that takes writes", async || create().await.ok()).await;
    until("the test's own sessions to be new", async || {
        sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.ok()
    })
    .await;
    app.end().await;
}

#[tokio::test]
async fn a_kept_connection_that_was_in_use_while_a_write_was_refused_is_not_used_again() {
    async fn process(conn: &mut PgConnection) -> sqlx::Result<i32> {
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(conn).await
    }
    let app = idle().await;
    // Each write is refused as by a server that takes none.
    sqlx::raw_sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'none' USING ERRCODE = '25006'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON documents FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let kept = KeptConnections::new(app.pool.clone());
    until("another connection", async || {
        let before = kept
            .run(async |conn| {
                sqlx::raw_sql("SET default_transaction_read_only = on").execute(&mut *conn).await?;
                let new = Json(document("Written", "Text."));
                let refused = app.client.create_document(WaitQuery::default(), new).await.unwrap_err();
                assert_eq!(refused.code, Code::Unavailable);
                process(conn).await
            })
            .await
            .unwrap();
        (kept.run(process).await.unwrap() != before).then_some(())
    })
    .await;
    drop(kept);
    sqlx::raw_sql("DROP TRIGGER refuse ON documents; DROP FUNCTION refuse()").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_database_that_answers_is_not_said_to_be_silent() {
    let app = idle().await;
    let database = async || {
        let checks = checks(&app).await;
        checks.into_iter().find(|check| check.name == CheckedPart::Database).unwrap()
    };
    assert!(database().await.ok);
    sqlx::raw_sql("ALTER TABLE paused_task_type RENAME TO elsewhere").execute(&app.pool).await.unwrap();
    let broken = database().await;
    assert!(!broken.ok && broken.detail.contains("answers, but its state cannot be read"), "{broken:?}");
    sqlx::raw_sql("ALTER TABLE elsewhere RENAME TO paused_task_type").execute(&app.pool).await.unwrap();
    assert!(database().await.ok);
    app.end().await;
}

pub(crate) fn serve(app: &TestApp) -> Command {
    let mut service = Command::new(env!("CARGO_BIN_EXE_svc"));
    service
        .args(["serve", "--config", "/dev/null"])
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", support::server::work_dir().join("data"))
        .envs(support::s3::of_all_tests(&app.options))
        .env("SVC_MIGRATE", "auto")
        .env("SVC_LISTEN", "127.0.0.1:0")
        .env("SVC_CONSOLE_LISTEN", "127.0.0.1:0")
        .env("SVC_API_TOKEN", TOKEN)
        .stdin(Stdio::null());
    service
}

#[tokio::test]
async fn nothing_works_on_a_newer_schema_and_all_say_why() {
    let app = idle().await;
    sqlx::raw_sql(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'of the future', true, '', 0)",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_svc"));
    migrate.args(["migrate", "--config", "/dev/null"]).env("SVC_DATABASE_URL", url(&app.options));
    let ours = schema::MIGRATIONS.iter().map(|migration| migration.version).max().unwrap();
    for command in [worker_command(&app, &[]), serve(&app), migrate] {
        let program = format!("{command:?}");
        let output = run(command).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{program}: {said}");
        for part in ["9999 (of the future)", env!("CARGO_PKG_VERSION"), &format!("up to {ours}"), "start the version"] {
            assert!(said.contains(part), "{program} does not say {part}: {said}");
        }
    }
    app.sampled().await;
    let not_ready = app.client.read_readiness().await.unwrap_err();
    assert!(not_ready.detail.contains("9999"), "{not_ready}");
    let workers: i64 = sqlx::query_scalar("SELECT count(*) FROM workers").fetch_one(&app.pool).await.unwrap();
    assert_eq!(workers, 0);
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version = 9999").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_read_for_which_a_disk_has_no_room_is_507_and_speaks_of_no_storing() {
    let app = idle().await;
    // As where a sort fills the disk of the database.
    sqlx::raw_sql(
        "CREATE FUNCTION has_room() RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$;
         ALTER TABLE usetype_presentations RENAME TO elsewhere;
         CREATE VIEW usetype_presentations AS SELECT * FROM elsewhere WHERE has_room()",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let refused = app.client.list_presentations().await.unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::StorageFull, 507), "{refused}");
    assert!(!refused.detail.contains("stored") && refused.members.contains_key("retry_after"), "{refused}");
    sqlx::raw_sql("DROP VIEW usetype_presentations; ALTER TABLE elsewhere RENAME TO usetype_presentations; DROP FUNCTION has_room()")
        .execute(&app.pool)
        .await
        .unwrap();
    app.client.list_presentations().await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_service_without_room_on_its_disk_stays_ready_and_reads_and_deletes() {
    let app = TestApp::start().await;
    let id = app.create("Kept", "A text.", None).await.id;
    until("the service to be sound", async || {
        app.sampled().await;
        (app.client.read_health().await.unwrap().status == HealthStatus::Ok).then_some(())
    })
    .await;
    app.service.disk.refused();
    let ready = app.client.read_readiness().await.unwrap();
    let disk = ready.checks.iter().find(|check| check.name == CheckedPart::Disk).unwrap();
    assert!(ready.ready && !disk.ok && disk.detail.contains("lack of space"), "{ready:?}");
    assert_eq!(app.client.read_health().await.unwrap().status, HealthStatus::Degraded);
    app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    app.end().await;
}

async fn count(pool: &PgPool, table: &str) -> i64 {
    let query = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_uploads_are_507_and_store_nothing_and_all_goes_on_once_it_is_freed() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = std::env::temp_dir().join(format!("svc-full-{}", std::process::id()));
    let Some(disk) = Disk::mount(&folder.join("disk"), 400) else {
        support::left_out("a full disk (this user may not mount)");
        let _ = std::fs::remove_dir_all(&folder);
        return;
    };
    let home = support::settings(&[]).postgres_home;
    let database = EmbeddedPostgres::start(&disk.0.join("database"), &home).await.unwrap();
    let options = database.connect_options();
    let (url, data_dir) = (url(&options), folder.join("data").display().to_string());
    let settings = support::settings(&[
        ("SVC_DATA_DIR", &data_dir),
        ("SVC_LISTEN", "127.0.0.1:0"),
        ("SVC_CONSOLE_LISTEN", "127.0.0.1:0"),
        ("SVC_DATABASE_URL", &url),
        ("SVC_MIGRATE", "auto"),
        ("SVC_WORKER_REAP_SECONDS", "1"),
    ]);
    let app =
        App::start(Arc::new(settings), TOKEN, Reader::new(PathBuf::from(env!("CARGO_BIN_EXE_svc")))).await.unwrap();
    let client = Client(Remote::new(&format!("http://{}", app.address), TOKEN, support::http()));
    until("the service to be ready", async || client.read_readiness().await.ok()).await;
    let file = |size: usize| {
        let bytes: Vec<u8> = (0..size).map(|_| rand::random::<u8>()).collect();
        client.upload_file(UploadQuery::default(), FileUpload::from_bytes("noise.bin", bytes, None))
    };
    let pool = PgPool::connect_with(options).await.unwrap();
    disk.fill();
    let refused = file(8 << 20).await.unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::StorageFull, 507), "{refused}");
    assert!(refused.members["remedy"].as_str().is_some_and(|remedy| remedy.contains("free space")), "{refused}");
    let large: String = (0..2_000_000).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect();
    let created = client.create_document(WaitQuery::default(), Json(document("Large", &large))).await.unwrap_err();
    assert_eq!(created.code, Code::StorageFull, "{created}");
    for table in ["documents", "document_blobs", "pg_largeobject_metadata", "task_queue"] {
        assert_eq!(count(&pool, table).await, 0, "{table}");
    }
    until("the service to be ready and to tell of its disk", async || {
        let ready = client.read_readiness().await.ok()?;
        ready.checks.into_iter().find(|check| check.name == CheckedPart::Disk && !check.ok)
    })
    .await;
    client.list_roots(PageQuery::default()).await.unwrap();
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_svc-worker"));
    doctor.args(["doctor", "--json", "--config", "/dev/null", "--log-level", "error"]);
    doctor.env("SVC_DATABASE_URL", &url).env("SVC_DATA_DIR", &data_dir).stdin(Stdio::null());
    let found = run(doctor).await;
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(!found.status.success() && said.contains(r#""kind":"disk""#), "{found:?}");
    disk.free();
    let text = "# After\n\nThe disk has room again.\n".as_bytes();
    let upload = || client.upload_file(UploadQuery::default(), FileUpload::from_bytes("after.md", text, None));
    let id = until("an upload to be taken again", async || upload().await.ok()).await.document_id;
    until("it to settle", async || {
        let frontier = client.read_frontier(DocumentPath { id }).await.unwrap();
        (frontier.settled == Settled::Settled).then_some(())
    })
    .await;
    invariants::check_drained(&pool).await;
    pool.close().await;
    app.stop(std::future::pending()).await;
    database.stop().await;
    drop(disk);
    let _ = std::fs::remove_dir_all(&folder);
}
