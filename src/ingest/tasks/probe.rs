//! probe: what the bytes are and hold, and which tasks follow.
use super::{Apply, OrTaskFailure, another_answer, apply::Transaction, types::OCR};
use crate::{
    ingest::{
        Tools,
        queueing::{Queueing, Work},
        rules::{self, Decision, Verdict},
        unlock::Unlocked,
    },
    reader::limits,
    spool::StoredFile,
    store::{self, evidence::Evidence},
};
use serde_json::{Map, Value, json};
use std::{fs::File, sync::Arc};
use svc_actors::{ErrorClass, Outcome, TaskFailure};
use svc_formats::{
    Archive, Format, FormatError, Pattern, Patterns,
    isolated::{Answer, Request, Step},
};
use svc_ids::{DocumentId, TaskId};

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let Measured { format, patterns, archive, unlocked } = measure(tools, grant.document_id).await?;
    let plan = rules::plan(format, &patterns);
    let matched = serde_json::to_value(&patterns).classified()?;
    let shown = json!({"format": format.as_str(), "tasks": plan});
    let closed = patterns.holds(Pattern::IsEncrypted) || format == Format::Ole2;
    if closed
        && !unlocked
        && rules::due(format, &patterns).next().is_none()
        && let Some(refusal) = refusal(tools, grant.document_id, format).await?
    {
        if handed_in(tools, grant.document_id).await?.is_some() {
            return Err(TaskFailure::retryable(
                "password_came",
                "the file's password arrived while it was being read without one",
            ));
        }
        return Err(refusal
            .with_evidence(Evidence::MatchedPatterns.as_str(), matched)
            .with_evidence(Evidence::Plan.as_str(), shown));
    }

    let mut tx = apply.begin().await?;
    store::evidence::record(tx.conn(), grant.document_id, Evidence::MatchedPatterns, &matched).await.classified()?;
    store::evidence::record(tx.conn(), grant.document_id, Evidence::Plan, &shown).await.classified()?;
    let listed = serde_json::to_value(archive).classified()?;
    store::evidence::record(tx.conn(), grant.document_id, Evidence::Archive, &listed).await.classified()?;
    let queued = enqueue(tools, &mut tx, format, &patterns).await?;
    if queued == 0 {
        let reason = no_text(format, &plan);
        store::evidence::record(tx.conn(), grant.document_id, Evidence::ExtractEmpty, &json!(reason))
            .await
            .classified()?;
    }
    let mut detail = Map::new();
    detail.insert("format".to_owned(), format.as_str().into());
    detail.insert("enqueued".to_owned(), queued.into());
    tx.complete(detail).await
}

struct Measured {
    format: Format,
    patterns: Patterns,
    /// What a zip archive lists.
    archive: Option<Archive>,
    /// The file was opened with the password of the upload, which is gone.
    unlocked: bool,
}

async fn measure(tools: &Tools, id: DocumentId) -> Result<Measured, TaskFailure> {
    let format = {
        let mut conn = tools.pool.acquire().await.classified()?;
        let blob = store::blobs::of_document(&mut conn, id).await.classified()?;
        blob.and_then(|blob| blob.format?.parse::<Format>().ok())
    };
    if let (Some(Unlocked { patterns }), Some(format)) = (handed_in(tools, id).await?, format) {
        return Ok(Measured { format, patterns, archive: None, unlocked: true });
    }
    let request = Request::new(Step::Probe, limits(&tools.settings));
    match tools.reader.read(input(tools, id).await?, &request).await.classified()?.0 {
        Answer::Probed { detection, patterns, archive, .. } => {
            let format = detection.format.ok_or(FormatError::UnknownFormat).classified()?;
            Ok(Measured { format, patterns: patterns.classified()?, archive, unlocked: false })
        }
        _ => Err(another_answer()),
    }
}

/// What an upload with the file's password left; another upload may bring one at any time.
async fn handed_in(tools: &Tools, id: DocumentId) -> Result<Option<Unlocked>, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    let left = store::evidence::read_one(&mut conn, id, Evidence::Unlocked).await.classified()?;
    left.map(serde_json::from_value).transpose().classified()
}

/// Why a closed file is not read, in its reader's own words; `None` if it is read after all.
async fn refusal(tools: &Tools, id: DocumentId, format: Format) -> Result<Option<TaskFailure>, TaskFailure> {
    let request = Request::new(Step::Extract(format), limits(&tools.settings));
    let refused = tools.reader.read(input(tools, id).await?, &request).await.classified();
    match refused {
        Ok(_) => Ok(None),
        // A reader that could not work says nothing about the file.
        Err(failure) if failure.class != ErrorClass::Permanent => Err(failure),
        Err(failure) => Ok(Some(failure)),
    }
}

/// Why a file ends without any text, so that it never looks like a success.
fn no_text(format: Format, plan: &[Decision]) -> &'static str {
    let ocr = plan.iter().any(|decision| decision.task == OCR.name && decision.outcome == Verdict::Deferred);
    match format {
        _ if ocr => "needs_ocr",
        Format::Pdf => "no_text_layer",
        Format::Xlsx => "no_sheets",
        Format::Zip => "no_reader",
        _ => "no_text",
    }
}

/// Queues the due tasks, each after those that its rule names.
async fn enqueue(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    format: Format,
    patterns: &Patterns,
) -> Result<i32, TaskFailure> {
    let grant = tx.grant();
    let (id, path) = (grant.document_id, &grant.region.path);
    let ancestors = &path[..path.len().saturating_sub(1)];
    let options: Value =
        store::evidence::read_one(tx.conn(), id, Evidence::Options).await.classified()?.unwrap_or_default();
    let queueing = Queueing::of_file(grant.root_id, &tools.settings.task_badges);
    let mut queued: Vec<(&str, TaskId)> = Vec::new();
    for rule in rules::due(format, patterns) {
        let comes_after = |(task, _): &&(&str, TaskId)| rule.after.iter().any(|before| before.name == *task);
        let after: Vec<TaskId> = queued.iter().filter(comes_after).map(|(_, id)| *id).collect();
        let work = Work::of(rule.task).params(Value::Object(rule.task.params(&options))).after(&after);
        queued.push((rule.task.name, queueing.add(tx.conn(), (id, ancestors), work).await.classified()?));
    }
    let count = i32::try_from(queued.len()).unwrap_or(i32::MAX);
    store::ingest_nodes::grow(tx.conn(), id, count, 0, 0).await.classified()?;
    Ok(count)
}

/// A file node's bytes, in a file that only this process sees.
pub(super) async fn stored_file(tools: &Tools, document_id: DocumentId) -> Result<Arc<StoredFile>, TaskFailure> {
    let blob = {
        let mut conn = tools.pool.acquire().await.classified()?;
        store::blobs::of_document(&mut conn, document_id).await.classified()?
    };
    let blob =
        blob.ok_or_else(|| TaskFailure::permanent("no_bytes", format!("document {document_id} has no stored bytes")))?;
    tools.spool.open(&tools.pool, &blob).await.classified()
}

/// The stored file, opened to be read once.
pub(super) async fn input(tools: &Tools, document_id: DocumentId) -> Result<File, TaskFailure> {
    stored_file(tools, document_id).await?.open().classified()
}
