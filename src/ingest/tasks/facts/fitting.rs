//! Finds the facts of a text that break bound shapes, so that the others can be written.
use super::{Dropped, answer::Checked};
use crate::rdf::shapes::guarding::Refusal;
use std::collections::BTreeMap;
use svc_client::wire::ShapeResult;
use svc_ids::{DocumentId, TripleId};

/// How often single facts are taken out; after that all that may be at fault are.
const SINGLE: usize = 16;

/// The facts of a text, and which of them shapes refuse.
pub struct Fitting {
    all: Vec<Checked>,
    /// The facts that are taken out, by their position, each with what the shape says.
    out: BTreeMap<usize, String>,
    /// Those that were taken out because something was wrong with their subject, by the name of that, in the order of the attempts.
    guessed: BTreeMap<String, Vec<usize>>,
    has_given_back: bool,
    rounds: usize,
}

impl Fitting {
    pub fn new(all: Vec<Checked>) -> Fitting {
        Fitting { all, out: BTreeMap::new(), guessed: BTreeMap::new(), has_given_back: false, rounds: 0 }
    }

    /// The facts that are not taken out.
    pub fn kept(&self) -> Vec<Checked> {
        self.positions().into_iter().map(|at| self.all[at].clone()).collect()
    }

    fn positions(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|at| !self.out.contains_key(at)).collect()
    }

    /// Takes out the facts that a refusal is about, at least one. `written` says of each fact that was kept which document it is about, and which
    /// fact it has become.
    ///
    /// Of the facts that a result rests on the least sure one goes, so that of several values where one is allowed the surest stays. A result that
    /// rests on none, such as a value that is missing, is about some fact of its node: the least sure one goes, and then the next.
    pub fn refuse(&mut self, refusal: &Refusal, written: &[(DocumentId, TripleId)]) {
        let positions = self.positions();
        let is_single = self.rounds < SINGLE;
        self.rounds += 1;
        let rest_on = |result: &ShapeResult, (_, id): &(DocumentId, TripleId)| result.triple_ids.contains(&id.0);
        let about = |result: &ShapeResult, (id, _): &(DocumentId, TripleId)| result.focus.document_id == Some(id.0);
        let mut out: BTreeMap<usize, String> = BTreeMap::new();
        for result in &refusal.results {
            let those = |is: &dyn Fn(&ShapeResult, &(DocumentId, TripleId)) -> bool| {
                let those = positions.iter().zip(written).filter(|(_, written)| is(result, written));
                those.map(|(at, _)| *at).collect::<Vec<usize>>()
            };
            let sure = those(&rest_on);
            let guessed = if sure.is_empty() { those(&about) } else { Vec::new() };
            let mut at_fault = if sure.is_empty() { guessed.clone() } else { sure };
            if is_single {
                at_fault = self.least_sure(&at_fault).into_iter().collect();
                for at in at_fault.iter().filter(|at| guessed.contains(at)) {
                    let guesses = self.guessed.entry(self.all[*at].subject.key.clone()).or_default();
                    if !guesses.contains(at) {
                        guesses.push(*at);
                    }
                }
            }
            out.extend(at_fault.into_iter().map(|at| (at, said(result))));
        }
        if out.is_empty() {
            out.extend(positions.into_iter().map(|at| (at, refusal.failure.detail.clone())));
        }
        self.out.extend(out);
    }

    /// Of equally sure facts the last one is the least sure.
    fn least_sure(&self, facts: &[usize]) -> Option<usize> {
        let sure = |at: &usize| self.all[*at].confidence;
        facts.iter().copied().min_by(|one, other| sure(one).total_cmp(&sure(other)).then(other.cmp(one)))
    }

    /// Puts back, once, what was taken out before the fact that was at fault was found; false if there is no such fact.
    pub fn give_back(&mut self) -> bool {
        if std::mem::replace(&mut self.has_given_back, true) {
            return false;
        }
        let innocent: Vec<usize> =
            self.guessed.values().flat_map(|guesses| guesses.iter().rev().skip(1)).copied().collect();
        innocent.iter().filter(|at| self.out.remove(at).is_some()).count() > 0
    }

    /// The facts that are refused, each with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (&Checked, &str)> {
        self.out.iter().map(|(at, why)| (&self.all[*at], why.as_str()))
    }

    /// Counts the facts among those that were dropped.
    pub fn tell(&self, dropped: &mut Dropped) {
        if !self.out.is_empty() {
            dropped.insert("shape_violation", self.out.len());
        }
    }
}

fn said(result: &ShapeResult) -> String {
    match &result.path {
        Some(path) => format!("{path}: {}", result.message),
        None => result.message.clone(),
    }
}
