//! Ontologies: what a text in Turtle says of classes, predicates and individuals is in the store, and follows the text when it is loaded again.
use crate::{
    principals::{grant, idle, someone},
    rdf::{export, import},
    support::{document, until_a_statement_waits},
    triples::{doc, fact},
};
use serde_json::Value;
use std::collections::BTreeSet;
use svc_client::{
    Client, Code, Failure, Json, Meta, Remote, TurtleText,
    wire::{
        ClassPage, DocumentPath, EmbedQuery, FactQuery, GrantRight, ImportQuery, LintAudit, LintRequest, NewDocument,
        NewFact, NewPredicate, OnOverlap, OntologyQuery, OntologyResponse, PageQuery, PredicateChange, PredicatePath,
        PredicateQuery, PredicateResponse, PrincipalPath, TurtleQuery, ValidAt, WaitQuery,
    },
};

const HEAD: &str =
    "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
    @prefix sh: <http://www.w3.org/ns/shacl#> . @prefix ex: <http://example.org/> .\n";
const ZOO: &str = "<http://example.org/zoo> a owl:Ontology ; rdfs:label 'Zoo' ; owl:versionInfo '1' .
    ex:Animal a owl:Class ; rdfs:label 'Animal' . ex:Cat a owl:Class ; rdfs:subClassOf ex:Animal . ex:Tiger rdfs:subClassOf ex:Cat .
    ex:eats a owl:ObjectProperty, owl:AsymmetricProperty ; rdfs:label 'eats' ; rdfs:subPropertyOf ex:touches .
    ex:born a owl:DatatypeProperty, owl:FunctionalProperty ; rdfs:label 'born' . ex:shere a ex:Tiger ; ex:born 1894 .
    ex:CatShape a sh:NodeShape ; sh:targetClass ex:Cat ; sh:property [ sh:path ex:born ; sh:minCount 1 ] .";

pub async fn load(client: &Client<Remote>, query: OntologyQuery, text: &str) -> Result<OntologyResponse, Failure> {
    client.create_ontology(query, TurtleText(format!("{HEAD}{text}"))).await
}

async fn classes(client: &Client<Remote>, id: i64) -> ClassPage {
    client.list_classes(DocumentPath { id }, PageQuery::default()).await.unwrap()
}

async fn named(client: &Client<Remote>, name: &str) -> Option<PredicateResponse> {
    let found = client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    found.into_iter().find(|predicate| predicate.namespace == "ex" && predicate.name == name)
}

async fn by_iri(client: &Client<Remote>, name: &str) -> PredicateResponse {
    let found = client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    found.into_iter().find(|predicate| predicate.iri == format!("http://example.org/{name}")).unwrap()
}

/// What an ontology states now, in Turtle without the moments.
async fn stated(client: &Client<Remote>, id: i64) -> BTreeSet<String> {
    let query = TurtleQuery { parent_id: Some(id), ..TurtleQuery::default() };
    crate::rdf::canonical(&export(client, query).await)
}

