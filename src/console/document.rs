//! One document: its state, what happened to it, and why it is not done.
use super::{
    Calls, Parameters, audit, draw,
    layout::{Page, card, form, query, warnings},
    say,
};
use crate::usetype::Usetype;
use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeMap;
use svc_client::{
    Code, Failure,
    wire::{
        AuditQuery, BlockedBy, DocumentPath, DocumentResponse, EmbedQuery, ErrorType, FrontierResponse,
        ReprocessProgress, Settled, StoryEntry, StoryQuery, StoryResponse, TaskQuery, TaskResponse,
    },
};

/// How many tasks are told of that owe work.
const TASKS: u32 = 20;
/// How many reasons of failures are told.
const REASONS: usize = 8;
/// The longest value of evidence that is shown.
const LONGEST: usize = 300;

pub async fn read(calls: &Calls, is_owner: bool, id: i64, given: &Parameters) -> Result<Page, Failure> {
    let path = DocumentPath { id };
    let document = match calls.read_document(path, EmbedQuery::default()).await {
        Err(missing) if is_owner && missing.code == Code::NotFound => return being_built(calls, id, missing).await,
        read => read?.value()?,
    };
    let frontier = calls.read_frontier(path).await?;
    let part = StoryQuery { cursor: given.get("before").cloned(), limit: None };
    let is_latest = part.cursor.is_none();
    let story = calls.read_story(path, part).await?;
    let evidence = calls.read_evidence(path).await?;
    let tasks = match is_owner {
        true => {
            // A folder's are those of the files in it.
            let open = TaskQuery { under: Some(id), limit: Some(TASKS), ..TaskQuery::default() };
            calls.list_tasks(open).await?.tasks
        }
        false => Vec::new(),
    };
    let audit = match is_owner {
        true => {
            let query = AuditQuery { document_id: Some(id), limit: Some(audit::SHOWN), ..AuditQuery::default() };
            calls.list_audit(query).await?.entries
        }
        false => Vec::new(),
    };
    let body = html! {
        p .crumbs {
            @for above in &document.path { a href={ "/documents/" (above) } { (above) } " / " }
            "document " (document.id) " · " (document.usetype) " · created " (say::time(say::since(document.created_at))) " ago · "
            span .mono { (draw::short(&document.content_hash, 24)) }
        }
        (figures(&frontier))
        (warnings(&frontier.warnings))
        (acts(&document, &frontier, is_owner))
        @if let Some(progress) = &frontier.reprocess { (reprocess(progress, is_owner)) }
        @if !is_latest { p .body { "This is an earlier part of what happened. " a .lnk href={ "/documents/" (id) } { "The latest" } } }
        @if story.entries.is_empty() {
            (card("What happened", "", html! {}, html! { p .body .dim { "No task has run here." } }))
        } @else { (happened(&story)) (attempts(&story, is_owner)) }
        div .pair {
            (card("Evidence", "what the pipeline recorded", html! {}, html! {
                table { tbody { @for (name, value) in evidence.evidence.iter().filter(|(name, value)| !value.is_null() && *name != "attempts") {
                    tr { td .mono .w1 { (name) } td .message { (draw::short(&told(value), LONGEST)) } }
                } } }
            }))
            (card("Why is it not done?", "", tasks_link(is_owner, id), html! { (not_done(&frontier, &tasks)) (failures(&frontier, &story)) }))
        }
        (audit::card_of(&audit))
    };
    let say = html! {
        (say::settled(frontier.settled))
        @if frontier.reprocess.is_some() { ", and a reprocess builds another tree" }
    };
    Ok(Page { title: document.title, say, body, is_live: true, as_of: None })
}

/// The page of a tree that a reprocess builds, to which lists of actors and regions lead by the root of its tasks. Nothing of it can be read, so
/// it leads to the file.
async fn being_built(calls: &Calls, id: i64, missing: Failure) -> Result<Page, Failure> {
    let of_root = TaskQuery { root_id: Some(id), limit: Some(1), ..TaskQuery::default() };
    let task = calls.list_tasks(of_root).await?.tasks.pop();
    let Some((file, title)) = task.and_then(|task| Some((task.reprocess_of?, task.title?))) else {
        return Err(missing);
    };
    let body = html! {
        p .body {
            "Nothing of this tree can be read before it takes the place of the one that " a href={ "/documents/" (file) } { (title) } " has. "
            a href={ "/tasks?file=" (id) } { "Its tasks" }
        }
    };
    Ok(Page { title: "Reprocess".to_owned(), say: html! { "of " (title) }, body, is_live: true, as_of: None })
}

/// A JSON value on one line: a text without its quotes, the members of an object one after another.
fn told(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let told = members.iter().map(|(name, value)| format!("{name}: {}", plain(value)));
            told.collect::<Vec<_>>().join(" · ")
        }
        other => other.to_string(),
    }
}

