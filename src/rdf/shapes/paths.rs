//! The paths of shapes, as SPARQL and as RDF write them. `shapes/automaton.rs` walks them.
use super::{PredicateAt, SH, Shapes};
use oxrdf::{BlankNode, NamedNode, NamedOrBlankNode, Term, Triple, vocab::rdf};

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

impl Path {
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
