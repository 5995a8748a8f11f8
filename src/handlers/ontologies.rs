//! Ontologies: texts in Turtle whose classes become documents, whose predicates are declared, and whose shapes can be bound.
use super::{
    batch,
    documents::{id_cursor, page_by_id},
    rdf::importing::{self, Import},
    shape_bindings::guard,
};
use crate::{
    access::Caller,
    error::OrFail,
    graph::named,
    rdf::{
        names,
        ontology::{self, Ontology, Property},
        reading::{self, Graph},
    },
    registry::Handle,
    service::Service,
    store::{
        self, graph_nodes,
        ontologies::{self, Described, Loaded, OntologyRow},
        triples::{self, around::Moment},
    },
};
use chrono::{SubsecRound, Utc};
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use svc_actors::{Lane, Lanes};
use svc_client::{
    Call, Code, Failure, Meta, RdfSyntax,
    constraint::as_title,
    ops,
    wire::{
        BatchItem, ClassPage, DocumentChange, NewBatch, OntologyClass, OntologyPage, OntologyQuery, OntologyResponse,
    },
};
use svc_ids::{DocumentId, PredicateId};

const SUB_CLASS_OF: &str = "http://www.w3.org/2000/01/rdf-schema#subClassOf";
/// The usetype of the document with the text.
const ONTOLOGY: &str = "ontology";
/// The most superclasses that a page of classes shows.
const SUPERCLASSES: i64 = 100_000;

fn no_ontology(id: DocumentId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no ontology {id}"))
}

