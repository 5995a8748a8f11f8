//! What no parser of RDF reads back is refused wherever a caller names it, so that every export can be imported.
use super::{canonical, export, import};
use crate::{
    principals::idle,
    triples::{doc, fact, predicate},
};
use serde_json::{Value, json};
use svc_client::{
    Code, Failure, Json,
    wire::{
        ArchivePart, FactPath, FactQuery, ImportQuery, ImportedArchive, NewFact, NewFacts, NewPredicate,
        PredicateChange, PredicatePath, Supersession, TurtleQuery,
    },
};

const NO_IRIS: [&str; 5] = ["http://[", "urn:x:[", "http://ex/%zz", "http://ex:port/", "x:\u{fdd0}"];
const NO_LANGUAGES: [&str; 3] = ["abcdefghij", "en-abcdefghij", "a"];

fn is_refused(failure: &Failure, field: &str) {
    assert_eq!((failure.code, failure.members["field"].as_str()), (Code::InvalidField, Some(field)), "{failure:?}");
    assert!(failure.members["remedy"].as_str().is_some(), "{failure:?}");
}

#[tokio::test]
async fn a_term_that_no_parser_reads_back_comes_in_by_no_door() {
    let app = idle().await;
    let ada = doc(&app, "Ada").await;
    predicate(&app, "says").await;
    let text = |datatype: Option<&str>, language: Option<&str>| NewFact {
        object_id: None,
        object_literal: Some("x".to_owned()),
        object_datatype: datatype.map(str::to_owned),
        object_language: language.map(str::to_owned),
        ..fact(ada, "says", 0)
    };
    let made = app.client.assert_fact(Json(text(None, None))).await.unwrap().fact.id;
    let no_iris = NO_IRIS.into_iter().map(|iri| (text(Some(iri), None), "object_datatype"));
    let no_languages = NO_LANGUAGES.into_iter().map(|tag| (text(None, Some(tag)), "object_language"));
    for (bad, field) in no_iris.chain(no_languages) {
        is_refused(&app.client.assert_fact(Json(bad.clone())).await.unwrap_err(), field);
        let facts = NewFacts { facts: vec![text(None, Some("en")), bad.clone()], on_overlap: None };
        let refused = app.client.assert_facts(Json(facts)).await.unwrap_err();
        is_refused(&refused, &format!("facts[1].{field}"));
        let new = Supersession {
            object_literal: bad.object_literal,
            object_datatype: bad.object_datatype,
            object_language: bad.object_language,
            ..Supersession::default()
        };
        is_refused(&app.client.supersede_fact(FactPath { id: made }, Json(new)).await.unwrap_err(), field);
    }
    let known = predicate(&app, "knows").await.id;
    let of = ImportedArchive { archive: "an-archive".to_owned(), parent_id: None };
    let document = |id: i64, iri: &str| {
        json!({"id": id, "title": "t", "content": "c", "usetype": "entity", "created_at": "2024-01-01T00:00:00Z", "iri": iri,
            "updated_at": "2024-01-01T00:00:00Z", "content_hash": "sha256:", "settled": "settled"})
    };
    for iri in NO_IRIS {
        let named = Some(iri.to_owned());
        let new = NewPredicate { name: "odd".to_owned(), iri: named.clone(), ..NewPredicate::default() };
        is_refused(&app.client.create_predicate(Json(new)).await.unwrap_err(), "iri");
        let change = PredicateChange { iri: Some(named), ..PredicateChange::default() };
        is_refused(&app.client.update_predicate(PredicatePath { id: known }, Json(change)).await.unwrap_err(), "iri");
        let documents: Vec<Value> = vec![document(1, "http://e/fine"), document(2, iri)];
        let part: ArchivePart = serde_json::from_value(json!({"documents": documents})).unwrap();
        let refused = app.client.import_documents(of.clone(), Json(part)).await.unwrap_err();
        assert_eq!((refused.code, refused.members["index"].as_u64()), (Code::InvalidField, Some(1)), "{refused:?}");
        assert_eq!(refused.members["field"], "documents[1].iri", "{refused:?}");
    }
    // A node without a name is written without one, whatever its label was.
    let blank = json!({"documents": [{"id": 3, "title": "t", "content": "c", "usetype": "entity", "iri": "urn:svc:genid/i/\u{1fffe}", "blank": true,
        "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z", "content_hash": "sha256:", "settled": "settled"}]});
    let part: ArchivePart = serde_json::from_value(blank).unwrap();
    app.client.import_documents(of, Json(part)).await.unwrap();
    // What is unusual and allowed comes back as it went.
    for odd in [
        text(Some("urn:x:ä"), None),
        text(Some("http://[2001:db8::1]:80/a?b#c"), None),
        text(None, Some("de-CH-1996")),
        text(None, Some("x-mine")),
    ] {
        app.client.assert_fact(Json(odd)).await.unwrap();
    }
    let written = export(&app.client, TurtleQuery::default()).await;
    assert_eq!(canonical(&written).len(), 5, "{written}");
    let again = import(&app.client, ImportQuery::default(), &written).await.unwrap();
    assert_eq!((again.existing, again.created), (5, 0));
    app.end().await;
}

#[tokio::test]
async fn a_value_that_its_type_of_xml_schema_lacks_is_refused_and_so_is_a_type_that_it_lacks() {
    let app = idle().await;
    let ada = doc(&app, "Ada").await;
    predicate(&app, "says").await;
    let typed = |value: &str, name: &str| NewFact {
        object_id: None,
        object_literal: Some(value.to_owned()),
        object_datatype: Some(format!("xsd:{name}")),
        ..fact(ada, "says", 0)
    };
    for (value, name, field) in [
        ("!!", "base64Binary", "object_literal"),
        ("en_US", "language", "object_literal"),
        ("a b", "NCName", "object_literal"),
        ("a  b", "token", "object_literal"),
        ("x", "nosuch", "object_datatype"),
    ] {
        is_refused(&app.client.assert_fact(Json(typed(value, name))).await.unwrap_err(), field);
    }
    for (value, name) in [("aGVyb24=", "base64Binary"), ("en-US", "language"), ("a.b", "NCName"), ("a b", "token")] {
        app.client.assert_fact(Json(typed(value, name))).await.unwrap();
    }
    // A graph keeps its literals to the letter, and says how many are none of their types.
    let text = "@prefix xsd: <http://www.w3.org/2001/XMLSchema#> . <http://e/s> <http://e/p> '!!'^^xsd:base64Binary, 'x'^^xsd:nosuch .";
    let done = import(&app.client, ImportQuery::default(), text).await.unwrap();
    assert_eq!((done.created, done.ill_typed), (2, 1));
    let stored = app.client.list_facts(FactQuery { subject_id: Some(ada), ..FactQuery::default() }).await.unwrap();
    assert_eq!(stored.facts.len(), 4);
    app.end().await;
}
