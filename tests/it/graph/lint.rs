//! Audits of the graph: each finds what was planted, and nothing else.
use super::doc;
use crate::{
    ontologies::load,
    principals::{idle, someone},
    support::{TOKEN, TestApp, document},
    triples::{day, fact, predicate},
};
use serde_json::json;
use svc_client::{
    Client, Json, OptionalJson, Remote,
    wire::{
        AllowedFindings, CoverageThresholds, DocumentChange, DocumentPath, FactPath, FactQuery, LintAudit, LintKind,
        LintRequest, NewDocument, NewFact, NewLink, NewMerge, NewPredicate, NewShapeBinding, OntologyQuery, ShapeMode,
        StalenessThresholds, ValidAt, WaitQuery,
    },
};

type Finding = (LintKind, Option<String>, Option<i64>, Vec<i64>);

async fn lint(client: &Client<Remote>, asked: LintRequest) -> Vec<Finding> {
    let found = client.lint_graph(Json(asked)).await.unwrap();
    let findings = found.audits.into_iter().flat_map(|audit| {
        assert_eq!(audit.count as usize, audit.findings.len(), "{:?}", audit.audit);
        audit.findings
    });
    findings.map(|found| (found.kind, found.predicate.or(found.usetype), found.document_id, found.triple_ids)).collect()
}

fn only(audit: LintAudit) -> LintRequest {
    LintRequest { audits: Some(vec![audit]), ..LintRequest::default() }
}

async fn told(app: &TestApp, fact: NewFact) -> i64 {
    app.client.assert_fact(Json(fact)).await.unwrap().fact.id
}

