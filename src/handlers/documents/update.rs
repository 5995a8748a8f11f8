//! Changes the fields of a document, or moves it.
use super::{etag_of, missing_vector, must_match, precedence::Precedence, read, wait_for};
use crate::{
    access::Caller,
    error::{IntoFailure, OrFail},
    ingest::{edit, parent, raptor, segments::outdate_sums, settle, titles},
    registry::Handle,
    service::Service,
    store::{
        self,
        audit::Entry,
        documents::{DocumentRow, content_hash},
        edits::{Edit, Part, Reopened, Reopening},
        evidence::Evidence,
        ingest_nodes::{ChildrenDone, Frontier},
        places::Place,
    },
    usetype::Usetype,
};
use chrono::Utc;
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::{collections::BTreeMap, slice};
use svc_actors::{Lanes, WriteMode};
use svc_client::{
    Call, Failure, Meta, Version, ops,
    wire::{AuditAct, DocumentChange, DocumentResponse, EventKind, UpdatedDocument},
};
use svc_ids::{DocumentId, RootId, TaskId};

impl Handle<ops::update_document> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::update_document>,
    ) -> Result<Version<UpdatedDocument>, Failure> {
        let (id, change, query) = (DocumentId(call.path.id), call.body.0, call.query);
        let waiting = query.wait.then(|| self.admission.waiting(caller.principal_id())).transpose()?;
        let mut precedence = change.parent_id.is_some().then(|| Precedence::of_move(id));
        let (mut tx, changed, moving) = loop {
            let mut moving = None;
            let begin = match change.parent_id {
                Some(parent_id) => {
                    may_move(self, caller, id, parent_id.map(DocumentId)).await?;
                    moving = Some(self.admission.moving(caller.principal_id()).await?);
                    store::transaction::begin_moving(&self.pool).await
                }
                None => store::transaction::begin(&self.pool).await,
            };
            let mut tx = begin.or_fail()?;
            let updated = update(self, &mut tx, caller, id, &change, &call.meta).await;
            match (updated, &mut precedence) {
                (Ok(changed), _) => break (tx, changed, moving),
                (Err(failure), None) => return Err(failure),
                (Err(failure), Some(precedence)) => {
                    // What waits here must not keep others from creating documents.
                    tx.rollback().await.or_fail()?;
                    drop(moving);
                    precedence.after(self, caller, failure).await?;
                }
            }
        };
        let mut document = match query.wait {
            true => None,
            false => {
                let row = store::documents::read(&mut tx, &changed.caller.readable(), id, query.include_embed).await;
                Some(DocumentResponse::from(row.or_fail()?.ok_or_else(|| Failure::no_document(id.0))?))
            }
        };
        tx.commit().await.or_fail()?;
        drop(moving);
        if changed.leaves_events {
            after_a_large_move(self).await;
        }
        if let Some(file) = changed.reopened {
            settle::settle_or_leave(self, file).await;
        }
        self.wake.notify(Lanes::ALL);
        let mut warnings = Vec::new();
        if let (Some(waiting), Some(task)) = (waiting, changed.task) {
            warnings = waiting.until(wait_for(self, id, &[task])).await?;
            warnings.extend(missing_vector(self, id).await?);
        }
        let document = match document.take() {
            Some(document) => document,
            // The caller's rights may have ended meanwhile.
            None => read(self, &changed.caller.again(&self.pool).await?, id, query.include_embed).await?,
        };
        Ok(Version { etag: etag_of(&document)?, value: UpdatedDocument { document, warnings } })
    }
}

/// Refuses a caller without the rights that a move needs. They are looked up once more under the lock of the move, which stops all
/// creation, so that only who has them takes it.
async fn may_move(
    service: &Service,
    caller: &Caller,
    id: DocumentId,
    target: Option<DocumentId>,
) -> Result<(), Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    let place = caller.writes(&mut conn, id).await.or_fail()??;
    if let Some(target) = target {
        caller.writes(&mut conn, target).await.or_fail()??;
    }
    if place.path().last() != target.map(|target| target.0).as_ref() {
        caller.takes(&mut conn, &place).await.or_fail()??;
    }
    Ok(())
}

/// Changes the fields of a document in the caller's transaction; returns the caller with the right to what was made its own.
pub(in crate::handlers) async fn change(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    id: DocumentId,
    change: &DocumentChange,
    meta: &Meta,
) -> Result<Caller, Failure> {
    Ok(update(service, conn, caller, id, change, meta).await?.caller)
}

