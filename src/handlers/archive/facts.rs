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
        self, archive,
        graph_nodes::{self, Brought, Resolved},
    },
};
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{FactOutcome, ImportedArchive, ImportedFacts, NewFact, OnOverlap},
};
use svc_ids::DocumentId;

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
        // Whoever imports facts that he may not state makes no predicates either.
        let (inside, outside) = facts(&graph, &nodes);
        let graph = only(&graph, &inside, &query.base, &self.settings.rdf_base);
        let (predicates, _) = importing::predicates(&mut tx, caller, &self.settings.rdf_base, &graph, false).await?;
        let inside: Vec<NewFact> = inside
            .into_iter()
            .zip(&graph.triples)
            .map(|((_, fact), triple)| NewFact { predicate_id: Some(predicates[triple.predicate].0), ..fact })
            .collect();
        let mut answer = ImportedFacts { outside, left_out, ..ImportedFacts::default() };
        if !inside.is_empty() {
            let manner = Manner { on_overlap: OnOverlap::Merge, origin: Origin::Graph };
            let asserted = facts::assert(&mut tx, caller, &self.settings.rdf_base, &inside, manner).await;
            let asserted = asserted.map_err(|(_, failure)| failure)?;
            for (_, outcome) in &asserted.outcomes {
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

/// The documents that the nodes of a graph stand for.
struct Nodes {
    /// By the positions of the nodes.
    found: Vec<Option<DocumentId>>,
    /// The documents of the archive that a node's IRI stands for. It may stand for one in each of several closed places.
    named: HashMap<usize, Vec<Brought>>,
    /// The guards of the documents that state facts.
    guards: HashMap<DocumentId, DocumentId>,
}

impl Nodes {
    /// The document that a node stands for in a fact: of several with its IRI the one beside the source.
    fn end(&self, node: usize, source: Option<DocumentId>) -> Option<DocumentId> {
        let guard = source.and_then(|source| self.guards.get(&source).copied());
        let mut named = self.named.get(&node).into_iter().flatten();
        let beside = named.find(|brought| Some(brought.guard) == guard);
        beside.map(|brought| brought.id).or(self.found[node])
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
    let known: Vec<i64> = olds.iter().flatten().copied().collect();
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
    let mut named: HashMap<usize, Vec<Brought>> = HashMap::new();
    for brought in brought.or_fail()? {
        if let Some(at) = position(brought.at) {
            named.entry(at).or_default().push(brought);
        }
    }
    for (at, brought) in &named {
        found[*at] = brought.first().map(|brought| brought.id);
    }
    let sources: Vec<DocumentId> =
        graph.triples.iter().filter_map(|triple| found[triple.source?]).collect::<HashSet<_>>().into_iter().collect();
    let guards = archive::guards(conn, &sources).await.or_fail()?;
    Ok(Nodes { found, named, guards: guards.into_iter().map(|(guard, id)| (id, guard)).collect() })
}

/// The facts whose ends and source are there, with the positions of their triples, and how many others there are.
fn facts(graph: &Graph, nodes: &Nodes) -> (Vec<(usize, NewFact)>, u32) {
    let fact = |triple: &reading::Triple| {
        // A fact is as closed as its source, so that it is nobody's without it.
        let source = match triple.source {
            Some(source) => Some(nodes.found[source]?),
            None => None,
        };
        let fact = NewFact {
            subject_id: Some(nodes.end(triple.subject, source)?.0),
            fact_type: triple.fact_type,
            valid_from: triple.valid_from,
            valid_until: triple.valid_until,
            source_id: source.map(|source| source.0),
            ..NewFact::default()
        };
        Some(match &triple.object {
            Object::Node(node) => NewFact { object_id: Some(nodes.end(*node, source)?.0), ..fact },
            Object::Literal { value, datatype, language } => NewFact {
                object_literal: Some(value.clone()),
                object_datatype: language.is_none().then(|| datatype.clone()),
                object_language: language.clone(),
                ..fact
            },
        })
    };
    let facts: Vec<(usize, NewFact)> =
        graph.triples.iter().enumerate().filter_map(|(at, triple)| Some((at, fact(triple)?))).collect();
    let outside = u32::try_from(graph.triples.len() - facts.len()).unwrap_or(u32::MAX);
    (facts, outside)
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
        left.triples.push(reading::Triple { predicate, ..triple.clone() });
    }
    left
}