#[tokio::test]
async fn what_contradicts_itself_is_found_and_nothing_else() {
    let app = idle().await;
    let [a, b, c] = [doc(&app, "a", None).await, doc(&app, "b", None).await, doc(&app, "c", None).await];
    let create = async |name: &str, new: NewPredicate| {
        app.client.create_predicate(Json(NewPredicate { name: name.to_owned(), ..new })).await.unwrap().id
    };
    let flag = NewPredicate::default;
    create("leads", NewPredicate { functional: true, ..flag() }).await;
    create("badge", NewPredicate { inverse_functional: true, ..flag() }).await;
    create("above", NewPredicate { asymmetric: true, ..flag() }).await;
    create("differs", NewPredicate { irreflexive: true, ..flag() }).await;
    let likes = create("likes", flag()).await;
    create("hates", NewPredicate { disjoint_with: vec![likes], ..flag() }).await;
    let at = |fact: NewFact, from: u32, until: u32| NewFact {
        valid_from: Some(day(from)),
        valid_until: Some(day(until)),
        ..fact
    };
    let badge = |id: i64| NewFact { object_id: None, object_literal: Some("7".to_owned()), ..fact(id, "badge", 0) };
    let word = |predicate: &str, text: &str, language: Option<&str>| NewFact {
        object_id: None,
        object_literal: Some(text.to_owned()),
        object_language: language.map(str::to_owned),
        ..fact(b, predicate, 0)
    };
    // One after the other, in one direction, about others: nothing is wrong.
    for new in [
        word("likes", "tea", Some("en")),
        word("hates", "tea", None),
        word("hates", "coffee", Some("en")),
        at(fact(a, "leads", b), 1, 5),
        at(fact(a, "leads", c), 5, 9),
        fact(b, "leads", c),
        at(badge(a), 1, 5),
        at(badge(b), 5, 9),
        at(fact(a, "above", b), 1, 5),
        at(fact(b, "above", a), 5, 9),
        fact(a, "differs", b),
        fact(b, "differs", a),
        at(fact(a, "likes", b), 1, 5),
        at(fact(a, "hates", b), 5, 9),
        fact(b, "hates", a),
        fact(a, "likes", a),
    ] {
        told(&app, new).await;
    }
    assert_eq!(lint(&app.client, only(LintAudit::Contradiction)).await, []);
    // Now each kind is, once.
    let source = doc(&app, "source", None).await;
    let early = app
        .client
        .list_facts(FactQuery {
            subject_id: Some(a),
            predicate: Some("leads".to_owned()),
            valid_at: Some(ValidAt::Any),
            ..FactQuery::default()
        })
        .await
        .unwrap()
        .facts;
    let both = told(&app, NewFact { source_id: Some(source), ..at(fact(a, "leads", a), 3, 4) }).await;
    let own = told(&app, at(badge(c), 8, 10)).await;
    let back = told(&app, at(fact(b, "above", a), 2, 3)).await;
    let itself = told(&app, fact(c, "differs", c)).await;
    let over = told(&app, fact(c, "above", c)).await;
    let hate = told(&app, at(fact(a, "hates", b), 2, 3)).await;
    let tea = told(&app, word("hates", "tea", Some("en"))).await;
    let id = async |subject_id: i64, predicate: &str, from: u32| {
        let query = FactQuery {
            subject_id: Some(subject_id),
            predicate: Some(predicate.to_owned()),
            valid_at: Some(ValidAt::At(day(from))),
            ..FactQuery::default()
        };
        app.client.list_facts(query).await.unwrap().facts[0].id
    };
    let classes = "ex:Duck a owl:Class . ex:Stone a owl:Class ; owl:disjointWith ex:Duck . ex:rock a ex:Stone, ex:Duck . ex:bird a ex:Duck .";
    load(&app.client, OntologyQuery::default(), classes).await.unwrap();
    let found = lint(&app.client, only(LintAudit::Contradiction)).await;
    let named = |name: &str| Some(format!("default:{name}"));
    let rock = found.iter().find(|found| found.0 == LintKind::DisjointClasses).unwrap().clone();
    assert_eq!(rock.3.len(), 2);
    let (up, likes) = (id(a, "above", 1).await, id(a, "likes", 1).await);
    assert_eq!(
        found,
        [
            (LintKind::Functional, named("leads"), Some(a), vec![early[0].id, both]),
            (LintKind::InverseFunctional, named("badge"), Some(c), vec![id(b, "badge", 5).await, own]),
            (LintKind::DisjointPredicates, named("likes"), Some(a), vec![likes, hate]),
            (LintKind::DisjointPredicates, named("likes"), Some(b), vec![id(b, "likes", 1).await, tea]),
            rock,
            (LintKind::Asymmetric, named("above"), Some(a), vec![up, back]),
            (LintKind::Irreflexive, named("differs"), Some(c), vec![itself]),
            (LintKind::Irreflexive, named("above"), Some(c), vec![over]),
        ]
        .into_iter()
        .collect::<Vec<_>>()
    );
    // Under one document, and for somebody who may not read a source, less is wrong.
    let under_c = LintRequest { parent_id: Some(c), ..only(LintAudit::Contradiction) };
    let kinds: Vec<LintKind> = lint(&app.client, under_c).await.into_iter().map(|found| found.0).collect();
    assert_eq!(kinds, [LintKind::Irreflexive, LintKind::Irreflexive]);
    app.client.protect_document(DocumentPath { id: source }).await.unwrap();
    let p = someone(&app, "p").await;
    let seen = lint(&p.client, only(LintAudit::Contradiction)).await;
    assert!(seen.len() == 7 && seen.iter().all(|found| found.0 != LintKind::Functional), "{seen:?}");
    let few = LintRequest { limit: Some(1), ..only(LintAudit::Contradiction) };
    let few = app.client.lint_graph(Json(few)).await.unwrap().audits.remove(0);
    assert_eq!((few.count, few.findings.len(), few.exceeded), (8, 6, true));
    // So many may be accepted, of those that are counted.
    for (accepted, exceeded) in [(7, true), (8, false)] {
        let allowed = AllowedFindings { contradiction: Some(accepted), ..AllowedFindings::default() };
        let asked = LintRequest { allowed, limit: Some(1), ..only(LintAudit::Contradiction) };
        assert_eq!(app.client.lint_graph(Json(asked)).await.unwrap().audits[0].exceeded, exceeded, "{accepted}");
    }
    app.end().await;
}