#[tokio::test]
async fn an_ontology_is_its_text_classes_predicates_and_facts() {
    let app = idle().await;
    let made = load(&app.client, OntologyQuery::default(), ZOO).await.unwrap();
    assert_eq!((made.iri.as_str(), made.title.as_str()), ("http://example.org/zoo", "Zoo"));
    assert_eq!((made.classes, made.predicates, made.facts), (3, 2, 7));
    assert_eq!(made.shapes, ["http://example.org/CatShape"]);
    assert_eq!(
        made.not_used.into_iter().collect::<Vec<_>>(),
        [("http://www.w3.org/2002/07/owl#versionInfo".to_owned(), 1)]
    );

    let id = made.document_id;
    let path = DocumentPath { id };
    let text = app.client.read_document(path, EmbedQuery::default()).await.unwrap().value().unwrap();
    assert_eq!((text.usetype.as_str(), text.content), ("ontology", format!("{HEAD}{ZOO}")));
    let tree = classes(&app.client, id).await.classes;
    let of = |name: &str| tree.iter().find(|class| class.iri == format!("http://example.org/{name}")).unwrap();
    assert_eq!(of("Tiger").sub_class_of, [of("Cat").document_id]);
    assert_eq!(of("Cat").sub_class_of, [of("Animal").document_id]);
    assert_eq!((of("Animal").title.as_str(), of("Animal").sub_class_of.len()), ("Animal", 0));
    let children = app.client.list_children(path, PageQuery::default()).await.unwrap().documents;
    // The classes and the individual; a node of the shape is none.
    assert_eq!(children.len(), 5, "{children:?}");

    let (eats, born) = (named(&app.client, "eats").await.unwrap(), named(&app.client, "born").await.unwrap());
    assert!(eats.asymmetric && !eats.functional && born.functional && !born.asymmetric);
    assert_eq!((eats.label.as_deref(), eats.ontology_id), (Some("eats"), Some(id)));
    assert_eq!(eats.sub_property_of, [named(&app.client, "touches").await.unwrap().id]);

    let listed = app.client.list_ontologies(PageQuery::default()).await.unwrap().ontologies;
    assert_eq!(listed, [app.client.read_ontology(path).await.unwrap()]);
    let document = doc(&app, "no ontology").await;
    for id in [document, 999] {
        assert_eq!(app.client.read_ontology(DocumentPath { id }).await.unwrap_err().code, Code::NotFound);
        assert_eq!(app.client.delete_ontology(DocumentPath { id }).await.unwrap_err().code, Code::NotFound);
    }
    app.end().await;
}

#[tokio::test]
async fn an_ontology_that_changed_since_it_was_read_is_not_deleted() {
    let app = idle().await;
    let id = load(&app.client, OntologyQuery::default(), ZOO).await.unwrap().document_id;
    let path = DocumentPath { id };
    let version = async || {
        let read = app.client.read_document(path, EmbedQuery::default()).await.unwrap();
        read.etag().to_owned()
    };
    let given = |etag: String| app.client.given(Meta { if_match: Some(etag), ..Meta::default() });
    let first = version().await;
    let changed = ZOO.replace("versionInfo '1'", "versionInfo '2'");
    assert_eq!(load(&app.client, OntologyQuery::default(), &changed).await.unwrap().document_id, id);
    let refused = given(first).delete_ontology(path).await.unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::PreconditionFailed, 412));
    assert_eq!(app.client.read_ontology(path).await.unwrap().document_id, id);
    given(version().await).delete_ontology(path).await.unwrap();
    assert_eq!(app.client.read_ontology(path).await.unwrap_err().code, Code::NotFound);
    app.end().await;
}

#[tokio::test]
async fn what_a_changed_ontology_states_as_before_is_not_stale_and_is_cited_twice_at_most() {
    let app = idle().await;
    let first = load(&app.client, OntologyQuery::default(), ZOO).await.unwrap();
    let longer = format!("{ZOO} ex:Dog a owl:Class .");
    let second = load(&app.client, OntologyQuery::default(), &longer).await.unwrap();
    assert_eq!((second.document_id, second.classes), (first.document_id, first.classes + 1));
    load(&app.client, OntologyQuery::default(), &format!("{longer} ex:Bird a owl:Class .")).await.unwrap();
    let asked = LintRequest { audits: Some(vec![LintAudit::Staleness]), ..LintRequest::default() };
    assert_eq!(app.client.lint_graph(Json(asked)).await.unwrap().audits[0].count, 0);
    let most = "SELECT max(c.citations) FROM (SELECT count(*) AS citations FROM triple_citations GROUP BY triple_id) c";
    assert_eq!(sqlx::query_scalar::<_, i64>(most).fetch_one(&app.pool).await.unwrap(), 2);
    app.end().await;
}

