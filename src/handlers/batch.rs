//! Many documents in one transaction: all are stored, or none.
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{parent, queueing::embed_together},
    registry::Handle,
    service::Service,
    store::{self, batch, ingest_nodes::Frontier, places::Place},
    usetype::Usetype,
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::{BTreeMap, HashMap};
use svc_actors::{Lane, Lanes, WriteMode};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{BatchItem, BatchResponse, BatchedDocument, EventKind, NewBatch},
};
use svc_ids::DocumentId;

impl Handle<ops::create_documents> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_documents>) -> Result<BatchResponse, Failure> {
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let (documents, _) = create(self, &mut tx, caller, &call.body.0).await?;
        tx.commit().await.or_fail()?;
        self.wake.notify(Lanes::of(Lane::Model));
        Ok(BatchResponse { documents })
    }
}

/// Creates documents; returns them and the caller, with the right to write those that were made its own.
pub(super) async fn create(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    new: &NewBatch,
) -> Result<(Vec<BatchedDocument>, Caller), Failure> {
    let items = &new.documents;
    let asked: Vec<&str> =
        items.iter().flat_map(|item| [&item.key, &item.parent_key]).flatten().map(String::as_str).collect();
    let mut known = match asked.is_empty() {
        true => HashMap::new(),
        false => batch::with_keys(conn, caller.principal().map(|principal| principal.id), &asked).await.or_fail()?,
    };
    let ids: Vec<DocumentId> = known.values().copied().collect();
    // What the caller may no longer read is as if it were gone: its key is free.
    let readable = batch::readable_of(conn, &caller.readable(), &ids).await.or_fail()?;
    let lost: Vec<DocumentId> = ids.into_iter().filter(|id| !readable.contains(id)).collect();
    known.retain(|_, id| readable.contains(id));
    let stored = |item: &BatchItem| item.key.as_ref().and_then(|key| known.get(key).copied());
    let count = items.iter().filter(|item| stored(item).is_none()).count();
    let mut ids = store::nodes::reserve_ids(conn, count).await.or_fail()?.into_iter();
    let mut making = Making { caller: caller.clone(), parents: HashMap::new(), made: HashMap::new(), open: Vec::new() };
    let mut answers = Vec::with_capacity(items.len());
    let mut to_embed = Vec::with_capacity(count);
    for (index, item) in items.iter().enumerate() {
        let at = |failure: Failure| {
            // A database that is away is no fault of the document.
            if !failure.code.members().contains(&"index") {
                return failure;
            }
            let field = failure.members.get("field").and_then(Value::as_str);
            let field = field.map(|field| format!("documents[{index}].{field}"));
            let failure = failure.with("index", index);
            field.into_iter().fold(failure, |failure, field| failure.with("field", field))
        };
        let found = stored(item);
        let document_id = match found {
            Some(id) => id,
            None => {
                let parent = making.parent(conn, &known, item).await.map_err(at)?;
                let id = ids.next().ok_or_else(|| Failure::new(Code::Internal, "the batch ran out of ids"))?;
                let place = batch::new_place(parent.as_ref(), id);
                // It may store others before this one, of which any may be at fault.
                making.add(service, conn, item, place.clone(), parent.as_ref()).await?;
                to_embed.push((place, item.title.len() + item.content.len()));
                id
            }
        };
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        answers.push(BatchedDocument { index, document_id: document_id.0, was_existing: found.is_some() });
    }
    making.flush(service, conn).await?;
    let keys: Vec<(&str, DocumentId)> = items
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| !answer.was_existing)
        .filter_map(|(item, answer)| Some((item.key.as_deref()?, DocumentId(answer.document_id))))
        .collect();
    if !batch::give_keys(conn, caller.principal().map(|principal| principal.id), &keys, &lost).await.or_fail()? {
        return Err(Failure::new(Code::Unavailable, "another call is storing documents with the same keys")
            .with("remedy", "try again: what the other call stored is then answered")
            .with("retry_after", 1));
    }
    let ids: Vec<DocumentId> = to_embed.iter().map(|(place, _)| place.id()).collect();
    store::events::record(conn, EventKind::DocumentCreated, &ids, &json!({})).await.or_fail()?;
    embed_together(&service.settings.task_badges, conn, &to_embed, new.priority).await.or_fail()?;
    Ok((answers, making.caller))
}

