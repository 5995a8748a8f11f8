//! The command line of `svc-worker`.
use super::{
    CliError, not_withdrawn,
    output::{Output, go_on_unread, say},
    run_to_end,
    status::about,
};
use crate::{
    app::{Backend, DRAIN, asked_to_stop, excluding_others, load_embedders},
    blobs::Blobs,
    disk::Disk,
    feed,
    ingest::extension::TaskTypes,
    load::Load,
    logging, otlp,
    reader::{Reader, serve_if_asked},
    replicas::Replicas,
    secrets,
    service::Service,
    settings::{Settings, SettingsError},
    store::{
        self,
        admin::Outside,
        away::{self, Away},
        database,
    },
    worker::{Role, RunningWorker},
};
use clap::{Parser, Subcommand};
use std::{collections::BTreeMap, path::PathBuf, pin::pin, process::ExitCode, sync::Arc, time::Duration};
use svc_actors::WorkerEnd;

/// Works on the task queue of a service, on this machine or another.
#[derive(Parser)]
#[command(name = "svc-worker", version)]
struct Arguments {
    /// The settings file.
    #[arg(long, value_name = "PATH", global = true)]
    config: Option<PathBuf>,
    /// Takes tasks with this badge and tasks without one; may be repeated [default: takes every task].
    #[arg(long, value_name = "NAME")]
    badge: Vec<String>,
    /// Takes only tasks with one of its badges, and none without a badge.
    #[arg(long)]
    strict_badges: bool,
    /// The worker's name, written to claimed_by [default: host name and process id].
    #[arg(long, value_name = "NAME")]
    worker_id: Option<String>,
    /// The wait before the next look at a queue that was empty.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    poll_seconds: Option<Duration>,
    /// The time between two heartbeats.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    heartbeat_seconds: Option<Duration>,
    /// The silence after which a claim is taken back; at least 3 heartbeats.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    lease_seconds: Option<Duration>,
    /// The time between two looks for expired claims.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    reap_seconds: Option<Duration>,
    /// Ends when the queue is empty.
    #[arg(long)]
    drain: bool,
    /// Ends after this many tasks, not counting those that were put off.
    #[arg(long, value_name = "COUNT")]
    max_tasks: Option<u64>,
    /// The least severity that is logged: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Says what keeps tasks from running (unserved, no_handler, lapsed, stuck, starved, stalled, paused,
    /// batch_stalled, unequal_leases, read_only, connections, disk, blob_store, feed_away, standby_away, standby_behind), what no search by
    /// vectors finds (other_model), which derived facts are out of date (rules_failed), which search index runs out of
    /// numbers (index_numbers), and what tells that one server will not do for much longer (file_bytes, vector_memory,
    /// slow_searches, slow_ingestion, slow_bm25, slow_claims); exits with 1 if anything does.
    Doctor {
        /// Reports a task as starved, stalled or stuck once it could run and has waited for this long.
        #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "600")]
        patience_seconds: Duration,
        /// Prints JSON lines, the default for a pipe.
        #[arg(long)]
        json: bool,
    },
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "give a number of seconds above 0".to_owned())
}

/// Runs `svc-worker` with these task types and returns its exit code, which is 2 for unusable arguments.
pub fn worker_main(types: TaskTypes) -> ExitCode {
    if let Some(code) = serve_if_asked(std::env::args_os()) {
        return code;
    }
    let arguments = Arguments::parse();
    match secrets::withdrawn_environment(None) {
        Ok(environment) => run_to_end("svc-worker", run(arguments, environment, types)),
        Err(error) => not_withdrawn("svc-worker", &error),
    }
}

