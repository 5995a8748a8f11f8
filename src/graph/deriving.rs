//! Derives what follows from facts by rules: one process of the fleet looks which predicates wait, computes all that follows from the facts of
//! their group, and writes the difference to what is there.
use super::{
    interval::Interval,
    rules::{self, Closed, Derived, Fact, OPEN, Object, Premise, Rule, Step, TooMuch},
};
use crate::store::{
    self,
    advisory::{self, AdvisoryLock, SILENCE, within},
    away::away,
    triples::{
        derived::{self, AssertedRow, Axiom, Classes, DerivedRow, NewDerived},
        write::{self, statement},
    },
};
use sqlx::{PgConnection, PgPool};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::{Duration, Instant},
};
use svc_client::wire::FactType;
use svc_ids::{DocumentId, PredicateId, TripleId};
use tokio::task::JoinHandle;

const TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";
const SUB_CLASS_OF: &str = "http://www.w3.org/2000/01/rdf-schema#subClassOf";
/// The time between two looks for predicates that wait.
const PAUSE: Duration = Duration::from_millis(200);
/// The time between two tries to become the one that derives, and after an error.
const RETRY: Duration = Duration::from_secs(1);
/// A group that was read and computed for longer than `PAUSE` rests so many times as long, at most `LONGEST_REST`, before it is computed again: each time all of
/// it is read, and writes that follow each other must not cost more than a share of the time.
const RESTS: u32 = 3;
const LONGEST_REST: Duration = Duration::from_secs(60);
/// What follows is written once, and looks that others made vain by writing meanwhile are over. So the time that a group took beside its last look counts only from
/// here on, beyond its share of the time.
const SPARED: Duration = Duration::from_secs(60);
/// How often a group is computed while others write, before they wait for it.
const TRIES: usize = 2;
/// If the last try took longer than this, a group is tried `LONG_TRIES` times before those who write have to wait for it.
const HELD: Duration = Duration::from_secs(1);
const LONG_TRIES: usize = 20;
/// The most facts that are read for each one that may be derived.
const READ: usize = 20;
/// The most facts that one statement writes.
const ROWS: usize = 10_000;

/// Derives facts whenever this process is the one, until it is aborted.
pub fn start(pool: PgPool, most: usize) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            match lead(&pool, most).await {
                Err(error) if away(&error).is_some() => {
                    tracing::debug!(%error, "facts wait while the database is away")
                }
                Err(error) => tracing::warn!(%error, "not deriving facts; another process will, or this one again"),
                Ok(()) => {}
            }
            tokio::time::sleep(RETRY).await;
        }
    })
}

