//! The tree of actors of every process, as of its last heartbeat.
use super::{
    Calls, Parameters, draw,
    layout::{Page, chip, part, query},
    say,
};
use chrono::Utc;
use maud::{Markup, html};
use std::{cell::Cell, cmp::Reverse};
use svc_client::{
    Failure,
    wire::{ActorNode, SnapshotPart, WorkerPath, WorkerQuery, WorkerResponse, WorkerSnapshot},
};

/// How many processes are open unless somebody opens others.
const OPEN: usize = 4;
/// How many processes are shown.
const PROCESSES: usize = 100;
/// How many actors are shown at one level of one process.
const ROWS: usize = 50;
/// How many actors are shown in all. The open processes share them.
pub(super) const MOST_ROWS: usize = 480;
/// A task that has run for longer is bright, where it is not known how long its type usually takes.
const LONG_SECONDS: f64 = 60.0;
/// A mailbox that holds more is bright.
const MAILBOX: u64 = 10;

const FILTERS: [(&str, &str); 4] =
    [("", "All"), ("error", "With an error"), ("long", "Longer than usual"), ("mailbox", "Mailbox over 10")];

pub async fn read(calls: &Calls, given: &Parameters) -> Result<Page, Failure> {
    let text = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
    let (open, filter) = (text("open"), text("filter"));
    let query_of = |part| WorkerQuery { snapshot: Some(part) };
    let mut workers = calls.list_workers(query_of(SnapshotPart::Totals)).await?.workers;
    // The one that was asked for comes first, then the living, and of them those that hold most, then the latest.
    workers.sort_by_key(|worker| {
        (
            worker.worker_id != open,
            !worker.alive,
            Reverse(worker.tasks_held),
            (!worker.alive).then_some(Reverse(worker.beat_at)),
        )
    });
    let mut opened = 0;
    for worker in workers.iter_mut().take(PROCESSES) {
        let wanted = if open.is_empty() { opened < OPEN } else { worker.worker_id == open };
        if wanted && opened < OPEN {
            opened += 1;
            let path = WorkerPath { id: worker.worker_id.clone() };
            // A worker that signs off between the two calls stays as it was.
            if let Ok(whole) = calls.read_worker(path, query_of(SnapshotPart::Tree)).await {
                *worker = whole;
            }
        }
    }
    let snapshots = || workers.iter().filter_map(|worker| worker.snapshot.as_ref());
    let actors: u64 = snapshots().map(|snapshot| snapshot.actors).sum();
    let tasks: u64 = snapshots()
        .flat_map(|snapshot| &snapshot.totals)
        .filter(|total| total.task_type.is_some())
        .map(|total| total.count)
        .sum();
    let queued = snapshots().flat_map(|snapshot| &snapshot.totals).map(|total| total.queued).max().unwrap_or(0);
    let say = format!(
        "{} in {}; {} run; {}.",
        say::many(actors as i64, "actor"),
        if workers.len() == 1 { "1 process".to_owned() } else { format!("{} processes", workers.len()) },
        say::many(tasks as i64, "task"),
        if queued == 0 {
            "no message waits".to_owned()
        } else {
            format!("at most {queued} messages wait for one kind")
        }
    );
    let address = |filter: &str| format!("/actors?{}", query(&[("open", open), ("filter", filter)]));
    let body = html! {
        section .card {
            div .filters {
                @for (word, label) in FILTERS { (chip(&address(word), word == filter, label, None)) }
                @if !open.is_empty() { (chip("/actors", true, &format!("process {open} ×"), None)) }
            }
            div .treehead {
                span { "Actor" } span .opt { "Id" } span { "State" } span .num .opt { "Since" } span .num .opt { "Handled" } span .num .opt { "Mailbox" } span .num .opt { "Restarts" }
            }
            @if workers.is_empty() { p .body .dim { "No worker has been seen in the last day." } }
            ul .tree { @for worker in workers.iter().take(PROCESSES) { (process(worker, filter, open, MOST_ROWS / opened.max(1))) } }
            @if workers.len() > PROCESSES { p .body .dim {
                "and " (say::count((workers.len() - PROCESSES) as i64)) " more processes, the longest silent last: " a .lnk href="/workers" { "all workers" }
            } }
        }
    };
    Ok(Page { title: "Actors".to_owned(), say: html! { (say) }, body, is_live: true, as_of: None })
}

