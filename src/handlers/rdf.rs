//! Graphs of RDF: facts written as Turtle, and texts whose triples become facts.
pub(super) mod importing;

use super::{lists::must_exist, shape_bindings::guard, triples::known};
use crate::{
    access::Caller,
    error::OrFail,
    graph::named,
    rdf::{history, names, reading, writing::Writer},
    registry::Handle,
    service::Service,
    store::{
        self, ontologies, predicates,
        scope::Readable,
        triples::export::{self, After, Exported, Limit, Page},
    },
};
use bytes::Bytes;
use chrono::{SubsecRound, Utc};
use futures_util::{StreamExt, stream};
use importing::{Import, import};
use sqlx::{PgConnection, PgPool};
use svc_actors::{Lane, Lanes};
use svc_client::{Call, Code, Failure, Pieces, ops, wire::ImportedGraph};
use svc_ids::{DocumentId, PredicateId, TripleId};

/// How many facts the first piece of an export has, so that it comes soon, and each further one.
const FACTS: (i64, i64) = (500, 10_000);
/// How many bytes of literals a piece has, but for its last one.
const BYTES: i64 = 4 << 20;
/// How many ontologies, or predicates of ontologies, a piece describes.
const SAID: u32 = 100;

impl Handle<ops::export_turtle> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::export_turtle>) -> Result<Pieces, Failure> {
        let query = call.query;
        let place = self.admission.export(caller.principal_id())?;
        let known_at = {
            let mut conn = self.pool.acquire().await.or_fail()?;
            if let Some(id) = query.parent_id {
                must_exist(&mut conn, caller, DocumentId(id)).await?;
            }
            known(&mut conn, query.known_at).await?
        };
        let valid_at = query.valid_at.or_else(|| (!query.history).then(Utc::now)).map(|time| time.trunc_subsecs(6));
        let (parent_id, asserted_only, history) = (query.parent_id, query.asserted_only, query.history);
        let base = &self.settings.rdf_base;
        let export = Export {
            pool: self.pool.clone(),
            scope: caller.readable(),
            base: base.clone(),
            wanted: Exported { parent_id, asserted_only, classes: query.ontologies, history, valid_at, known_at },
            part: Part::Facts((DocumentId(0), PredicateId(0), TripleId(0))),
            limit: FACTS.0,
            writer: Writer::new(base, valid_at, known_at, history),
        };
        let pieces = stream::try_unfold((Some(export), place), async |(export, place)| {
            let Some(mut export) = export else { return Ok(None) };
            let is_last = export.proceed().await?;
            let piece = export.writer.take();
            Ok::<_, Failure>(Some((piece, ((!is_last).then_some(export), place))))
        });
        let pieces = pieces.filter(|piece| std::future::ready(!matches!(piece, Ok(bytes) if bytes.is_empty())));
        Ok(pieces.map(|piece: Result<Bytes, Failure>| piece).boxed())
    }
}

/// Where an export has come to.
#[derive(Clone, Copy)]
enum Part {
    Facts(After),
    /// What ontologies say of themselves, and then of predicates.
    Heads(DocumentId),
    Said(DocumentId, PredicateId),
    Over,
}

/// An export under way. It holds no connection between two pieces: the same moment of the store's knowledge reads the same in each.
struct Export {
    pool: PgPool,
    scope: Readable,
    base: String,
    wanted: Exported,
    part: Part,
    limit: i64,
    writer: Writer,
}

impl Export {
    /// Writes the next part; true if it was the last.
    async fn proceed(&mut self) -> Result<bool, Failure> {
        let mut tx = store::transaction::begin_search(&self.pool).await.or_fail()?;
        self.part = match self.part {
            Part::Facts(after) => self.facts(&mut tx, after).await?,
            Part::Heads(after) => {
                let rows = ontologies::page(&mut tx, &self.scope, after, SAID).await.or_fail()?;
                let next = rows.last().map(|row| row.document_id);
                for row in rows {
                    self.writer.write_head(row.document_id, row.iri, row.title).map_err(unwritten)?;
                }
                next.map_or(Part::Said(DocumentId(0), PredicateId(0)), Part::Heads)
            }
            Part::Said(ontology, predicate) => {
                let after = (ontology, predicate);
                let rows = ontologies::said(&mut tx, &self.scope, after, i64::from(SAID)).await.or_fail()?;
                let named = rows.iter().flat_map(|row| {
                    let others = row.sub_property_of.iter().chain(&row.disjoint_with).chain(&row.inverse_of);
                    std::iter::once(row.predicate_id).chain(others.copied())
                });
                let unknown = self.writer.unknown(named);
                self.learn(&mut tx, unknown).await?;
                let next = rows.last().map(|row| (row.ontology_id, row.predicate_id));
                for row in rows {
                    self.writer.write_said(row).map_err(unwritten)?;
                }
                next.map_or(Part::Over, |(ontology, predicate)| Part::Said(ontology, predicate))
            }
            Part::Over => Part::Over,
        };
        let is_last = matches!(self.part, Part::Over);
        if is_last {
            self.writer.end().map_err(unwritten)?;
        }
        Ok(is_last)
    }

    /// Writes the next facts; returns what comes then.
    async fn facts(&mut self, conn: &mut PgConnection, after: After) -> Result<Part, Failure> {
        let limit = Limit { facts: self.limit, bytes: BYTES };
        let Page { edges, next } = export::page(conn, &self.scope, &self.wanted, after, limit).await.or_fail()?;
        self.learn(conn, self.writer.unknown(edges.iter().map(|edge| edge.predicate_id))).await?;
        self.limit = FACTS.1;
        self.writer.write(edges).map_err(unwritten)?;
        Ok(match (next, self.wanted.classes) {
            (Some(next), _) => Part::Facts(next),
            (None, true) => Part::Heads(DocumentId(0)),
            (None, false) => Part::Over,
        })
    }

    /// Has the writer know the IRIs of predicates.
    async fn learn(&mut self, conn: &mut PgConnection, unknown: Vec<PredicateId>) -> Result<(), Failure> {
        for (id, namespace, name, iri) in predicates::names(conn, &unknown).await.or_fail()? {
            let iri = iri.unwrap_or_else(|| named::derived_iri(&self.base, &namespace, &name));
            self.writer.learn(id, iri);
        }
        Ok(())
    }
}

fn unwritten(error: std::io::Error) -> Failure {
    Failure::new(Code::Internal, error)
}

impl Handle<ops::import_turtle> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::import_turtle>) -> Result<ImportedGraph, Failure> {
        let (query, body) = (call.query, call.body);
        let (base, most) = (query.base.clone(), self.settings.rdf_max_triples);
        let read = tokio::task::spawn_blocking(move || {
            let graph = history::unfold(reading::read(&body.text, body.syntax, base.as_deref(), most)?)?.graph;
            let titles = names::titles(&graph);
            Ok((graph, titles))
        });
        let (graph, titles) = read.await.map_err(|error| Failure::new(Code::Internal, error))??;
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let what = Import { graph: &graph, titles: &titles, parent_id: query.parent_id, name: query.import.as_deref() };
        let done = import(self, &mut tx, caller, &what).await?;
        let warned = guard(self, &mut tx, &done.caller, &done.changed).await?;
        tx.commit().await.or_fail()?;
        self.wake.notify(Lanes::of(Lane::Model));
        Ok(ImportedGraph { warnings: warned.results, warnings_truncated: warned.truncated, ..done.answer })
    }
}
