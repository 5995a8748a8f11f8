//! Asserting facts, one or thousands at a time: what is believed already is read, closed and recorded anew in three statements, and the
//! algebra between them is done here.
use super::{
    Cited, Refusal, cite, conflict,
    ends::{self, Ends},
    lock, refused,
};
use crate::{
    access::Caller,
    error::OrFail,
    graph::{
        interval::Interval,
        literal::{IllTyped, literal},
        named,
    },
    store::{
        places::Place,
        predicates,
        scope::Readable,
        triples::write::{self, Asked, Believed, Closing, NewCitation, NewTriple, Object},
    },
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Bound,
};
use svc_client::{
    Code, Failure,
    wire::{FactOutcome, FactType, NewFact, OnOverlap},
};
use svc_ids::{DocumentId, PredicateId, TripleId};
use uuid::Uuid;

/// What became of the facts that were asserted, in their order.
pub struct Asserted {
    pub outcomes: Vec<(TripleId, FactOutcome)>,
    /// The subjects of what was not believed before, each once.
    pub changed: Vec<DocumentId>,
    pub at: DateTime<Utc>,
}

/// How facts are asserted.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub on_overlap: OnOverlap,
    pub origin: Origin,
}

/// Where facts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The caller names predicates, and means values of their types.
    Caller,
    /// The predicates came with a graph, whose literals are kept to the letter.
    Graph,
}

/// A fact to assert, with everything that it names.
struct Claim {
    subject: Place,
    predicate_id: PredicateId,
    object: Object,
    statement: Uuid,
    zone: DocumentId,
    time: Interval,
    fact_type: FactType,
    source_id: Option<DocumentId>,
}

/// Asserts facts: all, or none. A refusal has the position of the fact at fault, if one is. Call it in a transaction of
/// [`begin_creating`](crate::store::transaction::begin_creating), in which no document changes its guard.
pub async fn assert(
    conn: &mut PgConnection,
    caller: &Caller,
    base: &str,
    facts: &[NewFact],
    manner: Manner,
) -> Result<Asserted, Refusal> {
    let Manner { on_overlap, origin } = manner;
    let (known, ill_typed) = match origin {
        Origin::Caller => (caller.readable(), IllTyped::Refused),
        // A predicate that is new has no fact yet by which its caller could read it.
        Origin::Graph => (Readable::everything(), IllTyped::Kept),
    };
    let ends = ends::of(conn, caller, base, facts).await?;
    let guards = guards(conn, caller, facts, &ends).await?;
    let mut places = places(conn, caller, &ends).await?;
    let predicates = predicates(conn, &known, base, facts).await?;
    let mut claims = Vec::with_capacity(facts.len());
    for (index, fact) in facts.iter().enumerate() {
        let at = |failure| Refusal::at(index, failure);
        let predicate_id = predicates[index];
        let Ends { subject, object } = ends[index];
        let object = match (object, &fact.object_literal) {
            (Some(id), _) => Object::Node(id),
            (None, value) => {
                let value = value.as_deref().unwrap_or_default();
                literal(value, fact.object_datatype.as_deref(), fact.object_language.as_deref(), ill_typed)
                    .map_err(at)?
            }
        };
        let source_id = fact.source_id.map(DocumentId);
        claims.push(Claim {
            subject: places.get(&subject).cloned().ok_or_else(|| at(Failure::no_document(subject.0)))?,
            predicate_id,
            statement: write::statement(subject, predicate_id, &object),
            object,
            zone: source_id.and_then(|id| guards.get(&id).copied()).unwrap_or(DocumentId(0)),
            time: Interval::between(fact.valid_from, fact.valid_until),
            fact_type: fact.fact_type.unwrap_or(FactType::Dynamic),
            source_id,
        });
    }
    places.clear();
    let stated: Vec<usize> = (0..facts.len()).filter(|index| facts[*index].source_id.is_some()).collect();
    let cited: Vec<Cited<'_>> = stated
        .iter()
        .map(|index| &facts[*index])
        .map(|fact| Cited {
            document_id: DocumentId(fact.source_id.unwrap_or_default()),
            quote: fact.quote.as_deref(),
            confidence: fact.confidence,
        })
        .collect();
    let found = cite(conn, &cited).await.map_err(|refusal| refusal.among(&stated))?;

    let at = write::take_pen(conn).await.or_fail()?;
    let asked: Vec<Asked> = claims
        .iter()
        .map(|claim| Asked {
            statement: claim.statement,
            zone: claim.zone,
            valid_from: claim.time.from,
            valid_until: claim.time.until,
        })
        .collect();
    let believed = write::believed(conn, &asked).await.or_fail()?;
    let mut lines = Lines::of(believed);
    let mut slots = Vec::with_capacity(claims.len());
    for (index, claim) in claims.iter().enumerate() {
        slots.push(lines.add(index, claim, on_overlap).map_err(|failure| Refusal::at(index, failure))?);
    }
    let ids = record(conn, at, &claims, &lines).await?;
    let outcomes: Vec<(TripleId, FactOutcome)> =
        slots.into_iter().map(|(slot, outcome)| (ids[lines.last(slot)], outcome)).collect();
    let citations: Vec<NewCitation> =
        found.into_iter().zip(stated).map(|(found, index)| found.of(outcomes[index].0)).collect();
    write::cite(conn, at, &citations).await.or_fail()?;
    let alone = claims.iter().zip(&outcomes).filter(|(claim, _)| claim.source_id.is_none());
    let alone: Vec<TripleId> =
        alone.filter(|(_, (_, outcome))| *outcome == FactOutcome::Existing).map(|(_, (id, _))| *id).collect();
    write::stand_alone(conn, &alone).await.or_fail()?;
    let new = ends.iter().zip(&outcomes).filter(|(_, (_, outcome))| *outcome != FactOutcome::Existing);
    let changed: BTreeSet<DocumentId> = new.map(|(ends, _)| ends.subject).collect();
    Ok(Asserted { outcomes, changed: changed.into_iter().collect(), at })
}

