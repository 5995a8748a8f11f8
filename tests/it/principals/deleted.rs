//! Calls that are under way while the principal that they are of, or for, is deleted.
use super::{Someone, idle, new_token, someone};
use crate::support::{TestApp, until_a_statement_waits};
use svc_client::{
    Code, Failure, Json,
    wire::{BatchItem, NewBatch, NewWebhook, PrincipalPath},
};

/// Why a call fails that finds this principal about to be deleted.
async fn refused<T>(app: &TestApp, who: &Someone, call: impl Future<Output = Result<T, Failure>>) -> Code {
    let mut deletion = app.pool.begin().await.unwrap();
    sqlx::query("DELETE FROM principals WHERE id = $1").bind(who.id).execute(&mut *deletion).await.unwrap();
    let ends = async {
        until_a_statement_waits(&app.pool).await;
        deletion.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(call, ends);
    answer.err().expect("the principal is gone").code
}

#[tokio::test]
async fn a_call_whose_principal_is_deleted_meanwhile_is_refused_like_the_next_one() {
    let app = idle().await;
    let (one, two, three) = (someone(&app, "one").await, someone(&app, "two").await, someone(&app, "three").await);
    let item = BatchItem { title: "t".into(), content: "c".into(), key: Some("k".into()), ..BatchItem::default() };
    let stores = one.client.create_documents(Json(NewBatch { documents: vec![item], priority: 0 }));
    assert_eq!(refused(&app, &one, stores).await, Code::Unauthenticated);
    let hook = NewWebhook { url: "https://example.org/hook".into(), kinds: None, root: None };
    assert_eq!(refused(&app, &two, two.client.create_webhook(Json(hook))).await, Code::Unauthenticated);
    let issues = app.client.issue_api_token(PrincipalPath { id: three.id }, Json(new_token("late")));
    assert_eq!(refused(&app, &three, issues).await, Code::NotFound);
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0);
    app.end().await;
}
