//! What an ontology says: of classes, of predicates, of individuals, and by which shapes. The vocabularies are RDF Schema, OWL 2 and SHACL;
//! what of these says nothing to the service is counted.
use super::{
    reading::{Graph, Node, Object, Triple},
    shapes::{SH, indexed::Indexed},
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use svc_client::{Code, Failure};

const RDF: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
const RDFS: &str = "http://www.w3.org/2000/01/rdf-schema#";
const OWL: &str = "http://www.w3.org/2002/07/owl#";
const TITLES: [&str; 4] = [
    "http://purl.org/dc/terms/title",
    "http://purl.org/dc/elements/1.1/title",
    "http://www.w3.org/2000/01/rdf-schema#label",
    "http://www.w3.org/2004/02/skos/core#prefLabel",
];
/// The most characters of a title and a label, and of a description.
const LABEL_CHARS: usize = 1_000;
const DESCRIPTION_CHARS: usize = 10_000;
/// The most domains of a predicate, and the most ranges.
const ENDS: usize = 100;
/// The most different terms that are counted.
const COUNTED: usize = 1_000;

/// What was read from the text of an ontology.
#[derive(Debug, Default)]
pub struct Ontology {
    /// The IRI that it gives itself.
    pub iri: Option<String>,
    pub title: Option<String>,
    /// What it states as facts.
    pub facts: Graph,
    /// The nodes of `facts` that are classes.
    pub classes: Vec<usize>,
    pub properties: Vec<Property>,
    /// The IRIs of its shapes.
    pub shapes: Vec<String>,
    /// What says nothing to the service, by predicate or class, with the number of triples.
    pub not_used: BTreeMap<String, u32>,
}

impl Ontology {
    /// What says nothing to the service if nothing is used of what the ontology says of these predicates.
    pub fn without<'a>(&self, properties: impl Iterator<Item = &'a Property>) -> BTreeMap<String, u32> {
        let mut not_used = self.not_used.clone();
        for property in properties {
            for (term, times) in property.terms() {
                count(&mut not_used, &term, times);
            }
        }
        not_used
    }
}

/// A predicate as an ontology describes it; others by their IRIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Property {
    pub iri: String,
    pub label: Option<String>,
    pub description: Option<String>,
    pub functional: bool,
    pub inverse_functional: bool,
    pub symmetric: bool,
    pub asymmetric: bool,
    pub transitive: bool,
    pub irreflexive: bool,
    pub inverse_of: Option<String>,
    pub sub_property_of: BTreeSet<String>,
    pub disjoint_with: BTreeSet<String>,
    /// The classes of its subjects, and the classes or datatypes of its objects.
    pub domains: BTreeSet<String>,
    pub ranges: BTreeSet<String>,
}

impl Property {
    /// The terms in which something is said of it, with the number of triples.
    fn terms(&self) -> Vec<(String, u32)> {
        let times = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let terms = [
            (RDFS, "label", u32::from(self.label.is_some())),
            (RDFS, "comment", u32::from(self.description.is_some())),
            (OWL, "FunctionalProperty", u32::from(self.functional)),
            (OWL, "InverseFunctionalProperty", u32::from(self.inverse_functional)),
            (OWL, "SymmetricProperty", u32::from(self.symmetric)),
            (OWL, "AsymmetricProperty", u32::from(self.asymmetric)),
            (OWL, "TransitiveProperty", u32::from(self.transitive)),
            (OWL, "IrreflexiveProperty", u32::from(self.irreflexive)),
            (OWL, "inverseOf", u32::from(self.inverse_of.is_some())),
            (RDFS, "subPropertyOf", times(self.sub_property_of.len())),
            (OWL, "propertyDisjointWith", times(self.disjoint_with.len())),
            (RDFS, "domain", times(self.domains.len())),
            (RDFS, "range", times(self.ranges.len())),
        ];
        let said = terms.into_iter().filter(|(_, _, times)| *times > 0);
        said.map(|(vocabulary, word, times)| (format!("{vocabulary}{word}"), times)).collect()
    }
}

/// What a node of an ontology is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ontology,
    Class,
    Property,
    /// A shape, or what describes one.
    Shape,
    /// What describes a class or a predicate without a name, such as a restriction.
    Description,
    Individual,
}

