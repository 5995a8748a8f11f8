//! Listings with more rows than a page or a screen has.
use super::{lines, svc, text};
use crate::{
    principals::{grant, someone},
    support::{TestApp, Wish, document},
};
use serde_json::json;
use svc_client::{
    Json,
    wire::{DocumentPath, GrantRight, NewBatch, NewDocument, NewTemplate, WaitQuery},
};

/// What is said where rows are left out.
const MORE: &str = "raise --most";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_gets_every_row_and_who_gets_less_is_told_so() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut batch = vec![json!({"title": "Top", "content": "", "key": "top"})];
    batch.extend((0..205).map(|n| json!({"title": format!("Child {n}"), "content": "", "parent_key": "top"})));
    let batch: NewBatch = serde_json::from_value(json!({"documents": batch})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap().documents;
    for document in &made[1..=4] {
        app.client.protect_document(DocumentPath { id: document.document_id }).await.unwrap();
    }
    let top = made[0].document_id.to_string();
    for (arguments, all) in [(&["ls", &top][..], 205), (&["tree", &top], 206), (&["access", "audit"], 4)] {
        let listed = svc(&app, &[&["--json"], arguments].concat()).await;
        assert_eq!((lines(&listed).len(), text(&listed.stderr)), (all, String::new()), "{arguments:?}");
        let listed = svc(&app, &[arguments, &["--json", "--most", "3"]].concat()).await;
        assert_eq!(lines(&listed).len(), 3, "{arguments:?}");
        assert!(text(&listed.stderr).contains(MORE), "{arguments:?}: {}", text(&listed.stderr));
        for (most, is_told) in [(&["--most", "3"][..], true), (&[], all > 200), (&["--most", "206"], false)] {
            let listed = svc(&app, &[&["--table"], arguments, most].concat()).await;
            assert!(listed.status.success(), "{arguments:?}: {}", text(&listed.stderr));
            assert_eq!(text(&listed.stderr).contains(MORE), is_told, "{arguments:?} {most:?}");
        }
    }
    // What may be read under a document that may not is in the tree too.
    let new = NewDocument { parent_id: Some(made[1].document_id), ..document("Inner", "") };
    let inner = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, inner, GrantRight::Read).await;
    let tree = svc(&app, &["--table", "--token", &reader.secret, "tree", &top, "--most", "300"]).await;
    let tree = text(&tree.stdout);
    assert!(tree.contains(&format!("\n  {inner} markdown “Inner”")) && !tree.contains("“Child 0”"), "{tree}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_gets_a_line_for_each_template() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut made = Vec::new();
    for title in ["Greeting", "Farewell"] {
        let new = NewTemplate { title: title.to_owned(), content: "Heron".to_owned(), ..NewTemplate::default() };
        made.push(app.client.create_template(WaitQuery::default(), Json(new)).await.unwrap().id);
    }
    let listed = lines(&svc(&app, &["template", "list"]).await);
    let mut ids: Vec<i64> = listed.iter().map(|line| line["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, made);
    app.end().await;
}
