//! What becomes of writes that break bound shapes.
use super::{SHAPES, bind, folder, people};
use crate::{
    ontologies::load,
    principals::{grant, idle, someone},
    support::{TestApp, document, until},
};
use svc_client::{
    Code, Failure, Json, OptionalJson,
    wire::{
        AssertedFact, FactPath, FactQuery, FactType, GrantRight, GraphQuery, LintAudit, LintRequest, NewDocument,
        NewFact, NewFacts, OntologyQuery, ShapeBindingChange, ShapeBindingPath, ShapeMode, Supersession,
        ValidationLimit, ValidationQuery, WaitQuery,
    },
};
use svc_ids::DocumentId;

const PERSON: &str = "http://example.org/PersonShape";

fn says(subject_id: i64, predicate: &str, literal: &str) -> NewFact {
    let (predicate, object_literal) = (Some(predicate.to_owned()), Some(literal.to_owned()));
    NewFact { subject_id: Some(subject_id), predicate, object_literal, ..NewFact::default() }
}

fn is_person(subject_id: i64) -> NewFact {
    NewFact {
        subject_id: Some(subject_id),
        predicate: Some("rdf:type".to_owned()),
        object_iri: Some("http://example.org/Person".to_owned()),
        fact_type: Some(FactType::Atemporal),
        ..NewFact::default()
    }
}

async fn assert(app: &TestApp, fact: NewFact) -> Result<AssertedFact, Failure> {
    app.client.assert_fact(Json(fact)).await
}

async fn batch(app: &TestApp, facts: Vec<NewFact>) -> Result<usize, Failure> {
    app.client.assert_facts(Json(NewFacts { facts, on_overlap: None })).await.map(|done| done.warnings.len())
}

/// The components of the results in a refusal.
fn components(failure: &Failure) -> Vec<String> {
    assert_eq!((failure.code, failure.status), (Code::ShapeViolation, 422), "{}", failure.detail);
    let results = failure.members["results"].as_array().unwrap();
    let last =
        |component: &str| component.rsplit('#').next().unwrap().trim_end_matches("ConstraintComponent").to_owned();
    results.iter().map(|result| last(result["component"].as_str().unwrap())).collect()
}

/// Shapes, a folder with a named person and a nameless one in it, and a document outside.
async fn prepared(app: &TestApp) -> (i64, i64, i64) {
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    let here = folder(app, "here", false).await;
    people(&app.client, here, "ex:x a ex:Person ; ex:name 'X' ; ex:knows ex:x ; ex:age 1 ; ex:born 1 ; ex:nick 1 .")
        .await
        .unwrap();
    let new = |title: &str, parent_id| NewDocument { parent_id, ..document(title, "") };
    let ada = app.client.create_document(WaitQuery::default(), Json(new("ada", Some(here)))).await.unwrap().id;
    let outside = app.client.create_document(WaitQuery::default(), Json(new("outside", None))).await.unwrap().id;
    (here, ada, outside)
}

async fn count(app: &TestApp) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM triples").fetch_one(&app.pool).await.unwrap()
}

