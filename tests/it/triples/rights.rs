//! Who sees which fact: every read beside the definition, in random trees with random grants, sources and changes.
use super::{fact, predicate, rules::Deriving, under};
use crate::{
    access::{Naive, Random},
    principals::{Someone, grant, idle, someone},
    support::{TestApp, invariants},
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use svc_client::{
    Json,
    wire::{
        AuthorityQuery, CentralityMetric, CentralityQuery, CommunityQuery, DiffQuery, DocumentChange, DocumentPath,
        FactPath, FactQuery, FactResponse, GrantPath, GrantRight, GraphQuery, NeighborQuery, NewFact, PageQuery,
        PathSearch, PredicateChange, PredicatePath, SpineQuery, ValidAt, WaitQuery,
    },
};

/// All facts, believed or not, as a caller sees them.
async fn all(client: &svc_client::Client<svc_client::Remote>) -> Vec<FactResponse> {
    let mut facts = Vec::new();
    for invalidated in [false, true] {
        let mut query =
            FactQuery { valid_at: Some(ValidAt::Any), invalidated, limit: Some(1000), ..FactQuery::default() };
        loop {
            let page = client.list_facts(query.clone()).await.unwrap();
            facts.extend(page.facts);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    facts.sort_by_key(|fact| fact.id);
    facts
}

struct World {
    naive: Naive,
    grants: BTreeMap<i64, BTreeMap<i64, bool>>,
}

impl World {
    fn of(&self, who: &Someone) -> Naive {
        Naive { grants: self.grants.get(&who.id).cloned().unwrap_or_default(), ..self.naive.clone() }
    }

    fn ids(&self) -> Vec<i64> {
        self.naive.path.keys().copied().collect()
    }

    async fn renew(&mut self, app: &TestApp) {
        let rows: Vec<(i64, Vec<i64>)> =
            sqlx::query_as("SELECT id, path FROM documents").fetch_all(&app.pool).await.unwrap();
        self.naive.path = rows.into_iter().collect();
        self.naive.roots.retain(|id| self.naive.path.contains_key(id));
    }

    /// What a principal sees is what it may read both ends and the source of, and nothing of it tells of the rest.
    async fn compare(&self, app: &TestApp, who: &Someone) {
        let rights = self.of(who);
        let reads = |id: i64| rights.path.contains_key(&id) && rights.may(id, false);
        let owner = all(&app.client).await;
        let visible = |fact: &FactResponse| {
            reads(fact.subject_id) && fact.object_id.is_none_or(reads) && fact.source_id.is_none_or(reads)
        };
        let mut right: BTreeSet<i64> = owner.iter().filter(|fact| visible(fact)).map(|fact| fact.id).collect();
        // What was derived is seen by who sees all that it follows from.
        while let Some(fact) = owner
            .iter()
            .find(|fact| right.contains(&fact.id) && fact.premises.iter().any(|premise| !right.contains(premise)))
        {
            right.remove(&fact.id);
        }
        let seen = all(&who.client).await;
        let ids: BTreeSet<i64> = seen.iter().map(|fact| fact.id).collect();
        // What is derived no longer may be the owner's alone.
        let is_past = |fact: &&FactResponse| fact.derived_by.is_some() && fact.invalidated_at.is_some();
        let past: BTreeSet<i64> = owner.iter().filter(is_past).map(|fact| fact.id).collect();
        assert!(ids.is_subset(&right), "{:?}", ids.difference(&right));
        assert!(right.difference(&ids).all(|id| past.contains(id)), "{:?}", right.difference(&ids));
        let right = ids;
        for fact in &seen {
            assert!(fact.premises.iter().all(|premise| right.contains(premise)), "{fact:?}");
            assert!(fact.citations.iter().all(|citation| reads(citation.document_id)), "{fact:?}");
            assert!(fact.invalidated_by.is_none_or(|by| right.contains(&by)), "{fact:?}");
            let history =
                who.client.read_fact_history(FactPath { id: fact.id }, PageQuery::default()).await.unwrap().facts;
            assert!(history.iter().all(|fact| right.contains(&fact.id)));
        }
        for fact in &owner {
            let read = who.client.read_fact(FactPath { id: fact.id }).await;
            assert_eq!(read.is_ok(), right.contains(&fact.id), "{fact:?}");
            if fact.invalidated_at.is_none()
                && let Some(object) = fact.object_id
            {
                let asked =
                    PathSearch { max_depth: Some(1), limit: Some(10), ..PathSearch::new(fact.subject_id, object) };
                let paths = who.client.find_paths(Json(asked)).await.map(|found| found.paths).unwrap_or_default();
                let steps: BTreeSet<i64> =
                    paths.iter().flat_map(|path| &path.steps).map(|step| step.triple_id).collect();
                assert!(steps.is_subset(&right), "{steps:?}");
                assert!(
                    !right.contains(&fact.id)
                        || fact.subject_id == object
                        || steps.contains(&fact.id)
                        || steps.len() == 10
                );
            }
        }
        for id in self.ids() {
            for query in [
                FactQuery { subject_id: Some(id), ..FactQuery::default() },
                FactQuery { object_id: Some(id), ..FactQuery::default() },
                FactQuery { source_id: Some(id), ..FactQuery::default() },
                FactQuery { parent_id: Some(id), ..FactQuery::default() },
            ] {
                match who.client.list_facts(query).await {
                    Ok(page) => assert!(reads(id) && page.facts.iter().all(|fact| right.contains(&fact.id))),
                    Err(_) => assert!(!reads(id)),
                }
            }
        }
        let believed: Vec<&FactResponse> = seen.iter().filter(|fact| fact.invalidated_at.is_none()).collect();
        self.compare_graph(who, &believed).await;
    }

    /// The graph of a principal is that of what it may read.
    async fn compare_graph(&self, who: &Someone, believed: &[&FactResponse]) {
        let rights = self.of(who);
        let readable: BTreeSet<i64> = self.ids().into_iter().filter(|id| rights.may(*id, false)).collect();
        let edges: Vec<(i64, i64, i64)> =
            believed.iter().filter_map(|fact| Some((fact.id, fact.subject_id, fact.object_id?))).collect();
        let degrees = |id: i64| {
            let to = edges.iter().filter(|(_, from, to)| *to == id && from != to).count();
            let from = edges.iter().filter(|(_, from, to)| *from == id && from != to).count();
            (to as u64, from as u64)
        };
        let query =
            CentralityQuery { metric: Some(CentralityMetric::Degree), limit: Some(1000), ..CentralityQuery::default() };
        let central = who.client.rank_documents(query).await.unwrap();
        let found: BTreeMap<i64, (u64, u64)> = central
            .results
            .iter()
            .map(|found| (found.document.document_id, (found.in_degree, found.out_degree)))
            .collect();
        assert_eq!(found, readable.iter().map(|id| (*id, degrees(*id))).collect());
        assert_eq!(central.documents as usize, readable.len());
        let trees =
            who.client.rank_subtrees(AuthorityQuery { limit: Some(1000), ..AuthorityQuery::default() }).await.unwrap();
        let sizes =
            |root: i64| readable.iter().filter(|id| **id == root || is_below(&rights, &readable, **id, root)).count();
        for tree in &trees.results {
            assert_eq!(tree.size as usize, sizes(tree.document.document_id));
        }
        let stats = who.client.read_graph_stats(GraphQuery::default()).await.unwrap();
        assert_eq!((stats.facts as usize, stats.documents as usize), (believed.len(), readable.len()));
        let groups = CommunityQuery { members: Some(1000), ..CommunityQuery::default() };
        let groups = who.client.find_communities(groups).await.unwrap().communities;
        let members: BTreeSet<i64> =
            groups.iter().flat_map(|group| &group.members).map(|member| member.document.document_id).collect();
        assert_eq!(members, readable.iter().copied().filter(|id| degrees(*id) != (0, 0)).collect());
        let ever =
            DiffQuery { known_from: Some(chrono::DateTime::UNIX_EPOCH), limit: Some(1000), ..DiffQuery::default() };
        let ever = who.client.compare_facts(ever).await.unwrap();
        assert_eq!(
            ever.changes.iter().map(|change| change.fact.id).collect::<BTreeSet<_>>(),
            believed.iter().map(|fact| fact.id).collect()
        );
        for id in self.ids() {
            let near = who.client.find_neighbors(NeighborQuery { document_id: id, ..NeighborQuery::default() }).await;
            let spines = who.client.find_spines(SpineQuery { document_id: id, ..SpineQuery::default() }).await;
            if !readable.contains(&id) {
                assert!(
                    near.is_err_and(|failure| failure.status == 404)
                        && spines.is_err_and(|failure| failure.status == 404)
                );
                continue;
            }
            let around: BTreeSet<i64> =
                edges.iter().filter(|(_, from, to)| *from == id || *to == id).map(|(id, ..)| *id).collect();
            let near = near.unwrap();
            assert_eq!(near.facts.iter().map(|fact| fact.triple_id).collect::<BTreeSet<_>>(), around);
            assert!(near.documents.iter().all(|near| readable.contains(&near.document.document_id)));
            let on = spines.unwrap().spines.into_iter().flat_map(|spine| spine.documents);
            assert_eq!(on.count(), sizes(id));
        }
    }
}

/// Whether a document is under another one, over documents that are readable.
fn is_below(rights: &Naive, readable: &BTreeSet<i64>, id: i64, root: i64) -> bool {
    let path = &rights.path[&id];
    path.iter()
        .position(|above| *above == root)
        .is_some_and(|at| path[at..].iter().all(|above| readable.contains(above)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_exactly_the_facts_whose_ends_and_source_it_may_read() {
    for seed in [3, 4, 5] {
        let app = idle().await;
        let mut random = Random(seed * 104_729);
        let mut world = World { naive: Naive::default(), grants: BTreeMap::new() };
        let mut ids: Vec<i64> = Vec::new();
        for number in 0..14 {
            let parent = (number > 3).then(|| ids[random.below(ids.len())]);
            ids.push(under(&app, &format!("Document {number}"), parent).await);
        }
        world.renew(&app).await;
        let id = predicate(&app, "a").await.id;
        let transitive = PredicateChange { transitive: Some(true), ..PredicateChange::default() };
        app.client.update_predicate(PredicatePath { id }, Json(transitive)).await.unwrap();
        let deriving = Deriving::start(&app);
        let people = [someone(&app, "one").await, someone(&app, "two").await];
        for step in 0..70 {
            let ids = world.ids();
            let any = |random: &mut Random| ids[random.below(ids.len())];
            let id = any(&mut random);
            match random.below(16) {
                0..=6 => {
                    let new = NewFact {
                        source_id: Some(any(&mut random)).filter(|_| random.below(4) > 0),
                        on_overlap: Some(svc_client::wire::OnOverlap::Merge),
                        ..fact(id, "a", any(&mut random))
                    };
                    app.client.assert_fact(Json(new)).await.unwrap();
                }
                7 | 8 => {
                    app.client.protect_document(DocumentPath { id }).await.unwrap();
                    world.naive.roots.insert(id);
                }
                9 | 10 => {
                    let roots: Vec<i64> = world.naive.roots.iter().copied().collect();
                    let Some(id) = (!roots.is_empty()).then(|| roots[random.below(roots.len())]) else { continue };
                    app.client.unprotect_document(DocumentPath { id }).await.unwrap();
                    world.naive.roots.remove(&id);
                    world.grants.values_mut().for_each(|grants| grants.retain(|root, _| *root != id));
                }
                11 | 12 => {
                    let who = &people[random.below(2)];
                    grant(&app, who, id, GrantRight::Read).await;
                    world.naive.roots.insert(id);
                    world.grants.entry(who.id).or_default().insert(id, false);
                }
                13 => {
                    let who = &people[random.below(2)];
                    let Some(id) = world.grants.get(&who.id).and_then(|grants| grants.keys().next().copied()) else {
                        continue;
                    };
                    app.client.delete_grant(GrantPath { id, principal_id: who.id }).await.unwrap();
                    world.grants.get_mut(&who.id).unwrap().remove(&id);
                }
                14 => {
                    let change = DocumentChange {
                        parent_id: Some(Some(any(&mut random)).filter(|to| *to != id)),
                        ..DocumentChange::default()
                    };
                    // A circle is refused.
                    let _ = app.client.update_document(DocumentPath { id }, WaitQuery::default(), Json(change)).await;
                    world.renew(&app).await;
                }
                _ if ids.len() > 8 => {
                    app.client.delete_document(DocumentPath { id }).await.unwrap();
                    world.renew(&app).await;
                    for grants in world.grants.values_mut() {
                        grants.retain(|id, _| world.naive.path.contains_key(id));
                    }
                }
                _ => {}
            }
            if step % 5 == 4 {
                deriving.done(&app).await;
                for who in &people {
                    world.compare(&app, who).await;
                }
                invariants::check(&app.pool).await;
            }
        }
        let facts = all(&app.client).await;
        let reasons: BTreeSet<&str> = facts.iter().filter_map(|fact| fact.invalidation.as_deref()).collect();
        let zones: i64 =
            sqlx::query_scalar("SELECT count(DISTINCT zone) FROM triples").fetch_one(&app.pool).await.unwrap();
        assert!(
            facts.len() > 15 && zones > 1,
            "seed {seed} was dull: {} facts, {reasons:?}, {zones} zones: {}",
            facts.len(),
            json!(facts)
        );
        app.end().await;
    }
}