#[tokio::test]
async fn a_second_load_states_what_the_new_text_states_and_closes_the_rest() {
    let app = idle().await;
    let first = load(&app.client, OntologyQuery::default(), ZOO).await.unwrap();
    let id = first.document_id;
    // What another document states too stays.
    let other = doc(&app, "other").await;
    let query = ImportQuery { parent_id: Some(other), ..ImportQuery::default() };
    let shared = format!("{HEAD} ex:Tiger rdfs:subClassOf ex:Cat .");
    assert_eq!(import(&app.client, query, &shared).await.unwrap().existing, 1);
    let before = stated(&app.client, id).await;
    let again = load(&app.client, OntologyQuery::default(), ZOO).await.unwrap();
    assert_eq!((again.document_id, again.facts), (id, 7));
    assert_eq!(stated(&app.client, id).await, before);
    let closed = FactQuery { invalidated: true, valid_at: Some(ValidAt::Any), ..FactQuery::default() };
    assert_eq!(app.client.list_facts(closed.clone()).await.unwrap().facts.len(), 0);

    // What is to be private takes the place of nothing that others may read.
    let private = OntologyQuery { private: true, ..OntologyQuery::default() };
    let closed_one = load(&app.client, private, "<http://example.org/zoo> a owl:Ontology .").await.unwrap();
    assert_ne!(closed_one.document_id, id);
    app.client.delete_ontology(DocumentPath { id: closed_one.document_id }).await.unwrap();

    let zoo = "<http://example.org/zoo> a owl:Ontology ; rdfs:label 'The zoo' . ex:Animal a owl:Class . ex:Cat rdfs:subClassOf ex:Animal .
        ex:Tiger a owl:Class . ex:born a owl:DatatypeProperty .";
    let second = load(&app.client, OntologyQuery::default(), zoo).await.unwrap();
    assert_eq!((second.document_id, second.classes, second.shapes.len()), (id, 3, 0));
    assert_eq!(second.title, "The zoo");
    let (eats, born) = (named(&app.client, "eats").await.unwrap(), named(&app.client, "born").await.unwrap());
    assert!(!eats.asymmetric && eats.ontology_id.is_none() && !born.functional);
    assert_eq!((born.ontology_id, born.label), (Some(id), None));
    let closed = app.client.list_facts(closed).await.unwrap().facts;
    assert!(closed.iter().all(|fact| fact.invalidation.as_deref() == Some("replaced")), "{closed:?}");
    // The label of the class, the type of the cat, the individual with its year, and the subclass, which goes on without the ontology.
    assert_eq!(closed.len(), 5, "{closed:?}");
    let tree = classes(&app.client, id).await.classes;
    let tiger = tree.iter().find(|class| class.iri.ends_with("Tiger")).unwrap();
    assert_eq!(tiger.sub_class_of.len(), 1);
    let kept = FactQuery { subject_id: Some(tiger.document_id), ..FactQuery::default() };
    let kept = app.client.list_facts(kept).await.unwrap().facts;
    let kept = kept.iter().find(|fact| fact.predicate == "rdfs:subClassOf").unwrap();
    assert_eq!((kept.source_id, kept.citations.len()), (Some(other), 1));

    // Under another document it is another ontology.
    let elsewhere = OntologyQuery { parent_id: Some(other), ..OntologyQuery::default() };
    assert_ne!(load(&app.client, elsewhere, zoo).await.unwrap().document_id, id);
    app.client.delete_ontology(DocumentPath { id }).await.unwrap();
    assert_eq!(
        app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.err().unwrap().code,
        Code::NotFound
    );
    app.end().await;
}

