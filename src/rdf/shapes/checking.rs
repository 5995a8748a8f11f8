//! Holds nodes against shapes.
use super::{
    Bound, Constraint, Kinds, ShapeAt, Shapes, Target,
    data::{Data, Term, TermId},
    paths::Reached,
    values::{Literal, compare, is_of_range},
    violation::{At, One, Violation},
};
use crate::graph::{literal::is_ill_typed, named};
use std::{
    cell::{Cell, RefCell},
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Instant,
};
use svc_ids::{PredicateId, TripleId};

/// The most results of a validation; a little more may be found.
pub const RESULTS: usize = 10_000;
/// How many nodes are looked at between two looks at the clock.
const BETWEEN: u32 = 1_000;

pub struct Checker<'a> {
    pub shapes: &'a Shapes,
    pub data: &'a Data,
    pub base: &'a str,
    /// The predicate `rdf:type` among those of the shapes.
    pub rdf_type: usize,
    deadline: Instant,
    looks: Cell<u32>,
    is_late: Cell<bool>,
    /// Which nodes meet which shapes, and whether something was lacking to say so.
    met: RefCell<HashMap<(ShapeAt, TermId), (bool, bool)>>,
}

impl<'a> Checker<'a> {
    pub fn new(shapes: &'a Shapes, data: &'a Data, base: &'a str, rdf_type: usize, deadline: Instant) -> Checker<'a> {
        Checker {
            shapes,
            data,
            base,
            rdf_type,
            deadline,
            looks: Cell::new(0),
            is_late: Cell::new(false),
            met: RefCell::default(),
        }
    }

    /// Whether the time is over, so that what was found is not all.
    pub fn is_late(&self) -> bool {
        self.is_late.get()
    }

    /// What is wrong with a node by a shape.
    pub fn violations(&self, shape: ShapeAt, focus: TermId) -> Vec<Violation> {
        let mut found = Vec::new();
        self.check(shape, focus, &mut Some(&mut found));
        found
    }

    /// Whether a shape is of a node.
    pub fn is_target(&self, shape: ShapeAt, node: TermId) -> bool {
        self.shapes.shapes[shape].targets.iter().any(|target| match target {
            Target::Node(constant) => self.data.equals(node, constant),
            Target::Class(class) => self.is_instance(node, *class),
            Target::SubjectsOf(predicate) => !self.data.values(node, *predicate, false).is_empty(),
            Target::ObjectsOf(predicate) => !self.data.values(node, *predicate, true).is_empty(),
        })
    }

    fn is_instance(&self, node: TermId, class: usize) -> bool {
        let types = self.data.values(node, self.rdf_type, false);
        let Some(classes) = self.data.class(class) else { return false };
        types.iter().any(|(class, _)| matches!(self.data.is(*class), Term::Node(id) if classes.contains(id)))
    }

    /// Whether a node meets a shape. What is wrong is told to `found`; without it the first fault ends the check.
    fn check(&self, shape: ShapeAt, focus: TermId, found: &mut Option<&mut Vec<Violation>>) -> bool {
        self.looks.set(self.looks.get() + 1);
        if self.looks.get() >= BETWEEN {
            self.looks.set(0);
            self.is_late.set(self.is_late.get() || Instant::now() >= self.deadline);
        }
        let is_full = found.as_ref().is_some_and(|found| found.len() > RESULTS);
        if self.is_late.get() || is_full {
            return true;
        }
        let of = &self.shapes.shapes[shape];
        let values = match &of.path {
            None => Reached::from([(focus, Vec::new())]),
            Some(path) => path.from(self.data, focus),
        };
        let mut is_met = true;
        for constraint in &of.constraints {
            let told = At::Shape;
            let mut one = One { shape, focus, of, values: &values, at: told, found, is_met: true };
            self.hold(constraint, &mut one);
            is_met &= one.is_met;
            if !is_met && found.is_none() {
                break;
            }
        }
        is_met
    }

    fn meets(&self, shape: ShapeAt, node: TermId) -> bool {
        let known = self.met.borrow().get(&(shape, node)).copied();
        if let Some((is_met, lacks)) = known {
            if lacks {
                self.data.lack();
            }
            return is_met;
        }
        let lacked = self.data.look_anew();
        let is_met = self.check(shape, node, &mut None);
        self.met.borrow_mut().insert((shape, node), (is_met, self.data.lacks()));
        if lacked {
            self.data.lack();
        }
        is_met
    }

    fn hold(&self, constraint: &Constraint, one: &mut One<'_, '_, '_>) {
        let data = self.data;
        let values = one.values;
        let nodes = || values.keys().copied();
        match constraint {
            Constraint::Class(class) => {
                let iri = &self.shapes.iris[*class];
                for value in nodes().filter(|value| !self.is_instance(*value, *class)) {
                    one.wrong(value, "Class", || format!("is no <{iri}>"));
                }
            }
            Constraint::Datatype(datatype) => {
                for value in nodes() {
                    let has = self.literal(value).is_some_and(|literal| {
                        literal.datatype == *datatype && !is_ill_typed(&literal.value, datatype)
                    });
                    if !has {
                        one.wrong(value, "Datatype", || format!("is no value of the type <{datatype}>"));
                    }
                }
            }
            Constraint::Kind(kinds) => {
                for value in nodes().filter(|value| !self.has_kind(*value, *kinds)) {
                    one.wrong(value, "NodeKind", || "is another kind of node".to_owned());
                }
            }
            Constraint::MinCount(least) => {
                let count = values.len() as u64;
                if count < *least {
                    one.few("MinCount", || format!("has {count} values, and at least {least} are needed"));
                }
            }
            Constraint::MaxCount(most) => {
                let count = values.len() as u64;
                if count > *most {
                    let facts = values.values().flatten().copied().collect();
                    one.many("MaxCount", || format!("has {count} values, and at most {most} are allowed"), facts);
                }
            }
            Constraint::Range(bound, limit) => {
                for value in nodes() {
                    let order = self.literal(value).and_then(|literal| compare(literal, limit));
                    let (word, sign, is_within): (_, _, fn(Ordering) -> bool) = match bound {
                        Bound::MinExclusive => ("MinExclusive", ">", Ordering::is_gt),
                        Bound::MinInclusive => ("MinInclusive", ">=", Ordering::is_ge),
                        Bound::MaxExclusive => ("MaxExclusive", "<", Ordering::is_lt),
                        Bound::MaxInclusive => ("MaxInclusive", "<=", Ordering::is_le),
                    };
                    if !order.is_some_and(is_within) {
                        one.wrong(value, word, || format!("is not {sign} {}", limit.value));
                    }
                }
            }
            Constraint::MinLength(least) => {
                for value in nodes() {
                    let length = self.text(value).map(|text| text.chars().count() as u64);
                    if length.is_none_or(|length| length < *least) {
                        one.wrong(value, "MinLength", || format!("has no text of at least {least} characters"));
                    }
                }
            }
            Constraint::MaxLength(most) => {
                for value in nodes() {
                    let length = self.text(value).map(|text| text.chars().count() as u64);
                    if length.is_none_or(|length| length > *most) {
                        one.wrong(value, "MaxLength", || format!("has no text of at most {most} characters"));
                    }
                }
            }
            Constraint::Pattern(pattern) => {
                for value in nodes() {
                    if !self.text(value).is_some_and(|text| pattern.is_match(&text)) {
                        one.wrong(value, "Pattern", || format!("does not match {}", pattern.as_str()));
                    }
                }
            }
            Constraint::LanguageIn(ranges) => {
                for value in nodes() {
                    let language = self.literal(value).and_then(|literal| literal.language.as_deref());
                    if !language.is_some_and(|language| ranges.iter().any(|range| is_of_range(language, range))) {
                        one.wrong(value, "LanguageIn", || format!("is in none of the languages {}", ranges.join(", ")));
                    }
                }
            }
            Constraint::UniqueLanguage => {
                let mut count: BTreeMap<&str, Vec<TripleId>> = BTreeMap::new();
                let mut repeated = BTreeSet::new();
                for (value, facts) in values {
                    let Some(language) = self.literal(*value).and_then(|literal| literal.language.as_deref()) else {
                        continue;
                    };
                    if count.contains_key(language) {
                        repeated.insert(language);
                    }
                    count.entry(language).or_default().extend(facts);
                }
                for language in repeated {
                    let facts = count.remove(language).unwrap_or_default();
                    one.many("UniqueLang", || format!("has several values in the language {language}"), facts);
                }
            }
            Constraint::Equals(predicate) => {
                let others = self.others(one.focus, *predicate);
                let iri = &self.shapes.predicates[*predicate];
                for value in nodes().filter(|value| !others.contains(value)) {
                    one.wrong(value, "Equals", || format!("is no value of <{iri}>"));
                }
                for value in others.into_iter().filter(|value| !values.contains_key(value)) {
                    one.wrong(value, "Equals", || format!("is a value of <{iri}> alone"));
                }
            }
            Constraint::Disjoint(predicate) => {
                let others = self.others(one.focus, *predicate);
                let iri = &self.shapes.predicates[*predicate];
                for value in nodes().filter(|value| others.contains(value)) {
                    one.wrong(value, "Disjoint", || format!("is a value of <{iri}> too"));
                }
            }
            Constraint::LessThan(predicate) => {
                self.ordered(one, *predicate, "LessThan", "<", Ordering::is_lt);
            }
            Constraint::LessThanOrEquals(predicate) => {
                self.ordered(one, *predicate, "LessThanOrEquals", "<=", Ordering::is_le);
            }
            Constraint::Not(shape) => {
                for value in nodes().filter(|value| self.meets(*shape, *value)) {
                    one.wrong(value, "Not", || "is what it must not be".to_owned());
                }
            }
            Constraint::And(shapes) => {
                for value in nodes().filter(|value| !shapes.iter().all(|shape| self.meets(*shape, *value))) {
                    one.wrong(value, "And", || "does not meet all of the shapes".to_owned());
                }
            }
            Constraint::Or(shapes) => {
                for value in nodes().filter(|value| !shapes.iter().any(|shape| self.meets(*shape, *value))) {
                    one.wrong(value, "Or", || "meets none of the shapes".to_owned());
                }
            }
            Constraint::ExactlyOne(shapes) => {
                for value in nodes() {
                    let met = shapes.iter().filter(|shape| self.meets(**shape, value)).count();
                    if met != 1 {
                        one.wrong(value, "Xone", || format!("meets {met} of the shapes, and not exactly one"));
                    }
                }
            }
            Constraint::Node(shape) => {
                let name = &self.shapes.shapes[*shape].name;
                for value in nodes().filter(|value| !self.meets(*shape, *value)) {
                    one.wrong(value, "Node", || format!("does not meet the shape {name}"));
                }
            }
            Constraint::Property(shape) => {
                for value in nodes() {
                    one.is_met &= self.check(*shape, value, one.found);
                }
            }
            Constraint::Qualified { shape, others, min, max } => {
                let is_counted = |value: &TermId| {
                    self.meets(*shape, *value) && !others.iter().any(|other| self.meets(*other, *value))
                };
                let count = nodes().filter(is_counted).count() as u64;
                if let Some(least) = min.filter(|least| count < *least) {
                    let says = || format!("has {count} values of the shape, and at least {least} are needed");
                    one.few("QualifiedMinCount", says);
                }
                if let Some(most) = max.filter(|most| count > *most) {
                    let says = || format!("has {count} values of the shape, and at most {most} are allowed");
                    one.few("QualifiedMaxCount", says);
                }
            }
            Constraint::Closed(allowed) => {
                let allowed: BTreeSet<PredicateId> =
                    allowed.iter().filter_map(|predicate| data.predicate(*predicate)).collect();
                for node in nodes() {
                    let mut others: BTreeMap<(PredicateId, TermId), Vec<TripleId>> = BTreeMap::new();
                    for (predicate, value, fact) in data.all(node) {
                        if !allowed.contains(predicate) {
                            others.entry((*predicate, *value)).or_default().push(*fact);
                        }
                    }
                    for ((predicate, value), facts) in others {
                        one.at = At::Predicate(predicate);
                        one.add(
                            Some(value),
                            "Closed",
                            || "is a value of a predicate that is not allowed".to_owned(),
                            facts,
                        );
                    }
                    one.at = At::Shape;
                }
            }
            Constraint::HasValue(constant) => {
                if !nodes().any(|value| data.equals(value, constant)) {
                    one.few("HasValue", || "lacks a value that is needed".to_owned());
                }
            }
            Constraint::In(allowed) => {
                for value in nodes() {
                    if !allowed.iter().any(|constant| data.equals(value, constant)) {
                        one.wrong(value, "In", || "is none of the allowed values".to_owned());
                    }
                }
            }
        }
    }

    fn ordered(
        &self,
        one: &mut One<'_, '_, '_>,
        predicate: usize,
        component: &'static str,
        sign: &str,
        is_right: fn(Ordering) -> bool,
    ) {
        let others = self.others(one.focus, predicate);
        let iri = &self.shapes.predicates[predicate];
        for value in one.values.keys().copied() {
            for other in &others {
                let order = self.literal(value).zip(self.literal(*other)).and_then(|(one, other)| compare(one, other));
                if !order.is_some_and(is_right) {
                    one.wrong(value, component, || format!("is not {sign} each value of <{iri}>"));
                    if one.is_enough() {
                        return;
                    }
                }
            }
        }
    }

    fn others(&self, focus: TermId, predicate: usize) -> BTreeSet<TermId> {
        self.data.values(focus, predicate, false).iter().map(|(value, _)| *value).collect()
    }

    fn literal(&self, term: TermId) -> Option<&'a Literal> {
        match self.data.is(term) {
            Term::Literal(literal) => Some(literal),
            Term::Node(_) | Term::Iri(_) => None,
        }
    }

    /// A literal's value, or a node's IRI; a node without a name has none.
    fn text(&self, term: TermId) -> Option<String> {
        match self.data.is(term) {
            Term::Literal(literal) => Some(literal.value.clone()),
            Term::Iri(iri) => Some(self.shapes.iris[*iri].clone()),
            Term::Node(id) => {
                let name = self.data.name_of(*id);
                (!name.is_blank).then(|| name.iri.unwrap_or_else(|| named::document_iri(self.base, *id)))
            }
        }
    }

    fn has_kind(&self, term: TermId, kinds: Kinds) -> bool {
        match self.data.is(term) {
            Term::Literal(_) => kinds.literal,
            Term::Iri(_) => kinds.iri,
            Term::Node(id) => match self.data.name_of(*id).is_blank {
                true => kinds.blank,
                false => kinds.iri,
            },
        }
    }
}
