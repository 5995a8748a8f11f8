//! Who reaches what of a file that is still being ingested.
use crate::{
    principals::{grant, someone},
    support::{TestApp, sample, until},
};
use svc_client::{
    Code,
    wire::{DocumentPath, GrantRight, Settled, TaskTypePath},
};

/// A file that is still being ingested, in which the owner closes a section.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontier_counts_the_tasks_of_what_its_caller_may_read() {
    let app = TestApp::start().await;
    let one = someone(&app, "one").await;
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let scopes = "SELECT scope_document_id FROM task_queue WHERE root_id = $1 AND NOT final";
    let waiting: Vec<i64> = until("the tasks that embed", async || {
        let types: Vec<String> =
            sqlx::query_scalar("SELECT task_type FROM task_queue WHERE root_id = $1 AND NOT final")
                .bind(id)
                .fetch_all(&app.pool)
                .await
                .unwrap();
        let only_embed = !types.is_empty() && types.iter().all(|task_type| task_type == "embed");
        match only_embed {
            true => Some(sqlx::query_scalar(scopes).bind(id).fetch_all(&app.pool).await.unwrap()),
            false => None,
        }
    })
    .await;
    let frontier = async || one.client.read_frontier(DocumentPath { id }).await.unwrap();
    let (before, owners) = (frontier().await, app.client.read_frontier(DocumentPath { id }).await.unwrap());
    assert_eq!((before.tasks_unfinished, before.nodes_total), (owners.tasks_unfinished, owners.nodes_total));
    assert!(before.nodes_in_flight > 3 && before.settled == Settled::InFlight, "{before:?}");
    // A closed part takes its nodes and its tasks out of the counts, and the rest stays.
    let closed: i64 = sqlx::query_scalar("SELECT id FROM documents WHERE parent_id = $1 ORDER BY id LIMIT 1")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let hidden: Vec<i64> = sqlx::query_scalar("SELECT id FROM documents WHERE guard = $1")
        .bind(closed)
        .fetch_all(&app.pool)
        .await
        .unwrap();
    let after = frontier().await;
    let tasks = waiting.iter().filter(|scope| !hidden.contains(scope)).count() as i64;
    assert_eq!((after.nodes_total, after.tasks_unfinished), (before.nodes_total - hidden.len() as i64, tasks));
    assert_eq!(after.stages.iter().map(|stage| stage.pending).sum::<i64>(), tasks);
    assert_eq!(after.blocked_by.values().sum::<i64>(), tasks);
    let owners_after = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!(
        (owners_after.nodes_total, owners_after.tasks_unfinished),
        (owners.nodes_total, owners.tasks_unfinished)
    );
    // Who reads only the part is told nothing of the file.
    app.client.protect_document(DocumentPath { id }).await.unwrap();
    grant(&app, &one, closed, GrantRight::Read).await;
    let part = one.client.read_frontier(DocumentPath { id: closed }).await.unwrap();
    assert_eq!((part.nodes_total, part.priority), (hidden.len() as i64, None));
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    app.settled(id).await;
    app.end().await;
}

/// The owner closes and opens a file again and again while tasks make and settle its nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_closed_and_opened_while_it_is_ingested() {
    let app = TestApp::start().await;
    let one = someone(&app, "one").await;
    let text: String =
        (0..30).map(|n| format!("# Part {n}\n\nThe heron of part {n} waits by the water.\n\n")).collect();
    let id = app.upload_bytes("parts.md", text).await.unwrap().document_id;
    let path = DocumentPath { id };
    let mut changes = 0;
    loop {
        // Two changes that meet at the same rows may stop one of them, which says so.
        let closed = app.client.protect_document(path).await.map(drop);
        let opened = app.client.unprotect_document(path).await;
        for change in [closed, opened] {
            match change {
                Ok(()) => changes += 1,
                Err(failure) => assert!(matches!(failure.code, Code::Unavailable | Code::NotFound), "{failure}"),
            }
        }
        let frontier = app.client.read_frontier(path).await.unwrap();
        if frontier.nodes_in_flight == 0 && frontier.tasks_unfinished == 0 {
            break;
        }
    }
    assert!(changes > 4, "{changes}");
    app.client.protect_document(path).await.unwrap();
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let guards: Vec<i64> =
        sqlx::query_scalar("SELECT DISTINCT guard FROM documents").fetch_all(&app.pool).await.unwrap();
    assert_eq!(guards, [id]);
    assert_eq!(one.client.read_frontier(path).await.unwrap_err().code, Code::NotFound);
    app.end().await;
}