async fn run(
    arguments: Arguments,
    environment: BTreeMap<String, String>,
    types: TaskTypes,
) -> Result<ExitCode, CliError> {
    let flags = |name: &'static str, value: Option<String>| value.map(|value| (name.to_owned(), value));
    let as_text = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string());
    // Flags override the environment, and the same rules check them.
    let environment = environment
        .into_iter()
        .chain(flags("SVC_LOG_LEVEL", arguments.log_level))
        .chain(flags("SVC_WORKER_HEARTBEAT_SECONDS", as_text(arguments.heartbeat_seconds)))
        .chain(flags("SVC_WORKER_LEASE_SECONDS", as_text(arguments.lease_seconds)))
        .chain(flags("SVC_WORKER_REAP_SECONDS", as_text(arguments.reap_seconds)))
        .chain(flags("SVC_INGEST_WORKER_POLL_SECONDS", as_text(arguments.poll_seconds)))
        .chain(flags("SVC_WORKER_ID", arguments.worker_id));
    let settings = Arc::new(Settings::load(arguments.config.as_deref(), environment)?);
    let works = arguments.command.is_none();
    let exporter = if works { otlp::start(&settings, "svc-worker")? } else { None };
    logging::start(settings.log_level, settings.log_format, exporter.as_ref());
    if works {
        logging::tell_of_file(&settings);
    }
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    if let Some(Command::Doctor { patience_seconds, json }) = arguments.command {
        // Its exit code says more than that it is done.
        go_on_unread();
        return doctor(&settings, patience_seconds, Output::choose(json, false)).await;
    }
    let mut stop = pin!(asked_to_stop());
    let mut role = Role { drain: arguments.drain, max_tasks: arguments.max_tasks, ..Role::of(&settings) };
    if !arguments.badge.is_empty() {
        role.badges = arguments.badge;
    }
    role.strict_badges = arguments.strict_badges;
    if role.strict_badges && role.badges.is_empty() {
        let problem = "--strict-badges needs a badge: name one with --badge or SVC_WORKER_BADGE";
        return Err(SettingsError::Invalid(vec![problem.to_owned()]).into());
    }
    let reader = Reader::of_this_program().confined(&settings);
    let prepare = async {
        reader.check().await.map_err(crate::app::AppError::from)?;
        let backend = Backend::join(&settings).await?;
        database::check_writable(&backend.pool).await.map_err(crate::app::AppError::from)?;
        backend.check_schema().await?;
        for index in excluding_others(&backend.pool, &settings).await? {
            tracing::warn!(
                index,
                "an index keeps out other usetypes than SVC_BM25_EXCLUDE_USETYPES names here: set it for the services, which change the indexes"
            );
        }
        let (embedder, coming) = load_embedders(&settings).await?;
        let service = Service::new(settings, backend.pool.clone(), Some(embedder), "", reader);
        let service = service.with_task_types(types).with_coming(coming);
        let service = service.with_language().await.map_err(crate::app::AppError::from)?;
        let service = service.with_ocr().await.map_err(crate::app::AppError::from)?;
        Ok::<_, CliError>((backend, service))
    };
    let prepared = tokio::select! {
        biased;
        () = stop.as_mut() => None,
        prepared = prepare => Some(prepared?),
    };
    let Some((backend, service)) = prepared else {
        if let Some(exporter) = exporter {
            exporter.stop().await;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let mut worker = RunningWorker::start(role, service.tools(), backend.options.clone())
        .await
        .map_err(crate::app::AppError::from)?;
    let ended = tokio::select! {
        () = stop => None,
        end = worker.wait() => Some(end),
    };
    // A second signal means that nobody wants to wait, so whatever still runs is given back.
    worker.stop(DRAIN, asked_to_stop()).await;
    backend.stop().await;
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
    match ended {
        Some(WorkerEnd::Failed(reason)) => Err(CliError::Other(format!("the worker failed: {reason}"))),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Why the database's server can store nothing more, as far as it lets that be tried: one that takes no writes does not, nor one where this role may
/// make no temporary tables.
async fn no_room(pool: &sqlx::PgPool) -> sqlx::Result<Option<String>> {
    match database::try_room(pool).await {
        Ok(()) => Ok(None),
        Err(problem) if away::away(&problem) == Some(Away::DiskFull) => Ok(Some(format!("the database: {problem}"))),
        Err(problem) if away::away(&problem) == Some(Away::ReadOnly) || away::sql_state(&problem) == "42501" => {
            Ok(None)
        }
        Err(problem) => Err(problem),
    }
}

/// Reports what is wrong with the queue, the database, the disk, the object store, the broker and the standbys, and what grows beyond one server, one line per finding.
async fn doctor(settings: &Arc<Settings>, patience: Duration, output: Output) -> Result<ExitCode, CliError> {
    let backend = Backend::join(settings).await?;
    backend.check_schema().await?;
    let replicas = Replicas::new(settings, &backend.pool).map_err(crate::app::AppError::from)?;
    let findings = async {
        let standbys = match &replicas {
            Some(replicas) => {
                // One look does not tell how far behind a standby is.
                replicas.examine_until_known().await;
                replicas.troubles()
            }
            None => Vec::new(),
        };
        let room =
            [Disk::new(&settings.data_dir, settings.disk_least_free).check().err(), no_room(&backend.pool).await?];
        let stored = Blobs::new(settings).state(&backend.pool).await;
        let mut conn = backend.pool.acquire().await?;
        let workers = store::workers::alive(&mut conn).await?.len();
        let unfinished = store::queue::unfinished(&mut conn).await?;
        let state = store::queue::state(&unfinished, &store::queue::failed(&mut conn).await?);
        let outside = Outside {
            disk: room.into_iter().flatten().collect(),
            blob_store: stored.and_then(Result::err).map(|error| error.to_string()),
            feed: feed::broker::missing(settings).await.map(|error| (error.to_string(), 0.0)),
            standbys,
            // Without a move only a running service knows its model; what is being moved will be found.
            model: store::model_moves::served(&mut conn).await?.filter(|moved| !moved.moves).map(|moved| moved.serving),
            growth: Some(Load::new(settings).growth(&mut conn).await?),
        };
        let findings = store::admin::findings(&mut conn, patience, settings.batch_stall, outside).await?;
        Ok::<_, sqlx::Error>((findings, workers, state))
    }
    .await;
    if let Some(replicas) = &replicas {
        replicas.close().await;
    }
    backend.stop().await;
    let (findings, workers, state) =
        findings.map_err(|error| CliError::Other(format!("the queue cannot be read: {error}")))?;
    let waiting = state.pending + state.waiting_for_retry;
    let idle = workers == 0 && waiting > 0;
    match output {
        Output::Json => {
            for finding in &findings {
                Output::line(finding)?;
            }
            Output::line(
                &serde_json::json!({"healthy": findings.is_empty() && !idle, "workers": workers, "queue": state}),
            )?;
        }
        Output::Table => {
            if !findings.is_empty() {
                let rows: Vec<Vec<String>> = findings
                    .iter()
                    .map(|f| {
                        vec![
                            f.kind.to_string(),
                            about(f).to_owned(),
                            f.tasks.to_string(),
                            format!("{:.0} s", f.seconds),
                            f.remedy.clone(),
                        ]
                    })
                    .collect();
                Output::table(&["finding", "about", "tasks", "oldest", "what to do"], &rows)?;
            }
            if idle {
                say!("no worker is alive, and {waiting} tasks wait: start svc-worker");
            } else if findings.is_empty() {
                say!(
                    "healthy: {workers} workers, {} pending, {} held, {} to be tried again",
                    state.pending,
                    state.held,
                    state.waiting_for_retry
                );
            }
        }
    }
    Ok(if findings.is_empty() && !idle { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
