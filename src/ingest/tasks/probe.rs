//! probe: what the bytes are and hold, and which tasks follow from it.
use super::{Apply, OrTaskFailure, apply::Transaction};
use crate::{
    ingest::{
        Tools, limits,
        rules::{self, Decision, Verdict},
        spool,
    },
    store::{self, tasks::NewTask},
};
use serde_json::{Map, Value, json};
use std::fs::File;
use svc_actors::{Outcome, TaskFailure};
use svc_formats::{
    Format, FormatError, Pattern, Patterns,
    isolated::{Answer, Request, Step},
};

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let input = input(tools, grant.document_id).await?;
    let request = Request::new(Step::Probe, limits(&tools.settings));
    let (answer, _) = tools.reader.read(input, &request).await.classified()?;
    let (detection, patterns) = match answer {
        Answer::Probed { detection, patterns, .. } => (detection, patterns.classified()?),
        _ => return Err(TaskFailure::retryable("crashed", "the reader answered another question")),
    };
    let format = detection.format.ok_or(FormatError::UnknownFormat).classified()?;
    let plan = rules::plan(format, &patterns);

    let mut tx = apply.begin().await?;
    let matched = serde_json::to_value(&patterns).classified()?;
    store::evidence::record(tx.conn(), grant.document_id, "matched.patterns", &matched).await.classified()?;
    store::evidence::record(tx.conn(), grant.document_id, "plan", &json!({"format": format.as_str(), "tasks": plan}))
        .await
        .classified()?;
    let queued = enqueue(tools, &mut tx, grant.document_id, grant.root_id, &grant.region.path, &plan).await?;
    if queued == 0 {
        let reason = no_text(format, &patterns, &plan);
        store::evidence::record(tx.conn(), grant.document_id, "extract.empty", &json!(reason)).await.classified()?;
    }
    let mut detail = Map::new();
    detail.insert("format".to_owned(), format.as_str().into());
    detail.insert("enqueued".to_owned(), queued.into());
    tx.complete(detail).await
}

/// Why a file ends without any text, so that it never looks like a success.
fn no_text(format: Format, patterns: &Patterns, plan: &[Decision]) -> &'static str {
    let ocr = plan.iter().any(|decision| decision.task == "ocr" && decision.outcome == Verdict::Deferred);
    match format {
        _ if patterns.holds(Pattern::IsEncrypted) => "encrypted",
        _ if patterns.holds(Pattern::IsLegacyBinary) => "legacy_binary",
        _ if ocr => "needs_ocr",
        Format::Pdf => "no_text_layer",
        Format::Xlsx | Format::Zip => "no_reader",
        _ => "no_text",
    }
}

async fn enqueue(
    tools: &Tools,
    tx: &mut Transaction<'_>,
    id: i64,
    root_id: i64,
    path: &[i64],
    plan: &[Decision],
) -> Result<i32, TaskFailure> {
    let ancestors = &path[..path.len().saturating_sub(1)];
    let options: Value = store::evidence::read_one(tx.conn(), id, "options").await.classified()?.unwrap_or_default();
    let mut queued: Vec<(&str, i64)> = Vec::new();
    for (rule, _) in rules::RULES.iter().zip(plan).filter(|(_, decision)| decision.outcome == Verdict::Enqueued) {
        let after: Vec<i64> = queued.iter().filter(|(task, _)| rule.after.contains(task)).map(|(_, id)| *id).collect();
        let params =
            if rule.task.starts_with("structure:") { json!({"structure": options["structure"]}) } else { json!({}) };
        let task = NewTask {
            task_type: rule.task,
            lane: rule.lane,
            document_id: id,
            path: ancestors,
            root_id,
            write_mode: rule.write_mode,
            dependencies: &after,
            params: &params,
            badge: tools.settings.task_badges.get(rule.task).map(String::as_str),
            priority: 0,
        };
        queued.push((rule.task, store::tasks::enqueue(tx.conn(), &task).await.classified()?));
    }
    let count = i32::try_from(queued.len()).unwrap_or(i32::MAX);
    store::ingest_nodes::grow(tx.conn(), id, count, 0, 0).await.classified()?;
    Ok(count)
}

/// A file node's bytes, in a file that only this process sees.
pub(super) async fn input(tools: &Tools, document_id: i64) -> Result<File, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    let blob = store::blobs::of_document(&mut conn, document_id).await.classified()?;
    let blob =
        blob.ok_or_else(|| TaskFailure::permanent("no_bytes", format!("document {document_id} has no stored bytes")))?;
    spool::from_large_object(&mut conn, blob.lob, &tools.settings.data_dir.join("spool")).await.classified()
}
