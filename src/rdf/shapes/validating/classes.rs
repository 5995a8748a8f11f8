//! Which documents have the IRIs that shapes name, and which classes are below which.
use super::View;
use crate::{
    error::OrFail,
    graph::named,
    store::{self, graph_nodes, triples::around},
};
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use svc_client::{Code, Failure};
use svc_ids::{DocumentId, PredicateId};

/// The most facts of subclasses.
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

/// Which classes are below which. Classes with one IRI are one class, whoever may read them.
#[derive(Default)]
pub struct Below {
    /// The classes right below a class.
    under: HashMap<Class, Vec<Class>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Class {
    Iri(String),
    Document(DocumentId),
}

impl Below {
    pub async fn read(conn: &mut PgConnection, view: &View, predicate: PredicateId) -> Result<Below, Failure> {
        let facts = around::between(conn, &view.scope, &view.moment, predicate, None, SUBCLASSES).await.or_fail()?;
        if facts.len() as i64 == SUBCLASSES {
            let detail = format!("{SUBCLASSES} facts or more say which class is below which");
            return Err(Failure::new(Code::TooLarge, detail).with("limit", SUBCLASSES));
        }
        let class = |id: DocumentId, iri: Option<String>| iri.map_or(Class::Document(id), Class::Iri);
        let mut under: HashMap<Class, Vec<Class>> = HashMap::new();
        for fact in facts {
            let above = class(fact.object_id, fact.object_iri);
            under.entry(above).or_default().push(class(fact.subject_id, fact.subject_iri));
        }
        Ok(Below { under })
    }

    /// The documents of the classes below one.
    pub async fn of(
        &self,
        conn: &mut PgConnection,
        view: &View,
        iri: &str,
        documents: &HashSet<DocumentId>,
    ) -> Result<HashSet<DocumentId>, Failure> {
        let mut open: Vec<Class> = documents.iter().map(|id| Class::Document(*id)).collect();
        open.push(Class::Iri(iri.to_owned()));
        let mut seen: HashSet<Class> = open.iter().cloned().collect();
        while let Some(class) = open.pop() {
            for below in self.under.get(&class).into_iter().flatten() {
                if seen.insert(below.clone()) {
                    open.push(below.clone());
                }
            }
        }
        let (mut iris, mut found) = (Vec::new(), HashSet::new());
        for class in seen {
            match class {
                Class::Iri(name) if name == iri => {}
                Class::Iri(name) => iris.push(name),
                Class::Document(id) => {
                    found.insert(id);
                }
            }
        }
        if !iris.is_empty() {
            found.extend(with_iris(conn, view, &iris).await?.into_iter().flatten());
        }
        Ok(found)
    }
}
