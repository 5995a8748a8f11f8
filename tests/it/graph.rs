//! Analyses of the graph of documents.
use crate::{
    cli::{lines, svc},
    ontologies::load,
    principals::{idle, someone},
    support::{TOKEN, TestApp, document},
    triples::{day, fact, predicate, under},
};
use serde_json::json;
use std::collections::BTreeMap;
use svc_client::{
    Client, Code, Json, OptionalJson, Remote,
    wire::{
        AuthorityQuery, CentralityMetric, CentralityQuery, CommunityQuery, CoverageThresholds, DiffQuery, Direction,
        DocumentChange, DocumentPath, EdgeKind, FactPath, FactQuery, GraphQuery, LintAudit, LintKind, LintRequest,
        NeighborQuery, NewDocument, NewFact, NewFacts, NewLink, NewPredicate, OntologyQuery, SpineQuery,
        StalenessThresholds, ValidAt, WaitQuery,
    },
};

async fn doc(app: &TestApp, title: &str, parent_id: Option<i64>) -> i64 {
    under(app, title, parent_id).await
}

async fn lead(app: &TestApp, edges: &[(i64, i64)]) {
    let facts = edges.iter().map(|(from, to)| NewFact { ..fact(*from, "leads", *to) }).collect();
    app.client.assert_facts(Json(NewFacts { facts, on_overlap: None })).await.unwrap();
}

/// Two groups of four, each with all facts among it, and a bridge between them.
async fn two_groups(app: &TestApp) -> (Vec<i64>, Vec<i64>) {
    predicate(app, "leads").await;
    let mut groups = Vec::new();
    for name in ["left", "right"] {
        let root = doc(app, name, None).await;
        let mut members = vec![root];
        for number in 0..4 {
            members.push(doc(app, &format!("{name} {number}"), Some(root)).await);
        }
        let leaves = &members[1..];
        let pairs = leaves.iter().flat_map(|a| leaves.iter().filter(move |b| a < *b).map(move |b| (*a, *b)));
        lead(app, &pairs.collect::<Vec<_>>()).await;
        groups.push(members);
    }
    let right = groups.pop().unwrap();
    let left = groups.pop().unwrap();
    lead(app, &[(left[4], right[1])]).await;
    (left, right)
}

#[tokio::test]
async fn who_is_between_two_groups_is_told_with_the_groups() {
    let app = idle().await;
    let (left, right) = two_groups(&app).await;
    let query = |metric| CentralityQuery { metric: Some(metric), ..CentralityQuery::default() };
    let between = app.client.rank_documents(query(CentralityMetric::Betweenness)).await.unwrap();
    let top: Vec<i64> = between.results[..2].iter().map(|found| found.document.document_id).collect();
    assert_eq!((top, between.estimate, between.pivots), (vec![left[4], right[1]], false, Some(8)));
    // Three on its side reach four over it: 12 of the 21 pairs of others, of which each counts once.
    assert!((between.results[0].score - 12.0 / 21.0).abs() < 1e-9, "{}", between.results[0].score);
    assert_eq!(between.results[2].score, 0.0);
    let degree = app.client.rank_documents(query(CentralityMetric::Degree)).await.unwrap();
    let first = &degree.results[0];
    assert_eq!((first.document.document_id, first.score, first.in_degree, first.out_degree), (left[4], 4.0, 3, 1));
    assert_eq!((first.document.title.as_str(), first.document.usetype.as_str()), ("left 3", "markdown"));
    assert_eq!((degree.documents, degree.edges, degree.metric), (10, 13, CentralityMetric::Degree));
    // All of a walk is spent somewhere.
    let ranks = app.client.rank_documents(CentralityQuery::default()).await.unwrap();
    let sum: f64 = ranks.results.iter().map(|found| found.score).sum();
    assert!((sum - 1.0).abs() < 1e-6 && ranks.results[0].document.document_id == right[4], "{ranks:?}");
    let one = CentralityQuery {
        limit: Some(1),
        parent_id: Some(left[0]),
        usetype: Some("markdown".to_owned()),
        ..query(CentralityMetric::Degree)
    };
    let one = app.client.rank_documents(one).await.unwrap();
    assert_eq!((one.results.len(), one.documents, one.edges, one.results[0].score), (1, 5, 6, 3.0));

    let groups =
        app.client.find_communities(CommunityQuery { members: Some(3), ..CommunityQuery::default() }).await.unwrap();
    assert_eq!((groups.count, groups.communities.len(), groups.communities[0].size), (2, 2, 4));
    let members: Vec<i64> = groups.communities[0].members.iter().map(|member| member.document.document_id).collect();
    assert_eq!(members, [left[4], left[1], left[2]]);
    // 12 of 13 edges lie within, and the halves have all ends in equal parts.
    assert!((groups.modularity - (12.0 / 13.0 - 0.5)).abs() < 1e-9, "{}", groups.modularity);
    let none = CommunityQuery { min_size: Some(5), ..CommunityQuery::default() };
    assert_eq!(app.client.find_communities(none).await.unwrap().count, 0);

    let stats = app.client.read_graph_stats(GraphQuery::default()).await.unwrap();
    assert_eq!((stats.facts, stats.literals, stats.dynamic, stats.predicates), (13, 0, 13, 1));
    assert_eq!((stats.connected, stats.components, stats.largest_component, stats.highest_degree), (8, 1, 8, 4));
    assert_eq!((stats.by_predicate[0].predicate.as_str(), stats.by_predicate[0].facts), ("default:leads", 13));
    let half = GraphQuery { parent_id: Some(left[0]), ..GraphQuery::default() };
    let half = app.client.read_graph_stats(half).await.unwrap();
    assert_eq!((half.facts, half.documents, half.edges, half.mean_degree), (7, 5, 6, 3.0));
    app.end().await;
}