#[tokio::test]
async fn what_an_ontology_says_of_predicates_goes_with_it_and_leaves_what_others_said() {
    let app = idle().await;
    let by_hand = NewPredicate {
        name: "born".to_owned(),
        namespace: Some("ex".to_owned()),
        iri: Some("http://example.org/born".to_owned()),
        label: Some("year of birth".to_owned()),
        ..NewPredicate::default()
    };
    app.client.create_predicate(Json(by_hand)).await.unwrap();
    let p = someone(&app, "p").await;
    // A principal's ontology changes nothing of a predicate that somebody created.
    let theirs = load(&p.client, OntologyQuery::default(), ZOO).await.unwrap();
    let born = named(&app.client, "born").await.unwrap();
    assert!(!born.functional && born.ontology_id.is_none() && born.label.as_deref() == Some("year of birth"));
    let owl = |word: &str| format!("http://www.w3.org/2002/07/owl#{word}");
    let unused: Vec<(String, u32)> = theirs.not_used.clone().into_iter().collect();
    assert_eq!(
        unused,
        [
            ("http://www.w3.org/2000/01/rdf-schema#label".to_owned(), 1),
            (owl("FunctionalProperty"), 1),
            (owl("versionInfo"), 1)
        ],
        "what it says of it in vain is told"
    );
    // It is the principal's own, and so are its predicates.
    let q = someone(&app, "q").await;
    assert_eq!(q.client.read_ontology(DocumentPath { id: theirs.document_id }).await.unwrap_err().code, Code::NotFound);
    assert!(q.client.list_ontologies(PageQuery::default()).await.unwrap().ontologies.is_empty());
    let seen = q.client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    assert!(seen.iter().all(|predicate| predicate.name != "eats"), "{seen:?}");
    let eats = by_iri(&app.client, "eats").await;
    assert_eq!((eats.namespace.as_str(), eats.ontology_id), ("imported", Some(theirs.document_id)));
    // The owner's comes beside it, and says the same to all.
    let ours = load(&app.client, OntologyQuery::default(), ZOO).await.unwrap();
    assert_ne!(ours.document_id, theirs.document_id);
    assert_eq!(named(&app.client, "born").await.unwrap().ontology_id, Some(ours.document_id));
    p.client.delete_ontology(DocumentPath { id: theirs.document_id }).await.unwrap();
    let eats = named(&q.client, "eats").await.unwrap();
    assert!(eats.asymmetric && eats.ontology_id == Some(ours.document_id));
    let labels = named(&app.client, "born").await.unwrap();
    assert!(labels.functional && labels.label.as_deref() == Some("year of birth"), "what was said by hand comes first");

    // Who may read the document and not change it may not delete the ontology.
    grant(&app, &p, ours.document_id, GrantRight::Read).await;
    let refused = p.client.delete_ontology(DocumentPath { id: ours.document_id }).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    // It goes with the document, too.
    app.client.delete_document(DocumentPath { id: ours.document_id }).await.unwrap();
    assert!(app.client.list_ontologies(PageQuery::default()).await.unwrap().ontologies.is_empty());
    let (eats, born) = (named(&app.client, "eats").await.unwrap(), named(&app.client, "born").await.unwrap());
    assert!(!eats.asymmetric && eats.ontology_id.is_none() && !born.functional && born.ontology_id.is_none());
    app.end().await;
}

#[tokio::test]
async fn a_predicate_of_which_ontologies_contradict_each_other_is_changed_by_hand() {
    let app = idle().await;
    for word in ["Symmetric", "Asymmetric"] {
        let text = format!("ex:near a owl:{word}Property .");
        load(&app.client, OntologyQuery::default(), &text).await.unwrap();
    }
    let path = PredicatePath { id: named(&app.client, "near").await.unwrap().id };
    let change = async |change: PredicateChange| app.client.update_predicate(path, Json(change)).await;
    let label = Some("is near".to_owned());
    let changed = change(PredicateChange { label: Some(label.clone()), ..PredicateChange::default() }).await.unwrap();
    assert_eq!((changed.label, changed.symmetric, changed.asymmetric), (label, true, true));
    change(PredicateChange { symmetric: Some(false), ..PredicateChange::default() }).await.unwrap();
    let opposed = PredicateChange { symmetric: Some(true), ..PredicateChange::default() };
    assert_eq!(change(opposed).await.unwrap_err().code, Code::InvalidField);
    app.end().await;
}

