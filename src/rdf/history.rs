//! Facts with their times in RDF: each is described as an `rdf:Statement`. A plain triple would say that it holds always.
use super::{
    reading::{Graph, Ids, Node, Object, Triple as Read},
    writing::moment,
};
use chrono::{DateTime, Utc};
use oxrdf::{
    Literal, NamedNode, Term, Triple,
    vocab::{rdf, xsd},
};
use std::collections::{BTreeMap, HashMap, HashSet};
use svc_client::{Code, Failure, constraint::Constraint, wire::FactType};

/// What the terms of a history begin with.
pub const NAMESPACE: &str = "urn:svc:history#";
const STATEMENT: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#Statement";

fn term(name: &str) -> NamedNode {
    NamedNode::new_unchecked(format!("{NAMESPACE}{name}"))
}

/// What is told of a fact beside itself.
pub struct Told {
    pub statement: NamedNode,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub recorded_at: DateTime<Utc>,
    pub invalidated_at: Option<DateTime<Utc>>,
    pub derived_by: Option<String>,
    pub source: Option<NamedNode>,
    pub fact_type: FactType,
    pub ids: Ids,
}

impl Told {
    /// Whether the fact alone says all that an import takes of it. What a document states is as closed as the document, so that it does
    /// not stand there without it.
    pub fn is_plain(&self) -> bool {
        self.valid_from.or(self.valid_until).or(self.invalidated_at).is_none()
            && self.derived_by.is_none()
            && self.source.is_none()
    }

    /// The triples that describe a fact.
    pub fn triples(self, fact: Triple) -> Vec<Triple> {
        let Told {
            statement,
            valid_from,
            valid_until,
            recorded_at,
            invalidated_at,
            derived_by,
            source,
            fact_type,
            ids,
        } = self;
        let time = |time: DateTime<Utc>| Term::from(Literal::new_typed_literal(moment(time), xsd::DATE_TIME));
        let number = |id: i64| Term::from(Literal::from(id));
        let all = [
            (rdf::TYPE.into_owned(), Some(rdf::STATEMENT.into_owned().into())),
            (rdf::SUBJECT.into_owned(), Some(fact.subject.into())),
            (rdf::PREDICATE.into_owned(), Some(fact.predicate.into())),
            (rdf::OBJECT.into_owned(), Some(fact.object)),
            (term("validFrom"), valid_from.map(time)),
            (term("validUntil"), valid_until.map(time)),
            (term("recordedAt"), Some(time(recorded_at))),
            (term("invalidatedAt"), invalidated_at.map(time)),
            (term("derivedBy"), derived_by.map(|rule| Literal::new_simple_literal(rule).into())),
            (term("source"), source.map(Term::from)),
            (term("factType"), Some(Literal::new_simple_literal(fact_type.as_str()).into())),
            (term("subjectId"), ids.subject.map(number)),
            (term("objectId"), ids.object.map(number)),
        ];
        let stated = ids.sources.into_iter().map(|id| (term("sourceId"), Some(number(id))));
        let triple = |(predicate, object): (NamedNode, Option<Term>)| {
            object.map(|object| Triple::new(statement.clone(), predicate, object))
        };
        all.into_iter().chain(stated).filter_map(triple).collect()
    }
}

/// What a graph says of one fact.
#[derive(Default)]
struct Described {
    is_history: bool,
    is_statement: bool,
    subject: Vec<Object>,
    predicate: Vec<Object>,
    object: Vec<Object>,
    valid_from: Vec<Object>,
    valid_until: Vec<Object>,
    source: Vec<Object>,
    fact_type: Vec<Object>,
    subject_id: Vec<Object>,
    object_id: Vec<Object>,
    source_id: Vec<Object>,
    is_left_out: bool,
}

/// A graph whose history was unfolded.
pub struct Unfolded {
    pub graph: Graph,
    /// How many facts of the history were no longer believed, or derived.
    pub left_out: u32,
}

