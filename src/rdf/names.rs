//! How documents and predicates are named in RDF, and how what comes from RDF is named here.
use super::reading::{Graph, Node, Object};
use percent_encoding::percent_decode_str;
use std::collections::HashMap;
use svc_client::constraint::as_title;

const RDFS_LABEL: &str = "http://www.w3.org/2000/01/rdf-schema#label";
/// The namespace of a predicate whose IRI has no known one.
const IMPORTED: &str = "imported";
const NAMESPACE_CHARS: usize = 100;
const NAME_CHARS: usize = 200;

/// Prefixes that mean the same everywhere.
const WELL_KNOWN: &[(&str, &str)] = &[
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("owl", "http://www.w3.org/2002/07/owl#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
    ("sh", "http://www.w3.org/ns/shacl#"),
    ("skos", "http://www.w3.org/2004/02/skos/core#"),
    ("prov", "http://www.w3.org/ns/prov#"),
    ("foaf", "http://xmlns.com/foaf/0.1/"),
    ("dc", "http://purl.org/dc/elements/1.1/"),
    ("dcterms", "http://purl.org/dc/terms/"),
    ("schema", "https://schema.org/"),
];

/// The prefixes under which Turtle is written.
pub fn written_prefixes() -> impl Iterator<Item = (&'static str, &'static str)> {
    WELL_KNOWN.iter().copied()
}

/// The IRI of the document at the top that gets the new nodes of one caller's imports.
pub fn entities(base: &str, principal: Option<i64>) -> String {
    match principal {
        None => format!("{base}entities"),
        Some(principal) => format!("{base}entities/{principal}"),
    }
}

/// The IRI of the document that gets the entities which texts with one guard speak of.
pub fn entities_of_zone(base: &str, zone: i64) -> String {
    format!("{base}entities/of/{zone}")
}

/// The zone whose entities lie under the document with this IRI, if it is such a one.
pub fn zone_of_entities(base: &str, iri: &str) -> Option<i64> {
    iri.strip_prefix(base)?.strip_prefix("entities/of/")?.parse().ok()
}

/// Whether an IRI is one of those by which the service finds the documents that hold entities. A node of a graph that took one would get what
/// others import.
pub fn is_reserved(base: &str, iri: &str) -> bool {
    let rest = iri.strip_prefix(base).and_then(|rest| rest.strip_prefix("entities"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The IRI of a blank node.
pub fn of_blank(base: &str, import: &str, label: &str) -> String {
    format!("{base}genid/{import}/{label}")
}

/// What the nodes of a graph are called: by their first label, by English and untagged ones before others.
pub fn titles(graph: &Graph) -> Vec<String> {
    let label = graph.predicates.iter().position(|iri| iri == RDFS_LABEL);
    let mut labels: HashMap<usize, (bool, &str)> = HashMap::new();
    for triple in graph.triples.iter().filter(|triple| Some(triple.predicate) == label) {
        let Object::Literal { value, language, .. } = &triple.object else { continue };
        let is_foreign = language.as_deref().is_some_and(|tag| !tag.to_ascii_lowercase().starts_with("en"));
        if value.chars().all(|c| c.is_whitespace() || c.is_control()) {
            continue;
        }
        let known = labels.entry(triple.subject).or_insert((is_foreign, value));
        if known.0 && !is_foreign {
            *known = (false, value);
        }
    }
    let title = |(position, node): (usize, &Node)| {
        let title = match (labels.get(&position), node) {
            (Some((_, label)), _) => label.trim().to_owned(),
            (None, Node::Iri(iri)) => local(iri),
            (None, Node::Blank(label)) => format!("_:{label}"),
        };
        as_title(&title)
    };
    graph.nodes.iter().enumerate().map(title).collect()
}

/// The last part of an IRI that says something.
fn local(iri: &str) -> String {
    let part = iri.split(['/', '#', ':', '?']).rev().find(|part| !part.trim().is_empty()).unwrap_or(iri);
    let decoded = percent_decode_str(part).decode_utf8_lossy().replace('\0', "");
    // A title of nothing but control characters would be empty.
    if as_title(&decoded).is_empty() { iri.to_owned() } else { decoded }
}

/// The namespace and the name that a new predicate gets.
pub fn of_predicate(iri: &str, prefixes: &[(String, String)]) -> (String, String) {
    let is_word = |prefix: &str| {
        (1..=NAMESPACE_CHARS).contains(&prefix.len())
            && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let declared = prefixes.iter().map(|(prefix, stands_for)| (prefix.as_str(), stands_for.as_str()));
    let known = WELL_KNOWN.iter().copied().chain(declared).filter_map(|(prefix, stands_for)| {
        let name = iri.strip_prefix(stands_for).filter(|name| !name.trim().is_empty())?;
        is_word(prefix).then_some((prefix, name))
    });
    // The longest namespace says most; among equal ones the well-known prefix comes first.
    let best = known.reduce(|best, other| if other.1.len() < best.1.len() { other } else { best });
    let best = best.map(|(prefix, name)| (prefix, percent_decode_str(name).decode_utf8_lossy().replace('\0', "")));
    // Other names would read as IRIs.
    let best = best.filter(|(prefix, name)| !prefix.eq_ignore_ascii_case("urn") && !name.starts_with("//"));
    let (namespace, name) = match best {
        Some((prefix, name)) => (prefix.to_owned(), name),
        None => (IMPORTED.to_owned(), local(iri)),
    };
    (namespace, name.chars().take(NAME_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdf::reading::read;
    use svc_client::RdfSyntax;

    #[test]
    fn a_predicate_is_named_by_the_closest_prefix() {
        let declared = [
            ("ex".to_owned(), "http://example.org/".to_owned()),
            ("exv".to_owned(), "http://example.org/v#".to_owned()),
            ("über".to_owned(), "http://u/".to_owned()),
            ("https".to_owned(), "http://evil/".to_owned()),
            ("URN".to_owned(), "http://other/".to_owned()),
        ];
        for (iri, namespace, name) in [
            ("http://xmlns.com/foaf/0.1/knows", "foaf", "knows"),
            ("http://example.org/a/b", "ex", "a/b"),
            ("http://example.org/v#is%20in", "exv", "is in"),
            ("http://u/x", "imported", "x"),
            ("http://elsewhere/vocabulary/", "imported", "vocabulary"),
            ("urn:x", "imported", "x"),
            ("http://evil///schema.org/author", "imported", "author"),
            ("http://evil/%2F%2Fschema.org/author", "imported", "author"),
            ("http://evil/", "imported", "evil"),
            ("http://other/x", "imported", "x"),
        ] {
            assert_eq!(of_predicate(iri, &declared), (namespace.to_owned(), name.to_owned()), "{iri}");
        }
    }

    #[test]
    fn a_node_is_called_by_its_label() {
        let text = "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
            <http://e/a> rdfs:label 'Hund'@de, ' Big\\n \\u001b[2JDog'@en , 'Cur' . <http://e/b> rdfs:label ' ' . <http://e/c%20d/> rdfs:seeAlso _:x .
            <http://e/%01> rdfs:seeAlso _:x .";
        let graph = read(text, RdfSyntax::Turtle, None, 100).unwrap();
        let called = titles(&graph);
        let title = |iri: &str| {
            let position = graph.nodes.iter().position(|node| *node == Node::Iri(iri.to_owned())).unwrap();
            called[position].clone()
        };
        assert_eq!(title("http://e/a"), "Big [2JDog");
        assert_eq!(title("http://e/b"), "b");
        assert_eq!(title("http://e/c%20d/"), "c d");
        assert_eq!(title("http://e/%01"), "http://e/%01");
        assert!(called[3].starts_with("_:"), "{called:?}");
    }
}