#[tokio::test]
async fn what_a_principal_loaded_never_becomes_the_owners_to_replace() {
    let app = idle().await;
    let p = someone(&app, "p").await;
    let theirs = load(&p.client, OntologyQuery::default(), ZOO).await.unwrap().document_id;
    let ours = load(&app.client, OntologyQuery::default(), ZOO).await.unwrap().document_id;
    assert!(theirs < ours);
    app.client.delete_principal(PrincipalPath { id: p.id }).await.unwrap();
    let changed = ZOO.replace("versionInfo '1'", "versionInfo '2'");
    assert_eq!(load(&app.client, OntologyQuery::default(), &changed).await.unwrap().document_id, ours);
    let text = async |id| {
        let read = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
        read.value().unwrap().content
    };
    assert_eq!((text(theirs).await, text(ours).await), (format!("{HEAD}{ZOO}"), format!("{HEAD}{changed}")));
    app.end().await;
}

#[tokio::test]
async fn a_text_that_is_no_ontology_stores_nothing() {
    let app = idle().await;
    for (text, says) in [
        ("ex:a ex:b", "line 3, column"),
        ("ex:p a owl:SymmetricProperty, owl:AsymmetricProperty .", "symmetric and asymmetric"),
    ] {
        let refused = load(&app.client, OntologyQuery::default(), text).await.unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains(says), "{}", refused.detail);
    }
    let missing = OntologyQuery { parent_id: Some(999), ..OntologyQuery::default() };
    assert_eq!(load(&app.client, missing, ZOO).await.unwrap_err().code, Code::NotFound);
    let closed =
        app.client.create_document(WaitQuery::default(), Json(NewDocument { private: true, ..document("closed", "") }));
    let closed = closed.await.unwrap().id;
    let p = someone(&app, "p").await;
    grant(&app, &p, closed, GrantRight::Read).await;
    let under = OntologyQuery { parent_id: Some(closed), ..OntologyQuery::default() };
    assert_eq!(load(&p.client, under, ZOO).await.unwrap_err().code, Code::Forbidden);
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(count, 1);
    // An ontology may be empty, and have no name.
    let empty = load(&app.client, OntologyQuery::default(), "").await.unwrap();
    assert_eq!(empty.iri, format!("urn:svc:document/{}", empty.document_id));
    app.end().await;
}