/// One process with its actors, at most so many, where they were read.
pub fn process(worker: &WorkerResponse, filter: &str, open: &str, rows: usize) -> Markup {
    let shown = Shown { worker, filter, is_alone: open == worker.worker_id, left: Cell::new(rows) };
    let silent = say::since(worker.beat_at);
    let snapshot = worker.snapshot.as_ref();
    let root = snapshot.and_then(|snapshot| snapshot.root.as_ref());
    html! {
        li .top .old[!worker.alive] id={ "p-" (worker.worker_id) } {
            a .go href={ "/workers/" (part(&worker.worker_id)) } { "process" }
            details open[root.is_some()] {
                summary {
                    span .name { b { (worker.worker_id) } " " span .dim { (worker.badges.join(", ")) " · beat " (say::time(silent)) " ago" } }
                    span .opt {}
                    span { @if worker.alive { (say::state("run", "●", "alive")) } @else { (say::state("bad", "✕", &format!("silent, as of {} ago", say::time(silent)))) } }
                    span .num .dim .opt { (say::time(say::since(worker.started_at))) }
                    span .num .dim .opt {} span .num .opt {} span .num .opt {}
                }
                @if let Some(snapshot) = snapshot {
                    ul .tree {
                        @if !snapshot.lanes.is_empty() { li { div .row {
                            span .name .dim { "lanes  " (draw::lanes_text(&snapshot.lanes)) } span .opt {} span { (draw::lanes(&snapshot.lanes)) }
                        } } }
                        @match root {
                            Some(root) => { (shown.children(root)) (left_out(snapshot)) }
                            None => { (totals(snapshot)) @if open.is_empty() { li { div .row { span .name { a .lnk href={ "/actors?open=" (part(&worker.worker_id)) } { "show its actors" } } } } } }
                        }
                    }
                }
            }
        }
    }
}

fn left_out(snapshot: &WorkerSnapshot) -> Markup {
    html! { @if snapshot.omitted > 0 { li { div .row { span .name .dim { "and " (snapshot.omitted) " more actors, which are only counted" } } } (totals(snapshot)) } }
}

/// The actors in numbers.
fn totals(snapshot: &WorkerSnapshot) -> Markup {
    html! { @for total in &snapshot.totals {
        li { div .row {
            span .name { (total.task_type.as_deref().unwrap_or(&total.kind)) " " span .dim { "×" (total.count) } }
            span .opt {} span { (say::actor(total.state)) } span .num .dim .opt { (say::time(say::since(total.oldest))) } span .opt {} span .num .opt { (total.queued) } span .opt {}
        } }
    } }
}

/// Whether an actor, or one under it, passes the filter.
fn passes(node: &ActorNode, filter: &str) -> bool {
    let itself = match filter {
        "error" => node.last_error.is_some() || node.last_failure.is_some() || node.restarts > 0,
        "long" => node.task_id.is_some() && long(node).is_some(),
        "mailbox" => node.queued > MAILBOX,
        _ => true,
    };
    itself || node.children.iter().any(|child| passes(child, filter))
}

/// In what way a task runs for long, if it does.
fn long(node: &ActorNode) -> Option<String> {
    match node.usual_ms {
        Some(_) => say::times_usual(node.since, node.usual_ms).map(|times| format!("{times} times as long as usual")),
        None => (say::since(node.since) > LONG_SECONDS).then(|| "over a minute".to_owned()),
    }
}

/// What is shown of one process.
struct Shown<'a> {
    worker: &'a WorkerResponse,
    filter: &'a str,
    /// The page shows this process and no other.
    is_alone: bool,
    /// How many more actors are shown.
    left: Cell<usize>,
}

