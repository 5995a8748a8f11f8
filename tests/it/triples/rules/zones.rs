//! What follows in one zone, and nowhere else.
use super::*;
use crate::{principals::grant, support::Wish, triples::under};
use svc_client::wire::GrantRight;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_from_which_too_much_follows_in_one_zone_hold_in_the_others() {
    let app =
        TestApp::with(Wish { no_worker: true, settings: &[("SVC_RULES_MAX_DERIVED", "3")], ..Wish::default() }).await;
    let deriving = Deriving::start(&app);
    let [one, other] = [someone(&app, "one").await, someone(&app, "other").await];
    ruled(&app, NewPredicate { symmetric: true, ..named("near") }).await;
    let (a, b) = (doc(&app, "A").await, doc(&app, "B").await);
    let stated = assert(&app, fact(a, "near", b)).await.unwrap().fact.id;
    deriving.done(&app).await;
    let [follows] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    assert_eq!(follows.premises, [stated]);
    let told = async |client: &Client<Remote>| {
        let near = "default:near".to_owned();
        let given_up = client.read_graph_stats(GraphQuery::default()).await.unwrap().derivation.given_up;
        let asked = LintRequest { audits: Some(vec![LintAudit::Rules]), ..LintRequest::default() };
        let findings = client.lint_graph(Json(asked)).await.unwrap().audits.remove(0).findings;
        (given_up.contains(&near), findings.iter().any(|found| found.predicate.as_ref() == Some(&near)))
    };

    // By what one says in a text of its own, much follows from a chain that all may read.
    let prefixes = "@prefix ex: <http://example.org/> . @prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .";
    let chain: String = (0..20).map(|at| format!("ex:n{at} ex:big ex:n{} . ", at + 1)).collect();
    let chain = RdfText { syntax: RdfSyntax::Turtle, text: format!("{prefixes}\n{chain}") };
    app.client.import_turtle(ImportQuery::default(), chain).await.unwrap();
    let big = "<http://example.org/mine> a owl:Ontology . ex:big a owl:TransitiveProperty ; rdfs:subPropertyOf <urn:svc:predicate/default/near> .";
    let private = OntologyQuery { private: true, ..OntologyQuery::default() };
    one.client.create_ontology(private, TurtleText(format!("{prefixes}\n{big}"))).await.unwrap();
    deriving.done(&app).await;
    let still = derived(&app).await;
    assert_eq!(still.iter().map(|fact| fact.id).collect::<Vec<_>>(), [follows.id], "it was not derived anew");
    assert_eq!(told(&app.client).await, (true, true));
    assert_eq!(told(&one.client).await, (true, true));
    assert_eq!(told(&other.client).await, (false, false), "nobody else is told of it");

    // So are zones with more facts than are looked at.
    let secret = NewDocument { private: true, ..document("secret", "") };
    let secret = app.client.create_document(WaitQuery::default(), Json(secret)).await.unwrap().id;
    for part in 0..3 {
        let many: Vec<String> = (part * 6_700..(part + 1) * 6_700).map(|number| number.to_string()).collect();
        let text = format!("{prefixes}\nex:secret <urn:svc:predicate/default/near> {} .", many.join(", "));
        let within = ImportQuery { parent_id: Some(secret), ..ImportQuery::default() };
        app.client.import_turtle(within, RdfText { syntax: RdfSyntax::Turtle, text }).await.unwrap();
    }
    let (c, d) = (doc(&app, "C").await, doc(&app, "D").await);
    assert(&app, fact(c, "near", d)).await.unwrap();
    deriving.done(&app).await;
    let ends: Vec<(i64, Option<i64>)> =
        derived(&app).await.iter().map(|fact| (fact.subject_id, fact.object_id)).collect();
    assert_eq!(ends.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([(b, Some(a)), (d, Some(c))]));
    app.end().await;
}

