//! Who sees which fact: every read beside the definition, in random trees with random grants, sources and changes.
use super::{doc, fact, predicate, rules::Deriving, under};
use crate::{
    access::{Naive, Random},
    principals::{Someone, grant, idle, someone},
    rdf::import,
    support::{TestApp, invariants},
};
use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use svc_client::{
    Client, Json, Remote,
    wire::{
        AuthorityQuery, CentralityMetric, CentralityQuery, CommunityQuery, DiffQuery, DocumentChange, DocumentPath,
        FactChange, FactPath, FactQuery, FactResponse, GrantPath, GrantRight, GraphQuery, ImportQuery, LintKind,
        LintRequest, MergeQuery, NeighborQuery, NewFact, NewMerge, NewPredicate, OntologyQuery, PageQuery, PathSearch,
        PredicateChange, PredicatePath, PredicateQuery, ShapeBindingPath, ShapeBindingResponse, ShapeMode, SpineQuery,
        StalenessThresholds, TurtleQuery, ValidAt, ValidationQuery, WaitQuery,
    },
};

/// All facts, believed or not, as a caller sees them.
async fn all(client: &Client<Remote>) -> Vec<FactResponse> {
    known(client, None).await
}

/// The same at a time that was known.
async fn known(client: &Client<Remote>, known_at: Option<DateTime<Utc>>) -> Vec<FactResponse> {
    let mut facts = Vec::new();
    for invalidated in [false, true] {
        let valid_at = Some(ValidAt::Any);
        let mut query = FactQuery { valid_at, known_at, invalidated, limit: Some(1000), ..FactQuery::default() };
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
    /// A predicate that only those may see who may read a fact with it.
    hidden: i64,
    /// A shape of nodes with several facts of one predicate, and the document that it stands in.
    binding: ShapeBindingResponse,
    /// Moments at which facts were compared before.
    moments: Vec<DateTime<Utc>>,
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
            assert!(fact.previous_id.is_none_or(|of| right.contains(&of)), "{fact:?}");
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
        self.compare_audits(who, &believed, &right).await;
        self.compare_names(who, &seen).await;
        let written: BTreeSet<String> = believed.iter().map(|fact| triple(fact)).collect();
        let export = crate::rdf::export(&who.client, TurtleQuery::default()).await;
        assert_eq!(crate::rdf::canonical(&export), written);
        self.compare_history(who, &right).await;
        let now: BTreeSet<i64> = believed.iter().map(|fact| fact.id).collect();
        for moment in &self.moments {
            let owner = known(&app.client, Some(*moment)).await;
            let seen = known(&who.client, Some(*moment)).await;
            let then = seen.iter().filter(|fact| fact.invalidated_at.is_none()).map(|fact| fact.id);
            self.compare_changes(who, *moment, &then.collect(), &now).await;
            let seen: BTreeSet<i64> = seen.iter().map(|fact| fact.id).collect();
            let right: BTreeSet<i64> = owner.iter().filter(|fact| visible(fact)).map(|fact| fact.id).collect();
            assert!(seen.is_subset(&right), "at {moment}: {:?}", seen.difference(&right));
            let asserted = owner.iter().filter(|fact| right.contains(&fact.id) && fact.derived_by.is_none());
            assert!(asserted.map(|fact| fact.id).all(|id| seen.contains(&id)), "at {moment}");
        }
    }

    /// A history in Turtle describes what a principal sees, also what is no longer believed, and names nothing else.
    async fn compare_history(&self, who: &Someone, right: &BTreeSet<i64>) {
        let rights = self.of(who);
        let query = TurtleQuery { history: true, ontologies: true, ..TurtleQuery::default() };
        let lines = crate::rdf::canonical(&crate::rdf::export(&who.client, query).await);
        let number = |text: &str| text.split('>').next().and_then(|number| number.parse::<i64>().ok());
        let told = lines.iter().filter_map(|line| line.strip_prefix("<urn:svc:triple/").and_then(number));
        assert_eq!(&told.collect::<BTreeSet<_>>(), right);
        let named = lines.iter().flat_map(|line| line.split("<urn:svc:document/").skip(1)).filter_map(number);
        for id in named {
            assert!(rights.path.contains_key(&id) && rights.may(id, false), "document {id} is named");
        }
    }

    /// What a principal believed to know then and knows now differs by what the comparison of both moments says.
    async fn compare_changes(&self, who: &Someone, moment: DateTime<Utc>, then: &BTreeSet<i64>, now: &BTreeSet<i64>) {
        let query = DiffQuery { known_from: Some(moment), limit: Some(1000), ..DiffQuery::default() };
        let found = who.client.compare_facts(query).await.unwrap();
        let (mut gone, mut new) = (BTreeSet::new(), BTreeSet::new());
        for change in found.changes {
            let of = if change.kind == FactChange::Added { &mut new } else { &mut gone };
            of.insert(change.fact.id);
            new.extend(change.by.map(|by| by.id));
        }
        assert_eq!(gone, then.difference(now).copied().collect(), "since {moment}");
        assert_eq!(new, now.difference(then).copied().collect(), "since {moment}");
    }

    /// What is wrong with the graph of a principal is wrong with what it may read.
    async fn compare_audits(&self, who: &Someone, believed: &[&FactResponse], right: &BTreeSet<i64>) {
        let rights = self.of(who);
        let reads = |id: i64| rights.path.contains_key(&id) && rights.may(id, false);
        let stale = StalenessThresholds { max_age_days: Some(0) };
        let asked = LintRequest { staleness: stale, limit: Some(1000), ..LintRequest::default() };
        let mut lonely = BTreeSet::new();
        for audit in who.client.lint_graph(Json(asked)).await.unwrap().audits {
            for found in audit.findings {
                assert!(found.triple_ids.iter().all(|id| right.contains(id)), "{found:?}");
                assert!(found.document_id.is_none_or(reads), "{found:?}");
                if found.kind == LintKind::LonelyRoot {
                    lonely.extend(found.document_id);
                }
            }
        }
        let is_end = |id: i64| believed.iter().any(|fact| fact.subject_id == id || fact.object_id == Some(id));
        let has_child = |id: i64| rights.path.iter().any(|(child, path)| path.last() == Some(&id) && reads(*child));
        let roots = rights.path.iter().filter(|(id, path)| path.is_empty() && reads(**id)).map(|(id, _)| *id);
        let right: BTreeSet<i64> = roots.filter(|id| !is_end(*id) && !has_child(*id)).collect();
        assert_eq!(lonely, right);

        let id = self.binding.ontology_id;
        let ontologies = who.client.list_ontologies(PageQuery::default()).await.unwrap().ontologies;
        let listed: Vec<i64> = ontologies.iter().map(|ontology| ontology.document_id).collect();
        assert_eq!(listed, Vec::from_iter(reads(id).then_some(id)));
        assert_eq!(who.client.read_ontology(DocumentPath { id }).await.is_ok(), reads(id));
        assert_eq!(who.client.list_classes(DocumentPath { id }, PageQuery::default()).await.is_ok(), reads(id));
        let path = ShapeBindingPath { id: self.binding.id };
        let bindings = who.client.list_shape_bindings(PageQuery::default()).await.unwrap().bindings;
        assert_eq!(bindings.len(), usize::from(reads(id)));
        assert_eq!(who.client.read_shape_binding(path).await.is_ok(), reads(id));
        match who.client.validate_shape(path, ValidationQuery::default()).await {
            Err(failure) => assert!(failure.status == 404 && !reads(self.binding.ontology_id), "{failure:?}"),
            Ok(report) => {
                assert!(reads(self.binding.ontology_id));
                let mut objects: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
                for fact in believed.iter().filter(|fact| fact.predicate == "default:a") {
                    objects.entry(fact.subject_id).or_default().extend(fact.object_id);
                }
                let several: BTreeSet<i64> =
                    objects.into_iter().filter(|(_, objects)| objects.len() > 1).map(|(id, _)| id).collect();
                let found = report.results.iter().filter_map(|result| result.focus.document_id).collect();
                assert_eq!((several, report.truncated), (found, None));
            }
        }
    }

    /// A predicate that nobody created is seen by who may read a fact with it.
    async fn compare_names(&self, who: &Someone, seen: &[FactResponse]) {
        let is_seen = seen.iter().any(|fact| fact.predicate_id == self.hidden);
        let query = PredicateQuery { namespace: Some("v".to_owned()), ..PredicateQuery::default() };
        let listed = who.client.list_predicates(query).await.unwrap().predicates;
        assert_eq!(listed.iter().any(|predicate| predicate.id == self.hidden), is_seen);
        assert_eq!(who.client.read_predicate(PredicatePath { id: self.hidden }).await.is_ok(), is_seen);
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
        let ever = DiffQuery { known_from: Some(DateTime::UNIX_EPOCH), limit: Some(1000), ..DiffQuery::default() };
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

/// A fact between documents as a graph says it.
fn triple(fact: &FactResponse) -> String {
    let predicate = fact.predicate.replace(':', "/");
    let (subject, object) = (fact.subject_id, fact.object_id.unwrap());
    format!("<urn:svc:document/{subject}> <urn:svc:predicate/{predicate}> <urn:svc:document/{object}>")
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
    // Each mostly waits for its requests, one after the other.
    join_all([3, 4, 5].map(|seed| Box::pin(changed_at_random(seed)))).await;
}

/// Changes facts, trees and grants of its own at random, and meanwhile compares what its principals see.
async fn changed_at_random(seed: u64) {
    let app = idle().await;
    let mut random = Random(seed * 104_729);
    let mut ids: Vec<i64> = Vec::new();
    for number in 0..14 {
        let parent = (number > 3).then(|| ids[random.below(ids.len())]);
        ids.push(under(&app, &format!("Document {number}"), parent).await);
    }
    let id = predicate(&app, "a").await.id;
    let hidden: i64 = sqlx::query_scalar(
        "INSERT INTO predicates (namespace, name, is_functional, is_inverse_functional, is_symmetric, is_asymmetric, is_transitive, is_irreflexive,
                sub_property_of, disjoint_with, is_declared)
         VALUES ('v', 'b', false, false, false, false, false, false, '{}', '{}', false) RETURNING id",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    let shape = "ex:One a sh:NodeShape ; sh:targetSubjectsOf <urn:svc:predicate/default/a> ;
        sh:property [ sh:path <urn:svc:predicate/default/a> ; sh:maxCount 1 ] .";
    crate::ontologies::load(&app.client, OntologyQuery::default(), shape).await.unwrap();
    let binding =
        crate::shape_bindings::bind(&app.client, "http://example.org/One", None, Some(ShapeMode::Warn)).await.unwrap();
    let (naive, grants, moments) = (Naive::default(), BTreeMap::new(), Vec::new());
    let mut world = World { naive, grants, hidden, binding, moments };
    world.renew(&app).await;
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
                    ..fact(id, if random.below(4) == 0 { "v:b" } else { "a" }, any(&mut random))
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
            if step % 20 == 4 {
                world.moments.push(app.client.list_facts(FactQuery::default()).await.unwrap().known_at);
            }
            invariants::check(&app.pool).await;
        }
    }
    // Of documents that are taken for one those tell who may read both.
    let pairs: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT min(id), max(id) FROM documents WHERE guard >= 0 GROUP BY guard HAVING count(*) > 1 ORDER BY guard",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    for (kept_id, merged_id) in pairs {
        app.client.merge_entities(Json(NewMerge { kept_id, merged_id })).await.unwrap();
    }
    let merges = async |client: &Client<Remote>| -> BTreeSet<(i64, i64)> {
        let found = client.list_merges(MergeQuery::default()).await.unwrap().merges;
        found.iter().map(|merge| (merge.kept_id, merge.merged_id)).collect()
    };
    let made = merges(&app.client).await;
    for who in &people {
        let rights = world.of(who);
        let right = made.iter().filter(|(kept, merged)| rights.may(*kept, false) && rights.may(*merged, false));
        assert_eq!(merges(&who.client).await, right.copied().collect());
    }
    let facts = all(&app.client).await;
    let reasons: BTreeSet<&str> = facts.iter().filter_map(|fact| fact.invalidation.as_deref()).collect();
    let zones: i64 = sqlx::query_scalar("SELECT count(DISTINCT zone) FROM triples").fetch_one(&app.pool).await.unwrap();
    assert!(
        facts.len() > 15 && zones > 1,
        "seed {seed} was dull: {} facts, {reasons:?}, {zones} zones: {}",
        facts.len(),
        json!(facts)
    );
    app.end().await;
}

