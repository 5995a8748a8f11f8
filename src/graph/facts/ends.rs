//! The documents that facts are about and lead to, by ids or by IRIs.
use super::Refusal;
use crate::{
    access::Caller,
    error::OrFail,
    graph::named,
    store::graph_nodes::{self, Resolved},
};
use sqlx::PgConnection;
use svc_client::{Failure, wire::NewFact};
use svc_ids::DocumentId;

/// Both ends of a fact to assert.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub subject: DocumentId,
    /// `None` if the fact leads to a literal.
    pub object: Option<DocumentId>,
}

/// An IRI that stands for a document, with the source beside which that is looked for first.
pub struct Iri<'a> {
    pub field: &'static str,
    pub iri: &'a str,
    pub source_id: Option<i64>,
}

/// The ends of facts. A refusal has the position of the fact at fault.
pub async fn of(conn: &mut PgConnection, caller: &Caller, base: &str, facts: &[NewFact]) -> Result<Vec<Ends>, Refusal> {
    let mut named = Vec::new();
    for (index, fact) in facts.iter().enumerate() {
        for (field, iri) in [("subject_iri", &fact.subject_iri), ("object_iri", &fact.object_iri)] {
            if let Some(iri) = iri {
                named.push((index, Iri { field, iri, source_id: fact.source_id }));
            }
        }
    }
    let (at, iris): (Vec<usize>, Vec<Iri<'_>>) = named.into_iter().unzip();
    let mut found = resolve(conn, caller, base, &iris).await.map_err(|refusal| refusal.among(&at))?.into_iter();
    let ends = facts.iter().map(|fact| {
        let mut end = |id: Option<i64>, iri: Option<&String>| match iri {
            None => id.map(DocumentId),
            Some(_) => found.next(),
        };
        let subject = end(fact.subject_id, fact.subject_iri.as_ref());
        Ends { subject: subject.unwrap_or(DocumentId(0)), object: end(fact.object_id, fact.object_iri.as_ref()) }
    });
    Ok(ends.collect())
}

/// The documents that IRIs stand for. A refusal has the position of the IRI at fault.
pub async fn resolve(
    conn: &mut PgConnection,
    caller: &Caller,
    base: &str,
    iris: &[Iri<'_>],
) -> Result<Vec<DocumentId>, Refusal> {
    if iris.is_empty() {
        return Ok(Vec::new());
    }
    let mut ids: Vec<Option<DocumentId>> = iris.iter().map(|named| named::document(base, named.iri)).collect();
    let foreign: Vec<usize> = (0..iris.len()).filter(|at| ids[*at].is_none()).collect();
    let (texts, sources): (Vec<&str>, Vec<Option<i64>>) =
        foreign.iter().map(|at| (iris[*at].iri, iris[*at].source_id)).unzip();
    let found = graph_nodes::resolve(conn, &caller.readable(), &texts, &sources).await.or_fail()?;
    for Resolved { at, id, is_doubtful } in found {
        let Some(at) = usize::try_from(at - 1).ok().and_then(|at| foreign.get(at)).copied() else { continue };
        if is_doubtful {
            return Err(Refusal::at(at, doubtful(&iris[at])));
        }
        ids[at] = Some(id);
    }
    let known = ids.into_iter().enumerate().map(|(at, id)| {
        id.ok_or_else(|| {
            let Iri { field, iri, .. } = &iris[at];
            let failure = Failure::field(field, format!("there is no document with the IRI {}", shown(iri)));
            Refusal::at(at, failure.with("remedy", "import it by POST /rdf/turtle, or name a document by its id"))
        })
    });
    known.collect()
}

/// Refuses an IRI whose documents are all closed, where nothing says which one is meant.
fn doubtful(named: &Iri<'_>) -> Failure {
    let detail = format!("the IRI {} stands only for documents that not everybody may read", shown(named.iri));
    Failure::field(named.field, detail)
        .with("remedy", "name the document by its id, or give as source_id a document beside the one that is meant")
}

fn shown(iri: &str) -> String {
    iri.chars().take(200).collect()
}
