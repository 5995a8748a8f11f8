//! Writes the facts of a text, with the entities and predicates that they name, in one transaction.
use super::{
    Dropped, PROMPT, Parameters,
    answer::{Checked, Mention, Object, Predicate},
    entities::{Name, Things},
    fitting::Fitting,
};
use crate::{
    access::Caller,
    graph::facts::{self, Manner, Origin},
    ingest::{
        Tools,
        tasks::{Apply, OrTaskFailure, asking::Asking, structure::model},
    },
    rdf::shapes::guarding::{self, Guard, Refusal, Warned},
    store::{
        self,
        evidence::Evidence,
        extraction::SourceText,
        scope::Readable,
        triples::write::{move_on, take_pen},
    },
};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashMap};
use svc_actors::{Outcome, TaskFailure};
use svc_client::{
    Failure,
    wire::{FactOutcome, NewFact, NewPredicates, OnOverlap, ResolveNames, SupersedeFacts},
};
use svc_ids::{DocumentId, PredicateId, TripleId};

/// How often facts are looked for that give way to new ones.
const ROUNDS: usize = 20;

/// How many refused facts and warnings the evidence shows.
const SHOWN: usize = 20;
/// How much of an object it shows.
const OBJECT_CHARS: usize = 200;

/// What was found in a text.
pub struct Found<'a> {
    pub parameters: Parameters,
    pub source: SourceText,
    pub facts: Vec<Checked>,
    pub dropped: Dropped,
    pub asking: Asking<'a>,
    pub truncated: bool,
}

/// What was written.
#[derive(Default)]
struct Written {
    /// The fact that each of those in the text has become.
    of: Vec<TripleId>,
    facts: Vec<TripleId>,
    created: usize,
    entities: usize,
    merges: Vec<i64>,
    superseded: Vec<TripleId>,
    closed: usize,
    warned: Warned,
}

/// What came of writing.
enum Attempt {
    /// What a dry run shows.
    Would(Map<String, Value>),
    Written(Written),
    /// A bound shape refuses some of the facts.
    Refused(Refusal, Subjects),
}

/// The subject of each fact and what it has become, as far as the transaction that was refused had come.
type Subjects = Vec<(DocumentId, TripleId)>;

pub async fn store(tools: &Tools, apply: Apply<'_>, mut found: Found<'_>) -> Result<Outcome, TaskFailure> {
    let (id, zone) = (apply.grant.document_id, found.source.zone);
    let mut things = Things::of(mentions(&found.facts));
    // A process without a model knows names by their letters alone.
    if found.parameters.resolve == ResolveNames::Similar && tools.embedder.is_some() {
        things.embed(model(tools).await?).await?;
        things.compare(&tools.pool, zone, found.parameters.similarity).await?;
    }
    let mut tx = apply.begin_creating().await?;
    let mut fitting = Fitting::new(found.facts.clone());
    let written = loop {
        match attempt(tools, tx.conn(), id, &found, &things).await? {
            Attempt::Would(would) => break Err(would),
            Attempt::Written(written) if !fitting.give_back() => break Ok(written),
            Attempt::Written(_) => {}
            Attempt::Refused(refusal, subjects) => fitting.refuse(&refusal, &subjects),
        }
        found.facts = fitting.kept();
        things.keep(mentions(&found.facts));
        // Nothing of what was written may stay, such as an entity that only a refused fact names.
        tx = tx.anew().await?;
    };
    fitting.tell(&mut found.dropped);
    let mut took = found.asking.took(PROMPT);
    took["dropped"] = json!(found.dropped);
    if found.truncated {
        took["truncated"] = true.into();
    }
    let refused: Vec<Value> = fitting.refused().take(SHOWN).map(|(fact, why)| refused_fact(fact, why)).collect();
    if !refused.is_empty() {
        took["refused"] = refused.into();
    }
    let mut detail = Map::new();
    let name = match written {
        Err(would) => {
            if let Some(took) = took.as_object_mut() {
                took.extend(would);
            }
            detail.insert("dry_run".to_owned(), true.into());
            Evidence::FactsDryRun
        }
        Ok(written) => {
            detail.insert("facts".to_owned(), written.facts.len().into());
            detail.insert("entities".to_owned(), written.entities.into());
            took["facts"] = written.facts.iter().map(|id| id.0).collect();
            took["created"] = written.created.into();
            took["entities"] = written.entities.into();
            took["merges"] = json!(written.merges);
            took["superseded"] = written.superseded.iter().map(|id| id.0).collect();
            took["closed"] = written.closed.into();
            if !written.warned.results.is_empty() {
                took["warnings"] = json!(written.warned.results.iter().take(SHOWN).collect::<Vec<_>>());
            }
            if let Some(limit) = written.warned.truncated {
                took["warnings_truncated"] = json!(limit);
            }
            Evidence::Facts
        }
    };
    detail.insert("dropped".to_owned(), json!(found.dropped));
    store::evidence::record(tx.conn(), id, name, &took).await.classified()?;
    found.asking.keep_only(tx.conn()).await?;
    tx.complete(detail).await
}

