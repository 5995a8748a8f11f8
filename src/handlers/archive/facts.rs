//! Facts of an archive: their ends and sources are documents that were imported before.
use super::{
    super::{rdf::importing, shape_bindings::guard},
    importing::{imported, keys},
};
use crate::{
    access::Caller,
    error::OrFail,
    graph::{
        facts::{self, Manner, Origin},
        named,
    },
    rdf::{
        history::{self, Unfolded},
        reading::{self, Graph, Node, Object},
    },
    registry::Handle,
    service::Service,
    store::{
        self, archive, extraction,
        graph_nodes::{self, Brought, Resolved},
        triples::write,
    },
};
use sqlx::PgConnection;
use std::collections::{BTreeMap, HashMap, HashSet};
use svc_client::{
    Call, Code, Failure, Wire as _, ops,
    wire::{FactOutcome, ImportedArchive, ImportedFacts, NewFact, NewPredicate, OnOverlap},
};
use svc_ids::{DocumentId, PredicateId};

impl Handle<ops::import_facts> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::import_facts>) -> Result<ImportedFacts, Failure> {
        let (query, body) = (call.query, call.body);
        let most = self.settings.rdf_max_triples;
        let read =
            tokio::task::spawn_blocking(move || history::unfold(reading::read(&body.text, body.syntax, None, most)?));
        let Unfolded { graph, left_out } = read.await.map_err(|error| Failure::new(Code::Internal, error))??;
        let of = ImportedArchive { archive: query.archive, parent_id: query.parent_id };
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let nodes = nodes(&mut tx, caller, &of, &query.base, &graph).await?;
        let mut inside = facts(&graph, &nodes);
        keep_writable(&mut tx, caller, &mut inside).await?;
        let stated = inside.chunk_by(|(one, _), (other, _)| one == other).count();
        let outside = u32::try_from(graph.triples.len() - stated).unwrap_or(u32::MAX);
        // Whoever imports facts that he may not state makes no predicates either.
        let graph = only(&graph, &inside, &query.base, &self.settings.rdf_base);
        let predicates = predicates(&mut tx, caller, &self.settings.rdf_base, &graph).await?;
        let (places, inside): (Vec<usize>, Vec<NewFact>) = inside
            .into_iter()
            .zip(&graph.triples)
            .map(|((at, fact), triple)| (at, NewFact { predicate_id: Some(predicates[triple.predicate].0), ..fact }))
            .unzip();
        let mut answer = ImportedFacts { outside, left_out, ..ImportedFacts::default() };
        if !inside.is_empty() {
            let manner = Manner { on_overlap: OnOverlap::Merge, origin: Origin::Graph };
            let asserted = facts::assert(&mut tx, caller, &self.settings.rdf_base, &inside, manner).await;
            let asserted = asserted.map_err(|refusal| refusal.failure)?;
            let mut last = None;
            for ((_, outcome), at) in asserted.outcomes.iter().zip(places) {
                // The others that state a fact follow the first, which made it.
                if last.replace(at) == Some(at) {
                    continue;
                }
                *match outcome {
                    FactOutcome::Created => &mut answer.created,
                    FactOutcome::Merged => &mut answer.merged,
                    FactOutcome::Existing => &mut answer.existing,
                } += 1;
            }
            guard(self, &mut tx, caller, &asserted.changed).await?;
        }
        tx.commit().await.or_fail()?;
        Ok(answer)
    }
}

/// The most bytes that the copies of one fact may take, of which there is one for each document that states it, and what a copy takes besides its literal.
const COPIES: usize = 1 << 20;
const FACT_BYTES: usize = 256;

/// The predicates of a graph by their positions in it. One that has an IRI of this store, and is not here, is made as texts make theirs: it is seen by its
/// facts alone, so that whoever brings these may make it.
async fn predicates(
    conn: &mut PgConnection,
    caller: &Caller,
    base: &str,
    graph: &Graph,
) -> Result<Vec<PredicateId>, Failure> {
    let own: Vec<(&str, String, String)> = (graph.predicates.iter())
        .filter_map(|iri| named::of_derived(base, iri).map(|(namespace, name)| (iri.as_str(), namespace, name)))
        .collect();
    let iris: Vec<&str> = own.iter().map(|(iri, ..)| *iri).collect();
    let known = named::resolve(conn, &caller.readable(), base, &iris).await?;
    let mut missing: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (iri, namespace, name) in &own {
        if namespace == extraction::NAMESPACE || !known.contains_key(iri) {
            let new =
                NewPredicate { name: name.clone(), namespace: Some(namespace.clone()), ..NewPredicate::default() };
            new.check()?;
            missing.entry(namespace).or_default().push((name.as_str(), *iri));
        }
    }
    let mut made: HashMap<&str, PredicateId> = HashMap::new();
    for (namespace, named) in missing {
        let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
        let found = extraction::make_predicates(conn, namespace, &names).await.or_fail()?;
        made.extend(named.into_iter().filter_map(|(name, iri)| Some((iri, *found.get(name)?))));
    }
    let others = graph.predicates.iter().filter(|iri| !made.contains_key(iri.as_str()));
    let others = Graph { predicates: others.cloned().collect(), ..Graph::default() };
    let (others, _) = importing::predicates(conn, caller, base, &others, false).await?;
    let mut others = others.into_iter();
    let found = graph.predicates.iter().map(|iri| {
        let found = made.get(iri.as_str()).copied().or_else(|| others.next());
        found.ok_or_else(|| named::no_predicate("predicate", iri))
    });
    found.collect()
}

