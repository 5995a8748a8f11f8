//! Facts: asserted, superseded and invalidated, read at other times, and followed from one document to another.
use super::{documents::id_cursor, lists::must_exist, shape_bindings::guard};
use crate::{
    access::Caller,
    error::OrFail,
    graph::{
        facts::{self, Manner, Origin, Refusal, no_fact},
        named,
        paths::{self, Budget},
    },
    registry::Handle,
    search::results,
    service::Service,
    store::{
        self, merges,
        triples::{self, Wanted, derived, paths::Along},
    },
};
use chrono::{DateTime, SubsecRound, Utc};
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashMap};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{
        AssertedFact, BatchedFact, BatchedFacts, Direction, FactHistory, FactPage, FactResponse, FoundPath,
        InvalidatedFact, NewFact, OnOverlap, PathResponse, PathStep, SupersededFact, ValidAt,
    },
};
use svc_ids::{DocumentId, TripleId};

/// The facts among `ids`, in their order, as the caller may see them, now or as they were known at a time.
pub(super) async fn shown(
    conn: &mut PgConnection,
    caller: &Caller,
    ids: &[TripleId],
    known_at: Option<DateTime<Utc>>,
) -> Result<Vec<FactResponse>, Failure> {
    let scope = caller.readable();
    let rows = triples::read_many(conn, &scope, ids).await.or_fail()?;
    let facts = triples::shown(conn, &scope, rows, known_at).await.or_fail()?;
    let mut facts: HashMap<i64, FactResponse> = facts.into_iter().map(|fact| (fact.id, fact)).collect();
    Ok(ids.iter().filter_map(|id| facts.remove(&id.0)).collect())
}

/// A page of rows that show one or two facts each, by the id of the first of these, and the cursor of the next page: as many rows as there is room for,
/// and at least one. There is one row more than was asked for if there are more.
pub(super) async fn page<T>(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    (mut rows, limit): (Vec<T>, u32),
    known_at: Option<DateTime<Utc>>,
    of: impl Fn(&T) -> (TripleId, Option<TripleId>),
) -> Result<(Vec<T>, Option<String>), Failure> {
    let found = rows.len();
    rows.truncate(limit as usize);
    let ids: Vec<TripleId> = rows.iter().map(&of).flat_map(|(first, second)| [Some(first), second]).flatten().collect();
    if ids.is_empty() {
        return Ok((rows, None));
    }
    let sizes = triples::sizes(conn, &caller.readable(), &ids, known_at).await.or_fail()?;
    let sizes: HashMap<TripleId, u64> = sizes.into_iter().map(|(id, bytes)| (id, bytes.unsigned_abs())).collect();
    let bytes = |id: TripleId| sizes.get(&id).copied().unwrap_or_default();
    let mut room = service.settings.page_bytes;
    let fitting = rows.iter().map(&of).take_while(|(first, second)| {
        let (bytes, left) = (bytes(*first) + second.map_or(0, bytes), room);
        room = room.saturating_sub(bytes);
        bytes <= left
    });
    let fitting = fitting.count().max(1);
    rows.truncate(fitting);
    let next_cursor = rows.last().filter(|_| rows.len() < found).map(|row| of(row).0.0.to_string());
    Ok((rows, next_cursor))
}

/// One fact, as the caller may see it.
async fn one(conn: &mut PgConnection, caller: &Caller, id: TripleId) -> Result<FactResponse, Failure> {
    shown(conn, caller, &[id], None).await?.pop().ok_or_else(|| no_fact(id))
}

impl Handle<ops::assert_fact> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::assert_fact>) -> Result<AssertedFact, Failure> {
        let new = call.body.0;
        let on_overlap = new.on_overlap.unwrap_or(OnOverlap::Reject);
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let facts: [NewFact; 1] = [new];
        let base = &self.settings.rdf_base;
        let asserted = facts::assert(&mut tx, caller, base, &facts, Manner { on_overlap, origin: Origin::Caller })
            .await
            .map_err(|refusal| refusal.failure)?;
        let Some((id, outcome)) = asserted.outcomes.first().copied() else {
            return Err(Failure::new(Code::Internal, "the fact was not recorded"));
        };
        let warned = guard(self, &mut tx, caller, &asserted.changed).await?;
        let fact = one(&mut tx, caller, id).await?;
        tx.commit().await.or_fail()?;
        Ok(AssertedFact { fact, outcome, warnings: warned.results, warnings_truncated: warned.truncated })
    }
}

