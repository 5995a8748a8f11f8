//! The command line of `svc-worker`.
use super::{CliError, environment, run_to_end};
use crate::{
    app::{Backend, DRAIN, asked_to_stop, load_engine},
    ingest::reader::{Reader, serve_if_asked},
    logging,
    service::Service,
    settings::Settings,
    worker::{Role, RunningWorker},
};
use clap::Parser;
use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};
use svc_actors::WorkerEnd;

/// Works on the task queue of a service, on this machine or another.
#[derive(Parser)]
#[command(name = "svc-worker", version)]
struct Arguments {
    /// The settings file.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Takes tasks with this badge, and those without one; may be given again. None: takes every task.
    #[arg(long, value_name = "NAME")]
    badge: Vec<String>,
    /// Written to claimed_by; host and process id where left out.
    #[arg(long, value_name = "NAME")]
    worker_id: Option<String>,
    /// Wait after an empty queue.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    poll_seconds: Option<Duration>,
    /// Between two beats.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    heartbeat_seconds: Option<Duration>,
    /// Silence after which a claim is taken back; at least 3 heartbeats.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    lease_seconds: Option<Duration>,
    /// Between two sweeps for expired claims.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    reap_seconds: Option<Duration>,
    /// Ends when the queue is empty.
    #[arg(long)]
    drain: bool,
    /// Ends after this many tasks.
    #[arg(long, value_name = "COUNT")]
    max_tasks: Option<u64>,
    /// Least severity that is logged: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "takes a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "takes a number of seconds above 0".to_owned())
}

/// What `svc-worker` does; 2 for arguments that cannot be worked with.
pub fn worker_main() -> ExitCode {
    if let Some(code) = serve_if_asked(std::env::args_os()) {
        return code;
    }
    run_to_end("svc-worker", run(Arguments::parse()))
}

async fn run(arguments: Arguments) -> Result<ExitCode, CliError> {
    let flags = |name: &'static str, value: Option<String>| value.map(|value| (name.to_owned(), value));
    let as_text = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string());
    // Flags win over the environment and are checked by the same rules.
    let environment = environment()
        .chain(flags("SVC_LOG_LEVEL", arguments.log_level))
        .chain(flags("SVC_WORKER_HEARTBEAT_SECONDS", as_text(arguments.heartbeat_seconds)))
        .chain(flags("SVC_WORKER_LEASE_SECONDS", as_text(arguments.lease_seconds)))
        .chain(flags("SVC_WORKER_REAP_SECONDS", as_text(arguments.reap_seconds)))
        .chain(flags("SVC_INGEST_WORKER_POLL_SECONDS", as_text(arguments.poll_seconds)))
        .chain(flags("SVC_WORKER_ID", arguments.worker_id));
    let settings = Arc::new(Settings::load(arguments.config.as_deref(), environment)?);
    logging::start(settings.log_level, settings.log_format);
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    let mut role = Role { drain: arguments.drain, max_tasks: arguments.max_tasks, ..Role::of(&settings) };
    if !arguments.badge.is_empty() {
        role.badges = arguments.badge;
    }
    let backend = Backend::join(&settings).await?;
    backend.check_schema().await?;
    let engine = load_engine(&settings).await?;
    let service = Service::new(settings, backend.pool.clone(), Some(engine), "");
    let mut worker = RunningWorker::start(role, service.tools(Reader::of_this_program()?), backend.options.clone())
        .await
        .map_err(crate::app::AppError::from)?;
    let ended = tokio::select! {
        () = asked_to_stop() => None,
        end = worker.wait() => Some(end),
    };
    worker.stop(DRAIN).await;
    backend.stop().await;
    match ended {
        Some(WorkerEnd::Failed(reason)) => Err(CliError::Other(format!("the worker failed: {reason}"))),
        _ => Ok(ExitCode::SUCCESS),
    }
}
