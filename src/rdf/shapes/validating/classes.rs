//! Which documents have the IRIs that shapes name, and which classes are below which.
use super::View;
use crate::{
    error::OrFail,
    graph::named,
    store::{self, graph_nodes, triples::around},
};
use sqlx::PgConnection;
use std::collections::{BTreeMap, HashSet};
use svc_client::{Code, Failure};
use svc_ids::{DocumentId, PredicateId};

/// The most classes below those of shapes.
const SUBCLASSES: i64 = 200_000;

/// The documents that have each of these IRIs.
pub async fn with_iris(
    conn: &mut PgConnection,
    view: &View,
    iris: &[String],
) -> Result<Vec<HashSet<DocumentId>>, Failure> {
    let mut found: Vec<HashSet<DocumentId>> = vec![HashSet::new(); iris.len()];
    let names: Vec<&str> = iris.iter().map(String::as_str).collect();
    for (at, id) in graph_nodes::all(conn, &view.scope, &names).await.or_fail()? {
        if let Some(ids) = usize::try_from(at - 1).ok().and_then(|at| found.get_mut(at)) {
            ids.insert(id);
        }
    }
    let own: Vec<(usize, DocumentId)> =
        iris.iter().enumerate().filter_map(|(at, iri)| Some((at, named::document(&view.base, iri)?))).collect();
    let ids: Vec<DocumentId> = own.iter().map(|(_, id)| *id).collect();
    let readable = store::batch::readable_of(conn, &view.scope, &ids).await.or_fail()?;
    for (at, id) in own.into_iter().filter(|(_, id)| readable.contains(id)) {
        found[at].insert(id);
    }
    Ok(found)
}

/// The documents that are each of these classes or below it; a class by its position, with the documents that have its IRI. Classes with one IRI
/// are one class, whoever may read them.
pub async fn closed(
    conn: &mut PgConnection,
    view: &View,
    predicate: PredicateId,
    classes: &BTreeMap<usize, &HashSet<DocumentId>>,
) -> Result<BTreeMap<usize, HashSet<DocumentId>>, Failure> {
    let positions: Vec<usize> = classes.keys().copied().collect();
    let roots: Vec<(i64, DocumentId)> =
        (0..).zip(classes.values()).flat_map(|(at, ids)| ids.iter().map(move |id| (at, *id))).collect();
    let mut found: BTreeMap<usize, HashSet<DocumentId>> =
        classes.iter().map(|(class, ids)| (*class, (*ids).clone())).collect();
    if roots.is_empty() {
        return Ok(found);
    }
    let below = around::below(conn, &view.scope, &view.moment, predicate, &roots, SUBCLASSES + 1).await.or_fail()?;
    if below.len() as i64 > SUBCLASSES {
        let detail = format!("more than {SUBCLASSES} classes are below those of the shapes");
        let remedy = "bind the shapes of classes with fewer classes below them";
        return Err(Failure::new(Code::TooLarge, detail).with("limit", SUBCLASSES).with("remedy", remedy));
    }
    for (at, id) in below {
        let class = usize::try_from(at).ok().and_then(|at| positions.get(at)).and_then(|class| found.get_mut(class));
        if let Some(ids) = class {
            ids.insert(id);
        }
    }
    Ok(found)
}
