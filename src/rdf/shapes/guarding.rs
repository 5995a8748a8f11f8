//! Holds what a write makes of facts against the shapes that are bound, in the transaction of the write.
use super::{
    SH, Shapes,
    kept::KeptShapes,
    reading,
    validating::{Outcome, Prepared, View, validate_nodes},
};
use crate::{
    error::OrFail,
    store::{
        ontologies,
        scope::Readable,
        shape_bindings::{self, Concerned},
        transaction,
        triples::{self, around::Moment},
    },
};
use chrono::{SubsecRound, Utc};
use serde_json::json;
use sqlx::PgConnection;
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{
    Code, Failure,
    wire::{ShapeMode, ShapeResult, ValidationLimit},
};
use svc_ids::DocumentId;

/// How long what a write makes of the facts may be held against shapes, and how long what was before. Other writers of facts wait for as long.
const TIME: Duration = Duration::from_secs(2);
/// The most results that an answer shows.
const SHOWN: usize = 100;

/// What a process holds writes against shapes with.
#[derive(Clone, Copy)]
pub struct Guard<'a> {
    pub kept: &'a KeptShapes,
    /// What the IRIs of this store begin with.
    pub base: &'a str,
    /// The most triples of an ontology.
    pub most: usize,
}

/// Why a write is refused.
#[derive(Debug)]
pub struct Refusal {
    pub failure: Failure,
    /// What the shapes refuse; empty if they could not be held against the facts.
    pub results: Vec<ShapeResult>,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal { failure, results: Vec::new() }
    }
}

/// The shapes of a binding.
pub async fn read(
    conn: &mut PgConnection,
    ontology_id: DocumentId,
    shape: Option<String>,
    most: usize,
) -> Result<Shapes, Failure> {
    let text = ontologies::text(conn, ontology_id).await.or_fail()?;
    let (text, base) = text.ok_or_else(|| Failure::field("shape", "its ontology was deleted meanwhile"))?;
    let read = tokio::task::spawn_blocking(move || reading::shapes(&text, base.as_deref(), shape.as_deref(), most));
    read.await.map_err(|error| Failure::new(Code::Internal, error))?
}

/// What a write is warned of.
#[derive(Debug, Default)]
pub struct Warned {
    pub results: Vec<ShapeResult>,
    /// Why a shape that only warns was not held against all facts, or not against all that were there before.
    pub truncated: Option<ValidationLimit>,
}

/// Holds the subjects of facts that this transaction has written against the shapes that are bound, with the facts that a scope covers. What the
/// write broke, and was not broken before, is refused, or returned as warnings.
pub async fn guard(
    conn: &mut PgConnection,
    guard: Guard<'_>,
    scope: Readable,
    subjects: &[DocumentId],
) -> Result<Warned, Refusal> {
    let bindings = shape_bindings::concerned(conn, subjects).await.or_fail()?;
    if bindings.is_empty() {
        return Ok(Warned::default());
    }
    let known_at = triples::known_to(conn).await.or_fail()?;
    let moment = Moment { valid_at: Utc::now().trunc_subsecs(6), known_at, asserted_only: false };
    let now = View { scope, moment, base: guard.base.to_owned() };
    let moment = Moment { known_at: triples::known_before(conn).await.or_fail()?, ..moment };
    let before = View { moment, ..now.clone() };
    let mut warned = Warned::default();
    // What was before has a time of its own: if it were cut short, what was broken would seem to be new.
    let (mut left, mut left_before) = (TIME, TIME);
    for binding in bindings {
        let is_strict = binding.mode.0 == ShapeMode::Reject;
        if left.is_zero() {
            if is_strict {
                return Err(too_much(&binding).into());
            }
            warned.truncated = warned.truncated.or(Some(ValidationLimit::Time));
            continue;
        }
        // A text that is not in memory takes its time too.
        let begun = Instant::now();
        let read = shapes(guard, conn, &binding).await;
        left = left.saturating_sub(begun.elapsed());
        let shapes = match read {
            Err(failure) if !is_strict && failure.code == Code::ShapeViolation => {
                tracing::warn!(binding = binding.id.0, reason = failure.detail, "a bound shape is not looked at");
                continue;
            }
            shapes => shapes?,
        };
        let after = check(conn, &now, &shapes, &binding.documents, &mut left).await?;
        if after.truncated.is_some() && is_strict {
            return Err(too_much(&binding).into());
        }
        warned.truncated = warned.truncated.or(after.truncated);
        if after.results.is_empty() {
            continue;
        }
        let nodes: BTreeSet<i64> = after.results.iter().filter_map(|result| result.focus.document_id).collect();
        let nodes: Vec<DocumentId> = nodes.into_iter().map(DocumentId).collect();
        let earlier = check(conn, &before, &shapes, &nodes, &mut left_before).await?;
        warned.truncated = warned.truncated.or(earlier.truncated);
        match judge(after.results, &earlier, is_strict) {
            Judgement::Told(told) => warned.results.extend(told),
            Judgement::Refused(refused) => {
                return Err(Refusal { failure: refusal(refused.clone(), &binding), results: refused });
            }
            Judgement::Unknown => return Err(too_much(&binding).into()),
        }
    }
    warned.results.truncate(SHOWN);
    Ok(warned)
}

