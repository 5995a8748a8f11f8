//! Tasks with what they wait for, and one task with all that is known of it.
use super::{
    Calls, Parameters, audit, document,
    layout::{Page, card, chip, form, more, query},
    now, say,
};
use crate::store::queue::COUNTED;
use maud::{Markup, html};
use svc_client::{
    Failure,
    wire::{
        AttemptPage, AuditQuery, BlockedBy, OverviewResponse, PageQuery, TaskPath, TaskQuery, TaskResponse, TaskStatus,
    },
};

const STATES: [(&str, &str); 4] =
    [("", "Owe work"), ("running", "Running"), ("failed", "Failed"), ("completed", "Completed")];

/// How many attempts at a task are shown at a time.
const ATTEMPTS: u32 = 50;
/// How many of the tasks that one waits for are shown.
const DEPENDENCIES: usize = 50;

/// What the address of the list says.
struct Choice<'a> {
    status: &'a str,
    task_type: &'a str,
    blocked_by: &'a str,
    badge: &'a str,
    file: &'a str,
    under: &'a str,
}

impl<'a> Choice<'a> {
    fn of(given: &'a Parameters) -> Choice<'a> {
        let text = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
        Choice {
            status: text("status"),
            task_type: text("type"),
            blocked_by: text("blocked_by"),
            badge: text("badge"),
            file: text("file"),
            under: text("under"),
        }
    }

    /// Whether tasks of the whole queue are listed, which alone has been counted.
    fn is_of_all(&self) -> bool {
        [self.badge, self.file, self.under].iter().all(|text| text.is_empty())
    }

    fn address(&self, cursor: &str) -> String {
        let pairs = [
            ("status", self.status),
            ("type", self.task_type),
            ("blocked_by", self.blocked_by),
            ("badge", self.badge),
            ("file", self.file),
            ("under", self.under),
            ("cursor", cursor),
        ];
        format!("/tasks?{}", query(&pairs))
    }

    fn query(&self, cursor: Option<&String>) -> Result<TaskQuery, Failure> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let word = |name: &str, problem: String| Failure::field(name, problem);
        Ok(TaskQuery {
            status: match self.status {
                "" => None,
                status => Some(status.parse().map_err(|error| word("status", format!("{error}")))?),
            },
            task_type: given(self.task_type),
            badge: given(self.badge),
            root_id: match self.file {
                "" => None,
                file => Some(file.parse().map_err(|_| word("file", "takes the id of a file".to_owned()))?),
            },
            under: match self.under {
                "" => None,
                id => Some(id.parse().map_err(|_| word("under", "takes the id of a document".to_owned()))?),
            },
            blocked_by: match self.blocked_by {
                "" => None,
                reason => Some(reason.parse().map_err(|error| word("blocked_by", format!("{error}")))?),
            },
            cursor: cursor.cloned(),
            limit: None,
        })
    }
}

pub async fn list(calls: &Calls, overview: Option<&OverviewResponse>, given: &Parameters) -> Result<Page, Failure> {
    let choice = Choice::of(given);
    let page = calls.list_tasks(choice.query(given.get("cursor"))?).await?;
    let body = html! {
        section .card {
            div .filters {
                @for (status, label) in STATES {
                    (chip(&Choice { status, blocked_by: if status.is_empty() { choice.blocked_by } else { "" }, ..choice }.address(""), choice.status == status, label, None))
                }
            }
            @if choice.status.is_empty() { (reasons(&choice, overview)) }
            (types(&choice, overview))
            @if !choice.badge.is_empty() || !choice.file.is_empty() || !choice.under.is_empty() {
                div .filters {
                    @if !choice.badge.is_empty() { (chip(&Choice { badge: "", ..choice }.address(""), true, &format!("badge {} ×", choice.badge), None)) }
                    @if !choice.file.is_empty() { (chip(&Choice { file: "", ..choice }.address(""), true, &format!("file {} ×", choice.file), None)) }
                    @if !choice.under.is_empty() { (chip(&Choice { under: "", ..choice }.address(""), true, &format!("under {} ×", choice.under), None)) }
                }
            }
            @if page.tasks.is_empty() { p .body .dim { "No such task." } }
            @else { (table(&page.tasks)) }
            (more(page.next_cursor.map(|cursor| choice.address(&cursor))))
        }
    };
    Ok(Page {
        title: "Tasks".to_owned(),
        say: html! { "oldest first, and what each waits for" },
        body,
        is_live: true,
        as_of: None,
    })
}

