//! Graphs of different callers beside each other.
use super::{canonical, export, import, node, under};
use crate::{
    principals::{grant, idle, someone},
    support::document,
    triples::{doc, fact, predicate, says},
};
use chrono::{DateTime, Utc};
use svc_client::{
    Client, Code, Json, Remote,
    wire::{
        DocumentPath, FactPath, FactQuery, GrantRight, ImportQuery, NewDocument, NewFact, NewPredicate, OnOverlap,
        PredicatePath, PredicateQuery, PredicateResponse, TurtleQuery, WaitQuery,
    },
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
    let path: Vec<i64> =
        sqlx::query_scalar("SELECT path FROM documents WHERE id = $1").bind(made).fetch_one(&app.pool).await.unwrap();
    assert!(!path.contains(&planted) && !path.contains(&shared), "{path:?}");

    import(&one.client, ImportQuery::default(), "<http://acme/ceo> <http://acme/leads> <http://acme/it> .")
        .await
        .unwrap();
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
    // A source that does not stand beside it says nothing of it.
    let apart = doc(&app, "Apart").await;
    assert_eq!(app.client.assert_fact(Json(salary(Some(apart)))).await.unwrap_err().status, 422);
    // The principal means its own.
    let [own] = node(&app, "http://acme/ceo").await[..] else { panic!("one document") };
    assert_eq!(one.client.assert_fact(Json(salary(None))).await.unwrap().fact.subject_id, own);
    // Of two that are closed nothing says which one is meant, unless a source stands beside one.
    import(&one.client, under(shared), "<http://acme/ceo> <http://acme/leads> <http://acme/us> .").await.unwrap();
    assert_eq!(one.client.assert_fact(Json(salary(None))).await.unwrap_err().status, 422);
    let beside = one.client.assert_fact(Json(salary(Some(shared)))).await.unwrap().fact.subject_id;
    assert!(beside != own && node(&app, "http://acme/ceo").await.contains(&beside));
    import(&app.client, ImportQuery::default(), "<http://acme/ceo> <http://acme/leads> <http://acme/all> .")
        .await
        .unwrap();
    let open = app.client.assert_fact(Json(salary(None))).await.unwrap().fact.subject_id;
    assert!(![own, beside].contains(&open), "what is open to all comes before what is closed");
    app.end().await;
}

/// The names of predicates that came with graphs stay theirs, whatever principals create.
#[tokio::test]
async fn nobody_takes_the_name_of_what_others_use() {
    let app = idle().await;
    let one = someone(&app, "one").await;
    let d = doc(&app, "D").await;
    let text = format!(
        "@prefix imported: <http://first.example/> . <urn:svc:document/{d}> <https://schema.org/boss> 'Ada' ; imported:kin 'Bea' ."
    );
    import(&app.client, ImportQuery::default(), &text).await.unwrap();
    let create = async |client: &Client<Remote>, namespace: &str, name: &str, iri: Option<&str>| {
        let new = NewPredicate {
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
            iri: iri.map(str::to_owned),
            ..NewPredicate::default()
        };
        client.create_predicate(Json(new)).await
    };
    let refused = create(&one.client, "schema", "boss", Some("http://evil/1")).await.unwrap_err();
    assert_eq!((refused.code, refused.members.contains_key("remedy")), (Code::Forbidden, true), "{refused:?}");
    // A name of one's own may be that of a predicate that one cannot see, and takes nothing from it.
    let hers = create(&one.client, "schema", "boss", None).await.unwrap().id;
    let named = async |client: &Client<Remote>, predicate: &str| {
        let query = FactQuery { subject_id: Some(d), predicate: Some(predicate.to_owned()), ..FactQuery::default() };
        client.list_facts(query).await.unwrap().facts
    };
    let [of_graph] = &named(&app.client, "schema:boss").await[..] else { panic!("the fact of the graph") };
    assert_eq!(of_graph.predicate, "schema:boss");
    assert_ne!(of_graph.predicate_id, hers);
    let mut said = says(d, "schema:boss", "Cleo");
    assert_eq!(app.client.assert_fact(Json(said.clone())).await.unwrap().fact.predicate_id, of_graph.predicate_id);
    assert!(export(&app.client, TurtleQuery::default()).await.matches("evil").next().is_none());
    // Names with the ends that the service gives are free too, and block nothing.
    let digest = "e67c13b8c9220137";
    for name in ["kin".to_owned(), format!("kin-{}", of_graph.predicate_id), format!("kin-{digest}")] {
        create(&one.client, "imported", &name, None).await.unwrap();
    }
    import(
        &app.client,
        ImportQuery::default(),
        &format!("<urn:svc:document/{d}> <http://second.example/kin> 'Dora' ."),
    )
    .await
    .unwrap();
    let ours = create(&app.client, "imported", "kin", None).await.unwrap_err();
    assert_eq!(ours.code, Code::Conflict, "two that were declared have no name in common");
    // Whoever may read no fact with a predicate of that name is told of its own.
    said.subject_id = Some(under_own(&one.client).await);
    assert_eq!(
        one.client.assert_fact(Json(said)).await.unwrap().fact.predicate_id,
        of_graph.predicate_id,
        "it reads D"
    );
    // An IRI that is made of a name is written only for a predicate without one of its own, and means it when it is read.
    let derived = "urn:svc:predicate/schema/boss";
    let own = under_own(&one.client).await;
    for (client, subject) in [(&one.client, own), (&app.client, d)] {
        let said = client.assert_fact(Json(says(subject, derived, "Eva"))).await.unwrap();
        assert_eq!(said.fact.predicate_id, hers);
    }
    import(&app.client, ImportQuery::default(), &format!("<urn:svc:document/{d}> <{derived}> 'Flo' .")).await.unwrap();
    let all = named(&app.client, derived).await;
    assert_eq!(all.iter().map(|fact| fact.predicate_id).collect::<Vec<_>>(), [hers, hers], "{all:?}");
    app.end().await;
}