#[tokio::test]
async fn a_write_that_breaks_a_shape_is_refused_warned_of_or_let_be() {
    let app = idle().await;
    let (here, ada, outside) = prepared(&app).await;
    let binding = bind(&app.client, PERSON, Some(here), Some(ShapeMode::Reject)).await.unwrap();
    let set = async |mode| {
        app.client
            .update_shape_binding(ShapeBindingPath { id: binding.id }, Json(ShapeBindingChange { mode }))
            .await
            .unwrap();
    };
    let before = count(&app).await;
    // A person needs a name, which may come with it.
    let refused = assert(&app, is_person(ada)).await.unwrap_err();
    assert_eq!(components(&refused), ["MinCount"]);
    assert!(
        refused.detail.contains("needs one name in letters")
            && refused.detail.contains(&format!("shape binding {}", binding.id)),
        "{}",
        refused.detail
    );
    assert_eq!(count(&app).await, before);
    assert_eq!(batch(&app, vec![is_person(ada), says(ada, "ex:name", "Ada")]).await.unwrap(), 0);
    // Elsewhere nothing is looked at.
    assert!(assert(&app, is_person(outside)).await.unwrap().warnings.is_empty());

    let name = FactQuery { subject_id: Some(ada), object_literal: Some("Ada".to_owned()), ..FactQuery::default() };
    let name = FactPath { id: app.client.list_facts(name).await.unwrap().facts[0].id };
    assert_eq!(components(&assert(&app, says(ada, "ex:name", "Augusta")).await.unwrap_err()), ["MaxCount"]);
    assert_eq!(components(&app.client.invalidate_fact(name, OptionalJson(None)).await.unwrap_err()), ["MinCount"]);
    let other = |text: &str| Json(Supersession { object_literal: Some(text.to_owned()), ..Supersession::default() });
    assert_eq!(components(&app.client.supersede_fact(name, other("ada")).await.unwrap_err()), ["Pattern"]);
    assert_eq!(components(&people(&app.client, here, "ex:y a ex:Person .").await.unwrap_err()), ["MinCount"]);
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM graph_nodes WHERE iri = 'http://example.org/y'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(stored, 0);
    assert!(app.client.supersede_fact(name, other("Augusta")).await.unwrap().warnings.is_empty());
    // What is less than a violation is told, and stored.
    let knows = NewFact { object_literal: None, object_id: Some(outside), ..says(ada, "ex:knows", "") };
    assert!(assert(&app, knows.clone()).await.unwrap().warnings.is_empty());
    let rex = NewFact { object_id: Some(here), ..knows };
    let warned = assert(&app, rex).await.unwrap().warnings;
    assert_eq!((warned.len(), warned[0].severity.as_str()), (1, "http://www.w3.org/ns/shacl#Warning"));

    set(ShapeMode::Warn).await;
    let warned = assert(&app, says(ada, "ex:name", "Ada")).await.unwrap().warnings;
    assert_eq!((warned.len(), warned[0].message.as_str()), (1, "needs one name in letters"));
    // What was broken before is not the fault of the next write.
    assert!(assert(&app, says(ada, "ex:age", "36")).await.unwrap().warnings.is_empty());
    set(ShapeMode::Reject).await;
    assert!(assert(&app, says(ada, "ex:born", "1815")).await.unwrap().warnings.is_empty());
    set(ShapeMode::Off).await;
    assert!(assert(&app, says(ada, "ex:name", "9")).await.unwrap().warnings.is_empty());
    app.end().await;
}

#[tokio::test]
async fn a_shape_binds_whoever_writes_there_by_what_it_may_read() {
    let app = idle().await;
    let (here, ada, _) = prepared(&app).await;
    let p = someone(&app, "p").await;
    app.client.protect_document(svc_client::wire::DocumentPath { id: here }).await.unwrap();
    grant(&app, &p, here, GrantRight::Write).await;
    // A closed text says that Ada has a name: the principal is not told by a count that is too high.
    let secret = folder(&app, "secret", true).await;
    batch(&app, vec![is_person(ada), NewFact { source_id: Some(secret), ..says(ada, "ex:name", "Ada") }])
        .await
        .unwrap();
    bind(&app.client, PERSON, Some(here), Some(ShapeMode::Reject)).await.unwrap();
    let done = p.client.assert_fact(Json(says(ada, "ex:name", "Augusta"))).await.unwrap();
    assert!(done.warnings.is_empty());
    let refused = p.client.assert_fact(Json(says(ada, "ex:name", "Lovelace"))).await.unwrap_err();
    assert_eq!(components(&refused), ["MaxCount"]);
    app.end().await;
}

#[tokio::test]
async fn a_shape_can_ask_that_no_two_nodes_say_the_same() {
    let app = idle().await;
    let text = "ex:Unique a sh:NodeShape ; sh:targetObjectsOf ex:code, ex:label ;
            sh:property [ sh:path [ sh:inversePath ex:code ] ; sh:maxCount 1 ] ; sh:property [ sh:path [ sh:inversePath ex:label ] ; sh:maxCount 1 ] .
        ex:Coded a sh:NodeShape ; sh:targetSubjectsOf ex:code ; sh:property [ sh:path ex:code ; sh:node ex:Unique ] .";
    load(&app.client, OntologyQuery::default(), text).await.unwrap();
    let [here, secret] = [folder(&app, "here", false).await, folder(&app, "secret", true).await];
    people(
        &app.client,
        here,
        "ex:a ex:code 'A', 1 ; ex:label 'same'@en . ex:b ex:code 'B', '1' ; ex:label 'same'@de, 'same' .",
    )
    .await
    .unwrap();
    people(&app.client, secret, "ex:hidden ex:code 'C' .").await.unwrap();
    // Literals of other types and languages are others.
    let unique = bind(&app.client, "http://example.org/Unique", None, None).await.unwrap();
    let results = async |client: &svc_client::Client<svc_client::Remote>| {
        let path = ShapeBindingPath { id: unique.id };
        let report = client.validate_shape(path, ValidationQuery::default()).await.unwrap();
        report.results.into_iter().map(|result| result.focus.literal.unwrap()).collect::<Vec<_>>()
    };
    assert!(results(&app.client).await.is_empty());
    let ada = app
        .client
        .create_document(WaitQuery::default(), Json(NewDocument { parent_id: Some(here), ..document("ada", "") }));
    let ada = ada.await.unwrap().id;
    bind(&app.client, "http://example.org/Coded", Some(here), Some(ShapeMode::Reject)).await.unwrap();
    assert_eq!(components(&assert(&app, says(ada, "ex:code", "B")).await.unwrap_err()), ["Node"]);
    // The code of a node that a principal may not read is free to it, and taken for who reads both.
    let p = someone(&app, "p").await;
    grant(&app, &p, here, GrantRight::Write).await;
    p.client.assert_fact(Json(says(ada, "ex:code", "C"))).await.unwrap();
    assert_eq!((results(&p.client).await, results(&app.client).await), (vec![], vec!["C".to_owned()]));
    app.end().await;
}

