//! What documents are known by, and what states a fact, in another store.
use super::done;
use crate::{
    principals::{idle, someone},
    rdf::{canonical, export, import},
    support::{TestApp, Wish, invariants},
};
use serde_json::{Value, json};
use svc_client::{
    Json, TurtleText,
    wire::{
        DocumentPath, FactQuery, ImportQuery, NewBatch, NewPredicate, OntologyQuery, PredicateQuery, PredicateResponse,
        TurtleQuery,
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_finds_its_documents_by_its_keys_and_a_text_an_entity_by_its_name() {
    let (app, other) = (idle().await, idle().await);
    let alice = someone(&app, "alice").await;
    let batch = |name: &str| -> NewBatch {
        let documents = json!([{"title": format!("{name} 1"), "content": "", "key": "one"},
            {"title": format!("{name} 2"), "content": "", "key": "two", "parent_key": "one"}]);
        serde_json::from_value(json!({"documents": documents})).unwrap()
    };
    let made = app.client.create_documents(Json(batch("owner"))).await.unwrap();
    alice.client.create_documents(Json(batch("alice"))).await.unwrap();
    // A name of 200 letters is compared by as many as this, if each is U+FDFA. The vector is of a model that the other store has not.
    let name = "صلى الله عليه وسلم".repeat(200);
    sqlx::query(
        "INSERT INTO entity_names (document_id, zone, name_key, type_key, embed_model, embed)
         VALUES ($1, 0, $2, 'person', 'another', '[1,0,-0.5]')",
    )
    .bind(made.documents[1].document_id)
    .bind(&name)
    .execute(&app.pool)
    .await
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap()]).await;

    let alice = someone(&other, "alice").await;
    done(&other, &["import", archive.to_str().unwrap()]).await;
    let entity: (String, String, String, i64, String, String) = sqlx::query_as(
        "SELECT d.title, n.name_key, n.type_key, n.zone, n.embed_model, n.embed::text FROM entity_names n JOIN documents d ON d.id = n.document_id",
    )
    .fetch_one(&other.pool)
    .await
    .unwrap();
    let owned = str::to_owned;
    let expected = (owned("owner 2"), name, owned("person"), 0, owned("another"), owned("[1,0,-0.5]"));
    assert_eq!(entity, expected);
    for (client, name) in [(&other.client, "owner"), (&alice.client, "alice")] {
        // What was hers is closed as it was, and she has her grant again.
        let again = client.create_documents(Json(batch(name))).await.unwrap().documents;
        assert!(again.iter().all(|document| document.was_existing), "{name}: {again:?}");
    }
    invariants::check(&other.pool).await;
    for app in [app, other] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fact_keeps_all_the_documents_that_state_it() {
    let (app, other, third) = (idle().await, idle().await, idle().await);
    let documents = json!([{"title": "folder", "content": "", "key": "folder"}, {"title": "first", "content": ""},
        {"title": "second", "content": "", "parent_key": "folder"}, {"title": "it", "content": "", "parent_key": "folder"}]);
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap().documents;
    let [folder, first, second, it] = [0, 1, 2, 3].map(|at: usize| made[at].document_id);
    app.client
        .create_predicate(Json(NewPredicate { name: "weighs".to_owned(), ..NewPredicate::default() }))
        .await
        .unwrap();
    for source in [first, second] {
        let fact = json!({"subject_id": it, "predicate": "weighs", "object_literal": "3", "source_id": source, "on_overlap": "merge"});
        app.client.assert_fact(Json(serde_json::from_value(fact).unwrap())).await.unwrap();
    }
    let at = tempfile::tempdir().unwrap();
    let (whole, part) = (at.path().join("whole"), at.path().join("part"));
    done(&app, &["export", whole.to_str().unwrap()]).await;
    done(&app, &["export", part.to_str().unwrap(), "--under", &folder.to_string()]).await;

    // One of them stays behind.
    let imported = done(&other, &["import", part.to_str().unwrap()]).await;
    assert_eq!((&imported["facts"]["created"], &imported["facts"]["outside"]), (&json!(1), &json!(0)), "{imported}");

    // Or is deleted, where the other one still states it.
    let imported = done(&third, &["import", whole.to_str().unwrap()]).await;
    assert_eq!(imported["facts"], json!({"created": 1, "merged": 0, "existing": 0, "outside": 0, "left_out": 0}));
    let id: i64 =
        sqlx::query_scalar("SELECT id FROM documents WHERE title = 'first'").fetch_one(&third.pool).await.unwrap();
    third.client.delete_document(DocumentPath { id }).await.unwrap();
    let facts = third.client.list_facts(FactQuery::default()).await.unwrap().facts;
    let said: Vec<Value> = facts.iter().map(|fact| json!(fact.object_literal)).collect();
    assert_eq!(said, [json!("3")]);
    for app in [app, other, third] {
        invariants::check(&app.pool).await;
        app.end().await;
    }
}

/// Brings what one store holds into another one.
async fn carry(app: &TestApp, other: &TestApp) -> Value {
    let at = tempfile::tempdir().unwrap();
    let archive = at.path().join("archive");
    done(app, &["export", archive.to_str().unwrap()]).await;
    done(other, &["import", archive.to_str().unwrap()]).await
}

/// The predicate with this IRI.
async fn predicate(app: &TestApp, iri: &str) -> PredicateResponse {
    let listed = app.client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    listed.into_iter().find(|predicate| predicate.iri == iri).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn iris_with_blanks_of_unicode_or_nothing_behind_the_scheme_come_in_again() {
    let (app, other) = (idle().await, idle().await);
    let text =
        "<http://e/New\u{a0}York> <http://e/is\u{a0}near> <http://e/東京\u{3000}都> ; <http://e/writes> <mailto:> .";
    import(&app.client, ImportQuery::default(), text).await.unwrap();
    let imported = carry(&app, &other).await;
    assert_eq!((&imported["facts"]["created"], &imported["predicates"]), (&json!(2), &json!(2)), "{imported}");
    assert_eq!(canonical(&export(&other.client, TurtleQuery::default()).await), canonical(text));
    for app in [app, other] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_predicate_on_which_two_ontologies_contradict_each_other_comes_in_without_what_they_say() {
    let (app, other) = (idle().await, idle().await);
    for (name, kind) in [("one", "Symmetric"), ("two", "Asymmetric")] {
        let text = format!(
            "@prefix owl: <http://www.w3.org/2002/07/owl#> . <http://e/{name}> a owl:Ontology . <http://e/near> a owl:{kind}Property, owl:TransitiveProperty ."
        );
        app.client.create_ontology(OntologyQuery::default(), TurtleText(text)).await.unwrap();
    }
    import(&app.client, ImportQuery::default(), "<http://e/a> <http://e/near> <http://e/b> .").await.unwrap();
    let said = predicate(&app, "http://e/near").await;
    assert!(said.symmetric && said.asymmetric && said.transitive);
    let imported = carry(&app, &other).await;
    let counted = (&imported["facts"]["created"], &imported["predicates"], &imported["predicates_reduced"]);
    assert_eq!(counted, (&json!(1), &json!(1), &json!(1)), "{imported}");
    let said = predicate(&other, "http://e/near").await;
    assert!(!said.symmetric && !said.asymmetric && said.transitive);
    for app in [app, other] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_predicate_whose_iri_this_store_derives_comes_in_by_its_name() {
    let settings = &[("SVC_RDF_BASE", "https://b.example/")];
    let app = TestApp::with(Wish { no_worker: true, settings, ..Wish::default() }).await;
    let other = idle().await;
    // It came from a store with the base that the other one has.
    let text = "<http://e/a> <urn:svc:predicate/default/knows> <http://e/b> .";
    import(&app.client, ImportQuery::default(), text).await.unwrap();
    let imported = carry(&app, &other).await;
    let counted = (&imported["facts"]["created"], &imported["predicates_reduced"]);
    assert_eq!(counted, (&json!(1), &json!(1)), "{imported}");
    let here = predicate(&other, "urn:svc:predicate/default/knows").await;
    assert_eq!((here.namespace.as_str(), here.name.as_str()), ("default", "knows"));
    assert_eq!(canonical(&export(&other.client, TurtleQuery::default()).await), canonical(text));
    for app in [app, other] {
        app.end().await;
    }
}