/// Two that use the same vocabulary share its predicates, and neither learns when or under which prefix the other stored its own.
#[tokio::test]
async fn a_predicate_tells_nothing_of_the_imports_of_others() {
    let app = idle().await;
    let [one, two] = [someone(&app, "one").await, someone(&app, "two").await];
    let text = |prefix: &str| {
        format!("@prefix {prefix}: <http://shared.example/terms#> . <http://e/a> {prefix}:knows <http://e/b> .")
    };
    let seen = async |client: &Client<Remote>| -> PredicateResponse {
        let query = PredicateQuery { q: Some("knows".to_owned()), ..PredicateQuery::default() };
        client.list_predicates(query).await.unwrap().predicates.remove(0)
    };
    import(&one.client, ImportQuery::default(), &text("merger-with-acme")).await.unwrap();
    let between: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&app.pool).await.unwrap();
    import(&two.client, ImportQuery::default(), &text("t")).await.unwrap();
    let hers = seen(&two.client).await;
    assert!(hers.created_at >= between && hers.updated_at >= between, "{hers:?} came after {between}");
    assert_eq!((hers.namespace.as_str(), hers.name.as_str()), ("imported", "knows"));
    assert_eq!(two.client.read_predicate(PredicatePath { id: hers.id }).await.unwrap(), hers);
    let [fact] = &two.client.list_facts(FactQuery::default()).await.unwrap().facts[..] else { panic!("one fact") };
    assert_eq!((fact.predicate.as_str(), fact.predicate_id), ("imported:knows", hers.id));
    let his = seen(&one.client).await;
    assert!(his.created_at < between && his.id == hers.id, "each sees the time of its own: {his:?}");
    // Two of one name in a closed graph have that name both, because another's graph may have only one of them.
    let both = "<http://e/a> <http://shared.example/x#same> 1 ; <http://shared.example/y#same> 2 .";
    import(&one.client, ImportQuery::default(), both).await.unwrap();
    let same = PredicateQuery { q: Some("same".to_owned()), ..PredicateQuery::default() };
    let same = one.client.list_predicates(same).await.unwrap().predicates;
    assert_eq!(same.iter().map(|predicate| predicate.name.as_str()).collect::<Vec<_>>(), ["same", "same"]);

    // The prefix of a graph that all may read names it for all.
    import(&app.client, ImportQuery::default(), &text("terms")).await.unwrap();
    for client in [&app.client, &one.client, &two.client] {
        let seen = seen(client).await;
        assert_eq!((seen.namespace.as_str(), seen.id), ("terms", hers.id));
    }
    app.end().await;
}

async fn under_own(client: &Client<Remote>) -> i64 {
    let new = NewDocument { private: true, ..document("Own", "A text.") };
    client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id
}

async fn under_parent(client: &Client<Remote>, parent_id: i64) -> i64 {
    let new = NewDocument { parent_id: Some(parent_id), ..document("A place", "A text.") };
    client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id
}

#[tokio::test]
async fn an_export_of_a_place_has_what_its_readable_documents_had_stated_by_then() {
    let app = idle().await;
    let [a, b, open, folder] =
        [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "Open").await, doc(&app, "Folder").await];
    let within = crate::triples::under(&app, "Within", Some(folder)).await;
    predicate(&app, "leads").await;
    let stated = |source_id: i64| NewFact {
        source_id: Some(source_id),
        on_overlap: Some(OnOverlap::Merge),
        ..fact(a, "leads", b)
    };
    let count = async |client: &Client<Remote>, known_at: Option<DateTime<Utc>>| {
        let query = TurtleQuery { parent_id: Some(folder), known_at, ..TurtleQuery::default() };
        canonical(&export(client, query).await).len()
    };
    let reader = someone(&app, "reader").await;
    let first = app.client.assert_fact(Json(stated(open))).await.unwrap().fact;
    assert_eq!(count(&reader.client, None).await, 0);
    let again = app.client.assert_fact(Json(stated(within))).await.unwrap().fact;
    assert_eq!((again.id, again.citations.len()), (first.id, 2));
    assert_eq!(count(&reader.client, None).await, 1);
    assert_eq!(count(&reader.client, Some(first.recorded_at)).await, 0, "nothing in the folder had stated it then");
    // That a closed document states it too is nobody's business but its readers'.
    app.client.protect_document(DocumentPath { id: within }).await.unwrap();
    assert_eq!((count(&reader.client, None).await, count(&app.client, None).await), (0, 1));
    assert_eq!(reader.client.read_fact(FactPath { id: first.id }).await.unwrap().citations.len(), 1);
    app.end().await;
}
