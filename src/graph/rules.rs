//! What follows from facts by rules: the closure of asserted facts, each with the time for which it follows and with what it follows from.
//!
//! A worklist of newly covered pieces of time: each piece of a statement is joined once with the pieces that were there before it. What is open
//! to all is closed first. Then each zone is closed on top of that, with its own facts, axioms and nodes, so that nothing follows from two
//! private zones together, and what is too much in one of them is given up there alone.
#[cfg(test)]
mod tests;

use super::interval::Interval;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap},
};

/// The zone of what is open to all.
pub const OPEN: i64 = 0;
/// The most statements and pieces that are looked at for each fact that may be derived, in what is open to all, and in all zones together.
const EFFORT: usize = 2_000;
/// How many pieces are moved up at the cost of one look.
const MOVED: usize = 64;

/// What a statement leads to. Literals have numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    Node(i64),
    Literal(usize),
}

/// A fact that somebody asserted.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    pub id: i64,
    pub subject: i64,
    pub predicate: i64,
    pub object: Object,
    pub zone: i64,
    pub time: Interval,
}

/// What a rule does with facts.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A fact with one predicate is one with another, in the other direction if it is `turned`.
    Copied { from: i64, to: i64, turned: bool },
    /// A fact and one with another predicate that begins where it ends make one with the first predicate: transitive predicates, and types with
    /// their superclasses.
    Joined { first: i64, then: i64 },
}

impl Step {
    /// The predicates of the facts that it looks at, which may be one.
    fn predicates(self) -> (i64, i64) {
        match self {
            Step::Copied { from, .. } => (from, from),
            Step::Joined { first, then } => (first, then),
        }
    }
}

/// A rule, which those may use who may read its zone.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub step: Step,
    pub zone: i64,
}

/// What a derived fact follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Premise {
    Asserted(i64),
    /// The position of another derived fact.
    Derived(usize),
}

/// A fact that follows for all of a time, and for no longer one.
#[derive(Clone, Debug)]
pub struct Derived {
    pub subject: i64,
    pub predicate: i64,
    pub object: Object,
    pub zone: i64,
    pub time: Interval,
    /// The position of the rule that gave the first part of it.
    pub rule: usize,
    pub premises: Vec<Premise>,
}

/// All that follows, but in some zones.
#[derive(Debug)]
pub struct Closed {
    pub derived: Vec<Derived>,
    /// The zones in which too much follows, and of which nothing is derived.
    pub given_up: BTreeSet<i64>,
}

/// More follows from what is open to all than is allowed, so that nothing can be said of any zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// All that follows from facts and is not asserted itself; in a zone without what is open to all. Facts of one statement and zone do not overlap.
/// `guards` has the zone of each node that is not open to all: what leads through such a node belongs to its zone. In each zone at most `most`
/// facts follow; those in `left_out` are given up unseen.
pub fn derive(
    facts: &[Fact],
    rules: &[Rule],
    guards: &BTreeMap<i64, i64>,
    left_out: &BTreeSet<i64>,
    most: usize,
) -> Result<Closed, TooMuch> {
    let mut closure = Closure::new(rules, guards, most);
    for fact in facts.iter().filter(|fact| fact.zone == OPEN) {
        let line = closure.line(fact.subject, fact.predicate, fact.object);
        closure.cover(line, fact.time, From::Asserted(fact.id))?;
    }
    closure.close()?;
    closure.gather(0..closure.lines.len())?;
    let mut zones: BTreeMap<i64, Vec<&Fact>> = BTreeMap::new();
    for fact in facts.iter().filter(|fact| fact.zone > OPEN) {
        zones.entry(fact.zone).or_default().push(fact);
    }
    let mut nodes: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    guards.iter().for_each(|(node, zone)| nodes.entry(*zone).or_default().push(*node));
    let others = rules.iter().map(|rule| rule.zone).chain(nodes.keys().copied()).filter(|zone| *zone > OPEN);
    let all: BTreeSet<i64> = zones.keys().copied().chain(others).filter(|zone| !left_out.contains(zone)).collect();
    let open = (closure.lines.len(), closure.pieces.len());
    let (mut waiting, mut left): (Vec<i64>, usize) = (all.into_iter().collect(), effort(most));
    // Each zone has an equal share of the looks. What some do not need is there for those that need more.
    loop {
        let mut again = Vec::new();
        for (at, zone) in waiting.iter().enumerate() {
            let share = left / (waiting.len() - at);
            closure.effort.set(share);
            let facts = zones.get(zone).map(Vec::as_slice).unwrap_or_default();
            let nodes = nodes.get(zone).map(Vec::as_slice).unwrap_or_default();
            if closure.close_zone(*zone, facts, nodes).is_err() {
                again.push(*zone);
            }
            closure.forget(open);
            left -= share - closure.effort.get();
        }
        if again.len() == waiting.len() {
            let given_up = again.into_iter().chain(left_out.iter().copied()).collect();
            return Ok(Closed { derived: closure.derived, given_up });
        }
        waiting = again;
    }
}

