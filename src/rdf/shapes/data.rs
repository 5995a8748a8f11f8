//! The facts that shapes are held against, as far as they are at hand. What is asked for and is not at hand is remembered: it is loaded, and
//! the node is looked at again.
use super::{Constant, IriAt, PredicateAt, values::Literal};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};
use svc_ids::{DocumentId, PredicateId, TripleId};

/// A term by its position in [`Data`].
pub type TermId = u32;

/// What a fact is about or leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    Node(DocumentId),
    Literal(Literal),
    /// An IRI of the shapes that stands for no document that the caller may read.
    Iri(IriAt),
}

/// How a node is named.
#[derive(Clone, Debug, Default)]
pub struct Name {
    /// The IRI that it was imported with.
    pub iri: Option<String>,
    pub is_blank: bool,
}

/// What is not at hand.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    /// Nodes and predicates whose values are asked for, and whose subjects.
    pub values: BTreeSet<(TermId, PredicateAt)>,
    pub subjects: BTreeSet<(TermId, PredicateAt)>,
    /// Nodes all of whose facts are asked for.
    pub all: BTreeSet<TermId>,
}

/// A fact of a node: its predicate, where it leads, and its id.
pub type Stated = (PredicateId, TermId, TripleId);

#[derive(Debug, Default)]
pub struct Data {
    terms: Vec<Term>,
    positions: HashMap<Term, TermId>,
    names: HashMap<DocumentId, Name>,
    /// The predicates of the shapes; `None` for those that no fact has.
    predicates: Vec<Option<PredicateId>>,
    /// The documents that have the IRIs of the shapes.
    iris: Vec<HashSet<DocumentId>>,
    /// The documents that are a class or below it, for the classes among the IRIs.
    classes: BTreeMap<IriAt, HashSet<DocumentId>>,
    values: HashMap<(TermId, PredicateAt), Vec<(TermId, TripleId)>>,
    subjects: HashMap<(TermId, PredicateAt), Vec<(TermId, TripleId)>>,
    all: HashMap<TermId, Vec<Stated>>,
    missing: RefCell<Missing>,
    /// Something was asked for since [`Data::look_anew`] that is not at hand.
    lacks: Cell<bool>,
}

impl Data {
    pub fn new(
        predicates: Vec<Option<PredicateId>>,
        iris: Vec<HashSet<DocumentId>>,
        classes: BTreeMap<IriAt, HashSet<DocumentId>>,
    ) -> Data {
        Data { predicates, iris, classes, ..Data::default() }
    }

    /// The position of a term, which it gets if it is new.
    pub fn term(&mut self, term: Term) -> TermId {
        let next = TermId::try_from(self.terms.len()).unwrap_or(TermId::MAX);
        let position = *self.positions.entry(term.clone()).or_insert(next);
        if position == next {
            self.terms.push(term);
        }
        position
    }

    pub fn is(&self, term: TermId) -> &Term {
        &self.terms[term as usize]
    }

    pub fn name(&mut self, id: DocumentId, name: Name) {
        self.names.insert(id, name);
    }

    pub fn name_of(&self, id: DocumentId) -> Name {
        self.names.get(&id).cloned().unwrap_or_default()
    }

    pub fn predicate(&self, predicate: PredicateAt) -> Option<PredicateId> {
        self.predicates[predicate]
    }

    pub fn class(&self, iri: IriAt) -> Option<&HashSet<DocumentId>> {
        self.classes.get(&iri)
    }

    /// Where a predicate leads from a node, or, inversely, from where it leads to it.
    pub fn values(&self, node: TermId, predicate: PredicateAt, is_inverse: bool) -> &[(TermId, TripleId)] {
        let is_known = self.predicates[predicate].is_some();
        let has_facts = match self.is(node) {
            Term::Node(_) => true,
            Term::Literal(_) => is_inverse,
            Term::Iri(_) => false,
        };
        if !is_known || !has_facts {
            return &[];
        }
        let at_hand = if is_inverse { &self.subjects } else { &self.values };
        at_hand.get(&(node, predicate)).map_or_else(
            || {
                self.lack();
                let mut missing = self.missing.borrow_mut();
                let wanted = if is_inverse { &mut missing.subjects } else { &mut missing.values };
                wanted.insert((node, predicate));
                &[][..]
            },
            Vec::as_slice,
        )
    }

    /// All facts of a node.
    pub fn all(&self, node: TermId) -> &[Stated] {
        if !matches!(self.is(node), Term::Node(_)) {
            return &[];
        }
        self.all.get(&node).map_or_else(
            || {
                self.lack();
                self.missing.borrow_mut().all.insert(node);
                &[][..]
            },
            Vec::as_slice,
        )
    }

    /// Whether a node is what a shape names.
    pub fn equals(&self, term: TermId, constant: &Constant) -> bool {
        match (self.is(term), constant) {
            (Term::Node(id), Constant::Iri(iri)) => self.iris[*iri].contains(id),
            (Term::Iri(iri), Constant::Iri(other)) => iri == other,
            (Term::Literal(literal), Constant::Literal(other)) => literal == other,
            _ => false,
        }
    }

    /// What was asked for since this was called last, and is not at hand.
    pub fn take_missing(&self) -> Missing {
        self.missing.take()
    }

    /// Forgets that something was lacking, and returns whether it was.
    pub fn look_anew(&self) -> bool {
        self.lacks.replace(false)
    }

    /// Remembers that something is lacking.
    pub fn lack(&self) {
        self.lacks.set(true);
    }

    /// Whether something was asked for since [`Data::look_anew`] that is not at hand.
    pub fn lacks(&self) -> bool {
        self.lacks.get()
    }

    /// Puts what was missing at hand, still without facts.
    pub fn expect(&mut self, missing: &Missing) {
        for wanted in &missing.values {
            self.values.entry(*wanted).or_default();
        }
        for wanted in &missing.subjects {
            self.subjects.entry(*wanted).or_default();
        }
        for node in &missing.all {
            self.all.entry(*node).or_default();
        }
    }

    /// Adds a fact of what is expected.
    pub fn add(&mut self, from: TermId, predicate: PredicateAt, is_inverse: bool, to: TermId, fact: TripleId) {
        let at_hand = if is_inverse { &mut self.subjects } else { &mut self.values };
        if let Some(known) = at_hand.get_mut(&(from, predicate)) {
            known.push((to, fact));
        }
    }

    /// Adds a fact of a node all of whose facts are expected.
    pub fn add_to_all(&mut self, node: TermId, fact: Stated) {
        if let Some(known) = self.all.get_mut(&node) {
            known.push(fact);
        }
    }
}
