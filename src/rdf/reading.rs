//! Reads a text as a graph: its nodes and predicates, each once, and its triples over them.
use chrono::{DateTime, Utc};
use oxrdf::{NamedOrBlankNode, Term as OxTerm};
use oxttl::{NTriplesParser, TurtleParser, TurtleSyntaxError};
use std::collections::{HashMap, HashSet};
use svc_client::{
    Code, Failure, RdfSyntax,
    wire::{FactType, LITERAL_BYTES},
};

/// The most bytes of an IRI.
const IRI_BYTES: usize = 2048;
/// The most bytes of the label of a blank node: with the longest base and the name of an import it still makes an IRI.
const LABEL_BYTES: usize = 900;
/// The most bytes of the names and literals of a triple, on average. A prefix makes them longer than the text.
const TRIPLE_BYTES: usize = 1024;
/// The most bytes of the tag of a language.
const LANGUAGE_BYTES: usize = 100;

/// What a triple may be about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    Iri(String),
    /// By its label, which means something in its text only.
    Blank(String),
}

/// What a triple leads to: a node by its position, or a literal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    Node(usize),
    Literal { value: String, datatype: String, language: Option<String> },
}

/// A triple; subject and predicate by their positions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Triple {
    pub subject: usize,
    pub predicate: usize,
    pub object: Object,
    /// When it holds, if the text has a history that says so.
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    /// The document that states it, by its position, and whether it may go stale, if a history says so.
    pub source: Option<usize>,
    pub fact_type: Option<FactType>,
    /// The documents of the store that the history is of, if it names them.
    pub ids: Ids,
}

impl Triple {
    /// A triple of which nothing is told beside itself.
    pub fn plain(subject: usize, predicate: usize, object: Object) -> Triple {
        Triple {
            subject,
            predicate,
            object,
            valid_from: None,
            valid_until: None,
            source: None,
            fact_type: None,
            ids: Ids::default(),
        }
    }
}

/// Documents by their ids in another store: one IRI may stand for a document in each of many closed places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ids {
    pub subject: Option<i64>,
    pub object: Option<i64>,
    /// Those that state the fact, the one that stated it first at the beginning.
    pub sources: Vec<i64>,
}

/// A graph, in the order of its text.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub predicates: Vec<String>,
    pub triples: Vec<Triple>,
    /// The prefixes that the text declares, with what they stand for.
    pub prefixes: Vec<(String, String)>,
}

/// Gives equal values one position, by the order in which they come.
struct Positions<T>(HashMap<T, usize>);

impl<T: Eq + std::hash::Hash> Positions<T> {
    fn of(&mut self, value: T) -> usize {
        let next = self.0.len();
        *self.0.entry(value).or_insert(next)
    }

    fn into_values(self) -> Vec<T> {
        let mut values: Vec<(T, usize)> = self.0.into_iter().collect();
        values.sort_unstable_by_key(|(_, position)| *position);
        values.into_iter().map(|(value, _)| value).collect()
    }
}

/// What is left of the bytes that a graph may have.
struct Budget {
    left: usize,
    most: usize,
}

impl Budget {
    fn take(&mut self, text: &str) -> Result<(), Failure> {
        self.left = self.left.checked_sub(text.len()).ok_or_else(|| {
            let detail = format!("the names and literals of the graph have more than {} bytes", self.most);
            let failure = Failure::new(Code::TooLarge, detail).with("limit", self.most);
            failure.with("remedy", "send it in parts under one name in `import`, as `svc rdf import` does")
        })?;
        Ok(())
    }
}