#[tokio::test]
async fn texts_in_two_languages_contradict_each_other_only_where_one_value_is_allowed_in_all() {
    let app = idle().await;
    let [a, b, c] = [doc(&app, "a", None).await, doc(&app, "b", None).await, doc(&app, "c", None).await];
    let functional = NewPredicate { name: "motto".to_owned(), functional: true, ..NewPredicate::default() };
    app.client.create_predicate(Json(functional)).await.unwrap();
    let said = async |id: i64, text: &str, language: Option<&str>| {
        let new = NewFact {
            object_id: None,
            object_literal: Some(text.to_owned()),
            object_language: language.map(str::to_owned),
            ..fact(id, "motto", 0)
        };
        told(&app, new).await
    };
    let found = async || {
        let found = lint(&app.client, only(LintAudit::Contradiction)).await;
        found.into_iter().map(|found| (found.0, found.2, found.3)).collect::<Vec<_>>()
    };
    for (text, language) in [("early", "en"), ("frueh", "de"), ("tidlig", "da")] {
        said(a, text, Some(language)).await;
        said(b, text, Some(language)).await;
    }
    assert_eq!(found().await, []);
    // Two of one language exclude each other, whatever stands between them, and what has no language excludes all.
    let late = said(a, "late", Some("EN")).await;
    let first = said(c, "early", None).await;
    let second = said(c, "frueh", Some("de")).await;
    let early = app.client.list_facts(FactQuery { subject_id: Some(a), ..FactQuery::default() }).await.unwrap();
    let early = early.facts.iter().find(|fact| fact.object_literal.as_deref() == Some("early")).unwrap().id;
    let wrong =
        [(LintKind::Functional, Some(a), vec![early, late]), (LintKind::Functional, Some(c), vec![first, second])];
    assert_eq!(found().await, wrong);
    // A shape that allows one value says so of all languages together.
    let shape = "ex:One a sh:NodeShape ; sh:targetSubjectsOf <urn:svc:predicate/default/motto> ;
        sh:property [ sh:path <urn:svc:predicate/default/motto> ; sh:maxCount 1 ] .";
    load(&app.client, OntologyQuery::default(), shape).await.unwrap();
    crate::shape_bindings::bind(&app.client, "http://example.org/One", None, Some(ShapeMode::Warn)).await.unwrap();
    let counted = found().await.into_iter().filter(|found| found.0 == LintKind::MaxCount);
    let mut counted: Vec<Option<i64>> = counted.map(|found| found.1).collect();
    counted.sort_unstable();
    assert_eq!(counted, [Some(a), Some(b), Some(c)]);
    app.end().await;
}

#[tokio::test]
async fn what_a_closed_ontology_excludes_is_found_by_its_readers_alone() {
    let app = idle().await;
    let [a, b, c] = [doc(&app, "a", None).await, doc(&app, "b", None).await, doc(&app, "c", None).await];
    let facts = format!(
        "@prefix ex: <http://example.org/> . <urn:svc:document/{a}> ex:leads <urn:svc:document/{b}>, <urn:svc:document/{c}> ;
            ex:above <urn:svc:document/{b}> ; ex:likes <urn:svc:document/{b}> ; ex:hates <urn:svc:document/{b}> ; ex:badge 7 ; ex:meets <urn:svc:document/{a}> .
         <urn:svc:document/{b}> ex:above <urn:svc:document/{a}> ; ex:badge 7 ."
    );
    crate::rdf::import(&app.client, Default::default(), &facts).await.unwrap();
    let said = "<http://example.org/o> a owl:Ontology . ex:leads a owl:FunctionalProperty . ex:above a owl:AsymmetricProperty .
        ex:badge a owl:InverseFunctionalProperty . ex:meets a owl:IrreflexiveProperty . ex:hates a owl:ObjectProperty ; owl:propertyDisjointWith ex:likes .";
    let kinds = async |client: &Client<Remote>| -> Vec<LintKind> {
        lint(client, only(LintAudit::Contradiction)).await.into_iter().map(|found| found.0).collect()
    };
    let [p, q] = [someone(&app, "p").await, someone(&app, "q").await];
    load(&p.client, OntologyQuery::default(), said).await.unwrap();
    let all = [
        LintKind::Functional,
        LintKind::InverseFunctional,
        LintKind::DisjointPredicates,
        LintKind::Asymmetric,
        LintKind::Irreflexive,
    ];
    assert_eq!((kinds(&p.client).await, kinds(&q.client).await), (all.to_vec(), vec![]));
    // What the owner says later holds for all, and for the facts of every zone.
    load(&app.client, OntologyQuery::default(), said).await.unwrap();
    assert_eq!((kinds(&p.client).await, kinds(&q.client).await), (all.to_vec(), all.to_vec()));
    let source = doc(&app, "source", None).await;
    app.client.protect_document(DocumentPath { id: source }).await.unwrap();
    told(&app, NewFact { source_id: Some(source), ..fact(c, "http://example.org/meets", c) }).await;
    let itself = lint(&app.client, only(LintAudit::Contradiction)).await;
    assert_eq!(itself.iter().filter(|found| found.0 == LintKind::Irreflexive).count(), 2, "{itself:?}");
    app.end().await;
}

