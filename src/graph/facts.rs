//! Asserting, superseding and invalidating facts. Each takes away or adds a portion of time: what is left of a fact is recorded anew, and
//! the row that said otherwise is closed.
mod asserting;
mod ends;

use self::ends::Iri;
use super::{
    interval::Interval,
    literal::{IllTyped, literal},
    quotes,
};
use crate::{
    access::Caller,
    error::{IntoFailure, OrFail},
    store::{
        away::sql_state,
        places::Place,
        triples::{
            FactRow, derived,
            write::{self, Asked, Closing, NewCitation, NewTriple, Object},
        },
    },
};
pub use asserting::{Manner, Origin, assert};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use std::collections::{BTreeMap, HashMap, HashSet};
use svc_client::{
    Code, Failure,
    wire::{FactType, Invalidation, Supersession},
};
use svc_ids::{DocumentId, TripleId};

/// The most bytes of text in which the quotes of one request are looked for; each text counts once.
const QUOTED_BYTES: i64 = 256 << 20;

/// Why facts are not written.
#[derive(Debug)]
pub struct Refusal {
    /// The position of what is at fault, if a single one is.
    pub index: Option<usize>,
    pub failure: Failure,
}

impl Refusal {
    fn at(index: usize, failure: Failure) -> Refusal {
        Refusal { index: Some(index), failure }
    }

    /// The same for a longer list, in which what was refused has these positions.
    fn among(self, positions: &[usize]) -> Refusal {
        let index = self.index.and_then(|index| positions.get(index).copied());
        Refusal { index, ..self }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal { index: None, failure }
    }
}

/// 404, for what does not exist and for what the caller may not read.
pub fn no_fact(id: TripleId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no fact {id}"))
}

/// 409: why a fact is not written.
fn conflict(reason: &str, id: TripleId, detail: String) -> Failure {
    Failure::new(Code::Conflict, detail).with("reason", reason).with("triple_id", id.0)
}

/// The time of a fact.
fn time_of(fact: &FactRow) -> Interval {
    Interval { from: fact.valid_from, until: fact.valid_until }
}

/// What a fact leads to.
fn object_of(fact: &FactRow) -> Object {
    match (fact.object_id, &fact.object_literal) {
        (Some(id), _) => Object::Node(id),
        (None, value) => Object::Literal {
            value: value.as_ref().map_or_else(String::new, |value| value.0.clone()),
            datatype: fact.object_datatype.clone().unwrap_or_default(),
            language: fact.object_language.clone(),
        },
    }
}

/// A believed fact that the caller may change, and the pen.
struct Held {
    fact: FactRow,
    subject: Place,
    at: DateTime<Utc>,
}

/// Finds a fact that the caller wants to change, and takes the pen.
async fn hold(conn: &mut PgConnection, caller: &Caller, id: TripleId) -> Result<Held, Failure> {
    let scope = caller.readable();
    let before = write::read(conn, &scope, id).await.or_fail()?.ok_or_else(|| no_fact(id))?;
    let subject = caller.writes(conn, before.subject_id).await.or_fail()??;
    let at = write::take_pen(conn).await.or_fail()?;
    // What was written meanwhile is seen from here on.
    let fact = write::read(conn, &scope, id).await.or_fail()?.ok_or_else(|| no_fact(id))?;
    if fact.invalidated_at.is_some() {
        let refused =
            |told: &str| conflict("already_invalidated", id, format!("fact {id} is no longer believed{told}"));
        let by = match fact.invalidated_by {
            Some(by) => write::read(conn, &scope, by).await.or_fail()?,
            None => None,
        };
        return Err(match by {
            Some(by) => refused(&format!("; fact {} took its place", by.id)).with("invalidated_by", by.id.0),
            None => refused(""),
        });
    }
    if let Some(rule) = &fact.derived_by {
        let premises = derived::premises(conn, &scope, &[id], None).await.or_fail()?.remove(&id).unwrap_or_default();
        return Err(conflict("derived", id, format!("fact {id} is derived by {rule}"))
            .with("premises", premises)
            .with("remedy", "change the facts that it follows from, its premises"));
    }
    Ok(Held { fact, subject, at })
}

