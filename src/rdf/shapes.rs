//! Shapes, by SHACL Core (<https://www.w3.org/TR/shacl/>): what the facts of a node must be like. `shapes/reading.rs` reads them from a graph,
//! `shapes/checking.rs` holds nodes against them, over the facts that `shapes/data.rs` has at hand.
pub mod auditing;
mod automaton;
pub mod checking;
pub mod data;
pub mod guarding;
pub mod indexed;
pub mod kept;
pub mod paths;
pub mod reading;
pub mod report;
pub mod validating;
mod values;
pub mod violation;

use automaton::Automaton;
use paths::Path;
use regex::Regex;
use std::sync::Arc;
use values::Literal;

/// The namespace of SHACL.
pub const SH: &str = "http://www.w3.org/ns/shacl#";

/// A shape by its position in [`Shapes`].
pub type ShapeAt = usize;
/// A predicate by its position in [`Shapes`].
pub type PredicateAt = usize;
/// An IRI that shapes name as a node, by its position in [`Shapes`].
pub type IriAt = usize;

/// The shapes of a graph that were asked for, with those that they refer to.
#[derive(Debug, Default)]
pub struct Shapes {
    pub shapes: Vec<Shape>,
    /// Those that were asked for, which have targets.
    pub roots: Vec<ShapeAt>,
    /// The IRIs of the predicates that paths and constraints name.
    pub predicates: Vec<String>,
    /// The IRIs of the nodes that targets and constraints name.
    pub iris: Vec<String>,
}

/// What a node must be like, or, of a shape with a path, what the values at the end of the path must be like.
#[derive(Debug)]
pub struct Shape {
    /// Its IRI, or its label after `_:`.
    pub name: String,
    pub path: Option<Path>,
    /// What walks the path.
    automaton: Option<Automaton>,
    pub targets: Vec<Target>,
    pub constraints: Vec<Constraint>,
    pub severity: String,
    /// What to say of a violation.
    pub message: Option<String>,
}

/// The nodes that a shape is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Node(Constant),
    /// The instances of a class and of what is below it.
    Class(IriAt),
    SubjectsOf(PredicateAt),
    ObjectsOf(PredicateAt),
}

/// A value that a shape names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    Iri(IriAt),
    Literal(Literal),
    /// A node without a name is equal to no node of the store.
    Blank,
}

/// The sides of a bound that are within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    MinExclusive,
    MinInclusive,
    MaxExclusive,
    MaxInclusive,
}

/// The forms that a node may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    pub iri: bool,
    pub blank: bool,
    pub literal: bool,
}

#[derive(Debug)]
pub enum Constraint {
    Class(IriAt),
    Datatype(String),
    Kind(Kinds),
    MinCount(u64),
    MaxCount(u64),
    Range(Bound, Literal),
    MinLength(u64),
    MaxLength(u64),
    Pattern(Arc<Regex>),
    LanguageIn(Vec<String>),
    UniqueLanguage,
    Equals(PredicateAt),
    Disjoint(PredicateAt),
    LessThan(PredicateAt),
    LessThanOrEquals(PredicateAt),
    Not(ShapeAt),
    And(Vec<ShapeAt>),
    Or(Vec<ShapeAt>),
    ExactlyOne(Vec<ShapeAt>),
    Node(ShapeAt),
    Property(ShapeAt),
    Qualified {
        shape: ShapeAt,
        /// Values of these shapes do not count.
        others: Vec<ShapeAt>,
        min: Option<u64>,
        max: Option<u64>,
    },
    /// No facts but those with these predicates.
    Closed(Vec<PredicateAt>),
    HasValue(Constant),
    In(Vec<Constant>),
}