/// A part of an IRI after the namespaces that ontologies are written in.
fn word(iri: &str) -> Option<(&'static str, &str)> {
    [(RDF, "rdf"), (RDFS, "rdfs"), (OWL, "owl")]
        .into_iter()
        .find_map(|(namespace, prefix)| iri.strip_prefix(namespace).map(|word| (prefix, word)))
}

/// The types that make a node a predicate.
fn is_property_type(iri: &str) -> bool {
    matches!(
        word(iri),
        Some((
            "owl",
            "ObjectProperty"
                | "DatatypeProperty"
                | "AnnotationProperty"
                | "FunctionalProperty"
                | "InverseFunctionalProperty"
                | "SymmetricProperty"
                | "AsymmetricProperty"
                | "TransitiveProperty"
                | "IrreflexiveProperty"
                | "ReflexiveProperty"
        )) | Some(("rdf", "Property"))
    )
}

fn is_class_type(iri: &str) -> bool {
    matches!(word(iri), Some(("rdfs" | "owl", "Class")))
}

/// Reads what an ontology says.
pub fn read(graph: Graph) -> Result<Ontology, Failure> {
    let kinds = kinds(&graph);
    let mut reading =
        Reading { graph: &graph, properties: BTreeMap::new(), ontology: Ontology::default(), kept: Vec::new() };
    for (at, triple) in graph.triples.iter().enumerate() {
        reading.read(at, triple, &kinds);
    }
    let Reading { properties, mut ontology, kept, .. } = reading;
    if let Some(property) = properties.values().find(|property| property.symmetric && property.asymmetric) {
        let detail = format!("the property <{}> is symmetric and asymmetric: no fact could have it", property.iri);
        return Err(Failure::new(Code::InvalidField, detail).with("field", "body"));
    }
    ontology.iri =
        (0..graph.nodes.len()).find(|node| kinds[*node] == Kind::Ontology).and_then(|node| iri(&graph, node));
    ontology.properties = properties.into_values().collect();
    ontology.shapes = Indexed::new(&graph).names();
    let is_class = |node: usize| kinds[node] == Kind::Class;
    let classes: Vec<usize> = (0..graph.nodes.len()).filter(|node| is_class(*node)).collect();
    (ontology.facts, ontology.classes) = part(&graph, &kept, &classes);
    Ok(ontology)
}

fn iri(graph: &Graph, node: usize) -> Option<String> {
    match &graph.nodes[node] {
        Node::Iri(iri) => Some(iri.clone()),
        Node::Blank(_) => None,
    }
}

/// What each node of a graph is.
fn kinds(graph: &Graph) -> Vec<Kind> {
    let mut kinds = vec![Kind::Individual; graph.nodes.len()];
    for shape in Indexed::new(graph).described() {
        kinds[shape] = Kind::Shape;
    }
    let is_named = |node: usize| matches!(graph.nodes[node], Node::Iri(_));
    for triple in &graph.triples {
        let Object::Node(object) = &triple.object else { continue };
        let predicate = graph.predicates[triple.predicate].as_str();
        let (subject, object_iri) = (triple.subject, iri(graph, *object).unwrap_or_default());
        match word(predicate) {
            Some(("rdf", "type")) if is_named(subject) => {
                // A class that is its own shape is a class.
                if is_class_type(&object_iri) {
                    kinds[subject] = Kind::Class;
                } else if is_property_type(&object_iri) && kinds[subject] != Kind::Class {
                    kinds[subject] = Kind::Property;
                } else if object_iri == format!("{OWL}Ontology") {
                    kinds[subject] = Kind::Ontology;
                }
            }
            Some(("rdf", "type")) if word(&object_iri).is_some_and(|(prefix, _)| prefix != "rdf") => {
                kinds[subject] = Kind::Description;
            }
            Some(("rdfs", "subClassOf")) => {
                for node in [subject, *object].into_iter().filter(|node| is_named(*node)) {
                    kinds[node] = Kind::Class;
                }
            }
            Some(("rdfs", "domain" | "range")) if is_named(subject) && kinds[subject] == Kind::Individual => {
                kinds[subject] = Kind::Property;
            }
            Some(("rdfs", "subPropertyOf") | ("owl", "inverseOf")) => {
                for node in [subject, *object].into_iter().filter(|node| is_named(*node)) {
                    kinds[node] = Kind::Property;
                }
            }
            _ => {}
        }
    }
    // What hangs on a class or a predicate without a name of its own describes it.
    let mut below: HashMap<usize, Vec<usize>> = HashMap::new();
    for triple in &graph.triples {
        if let Object::Node(object) = triple.object {
            below.entry(triple.subject).or_default().push(object);
        }
    }
    let describes = |kind: Kind| matches!(kind, Kind::Class | Kind::Property | Kind::Description | Kind::Ontology);
    let mut open: Vec<usize> = (0..graph.nodes.len()).filter(|node| describes(kinds[*node])).collect();
    let mut seen: HashSet<usize> = HashSet::new();
    while let Some(node) = open.pop() {
        for next in below.get(&node).into_iter().flatten().copied() {
            if !is_named(next) && kinds[next] != Kind::Shape && seen.insert(next) {
                kinds[next] = Kind::Description;
                open.push(next);
            }
        }
    }
    kinds
}

