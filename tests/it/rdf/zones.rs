//! Graphs of different callers beside each other.
use super::{import, node, under};
use crate::{
    principals::{grant, idle, someone},
    support::document,
    triples::{doc, predicate},
};
use svc_client::{
    Client, Json, Remote,
    wire::{DocumentPath, GrantRight, ImportQuery, NewDocument, NewFact, WaitQuery},
};

/// What a principal imports decides neither where the owner's imports come to lie nor what the owner means by an IRI.
#[tokio::test]
async fn nobody_takes_in_what_another_imports() {
    let app = idle().await;
    let [one, other] = [someone(&app, "one").await, someone(&app, "other").await];
    let shared = doc(&app, "Shared").await;
    app.client.protect_document(DocumentPath { id: shared }).await.unwrap();
    for who in [&one, &other] {
        grant(&app, who, shared, GrantRight::Write).await;
    }
    for (query, iri) in [
        (ImportQuery::default(), "urn:svc:entities".to_owned()),
        (under(shared), format!("urn:svc:entities/{}", other.id)),
        (under(shared), "urn:svc:entities/of/0".to_owned()),
    ] {
        let refused = import(&one.client, query, &format!("<{iri}> <http://x/p> '1' .")).await.unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains(&iri), "{refused:?}");
    }
    // One that came in another way changes nothing either.
    let planted = under_parent(&one.client, shared).await;
    sqlx::query("INSERT INTO graph_nodes (document_id, iri, blank) VALUES ($1, 'urn:svc:entities', false)")
        .bind(planted)
        .execute(&app.pool)
        .await
        .unwrap();
    import(&app.client, ImportQuery::default(), "<http://secret/a> <http://secret/says> 'a secret' .").await.unwrap();
    let [made] = node(&app, "http://secret/a").await[..] else { panic!("one document") };
    let path: Vec<i64> = sqlx::query_scalar("SELECT path FROM documents WHERE id = $1").bind(made).fetch_one(&app.pool).await.unwrap();
    assert!(!path.contains(&planted) && !path.contains(&shared), "{path:?}");

    import(&one.client, ImportQuery::default(), "<http://acme/ceo> <http://acme/leads> <http://acme/it> .").await.unwrap();
    let salary = |source_id: Option<i64>| NewFact {
        subject_iri: Some("http://acme/ceo".to_owned()),
        predicate: Some("salary".to_owned()),
        object_literal: Some("400000".to_owned()),
        source_id,
        ..NewFact::default()
    };
    predicate(&app, "salary").await;
    let refused = app.client.assert_fact(Json(salary(None))).await.unwrap_err();
    assert_eq!((refused.status, refused.members["field"].as_str()), (422, Some("subject_iri")), "{refused:?}");
    // The principal means its own.
    let [own] = node(&app, "http://acme/ceo").await[..] else { panic!("one document") };
    assert_eq!(one.client.assert_fact(Json(salary(None))).await.unwrap().fact.subject_id, own);
    // Of two that are closed nothing says which one is meant, unless a source stands beside one.
    import(&one.client, under(shared), "<http://acme/ceo> <http://acme/leads> <http://acme/us> .").await.unwrap();
    assert_eq!(one.client.assert_fact(Json(salary(None))).await.unwrap_err().status, 422);
    let beside = one.client.assert_fact(Json(salary(Some(shared)))).await.unwrap().fact.subject_id;
    assert!(beside != own && node(&app, "http://acme/ceo").await.contains(&beside));
    import(&app.client, ImportQuery::default(), "<http://acme/ceo> <http://acme/leads> <http://acme/all> .").await.unwrap();
    let open = app.client.assert_fact(Json(salary(None))).await.unwrap().fact.subject_id;
    assert!(![own, beside].contains(&open), "what is open to all comes before what is closed");
    app.end().await;
}

async fn under_parent(client: &Client<Remote>, parent_id: i64) -> i64 {
    let new = NewDocument { parent_id: Some(parent_id), ..document("A place", "A text.") };
    client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id
}
