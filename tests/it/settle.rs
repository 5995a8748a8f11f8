//! Settling: the events of tasks that ended are taken, and what has nothing open under it settles.
use crate::{
    edits::patched,
    support::{TestApp, Wish, invariants, sample, until},
};
use serde_json::{Value, json};
use sqlx::{
    PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    sync::Arc,
};
use svc::{
    ingest::settle,
    store::{
        ingest_nodes::{apply_events, commit_and_look},
        transaction,
    },
};
use svc_client::wire::{DocumentPath, Settled, TaskTypePath};
use svc_ids::RootId;

async fn tell(app: &TestApp, root: i64, times: i32) {
    sqlx::query(
        "INSERT INTO settle_event (root_id, document_id, done, failed) SELECT $1, $1, 0, 0 FROM generate_series(1, $2)",
    )
    .bind(root)
    .bind(times)
    .execute(&app.pool)
    .await
    .unwrap();
}

async fn run(pool: &PgPool, statement: &'static str) {
    sqlx::raw_sql(statement).execute(pool).await.unwrap();
}

#[tokio::test]
async fn who_settles_reads_what_is_of_its_roots_however_much_else_there_is() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut roots = Vec::new();
    for name in ["handbook.md", "release-notes.txt"] {
        roots.push(app.upload(&sample(name)).await.unwrap().document_id);
    }
    let (ours, other) = (RootId(roots[0]), roots[1]);
    // One connection keeps all plans, which are made while the tables are small and counted.
    let options = PgConnectOptions::clone(&app.pool.connect_options());
    let alone = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    run(&app.pool, "ANALYZE documents, ingest_node, settle_event").await;
    let read = async |conn: &mut PgConnection| -> i64 {
        let query = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_xact_user_tables
                      WHERE relname IN ('settle_event', 'ingest_node', 'documents', 'generations')";
        sqlx::query_scalar(query).fetch_one(conn).await.unwrap()
    };
    let settle = async || {
        tell(&app, ours.0, 2).await;
        let (mut tx, taken) = transaction::begin_settling(&alone, &[ours]).await.unwrap();
        assert_eq!(taken, [ours]);
        let before = read(&mut tx).await;
        let touched = apply_events(&mut tx, &taken).await.unwrap();
        assert_eq!(touched.iter().map(|node| node.document_id.0).collect::<Vec<_>>(), [ours.0]);
        let taking = read(&mut tx).await - before;
        let left = commit_and_look(tx, &taken).await.unwrap();
        assert_eq!(left.iter().map(|left| (left.root_id, left.has_events)).collect::<Vec<_>>(), [(ours, false)]);
        let mut tx = transaction::begin(&alone).await.unwrap();
        let before = read(&mut tx).await;
        sqlx::query("SELECT left_to_settle(ARRAY[$1::bigint])").bind(ours.0).execute(&mut *tx).await.unwrap();
        let looking = read(&mut tx).await - before;
        tx.rollback().await.unwrap();
        (taking, looking)
    };
    settle().await;
    tell(&app, other, 5).await;
    run(
        &app.pool,
        "INSERT INTO settle_event (root_id, document_id, done, failed) SELECT 1000000 + root, 1000000 + root, 0, 0 FROM generate_series(1, 5000) root;
         INSERT INTO documents (title, content, usetype, content_hash, guard) SELECT 'many', '', 'many', '', 0 FROM generate_series(1, 5000);
         INSERT INTO ingest_node (document_id, root_id, open_tasks, open_children, tokens) SELECT id, id, 0, 0, 0 FROM documents WHERE usetype = 'many'",
    )
    .await;
    let (taking, looking) = settle().await;
    assert!(taking < 100, "{taking} rows were read to take events");
    assert!(looking < 100, "{looking} rows were read to see what is left");
    let plans: String = sqlx::query_scalar("SHOW plan_cache_mode").fetch_one(&alone).await.unwrap();
    assert_eq!(plans, "auto", "how a transaction is planned ends with it");
    run(&app.pool, "DELETE FROM ingest_node n USING documents d WHERE d.id = n.document_id AND d.usetype = 'many'")
        .await;
    run(&app.pool, "DELETE FROM documents WHERE usetype = 'many'").await;

    // What is told while somebody settles is left.
    tell(&app, ours.0, 1).await;
    let (mut tx, taken) = transaction::begin_settling(&app.pool, &[ours, RootId(other)]).await.unwrap();
    assert_eq!(taken, [ours, RootId(other)]);
    apply_events(&mut tx, &taken).await.unwrap();
    tell(&app, ours.0, 1).await;
    let left = commit_and_look(tx, &taken).await.unwrap();
    let left: Vec<(i64, bool)> = left.iter().map(|left| (left.root_id.0, left.has_events)).collect();
    assert_eq!(left, [(ours.0, true), (other, false)]);
    run(&app.pool, "DELETE FROM settle_event").await;
    invariants::check(&app.pool).await;
    alone.close().await;
    app.end().await;
}