struct Reading<'a> {
    graph: &'a Graph,
    properties: BTreeMap<usize, Property>,
    ontology: Ontology,
    /// The positions of the triples that are facts.
    kept: Vec<usize>,
}

impl Reading<'_> {
    fn read(&mut self, at: usize, triple: &Triple, kinds: &[Kind]) {
        let predicate = self.graph.predicates[triple.predicate].as_str();
        if predicate.starts_with(SH) || kinds[triple.subject] == Kind::Shape {
            return;
        }
        let object = match &triple.object {
            Object::Node(node) => iri(self.graph, *node),
            Object::Literal { .. } => None,
        };
        let object = object.as_deref();
        if object.is_some_and(|object| object.starts_with(SH)) {
            return;
        }
        match kinds[triple.subject] {
            Kind::Individual => self.kept.push(at),
            Kind::Class => self.class(at, triple, predicate, object),
            Kind::Property => self.property(triple, predicate, object),
            Kind::Ontology => self.head(triple, predicate, object),
            Kind::Description | Kind::Shape => self.count(predicate, object),
        }
    }

    fn class(&mut self, at: usize, triple: &Triple, predicate: &str, object: Option<&str>) {
        let is_literal = matches!(triple.object, Object::Literal { .. });
        match word(predicate) {
            // To say something of a node without a name is to say nothing here.
            _ if object.is_none() && !is_literal => self.count(predicate, None),
            Some(("rdf", "type") | ("rdfs", "subClassOf" | "label" | "comment" | "seeAlso" | "isDefinedBy")) => {
                self.kept.push(at);
            }
            Some(("owl", "disjointWith")) | None => self.kept.push(at),
            Some(_) => self.count(predicate, object),
        }
    }

    fn property(&mut self, triple: &Triple, predicate: &str, object: Option<&str>) {
        let iri = iri(self.graph, triple.subject).unwrap_or_default();
        let property = self.properties.entry(triple.subject).or_insert_with(|| Property { iri, ..Property::default() });
        let text = match &triple.object {
            Object::Literal { value, language, .. } => Some((value.as_str(), language.as_deref())),
            Object::Node(_) => None,
        };
        match (word(predicate), object) {
            (Some(("rdf", "type")), Some(kind)) => match word(kind) {
                Some(("owl", "FunctionalProperty")) => property.functional = true,
                Some(("owl", "InverseFunctionalProperty")) => property.inverse_functional = true,
                Some(("owl", "SymmetricProperty")) => property.symmetric = true,
                Some(("owl", "AsymmetricProperty")) => property.asymmetric = true,
                Some(("owl", "TransitiveProperty")) => property.transitive = true,
                Some(("owl", "IrreflexiveProperty")) => property.irreflexive = true,
                Some(("owl", "ObjectProperty" | "DatatypeProperty" | "AnnotationProperty") | ("rdf", "Property")) => {}
                _ => self.count(predicate, object),
            },
            (Some(("owl", "inverseOf")), Some(other)) if property.inverse_of.is_none() => {
                property.inverse_of = Some(other.to_owned());
            }
            (Some(("rdfs", "subPropertyOf")), Some(other)) => {
                property.sub_property_of.insert(other.to_owned());
            }
            (Some(("owl", "propertyDisjointWith")), Some(other)) => {
                property.disjoint_with.insert(other.to_owned());
            }
            (Some(("rdfs", "domain")), Some(class)) if property.domains.len() < ENDS => {
                property.domains.insert(class.to_owned());
            }
            (Some(("rdfs", "range")), Some(class)) if property.ranges.len() < ENDS => {
                property.ranges.insert(class.to_owned());
            }
            (Some(("rdfs", "label")), None) => better(&mut property.label, text, LABEL_CHARS),
            (Some(("rdfs", "comment")), None) => better(&mut property.description, text, DESCRIPTION_CHARS),
            _ => self.count(predicate, object),
        }
    }

    fn head(&mut self, triple: &Triple, predicate: &str, object: Option<&str>) {
        let is_head = object.is_some_and(|object| object == format!("{OWL}Ontology"));
        match &triple.object {
            Object::Literal { value, language, .. } if TITLES.contains(&predicate) => {
                better(&mut self.ontology.title, Some((value, language.as_deref())), LABEL_CHARS);
            }
            _ if is_head => {}
            _ => self.count(predicate, object),
        }
    }

    /// A triple says nothing to the service: a type by what it names, another one by its predicate.
    fn count(&mut self, predicate: &str, object: Option<&str>) {
        let is_type = predicate.strip_prefix(RDF) == Some("type");
        let term = object.filter(|_| is_type).unwrap_or(predicate);
        count(&mut self.ontology.not_used, term, 1);
    }
}

