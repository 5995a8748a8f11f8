//! What bound shapes find in an audit.
use super::nothing;
use crate::{
    error::OrFail,
    graph::named,
    rdf::shapes::{auditing, validating::View},
    store::{
        graph::lint::{self, Value, Within},
        merges::Sets,
        predicates,
    },
};
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashMap};
use svc_client::{
    Failure,
    wire::{LintFinding, LintKind, ShapeResult, predicate_name},
};
use svc_ids::{PredicateId, TripleId};

/// A result names as many facts at most; of one that names so many there may be more.
const NAMED_FACTS: usize = 10;

/// Whose view shapes are held against.
pub struct Bound<'a> {
    pub view: &'a View,
    /// The most triples of an ontology.
    pub most: usize,
}

/// What shapes find.
#[derive(Default)]
pub struct Shaped {
    pub count: u64,
    pub findings: Vec<LintFinding>,
    pub is_truncated: bool,
}

impl Bound<'_> {
    /// The nodes with more values than bound shapes allow, of which those that are taken for one count as one; or, without `sets`, the nodes
    /// with fewer than they require.
    pub async fn audit(
        &self,
        conn: &mut PgConnection,
        within: &Within,
        sets: Option<&Sets>,
    ) -> Result<Shaped, Failure> {
        let (kind, component) = match sets {
            Some(_) => (LintKind::MaxCount, "#MaxCountConstraintComponent"),
            None => (LintKind::MinCount, "#MinCountConstraintComponent"),
        };
        let found = auditing::audit(conn, self.view, self.most, within.parent_id, component).await?;
        let mut results = found.results;
        if let Some(sets) = sets.filter(|_| !results.is_empty()) {
            results = without_one_value(conn, sets, results).await?;
        }
        let count = results.len() as u64;
        results.truncate(usize::try_from(within.limit).unwrap_or(usize::MAX));
        let names = self.names(conn, &results).await?;
        let findings = results.into_iter().map(|result| LintFinding {
            document_id: result.focus.document_id,
            predicate: result.path.map(|path| names.get(path.as_str()).cloned().unwrap_or(path)),
            triple_ids: result.triple_ids,
            ..nothing(kind)
        });
        Ok(Shaped { count, findings: findings.collect(), is_truncated: found.is_truncated })
    }

    /// The predicates among paths, as `namespace:name`.
    async fn names(
        &self,
        conn: &mut PgConnection,
        results: &[ShapeResult],
    ) -> Result<HashMap<String, String>, Failure> {
        let paths: BTreeSet<&str> = results.iter().filter_map(|result| result.path.as_deref()).collect();
        let iri = |path: &str| path.strip_prefix('<').and_then(|path| path.strip_suffix('>')).map(str::to_owned);
        let iris: Vec<(String, String)> =
            paths.iter().filter_map(|path| Some(((*path).to_owned(), iri(path)?))).collect();
        let asked: Vec<&str> = iris.iter().map(|(_, iri)| iri.as_str()).collect();
        let found = named::resolve(conn, &self.view.scope, &self.view.base, &asked).await?;
        let ids: Vec<PredicateId> = found.values().copied().collect();
        let rows = predicates::names(conn, &ids).await.or_fail()?;
        let names: HashMap<PredicateId, String> =
            rows.into_iter().map(|(id, namespace, name, _)| (id, predicate_name(&namespace, &name))).collect();
        let name = |(path, iri): &(String, String)| Some((path.clone(), names.get(found.get(iri.as_str())?)?.clone()));
        Ok(iris.iter().filter_map(name).collect())
    }
}

/// Leaves out the results whose values are taken for one.
async fn without_one_value(
    conn: &mut PgConnection,
    sets: &Sets,
    results: Vec<ShapeResult>,
) -> Result<Vec<ShapeResult>, Failure> {
    let facts: BTreeSet<i64> = results.iter().flat_map(|result| result.triple_ids.iter().copied()).collect();
    let facts: Vec<TripleId> = facts.into_iter().map(TripleId).collect();
    let values = lint::values(conn, &facts).await.or_fail()?;
    let of = |value: Value| match value.object_id {
        Some(id) => (Some(sets.canonical(id)), String::new()),
        None => (None, value.literal),
    };
    let values: HashMap<i64, _> = values.into_iter().map(|value| (value.id.0, of(value))).collect();
    let is_one = |result: &ShapeResult| {
        let distinct: BTreeSet<_> = result.triple_ids.iter().filter_map(|id| values.get(id)).collect();
        result.triple_ids.len() < NAMED_FACTS && distinct.len() == 1
    };
    Ok(results.into_iter().filter(|result| !is_one(result)).collect())
}