/// The documents of a batch on their way into the database.
struct Making<'a> {
    caller: Caller,
    /// The parents that were there before the batch. They are locked.
    parents: HashMap<DocumentId, Place>,
    /// The documents of the batch that have a key.
    made: HashMap<&'a str, Place>,
    /// The documents that are not yet stored, each with the nearest of `parents` above it.
    open: Vec<(batch::NewDocument<'a>, Option<DocumentId>)>,
}

impl<'a> Making<'a> {
    async fn parent(
        &mut self,
        conn: &mut PgConnection,
        known: &HashMap<String, DocumentId>,
        item: &'a BatchItem,
    ) -> Result<Option<Place>, Failure> {
        let id = match (item.parent_id, &item.parent_key) {
            (Some(id), _) => DocumentId(id),
            (None, None) => return Ok(None),
            (None, Some(key)) => match (self.made.get(key.as_str()), known.get(key)) {
                (Some(place), _) => {
                    place.admits(0)?;
                    return Ok(Some(place.clone()));
                }
                (None, Some(id)) => *id,
                (None, None) => {
                    let remedy = "put the parent before its children, in this call or in an earlier one";
                    return Err(Failure::field("parent_key", format!("there is no document with the key `{key}`"))
                        .with("remedy", remedy));
                }
            },
        };
        if let Some(place) = self.parents.get(&id) {
            return Ok(Some(place.clone()));
        }
        let place = parent::lock(conn, &self.caller, id, 0).await?;
        self.parents.insert(id, place.clone());
        Ok(Some(place))
    }

    async fn add(
        &mut self,
        service: &Service,
        conn: &mut PgConnection,
        item: &'a BatchItem,
        place: Place,
        parent: Option<&Place>,
    ) -> Result<(), Failure> {
        let above = parent.map(Place::children_path).unwrap_or_default();
        let before = above.iter().rev().map(|id| DocumentId(*id)).find(|id| self.parents.contains_key(id));
        let new = batch::NewDocument {
            place: place.clone(),
            title: &item.title,
            content: &item.content,
            structured_content: Value::Object(item.structured_content.clone()),
            usetype: item.usetype.as_deref().unwrap_or(Usetype::Markdown.as_str()),
            position: item.position,
            event_time: item.event_time,
        };
        self.open.push((new, before));
        if let Some(key) = &item.key {
            self.made.insert(key, place.clone());
        }
        // What is put under an access root later in the batch must find it.
        let parent_id = parent.map(|parent| parent.id().0);
        if item.private || service.settings.is_enclosed(parent_id) {
            self.flush(service, conn).await?;
            self.caller = self.caller.enclose(conn, &place).await.or_fail()??;
        }
        Ok(())
    }

    /// Stores the documents that are not yet stored.
    async fn flush(&mut self, service: &Service, conn: &mut PgConnection) -> Result<(), Failure> {
        let (new, before): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open).into_iter().unzip();
        if new.is_empty() {
            return Ok(());
        }
        batch::insert(conn, &service.lexicon, &new).await.or_fail()?;
        // Each has tasks locked that wait there. Two batches under the same documents do it in the same order.
        let mut under: BTreeMap<DocumentId, (&Place, i64)> = BTreeMap::new();
        for (new, parent) in new.iter().zip(&before) {
            if let Some(parent) = parent {
                under.entry(*parent).or_insert((&new.place, 0)).1 += 1;
            }
        }
        for (parent, (first, count)) in under {
            // A region that covers one new child of a node covers all of them.
            store::reservations::hold_for_edit(conn, first, WriteMode::Itself).await.or_fail()?;
            let change = Frontier { total: count, settled: count, ..Frontier::default() };
            store::ingest_nodes::count(conn, parent, change).await.or_fail()?;
        }
        Ok(())
    }
}
