//! Shape bindings: shapes of ontologies that facts are held against.
use super::{
    documents::{id_cursor, page_by_id},
    triples::known,
};
use crate::{
    access::Caller,
    error::OrFail,
    graph::named,
    rdf::shapes::{
        guarding::{self, Guard, Warned},
        report,
        validating::{self, View},
    },
    registry::Handle,
    service::Service,
    store::{
        self,
        shape_bindings::{self, BindingRow},
        triples::around::Moment,
    },
};
use chrono::{SubsecRound, Utc};
use sqlx::PgConnection;
use std::sync::Arc;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{ShapeBindingPage, ShapeBindingResponse, ShapeMode, ValidationReport},
};
use svc_ids::{DocumentId, ShapeBindingId};

fn no_binding(id: ShapeBindingId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no shape binding {id}"))
}

impl Service {
    fn binding(&self, row: BindingRow) -> ShapeBindingResponse {
        // Whoever may write the document is shown the binding also where the ontology is closed to it.
        let named = row.shape.or(row.iri).filter(|_| row.reads_ontology);
        ShapeBindingResponse {
            id: row.id.0,
            shape: named.unwrap_or_else(|| named::document_iri(&self.settings.rdf_base, row.ontology_id)),
            ontology_id: row.ontology_id.0,
            document_id: row.document_id.map(|id| id.0),
            mode: row.mode.0,
            holds: row.holds,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// Refuses a caller that may not change what a binding is about: all nodes are the owner's.
async fn may_bind(conn: &mut PgConnection, caller: &Caller, document_id: Option<DocumentId>) -> Result<(), Failure> {
    match document_id {
        Some(id) => caller.writes(conn, id).await.or_fail()?.map(|_| ()),
        None if caller.principal().is_some() => {
            Err(Failure::new(Code::Forbidden, "a shape for all nodes is the owner's to bind")
                .with("remedy", "name a document that you may change in `document_id`"))
        }
        None => Ok(()),
    }
}

/// Holds the subjects of facts that this transaction has written against the shapes that are bound: what the write broke is refused, or returned as
/// warnings.
pub(super) async fn guard(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    subjects: &[DocumentId],
) -> Result<Warned, Failure> {
    let settings = &service.settings;
    let guard = Guard { kept: &service.shapes, base: &settings.rdf_base, most: settings.rdf_max_triples };
    guarding::guard(conn, guard, caller.readable(), subjects).await.map_err(|refusal| refusal.failure)
}

impl Handle<ops::create_shape_binding> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::create_shape_binding>,
    ) -> Result<ShapeBindingResponse, Failure> {
        let new = call.body.0;
        let document_id = new.document_id.map(DocumentId);
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        may_bind(&mut tx, caller, document_id).await?;
        let own = named::document(&self.settings.rdf_base, &new.shape);
        let (scope, by) = (caller.readable(), caller.principal_id());
        let found = shape_bindings::source(&mut tx, &scope, by, &new.shape, own).await.or_fail()?;
        let (ontology_id, is_whole) = found.ok_or_else(|| {
            let shown: String = new.shape.chars().take(200).collect();
            let remedy = match by {
                Some(_) => "load the ontology that has it by POST /ontologies",
                None => "load the ontology that has it by POST /ontologies; name one that a principal keeps for itself by the IRI of its document",
            };
            Failure::field("shape", format!("there is neither a shape nor an ontology with the IRI {shown}"))
                .with("remedy", remedy)
        })?;
        let shape = (!is_whole).then_some(new.shape);
        guarding::read(&mut tx, ontology_id, shape.clone(), self.settings.rdf_max_triples).await?;
        let mode = new.mode.unwrap_or(ShapeMode::Warn);
        let shape = shape.as_deref();
        let made = shape_bindings::insert(&mut tx, ontology_id, shape, document_id, mode, by).await.or_fail()?;
        let made = made.ok_or_else(|| {
            Failure::new(Code::Conflict, "the shape is bound there already")
                .with("remedy", "change the mode of the binding, or delete it and bind the shape again")
        })?;
        let made = find(&mut tx, caller, made).await?;
        tx.commit().await.or_fail()?;
        Ok(self.binding(made))
    }
}

impl Handle<ops::list_shape_bindings> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_shape_bindings>) -> Result<ShapeBindingPage, Failure> {
        let (limit, after) = (call.query.rows(), ShapeBindingId(id_cursor(call.query.cursor.as_deref())?));
        let mut conn = self.pool.acquire().await.or_fail()?;
        let (scope, writable) = (caller.readable(), caller.writable());
        let rows = shape_bindings::page(&mut conn, &scope, &writable, after, limit + 1).await.or_fail()?;
        let (rows, next_cursor) = page_by_id(rows, limit, |row| row.id.0);
        Ok(ShapeBindingPage { bindings: rows.into_iter().map(|row| self.binding(row)).collect(), next_cursor })
    }
}

