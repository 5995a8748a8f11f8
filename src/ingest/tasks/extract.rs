//! extract:text: the text of a file, with its pages and headings.
use super::{Apply, OrTaskFailure, probe::input};
use crate::{
    ingest::{Tools, limits},
    store,
};
use serde_json::{Map, Value, json};
use svc_actors::{Outcome, TaskFailure};
use svc_formats::{
    Extraction, Format, FormatError,
    isolated::{Answer, Request, Step, Usage},
};

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let (extraction, usage) = read(tools, id).await?;
    let mut summary = summary(&extraction);
    summary["reader"] = json!(usage);
    let reason = if extraction.pages.is_empty() { "no_text" } else { "needs_ocr" };
    let empty = extraction.text.trim().is_empty().then_some(reason);
    let (text, layout) = split(extraction)?;

    let mut tx = apply.begin().await?;
    store::evidence::store_extraction(tx.conn(), id, &text, &layout).await.classified()?;
    store::evidence::record(tx.conn(), id, "extract.text", &summary).await.classified()?;
    if let Some(reason) = empty {
        store::evidence::record(tx.conn(), id, "extract.empty", &json!(reason)).await.classified()?;
    }
    let detail = match summary {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    tx.complete(detail).await
}

/// Runs the reader on a file's stored bytes.
async fn read(tools: &Tools, document_id: i64) -> Result<(Extraction, Usage), TaskFailure> {
    let format = {
        let mut conn = tools.pool.acquire().await.classified()?;
        let plan = store::evidence::read_one(&mut conn, document_id, "plan").await.classified()?.unwrap_or_default();
        plan["format"]
            .as_str()
            .and_then(|name| name.parse::<Format>().ok())
            .ok_or(FormatError::UnknownFormat)
            .classified()?
    };
    let request = Request::new(Step::Extract(format), limits(&tools.settings));
    let (answer, usage) = tools.reader.read(input(tools, document_id).await?, &request).await.classified()?;
    match answer {
        Answer::Extracted(extraction) => Ok((extraction, usage)),
        _ => Err(TaskFailure::retryable("crashed", "the reader answered another question")),
    }
}

/// What the evidence says of a text.
fn summary(extraction: &Extraction) -> Value {
    let mut summary = json!({
        "characters": extraction.text.chars().count(),
        "headings": extraction.headings.len(),
    });
    if !extraction.pages.is_empty() {
        summary["pages"] = extraction.pages.len().into();
    }
    if let Some(from) = &extraction.headings_from {
        summary["headings_from"] = json!(from);
    }
    if let Some(charset) = &extraction.charset {
        summary["charset"] = json!(charset);
    }
    for (name, value) in &extraction.facts {
        summary[name.as_str()] = value.clone();
    }
    summary
}

/// The text apart from what describes it, as stored.
fn split(mut extraction: Extraction) -> Result<(String, Value), TaskFailure> {
    let text = std::mem::take(&mut extraction.text);
    for heading in &mut extraction.headings {
        // PostgreSQL's JSON takes no NUL.
        heading.title = heading.title.replace('\0', "");
    }
    let layout = serde_json::to_value(&extraction).classified()?;
    Ok((text, layout))
}

/// The reverse of [`split`].
pub(super) fn join(text: String, layout: Value) -> Result<Extraction, TaskFailure> {
    let mut extraction: Extraction = serde_json::from_value(layout).classified()?;
    extraction.text = text;
    Ok(extraction)
}
