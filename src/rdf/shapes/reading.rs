//! Reads shapes from a graph. `reading/constraints.rs` reads what they demand.
mod constraints;

use super::{
    Constant, IriAt, PredicateAt, SH, Shape, ShapeAt, Shapes, Target,
    automaton::Automaton,
    indexed::{CLASSES, Indexed},
    paths::Path,
    values::Literal,
};
use crate::rdf::reading::{self, Graph, Node, Object};
use regex::Regex;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use svc_client::{Code, Failure, RdfSyntax};

const RDF: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
/// `rdf:type` among the predicates of [`Shapes`].
pub const RDF_TYPE: PredicateAt = 0;
/// How deep shapes and paths may lie in each other.
const DEPTH: usize = 50;
/// The most shapes, and the most steps of their paths.
const SHAPES: usize = 20_000;
const STEPS: usize = 100_000;
/// The most bytes of a path as SPARQL writes it, and the most characters of a message: each result has them.
const PATH_BYTES: usize = 4 << 10;
const MESSAGE_CHARS: usize = 1_000;
/// The most members of all lists that shapes name; a list counts for each shape that names it.
const MEMBERS: usize = 200_000;
/// The most bytes of their literals.
const LITERALS: usize = 32 << 20;
/// The most bytes of all compiled patterns.
const PATTERNS: usize = 32 << 20;

/// Reads a shape of an ontology, or all that have targets, with those that they refer to. `most` bounds the triples of the text.
pub fn shapes(text: &str, base: Option<&str>, wanted: Option<&str>, most: usize) -> Result<Shapes, Failure> {
    let graph = reading::read(text, RdfSyntax::Turtle, base, most).map_err(|failure| {
        let detail = format!("the text of the ontology cannot be read any more: {}", failure.detail);
        match failure.code {
            // It was stored when more was allowed, and the caller sends nothing that could be sent in parts.
            Code::TooLarge => Failure { detail, ..failure }
                .with("setting", "SVC_RDF_MAX_TRIPLES")
                .with("remedy", "raise SVC_RDF_MAX_TRIPLES, or load smaller ontologies in its place"),
            _ => faulty(detail).with("remedy", "load the ontology again by POST /ontologies"),
        }
    })?;
    read(&graph, wanted)
}

/// Reads a shape of a graph, or all that have targets, with those that they refer to.
fn read(graph: &Graph, wanted: Option<&str>) -> Result<Shapes, Failure> {
    let graph = Indexed::new(graph);
    let roots = match wanted {
        None => {
            let found = graph.with_targets();
            if found.is_empty() {
                let remedy = "give a shape an sh:targetClass, or another target";
                return Err(faulty("the ontology has no shape with a target".to_owned()).with("remedy", remedy));
            }
            found
        }
        Some(iri) => {
            let found = (0..graph.graph.nodes.len()).find(|node| graph.iri(*node) == Some(iri));
            let root = found.filter(|node| graph.is_typed_shape(*node) || graph.has_target(*node));
            let root = root.ok_or_else(|| faulty(format!("the ontology has no shape <{iri}>")))?;
            if !graph.has_target(root) {
                let remedy = "give it an sh:targetClass, or another target";
                return Err(faulty(format!("the shape <{iri}> has no target")).with("remedy", remedy));
            }
            vec![root]
        }
    };
    let mut reader = Reader {
        graph: &graph,
        shapes: Shapes::default(),
        read: HashMap::new(),
        open: HashSet::new(),
        predicates: HashMap::new(),
        iris: HashMap::new(),
        steps: 0,
        members: 0,
        literal_bytes: 0,
        patterns: HashMap::new(),
        pattern_bytes: 0,
        met_by_all: None,
        unknown: BTreeSet::new(),
    };
    // It is the first one, [`RDF_TYPE`].
    reader.predicate("http://www.w3.org/1999/02/22-rdf-syntax-ns#type");
    for root in roots {
        if let Some(shape) = reader.shape(root, 0)? {
            reader.targets(root, shape)?;
            reader.shapes.roots.push(shape);
        }
    }
    if !reader.unknown.is_empty() {
        let terms: Vec<String> = reader.unknown.into_iter().map(|word| format!("sh:{word}")).collect();
        let detail = format!("the shapes have what is not in SHACL Core: {}", terms.join(", "));
        return Err(faulty(detail).with("remedy", "say it in the terms of SHACL Core, or leave it out"));
    }
    Ok(reader.shapes)
}

