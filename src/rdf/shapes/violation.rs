//! What is wrong with nodes, as it is found.
use super::{Shape, ShapeAt, automaton::Reached, checking::RESULTS, data::TermId};
use svc_ids::{PredicateId, TripleId};

/// How many facts of a violation are told.
const FACTS: usize = 10;

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub shape: ShapeAt,
    pub focus: TermId,
    pub path: At,
    pub value: Option<TermId>,
    /// The constraint component, without `ConstraintComponent`.
    pub component: &'static str,
    /// What to say if the shape says nothing.
    pub says: String,
    /// The facts that lead to the value.
    pub facts: Vec<TripleId>,
}

/// Where the values of a violation are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// At the end of the shape's path, if it has one.
    Shape,
    Predicate(PredicateId),
}

/// One constraint of a shape, at work on one node.
pub struct One<'a, 'b, 'c> {
    pub shape: ShapeAt,
    pub focus: TermId,
    pub of: &'a Shape,
    pub values: &'a Reached,
    pub at: At,
    pub found: &'b mut Option<&'c mut Vec<Violation>>,
    pub is_met: bool,
}

impl One<'_, '_, '_> {
    /// Whether more results would change nothing: the fault alone is asked for, or there are as many as a validation shows.
    pub fn is_enough(&self) -> bool {
        self.found.as_ref().is_none_or(|found| found.len() > RESULTS)
    }

    /// A value is wrong.
    pub fn wrong(&mut self, value: TermId, component: &'static str, says: impl Fn() -> String) {
        let facts = self.values.get(&value).into_iter().flatten().copied().take(FACTS).collect();
        self.add(Some(value), component, says, facts);
    }

    /// The values as a whole are wrong, for what they lack.
    pub fn few(&mut self, component: &'static str, says: impl Fn() -> String) {
        self.add(None, component, says, Vec::new());
    }

    /// The values as a whole are wrong, for what these facts say.
    pub fn many(&mut self, component: &'static str, says: impl Fn() -> String, facts: Vec<TripleId>) {
        self.add(None, component, says, facts);
    }

    pub fn add(
        &mut self,
        value: Option<TermId>,
        component: &'static str,
        says: impl Fn() -> String,
        mut facts: Vec<TripleId>,
    ) {
        self.is_met = false;
        if let Some(found) = self.found
            && found.len() <= RESULTS
        {
            facts.sort_unstable();
            facts.truncate(FACTS);
            let says = self.of.message.clone().unwrap_or_else(says);
            let (shape, focus, path) = (self.shape, self.focus, self.at);
            found.push(Violation { shape, focus, path, value, component, says, facts });
        }
    }
}
