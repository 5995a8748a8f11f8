//! A principal with very many documents of its own.
use super::{idle, someone};
use crate::{edits::change, rdf::import, support::document};
use serde_json::json;
use svc_client::{
    Code, Json,
    wire::{DocumentPath, GrantPath, ImportQuery, NewBatch, NewDocument, UploadQuery, WaitQuery},
};

/// Each of them takes a grant, and each request looks up all grants of its caller.
#[tokio::test]
async fn so_many_documents_become_a_principals_own_and_others_go_under_one_of_them() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let first: i64 = sqlx::query_scalar(
        "WITH made AS (INSERT INTO documents (title, content, usetype, content_hash, guard)
                       SELECT 'note', 'heron', 'note', 'sha256:' || n, 0 FROM generate_series(1, 9999) n RETURNING id),
              roots AS (INSERT INTO access_roots (document_id, above) SELECT id, 0 FROM made),
              grants AS (INSERT INTO access_grants (principal_id, document_id, can_write) SELECT $1, id, true FROM made)
         SELECT min(id) FROM made",
    )
    .bind(one.id)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    sqlx::query("UPDATE documents SET guard = id WHERE usetype = 'note'").execute(&app.pool).await.unwrap();
    let private = |parent_id| NewDocument { private: true, parent_id, ..document("t", "c") };
    let under = |id| NewDocument { parent_id: Some(id), ..document("t", "c") };
    let last = one.creates(private(None)).await.unwrap().id;
    let inner = one.creates(under(last)).await.unwrap().id;

    let stored =
        async || -> i64 { sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap() };
    let before = stored().await;
    let batch: NewBatch =
        serde_json::from_value(json!({"documents": [{"title": "t", "content": "c", "private": true}]})).unwrap();
    let to_the_top = change(json!({"parent_id": null}));
    for refused in [
        one.creates(private(None)).await.unwrap_err(),
        one.creates(private(Some(last))).await.unwrap_err(),
        one.uploads(UploadQuery { private: true, ..UploadQuery::default() }, "A note.").await.unwrap_err(),
        one.client.create_documents(Json(batch)).await.unwrap_err(),
        import(&one.client, ImportQuery::default(), "<http://x/a> <http://x/p> '1' .").await.unwrap_err(),
        one.client.update_document(DocumentPath { id: inner }, WaitQuery::default(), to_the_top).await.unwrap_err(),
    ] {
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!("parent_id")), "{refused:?}");
        assert!(refused.members["remedy"].as_str().unwrap().contains("by `parent_id`"), "{refused:?}");
    }
    assert_eq!(stored().await, before, "nothing of what is refused stays");

    // What the remedy says is done, and so is what takes no grant.
    one.creates(under(last)).await.unwrap();
    let query = UploadQuery { parent_id: Some(last), ..UploadQuery::default() };
    one.uploads(query, "A note.").await.unwrap();
    one.creates(document("t", "c")).await.unwrap();
    app.client.delete_grant(GrantPath { id: first, principal_id: one.id }).await.unwrap();
    one.creates(private(None)).await.expect("there is one grant less");
    app.end().await;
}
