//! Holds nodes against shapes.
use super::{
    Bound, Constraint, Kinds, ShapeAt, Shapes, Target,
    automaton::Reached,
    data::{Data, Term, TermId},
    values::{Literal, compare, is_of_range},
    violation::{At, One, Violation},
};
use crate::graph::{literal::is_ill_typed, named};
use std::{
    cell::{Cell, RefCell},
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
    time::Instant,
};
use svc_client::wire::ValidationLimit;
use svc_ids::{PredicateId, TripleId};
use tokio_util::sync::CancellationToken;

/// The most results of a validation; a little more may be found.
pub const RESULTS: usize = 10_000;
/// How many values are looked at between two looks at the clock.
const BETWEEN: usize = 100;

/// When a look at nodes is to end, whatever it has found.
#[derive(Clone, Debug)]
pub struct Until {
    pub deadline: Instant,
    /// Nobody waits for what it finds any more.
    pub cancelled: CancellationToken,
}

impl Until {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline || self.cancelled.is_cancelled()
    }
}

pub struct Checker<'a> {
    pub shapes: &'a Shapes,
    pub data: &'a Data,
    pub base: &'a str,
    /// The predicate `rdf:type` among those of the shapes.
    pub rdf_type: usize,
    until: Until,
    /// How many values may be looked at before the next look at the clock.
    left: Cell<usize>,
    stopped: Cell<Option<ValidationLimit>>,
    /// Which nodes meet which shapes, and whether something was lacking to say so.
    met: RefCell<HashMap<(ShapeAt, TermId), (bool, bool)>>,
}

impl<'a> Checker<'a> {
    pub fn new(shapes: &'a Shapes, data: &'a Data, base: &'a str, rdf_type: usize, until: Until) -> Checker<'a> {
        Checker {
            shapes,
            data,
            base,
            rdf_type,
            until,
            left: Cell::new(0),
            stopped: Cell::new(None),
            met: RefCell::default(),
        }
    }

    /// Why the look ended before its end, so that what was found is not all.
    pub fn stopped(&self) -> Option<ValidationLimit> {
        self.stopped.get()
    }

    /// Pays for looks at so many values; breaks off when the time is over.
    fn spend(&self, values: usize) -> ControlFlow<ValidationLimit> {
        if let Some(limit) = self.stopped.get() {
            return ControlFlow::Break(limit);
        }
        match self.left.get().checked_sub(values) {
            Some(left) => self.left.set(left),
            None if self.until.is_over() => {
                self.stopped.set(Some(ValidationLimit::Time));
                return ControlFlow::Break(ValidationLimit::Time);
            }
            None => self.left.set(BETWEEN),
        }
        ControlFlow::Continue(())
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
        let is_full = found.as_ref().is_some_and(|found| found.len() > RESULTS);
        if self.spend(1).is_break() || is_full {
            return true;
        }
        let of = &self.shapes.shapes[shape];
        let walked = match &of.automaton {
            None => ControlFlow::Continue(Reached::from([(focus, BTreeSet::new())])),
            Some(automaton) => automaton.walk(self.data, focus, || self.spend(1)),
        };
        let values = match walked {
            ControlFlow::Continue(values) => values,
            ControlFlow::Break(limit) => {
                self.stopped.set(Some(limit));
                return true;
            }
        };
        let mut is_met = true;
        for constraint in &of.constraints {
            if self.spend(values.len()).is_break() {
                break;
            }
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
        let nodes = move || values.keys().copied().take_while(move |_| self.spend(1).is_continue());
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
                if self.spend(1).is_break() {
                    return;
                }
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
        let values = self.data.values(focus, predicate, false).iter();
        values.take_while(|_| self.spend(1).is_continue()).map(|(value, _)| *value).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdf::shapes::{Automaton, Path, Shape, data::Missing};
    use std::time::Duration;
    use svc_ids::DocumentId;

    const BEFORE: usize = 0;
    const AFTER: usize = 1;

    /// A node with these values of two predicates, the first of which are to come before the second, and what a look at it finds.
    fn look(values: i64, until: Until) -> (usize, Option<ValidationLimit>) {
        let mut data = Data::new(vec![Some(PredicateId(1)), Some(PredicateId(2))], Vec::new(), BTreeMap::new());
        let node = data.term(Term::Node(DocumentId(1)));
        let values_of = BTreeSet::from([(node, BEFORE), (node, AFTER)]);
        data.expect(&Missing { values: values_of, ..Missing::default() });
        for number in 0..values {
            for (predicate, value) in [(BEFORE, number), (AFTER, number + values)] {
                let datatype = "http://www.w3.org/2001/XMLSchema#integer".to_owned();
                let value = data.term(Term::Literal(Literal { value: value.to_string(), datatype, language: None }));
                data.add(node, predicate, false, value, TripleId(number));
            }
        }
        let path = Path::Predicate(BEFORE);
        let shape = Shape {
            name: "ordered".to_owned(),
            automaton: Some(Automaton::new(&path)),
            path: Some(path),
            targets: Vec::new(),
            constraints: vec![Constraint::LessThan(AFTER)],
            severity: String::new(),
            message: None,
        };
        let predicates = ["before", "after"].map(str::to_owned).to_vec();
        let shapes = Shapes { shapes: vec![shape], roots: vec![0], predicates, iris: Vec::new() };
        let checker = Checker::new(&shapes, &data, "", BEFORE, until);
        let found = checker.violations(0, node).len();
        (found, checker.stopped())
    }

    #[test]
    fn a_look_at_one_node_ends_with_its_time_or_with_whoever_asked() {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(3_600));
        let cancelled = CancellationToken::new();
        assert_eq!(look(40, Until { deadline: later, cancelled: cancelled.clone() }), (0, None));
        assert_eq!(look(40, Until { deadline: now, cancelled: cancelled.clone() }), (0, Some(ValidationLimit::Time)));
        cancelled.cancel();
        assert_eq!(look(40, Until { deadline: later, cancelled }), (0, Some(ValidationLimit::Time)));
    }

    #[test]
    fn pairs_of_values_are_paid_for_one_by_one() {
        let until =
            Until { deadline: Instant::now() + Duration::from_secs(3_600), cancelled: CancellationToken::new() };
        let (shapes, data) = (Shapes::default(), Data::default());
        let checker = Checker::new(&shapes, &data, "", BEFORE, until.clone());
        assert!(checker.spend(1).is_continue(), "the first one looks at the clock");
        until.cancelled.cancel();
        let paid = (0..10_000).take_while(|_| checker.spend(1).is_continue()).count();
        assert_eq!((paid, checker.stopped()), (BETWEEN, Some(ValidationLimit::Time)));
    }
}
