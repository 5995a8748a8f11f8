//! Documents that are created one by one, at the same moment.
use crate::support::{TestApp, Wish, until, until_a_statement_waits};
use serde_json::json;
use std::collections::HashMap;
use svc::store::transaction;
use svc_client::{
    Failure, Json,
    wire::{CreatedDocument, NewDocument, WaitQuery},
};
use tokio::task::JoinSet;

/// Has documents created by as many calls while none can be, and lets them go once all have come. Returns the answers by title.
async fn create(app: &TestApp, new: Vec<NewDocument>) -> HashMap<String, Result<CreatedDocument, Failure>> {
    let nobody_creates = transaction::begin_moving(&app.pool).await.unwrap();
    let (count, mut calls) = (new.len(), JoinSet::new());
    for new in new {
        let client = app.client.clone();
        calls.spawn(async move { (new.title.clone(), client.create_document(WaitQuery::default(), Json(new)).await) });
    }
    until("all calls to arrive", async || (app.service.requests.len() >= count).then_some(())).await;
    until_a_statement_waits(&app.pool).await;
    nobody_creates.rollback().await.unwrap();
    calls.join_all().await.into_iter().collect()
}

fn new(number: i32) -> NewDocument {
    let new = json!({
        "title": format!("Note {number}"), "content": format!("This is the text of note {number}."), "position": number, "priority": number,
        "usetype": format!("kind-{}", number % 3), "structured_content": {"number": number},
    });
    serde_json::from_value(new).unwrap()
}

#[tokio::test]
async fn documents_of_many_calls_share_transactions_and_each_call_is_told_of_its_own() {
    const CALLS: i32 = 40;
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let answers = create(&app, (0..CALLS).map(new).collect()).await;
    assert_eq!(answers.len(), CALLS as usize);
    for (number, new) in (0..CALLS).map(|number| (number, new(number))) {
        let told = &answers[&new.title].as_ref().unwrap().document;
        assert_eq!((&told.content, told.position), (&new.content, Some(number)));
        assert_eq!((Some(&told.usetype), &told.structured_content), (new.usetype.as_ref(), &new.structured_content));
        let stored: (String, i64, i64, i64, i64) = sqlx::query_as(
            "SELECT content, (SELECT count(*) FROM event_outbox e WHERE e.document_id = d.id AND e.kind = 'document.created'),
                    (SELECT count(*) FROM document_words w WHERE w.document_id = d.id AND w.words @@ to_tsquery('simple', 'text')),
                    (SELECT count(*) FROM documents other WHERE other.title = d.title),
                    (SELECT count(*) FROM task_queue t WHERE t.scope_document_id = d.id AND t.root_id = d.id AND t.task_type = 'embed')
               FROM documents d WHERE d.id = $1",
        )
        .bind(told.id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
        assert_eq!(stored, (new.content, 1, 1, 1, 1), "text, event, words, row and task of note {number}");
    }
    let (transactions, priorities): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(DISTINCT xmin::text) FROM documents), (SELECT count(DISTINCT priority) FROM task_queue)",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert!(transactions < i64::from(CALLS), "{transactions} transactions");
    assert_eq!(priorities, i64::from(CALLS), "each task has the priority of its own call");
    app.end().await;
}

#[tokio::test]
async fn what_one_document_breaks_keeps_no_other_one_out() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    sqlx::query("ALTER TABLE documents ADD CONSTRAINT odd CHECK (title <> 'Note 3')").execute(&app.pool).await.unwrap();
    let answers = create(&app, (0..10).map(new).collect()).await;
    sqlx::query("ALTER TABLE documents DROP CONSTRAINT odd").execute(&app.pool).await.unwrap();
    for (title, answer) in &answers {
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE title = $1")
            .bind(title)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert_eq!((answer.is_ok(), stored), (title != "Note 3", i64::from(title != "Note 3")), "{title}: {answer:?}");
    }
    app.end().await;
}
