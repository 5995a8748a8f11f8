//! The ways from a node to its values.
use super::{
    PredicateAt, SH, Shapes,
    data::{Data, TermId},
};
use oxrdf::{BlankNode, NamedNode, NamedOrBlankNode, Term, Triple, vocab::rdf};
use std::collections::{BTreeMap, HashSet};
use svc_ids::TripleId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    Predicate(PredicateAt),
    Inverse(Box<Path>),
    Sequence(Vec<Path>),
    Alternative(Vec<Path>),
    ZeroOrMore(Box<Path>),
    OneOrMore(Box<Path>),
    ZeroOrOne(Box<Path>),
}

/// Nodes that a path leads to, each once and in a fixed order, with the facts of the last step to it.
pub type Reached = BTreeMap<TermId, Vec<TripleId>>;

impl Path {
    /// Where the path leads from a node.
    pub fn from(&self, data: &Data, node: TermId) -> Reached {
        self.walk(data, node, false)
    }

    fn walk(&self, data: &Data, node: TermId, is_inverse: bool) -> Reached {
        match self {
            Path::Predicate(predicate) => {
                let mut reached = Reached::new();
                for (value, fact) in data.values(node, *predicate, is_inverse) {
                    reached.entry(*value).or_default().push(*fact);
                }
                reached
            }
            Path::Inverse(path) => path.walk(data, node, !is_inverse),
            Path::Sequence(steps) => {
                let mut reached = Reached::from([(node, Vec::new())]);
                let mut step = |path: &Path| reached = beyond(&reached, |node| path.walk(data, node, is_inverse));
                match is_inverse {
                    false => steps.iter().for_each(&mut step),
                    true => steps.iter().rev().for_each(&mut step),
                }
                reached
            }
            Path::Alternative(paths) => {
                let mut reached = Reached::new();
                for path in paths {
                    add(&mut reached, path.walk(data, node, is_inverse));
                }
                reached
            }
            Path::ZeroOrOne(path) => {
                let mut reached = path.walk(data, node, is_inverse);
                reached.entry(node).or_default();
                reached
            }
            Path::ZeroOrMore(path) => {
                let mut reached = path.repeated(data, node, is_inverse);
                reached.entry(node).or_default();
                reached
            }
            Path::OneOrMore(path) => path.repeated(data, node, is_inverse),
        }
    }

    /// Where one step or more lead.
    fn repeated(&self, data: &Data, node: TermId, is_inverse: bool) -> Reached {
        let mut reached = Reached::new();
        let (mut open, mut seen) = (vec![node], HashSet::from([node]));
        while let Some(node) = open.pop() {
            let next = self.walk(data, node, is_inverse);
            open.extend(next.keys().copied().filter(|node| seen.insert(*node)));
            add(&mut reached, next);
        }
        reached
    }

    /// The path as SPARQL writes it.
    pub fn shown(&self, shapes: &Shapes) -> String {
        let joined = |paths: &[Path], by: &str| {
            let parts: Vec<String> = paths.iter().map(|path| path.part(shapes)).collect();
            parts.join(by)
        };
        match self {
            Path::Predicate(predicate) => format!("<{}>", shapes.predicates[*predicate]),
            Path::Inverse(path) => format!("^{}", path.part(shapes)),
            Path::Sequence(paths) => joined(paths, "/"),
            Path::Alternative(paths) => joined(paths, "|"),
            Path::ZeroOrMore(path) => format!("{}*", path.part(shapes)),
            Path::OneOrMore(path) => format!("{}+", path.part(shapes)),
            Path::ZeroOrOne(path) => format!("{}?", path.part(shapes)),
        }
    }

    /// The path as a part of another one.
    fn part(&self, shapes: &Shapes) -> String {
        match self {
            Path::Predicate(_) => self.shown(shapes),
            _ => format!("({})", self.shown(shapes)),
        }
    }

    /// The path as RDF: its node, with what describes it in `triples`. The labels of new nodes are numbered from `labels` on.
    pub fn written(&self, shapes: &Shapes, labels: &mut u64, triples: &mut Vec<Triple>) -> NamedOrBlankNode {
        let (word, inner) = match self {
            Path::Predicate(predicate) => {
                return NamedNode::new_unchecked(shapes.predicates[*predicate].clone()).into();
            }
            Path::Sequence(paths) => return list(paths, shapes, labels, triples),
            Path::Alternative(paths) => ("alternativePath", list(paths, shapes, labels, triples)),
            Path::Inverse(path) => ("inversePath", path.written(shapes, labels, triples)),
            Path::ZeroOrMore(path) => ("zeroOrMorePath", path.written(shapes, labels, triples)),
            Path::OneOrMore(path) => ("oneOrMorePath", path.written(shapes, labels, triples)),
            Path::ZeroOrOne(path) => ("zeroOrOnePath", path.written(shapes, labels, triples)),
        };
        let node = NamedOrBlankNode::from(fresh(labels));
        let predicate = NamedNode::new_unchecked(format!("{SH}{word}"));
        triples.push(Triple { subject: node.clone(), predicate, object: Term::from(inner) });
        node
    }
}

fn fresh(labels: &mut u64) -> BlankNode {
    *labels += 1;
    BlankNode::new_unchecked(format!("p{labels}"))
}

fn list(paths: &[Path], shapes: &Shapes, labels: &mut u64, triples: &mut Vec<Triple>) -> NamedOrBlankNode {
    paths.iter().rev().fold(rdf::NIL.into_owned().into(), |rest: NamedOrBlankNode, path| {
        let node = NamedOrBlankNode::from(fresh(labels));
        let first = path.written(shapes, labels, triples);
        for (predicate, object) in [(rdf::FIRST, first), (rdf::REST, rest)] {
            let (subject, predicate) = (node.clone(), predicate.into_owned());
            triples.push(Triple { subject, predicate, object: Term::from(object) });
        }
        node
    })
}

fn add(reached: &mut Reached, more: Reached) {
    for (node, facts) in more {
        reached.entry(node).or_default().extend(facts);
    }
}

fn beyond(from: &Reached, step: impl Fn(TermId) -> Reached) -> Reached {
    let mut reached = Reached::new();
    for node in from.keys() {
        add(&mut reached, step(*node));
    }
    reached
}
