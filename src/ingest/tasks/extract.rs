//! extract:text: the text of a file, with its pages and headings.
use super::{
    Apply, OrTaskFailure, another_answer, images,
    ocr::{LeftOut, UNREAD},
    probe::input,
    types::OCR,
};
use crate::{
    ingest::Tools,
    reader::limits,
    store::{self, evidence::Evidence},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use svc_actors::{Meter, Outcome, TaskFailure};
use svc_client::wire::PlanOutcome;
use svc_formats::{
    Extraction, Format, FormatError,
    isolated::{Answer, Pages, Request, Step, Usage},
};
use svc_ids::DocumentId;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let (format, mut extraction, usage) = read(tools, id, &apply.meter).await?;
    let Facts { mut summary, mut found, mut detail } = facts(&mut extraction, format, usage);
    // A task that unpacks an archive records these, but one that its password opened was read in one go.
    if let Some(left_out) = summary.remove(Evidence::MembersLeftOut.as_str()) {
        found.push((Evidence::MembersLeftOut, left_out));
    }
    if let Some(usage) = usage {
        detail.insert("reader".to_owned(), json!(usage));
    }
    let reason = if extraction.pages.is_empty() { "no_text" } else { "needs_ocr" };
    let empty = extraction.text.trim().is_empty().then_some(reason);
    let unread = unread(tools, id, &found).await?;
    let (text, layout) = split(extraction).classified()?;

    let mut tx = apply.begin_by_keys().await?;
    store::evidence::store_extraction(tx.conn(), id, &text, &layout).await.classified()?;
    store::evidence::record(tx.conn(), id, Evidence::ExtractText, &Value::Object(summary)).await.classified()?;
    for (name, value) in &found {
        store::evidence::record(tx.conn(), id, *name, value).await.classified()?;
    }
    images::record_empty(tx.conn(), id, empty).await?;
    if unread.count > 0 {
        store::evidence::record(tx.conn(), id, Evidence::OcrLeftOut, &unread.into_value()).await.classified()?;
    }
    tx.complete(detail).await
}

/// The pages that only OCR can read and that nobody will read: there is no engine, an option has them skipped, or none was among
/// the pages that the probe looked at, so that no task waits for them.
async fn unread(tools: &Tools, id: DocumentId, found: &[(Evidence, Value)]) -> Result<LeftOut, TaskFailure> {
    let mut left_out = LeftOut::default();
    let of_each = found.iter().filter(|(name, _)| UNREAD.iter().any(|(unread, _)| unread == name));
    let pages: BTreeSet<u64> =
        of_each.filter_map(|(_, pages)| pages.as_array()).flatten().filter_map(Value::as_u64).collect();
    let types = &tools.types;
    // What a handler of another crate does with them is its own affair.
    if pages.is_empty() || types.has_handler(&OCR) && !types.ocr_gives_text() {
        return Ok(left_out);
    }
    let mut conn = tools.pool.acquire().await.classified()?;
    let plan = store::evidence::read_one(&mut conn, id, Evidence::Plan).await.classified()?.unwrap_or_default();
    let row = plan["tasks"].as_array().into_iter().flatten().find(|row| row["task"] == OCR.name);
    let outcome = row.and_then(|row| row["outcome"].as_str());
    if outcome == Some(PlanOutcome::Enqueued.as_str()) {
        return Ok(left_out);
    }
    let reason = match types.ocr_gives_text() {
        _ if outcome == Some(PlanOutcome::Skipped.as_str()) => "ocr_skipped",
        true => "not_probed",
        false => "no_ocr_engine",
    };
    for number in pages.into_iter().filter_map(|number| u32::try_from(number).ok()) {
        left_out.add(number, reason);
    }
    Ok(left_out)
}

/// The extraction of a file of a format, and what it cost: what its upload stored, which was read with a password that
/// is gone, or what the reader makes of the stored bytes. The meter counts pages, if the format has any.
pub(super) async fn read(
    tools: &Tools,
    document_id: DocumentId,
    meter: &Meter,
) -> Result<(Format, Extraction, Option<Usage>), TaskFailure> {
    let format = {
        let mut conn = tools.pool.acquire().await.classified()?;
        let plan = store::evidence::read_one(&mut conn, document_id, Evidence::Plan).await.classified()?;
        let format = plan.as_ref().and_then(|plan| plan["format"].as_str()?.parse::<Format>().ok());
        let format = format.ok_or(FormatError::UnknownFormat).classified()?;
        if let Some((text, layout)) = store::evidence::extraction(&mut conn, document_id).await.classified()? {
            return Ok((format, join(text, layout).classified()?, None));
        }
        format
    };
    let request = Request::new(Step::Extract(format), limits(&tools.settings));
    let pages = |Pages { done, of }| meter.set(done as usize, of as usize, "pages");
    match tools.reader.read_heard(input(tools, document_id).await?, &request, &pages).await.classified()? {
        (Answer::Extracted(extraction), usage) => Ok((format, extraction, Some(usage))),
        _ => Err(another_answer()),
    }
}

/// What a reader found besides the text.
pub(super) struct Facts {
    /// Counts and plain values: the evidence `extract.text`.
    pub summary: Map<String, Value>,
    /// What the readers of the format look for, such as comments: evidence under names of their own, null if there is
    /// none.
    pub found: Vec<(Evidence, Value)>,
    /// What the reader decided, for the attempt log.
    pub detail: Map<String, Value>,
}

/// How many lines the reader made headings, which is its decision and not a fact of the file.
const DECISION: &str = "promoted_title_count";

/// Tells the facts of an extraction. What a reader has just found is taken out of it, because as evidence it need not be stored again. What a
/// request stored stays, because a reprocess takes it over and finds it nowhere else.
pub(super) fn facts(extraction: &mut Extraction, format: Format, usage: Option<Usage>) -> Facts {
    let mut summary = Map::new();
    summary.insert("characters".to_owned(), extraction.text.chars().count().into());
    summary.insert("headings".to_owned(), extraction.headings.len().into());
    if !extraction.pages.is_empty() {
        summary.insert("pages".to_owned(), extraction.pages.len().into());
    }
    if let Some(from) = &extraction.headings_from {
        summary.insert("headings_from".to_owned(), json!(from));
    }
    if let Some(charset) = &extraction.charset {
        summary.insert("charset".to_owned(), json!(charset));
    }
    let mut found: Vec<_> = Evidence::of_format(format.as_str()).map(|evidence| (evidence, Value::Null)).collect();
    let mut detail = Map::new();
    let told = match usage {
        Some(_) => std::mem::take(&mut extraction.facts),
        None => extraction.facts.clone(),
    };
    for (name, value) in told {
        match found.iter_mut().find(|(evidence, _)| evidence.as_str() == name) {
            Some((_, place)) => *place = value,
            None if name == DECISION => drop(detail.insert(name, value)),
            None => drop(summary.insert(name, value)),
        }
    }
    Facts { summary, found, detail }
}

/// Separates the text from what describes it, in the form in which both are stored.
pub fn split(mut extraction: Extraction) -> serde_json::Result<(String, Value)> {
    let text = std::mem::take(&mut extraction.text);
    Ok((text, serde_json::to_value(&extraction)?))
}

/// The reverse of [`split`].
pub fn join(text: String, layout: Value) -> serde_json::Result<Extraction> {
    let mut extraction: Extraction = serde_json::from_value(layout)?;
    extraction.text = text;
    Ok(extraction)
}
