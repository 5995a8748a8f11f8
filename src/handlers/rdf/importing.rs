//! Brings a graph into the store: its nodes as documents, its predicates, and its triples as facts.
use super::super::batch;
use crate::{
    access::Caller,
    error::OrFail,
    graph::{
        facts::{self, Manner, Origin, Refusal},
        literal::is_ill_typed,
        named,
    },
    ingest::parent,
    rdf::{
        names,
        reading::{Graph, Node, Object},
    },
    service::Service,
    store::{
        self, graph_nodes,
        predicates::{self, Named},
        triples::write,
    },
    usetype::Usetype,
};
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use svc_client::{
    Code, Failure,
    wire::{BatchItem, FactOutcome, FactType, ImportedGraph, NewBatch, NewFact, OnOverlap},
};
use svc_ids::{DocumentId, PredicateId, TripleId};
use uuid::Uuid;

/// The vocabularies whose facts do not depend on time.
const TIMELESS: [&str; 3] = [
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "http://www.w3.org/2000/01/rdf-schema#",
    "http://www.w3.org/2002/07/owl#",
];

/// A graph to import.
pub struct Import<'a> {
    pub graph: &'a Graph,
    /// What its nodes are called, by their positions.
    pub titles: &'a [String],
    /// The document that states the facts, and gets the new nodes under it.
    pub parent_id: Option<i64>,
    /// Nodes without a name that have one label in imports of one name are one document.
    pub name: Option<&'a str>,
}

/// A graph that is in the store.
pub struct Imported {
    pub answer: ImportedGraph,
    /// The documents of its nodes, by their positions.
    pub nodes: Vec<DocumentId>,
    /// The facts of its triples, by their positions.
    pub facts: Vec<TripleId>,
    /// The subjects of what was not believed before.
    pub changed: Vec<DocumentId>,
    /// The caller, with the right to write what was made for it.
    pub caller: Caller,
}