fn figures(frontier: &FrontierResponse) -> Markup {
    let owed: i64 = frontier.stages.iter().map(|stage| stage.pending + stage.held + stage.waiting_for_retry).sum();
    html! {
        section .card aria-label="Figures" { div .stats {
            div { b { (say::count(frontier.nodes_total)) } span { "nodes" } }
            div { b { (say::count(frontier.nodes_settled)) } span { "settled, can be found" } }
            div { b { (say::count(frontier.nodes_in_flight)) } span { "in flight" } }
            div { b { (say::count(frontier.nodes_failed)) } span { "failed" } }
            div { b { (say::count(owed)) } span { "tasks owe work" } }
        } }
    }
}

fn happened(story: &StoryResponse) -> Markup {
    let legend = draw::legend(&[
        ("f-done", "done"),
        ("f-run", "runs"),
        ("f-bad", "failed"),
        ("f-wait", "waits"),
        ("f-back", "backs off"),
    ]);
    card(
        "What happened",
        if story.next_cursor.is_some() {
            "one line for each kind of task; there is more before this"
        } else {
            "one line for each kind of task"
        },
        legend,
        html! { div .body { (draw::timeline(&story.entries, story.created_at)) } },
    )
}

/// What the viewer may do about a document.
fn acts(document: &DocumentResponse, frontier: &FrontierResponse, is_owner: bool) -> Markup {
    let here = format!("/documents/{}", document.id);
    let (what, then) = match frontier.reprocess {
        Some(_) => ("reprocess", "The tree that the file has stays."),
        None => ("ingestion", "What waits fails at once, and what runs is stopped within 2 seconds."),
    };
    // A title may change the direction in which text runs, and must not change that of the question.
    let ask = format!("Cancel the {what} of \u{2068}{}\u{2069}? {then}", document.title);
    let goes_on = !frontier.stages.is_empty() || frontier.reprocess.is_some();
    let can_cancel = goes_on && document.usetype == Usetype::File.as_str();
    let buttons = html! {
        @if is_owner { (form(&format!("{here}/retry"), &[], "Retry what failed", "", None, &here)) " " }
        @if can_cancel { (form(&format!("{here}/cancel"), &[], "Cancel", "danger", Some(&ask), &here)) }
    };
    html! { @if is_owner || can_cancel { (card("What you can do", "", buttons, html! {})) } }
}

/// How far the reprocess of a file has come.
fn reprocess(progress: &ReprocessProgress, is_owner: bool) -> Markup {
    let tasks = html! { @if is_owner { a .lnk href={ "/tasks?file=" (progress.root_id) } { "Its tasks" } } };
    let began = say::time(say::since(progress.started_at));
    card(
        "Reprocess",
        &format!("it began {began} ago; the tree that the file has stays until the other one is whole"),
        tasks,
        html! {
            div .stats {
                div { b { (say::count(progress.nodes_total)) } span { "nodes" } }
                div { b { (say::count(progress.nodes_settled)) } span { "settled" } }
                div { b { (say::count(progress.nodes_in_flight)) } span { "in flight" } }
                div { b { (say::count(progress.nodes_failed)) } span { "failed" } }
                div { b { (say::count(progress.tasks_unfinished)) } span { "tasks owe work" } }
            }
            (reasons(&progress.blocked_by))
        },
    )
}

/// How many tasks wait for what.
fn reasons(blocked_by: &BTreeMap<BlockedBy, i64>) -> Markup {
    html! { @if !blocked_by.is_empty() { table { tbody { @for (reason, number) in blocked_by {
        tr { td .num .w1 { (say::count(*number)) } td { (say::reason(*reason)) } }
    } } } } }
}

fn attempts(story: &StoryResponse, is_owner: bool) -> Markup {
    let here = format!("/documents/{}", story.document_id);
    let begin = story.created_at;
    let mut entries: Vec<&StoryEntry> = story.entries.iter().collect();
    entries.reverse();
    card(
        "Attempts",
        "newest first; attempts that are alike are one row",
        html! {},
        html! { table {
            thead { tr {
                th .num { "Began" } th { "Task" } th { "Outcome" } th .hide-s { "Attempt" } th .hide-s { "Worker" } th .num .hide-s { "Waited" } th .num { "Took" } th .hide-s { "What it says" }
            } }
            tbody { @for entry in entries { (attempt(entry, begin, is_owner)) } }
        }
        @if let Some(earlier) = &story.next_cursor { p .body { a .lnk href={ (here) "?" (query(&[("before", earlier)])) } { "Earlier attempts" } } } },
    )
}

