//! What failed for good, by reason and not by task.
use super::{
    Calls, Parameters,
    layout::{Page, card, chip, form, query},
    say,
};
use crate::store::queue::COUNTED;
use maud::{Markup, html};
use svc_client::{
    Failure,
    wire::{ErrorType, FailureGroup, FailureQuery},
};

/// Codes of failures that a later try may not meet again, whatever class they have.
const WORTH_RETRYING: &[&str] = &["lease_expired", "dependency_failed", "cancelled"];

/// How far back one may look, in minutes; blank for whatever failed.
const TIMES: [(&str, &str); 4] = [("", "All"), ("60", "Last hour"), ("1440", "Last day"), ("10080", "Last week")];

/// The address of the page for as many minutes.
pub fn address(minutes: &str) -> String {
    match minutes {
        "" => "/failed".to_owned(),
        minutes => format!("/failed?{}", query(&[("minutes", minutes)])),
    }
}

pub async fn read(calls: &Calls, given: &Parameters) -> Result<Page, Failure> {
    let minutes = given.get("minutes").map(String::as_str).unwrap_or_default();
    let wanted = match minutes {
        "" => None,
        minutes => Some(minutes.parse().map_err(|_| Failure::field("minutes", "takes a whole number of minutes"))?),
    };
    let list = calls.list_failures(FailureQuery { minutes: wanted }).await?;
    let time = match TIMES.iter().find(|(known, _)| *known == minutes) {
        Some(("", _)) => String::new(),
        Some((_, label)) => format!(" in the {}", label.to_lowercase()),
        None => format!(" in the last {}", say::time(60.0 * f64::from(wanted.unwrap_or_default()))),
    };
    let worth: i64 = list.failures.iter().filter(|group| is_worth_it(group)).map(|group| group.tasks).sum();
    let say = match list.failures.len() {
        0 => format!("Nothing has failed{time}."),
        reasons => format!(
            "{} failed for good{time}, for {}; {} of them may work when tried again.",
            match list.examined >= COUNTED {
                true => format!("{} tasks", say::at_least(list.examined, true)),
                false => say::many(list.examined, "task"),
            },
            say::many(reasons as i64, "reason"),
            say::count(worth)
        ),
    };
    let body = card(
        "By reason",
        "what would fail again in the same way has no blue button",
        html! {},
        html! {
            div .filters { @for (known, label) in TIMES { (chip(&address(known), known == minutes, label, None)) } }
            @if list.failures.is_empty() { p .body .dim { "Nothing has failed for good" (time) "." } }
            @else { table {
                thead { tr { th .hide-xs { "Kind" } th { "Task" } th { "Reason" } th .num .hide-xs { "Tasks" } th .num .hide-s { "Latest" } th { span .skip { "Action" } } } }
                tbody { @for group in &list.failures { (row(group, minutes)) } }
            } }
        },
    );
    Ok(Page { title: "Failed".to_owned(), say: html! { (say) }, body, is_live: true, as_of: None })
}

fn is_worth_it(group: &FailureGroup) -> bool {
    matches!(group.error_type, ErrorType::Timeout | ErrorType::Retryable)
        || group.code.as_deref().is_some_and(|code| WORTH_RETRYING.contains(&code))
}

fn row(group: &FailureGroup, minutes: &str) -> Markup {
    let code = group.code.as_deref().unwrap_or_default();
    let mut fields = vec![("task_type", group.task_type.as_str()), ("error_type", group.error_type.as_str())];
    fields.extend(group.code.as_deref().map(|code| ("code", code)));
    // What failed at another time is not shown, so it is not queued either.
    fields.extend((!minutes.is_empty()).then_some(("minutes", minutes)));
    let ask = format!("Queue {} again?", say::many(group.tasks, "task"));
    let class = if is_worth_it(group) { "main" } else { "" };
    let all = format!("/tasks?{}", query(&[("status", "failed"), ("type", &group.task_type)]));
    html! {
        tr id={ "fail-" (group.task_type) "-" (group.error_type) "-" (code) } {
            td .w1 .hide-xs { @if group.error_type == ErrorType::Dependency { (say::state("block", "◐", "dependency")) } @else { (say::state("bad", "✕", group.error_type.as_str())) } }
            td .w1 .whole { a href=(all) { (group.task_type) } }
            td .message {
                (group.message.as_deref().unwrap_or("no attempt is on record"))
                div .dim {
                    @if !code.is_empty() { span .mono { (code) } " · " }
                    "such as " a .lnk href={ "/documents/" (group.sample.reprocess_of.unwrap_or(group.sample.root_id)) } { (group.sample.title.as_deref().unwrap_or("a file that is gone")) }
                    @if group.sample.reprocess_of.is_some() { ", as a reprocess reads it" }
                    ", " a .lnk href={ "/tasks/" (group.sample.task_id) } { "task " (group.sample.task_id) }
                }
            }
            td .num .w1 .hide-xs { (say::count(group.tasks)) }
            td .num .w1 .dim .hide-s { @if let Some(latest) = group.latest { (say::time(say::since(latest))) } }
            td .w1 .num { (form("/failed/retry", &fields, &format!("Retry {}", say::count(group.tasks)), class, Some(&ask), &address(minutes))) }
        }
    }
}