/// 422: why shapes cannot be held against facts.
fn faulty(detail: String) -> Failure {
    Failure::new(Code::InvalidField, detail).with("field", "shape")
}

struct Reader<'a> {
    graph: &'a Indexed<'a>,
    shapes: Shapes,
    /// `None` for shapes that are switched off.
    read: HashMap<usize, Option<ShapeAt>>,
    open: HashSet<usize>,
    predicates: HashMap<String, PredicateAt>,
    iris: HashMap<String, IriAt>,
    /// The steps of paths so far.
    steps: usize,
    /// The members of lists so far, and the bytes of those that are literals.
    members: usize,
    literal_bytes: usize,
    /// The patterns so far, by their flags, and how many bytes they may take.
    patterns: HashMap<(String, String), Arc<Regex>>,
    pattern_bytes: usize,
    /// The shape that every node meets.
    met_by_all: Option<ShapeAt>,
    unknown: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    fn called(&self, node: usize) -> String {
        match &self.graph.graph.nodes[node] {
            Node::Iri(iri) => iri.clone(),
            Node::Blank(label) => format!("_:{label}"),
        }
    }

    fn predicate(&mut self, iri: &str) -> PredicateAt {
        let next = self.shapes.predicates.len();
        let at = *self.predicates.entry(iri.to_owned()).or_insert(next);
        if at == next {
            self.shapes.predicates.push(iri.to_owned());
        }
        at
    }

    fn iri(&mut self, iri: &str) -> IriAt {
        let next = self.shapes.iris.len();
        let at = *self.iris.entry(iri.to_owned()).or_insert(next);
        if at == next {
            self.shapes.iris.push(iri.to_owned());
        }
        at
    }

    fn constant(&mut self, object: &Object) -> Constant {
        match object {
            Object::Literal { .. } => Constant::Literal(literal(object)),
            Object::Node(node) => match self.graph.iri(*node) {
                Some(iri) => Constant::Iri(self.iri(iri)),
                None => Constant::Blank,
            },
        }
    }

    fn named(&self, shape: usize, word: &str, object: &Object) -> Result<String, Failure> {
        let iri = match object {
            Object::Node(node) => self.graph.iri(*node).map(str::to_owned),
            Object::Literal { .. } => None,
        };
        iri.ok_or_else(|| self.wrong(shape, word, "takes an IRI"))
    }

    fn wrong(&self, shape: usize, word: &str, says: &str) -> Failure {
        faulty(format!("sh:{word} of the shape {} {says}", self.called(shape)))
    }

    fn text(&self, shape: usize, word: &str, object: &Object) -> Result<String, Failure> {
        match object {
            Object::Literal { value, .. } => Ok(value.clone()),
            Object::Node(_) => Err(self.wrong(shape, word, "takes a literal")),
        }
    }

    fn number(&self, shape: usize, word: &str, object: &Object) -> Result<u64, Failure> {
        let text = self.text(shape, word, object)?;
        text.parse().map_err(|_| self.wrong(shape, word, "takes a whole number that is not negative"))
    }

    fn flag(&self, shape: usize, word: &str) -> Result<bool, Failure> {
        match self.graph.values(shape, SH, word).next() {
            None => Ok(false),
            Some(object) => match self.text(shape, word, object)?.as_str() {
                "true" => Ok(true),
                // Only the literal `true` is meant, by the text of the standard and its tests.
                "false" | "0" | "1" => Ok(false),
                _ => Err(self.wrong(shape, word, "takes true or false")),
            },
        }
    }

    fn list(&mut self, shape: usize, word: &str, object: &Object) -> Result<Vec<&'a Object>, Failure> {
        let graph = self.graph;
        let members = graph.list(object).ok_or_else(|| self.wrong(shape, word, "takes a list that ends"))?;
        self.members += members.len();
        let bytes = members.iter().map(|member| match member {
            Object::Literal { value, .. } => value.len(),
            Object::Node(_) => 0,
        });
        self.literal_bytes += bytes.sum::<usize>();
        if self.members > MEMBERS || self.literal_bytes > LITERALS {
            let detail =
                format!("the lists of the shapes have more than {MEMBERS} members, or {LITERALS} bytes of literals");
            return Err(faulty(detail));
        }
        Ok(members)
    }

    /// A shape that another one refers to; one that is switched off is met by every node.
    fn other(&mut self, shape: usize, word: &str, object: &Object, depth: usize) -> Result<Option<ShapeAt>, Failure> {
        match object {
            Object::Node(node) => self.shape(*node, depth + 1),
            Object::Literal { .. } => Err(self.wrong(shape, word, "takes a shape")),
        }
    }

    fn others(&mut self, shape: usize, word: &str, object: &Object, depth: usize) -> Result<Vec<ShapeAt>, Failure> {
        let members = self.list(shape, word, object)?;
        let mut shapes = Vec::with_capacity(members.len());
        for member in members {
            shapes.push(match self.other(shape, word, member, depth)? {
                Some(shape) => shape,
                None => self.empty(),
            });
        }
        Ok(shapes)
    }

    /// A shape that every node meets.
    fn empty(&mut self) -> ShapeAt {
        if let Some(shape) = self.met_by_all {
            return shape;
        }
        self.shapes.shapes.push(Shape {
            name: String::new(),
            path: None,
            automaton: None,
            targets: Vec::new(),
            constraints: Vec::new(),
            severity: String::new(),
            message: None,
        });
        *self.met_by_all.insert(self.shapes.shapes.len() - 1)
    }

    fn shape(&mut self, node: usize, depth: usize) -> Result<Option<ShapeAt>, Failure> {
        if let Some(read) = self.read.get(&node) {
            return Ok(*read);
        }
        if !self.open.insert(node) {
            let detail = format!("the shape {} refers to itself, over others or at once", self.called(node));
            return Err(faulty(detail).with("remedy", "say it by a path, such as sh:zeroOrMorePath"));
        }
        if depth > DEPTH || self.shapes.shapes.len() >= SHAPES {
            let detail =
                format!("there are more than {SHAPES} shapes, or they lie more than {DEPTH} deep in each other");
            return Err(faulty(detail));
        }
        let read = match self.flag(node, "deactivated")? {
            true => None,
            false => Some(self.active(node, depth)?),
        };
        self.open.remove(&node);
        self.read.insert(node, read);
        Ok(read)
    }

    fn active(&mut self, node: usize, depth: usize) -> Result<ShapeAt, Failure> {
        let graph = self.graph;
        let path = match graph.values(node, SH, "path").next() {
            None => None,
            Some(object) => {
                let path = self.path(node, object, &mut HashSet::new())?;
                if path.shown(&self.shapes).len() > PATH_BYTES {
                    return Err(self.wrong(node, "path", &format!("has more than {PATH_BYTES} bytes")));
                }
                Some(path)
            }
        };
        let severity = match graph.values(node, SH, "severity").next() {
            None => format!("{SH}Violation"),
            Some(object) => self.named(node, "severity", object)?,
        };
        let message = match graph.values(node, SH, "message").next() {
            None => None,
            Some(object) => Some(self.text(node, "message", object)?.chars().take(MESSAGE_CHARS).collect()),
        };
        let mut constraints = Vec::new();
        for (iri, object) in graph.stated(node) {
            if let Some(word) = iri.strip_prefix(SH) {
                self.constraint(node, word, object, path.is_some(), depth, &mut constraints)?;
            }
        }
        let (name, targets) = (self.called(node), Vec::new());
        let automaton = path.as_ref().map(Automaton::new);
        self.shapes.shapes.push(Shape { name, path, automaton, targets, constraints, severity, message });
        Ok(self.shapes.shapes.len() - 1)
    }

    fn path(&mut self, shape: usize, object: &Object, above: &mut HashSet<usize>) -> Result<Path, Failure> {
        let graph = self.graph;
        let wrong = |reader: &Self, says: &str| reader.wrong(shape, "path", says);
        let Object::Node(node) = object else { return Err(wrong(self, "takes a path")) };
        self.steps += 1;
        if self.steps > STEPS {
            return Err(faulty(format!("the paths of the shapes have more than {STEPS} steps")));
        }
        if let Some(iri) = graph.iri(*node) {
            return Ok(Path::Predicate(self.predicate(iri)));
        }
        if !above.insert(*node) || above.len() > DEPTH {
            return Err(wrong(self, "leads back to itself, or is too deep"));
        }
        let several = |reader: &mut Self, list: &Object, above: &mut HashSet<usize>, least: usize| {
            let members = graph.list(list).ok_or_else(|| wrong(reader, "has a list without an end"))?;
            if members.len() < least {
                return Err(wrong(reader, &format!("has a list of fewer than {least} paths")));
            }
            members.into_iter().map(|member| reader.path(shape, member, above)).collect::<Result<Vec<Path>, Failure>>()
        };
        let value = |word: &str| graph.values(*node, SH, word).next();
        let path = if graph.values(*node, RDF, "first").next().is_some() {
            Path::Sequence(several(self, object, above, 2)?)
        } else if let Some(list) = value("alternativePath") {
            Path::Alternative(several(self, list, above, 2)?)
        } else if let Some(path) = value("inversePath") {
            Path::Inverse(Box::new(self.path(shape, path, above)?))
        } else if let Some(path) = value("zeroOrMorePath") {
            Path::ZeroOrMore(Box::new(self.path(shape, path, above)?))
        } else if let Some(path) = value("oneOrMorePath") {
            Path::OneOrMore(Box::new(self.path(shape, path, above)?))
        } else if let Some(path) = value("zeroOrOnePath") {
            Path::ZeroOrOne(Box::new(self.path(shape, path, above)?))
        } else {
            return Err(wrong(self, "takes a path"));
        };
        above.remove(node);
        Ok(path)
    }

    fn targets(&mut self, node: usize, shape: ShapeAt) -> Result<(), Failure> {
        let graph = self.graph;
        let mut targets = Vec::new();
        for (iri, object) in graph.stated(node) {
            let Some(word) = iri.strip_prefix(SH) else { continue };
            targets.push(match word {
                "targetNode" => Target::Node(self.constant(object)),
                "targetClass" => {
                    let class = self.named(node, word, object)?;
                    Target::Class(self.iri(&class))
                }
                "targetSubjectsOf" | "targetObjectsOf" => {
                    let iri = self.named(node, word, object)?;
                    let predicate = self.predicate(&iri);
                    match word {
                        "targetSubjectsOf" => Target::SubjectsOf(predicate),
                        _ => Target::ObjectsOf(predicate),
                    }
                }
                _ => continue,
            });
        }
        if let (true, Some(iri)) = (graph.is_typed_shape(node) && graph.is_a(node, &CLASSES), graph.iri(node)) {
            targets.push(Target::Class(self.iri(iri)));
        }
        self.shapes.shapes[shape].targets = targets;
        Ok(())
    }
}