/// What an IRI means is not for the next principal to say.
#[tokio::test]
async fn nobody_takes_over_the_iri_of_a_predicate() {
    let app = idle().await;
    let iri = "tag:e.org,2024:knows";
    import(&app.client, ImportQuery::default(), &format!("<urn:x:a> <{iri}> <urn:x:b> .")).await.unwrap();
    let mallory = someone(&app, "mallory").await;
    let new = NewPredicate {
        namespace: Some("tag".to_owned()),
        name: "e.org,2024:knows".to_owned(),
        ..NewPredicate::default()
    };
    mallory.client.create_predicate(Json(new)).await.unwrap();
    for client in [&app.client, &mallory.client] {
        let query = FactQuery { predicate: Some(iri.to_owned()), ..FactQuery::default() };
        assert_eq!(client.list_facts(query).await.unwrap().facts.len(), 1);
    }
    // The owner's name comes first even so.
    let own = NewPredicate { namespace: Some("doi".to_owned()), name: "10.1/x".to_owned(), ..NewPredicate::default() };
    let own = app.client.create_predicate(Json(own)).await.unwrap();
    import(&app.client, ImportQuery::default(), "<urn:x:a> <doi:10.1/x> 'y' .").await.unwrap();
    let [a, b] = [doc(&app, "A").await, doc(&app, "B").await];
    let stated = app.client.assert_fact(Json(fact(a, "doi:10.1/x", b))).await.unwrap().fact;
    assert_eq!(stated.predicate_id, own.id);
    app.end().await;
}