/// Locks all documents that facts name, and returns their guards.
async fn guards(
    conn: &mut PgConnection,
    caller: &Caller,
    facts: &[NewFact],
    ends: &[Ends],
) -> Result<HashMap<DocumentId, DocumentId>, Refusal> {
    let named = |(fact, ends): (&NewFact, &Ends)| {
        [Some(ends.subject), ends.object, fact.source_id.map(DocumentId)].into_iter().flatten()
    };
    let all: HashSet<DocumentId> = facts.iter().zip(ends).flat_map(named).collect();
    let all: Vec<DocumentId> = all.into_iter().collect();
    match lock(conn, caller, &all).await {
        Ok(found) => Ok(found.into_iter().collect()),
        // After a failed statement a transaction takes no other.
        Err(failure) if failure.code != Code::NotFound => Err(failure.into()),
        // The first fact at fault is named, and not the first document.
        Err(failure) => {
            let found = write::lock_ends(conn, &caller.readable(), &all).await.or_fail()?;
            let known: HashSet<DocumentId> = found.into_iter().map(|(id, _)| id).collect();
            let missing = facts.iter().zip(ends).enumerate().find_map(|(index, fact)| {
                named(fact).find(|id| !known.contains(id)).map(|id| Refusal::at(index, Failure::no_document(id.0)))
            });
            Err(missing.unwrap_or_else(|| failure.into()))
        }
    }
}