#[tokio::test]
async fn a_subtree_is_worth_what_leads_into_it_and_hangs_on_its_heaviest_documents() {
    let app = idle().await;
    let (left, right) = two_groups(&app).await;
    let trees = app.client.rank_subtrees(AuthorityQuery::default()).await.unwrap();
    let by: BTreeMap<i64, _> = trees.results.iter().map(|tree| (tree.document.document_id, tree)).collect();
    // Only the bridge leads into the right tree, and nothing into the left one, however much its own documents lead to each other.
    assert!(by[&right[0]].inflow > 0.0 && by[&left[0]].inflow == 0.0);
    assert_eq!((by[&right[0]].size, by[&right[1]].size), (5, 1));
    let whole: f64 = [left[0], right[0]].iter().map(|root| by[root].authority).sum();
    assert!((whole - 1.0).abs() < 1e-6);
    assert!((by[&right[0]].inflow_per_document - by[&right[0]].inflow / 5.0).abs() < 1e-12);

    let leaf = doc(&app, "below the last", Some(right[4])).await;
    let spines = app.client.find_spines(SpineQuery { document_id: right[0], ..SpineQuery::default() }).await.unwrap();
    let on: Vec<Vec<i64>> =
        spines.spines.iter().map(|spine| spine.documents.iter().map(|on| on.document_id).collect()).collect();
    assert_eq!((on[0].clone(), on.len(), spines.count, spines.documents), (vec![right[0], right[4], leaf], 4, 4, 6));
    assert!(spines.spines.is_sorted_by(|a, b| a.weight >= b.weight));
    app.end().await;
}