#[tokio::test]
async fn an_orphan_hides_what_hangs_on_it_from_those_who_may_not_read_that() {
    let app = idle().await;
    let [root, linked, closed] =
        [doc(&app, "root", None).await, doc(&app, "linked", None).await, doc(&app, "closed", None).await];
    let child = doc(&app, "child", Some(root)).await;
    let entity = |title: &str| NewDocument { usetype: Some("entity".to_owned()), ..document(title, "") };
    let mut entities = Vec::new();
    for title in ["one", "two"] {
        entities.push(app.client.create_document(WaitQuery::default(), Json(entity(title))).await.unwrap().id);
    }
    let link = async |source: i64, target: i64| {
        let new =
            NewLink { target_id: target, link_type: "see".to_owned(), score: None, metadata: serde_json::Map::new() };
        app.client.create_link(DocumentPath { id: source }, Json(new)).await.unwrap();
    };
    link(linked, closed).await;
    link(closed, entities[0]).await;
    let below = NewDocument { parent_id: Some(entities[1]), ..document("below", "") };
    let below = app.client.create_document(WaitQuery::default(), Json(below)).await.unwrap().id;
    for id in [closed, child, below] {
        app.client.protect_document(DocumentPath { id }).await.unwrap();
    }
    let p = someone(&app, "p").await;
    let found = lint(&p.client, only(LintAudit::Orphan)).await;
    let bare = |kind, id| (kind, None, Some(id), vec![]);
    assert_eq!(
        found,
        [
            bare(LintKind::Entity, entities[0]),
            bare(LintKind::Entity, entities[1]),
            bare(LintKind::LonelyRoot, root),
            bare(LintKind::LonelyRoot, linked)
        ]
    );
    assert_eq!(lint(&app.client, only(LintAudit::Orphan)).await, []);
    app.end().await;
}

#[tokio::test]
async fn what_hangs_on_nothing_is_stale_or_open_is_found_and_nothing_else() {
    let app = idle().await;
    let [root, other] = [doc(&app, "root", None).await, doc(&app, "other", None).await];
    let child = doc(&app, "child", Some(root)).await;
    predicate(&app, "leads").await;
    predicate(&app, "idle").await;
    let fresh = told(
        &app,
        NewFact { source_id: Some(child), quote: Some("known of child".to_owned()), ..fact(root, "leads", other) },
    )
    .await;
    let alone = doc(&app, "alone", None).await;
    let entity = NewDocument { usetype: Some("entity".to_owned()), parent_id: Some(root), ..document("nobody", "") };
    let entity = app.client.create_document(WaitQuery::default(), Json(entity)).await.unwrap().id;
    let orphans = lint(&app.client, only(LintAudit::Orphan)).await;
    let bare = |kind, id| (kind, None, Some(id), vec![]);
    assert_eq!(
        orphans,
        [
            bare(LintKind::Entity, entity),
            bare(LintKind::LonelyRoot, alone),
            (LintKind::UnusedPredicate, Some("default:idle".to_owned()), None, vec![])
        ]
    );
    // No predicate is under a document, whoever uses it and wherever.
    let under = |id| LintRequest { parent_id: Some(id), ..only(LintAudit::Orphan) };
    assert_eq!(lint(&app.client, under(alone)).await, [bare(LintKind::LonelyRoot, alone)]);
    assert_eq!(lint(&app.client, under(root)).await, [bare(LintKind::Entity, entity)]);

    // A fact is stale once its support is, and one whose source has changed is so at once.
    assert_eq!(lint(&app.client, only(LintAudit::Staleness)).await, []);
    let today = LintRequest { staleness: StalenessThresholds { max_age_days: Some(0) }, ..only(LintAudit::Staleness) };
    let leads = Some("default:leads".to_owned());
    assert_eq!(lint(&app.client, today.clone()).await, [(LintKind::Old, leads.clone(), Some(root), vec![fresh])]);
    let change = DocumentChange { content: Some("Nothing is known any more.".to_owned()), ..DocumentChange::default() };
    app.client.update_document(DocumentPath { id: child }, WaitQuery::default(), Json(change)).await.unwrap();
    let changed = (LintKind::SourceChanged, leads, Some(root), vec![fresh]);
    assert_eq!(lint(&app.client, only(LintAudit::Staleness)).await, [changed]);
    app.client.invalidate_fact(FactPath { id: fresh }, OptionalJson(None)).await.unwrap();
    assert_eq!(lint(&app.client, today).await, []);

    assert_eq!(
        lint(&app.client, only(LintAudit::Unprotected)).await,
        [bare(LintKind::OpenRoot, root), bare(LintKind::OpenRoot, other), bare(LintKind::OpenRoot, alone)]
    );
    app.client.protect_document(DocumentPath { id: other }).await.unwrap();
    assert_eq!(lint(&app.client, only(LintAudit::Unprotected)).await.len(), 2);
    app.end().await;
}