fn literal(object: &Object) -> Literal {
    match object {
        Object::Literal { value, datatype, language } => Literal {
            value: value.clone(),
            datatype: datatype.clone(),
            language: language.as_deref().map(str::to_ascii_lowercase),
        },
        Object::Node(_) => Literal { value: String::new(), datatype: String::new(), language: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const HEAD: &str = "@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix ex: <http://e/> .
        ex:S a sh:NodeShape ; sh:targetNode ex:a";

    fn read_all(demands: &str) -> Result<Shapes, Failure> {
        shapes(&format!("{HEAD} ; {demands} ."), None, None, 1_000_000)
    }

    #[test]
    fn what_shapes_take_is_bounded_however_small_their_text_is() {
        let mut patterns = String::from("sh:name 'x'");
        for number in 0..100 {
            write!(patterns, " ; sh:property [ sh:path ex:p ; sh:pattern '\\\\w{{20}}{number}' ]")
                .expect("a text takes all");
        }
        let refused = read_all(&patterns).expect_err("they are too large");
        assert!(refused.detail.contains("patterns"), "{}", refused.detail);
        let same = "sh:property [ sh:path ex:p ; sh:pattern '\\\\w{20}' ] ; ".repeat(1_000) + "sh:name 'x'";
        assert_eq!(read_all(&same).expect("it is one pattern").shapes.len(), 1_001);

        let members = "ex:m ".repeat(1_000);
        let lists = format!("sh:property [ sh:path ex:p ; sh:in ({members}) ] ; ").repeat(201) + "sh:name 'x'";
        let refused = read_all(&lists).expect_err("there are too many members");
        assert!(refused.detail.contains("members"), "{}", refused.detail);

        let long = format!("'{}' ", "x".repeat(60_000));
        let literals =
            format!("sh:property [ sh:path ex:p ; sh:in ({}) ] ; ", long.repeat(10)).repeat(60) + "sh:name 'x'";
        let refused = read_all(&literals).expect_err("there are too many bytes");
        assert!(refused.detail.contains("bytes of literals"), "{}", refused.detail);

        let off = format!("sh:or ({}) ; sh:name 'x'", "[ sh:deactivated true ] ".repeat(1_000));
        assert_eq!(read_all(&off).expect("each is met by all").shapes.len(), 2);

        let path = format!("sh:property [ sh:path ({}) ; sh:minCount 1 ]", "ex:p ".repeat(1_000));
        let refused = read_all(&path).expect_err("nobody reads such a path");
        assert!(refused.detail.contains("sh:path"), "{}", refused.detail);
    }
}
