//! Documents: the nodes of the tree.
mod links;
mod pieces;
mod precedence;
mod segments;
mod update;

use super::{lists::must_exist, reprocess::after_giving_up};
use crate::{
    access::Caller,
    error::{IntoFailure, OrFail},
    ingest::{
        creating::{self, Created, Creating},
        edit, parent,
        queueing::{Queueing, Work},
        raptor, reprocess,
        segments::outdate_sums,
        settle,
        tasks::types::EMBED,
    },
    registry::Handle,
    search::bm25,
    service::Service,
    store::{
        self,
        documents::{DocumentRow, content_hash},
        evidence::Evidence,
        ingest_nodes::Frontier,
    },
};
use precedence::Precedence;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use std::{slice, time::Duration};
use svc_actors::{Lane, Lanes, WriteMode};
use svc_client::{
    Call, Code, Failure, Meta, Validated, ops,
    wire::{CreatedDocument, DocumentResponse, EventKind, EvidenceResponse, NewDocument},
};
use svc_ids::{DocumentId, TaskId};
pub(super) use update::change;

/// How long `?wait=true` waits.
const WAIT: Duration = Duration::from_secs(60);
/// The time between two looks at the document's task.
const WAIT_STEP: Duration = Duration::from_millis(20);

impl Handle<ops::create_document> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_document>) -> Result<CreatedDocument, Failure> {
        let new = call.body.0;
        let waiting = call.query.wait.then(|| self.admission.waiting(caller.principal_id())).transpose()?;
        let (Created { document, task }, caller) = match Creating::takes(self, &new) {
            true => (self.creating.create(self, new).await?, caller.clone()),
            false => {
                let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
                let created = create(self, &mut tx, caller, &new).await?;
                tx.commit().await.or_fail()?;
                self.wake.notify(Lanes::of(Lane::Model));
                created
            }
        };
        let Some(waiting) = waiting else {
            // This is the document as it was stored, before its vector.
            return Ok(CreatedDocument { document: document.into(), warnings: Vec::new() });
        };
        let id = document.id;
        drop(document);
        let mut warnings = waiting.until(wait_for(self, id, &[task])).await?;
        warnings.extend(missing_vector(self, id).await?);
        let caller = caller.again(&self.pool).await?;
        Ok(CreatedDocument { document: read(self, &caller, id, call.query.include_embed).await?, warnings })
    }
}

/// Why the document has no vector, or one that lacks its end.
async fn missing_vector(service: &Service, id: DocumentId) -> Result<Option<String>, Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    let note = store::evidence::read_one(&mut conn, id, Evidence::Embed).await.or_fail()?;
    let warning = |note: Value| {
        let reason = note["skipped"].as_str().unwrap_or("left_out");
        Some(format!("{}: {reason} ({})", Evidence::Embed.as_str(), note["remedy"].as_str()?))
    };
    Ok(note.and_then(warning))
}

/// Creates a document and queues the task that embeds it. Returns both, and the caller, who has gained the right to the document if that is
/// private.
async fn create(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    new: &NewDocument,
) -> Result<(Created, Caller), Failure> {
    let parent = match new.parent_id {
        Some(id) => Some(parent::lock(conn, caller, DocumentId(id), 0).await?),
        None => None,
    };
    let hash = content_hash(&new.content);
    let row = creating::row(new, parent.as_ref(), &hash);
    let (place, document) = store::documents::insert(conn, &service.lexicon, &row).await.or_fail()?;
    let id = place.id();
    if parent.is_some() {
        store::reservations::hold_for_edit(conn, &place, WriteMode::Itself).await.or_fail()?;
        store::ingest_nodes::count(conn, id, Frontier { total: 1, settled: 1, ..Frontier::default() })
            .await
            .or_fail()?;
    }
    let caller = match new.private || service.settings.is_enclosed(new.parent_id) {
        true => caller.enclose(conn, &place).await.or_fail()??,
        false => caller.clone(),
    };
    store::events::record(conn, EventKind::DocumentCreated, &[id], &json!({})).await.or_fail()?;
    let queueing = Queueing { root_id: id.as_root(), badges: &service.settings.task_badges, priority: new.priority };
    let work = Work::of(&EMBED).write_mode(WriteMode::Itself);
    let task = queueing.add(conn, &place, work).await.or_fail()?;
    Ok((Created { document, task }, caller))
}