#[tokio::test]
async fn documents_that_are_taken_for_one_contradict_each_other_and_not_themselves() {
    let app = idle().await;
    let [a, b, c] = [doc(&app, "a", None).await, doc(&app, "b", None).await, doc(&app, "c", None).await];
    let create = async |name: &str, new: NewPredicate| {
        app.client.create_predicate(Json(NewPredicate { name: name.to_owned(), ..new })).await.unwrap().id
    };
    create("leads", NewPredicate { functional: true, ..NewPredicate::default() }).await;
    create("above", NewPredicate { asymmetric: true, ..NewPredicate::default() }).await;
    create("differs", NewPredicate { irreflexive: true, ..NewPredicate::default() }).await;
    let likes = create("likes", NewPredicate::default()).await;
    create("hates", NewPredicate { disjoint_with: vec![likes], ..NewPredicate::default() }).await;
    for new in [
        fact(c, "leads", a),
        fact(c, "leads", b),
        fact(a, "above", c),
        fact(c, "above", b),
        fact(a, "differs", b),
        fact(a, "likes", c),
        fact(b, "hates", c),
    ] {
        told(&app, new).await;
    }
    let classes = format!(
        "ex:Duck a owl:Class . ex:Stone a owl:Class ; owl:disjointWith ex:Duck . <urn:svc:document/{a}> a ex:Stone . <urn:svc:document/{b}> a ex:Duck ."
    );
    load(&app.client, OntologyQuery::default(), &classes).await.unwrap();
    let kinds = async || -> Vec<LintKind> {
        lint(&app.client, only(LintAudit::Contradiction)).await.into_iter().map(|found| found.0).collect()
    };
    assert_eq!(kinds().await, [LintKind::Functional]);
    app.client.merge_entities(Json(NewMerge { kept_id: a, merged_id: b })).await.unwrap();
    assert_eq!(
        kinds().await,
        [LintKind::DisjointPredicates, LintKind::DisjointClasses, LintKind::Asymmetric, LintKind::Irreflexive]
    );
    app.end().await;
}