/// The places of all subjects, which the caller must be allowed to change.
async fn places(
    conn: &mut PgConnection,
    caller: &Caller,
    ends: &[Ends],
) -> Result<HashMap<DocumentId, Place>, Refusal> {
    let subjects: HashSet<DocumentId> = ends.iter().map(|ends| ends.subject).collect();
    let subjects: Vec<DocumentId> = subjects.into_iter().collect();
    let found = write::places(conn, &caller.writable(), &subjects).await.or_fail()?;
    let places: HashMap<DocumentId, Place> = found.into_iter().map(|place| (place.id(), place)).collect();
    let refused = ends.iter().position(|ends| !places.contains_key(&ends.subject));
    match refused {
        None => Ok(places),
        Some(index) => {
            let refusal = caller.refusal(conn, ends[index].subject).await.or_fail()?;
            Err(Refusal::at(index, refusal))
        }
    }
}

/// The predicate of each fact.
async fn predicates(
    conn: &mut PgConnection,
    scope: &Readable,
    base: &str,
    facts: &[NewFact],
) -> Result<Vec<PredicateId>, Refusal> {
    let names: HashSet<&str> = facts.iter().filter_map(|fact| fact.predicate.as_deref()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let ids: HashSet<i64> = facts.iter().filter_map(|fact| fact.predicate_id).collect();
    let ids: Vec<i64> = ids.into_iter().collect();
    let named = named::resolve(conn, scope, base, &names).await?;
    let known: HashSet<PredicateId> = predicates::existing(conn, scope, &ids).await.or_fail()?.into_iter().collect();
    let of = |(index, fact): (usize, &NewFact)| match (&fact.predicate, fact.predicate_id) {
        (Some(name), _) => {
            let found = named.get(name.as_str()).copied();
            found.ok_or_else(|| Refusal::at(index, named::no_predicate("predicate", name)))
        }
        (None, id) => {
            let id = PredicateId(id.unwrap_or_default());
            let found = known.get(&id).copied();
            found.ok_or_else(|| Refusal::at(index, named::no_predicate("predicate_id", &id.to_string())))
        }
    };
    facts.iter().enumerate().map(of).collect()
}

/// A fact on its way: one that is believed, or one that is to be recorded in place of others.
struct Slot {
    time: Interval,
    /// The believed fact, if this is one that stays as it is.
    id: Option<TripleId>,
    /// The claim that made it; of what is believed, none.
    claim: Option<usize>,
    created_at: Option<DateTime<Utc>>,
    source_id: Option<DocumentId>,
    /// The believed facts that it takes in.
    takes: Vec<TripleId>,
    /// The slot that took this one in.
    taken: Option<usize>,
}

/// The facts of each statement, believed and asserted. No two of a line that are not taken in overlap.
struct Lines {
    slots: Vec<Slot>,
    /// The line of each statement in a zone.
    of: HashMap<(Uuid, DocumentId), Line>,
}

/// Slots by their beginnings; an open one comes first.
type Line = BTreeMap<Option<DateTime<Utc>>, usize>;

impl Lines {
    fn of(believed: Vec<Believed>) -> Lines {
        let mut lines = Lines { slots: Vec::new(), of: HashMap::new() };
        for fact in believed {
            let time = Interval { from: fact.valid_from, until: fact.valid_until };
            lines.of.entry((fact.statement, fact.zone)).or_default().insert(time.from, lines.slots.len());
            lines.slots.push(Slot {
                time,
                id: Some(fact.id),
                claim: None,
                created_at: Some(fact.created_at),
                source_id: fact.source_id,
                takes: vec![fact.id],
                taken: None,
            });
        }
        lines
    }

    /// Adds a claim; returns its slot and what became of it.
    fn add(&mut self, index: usize, claim: &Claim, on_overlap: OnOverlap) -> Result<(usize, FactOutcome), Failure> {
        let line = self.of.entry((claim.statement, claim.zone)).or_default();
        // Of a line only the last slot that begins before the claim may reach into it.
        let before = line.range(..=claim.time.from).next_back();
        let within = line.range((Bound::Excluded(claim.time.from), Bound::Unbounded));
        let within = within.take_while(|(from, _)| claim.time.until.is_none_or(|until| **from < Some(until)));
        let hit: Vec<usize> = before
            .into_iter()
            .chain(within)
            .map(|(_, slot)| *slot)
            .filter(|slot| self.slots[*slot].time.overlaps(claim.time))
            .collect();
        if let (Some(first), OnOverlap::Reject) = (hit.first(), on_overlap) {
            let remedy = "send on_overlap merge, or another time";
            let slot = &self.slots[*first];
            return Err(match (slot.id, slot.claim) {
                (Some(id), _) => conflict("overlaps", id, format!("fact {id} says so already for a part of that time"))
                    .with("remedy", remedy),
                (None, other) => {
                    let other = other.unwrap_or_default();
                    Failure::new(
                        Code::Conflict,
                        format!("fact {other} of this request says so already for a part of that time"),
                    )
                    .with("reason", "overlaps")
                    .with("remedy", remedy)
                }
            });
        }
        if let Some(covering) = hit.iter().find(|slot| self.slots[**slot].time.covers(claim.time)) {
            return Ok((*covering, FactOutcome::Existing));
        }
        let new = self.slots.len();
        let mut slot = Slot {
            time: claim.time,
            id: None,
            claim: Some(index),
            created_at: None,
            source_id: claim.source_id,
            takes: Vec::new(),
            taken: None,
        };
        for old in &hit {
            let old = &mut self.slots[*old];
            line.remove(&old.time.from);
            old.taken = Some(new);
            slot.time = slot.time.union(old.time);
            slot.created_at = slot.created_at.into_iter().chain(old.created_at).min();
            slot.source_id = slot.source_id.and(old.source_id).and(slot.source_id);
            slot.takes.append(&mut old.takes);
        }
        line.insert(slot.time.from, new);
        self.slots.push(slot);
        Ok((new, if hit.is_empty() { FactOutcome::Created } else { FactOutcome::Merged }))
    }

    /// The slot that a slot ended up in.
    fn last(&self, mut slot: usize) -> usize {
        while let Some(taken) = self.slots[slot].taken {
            slot = taken;
        }
        slot
    }
}

/// Closes what is taken in and records what is new; returns the id of each slot that stayed.
async fn record(
    conn: &mut PgConnection,
    at: DateTime<Utc>,
    claims: &[Claim],
    lines: &Lines,
) -> Result<Vec<TripleId>, Failure> {
    let is_new = |slot: &&Slot| slot.id.is_none() && slot.taken.is_none();
    let mut fresh = write::reserve(conn, lines.slots.iter().filter(is_new).count()).await.or_fail()?.into_iter();
    let mut ids = Vec::with_capacity(lines.slots.len());
    let (mut rows, mut closings, mut inherited) = (Vec::new(), Vec::new(), Vec::new());
    for slot in &lines.slots {
        let (None, None, Some(claim)) = (slot.id, slot.taken, slot.claim.and_then(|index| claims.get(index))) else {
            ids.push(slot.id.unwrap_or(TripleId(0)));
            continue;
        };
        let Some(id) = fresh.next() else { continue };
        ids.push(id);
        for old in &slot.takes {
            closings.push(Closing { subject: claim.subject.clone(), id: *old, by: Some(id) });
            inherited.push((*old, id));
        }
        rows.push(NewTriple {
            id,
            subject: claim.subject.clone(),
            predicate_id: claim.predicate_id,
            object: claim.object.clone(),
            statement: claim.statement,
            zone: claim.zone,
            valid_from: slot.time.from,
            valid_until: slot.time.until,
            created_at: slot.created_at,
            previous_id: None,
            fact_type: claim.fact_type,
            source_id: slot.source_id,
            derived_by: None,
        });
    }
    write::close(conn, at, &closings, "merged").await.or_fail()?;
    write::insert(conn, at, &rows).await.map_err(refused)?;
    write::inherit(conn, &inherited).await.or_fail()?;
    Ok(ids)
}
