//! Graphs of RDF: what comes in becomes documents, predicates and facts, and goes out as the same graph.
mod exports;
mod parts;
mod suites;
mod terms;
mod zones;

use crate::{
    cli::{lines as lines_of, svc},
    principals::{grant, idle, someone},
    support::{TOKEN, TestApp, document, http},
    triples::{day, doc, fact, predicate, rules::Deriving},
};
use futures_util::TryStreamExt;
use oxrdf::{Graph, dataset::CanonicalizationAlgorithm};
use oxttl::TurtleParser;
use std::collections::BTreeSet;
use svc_client::{
    Client, Code, Failure, Json, OptionalJson, RdfSyntax, RdfText, Remote, TurtleText,
    wire::{
        DocumentPath, EmbedQuery, FactPath, FactQuery, GrantRight, ImportQuery, ImportedGraph, Invalidation,
        NewDocument, NewFact, NewPredicate, OntologyQuery, PageQuery, PredicateChange, PredicatePath, PredicateQuery,
        Supersession, TurtleQuery, ValidAt, WaitQuery,
    },
};

pub async fn import(client: &Client<Remote>, query: ImportQuery, text: &str) -> Result<ImportedGraph, Failure> {
    client.import_turtle(query, RdfText { syntax: RdfSyntax::Turtle, text: text.to_owned() }).await
}

