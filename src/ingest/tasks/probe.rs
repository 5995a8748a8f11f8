//! probe: what the bytes are and hold, and which tasks follow.
use super::{
    Apply, Classify, OrTaskFailure, another_answer,
    apply::Transaction,
    types::{OCR, TaskTypes},
};
use crate::{
    core::Core,
    ingest::{
        Tools,
        queueing::{Queueing, Work},
        rules,
        unlock::Unlocked,
    },
    reader::limits,
    spool::StoredFile,
    store::{self, evidence::Evidence, places::Place},
};
use serde_json::{Map, Value, json};
use std::{fs::File, io, sync::Arc};
use svc_actors::{Outcome, TaskFailure};
use svc_client::wire::{PlanOutcome, PlanRow};
use svc_formats::{
    Archive, Detection, Format, FormatError, Limits, Pattern, Patterns,
    isolated::{Answer, Request, Step},
};
use svc_ids::{DocumentId, TaskId};

/// What is to be done with a file that only its password opens and that came within another: an upload gives a password to one file.
const LOCKED_MEMBER: &str = "the file is locked with a password, and a file within an archive or a message is given none; upload it by itself, with its password as the option `extract.password`";

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let is_member = grant.document_id != grant.root_id.document();
    let Measured { format, patterns, archive, refusal } = match measure(tools, grant.document_id).await {
        Err(failure) if failure.code == FormatError::UnknownFormat.code() && is_member => return leave(apply).await,
        measured => measured?,
    };
    let options = options(tools, grant.document_id).await?;
    let plan = rules::plan(&tools.types, Some(format), Some(&patterns), &options);
    let matched = serde_json::to_value(&patterns).classified()?;
    let shown = json!({"format": format.as_str(), "tasks": plan});
    if let Some(refusal) = refusal {
        if handed_in(tools, grant.document_id).await?.is_some() {
            return Err(TaskFailure::retryable(
                "password_came",
                "the file's password arrived while it was being read without one",
            ));
        }
        let failure = match is_member && refusal.takes_password() {
            true => TaskFailure::permanent(refusal.code(), LOCKED_MEMBER),
            false => refusal.classify(),
        };
        return Err(failure
            .with_evidence(Evidence::MatchedPatterns.as_str(), matched)
            .with_evidence(Evidence::Plan.as_str(), shown));
    }

    let mut tx = apply.begin_by_keys().await?;
    store::evidence::record(tx.conn(), grant.document_id, Evidence::MatchedPatterns, &matched).await.classified()?;
    store::evidence::record(tx.conn(), grant.document_id, Evidence::Plan, &shown).await.classified()?;
    let listed = serde_json::to_value(archive).classified()?;
    store::evidence::record(tx.conn(), grant.document_id, Evidence::Archive, &listed).await.classified()?;
    let queued = enqueue(tools, &mut tx, format, &patterns, &options).await?;
    if !rules::due(&tools.types, format, &patterns, &options).any(|rule| rules::gives_text(rule.task)) {
        let reason = no_text(format, &patterns, &plan);
        store::evidence::record(tx.conn(), grant.document_id, Evidence::ExtractEmpty, &json!(reason))
            .await
            .classified()?;
    }
    let mut detail = Map::new();
    detail.insert("format".to_owned(), format.as_str().into());
    detail.insert("enqueued".to_owned(), queued.into());
    tx.complete(detail).await
}

/// Ends the probe of a member of no known format. Archives and messages are full of such files, which say nothing against
/// the others; an upload of one fails.
async fn leave(apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let mut tx = apply.begin_by_keys().await?;
    let plan = json!({"format": null, "tasks": []});
    store::evidence::record(tx.conn(), id, Evidence::Plan, &plan).await.classified()?;
    store::evidence::record(tx.conn(), id, Evidence::ExtractEmpty, &json!("no_reader")).await.classified()?;
    tx.complete(Map::new()).await
}

/// What a file's bytes are and hold.
pub struct Measured {
    pub format: Format,
    pub patterns: Patterns,
    /// What a zip archive lists.
    pub archive: Option<Archive>,
    /// Why the file is not read, in its reader's own words, if no task would read it because it is closed.
    pub refusal: Option<FormatError>,
}

/// Measures the file of a node, unless an upload has opened it with its password.
async fn measure(tools: &Tools, id: DocumentId) -> Result<Measured, TaskFailure> {
    let format = {
        let mut conn = tools.pool.acquire().await.classified()?;
        let blob = store::blobs::of_document(&mut conn, id).await.classified()?;
        blob.and_then(|blob| blob.format?.parse::<Format>().ok())
    };
    if let (Some(Unlocked { patterns }), Some(format)) = (handed_in(tools, id).await?, format) {
        return Ok(Measured { format, patterns, archive: None, refusal: None });
    }
    let file = stored_file(tools, id).await?;
    measure_file(tools, &tools.types, &limits(&tools.settings), format, || file.open().classified()).await
}