#[tokio::test]
async fn an_ontology_whose_text_was_spoiled_refuses_writes_by_name_until_it_is_mended_or_turned_off() {
    let app = idle().await;
    let (here, ada, _) = prepared(&app).await;
    let binding = bind(&app.client, PERSON, Some(here), Some(ShapeMode::Reject)).await.unwrap();
    let path = svc_client::wire::DocumentPath { id: binding.ontology_id };
    let spoiled = svc_client::wire::DocumentChange { content: Some("no Turtle".to_owned()), ..Default::default() };
    app.client.update_document(path, WaitQuery::default(), Json(spoiled)).await.unwrap();
    let refused = assert(&app, says(ada, "ex:name", "Ada")).await.unwrap_err();
    assert!(
        refused.code == Code::ShapeViolation
            && refused.detail.contains(&format!("shape binding {} cannot be used", binding.id)),
        "{}",
        refused.detail
    );
    // A warning is not worth a write.
    let warn = ShapeBindingChange { mode: ShapeMode::Warn };
    app.client.update_shape_binding(ShapeBindingPath { id: binding.id }, Json(warn)).await.unwrap();
    assert!(assert(&app, says(ada, "ex:nick", "A")).await.unwrap().warnings.is_empty());
    let off = ShapeBindingChange { mode: ShapeMode::Off };
    app.client.update_shape_binding(ShapeBindingPath { id: binding.id }, Json(off)).await.unwrap();
    assert(&app, says(ada, "ex:name", "Ada")).await.unwrap();
    // A second load mends it, and the binding holds again.
    load(&app.client, OntologyQuery::default(), SHAPES).await.unwrap();
    let on = ShapeBindingChange { mode: ShapeMode::Reject };
    app.client.update_shape_binding(ShapeBindingPath { id: binding.id }, Json(on)).await.unwrap();
    assert(&app, is_person(ada)).await.unwrap();
    assert_eq!(components(&assert(&app, says(ada, "ex:name", "Augusta")).await.unwrap_err()), ["MaxCount"]);
    app.end().await;
}

#[tokio::test]
async fn of_writers_at_the_same_time_no_two_break_a_shape_together() {
    let app = idle().await;
    let (here, ada, _) = prepared(&app).await;
    assert(&app, is_person(ada)).await.unwrap();
    bind(&app.client, PERSON, Some(here), Some(ShapeMode::Reject)).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let client = app.client.clone();
        let name = says(ada, "ex:name", &format!("A{number}"));
        writers.spawn(async move { client.assert_fact(Json(name)).await.is_ok() });
    }
    assert_eq!(writers.join_all().await.into_iter().filter(|is_stored| *is_stored).count(), 1);
    app.end().await;
}

