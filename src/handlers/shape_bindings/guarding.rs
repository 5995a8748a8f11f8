//! Holds what a write makes of facts against the shapes that are bound, in the transaction of the write.
use super::read_shapes;
use crate::{
    access::Caller,
    error::OrFail,
    rdf::shapes::{
        SH, Shapes,
        validating::{Outcome, Prepared, View, validate_nodes},
    },
    service::Service,
    store::{
        shape_bindings::{self, Concerned},
        triples::{self, around::Moment},
    },
};
use chrono::{SubsecRound, TimeDelta, Utc};
use serde_json::json;
use sqlx::PgConnection;
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{
    Code, Failure,
    wire::{ShapeMode, ShapeResult},
};
use svc_ids::DocumentId;

/// How long a write may be held against shapes. Other writers of facts wait for as long.
const TIME: Duration = Duration::from_secs(2);
/// The most results that an answer shows.
const SHOWN: usize = 100;

/// Holds the subjects of facts that this transaction has written against the shapes that are bound. What the write broke, and was not broken
/// before, is refused, or returned as warnings.
pub(in crate::handlers) async fn guard(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    subjects: &[DocumentId],
) -> Result<Vec<ShapeResult>, Failure> {
    let bindings = shape_bindings::concerned(conn, subjects).await.or_fail()?;
    if bindings.is_empty() {
        return Ok(Vec::new());
    }
    let known_at = triples::known_to(conn).await.or_fail()?;
    let moment = Moment { valid_at: Utc::now().trunc_subsecs(6), known_at, asserted_only: false };
    let now = View { scope: caller.readable(), moment, base: service.settings.rdf_base.clone() };
    // All that this transaction has written was recorded at the moment that the pen shows.
    let moment = Moment { known_at: known_at - TimeDelta::microseconds(1), ..moment };
    let before = View { moment, ..now.clone() };
    let (mut warnings, deadline) = (Vec::new(), Instant::now() + TIME);
    for binding in bindings {
        let is_strict = binding.mode.0 == ShapeMode::Reject;
        let shapes = match shapes(service, conn, &binding).await {
            Err(failure) if !is_strict && failure.code == Code::ShapeViolation => {
                tracing::warn!(binding = binding.id.0, reason = failure.detail, "a bound shape is not looked at");
                continue;
            }
            shapes => shapes?,
        };
        let after = check(conn, &now, &shapes, &binding, deadline).await?;
        if after.truncated.is_some() && is_strict {
            return Err(too_much(&binding));
        }
        if after.results.is_empty() {
            continue;
        }
        let known: HashSet<String> =
            check(conn, &before, &shapes, &binding, deadline).await?.results.iter().map(identity).collect();
        let new = after.results.into_iter().filter(|result| !known.contains(&identity(result)));
        let violation = format!("{SH}Violation");
        let (refused, told): (Vec<ShapeResult>, Vec<ShapeResult>) =
            new.partition(|result| is_strict && result.severity == violation);
        if !refused.is_empty() {
            return Err(refusal(refused, &binding));
        }
        warnings.extend(told);
    }
    warnings.truncate(SHOWN);
    Ok(warnings)
}

/// The shapes of a binding, from memory if the text is the same.
async fn shapes(service: &Service, conn: &mut PgConnection, binding: &Concerned) -> Result<Arc<Shapes>, Failure> {
    let key = (binding.ontology_id, binding.shape.clone(), binding.version.clone());
    if let Some(known) = service.shapes.get(&key) {
        return Ok(known);
    }
    let read = read_shapes(service, conn, binding.ontology_id, binding.shape.clone()).await.map_err(|failure| {
        let detail = format!("shape binding {} cannot be used: {}", binding.id, failure.detail);
        Failure::new(Code::ShapeViolation, detail).with("remedy", "mend the ontology, or turn the binding off")
    })?;
    let read = Arc::new(read);
    service.shapes.put(key, Arc::clone(&read));
    Ok(read)
}

async fn check(
    conn: &mut PgConnection,
    view: &View,
    shapes: &Arc<Shapes>,
    binding: &Concerned,
    deadline: Instant,
) -> Result<Outcome, Failure> {
    let prepared = Prepared::new(conn, view, Arc::clone(shapes)).await?;
    validate_nodes(conn, view, &prepared, &binding.documents, deadline).await
}

/// What makes two results the same, whichever facts they rest on.
fn identity(result: &ShapeResult) -> String {
    json!([result.focus, result.path, result.value, result.component, result.shape]).to_string()
}

fn refusal(mut refused: Vec<ShapeResult>, binding: &Concerned) -> Failure {
    let count = refused.len();
    refused.truncate(SHOWN);
    let first = refused.first().map(|result| {
        let node = result.focus.iri.as_deref().unwrap_or_default();
        let at = result.path.as_ref().map(|path| format!(" at {path}")).unwrap_or_default();
        format!("{node}{at}: {}", result.message)
    });
    let (id, first) = (binding.id, first.unwrap_or_default());
    let detail = format!("shape binding {id} refuses the facts for {count} reasons, of which the first is {first}");
    Failure::new(Code::ShapeViolation, detail)
        .with("results", json!(refused))
        .with("remedy", "send all facts that belong together in one batch, or mend them")
}

fn too_much(binding: &Concerned) -> Failure {
    let detail = format!("the facts around these nodes are too many to be held against shape binding {}", binding.id);
    Failure::new(Code::ShapeViolation, detail).with("remedy", "write fewer facts at a time, or set the binding to warn")
}
