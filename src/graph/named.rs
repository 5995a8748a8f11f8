//! Documents by their IRIs, and predicates by the names that requests give them.
use crate::{
    error::OrFail,
    store::{
        predicates::{self, DEFAULT_NAMESPACE, Named, PredicateRow},
        scope::Readable,
    },
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::{Failure, wire::PredicateResponse};
use svc_ids::{DocumentId, PredicateId};

/// What stays as it is in a part of a path (RFC 3986, section 2.3).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The IRI of a document that has none of its own.
pub fn document_iri(base: &str, id: DocumentId) -> String {
    format!("{base}document/{id}")
}

/// The document that an IRI of this store names.
pub fn document(base: &str, iri: &str) -> Option<DocumentId> {
    let id = iri.strip_prefix(base)?.strip_prefix("document/")?;
    // `+7` and `007` are other IRIs.
    let id: i64 = id.parse().ok().filter(|number: &i64| number.to_string() == id)?;
    Some(DocumentId(id))
}

/// The IRI of a predicate that has none of its own.
pub fn derived_iri(base: &str, namespace: &str, name: &str) -> String {
    format!("{}{namespace}/{}", derived(base), utf8_percent_encode(name, UNRESERVED))
}

/// What the derived IRIs of predicates begin with.
fn derived(base: &str) -> String {
    format!("{base}predicate/")
}

/// The namespace and the name in an IRI that is derived from them.
pub fn of_derived(base: &str, iri: &str) -> Option<(String, String)> {
    let (namespace, name) = iri.strip_prefix(&derived(base))?.split_once('/')?;
    Some((namespace.to_owned(), percent_decode_str(name).decode_utf8_lossy().into_owned()))
}

/// A predicate as it is shown.
pub fn shown(base: &str, row: PredicateRow) -> PredicateResponse {
    PredicateResponse {
        iri: row.iri.unwrap_or_else(|| derived_iri(base, &row.namespace, &row.name)),
        id: row.id.0,
        namespace: row.namespace,
        name: row.name,
        label: row.label,
        description: row.description,
        functional: row.is_functional,
        inverse_functional: row.is_inverse_functional,
        symmetric: row.is_symmetric,
        asymmetric: row.is_asymmetric,
        transitive: row.is_transitive,
        irreflexive: row.is_irreflexive,
        inverse_of: row.inverse_of,
        sub_property_of: row.sub_property_of,
        disjoint_with: row.disjoint_with,
        ontology_id: row.ontology_id.map(|id| id.0),
        created_at: row.created_at,
        updated_at: row.updated_at,
    }
}

/// Finds the predicates with these names, each `namespace:name`, a name of the namespace `default`, or an IRI. What is missing is not
/// in the answer.
pub async fn resolve<'a>(
    conn: &mut PgConnection,
    scope: &Readable,
    base: &str,
    names: &[&'a str],
) -> Result<HashMap<&'a str, PredicateId>, Failure> {
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let read: Vec<Reading<'_>> = names.iter().map(|name| Reading::of(base, name)).collect();
    let named: Vec<Named<'_>> = read
        .iter()
        .map(|reading| Named {
            name: Some((reading.namespace.as_str(), reading.name.as_str())),
            iri: reading.whole,
            is_derived: reading.is_derived,
        })
        .collect();
    let found = predicates::resolve(conn, scope, &named).await.or_fail()?;
    let name = |at: i64| usize::try_from(at - 1).ok().and_then(|at| names.get(at).copied());
    Ok(found.into_iter().filter_map(|(at, id)| Some((name(at)?, id))).collect())
}

/// How a name can be read.
struct Reading<'a> {
    namespace: String,
    name: String,
    whole: &'a str,
    is_derived: bool,
}

impl Reading<'_> {
    fn of<'a>(base: &str, whole: &'a str) -> Reading<'a> {
        let derived = of_derived(base, whole);
        let is_derived = derived.is_some();
        let (namespace, name) = match (derived, whole.split_once(':')) {
            (Some(derived), _) => derived,
            (None, Some((namespace, name))) => (namespace.to_owned(), name.to_owned()),
            (None, None) => (DEFAULT_NAMESPACE.to_owned(), whole.to_owned()),
        };
        Reading { namespace, name, whole, is_derived }
    }
}

/// 422: a request names a predicate that does not exist.
pub fn no_predicate(field: &str, name: &str) -> Failure {
    let shown: String = name.chars().take(200).collect();
    Failure::field(field, format!("there is no predicate `{shown}`"))
        .with("remedy", "create it by POST /triples/predicates")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_by_the_iri_that_it_is_written_with_and_by_no_other() {
        for base in ["urn:svc:", "https://store.example/"] {
            assert_eq!(document(base, &document_iri(base, DocumentId(17))), Some(DocumentId(17)));
            for other in [
                "document/017",
                "document/+17",
                "document/",
                "document/1/2",
                "documents/1",
                "document/99999999999999999999",
            ] {
                assert_eq!(document(base, &format!("{base}{other}")), None, "{other}");
            }
            assert_eq!(document(base, "http://elsewhere/document/17"), None);
        }
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for (whole, namespace, name) in [
            ("author", "default", "author"),
            ("dc:author", "dc", "author"),
            ("dc:a:b", "dc", "a:b"),
            ("urn:svc:predicate/dc/is%20in%2F%C3%A4", "dc", "is in/ä"),
            ("https://schema.org/author", "https", "//schema.org/author"),
        ] {
            let reading = Reading::of("urn:svc:", whole);
            assert_eq!((reading.namespace.as_str(), reading.name.as_str(), reading.whole), (namespace, name, whole));
        }
        let iri = derived_iri("urn:svc:", "dc", "is in/ä");
        assert_eq!(iri, "urn:svc:predicate/dc/is%20in%2F%C3%A4");
        let reading = Reading::of("urn:svc:", &iri);
        assert_eq!((reading.namespace.as_str(), reading.name.as_str(), reading.is_derived), ("dc", "is in/ä", true));
        assert!(!Reading::of("urn:svc:", "dc:author").is_derived);
    }
}
