//! Facts that break bound shapes.
use super::{TEXT, app, attempts, believed, entities, extract, facts, said, text};
use crate::{
    edits::patched,
    ontologies::load,
    shape_bindings::bind,
    summarize::evidence,
    support::{TestApp, invariants, llm::Llm, until},
};
use serde_json::{Value, json};
use svc_client::{
    Json, OptionalJson,
    wire::{
        DocumentPath, ExtractFactsRequest, NewPredicate, OntologyQuery, ShapeBindingChange, ShapeBindingPath,
        ShapeMode, WaitQuery,
    },
};

/// Who works has one employer and an age in numbers, and who leads has a badge.
const SHAPES: &str = "<http://example.org/shapes> a owl:Ontology .
    ex:Worker a sh:NodeShape ; sh:targetSubjectsOf ex:worksFor ;
        sh:property [ sh:path ex:worksFor ; sh:maxCount 1 ; sh:message 'has one employer' ] ;
        sh:property [ sh:path ex:age ; sh:datatype <http://www.w3.org/2001/XMLSchema#integer> ; sh:message 'is as old as a number says' ] .
    ex:Leader a sh:NodeShape ; sh:targetSubjectsOf ex:leads ;
        sh:property [ sh:path ex:badge ; sh:minCount 1 ; sh:message 'has a badge' ] .";

async fn predicates(app: &TestApp) {
    for (name, iri) in [("works_for", "worksFor"), ("age", "age"), ("leads", "leads"), ("badge", "badge")] {
        let iri = Some(format!("http://example.org/{iri}"));
        let new = NewPredicate { name: name.to_owned(), iri, ..NewPredicate::default() };
        app.client.create_predicate(Json(new)).await.unwrap();
    }
}

/// What the model says of the text, whose first, fourth and last facts are as the shapes want them.
fn answer() -> Vec<Value> {
    let words = "Ada Lovelace has worked for Acme Corp";
    let ada = |changes: Value| {
        let mut fact = said(json!({"object_type": null, "quote": words}));
        fact.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        fact
    };
    vec![
        ada(json!({"confidence": 0.8})),
        ada(json!({"object": "Engine Team", "confidence": 0.7})),
        ada(json!({"predicate": "age", "object": "young", "object_kind": "literal", "datatype": "xsd:string"})),
        ada(
            json!({"predicate": "age", "object": "36", "object_kind": "literal", "datatype": "xsd:integer", "confidence": 0.6}),
        ),
        ada(json!({"predicate": "leads", "object": "Engine Team", "confidence": 0.95})),
        ada(
            json!({"predicate": "was_founded", "subject": "Acme Corp", "object": "1911", "object_kind": "literal", "datatype": "xsd:gYear", "confidence": 0.55}),
        ),
    ]
}

/// The facts that are believed, as predicate and value.
async fn values(app: &TestApp) -> Vec<(String, String)> {
    let titles = entities(app).await;
    let title = |id: i64| titles.iter().find(|(known, _)| *known == id).unwrap().1.clone();
    let value = |fact: svc_client::wire::FactResponse| {
        let object = fact.object_literal.clone().unwrap_or_else(|| title(fact.object_id.unwrap()));
        (fact.predicate.rsplit(':').next().unwrap().to_owned(), object)
    };
    let mut values: Vec<(String, String)> = believed(&app.client).await.into_iter().map(value).collect();
    values.sort();
    values
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(predicate, value)| ((*predicate).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn a_fact_that_breaks_a_bound_shape_is_dropped_for_its_reason_and_the_others_are_kept() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_EXTRACTION_MAX_FACTS", "20")]).await;
    predicates(&app).await;
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    let binding = bind(&app.client, "http://example.org/shapes", None, Some(ShapeMode::Reject)).await.unwrap();
    let id = text(&app, TEXT, None).await;
    llm.will([facts(&answer())]);
    let done = extract(&app.client, id, ExtractFactsRequest::default()).await;
    assert_eq!(values(&app).await, pairs(&[("age", "36"), ("was_founded", "1911"), ("works_for", "Acme Corp")]));
    assert_eq!((done.facts, done.failed, done.dropped.get("shape_violation")), (3, 0, Some(&3)), "{done:?}");
    assert_eq!(done.entities, 2, "what only a refused fact names is not made");
    assert_eq!(entities(&app).await.len(), 2);
    let recorded = evidence(&app, id).await["facts"].clone();
    let refused = recorded["refused"].as_array().unwrap();
    let why: Vec<(&str, bool)> = refused
        .iter()
        .map(|one| (one["object"].as_str().unwrap(), one["reason"].as_str().unwrap()))
        .zip(["has one employer", "is as old as a number says", "has a badge"])
        .map(|((object, reason), says)| (object, reason.contains(says)))
        .collect();
    assert_eq!(why, [("Engine Team", true), ("young", true), ("Engine Team", true)], "{refused:?}");
    assert_eq!(recorded["dropped"]["shape_violation"], 3);

    // The same again finds the same, and what was believed before is not at fault.
    assert_eq!(extract(&app.client, id, ExtractFactsRequest::default()).await.facts, 3);
    assert_eq!(llm.asked().len(), 1);

    // A shape that only warns keeps everything, and the evidence has the warnings.
    let path = ShapeBindingPath { id: binding.id };
    app.client.update_shape_binding(path, Json(ShapeBindingChange { mode: ShapeMode::Warn })).await.unwrap();
    let done = extract(&app.client, id, ExtractFactsRequest::default()).await;
    assert_eq!((done.facts, done.dropped.get("shape_violation")), (6, None), "{done:?}");
    let warnings = evidence(&app, id).await["facts"]["warnings"].clone();
    assert_eq!(warnings.as_array().unwrap().len(), 3, "{warnings}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn facts_that_not_all_readers_of_a_text_see_refuse_none_of_its_facts() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    predicates(&app).await;
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    bind(&app.client, "http://example.org/shapes", None, Some(ShapeMode::Reject)).await.unwrap();
    // An open text makes the entities, and a closed one says who pays in secret.
    let ada = |object: &str, predicate: &str, words: &str| {
        said(json!({"predicate": predicate, "object": object, "object_type": null, "quote": words}))
    };
    let met = text(&app, "Ada Lovelace has met Acme Corp and Globex.", None).await;
    let words = "Ada Lovelace has met Acme Corp and Globex";
    llm.will([facts(&[ada("Acme Corp", "has_met", words), ada("Globex", "has_met", words)])]);
    extract(&app.client, met, ExtractFactsRequest::default()).await;
    let folder = text(&app, "", None).await;
    let secret = text(&app, "Ada Lovelace works for Globex.", Some(folder)).await;
    app.client.protect_document(DocumentPath { id: folder }).await.unwrap();
    llm.will([facts(&[ada("Globex", "works_for", "Ada Lovelace works for Globex")])]);
    assert_eq!(extract(&app.client, secret, ExtractFactsRequest::default()).await.facts, 1);
    // Another closed text meets it, and an open one does not.
    let other = text(&app, "Ada Lovelace works for Initech.", Some(folder)).await;
    llm.will([facts(&[ada("Initech", "works_for", "Ada Lovelace works for Initech")])]);
    let done = extract(&app.client, other, ExtractFactsRequest::default()).await;
    assert_eq!((done.facts, done.entities, done.dropped.get("shape_violation")), (0, 0, Some(&1)), "{done:?}");
    let open = text(&app, TEXT, None).await;
    llm.will([facts(&[ada("Acme Corp", "works_for", "Ada Lovelace has worked for Acme Corp")])]);
    let done = extract(&app.client, open, ExtractFactsRequest::default()).await;
    assert_eq!((done.facts, done.dropped.len()), (1, 0), "{done:?}");
    app.end().await;
}

/// What gives way is recorded later than what takes its place, and still the new facts are held against the shapes as new ones.
#[tokio::test]
async fn a_fact_that_breaks_a_shape_is_dropped_also_where_others_give_way() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    for (name, iri, functional) in [("works_for", "worksFor", true), ("age", "age", false)] {
        let iri = Some(format!("http://example.org/{iri}"));
        let new = NewPredicate { name: name.to_owned(), iri, functional, ..NewPredicate::default() };
        app.client.create_predicate(Json(new)).await.unwrap();
    }
    let older = text(&app, "Ada Lovelace works for Globex.", None).await;
    let said_of = |object: &str, from: Value, quote: &str| {
        said(json!({"object": object, "object_type": null, "valid_from": from, "quote": quote}))
    };
    llm.will([facts(&[said_of("Globex", Value::Null, "Ada Lovelace works for Globex")])]);
    assert_eq!(extract(&app.client, older, ExtractFactsRequest::default()).await.facts, 1);
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    bind(&app.client, "http://example.org/shapes", None, Some(ShapeMode::Reject)).await.unwrap();
    let younger = text(&app, "Ada Lovelace works for Acme since 2010 and is young.", None).await;
    let mut age = said(json!({"object_type": null, "quote": "is young"}));
    let literal = json!({"predicate": "age", "object": "young", "object_kind": "literal", "datatype": "xsd:string"});
    age.as_object_mut().unwrap().extend(literal.as_object().unwrap().clone());
    llm.will([facts(&[said_of("Acme", json!("2010"), "Ada Lovelace works for Acme"), age])]);
    let request: ExtractFactsRequest = serde_json::from_value(json!({"supersede": "auto", "replace": true})).unwrap();
    let done = extract(&app.client, younger, request).await;
    assert_eq!((done.facts, done.dropped.get("shape_violation")), (1, Some(&1)), "{done:?}");
    assert_eq!(values(&app).await, pairs(&[("works_for", "Acme"), ("works_for", "Globex")]));
    app.end().await;
}

#[tokio::test]
async fn facts_that_cannot_be_held_against_a_shape_are_tried_again_and_close_nothing() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    predicates(&app).await;
    let id = text(&app, TEXT, None).await;
    let [works, _, _, age, ..] = &answer()[..] else { panic!("six facts") };
    llm.will([facts(&[works.clone(), age.clone()])]);
    assert_eq!(extract(&app.client, id, ExtractFactsRequest::default()).await.facts, 2);
    let shapes = load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap().document_id;
    bind(&app.client, "http://example.org/shapes", None, Some(ShapeMode::Reject)).await.unwrap();
    patched(&app, shapes, json!({"content": "no Turtle"})).await;
    patched(&app, id, json!({"content": format!("{TEXT} She is well.")})).await;
    let known = pairs(&[("age", "36"), ("works_for", "Acme Corp")]);
    let met = said(
        json!({"predicate": "admires", "object": "Engine Team", "object_type": null, "quote": "She leads the Engine Team"}),
    );
    llm.will([facts(&[works.clone(), age.clone(), met])]);
    let replacing = ExtractFactsRequest { replace: true, ..ExtractFactsRequest::default() };
    app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(Some(replacing))).await.unwrap();
    let failed = until("an attempt that fails", async || {
        attempts(&app, id).await.into_iter().find(|attempt| attempt["code"] == "facts_refused")
    });
    let failed = failed.await;
    assert!(failed["error_type"] == "retryable" && failed.to_string().contains("cannot be used"), "{failed}");
    assert_eq!(values(&app).await, known);

    // A second load mends the shapes, and the next attempt writes all that they allow.
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
        .execute(&app.pool)
        .await
        .unwrap();
    until("the new fact", async || (believed(&app.client).await.len() > 2).then_some(())).await;
    assert_eq!(values(&app).await, pairs(&[("admires", "Engine Team"), ("age", "36"), ("works_for", "Acme Corp")]));
    let recorded = evidence(&app, id).await["facts"].clone();
    assert_eq!((&recorded["closed"], &recorded["dropped"]), (&json!(0), &json!({})), "{recorded}");
    assert_eq!(llm.asked().len(), 1, "the answer serves both attempts");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
