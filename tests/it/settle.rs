//! Settling: the events of tasks that ended are taken, and what has nothing open under it settles.
use crate::support::{TestApp, Wish, invariants, sample};
use sqlx::PgConnection;
use svc::store::{
    ingest_nodes::{apply_events, commit_and_look},
    transaction,
};
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

#[tokio::test]
async fn who_settles_reads_the_events_of_its_roots_however_many_others_there_are() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut roots = Vec::new();
    for name in ["handbook.md", "release-notes.txt"] {
        roots.push(app.upload(&sample(name)).await.unwrap().document_id);
    }
    let (ours, other) = (RootId(roots[0]), roots[1]);
    let read = async |conn: &mut PgConnection| -> (i64, i64) {
        let query = "SELECT coalesce(sum(seq_scan), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint
                       FROM pg_stat_xact_user_tables WHERE relname IN ('settle_event', 'ingest_node', 'documents')";
        sqlx::query_as(query).fetch_one(conn).await.unwrap()
    };
    let settle = async || {
        tell(&app, ours.0, 2).await;
        let (mut tx, taken) = transaction::begin_settling(&app.pool, &[ours]).await.unwrap();
        assert_eq!(taken, [ours]);
        let before = read(&mut tx).await;
        let touched = apply_events(&mut tx, &taken).await.unwrap();
        assert_eq!(touched.iter().map(|node| node.document_id.0).collect::<Vec<_>>(), [ours.0]);
        let after = read(&mut tx).await;
        let left = commit_and_look(tx, &taken).await.unwrap();
        assert_eq!(left.iter().map(|left| (left.root_id, left.has_events)).collect::<Vec<_>>(), [(ours, false)]);
        (after.0 - before.0, after.1 - before.1)
    };
    settle().await;
    tell(&app, other, 5_000).await;
    let (scans, rows) = settle().await;
    assert_eq!(scans, 0);
    assert!(rows < 100, "{rows} rows were read");

    // What is told while somebody settles is left.
    tell(&app, ours.0, 1).await;
    let (mut tx, taken) = transaction::begin_settling(&app.pool, &[ours, RootId(other)]).await.unwrap();
    assert_eq!(taken, [ours, RootId(other)]);
    apply_events(&mut tx, &taken).await.unwrap();
    tell(&app, ours.0, 1).await;
    let left = commit_and_look(tx, &taken).await.unwrap();
    let left: Vec<(i64, bool)> = left.iter().map(|left| (left.root_id.0, left.has_events)).collect();
    assert_eq!(left, [(ours.0, true), (other, false)]);
    sqlx::query("DELETE FROM settle_event").execute(&app.pool).await.unwrap();
    invariants::check(&app.pool).await;
    app.end().await;
}