/// The things that facts name.
fn mentions(facts: &[Checked]) -> impl Iterator<Item = &Mention> {
    facts.iter().flat_map(|fact| {
        let object = match &fact.object {
            Object::Thing(mention) => Some(mention),
            Object::Literal { .. } => None,
        };
        [Some(&fact.subject), object].into_iter().flatten()
    })
}

/// Writes the facts, or finds out what would be written.
async fn attempt(
    tools: &Tools,
    conn: &mut PgConnection,
    id: DocumentId,
    found: &Found<'_>,
    things: &Things,
) -> Result<Attempt, TaskFailure> {
    let (parameters, zone) = (&found.parameters, found.source.zone);
    let now = store::extraction::text(conn, id).await.classified()?;
    if !now.is_some_and(|now| now.content_hash == found.source.content_hash && now.zone == zone) {
        return Err(TaskFailure::away("changed", "the text was changed while facts were read in it"));
    }
    store::graph_nodes::hold_zone(conn, zone).await.classified()?;
    let plan = things.plan(conn, zone, parameters.resolve, parameters.similarity).await.classified()?;
    if parameters.dry_run {
        let known = plan.known(things);
        let would: Value = found.facts.iter().map(|fact| shown(fact, things, &known)).collect();
        let (entities, merges) = plan.counts();
        let would = [("would", would), ("entities", entities.into()), ("merges", merges.into())];
        return Ok(Attempt::Would(would.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()));
    }
    let made = things.make(tools, conn, zone, &plan, parameters.resolve != ResolveNames::Off).await?;
    let (written, subjects, changed) = write(tools, conn, id, found, things, &made.documents).await?;
    let mut written = Written { entities: made.created.len(), ..written };
    if !made.merges.is_empty() {
        let at = take_pen(conn).await.classified()?;
        // An entity that would make a set too large stays one of its own.
        let fitting = store::merges::fitting(conn, &made.merges, at).await.classified()?;
        written.merges = store::merges::insert(conn, at, &fitting).await.classified()?;
    }
    let settings = &tools.settings;
    let guard = Guard { kept: &tools.shapes, base: &settings.rdf_base, most: settings.rdf_max_triples };
    // Facts that not all readers of the text see say nothing about those of the text.
    match guarding::guard(conn, guard, Readable::under(&[zone]), &changed).await {
        Ok(warned) => Ok(Attempt::Written(Written { warned, ..written })),
        // Facts that could not be held against a shape may be as it wants them, so that none is given up.
        Err(refusal) if refusal.results.is_empty() => Err(refused(refusal.failure)),
        Err(refusal) => Ok(Attempt::Refused(refusal, subjects.into_iter().zip(written.of).collect())),
    }
}

/// A fact as a dry run shows it.
fn shown(fact: &Checked, things: &Things, known: &HashMap<Name, DocumentId>) -> Value {
    let thing = |mention: &Mention| {
        let id = known.get(&things.name(mention)).map(|id| id.0);
        json!({"name": mention.name, "type": (!mention.type_key.is_empty()).then_some(&mention.type_key), "document_id": id})
    };
    let object = match &fact.object {
        Object::Thing(mention) => thing(mention),
        Object::Literal { value, datatype } => json!({"literal": value, "datatype": datatype}),
    };
    let predicate = match &fact.predicate {
        Predicate::Known(id) => json!({"predicate_id": id.0}),
        Predicate::New(name) => json!({"name": format!("{}:{name}", store::extraction::NAMESPACE)}),
    };
    json!({
        "subject": thing(&fact.subject), "predicate": predicate, "object": object, "fact_type": fact.fact_type, "valid_from": fact.valid_from,
        "valid_until": fact.valid_until, "confidence": fact.confidence, "quote": fact.quote,
    })
}