impl Shown<'_> {
    /// The actors under one that pass the filter, as many as there is room for, and how many more there are.
    fn children(&self, node: &ActorNode) -> Markup {
        let passing: Vec<&ActorNode> = node.children.iter().filter(|child| passes(child, self.filter)).collect();
        let mut said = Vec::new();
        for child in passing.iter().take(ROWS) {
            let Some(left) = self.left.get().checked_sub(1) else { break };
            self.left.set(left);
            said.push(self.actor(child));
        }
        let hidden = passing.len() - said.len();
        html! {
            @for row in said { (row) }
            @if hidden > 0 { li { div .row { span .name .dim {
                "and " (hidden) " more: "
                @if !self.is_alone { a .lnk href={ "/actors?" (query(&[("open", &self.worker.worker_id), ("filter", self.filter)])) } { "this process alone" } ", " }
                a .lnk href={ "/tasks?status=running" } { "all tasks that run" }
            } } } }
        }
    }

    fn actor(&self, node: &ActorNode) -> Markup {
        let key = format!(
            "{}-{}-{}",
            self.worker.worker_id,
            node.kind,
            node.task_id.or(node.document_id).unwrap_or_default()
        );
        html! {
            li id={ "a-" (key) } {
                @if !node.children.iter().any(|child| passes(child, self.filter)) { div .row { (cells(node, link(node))) } }
                @else {
                    (link(node))
                    details open {
                        summary { (cells(node, html! {})) }
                        ul .tree { (self.children(node)) }
                    }
                }
            }
        }
    }
}

/// The link to what an actor works on. It stands beside a row that opens and closes, since nothing else may be chosen within that.
fn link(node: &ActorNode) -> Markup {
    html! {
        @if let Some(id) = node.task_id { a .go href={ "/tasks/" (id) } { "#" (id) } }
        @else if let Some(id) = node.reprocess_of.or(node.document_id) { a .go href={ "/documents/" (id) } { (id) } }
    }
}

fn cells(node: &ActorNode, link: Markup) -> Markup {
    let error = node.last_error.as_deref().or(node.last_failure.as_ref().map(|failure| failure.message.as_str()));
    html! {
        span .name title=[error] {
            @match (&node.task_type, &node.title) {
                (Some(task_type), _) => { (task_type) " " span .dim { @if let Some(lane) = node.lane { (lane) } @if let Some(region) = &node.region { " · " @if region.leaves.is_some() { "holds some leaves" } @else { (held(region.mode)) } } @if let Some(progress) = &node.progress { " · " (say::progress(progress)) } } }
                (_, Some(title)) => { (title) @if node.reprocess_of.is_some() { " " span .dim { "reprocess" } } }
                (None, None) => { (node.kind.replace('_', " ")) @if node.kind == "heart" { span .dim { " on its own thread" } } }
            }
            @if let Some(tasks) = &node.tasks { span .dim { " " (tasks.held) " run, " (tasks.done) " done" @if tasks.failed > 0 { ", " (tasks.failed) " failed" } } }
            @if let Some(error) = error { " " span .bad { (draw::short(error, 80)) } }
        }
        span .opt { (link) }
        span { (state(node)) }
        span .num .dim .opt { (say::time((Utc::now() - node.since).as_seconds_f64())) }
        span .num .dim .opt { (say::count(node.handled as i64)) }
        span .num .opt .bad[node.queued > MAILBOX] { (say::count(node.queued as i64)) }
        span .num .opt .bad[node.restarts > 0] { (node.restarts) }
    }
}

fn held(mode: svc_client::wire::WriteMode) -> &'static str {
    use svc_client::wire::WriteMode;
    match mode {
        WriteMode::Itself => "holds its node",
        WriteMode::Children => "holds its node and the children",
        WriteMode::Subtree => "holds all under its node",
    }
}

fn state(node: &ActorNode) -> Markup {
    match (node.phase, node.phase.and_then(|_| long(node))) {
        (Some(phase), Some(long)) => say::state("block", "◐", &format!("{phase}, {long}")),
        (Some(svc_client::wire::TaskPhase::Stopping), None) => say::state("block", "◐", "stopping"),
        (Some(phase), None) => say::state("run", "●", phase.as_str()),
        (None, _) => say::actor(node.state),
    }
}