/// How many looks there may be.
fn effort(most: usize) -> usize {
    most.max(1_000).saturating_mul(EFFORT)
}

/// A part of a statement's time, which no other part of it covers.
struct Piece {
    line: usize,
    time: Interval,
    from: From,
    /// The position of the derived fact that it is a part of.
    part_of: Option<usize>,
}

#[derive(Clone, Copy)]
enum From {
    Asserted(i64),
    Rule { rule: usize, pieces: [usize; 2] },
}

/// A statement, with the pieces that are open to all and those of the zone that is being closed, both in the order of time.
struct Line {
    subject: i64,
    predicate: i64,
    object: Object,
    open: Vec<usize>,
    own: Vec<usize>,
    /// The zone that something of it was derived in last.
    derived_in: Option<i64>,
}

struct Closure<'a> {
    rules: &'a [Rule],
    guards: &'a BTreeMap<i64, i64>,
    /// The rules that look at facts with a predicate.
    of: HashMap<i64, Vec<usize>>,
    zone: i64,
    lines: Vec<Line>,
    known: HashMap<(i64, i64, Object), usize>,
    /// The statements of a predicate: all, those that begin at a node, and those that lead to one.
    with: HashMap<i64, Vec<usize>>,
    out: HashMap<(i64, i64), Vec<usize>>,
    into: HashMap<(i64, i64), Vec<usize>>,
    pieces: Vec<Piece>,
    work: Vec<usize>,
    /// The statements with pieces of the zone.
    touched: BTreeSet<usize>,
    derived: Vec<Derived>,
    /// How many facts are derived in the zone at least.
    least: usize,
    most: usize,
    /// How many looks are left.
    effort: Cell<usize>,
}

/// A piece that follows.
struct Follows {
    subject: i64,
    predicate: i64,
    object: Object,
    time: Interval,
    rule: usize,
    pieces: [usize; 2],
}