#[tokio::test]
async fn a_graph_is_that_of_its_time_and_of_its_edges() {
    let app = idle().await;
    predicate(&app, "leads").await;
    let [a, b, c, d] = [
        doc(&app, "a", None).await,
        doc(&app, "b", None).await,
        doc(&app, "c", None).await,
        doc(&app, "d", None).await,
    ];
    let new = NewFact { valid_from: Some(day(1)), valid_until: Some(day(10)), ..fact(a, "leads", b) };
    app.client.assert_fact(Json(new)).await.unwrap();
    let later = app.client.assert_fact(Json(fact(b, "leads", c))).await.unwrap().fact;
    app.client.assert_fact(Json(fact(c, "leads", c))).await.unwrap();
    let link = NewLink { target_id: d, link_type: "cites".to_owned(), score: None, metadata: serde_json::Map::new() };
    app.client.create_link(DocumentPath { id: a }, Json(link)).await.unwrap();
    load(&app.client, OntologyQuery::default(), "ex:A a owl:Class . ex:B rdfs:subClassOf ex:A .").await.unwrap();
    let edges = async |query: CentralityQuery| app.client.rank_documents(query).await.unwrap().edges;
    // What is about classes leads nowhere, nor does what leads to itself.
    assert_eq!(edges(CentralityQuery::default()).await, 2);
    assert_eq!(edges(CentralityQuery { edges: Some(EdgeKind::Triples), ..CentralityQuery::default() }).await, 1);
    assert_eq!(edges(CentralityQuery { edges: Some(EdgeKind::Links), ..CentralityQuery::default() }).await, 1);
    assert_eq!(edges(CentralityQuery { valid_at: Some(day(5)), ..CentralityQuery::default() }).await, 3);
    app.client.invalidate_fact(FactPath { id: later.id }, OptionalJson(None)).await.unwrap();
    assert_eq!(edges(CentralityQuery::default()).await, 1);
    assert_eq!(edges(CentralityQuery { known_at: Some(later.recorded_at), ..CentralityQuery::default() }).await, 2);

    let near = async |depth, direction, valid_at| {
        let query = NeighborQuery {
            document_id: b,
            depth: Some(depth),
            direction: Some(direction),
            valid_at,
            known_at: Some(later.recorded_at),
            ..NeighborQuery::default()
        };
        let found = app.client.find_neighbors(query).await.unwrap();
        assert!(!found.truncated);
        found.documents.into_iter().map(|near| (near.document.document_id, near.distance)).collect::<Vec<_>>()
    };
    assert_eq!(near(1, Direction::Any, None).await, [(b, 0), (c, 1)]);
    assert_eq!(near(1, Direction::Any, Some(day(5))).await, [(b, 0), (a, 1), (c, 1)]);
    assert_eq!(near(1, Direction::In, Some(day(5))).await, [(b, 0), (a, 1)]);
    let few = NeighborQuery {
        document_id: b,
        limit: Some(2),
        valid_at: Some(day(5)),
        known_at: Some(later.recorded_at),
        ..NeighborQuery::default()
    };
    let few = app.client.find_neighbors(few).await.unwrap();
    assert_eq!((few.documents.len(), few.facts.len(), few.truncated), (2, 1, true));
    app.end().await;
}

#[tokio::test]
async fn an_analysis_that_cannot_be_made_is_refused_by_name() {
    let app = idle().await;
    for (path, field) in [
        ("/graph/centrality?metric=fame", "metric"),
        ("/graph/centrality?pivots=1", "pivots"),
        ("/graph/centrality?limit=0", "limit"),
        ("/graph/communities?resolution=0", "resolution"),
        ("/graph/spines", "document_id"),
        ("/graph/neighbors?document_id=1&depth=5", "depth"),
        ("/graph/diff", "known_from"),
        ("/graph/diff?known_from=2024-01-01T00:00:00Z&valid_from=2024-01-01T00:00:00Z", "known_from"),
        ("/graph/diff?known_from=2100-01-01T00:00:00Z", "known_from"),
    ] {
        let answer = app.raw("GET", path).bearer_auth(TOKEN).send().await.unwrap();
        let status = answer.status().as_u16();
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(status, 422, "{path}: {problem}");
        assert!(
            problem["field"] == json!(field) || problem["detail"].as_str().unwrap().contains(field),
            "{path}: {problem}"
        );
    }
    for path in [
        "/graph/centrality?parent_id=999",
        "/graph/spines?document_id=999",
        "/graph/neighbors?document_id=999",
        "/graph/stats?parent_id=999",
    ] {
        assert_eq!(app.raw("GET", path).bearer_auth(TOKEN).send().await.unwrap().status(), 404, "{path}");
    }
    // An empty store has an empty graph.
    let none = app.client.rank_documents(CentralityQuery::default()).await.unwrap();
    assert_eq!((none.results.len(), none.documents), (0, 0));
    assert_eq!(app.client.find_communities(CommunityQuery::default()).await.unwrap().modularity, 0.0);
    assert_eq!(app.client.read_graph_stats(GraphQuery::default()).await.unwrap().mean_degree, 0.0);
    let now = DiffQuery { known_from: Some(day(1)), ..DiffQuery::default() };
    assert_eq!(app.client.compare_facts(now).await.unwrap().added, 0);
    // One analysis runs at a time.
    let place = app.service.admission.analysis().await.unwrap();
    let busy = app.client.rank_documents(CentralityQuery::default()).await.unwrap_err();
    assert_eq!((busy.code, busy.detail.as_str()), (Code::TooManyRequests, "another analysis of a graph is running"));
    drop(place);
    app.client.rank_documents(CentralityQuery::default()).await.unwrap();
    app.end().await;
}

