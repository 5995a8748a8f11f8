//! Facts at two moments, held beside each other.
use super::super::{
    documents::id_cursor,
    lists::must_exist,
    triples::{known, page, shown},
};
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        graph::diff::{Change, Compared, count_known, count_valid, known as known_changes, valid as valid_changes},
    },
};
use chrono::{SubsecRound, Utc};
use std::collections::HashMap;
use svc_client::{
    Call, Failure, ops,
    wire::{ChangedFact, DiffResponse, FactChange},
};
use svc_ids::{DocumentId, TripleId};

impl Handle<ops::compare_facts> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::compare_facts>) -> Result<DiffResponse, Failure> {
        let query = call.query;
        let (limit, after) = (query.rows(), TripleId(id_cursor(query.cursor.as_deref())?));
        let is_known = match (query.known_from, query.valid_from) {
            (Some(_), None) if query.valid_to.is_none() => true,
            (None, Some(_)) if query.known_to.is_none() => false,
            _ => {
                return Err(Failure::field("known_from", "either `known_from` or `valid_from` is needed, and not both")
                    .with("remedy", "compare two moments of the store's knowledge by `known_from` and `known_to`, or two in the world by `valid_from` and `valid_to`"));
            }
        };
        let mut tx = store::transaction::begin_search(&self.pool).await.or_fail()?;
        let parent_id = query.parent_id.map(DocumentId);
        if let Some(id) = parent_id {
            must_exist(&mut tx, caller, id).await?;
        }
        let now = known(&mut tx, None).await?;
        let (from, to) = match is_known {
            true => {
                // The clock of facts stands still while nobody writes any, so that a moment after it need not be in the future.
                let latest = now.max(Utc::now());
                let (from, to) = (query.known_from.unwrap_or(latest), query.known_to.unwrap_or(latest));
                if from > to.min(latest) {
                    return Err(Failure::field("known_from", "lies after `known_to`, or in the future"));
                }
                (from.min(now), to.min(now))
            }
            false => {
                let to = query.valid_to.unwrap_or_else(Utc::now);
                (query.valid_from.unwrap_or(to), to)
            }
        };
        let (from, to) = (from.trunc_subsecs(6), to.trunc_subsecs(6));
        let compared = Compared { from, to, parent_id, asserted_only: query.asserted_only };
        let scope = caller.readable();
        let (counts, changes) = match is_known {
            true => (
                count_known(&mut tx, &scope, &compared).await.or_fail()?,
                known_changes(&mut tx, &scope, &compared, query.kind, after, limit + 1).await.or_fail()?,
            ),
            false => (
                count_valid(&mut tx, &scope, &compared, now).await.or_fail()?,
                valid_changes(&mut tx, &scope, &compared, now, query.kind, after, limit + 1).await.or_fail()?,
            ),
        };
        // What became of them later is of other moments.
        let known_at = if is_known { to } else { now };
        let of = |change: &Change| (change.id, change.by);
        let (changes, next_cursor) = page(self, &mut tx, caller, (changes, limit), Some(known_at), of).await?;
        let ids: Vec<TripleId> = changes.iter().flat_map(|change| [Some(change.id), change.by]).flatten().collect();
        let facts = shown(&mut tx, caller, &ids, Some(known_at)).await?;
        let facts: HashMap<i64, _> = facts.into_iter().map(|fact| (fact.id, fact)).collect();
        let changes = changes.into_iter().filter_map(|change| {
            let by = change.by.and_then(|by| facts.get(&by.0).cloned());
            Some(ChangedFact { kind: change.kind.0, fact: facts.get(&change.id.0)?.clone(), by })
        });
        let counted = |kind: FactChange| {
            let count = counts.iter().find(|(counted, _)| counted.0 == kind);
            count.map_or(0, |(_, count)| u64::try_from(*count).unwrap_or(0))
        };
        Ok(DiffResponse {
            added: counted(FactChange::Added),
            removed: counted(FactChange::Removed),
            superseded: counted(FactChange::Superseded),
            changes: changes.collect(),
            next_cursor,
            from,
            to,
        })
    }
}