/// Counts triples by a term, or among all others if there are too many terms.
fn count(counted: &mut BTreeMap<String, u32>, term: &str, times: u32) {
    let term = match counted.contains_key(term) || counted.len() < COUNTED {
        true => term,
        false => "others",
    };
    let so_far = counted.entry(term.to_owned()).or_default();
    *so_far = so_far.saturating_add(times);
}

/// Keeps the first text, and one in English or without a language rather than another.
fn better(kept: &mut Option<String>, text: Option<(&str, Option<&str>)>, most: usize) {
    let Some((text, language)) = text.filter(|(text, _)| !text.trim().is_empty()) else { return };
    let is_foreign = language.is_some_and(|tag| !tag.to_ascii_lowercase().starts_with("en"));
    if kept.is_none() || !is_foreign {
        *kept = Some(text.trim().chars().filter(|character| *character != '\0').take(most).collect());
    }
}

/// The part of a graph with these triples and nodes, and the positions of these nodes in it. A node without a name is called by its place, so
/// that it has the same name whenever the text is read.
fn part(graph: &Graph, triples: &[usize], nodes: &[usize]) -> (Graph, Vec<usize>) {
    let mut part = Graph { prefixes: graph.prefixes.clone(), ..Graph::default() };
    let mut positions: HashMap<usize, usize> = HashMap::new();
    let mut node = |part: &mut Graph, old: usize| {
        let next = part.nodes.len();
        let position = *positions.entry(old).or_insert(next);
        if position == next {
            part.nodes.push(match &graph.nodes[old] {
                Node::Iri(iri) => Node::Iri(iri.clone()),
                Node::Blank(_) => Node::Blank(format!("n{next}")),
            });
        }
        position
    };
    let classes = nodes.iter().map(|old| node(&mut part, *old)).collect();
    let mut predicates: HashMap<usize, usize> = HashMap::new();
    for triple in triples.iter().map(|at| &graph.triples[*at]) {
        let subject = node(&mut part, triple.subject);
        let object = match &triple.object {
            Object::Node(old) => Object::Node(node(&mut part, *old)),
            literal @ Object::Literal { .. } => literal.clone(),
        };
        let next = part.predicates.len();
        let predicate = *predicates.entry(triple.predicate).or_insert(next);
        if predicate == next {
            part.predicates.push(graph.predicates[triple.predicate].clone());
        }
        part.triples.push(Triple { subject, predicate, object, ..triple.clone() });
    }
    (part, classes)
}

#[cfg(test)]
mod tests;