/// What a change led to.
struct Changed {
    /// The task that embeds the new text.
    task: Option<TaskId>,
    /// The caller, with the right to what was made its own.
    caller: Caller,
    /// While the whole tree was locked, tasks of files in it may have left settle events behind.
    leaves_events: bool,
    /// The file whose containers are to be rolled up anew.
    reopened: Option<RootId>,
}

async fn update(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    id: DocumentId,
    change: &DocumentChange,
    meta: &Meta,
) -> Result<Changed, Failure> {
    let place = caller.writes(conn, id).await.or_fail()??;
    let part = store::edits::part(conn, &place).await.or_fail()?.ok_or_else(|| Failure::no_document(id.0))?;
    // The locks in their order: those of files, then rows of documents, then what hangs on them.
    let mut leaves_events = false;
    let mut target = None;
    let writes_text = change.title.is_some() || change.content.is_some();
    if let Some(parent_id) = change.parent_id {
        leaves_events = store::locks::files_around(conn, id).await.or_fail()?;
        target = match parent_id {
            Some(parent) => Some(Some(parent::lock(conn, caller, DocumentId(parent), 0).await?)),
            None => Some(None),
        };
    } else if let (true, Some(file)) = (writes_text, part.file) {
        store::locks::file(conn, file).await.or_fail()?;
    }
    if let (true, Some(file)) = (writes_text, part.file) {
        edit::lock(conn, &place, file).await?;
    }
    let Some(mut place) = store::places::lock_for_change(conn, &caller.writable(), id).await.or_fail()? else {
        return Err(caller.refusal(conn, id).await.or_fail()?);
    };
    let before = store::documents::read(conn, &caller.readable(), id, true).await.or_fail()?;
    let before = before.ok_or_else(|| Failure::no_document(id.0))?;
    let hash = change.content.as_deref().map(content_hash);
    let edit = differing(&before, change, hash.as_deref());
    let version = former(caller, &before, &edit);
    let (parent_id, text, was) = (before.parent_id, (before.usetype.clone(), before.content.chars().count()), before);
    must_match(meta, was)?;
    refuse(id, change, &edit, part)?;
    // What an import brought may have bytes and be no container.
    if edit.content.is_some() && store::blobs::is_file(conn, &place).await.or_fail()? {
        let detail = format!("document {id} has the bytes of a file, which are its text");
        return Err(Failure::field("content", detail).with("remedy", "create a document of your own under it"));
    }

    let mut caller = caller.clone();
    if let Some(target) = target.filter(|target| target.as_ref().map(Place::id) != parent_id) {
        if let Some(file) = part.file {
            return Err(Failure::field(
                "parent_id",
                format!("document {id} is a part of file {file}, and stays in it"),
            )
            .with("remedy", "move the file, or create a document with the text of this one"));
        }
        caller.takes(conn, &place).await.or_fail()??;
        let origin = store::events::origins(conn, &[id]).await.or_fail()?;
        let from = place.clone();
        place = relocate(conn, &caller, &service.settings.task_badges, &place, target.as_ref()).await?;
        store::indexes::manage::follow_move(conn, &from, &place).await.or_fail()?;
        titles::are_others(service, conn, &place).await?;
        // Only the owner opens what was closed. A principal writes nothing open, so only at the top nothing closes what it moves.
        let leaves_all = target.is_none() && caller.principal().is_some();
        if leaves_all || service.settings.is_enclosed(target.map(|target| target.id().0)) {
            caller = caller.enclose_moved(conn, &place).await.or_fail()??;
        }
        store::events::moved(conn, &origin).await.or_fail()?;
    }
    let (mut task, mut reopened) = (None, None);
    if edit != Edit::default() {
        store::reservations::hold_for_edit(conn, &place, WriteMode::Itself).await.or_fail()?;
        store::edits::write(conn, &service.lexicon, &place, &edit).await.or_fail()?;
        if let Some(version) = version {
            keep(conn, id, version).await?;
        }
        if edit.title.is_some() || edit.usetype.is_some() {
            titles::changed(service, conn, &place).await?;
        }
        if edit.title.is_some() && part.is_container {
            reopened = summarise_above(conn, &place, part.file).await?;
        }
        let told = json!({"fields": fields(&edit)});
        store::events::record(conn, EventKind::DocumentUpdated, &[id], &told).await.or_fail()?;
        let is_searched_otherwise = edit.title.is_some() || edit.content.is_some() || edit.usetype.is_some();
        if is_searched_otherwise && !part.is_container {
            if edit.content.is_some() {
                // Summaries quote the old text.
                raptor::forget_over(conn, slice::from_ref(&place)).await.or_fail()?;
            } else if edit.title.is_some() {
                // A summary may have the old title.
                for tree in store::raptor::of_leaf(conn, &place).await.or_fail()? {
                    raptor::remove(conn, &tree).await.or_fail()?;
                }
            }
            let characters = edit.content.map_or(text.1, |(content, _)| content.chars().count());
            let grown = (characters as i64 - text.1 as i64) / store::edits::CHARACTERS_OF_A_TOKEN;
            task = edit::embed_again(service, conn, &place, part.file, grown).await?;
        }
    }
    Ok(Changed { task, caller, leaves_events, reopened })
}

