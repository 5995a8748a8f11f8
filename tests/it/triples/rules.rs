//! What rules derive: beside the naive closure after any sequence of writes, at every moment and at every time that was known, and what
//! callers are told of it.
mod zones;

use super::{assert, day, doc, fact, predicate};
use crate::{
    access::Random,
    admin::{run, worker_command},
    principals::{idle, someone},
    support::{TOKEN, TestApp, document, until},
};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use svc_client::{
    Client, Json, OptionalJson, RdfSyntax, RdfText, Remote, TurtleText,
    wire::{
        DocumentPath, FactPath, FactQuery, FactResponse, Finding, FindingKind, GraphQuery, ImportQuery, Invalidation,
        LintAudit, LintKind, LintRequest, NewDocument, NewFact, NewFacts, NewPredicate, OnOverlap, OntologyQuery,
        PathSearch, PredicateChange, PredicatePath, Supersession, ValidAt, WaitQuery,
    },
};

/// Bounds are the days 1 to 5; the cells 0 and 5 stand for all before and after.
const DAYS: u32 = 5;
type Statement = (i64, i64, i64);

/// A process that derives facts and does nothing else.
pub struct Deriving(tokio::task::JoinHandle<()>);

impl Deriving {
    pub fn start(app: &TestApp) -> Deriving {
        Deriving(svc::worker::deriving::start(app.pool.clone(), app.service.settings.rules_max_derived))
    }

    /// Waits until nothing is to be derived any more.
    pub async fn done(&self, app: &TestApp) {
        until("what follows", async || {
            let stats = app.client.read_graph_stats(GraphQuery::default()).await.unwrap();
            (stats.derivation.pending == 0).then_some(())
        })
        .await;
    }
}

impl Drop for Deriving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The predicates of a random world: the last two are those of types and of classes.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "rdf:type", "rdfs:subClassOf"];

/// What is said of them.
#[derive(Clone, Debug, Default)]
struct Axioms {
    /// The predicates of types and of classes, and what follows from both of them together.
    classes: (i64, i64),
    transitive: BTreeSet<i64>,
    symmetric: BTreeSet<i64>,
    inverse: BTreeMap<i64, i64>,
    above: BTreeMap<i64, i64>,
}

impl Axioms {
    fn closure(&self, all: &BTreeSet<Statement>) -> BTreeSet<Statement> {
        let mut all = all.clone();
        loop {
            let mut more = all.clone();
            for (subject, predicate, object) in &all {
                if self.symmetric.contains(predicate) {
                    more.insert((*object, *predicate, *subject));
                }
                more.extend(self.above.get(predicate).map(|above| (*subject, *above, *object)));
                let other = self.inverse.iter().filter(|(one, other)| *one == predicate || *other == predicate);
                more.extend(
                    other.map(|(one, other)| (*object, if one == predicate { *other } else { *one }, *subject)),
                );
                if *predicate == self.classes.0 {
                    let above = all.iter().filter(|next| next.0 == *object && next.1 == self.classes.1);
                    more.extend(above.map(|above| (*subject, *predicate, above.2)));
                }
                if self.transitive.contains(predicate) {
                    let next = all.iter().filter(|next| next.0 == *object && next.1 == *predicate);
                    more.extend(next.map(|next| (*subject, *predicate, next.2)));
                }
            }
            if more.len() == all.len() {
                return all;
            }
            all = more;
        }
    }
}

fn has(fact: &FactResponse, cell: u32) -> bool {
    let at = |bound: DateTime<Utc>| (1..=DAYS).find(|number| day(*number) == bound).unwrap();
    fact.valid_from.is_none_or(|from| at(from) <= cell) && fact.valid_until.is_none_or(|until| cell < at(until))
}

async fn known(
    app: &TestApp,
    derived: Option<bool>,
    known_at: Option<DateTime<Utc>>,
) -> (Vec<FactResponse>, DateTime<Utc>) {
    let query =
        FactQuery { valid_at: Some(ValidAt::Any), known_at, derived, limit: Some(1000), ..FactQuery::default() };
    let page = app.client.list_facts(query).await.unwrap();
    assert_eq!(page.next_cursor, None);
    (page.facts, page.known_at)
}

