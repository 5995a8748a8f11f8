//! Walks paths. A path becomes an automaton whose edges are predicates, and a walk visits each state of it at each node once: what a walk costs
//! grows with the path and the facts, however often the path repeats what is repeated already.
use super::{
    PredicateAt,
    data::{Data, TermId},
    paths::Path,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::ControlFlow,
};
use svc_client::wire::ValidationLimit;
use svc_ids::TripleId;

/// The most states at nodes that one walk visits.
const VISITS: usize = 1_000_000;

/// Nodes that a path leads to, each once and in a fixed order, with the facts of the last step to it.
pub type Reached = BTreeMap<TermId, BTreeSet<TripleId>>;

/// A state by its position in [`Automaton`].
type StateAt = usize;

const START: StateAt = 0;
const END: StateAt = 1;

/// A nondeterministic finite automaton, by Thompson's construction.
#[derive(Debug)]
pub struct Automaton {
    states: Vec<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where a fact leads; from its object to its subject if the second is true.
    steps: Vec<(PredicateAt, bool, StateAt)>,
    /// Where nothing but the path leads.
    free: Vec<StateAt>,
    /// Whether the path may end here.
    is_end: bool,
}

impl Automaton {
    pub fn new(path: &Path) -> Automaton {
        let mut automaton = Automaton { states: vec![State::default(), State::default()] };
        automaton.add(path, START, END, false);
        automaton.mark_ends();
        automaton
    }

    fn state(&mut self) -> StateAt {
        self.states.push(State::default());
        self.states.len() - 1
    }

    fn free(&mut self, from: StateAt, to: StateAt) {
        self.states[from].free.push(to);
    }

    /// Adds a path from one state to another. What repeats gets states of its own, so that nothing else goes round with it.
    fn add(&mut self, path: &Path, from: StateAt, to: StateAt, is_inverse: bool) {
        match path {
            Path::Predicate(predicate) => self.states[from].steps.push((*predicate, is_inverse, to)),
            Path::Inverse(path) => self.add(path, from, to, !is_inverse),
            Path::Sequence(paths) => {
                let mut steps: Vec<&Path> = paths.iter().collect();
                if is_inverse {
                    steps.reverse();
                }
                let Some((last, before)) = steps.split_last() else { return self.free(from, to) };
                let mut at = from;
                for step in before {
                    let next = self.state();
                    self.add(step, at, next, is_inverse);
                    at = next;
                }
                self.add(last, at, to, is_inverse);
            }
            Path::Alternative(paths) => paths.iter().for_each(|path| self.add(path, from, to, is_inverse)),
            Path::ZeroOrOne(path) => {
                self.free(from, to);
                self.add(path, from, to, is_inverse);
            }
            Path::ZeroOrMore(path) => {
                let round = self.state();
                self.free(from, round);
                self.add(path, round, round, is_inverse);
                self.free(round, to);
            }
            Path::OneOrMore(path) => {
                let (before, after) = (self.state(), self.state());
                self.free(from, before);
                self.add(path, before, after, is_inverse);
                self.free(after, before);
                self.free(after, to);
            }
        }
    }