/// The guards of documents that a fact names; 404 for the first one that the caller may not read.
async fn lock(
    conn: &mut PgConnection,
    caller: &Caller,
    ids: &[DocumentId],
) -> Result<Vec<(DocumentId, DocumentId)>, Failure> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let found = write::lock_ends(conn, &caller.readable(), ids).await.or_fail()?;
    let known: HashSet<DocumentId> = found.iter().map(|(id, _)| *id).collect();
    match ids.iter().find(|id| !known.contains(id)) {
        Some(missing) => Err(Failure::no_document(missing.0)),
        None => Ok(found),
    }
}

/// Closes a fact for a portion of its time, and records anew what is left of it. Returns the ids of that.
async fn take_away(
    conn: &mut PgConnection,
    held: &Held,
    portion: Interval,
    by: Option<TripleId>,
    why: &str,
) -> Result<Vec<TripleId>, Failure> {
    let Held { fact, subject, at } = held;
    let closing = Closing { subject: subject.clone(), id: fact.id, by };
    write::close(conn, *at, &[closing], why).await.or_fail()?;
    let pieces = time_of(fact).minus(portion);
    let ids = write::reserve(conn, pieces.len()).await.or_fail()?;
    let rows: Vec<NewTriple> = pieces
        .into_iter()
        .zip(&ids)
        .map(|(piece, id)| NewTriple {
            id: *id,
            subject: subject.clone(),
            predicate_id: fact.predicate_id,
            object: object_of(fact),
            statement: fact.statement,
            zone: fact.zone,
            valid_from: piece.from,
            valid_until: piece.until,
            created_at: Some(fact.created_at),
            previous_id: Some(fact.id),
            // What has lost a part of its time has bounds.
            fact_type: match fact.fact_type.0 {
                FactType::Atemporal => FactType::Static,
                other => other,
            },
            source_id: fact.source_id,
            derived_by: None,
        })
        .collect();
    write::insert(conn, *at, &rows).await.map_err(refused)?;
    let pairs: Vec<(TripleId, TripleId)> = ids.iter().map(|id| (fact.id, *id)).collect();
    write::inherit(conn, &pairs).await.or_fail()?;
    Ok(ids)
}

/// A predicate may be deleted, and the rules of the database say what the code should have prevented.
fn refused(error: sqlx::Error) -> Failure {
    match sql_state(&error).as_ref() {
        "23503" => Failure::field("predicate", "was deleted meanwhile"),
        _ => error.into_failure(),
    }
}

fn disjoint(id: TripleId) -> Failure {
    conflict("disjoint", id, format!("fact {id} does not hold at any time between valid_from and valid_until"))
}

/// What became of a fact that is no longer believed.
pub struct Invalidated {
    pub subject_id: DocumentId,
    pub remainders: Vec<TripleId>,
    pub at: DateTime<Utc>,
}

/// Ends the belief in a fact, for a part of its time or for all of it. Call it in a transaction of
/// [`begin_creating`](crate::store::transaction::begin_creating).
pub async fn invalidate(
    conn: &mut PgConnection,
    caller: &Caller,
    id: TripleId,
    what: &Invalidation,
) -> Result<Invalidated, Failure> {
    let held = hold(conn, caller, id).await?;
    let portion = Interval::between(what.valid_from, what.valid_until);
    if !time_of(&held.fact).overlaps(portion) {
        return Err(disjoint(id));
    }
    let remainders = take_away(conn, &held, portion, None, what.reason.as_deref().unwrap_or("withdrawn")).await?;
    Ok(Invalidated { subject_id: held.fact.subject_id, remainders, at: held.at })
}