/// Makes the nodes and predicates of a graph that are missing, and asserts its triples. Call it in a transaction of
/// [`begin_creating`](crate::store::transaction::begin_creating), and hold what changed against the bound shapes once the transaction has closed
/// what gives way to it.
pub async fn import(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    what: &Import<'_>,
) -> Result<Imported, Failure> {
    let (base, graph) = (&service.settings.rdf_base, what.graph);
    let nodes = nodes(service, conn, caller, what).await?;
    // A fact is as closed as what states it and as its ends.
    let placed: Vec<DocumentId> = nodes.ids.iter().copied().chain(what.parent_id.map(DocumentId)).collect();
    let is_open = graph_nodes::are_open(conn, &placed).await.or_fail()?;
    let (predicates, predicates_created) = predicates(conn, caller, base, graph, is_open).await?;
    let mut ill_typed = 0;
    let facts: Vec<NewFact> = graph
        .triples
        .iter()
        .map(|triple| {
            let iri = &graph.predicates[triple.predicate];
            let is_timeless = TIMELESS.iter().any(|vocabulary| iri.starts_with(vocabulary));
            let fact = NewFact {
                subject_id: Some(nodes.ids[triple.subject].0),
                predicate_id: Some(predicates[triple.predicate].0),
                fact_type: triple.fact_type.or_else(|| {
                    (is_timeless && triple.valid_from.or(triple.valid_until).is_none()).then_some(FactType::Atemporal)
                }),
                valid_from: triple.valid_from,
                valid_until: triple.valid_until,
                source_id: what.parent_id,
                ..NewFact::default()
            };
            match &triple.object {
                Object::Node(node) => NewFact { object_id: Some(nodes.ids[*node].0), ..fact },
                Object::Literal { value, datatype, language } => {
                    ill_typed += u32::from(is_ill_typed(value, datatype));
                    let object_datatype = language.is_none().then(|| datatype.clone());
                    let (object_literal, object_language) = (Some(value.clone()), language.clone());
                    NewFact { object_literal, object_datatype, object_language, ..fact }
                }
            }
        })
        .collect();
    let manner = Manner { on_overlap: OnOverlap::Merge, origin: Origin::Graph };
    let asserted = facts::assert(conn, &nodes.caller, base, &facts, manner);
    let asserted = asserted.await.map_err(|Refusal { index, mut failure }| {
        if let Some(triple) = index.and_then(|index| graph.triples.get(index)) {
            let predicate = &graph.predicates[triple.predicate];
            failure.detail =
                format!("{}, in the triple `{} <{predicate}> ...`", failure.detail, shown(graph, triple.subject));
        }
        failure
    })?;
    let count = |wanted: FactOutcome| {
        let count = asserted.outcomes.iter().filter(|(_, outcome)| *outcome == wanted).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let answer = ImportedGraph {
        warnings: Vec::new(),
        warnings_truncated: None,
        triples: u32::try_from(graph.triples.len()).unwrap_or(u32::MAX),
        created: count(FactOutcome::Created),
        merged: count(FactOutcome::Merged),
        existing: count(FactOutcome::Existing),
        nodes_created: nodes.created,
        predicates_created,
        ill_typed,
        recorded_at: asserted.at,
    };
    let facts = asserted.outcomes.iter().map(|(id, _)| *id).collect();
    Ok(Imported { answer, nodes: nodes.ids, facts, changed: asserted.changed, caller: nodes.caller })
}

/// Takes the locks that an import under a document begins with. Whoever writes predicates before it imports calls this first, because other imports
/// have these locks when they wait for a predicate.
pub async fn hold(conn: &mut PgConnection, caller: &Caller, id: DocumentId) -> Result<(), Failure> {
    parent::lock(conn, caller, id, 0).await?;
    let guards = write::lock_ends(conn, &caller.readable(), &[id]).await.or_fail()?;
    let zone = guards.first().map_or(DocumentId(0), |(_, guard)| *guard);
    graph_nodes::hold_zone(conn, zone).await.or_fail()
}

/// A node as an error names it.
fn shown(graph: &Graph, node: usize) -> String {
    match &graph.nodes[node] {
        Node::Iri(iri) => format!("<{iri}>"),
        Node::Blank(label) => format!("_:{label}"),
    }
}

/// The documents of a graph's nodes.
struct Nodes {
    /// By the positions of the nodes.
    ids: Vec<DocumentId>,
    created: u32,
    /// The caller, with the right to write what was made for it.
    caller: Caller,
}

/// Finds the documents of a graph's nodes, and makes those that are missing.
async fn nodes(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    what: &Import<'_>,
) -> Result<Nodes, Failure> {
    let (base, graph) = (&service.settings.rdf_base, what.graph);
    let own: Vec<Option<DocumentId>> = graph
        .nodes
        .iter()
        .map(|node| match node {
            Node::Iri(iri) => named::document(base, iri),
            Node::Blank(_) => None,
        })
        .collect();
    let named: Vec<DocumentId> = own.iter().flatten().copied().collect();
    let readable = store::batch::readable_of(conn, &caller.readable(), &named).await.or_fail()?;
    if let Some((node, id)) =
        own.iter().enumerate().find_map(|(node, id)| Some((node, (*id)?)).filter(|(_, id)| !readable.contains(id)))
    {
        let detail = format!("{} names document {id} of this store, which does not exist", shown(graph, node));
        let remedy = "give the node another IRI, or set SVC_RDF_BASE to what this store's IRIs begin with";
        return Err(Failure::new(Code::InvalidField, detail).with("remedy", remedy));
    }
    if let Some(node) =
        graph.nodes.iter().position(|node| matches!(node, Node::Iri(iri) if names::is_reserved(base, iri)))
    {
        let detail = format!("{} is what the service itself calls a document that holds entities", shown(graph, node));
        let remedy = "give the node another IRI, or name the document by its id";
        return Err(Failure::new(Code::InvalidField, detail).with("remedy", remedy));
    }
    let fallback = Uuid::new_v4().simple().to_string();
    let import = what.name.unwrap_or(&fallback);
    let iris: Vec<String> = graph
        .nodes
        .iter()
        .map(|node| match node {
            Node::Iri(iri) => iri.clone(),
            Node::Blank(label) => names::of_blank(base, import, label),
        })
        .collect();
    let mut making = Making { caller: caller.clone(), above: None };
    let foreign: Vec<usize> = (0..iris.len()).filter(|node| own[*node].is_none()).collect();
    let mut ids: Vec<Option<DocumentId>> = own;
    let mut created = 0;
    if !foreign.is_empty() || what.parent_id.is_some() {
        let zone = making.find_above(service, conn, what.parent_id).await?;
        graph_nodes::hold_zone(conn, zone).await.or_fail()?;
        let wanted: Vec<&str> = foreign.iter().map(|node| iris[*node].as_str()).collect();
        for (at, id) in graph_nodes::in_zone(conn, zone, &wanted).await.or_fail()? {
            if let Some(node) = usize::try_from(at - 1).ok().and_then(|at| foreign.get(at)) {
                ids[*node] = Some(id);
            }
        }
        let missing: Vec<usize> = foreign.into_iter().filter(|node| ids[*node].is_none()).collect();
        let items: Vec<BatchItem> = missing.iter().map(|node| making.item(&what.titles[*node])).collect();
        let made = making.make(service, conn, items).await?;
        let named: Vec<(DocumentId, &str, bool)> = missing
            .iter()
            .zip(&made)
            .map(|(node, id)| (*id, iris[*node].as_str(), matches!(graph.nodes[*node], Node::Blank(_))))
            .collect();
        graph_nodes::name(conn, &named).await.or_fail()?;
        for (node, id) in missing.iter().zip(&made) {
            ids[*node] = Some(*id);
        }
        created = u32::try_from(made.len()).unwrap_or(u32::MAX);
    }
    let ids: Vec<DocumentId> = ids.into_iter().flatten().collect();
    if ids.len() != iris.len() {
        return Err(Failure::new(Code::Internal, "a node of the graph has no document"));
    }
    Ok(Nodes { ids, created, caller: making.caller })
}

/// Documents for nodes, on their way into the store.
struct Making {
    caller: Caller,
    /// What they are put under.
    above: Option<DocumentId>,
}

impl Making {
    /// Finds or makes what new nodes are put under, and returns their guard.
    async fn find_above(
        &mut self,
        service: &Service,
        conn: &mut PgConnection,
        parent_id: Option<i64>,
    ) -> Result<DocumentId, Failure> {
        let above = match parent_id {
            Some(id) => parent::lock(conn, &self.caller, DocumentId(id), 0).await?.id(),
            None => {
                let principal = self.caller.principal_id().map(|id| id.0);
                let iri = names::entities(&service.settings.rdf_base, principal);
                // Two first imports at a time make one document.
                graph_nodes::hold_zone(conn, DocumentId(-principal.unwrap_or_default())).await.or_fail()?;
                match graph_nodes::writable_root(conn, &self.caller.writable(), &iri).await.or_fail()? {
                    Some(id) => parent::lock(conn, &self.caller, id, 0).await?.id(),
                    None => {
                        let made = self.make(service, conn, vec![self.item("Entities")]).await?;
                        let Some(id) = made.first().copied() else {
                            return Err(Failure::new(Code::Internal, "the document `Entities` was not made"));
                        };
                        graph_nodes::name(conn, &[(id, &iri, false)]).await.or_fail()?;
                        id
                    }
                }
            }
        };
        self.above = Some(above);
        let guards = write::lock_ends(conn, &self.caller.readable(), &[above]).await.or_fail()?;
        Ok(guards.first().map_or(DocumentId(0), |(_, guard)| *guard))
    }

    fn item(&self, title: &str) -> BatchItem {
        BatchItem {
            title: title.to_owned(),
            usetype: Some(Usetype::Entity.as_str().to_owned()),
            parent_id: self.above.map(|id| id.0),
            // What is open to all at the top is the owner's to write.
            private: self.above.is_none() && self.caller.principal().is_some(),
            ..BatchItem::default()
        }
    }

    async fn make(
        &mut self,
        service: &Service,
        conn: &mut PgConnection,
        documents: Vec<BatchItem>,
    ) -> Result<Vec<DocumentId>, Failure> {
        if documents.is_empty() {
            return Ok(Vec::new());
        }
        let new = NewBatch { documents, priority: 0 };
        let (made, caller) = batch::create(service, conn, &self.caller, &new).await?;
        self.caller = caller;
        Ok(made.into_iter().map(|made| DocumentId(made.document_id)).collect())
    }
}

/// Finds the predicates of a graph, by their positions, and makes those that are missing; returns how many these are. One that the caller could not
/// read until now is as new to it as one that was made. The prefixes of a graph that is not open to all name nothing, because all that use the same
/// IRI see its name.
pub async fn predicates(
    conn: &mut PgConnection,
    caller: &Caller,
    base: &str,
    graph: &Graph,
    is_open: bool,
) -> Result<(Vec<PredicateId>, u32), Failure> {
    let (mut own, mut new) = (Vec::new(), Vec::new());
    let prefixes: &[(String, String)] = if is_open { graph.prefixes.as_slice() } else { &[] };
    for iri in &graph.predicates {
        match named::of_derived(base, iri) {
            Some((namespace, name)) => own.push((iri, namespace, name)),
            None => {
                let (namespace, name) = names::of_predicate(iri, prefixes);
                new.push(predicates::Imported { iri: iri.clone(), namespace, name });
            }
        }
    }
    let made: HashSet<PredicateId> = predicates::import(conn, &new, is_open).await.or_fail()?.into_iter().collect();
    let iris: Vec<&str> = new.iter().map(|new| new.iri.as_str()).collect();
    let mut ids: HashMap<String, PredicateId> =
        predicates::with_iris(conn, &iris).await.or_fail()?.into_iter().collect();
    let scope = caller.readable();
    let named: Vec<Named<'_>> = own
        .iter()
        .map(|(iri, namespace, name)| Named { name: Some((namespace, name)), iri, is_derived: true })
        .collect();
    let resolved = predicates::resolve(conn, &scope, &named).await.or_fail()?;
    let all: Vec<i64> = ids.values().chain(resolved.iter().map(|(_, id)| id)).map(|id| id.0).collect();
    // A call that deletes one of them was first, and then it is missing, or waits until this transaction ends.
    let known: HashSet<PredicateId> = predicates::existing(conn, &scope, &all).await.or_fail()?.into_iter().collect();
    let created = ids.values().filter(|id| made.contains(id) || !known.contains(id)).count();
    for (at, id) in resolved.into_iter().filter(|(_, id)| known.contains(id)) {
        if let Some((iri, ..)) = usize::try_from(at - 1).ok().and_then(|at| own.get(at)) {
            ids.insert((*iri).clone(), id);
        }
    }
    let found = graph.predicates.iter().map(|iri| {
        ids.get(iri).copied().ok_or_else(|| match own.iter().any(|(own, ..)| *own == iri) {
            true => named::no_predicate("predicate", iri),
            false => {
                Failure::new(Code::Unavailable, format!("another call is storing or deleting the predicate <{iri}>"))
                    .with("retry_after", 1)
                    .with("remedy", "try again")
            }
        })
    });
    let found = found.collect::<Result<Vec<_>, _>>()?;
    Ok((found, u32::try_from(created).unwrap_or(u32::MAX)))
}