/// What is to become of a write.
#[derive(Debug, PartialEq)]
enum Judgement {
    /// It stands, with these warnings.
    Told(Vec<ShapeResult>),
    /// It broke this.
    Refused(Vec<ShapeResult>),
    /// Something is broken, and nobody knows whether it was before.
    Unknown,
}

/// Judges what is broken after a write by what was broken before.
fn judge(after: Vec<ShapeResult>, before: &Outcome, is_strict: bool) -> Judgement {
    let known: HashSet<String> = before.results.iter().map(identity).collect();
    let new = after.into_iter().filter(|result| !known.contains(&identity(result)));
    let violation = format!("{SH}Violation");
    let (refused, told): (Vec<ShapeResult>, Vec<ShapeResult>) =
        new.partition(|result| is_strict && result.severity == violation);
    match (refused.is_empty(), before.truncated) {
        (true, _) => Judgement::Told(told),
        (false, None) => Judgement::Refused(refused),
        (false, Some(_)) => Judgement::Unknown,
    }
}

/// The shapes of a binding, from memory if the text is the same.
async fn shapes(guard: Guard<'_>, conn: &mut PgConnection, binding: &Concerned) -> Result<Arc<Shapes>, Failure> {
    let key = (binding.ontology_id, binding.shape.clone(), binding.version.clone());
    if let Some(known) = guard.kept.get(&key) {
        return Ok(known);
    }
    let read = read(conn, binding.ontology_id, binding.shape.clone(), guard.most).await.map_err(|failure| {
        let detail = format!("shape binding {} cannot be used: {}", binding.id, failure.detail);
        Failure::new(Code::ShapeViolation, detail).with("remedy", "mend the ontology, or turn the binding off")
    })?;
    let read = Arc::new(read);
    guard.kept.put(key, Arc::clone(&read));
    Ok(read)
}

/// Holds nodes against shapes for as long as is left, which becomes less. A statement that takes longer is ended, and what was written stays.
async fn check(
    conn: &mut PgConnection,
    view: &View,
    shapes: &Arc<Shapes>,
    nodes: &[DocumentId],
    left: &mut Duration,
) -> Result<Outcome, Failure> {
    if left.is_zero() {
        return Ok(Outcome::too_late());
    }
    let begun = Instant::now();
    transaction::begin_look(conn, *left).await.or_fail()?;
    let looked = match Prepared::new(conn, view, Arc::clone(shapes)).await {
        Ok(prepared) => validate_nodes(conn, view, &prepared, nodes, begun + *left).await,
        Err(failure) => Err(failure),
    };
    transaction::end_look(conn).await.or_fail()?;
    *left = left.saturating_sub(begun.elapsed());
    looked.or_else(Outcome::cut_short)
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
    let detail = format!(
        "the facts around these nodes are too many, or the database is too slow, to hold them against shape binding {}",
        binding.id
    );
    Failure::new(Code::ShapeViolation, detail).with("remedy", "write fewer facts at a time, or set the binding to warn")
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_client::wire::ShapeTerm;

    fn wrong(focus: i64, severity: &str) -> ShapeResult {
        ShapeResult {
            focus: ShapeTerm { document_id: Some(focus), ..ShapeTerm::default() },
            path: None,
            value: None,
            component: String::new(),
            shape: String::new(),
            severity: format!("{SH}{severity}"),
            message: String::new(),
            triple_ids: Vec::new(),
        }
    }

    #[test]
    fn what_was_broken_before_is_not_refused_and_what_may_have_been_is_not_called_new() {
        let (old, new) = (wrong(1, "Violation"), wrong(2, "Violation"));
        let before = |truncated| Outcome { results: vec![old.clone()], focus_nodes: 2, truncated };
        let whole = before(None);
        assert_eq!(judge(vec![old.clone()], &whole, true), Judgement::Told(Vec::new()));
        assert_eq!(judge(vec![old.clone(), new.clone()], &whole, true), Judgement::Refused(vec![new.clone()]));
        let cut = before(Some(ValidationLimit::Time));
        assert_eq!(judge(vec![old.clone(), new.clone()], &cut, true), Judgement::Unknown);
        assert_eq!(judge(vec![old.clone()], &cut, true), Judgement::Told(Vec::new()));
        assert_eq!(judge(vec![new.clone()], &cut, false), Judgement::Told(vec![new]));
        let less = wrong(2, "Warning");
        assert_eq!(judge(vec![old.clone(), less.clone()], &cut, true), Judgement::Told(vec![less]));
    }
}