/// Waits for all of these tasks, which embed a document or what is under it. Returns a warning if some of them failed or were cancelled:
/// what the caller sent is stored all the same.
async fn wait_for(service: &Service, id: DocumentId, tasks: &[TaskId]) -> Result<Vec<String>, Failure> {
    let mut left = tasks.iter();
    let mut task = left.next();
    let done = async {
        let (mut step, mut failed) = (WAIT_STEP, Vec::new());
        while let Some(id_of_task) = task {
            let mut conn = service.pool.acquire().await.or_fail()?;
            match store::tasks::ended(&mut conn, *id_of_task).await.or_fail()? {
                None => {}
                Some(completed) => {
                    failed.extend((!completed).then_some(*id_of_task));
                    task = left.next();
                    continue;
                }
            }
            drop(conn);
            tokio::time::sleep(step).await;
            step = step.mul_f32(1.25).min(Duration::from_millis(500));
        }
        Ok(Vec::from_iter(not_embedded(&failed)))
    };
    let waited = tokio::select! {
        waited = tokio::time::timeout(WAIT, done) => waited.ok(),
        () = service.ending.cancelled() => None,
    };
    waited.unwrap_or_else(|| {
        Err(Failure::new(Code::Unavailable, "the document is stored, but it is not yet embedded and indexed")
            .with("document_id", id.0)
            .with("task_id", tasks.last().map(|task| task.0))
            .with("remedy", "read the document until it can be found; do not create it again"))
    })
}

/// That tasks ended without a vector, and what helps.
fn not_embedded(failed: &[TaskId]) -> Option<String> {
    let first = failed.first()?;
    let name = Evidence::Embed.as_str();
    let tasks = match failed.len() {
        1 => format!("task {first} failed or was cancelled"),
        count => format!("{count} tasks failed or were cancelled, task {first} for one"),
    };
    Some(format!("{name}: failed ({tasks}; read `attempts` in the evidence, then embed it again)"))
}

pub(super) async fn read(
    service: &Service,
    caller: &Caller,
    id: DocumentId,
    include_embed: bool,
) -> Result<DocumentResponse, Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    let row = store::documents::read(&mut conn, &caller.readable(), id, include_embed).await.or_fail()?;
    row.map(DocumentResponse::from).ok_or_else(|| Failure::no_document(id.0))
}

impl Handle<ops::read_document> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::read_document>,
    ) -> Result<Validated<DocumentResponse>, Failure> {
        let value = read(self, caller, DocumentId(call.path.id), call.query.include_embed).await?;
        let etag = etag_of(&value)?;
        Ok(match call.meta.knows(&etag) {
            true => Validated::NotModified { etag },
            false => Validated::Modified { etag, value },
        })
    }
}

/// A strong validator of an answer: it changes with everything that the answer shows.
pub(super) fn etag_of(answer: &impl serde::Serialize) -> Result<String, Failure> {
    struct Digest(Sha256);
    impl std::io::Write for Digest {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut digest = Digest(Sha256::new());
    serde_json::to_writer(&mut digest, answer).map_err(|error| Failure::new(Code::Internal, error))?;
    Ok(format!("\"{}\"", hex::encode(&digest.0.finalize()[..16])))
}

/// 412 if the caller named versions and the document has none of them. It has two at a time, one without its vector and
/// one with it.
pub(super) fn must_match(meta: &Meta, before: DocumentRow) -> Result<(), Failure> {
    if meta.if_match.is_none() {
        return Ok(());
    }
    let with_vector = DocumentResponse::from(before);
    let plain = DocumentResponse { embed: None, ..with_vector.clone() };
    for shown in [plain, with_vector.clone()] {
        if meta.may_change(&etag_of(&shown)?) {
            return Ok(());
        }
    }
    let id = with_vector.id;
    Err(Failure::new(Code::PreconditionFailed, format!("document {id} is not what it was when you read it"))
        .with("document_id", id)
        .with("remedy", "read it again, and repeat your change on what it is now"))
}

impl Handle<ops::delete_document> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_document>) -> Result<(), Failure> {
        let id = DocumentId(call.path.id);
        let mut precedence = Precedence::of_delete(id);
        while let Err(failure) = delete(self, caller, id, &call.meta).await {
            precedence.after(self, caller, failure).await?;
        }
        Ok(())
    }
}