/// Measures a file that nobody has opened with a password. `arrived_as` is what it was recognised as with its name, and
/// `open` opens it to be read once, within `limits`.
pub async fn measure_file(
    core: &Core,
    types: &TaskTypes,
    limits: &Limits,
    arrived_as: Option<Format>,
    open: impl Fn() -> Result<File, TaskFailure> + Send,
) -> Result<Measured, TaskFailure> {
    // The bytes alone do not tell a table from other text, and all that a probe measures of one is that it is one.
    if let Some(format) = arrived_as.filter(|format| format.is_delimited()) {
        let patterns = svc_formats::probe(format, io::empty(), limits).classified()?;
        return Ok(Measured { format, patterns, archive: None, refusal: None });
    }
    let (detection, patterns, archive) = probed(core, limits, open()?, Step::Probe).await?;
    let (format, patterns, archive) = match (detection.format, arrived_as) {
        // The bytes alone do not tell a piece of a page in Markdown from a page.
        (Some(Format::Html), Some(Format::Text)) => {
            let (_, patterns, archive) = probed(core, limits, open()?, Step::ProbeAs(Format::Text)).await?;
            (Format::Text, patterns, archive)
        }
        (format, _) => (format.ok_or(FormatError::UnknownFormat).classified()?, patterns, archive),
    };
    let patterns = patterns.classified()?;
    let closed = patterns.holds(Pattern::IsEncrypted) || matches!(format, Format::Ole2 | Format::Doc | Format::Ppt);
    let refusal = match closed && rules::due(types, format, &patterns, &Value::Null).next().is_none() {
        true => refusal(core, limits, format, open()?).await?,
        false => None,
    };
    Ok(Measured { format, patterns, archive, refusal })
}

/// What a reader measures of a file.
async fn probed(
    core: &Core,
    limits: &Limits,
    file: File,
    step: Step,
) -> Result<(Detection, Result<Patterns, FormatError>, Option<Archive>), TaskFailure> {
    match core.reader.read(file, &Request::new(step, limits.clone())).await.classified()?.0 {
        Answer::Probed { detection, patterns, archive, .. } => Ok((detection, patterns, archive)),
        _ => Err(another_answer()),
    }
}

/// What an upload with the file's password left, which another upload may bring at any time, or the text that the
/// request made of the bytes.
async fn handed_in(tools: &Tools, id: DocumentId) -> Result<Option<Unlocked>, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    let left = match store::evidence::read_one(&mut conn, id, Evidence::Unlocked).await.classified()? {
        Some(left) => Some(left),
        None => store::evidence::read_one(&mut conn, id, Evidence::Prepared).await.classified()?,
    };
    left.map(serde_json::from_value).transpose().classified()
}

/// The options that the file was uploaded with.
async fn options(tools: &Tools, id: DocumentId) -> Result<Value, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    let stored = store::evidence::read_one(&mut conn, id, Evidence::Options).await.classified()?;
    Ok(tools.types.complete(stored.unwrap_or_default()))
}

/// Why a closed file is not read; `None` if it is read after all.
async fn refusal(core: &Core, limits: &Limits, format: Format, file: File) -> Result<Option<FormatError>, TaskFailure> {
    let request = Request::new(Step::Extract(format), limits.clone());
    match core.reader.read(file, &request).await {
        Ok(_) => Ok(None),
        // A reader that could not work says nothing about the file.
        Err(error) if !error.is_permanent() => Err(error).classified(),
        Err(error) => Ok(Some(error)),
    }
}

/// Whether the plan decided so of the scanned pages.
fn decided(plan: &[PlanRow], outcome: PlanOutcome) -> bool {
    plan.iter().any(|row| row.task == OCR.name && row.outcome == outcome)
}

/// Why a file ends without any text, so that it never looks like a success.
fn no_text(format: Format, patterns: &Patterns, plan: &[PlanRow]) -> &'static str {
    match format {
        _ if decided(plan, PlanOutcome::Deferred) => "needs_ocr",
        _ if decided(plan, PlanOutcome::Skipped) => "ocr_skipped",
        Format::Pdf => "no_text_layer",
        format if format.has_sheets() => "no_sheets",
        Format::Zip if patterns.get(Pattern::HasTextLayer).is_some() => "no_text",
        Format::Zip if patterns.get(Pattern::HasMembers).is_some() => "no_members",
        Format::Zip => "no_reader",
        _ if patterns.holds(Pattern::HasMarkup) => "no_reader",
        _ => "no_text",
    }
}

/// Queues the due tasks, each after those that its rule names.
async fn enqueue(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    format: Format,
    patterns: &Patterns,
    options: &Value,
) -> Result<i32, TaskFailure> {
    let grant = tx.grant();
    let place = Place::of_claim(grant);
    let queueing = Queueing::of_file(grant.root_id, &tools.settings.task_badges);
    let mut queued: Vec<(&str, TaskId)> = Vec::new();
    for rule in rules::due(&tools.types, format, patterns, options) {
        let comes_after = |(task, _): &&(&str, TaskId)| rule.after.iter().any(|before| before.name == *task);
        let after: Vec<TaskId> = queued.iter().filter(comes_after).map(|(_, id)| *id).collect();
        let task = tools.types.current(rule.task);
        let work = Work::of(task).params(Value::Object(task.params(options))).after(&after);
        queued.push((task.name, queueing.add(tx.conn(), &place, work).await.classified()?));
    }
    let count = i32::try_from(queued.len()).unwrap_or(i32::MAX);
    store::ingest_nodes::grow(tx.conn(), place.id(), count, 0, 0).await.classified()?;
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