#[tokio::test]
async fn nodes_are_audited_by_the_shapes_that_are_bound() {
    let app = idle().await;
    load(&app.client, OntologyQuery::default(), crate::shape_bindings::SHAPES).await.unwrap();
    let here = doc(&app, "here", None).await;
    let people =
        "ex:ada a ex:Person ; ex:name 'Ada', 'Augusta' . ex:bea a ex:Person . ex:carl a ex:Person ; ex:name 'Carl' .";
    crate::shape_bindings::people(&app.client, here, people).await.unwrap();
    let audits = Some(vec![LintAudit::Contradiction, LintAudit::Coverage]);
    let coverage = CoverageThresholds { vectors: Some(0.0), bm25: Some(0.0), ..CoverageThresholds::default() };
    let asked = LintRequest { audits, coverage, ..LintRequest::default() };
    assert_eq!(lint(&app.client, asked.clone()).await, []);
    let bind = async |document_id, mode| {
        let shape = "http://example.org/PersonShape".to_owned();
        app.client.create_shape_binding(Json(NewShapeBinding { shape, document_id, mode: Some(mode) })).await.unwrap()
    };
    bind(None, ShapeMode::Off).await;
    assert_eq!(lint(&app.client, asked.clone()).await, []);
    bind(Some(here), ShapeMode::Warn).await;
    let id = async |name: &str| -> i64 {
        sqlx::query_scalar("SELECT document_id FROM graph_nodes WHERE iri = 'http://example.org/' || $1")
            .bind(name)
            .fetch_one(&app.pool)
            .await
            .unwrap()
    };
    let (ada, bea, name) = (id("ada").await, id("bea").await, Some("ex:name".to_owned()));
    let names = FactQuery { subject_id: Some(ada), predicate: name.clone(), ..FactQuery::default() };
    let both: Vec<i64> = app.client.list_facts(names).await.unwrap().facts.iter().map(|fact| fact.id).collect();
    assert_eq!(
        lint(&app.client, asked.clone()).await,
        [(LintKind::MaxCount, name.clone(), Some(ada), both), (LintKind::MinCount, name, Some(bea), vec![])]
    );
    let elsewhere = doc(&app, "elsewhere", None).await;
    assert_eq!(lint(&app.client, LintRequest { parent_id: Some(elsewhere), ..asked.clone() }).await, []);
    // Who may not read the nodes is told of nothing.
    app.client.protect_document(DocumentPath { id: here }).await.unwrap();
    assert_eq!(lint(&someone(&app, "p").await.client, asked).await, []);
    app.end().await;
}