/// Deletes a document with everything under it, if no task holds anything there.
async fn delete(service: &Service, caller: &Caller, id: DocumentId, meta: &Meta) -> Result<(), Failure> {
    let mut tx = store::transaction::begin(&service.pool).await.or_fail()?;
    let row = store::documents::read(&mut tx, &caller.readable(), id, false).await.or_fail()?;
    row.ok_or_else(|| Failure::no_document(id.0))?;
    let place = caller.writes(&mut tx, id).await.or_fail()??;
    let many_files = store::locks::files_around(&mut tx, id).await.or_fail()?;
    let part = store::edits::part(&mut tx, &place).await.or_fail()?;
    let file = part.ok_or_else(|| Failure::no_document(id.0))?.file;
    let goes_on = match file {
        Some(file) => edit::lock_above(&mut tx, &place, file).await?,
        None => true,
    };
    let Some(place) = store::places::lock_for_delete(&mut tx, &caller.writable(), id).await.or_fail()? else {
        return Err(caller.refusal(&mut tx, id).await.or_fail()?);
    };
    if meta.if_match.is_some() {
        let before = store::documents::read(&mut tx, &caller.readable(), id, true).await.or_fail()?;
        must_match(meta, before.ok_or_else(|| Failure::no_document(id.0))?)?;
    }
    store::reservations::hold_for_edit(&mut tx, &place, WriteMode::Subtree).await.or_fail()?;
    // The more goes, the longer some statements take, and what goes must go whole.
    let limit = service.settings.statement_timeout.max(service.settings.request_timeout);
    store::transaction::allow(&mut tx, limit).await.or_fail()?;
    // A file may have many parts with bytes of their own.
    let is_much = many_files || store::blobs::are_many(&mut tx, id).await.or_fail()?;
    if is_much {
        store::blobs::unlink_later(&mut tx).await.or_fail()?;
    }
    raptor::forget_over(&mut tx, slice::from_ref(&place)).await.or_fail()?;
    outdate_sums(&service.settings.task_badges, &mut tx, &[id]).await.or_fail()?;
    caller.record_unprotected(&mut tx, &[id], true).await.or_fail()?;
    edit::take_out(&mut tx, &place, file, goes_on).await?;
    let given_up = reprocess::give_up_under(&mut tx, &place).await.or_fail()?;
    store::batch::hand_over(&mut tx, slice::from_ref(&place)).await.or_fail()?;
    let gone = store::documents::delete_subtrees(&mut tx, slice::from_ref(&place)).await.map_err(taken_out)?;
    if let Some(parent) = place.path().last() {
        store::ingest_nodes::count(&mut tx, DocumentId(*parent), -gone.counts).await.or_fail()?;
    }
    bm25::remove(&mut tx, None, &gone.ids).await.or_fail()?;
    store::ingest_nodes::forget(&mut tx, &gone.ids).await.or_fail()?;
    tx.commit().await.or_fail()?;
    after_giving_up(service, given_up).await;
    if is_much {
        service.requests.spawn(after_many(service.clone()));
    }
    if let Some(file) = file {
        settle::settle_or_leave(service, file).await;
    }
    service.wake.notify(Lanes::ALL);
    Ok(())
}

/// Takes the settle events that a delete of many files leaves behind, and deletes the bytes. The caller does not wait for this: the delete took effect, and
/// what is noted for this is done by the sweep if the process ends or an error ends it.
async fn after_many(service: Service) {
    let done = async {
        if settle::take_left(&service).await? {
            service.wake.notify(Lanes::ALL);
        }
        // Nobody closes the slot.
        let _place = service.unlinking.acquire().await;
        while !service.ending.is_cancelled() && store::blobs::unlink_orphans(&service.pool).await? > 0 {}
        Ok::<_, sqlx::Error>(())
    };
    if let Err(error) = done.await {
        tracing::warn!(error = %error, "could not delete the bytes of all deleted files; the sweep will delete the rest");
    }
}

/// Why a subtree could not be deleted.
fn taken_out(error: sqlx::Error) -> Failure {
    // Since this delete began, something was put deep under the node.
    match store::away::sql_state(&error).as_ref() {
        "23503" => Failure::new(Code::Unavailable, "something was put under this document while it was being deleted")
            .with("remedy", "try again")
            .with("retry_after", 1),
        "57014" => Failure::new(Code::TimedOut, "there is too much under this document to delete it at once")
            .with("setting", "SVC_STATEMENT_TIMEOUT_SECONDS")
            .with("remedy", "delete what is under it, a part at a time, or raise SVC_STATEMENT_TIMEOUT_SECONDS"),
        _ => error.into_failure(),
    }
}

/// A page of rows by id, and the cursor of the next page.
pub(super) fn page_by_id<T>(mut rows: Vec<T>, limit: u32, id: impl Fn(&T) -> i64) -> (Vec<T>, Option<String>) {
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| more).map(|row| id(row).to_string());
    (rows, next)
}

pub(super) fn id_cursor(cursor: Option<&str>) -> Result<i64, Failure> {
    cursor
        .map_or(Ok(0), |text| text.parse().map_err(|_| Failure::field("cursor", "takes a next_cursor from this list")))
}

impl Handle<ops::read_evidence> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_evidence>) -> Result<EvidenceResponse, Failure> {
        let id = DocumentId(call.path.id);
        let mut conn = self.pool.acquire().await.or_fail()?;
        must_exist(&mut conn, caller, id).await?;
        let mut evidence = store::evidence::read(&mut conn, id).await.or_fail()?;
        if let Some(reprocess) = evidence.get_mut(Evidence::Reprocess.as_str()) {
            store::reprocess::hide_lost(&mut conn, &caller.readable(), reprocess).await.or_fail()?;
        }
        let attempts = store::evidence::attempts(&mut conn, id).await.or_fail()?;
        if !attempts.is_empty() {
            evidence.insert(
                Evidence::Attempts.as_str().to_owned(),
                serde_json::to_value(caller.told(attempts)).map_err(|e| Failure::new(Code::Internal, e))?,
            );
        }
        Ok(EvidenceResponse { document_id: id.0, evidence })
    }
}