impl Service {
    fn ontology(&self, row: OntologyRow) -> OntologyResponse {
        let count = |count: i32| u32::try_from(count).unwrap_or_default();
        OntologyResponse {
            document_id: row.document_id.0,
            iri: row.iri.unwrap_or_else(|| named::document_iri(&self.settings.rdf_base, row.document_id)),
            title: row.title,
            classes: count(row.classes),
            predicates: count(row.predicates),
            shapes: row.shapes,
            facts: count(row.facts),
            not_used: row.not_used.0,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl Handle<ops::create_ontology> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_ontology>) -> Result<OntologyResponse, Failure> {
        let (query, body) = (call.query, call.body);
        let (base, most) = (query.base.clone(), self.settings.rdf_max_triples);
        let read = tokio::task::spawn_blocking(move || {
            let graph = reading::read(&body.0, RdfSyntax::Turtle, base.as_deref(), most)?;
            let ontology = ontology::read(graph)?;
            let titles = names::titles(&ontology.facts);
            Ok::<_, Failure>((body.0, ontology, titles))
        });
        let (text, ontology, titles) = read.await.map_err(|error| Failure::new(Code::Internal, error))??;
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let (id, caller) = document(self, &mut tx, caller, &query, &ontology, text).await?;
        load(self, &mut tx, &caller, id, &query, &ontology, &titles).await?;
        let row = ontologies::read(&mut tx, &caller.readable(), id).await.or_fail()?.ok_or_else(|| no_ontology(id))?;
        tx.commit().await.or_fail()?;
        self.wake.notify(Lanes::of(Lane::Model));
        Ok(self.ontology(row))
    }
}

/// The document of an ontology, with its new text: the one that has its IRI at the same place, or a new one. Returns the caller with the right
/// to what was made its own.
async fn document(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    query: &OntologyQuery,
    ontology: &Ontology,
    text: String,
) -> Result<(DocumentId, Caller), Failure> {
    let mut names = [&ontology.title, &ontology.iri].into_iter().flatten().map(|name| as_title(name));
    let title = names.find(|title| !title.is_empty()).unwrap_or_else(|| "Ontology".to_owned());
    if let Some(iri) = &ontology.iri {
        ontologies::hold(conn, iri).await.or_fail()?;
        let (by, scope) = (caller.principal_id(), caller.writable());
        let known = ontologies::find(conn, &scope, by, iri, query.parent_id, query.private).await;
        if let Some(id) = known.or_fail()? {
            let change = DocumentChange { title: Some(title), content: Some(text), ..DocumentChange::default() };
            let caller = super::documents::change(service, conn, caller, id, &change, &Meta::default()).await?;
            return Ok((id, caller));
        }
    }
    let item = BatchItem {
        title,
        content: text,
        usetype: Some(ONTOLOGY.to_owned()),
        parent_id: query.parent_id,
        // What is open to all at the top is the owner's to write.
        private: query.private || (query.parent_id.is_none() && caller.principal().is_some()),
        ..BatchItem::default()
    };
    let (made, caller) = batch::create(service, conn, caller, &NewBatch { documents: vec![item], priority: 0 }).await?;
    let made = made.first().ok_or_else(|| Failure::new(Code::Internal, "the document of the ontology was not made"))?;
    Ok((DocumentId(made.document_id), caller))
}

/// Brings what an ontology says into the store, and closes what it no longer states.
async fn load(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    id: DocumentId,
    query: &OntologyQuery,
    ontology: &Ontology,
    titles: &[String],
) -> Result<(), Failure> {
    // The zone comes before predicates, as in every import, and these before facts, which take the pen: who waits for another transaction must not
    // hold what that one waits for.
    importing::hold(conn, caller, id).await?;
    let described = describe(service, conn, caller, id, ontology).await?;
    let name = format!("ontology-{id}");
    let what = Import { graph: &ontology.facts, titles, parent_id: Some(id.0), name: Some(&name) };
    let imported = importing::import(service, conn, caller, &what).await?;
    let gone = triples::follow::no_longer_stated(conn, id, &imported.facts).await.or_fail()?;
    tracing::debug!(gone = gone.len(), "an ontology was loaded");
    // Shapes are of what the store believes in the end: a value that took the place of another stands alone.
    let changed: Vec<DocumentId> = imported.changed.iter().chain(&gone).copied().collect();
    guard(service, conn, &imported.caller, &changed).await?;
    let classes: Vec<DocumentId> = ontology.classes.iter().map(|node| imported.nodes[*node]).collect();
    let loaded = Loaded {
        by: caller.principal_id(),
        iri: ontology.iri.as_deref(),
        base: query.base.as_deref(),
        predicates: ontology.properties.len(),
        shapes: &ontology.shapes,
        facts: imported.facts.len(),
        not_used: &ontology.not_used,
        classes: &classes,
    };
    ontologies::record(conn, id, &loaded).await.or_fail()?;
    let of: Vec<Described> = described.iter().map(|(_, described)| described.clone()).collect();
    let refused = ontologies::describe(conn, id, &of, caller.principal().is_none()).await.or_fail()?;
    if refused.is_empty() {
        return Ok(());
    }
    let refused: HashSet<PredicateId> = refused.into_iter().collect();
    let dropped = described.iter().filter(|(_, described)| refused.contains(&described.id));
    let not_used = ontology.without(dropped.map(|(property, _)| *property));
    ontologies::record(conn, id, &Loaded { not_used: &not_used, ..loaded }).await.or_fail()
}

/// What an ontology says of predicates. These and those of its facts are made where they are missing, all at once, so that none waits in a circle.
async fn describe<'a>(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    id: DocumentId,
    ontology: &'a Ontology,
) -> Result<Vec<(&'a Property, Described)>, Failure> {
    let named = |property: &Property| {
        let others = property.sub_property_of.iter().chain(&property.disjoint_with).chain(&property.inverse_of);
        std::iter::once(&property.iri).chain(others).cloned().collect::<Vec<_>>()
    };
    let mut iris: Vec<String> = ontology.properties.iter().flat_map(named).collect();
    iris.extend(ontology.facts.predicates.iter().cloned());
    iris.sort_unstable();
    iris.dedup();
    let graph = Graph { predicates: iris, prefixes: ontology.facts.prefixes.clone(), ..Graph::default() };
    let is_open = graph_nodes::are_open(conn, &[id]).await.or_fail()?;
    let (ids, _) = importing::predicates(conn, caller, &service.settings.rdf_base, &graph, is_open).await?;
    let ids: HashMap<&str, PredicateId> = graph.predicates.iter().map(String::as_str).zip(ids).collect();
    let id = |iri: &String| ids.get(iri.as_str()).copied();
    let described = ontology.properties.iter().filter_map(|property| {
        let described = Described {
            id: id(&property.iri)?,
            label: property.label.clone(),
            description: property.description.clone(),
            functional: property.functional,
            inverse_functional: property.inverse_functional,
            symmetric: property.symmetric,
            asymmetric: property.asymmetric,
            transitive: property.transitive,
            irreflexive: property.irreflexive,
            inverse_of: property.inverse_of.as_ref().and_then(id),
            sub_property_of: property.sub_property_of.iter().filter_map(id).collect(),
            disjoint_with: property.disjoint_with.iter().filter_map(id).collect(),
            domains: property.domains.iter().cloned().collect(),
            ranges: property.ranges.iter().cloned().collect(),
        };
        Some((property, described))
    });
    Ok(described.collect())
}

