//! Whether all is well, and if not, what to do.
use super::{
    Calls, draw,
    layout::{Page, card, form, part, query},
    say,
};
use crate::store::queue::COUNTED;
use maud::{Markup, html};
use svc_client::{
    Code, Failure,
    wire::{
        BlockedBy, FileQuery, Finding, FindingKind, MinuteCount, OverviewResponse, Settled, TypeOverview,
        WorkerOverview,
    },
};

/// How many findings are shown.
const FINDINGS: usize = 5;
const FILES: u32 = 10;
const WORKERS: usize = 12;
/// A worker that has been silent for longer and holds nothing is history.
const HISTORY: f64 = 600.0;

pub async fn read(calls: &Calls, overview: Option<&OverviewResponse>) -> Result<Page, Failure> {
    let Some(now) = overview else {
        return Err(Failure::new(
            Code::Unavailable,
            "the state of the queue could not be read; the service's log says why",
        ));
    };
    let files = calls.list_files(FileQuery { limit: Some(FILES), ..FileQuery::default() }).await?.files;
    let notes = notes(now);
    let owed = owed(now);
    let say = match (notes.len(), owed.0) {
        (0, 0) => "All is well, and nothing waits.".to_owned(),
        (0, _) => "Working, with nothing for you to do.".to_owned(),
        (1, _) => "One thing needs a look.".to_owned(),
        (more, _) => format!("{more} things need a look."),
    };
    let hidden = notes.len().saturating_sub(FINDINGS);
    let body = html! {
        @for (_, note) in notes.iter().take(FINDINGS) { (note) }
        @if hidden > 0 { p .dim { "and " (hidden) " more: " code { "svc-worker doctor" } " lists what it finds" } }
        (figures(now, owed))
        (card("Throughput", "by the minute, in the last hour", draw::legend(&[("f-done", "attempts done"), ("f-bad", "failed"), ("f-arrive", "tasks that arrived")]),
            html! { div .body { (draw::throughput(&now.throughput, now.at)) } }))
        (queue(now))
        div .pair {
            (card("Files", "latest first", html! { a .lnk href="/documents" { "All" } }, html! {
                @if files.is_empty() { p .body .dim { "No file has been stored yet: " code { "svc ingest FILE" } } }
                @else { table {
                    thead { tr { th .file { "File" } th { "State" } th .hide-s { "How far" } th .num { "Age" } } }
                    tbody { @for file in &files {
                        tr id={ "f-" (file.id) } {
                            td .cut { a href={ "/documents/" (file.id) } title=(file.title) { (file.title) } }
                            td .w1 { (say::settled(file.state)) }
                            td .dim .hide-s { (far(file)) }
                            td .num .w1 .dim { (say::time(say::since(file.created_at))) }
                        }
                    } }
                } }
            }))
            (workers(now))
        }
    };
    Ok(Page { title: "Now".to_owned(), say: html! { (say) }, body, is_live: true, as_of: Some(now.at) })
}

/// Whether something is bad, and what is told of it.
type Note = (bool, Markup);

/// What needs a look. What is bad comes first, so that it is not among those that the page only counts.
pub(super) fn notes(now: &OverviewResponse) -> Vec<Note> {
    let mut notes: Vec<Note> = now.findings.iter().map(finding).collect();
    let quiet: Vec<&WorkerOverview> = now.workers.iter().filter(|worker| is_silent(worker)).collect();
    match quiet[..] {
        [] | [_] | [_, _] => notes.extend(quiet.into_iter().map(silent)),
        _ => notes.push(all_silent(&quiet)),
    }
    notes.sort_by_key(|(is_bad, _)| !is_bad);
    notes
}

/// How many tasks owe work, and whether there may be more: of each type and badge, counting ends at [`COUNTED`].
pub fn owed(now: &OverviewResponse) -> (i64, bool) {
    let owed = now.queue.pending + now.queue.held + now.queue.waiting_for_retry;
    (owed, now.task_types.iter().any(|row| waits(row).1))
}

/// The same of one type, without those that run.
pub fn waits(row: &TypeOverview) -> (i64, bool) {
    let waits = row.blocked_by.values().sum();
    (waits, waits >= COUNTED)
}

/// When so many tasks are done at this pace.
fn empty_in((owed, is_more): (i64, bool), pace: i64) -> String {
    match (owed, pace) {
        (0, _) => "now".to_owned(),
        (_, 0) => "–".to_owned(),
        (owed, pace) => {
            let time = say::time(owed as f64 * 60.0 / pace as f64);
            if is_more { format!("over {time}") } else { time }
        }
    }
}