pub async fn export(client: &Client<Remote>, query: TurtleQuery) -> String {
    let pieces: Vec<bytes::Bytes> = client.export_turtle(query).await.unwrap().try_collect().await.unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

/// The triples of a graph, with its blank nodes named by what they say.
pub fn canonical(text: &str) -> BTreeSet<String> {
    lines(TurtleParser::new().for_slice(text).map(|triple| triple.expect(text)).collect())
}

pub fn lines(mut graph: Graph) -> BTreeSet<String> {
    graph.canonicalize(CanonicalizationAlgorithm::Unstable);
    graph.iter().map(|triple| triple.to_string()).collect()
}

fn under(id: i64) -> ImportQuery {
    ImportQuery { parent_id: Some(id), ..ImportQuery::default() }
}

/// The document that stands for an IRI.
async fn node(app: &TestApp, iri: &str) -> Vec<i64> {
    sqlx::query_scalar("SELECT document_id FROM graph_nodes WHERE iri = $1 ORDER BY 1")
        .bind(iri)
        .fetch_all(&app.pool)
        .await
        .unwrap()
}

const PEOPLE: &str = r#"@prefix foaf: <http://xmlns.com/foaf/0.1/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    @prefix xsd: <http://www.w3.org/2001/XMLSchema#> . @prefix ex: <http://example.org/> .
    ex:ada a foaf:Person ; foaf:knows ex:bea, [ foaf:name "Nobody" ] ; rdfs:label "Ada"@en ; ex:weighs "1.50"^^xsd:decimal ;
        ex:born "yesterday"^^xsd:date ; ex:likes ( ex:tea "mathematics"@fr ) ."#;

#[tokio::test]
async fn a_graph_becomes_documents_predicates_and_facts_and_is_written_as_it_came() {
    let app = idle().await;
    let done = import(&app.client, ImportQuery::default(), PEOPLE).await.unwrap();
    let ImportedGraph { triples, created, merged, existing, nodes_created, predicates_created, ill_typed, .. } = done;
    assert_eq!((triples, created, merged, existing, ill_typed), (12, 12, 0, 0, 1));
    // Ada, Bea, the class Person, tea, the end of the list; one without a name and two cells of the list.
    assert_eq!((nodes_created, predicates_created), (8, 9));
    let [ada] = node(&app, "http://example.org/ada").await[..] else { panic!("one document") };
    let read =
        app.client.read_document(DocumentPath { id: ada }, EmbedQuery::default()).await.unwrap().value().unwrap();
    assert_eq!((read.title.as_str(), read.usetype.as_str()), ("Ada", "entity"));
    let above = app.client.list_ancestors(DocumentPath { id: ada }, PageQuery::default()).await.unwrap();
    assert_eq!(above.documents.iter().map(|document| document.title.as_str()).collect::<Vec<_>>(), ["Entities"]);
    let names: Vec<String> = app
        .client
        .list_predicates(PredicateQuery::default())
        .await
        .unwrap()
        .predicates
        .iter()
        .map(|predicate| format!("{}:{} {}", predicate.namespace, predicate.name, predicate.iri))
        .collect();
    assert!(names.contains(&"foaf:knows http://xmlns.com/foaf/0.1/knows".to_owned()), "{names:?}");
    assert!(names.contains(&"ex:weighs http://example.org/weighs".to_owned()), "{names:?}");

    let written = export(&app.client, TurtleQuery::default()).await;
    assert_eq!(canonical(&written), canonical(PEOPLE), "{written}");
    assert!(written.starts_with("# valid_at 2") && written.contains("\n# known_at 2"), "{written}");
    assert!(written.contains("foaf:knows") && written.contains("<http://example.org/weighs> 1.50 ;"), "{written}");

    // The same again adds nothing but what has no name.
    let again = import(&app.client, ImportQuery::default(), PEOPLE).await.unwrap();
    assert_eq!((again.created, again.existing, again.nodes_created, again.predicates_created), (7, 5, 3, 0));
    let named = |name: &str| ImportQuery { import: Some(name.to_owned()), ..ImportQuery::default() };
    let first = import(&app.client, named("people"), PEOPLE).await.unwrap();
    let second =
        import(&app.client, named("people"), "_:x <http://example.org/p> _:y . _:y <http://example.org/p> _:x .")
            .await
            .unwrap();
    let third = import(&app.client, named("people"), "_:x <http://example.org/p> _:y .").await.unwrap();
    assert_eq!((first.nodes_created, second.nodes_created, third.nodes_created, third.existing), (3, 2, 0, 1));
    app.end().await;
}

#[tokio::test]
async fn iris_of_the_store_name_its_documents_and_predicates() {
    let app = idle().await;
    let [a, b] = [doc(&app, "A").await, doc(&app, "B").await];
    predicate(&app, "is in").await;
    app.client.assert_fact(Json(fact(a, "is in", b))).await.unwrap();
    let written = export(&app.client, TurtleQuery::default()).await;
    let graph = canonical(&written);
    let expected = format!("<urn:svc:document/{a}> <urn:svc:predicate/default/is%20in> <urn:svc:document/{b}> .");
    assert_eq!(graph, canonical(&expected), "{written}");
    let done = import(&app.client, ImportQuery::default(), &written).await.unwrap();
    assert_eq!((done.existing, done.created, done.nodes_created, done.predicates_created), (1, 0, 0, 0));

    for (text, status, says) in [
        ("<urn:svc:document/999> <http://e/p> 1 .", 422, "document 999 of this store, which does not exist"),
        ("<http://e/s> <urn:svc:predicate/default/unheard> 1 .", 422, "there is no predicate"),
        ("<http://e/s> <http://e/p> 1", 422, "line 1"),
        ("<http://e/s>\n  <http://e/p> <relative> .", 422, "line 2"),
    ] {
        let refused = import(&app.client, ImportQuery::default(), text).await.unwrap_err();
        assert!(refused.status == status && refused.detail.contains(says), "{refused:?}");
    }
    let based = ImportQuery { base: Some("http://e/".to_owned()), ..ImportQuery::default() };
    assert_eq!(import(&app.client, based, "<s> <p> <o> .").await.unwrap().created, 1);
    let post = |kind: &'static str, body: &'static [u8]| {
        app.raw("POST", "/rdf/turtle").bearer_auth(TOKEN).header("content-type", kind).body(body).send()
    };
    assert_eq!(post("application/json", b"{}").await.unwrap().status(), 415);
    assert_eq!(post("text/turtle", b"<a> <b> \xff .").await.unwrap().status(), 400);
    assert_eq!(post("application/n-triples", b"<http://e/s> <http://e/p> <http://e/o> .").await.unwrap().status(), 200);
    assert_eq!(post("Text/Turtle; charset=UTF-8", b"").await.unwrap().status(), 200);
    // A fact names nodes by their IRIs as well.
    let (subject_iri, object_iri) = (Some("http://e/s".to_owned()), Some(format!("urn:svc:document/{a}")));
    let named = NewFact { subject_id: None, subject_iri, object_id: None, object_iri, ..fact(0, "is in", 0) };
    let made = app.client.assert_fact(Json(named.clone())).await.unwrap().fact;
    assert_eq!((vec![made.subject_id], made.object_id), (node(&app, "http://e/s").await, Some(a)));
    let new = Supersession { object_iri: Some("http://e/o".to_owned()), ..Supersession::default() };
    let done = app.client.supersede_fact(FactPath { id: made.id }, Json(new)).await.unwrap();
    assert_eq!(vec![done.fact.object_id.unwrap()], node(&app, "http://e/o").await);
    for (named, field) in [
        (NewFact { subject_iri: Some("http://e/unheard".to_owned()), ..named.clone() }, "subject_iri"),
        (NewFact { object_iri: Some("urn:svc:document/x".to_owned()), ..named.clone() }, "object_iri"),
        (NewFact { subject_id: Some(a), ..named.clone() }, "subject_iri"),
        (NewFact { subject_iri: None, ..named.clone() }, "subject_id"),
    ] {
        let refused = app.client.assert_fact(Json(named)).await.unwrap_err();
        assert_eq!((refused.status, refused.members["field"].as_str()), (422, Some(field)), "{refused:?}");
    }
    app.client.invalidate_fact(FactPath { id: done.fact.id }, OptionalJson(None)).await.unwrap();
    // Nothing of what was refused is there.
    let facts =
        app.client.list_facts(FactQuery { valid_at: Some(ValidAt::Any), ..FactQuery::default() }).await.unwrap();
    assert_eq!(facts.facts.len(), 2);
    app.end().await;
}

#[tokio::test]
async fn a_graph_is_as_closed_as_the_document_that_states_it() {
    let app = idle().await;
    let [open, closed] = [doc(&app, "Open").await, doc(&app, "Closed").await];
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let [reader, stranger] = [someone(&app, "reader").await, someone(&app, "stranger").await];
    grant(&app, &reader, closed, GrantRight::Read).await;
    let text = format!(
        "@prefix v: <http://secret.example/vocabulary#> . <http://e/x> v:owns <urn:svc:document/{open}>, <http://e/y> . <urn:svc:document/{open}> v:costs 7 ."
    );
    import(&app.client, under(closed), &text).await.unwrap();
    // The same IRI in what is open to all is another document.
    import(&app.client, ImportQuery::default(), "<http://e/x> <http://e/p> <http://e/y> .").await.unwrap();
    assert_eq!((node(&app, "http://e/x").await.len(), node(&app, "http://e/y").await.len()), (2, 2));

    let all = canonical(&format!("{text} <http://e/x> <http://e/p> <http://e/y> ."));
    assert_eq!(canonical(&export(&app.client, TurtleQuery::default()).await), all);
    assert_eq!(canonical(&export(&reader.client, TurtleQuery::default()).await), all);
    let seen = export(&stranger.client, TurtleQuery::default()).await;
    assert_eq!(canonical(&seen), canonical("<http://e/x> <http://e/p> <http://e/y> ."));
    let only = TurtleQuery { parent_id: Some(closed), ..TurtleQuery::default() };
    assert_eq!(canonical(&export(&reader.client, only.clone()).await), canonical(&text));
    assert_eq!(stranger.client.export_turtle(only).await.err().map(|failure| failure.code), Some(Code::NotFound));

    // Nor does a stranger learn of predicates that came with it, by any way.
    let owns = async |client: &Client<Remote>| {
        let query = PredicateQuery { q: Some("owns".to_owned()), ..PredicateQuery::default() };
        client.list_predicates(query).await.unwrap().predicates.first().map(|predicate| predicate.id)
    };
    let id = owns(&reader.client).await.expect("the reader sees it");
    assert_eq!(owns(&stranger.client).await, None);
    let iri = "http://secret.example/vocabulary#owns";
    assert_eq!(stranger.client.read_predicate(PredicatePath { id }).await.unwrap_err().code, Code::NotFound);
    for predicate in [iri, "imported:owns"] {
        let query = FactQuery { predicate: Some(predicate.to_owned()), ..FactQuery::default() };
        assert_eq!(stranger.client.list_facts(query.clone()).await.unwrap_err().code, Code::InvalidField);
        assert_eq!(reader.client.list_facts(query).await.unwrap().facts.len(), 2);
    }
    // An IRI stands for what its reader may read: for the reader first for what is beside the source.
    let [private, public] = node(&app, "http://e/x").await[..] else { panic!("two documents") };
    let named = |source_id: Option<i64>| NewFact {
        subject_iri: Some("http://e/x".to_owned()),
        subject_id: None,
        source_id,
        object_id: Some(open),
        ..fact(0, "http://e/p", 0)
    };
    for (source, subject) in [(Some(closed), private), (None, public)] {
        let made = app.client.assert_fact(Json(named(source))).await.unwrap().fact;
        assert_eq!(made.subject_id, subject);
        app.client.invalidate_fact(FactPath { id: made.id }, OptionalJson(None)).await.unwrap();
    }
    let own = NewDocument { private: true, ..document("Own", "A text.") };
    let own = stranger.client.create_document(WaitQuery::default(), Json(own)).await.unwrap().id;
    for named in [NewFact { predicate: None, predicate_id: Some(id), ..fact(own, "", own) }, fact(own, iri, own)] {
        assert_eq!(stranger.client.assert_fact(Json(named)).await.unwrap_err().code, Code::InvalidField);
    }
    let new = |name: &str, iri: Option<&str>| NewPredicate {
        name: name.to_owned(),
        namespace: Some("imported".to_owned()),
        iri: iri.map(str::to_owned),
        ..NewPredicate::default()
    };
    // It declares one of the same name as if that were new, and what is stated with the other stays as it is.
    stranger.client.create_predicate(Json(new("owns", None))).await.unwrap();
    assert_eq!(stranger.client.create_predicate(Json(new("owns", None))).await.unwrap_err().code, Code::Conflict);
    for iri in ["http://secret.example/vocabulary#costs", "http://secret.example/vocabulary#unheard"] {
        let refused = stranger.client.create_predicate(Json(new("price", Some(iri)))).await.unwrap_err();
        assert_eq!(refused.code, Code::Forbidden, "whether there is one with {iri} or not");
    }
    // What holds of a predicate holds for everybody's facts, so that it is the owner's to state.
    let others = vec![id];
    for said in [
        NewPredicate { symmetric: true, ..new("beside", None) },
        NewPredicate { functional: true, ..new("beside", None) },
        NewPredicate { inverse_functional: true, ..new("beside", None) },
        NewPredicate { asymmetric: true, ..new("beside", None) },
        NewPredicate { irreflexive: true, ..new("beside", None) },
        NewPredicate { disjoint_with: others.clone(), ..new("beside", None) },
        NewPredicate { sub_property_of: others, ..new("beside", None) },
    ] {
        let refused = stranger.client.create_predicate(Json(said)).await.unwrap_err();
        assert_eq!(refused.code, Code::Forbidden, "{refused:?}");
        let remedy = refused.members["remedy"].as_str().unwrap();
        assert!(!remedy.contains("IRI"), "it may give none: {remedy}");
    }
    assert_eq!(canonical(&export(&app.client, TurtleQuery::default()).await), all);

    // The stranger may not add to it, and its own import is its own.
    assert_eq!(
        import(&stranger.client, under(closed), "<http://e/x> <http://e/p> 1 .").await.unwrap_err().code,
        Code::NotFound
    );
    assert_eq!(
        import(&reader.client, under(closed), "<http://e/x> <http://e/p> 1 .").await.unwrap_err().code,
        Code::Forbidden
    );
    let about = format!("<urn:svc:document/{open}> <http://e/p> 1 .");
    assert_eq!(import(&stranger.client, ImportQuery::default(), &about).await.unwrap_err().code, Code::Forbidden);
    let refused =
        import(&stranger.client, ImportQuery::default(), &format!("<urn:svc:document/{closed}> <http://e/p> 1 ."))
            .await
            .unwrap_err();
    assert_eq!((refused.code, refused.detail.contains("does not exist")), (Code::InvalidField, true));
    let hidden = ImportQuery { parent_id: Some(own), ..ImportQuery::default() };
    import(&stranger.client, hidden, "<http://e/mine> <http://e/p> 1 .").await.unwrap();
    assert!(!export(&reader.client, TurtleQuery::default()).await.contains("mine"));
    // What states a graph takes it along.
    app.client.delete_document(DocumentPath { id: closed }).await.unwrap();
    assert_eq!(
        canonical(&export(&reader.client, TurtleQuery::default()).await),
        canonical("<http://e/x> <http://e/p> <http://e/y> .")
    );
    app.end().await;
}

#[tokio::test]
async fn a_predicate_that_only_closed_facts_have_is_like_one_that_nobody_has() {
    let app = idle().await;
    let closed = doc(&app, "Closed").await;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    // A text has given it its name, as the task that reads texts makes it.
    sqlx::query(
        "INSERT INTO predicates (namespace, name, is_functional, is_inverse_functional, is_symmetric, is_asymmetric, is_transitive, is_irreflexive,
                sub_property_of, disjoint_with, is_declared, created_at)
         VALUES ('extracted', 'bribes', false, false, false, false, false, false, '{}', '{}', false, '2020-01-01Z')",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let bribes = NewFact { source_id: Some(closed), ..fact(closed, "extracted:bribes", closed) };
    app.client.assert_fact(Json(bribes)).await.unwrap();
    let stranger = someone(&app, "stranger").await;
    let before = export(&app.client, TurtleQuery::default()).await;
    let refused = async |name: &str| {
        let text = format!("<http://mine.example/s> <urn:svc:predicate/extracted/{name}> 1 .");
        import(&stranger.client, ImportQuery::default(), &text).await.unwrap_err().detail.replace(name, "it")
    };
    assert_eq!(refused("bribes").await, refused("unheard").await);
    let own = async |client: &Client<Remote>, name: &str| {
        let new = NewPredicate {
            name: name.to_owned(),
            namespace: Some("extracted".to_owned()),
            label: Some("mine".to_owned()),
            ..NewPredicate::default()
        };
        client.create_predicate(Json(new)).await
    };
    for name in ["bribes", "unheard"] {
        assert_eq!(own(&stranger.client, name).await.unwrap_err().code, Code::Forbidden, "whether it is there or not");
    }
    // The owner declares what texts gave a name, and its facts stay.
    let declared = own(&app.client, "bribes").await.unwrap();
    assert_eq!((declared.label.as_deref(), declared.name.as_str()), (Some("mine"), "bribes"));
    assert_eq!(own(&app.client, "bribes").await.unwrap_err().code, Code::Conflict);
    assert_eq!(canonical(&export(&app.client, TurtleQuery::default()).await), canonical(&before));
    app.end().await;
}

#[tokio::test]
async fn what_a_closed_ontology_says_of_a_predicate_is_for_those_who_may_read_it() {
    let app = idle().await;
    let secret = "@prefix s: <http://secret.example/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . <http://secret.example/> a owl:Ontology .
        s:pays a owl:FunctionalProperty, owl:AsymmetricProperty ; rdfs:label 'pays in secret' ; rdfs:comment 'Nobody knows.' ;
            rdfs:subPropertyOf s:owes ; owl:propertyDisjointWith s:gives ; owl:inverseOf s:paidBy .";
    let private = OntologyQuery { private: true, ..OntologyQuery::default() };
    let ontology = app.client.create_ontology(private, TurtleText(secret.to_owned())).await.unwrap().document_id;
    let [stranger, reader] = [someone(&app, "stranger").await, someone(&app, "reader").await];
    grant(&app, &reader, ontology, GrantRight::Read).await;
    let fact = "<http://mine.example/s> <http://secret.example/pays> <http://mine.example/o> .";
    let mut seen = Vec::new();
    for who in [&stranger, &reader] {
        let done = import(&who.client, ImportQuery::default(), fact).await.unwrap();
        assert_eq!(done.predicates_created, 1, "it is as new to them as any other");
        let found = |q: &str| PredicateQuery { q: Some(q.to_owned()), ..PredicateQuery::default() };
        let [pays] = &who.client.list_predicates(found("pays")).await.unwrap().predicates[..] else { panic!("one") };
        assert_eq!(who.client.read_predicate(PredicatePath { id: pays.id }).await.unwrap(), *pays);
        let by_label = who.client.list_predicates(found("in secret")).await.unwrap().predicates.len();
        seen.push((pays.clone(), by_label));
    }
    let (hidden, shown) = (&seen[0], &seen[1]);
    assert_eq!((hidden.1, shown.1), (0, 1));
    let (hidden, shown) = (&hidden.0, &shown.0);
    assert_eq!((&hidden.label, &hidden.description, hidden.ontology_id, hidden.inverse_of), (&None, &None, None, None));
    assert!(!hidden.functional && !hidden.asymmetric, "{hidden:?}");
    assert!(hidden.sub_property_of.is_empty() && hidden.disjoint_with.is_empty(), "{hidden:?}");
    assert_eq!((shown.label.as_deref(), shown.ontology_id), (Some("pays in secret"), Some(ontology)));
    assert!(shown.functional && shown.asymmetric && shown.inverse_of.is_some(), "{shown:?}");
    assert_eq!((shown.sub_property_of.len(), shown.disjoint_with.len()), (1, 1));
    let owner = app.client.read_predicate(PredicatePath { id: shown.id }).await.unwrap();
    assert!(owner.functional && owner.ontology_id == Some(ontology));
    app.end().await;
}

#[tokio::test]
async fn a_principal_imports_what_is_its_own() {
    let app = idle().await;
    let [ada, bea] = [someone(&app, "ada").await, someone(&app, "bea").await];
    let text = "@prefix n: <http://new.example/> . n:s n:p n:o ; n:q '1' .";
    for (who, existing) in [(&ada, 0), (&ada, 2), (&bea, 0)] {
        let done = import(&who.client, ImportQuery::default(), text).await.unwrap();
        assert_eq!(
            (done.existing, done.created, done.nodes_created),
            (existing, 2 - existing, if existing == 0 { 2 } else { 0 })
        );
        assert_eq!(canonical(&export(&who.client, TurtleQuery::default()).await), canonical(text));
    }
    assert_eq!(node(&app, "http://new.example/s").await.len(), 2);
    let third = someone(&app, "third").await;
    assert!(canonical(&export(&third.client, TurtleQuery::default()).await).is_empty());
    assert!(third.client.list_predicates(PredicateQuery::default()).await.unwrap().predicates.is_empty());
    let new = NewDocument { private: true, ..document("Folder", "") };
    let folder = third.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    let done = import(&third.client, under(folder), "<http://e/s> <http://other.example/p> 1 .").await.unwrap();
    assert_eq!((done.created, done.predicates_created), (1, 1));
    app.end().await;
}

#[tokio::test]
async fn an_export_is_of_its_moment_and_of_all_pages() {
    let app = idle().await;
    let text: String =
        (0..1_300).map(|number| format!("<http://e/{}> <http://e/p> {number} .\n", number % 7)).collect();
    let done = import(&app.client, ImportQuery::default(), &text).await.unwrap();
    assert_eq!((done.created, done.nodes_created), (1_300, 7));
    let written = export(&app.client, TurtleQuery::default()).await;
    assert_eq!(canonical(&written), canonical(&text));
    let known_at = Some(done.recorded_at);
    let first =
        app.client.list_facts(FactQuery { limit: Some(1), ..FactQuery::default() }).await.unwrap().facts.remove(0);
    let ended = Invalidation { valid_from: Some("2020-01-01T00:00:00Z".parse().unwrap()), ..Invalidation::default() };
    app.client.invalidate_fact(FactPath { id: first.id }, OptionalJson(Some(ended))).await.unwrap();
    assert_eq!(canonical(&export(&app.client, TurtleQuery::default()).await).len(), 1_299);
    let before = TurtleQuery { valid_at: Some("2019-01-01T00:00:00Z".parse().unwrap()), ..TurtleQuery::default() };
    assert_eq!(canonical(&export(&app.client, before).await), canonical(&text));
    let then = TurtleQuery { known_at, ..TurtleQuery::default() };
    assert_eq!(canonical(&export(&app.client, then).await), canonical(&text));
    app.end().await;
}

#[tokio::test]
async fn imports_at_the_same_time_make_each_node_and_predicate_once() {
    let app = idle().await;
    let text = |own: usize| {
        let shared: String = (0..50)
            .map(|number| format!("<http://e/{number}> <http://v/{number}> <http://e/{}> .\n", (number + 1) % 50))
            .collect();
        format!("{shared}<http://e/0> <http://v/own> {own} .")
    };
    let all = (0..8).map(|own| {
        let (client, text) = (Client(Remote::new(&app.base, TOKEN, http())), text(own));
        async move { import(&client, ImportQuery::default(), &text).await.unwrap() }
    });
    let done = futures_util::future::join_all(all).await;
    let sum = |of: fn(&ImportedGraph) -> u32| done.iter().map(of).sum::<u32>();
    assert_eq!((sum(|done| done.nodes_created), sum(|done| done.predicates_created)), (50, 51));
    assert_eq!((sum(|done| done.created), sum(|done| done.existing)), (58, 350));
    let roots: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE title = 'Entities'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(roots, 1);
    app.end().await;
}

#[tokio::test]
async fn more_triples_than_are_allowed_are_refused_before_anything_is_stored() {
    let wish = crate::support::Wish {
        no_worker: true,
        settings: &[("SVC_RDF_MAX_TRIPLES", "10")],
        ..crate::support::Wish::default()
    };
    let app = TestApp::with(wish).await;
    let text: String = (0..11).map(|number| format!("<http://e/s> <http://e/p> {number} .\n")).collect();
    let refused = import(&app.client, ImportQuery::default(), &text).await.unwrap_err();
    assert_eq!((refused.code, refused.members["limit"].as_u64()), (Code::TooLarge, Some(10)));
    assert!(node(&app, "http://e/s").await.is_empty());
    app.end().await;
}

#[tokio::test]
async fn the_command_line_takes_a_file_in_parts_and_writes_it_back() {
    let app = idle().await;
    let folder = tempfile::tempdir().unwrap();
    let (came, went) = (folder.path().join("graph.ttl"), folder.path().join("back.ttl"));
    // More triples than one call takes, with nodes without a name in different parts.
    let numbers: String = (0..10_500).map(|number| format!("<s> ex:p {number} .\n")).collect();
    let text = format!("@prefix ex: <http://example.org/> .\n[] ex:first _:end .\n{numbers}_:end ex:last [] .");
    std::fs::write(&came, &text).unwrap();
    let file = came.to_str().unwrap();
    let done = lines_of(&svc(&app, &["rdf", "import", file, "--base", "http://example.org/"]).await).remove(0);
    assert_eq!(
        (&done["triples"], &done["created"], &done["nodes_created"]),
        (&10_502.into(), &10_502.into(), &4.into())
    );
    let done = lines_of(&svc(&app, &["rdf", "import", file, "--base", "http://example.org/"]).await).remove(0);
    assert_eq!((&done["existing"], &done["nodes_created"]), (&10_502.into(), &0.into()));
    let answer = svc(&app, &["rdf", "export", "-o", went.to_str().unwrap()]).await;
    assert!(answer.status.success());
    let written = std::fs::read_to_string(&went).unwrap();
    assert_eq!(canonical(&written), canonical(&format!("@base <http://example.org/> .\n{text}")));
    let names = app.client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    assert!(names.iter().all(|predicate| predicate.namespace == "ex"), "{names:?}");

    // A fault at the end of a file keeps all of it out.
    std::fs::write(
        &came,
        format!("{}<http://e/a> <http://e/b> .", numbers.replace("<s> ex:p", "<http://e/s> <http://e/p>")),
    )
    .unwrap();
    let refused = svc(&app, &["rdf", "import", file]).await;
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("graph.ttl, line 10501, column"), "{said}");
    assert!(node(&app, "http://e/s").await.is_empty());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_goes_from_one_store_to_another_with_the_times_at_which_facts_hold() {
    let (app, other) = (idle().await, idle().await);
    let deriving = Deriving::start(&app);
    let text = "@prefix e: <http://e/> . e:a e:in e:b . e:b e:in e:c . e:c e:in _:d . e:a e:says 'once', 'now'@en . e:b a e:Place .";
    import(&app.client, ImportQuery::default(), text).await.unwrap();
    let facts = async |app: &TestApp| {
        let query =
            FactQuery { valid_at: Some(ValidAt::Any), asserted_only: true, limit: Some(1000), ..FactQuery::default() };
        app.client.list_facts(query).await.unwrap().facts
    };
    for fact in facts(&app).await {
        // A part of its time is withdrawn, so that what is left has bounds.
        let bounds = match (fact.predicate.as_str(), fact.object_literal.as_deref()) {
            ("e:in", _) => (Some(day(5)), Some(day(9))),
            (_, Some("once")) => (Some(day(3)), None),
            _ => continue,
        };
        let what = Invalidation { valid_from: bounds.0, valid_until: bounds.1, reason: None };
        app.client.invalidate_fact(FactPath { id: fact.id }, OptionalJson(Some(what))).await.unwrap();
    }
    let id = app.client.list_predicates(PredicateQuery::default()).await.unwrap();
    let id = id.predicates.iter().find(|predicate| predicate.name == "in").unwrap().id;
    let change = PredicateChange { transitive: Some(true), ..PredicateChange::default() };
    app.client.update_predicate(PredicatePath { id }, Json(change)).await.unwrap();
    deriving.done(&app).await;
    let history = export(&app.client, TurtleQuery { history: true, ..TurtleQuery::default() }).await;
    for term in ["validFrom", "validUntil", "recordedAt", "invalidatedAt", "derivedBy"] {
        assert!(history.contains(&format!("svc:{term} ")), "{term} in {history}");
    }
    // By IRIs and times, what both stores believe is the same; the second one learned it just now.
    let told = async |app: &TestApp| {
        let mut told = Vec::new();
        for fact in facts(app).await {
            let iris: Vec<(i64, Option<String>)> =
                sqlx::query_as("SELECT document_id, nullif(iri, CASE WHEN blank THEN iri END) FROM graph_nodes")
                    .fetch_all(&app.pool)
                    .await
                    .unwrap();
            let iri = |id: i64| iris.iter().find(|(known, _)| *known == id).unwrap().1.clone();
            // The text declares no prefix of its own, so the second store gives the predicates another namespace.
            let name = fact.predicate.split(':').next_back().map(str::to_owned);
            let object = fact.object_literal.clone().or_else(|| iri(fact.object_id?));
            told.push((
                iri(fact.subject_id),
                name.clone(),
                object,
                fact.object_language.clone(),
                fact.valid_from,
                fact.valid_until,
            ));
        }
        told.sort();
        told
    };
    let done = import(&other.client, ImportQuery::default(), &history).await.unwrap();
    assert_eq!(told(&other).await, told(&app).await);
    assert!(told(&other).await.len() > 8 && done.created > 0);
    assert!(facts(&other).await.iter().all(|fact| fact.recorded_at == done.recorded_at));
    let again = import(
        &other.client,
        ImportQuery { import: Some("again".to_owned()), ..ImportQuery::default() },
        "<http://e/a> <http://e/in> <http://e/z> .",
    )
    .await;
    assert!(again.is_ok());
    // A description that lacks a part is refused, and plain statements of RDF stay what they are.
    for (text, says) in [
        (
            "[] a rdf:Statement ; svc:validFrom '2024-01-01T00:00:00Z' ; rdf:subject e:x ; rdf:predicate e:p .",
            "one rdf:object",
        ),
        (
            "[] a rdf:Statement ; svc:validFrom 'then' ; rdf:subject e:x ; rdf:predicate e:p ; rdf:object 1 .",
            "RFC 3339",
        ),
        (
            "[] a rdf:Statement ; svc:recordedAt '' ; rdf:subject 1 ; rdf:predicate e:p ; rdf:object 1 .",
            "a literal as its rdf:subject",
        ),
    ] {
        let text = format!(
            "@prefix e: <http://e/> . @prefix svc: <urn:svc:history#> . @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . {text}"
        );
        let refused = import(&other.client, ImportQuery::default(), &text).await.unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains(says), "{}", refused.detail);
    }
    let plain = "@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . [] a rdf:Statement ; rdf:subject <http://e/x> ; rdf:predicate <http://e/p> ; rdf:object 1 .";
    assert_eq!(import(&other.client, ImportQuery::default(), plain).await.unwrap().created, 4);
    drop(deriving);
    app.end().await;
    other.end().await;
}
