//! Puts a whole process together (database, model, service, worker, listener) and takes it down in order.
use crate::{
    console,
    embedded::{EmbeddedError, EmbeddedPostgres, ServerState},
    embedding::{EmbedError, Embedder, Runner},
    events::sequencer,
    feed,
    ingest::extension::TaskTypes,
    listener::{self, Limits},
    ocr,
    reader::{Reader, Unconfined},
    registry,
    search::maxsim::widths_problem,
    service::Service,
    settings::{Migrate, Settings, hub_settings, model_settings},
    store::{
        database::{self, DatabaseError},
        indexes::{self, IndexError, SearchIndex, manage},
        leases, schema, transaction, vectors,
    },
    telemetry, webhooks,
    worker::{Role, RunningWorker, unserved, wakeup},
};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};
use svc_actors::WorkerError;
use svc_ids::IndexId;
use svc_models::{Engine, ModelError, Progress, fetch_model};
use svc_ranking::{ANALYZER_VERSION, AnalyzerConfig, Config};
use tokio::{net::TcpListener, sync::watch};

/// How long the end of a process waits for unfinished work.
pub const DRAIN: Duration = Duration::from_secs(20);

/// How long a start waits until the indexes keep out other usetypes.
const EXCLUDES_FIRST: Duration = Duration::from_secs(5);
/// The time between two tries to have an index do so.
const EXCLUDES_AGAIN: Duration = Duration::from_secs(5);