/// Has a fact give way to another one, which is believed already, for the time of that. Returns the ids of what is left of it.
pub async fn give_way(
    conn: &mut PgConnection,
    caller: &Caller,
    id: TripleId,
    to: TripleId,
    (from, until): (Option<DateTime<Utc>>, Option<DateTime<Utc>>),
) -> Result<Vec<TripleId>, Failure> {
    let held = hold(conn, caller, id).await?;
    let portion = Interval::between(from, until);
    if !time_of(&held.fact).overlaps(portion) {
        return Err(disjoint(id));
    }
    take_away(conn, &held, portion, Some(to), "superseded").await
}

/// A fact in the place of another.
pub struct Superseded {
    pub id: TripleId,
    pub subject_id: DocumentId,
    pub remainders: Vec<TripleId>,
}

/// Puts another object in the place of a fact's. Call it in a transaction of
/// [`begin_creating`](crate::store::transaction::begin_creating).
pub async fn supersede(
    conn: &mut PgConnection,
    caller: &Caller,
    base: &str,
    id: TripleId,
    new: &Supersession,
) -> Result<Superseded, Failure> {
    let iri = new.object_iri.as_deref().map(|iri| Iri { field: "object_iri", iri, source_id: new.source_id });
    let named = ends::resolve(conn, caller, base, iri.as_slice()).await.map_err(|refusal| refusal.failure)?;
    let node = new.object_id.map(DocumentId).or(named.first().copied());
    let object = match (node, &new.object_literal) {
        (Some(object), _) => Object::Node(object),
        (None, value) => literal(
            value.as_deref().unwrap_or_default(),
            new.object_datatype.as_deref(),
            new.object_language.as_deref(),
            IllTyped::Refused,
        )?,
    };
    let source = new.source_id.map(DocumentId);
    let others: Vec<DocumentId> = node.into_iter().chain(source).collect();
    let guards = lock(conn, caller, &others).await?;
    let cited = match source {
        None => Vec::new(),
        Some(source) => {
            let cited = Cited { document_id: source, quote: new.quote.as_deref(), confidence: new.confidence };
            cite(conn, &[cited]).await.map_err(|refusal| refusal.failure)?
        }
    };
    let held = hold(conn, caller, id).await?;
    let fact = &held.fact;
    let time = match (new.valid_from, new.valid_until) {
        (None, None) => time_of(fact),
        (from, until) => Interval::between(from, until),
    };
    if !time_of(fact).overlaps(time) {
        let remedy = "assert it: it is a fact of its own";
        return Err(disjoint(id).with("remedy", remedy));
    }
    let statement = write::statement(fact.subject_id, fact.predicate_id, &object);
    if statement == fact.statement {
        return Err(conflict("same", id, format!("fact {id} has that object"))
            .with("remedy", "invalidate the part of its time that is wrong, or assert the part that is missing"));
    }
    let zone = source.map_or(DocumentId(0), |source| {
        guards.iter().find(|(id, _)| *id == source).map_or(DocumentId(0), |(_, guard)| *guard)
    });
    let asked = Asked { statement, zone, valid_from: time.from, valid_until: time.until };
    if let Some(twin) = write::believed(conn, &[asked]).await.or_fail()?.first() {
        let detail = format!("fact {} says so already for a part of that time", twin.id);
        return Err(
            conflict("overlaps", twin.id, detail).with("remedy", "invalidate the old fact for that time instead")
        );
    }
    let ids = write::reserve(conn, 1).await.or_fail()?;
    let new_id = ids[0];
    let remainders = take_away(conn, &held, time, Some(new_id), "superseded").await?;
    let row = NewTriple {
        id: new_id,
        subject: held.subject.clone(),
        predicate_id: fact.predicate_id,
        object,
        statement,
        zone,
        valid_from: time.from,
        valid_until: time.until,
        created_at: None,
        previous_id: None,
        fact_type: match fact.fact_type.0 {
            FactType::Atemporal if time != Interval::ALWAYS => FactType::Static,
            other => other,
        },
        source_id: source,
        derived_by: None,
    };
    write::insert(conn, held.at, &[row]).await.map_err(refused)?;
    let citations: Vec<NewCitation> = cited.into_iter().map(|cited| cited.of(new_id)).collect();
    write::cite(conn, held.at, &citations).await.or_fail()?;
    Ok(Superseded { id: new_id, subject_id: fact.subject_id, remainders })
}

