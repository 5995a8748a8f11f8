//! The command line of `svc-batch-worker`.
use super::{
    CliError, not_withdrawn,
    output::{Output, go_on_unread, say},
    run_to_end,
};
use crate::{
    app::{AppError, Backend, DRAIN, asked_to_stop, load_embedders},
    core::Wake,
    llm_batches::{Batching, Keeper, KeeperError, KeeperSettings, Mock, Provider, ProviderName},
    logging, otlp,
    reader::{Reader, serve_if_asked},
    secrets,
    service::Service,
    settings::{Settings, SettingsError},
    store::{self, llm_batches::BatchCaps},
    worker::{Role, RunningWorker, together::Together},
};
use clap::{Args, Parser, Subcommand};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    pin::{Pin, pin},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use svc_actors::{Lane, Lanes, WorkerEnd};
use svc_client::wire::LlmBatchResponse;
use tokio_util::sync::CancellationToken;

/// The time between two looks at the batches of the database.
const LOOK: Duration = Duration::from_secs(1);
/// The time between two looks for tasks to be put into batches together, after one that found only tasks which need more than one question.
const REST: Duration = Duration::from_secs(60);
/// The pause after the database could not be asked.
const PAUSE: Duration = Duration::from_secs(5);

/// Has summaries made, and facts extracted, by the batch interface of a provider, at about half the price and within a day.
///
/// Give `summarize:llm` and `extract:facts` a badge (SVC_TASK_BADGES) that only this worker has: a worker without a badge takes every task, and calls
/// the language model itself.
#[derive(Parser)]
#[command(name = "svc-batch-worker", version)]
struct Arguments {
    /// The settings file.
    #[arg(long, value_name = "PATH", global = true)]
    config: Option<PathBuf>,
    /// The least severity that is logged: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Puts the requests of tasks into batches, submits them, and applies what the provider answers.
    Run(Run),
    /// Shows the last batches.
    Status {
        /// Prints JSON lines, the default for a pipe.
        #[arg(long)]
        json: bool,
    },
    /// Shows the batches in which tasks have waited for too long, and exits with 1 if there are any.
    Stalled {
        /// How long a task may wait in a batch [default: SVC_BATCH_STALL_SECONDS, which is 26 hours].
        #[arg(long, value_name = "HOURS", value_parser = hours)]
        hours: Option<f64>,
        /// Prints JSON lines, the default for a pipe.
        #[arg(long)]
        json: bool,
    },
    /// Answers all requests that the mock provider has; each answer is the beginning of its text.
    Finalize {
        /// Only the mock provider can be told when its batches are over.
        #[arg(long, value_name = "NAME", default_value = "mock", value_parser = mock)]
        provider: ProviderName,
        /// The folder of the mock provider [default: SVC_BATCH_STORE, else batches in the data folder].
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
    },
    /// Asks for the end of batches. Their tasks are tried again, except those that were answered until then.
    Cancel {
        /// The numbers of batches, as `status` shows them.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Vec<i64>,
        /// Every batch that has not ended.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Args)]
struct Run {
    /// Who answers: mock, openai or anthropic.
    #[arg(long, value_name = "NAME", value_parser = |name: &str| name.parse::<ProviderName>().map_err(|error| error.to_string()))]
    provider: ProviderName,
    /// Takes tasks with this badge and tasks without one; may be repeated [default: takes every task].
    #[arg(long, value_name = "NAME")]
    badge: Vec<String>,
    /// The model, for files whose options name none [default: SVC_LLM_MODEL].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The folder that keeps what was sent and what came, readable for its owner alone, for SVC_BATCH_KEEP_DAYS; for the mock provider its own
    /// [default: nothing is kept; for the mock provider SVC_BATCH_STORE, else batches in the data folder].
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// The provider's address, including its /v1 [default: SVC_BATCH_OPENAI_URL or SVC_BATCH_ANTHROPIC_URL]. SVC_BATCH_OPENAI_KEY or
    /// SVC_BATCH_ANTHROPIC_KEY is the key.
    #[arg(long, value_name = "URL")]
    llm_url: Option<String>,
    /// Applies what is answered, submits what waits, and ends.
    #[arg(long)]
    once: bool,
    /// How long a batch waits for more requests.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300")]
    wait_seconds: Duration,
    /// The time between two looks at the provider.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    poll_seconds: Duration,
    /// The most requests of one batch, if fewer than the provider takes.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..))]
    max_requests: Option<i64>,
    /// The most bytes of one batch, if fewer than the provider takes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(i64).range(1..))]
    max_bytes: Option<i64>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "give a number of seconds, 0 or more".to_owned())
}

fn hours(text: &str) -> Result<f64, String> {
    let hours: f64 = text.parse().map_err(|_| "give a number of hours".to_owned())?;
    Some(hours).filter(|hours| (0.0..=8760.0).contains(hours)).ok_or_else(|| "give 0 to 8760 hours".to_owned())
}

fn mock(name: &str) -> Result<ProviderName, String> {
    match name.parse() {
        Ok(ProviderName::Mock) => Ok(ProviderName::Mock),
        Ok(other) => Err(format!("{other} itself decides when its batches are over; only mock can be told")),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs `svc-batch-worker` and returns its exit code, which is 2 for unusable arguments.
pub fn batch_worker_main() -> ExitCode {
    if let Some(code) = serve_if_asked(std::env::args_os()) {
        return code;
    }
    let arguments = Arguments::parse();
    match secrets::withdrawn_environment(None) {
        Ok(environment) => run_to_end("svc-batch-worker", run(arguments, environment)),
        Err(error) => not_withdrawn("svc-batch-worker", &error),
    }
}

async fn run(arguments: Arguments, environment: BTreeMap<String, String>) -> Result<ExitCode, CliError> {
    let level = arguments.log_level.map(|level| ("SVC_LOG_LEVEL".to_owned(), level));
    let settings = Arc::new(Settings::load(arguments.config.as_deref(), environment.into_iter().chain(level))?);
    let works = matches!(arguments.command, Command::Run(_));
    let exporter = if works { otlp::start(&settings, "svc-batch-worker")? } else { None };
    logging::start(settings.log_level, settings.log_format, exporter.as_ref());
    match arguments.command {
        Command::Run(run) => {
            let ended = work(settings, run).await;
            if let Some(exporter) = exporter {
                exporter.stop().await;
            }
            ended
        }
        Command::Finalize { provider: _, store } => {
            let store = mock_store(&settings, store);
            let done = tokio::task::spawn_blocking({
                let store = store.clone();
                move || Mock::finalize(&store)
            });
            let done = done.await.map_err(|error| CliError::Other(error.to_string()))?;
            let count = done.map_err(|error| CliError::Other(format!("{}: {error}", store.display())))?;
            say!("batches answered: {count}; svc-batch-worker run applies the answers");
            Ok(ExitCode::SUCCESS)
        }
        Command::Status { json } => {
            let batches = batches(&settings, settings.batch_stall, false).await?;
            show(&batches, Output::choose(json, false))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Stalled { hours, json } => {
            // Its exit code says more than that it is done.
            go_on_unread();
            let patience = hours.map_or(settings.batch_stall, |hours| Duration::from_secs_f64(hours * 3600.0));
            let stalled = batches(&settings, patience, true).await?;
            show(&stalled, Output::choose(json, false))?;
            Ok(if stalled.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Cancel { id, all } => cancel(&settings, id, all).await,
    }
}

fn unusable(problem: impl Into<String>) -> CliError {
    SettingsError::Invalid(vec![problem.into()]).into()
}

/// The provider that the arguments name, and how it is asked.
fn provider(settings: &Settings, run: &Run) -> Result<(Provider, Arc<Batching>), CliError> {
    let or = |first: Option<&str>, second: &str| first.filter(|text| !text.is_empty()).unwrap_or(second).to_owned();
    let model = or(run.model.as_deref(), &settings.llm_model);
    let model = match (model.as_str(), run.provider) {
        ("", ProviderName::Mock) => "mock".to_owned(),
        ("", _) => return Err(unusable("name the model with --model or SVC_LLM_MODEL")),
        _ => model,
    };
    let url = run.llm_url.as_deref();
    let provider = match run.provider {
        ProviderName::OpenAi => {
            Provider::openai(&or(url, &settings.batch_openai_url), settings.batch_openai_key.clone())
        }
        ProviderName::Anthropic => {
            Provider::anthropic(&or(url, &settings.batch_anthropic_url), settings.batch_anthropic_key.clone())
        }
        ProviderName::Mock => Ok(Provider::Mock(Mock::new(mock_store(settings, run.store.clone())))),
    };
    let provider = provider.map_err(|error| unusable(error.to_string()))?;
    let most = run.provider.caps();
    let caps = BatchCaps {
        requests: run.max_requests.unwrap_or(most.requests).min(most.requests),
        bytes: run.max_bytes.unwrap_or(most.bytes).min(most.bytes),
    };
    Ok((provider, Batching::new(run.provider, model, caps)))
}

/// The folder of the mock provider.
fn mock_store(settings: &Settings, named: Option<PathBuf>) -> PathBuf {
    let known =
        [named, Some(settings.batch_store.clone())].into_iter().flatten().find(|path| !path.as_os_str().is_empty());
    known.unwrap_or_else(|| settings.data_dir.join("batches"))
}

async fn work(settings: Arc<Settings>, run: Run) -> Result<ExitCode, CliError> {
    logging::tell_of_file(&settings);
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    let (provider, batching) = provider(&settings, &run)?;
    let mut stop = pin!(asked_to_stop());
    let mut role = Role { drain: run.once, ..Role::of(&settings) };
    if !run.badge.is_empty() {
        role.badges.clone_from(&run.badge);
    }
    let reader = Reader::of_this_program().confined(&settings);
    let joining = async {
        let backend = Backend::join(&settings).await?;
        store::database::check_writable(&backend.pool).await.map_err(AppError::from)?;
        backend.check_schema().await?;
        Ok::<_, CliError>(backend)
    };
    let joined = tokio::select! {
        biased;
        () = stop.as_mut() => None,
        joined = joining => Some(joined?),
    };
    let Some(backend) = joined else { return Ok(ExitCode::SUCCESS) };
    // The mock provider keeps its requests and results itself.
    let store = run.store.clone().filter(|_| run.provider != ProviderName::Mock);
    let keeper = KeeperSettings {
        provider,
        batching: batching.clone(),
        store,
        spool: settings.data_dir.join("spool"),
        wait: run.wait_seconds,
        poll: run.poll_seconds,
        kept: Duration::from_secs_f64(settings.batch_keep_days * 86_400.0),
    };
    let mut keeper = Keeper::new(backend.pool.clone(), keeper);
    let stopping = keeper.stopping();
    // The model is read while the answers of providers are kept. A provider that is just being told of a batch answers even if the worker is to stop.
    let beginning = async {
        tokio::select! {
            begun = begin(&mut keeper, run.once, settings.worker_lease, &stopping) => begun,
            () = late(&stopping) => Ok(false),
        }
    };
    let loading = async {
        tokio::select! {
            biased;
            () = stopping.cancelled() => None,
            loaded = load_embedders(&settings) => Some(loaded),
        }
    };
    let both = async { tokio::join!(beginning, loading) };
    let (begun, loaded) = stopped_by(stop.as_mut(), &stopping, both).await;
    let has_answers = begun.map_err(|error| CliError::Other(error.to_string()))?;
    let Some(loaded) = loaded.filter(|_| !stopping.is_cancelled()) else {
        backend.stop().await;
        return Ok(ExitCode::SUCCESS);
    };
    let (embedder, coming) = loaded?;
    let service = Service::new(settings, backend.pool.clone(), Some(embedder), "", reader);
    let service = service.with_batching(batching).with_coming(coming).with_language().await.map_err(AppError::from)?;
    let (wake, lease) = (service.wake.clone(), service.settings.worker_lease);
    let tools = service.tools();
    let together = Together::new(&role, tools.clone());
    if run.once {
        // The worker ends as soon as it finds nothing to do.
        let first = async {
            if has_answers {
                together.apply().await;
            }
            together.ask().await;
        };
        let first = async {
            tokio::select! {
                () = first => {}
                () = stopping.cancelled() => {}
            }
        };
        stopped_by(stop.as_mut(), &stopping, first).await;
        if stopping.is_cancelled() {
            tokio::select! {
                () = together.stop() => {}
                () = late(&stopping) => {}
            }
            backend.stop().await;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let mut worker = RunningWorker::start(role, tools, backend.options.clone()).await.map_err(AppError::from)?;
    let working = async {
        let ended = tokio::select! {
            () = stop.as_mut() => {
                stopping.cancel();
                Ok(())
            }
            end = worker.wait() => match end {
                WorkerEnd::Failed(reason) => Err(CliError::Other(format!("the worker failed: {reason}"))),
                _ => Ok(()),
            },
            () = stopping.cancelled() => Ok(()),
        };
        // What was asked for once is submitted when the worker has ended.
        if !run.once {
            stopping.cancel();
        }
        // What takes longer is left: answers to the next worker, and what was claimed to its lease.
        let _ = tokio::time::timeout(DRAIN, together.stop()).await;
        // A second signal means that nobody wants to wait, so whatever still runs is given back.
        worker.stop(DRAIN, asked_to_stop()).await;
        ended
    };
    let keeping = async {
        if run.once {
            return Ok(());
        }
        let kept = tokio::select! {
            kept = keep(&mut keeper, &together, has_answers, &wake, lease, &stopping) => kept,
            // A provider that is just being told of a batch says under which name it has it, which nobody else can tell.
            () = late(&stopping) => Ok(()),
        };
        stopping.cancel();
        kept
    };
    let (ended, kept) = tokio::join!(working, keeping);
    let ended = ended.and(kept.map_err(|error| CliError::Other(error.to_string())));
    let ended = match ended {
        Ok(()) if run.once && !stopping.is_cancelled() => {
            let last = async {
                tokio::select! {
                    passed = keeper.pass(true) => passed.map(|_| ()),
                    () = late(&stopping) => Ok(()),
                }
            };
            match stopped_by(stop.as_mut(), &stopping, last).await {
                Ok(()) => keeper.problem().map_or(Ok(()), |problem| Err(CliError::Other(problem.to_owned()))),
                Err(error) => Err(CliError::Other(error.to_string())),
            }
        }
        ended => ended,
    };
    backend.stop().await;
    ended.map(|()| ExitCode::SUCCESS)
}

/// Moves batches on for the first time; returns whether any has ended now. A worker that was killed a moment ago may still seem to have the right to do
/// so. What that one left of earlier batches may be what killed it, so these answers are applied by tasks of their own, whose lost leases count.
async fn begin(
    keeper: &mut Keeper,
    hurry: bool,
    lease: Duration,
    stopping: &CancellationToken,
) -> Result<bool, KeeperError> {
    let begun = Instant::now();
    while !stopping.is_cancelled() {
        match keeper.pass(hurry).await {
            Err(KeeperError::Another) if begun.elapsed() < lease => tokio::select! {
                () = tokio::time::sleep(LOOK / 5) => {}
                () = stopping.cancelled() => {}
            },
            ended => return ended,
        }
    }
    Ok(false)
}

/// Does work that ends soon after `stopping` is cancelled, which `stop` does.
async fn stopped_by<T>(
    stop: Pin<&mut impl Future<Output = ()>>,
    stopping: &CancellationToken,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        () = stop => {
            stopping.cancel();
            work.await
        }
        done = work.as_mut() => done,
    }
}

/// Resolves when what was to stop has had its time, or is asked to stop once more.
async fn late(stopping: &CancellationToken) {
    stopping.cancelled().await;
    tokio::select! {
        () = tokio::time::sleep(DRAIN) => {}
        () = asked_to_stop() => {}
    }
}

/// Moves batches on until it is to stop, or another has had the right to do so for as long as a lease.
async fn keep(
    keeper: &mut Keeper,
    together: &Together,
    mut has_answers: bool,
    wake: &Wake,
    lease: Duration,
    stopping: &CancellationToken,
) -> Result<(), KeeperError> {
    let (mut led, mut next_ask) = (Instant::now(), Instant::now());
    while !stopping.is_cancelled() {
        let pause = match keeper.pass(false).await {
            // The next worker applies what has ended.
            Ok(_) if stopping.is_cancelled() => break,
            Ok(ended) => {
                led = Instant::now();
                if ended || has_answers {
                    has_answers = false;
                    together.apply().await;
                    wake.notify(Lanes::of(Lane::Llm));
                }
                if Instant::now() >= next_ask && !stopping.is_cancelled() && !together.ask().await {
                    next_ask = Instant::now() + REST;
                }
                LOOK
            }
            Err(KeeperError::Database(error)) => {
                tracing::warn!(error = %error, "the database cannot be asked about batches; it is tried again");
                PAUSE
            }
            Err(KeeperError::Another) if led.elapsed() < lease => LOOK,
            Err(error @ KeeperError::Another) => return Err(error),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopping.cancelled() => {}
        }
    }
    Ok(())
}

/// The last batches, or all that are stalled.
async fn batches(
    settings: &Settings,
    patience: Duration,
    are_stalled: bool,
) -> Result<Vec<LlmBatchResponse>, CliError> {
    let backend = Backend::join(settings).await?;
    backend.check_schema().await?;
    let read = async {
        let mut conn = backend.pool.acquire().await?;
        match are_stalled {
            true => store::llm_batches::stalled(&mut conn, patience).await,
            false => store::llm_batches::list(&mut conn, i64::MAX, 1000, patience).await,
        }
    };
    let batches = read.await;
    backend.stop().await;
    batches.map_err(|error| CliError::Other(format!("the batches cannot be read: {error}")))
}

/// Requests the end of all of these batches, or of none if an error ends it.
async fn cancel(settings: &Settings, ids: Vec<i64>, all: bool) -> Result<ExitCode, CliError> {
    let backend = Backend::join(settings).await?;
    backend.check_schema().await?;
    let cancelled = async {
        let nothing = |error: sqlx::Error| CliError::Other(format!("nothing was cancelled: {error}"));
        let mut tx = store::transaction::begin(&backend.pool).await.map_err(nothing)?;
        let ids = if all { store::llm_batches::not_ended(&mut tx).await.map_err(nothing)? } else { ids };
        // Two of these that lock the same batches do so in the same order.
        let ids: BTreeSet<i64> = ids.into_iter().collect();
        let mut unknown = Vec::new();
        for id in &ids {
            if !store::llm_batches::cancel(&mut tx, *id).await.map_err(nothing)? {
                unknown.push(*id);
            }
        }
        tx.commit().await.map_err(|error| {
            let remedy = "`svc-batch-worker status` shows it, and the same command again does no harm";
            CliError::Other(format!("it is not known whether the batches will end: {error}; {remedy}"))
        })?;
        let count = ids.len() - unknown.len();
        if all {
            // What has ended meanwhile is as it was to be.
            unknown.clear();
        }
        Ok::<_, CliError>((count, unknown))
    }
    .await;
    backend.stop().await;
    let (count, unknown) = cancelled?;
    if count > 0 {
        say!("batches that will end: {count}; svc-batch-worker run tells their provider");
    }
    match unknown.as_slice() {
        [] => Ok(ExitCode::SUCCESS),
        unknown => {
            let unknown: Vec<String> = unknown.iter().map(i64::to_string).collect();
            Err(CliError::Other(format!("no batch that has not ended has the number {}", unknown.join(", "))))
        }
    }
}

fn show(batches: &[LlmBatchResponse], output: Output) -> Result<(), CliError> {
    match output {
        Output::Json => batches.iter().try_for_each(Output::line).map_err(CliError::from),
        Output::Table if batches.is_empty() => {
            say!("no batches");
            Ok(())
        }
        Output::Table => {
            let rows: Vec<Vec<String>> = batches.iter().map(row).collect();
            Output::table(
                &["batch", "provider", "model", "state", "tasks", "requests", "answered", "age", "problem"],
                &rows,
            )?;
            Ok(())
        }
    }
}

fn row(batch: &LlmBatchResponse) -> Vec<String> {
    let state = match batch.outcome {
        Some(outcome) => outcome.to_string(),
        None if batch.cancel_requested_at.is_some() => "cancelling".to_owned(),
        None => batch.state.to_string(),
    };
    let state = if batch.stalled { format!("{state}, stalled") } else { state };
    let age = (chrono::Utc::now() - batch.opened_at).num_minutes();
    vec![
        batch.id.to_string(),
        batch.provider.clone(),
        batch.model.clone(),
        state,
        batch.tasks.to_string(),
        batch.requests.to_string(),
        batch.answered.to_string(),
        format!("{}:{:02} h", age / 60, age % 60),
        batch.problem.clone().unwrap_or_default(),
    ]
}