/// The binding, if the caller is shown it.
async fn find(conn: &mut PgConnection, caller: &Caller, id: ShapeBindingId) -> Result<BindingRow, Failure> {
    let row = shape_bindings::read(conn, &caller.readable(), &caller.writable(), id).await.or_fail()?;
    row.ok_or_else(|| no_binding(id))
}

impl Handle<ops::read_shape_binding> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::read_shape_binding>,
    ) -> Result<ShapeBindingResponse, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        Ok(self.binding(find(&mut conn, caller, ShapeBindingId(call.path.id)).await?))
    }
}

impl Handle<ops::update_shape_binding> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::update_shape_binding>,
    ) -> Result<ShapeBindingResponse, Failure> {
        let (id, mode) = (ShapeBindingId(call.path.id), call.body.0.mode);
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        // Of two callers at once the second sees whether the first has taken the binding over.
        shape_bindings::lock(&mut tx, id).await.or_fail()?;
        let row = find(&mut tx, caller, id).await?;
        may_bind(&mut tx, caller, row.document_id).await?;
        // Whoever may bind the shape takes over what ceased to hold, unless that one switches it off. What holds stays with whoever bound it: it would end with
        // the rights of another caller, or go on without those of a principal that alone changes the ontology.
        let takes_over = row.reads_ontology && !row.holds && mode != ShapeMode::Off;
        let by = takes_over.then(|| caller.principal_id());
        shape_bindings::update(&mut tx, row.id, mode, by).await.or_fail()?;
        let row = find(&mut tx, caller, row.id).await?;
        tx.commit().await.or_fail()?;
        Ok(self.binding(row))
    }
}

impl Handle<ops::delete_shape_binding> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_shape_binding>) -> Result<(), Failure> {
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let row = find(&mut tx, caller, ShapeBindingId(call.path.id)).await?;
        may_bind(&mut tx, caller, row.document_id).await?;
        let is_gone = shape_bindings::delete(&mut tx, row.id).await.or_fail()?;
        tx.commit().await.or_fail()?;
        if is_gone { Ok(()) } else { Err(no_binding(row.id)) }
    }
}

impl Handle<ops::validate_shape> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::validate_shape>) -> Result<ValidationReport, Failure> {
        let query = call.query;
        let _place = self.admission.analysis().await?;
        let mut tx = store::transaction::begin_snapshot(&self.pool).await.or_fail()?;
        let row = find(&mut tx, caller, ShapeBindingId(call.path.id)).await?;
        // A report spells out what the shapes say, which whoever only may write the document is not shown.
        if !row.reads_ontology {
            return Err(Failure::no_document(row.ontology_id.0));
        }
        let shapes = guarding::read(&mut tx, row.ontology_id, row.shape, self.settings.rdf_max_triples).await?;
        let shapes = Arc::new(shapes);
        let moment = Moment {
            valid_at: query.valid_at.unwrap_or_else(Utc::now).trunc_subsecs(6),
            known_at: known(&mut tx, query.known_at).await?,
            asserted_only: query.asserted_only,
        };
        let view = View { scope: caller.readable(), moment, base: self.settings.rdf_base.clone() };
        let outcome = validating::validate(&mut tx, &view, Arc::clone(&shapes), row.document_id).await?;
        drop(tx);
        let turtle = match query.turtle {
            false => None,
            true => Some(report::turtle(&shapes, &outcome).map_err(|error| Failure::new(Code::Internal, error))?),
        };
        Ok(ValidationReport {
            conforms: match (outcome.results.is_empty(), outcome.truncated) {
                (false, _) => Some(false),
                (true, None) => Some(true),
                (true, Some(_)) => None,
            },
            focus_nodes: u32::try_from(outcome.focus_nodes).unwrap_or(u32::MAX),
            results: outcome.results,
            truncated: outcome.truncated,
            valid_at: moment.valid_at,
            known_at: moment.known_at,
            turtle,
        })
    }
}
