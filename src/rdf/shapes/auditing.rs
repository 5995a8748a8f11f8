//! Holds all nodes against all bound shapes that a caller may read, for an audit that goes on whatever becomes of it.
use super::{
    guarding,
    validating::{Outcome, Prepared, View, validate_prepared},
};
use crate::{
    error::OrFail,
    store::{
        graph_nodes,
        scope::Writable,
        shape_bindings::{self, BindingRow},
        transaction,
    },
};
use sqlx::PgConnection;
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{
    Code, Failure,
    wire::{ShapeMode, ShapeResult},
};
use svc_ids::{DocumentId, ShapeBindingId};

/// How long an audit holds nodes against shapes.
const TIME: Duration = Duration::from_secs(10);
/// The most bindings that an audit looks at.
const BINDINGS: u32 = 1_000;

/// What bound shapes find.
#[derive(Debug, Default)]
pub struct Audited {
    /// Each result once, in the order of nodes, paths and shapes.
    pub results: Vec<ShapeResult>,
    /// Whether not everything was looked at.
    pub is_truncated: bool,
}

/// Holds the nodes at and under a document, or all, against the shapes that are bound, hold and are not off, and returns the results of one
/// component.
pub async fn audit(
    conn: &mut PgConnection,
    view: &View,
    most: usize,
    parent_id: Option<DocumentId>,
    component: &str,
) -> Result<Audited, Failure> {
    // Shapes of ontologies that the caller may not read are not looked at.
    let (none, from) = (Writable::default(), ShapeBindingId(0));
    let rows = shape_bindings::page(conn, &view.scope, &none, from, BINDINGS + 1).await.or_fail()?;
    let mut audited = Audited { is_truncated: rows.len() > BINDINGS as usize, ..Audited::default() };
    let mut found: BTreeMap<(Option<i64>, Option<String>, String), ShapeResult> = BTreeMap::new();
    let mut left = TIME;
    let is_held = |row: &BindingRow| row.holds && row.mode.0 != ShapeMode::Off;
    for row in rows.into_iter().take(BINDINGS as usize).filter(is_held) {
        let outcome = look(conn, view, most, &row, &mut left).await?;
        audited.is_truncated |= outcome.truncated.is_some();
        for result in outcome.results.into_iter().filter(|result| result.component.ends_with(component)) {
            let key = (result.focus.document_id, result.path.clone(), result.shape.clone());
            found.entry(key).or_insert(result);
        }
    }
    if let Some(parent) = parent_id {
        let ids: Vec<DocumentId> = found.keys().filter_map(|(id, ..)| id.map(DocumentId)).collect();
        let within: HashSet<DocumentId> = graph_nodes::under(conn, &ids, parent).await.or_fail()?.into_iter().collect();
        found.retain(|(id, ..), _| id.is_some_and(|id| within.contains(&DocumentId(id))));
    }
    audited.results = found.into_values().collect();
    Ok(audited)
}

/// Holds nodes against one binding for as long as is left, which becomes less.
async fn look(
    conn: &mut PgConnection,
    view: &View,
    most: usize,
    binding: &BindingRow,
    left: &mut Duration,
) -> Result<Outcome, Failure> {
    if left.is_zero() {
        return Ok(Outcome::too_late());
    }
    let deadline = Instant::now() + *left;
    let read = guarding::read(conn, binding.ontology_id, binding.shape.clone(), most).await;
    // Many bindings of a long text take their time before anything is looked at.
    *left = deadline.saturating_duration_since(Instant::now());
    let shapes = match read {
        Err(failure) if failure.code != Code::Unavailable && failure.code != Code::TimedOut => {
            tracing::warn!(binding = binding.id.0, reason = failure.detail, "a bound shape is not looked at");
            return Ok(Outcome::too_late());
        }
        shapes => Arc::new(shapes?),
    };
    if left.is_zero() {
        return Ok(Outcome::too_late());
    }
    transaction::begin_look(conn, *left).await.or_fail()?;
    let mut outcome = Outcome::default();
    let looked = match Prepared::new(conn, view, Arc::clone(&shapes)).await {
        Ok(prepared) => validate_prepared(conn, view, &prepared, binding.document_id, deadline, &mut outcome).await,
        Err(failure) => Err(failure),
    };
    transaction::end_look(conn).await.or_fail()?;
    *left = deadline.saturating_duration_since(Instant::now());
    match looked {
        Ok(()) => Ok(outcome),
        Err(failure) => Ok(Outcome { results: outcome.results, ..Outcome::cut_short(failure)? }),
    }
}
