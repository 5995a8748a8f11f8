//! `svc status`.
use super::{
    CliError,
    output::{Output, say},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::process::ExitCode;
use svc_client::{
    Client, Code, Remote,
    wire::{
        ActorNode, Finding, FindingKind, LlmUsageQuery, PageQuery, ReadinessCheck, TaskProgress, WorkerQuery,
        WorkerResponse,
    },
};

/// The service reads its numbers every few seconds; older ones are shown with their age.
const RECENT_SECONDS: f64 = 5.0;
/// How many of the tasks that run are shown.
const TASKS: usize = 20;

/// The notice about numbers that are not recent.
fn old(age: f64) -> Option<String> {
    (age > RECENT_SECONDS)
        .then(|| format!("the state of the database, the queue and the workers was read {age:.0} s ago"))
}

/// The notice about tasks that only lack a part.
fn lacking(tasks: i64) -> Option<String> {
    let need = if tasks == 1 { "task needs" } else { "tasks need" };
    let what = "a part that is not configured, such as a language model; GET /admin/tasks?status=failed names it";
    (tasks > 0).then(|| format!("{tasks} {need} {what}"))
}

pub async fn status(client: &Client<Remote>, output: Output) -> Result<ExitCode, CliError> {
    let health = client.read_health().await?;
    // Health and readiness are public, so this call checks whether the token is right.
    let page = PageQuery { limit: Some(1), ..PageQuery::default() };
    if let Err(failure) = client.list_roots(page).await
        && failure.code == Code::Unauthenticated
    {
        return Err(failure.into());
    }
    let (ready, checks, queue, workers, age) = match client.read_readiness().await {
        Ok(ready) => (true, ready.checks, ready.queue, ready.workers, ready.sampled_seconds_ago),
        Err(failure) => {
            let age = failure.members.get("sampled_seconds_ago").and_then(Value::as_f64);
            let checks = failure.members.get("checks").cloned().unwrap_or_default();
            let checks: Vec<ReadinessCheck> = serde_json::from_value(checks).map_err(|_| failure)?;
            (false, checks, None, Vec::new(), age)
        }
    };
    // These are the owner's alone; others see the rest.
    let findings = client.list_findings().await.map(|list| list.findings).unwrap_or_default();
    let workers_with_actors = client.list_workers(WorkerQuery::default()).await.map(|list| list.workers);
    let running = running(&workers_with_actors.unwrap_or_default());
    let usage = client.read_llm_usage(LlmUsageQuery::default()).await.map(|read| read.usage).unwrap_or_default();
    match output {
        Output::Json => Output::line(
            &json!({"health": health, "ready": ready, "checks": checks, "queue": queue, "workers": workers,
                "findings": findings, "running": running, "language_models": usage, "sampled_seconds_ago": age}),
        )?,
        Output::Table => {
            say!(
                "svc {} is {}, {}, up {} s",
                health.version,
                health.status,
                if ready { "ready" } else { "not ready" },
                health.uptime_seconds
            );
            let rows: Vec<Vec<String>> = checks
                .iter()
                .map(|c| vec![c.name.to_string(), if c.ok { "ok" } else { "MISSING" }.to_owned(), c.detail.clone()])
                .collect();
            Output::table(&["check", "state", "detail"], &rows)?;
            if let Some(age) = age.and_then(old) {
                say!("{age}");
            }
            if let Some(queue) = queue {
                let oldest =
                    queue.oldest_seconds.map_or("none waits".to_owned(), |age| format!("the oldest waits {age:.0} s"));
                say!(
                    "queue: {} pending, {} held, {} to be tried again, {} failed; {oldest}",
                    queue.pending,
                    queue.held,
                    queue.waiting_for_retry,
                    queue.failed
                );
                if let Some(lacking) = lacking(queue.not_configured) {
                    say!("{lacking}");
                }
            }
            for finding in findings {
                let tasks = finding.tasks;
                say!(
                    "{} {}: {tasks} tasks for {:.0} s; {}",
                    finding.kind,
                    about(&finding),
                    finding.seconds,
                    finding.remedy
                );
            }
            for used in usage {
                let model = if used.model.is_empty() { "no model".to_owned() } else { used.model };
                let how = if used.batched { "requests in batches" } else { "calls" };
                say!(
                    "{} by {model}: {} {how} in 30 days, {} failed; {} tokens in, {} out",
                    used.purpose,
                    used.calls,
                    used.failed_calls,
                    used.prompt_tokens,
                    used.completion_tokens
                );
            }
            for worker in workers {
                let badges = if worker.badges.is_empty() { "any badge".to_owned() } else { worker.badges.join(", ") };
                say!(
                    "worker {}: {badges}, holds {}, last heartbeat {:.1} s ago",
                    worker.worker_id,
                    worker.tasks_held,
                    worker.silent_seconds
                );
            }
            for task in running.iter().take(TASKS) {
                say!("{}", said(task));
            }
            if running.len() > TASKS {
                say!("and {} more run", running.len() - TASKS);
            }
        }
    }
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a finding is about, in words.
pub(super) fn about(finding: &Finding) -> &str {
    match (finding.kind, finding.about.as_str()) {
        (FindingKind::Unserved, "") => "tasks without a badge",
        (_, about) => about,
    }
}

/// A task that runs.
#[derive(Serialize)]
struct Running {
    task_id: i64,
    task_type: String,
    worker_id: String,
    seconds: f64,
    progress: Option<TaskProgress>,
    usual_ms: Option<u64>,
}

/// The tasks that the living workers run, the oldest first.
fn running(workers: &[WorkerResponse]) -> Vec<Running> {
    let mut running = Vec::new();
    for worker in workers.iter().filter(|worker| worker.alive) {
        let mut open: Vec<&ActorNode> = worker.snapshot.iter().filter_map(|snapshot| snapshot.root.as_ref()).collect();
        while let Some(node) = open.pop() {
            open.extend(&node.children);
            let (Some(task_id), Some(task_type)) = (node.task_id, &node.task_type) else { continue };
            running.push(Running {
                task_id,
                task_type: task_type.clone(),
                worker_id: worker.worker_id.clone(),
                seconds: (chrono::Utc::now() - node.since).as_seconds_f64().max(0.0),
                progress: node.progress.clone(),
                usual_ms: node.usual_ms,
            });
        }
    }
    running.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    running
}

/// A task that runs, in words.
fn said(task: &Running) -> String {
    let Running { task_id, task_type, seconds, .. } = task;
    let progress = task.progress.as_ref().map(|TaskProgress { done, of, unit }| format!(", {done} of {of} {unit}"));
    let usual = task.usual_ms.map(|usual| format!(" (usually up to {:.1} s)", usual as f64 / 1e3));
    let (progress, usual) = (progress.unwrap_or_default(), usual.unwrap_or_default());
    format!("task {task_id} {task_type}: {seconds:.0} s{usual}{progress}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_only_lack_a_part_are_told_apart() {
        assert_eq!(lacking(0), None);
        assert!(lacking(2).is_some_and(|text| text.starts_with("2 tasks need a part that is not configured")));
    }

    #[test]
    fn a_finding_about_no_badge_says_so() {
        let finding = |kind, about: &str| Finding {
            kind,
            about: about.to_owned(),
            tasks: 1,
            seconds: 98.0,
            remedy: String::new(),
        };
        assert_eq!(about(&finding(FindingKind::Unserved, "")), "tasks without a badge");
        assert_eq!(about(&finding(FindingKind::Unserved, "gpu")), "gpu");
    }

    #[test]
    fn numbers_that_are_not_recent_have_their_age() {
        assert_eq!(old(1.9), None);
        assert!(old(61.2).is_some_and(|age| age.contains("61 s ago")));
    }
}