/// Compares what is derived with the closure of what is asserted, in every cell of a known time.
async fn compare(app: &TestApp, axioms: &Axioms, known_at: DateTime<Utc>) -> usize {
    let (asserted, _) = known(app, Some(false), Some(known_at)).await;
    let (derived, _) = known(app, Some(true), Some(known_at)).await;
    let statement = |fact: &FactResponse| (fact.subject_id, fact.predicate_id, fact.object_id.unwrap());
    for cell in 0..=DAYS {
        let base: BTreeSet<Statement> = asserted.iter().filter(|fact| has(fact, cell)).map(statement).collect();
        let found: Vec<Statement> = derived.iter().filter(|fact| has(fact, cell)).map(statement).collect();
        let right: BTreeSet<Statement> = axioms.closure(&base).difference(&base).copied().collect();
        assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), right, "cell {cell} at {known_at}, {axioms:?}");
        assert_eq!(found.len(), right.len(), "a fact is told once");
    }
    derived.len()
}

fn bounds(random: &mut Random) -> [Option<DateTime<Utc>>; 2] {
    let from = 1 + random.below(DAYS as usize - 1) as u32;
    let until = from + 1 + random.below((DAYS - from) as usize) as u32;
    [Some(from).filter(|_| random.below(3) > 0).map(day), Some(until).filter(|_| random.below(3) > 0).map(day)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_derived_is_the_closure_of_what_is_asserted_after_any_writes_at_every_known_time() {
    let mut rules = BTreeSet::new();
    for seed in [11, 12] {
        let app = idle().await;
        let deriving = Deriving::start(&app);
        let mut random = Random(seed * 7919);
        let mut docs = Vec::new();
        for number in 0..6 {
            docs.push(doc(&app, &format!("Document {number}")).await);
        }
        let mut predicates = Vec::new();
        for name in NAMES {
            let (namespace, name) = name.split_once(':').unwrap_or(("default", name));
            let iri = match namespace {
                "rdf" => Some(format!("http://www.w3.org/1999/02/22-rdf-syntax-ns#{name}")),
                "rdfs" => Some(format!("http://www.w3.org/2000/01/rdf-schema#{name}")),
                _ => None,
            };
            let new = NewPredicate { namespace: Some(namespace.to_owned()), iri, ..named(name) };
            predicates.push(ruled(&app, new).await);
        }
        let mut axioms = Axioms { classes: (predicates[4], predicates[5]), ..Axioms::default() };
        let (mut times, mut most) = (Vec::new(), 0);
        for step in 0..70 {
            let [valid_from, valid_until] = bounds(&mut random);
            let (facts, _) = known(&app, Some(false), None).await;
            let any = |random: &mut Random| FactPath { id: facts[random.below(facts.len())].id };
            match random.below(12) {
                0..=4 => {
                    let new = (0..1 + random.below(4)).map(|_| {
                        let [subject, object] = [docs[random.below(docs.len())], docs[random.below(docs.len())]];
                        let predicate = NAMES[random.below(NAMES.len())];
                        NewFact { valid_from, valid_until, ..fact(subject, predicate, object) }
                    });
                    let facts = NewFacts { facts: new.collect(), on_overlap: Some(OnOverlap::Merge) };
                    app.client.assert_facts(Json(facts)).await.unwrap();
                }
                5 | 6 if !facts.is_empty() => {
                    let what = Invalidation { valid_from, valid_until, reason: None };
                    let _ = app.client.invalidate_fact(any(&mut random), OptionalJson(Some(what))).await;
                }
                7 if !facts.is_empty() => {
                    let object_id = Some(docs[random.below(docs.len())]);
                    let what = Supersession { object_id, valid_from, valid_until, ..Supersession::default() };
                    let _ = app.client.supersede_fact(any(&mut random), Json(what)).await;
                }
                8 if docs.len() > 4 && random.below(3) == 0 => {
                    let id = docs.remove(random.below(docs.len()));
                    app.client.delete_document(DocumentPath { id }).await.unwrap();
                }
                _ => {
                    let [id, other] = [predicates[random.below(NAMES.len())], predicates[random.below(NAMES.len())]];
                    let mut next = axioms.clone();
                    let mut change = PredicateChange::default();
                    match random.below(4) {
                        0 => {
                            change.transitive = Some(!next.transitive.remove(&id));
                            next.transitive.extend(change.transitive.filter(|is| *is).map(|_| id));
                        }
                        1 => {
                            change.symmetric = Some(!next.symmetric.remove(&id));
                            next.symmetric.extend(change.symmetric.filter(|is| *is).map(|_| id));
                        }
                        2 => {
                            let other = Some(other).filter(|_| next.inverse.remove(&id).is_none());
                            next.inverse.extend(other.map(|other| (id, other)));
                            change.inverse_of = Some(other);
                        }
                        _ => {
                            let other = Some(other).filter(|_| next.above.remove(&id).is_none());
                            next.above.extend(other.map(|other| (id, other)));
                            change.sub_property_of = Some(other.into_iter().collect());
                        }
                    }
                    if app.client.update_predicate(PredicatePath { id }, Json(change)).await.is_ok() {
                        axioms = next;
                    }
                }
            }
            // Several writes may come before a derivation.
            if random.below(2) == 0 || step == 69 {
                deriving.done(&app).await;
                let (_, known_at) = known(&app, None, None).await;
                most = most.max(compare(&app, &axioms, known_at).await);
                times.push((known_at, axioms.clone(), known(&app, Some(true), Some(known_at)).await.0));
            }
        }
        for (known_at, axioms, shown) in times {
            compare(&app, &axioms, known_at).await;
            // They are shown as they were then, with what they followed from.
            assert_eq!(known(&app, Some(true), Some(known_at)).await.0, shown, "at {known_at}");
        }
        assert!(most > 20, "seed {seed} was dull: {most} facts");
        // Each rule has given something at some time.
        let by: Vec<String> = sqlx::query_scalar(
            "SELECT DISTINCT split_part(derived_by, ':', 2) FROM triples WHERE derived_by IS NOT NULL ORDER BY 1",
        )
        .fetch_all(&app.pool)
        .await
        .unwrap();
        rules.extend(by);
        app.end().await;
    }
    let all = ["inverse_of", "sub_class_of", "sub_property_of", "symmetric", "transitive"].map(str::to_owned);
    assert_eq!(rules, BTreeSet::from(all), "each rule has derived something");
}

async fn ruled(app: &TestApp, new: NewPredicate) -> i64 {
    app.client.create_predicate(Json(new)).await.unwrap().id
}

fn named(name: &str) -> NewPredicate {
    NewPredicate { name: name.to_owned(), ..NewPredicate::default() }
}

async fn derived(app: &TestApp) -> Vec<FactResponse> {
    known(app, Some(true), None).await.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_derived_fact_names_its_rule_and_premises_and_goes_with_them_at_once() {
    let app = idle().await;
    let deriving = Deriving::start(&app);
    let id = ruled(&app, NewPredicate { transitive: true, ..named("in") }).await;
    let [room, house, town, land] =
        [doc(&app, "Room").await, doc(&app, "House").await, doc(&app, "Town").await, doc(&app, "Land").await];
    let until_day =
        |from: u32, to: u32, new: NewFact| NewFact { valid_from: Some(day(from)), valid_until: Some(day(to)), ..new };
    let one = assert(&app, until_day(1, 9, fact(room, "in", house))).await.unwrap().fact.id;
    let two = assert(&app, until_day(5, 20, fact(house, "in", town))).await.unwrap().fact.id;
    deriving.done(&app).await;
    let [found] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    assert_eq!((found.subject_id, found.object_id), (room, Some(town)));
    assert_eq!((found.valid_from, found.valid_until), (Some(day(5)), Some(day(9))), "the time that both hold");
    assert_eq!(
        (found.derived_by.as_deref(), &found.premises),
        (Some(format!("rule:transitive:{id}").as_str()), &vec![one, two])
    );
    // Nobody changes it by itself.
    for (path, body) in [("supersede", json!({"object_id": land})), ("invalidate", json!({}))] {
        let path = format!("/triples/{}/{path}", found.id);
        let answer = app.raw("POST", &path).bearer_auth(TOKEN).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 409);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!((&answer["reason"], &answer["premises"]), (&json!("derived"), &json!([one, two])));
    }
    // Reads leave it out if they are asked to.
    let path = PathSearch { valid_at: Some(day(6)), max_depth: Some(1), ..PathSearch::new(room, town) };
    assert_eq!(app.client.find_paths(Json(path.clone())).await.unwrap().paths.len(), 1);
    let path = PathSearch { asserted_only: true, ..path };
    assert!(app.client.find_paths(Json(path)).await.unwrap().paths.is_empty());
    let stats = |asserted_only| GraphQuery { valid_at: Some(day(6)), asserted_only, ..GraphQuery::default() };
    let [all, asserted] = [false, true].map(|only| app.client.read_graph_stats(stats(only)));
    let (all, asserted) = (all.await.unwrap(), asserted.await.unwrap());
    assert_eq!((all.facts, all.derived, asserted.facts, asserted.derived), (3, 1, 2, 0));
    let both = FactQuery { asserted_only: true, derived: Some(true), ..FactQuery::default() };
    assert_eq!(app.client.list_facts(both).await.unwrap_err().status, 422);
    // Without a process that derives, what hung on a closed fact is closed with it.
    drop(deriving);
    let what = Invalidation { valid_from: Some(day(7)), ..Invalidation::default() };
    let ended = app.client.invalidate_fact(FactPath { id: one }, OptionalJson(Some(what))).await.unwrap();
    assert_eq!((ended.derived_closed, ended.remainders.len()), (1, 1));
    assert!(derived(&app).await.is_empty());
    let closed = app.client.read_fact(FactPath { id: found.id }).await.unwrap();
    let first = app.client.read_fact(FactPath { id: one }).await.unwrap();
    assert_eq!(
        (closed.invalidation.as_deref(), closed.invalidated_at),
        (Some("premise_invalidated"), first.invalidated_at)
    );
    let pending = app.client.read_graph_stats(GraphQuery::default()).await.unwrap().derivation.pending;
    assert_eq!(pending, 1);
    let deriving = Deriving::start(&app);
    deriving.done(&app).await;
    let [left] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    assert_eq!((left.valid_from, left.valid_until), (Some(day(5)), Some(day(7))), "what has support is there again");
    // Who says so itself takes the place of the rule, for that time.
    assert(&app, until_day(6, 30, fact(room, "in", town))).await.unwrap();
    assert_eq!(app.client.read_fact(FactPath { id: left.id }).await.unwrap().invalidation.as_deref(), Some("asserted"));
    deriving.done(&app).await;
    let [left] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    assert_eq!((left.valid_from, left.valid_until), (Some(day(5)), Some(day(6))));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_follows_from_two_private_texts_and_what_leads_through_a_closed_document_is_closed() {
    let app = idle().await;
    let deriving = Deriving::start(&app);
    ruled(&app, NewPredicate { transitive: true, ..named("in") }).await;
    let [a, b, c] = [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "C").await];
    let [one, two] = [doc(&app, "One text").await, doc(&app, "Another text").await];
    let [reader, other] = [someone(&app, "reader").await, someone(&app, "other").await];
    let stated = |source: i64, new: NewFact| NewFact { source_id: Some(source), ..new };
    assert(&app, stated(one, fact(a, "in", b))).await.unwrap();
    let second = assert(&app, stated(two, fact(b, "in", c))).await.unwrap().fact.id;
    deriving.done(&app).await;
    let seen = async |client: &Client<Remote>| {
        let query = FactQuery { derived: Some(true), ..FactQuery::default() };
        client.list_facts(query).await.unwrap().facts.len()
    };
    assert_eq!((seen(&app.client).await, seen(&reader.client).await), (1, 1));
    crate::principals::grant(&app, &reader, one, svc_client::wire::GrantRight::Read).await;
    // What was open is gone for everybody at once, also as it was known before.
    assert_eq!((seen(&app.client).await, seen(&reader.client).await), (0, 0));
    let closed = FactQuery { derived: Some(true), invalidated: true, ..FactQuery::default() };
    assert!(other.client.list_facts(closed.clone()).await.unwrap().facts.is_empty());
    deriving.done(&app).await;
    assert_eq!((seen(&app.client).await, seen(&reader.client).await, seen(&other.client).await), (1, 1, 0));
    app.client.protect_document(DocumentPath { id: two }).await.unwrap();
    deriving.done(&app).await;
    assert_eq!(seen(&app.client).await, 0, "two private texts");
    app.client.unprotect_document(DocumentPath { id: two }).await.unwrap();
    app.client.unprotect_document(DocumentPath { id: one }).await.unwrap();
    deriving.done(&app).await;
    assert_eq!(seen(&other.client).await, 1);
    // The facts stay as open as their texts, but B lies between the ends.
    app.client.protect_document(DocumentPath { id: b }).await.unwrap();
    assert_eq!(seen(&other.client).await, 0);
    deriving.done(&app).await;
    assert_eq!((seen(&app.client).await, seen(&other.client).await), (1, 0));
    assert!(other.client.read_fact(FactPath { id: second }).await.is_err());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_written_while_a_rule_is_stated_is_derived_from_too() {
    let app = idle().await;
    let deriving = Deriving::start(&app);
    let id = predicate(&app, "in").await.id;
    let [room, house, town] = [doc(&app, "Room").await, doc(&app, "House").await, doc(&app, "Town").await];
    assert(&app, fact(room, "in", house)).await.unwrap();
    // A batch is being written: its fact is there, its end is not.
    let mut batch = app.pool.begin().await.unwrap();
    let write =
        "INSERT INTO triples (zone, subject_id, predicate_id, object_id, statement, created_at, recorded_at, fact_type)
                 SELECT 0, $1, $2, $3, gen_random_uuid(), take_pen(), take_pen(), 'dynamic'";
    sqlx::query(write).bind(house).bind(id).bind(town).execute(&mut *batch).await.unwrap();
    let change = PredicateChange { transitive: Some(true), ..PredicateChange::default() };
    app.client.update_predicate(PredicatePath { id }, Json(change)).await.unwrap();
    until("the rule to be looked at", async || {
        let query = "SELECT NOT EXISTS (SELECT FROM derivations) OR EXISTS (
                         SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')";
        sqlx::query_scalar::<_, bool>(query).fetch_one(&app.pool).await.unwrap().then_some(())
    })
    .await;
    batch.commit().await.unwrap();
    deriving.done(&app).await;
    let [found] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    assert_eq!((found.subject_id, found.object_id), (room, Some(town)));
    app.end().await;
}

#[tokio::test]
async fn whether_predicates_have_rules_is_looked_up_once_for_all_facts_of_a_write() {
    let app = idle().await;
    let ids = vec![predicate(&app, "in").await.id, predicate(&app, "on").await.id];
    let mut tx = app.pool.begin().await.unwrap();
    // Whoever asks whether a predicate has rules reads what ontologies say of predicates.
    let looks = "SELECT (coalesce(seq_scan, 0) + coalesce(idx_scan, 0))::bigint FROM pg_stat_xact_user_tables WHERE relname = 'ontology_predicates'";
    let before: i64 = sqlx::query_scalar(looks).fetch_one(&mut *tx).await.unwrap();
    let write = "INSERT INTO triples (zone, subject_id, predicate_id, object_id, statement, created_at, recorded_at, fact_type)
                 SELECT 0, n, p, n + 1, gen_random_uuid(), take_pen(), take_pen(), 'dynamic' FROM generate_series(1, 500) n CROSS JOIN unnest($1::bigint[]) p";
    sqlx::query(write).bind(ids).execute(&mut *tx).await.unwrap();
    let after: i64 = sqlx::query_scalar(looks).fetch_one(&mut *tx).await.unwrap();
    assert!((1..=10).contains(&(after - before)), "{} looks for 1,000 facts with two predicates", after - before);
    tx.rollback().await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_an_ontology_hold_for_those_who_may_read_it_as_long_as_it_says_so() {
    let app = idle().await;
    let deriving = Deriving::start(&app);
    let [one, other] = [someone(&app, "one").await, someone(&app, "other").await];
    let turtle = |text: &str| {
        let prefixes = "@prefix ex: <http://example.org/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .";
        format!("{prefixes}\n{text}")
    };
    let stated = turtle("ex:room ex:in ex:house . ex:house ex:in ex:town . ex:town ex:holds ex:house .");
    let stated = RdfText { syntax: RdfSyntax::Turtle, text: stated };
    app.client.import_turtle(ImportQuery::default(), stated).await.unwrap();
    let query = || FactQuery { derived: Some(true), ..FactQuery::default() };
    let seen = async || {
        let mut counts = Vec::new();
        for client in [&app.client, &one.client, &other.client] {
            let facts = client.list_facts(query()).await.unwrap().facts;
            for fact in &facts {
                for premise in &fact.premises {
                    client.read_fact(FactPath { id: *premise }).await.unwrap();
                }
            }
            counts.push(facts.len());
        }
        counts
    };
    let private = OntologyQuery { private: true, ..OntologyQuery::default() };
    let transitive = "<http://example.org/places> a owl:Ontology . ex:in a owl:TransitiveProperty .";
    let theirs = one.client.create_ontology(private.clone(), TurtleText(turtle(transitive))).await.unwrap();
    deriving.done(&app).await;
    assert_eq!(seen().await, [1, 1, 0], "what follows by private axioms is as private");
    // The next text takes the place of the first one.
    let next = "<http://example.org/places> a owl:Ontology . ex:in owl:inverseOf ex:contains .";
    let next = TurtleText(turtle(next));
    assert_eq!(one.client.create_ontology(private, next).await.unwrap().document_id, theirs.document_id);
    deriving.done(&app).await;
    assert_eq!(seen().await, [2, 2, 0]);
    let rules: BTreeSet<String> = derived(&app).await.into_iter().filter_map(|fact| fact.derived_by).collect();
    assert!(rules.iter().all(|rule| rule.starts_with("rule:inverse_of:")), "{rules:?}");
    one.client.delete_ontology(DocumentPath { id: theirs.document_id }).await.unwrap();
    assert_eq!(seen().await[1..], [0, 0], "others see nothing at once");
    deriving.done(&app).await;
    assert_eq!(seen().await, [0, 0, 0]);
    // What the owner loads for all holds for all.
    let ours = app.client.create_ontology(OntologyQuery::default(), TurtleText(turtle(transitive))).await.unwrap();
    deriving.done(&app).await;
    assert_eq!(seen().await, [1, 1, 1]);
    app.client.protect_document(DocumentPath { id: ours.document_id }).await.unwrap();
    assert_eq!(seen().await[1..], [0, 0], "a closed ontology says nothing to others at once");
    deriving.done(&app).await;
    assert_eq!(seen().await, [1, 0, 0]);
    app.end().await;
}

#[tokio::test]
async fn what_followed_by_classes_ends_with_the_iri_of_their_predicate() {
    let app = idle().await;
    let deriving = Deriving::start(&app);
    let of = |namespace: &str, name: &str, iri: &str| NewPredicate {
        namespace: Some(namespace.to_owned()),
        iri: Some(iri.to_owned()),
        ..named(name)
    };
    let iri = "http://www.w3.org/2000/01/rdf-schema#subClassOf";
    ruled(&app, of("rdf", "type", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type")).await;
    let id = ruled(&app, of("rdfs", "subClassOf", iri)).await;
    let [tom, cat, animal] = [doc(&app, "Tom").await, doc(&app, "Cat").await, doc(&app, "Animal").await];
    assert(&app, fact(cat, "rdfs:subClassOf", animal)).await.unwrap();
    assert(&app, fact(tom, "rdf:type", cat)).await.unwrap();
    for (given, count) in [(None, 0), (Some(iri.to_owned()), 1)] {
        deriving.done(&app).await;
        assert_eq!(derived(&app).await.len(), 1 - count);
        let change = PredicateChange { iri: Some(given), ..PredicateChange::default() };
        app.client.update_predicate(PredicatePath { id }, Json(change)).await.unwrap();
        deriving.done(&app).await;
        assert_eq!(derived(&app).await.len(), count);
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_is_told_from_which_facts_nothing_can_be_derived_until_it_can() {
    let app = idle().await;
    let deriving = Deriving::start(&app);
    ruled(&app, NewPredicate { symmetric: true, ..named("near") }).await;
    ruled(&app, NewPredicate { symmetric: true, ..named("beside") }).await;
    deriving.done(&app).await;
    let refuse = "CREATE FUNCTION refuse_derived() RETURNS trigger LANGUAGE plpgsql AS $$
                      BEGIN RAISE EXCEPTION 'derived facts have no room'; END $$;
                  CREATE TRIGGER refuse_derived BEFORE INSERT ON triples FOR EACH ROW
                      WHEN (NEW.derived_by IS NOT NULL) EXECUTE FUNCTION refuse_derived()";
    sqlx::raw_sql(refuse).execute(&app.pool).await.unwrap();
    let told = async || -> Vec<Finding> {
        let findings = app.client.list_findings().await.unwrap().findings;
        findings.into_iter().filter(|found| found.kind == FindingKind::RulesFailed).collect()
    };
    assert!(told().await.is_empty());
    let [a, b] = [doc(&app, "A").await, doc(&app, "B").await];
    assert(&app, fact(a, "near", b)).await.unwrap();
    let found = until("the failure to be told", async || told().await.pop()).await;
    assert_eq!(told().await.len(), 1, "the other predicate does not wait");
    assert!(found.about.starts_with("default:near: "), "{found:?}");
    assert!(found.about.contains("derived facts have no room") && found.seconds >= 0.0, "{found:?}");
    let doctor = run(worker_command(&app, &["doctor", "--json"])).await;
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.status.code() == Some(1) && said.contains(r#""kind":"rules_failed""#), "{said}");
    // A further failure is the same one.
    let since = "SELECT failed_at FROM derivation_failures";
    let first: DateTime<Utc> = sqlx::query_scalar(since).fetch_one(&app.pool).await.unwrap();
    sqlx::query("UPDATE derivation_failures SET reason = 'an earlier one'").execute(&app.pool).await.unwrap();
    let again = async || told().await.pop().filter(|found| found.about.contains("no room"));
    until("another try", again).await;
    assert_eq!(sqlx::query_scalar::<_, DateTime<Utc>>(since).fetch_one(&app.pool).await.unwrap(), first);

    let mended = "DROP TRIGGER refuse_derived ON triples; DROP FUNCTION refuse_derived()";
    sqlx::raw_sql(mended).execute(&app.pool).await.unwrap();
    deriving.done(&app).await;
    let [back] = <[FactResponse; 1]>::try_from(derived(&app).await).unwrap();
    assert_eq!((back.subject_id, back.object_id), (b, Some(a)));
    assert!(told().await.is_empty());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_from_which_too_much_follows_is_given_up_and_says_so() {
    let app = TestApp::with(crate::support::Wish {
        no_worker: true,
        settings: &[("SVC_RULES_MAX_DERIVED", "3")],
        ..crate::support::Wish::default()
    })
    .await;
    let deriving = Deriving::start(&app);
    ruled(&app, NewPredicate { transitive: true, ..named("in") }).await;
    let mut docs = Vec::new();
    for number in 0..5 {
        docs.push(doc(&app, &format!("Document {number}")).await);
    }
    let mut last = 0;
    for pair in docs.windows(2) {
        last = assert(&app, fact(pair[0], "in", pair[1])).await.unwrap().fact.id;
        deriving.done(&app).await;
    }
    // Four facts in a row lead to six more.
    let told = async || {
        let stats = app.client.read_graph_stats(GraphQuery::default()).await.unwrap();
        let lint = LintRequest { audits: Some(vec![LintAudit::Rules]), ..LintRequest::default() };
        let lint = app.client.lint_graph(Json(lint)).await.unwrap();
        let kinds: Vec<(LintKind, Option<String>)> =
            lint.audits[0].findings.iter().map(|found| (found.kind, found.predicate.clone())).collect();
        (stats.derived, stats.derivation.given_up, kinds)
    };
    let name = "default:in".to_owned();
    assert_eq!(told().await, (0, vec![name.clone()], vec![(LintKind::GivenUp, Some(name))]));
    app.client.invalidate_fact(FactPath { id: last }, OptionalJson(None)).await.unwrap();
    deriving.done(&app).await;
    assert_eq!(told().await, (3, Vec::new(), Vec::new()));

    // A process that may derive more does so, although nobody writes.
    assert(&app, fact(docs[3], "in", docs[4])).await.unwrap();
    deriving.done(&app).await;
    assert_eq!(told().await.1, ["default:in"]);
    drop(deriving);
    let deriving = Deriving(svc::worker::deriving::start(app.pool.clone(), 100));
    until("what was given up", async || (told().await == (6, Vec::new(), Vec::new())).then_some(())).await;
    deriving.done(&app).await;
    app.end().await;
}
