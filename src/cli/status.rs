//! `svc status`.
use super::{
    CliError,
    output::{Output, say},
};
use serde_json::json;
use std::process::ExitCode;
use svc_client::{
    Client, Code, Remote,
    wire::{PageQuery, ReadinessCheck},
};

pub async fn status(client: &Client<Remote>, output: Output) -> Result<ExitCode, CliError> {
    let health = client.read_health().await?;
    // Health and readiness are public, so this call checks whether the token is right.
    let page = PageQuery { limit: Some(1), ..PageQuery::default() };
    if let Err(failure) = client.list_roots(page).await
        && failure.code == Code::Unauthenticated
    {
        return Err(failure.into());
    }
    let (ready, checks, queue, workers) = match client.read_readiness().await {
        Ok(ready) => (true, ready.checks, ready.queue, ready.workers),
        Err(failure) => {
            let checks = failure.members.get("checks").cloned().unwrap_or_default();
            let checks: Vec<ReadinessCheck> = serde_json::from_value(checks).map_err(|_| failure)?;
            (false, checks, None, Vec::new())
        }
    };
    match output {
        Output::Json => Output::line(
            &json!({"health": health, "ready": ready, "checks": checks, "queue": queue, "workers": workers}),
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
                .map(|c| vec![c.name.clone(), if c.ok { "ok" } else { "MISSING" }.to_owned(), c.detail.clone()])
                .collect();
            Output::table(&["check", "state", "detail"], &rows)?;
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
        }
    }
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
