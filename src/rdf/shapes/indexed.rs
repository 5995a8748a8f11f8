//! A graph by its subjects, as shapes are read from it.
use super::SH;
use crate::rdf::reading::{Graph, Node, Object};
use std::collections::{HashMap, HashSet};

const RDF: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
/// What makes a shape the shape of its own instances.
pub const CLASSES: [&str; 2] = ["http://www.w3.org/2000/01/rdf-schema#Class", "http://www.w3.org/2002/07/owl#Class"];

/// A graph, by its subjects.
pub struct Indexed<'a> {
    pub graph: &'a Graph,
    of: HashMap<usize, Vec<(&'a str, &'a Object)>>,
    /// The nodes that name a node by `sh:property`.
    parents: HashMap<usize, Vec<usize>>,
}

impl<'a> Indexed<'a> {
    pub fn new(graph: &'a Graph) -> Indexed<'a> {
        let mut of: HashMap<usize, Vec<(&str, &Object)>> = HashMap::new();
        let mut parents: HashMap<usize, Vec<usize>> = HashMap::new();
        for triple in &graph.triples {
            let predicate = graph.predicates[triple.predicate].as_str();
            of.entry(triple.subject).or_default().push((predicate, &triple.object));
            if let (Some("property"), Object::Node(node)) = (predicate.strip_prefix(SH), &triple.object) {
                parents.entry(*node).or_default().push(triple.subject);
            }
        }
        Indexed { graph, of, parents }
    }

    /// The nodes that have a node as a property shape.
    pub fn parents(&self, node: usize) -> &[usize] {
        self.parents.get(&node).map_or(&[], Vec::as_slice)
    }

    pub fn stated(&self, node: usize) -> &[(&'a str, &'a Object)] {
        self.of.get(&node).map_or(&[], Vec::as_slice)
    }

    pub fn values<'b>(
        &'b self,
        node: usize,
        vocabulary: &'b str,
        word: &'b str,
    ) -> impl Iterator<Item = &'a Object> + 'b {
        let is = move |iri: &str| iri.strip_prefix(vocabulary).is_some_and(|rest| rest == word);
        self.stated(node).iter().filter(move |(iri, _)| is(iri)).map(|(_, object)| *object)
    }

    pub fn iri(&self, node: usize) -> Option<&'a str> {
        match &self.graph.nodes[node] {
            Node::Iri(iri) => Some(iri),
            Node::Blank(_) => None,
        }
    }

    pub fn is_a(&self, node: usize, iris: &[&str]) -> bool {
        self.values(node, RDF, "type").any(|class| match class {
            Object::Node(class) => self.iri(*class).is_some_and(|iri| iris.contains(&iri)),
            Object::Literal { .. } => false,
        })
    }

    pub fn is_typed_shape(&self, node: usize) -> bool {
        let [node_shape, property_shape] = ["NodeShape", "PropertyShape"].map(|word| format!("{SH}{word}"));
        self.is_a(node, &[&node_shape, &property_shape])
    }

    pub fn has_target(&self, node: usize) -> bool {
        let is_target =
            |(iri, _): &(&str, &Object)| iri.strip_prefix(SH).is_some_and(|word| word.starts_with("target"));
        self.stated(node).iter().any(is_target) || (self.is_typed_shape(node) && self.is_a(node, &CLASSES))
    }

    /// The nodes that are shapes with targets.
    pub fn with_targets(&self) -> Vec<usize> {
        let mut found: Vec<usize> = self.of.keys().copied().filter(|node| self.has_target(*node)).collect();
        found.sort_unstable();
        found
    }

    /// The IRIs of the shapes: of those that are called so, and of those that have targets.
    pub fn names(&self) -> Vec<String> {
        let mut found: Vec<usize> = self.of.keys().copied().collect();
        found.sort_unstable();
        let is_shape = |node: &usize| self.is_typed_shape(*node) || self.has_target(*node);
        found.into_iter().filter(is_shape).filter_map(|node| self.iri(node)).map(str::to_owned).collect()
    }

    /// The nodes that describe shapes: these, and what is said of them by nodes without a name.
    pub fn described(&self) -> HashSet<usize> {
        let shapes = self.of.keys().copied().filter(|node| self.is_typed_shape(*node) || self.has_target(*node));
        let mut open: Vec<usize> = shapes.collect();
        let mut seen: HashSet<usize> = open.iter().copied().collect();
        while let Some(node) = open.pop() {
            for (iri, object) in self.stated(node) {
                let Object::Node(value) = object else { continue };
                let leads_on = iri.starts_with(SH) || self.iri(node).is_none();
                if leads_on && self.iri(*value).is_none() && seen.insert(*value) {
                    open.push(*value);
                }
            }
        }
        seen
    }

    /// The members of a list.
    pub fn list(&self, head: &Object) -> Option<Vec<&'a Object>> {
        let (mut members, mut seen) = (Vec::new(), HashSet::new());
        let mut node = match head {
            Object::Node(node) => *node,
            Object::Literal { .. } => return None,
        };
        while self.iri(node) != Some("http://www.w3.org/1999/02/22-rdf-syntax-ns#nil") {
            if !seen.insert(node) {
                return None;
            }
            members.push(self.values(node, RDF, "first").next()?);
            match self.values(node, RDF, "rest").next()? {
                Object::Node(rest) => node = *rest,
                Object::Literal { .. } => return None,
            }
        }
        Some(members)
    }
}
