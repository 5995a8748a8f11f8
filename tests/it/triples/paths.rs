//! Paths along facts, beside a plain search.
use super::{doc, fact, predicate};
use crate::{
    access::Random,
    principals::{grant, idle, someone},
    support::{TestApp, Wish},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use svc_client::{
    Code, Json, OptionalJson,
    wire::{
        Direction, DocumentPath, FactPath, FoundPath, GrantRight, Invalidation, NewFact, NewFacts, OnOverlap,
        PathLimit, PathSearch,
    },
};

/// A search for the longest paths that there may be.
fn search(from_id: i64, to_id: i64) -> PathSearch {
    PathSearch { max_depth: Some(8), ..PathSearch::new(from_id, to_id) }
}

/// All shortest paths as lists of facts, by a plain search from one end.
fn naive(edges: &[(i64, i64, i64, String)], asked: &PathSearch, readable: &BTreeSet<i64>) -> BTreeSet<Vec<i64>> {
    let mut next: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
    for (id, subject, object, predicate) in edges {
        let is_along = asked.predicates.is_empty() || asked.predicates.contains(predicate);
        if !is_along || !readable.contains(subject) || !readable.contains(object) {
            continue;
        }
        let direction = asked.direction.unwrap_or(Direction::Any);
        if direction != Direction::In {
            next.entry(*subject).or_default().push((*id, *object));
        }
        if direction != Direction::Out && subject != object {
            next.entry(*object).or_default().push((*id, *subject));
        }
    }
    let (mut depth, mut open) = (BTreeMap::from([(asked.from_id, 0_u32)]), VecDeque::from([asked.from_id]));
    while let Some(node) = open.pop_front() {
        for (_, to) in next.get(&node).into_iter().flatten() {
            if !depth.contains_key(to) {
                depth.insert(*to, depth[&node] + 1);
                open.push_back(*to);
            }
        }
    }
    let mut paths = BTreeSet::new();
    if depth.get(&asked.to_id).is_some_and(|length| *length <= asked.max_depth.unwrap()) {
        let mut open = vec![(asked.from_id, Vec::new())];
        while let Some((node, path)) = open.pop() {
            if node == asked.to_id {
                paths.insert(path);
                continue;
            }
            for (id, to) in next.get(&node).into_iter().flatten() {
                if depth[to] == depth[&node] + 1 {
                    open.push((*to, path.iter().copied().chain([*id]).collect()));
                }
            }
        }
    }
    paths
}

fn facts(path: &FoundPath) -> Vec<i64> {
    assert_eq!(path.length as usize, path.steps.len());
    path.steps.iter().map(|step| step.triple_id).collect()
}

#[tokio::test]
async fn paths_are_the_shortest_that_a_plain_search_finds_for_each_reader() {
    for seed in [11, 12, 13] {
        let app = idle().await;
        let mut random = Random(seed * 7907);
        let mut docs = Vec::new();
        for number in 0..30 {
            docs.push(doc(&app, &format!("Document {number}")).await);
        }
        for name in ["a", "b"] {
            predicate(&app, name).await;
        }
        let new = (0..55).map(|_| {
            let [from, to] = [docs[random.below(30)], docs[random.below(30)]];
            fact(from, ["a", "b"][random.below(2)], to)
        });
        let new: Vec<NewFact> = new.collect();
        let batch = NewFacts { facts: new.clone(), on_overlap: Some(OnOverlap::Merge) };
        let made = app.client.assert_facts(Json(batch)).await.unwrap();
        let edges: BTreeSet<(i64, i64, i64, String)> = new
            .into_iter()
            .zip(&made.facts)
            .map(|(new, made)| (made.id, new.subject_id.unwrap(), new.object_id.unwrap(), new.predicate.unwrap()))
            .collect();
        let edges: Vec<_> = edges.into_iter().collect();
        let reader = someone(&app, "reader").await;
        let mut readable: BTreeSet<i64> = docs.iter().copied().collect();
        for id in &docs[..6] {
            app.client.protect_document(DocumentPath { id: *id }).await.unwrap();
            readable.remove(id);
        }
        let all: BTreeSet<i64> = docs.iter().copied().collect();
        let (mut found, mut lengths) = (0, BTreeSet::new());
        for _ in 0..60 {
            let mut asked = search(docs[random.below(30)], docs[random.below(30)]);
            asked.direction = [None, Some(Direction::Out), Some(Direction::In)][random.below(3)];
            asked.predicates = [vec![], vec![], vec!["a".to_owned()]][random.below(3)].clone();
            asked.limit = Some(10);
            asked.max_depth = Some(1 + random.below(8) as u32);
            for (client, scope) in [(&app.client, &all), (&reader.client, &readable)] {
                let answer = client.find_paths(Json(asked.clone())).await;
                if !scope.contains(&asked.from_id) || !scope.contains(&asked.to_id) {
                    assert_eq!(answer.unwrap_err().code, Code::NotFound);
                    continue;
                }
                let (answer, right) = (answer.unwrap(), naive(&edges, &asked, scope));
                let got: Vec<Vec<i64>> = answer.paths.iter().map(facts).collect();
                let first: Vec<Vec<i64>> = right.iter().take(10).cloned().collect();
                assert_eq!(got, first, "seed {seed}: {asked:?}");
                assert_eq!(answer.truncated, None);
                let on: BTreeSet<i64> = answer.documents.iter().map(|document| document.id).collect();
                let steps = answer.paths.iter().flat_map(|path| &path.steps);
                let ends = steps
                    .flat_map(|step| [step.subject_id, step.object_id])
                    .chain((!answer.paths.is_empty()).then_some(asked.from_id));
                assert_eq!(on, ends.collect());
                found += usize::from(!right.is_empty());
                lengths.extend(right.first().map(Vec::len));
            }
        }
        assert!(found > 20 && lengths.len() > 3, "the graph was dull: {found} found, lengths {lengths:?}");
        app.end().await;
    }
}

#[tokio::test]
async fn a_search_that_gives_up_says_by_which_budget_and_never_that_there_is_no_path() {
    let settings = [("SVC_PATH_MAX_DOCUMENTS", "9"), ("SVC_PATH_TIMEOUT_SECONDS", "3")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    predicate(&app, "a").await;
    let mut chain = Vec::new();
    for number in 0..7 {
        chain.push(doc(&app, &format!("Document {number}")).await);
    }
    // Around the middle of the chain are more documents than a search may come to.
    let mut facts: Vec<NewFact> = chain.windows(2).map(|pair| fact(pair[0], "a", pair[1])).collect();
    for number in 0..9 {
        facts.push(fact(chain[3], "a", doc(&app, &format!("Beside {number}")).await));
    }
    app.client.assert_facts(Json(NewFacts { facts, on_overlap: None })).await.unwrap();
    let ask = async |from: usize, to: usize| {
        let found = app.client.find_paths(Json(search(chain[from], chain[to]))).await.unwrap();
        (found.paths.first().map(|path| path.length), found.truncated)
    };
    assert_eq!(ask(0, 2).await, (Some(2), None));
    assert_eq!(ask(6, 3).await, (Some(3), None), "this search meets the middle last");
    assert_eq!(ask(3, 6).await, (None, Some(PathLimit::Nodes)), "and this one begins there");
    let shallow = PathSearch { max_depth: Some(1), ..search(chain[0], chain[2]) };
    let none = app.client.find_paths(Json(shallow)).await.unwrap();
    assert_eq!((none.paths.len(), none.truncated), (0, None), "a search that ends says that there is none");

    // Nobody reads facts while this transaction lasts.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE triples IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    assert_eq!(ask(0, 2).await, (None, Some(PathLimit::Time)));
    held.rollback().await.unwrap();
    assert_eq!(ask(0, 2).await, (Some(2), None));
    app.end().await;
}

#[tokio::test]
async fn a_path_is_of_its_time_and_a_closed_source_is_no_bridge() {
    let app = idle().await;
    let [a, b, c, closed] =
        [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "C").await, doc(&app, "Closed").await];
    predicate(&app, "a").await;
    let reader = someone(&app, "reader").await;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let open = app.client.assert_fact(Json(fact(a, "a", b))).await.unwrap().fact;
    let secret =
        app.client.assert_fact(Json(NewFact { source_id: Some(closed), ..fact(b, "a", c) })).await.unwrap().fact;
    let known = |answer: svc_client::wire::PathResponse| answer.paths.iter().map(facts).collect::<Vec<_>>();
    let ask = |app: &TestApp| app.client.clone();
    assert_eq!(known(ask(&app).find_paths(Json(search(a, c))).await.unwrap()), [[open.id, secret.id]]);
    assert!(known(reader.client.find_paths(Json(search(a, c))).await.unwrap()).is_empty());
    grant(&app, &reader, closed, GrantRight::Read).await;
    assert_eq!(known(reader.client.find_paths(Json(search(a, c))).await.unwrap()), [[open.id, secret.id]]);
    // What is withdrawn was a bridge before.
    app.client.invalidate_fact(FactPath { id: open.id }, OptionalJson(Some(Invalidation::default()))).await.unwrap();
    assert!(known(ask(&app).find_paths(Json(search(a, c))).await.unwrap()).is_empty());
    let before = PathSearch { known_at: Some(secret.recorded_at), ..search(a, c) };
    assert_eq!(known(ask(&app).find_paths(Json(before.clone())).await.unwrap()), [[open.id, secret.id]]);
    // A document that is gone comes back in no time.
    app.client.delete_document(DocumentPath { id: b }).await.unwrap();
    assert!(known(ask(&app).find_paths(Json(before)).await.unwrap()).is_empty());
    let same = ask(&app).find_paths(Json(search(a, a))).await.unwrap();
    assert_eq!((same.paths.len(), same.paths[0].length, same.documents.len()), (1, 0, 1));
    for (wrong, field) in [
        (PathSearch { max_depth: Some(9), ..search(a, c) }, "max_depth"),
        (PathSearch { limit: Some(0), ..search(a, c) }, "limit"),
        (PathSearch { predicates: vec!["unheard".to_owned()], ..search(a, c) }, "predicates"),
    ] {
        let refused = ask(&app).find_paths(Json(wrong)).await.unwrap_err();
        assert_eq!((refused.code, refused.members["field"].as_str()), (Code::InvalidField, Some(field)));
    }
    app.end().await;
}