/// Derives facts for as long as this process is the one and has its connection.
async fn lead(pool: &PgPool, most: usize) -> sqlx::Result<()> {
    let ours = within(SILENCE, advisory::alone(pool, AdvisoryLock::Rules)).await?;
    let Some(mut conn) = ours else { return Ok(()) };
    // What was too much for the process before may fit this one, whose limit may be another.
    within(SILENCE, derived::retry_given_up(&mut conn)).await?;
    let mut rests = Rests::default();
    loop {
        let waiting = within(SILENCE, derived::waiting(&mut conn)).await?;
        let waiting = rests.leave(waiting, Instant::now());
        let mut done: HashSet<PredicateId> = HashSet::new();
        let mut pause = if waiting.is_empty() { PAUSE } else { Duration::ZERO };
        for predicate in waiting {
            if done.contains(&predicate) {
                continue;
            }
            let begun = Instant::now();
            match derive(pool, predicate, most).await {
                Ok(Done { group, looked }) => {
                    rests.start(&group, looked, begun.elapsed().saturating_sub(looked), Instant::now());
                    done.extend(group);
                }
                // The others need not wait for what fails.
                Err(error) => {
                    tracing::warn!(predicate.id = predicate.0, %error, "what follows from the facts of a predicate was not derived; it is tried again");
                    let reason = error.to_string();
                    let failed = derived::failed(&mut conn, predicate, &reason);
                    if let Err(error) = within(SILENCE, failed).await {
                        tracing::warn!(predicate.id = predicate.0, %error, "the failure to derive from a predicate could not be recorded, so only the log tells of it");
                    }
                    pause = RETRY;
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// When the predicates of large groups may be looked at again.
#[derive(Default)]
struct Rests(HashMap<PredicateId, Rest>);

/// The rest of a predicate.
struct Rest {
    until: Instant,
    /// How long its group had taken beside its last looks, beyond its share of the time, as it was then.
    owed: Duration,
    then: Instant,
}

impl Rest {
    /// What is still owed: it becomes less by the group's share of the time that passes.
    fn owed(&self, now: Instant) -> Duration {
        self.owed.saturating_sub(now.saturating_duration_since(self.then) / (RESTS + 1))
    }
}

impl Rests {
    /// Leaves of the predicates that wait those that do not rest.
    fn leave(&mut self, waiting: Vec<PredicateId>, now: Instant) -> Vec<PredicateId> {
        self.0.retain(|_, rest| rest.until > now || !rest.owed(now).is_zero());
        let rests = |predicate: &PredicateId| self.0.get(predicate).is_some_and(|rest| rest.until > now);
        waiting.into_iter().filter(|predicate| !rests(predicate)).collect()
    }

    /// Begins the rest of a group that was read and computed for so long at the last look, and took so long beside that.
    fn start(&mut self, group: &[PredicateId], looked: Duration, beside: Duration, now: Instant) {
        let before = group.iter().filter_map(|predicate| self.0.get(predicate)).map(|rest| rest.owed(now)).max();
        let owed = before.unwrap_or_default().saturating_add(beside);
        let looked = if looked > PAUSE { looked } else { Duration::ZERO };
        let counted = looked.saturating_add(owed.saturating_sub(SPARED));
        let until = now + counted.saturating_mul(RESTS).min(LONGEST_REST);
        self.0.extend(group.iter().map(|predicate| (*predicate, Rest { until, owed, then: now })));
    }
}

/// What may go wrong.
#[derive(Debug, thiserror::Error)]
enum DeriveError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("the computation broke off: {0}")]
    Broken(#[from] tokio::task::JoinError),
}

/// What was derived.
struct Done {
    /// The predicates of the group.
    group: Vec<PredicateId>,
    /// How long all of it was read and computed, the last time.
    looked: Duration,
}

/// Derives what follows from the facts of a predicate's group.
async fn derive(pool: &PgPool, predicate: PredicateId, most: usize) -> Result<Done, DeriveError> {
    // A batch that began to be written before a predicate got its rule told nobody of its facts: they are there once its writer lays down the pen.
    let mut tx = store::transaction::begin(pool).await?;
    write::take_pen(&mut tx).await?;
    tx.commit().await?;
    let mut took = Duration::ZERO;
    for attempt in 0.. {
        // Others write while the group is computed; whoever keeps writing is held up in the end.
        let ahead = if attempt < TRIES || (took > HELD && attempt < LONG_TRIES) {
            let begun = Instant::now();
            let mut tx = store::transaction::begin_snapshot(pool).await?;
            let group = Group::read(&mut tx, predicate, most).await?;
            tx.commit().await?;
            let plan = tokio::task::spawn_blocking(move || group.plan(most)).await?;
            took = begun.elapsed();
            Some(plan)
        } else {
            None
        };
        let mut tx = store::transaction::begin(pool).await?;
        let at = write::take_pen(&mut tx).await?;
        let is_ahead = ahead.is_some();
        let plan = match ahead {
            Some(plan) => plan,
            None => {
                let begun = Instant::now();
                let group = Group::read(&mut tx, predicate, most).await?;
                let plan = tokio::task::spawn_blocking(move || group.plan(most)).await?;
                took = begun.elapsed();
                plan
            }
        };
        let is_current = derived::catch_up(&mut tx, &plan.changes, &plan.predicates).await?;
        if is_ahead && !is_current {
            tx.rollback().await?;
            continue;
        }
        plan.write(&mut tx, at).await?;
        tx.commit().await?;
        return Ok(Done { group: plan.predicates, looked: took });
    }
    Ok(Done { group: Vec::new(), looked: Duration::ZERO })
}

/// Predicates whose facts depend on each other, with their facts.
struct Group {
    predicates: Vec<PredicateId>,
    changes: Vec<i64>,
    type_of: Option<PredicateId>,
    rules: Vec<(Rule, String)>,
    facts: Vec<Fact>,
    /// The zones that have too many facts to look at.
    left_out: BTreeSet<i64>,
    literals: Vec<(String, String, Option<String>)>,
    guards: BTreeMap<i64, i64>,
    believed: Vec<DerivedRow>,
}

impl Group {
    async fn read(conn: &mut PgConnection, predicate: PredicateId, most: usize) -> sqlx::Result<Group> {
        let axioms = derived::axioms(conn).await?;
        let predicates = group_of(&axioms, predicate);
        // What comes after this look waits on.
        let changes = derived::changes(conn, &predicates).await?;
        let named = |iri: &str| axioms.iter().find(|axiom| axiom.iri.as_deref() == Some(iri)).map(|axiom| axiom.id);
        let classes = named(TYPE).zip(named(SUB_CLASS_OF)).map(|(of, above)| Classes { of, above });
        let classes = classes.filter(|classes| predicates.contains(&classes.of));
        let rules = rules_of(&axioms, &predicates, classes);
        let mut group = Group {
            type_of: classes.map(|classes| classes.of),
            believed: derived::believed(conn, &predicates).await?,
            predicates,
            changes,
            rules,
            facts: Vec::new(),
            left_out: BTreeSet::new(),
            literals: Vec::new(),
            guards: BTreeMap::new(),
        };
        if group.rules.is_empty() {
            return Ok(group);
        }
        // Other rules may need the types of all classes.
        let reads = |classes: Classes, rule: Rule| match rule.step {
            // A class may be above another one by such a rule alone, and a type that is asserted may follow by one too.
            Step::Copied { from, to, .. } => [from, to].contains(&classes.of.0) || to == classes.above.0,
            Step::Joined { first, then } => then == classes.of.0 || (first == classes.of.0 && then == first),
        };
        let zones_of_readers = |classes: Classes| -> BTreeSet<DocumentId> {
            let rules = group.rules.iter().filter(|(rule, _)| reads(classes, *rule));
            rules.map(|(rule, _)| DocumentId(rule.zone)).collect()
        };
        let (alone, readers) = (classes, classes.map(zones_of_readers).unwrap_or_default());
        let mut classes = alone.filter(|_| readers.is_empty());
        let limit = most.max(1_000).saturating_mul(READ);
        let mut numbers: HashMap<(String, String, Option<String>), usize> = HashMap::new();
        let predicates = group.predicates.clone();
        let one_more = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let take = |row: AssertedRow| group.take(row, &mut numbers);
        derived::asserted(conn, &predicates, classes, &[], one_more, take).await?;
        if group.facts.len() > limit {
            let mut left_out = derived::large_zones(conn, &predicates, classes, one_more - 1).await?;
            // Whoever may write in one zone alone must not end what follows elsewhere by such a rule.
            if !readers.is_empty() && !readers.contains(&DocumentId(OPEN)) {
                let large = derived::large_zones(conn, &predicates, alone, one_more - 1).await?;
                if left_out.iter().any(|zone| !large.contains(zone)) {
                    classes = alone;
                    group.rules.retain(|(rule, _)| !readers.contains(&DocumentId(rule.zone)));
                    left_out = readers.into_iter().chain(large).collect();
                }
            }
            group.forget_facts();
            group.left_out = left_out.iter().map(|zone| zone.0).collect();
            if !group.left_out.contains(&OPEN) {
                let mut numbers = HashMap::new();
                let take = |row: AssertedRow| group.take(row, &mut numbers);
                derived::asserted(conn, &predicates, classes, &left_out, one_more, take).await?;
            }
        }
        Ok(group)
    }

    /// Has what is said of documents of a zone without a source count there alone, whichever end they are. Only who may read the zone sees it. No fact that
    /// stays open leads to such a document or from one, so that none follows that is asserted of it.
    fn facts_into_zones(&mut self) {
        for fact in self.facts.iter_mut().filter(|fact| fact.zone == OPEN) {
            let object = match fact.object {
                Object::Node(node) => Some(node),
                Object::Literal(_) => None,
            };
            let mut ends = [Some(fact.subject), object].into_iter().flatten();
            fact.zone = ends.find_map(|end| self.guards.get(&end).copied()).unwrap_or(OPEN);
        }
        self.facts.retain(|fact| !self.left_out.contains(&fact.zone));
    }

    fn forget_facts(&mut self) {
        self.facts.clear();
        self.literals.clear();
        self.guards.clear();
    }

    fn take(&mut self, row: AssertedRow, numbers: &mut HashMap<(String, String, Option<String>), usize>) {
        let object = match (row.object_id, row.object_literal) {
            (Some(id), _) => Object::Node(id.0),
            (None, value) => {
                let value = value.map_or_else(String::new, |value| value.0);
                let literal = (value, row.object_datatype.unwrap_or_default(), row.object_language);
                let next = self.literals.len();
                Object::Literal(*numbers.entry(literal).or_insert_with_key(|literal| {
                    self.literals.push(literal.clone());
                    next
                }))
            }
        };
        if row.subject_guard.0 != OPEN {
            self.guards.insert(row.subject_id.0, row.subject_guard.0);
        }
        if let Some(id) = row.object_id.filter(|_| row.object_guard.0 != OPEN) {
            self.guards.insert(id.0, row.object_guard.0);
        }
        self.facts.push(Fact {
            id: row.id.0,
            subject: row.subject_id.0,
            predicate: row.predicate_id.0,
            object,
            zone: row.zone.0,
            time: Interval { from: row.valid_from, until: row.valid_until },
        });
    }

    /// What is to be written, so that exactly what follows is believed. This may take long.
    fn plan(mut self, most: usize) -> Plan {
        let steps: Vec<Rule> = self.rules.iter().map(|(rule, _)| *rule).collect();
        let closed = match self.left_out.contains(&OPEN) {
            true => Err(TooMuch),
            false => rules::derive(&self.facts, &steps, &self.guards, &self.left_out, most).or_else(|TooMuch| {
                // Whoever may write in one zone alone must not end what follows for all.
                self.facts_into_zones();
                rules::derive(&self.facts, &steps, &self.guards, &self.left_out, most)
            }),
        };
        // What is open to all is a part of every zone.
        let all = |TooMuch| Closed { derived: Vec::new(), given_up: BTreeSet::from([OPEN]) };
        let Closed { derived: follows, given_up } = closed.unwrap_or_else(all);
        let names: HashSet<&str> = self.rules.iter().map(|(_, name)| name.as_str()).collect();
        let mut known: HashMap<_, &DerivedRow> = HashMap::new();
        for row in self.believed.iter().filter(|row| names.contains(row.derived_by.as_str())) {
            known.insert((row.statement, row.zone, row.valid_from, row.valid_until), row);
        }
        let mut plan = Plan {
            given_up: given_up.into_iter().map(DocumentId).collect(),
            changes: self.changes.clone(),
            predicates: self.predicates.clone(),
            ..Plan::default()
        };
        let mut kept: HashSet<TripleId> = HashSet::new();
        for fact in &follows {
            let new = self.row(fact);
            match known.get(&(new.statement, new.zone, new.valid_from, new.valid_until)) {
                Some(row) => {
                    kept.insert(row.id);
                    plan.facts.push(Planned {
                        new: None,
                        id: row.id,
                        told: row.premises.clone(),
                        premises: fact.premises.clone(),
                    });
                }
                None => {
                    let (id, told) = (TripleId(0), Vec::new());
                    plan.facts.push(Planned { new: Some(new), id, told, premises: fact.premises.clone() });
                }
            }
        }
        plan.closed = self.believed.iter().map(|row| row.id).filter(|id| !kept.contains(id)).collect();
        plan
    }

    fn row(&self, fact: &Derived) -> NewDerived {
        let (subject_id, predicate_id) = (DocumentId(fact.subject), PredicateId(fact.predicate));
        let (object_id, literal) = match fact.object {
            Object::Node(id) => (Some(DocumentId(id)), None),
            Object::Literal(at) => (None, self.literals.get(at).cloned()),
        };
        let object = match (object_id, &literal) {
            (Some(id), _) => write::Object::Node(id),
            (None, literal) => {
                let (value, datatype, language) = literal.clone().unwrap_or_default();
                write::Object::Literal { value, datatype, language }
            }
        };
        let is_timeless = self.type_of == Some(predicate_id) && fact.time == Interval::ALWAYS;
        NewDerived {
            id: TripleId(0),
            zone: DocumentId(fact.zone),
            subject_id,
            predicate_id,
            object_id,
            literal,
            statement: statement(subject_id, predicate_id, &object),
            valid_from: fact.time.from,
            valid_until: fact.time.until,
            fact_type: if is_timeless { FactType::Atemporal } else { FactType::Dynamic },
            derived_by: self.rules.get(fact.rule).map(|(_, name)| name.clone()).unwrap_or_default(),
        }
    }
}

/// The predicates that depend on one over axioms, with itself.
fn group_of(axioms: &[Axiom], predicate: PredicateId) -> Vec<PredicateId> {
    let mut beside: HashMap<PredicateId, Vec<PredicateId>> = HashMap::new();
    let mut join = |one: PredicateId, other: PredicateId| {
        beside.entry(one).or_default().push(other);
        beside.entry(other).or_default().push(one);
    };
    for axiom in axioms {
        axiom.inverse_of.iter().chain(&axiom.sub_property_of).for_each(|other| join(axiom.id, *other));
    }
    let classes: Vec<&Axiom> =
        axioms.iter().filter(|axiom| [Some(TYPE), Some(SUB_CLASS_OF)].contains(&axiom.iri.as_deref())).collect();
    if let [one, other] = classes[..] {
        join(one.id, other.id);
    }
    let (mut group, mut at) = (vec![predicate], 0);
    let mut known = HashSet::from([predicate]);
    while let Some(next) = group.get(at).copied() {
        at += 1;
        group.extend(beside.get(&next).into_iter().flatten().copied().filter(|other| known.insert(*other)));
    }
    group.sort_unstable();
    group
}

/// The rules of a group, with the names that derived facts bear.
fn rules_of(axioms: &[Axiom], group: &[PredicateId], classes: Option<Classes>) -> Vec<(Rule, String)> {
    let mut rules = Vec::new();
    for axiom in axioms.iter().filter(|axiom| group.contains(&axiom.id)) {
        let (id, zone) = (axiom.id.0, axiom.zone.0);
        let mut add = |step, name: &str| rules.push((Rule { step, zone }, format!("rule:{name}:{id}")));
        for to in &axiom.sub_property_of {
            add(Step::Copied { from: id, to: to.0, turned: false }, "sub_property_of");
        }
        if let Some(other) = axiom.inverse_of {
            add(Step::Copied { from: id, to: other.0, turned: true }, "inverse_of");
            add(Step::Copied { from: other.0, to: id, turned: true }, "inverse_of");
        }
        if axiom.is_symmetric {
            add(Step::Copied { from: id, to: id, turned: true }, "symmetric");
        }
        if axiom.is_transitive {
            add(Step::Joined { first: id, then: id }, "transitive");
        }
    }
    if let Some(Classes { of, above }) = classes {
        let step = Step::Joined { first: of.0, then: above.0 };
        rules.push((Rule { step, zone: OPEN }, format!("rule:sub_class_of:{above}")));
    }
    rules
}

/// A fact that follows: one that is believed already, or a new one.
struct Planned {
    new: Option<NewDerived>,
    id: TripleId,
    /// What it is said to follow from so far.
    told: Vec<TripleId>,
    premises: Vec<Premise>,
}

/// The difference between what follows and what is believed.
#[derive(Default)]
struct Plan {
    predicates: Vec<PredicateId>,
    changes: Vec<i64>,
    facts: Vec<Planned>,
    closed: Vec<TripleId>,
    /// The zones in which too much follows.
    given_up: Vec<DocumentId>,
}

impl Plan {
    async fn write(&self, conn: &mut PgConnection, at: chrono::DateTime<chrono::Utc>) -> sqlx::Result<()> {
        derived::succeeded(conn, &self.predicates).await?;
        derived::give_up(conn, &self.predicates, &self.given_up).await?;
        if !self.given_up.is_empty() {
            tracing::warn!(predicates = ?self.predicates, zones = ?self.given_up, "more follows from the facts of these predicates than SVC_RULES_MAX_DERIVED allows in these zones, so none of it is written there; in zone 0, nowhere");
        }
        let new = self.facts.iter().filter(|fact| fact.new.is_some()).count();
        let mut fresh = write::reserve(conn, new).await?.into_iter();
        let ids: Vec<TripleId> = self
            .facts
            .iter()
            .map(|fact| if fact.new.is_some() { fresh.next().unwrap_or(fact.id) } else { fact.id })
            .collect();
        let premises = |fact: &Planned| -> Vec<TripleId> {
            let id = |premise: &Premise| match premise {
                Premise::Asserted(id) => TripleId(*id),
                Premise::Derived(at) => ids[*at],
            };
            let mut premises: Vec<TripleId> = fact.premises.iter().map(id).collect();
            premises.sort_unstable();
            premises
        };
        let changed: Vec<(TripleId, Vec<TripleId>)> = self
            .facts
            .iter()
            .zip(&ids)
            .map(|(fact, id)| (fact, *id, premises(fact)))
            .filter(|(fact, _, premises)| fact.new.is_some() || fact.told != *premises)
            .map(|(_, id, premises)| (id, premises))
            .collect();
        // What stays hangs no longer on what is closed next.
        let stays: Vec<TripleId> = self.facts.iter().filter(|fact| fact.new.is_none()).map(|fact| fact.id).collect();
        let stays: HashSet<TripleId> = stays.into_iter().collect();
        let loose: Vec<TripleId> = changed.iter().map(|(id, _)| *id).filter(|id| stays.contains(id)).collect();
        for part in loose.chunks(ROWS) {
            derived::set_premises(conn, at, part, &[]).await?;
        }
        for part in self.closed.chunks(ROWS) {
            derived::close(conn, at, part).await?;
        }
        let rows: Vec<NewDerived> = self
            .facts
            .iter()
            .zip(&ids)
            .filter_map(|(fact, id)| fact.new.clone().map(|new| NewDerived { id: *id, ..new }))
            .collect();
        for part in rows.chunks(ROWS) {
            derived::insert(conn, at, part).await?;
        }
        for part in changed.chunks(ROWS / 4) {
            let facts: Vec<TripleId> = part.iter().map(|(id, _)| *id).collect();
            let pairs: Vec<(TripleId, TripleId)> =
                part.iter().flat_map(|(id, premises)| premises.iter().map(|premise| (*id, *premise))).collect();
            derived::set_premises(conn, at, &facts, &pairs).await?;
        }
        if new > 0 || !self.closed.is_empty() {
            tracing::debug!(predicates = ?self.predicates, new, closed = self.closed.len(), "facts were derived");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a group is computed in ten minutes in which somebody writes all the time, and another one beside it.
    fn passes(looked: Duration, beside: Duration) -> (u32, u32) {
        let (large, small) = ([PredicateId(1), PredicateId(2)], [PredicateId(3)]);
        let (mut rests, begun) = (Rests::default(), Instant::now());
        let (mut now, mut counts) = (begun, (0, 0));
        while now < begun + Duration::from_secs(600) {
            let due = rests.leave(vec![large[1], small[0], large[0]], now);
            if due.contains(&large[0]) {
                assert!(due.contains(&large[1]), "a group waits as a whole");
                now += looked + beside;
                rests.start(&large, looked, beside, now);
                counts.0 += 1;
            }
            if due.contains(&small[0]) {
                rests.start(&small, Duration::from_millis(5), Duration::from_millis(5), now);
                counts.1 += 1;
            }
            now += PAUSE;
        }
        counts
    }

    #[test]
    fn a_large_group_takes_a_share_of_the_time_however_often_it_changes_and_holds_up_no_other() {
        let (large, small) = passes(Duration::from_secs(5), Duration::ZERO);
        assert!((28..=31).contains(&large), "{large} passes of 5 s in 600 s");
        assert!(small > 2_000, "{small} passes of another group");
        // What takes very long is computed again after a minute, and what takes moments at once.
        assert!((7..=8).contains(&passes(Duration::from_secs(30), Duration::ZERO).0));
        assert!(passes(Duration::from_millis(20), Duration::ZERO).0 > 2_500);
    }

    #[test]
    fn one_fact_after_many_does_not_wait_for_what_these_took_to_be_written() {
        let (mut rests, group) = (Rests::default(), [PredicateId(1), PredicateId(2)]);
        let begun = Instant::now();
        let after = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        rests.start(&group, Duration::from_secs(1), Duration::from_secs(42), begun);
        assert!(rests.leave(group.to_vec(), after(2.9)).is_empty(), "to look takes a second");
        assert_eq!(rests.leave(group.to_vec(), after(3.1)), group);
        // What is written so much again and again takes a quarter of the time, and another group does not wait for it.
        let (large, small) = passes(Duration::from_millis(500), Duration::from_secs(20));
        assert!((9..=12).contains(&large), "{large} passes of 20 s in 600 s");
        assert!(small > 1_500, "{small} passes of another group");
        // It is forgotten in the end.
        assert_eq!(rests.leave(group.to_vec(), after(200.0)), group);
        assert!(rests.0.is_empty());
    }
}