    /// Marks the states from which nothing more is needed.
    fn mark_ends(&mut self) {
        let mut before: Vec<Vec<StateAt>> = vec![Vec::new(); self.states.len()];
        for (from, state) in self.states.iter().enumerate() {
            state.free.iter().for_each(|to| before[*to].push(from));
        }
        let mut open = vec![END];
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut self.states[at].is_end, true) {
                open.extend(&before[at]);
            }
        }
    }

    /// Where the path leads from a node. `step` is called for each step, and breaks the walk off.
    pub fn walk(
        &self,
        data: &Data,
        node: TermId,
        mut step: impl FnMut() -> ControlFlow<ValidationLimit>,
    ) -> ControlFlow<ValidationLimit, Reached> {
        let mut reached = Reached::new();
        if self.states[START].is_end {
            reached.entry(node).or_default();
        }
        let (mut open, mut seen) = (vec![(START, node)], HashSet::from([(START, node)]));
        while let Some((at, node)) = open.pop() {
            let State { steps, free, .. } = &self.states[at];
            for to in free {
                step()?;
                if seen.insert((*to, node)) {
                    open.push((*to, node));
                }
            }
            for (predicate, is_inverse, to) in steps {
                step()?;
                for (value, fact) in data.values(node, *predicate, *is_inverse) {
                    step()?;
                    if self.states[*to].is_end {
                        reached.entry(*value).or_default().insert(*fact);
                    }
                    if seen.insert((*to, *value)) {
                        open.push((*to, *value));
                    }
                }
            }
            if seen.len() > VISITS {
                return ControlFlow::Break(ValidationLimit::Facts);
            }
        }
        ControlFlow::Continue(reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdf::shapes::data::{Missing, Term};
    use svc_ids::{DocumentId, PredicateId};

    /// Facts of one predicate between nodes that have numbers, at hand in both directions, and the terms of the nodes.
    fn data(nodes: i64, facts: &[(usize, usize)]) -> (Data, Vec<TermId>) {
        let mut data = Data::new(vec![Some(PredicateId(1))], Vec::new(), BTreeMap::new());
        let terms: Vec<TermId> = (0..nodes).map(|id| data.term(Term::Node(DocumentId(id)))).collect();
        let all: BTreeSet<(TermId, PredicateAt)> = terms.iter().map(|term| (*term, 0)).collect();
        data.expect(&Missing { values: all.clone(), subjects: all, all: BTreeSet::new() });
        for (id, (from, to)) in (1..).zip(facts) {
            data.add(terms[*from], 0, false, terms[*to], TripleId(id));
            data.add(terms[*to], 0, true, terms[*from], TripleId(id));
        }
        (data, terms)
    }

    fn step() -> Path {
        Path::Predicate(0)
    }

    fn boxed(of: fn(Box<Path>) -> Path, path: Path) -> Path {
        of(Box::new(path))
    }

    /// Where a path leads, and how many steps it took.
    fn walk(path: &Path, data: &Data, from: TermId) -> (Vec<(TermId, Vec<i64>)>, usize) {
        let mut steps = 0;
        let count = || {
            steps += 1;
            ControlFlow::Continue(())
        };
        let ControlFlow::Continue(reached) = Automaton::new(path).walk(data, from, count) else {
            panic!("nobody broke it off")
        };
        let shown = |facts: &BTreeSet<TripleId>| facts.iter().map(|fact| fact.0).collect();
        (reached.iter().map(|(node, facts)| (*node, shown(facts))).collect(), steps)
    }

    #[test]
    fn a_path_leads_where_its_parts_lead_with_the_facts_of_the_last_step() {
        // 0 -> 1 -> 2 -> 0, and 2 -> 3.
        let (data, terms) = data(4, &[(0, 1), (1, 2), (2, 0), (2, 3)]);
        let [inverse, zero_or_more, one_or_more, zero_or_one] =
            [Path::Inverse as fn(Box<Path>) -> Path, Path::ZeroOrMore, Path::OneOrMore, Path::ZeroOrOne]
                .map(|of| move |path| boxed(of, path));
        let all = [(0, vec![3]), (1, vec![1]), (2, vec![2]), (3, vec![4])];
        for (name, path, is) in [
            ("p", step(), vec![(1, vec![1])]),
            ("^p", inverse(step()), vec![(2, vec![3])]),
            ("p/p", Path::Sequence(vec![step(), step()]), vec![(2, vec![2])]),
            ("^(p/p)", inverse(Path::Sequence(vec![step(), step()])), vec![(1, vec![2])]),
            ("p|^p", Path::Alternative(vec![step(), inverse(step())]), vec![(1, vec![1]), (2, vec![3])]),
            ("p?", zero_or_one(step()), vec![(0, vec![]), (1, vec![1])]),
            ("p*", zero_or_more(step()), all.to_vec()),
            ("p+", one_or_more(step()), all.to_vec()),
            ("(p*)*", zero_or_more(zero_or_more(step())), all.to_vec()),
            ("(p+)?", zero_or_one(one_or_more(step())), all.to_vec()),
            ("(p/p)*", zero_or_more(Path::Sequence(vec![step(), step()])), all.to_vec()),
            (
                "p?/p?",
                Path::Sequence(vec![zero_or_one(step()), zero_or_one(step())]),
                vec![(0, vec![]), (1, vec![1]), (2, vec![2])],
            ),
        ] {
            let is = is.into_iter().map(|(node, facts): (usize, Vec<i64>)| (terms[node], facts));
            assert_eq!(walk(&path, &data, terms[0]).0, is.collect::<Vec<_>>(), "{name}");
        }
        let (alone, _) = walk(&zero_or_more(step()), &data, terms[3]);
        assert_eq!(alone, vec![(terms[3], Vec::<i64>::new())]);
        assert!(walk(&one_or_more(step()), &data, terms[3]).0.is_empty());
    }

    #[test]
    fn what_a_walk_costs_grows_with_the_path_and_not_with_its_power() {
        let pairs = (0..8).flat_map(|from| (0..8).filter(move |to| *to != from).map(move |to| (from, to)));
        let (data, terms) = data(8, &pairs.collect::<Vec<_>>());
        for of in [Path::ZeroOrMore as fn(Box<Path>) -> Path, Path::OneOrMore, Path::ZeroOrOne] {
            let nested = |depth: usize| (0..depth).fold(step(), |path, _| boxed(of, path));
            let (reached, steps) = walk(&nested(40), &data, terms[0]);
            let (plain, _) = walk(&nested(1), &data, terms[0]);
            assert_eq!(reached, plain, "a repetition of a repetition is one");
            assert!(steps < 10_000, "{steps}");
        }
        // A step that may be taken one way or the other leads nowhere twice.
        let either = || Path::Alternative(vec![step(), step()]);
        let long = (0..40).fold(step(), |path, _| Path::Sequence(vec![path, either()]));
        let (reached, steps) = walk(&long, &data, terms[0]);
        assert!(reached.len() == 8 && reached.iter().all(|(_, facts)| facts.len() == 7), "{reached:?}");
        assert!(steps < 100_000, "{steps}");
    }

    #[test]
    fn a_walk_ends_when_it_is_broken_off() {
        let (data, terms) = data(2, &[(0, 1), (1, 0)]);
        let walked = Automaton::new(&boxed(Path::ZeroOrMore, step()))
            .walk(&data, terms[0], || ControlFlow::Break(ValidationLimit::Time));
        assert_eq!(walked, ControlFlow::Break(ValidationLimit::Time));
    }
}