pub fn far(file: &svc_client::wire::FileResponse) -> String {
    match (file.nodes_total, file.nodes_settled, file.state) {
        (Some(total), Some(_), Settled::Settled) => say::many(total, "node"),
        (Some(total), Some(done), _) => format!("{} of {}", say::count(done), say::many(total, "node")),
        _ => say::bytes(file.byte_size),
    }
}

fn figures(now: &OverviewResponse, owed: (i64, bool)) -> Markup {
    let running: i64 = now.task_types.iter().map(|row| row.running).sum();
    let pace: i64 = now.task_types.iter().map(|row| row.ended_a_minute).sum();
    let empty = empty_in(owed, pace);
    let failed: i64 = now.throughput.iter().map(|minute| minute.failed + minute.lost).sum();
    let ended: i64 = now.throughput.iter().map(|minute| minute.completed + minute.failed + minute.lost).sum();
    let share = match ended {
        0 => "–".to_owned(),
        _ => format!("{:.1} %", 100.0 * failed as f64 / ended as f64),
    };
    html! {
        section .card aria-label="Figures" { div .stats {
            div { b { a href="/tasks" { (say::at_least(owed.0, owed.1)) } } span { (if owed.0 == 1 { "task owes work" } else { "tasks owe work" }) } }
            div { b { (say::count(running)) } span { "running, in " a href="/regions" { (say::many(now.regions_held, "held region")) } } }
            div { b { (say::count(pace)) } span { "ended in the last minute, and " (say::count(arrived(now))) " arrived" } }
            div { b { (empty) } span { "to empty at this pace" } }
            div { b { a href=(super::failed::address("60")) { (share) } } span { "of " (say::count(ended)) " attempts failed in the last hour" } }
        } }
    }
}

/// How many tasks arrived in the last whole minute.
fn arrived(now: &OverviewResponse) -> i64 {
    let is_last = |minute: &&MinuteCount| (now.at - minute.minute).num_seconds() / 60 == 1;
    now.throughput.iter().find(is_last).map_or(0, |minute| minute.arrived)
}

fn queue(now: &OverviewResponse) -> Markup {
    let legend = draw::legend(&[
        ("f-run", "running"),
        ("f-ready", "ready, workers busy"),
        ("f-block", "behind a held region"),
        ("f-dep", "behind a task before it"),
        ("f-back", "backs off"),
        ("f-wait", "paused"),
        ("f-bad", "nobody serves it"),
    ]);
    card(
        "Queue",
        "what each type waits for",
        legend,
        html! {
            @if now.task_types.is_empty() { p .body .dim { "Nothing runs and nothing waits." } }
            @else { table {
                thead { tr {
                    th { "Type" } th .hide-s { "Lane" } th .share { "Share of each state" } th .num { "Runs" } th .num { "Waits" } th .num .hide-s { "Oldest" }
                    th .num .hide-s { "A minute" } th .num .hide-s { "Empty in" } th .hide-s { "Why" } th { span .skip { "Action" } }
                } }
                tbody { @for row in &now.task_types { (type_row(row)) } }
            } }
        },
    )
}

fn type_row(row: &TypeOverview) -> Markup {
    let (waits, is_more) = waits(row);
    let empty = match waits + row.running {
        0 => String::new(),
        owed => empty_in((owed, is_more), row.ended_a_minute),
    };
    let address = format!("/task-types/{}", part(&row.task_type));
    let tasks = format!("/tasks?{}", query(&[("type", &row.task_type)]));
    let (act, label, class, confirm) = match row.paused_since {
        Some(_) => ("resume", "Resume", "main", None),
        None => {
            let ask = format!("Pause {}? What runs goes on, and nothing new is claimed.", row.task_type);
            ("pause", "Pause", "", Some(ask))
        }
    };
    html! {
        tr id={ "tt-" (row.task_type) } {
            td { a href=(tasks) { (row.task_type) } }
            td .dim .w1 .hide-s { @if let Some(lane) = row.lane { (lane) } }
            td { (draw::shares(row)) }
            td .num .w1 { (say::count(row.running)) }
            td .num .w1 { (say::at_least(waits, is_more)) }
            td .num .w1 .dim .hide-s { @if let Some(oldest) = row.oldest_seconds { (say::time(oldest)) } }
            td .num .w1 .hide-s { (say::count(row.ended_a_minute)) }
            td .num .w1 .dim .hide-s { (empty) }
            td .why .hide-s { (why(row)) }
            td .w1 .num { (form(&format!("{address}/{act}"), &[], label, class, confirm.as_deref(), "/")) }
        }
    }
}

