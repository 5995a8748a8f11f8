//! The page of a document: why it is not done, and who may do what about it.
use super::{Console, csrf};
use crate::{
    principals::someone,
    support::{TOKEN, TestApp, sample},
};
use reqwest::Method;
use svc_client::wire::{AuditAct, AuditQuery, DocumentPath};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_failed_file_says_why_and_offers_only_what_its_viewer_may_do() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let id = app.upload_bytes("broken.pdf", "%PDF-1.7\nnothing of the kind").await.unwrap().document_id;
    app.settled(id).await;
    let owner = console.sign_in(TOKEN).await;
    let page = console.text(&format!("/documents/{id}"), &owner).await;
    let (_, card) = page.split_once("Why is it not done?").unwrap();
    let (card, _) = card.split_once("</section>").unwrap();
    assert!(card.contains("It failed, and nothing more will be done.") && card.contains("permanent"), "{card}");
    let attempts = app.client.read_story(DocumentPath { id }).await.unwrap().entries;
    let last = attempts.iter().rev().find_map(|entry| entry.message.clone()).unwrap();
    let text = card.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    assert!(text.contains(&last), "{last}: {card}");
    assert!(page.contains("Retry what failed") && page.contains("/tasks/"));
    let reader = someone(&app, "reader").await;
    let cookie = console.sign_in(&reader.secret).await;
    let page = console.text(&format!("/documents/{id}"), &cookie).await;
    assert!(
        page.contains("permanent") && !page.contains("Retry what failed") && !page.contains("href=\"/tasks/"),
        "{page}"
    );
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_cannot_be_acted_on_and_a_number_leads_to_what_has_it() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let (id, _) = app.ingest(&sample("handbook.md")).await;
    let owner = console.sign_in(TOKEN).await;
    let token = csrf(&console.text("/", &owner).await);
    for (path, says) in [
        ("/documents/999999/retry", "there%20is%20no%20document%20999999"),
        ("/task-types/nope/resume", "there%20is%20no%20task%20type%20%60nope%60"),
        ("/task-types/nope/pause", "there%20is%20no%20task%20type%20%60nope%60"),
    ] {
        let answer = console.post(path, Some(&owner), &[("csrf", &token)]).send().await.unwrap();
        let notice = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(notice.contains(says), "{path}: {notice}");
    }
    let task: i64 = sqlx::query_scalar("SELECT min(id) FROM task_queue").fetch_one(&app.pool).await.unwrap();
    for (query, to) in [
        (id.to_string(), format!("/documents/{id}")),
        (format!("%23{task}"), format!("/tasks/{task}")),
        ("2024".to_owned(), "/documents?name=2024".to_owned()),
        ("%23999999".to_owned(), "/documents?name=%23999999".to_owned()),
    ] {
        let answer = console.send(Method::GET, &format!("/find?q={query}"), Some(&owner)).send().await.unwrap();
        assert_eq!(answer.headers()["location"].to_str().unwrap(), to, "{query}");
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_on_record() {
    let app = crate::admin::idle().await;
    let console = Console::of(&app).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let owner = console.sign_in(TOKEN).await;
    let token = csrf(&console.text("/", &owner).await);
    let cancel = console.post(&format!("/documents/{id}/cancel"), Some(&owner), &[("csrf", &token)]);
    assert_eq!(cancel.send().await.unwrap().status(), 303);
    let query = AuditQuery { document_id: Some(id), ..AuditQuery::default() };
    let entries = app.client.list_audit(query).await.unwrap().entries;
    assert_eq!(entries.iter().map(|entry| entry.act).collect::<Vec<_>>(), [AuditAct::IngestCancel]);
    assert!(console.text(&format!("/documents/{id}"), &owner).await.contains("ingest.cancel"));
    // What has ended cannot be cancelled, and nothing is recorded of that.
    console.post(&format!("/documents/{id}/cancel"), Some(&owner), &[("csrf", &token)]).send().await.unwrap();
    let query = AuditQuery { document_id: Some(id), ..AuditQuery::default() };
    assert_eq!(app.client.list_audit(query).await.unwrap().entries.len(), 1);
    console.end().await;
    app.end().await;
}