/// Takes the old title of a container out of the summaries above it, and has the containers above it in its file rolled up anew if one of them had such a
/// summary. Returns that file. The caller has locked the file and these containers.
async fn summarise_above(
    conn: &mut PgConnection,
    place: &Place,
    file: Option<RootId>,
) -> Result<Option<RootId>, Failure> {
    let forgotten = store::summaries::forget_title(conn, place).await.or_fail()?;
    let Some(file) = file else { return Ok(None) };
    let containers: Vec<DocumentId> = place.containers(file.document()).iter().map(Place::id).collect();
    let had_summary = containers.iter().any(|container| forgotten.contains(container));
    let Some(parent_id) = containers.last().copied().filter(|_| had_summary) else { return Ok(None) };
    for container in place.containers(file.document()) {
        // A rollup of theirs that runs now has read the old title.
        store::reservations::hold_for_edit(conn, &container, WriteMode::Itself).await.or_fail()?;
    }
    let what = Reopening { containers: &containers, tokens: 0 };
    let Reopened { settled, failed } = store::edits::reopen(conn, None, what).await.or_fail()?;
    let change = Frontier { in_flight: settled + failed, settled: -settled, failed: -failed, total: 0 };
    store::ingest_nodes::count(conn, file.document(), change).await.or_fail()?;
    let done = ChildrenDone { root_id: file, parent_id, done: 0, failed: 0 };
    store::ingest_nodes::children_done(conn, &[done]).await.or_fail()?;
    Ok(Some(file))
}

/// The most bytes of what a template was.
const VERSIONS_BYTES: usize = 4 << 20;

/// What a template was before a change; `None` if nothing of it changes.
fn former(caller: &Caller, before: &DocumentRow, edit: &Edit<'_>) -> Option<Value> {
    let is_template = before.usetype == Usetype::Template.as_str();
    let changes = edit.title.is_some() || edit.content.is_some() || edit.structured_content.is_some();
    (is_template && changes).then(|| {
        json!({
            "title": before.title,
            "content": before.content,
            "structured_content": before.structured_content.0,
            "changed_by": caller.principal().map_or("owner", |principal| &principal.name),
            "changed_at": Utc::now(),
        })
    })
}

/// Keeps what a template was behind what it was before.
async fn keep(conn: &mut PgConnection, id: DocumentId, version: Value) -> Result<(), Failure> {
    let kept = store::evidence::read_one(conn, id, Evidence::Versions).await.or_fail()?;
    let mut versions = match kept {
        Some(Value::Array(versions)) => versions,
        _ => Vec::new(),
    };
    versions.push(version);
    let sizes: Vec<usize> = versions.iter().map(|version| version.to_string().len()).collect();
    let mut size: usize = sizes.iter().sum();
    let mut left_out = 0;
    while size > VERSIONS_BYTES {
        size -= sizes[left_out];
        left_out += 1;
    }
    versions.drain(..left_out);
    store::evidence::record(conn, id, Evidence::Versions, &Value::Array(versions)).await.or_fail()
}

/// The fields of a change that differ from what is stored.
fn differing<'a>(before: &DocumentRow, change: &'a DocumentChange, hash: Option<&'a str>) -> Edit<'a> {
    let content = change.content.as_deref().filter(|content| *content != before.content);
    Edit {
        title: change.title.as_deref().filter(|title| *title != before.title),
        content: content.zip(hash),
        structured_content: change.structured_content.as_ref().filter(|object| **object != before.structured_content.0),
        usetype: change.usetype.as_deref().filter(|usetype| *usetype != before.usetype),
        position: change.position.filter(|position| *position != before.position),
        event_time: change.event_time.filter(|time| *time != before.event_time),
    }
}