/// The graph with the facts that its history describes in place of their descriptions: those that were believed and asserted, each with the times
/// at which it holds.
pub fn unfold(graph: Graph) -> Result<Unfolded, Failure> {
    let mut told: BTreeMap<usize, Described> = BTreeMap::new();
    for triple in &graph.triples {
        let predicate = graph.predicates[triple.predicate].as_str();
        let named = predicate.strip_prefix(NAMESPACE);
        let part = predicate.strip_prefix("http://www.w3.org/1999/02/22-rdf-syntax-ns#");
        if named.is_none() && !matches!(part, Some("type" | "subject" | "predicate" | "object")) {
            continue;
        }
        let described = told.entry(triple.subject).or_default();
        let object = triple.object.clone();
        described.is_history |= named.is_some();
        match (named, part) {
            (Some("validFrom"), _) => described.valid_from.push(object),
            (Some("validUntil"), _) => described.valid_until.push(object),
            (Some("source"), _) => described.source.push(object),
            (Some("factType"), _) => described.fact_type.push(object),
            (Some("subjectId"), _) => described.subject_id.push(object),
            (Some("objectId"), _) => described.object_id.push(object),
            (Some("sourceId"), _) => described.source_id.push(object),
            (Some("derivedBy" | "invalidatedAt"), _) => described.is_left_out = true,
            (_, Some("subject")) => described.subject.push(object),
            (_, Some("predicate")) => described.predicate.push(object),
            (_, Some("object")) => described.object.push(object),
            (_, Some("type")) => described.is_statement |= is_named(&graph, &object, STATEMENT),
            _ => {}
        }
    }
    told.retain(|_, described| described.is_history && described.is_statement);
    let is_term = |predicate: &str| predicate.starts_with(NAMESPACE);
    if !graph.predicates.iter().any(|predicate| is_term(predicate)) {
        return Ok(Unfolded { graph, left_out: 0 });
    }
    let mut left_out = 0;
    let mut made = Unfolding { from: &graph, to: Graph::default(), nodes: HashMap::new(), predicates: HashMap::new() };
    made.to.prefixes.clone_from(&graph.prefixes);
    for triple in graph.triples.iter().filter(|triple| !told.contains_key(&triple.subject)) {
        let predicate = &graph.predicates[triple.predicate];
        // A term of a history tells of statements alone: of anything else it is no fact.
        if !is_term(predicate) {
            made.add(triple.subject, predicate, &triple.object, Manner::default());
        }
    }
    for (at, described) in &told {
        let only = |name: &str, values: &[Object]| match values {
            [value] => Ok(value.clone()),
            _ => Err(faulty(&graph, *at, &format!("needs one {name}, and has {}", values.len()))),
        };
        let node = |name: &str, values: &[Object]| match only(name, values)? {
            Object::Node(node) => Ok(node),
            Object::Literal { .. } => Err(faulty(&graph, *at, &format!("has a literal as its {name}"))),
        };
        let subject = node("rdf:subject", &described.subject)?;
        let predicate = match &graph.nodes[node("rdf:predicate", &described.predicate)?] {
            Node::Iri(iri) => iri.clone(),
            Node::Blank(_) => return Err(faulty(&graph, *at, "has a blank node as its rdf:predicate")),
        };
        let object = only("rdf:object", &described.object)?;
        let time = |name: &str, values: &[Object]| match values {
            [] => Ok(None),
            values => match only(name, values)? {
                Object::Literal { value, .. } => {
                    let time = value.parse::<DateTime<Utc>>().ok();
                    let time = time.filter(|time| Constraint::Moment.check(name, time).is_ok());
                    let reason = || format!("has a {name} that is no time by RFC 3339 in the years -4711 to 9999");
                    time.map(Some).ok_or_else(|| faulty(&graph, *at, &reason()))
                }
                Object::Node(_) => Err(faulty(&graph, *at, &format!("has a {name} that is no literal"))),
            },
        };
        let from = time("svc:validFrom", &described.valid_from)?;
        let until = time("svc:validUntil", &described.valid_until)?;
        if from.zip(until).is_some_and(|(from, until)| from.timestamp_micros() >= until.timestamp_micros()) {
            return Err(faulty(&graph, *at, "has a svc:validUntil that is not after its svc:validFrom"));
        }
        let source = match &described.source[..] {
            [] => None,
            values => Some(node("svc:source", values)?),
        };
        let fact_type = match &described.fact_type[..] {
            [] => None,
            values => match only("svc:factType", values)? {
                Object::Literal { value, .. } => match value.parse::<FactType>() {
                    Ok(fact_type) => Some(fact_type),
                    Err(_) => return Err(faulty(&graph, *at, "has a svc:factType that is no word of facts")),
                },
                Object::Node(_) => return Err(faulty(&graph, *at, "has a svc:factType that is no literal")),
            },
        };
        if fact_type == Some(FactType::Atemporal) && from.or(until).is_some() {
            return Err(faulty(&graph, *at, "holds at a time, and is said to be atemporal"));
        }
        let id = |name: &str, value: &Object| {
            let id = match value {
                Object::Literal { value, .. } => value.parse::<i64>().ok(),
                Object::Node(_) => None,
            };
            id.ok_or_else(|| faulty(&graph, *at, &format!("has a {name} that is no whole number")))
        };
        let only_id = |name: &str, values: &[Object]| match values {
            [] => Ok(None),
            values => id(name, &only(name, values)?).map(Some),
        };
        let ids = Ids {
            subject: only_id("svc:subjectId", &described.subject_id)?,
            object: only_id("svc:objectId", &described.object_id)?,
            sources: described.source_id.iter().map(|value| id("svc:sourceId", value)).collect::<Result<_, _>>()?,
        };
        match described.is_left_out {
            true => left_out += 1,
            false => made.add(subject, &predicate, &object, Manner { from, until, source, fact_type, ids }),
        }
    }
    // What holds at all times and is no document's stands there as a triple too.
    let Graph { nodes, predicates, mut triples, prefixes } = made.to;
    let has_time = |triple: &Read| triple.valid_from.or(triple.valid_until).is_some();
    let is_told = |triple: &Read| triple.fact_type.is_some() && triple.source.is_none() && !has_time(triple);
    let told: HashSet<Read> = triples.iter().filter(|triple| is_told(triple)).map(plain).collect();
    triples.retain(|triple| !told.contains(triple));
    Ok(Unfolded { graph: Graph { nodes, predicates, triples, prefixes }, left_out })
}