/// Whoever may write in one place alone cannot fill what is open to all.
#[tokio::test]
async fn what_is_said_without_a_source_of_closed_documents_ends_no_rule_elsewhere() {
    let wish = Wish { no_worker: true, settings: &[("SVC_RULES_MAX_DERIVED", "3")], ..Wish::default() };
    let app = TestApp::with(wish).await;
    let deriving = Deriving::start(&app);
    ruled(&app, NewPredicate { symmetric: true, ..named("near") }).await;
    let (a, b) = (doc(&app, "A").await, doc(&app, "B").await);
    assert(&app, fact(a, "near", b)).await.unwrap();
    deriving.done(&app).await;
    let [follows] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    let mallory = someone(&app, "mallory").await;
    let own = doc(&app, "Own").await;
    app.client.protect_document(DocumentPath { id: own }).await.unwrap();
    grant(&app, &mallory, own, GrantRight::Write).await;
    // What follows from the one is what the other says.
    assert(&app, fact(b, "near", own)).await.unwrap();
    mallory.client.assert_fact(Json(fact(own, "near", b))).await.unwrap();
    for number in 0..10 {
        let one = under(&app, &format!("{number}"), Some(own)).await;
        mallory.client.assert_fact(Json(fact(one, "near", own))).await.unwrap();
    }
    deriving.done(&app).await;
    let still = derived(&app).await;
    assert_eq!(still.iter().map(|fact| fact.id).collect::<Vec<_>>(), [follows.id]);
    let given_up = app.client.read_graph_stats(GraphQuery::default()).await.unwrap().derivation.given_up;
    assert_eq!(given_up, ["default:near"]);
    app.end().await;
}

/// By a private axiom a type may follow that is asserted in the same place.
#[tokio::test]
async fn a_private_predicate_below_that_of_types_ends_no_rule_elsewhere() {
    let app = idle().await;
    let deriving = Deriving::start(&app);
    let one = someone(&app, "one").await;
    let prefixes = "@prefix ex: <http://example.org/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .";
    let said =
        "<http://example.org/mine> a owl:Ontology . ex:is rdfs:subPropertyOf rdf:type . ex:K rdfs:subClassOf ex:L .
        ex:x ex:is ex:A ; a ex:A .";
    let private = OntologyQuery { private: true, ..OntologyQuery::default() };
    one.client.create_ontology(private, TurtleText(format!("{prefixes}\n{said}"))).await.unwrap();
    let text = format!("{prefixes}\nex:tom a ex:Cat . ex:Cat rdfs:subClassOf ex:Animal .");
    app.client.import_turtle(ImportQuery::default(), RdfText { syntax: RdfSyntax::Turtle, text }).await.unwrap();
    deriving.done(&app).await;
    let [follows] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    assert!(follows.derived_by.as_ref().is_some_and(|rule| rule.starts_with("rule:sub_class_of:")), "{follows:?}");
    let findings = app.client.list_findings().await.unwrap().findings;
    assert!(findings.iter().all(|found| found.kind != FindingKind::RulesFailed), "{findings:?}");
    app.end().await;
}

/// By such an axiom the types of all classes would have to be read.
#[tokio::test]
async fn a_private_predicate_below_that_of_types_ends_no_rule_elsewhere_where_many_have_types() {
    let wish = Wish { no_worker: true, settings: &[("SVC_RULES_MAX_DERIVED", "1")], ..Wish::default() };
    let app = TestApp::with(wish).await;
    let one = someone(&app, "one").await;
    let prefixes = "@prefix ex: <http://example.org/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .";
    let text = format!("{prefixes}\nex:tom a ex:Cat . ex:Cat rdfs:subClassOf ex:Animal .");
    app.client.import_turtle(ImportQuery::default(), RdfText { syntax: RdfSyntax::Turtle, text }).await.unwrap();
    let many =
        "INSERT INTO triples (zone, subject_id, predicate_id, object_literal, object_datatype, statement, created_at, recorded_at, fact_type)
         SELECT 0, t.subject_id, t.predicate_id, n::text, 'http://www.w3.org/2001/XMLSchema#string', gen_random_uuid(), take_pen(), take_pen(), 'atemporal'
           FROM triples t JOIN predicates p ON p.id = t.predicate_id AND p.iri = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type', generate_series(1, 20001) n";
    sqlx::query(many).execute(&app.pool).await.unwrap();
    let said = "<http://example.org/mine> a owl:Ontology . ex:is rdfs:subPropertyOf rdf:type .";
    let private = OntologyQuery { private: true, ..OntologyQuery::default() };
    one.client.create_ontology(private, TurtleText(format!("{prefixes}\n{said}"))).await.unwrap();
    let deriving = Deriving::start(&app);
    deriving.done(&app).await;
    let [follows] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    assert!(follows.derived_by.as_ref().is_some_and(|rule| rule.starts_with("rule:sub_class_of:")), "{follows:?}");
    app.end().await;
}
