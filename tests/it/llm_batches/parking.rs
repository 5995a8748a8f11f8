//! Tasks that begin to wait for a batch in one transaction.
use crate::{
    queue::{app, claim, node, task},
    support::TestApp,
};
use svc::store::{
    llm_batches::{self, BatchCaps, Parked, Parking, Request},
    locks, transaction,
};
use svc_actors::{Grant, WriteMode};
use svc_ids::DocumentId;
use uuid::Uuid;

async fn parking(app: &TestApp, grant: &Grant) -> Parking {
    let hash: String = sqlx::query_scalar("SELECT content_hash FROM documents WHERE id = $1")
        .bind(grant.document_id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    let request = Request {
        custom_id: format!("task-{}", grant.task_id),
        asked: grant.task_id.0.to_le_bytes().to_vec(),
        line: "{}".to_owned(),
    };
    Parking {
        grant: grant.clone(),
        model: "m".to_owned(),
        requests: vec![request],
        sources: vec![(grant.document_id, hash)],
    }
}

async fn park(app: &TestApp, tasks: &[Parking]) -> Vec<Parked> {
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    let became = llm_batches::park(&mut tx, "mock", BatchCaps { requests: 2, bytes: 1 << 20 }, tasks).await.unwrap();
    tx.commit().await.unwrap();
    became
}

#[tokio::test]
async fn what_keeps_one_task_from_waiting_keeps_no_other_and_full_batches_are_closed() {
    let app = app().await;
    for _ in 0..6 {
        let root = node(&app, None).await;
        task(&app, &root, WriteMode::Itself, 0, None).await;
    }
    let grants = claim(&app, 6).await;
    let mut tasks = Vec::new();
    for grant in &grants {
        tasks.push(parking(&app, grant).await);
    }
    tasks[1].grant.token = Uuid::new_v4();
    tasks[2].sources[0].1 = "another text".to_owned();
    // Somebody deletes in the tree of the fourth.
    let mut deleting = transaction::begin(&app.pool).await.unwrap();
    locks::tree(&mut deleting, DocumentId(tasks[3].grant.document_id.0)).await.unwrap();
    assert_eq!(
        park(&app, &tasks).await,
        [Parked::Waits, Parked::Lost, Parked::Changed, Parked::Later, Parked::Waits, Parked::Waits]
    );
    deleting.rollback().await.unwrap();
    assert_eq!(park(&app, &tasks[3..4]).await, [Parked::Waits]);
    // Who waits already is not claimed any more.
    assert_eq!(park(&app, &tasks[4..5]).await, [Parked::Lost]);
    let batches: Vec<(String, i32, i64, i64)> = sqlx::query_as(
        "SELECT b.state::text, b.requests, b.bytes, (SELECT count(*) FROM llm_batch_requests q JOIN task_queue t ON t.id = q.task_id AND t.batch_id = b.id::text AND t.status = 'batched'
                                           WHERE q.batch_id = b.id) FROM llm_batches b ORDER BY b.id",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert_eq!(batches, [("closed".to_owned(), 2, 6, 2), ("open".to_owned(), 2, 6, 2)]);
    let attempts: Vec<i64> =
        sqlx::query_scalar("SELECT task_id FROM task_attempts WHERE outcome = 'batched' ORDER BY task_id")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    let waiting = [0, 3, 4, 5].map(|at: usize| grants[at].task_id.0);
    assert_eq!(attempts, waiting);
    app.end().await;
}