fn reasons(choice: &Choice<'_>, overview: Option<&OverviewResponse>) -> Markup {
    let rows = overview.map(|now| now.task_types.as_slice()).unwrap_or_default();
    let chosen: Vec<_> =
        rows.iter().filter(|row| choice.task_type.is_empty() || row.task_type == choice.task_type).collect();
    let reasons = BlockedBy::WORDS.iter().filter_map(|word| Some((*word, word.parse::<BlockedBy>().ok()?)));
    let counted: Vec<(&str, BlockedBy, i64, bool)> = reasons
        .map(|(word, reason)| {
            let of_types: Vec<i64> = chosen.iter().filter_map(|row| row.blocked_by.get(&reason).copied()).collect();
            (word, reason, of_types.iter().sum::<i64>(), of_types.iter().any(|tasks| *tasks >= COUNTED))
        })
        .filter(|(word, _, tasks, _)| *tasks > 0 || *word == choice.blocked_by)
        .collect();
    html! {
        @if !counted.is_empty() { div .filters {
            (chip(&Choice { blocked_by: "", ..*choice }.address(""), choice.blocked_by.is_empty(), "For any reason", None))
            @for (word, reason, tasks, is_more) in counted {
                (chip(&Choice { blocked_by: word, ..*choice }.address(""), choice.blocked_by == word, say::reason(reason), choice.is_of_all().then(|| say::at_least(tasks, is_more))))
            }
        } }
    }
}

fn types(choice: &Choice<'_>, overview: Option<&OverviewResponse>) -> Markup {
    let rows = overview.map(|now| now.task_types.as_slice()).unwrap_or_default();
    let is_listed = rows.iter().any(|row| row.task_type == choice.task_type);
    let is_counted = choice.is_of_all() && choice.status.is_empty() && choice.blocked_by.is_empty();
    let owed = |row: &svc_client::wire::TypeOverview| {
        let (waits, is_more) = now::waits(row);
        say::at_least(row.running + waits, is_more)
    };
    html! {
        div .filters {
            (chip(&Choice { task_type: "", ..*choice }.address(""), choice.task_type.is_empty(), "Every type", None))
            @for row in rows {
                (chip(&Choice { task_type: &row.task_type, ..*choice }.address(""), row.task_type == choice.task_type, &row.task_type, is_counted.then(|| owed(row))))
            }
            @if !is_listed && !choice.task_type.is_empty() { (chip(&choice.address(""), true, choice.task_type, None)) }
        }
    }
}

fn table(tasks: &[TaskResponse]) -> Markup {
    html! { table {
        thead { tr { th .num { "Task" } th { "Type" } th .file { "File" } th { "State" } th .hide-s { "Attempts" } th .hide-s { "What it said" } th .num { "Age" } } }
        tbody { @for task in tasks {
            tr id={ "t-" (task.id) } {
                td .num .w1 { a href={ "/tasks/" (task.id) } { "#" (task.id) } }
                td .w1 { (task.task_type) @if let Some(badge) = &task.badge { " " span .dim { (badge) } } }
                td .cut { (file(task)) @if task.reprocess_of.is_some() { " " span .dim { "reprocess" } } }
                td { (document::standing(task)) }
                td .w1 .dim .hide-s { (task.retry_count) " of " (task.max_retries) @if task.lease_losses > 0 { ", lost " (task.lease_losses) } }
                td .cut .dim .hide-s { @if let Some(error) = &task.last_error { (error.message.as_deref().or(error.code.as_deref()).unwrap_or_default()) } }
                td .num .w1 .dim { (say::time(say::since(task.created_at))) }
            }
        } }
    } }
}