impl Handle<ops::assert_facts> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::assert_facts>) -> Result<BatchedFacts, Failure> {
        let new = call.body.0;
        let on_overlap = new.on_overlap.unwrap_or(OnOverlap::Reject);
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let base = &self.settings.rdf_base;
        let asserted = facts::assert(&mut tx, caller, base, &new.facts, Manner { on_overlap, origin: Origin::Caller })
            .await
            .map_err(|Refusal { index, failure }| {
                let Some(index) = index else { return failure };
                let field = failure.members.get("field").and_then(|field| field.as_str());
                let field = field.map(|field| format!("facts[{index}].{field}"));
                let failure = failure.with("index", index);
                field.into_iter().fold(failure, |failure, field| failure.with("field", field))
            })?;
        let warned = guard(self, &mut tx, caller, &asserted.changed).await?;
        tx.commit().await.or_fail()?;
        let facts = asserted.outcomes.into_iter().zip(0..);
        let facts = facts.map(|((id, outcome), index)| BatchedFact { index, id: id.0, outcome }).collect();
        Ok(BatchedFacts {
            facts,
            recorded_at: asserted.at,
            warnings: warned.results,
            warnings_truncated: warned.truncated,
        })
    }
}

impl Handle<ops::list_facts> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_facts>) -> Result<FactPage, Failure> {
        let query = call.query;
        let (limit, after) = (query.rows(), id_cursor(query.cursor.as_deref())?);
        if query.asserted_only && query.derived == Some(true) {
            return Err(Failure::field(
                "derived",
                "does not go with `asserted_only`, which leaves out what is derived",
            ));
        }
        let mut tx = store::transaction::begin_snapshot(&self.pool).await.or_fail()?;
        let predicate_id = match &query.predicate {
            None => None,
            Some(name) => {
                let found = named::resolve(&mut tx, &caller.readable(), &self.settings.rdf_base, &[name]).await?;
                Some(found.get(name.as_str()).copied().ok_or_else(|| named::no_predicate("predicate", name))?)
            }
        };
        for id in [query.subject_id, query.object_id, query.source_id, query.parent_id].into_iter().flatten() {
            // The owner reads what was said of documents that are gone.
            if caller.principal().is_some() {
                must_exist(&mut tx, caller, DocumentId(id)).await?;
            }
        }
        let valid_at = query.valid_at.unwrap_or_else(|| ValidAt::At(Utc::now().trunc_subsecs(6)));
        let known_at = known(&mut tx, query.known_at).await?;
        let scope = caller.readable();
        let ends: Vec<DocumentId> = [query.subject_id, query.object_id].into_iter().flatten().map(DocumentId).collect();
        let sets = merges::sets(&mut tx, &scope, &ends, known_at).await.or_fail()?;
        let members = |id: Option<i64>| id.map(|id| sets.members(DocumentId(id)));
        let wanted = Wanted {
            subjects: members(query.subject_id),
            predicate_id,
            objects: members(query.object_id),
            object_literal: query.object_literal,
            source_id: query.source_id,
            parent_id: query.parent_id,
            fact_type: query.fact_type,
            invalidated: query.invalidated,
            derived: if query.asserted_only { Some(false) } else { query.derived },
            valid_at: match valid_at {
                ValidAt::Any => None,
                ValidAt::At(moment) => Some(moment),
            },
        };
        let ids = triples::page(&mut tx, &scope, &wanted, known_at, TripleId(after), limit + 1).await.or_fail()?;
        let (ids, next_cursor) = page(self, &mut tx, caller, (ids, limit), Some(known_at), |id| (*id, None)).await?;
        let facts = shown(&mut tx, caller, &ids, Some(known_at)).await?;
        Ok(FactPage { facts, next_cursor, valid_at, known_at })
    }
}

/// The moment of the store's knowledge that is read: what is recorded later is not known yet.
pub(super) async fn known(conn: &mut PgConnection, asked: Option<DateTime<Utc>>) -> Result<DateTime<Utc>, Failure> {
    let now = triples::known_to(conn).await.or_fail()?;
    Ok(asked.map_or(now, |asked| asked.trunc_subsecs(6).min(now)))
}

impl Handle<ops::read_fact> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_fact>) -> Result<FactResponse, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        one(&mut conn, caller, TripleId(call.path.id)).await
    }
}

impl Handle<ops::read_fact_history> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_fact_history>) -> Result<FactHistory, Failure> {
        let (id, limit) = (TripleId(call.path.id), call.query.rows());
        let after = TripleId(id_cursor(call.query.cursor.as_deref())?);
        let scope = caller.readable();
        let mut tx = store::transaction::begin_snapshot(&self.pool).await.or_fail()?;
        let fact = triples::read_many(&mut tx, &scope, &[id]).await.or_fail()?.pop().ok_or_else(|| no_fact(id))?;
        let ids = triples::history(&mut tx, &scope, &fact, after, limit + 1).await.or_fail()?;
        let (ids, next_cursor) = page(self, &mut tx, caller, (ids, limit), None, |id| (*id, None)).await?;
        Ok(FactHistory { facts: shown(&mut tx, caller, &ids, None).await?, next_cursor })
    }
}