/// Reads a text with at most `most` triples. `base` is the IRI that relative ones are resolved against.
pub fn read(text: &str, syntax: RdfSyntax, base: Option<&str>, most: usize) -> Result<Graph, Failure> {
    let (mut nodes, mut predicates) = (Positions(HashMap::new()), Positions(HashMap::new()));
    let bytes = most.saturating_mul(TRIPLE_BYTES).max(1 << 20);
    let mut budget = Budget { left: bytes, most: bytes };
    let (mut triples, mut seen) = (Vec::new(), HashSet::new());
    let mut add = |triple: oxrdf::Triple| {
        let subject = match triple.subject {
            NamedOrBlankNode::NamedNode(node) => Node::Iri(iri(node.into_string(), &mut budget)?),
            NamedOrBlankNode::BlankNode(node) => Node::Blank(label(node.into_string(), &mut budget)?),
        };
        let subject = nodes.of(subject);
        let predicate = predicates.of(iri(triple.predicate.into_string(), &mut budget)?);
        let object = match triple.object {
            OxTerm::NamedNode(node) => Object::Node(nodes.of(Node::Iri(iri(node.into_string(), &mut budget)?))),
            OxTerm::BlankNode(node) => Object::Node(nodes.of(Node::Blank(label(node.into_string(), &mut budget)?))),
            OxTerm::Literal(literal) => {
                let (value, datatype, language) = literal.destruct();
                let datatype = match (&datatype, &language) {
                    (Some(datatype), _) => datatype.as_str(),
                    (None, Some(_)) => oxrdf::vocab::rdf::LANG_STRING.as_str(),
                    (None, None) => oxrdf::vocab::xsd::STRING.as_str(),
                };
                short_enough("a literal", &value, LITERAL_BYTES)?;
                short_enough("the tag of a language", language.as_deref().unwrap_or_default(), LANGUAGE_BYTES)?;
                budget.take(&value)?;
                Object::Literal { datatype: iri(datatype.to_owned(), &mut budget)?, value, language }
            }
        };
        let triple = Triple::plain(subject, predicate, object);
        if seen.insert(triple.clone()) {
            if triples.len() == most {
                let detail = format!("the text has more than {most} triples");
                let failure = Failure::new(Code::TooLarge, detail).with("limit", most);
                let remedy = "send it in parts under one name in `import`, as `svc rdf import` does";
                return Err(failure.with("setting", "SVC_RDF_MAX_TRIPLES").with("remedy", remedy));
            }
            triples.push(triple);
        }
        Ok(())
    };
    let mut prefixes = Vec::new();
    match syntax {
        RdfSyntax::Turtle => {
            let mut parser = TurtleParser::new();
            if let Some(base) = base {
                parser = parser.with_base_iri(base).map_err(|error| Failure::field("base", error))?;
            }
            let mut read = parser.for_slice(text.as_bytes());
            for triple in read.by_ref() {
                add(triple.map_err(|error| no_rdf(&error))?)?;
            }
            prefixes.extend(read.prefixes().map(|(prefix, iri)| (prefix.to_owned(), iri.to_owned())));
        }
        RdfSyntax::NTriples => {
            for triple in NTriplesParser::new().for_slice(text.as_bytes()) {
                add(triple.map_err(|error| no_rdf(&error))?)?;
            }
        }
    }
    Ok(Graph { nodes: nodes.into_values(), predicates: predicates.into_values(), triples, prefixes })
}

/// 422: where the text breaks the grammar.
fn no_rdf(error: &TurtleSyntaxError) -> Failure {
    let start = error.location().start;
    let (line, column) = (start.line + 1, start.column + 1);
    let detail = format!("line {line}, column {column}: {}", error.message());
    Failure::new(Code::InvalidField, detail).with("line", line).with("column", column)
}

fn iri(iri: String, budget: &mut Budget) -> Result<String, Failure> {
    short_enough("an IRI", &iri, IRI_BYTES)?;
    budget.take(&iri)?;
    Ok(iri)
}

fn label(label: String, budget: &mut Budget) -> Result<String, Failure> {
    short_enough("the label of a blank node", &label, LABEL_BYTES)?;
    budget.take(&label)?;
    Ok(label)
}