#[tokio::test]
async fn an_ontology_is_sent_as_turtle_and_as_nothing_else() {
    let app = idle().await;
    let triple =
        "<http://e/C> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/2002/07/owl#Class> .";
    let send = async |media_type: Option<&str>| {
        let request = app.raw("POST", "/ontologies").body(triple);
        let request = media_type.into_iter().fold(request, |request, name| request.header("content-type", name));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    for refused in ["application/n-triples", "text/plain", "application/json"] {
        let (status, problem) = send(Some(refused)).await;
        assert_eq!((status, problem["code"].as_str()), (415, Some("unsupported_media_type")), "{refused}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("`Content-Type: text/turtle`") && detail.contains(&format!("`{refused}`")), "{detail}");
    }
    let (status, problem) = send(None).await;
    assert!(status == 415 && problem["detail"].as_str().unwrap().ends_with("without one"), "{problem}");
    let (status, made) = send(Some("Text/Turtle; charset=utf-8")).await;
    assert_eq!((status, made["classes"].as_i64()), (201, Some(1)), "{made}");
    app.end().await;
}

#[tokio::test]
async fn an_export_has_what_ontologies_say_for_who_may_read_them_and_reads_back_as_they_were() {
    let (app, other) = (idle().await, idle().await);
    let said = "ex:eats rdfs:domain ex:Animal ; rdfs:range ex:Animal, ex:Plant ; rdfs:comment 'takes in' ; owl:inverseOf ex:feeds .
        ex:born rdfs:range <http://www.w3.org/2001/XMLSchema#gYear> . ex:feeds owl:propertyDisjointWith ex:born .";
    let made = load(&app.client, OntologyQuery::default(), &format!("{ZOO} {said}")).await.unwrap();
    assert!(made.not_used.keys().all(|term| term.ends_with("versionInfo")), "{:?}", made.not_used);
    // The text is an ontology by itself.
    let text = export(&app.client, TurtleQuery { ontologies: true, ..TurtleQuery::default() }).await;
    let again = other.client.create_ontology(OntologyQuery::default(), TurtleText(text)).await.unwrap();
    assert_eq!((again.iri.as_str(), again.classes, again.predicates), ("http://example.org/zoo", 3, 3));
    for name in ["eats", "born", "feeds"] {
        let [one, two] = [named(&app.client, name).await.unwrap(), by_iri(&other.client, name).await];
        let of = |said: &PredicateResponse| {
            let counts = (said.inverse_of.is_some(), said.sub_property_of.len(), said.disjoint_with.len());
            (said.label.clone(), said.description.clone(), said.functional, said.asymmetric, counts)
        };
        assert_eq!(of(&one), of(&two), "{name}");
    }

    let secret = "<http://secret.example/> a owl:Ontology . <http://secret.example/pays> a owl:TransitiveProperty .";
    load(&app.client, OntologyQuery { private: true, ..OntologyQuery::default() }, secret).await.unwrap();
    let [data, a] = [doc(&app, "data").await, doc(&app, "a").await];
    app.client.assert_fact(Json(NewFact { source_id: Some(data), ..fact(a, "ex:eats", a) })).await.unwrap();
    let stranger = someone(&app, "stranger").await;
    let lines = async |client: &Client<Remote>, parent_id: Option<i64>, ontologies: bool| {
        crate::rdf::canonical(&export(client, TurtleQuery { parent_id, ontologies, ..TurtleQuery::default() }).await)
    };
    let vocabulary = format!(
        "{HEAD} @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . <http://example.org/zoo> a owl:Ontology ; rdfs:label 'Zoo' .
         ex:eats a rdf:Property, owl:AsymmetricProperty ; rdfs:label 'eats' ; rdfs:subPropertyOf ex:touches .
         ex:born a rdf:Property, owl:FunctionalProperty ; rdfs:label 'born' . ex:feeds a rdf:Property . {said}"
    );
    let vocabulary = crate::rdf::canonical(&vocabulary);
    let plain = lines(&stranger.client, None, false).await;
    assert!(plain.is_disjoint(&vocabulary), "without being asked an export is of facts alone");
    assert_eq!(lines(&stranger.client, None, true).await, plain.union(&vocabulary).cloned().collect());
    let owner = lines(&app.client, None, true).await;
    let hidden: Vec<&String> = owner.iter().filter(|line| line.contains("secret.example")).collect();
    assert_eq!(hidden.len(), 4, "the owner reads the closed one too: {hidden:?}");
    // With the facts of one document come the classes, and not the individuals.
    let only = lines(&stranger.client, Some(data), false).await;
    assert_eq!(only.len(), 1);
    let classes = lines(&stranger.client, Some(data), true).await;
    let classes: BTreeSet<String> =
        classes.difference(&vocabulary).filter(|line| !only.contains(*line)).cloned().collect();
    assert!(classes.len() == 5 && classes.iter().all(|line| plain.contains(line)), "{classes:?}");
    assert!(!classes.iter().any(|line| line.contains("shere")), "{classes:?}");

    app.end().await;
    other.end().await;
}

#[tokio::test]
async fn an_ontology_is_called_by_one_line() {
    let app = idle().await;
    let iri = "http://example.org/zoo";
    for (label, title) in [("Zoo\\n of \\u001b[2Jbirds", "Zoo of [2Jbirds"), ("\\u0007", iri)] {
        let text = format!("<{iri}> a owl:Ontology ; rdfs:label '{label}' .");
        assert_eq!(load(&app.client, OntologyQuery::default(), &text).await.unwrap().title, title);
    }
    app.end().await;
}

#[tokio::test]
async fn predicates_with_one_name_are_described_by_one_ontology() {
    let app = idle().await;
    for (subject, host) in [("s", "a"), ("t", "b")] {
        let text = format!("<urn:x:{subject}> <http://{host}.example/name> 'x' .");
        import(&app.client, ImportQuery::default(), &text).await.unwrap();
    }
    let text = "<http://a.example/name> a owl:DatatypeProperty, owl:FunctionalProperty . <http://b.example/name> a owl:DatatypeProperty .
        <http://c.example/o> a owl:Ontology .";
    let made = load(&app.client, OntologyQuery::default(), text).await.unwrap();
    assert_eq!(made.predicates, 2);
    let found = app.client.list_predicates(PredicateQuery::default()).await.unwrap().predicates;
    let [a, b] = ["a", "b"]
        .map(|host| found.iter().find(|predicate| predicate.iri == format!("http://{host}.example/name")).unwrap());
    assert_ne!((&a.namespace, &a.name), (&b.namespace, &b.name));
    assert!(a.functional && !b.functional);
    app.end().await;
}

/// Whoever may read a closed text keeps what it states, where an open one no longer states it.
#[tokio::test]
async fn what_another_text_states_in_its_own_place_outlives_a_second_load() {
    let app = idle().await;
    let head = "<http://example.org/o> a owl:Ontology .";
    let stated = "<urn:x:a> <urn:x:p> <urn:x:b> .";
    let made = load(&app.client, OntologyQuery::default(), &format!("{head} {stated}")).await.unwrap();
    let facts = app.client.list_facts(FactQuery::default()).await.unwrap().facts;
    let one = facts.iter().find(|fact| fact.predicate.ends_with("p")).unwrap();
    let text = doc(&app, "Text").await;
    let again = |on_overlap| NewFact {
        source_id: Some(text),
        on_overlap,
        ..fact(one.subject_id, "urn:x:p", one.object_id.unwrap())
    };
    app.client.assert_fact(Json(again(Some(OnOverlap::Merge)))).await.unwrap();
    app.client.protect_document(DocumentPath { id: text }).await.unwrap();
    app.client.assert_fact(Json(again(None))).await.unwrap();
    let second = load(&app.client, OntologyQuery::default(), head).await.unwrap();
    assert_eq!(second.document_id, made.document_id);
    let left = app.client.list_facts(FactQuery::default()).await.unwrap().facts;
    let left: Vec<_> =
        left.iter().filter(|fact| fact.subject_id == one.subject_id).map(|fact| fact.source_id).collect();
    assert_eq!(left, [Some(text)]);
    app.end().await;
}

/// Makes a predicate of the zoo, as another import does.
const MADE: &str =
    "INSERT INTO predicates (namespace, name, iri, is_functional, is_inverse_functional, is_symmetric, is_asymmetric, is_transitive,
            is_irreflexive, sub_property_of, disjoint_with, is_declared)
     VALUES ('ex', 'eats', 'http://example.org/eats', false, false, false, false, false, false, '{}', '{}', false)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_waits_for_a_predicate_holds_up_nobody_who_writes_facts() {
    let app = idle().await;
    let mut other = app.pool.begin().await.unwrap();
    sqlx::query(MADE).execute(&mut *other).await.unwrap();
    let loading = tokio::spawn({
        let client = app.client.clone();
        async move { load(&client, OntologyQuery::default(), ZOO).await }
    });
    until_a_statement_waits(&app.pool).await;
    let pen = "SELECT at FROM knowledge_clock FOR UPDATE NOWAIT";
    sqlx::query(pen).execute(&mut *other).await.expect("the load does not have the pen");
    other.commit().await.unwrap();
    assert_eq!(loading.await.unwrap().unwrap().predicates, 2);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_waits_for_another_import_holds_no_predicate() {
    let app = idle().await;
    let mut other = app.pool.begin().await.unwrap();
    let zone = "SELECT pg_advisory_xact_lock(hashtextextended('graph_nodes', 0))";
    sqlx::query(zone).execute(&mut *other).await.unwrap();
    let loading = tokio::spawn({
        let client = app.client.clone();
        async move { load(&client, OntologyQuery::default(), ZOO).await }
    });
    until_a_statement_waits(&app.pool).await;
    sqlx::query("SET LOCAL lock_timeout = '500ms'").execute(&mut *other).await.unwrap();
    sqlx::query(MADE).execute(&mut *other).await.expect("the load has made no predicate");
    other.commit().await.unwrap();
    assert_eq!(loading.await.unwrap().unwrap().predicates, 2);
    app.end().await;
}