impl Handle<ops::supersede_fact> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::supersede_fact>) -> Result<SupersededFact, Failure> {
        let id = TripleId(call.path.id);
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let done = facts::supersede(&mut tx, caller, &self.settings.rdf_base, id, &call.body.0).await?;
        let warned = guard(self, &mut tx, caller, &[done.subject_id]).await?;
        let answer = SupersededFact {
            warnings: warned.results,
            warnings_truncated: warned.truncated,
            fact: one(&mut tx, caller, done.id).await?,
            closed: one(&mut tx, caller, id).await?,
            remainders: shown(&mut tx, caller, &done.remainders, None).await?,
        };
        tx.commit().await.or_fail()?;
        Ok(answer)
    }
}

impl Handle<ops::invalidate_fact> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::invalidate_fact>) -> Result<InvalidatedFact, Failure> {
        let id = TripleId(call.path.id);
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let done = facts::invalidate(&mut tx, caller, id, &call.body.0.unwrap_or_default()).await?;
        let derived_closed = derived::closed_at(&mut tx, &caller.readable(), done.at).await.or_fail()?;
        let warned = guard(self, &mut tx, caller, &[done.subject_id]).await?;
        let answer = InvalidatedFact {
            warnings: warned.results,
            warnings_truncated: warned.truncated,
            closed: one(&mut tx, caller, id).await?,
            remainders: shown(&mut tx, caller, &done.remainders, None).await?,
            derived_closed: u64::try_from(derived_closed).unwrap_or(0),
        };
        tx.commit().await.or_fail()?;
        Ok(answer)
    }
}

impl Handle<ops::find_paths> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::find_paths>) -> Result<PathResponse, Failure> {
        let asked = call.body.0;
        let names: Vec<&str> = asked.predicates.iter().map(String::as_str).collect();
        let mut tx = store::transaction::begin_search(&self.pool).await.or_fail()?;
        let found = named::resolve(&mut tx, &caller.readable(), &self.settings.rdf_base, &names).await?;
        if let Some(missing) = names.iter().find(|name| !found.contains_key(*name)) {
            return Err(named::no_predicate("predicates", missing));
        }
        let (from, to) = (DocumentId(asked.from_id), DocumentId(asked.to_id));
        for end in [from, to] {
            must_exist(&mut tx, caller, end).await?;
        }
        let along = Along {
            direction: asked.direction.unwrap_or(Direction::Any),
            predicates: (!names.is_empty()).then(|| found.into_values().collect()),
            valid_at: asked.valid_at.unwrap_or_else(|| Utc::now().trunc_subsecs(6)),
            known_at: known(&mut tx, asked.known_at).await?,
            asserted_only: asked.asserted_only,
        };
        let most = (asked.max_depth.unwrap_or(4), asked.limit.unwrap_or(1) as usize);
        let budget = Budget { nodes: self.settings.path_max_documents, time: self.settings.path_timeout };
        let found = paths::find(&mut tx, caller, (from, to), &along, most, budget).await?;
        if found.truncated.is_some() {
            // A statement may have been left under way.
            drop(tx);
            tx = store::transaction::begin_search(&self.pool).await.or_fail()?;
        }
        let facts: Vec<TripleId> = found.paths.iter().flatten().map(|(fact, _)| *fact).collect();
        let steps = match facts.is_empty() {
            true => Vec::new(),
            false => triples::paths::steps(&mut tx, &facts).await.or_fail()?,
        };
        let steps: HashMap<TripleId, _> = steps.into_iter().map(|step| (step.id, step)).collect();
        let sets = &found.sets;
        let step = |(fact, to): &(TripleId, DocumentId)| {
            let row = steps.get(fact)?;
            let (subject_id, object_id) = (sets.canonical(row.subject_id), sets.canonical(row.object_id));
            Some(PathStep {
                triple_id: fact.0,
                subject_id: subject_id.0,
                stated_subject_id: sets.stated(row.subject_id),
                predicate: row.predicate(),
                object_id: object_id.0,
                stated_object_id: sets.stated(row.object_id),
                forward: object_id == *to,
            })
        };
        let paths: Vec<FoundPath> = found
            .paths
            .iter()
            .map(|path| FoundPath {
                length: u32::try_from(path.len()).unwrap_or(u32::MAX),
                steps: path.iter().filter_map(step).collect(),
            })
            .collect();
        let on =
            found.paths.iter().flatten().map(|(_, to)| *to).chain((!paths.is_empty()).then_some(sets.canonical(from)));
        let on: Vec<DocumentId> = on.collect::<BTreeSet<_>>().into_iter().collect();
        let documents = results::documents(self, &mut tx, &caller.readable(), &on, asked.include_embed).await?;
        Ok(PathResponse {
            paths,
            documents,
            visited: u32::try_from(found.visited).unwrap_or(u32::MAX),
            truncated: found.truncated,
            valid_at: along.valid_at,
            known_at: along.known_at,
        })
    }
}