fn short_enough(what: &str, text: &str, most: usize) -> Result<(), Failure> {
    if text.len() > most {
        let shown: String = text.chars().take(100).collect();
        let detail = format!("{what} has {} bytes, and at most {most} are kept: {shown}", text.len());
        return Err(Failure::new(Code::InvalidField, detail).with("limit", most));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turtle(text: &str) -> Result<Graph, Failure> {
        read(text, RdfSyntax::Turtle, Some("http://example.org/"), 100)
    }

    #[test]
    fn each_node_predicate_and_triple_of_a_text_is_there_once() {
        let graph = turtle(
            "@prefix foaf: <http://foaf/> . <a> foaf:knows <b>, <b>, [ foaf:name 'C'@en ] . <b> foaf:knows <a> .",
        )
        .unwrap();
        let iri = |name: &str| Node::Iri(format!("http://example.org/{name}"));
        assert_eq!((&graph.nodes[0], &graph.nodes[1]), (&iri("a"), &iri("b")));
        assert_eq!(graph.nodes.len(), 3);
        assert!(matches!(&graph.nodes[2], Node::Blank(_)));
        assert_eq!(graph.predicates, ["http://foaf/knows", "http://foaf/name"]);
        assert_eq!(graph.prefixes, [("foaf".to_owned(), "http://foaf/".to_owned())]);
        assert_eq!(graph.triples.len(), 4);
        let datatype = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString".to_owned();
        let named = Object::Literal { value: "C".to_owned(), datatype, language: Some("en".to_owned()) };
        assert!(graph.triples.iter().any(|triple| triple.object == named));
    }

    #[test]
    fn what_is_no_turtle_or_too_large_is_refused_by_line_and_limit() {
        let refused = turtle("<a> <b> <c> .\n<a> <b> .").unwrap_err();
        assert_eq!((refused.status, refused.members["line"].as_u64()), (422, Some(2)), "{}", refused.detail);
        for (text, says) in [
            (format!("<a> <b> '{}' .", "x".repeat(LITERAL_BYTES + 1)), "a literal has 65537 bytes"),
            (format!("<a> <{}> 1 .", "x".repeat(IRI_BYTES)), "an IRI has 2067 bytes"),
            (format!("_:{} <b> 1 .", "x".repeat(LABEL_BYTES + 1)), "the label of a blank node has 901 bytes"),
            (format!("<a> <b> _:{} .", "x".repeat(LABEL_BYTES + 1)), "the label of a blank node has 901 bytes"),
            ("<<( <a> <b> <c> )>> <d> <e> .".to_owned(), "line 1, column"),
        ] {
            let refused = turtle(&text).unwrap_err();
            assert!(refused.status == 422 && refused.detail.contains(says), "{}", refused.detail);
        }
        let many: String = (0..101).map(|number| format!("<a> <b> {number} .\n")).collect();
        let refused = turtle(&many).unwrap_err();
        assert_eq!((refused.status, refused.members["limit"].as_u64()), (413, Some(100)));
        // A long prefix makes a small text a large graph.
        let prefix = format!("@prefix p: <http://example.org/{}> .", "x".repeat(2000));
        let many: String = (0..400).map(|number| format!("p:{number} p:p p:o{number} .\n")).collect();
        let refused = read(&format!("{prefix}{many}"), RdfSyntax::Turtle, None, 500).unwrap_err();
        assert!(refused.status == 413 && refused.detail.contains("names and literals"), "{}", refused.detail);
        let refused = read("<a> <b> <c> .", RdfSyntax::Turtle, None, 100).unwrap_err();
        assert!(refused.detail.contains("line 1"), "{}", refused.detail);
    }

    #[test]
    fn a_deep_text_needs_no_deep_stack() {
        let depth = 100_000;
        let text = format!("<a> <b> {}{} .", "(".repeat(depth), ")".repeat(depth));
        let refused = turtle(&text).unwrap_err();
        assert_eq!(refused.status, 413, "{}", refused.detail);
    }
}