/// The names of the fields that change.
fn fields(edit: &Edit<'_>) -> Vec<&'static str> {
    let all = [
        ("title", edit.title.is_some()),
        ("content", edit.content.is_some()),
        ("structured_content", edit.structured_content.is_some()),
        ("usetype", edit.usetype.is_some()),
        ("position", edit.position.is_some()),
        ("event_time", edit.event_time.is_some()),
    ];
    all.into_iter().filter(|(_, changes)| *changes).map(|(name, _)| name).collect()
}

/// Refuses what a part of an ingested file does not take.
fn refuse(id: DocumentId, change: &DocumentChange, edit: &Edit<'_>, part: Part) -> Result<(), Failure> {
    let changed = fields(edit).into_iter().chain(change.parent_id.map(|_| "parent_id")).next();
    if let (true, Some(field)) = (part.is_summary, changed) {
        let detail = format!("document {id} is a summary or holds summaries, which the service made and deletes");
        return Err(Failure::field(field, detail)
            .with("remedy", "change or move what was summarised, or create a document of your own"));
    }
    if edit.content.is_some() && part.is_container {
        return Err(Failure::field(
            "content",
            format!("document {id} is a container, whose text is that of the documents under it"),
        )
        .with("remedy", "change the documents under it"));
    }
    if edit.usetype.is_some() && (part.is_container || part.file.is_some()) {
        return Err(Failure::field(
            "usetype",
            format!("document {id} was ingested, and its usetype says what ingestion made it for"),
        )
        .with("remedy", "leave its usetype, or create a document of your own"));
    }
    Ok(())
}

/// Puts a node with all under it in its new place, with the tasks that wait there and the counts of files above.
async fn relocate(
    conn: &mut PgConnection,
    caller: &Caller,
    badges: &BTreeMap<String, String>,
    from: &Place,
    target: Option<&Place>,
) -> Result<Place, Failure> {
    let id = from.id();
    if let Some(parent) = target.filter(|parent| parent.is_within(id)) {
        let detail = format!("document {} is at or under document {id}, which cannot be under itself", parent.id());
        return Err(Failure::field("parent_id", detail).with("remedy", "choose a document outside of what you move"));
    }
    if let Some(parent) = target {
        parent.admits(store::moves::height(conn, from).await.or_fail()?)?;
        if store::links::contains(conn, &caller.readable(), id, parent.id()).await.or_fail()? {
            let detail = format!("document {id} contains document {} by links, and cannot be under it", parent.id());
            return Err(Failure::field("parent_id", detail).with("remedy", "delete one of the links `contains`"));
        }
    }
    let to = from.moved(target);
    for place in [from, &to] {
        store::reservations::hold_for_edit(conn, place, WriteMode::Subtree).await.or_fail()?;
    }
    // Summaries of documents above quote what leaves them.
    raptor::forget_above(conn, from).await.or_fail()?;
    outdate_sums(badges, conn, &[id]).await.or_fail()?;
    let moved = store::moves::relocate(conn, from, target).await.map_err(IntoFailure::into_failure)?;
    if moved.has_other_readers {
        let parent = |id: Option<i64>| id.map_or(Value::Null, Value::from);
        let entry = Entry::new(AuditAct::DocumentMove)
            .document(id)
            .with("from", parent(from.path().last().copied()))
            .with("to", parent(target.map(|target| target.id().0)));
        caller.record(conn, entry).await.or_fail()?;
    }
    // Before the rows were locked, an edit may have queued a task at the old place, and a worker may hold it by now.
    store::reservations::hold_for_edit(conn, from, WriteMode::Subtree).await.or_fail()?;
    store::moves::relocate_tasks(conn, from, &to).await.or_fail()?;
    store::moves::count(conn, from, &to, moved.counts).await.or_fail()?;
    outdate_sums(badges, conn, &[id]).await.or_fail()?;
    Ok(to)
}

/// Takes the settle events that tasks of a tree left behind while the whole tree was locked. An error is only logged,
/// because the move took effect; the sweep does the rest.
pub(super) async fn after_a_large_move(service: &Service) {
    if let Err(error) = settle::take_left(service).await {
        tracing::warn!(error = %error, "could not settle what was left while a large tree was moved; the sweep will do it");
    }
}