#[tokio::test]
async fn a_database_that_is_too_slow_for_a_shape_refuses_by_name_or_is_told_of() {
    let app = idle().await;
    let (here, ada, _) = prepared(&app).await;
    let binding = bind(&app.client, PERSON, Some(here), Some(ShapeMode::Reject)).await.unwrap();
    let path = ShapeBindingPath { id: binding.id };
    // What shapes are held against reads this table, and what writes a fact by ids does not.
    let mut slow = svc::store::transaction::begin(&app.pool).await.unwrap();
    sqlx::query("LOCK TABLE graph_nodes IN ACCESS EXCLUSIVE MODE").execute(&mut *slow).await.unwrap();
    let refused = assert(&app, says(ada, "ex:nick", "A")).await.unwrap_err();
    assert!(refused.code == Code::ShapeViolation && refused.detail.contains("too slow"), "{refused:?}");
    assert!(!refused.members.contains_key("results"), "{refused:?}");
    let warn = ShapeBindingChange { mode: ShapeMode::Warn };
    app.client.update_shape_binding(path, Json(warn)).await.unwrap();
    let stored = assert(&app, says(ada, "ex:nick", "A")).await.unwrap();
    assert_eq!((stored.warnings.len(), stored.warnings_truncated), (0, Some(ValidationLimit::Time)));
    let client = app.client.clone();
    let validating = tokio::spawn(async move { client.validate_shape(path, ValidationQuery::default()).await });
    until("the validation", async || {
        let is_waiting: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'graph_nodes'::regclass AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))",
        )
        .fetch_one(&app.pool)
        .await
        .unwrap();
        is_waiting.then_some(())
    })
    .await;
    // It takes the place of an analysis meanwhile.
    let busy = app.client.read_graph_stats(GraphQuery::default()).await.unwrap_err();
    assert_eq!(busy.status, 429, "{busy:?}");
    let report = validating.await.unwrap().unwrap();
    assert_eq!((report.truncated, report.conforms), (Some(ValidationLimit::Time), None));
    slow.rollback().await.unwrap();
    let next = assert(&app, says(ada, "ex:nick", "B")).await.unwrap();
    assert_eq!(next.warnings_truncated, None);
    let facts = FactQuery { subject_id: Some(ada), ..FactQuery::default() };
    assert_eq!(app.client.list_facts(facts).await.unwrap().facts.len(), 2);
    app.end().await;
}

#[tokio::test]
async fn a_path_that_repeats_what_is_repeated_holds_up_no_writer_and_no_audit() {
    let app = idle().await;
    let path = (0..14).fold("ex:p".to_owned(), |path, _| format!("[ sh:zeroOrMorePath {path} ]"));
    let text = format!(
        "ex:Far a sh:NodeShape ; sh:targetSubjectsOf ex:p ; sh:property [ sh:path {path} ; sh:minCount 1 ; sh:maxCount 8 ] ."
    );
    load(&app.client, OntologyQuery::default(), &text).await.unwrap();
    let here = folder(&app, "here", false).await;
    let others = |node: usize| {
        let others: Vec<String> = (0..8).filter(|other| *other != node).map(|other| format!("ex:n{other}")).collect();
        format!("ex:n{node} ex:p {} .", others.join(", "))
    };
    let clique: Vec<String> = (0..8).map(others).collect();
    people(&app.client, here, &clique.join("\n")).await.unwrap();
    let binding = bind(&app.client, "http://example.org/Far", Some(here), Some(ShapeMode::Warn)).await.unwrap();
    let validate = async || {
        let path = ShapeBindingPath { id: binding.id };
        let report = app.client.validate_shape(path, ValidationQuery::default()).await.unwrap();
        (report.results.len(), report.truncated)
    };
    assert_eq!(validate().await, (0, None), "each reaches the eight");
    let written = people(&app.client, here, "ex:n0 ex:p ex:n9 .").await.unwrap();
    assert_eq!((written.created, written.warnings.len(), written.warnings_truncated), (1, 1, None));
    assert_eq!(written.warnings[0].component, "http://www.w3.org/ns/shacl#MaxCountConstraintComponent");
    assert_eq!(validate().await, (8, None));
    let asked = LintRequest { audits: Some(vec![LintAudit::Contradiction]), ..LintRequest::default() };
    let audit = app.client.lint_graph(Json(asked)).await.unwrap().audits.remove(0);
    assert_eq!((audit.count, audit.truncated), (8, false));
    app.end().await;
}