impl<'a> Closure<'a> {
    fn new(rules: &'a [Rule], guards: &'a BTreeMap<i64, i64>, most: usize) -> Closure<'a> {
        let mut of: HashMap<i64, Vec<usize>> = HashMap::new();
        for (at, rule) in rules.iter().enumerate() {
            let (one, other) = rule.step.predicates();
            of.entry(one).or_default().push(at);
            if other != one {
                of.entry(other).or_default().push(at);
            }
        }
        Closure {
            rules,
            guards,
            of,
            zone: OPEN,
            lines: Vec::new(),
            known: HashMap::new(),
            with: HashMap::new(),
            out: HashMap::new(),
            into: HashMap::new(),
            pieces: Vec::new(),
            work: Vec::new(),
            touched: BTreeSet::new(),
            derived: Vec::new(),
            least: 0,
            most,
            effort: Cell::new(effort(most)),
        }
    }

    fn line(&mut self, subject: i64, predicate: i64, object: Object) -> usize {
        *self.known.entry((subject, predicate, object)).or_insert_with(|| {
            let at = self.lines.len();
            self.lines.push(Line { subject, predicate, object, open: Vec::new(), own: Vec::new(), derived_in: None });
            self.with.entry(predicate).or_default().push(at);
            if let Object::Node(node) = object {
                self.out.entry((predicate, subject)).or_default().push(at);
                self.into.entry((predicate, node)).or_default().push(at);
            }
            at
        })
    }

    /// Closes a zone on top of what is open to all. If that is too much, nothing of the zone is derived.
    fn close_zone(&mut self, zone: i64, facts: &[&Fact], nodes: &[i64]) -> Result<(), TooMuch> {
        self.zone = zone;
        self.least = 0;
        let begun = self.derived.len();
        let closed = self.derive_zone(facts, nodes);
        if closed.is_err() {
            self.derived.truncate(begun);
        }
        closed
    }

    fn derive_zone(&mut self, facts: &[&Fact], nodes: &[i64]) -> Result<(), TooMuch> {
        for fact in facts {
            let line = self.line(fact.subject, fact.predicate, fact.object);
            self.cover(line, fact.time, From::Asserted(fact.id))?;
        }
        self.open_with(nodes)?;
        self.close()?;
        let touched = self.touched.clone();
        self.gather(touched.into_iter())
    }

    /// Forgets the statements and the pieces that came after the first ones, so that no zone looks at what is another's.
    fn forget(&mut self, (lines, pieces): (usize, usize)) {
        self.work.clear();
        std::mem::take(&mut self.touched).into_iter().for_each(|line| self.lines[line].own.clear());
        for Line { subject, predicate, object, .. } in self.lines.drain(lines..).rev() {
            self.known.remove(&(subject, predicate, object));
            // The last one in is the first one out.
            self.with.get_mut(&predicate).and_then(Vec::pop);
            if let Object::Node(node) = object {
                self.out.get_mut(&(predicate, subject)).and_then(Vec::pop);
                self.into.get_mut(&(predicate, node)).and_then(Vec::pop);
            }
        }
        self.pieces.truncate(pieces);
    }

    /// Pays for looks.
    fn spend(&self, looks: usize) -> Result<(), TooMuch> {
        self.effort.set(self.effort.get().checked_sub(looks).ok_or(TooMuch)?);
        Ok(())
    }

    /// The pieces of a statement that overlap a time, each of the two kinds in the order of time.
    fn overlapping(&self, line: usize, time: Interval) -> impl Iterator<Item = usize> {
        let Line { open, own, .. } = &self.lines[line];
        [open, own].into_iter().flat_map(move |pieces| {
            let time_of = |piece: &usize| self.pieces[*piece].time;
            let first = pieces.partition_point(|piece| !time.begins_before_end_of(time_of(piece)));
            pieces[first..].iter().copied().take_while(move |piece| time_of(piece).begins_before_end_of(time))
        })
    }

    /// Adds what a time has that the statement did not have yet.
    fn cover(&mut self, line: usize, time: Interval, from: From) -> Result<(), TooMuch> {
        let mut taken: Vec<Interval> = self.overlapping(line, time).map(|piece| self.pieces[piece].time).collect();
        self.spend(1 + taken.len())?;
        taken.sort_unstable_by_key(|taken| taken.from);
        let (mut free, mut rest) = (Vec::new(), Some(time));
        for taken in taken {
            let Some(left) = rest.take() else { break };
            for piece in left.minus(taken) {
                // What is left behind it may be taken by the next one.
                if piece.from == taken.until && taken.until.is_some() {
                    rest = Some(piece);
                } else {
                    free.push(piece);
                }
            }
        }
        free.extend(rest);
        if free.is_empty() {
            return Ok(());
        }
        if matches!(from, From::Rule { .. }) && self.lines[line].derived_in.replace(self.zone) != Some(self.zone) {
            self.least += 1;
        }
        for time in free {
            let piece = self.pieces.len();
            self.pieces.push(Piece { line, time, from, part_of: None });
            self.work.push(piece);
            let Line { open, own, .. } = &self.lines[line];
            let pieces = if self.zone == OPEN { open } else { own };
            let at = pieces.partition_point(|piece| self.pieces[*piece].time.from < time.from);
            self.spend((pieces.len() - at) / MOVED)?;
            let Line { open, own, .. } = &mut self.lines[line];
            if self.zone == OPEN {
                open.insert(at, piece);
            } else {
                own.insert(at, piece);
                self.touched.insert(line);
            }
        }
        Ok(())
    }

    /// Whether something that leads through a node is of the zone that is being closed.
    fn passes(&self, node: i64) -> bool {
        self.guards.get(&node).is_none_or(|guard| *guard == self.zone)
    }

    /// Takes pieces off the worklist until nothing new follows.
    fn close(&mut self) -> Result<(), TooMuch> {
        while let Some(piece) = self.work.pop() {
            let predicate = self.lines[self.pieces[piece].line].predicate;
            for rule in self.of.get(&predicate).cloned().unwrap_or_default() {
                if self.rules[rule].zone == OPEN || self.rules[rule].zone == self.zone {
                    self.apply(rule, piece)?;
                }
            }
        }
        Ok(())
    }

    /// Adds what follows from a piece by a rule, with all pieces that are there.
    fn apply(&mut self, rule: usize, piece: usize) -> Result<(), TooMuch> {
        let Piece { line, time, .. } = self.pieces[piece];
        let Line { subject, predicate, object, .. } = self.lines[line];
        let mut found = Vec::new();
        match self.rules[rule].step {
            Step::Copied { to, turned, .. } => {
                let ends = match (turned, object) {
                    (false, object) => Some((subject, object)),
                    (true, Object::Node(node)) => Some((node, Object::Node(subject))),
                    (true, Object::Literal(_)) => None,
                };
                found.extend(ends.map(|(subject, object)| {
                    let pieces = [piece, piece];
                    Follows { subject, predicate: to, object, time, rule, pieces }
                }));
            }
            Step::Joined { first, then } => {
                if let Object::Node(node) = object
                    && predicate == first
                    && self.passes(node)
                {
                    for other in self.out.get(&(then, node)).into_iter().flatten() {
                        let object = self.lines[*other].object;
                        self.meet(*other, time, &mut |with, time| {
                            let pieces = [piece, with];
                            found.push(Follows { subject, predicate: first, object, time, rule, pieces });
                        })?;
                    }
                }
                if predicate == then && matches!(object, Object::Node(_)) && self.passes(subject) {
                    for other in self.into.get(&(first, subject)).into_iter().flatten() {
                        let from = self.lines[*other].subject;
                        self.meet(*other, time, &mut |with, time| {
                            let pieces = [with, piece];
                            found.push(Follows { subject: from, predicate: first, object, time, rule, pieces });
                        })?;
                    }
                }
            }
        }
        self.add(found)
    }

    /// Takes the pieces of a statement that overlap a time, with what they have in common.
    fn meet(&self, line: usize, time: Interval, take: &mut dyn FnMut(usize, Interval)) -> Result<(), TooMuch> {
        self.spend(1)?;
        for piece in self.overlapping(line, time) {
            self.spend(1)?;
            if let Some(both) = time.intersection(self.pieces[piece].time) {
                take(piece, both);
            }
        }
        Ok(())
    }

    fn add(&mut self, found: Vec<Follows>) -> Result<(), TooMuch> {
        for Follows { subject, predicate, object, time, rule, pieces } in found {
            let line = self.line(subject, predicate, object);
            self.cover(line, time, From::Rule { rule, pieces })?;
        }
        if self.least > self.most { Err(TooMuch) } else { Ok(()) }
    }

    /// Adds what follows from facts that are open to all by the axioms of a zone, and what leads through its nodes.
    fn open_with(&mut self, nodes: &[i64]) -> Result<(), TooMuch> {
        for rule in 0..self.rules.len() {
            if self.rules[rule].zone == self.zone {
                let (one, other) = self.rules[rule].step.predicates();
                for predicate in std::iter::once(one).chain(Some(other).filter(|other| *other != one)) {
                    self.apply_to_open(rule, self.with.get(&predicate).cloned().unwrap_or_default())?;
                }
            }
            if self.rules[rule].zone == OPEN
                && let Step::Joined { first, .. } = self.rules[rule].step
            {
                for node in nodes {
                    self.apply_to_open(rule, self.into.get(&(first, *node)).cloned().unwrap_or_default())?;
                }
            }
        }
        Ok(())
    }

    fn apply_to_open(&mut self, rule: usize, lines: Vec<usize>) -> Result<(), TooMuch> {
        self.spend(lines.len())?;
        for line in lines {
            for piece in self.lines[line].open.clone() {
                self.apply(rule, piece)?;
            }
        }
        Ok(())
    }

    /// Unites the derived pieces of statements into facts.
    fn gather(&mut self, lines: impl Iterator<Item = usize>) -> Result<(), TooMuch> {
        let begun = self.derived.len();
        let mut members: Vec<Vec<usize>> = Vec::new();
        for line in lines {
            let Line { subject, predicate, object, .. } = self.lines[line];
            let all = if self.zone == OPEN { &self.lines[line].open } else { &self.lines[line].own };
            let is_derived = |piece: &usize| matches!(self.pieces[*piece].from, From::Rule { .. });
            let pieces: Vec<usize> = all.iter().copied().filter(is_derived).collect();
            let mut before: Option<Interval> = None;
            for piece in pieces {
                let Piece { time, from, .. } = self.pieces[piece];
                let From::Rule { rule, .. } = from else { continue };
                match (self.derived.last_mut(), members.last_mut()) {
                    (Some(last), Some(members)) if before.is_some_and(|before| before.meets(time)) => {
                        last.time = last.time.union(time);
                        members.push(piece);
                    }
                    _ => {
                        if self.derived.len() - begun == self.most {
                            return Err(TooMuch);
                        }
                        let (zone, premises) = (self.zone, Vec::new());
                        self.derived.push(Derived { subject, predicate, object, zone, time, rule, premises });
                        members.push(vec![piece]);
                    }
                }
                before = Some(time);
                self.pieces[piece].part_of = Some(self.derived.len() - 1);
            }
        }
        for (at, members) in (begun..).zip(members) {
            let from = members.iter().filter_map(|piece| match self.pieces[*piece].from {
                From::Rule { pieces, .. } => Some(pieces),
                From::Asserted(_) => None,
            });
            let premise = |piece: usize| match self.pieces[piece] {
                Piece { from: From::Asserted(id), .. } => Some(Premise::Asserted(id)),
                // A part of the fact itself says nothing more.
                Piece { part_of, .. } => part_of.filter(|part| *part != at).map(Premise::Derived),
            };
            let premises: BTreeSet<Premise> = from.flatten().filter_map(premise).collect();
            self.derived[at].premises = premises.into_iter().collect();
        }
        Ok(())
    }
}