/// Writes the facts; returns the subject of each, and the subjects of what was not believed before. Whoever queued the task may change the text, so that the facts of the text are its own; entities that are open to all are
/// only seen with them by who may read the text.
async fn write(
    tools: &Tools,
    conn: &mut PgConnection,
    source: DocumentId,
    found: &Found<'_>,
    things: &Things,
    documents: &HashMap<Name, DocumentId>,
) -> Result<(Written, Vec<DocumentId>, Vec<DocumentId>), TaskFailure> {
    let Found { parameters, source: text, facts, .. } = found;
    let mut written = Written::default();
    let new: Vec<&str> = facts
        .iter()
        .filter_map(|fact| match &fact.predicate {
            Predicate::New(name) => Some(name.as_str()),
            Predicate::Known(_) => None,
        })
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    debug_assert!(new.is_empty() || parameters.new_predicates == NewPredicates::Allow);
    let predicates = match new.is_empty() {
        true => HashMap::new(),
        false => {
            let namespace = store::extraction::NAMESPACE;
            store::extraction::make_predicates(conn, namespace, &new).await.classified()?
        }
    };
    let id_of = |mention: &Mention| documents.get(&things.name(mention)).map(|id| id.0);
    let predicate_id = |predicate: &Predicate| -> Option<PredicateId> {
        match predicate {
            Predicate::Known(id) => Some(*id),
            Predicate::New(name) => predicates.get(name).copied(),
        }
    };
    let fact = |fact: &Checked| -> Option<NewFact> {
        let new = NewFact {
            subject_id: Some(id_of(&fact.subject)?),
            predicate_id: Some(predicate_id(&fact.predicate)?.0),
            valid_from: fact.valid_from,
            valid_until: fact.valid_until,
            fact_type: Some(fact.fact_type),
            source_id: Some(source.0),
            quote: Some(fact.quote.clone()),
            confidence: Some(fact.confidence),
            ..NewFact::default()
        };
        Some(match &fact.object {
            Object::Thing(mention) => NewFact { object_id: Some(id_of(mention)?), ..new },
            Object::Literal { value, datatype } => {
                NewFact { object_literal: Some(value.clone()), object_datatype: Some(datatype.clone()), ..new }
            }
        })
    };
    let new: Vec<NewFact> = facts.iter().filter_map(fact).collect();
    if new.len() < facts.len() {
        return Err(TaskFailure::retryable("changed", "a predicate or an entity is gone meanwhile"));
    }
    let base = &tools.settings.rdf_base;
    let mut changed = Vec::new();
    if !new.is_empty() {
        let manner = Manner { on_overlap: OnOverlap::Merge, origin: Origin::Caller };
        let asserted = facts::assert(conn, &Caller::Owner, base, &new, manner).await;
        let asserted = asserted.map_err(|refusal| refused(refusal.failure))?;
        let ids: BTreeSet<TripleId> = asserted.outcomes.iter().map(|(id, _)| *id).collect();
        let created = asserted.outcomes.iter().filter(|(_, outcome)| *outcome != FactOutcome::Existing);
        written.created = created.map(|(id, _)| *id).collect::<BTreeSet<_>>().len();
        written.facts = ids.into_iter().collect();
        written.of = asserted.outcomes.into_iter().map(|(id, _)| id).collect();
        changed = asserted.changed;
    }
    if parameters.supersede == SupersedeFacts::Auto {
        written.superseded = supersede(conn, &written.facts, text).await?;
    }
    // What an answer had no room for may still be stated.
    if parameters.replace && !found.truncated && !found.dropped.contains_key("too_many") {
        if !written.superseded.is_empty() {
            // What is left of a fact that gave way cites this text too, and may have to be closed.
            move_on(conn).await.classified()?;
        }
        let closed = store::triples::follow::no_longer_stated(conn, source, &written.facts).await;
        written.closed = closed.classified()?.len();
    }
    let subjects = new.iter().filter_map(|fact| fact.subject_id).map(DocumentId).collect();
    Ok((written, subjects, changed))
}

/// Has older facts give way to new ones of functional predicates; returns those that did.
async fn supersede(conn: &mut PgConnection, new: &[TripleId], text: &SourceText) -> Result<Vec<TripleId>, TaskFailure> {
    let mut superseded = Vec::new();
    for _ in 0..ROUNDS {
        // What a fact leaves of itself may be in the way of another new one.
        let rivals = store::extraction::rivals(conn, new, text.told_at).await.classified()?;
        if rivals.is_empty() {
            break;
        }
        if !superseded.is_empty() {
            move_on(conn).await.classified()?;
        }
        let mut seen = BTreeSet::new();
        for rival in rivals.into_iter().filter(|rival| seen.insert(rival.id)) {
            let portion = (rival.valid_from, rival.valid_until);
            facts::give_way(conn, &Caller::Owner, rival.id, rival.new_id, portion).await.map_err(refused)?;
            superseded.push(rival.id);
        }
    }
    Ok(superseded)
}

/// A fact that a bound shape refuses, as the evidence shows it.
fn refused_fact(fact: &Checked, why: &str) -> Value {
    let object = match &fact.object {
        Object::Thing(mention) => &mention.name,
        Object::Literal { value, .. } => value,
    };
    let object: String = object.chars().take(OBJECT_CHARS).collect();
    json!({"subject": fact.subject.name, "object": object, "valid_from": fact.valid_from, "valid_until": fact.valid_until, "reason": why})
}

fn refused(failure: Failure) -> TaskFailure {
    TaskFailure::retryable("facts_refused", failure.detail)
}