pub async fn one(calls: &Calls, id: i64, given: &Parameters) -> Result<Page, Failure> {
    let task = calls.read_task(TaskPath { id }).await?;
    let page = PageQuery { cursor: given.get("before").cloned(), limit: Some(ATTEMPTS), ..PageQuery::default() };
    let attempts = calls.list_attempts(TaskPath { id }, page).await?;
    let here = format!("/tasks/{id}");
    let ask = format!("Cancel task {id}? It fails as cancelled, and with it whatever waits for it.");
    let buttons = html! {
        @if task.finished && task.status == TaskStatus::Failed { (form(&format!("{here}/retry"), &[], "Retry", "main", None, &here)) }
        @if !task.finished { (form(&format!("{here}/cancel"), &[], "Cancel", "danger", Some(&ask), &here)) }
    };
    let audit = AuditQuery { task_id: Some(id), limit: Some(audit::SHOWN), ..AuditQuery::default() };
    let audit = calls.list_audit(audit).await?.entries;
    let params = serde_json::to_string_pretty(&task.params).unwrap_or_default();
    let body = html! {
        p .crumbs { a href="/tasks" { "Tasks" } " / " (file(&task)) }
        @if let Some(error) = &task.last_error {
            div .finding .bad role="status" { span .g aria-hidden="true" { "✕" } div {
                (error.message.as_deref().unwrap_or("It failed without a message."))
                @if let Some(code) = &error.code { small { span .mono { (code) } } }
            } }
        }
        (card("State", "", buttons, html! { div .body { dl .kv {
            dt { "State" } dd { (document::reason(&task)) }
            dt { "Type" } dd { a href={ "/tasks?" (query(&[("type", &task.task_type)])) } { (task.task_type) } }
            dt { "Works on" } dd { (node(&task)) ", " (extent(&task)) }
            dt { "File" } dd {
                (file(&task)) " · "
                @if task.reprocess_of.is_some() { "its reprocess: " a .lnk href={ "/tasks?file=" (task.root_id) } { "tasks" } ", " a .lnk href={ "/regions?file=" (task.root_id) } { "regions" } }
                @else { a .lnk href={ "/regions?file=" (task.root_id) } { "its regions" } }
            }
            dt { "Lane" } dd { (task.lane) }
            dt { "Badge" } dd { (task.badge.as_deref().unwrap_or("none")) }
            dt { "Priority" } dd { (task.priority) }
            dt { "Held by" } dd { @if let Some(worker) = task.claimed_by.as_ref().filter(|_| !task.finished) { a href={ "/workers/" (super::layout::part(worker)) } { (worker) } } @else { "nobody" } }
            @if let Some(running) = &task.running {
                dt { "Runs" } dd {
                    "for " (say::time(say::since(running.since)))
                    @if let Some(progress) = &running.progress { ", " (say::progress(progress)) " are done" }
                    @match (running.usual_ms, say::times_usual(running.since, running.usual_ms)) {
                        (_, Some(times)) => { ", " (say::state("block", "◐", &format!("{times} times as long as usual"))) }
                        (Some(usual), None) => { span .dim { ", its type usually takes up to " (say::took(usual as f64 / 1e3)) } }
                        (None, None) => {}
                    }
                }
            }
            dt { "Retries" } dd { (task.retry_count) " of " (task.max_retries) }
            dt { "Lost leases" } dd { (task.lease_losses) }
            dt { "Waits for" } dd { @if task.dependencies.is_empty() { "no other task" } @for other in task.dependencies.iter().take(DEPENDENCIES) { a href={ "/tasks/" (other) } { "#" (other) } " " } @if let Some(more) = task.dependencies.len().checked_sub(DEPENDENCIES + 1) { "and " (say::count(more as i64 + 1)) " more" } }
            dt { "Queued" } dd { (task.created_at.format("%Y-%m-%d %H:%M:%S")) " UTC, " (say::time(say::since(task.created_at))) " ago" }
        } } }))
        (card("Attempts", "newest first", html! {}, attempts_table(&attempts, &here)))
        (audit::card_of(&audit))
        (card("Parameters", "", html! {}, html! { pre .body .mono { (super::draw::short(&params, 4000)) } }))
    };
    Ok(Page { title: format!("Task {id}"), say: say::task(&task), body, is_live: true, as_of: None })
}

fn attempts_table(page: &AttemptPage, here: &str) -> Markup {
    html! {
        @if page.attempts.is_empty() { p .body .dim { "No attempt has ended." } }
        @else { table {
            thead { tr { th .num { "Attempt" } th { "Outcome" } th .hide-s { "Worker" } th .num { "Began" } th .num .hide-s { "Took" } th { "What it says" } } }
            tbody { @for attempt in &page.attempts { tr {
                td .num .w1 { (attempt.attempt) }
                td .w1 { (say::outcome(Some(attempt.outcome))) }
                td .w1 .dim .hide-s { (attempt.worker.as_deref().unwrap_or("–")) }
                td .num .w1 .dim { (say::time(say::since(attempt.started_at))) " ago" }
                td .num .w1 .dim .hide-s { (say::took(chrono::TimeDelta::milliseconds(attempt.duration_ms).as_seconds_f64())) }
                td .message {
                    @if let Some(code) = &attempt.code { span .mono { (code) } " " }
                    (attempt.message.as_deref().unwrap_or_default())
                }
            } } }
        } }
        (more(page.next_cursor.as_ref().map(|before| format!("{here}?{}", query(&[("before", before)])))))
    }
}

/// The file that a task works for. What a reprocess builds cannot be read before it takes its place, so the file stands for it.
fn file(task: &TaskResponse) -> Markup {
    html! {
        @match &task.title {
            Some(title) => a href={ "/documents/" (task.reprocess_of.unwrap_or(task.root_id)) } { (title) },
            None => "a file that is gone",
        }
    }
}

/// The node that a task works on.
fn node(task: &TaskResponse) -> Markup {
    html! {
        @if task.reprocess_of.is_some() { "node " (task.document_id) " of the tree that a reprocess builds" }
        @else { a href={ "/documents/" (task.document_id) } { "document " (task.document_id) } }
    }
}

fn extent(task: &TaskResponse) -> &'static str {
    use svc_client::wire::WriteMode;
    match task.write_mode {
        WriteMode::Itself => "which it reserves alone",
        WriteMode::Children => "which it reserves with its children",
        WriteMode::Subtree => "which it reserves with all under it",
    }
}