/// A document that states a fact, as a caller names it.
struct Cited<'a> {
    document_id: DocumentId,
    quote: Option<&'a str>,
    confidence: Option<f64>,
}

/// A document that states a fact, with the place of the words.
struct Found {
    document_id: DocumentId,
    quote: Option<(i32, i32)>,
    source_hash: String,
    confidence: Option<f64>,
}

impl Found {
    fn of(self, triple_id: TripleId) -> NewCitation {
        let Found { document_id, quote, source_hash, confidence } = self;
        NewCitation { triple_id, document_id, quote, source_hash, confidence }
    }
}

/// Finds the words that documents are quoted with. A refusal has the position of the citation at fault.
async fn cite(conn: &mut PgConnection, cited: &[Cited<'_>]) -> Result<Vec<Found>, Refusal> {
    let quoting: Vec<DocumentId> =
        cited.iter().filter(|cited| cited.quote.is_some()).map(|cited| cited.document_id).collect();
    let bytes = write::quoted_bytes(conn, &quoting).await.or_fail()?;
    if bytes > QUOTED_BYTES {
        let detail =
            format!("the quotes are to be looked for in {bytes} bytes of text, and {QUOTED_BYTES} are allowed");
        let failure = Failure::new(Code::TooLarge, detail)
            .with("limit", QUOTED_BYTES)
            .with("remedy", "send the facts in smaller batches");
        // It is the fault of all of them together.
        return Err(failure.into());
    }
    let documents: Vec<DocumentId> = cited.iter().map(|cited| cited.document_id).collect();
    let hashes: HashMap<DocumentId, String> =
        write::content_hashes(conn, &documents).await.or_fail()?.into_iter().collect();
    let mut quoted: BTreeMap<DocumentId, Vec<(usize, String)>> = BTreeMap::new();
    for (at, cited) in cited.iter().enumerate() {
        if let Some(quote) = cited.quote {
            quoted.entry(cited.document_id).or_default().push((at, quote.to_owned()));
        }
    }
    let mut places: HashMap<usize, (i32, i32)> = HashMap::new();
    for (document_id, quoted) in quoted {
        let text = write::text(conn, document_id).await.or_fail()?;
        let search = tokio::task::spawn_blocking(move || {
            let places = quotes::find(&text, &quoted.iter().map(|(_, quote)| quote.as_str()).collect::<Vec<_>>());
            quoted.into_iter().zip(places).map(|((at, _), place)| (at, place)).collect::<Vec<_>>()
        });
        for (at, place) in search.await.map_err(|error| Failure::new(Code::Internal, error))? {
            let bound = |bound: usize| i32::try_from(bound).ok();
            let place = place.map(|place| place.characters);
            let place = place.and_then(|place| Some((bound(place.start)?, bound(place.end)?)));
            let place = place.ok_or_else(|| {
                let failure = Failure::field("quote", format!("document {document_id} does not have these words"));
                Refusal::at(at, failure.with("remedy", "quote it to the letter"))
            })?;
            places.insert(at, place);
        }
    }
    let found = cited.iter().enumerate().filter_map(|(at, cited)| {
        let Cited { document_id, confidence, .. } = *cited;
        let source_hash = hashes.get(&document_id)?.clone();
        Some(Found { document_id, quote: places.get(&at).copied(), source_hash, confidence })
    });
    // Each document was locked.
    Ok(found.collect())
}