#[tokio::test]
async fn only_counts_that_do_not_fit_are_called_a_defect() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut roots = Vec::new();
    for name in ["handbook.md", "release-notes.txt"] {
        let id = app.upload(&sample(name)).await.unwrap().document_id;
        tell(&app, id, 1).await;
        roots.push(id);
    }
    let (refused, miscounted) = (roots[0], roots[1]);
    // One file has events that cannot be taken now, and the other one tells of a child more than it has.
    let refuse = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON ingest_node FOR EACH ROW WHEN (OLD.document_id = {refused}) EXECUTE FUNCTION refuse();
         UPDATE settle_event SET done = 1 WHERE root_id = {miscounted}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&app.pool).await.unwrap();
    let log = Arc::new(tempfile::tempfile().unwrap());
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::WARN).with_writer(log.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    assert!(!settle::take_left(&app.service).await.unwrap(), "nothing was queued");
    drop(guard);
    let mut log: &File = &log;
    log.seek(SeekFrom::Start(0)).unwrap();
    let lines = BufReader::new(log).lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let said: Vec<(i64, bool)> = lines
        .filter_map(|line| {
            let message = line["fields"]["message"].as_str().unwrap_or_default();
            let could_not = message.starts_with("this root could not be settled");
            could_not.then(|| (line["fields"]["root.id"].as_i64().unwrap(), message.contains("defect")))
        })
        .collect();
    assert_eq!(said, [(refused, false), (miscounted, true)]);
    let left: Vec<(i64, i32)> =
        sqlx::query_as("SELECT root_id, done FROM settle_event ORDER BY 1").fetch_all(&app.pool).await.unwrap();
    assert_eq!(
        left,
        [(refused, 0), (miscounted, 0)],
        "the one waits for the next sweep, and the other one was counted anew"
    );
    // Nor does a file that can neither be settled nor recounted keep the other one waiting.
    run(
        &app.pool,
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room' USING ERRCODE = 'check_violation'; END $$",
    )
    .await;
    assert!(!settle::take_left(&app.service).await.unwrap());
    let left = async || -> Vec<i64> {
        sqlx::query_scalar("SELECT root_id FROM settle_event ORDER BY 1").fetch_all(&app.pool).await.unwrap()
    };
    assert_eq!(left().await, [refused]);
    let trigger = "DROP TRIGGER refuse ON ingest_node";
    run(&app.pool, trigger).await;
    assert!(!settle::take_left(&app.service).await.unwrap());
    invariants::check(&app.pool).await;
    // The same holds where nothing is left that could settle them.
    let refuse = format!(
        "CREATE TRIGGER refuse BEFORE UPDATE ON ingest_node FOR EACH ROW WHEN (OLD.document_id = {refused}) EXECUTE FUNCTION refuse();
         DELETE FROM task_queue"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&app.pool).await.unwrap();
    settle::repair(&app.pool).await.unwrap();
    assert_eq!(left().await, [miscounted]);
    run(&app.pool, trigger).await;
    for id in roots {
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    app.end().await;
}

#[tokio::test]
async fn a_task_that_cannot_end_for_a_count_is_done_once_that_is_right() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("handbook.md")).await;
    let embeds = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embeds()).await.unwrap();
    let chunk = app.subtree(id).await.into_iter().find(|node| node.usetype == "chunk").unwrap();
    patched(&app, chunk.id, json!({"content": "The heron waits at the gauge."})).await;
    run(&app.pool, "UPDATE ingest_node SET open_tasks = 0").await;
    app.client.resume_task_type(embeds()).await.unwrap();
    let again = "UPDATE task_queue SET retry_after = clock_timestamp()
                  WHERE put_off_code = 'miscounted' AND NOT ready AND claim_token IS NULL";
    let frontier = until("the file to settle again", async || {
        run(&app.pool, again).await;
        let frontier = app.client.read_frontier(DocumentPath { id }).await.unwrap();
        frontier.is_at_rest().then_some(frontier)
    })
    .await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