#[tokio::test]
async fn a_fact_whose_end_went_around_the_service_is_found_by_the_owner() {
    let app = idle().await;
    let [a, b, source] = [doc(&app, "a", None).await, doc(&app, "b", None).await, doc(&app, "s", None).await];
    predicate(&app, "leads").await;
    let stated = told(&app, NewFact { source_id: Some(source), ..fact(a, "leads", b) }).await;
    assert_eq!(lint(&app.client, only(LintAudit::Orphan)).await.len(), 1, "the source hangs on nothing");
    // A delete closes what the document states.
    let other = doc(&app, "other", None).await;
    told(&app, NewFact { source_id: Some(other), ..fact(b, "leads", a) }).await;
    app.client.delete_document(DocumentPath { id: other }).await.unwrap();
    sqlx::query("DELETE FROM documents WHERE id = $1").bind(source).execute(&app.pool).await.unwrap();
    let leads = Some("default:leads".to_owned());
    assert_eq!(lint(&app.client, only(LintAudit::Orphan)).await, [(LintKind::Dangling, leads, Some(a), vec![stated])]);
    app.client.invalidate_fact(FactPath { id: stated }, OptionalJson(None)).await.unwrap();
    sqlx::query("UPDATE triples SET zone = -1 WHERE id = $1").bind(stated).execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_fact_is_found_once_whichever_and_however_many_of_its_ends_are_gone() {
    let app = idle().await;
    let [first, a, gone, b, last] = [
        doc(&app, "first", None).await,
        doc(&app, "a", None).await,
        doc(&app, "gone", None).await,
        doc(&app, "b", None).await,
        doc(&app, "last", None).await,
    ];
    predicate(&app, "leads").await;
    told(&app, fact(a, "leads", b)).await;
    let mut planted = Vec::new();
    for (from, to) in [(first, a), (first, last), (a, last), (b, gone), (gone, b), (gone, gone), (last, last)] {
        planted.push((from, told(&app, fact(from, "leads", to)).await));
    }
    assert_eq!(lint(&app.client, only(LintAudit::Orphan)).await, []);
    // Those before, between and behind all others.
    sqlx::query("DELETE FROM documents WHERE id = ANY($1)")
        .bind(vec![first, gone, last])
        .execute(&app.pool)
        .await
        .unwrap();
    planted.sort_unstable();
    let found = planted
        .iter()
        .map(|(subject, id)| (LintKind::Dangling, Some("default:leads".to_owned()), Some(*subject), vec![*id]));
    assert_eq!(lint(&app.client, only(LintAudit::Orphan)).await, found.collect::<Vec<_>>());
    // What is wrong in the database does not stay.
    let close = "UPDATE triples SET invalidated_at = recorded_at + interval '1 second', invalidation = 'withdrawn' WHERE id = ANY($1)";
    let ids: Vec<i64> = planted.into_iter().map(|(_, id)| id).collect();
    sqlx::query(close).bind(ids).execute(&app.pool).await.unwrap();
    assert_eq!(lint(&app.client, only(LintAudit::Orphan)).await, []);
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_found_is_told_by_usetype() {
    let app = TestApp::start().await;
    let new = |title: &str, content: &str| NewDocument { ..document(title, content) };
    for number in 0..4 {
        let waits = WaitQuery { wait: true, ..WaitQuery::default() };
        app.client.create_document(waits, Json(new(&format!("{number}"), "A heron waits."))).await.unwrap();
    }
    assert_eq!(lint(&app.client, only(LintAudit::Coverage)).await, []);
    sqlx::query("DELETE FROM document_vectors WHERE document_id = (SELECT min(id) FROM documents)")
        .execute(&app.pool)
        .await
        .unwrap();
    let found = app.client.lint_graph(Json(only(LintAudit::Coverage))).await.unwrap().audits.remove(0);
    let first = &found.findings[0];
    assert_eq!(
        (found.count, first.kind, first.usetype.as_deref(), first.share),
        (1, LintKind::Vectors, Some("markdown"), Some(0.75))
    );
    // What another model made is found by no query.
    sqlx::query(
        "UPDATE document_vectors SET embed_model = 'another' WHERE document_id = (SELECT max(id) FROM documents)",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let found = app.client.lint_graph(Json(only(LintAudit::Coverage))).await.unwrap().audits.remove(0);
    assert_eq!((found.findings[0].kind, found.findings[0].share), (LintKind::Vectors, Some(0.5)));
    let enough = CoverageThresholds { vectors: Some(0.5), tokens: Some(0.5), ..CoverageThresholds::default() };
    let found = lint(&app.client, LintRequest { coverage: enough, ..only(LintAudit::Coverage) }).await;
    assert_eq!(found, [(LintKind::Tokens, Some("markdown".to_owned()), None, vec![])]);
    // What believed facts cite is covered by them.
    let cited = CoverageThresholds { vectors: Some(0.0), facts: Some(0.25), ..CoverageThresholds::default() };
    let cited = LintRequest { coverage: cited, ..only(LintAudit::Coverage) };
    let few = app.client.lint_graph(Json(cited.clone())).await.unwrap().audits.remove(0);
    assert_eq!((few.findings[0].kind, few.findings[0].share), (LintKind::Facts, Some(0.0)));
    predicate(&app, "leads").await;
    let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM documents ORDER BY id").fetch_all(&app.pool).await.unwrap();
    let stated = told(&app, NewFact { source_id: Some(ids[0]), ..fact(ids[1], "leads", ids[2]) }).await;
    assert_eq!(lint(&app.client, cited.clone()).await, []);
    app.client.invalidate_fact(FactPath { id: stated }, OptionalJson(None)).await.unwrap();
    assert_eq!(lint(&app.client, cited).await.len(), 1);
    for (body, field) in [
        (json!({"coverage": {"vectors": 2}}), "coverage.vectors"),
        (json!({"staleness": {"max_age_days": -1}}), "max_age_days"),
        (json!({"audits": ["taste"]}), "audits"),
        (json!({"allowed": {"orphans": 1}}), "orphans"),
        (json!({"allowed": {"rules": -1}}), "allowed.rules"),
        (json!({"allowed": {"rules": 2_000_000_000}}), "allowed.rules"),
        (json!({"limit": 0}), "limit"),
    ] {
        let answer = app.raw("POST", "/graph/lint").bearer_auth(TOKEN).json(&body).send().await.unwrap();
        let status = answer.status().as_u16();
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert!(status == 422 && problem["detail"].as_str().unwrap().contains(field), "{problem}");
    }
    app.end().await;
}
