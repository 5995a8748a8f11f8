//! What failed for good, by reason and not by task.
use super::{
    Calls,
    layout::{Page, card, form, query},
    say,
};
use crate::store::queue::COUNTED;
use maud::{Markup, html};
use svc_client::{
    Failure,
    wire::{ErrorType, FailureGroup},
};

/// Codes of failures that a later try may not meet again, whatever class they have.
const WORTH_RETRYING: &[&str] = &["lease_expired", "dependency_failed", "cancelled"];

pub async fn read(calls: &Calls) -> Result<Page, Failure> {
    let list = calls.list_failures().await?;
    let worth: i64 = list.failures.iter().filter(|group| is_worth_it(group)).map(|group| group.tasks).sum();
    let say = match list.failures.len() {
        0 => "Nothing has failed.".to_owned(),
        reasons => format!(
            "{} tasks failed for good, for {}; {} of them may work when tried again.",
            say::at_least(list.examined, list.examined >= COUNTED),
            say::many(reasons as i64, "reason"),
            say::count(worth)
        ),
    };
    let body = card(
        "By reason",
        "what would fail again in the same way has no blue button",
        html! {},
        html! {
            @if list.failures.is_empty() { p .body .dim { "Nothing has failed for good." } }
            @else { table {
                thead { tr { th { "Kind" } th { "Task" } th { "Reason" } th .num { "Tasks" } th .num .hide-s { "Latest" } th { span .skip { "Action" } } } }
                tbody { @for group in &list.failures { (row(group)) } }
            } }
        },
    );
    Ok(Page { title: "Failed".to_owned(), say: html! { (say) }, body, is_live: true })
}

fn is_worth_it(group: &FailureGroup) -> bool {
    matches!(group.error_type, ErrorType::Timeout | ErrorType::Retryable)
        || group.code.as_deref().is_some_and(|code| WORTH_RETRYING.contains(&code))
}

fn row(group: &FailureGroup) -> Markup {
    let code = group.code.as_deref().unwrap_or_default();
    let mut fields = vec![("task_type", group.task_type.as_str()), ("error_type", group.error_type.as_str())];
    fields.extend(group.code.as_deref().map(|code| ("code", code)));
    let ask = format!("Queue {} again?", say::many(group.tasks, "task"));
    let class = if is_worth_it(group) { "main" } else { "" };
    let all = format!("/tasks?{}", query(&[("status", "failed"), ("type", &group.task_type)]));
    html! {
        tr id={ "fail-" (group.task_type) "-" (group.error_type) "-" (code) } {
            td .w1 { @if group.error_type == ErrorType::Dependency { (say::state("block", "◐", "dependency")) } @else { (say::state("bad", "✕", group.error_type.as_str())) } }
            td .w1 { a href=(all) { (group.task_type) } }
            td .message {
                (group.message.as_deref().unwrap_or("no attempt is on record"))
                div .dim {
                    @if !code.is_empty() { span .mono { (code) } " · " }
                    "such as " a .lnk href={ "/documents/" (group.sample.root_id) } { (group.sample.title.as_deref().unwrap_or("a file that is gone")) }
                    ", " a .lnk href={ "/tasks/" (group.sample.task_id) } { "task " (group.sample.task_id) }
                }
            }
            td .num .w1 { (say::count(group.tasks)) }
            td .num .w1 .dim .hide-s { @if let Some(latest) = group.latest { (say::time(say::since(latest))) } }
            td .w1 .num { (form("/failed/retry", &fields, &format!("Retry {}", say::count(group.tasks)), class, Some(&ask), "/failed")) }
        }
    }
}