/// The documents that the nodes of a graph stand for.
struct Nodes {
    /// Those of the archive by the ids that they had.
    known: HashMap<i64, DocumentId>,
    /// By the positions of the nodes, those that the archive has by their ids and those that this store has by their IRIs.
    found: Vec<Option<DocumentId>>,
    /// The documents of the archive that nodes stand for by their IRIs, by the positions of the nodes, each with its guard: an IRI may stand for one in
    /// each of many closed places.
    named: HashMap<usize, Vec<(DocumentId, DocumentId)>>,
    /// The guards of the documents that state facts.
    guards: HashMap<DocumentId, DocumentId>,
}

impl Nodes {
    /// The document that a node stands for in a fact. Archives of before do not name it by its id; there it is the one beside the source of several
    /// with its IRI, and nobody knows which without a source.
    fn end(&self, node: usize, id: Option<i64>, source: Option<DocumentId>) -> Option<DocumentId> {
        if let Some(id) = id {
            return self.known.get(&id).copied().or(self.found[node]);
        }
        let Some(named) = self.named.get(&node) else { return self.found[node] };
        let guard = source.and_then(|source| self.guards.get(&source));
        match named[..] {
            [(_, id)] => Some(id),
            _ => named.iter().find(|(of, _)| Some(of) == guard).map(|(_, id)| *id),
        }
    }

    /// The documents that state a fact, as far as they are there; `None` if some state it and none is there.
    fn sources(&self, triple: &reading::Triple) -> Option<Vec<DocumentId>> {
        let literal = match &triple.object {
            Object::Literal { value, .. } => value.len(),
            Object::Node(_) => 0,
        };
        // Each comes with a copy of the fact.
        let most = (COPIES / (literal + FACT_BYTES)).clamp(1, archive::MOST_SOURCES);
        let mut seen = HashSet::new();
        let found = triple.ids.sources.iter().filter_map(|id| self.known.get(id).copied());
        let known: Vec<DocumentId> = found.filter(|id| seen.insert(*id)).take(most).collect();
        match triple.source {
            Some(source) if known.is_empty() => match triple.ids.sources.is_empty() {
                true => self.end(source, None, None).map(|source| vec![source]),
                false => None,
            },
            _ => Some(known),
        }
    }
}

/// Finds the documents that the nodes of a graph stand for.
async fn nodes(
    conn: &mut PgConnection,
    caller: &Caller,
    of: &ImportedArchive,
    base: &str,
    graph: &Graph,
) -> Result<Nodes, Failure> {
    let olds: Vec<Option<i64>> = graph
        .nodes
        .iter()
        .map(|node| match node {
            Node::Iri(iri) => named::document(base, iri).map(|id| id.0),
            // So an export calls a node without a name.
            Node::Blank(label) => label.strip_prefix('b').and_then(|id| id.parse().ok()),
        })
        .collect();
    let ids = graph.triples.iter().map(|triple| &triple.ids);
    let ids = ids.flat_map(|ids| ids.subject.iter().chain(&ids.object).chain(&ids.sources));
    let known: HashSet<i64> = olds.iter().flatten().chain(ids).copied().collect();
    let known: Vec<i64> = known.into_iter().collect();
    let (known, _) = imported(conn, caller, of, &known).await?;
    let mut found: Vec<Option<DocumentId>> =
        olds.iter().map(|old| old.and_then(|old| known.get(&old).copied())).collect();
    let foreign: Vec<(usize, &str)> = graph
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(at, node)| match node {
            Node::Iri(iri) if olds[at].is_none() => Some((at, iri.as_str())),
            _ => None,
        })
        .collect();
    let iris: Vec<&str> = foreign.iter().map(|(_, iri)| *iri).collect();
    let position = |at: i64| usize::try_from(at - 1).ok().and_then(|at| foreign.get(at)).map(|(at, _)| *at);
    let sources = vec![of.parent_id; iris.len()];
    let resolved = graph_nodes::resolve(conn, &caller.readable(), &iris, &sources).await.or_fail()?;
    for Resolved { at, id, .. } in resolved.into_iter().filter(|resolved| !resolved.is_doubtful) {
        if let Some(at) = position(at) {
            found[at] = Some(id);
        }
    }
    // What the archive itself brought is what it means, however closed that is.
    let brought = graph_nodes::brought(conn, &caller.readable(), &iris, caller.principal_id(), &keys(of)).await;
    let mut named: HashMap<usize, Vec<(DocumentId, DocumentId)>> = HashMap::new();
    for Brought { at, id, guard } in brought.or_fail()? {
        if let Some(at) = position(at) {
            named.entry(at).or_default().push((guard, id));
        }
    }
    let mut nodes = Nodes { known, found, named, guards: HashMap::new() };
    let sources: HashSet<DocumentId> =
        graph.triples.iter().filter_map(|triple| nodes.sources(triple)).flatten().collect();
    let guards = archive::guards(conn, &sources.into_iter().collect::<Vec<_>>()).await.or_fail()?;
    nodes.guards = guards.into_iter().map(|(guard, id)| (id, guard)).collect();
    Ok(nodes)
}