fn attempt(entry: &StoryEntry, begin: chrono::DateTime<chrono::Utc>, is_owner: bool) -> Markup {
    let waited = entry.queued_at.map(|queued| (entry.started_at - queued).as_seconds_f64());
    let each = if entry.attempts > 1 { " each" } else { "" };
    html! {
        tr {
            td .num .w1 .dim { "+" (say::took((entry.started_at - begin).as_seconds_f64())) }
            td .w1 { @if is_owner { a href={ "/tasks/" (entry.task_id) } { (entry.task_type) } } @else { (entry.task_type) } @if entry.attempts > 1 { " ×" (say::count(entry.attempts)) } }
            td .w1 { (say::outcome(entry.outcome)) }
            td .w1 .dim .hide-s { (entry.attempt) }
            td .w1 .dim .hide-s { @if entry.workers > 1 { (entry.workers) " workers" } @else { (entry.worker.as_deref().unwrap_or("–")) } }
            td .num .w1 .dim .hide-s { @if let Some(waited) = waited { (say::took(waited)) } }
            td .num .w1 .dim { (say::took(entry.seconds)) (each) @if entry.outcome.is_none() { " so far" } }
            td .message .hide-s {
                @if let Some(code) = &entry.code { span .mono { (code) } " " }
                (entry.message.as_deref().unwrap_or_default())
            }
        }
    }
}

/// Where an operator finds all tasks at and under a document, whatever their state.
fn tasks_link(is_owner: bool, id: i64) -> Markup {
    html! { @if is_owner { a .lnk href={ "/tasks?under=" (id) } { "Its tasks" } " · " a .lnk href={ "/tasks?status=failed&under=" (id) } { "failed" } } }
}

fn not_done(frontier: &FrontierResponse, tasks: &[TaskResponse]) -> Markup {
    if frontier.stages.is_empty() && tasks.is_empty() {
        let says = match (frontier.settled, frontier.nodes_in_flight) {
            _ if frontier.reprocess.is_some() => "The tree that it has owes no work.",
            (Settled::Failed, _) => "It failed, and nothing more will be done.",
            (_, 1..) => "The tasks at and under it have ended, and it settles in a moment.",
            _ if !frontier.warnings.is_empty() => "It owes no work, and has warnings.",
            _ => "It owes no work.",
        };
        return html! { p .body .dim { (says) } };
    }
    html! {
        @if tasks.is_empty() { (reasons(&frontier.blocked_by)) }
        @else { table { tbody { @for task in tasks {
            tr id={ "open-" (task.id) } {
                td .w1 { a href={ "/tasks/" (task.id) } { "#" (task.id) } }
                td .w1 { (task.task_type) }
                td { (standing(task)) }
            }
        } } } }
    }
}

/// What failed for good, each reason once, the latest first; what is only not configured comes last.
fn failures(frontier: &FrontierResponse, story: &StoryResponse) -> Markup {
    if frontier.nodes_failed == 0 && frontier.settled != Settled::Failed {
        return html! {};
    }
    // Those of one reason, and how many tasks these are.
    let mut reasons: Vec<(&StoryEntry, i64)> = Vec::new();
    for entry in story.entries.iter().rev().filter(|entry| entry.for_good > 0) {
        let is_same = |known: &StoryEntry| {
            known.task_type == entry.task_type && known.code == entry.code && known.message == entry.message
        };
        match reasons.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, tasks)) => *tasks += entry.for_good,
            None => reasons.push((entry, entry.for_good)),
        }
    }
    reasons.sort_by_key(|(entry, _)| entry.error_type == Some(ErrorType::Dependency));
    html! { table { tbody { @for (entry, tasks) in reasons.iter().take(REASONS) { tr {
        td .w1 { (say::outcome(entry.outcome)) }
        td .message {
            (entry.message.as_deref().unwrap_or("no reason is on record"))
            div .dim {
                (entry.task_type) @if *tasks > 1 { " ×" (say::count(*tasks)) }
                @if let Some(code) = &entry.code { " · " span .mono { (code) } }
                @if let Some(class) = entry.error_type { " · " (class.as_str()) }
            }
        }
    } } } } }
}

/// How a task stands in a list: why it does not run, or for how long it has run and how far it is.
pub fn standing(task: &TaskResponse) -> Markup {
    html! {
        (reason(task))
        @if let Some(running) = &task.running {
            span .dim {
                " for " (say::time(say::since(running.since)))
                @if let Some(progress) = &running.progress { " · " (say::progress(progress)) }
            }
            @if let Some(times) = say::times_usual(running.since, running.usual_ms) { " " (say::state("block", "◐", &format!("{times} times as long as usual"))) }
        }
    }
}

/// Why a task does not run, with the task in the way and the time that it waits for.
pub fn reason(task: &TaskResponse) -> Markup {
    html! {
        (say::task(task))
        @if let Some(blockage) = &task.blocked_by {
            @if let Some(other) = blockage.task_id { " " a .lnk href={ "/tasks/" (other) } { "#" (other) } }
            @if let Some(until) = blockage.until { " for " (say::time(-say::since(until))) }
        } @else if let Some(worker) = task.claimed_by.as_ref().filter(|_| !task.finished) { " at " (worker) }
    }
}