fn why(row: &TypeOverview) -> Markup {
    let reasons = row.blocked_by.iter().filter(|(reason, tasks)| **reason != BlockedBy::Paused && **tasks > 0);
    let mut reasons: Vec<_> = reasons.collect();
    reasons.sort_by_key(|(_, tasks)| std::cmp::Reverse(**tasks));
    html! {
        @if let Some(since) = row.paused_since { "paused " (say::time(say::since(since))) " ago " }
        @for (at, (reason, tasks)) in reasons.into_iter().take(2).enumerate() {
            @if at > 0 { ", " }
            a href={ "/tasks?" (query(&[("type", &row.task_type), ("blocked_by", reason.as_str())])) } { (say::at_least(*tasks, *tasks >= COUNTED)) " " (say::reason(*reason)) }
        }
    }
}

fn workers(now: &OverviewResponse) -> Markup {
    card(
        "Workers",
        "busy places by lane",
        html! { a .lnk href="/workers" { "All" } },
        html! {
            @if now.workers.is_empty() { p .body .dim { "No worker has been seen in the last day." } }
            @else { table {
                thead { tr { th { "Process" } th { "State" } th .hide-s { "Lanes" } th .num { "A minute" } } }
                // One that is gone hides none that works.
                tbody { @for worker in now.workers.iter().take(WORKERS) {
                    tr id={ "w-" (worker.worker_id) } {
                        td .cut { a href={ "/workers/" (part(&worker.worker_id)) } { (worker.worker_id) } " " span .dim { (worker.badges.join(", ")) } }
                        td .w1 { (worker_state(worker)) }
                        td .w1 .hide-s { (draw::lanes(&worker.lanes)) }
                        td .num .w1 { (say::count(worker.ended_a_minute)) }
                    }
                } }
            } }
        },
    )
}

pub fn worker_state(worker: &WorkerOverview) -> Markup {
    match worker.alive {
        true => say::state("run", "●", "alive"),
        false => say::state("bad", "✕", &format!("silent {}", say::time(worker.silent_seconds))),
    }
}

fn is_silent(worker: &WorkerOverview) -> bool {
    !worker.alive && (worker.tasks_held > 0 || worker.silent_seconds < HISTORY)
}

fn note(is_bad: bool, what: Markup, help: Markup, link: Option<(String, &str)>) -> Note {
    let markup = html! {
        div .finding .bad[is_bad] .warn[!is_bad] role="status" {
            span .g aria-hidden="true" { (if is_bad { "✕" } else { "◐" }) }
            div { (what) small { (help) } }
            @if let Some((href, label)) = link { a .lnk href=(href) { (label) } }
        }
    };
    (is_bad, markup)
}

fn silent(worker: &WorkerOverview) -> Note {
    let what = html! { "Worker " b { (worker.worker_id) } " has been silent for " (say::time(worker.silent_seconds)) @if worker.tasks_held > 0 { " and holds " (say::many(worker.tasks_held, "task")) } "." };
    let help = html! { "Its lease is over: other workers take its tasks at their next look for lapsed leases." };
    note(false, what, help, Some((format!("/workers/{}", part(&worker.worker_id)), "See the worker")))
}

/// Many workers that went silent are one thing to look at.
fn all_silent(workers: &[&WorkerOverview]) -> Note {
    let held: i64 = workers.iter().map(|worker| worker.tasks_held).sum();
    let what = html! { (workers.len()) " workers have gone silent lately" @if held > 0 { " and hold " (say::many(held, "task")) } "." };
    let help = html! { "A process that ends and starts again and again leaves one behind each time. Living workers take the tasks when the leases are over." };
    note(false, what, help, Some(("/workers".to_owned(), "See the workers")))
}