/// A fact without anything that is told of it.
fn plain(triple: &Read) -> Read {
    Read::plain(triple.subject, triple.predicate, triple.object.clone())
}

/// What a history tells of a fact that is taken.
#[derive(Default)]
struct Manner {
    from: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
    source: Option<usize>,
    fact_type: Option<FactType>,
    ids: Ids,
}

fn is_named(graph: &Graph, object: &Object, iri: &str) -> bool {
    matches!(object, Object::Node(node) if matches!(&graph.nodes[*node], Node::Iri(known) if known == iri))
}

/// 422: what is wrong with the description of a fact.
fn faulty(graph: &Graph, at: usize, why: &str) -> Failure {
    let name = match &graph.nodes[at] {
        Node::Iri(iri) => format!("<{iri}>"),
        Node::Blank(label) => format!("_:{label}"),
    };
    Failure::new(Code::InvalidField, format!("the statement {name} of the history {why}"))
}

/// A graph on its way, with the positions that nodes and predicates have in it.
struct Unfolding<'a> {
    from: &'a Graph,
    to: Graph,
    nodes: HashMap<usize, usize>,
    predicates: HashMap<String, usize>,
}

impl Unfolding<'_> {
    fn node(&mut self, old: usize) -> usize {
        *self.nodes.entry(old).or_insert_with(|| {
            self.to.nodes.push(self.from.nodes[old].clone());
            self.to.nodes.len() - 1
        })
    }

    fn add(&mut self, subject: usize, predicate: &str, object: &Object, manner: Manner) {
        let Manner { from: valid_from, until: valid_until, source, fact_type, ids } = manner;
        let subject = self.node(subject);
        let source = source.map(|source| self.node(source));
        let object = match object {
            Object::Node(node) => Object::Node(self.node(*node)),
            literal @ Object::Literal { .. } => literal.clone(),
        };
        let predicate = *self.predicates.entry(predicate.to_owned()).or_insert_with(|| {
            self.to.predicates.push(predicate.to_owned());
            self.to.predicates.len() - 1
        });
        self.to.triples.push(Read { subject, predicate, object, valid_from, valid_until, source, fact_type, ids });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdf::reading;
    use svc_client::RdfSyntax;

    #[test]
    fn what_a_history_tells_of_no_statement_becomes_no_fact() {
        let text = "@prefix svc: <urn:svc:history#> . <urn:svc:triple/9> svc:sourceId 17, 18 . <http://e/a> <http://e/p> 1 ; svc:note <http://e/b> .";
        let read = reading::read(text, RdfSyntax::Turtle, None, 100).unwrap();
        assert_eq!(read.triples.len(), 4);
        let graph = unfold(read).unwrap().graph;
        assert_eq!((graph.triples.len(), &graph.predicates[..]), (1, &["http://e/p".to_owned()][..]));
        assert!(matches!(&graph.nodes[..], [Node::Iri(iri)] if iri == "http://e/a"), "{:?}", graph.nodes);
    }
}