/// What was found, as kind, predicate or usetype, document and facts.
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
    // One after the other, in one direction, about others: nothing is wrong.
    for new in [
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
    assert!(seen.len() == 6 && seen.iter().all(|found| found.0 != LintKind::Functional), "{seen:?}");
    let few = LintRequest { limit: Some(1), ..only(LintAudit::Contradiction) };
    let few = app.client.lint_graph(Json(few)).await.unwrap().audits.remove(0);
    assert_eq!((few.count, few.findings.len()), (7, 6));
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
    for (body, field) in [
        (json!({"coverage": {"vectors": 2}}), "coverage.vectors"),
        (json!({"staleness": {"max_age_days": -1}}), "max_age_days"),
        (json!({"audits": ["taste"]}), "audits"),
        (json!({"limit": 0}), "limit"),
    ] {
        let answer = app.raw("POST", "/graph/lint").bearer_auth(TOKEN).json(&body).send().await.unwrap();
        let status = answer.status().as_u16();
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert!(status == 422 && problem["detail"].as_str().unwrap().contains(field), "{problem}");
    }
    app.end().await;
}

#[tokio::test]
async fn the_command_line_shows_what_a_graph_is_like_and_what_is_wrong_with_it() {
    let app = idle().await;
    let (left, right) = two_groups(&app).await;
    let first = |lines: Vec<serde_json::Value>| lines.into_iter().next().unwrap();
    let run = async |arguments: &[&str]| lines(&svc(&app, arguments).await);
    let between = first(run(&["graph", "centrality", "--metric", "betweenness", "--limit", "1"]).await);
    assert_eq!((&between["document_id"], &between["title"]), (&json!(left[4]), &json!("left 3")));
    assert_eq!(first(run(&["graph", "authority"]).await)["document_id"], right[4]);
    let root = right[0].to_string();
    assert_eq!(first(run(&["graph", "spines", &root]).await)["documents"][0]["document_id"], right[0]);
    assert_eq!(run(&["graph", "communities", "--resolution", "1"]).await.len(), 2);
    assert_eq!(first(run(&["graph", "neighbors", &left[4].to_string()]).await)["facts"].as_array().unwrap().len(), 4);
    assert_eq!(first(run(&["graph", "stats", "--under", &root]).await)["facts"], 6);
    let changes = run(&["graph", "diff", "2024-01-01T00:00:00Z", "--kind", "added"]).await;
    assert_eq!((changes.len(), &changes[0]["kind"]), (13, &json!("added")));

    let clean = svc(&app, &["lint", "--audit", "contradiction", "--audit", "staleness"]).await;
    assert!(clean.status.success());
    assert_eq!(lines(&clean).len(), 2);
    let wrong = svc(&app, &["lint", "--audit", "unprotected"]).await;
    assert_eq!((wrong.status.code(), lines(&wrong).remove(0)["count"].as_u64()), (Some(1), Some(2)));
    let table = svc(&app, &["lint", "--table", "--audit", "unprotected"]).await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("unprotected: 2 findings") && table.contains("open_root"), "{table}");
    app.end().await;
}