#[tokio::test]
async fn where_too_many_classes_are_below_those_of_a_shape_it_warns_of_nothing_and_says_so() {
    let app = idle().await;
    // Each class is below one, which is below each, so that each is below each.
    let classes: Vec<String> = (0..450).map(|class| format!("ex:c{class}")).collect();
    let below =
        classes.iter().map(|class| format!("{class} rdfs:subClassOf ex:all . ex:all rdfs:subClassOf {class} ."));
    let text = format!(
        "ex:Many a sh:NodeShape ; sh:targetClass {} ; sh:property [ sh:path ex:p ; sh:maxCount 1 ] .\n{}",
        classes.join(", "),
        below.collect::<Vec<_>>().join("\n")
    );
    load(&app.client, OntologyQuery::default(), &text).await.unwrap();
    let here = folder(&app, "here", false).await;
    let binding = bind(&app.client, "http://example.org/Many", None, Some(ShapeMode::Warn)).await.unwrap();
    let written = people(&app.client, here, "ex:a ex:p ex:b .").await.unwrap();
    assert_eq!((written.created, written.warnings.len()), (1, 0));
    assert!(written.warnings_truncated.is_some(), "{written:?}");
    let asked =
        LintRequest { audits: Some(vec![LintAudit::Contradiction, LintAudit::Coverage]), ..LintRequest::default() };
    let audits = app.client.lint_graph(Json(asked)).await.unwrap().audits;
    assert!(audits.len() == 2 && audits.iter().all(|audit| audit.truncated), "{audits:?}");
    let reject = ShapeBindingChange { mode: ShapeMode::Reject };
    app.client.update_shape_binding(ShapeBindingPath { id: binding.id }, Json(reject)).await.unwrap();
    let refused = people(&app.client, here, "ex:a ex:p ex:c .").await.unwrap_err();
    assert!(refused.code == Code::ShapeViolation && !refused.members.contains_key("results"), "{refused:?}");
    app.end().await;
}

#[tokio::test]
async fn an_ontology_that_is_loaded_again_answers_for_what_it_states_in_the_end() {
    let app = idle().await;
    let load = async |text: &str| load(&app.client, OntologyQuery::default(), text).await;
    let person = |labels: &str| format!("<http://example.org/o> a owl:Ontology . ex:Person a owl:Class {labels} .");
    load(&person("; rdfs:label 'Person'")).await.unwrap();
    load(
        "ex:Labelled a sh:NodeShape ; sh:targetClass owl:Class ; sh:property [ sh:path rdfs:label ; sh:minCount 1 ; sh:maxCount 1 ] .",
    )
    .await
    .unwrap();
    bind(&app.client, "http://example.org/Labelled", None, Some(ShapeMode::Reject)).await.unwrap();
    let labels = async || {
        let facts = app.client.list_facts(FactQuery::default()).await.unwrap().facts;
        facts.into_iter().filter_map(|fact| fact.object_literal).collect::<Vec<_>>()
    };
    assert_eq!(labels().await, ["Person"]);
    load(&person("; rdfs:label 'Human'")).await.unwrap();
    assert_eq!(labels().await, ["Human"]);
    let two = load(&person("; rdfs:label 'Human', 'Person'")).await.unwrap_err();
    assert_eq!(components(&two), ["MaxCount"]);
    assert_eq!(components(&load(&person("")).await.unwrap_err()), ["MinCount"]);
    assert_eq!(labels().await, ["Human"]);
    app.end().await;
}

/// Other writers of facts wait meanwhile.
#[tokio::test]
async fn a_write_is_compared_with_the_bindings_above_it_and_reads_no_others() {
    let app = idle().await;
    let (here, ada, outside) = prepared(&app).await;
    let above = bind(&app.client, PERSON, Some(here), None).await.unwrap();
    let all = bind(&app.client, "http://example.org/shapes", None, None).await.unwrap();
    let mut tx = svc::store::transaction::begin(&app.pool).await.unwrap();
    sqlx::query(
        "WITH made AS (INSERT INTO documents (title, content, usetype, content_hash, guard)
                       SELECT 't', '', 'markdown', 'sha256:', 0 FROM generate_series(1, 20000) RETURNING id)
         INSERT INTO shape_bindings (ontology_id, document_id, mode)
         SELECT b.ontology_id, m.id, 'warn' FROM made m, shape_bindings b WHERE b.id = $1",
    )
    .bind(above.id)
    .execute(&mut *tx)
    .await
    .unwrap();
    sqlx::raw_sql("ANALYZE documents; ANALYZE shape_bindings").execute(&mut *tx).await.unwrap();
    let read = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
                  FROM pg_stat_xact_user_tables WHERE relname = 'shape_bindings'";
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
    let found = svc::store::shape_bindings::concerned(&mut tx, &[ada, outside].map(DocumentId)).await.unwrap();
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
    let documents = |documents: Vec<DocumentId>| documents.into_iter().map(|id| id.0).collect::<Vec<_>>();
    let found: Vec<(i64, Vec<i64>)> =
        found.into_iter().map(|binding| (binding.id.0, documents(binding.documents))).collect();
    assert_eq!(found, [(above.id, vec![ada]), (all.id, vec![ada, outside])]);
    assert!(after - before < 100, "{} of 20,002 bindings were read", after - before);
    tx.rollback().await.unwrap();
    app.end().await;
}
