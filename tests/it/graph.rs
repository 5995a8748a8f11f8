//! Analyses of the graph of documents.
mod lint;

use crate::{
    cli::{lines, svc},
    ontologies::load,
    principals::{idle, someone},
    support::{TOKEN, TestApp, Wish},
    triples::{day, fact, predicate, under},
};
use chrono::{TimeDelta, Utc};
use serde_json::json;
use std::collections::BTreeMap;
use svc_client::{
    Code, Json, OptionalJson,
    wire::{
        AuthorityQuery, CentralityMetric, CentralityQuery, CommunityQuery, DiffQuery, Direction, DocumentPath,
        EdgeKind, FactChange, FactPath, GraphQuery, Invalidation, NeighborQuery, NewFact, NewFacts, NewLink,
        OntologyQuery, SpineQuery,
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
    predicate(&app, "meets").await;
    predicate(&app, "likes").await;
    app.client.assert_fact(Json(fact(b, "meets", d))).await.unwrap();
    app.client.assert_fact(Json(fact(b, "likes", a))).await.unwrap();
    for (predicates, found) in [("leads", 0), ("default:meets", 1), ("likes, urn:svc:predicate/default/meets", 2)] {
        let predicates = Some(predicates.to_owned());
        let query = NeighborQuery { document_id: b, predicates, ..NeighborQuery::default() };
        assert_eq!(app.client.find_neighbors(query).await.unwrap().facts.len(), found);
    }
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
async fn since_a_moment_after_the_last_write_no_fact_has_changed() {
    let app = idle().await;
    predicate(&app, "leads").await;
    let [a, b] = [doc(&app, "a", None).await, doc(&app, "b", None).await];
    lead(&app, &[(a, b)]).await;
    let later = Utc::now();
    for known_to in [None, Some(later), Some(later + TimeDelta::milliseconds(1))] {
        let query = DiffQuery { known_from: Some(later), known_to, ..DiffQuery::default() };
        let found = app.client.compare_facts(query).await.unwrap();
        assert_eq!((found.added, found.removed, found.superseded, found.from), (0, 0, 0, found.to), "{known_to:?}");
    }
    let backwards = DiffQuery { known_from: Some(later), known_to: Some(day(1)), ..DiffQuery::default() };
    let refused = app.client.compare_facts(backwards).await.unwrap_err();
    assert_eq!((refused.status, &refused.members["field"]), (422, &json!("known_from")), "{refused:?}");
    app.end().await;
}

#[tokio::test]
async fn a_statement_that_holds_at_both_moments_has_not_changed_whichever_zones_state_it() {
    let app = idle().await;
    predicate(&app, "leads").await;
    let [a, b, closed] = [doc(&app, "a", None).await, doc(&app, "b", None).await, doc(&app, "closed", None).await];
    let reader = someone(&app, "reader").await;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let open = NewFact { valid_from: Some(day(1)), ..fact(a, "leads", b) };
    let open = app.client.assert_fact(Json(open)).await.unwrap().fact;
    let told = NewFact { valid_from: Some(day(10)), source_id: Some(closed), ..fact(a, "leads", b) };
    app.client.assert_fact(Json(told)).await.unwrap();
    let between = || DiffQuery { valid_from: Some(day(5)), valid_to: Some(day(15)), ..DiffQuery::default() };
    let found = app.client.compare_facts(between()).await.unwrap();
    assert_eq!((found.added, found.removed, found.changes.len()), (0, 0, 0), "{found:?}");
    // From the tenth on only the closed document states it.
    let gone = Invalidation { valid_from: Some(day(10)), ..Invalidation::default() };
    let gone = app.client.invalidate_fact(FactPath { id: open.id }, OptionalJson(Some(gone))).await.unwrap();
    let found = app.client.compare_facts(between()).await.unwrap();
    assert_eq!((found.added, found.removed, found.changes.len()), (0, 0, 0), "{found:?}");
    // Who may not read that sees that the statement ended.
    let found = reader.client.compare_facts(between()).await.unwrap();
    let changes: Vec<_> = found.changes.iter().map(|change| (change.kind, change.fact.id)).collect();
    assert_eq!((found.added, found.removed), (0, 1));
    assert_eq!(changes, [(FactChange::Removed, gone.remainders[0].id)]);
    app.end().await;
}

#[tokio::test]
async fn who_goes_on_from_the_second_moment_of_the_last_answer_misses_no_fact() {
    let app = idle().await;
    predicate(&app, "leads").await;
    let [a, b] = [doc(&app, "a", None).await, doc(&app, "b", None).await];
    lead(&app, &[(a, b)]).await;
    let mut writing = app.pool.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO triples (zone, subject_id, predicate_id, object_id, statement, created_at, recorded_at, fact_type)
         SELECT t.zone, t.object_id, t.predicate_id, t.subject_id, gen_random_uuid(), p.at, p.at, t.fact_type
           FROM triples t CROSS JOIN (SELECT take_pen() AS at OFFSET 0) p",
    )
    .execute(&mut *writing)
    .await
    .unwrap();
    let since = async |moment| {
        let query = DiffQuery { known_from: Some(moment), ..DiffQuery::default() };
        app.client.compare_facts(query).await.unwrap()
    };
    let last = since(Utc::now()).await;
    assert_eq!(last.added, 0);
    writing.commit().await.unwrap();
    assert_eq!(since(last.to).await.added, 1);
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
        ("/graph/communities?limit=1000&members=101", "members"),
        ("/graph/spines", "document_id"),
        ("/graph/neighbors?document_id=1&predicates=,", "predicates"),
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

#[tokio::test]
async fn a_graph_that_is_too_large_is_refused_and_says_how_to_ask_for_less() {
    let settings = [("SVC_GRAPH_MAX_EDGES", "12")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    let (left, right) = two_groups(&app).await;
    let ask = async |path: &str| {
        let answer = app.raw("GET", path).bearer_auth(TOKEN).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<serde_json::Value>().await.unwrap())
    };
    // There are ten documents, and thirteen facts between them.
    for path in ["centrality", "centrality?metric=degree", "subtree-authority", "communities", "stats"] {
        let (status, problem) = ask(&format!("/graph/{path}")).await;
        assert_eq!((status, &problem["limit"]), (413, &json!(12)), "{path}: {problem}");
        assert_eq!(problem["setting"], "SVC_GRAPH_MAX_EDGES", "{path}: {problem}");
        assert!(problem["remedy"].as_str().unwrap().contains("`parent_id`"), "{path}: {problem}");
    }
    for path in [
        format!("centrality?parent_id={}", left[0]),
        format!("spines?document_id={}", right[0]),
        "communities?edges=links".to_owned(),
        format!("neighbors?document_id={}", left[4]),
    ] {
        let (status, answer) = ask(&format!("/graph/{path}")).await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
    // What a caller may not read counts for nothing.
    let reader = someone(&app, "reader").await;
    let refused = reader.client.rank_documents(CentralityQuery::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::TooLarge);
    app.client.protect_document(DocumentPath { id: left[0] }).await.unwrap();
    let found = reader.client.rank_documents(CentralityQuery::default()).await.unwrap();
    assert_eq!((found.documents, found.edges), (5, 6));
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
    for (accepted, code) in [("unprotected=1", 1), ("unprotected=2", 0), ("roots=2", 2), ("unprotected=few", 2)] {
        let done = svc(&app, &["lint", "--audit", "unprotected", "--allow", accepted]).await;
        assert_eq!(done.status.code(), Some(code), "{accepted}");
    }
    let table = svc(&app, &["lint", "--table", "--audit", "unprotected", "--allow", "unprotected=9"]).await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("unprotected: 2 findings, no more than are accepted"), "{table}");
    let table = svc(&app, &["lint", "--table", "--audit", "unprotected"]).await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("unprotected: 2 findings") && table.contains("open_root"), "{table}");
    app.end().await;
}