/// Why a process does not start or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("the model of SVC_RERANKER_MODEL cannot be used: {0}")]
    Reranker(ModelError),
    #[error(transparent)]
    Embed(#[from] EmbedError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error(transparent)]
    Unconfined(#[from] Unconfined),
    #[error(transparent)]
    Ocr(#[from] ocr::Unusable),
    #[error("cannot listen on {address}: {source}; choose another SVC_LISTEN")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("the console cannot listen on {address}: {source}; choose another SVC_CONSOLE_LISTEN")]
    ConsoleListen { address: SocketAddr, source: std::io::Error },
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Ended(String),
    #[error("asked to stop before everything had started")]
    Stopped,
}

/// The database of a process, and its server if that is our own.
pub struct Backend {
    pub options: PgConnectOptions,
    pub pool: PgPool,
    embedded: Option<EmbeddedPostgres>,
}

impl Backend {
    /// Connects for the service; starts our own server if no other is named.
    pub async fn start(settings: &Settings) -> Result<Backend, AppError> {
        Backend::start_unless(settings, std::future::pending()).await
    }

    /// Does the same, unless `stop` completes before. The start of our own server is waited for all the same, because one that is half started
    /// cannot be stopped in order.
    async fn start_unless(settings: &Settings, stop: impl Future<Output = ()>) -> Result<Backend, AppError> {
        let (options, embedded) = if settings.database_url.is_blank() {
            let embedded = EmbeddedPostgres::start(&settings.data_dir, &settings.postgres_home).await?;
            (embedded.connect_options(), Some(embedded))
        } else {
            (database::options(settings.database_url.expose())?, None)
        };
        let backend = Backend::on(options, settings, embedded);
        let prepared = tokio::select! {
            biased;
            () = stop => Err(AppError::Stopped),
            prepared = backend.prepare(settings) => prepared,
        };
        if let Err(error) = prepared {
            backend.stop().await;
            return Err(error);
        }
        Ok(backend)
    }

    /// Connects for a worker or a tool beside a running service; never starts a server.
    pub async fn join(settings: &Settings) -> Result<Backend, AppError> {
        let options = if settings.database_url.is_blank() {
            EmbeddedPostgres::connect_options_of(&settings.data_dir)?
        } else {
            database::options(settings.database_url.expose())?
        };
        let backend = Backend::on(options, settings, None);
        database::check_server(&backend.pool).await?;
        Ok(backend)
    }

    fn on(options: PgConnectOptions, settings: &Settings, embedded: Option<EmbeddedPostgres>) -> Backend {
        let connections = u32::try_from(settings.database_pool_size).unwrap_or(u32::MAX);
        Backend { pool: database::pool(options.clone(), connections, settings.worker_lease), options, embedded }
    }

    async fn prepare(&self, settings: &Settings) -> Result<(), AppError> {
        database::check_server(&self.pool).await?;
        database::check_writable(&self.pool).await?;
        if self.embedded.is_some() || settings.migrate == Migrate::Auto {
            schema::migrate(&self.pool).await?;
        }
        self.check_schema().await?;
        if self.embedded.is_some() {
            self.reap_predecessor().await?;
        }
        self.compare_parts(settings).await?;
        weigh_indexes(&self.pool, settings).await
    }

    /// Takes back at once the tasks of a service that was killed on this data folder, instead of waiting for their leases. This process holds
    /// the folder's lock, so that service is dead, and so is the database server to which its worker wrote last.
    async fn reap_predecessor(&self) -> Result<(), AppError> {
        let mut tx = transaction::begin(&self.pool).await.map_err(DatabaseError::from)?;
        let reaped = leases::reap_holders_of_folder(&mut tx).await.map_err(DatabaseError::from)?;
        tx.commit().await.map_err(DatabaseError::from)?;
        if !reaped.again.is_empty() {
            tracing::info!(
                tasks = reaped.again.len(),
                "took back the tasks of a service that was killed on this data folder"
            );
        }
        Ok(())
    }

    /// Says so if the vectors are in other parts than the settings want. Searches are right in any form.
    async fn compare_parts(&self, settings: &Settings) -> Result<(), AppError> {
        let mut conn = self.pool.acquire().await.map_err(DatabaseError::from)?;
        let parts = vectors::parts(&mut conn).await.map_err(DatabaseError::from)?;
        if parts != settings.vector_partitions {
            tracing::warn!(
                parts,
                wanted = settings.vector_partitions,
                "the vectors are not in the parts that SVC_VECTOR_PARTITIONS wants: run svc reindex --vectors"
            );
        }
        Ok(())
    }

    /// Refuses to work on a schema that is behind or ahead of this program.
    pub async fn check_schema(&self) -> Result<(), AppError> {
        Ok(schema::read(&self.pool).await?.check()?)
    }

    /// The state of our own server, if there is one.
    fn state(&self) -> Option<watch::Receiver<ServerState>> {
        self.embedded.as_ref().map(EmbeddedPostgres::state)
    }

    /// Closes the connections and stops our own server.
    pub async fn stop(self) {
        // A connection whose last statement was cut off is open for as long as that runs.
        if tokio::time::timeout(DRAIN, self.pool.close()).await.is_err() {
            tracing::warn!("connections to the database are cut off, because their statements do not end");
        }
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

/// Gives the default index the weights and the language that somebody has set; the others stay as they are, because a process beside the services,
/// such as a runner, may have been told none of them. An index that another version of the analyzer made is emptied,
/// to be built anew by a worker; so is the default one if the language has changed, and with it the words of full text. If titles count
/// otherwise, a worker builds it anew as well, and what it holds is found until then. All indexes keep out the usetypes that somebody has set, and a worker adds and takes out what
/// they did not.
pub async fn weigh_indexes(pool: &PgPool, settings: &Settings) -> Result<(), AppError> {
    let ended = |error: IndexError| AppError::Ended(error.to_string());
    let mut conn = pool.acquire().await.map_err(DatabaseError::from)?;
    let all = indexes::list(&mut conn, IndexId(0), i64::MAX).await.map_err(DatabaseError::from)?;
    drop(conn);
    let others: Vec<SearchIndex> = of_other_usetypes(&all, settings).cloned().collect();
    for index in all {
        let old = index.config.0;
        let mut config = Config { analyzer: AnalyzerConfig { version: ANALYZER_VERSION, ..old.analyzer }, ..old };
        if index.name == indexes::DEFAULT {
            if settings.is_set("SVC_BM25_K1") {
                config.k1 = settings.bm25_k1;
            }
            if settings.is_set("SVC_BM25_B") {
                config.b = settings.bm25_b;
            }
            if settings.is_set("SVC_BM25_TITLE_WEIGHT") {
                config.title_weight = u32::try_from(settings.bm25_title_weight).unwrap_or(u32::MAX);
            }
            if settings.is_set("SVC_TITLE_PATHS") {
                config.title_paths = settings.title_paths;
            }
            if settings.is_set("SVC_LANGUAGE") && settings.language != config.analyzer.language {
                config.analyzer = AnalyzerConfig { language: settings.language, ..AnalyzerConfig::default() };
            }
        }
        if old.analyzer.version > ANALYZER_VERSION {
            continue;
        }
        if config == old {
            continue;
        }
        tracing::info!(index = index.name, ?config, "an index is configured anew");
        // A transaction for each: who holds the row of one index must not wait for the compaction of another.
        let mut tx = transaction::begin(pool).await.map_err(DatabaseError::from)?;
        if config.same_postings(&old) {
            indexes::configure(&mut tx, index.id, &config).await.map_err(ended)?;
        } else {
            let now = manage::lock(&mut tx, index.id).await.map_err(ended)?;
            // Of processes that start together, the first one has it built anew.
            if now != config {
                manage::build_anew(&mut tx, index.id, &now, &config).await.map_err(ended)?;
            }
        }
        tx.commit().await.map_err(DatabaseError::from)?;
    }
    keep_out(pool, others, settings.bm25_exclude_usetypes.clone()).await
}

/// Those of these indexes that keep out other usetypes than somebody has set.
fn of_other_usetypes<'a>(indexes: &'a [SearchIndex], settings: &Settings) -> impl Iterator<Item = &'a SearchIndex> {
    let set: BTreeSet<String> = settings.bm25_exclude_usetypes.iter().cloned().collect();
    let is_set = settings.is_set("SVC_BM25_EXCLUDE_USETYPES");
    indexes.iter().filter(move |index| {
        let is_ours = index.config.analyzer.version <= ANALYZER_VERSION;
        is_set && is_ours && index.excluded.iter().cloned().collect::<BTreeSet<_>>() != set
    })
}

/// The names of the indexes that keep out other usetypes than somebody has set. Only a service changes them: any other process goes by what they keep out.
pub async fn excluding_others(pool: &PgPool, settings: &Settings) -> Result<Vec<String>, AppError> {
    let mut conn = pool.acquire().await.map_err(DatabaseError::from)?;
    let all = indexes::list(&mut conn, IndexId(0), i64::MAX).await.map_err(DatabaseError::from)?;
    Ok(of_other_usetypes(&all, settings).map(|index| index.name.clone()).collect())
}

/// Keeps these usetypes out of the indexes, and no others. That waits until nobody creates nodes, for which there may be no room for long, so a start does not wait for it:
/// it goes on until it is done or the pool is closed.
async fn keep_out(pool: &PgPool, indexes: Vec<SearchIndex>, usetypes: Vec<String>) -> Result<(), AppError> {
    if indexes.is_empty() {
        return Ok(());
    }
    let owned = pool.clone();
    let work = async move {
        for index in indexes {
            // Services that are told different lists undo each other's at each start, which the log has to show.
            tracing::warn!(index = index.name, before = ?index.excluded, now = ?usetypes, "other usetypes are kept out of an index");
            while let Err(error) = exclude(&owned, index.id, &usetypes).await {
                tracing::warn!(index = index.name, %error, "SVC_BM25_EXCLUDE_USETYPES has not reached an index yet; it is tried again");
                tokio::time::sleep(EXCLUDES_AGAIN).await;
            }
        }
    };
    let mut closing = pool.close_event();
    let mut working = tokio::spawn(async move {
        // What a closed pool leaves undone, the next start does.
        let _ = closing.do_until(work).await;
    });
    match tokio::time::timeout(EXCLUDES_FIRST, &mut working).await {
        Ok(ended) => ended.map_err(|error| AppError::Ended(error.to_string())),
        Err(_) => Ok(()),
    }
}

/// Keeps these usetypes, and no others, out of an index.
async fn exclude(pool: &PgPool, index: IndexId, usetypes: &[String]) -> sqlx::Result<()> {
    let mut tx = transaction::begin_covering(pool, Some(index)).await?;
    manage::exclude(&mut tx, index, usetypes).await?;
    tx.commit().await
}

/// Loads the models of the settings, or connects to the runners that they name: the one that serves, and the coming one if there is any. Refuses
/// a model that lacks a width of token vectors that the settings ask for.
pub async fn load_embedders(settings: &Settings) -> Result<(Embedder, Option<Embedder>), AppError> {
    let embedder = load_embedder(settings).await?;
    let coming = match settings.coming() {
        None => None,
        Some(coming) if coming.has_model_of(settings) => Some(embedder.clone()),
        Some(coming) => Some(load_embedder(&coming).await?),
    };
    // If the runner is still unreachable, its model's width is not known yet.
    for embedder in std::iter::once(&embedder).chain(&coming) {
        if let Ok(model) = embedder.model().await
            && let Some(problem) = widths_problem(settings, model.name(), model.native_width())
        {
            return Err(AppError::Ended(problem));
        }
    }
    Ok((embedder, coming))
}

/// Loads the model of the settings, or connects to the runner that they name.
pub async fn load_embedder(settings: &Settings) -> Result<Embedder, AppError> {
    if settings.runner_url.is_empty() {
        return Ok(load_engine(settings).await?.into());
    }
    let embedder = Embedder::There(Runner::new(settings)?);
    match embedder.model().await {
        Ok(_) => {}
        // The runner may be started after this process, which can do everything else meanwhile.
        Err(error @ EmbedError::Away { .. }) => {
            tracing::warn!(error = %error, "the runner is not reachable yet; whatever needs vectors waits for it");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(embedder)
}

/// Loads the model of the settings, and fetches it first if it is missing.
async fn load_engine(settings: &Settings) -> Result<Engine, AppError> {
    fetch_model(&settings.embedding_model, Some(&settings.models_dir()), &hub_settings(settings), &log_progress())
        .await?;
    let settings = model_settings(settings);
    let engine = tokio::task::spawn_blocking(move || Engine::load(&settings))
        .await
        .map_err(|e| AppError::Ended(e.to_string()))??;
    tracing::info!(model = engine.info().identity, device = engine.info().device, "the model is loaded");
    Ok(engine)
}

/// Logs now and then how much of a model has been fetched.
fn log_progress() -> impl Fn(Progress<'_>) + Sync {
    const EVERY: Duration = Duration::from_secs(5);
    let logged_at = Mutex::new(Instant::now());
    move |progress| {
        // A lock that was poisoned by a panic still holds a valid time.
        let mut logged_at = logged_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if logged_at.elapsed() >= EVERY {
            *logged_at = Instant::now();
            tracing::info!(file = progress.file, bytes = progress.bytes, total = progress.total, "fetching the model");
        }
    }
}

/// Loads the reranker if its files are on this machine. It is optional: without it everything but reranking works, and
/// nothing is fetched.
async fn load_cross_encoder(service: &Service) -> Result<(), AppError> {
    match service.cross_encoder.get(service.beside()).await {
        Ok(_) => Ok(()),
        Err(ModelError::FolderMissing { name, .. }) => {
            tracing::info!("no cross-encoder reranks searches until `svc models fetch {name}` has fetched it");
            Ok(())
        }
        Err(error) => Err(AppError::Reranker(error)),
    }
}

/// Listens for the console. If its usual port is taken, as by another service on this machine, the service goes on without it.
async fn listen_for_console(settings: &Settings) -> Result<Option<TcpListener>, AppError> {
    let Some(address) = settings.console_listen else { return Ok(None) };
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(source) if source.kind() == std::io::ErrorKind::AddrInUse && settings.is_default("SVC_CONSOLE_LISTEN") => {
            tracing::warn!(%address, "the port of the console is taken, so there is none: set SVC_CONSOLE_LISTEN");
            Ok(None)
        }
        Err(source) => Err(AppError::ConsoleListen { address, source }),
    }
}

/// A service that listens and, if the settings say so, works on the queue.
pub struct App {
    pub service: Arc<Service>,
    pub address: SocketAddr,
    /// Where the console listens, if it does.
    pub console: Option<SocketAddr>,
    backend: Backend,
    worker: Option<RunningWorker>,
    server: tokio::task::JoinHandle<()>,
    console_server: Option<tokio::task::JoinHandle<()>>,
    stop_server: watch::Sender<bool>,
}

impl App {
    /// Starts everything. `reader` is the program that reads files in a child process.
    pub async fn start(settings: Arc<Settings>, owner_token: &str, reader: Reader) -> Result<App, AppError> {
        App::start_with(settings, owner_token, reader, TaskTypes::default(), std::future::pending()).await
    }

    /// Does the same with task types that another crate registered. If `stop` completes before everything has started, what has is stopped, and this
    /// fails with [`AppError::Stopped`].
    pub async fn start_with(
        settings: Arc<Settings>,
        owner_token: &str,
        reader: Reader,
        types: TaskTypes,
        stop: impl Future<Output = ()>,
    ) -> Result<App, AppError> {
        let mut stop = std::pin::pin!(stop);
        let reader = reader.confined(&settings);
        reader.check().await?;
        let backend = Backend::start_unless(&settings, stop.as_mut()).await?;
        let started = async {
            let (service, listener, console) = tokio::select! {
                biased;
                () = stop => return Err(AppError::Stopped),
                prepared = App::prepare(settings, owner_token, reader, types, &backend) => prepared?,
            };
            // A worker that has begun may hold tasks, so from here on everything is stopped in order.
            let worker = App::begin(&service, &backend).await?;
            Ok::<_, AppError>((service, worker, listener, console))
        }
        .await;
        match started {
            Ok((service, worker, listener, console)) => {
                let address = listener.local_addr()?;
                let (stop_server, stopped) = watch::channel(false);
                let (router, limits) = (registry::router(service.clone()), Limits::of(&service.settings));
                let server = tokio::spawn(listener::serve(listener, router, limits, stopped.clone()));
                let console = console.map(|listener| Ok::<_, std::io::Error>((listener.local_addr()?, listener)));
                let (console, console_server) = match console.transpose()? {
                    Some((address, listener)) => {
                        if !address.ip().is_loopback() {
                            tracing::warn!(%address, "the console listens beyond this machine: put a proxy with TLS before it");
                        }
                        let router = console::router(service.clone(), address);
                        (Some(address), Some(tokio::spawn(listener::serve(listener, router, limits, stopped))))
                    }
                    None => (None, None),
                };
                Ok(App { service, address, console, backend, worker, server, console_server, stop_server })
            }
            Err(error) => {
                backend.stop().await;
                Err(error)
            }
        }
    }

    /// Loads the models and puts the service together, which does nothing by itself yet.
    async fn prepare(
        settings: Arc<Settings>,
        owner_token: &str,
        reader: Reader,
        types: TaskTypes,
        backend: &Backend,
    ) -> Result<(Arc<Service>, TcpListener, Option<TcpListener>), AppError> {
        let (embedder, coming) = load_embedders(&settings).await?;
        let address = settings.listen;
        let listener = TcpListener::bind(address).await.map_err(|source| AppError::Listen { address, source })?;
        let console = listen_for_console(&settings).await?;
        let service = Service::new(settings, backend.pool.clone(), Some(embedder), owner_token, reader);
        let service = service.with_task_types(types).with_coming(coming);
        let service = Arc::new(service.with_replicas()?.with_language().await?.with_ocr().await?);
        service.look_at_moves().await;
        load_cross_encoder(&service).await?;
        Ok((service, listener, console))
    }

    /// Begins what the service does by itself, with a worker if the settings say so.
    async fn begin(service: &Arc<Service>, backend: &Backend) -> Result<Option<RunningWorker>, AppError> {
        let settings = &service.settings;
        drop(feed::start(service));
        telemetry::keep_shown(&service.sampler);
        if settings.ingest_worker_enabled {
            let role = Role { holds_folder: backend.embedded.is_some(), ..Role::of(settings) };
            return Ok(Some(RunningWorker::start(role, service.tools(), backend.options.clone()).await?));
        }
        // The workers are elsewhere; these end with the runtime.
        drop(sequencer::start(backend.pool.clone()));
        drop(webhooks::start(backend.pool.clone(), settings));
        drop(wakeup::announce(backend.pool.clone(), service.wake.clone(), None));
        drop(unserved::watch(backend.pool.clone(), settings.worker_reap));
        Ok(None)
    }

    /// Serves until `stop` completes, or until something ends that the service cannot do without.
    pub async fn run(&mut self, stop: impl Future<Output = ()>) -> Result<(), AppError> {
        let embedded = self.backend.state();
        let database_failed = async {
            match embedded {
                None => std::future::pending().await,
                Some(mut state) => {
                    match state.wait_for(|state| matches!(state, ServerState::Failed(_))).await.as_deref() {
                        Ok(ServerState::Failed(reason)) => reason.clone(),
                        _ => "its supervisor ended".to_owned(),
                    }
                }
            }
        };
        let worker_ended = async {
            match &mut self.worker {
                None => std::future::pending().await,
                Some(worker) => worker.wait().await,
            }
        };
        tokio::select! {
            () = stop => Ok(()),
            reason = database_failed => Err(AppError::Ended(format!("the embedded PostgreSQL failed: {reason}"))),
            end = worker_ended => Err(AppError::Ended(format!("the worker ended: {end:?}"))),
        }
    }

    /// Takes everything down: first the listener, then the worker, last the database. Once `hurry` completes, it waits
    /// for nothing that still runs.
    pub async fn stop(self, hurry: impl Future<Output = ()>) {
        let mut hurry = std::pin::pin!(hurry);
        let mut hurried = false;
        self.service.stopping.store(true, Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(self.service.settings.shutdown_delay) => {}
            () = &mut hurry => hurried = true,
        }
        self.service.ending.cancel();
        // It does not matter if nobody is listening any more.
        let _ = self.stop_server.send(true);
        let drained = tokio::time::Instant::now() + if hurried { Duration::ZERO } else { DRAIN };
        let (mut server, console) = (self.server, self.console_server);
        tokio::select! {
            _ = &mut server => {}
            () = async {
                tokio::select! {
                    () = tokio::time::sleep_until(drained) => {}
                    () = &mut hurry, if !hurried => hurried = true,
                }
            } => {
                tracing::warn!("cut off requests that did not end in time");
                server.abort();
            }
        }
        if let Some(console) = console {
            // A page that is cut off is read again.
            console.abort();
        }
        // These are requests whose clients have gone, and writes whose clients were cut off.
        self.service.requests.close();
        if !hurried {
            tokio::select! {
                () = self.service.requests.wait() => {}
                () = tokio::time::sleep_until(drained) => tracing::warn!("cut off requests without a client"),
                () = &mut hurry => hurried = true,
            }
        }
        if let Some(worker) = self.worker {
            let hurry = async {
                if !hurried {
                    hurry.await
                }
            };
            worker.stop(DRAIN, hurry).await;
        }
        self.service.close().await;
        self.backend.stop().await;
    }
}

/// Resolves at SIGTERM or SIGINT, if one of them comes after this call. A start makes the call first, because the first process of a container
/// ignores SIGTERM until then.
pub fn asked_to_stop() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        match signals {
            (Ok(mut terminate), Ok(mut interrupt)) => tokio::select! {
                _ = terminate.recv() => tracing::info!("asked to stop (SIGTERM)"),
                _ = interrupt.recv() => tracing::info!("asked to stop (SIGINT)"),
            },
            _ => std::future::pending().await,
        }
    }
}