fn finding(found: &Finding) -> Note {
    let tasks = say::many(found.tasks, "task");
    let wait = if found.tasks == 1 { "waits" } else { "wait" };
    let oldest = say::time(found.seconds);
    let about = &found.about;
    let help = html! { (found.remedy) };
    match found.kind {
        FindingKind::Unserved if about.is_empty() => {
            let what = html! { (tasks) " without a badge " (wait) " for a worker, the oldest for " (oldest) "." };
            let help = html! { "They start as soon as a worker takes tasks without a badge: " code { "svc-worker" } };
            note(true, what, help, Some(("/tasks".to_owned(), "See the tasks")))
        }
        FindingKind::Unserved => {
            let what = html! { (tasks) " " (wait) " for a worker with the badge " b { (about) } ", the oldest for " (oldest) "." };
            let help = html! { "They are starved, not failed: they start as soon as one serves the badge. " code { "svc-worker --badge " (about) } };
            note(true, what, help, Some((format!("/tasks?{}", query(&[("badge", about)])), "See the tasks")))
        }
        FindingKind::NoHandler => {
            let what = html! { "No living worker can run " b { (about) } ": " (tasks) " " (wait) ", the oldest for " (oldest) "." };
            note(true, what, help, Some((format!("/tasks?{}", query(&[("type", about)])), "See the tasks")))
        }
        FindingKind::Lapsed => {
            let what = html! { (tasks) " of " b { (about) } ": the lease is over, and nobody has taken over yet." };
            note(false, what, help, Some(("/workers".to_owned(), "See the workers")))
        }
        FindingKind::Stuck => {
            let what = html! { (tasks) " " (wait) " " b { (about) } ", the oldest for " (oldest) "." };
            let id: String = about.chars().filter(char::is_ascii_digit).collect();
            note(false, what, help, Some((format!("/tasks/{id}"), "See the task in the way")))
        }
        FindingKind::Starved | FindingKind::Stalled => {
            let what = html! { (tasks) " of type " b { (about) } " " (wait) " although workers are alive, the oldest for " (oldest) "." };
            note(
                found.kind == FindingKind::Stalled,
                what,
                help,
                Some((format!("/tasks?{}", query(&[("type", about)])), "See the tasks")),
            )
        }
        FindingKind::BatchStalled => {
            let what = html! { (tasks) " " (wait) " in " b { (about) } ", the oldest for " (oldest) "." };
            note(true, what, help, Some(("/tasks?blocked_by=batch_parked".to_owned(), "See the tasks")))
        }
        FindingKind::Paused => {
            let what = html! { b { (about) } " has been paused for " (oldest) "; " (tasks) " " (wait) "." };
            note(false, what, html! { "Resume it in the table below." }, None)
        }
        FindingKind::UnequalLeases => note(
            false,
            html! { "The leases of the workers differ: " (about) "." },
            help,
            Some(("/workers".to_owned(), "See the workers")),
        ),
        FindingKind::FeedAway => {
            let what = html! { "The bulk feed has had no broker for " (oldest) ": " (about) "." };
            note(true, what, help, Some(("/feed".to_owned(), "See the feed")))
        }
        FindingKind::StandbyAway => note(false, html! { "A standby answers no reads: " (about) "." }, help, None),
        FindingKind::StandbyBehind => {
            let what = html! { "A standby is too far behind to answer reads: " (about) "." };
            note(false, what, help, None)
        }
        FindingKind::OtherModel => {
            let what = html! { "No search by vectors finds some documents: " (about) "." };
            note(true, what, help, None)
        }
        FindingKind::RulesFailed => {
            let what = html! { "For " (oldest) " nothing could be derived from the facts of " (about) "." };
            note(true, what, help, None)
        }
        FindingKind::IndexNumbers => {
            let what = html! { "A search index has given out most of its numbers for documents: " (about) "." };
            note(false, what, help, None)
        }
        FindingKind::FileBytes => note(false, html! { "The database holds much of files: " (about) "." }, help, None),
        FindingKind::VectorMemory => {
            let what = html! { "The indexes of vectors are larger than half the memory: " (about) "." };
            note(false, what, help, None)
        }
        FindingKind::SlowSearches => {
            let what = html! { "Searches by vectors or full text take long in the database: " (about) "." };
            note(false, what, help, None)
        }
        FindingKind::SlowBm25 => note(false, html! { "Searches by BM25 take long: " (about) "." }, help, None),
        FindingKind::SlowIngestion => {
            let what = html! { (tasks) " of type " b { "embed" } " " (wait) " for the database, the oldest for " (oldest) ": " (about) "." };
            note(false, what, help, Some((format!("/tasks?{}", query(&[("type", "embed")])), "See the tasks")))
        }
        FindingKind::SlowClaims => {
            let what = html! { "Claims of tasks take long: " (about) "." };
            note(false, what, help, Some(("/workers".to_owned(), "See the workers")))
        }
        FindingKind::BlobStore => note(true, html! { "Stored bytes are not there: " (about) "." }, help, None),
        FindingKind::ReadOnly => note(true, html! { "The database takes no writes: " (about) "." }, help, None),
        FindingKind::Connections => {
            let what = html! { "The database takes hardly any more connections: " (about) "." };
            note(true, what, help, None)
        }
        FindingKind::Disk => note(true, html! { "The disk is full or nearly full: " (about) "." }, help, None),
    }
}