impl Handle<ops::list_ontologies> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_ontologies>) -> Result<OntologyPage, Failure> {
        let (limit, after) = (call.query.rows(), DocumentId(id_cursor(call.query.cursor.as_deref())?));
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = ontologies::page(&mut conn, &caller.readable(), after, limit + 1).await.or_fail()?;
        let (rows, next_cursor) = page_by_id(rows, limit, |row| row.document_id.0);
        Ok(OntologyPage { ontologies: rows.into_iter().map(|row| self.ontology(row)).collect(), next_cursor })
    }
}

impl Handle<ops::read_ontology> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_ontology>) -> Result<OntologyResponse, Failure> {
        let id = DocumentId(call.path.id);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let row = ontologies::read(&mut conn, &caller.readable(), id).await.or_fail()?;
        row.map(|row| self.ontology(row)).ok_or_else(|| no_ontology(id))
    }
}

impl Handle<ops::list_classes> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_classes>) -> Result<ClassPage, Failure> {
        let (id, scope) = (DocumentId(call.path.id), caller.readable());
        let (limit, after) = (call.query.rows(), DocumentId(id_cursor(call.query.cursor.as_deref())?));
        let mut tx = store::transaction::begin_snapshot(&self.pool).await.or_fail()?;
        ontologies::read(&mut tx, &scope, id).await.or_fail()?.ok_or_else(|| no_ontology(id))?;
        let rows = ontologies::classes(&mut tx, &scope, id, after, limit + 1).await.or_fail()?;
        let (rows, next_cursor) = page_by_id(rows, limit, |row| row.document_id.0);
        let base = &self.settings.rdf_base;
        let mut above: HashMap<DocumentId, Vec<i64>> = HashMap::new();
        let found = named::resolve(&mut tx, &store::scope::Readable::everything(), base, &[SUB_CLASS_OF]).await?;
        if let Some(predicate) = found.get(SUB_CLASS_OF) {
            let ids: Vec<DocumentId> = rows.iter().map(|row| row.document_id).collect();
            let known_at = triples::known_to(&mut tx).await.or_fail()?;
            let moment = Moment { valid_at: Utc::now().trunc_subsecs(6), known_at, asserted_only: false };
            let facts = triples::around::between(&mut tx, &scope, &moment, *predicate, &ids, SUPERCLASSES).await;
            for fact in facts.or_fail()? {
                above.entry(fact.subject_id).or_default().push(fact.object_id.0);
            }
        }
        let class = |row: ontologies::ClassRow| {
            let mut sub_class_of = above.remove(&row.document_id).unwrap_or_default();
            sub_class_of.sort_unstable();
            sub_class_of.dedup();
            let iri = row.iri.unwrap_or_else(|| named::document_iri(base, row.document_id));
            OntologyClass { document_id: row.document_id.0, iri, title: row.title, sub_class_of }
        };
        Ok(ClassPage { classes: rows.into_iter().map(class).collect(), next_cursor })
    }
}

impl Handle<ops::delete_ontology> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_ontology>) -> Result<(), Failure> {
        let id = DocumentId(call.path.id);
        let mut conn = self.pool.acquire().await.or_fail()?;
        ontologies::read(&mut conn, &caller.readable(), id).await.or_fail()?.ok_or_else(|| no_ontology(id))?;
        drop(conn);
        let call =
            Call::<ops::delete_document> { path: call.path, query: call.query, body: call.body, meta: call.meta };
        Handle::<ops::delete_document>::handle(self, caller, call).await
    }
}
