//! The processes that work on the queue.
use super::{
    Calls, actors, audit, draw,
    layout::{Page, card, part},
    now, say,
};
use maud::html;
use svc_client::{
    Failure,
    wire::{AuditQuery, OverviewResponse, SnapshotPart, WorkerPath, WorkerQuery},
};

/// How many processes are shown; the living come first.
const SHOWN: usize = 200;

pub async fn list(calls: &Calls, overview: Option<&OverviewResponse>) -> Result<Page, Failure> {
    let (at, workers) = match overview {
        Some(now) => (now.at, now.workers.clone()),
        None => {
            let now = calls.read_overview().await?;
            (now.at, now.workers)
        }
    };
    let alive = workers.iter().filter(|worker| worker.alive).count();
    let held: i64 = workers.iter().map(|worker| worker.tasks_held).sum();
    let say = format!(
        "{alive} of {} alive; they hold {}.",
        say::many(workers.len() as i64, "process").replace("processs", "processes"),
        say::many(held, "task")
    );
    let is_sole = workers.iter().filter(|worker| worker.alive).all(|worker| worker.badges.is_empty());
    let body = card(
        "Processes",
        "with a heartbeat in the last day",
        html! {},
        html! {
            @if workers.is_empty() { p .body .dim { "No worker has been seen in the last day: " code { "svc-worker" } } }
            @else { table {
                thead { tr {
                    th { "Process" } th { "State" } th .hide-s { "Badges" } th .hide-s { "Lanes" } th .num { "Holds" } th .num .hide-s { "A minute" } th .num .hide-s { "Actors" } th .num .hide-s { "Beat" } th .num .hide-s { "Up" } th .hide-s { "Version" }
                } }
                tbody { @for worker in workers.iter().take(SHOWN) {
                    tr id={ "w-" (worker.worker_id) } {
                        td .cut { a href={ "/workers/" (part(&worker.worker_id)) } { (worker.worker_id) } }
                        td .w1 { (now::worker_state(worker)) }
                        td .dim .hide-s { @if worker.badges.is_empty() { "any" @if !is_sole { ", also tasks with badges" } } @else { (worker.badges.join(", ")) } }
                        td .w1 .hide-s { (draw::lanes(&worker.lanes)) }
                        td .num .w1 { (say::count(worker.tasks_held)) }
                        td .num .w1 .hide-s { (say::count(worker.ended_a_minute)) }
                        td .num .w1 .dim .hide-s { (say::count(worker.actors as i64)) }
                        td .num .w1 .dim .hide-s { (say::time(worker.silent_seconds)) }
                        td .num .w1 .dim .hide-s { (say::time(say::since(worker.started_at))) }
                        td .w1 .dim .hide-s { (worker.version) }
                    }
                } }
            } }
            @if workers.len() > SHOWN { p .body .dim { "and " (say::count((workers.len() - SHOWN) as i64)) " more, " (if alive > SHOWN { "some of them alive" } else { "all silent" }) } }
        },
    );
    Ok(Page { title: "Workers".to_owned(), say: html! { (say) }, body, is_live: true, as_of: Some(at) })
}

pub async fn one(calls: &Calls, id: String) -> Result<Page, Failure> {
    let path = WorkerPath { id: id.clone() };
    let worker = calls.read_worker(path, WorkerQuery { snapshot: Some(SnapshotPart::Tree) }).await?;
    let audit = AuditQuery { worker: Some(id), limit: Some(audit::SHOWN), ..AuditQuery::default() };
    let audit = calls.list_audit(audit).await?.entries;
    let lanes = worker.snapshot.as_ref().map(|snapshot| snapshot.lanes.clone()).unwrap_or_default();
    let state = match worker.alive {
        true => say::state("run", "●", "alive"),
        false => say::state("bad", "✕", &format!("silent for {}", say::time(say::since(worker.beat_at)))),
    };
    let body = html! {
        p .crumbs { a href="/workers" { "Workers" } " / " (worker.worker_id) }
        (card("Process", "", html! {}, html! { div .body { dl .kv {
            dt { "Last heartbeat" } dd { (say::time(say::since(worker.beat_at))) " ago; its lease lasts " (say::time(worker.lease_seconds)) }
            dt { "Up" } dd { (say::time(say::since(worker.started_at))) }
            dt { "Version" } dd { (worker.version) }
            dt { "Badges" } dd { @if worker.badges.is_empty() { "any" } @else { (worker.badges.join(", ")) @if worker.strict_badges { ", and no task without one" } } }
            dt { "Holds" } dd { (say::many(worker.tasks_held, "task")) }
            dt { "Lanes" } dd { (draw::lanes(&lanes)) span .dim { (draw::lanes_text(&lanes)) } }
            dt { "Task types" } dd { (worker.task_types.join(", ")) }
        } } }))
        section .card {
            div .treehead { span { "Actor" } span .opt { "Id" } span { "State" } span .num .opt { "Since" } span .num .opt { "Handled" } span .num .opt { "Mailbox" } span .num .opt { "Restarts" } }
            ul .tree { (actors::process(&worker, "", &worker.worker_id, actors::MOST_ROWS)) }
        }
        (audit::card_of(&audit))
    };
    Ok(Page { title: worker.worker_id.clone(), say: state, body, is_live: true, as_of: None })
}
