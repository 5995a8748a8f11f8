//! Facts whose documents are deleted, closed and read anew at the same time.
use super::{doc, predicate, says, under};
use crate::{
    ontologies::load,
    principals::idle,
    support::{TestApp, place, until, until_a_statement_like_this_waits},
};
use svc::store::{access, documents, triples::follow};
use svc_client::{
    Code, Json, OptionalJson,
    wire::{DocumentPath, FactPath, NewFact, OnOverlap, OntologyQuery},
};
use svc_ids::DocumentId;

const PEN: &str = "SELECT take_pen()";

/// A fact about a document that each of these documents states.
async fn stated_by(app: &TestApp, about: i64, sources: &[i64]) -> i64 {
    predicate(app, "is").await;
    let mut id = 0;
    for source in sources {
        let source_id = Some(*source);
        let new = NewFact { source_id, on_overlap: Some(OnOverlap::Merge), ..says(about, "is", "known") };
        id = app.client.assert_fact(Json(new)).await.unwrap().fact.id;
    }
    id
}

/// How many facts are believed, and how the first one ended.
async fn facts(app: &TestApp) -> (i64, Option<String>) {
    let query =
        "SELECT count(*) FILTER (WHERE invalidated_at IS NULL), (array_agg(invalidation ORDER BY id))[1] FROM triples";
    sqlx::query_as(query).fetch_one(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_goes_to_no_document_that_is_deleted_at_the_same_time() {
    let app = idle().await;
    let [a, first, second] = [doc(&app, "A").await, doc(&app, "first").await, doc(&app, "second").await];
    stated_by(&app, a, &[first, second]).await;
    let mut deleting = app.pool.begin().await.unwrap();
    let second = place(&mut deleting, second).await;
    documents::delete_subtrees(&mut deleting, &[second]).await.unwrap();
    let client = app.client.clone();
    let other = tokio::spawn(async move { client.delete_document(DocumentPath { id: first }).await });
    until_a_statement_like_this_waits(&app.pool, PEN).await;
    deleting.commit().await.unwrap();
    other.await.unwrap().unwrap();
    assert_eq!(facts(&app).await, (0, Some("source_deleted".to_owned())));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_is_as_closed_as_the_document_that_it_goes_to_while_that_one_is_closed() {
    let app = idle().await;
    let [a, source, folder] = [doc(&app, "A").await, doc(&app, "source").await, doc(&app, "folder").await];
    let closed = under(&app, "closed", Some(folder)).await;
    stated_by(&app, a, &[source, closed]).await;
    let mut closing = app.pool.begin().await.unwrap();
    assert!(access::protect(&mut closing, DocumentId(folder)).await.unwrap());
    let client = app.client.clone();
    let deleting = tokio::spawn(async move { client.delete_document(DocumentPath { id: source }).await });
    until_a_statement_like_this_waits(&app.pool, PEN).await;
    closing.commit().await.unwrap();
    deleting.await.unwrap().unwrap();
    let zones: Vec<i64> =
        sqlx::query_scalar("SELECT zone FROM triples WHERE invalidated_at IS NULL").fetch_all(&app.pool).await.unwrap();
    assert_eq!(zones, [folder]);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_withdrawn_while_its_text_is_read_anew_stays_withdrawn() {
    let app = idle().await;
    let [a, first, second] = [doc(&app, "A").await, doc(&app, "first").await, doc(&app, "second").await];
    let id = stated_by(&app, a, &[first, second]).await;
    let mut pen = app.pool.begin().await.unwrap();
    sqlx::query(PEN).execute(&mut *pen).await.unwrap();
    let client = app.client.clone();
    let withdrawing = tokio::spawn(async move { client.invalidate_fact(FactPath { id }, OptionalJson(None)).await });
    until_a_statement_like_this_waits(&app.pool, PEN).await;
    let pool = app.pool.clone();
    let reading = tokio::spawn(async move {
        let mut tx = pool.begin().await.unwrap();
        follow::no_longer_stated(&mut tx, DocumentId(first), &[]).await.unwrap();
        tx.commit().await.unwrap();
    });
    until("both to wait", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query = 'SELECT take_pen()'";
        (sqlx::query_scalar::<_, i64>(waiting).fetch_one(&app.pool).await.unwrap() > 1).then_some(())
    })
    .await;
    pen.rollback().await.unwrap();
    withdrawing.await.unwrap().unwrap();
    reading.await.unwrap();
    assert_eq!(facts(&app).await, (0, Some("withdrawn".to_owned())));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ontology_says_nothing_of_a_predicate_that_is_deleted_at_the_same_time() {
    let app = idle().await;
    let id = predicate(&app, "is").await.id;
    let mut deleting = app.pool.begin().await.unwrap();
    sqlx::query("DELETE FROM predicates WHERE id = $1").bind(id).execute(&mut *deleting).await.unwrap();
    let client = app.client.clone();
    let text = "ex:becomes rdfs:subPropertyOf <urn:svc:predicate/default/is> .";
    let loading = tokio::spawn(async move { load(&client, OntologyQuery::default(), text).await });
    until_a_statement_like_this_waits(&app.pool, "SELECT id FROM predicates p WHERE id = ANY%").await;
    deleting.commit().await.unwrap();
    let refused = loading.await.unwrap().unwrap_err();
    assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &"predicate".into()));
    assert!(refused.detail.contains("there is no predicate `urn:svc:predicate/default/is`"), "{}", refused.detail);
    app.end().await;
}