/// The facts whose ends and a source are there, with the positions of their triples, once for each document that states them.
fn facts(graph: &Graph, nodes: &Nodes) -> Vec<(usize, NewFact)> {
    let fact = |triple: &reading::Triple, source: Option<DocumentId>| {
        let fact = NewFact {
            subject_id: Some(nodes.end(triple.subject, triple.ids.subject, source)?.0),
            fact_type: triple.fact_type,
            valid_from: triple.valid_from,
            valid_until: triple.valid_until,
            source_id: source.map(|source| source.0),
            ..NewFact::default()
        };
        Some(match &triple.object {
            Object::Node(node) => NewFact { object_id: Some(nodes.end(*node, triple.ids.object, source)?.0), ..fact },
            Object::Literal { value, datatype, language } => NewFact {
                object_literal: Some(value.clone()),
                object_datatype: language.is_none().then(|| datatype.clone()),
                object_language: language.clone(),
                ..fact
            },
        })
    };
    let mut facts = Vec::new();
    for (at, triple) in graph.triples.iter().enumerate() {
        // A fact is as closed as its source, so that it is nobody's without it. One that stands by itself is stated by nobody first.
        let sources = nodes.sources(triple).map(|sources| {
            let alone = triple.source.is_none().then_some(None);
            alone.into_iter().chain(sources.into_iter().map(Some)).collect::<Vec<_>>()
        });
        facts.extend(sources.into_iter().flatten().filter_map(|source| Some((at, fact(triple, source)?))));
    }
    facts
}

/// Leaves out the facts about what the caller may not change: an IRI may stand for a document that others have here.
async fn keep_writable(
    conn: &mut PgConnection,
    caller: &Caller,
    facts: &mut Vec<(usize, NewFact)>,
) -> Result<(), Failure> {
    let subjects: HashSet<DocumentId> = facts.iter().filter_map(|(_, fact)| fact.subject_id.map(DocumentId)).collect();
    let subjects: Vec<DocumentId> = subjects.into_iter().collect();
    let places = write::places(conn, &caller.writable(), &subjects).await.or_fail()?;
    let writable: HashSet<i64> = places.iter().map(|place| place.id().0).collect();
    facts.retain(|(_, fact)| fact.subject_id.is_some_and(|id| writable.contains(&id)));
    Ok(())
}

/// The triples at these positions, with their predicates, whose derived IRIs are those of this store.
fn only(graph: &Graph, facts: &[(usize, NewFact)], from: &str, to: &str) -> Graph {
    let mut positions: HashMap<usize, usize> = HashMap::new();
    let mut left = Graph { prefixes: graph.prefixes.clone(), ..Graph::default() };
    for (at, _) in facts {
        let triple = &graph.triples[*at];
        let predicate = *positions.entry(triple.predicate).or_insert_with(|| {
            let iri = &graph.predicates[triple.predicate];
            let own = iri.strip_prefix(from).filter(|rest| rest.starts_with("predicate/"));
            left.predicates.push(own.map_or_else(|| iri.clone(), |rest| format!("{to}{rest}")));
            left.predicates.len() - 1
        });
        // Nobody asks any more for what else the triple says, and a fact may stand here once for each of many documents.
        left.triples.push(reading::Triple::plain(0, predicate, Object::Node(0)));
    }
    left
}
