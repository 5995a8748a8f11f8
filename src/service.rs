//! The service: what every operation works with.
use crate::{
    access::Keys,
    admission::{Admission, Places, rates::PerSecond},
    blobs::Blobs,
    core::{Core, Wake},
    disk::Disk,
    embedding::{CrossEncoder, Embedder, Serving},
    events::News,
    fetch::Fetcher,
    ingest::{Tools, copies::Copies, creating::Creating, extension::TaskTypes, upload::Intake},
    llm::LanguageModel,
    llm_batches::Batching,
    load::Load,
    ocr,
    rdf::shapes::kept::KeptShapes,
    reader::Reader,
    replicas::Replicas,
    sampler::Sampler,
    settings::{Settings, nearest},
    spool::SpoolCache,
    store::{
        database::{self, DatabaseError},
        indexes,
        lexicon::Lexicon,
    },
};
use metrics_exporter_prometheus::PrometheusHandle;
use sqlx::PgPool;
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use svc_client::{Code, Failure, Need, OPERATIONS};
use svc_models::Engine;
use svc_ranking::Cache;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How many bytes of sealed postings a process keeps in memory.
const POSTINGS_CACHE_BYTES: usize = 256 << 20;
/// How many calls of one kind a runner serves at a time: enough to keep its model busy, and few enough for callers to
/// wait.
const RUNNER_CALLS: usize = 16;

/// How many streams of events and live pages may look at once whether the database has something to tell.
const WATCHERS: usize = 2;

/// How long an edit of a subtree waits for the tasks that run there.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// How long it waits before it is refused.
    pub longest: Duration,
    /// How long a delete lets them go on before it ends them.
    pub grace: Duration,
    /// How long a delete waits for workers to let go of tasks whose end was requested, before it ends them itself. A worker that lives mostly
    /// knows of it at once.
    pub let_go: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { longest: Duration::from_secs(8), grace: Duration::from_secs(1), let_go: Duration::from_secs(3) }
    }
}

/// The largest body that an operation holds in memory.
fn largest_body(usual: u64) -> u64 {
    OPERATIONS.iter().map(|info| (info.most_bytes)(usual)).max().unwrap_or(usual)
}

/// One running service; cheap to share, and to copy with other connections for reads.
#[derive(Clone)]
pub struct Service {
    /// This uses the connections of requests; no statement on them may take longer than the settings allow.
    core: Core,
    /// The connections of tasks.
    pub task_pool: PgPool,
    /// What `/health`, `/ready` and `/metrics` report.
    pub sampler: Arc<Sampler>,
    /// Requests under way, including those whose clients have gone.
    pub requests: TaskTracker,
    pub keys: Arc<Keys>,
    pub admission: Arc<Admission>,
    pub copies: Arc<Copies>,
    /// The documents that are about to be stored together.
    pub(crate) creating: Arc<Creating>,
    /// The task types that plans, uploads and this process's worker know.
    pub(crate) task_types: TaskTypes,
    pub metrics: PrometheusHandle,
    /// Concurrency limits for runner calls, one per kind, so that queued documents never block queries.
    pub runner_documents: Arc<Semaphore>,
    pub runner_queries: Arc<Semaphore>,
    pub started: Instant,
    /// The process was asked to stop and takes nothing more.
    pub stopping: Arc<AtomicBool>,
    /// Cancelled when the listener stops, to end the streams of events, which would last for hours.
    pub ending: CancellationToken,
    /// Slots for reading from the database on behalf of a stream of events or a live page.
    pub watching: Arc<Semaphore>,
    /// The slot for deleting the bytes that large deletes leave behind, so that however many of them there are, requests keep their connections.
    pub unlinking: Arc<Semaphore>,
    pub waits: Waits,
    /// Tells streams of events that there are new ones.
    pub news: News,
    /// The shapes that writes of facts met last.
    pub(crate) shapes: Arc<KeptShapes>,
    /// How often this process ended tokens or sessions, or changed what somebody may do.
    rights: Arc<AtomicU64>,
}

/// A service is its core, with the keys and limits for its callers.
impl Deref for Service {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Service {
    /// Puts a service together; it neither listens nor works yet.
    pub fn new(
        settings: Arc<Settings>,
        pool: PgPool,
        embedder: Option<Embedder>,
        owner_token: &str,
        reader: Reader,
    ) -> Service {
        let runner = (!settings.runner_key.is_blank()).then(|| settings.runner_key.expose().to_owned());
        let connections = u32::try_from(settings.database_pool_size).unwrap_or(u32::MAX);
        let blobs = Arc::new(Blobs::new(&settings));
        let disk = Arc::new(Disk::new(&settings.data_dir, settings.disk_least_free));
        let load = Arc::new(Load::new(&settings));
        let stall = settings.batch_stall;
        let serving: Arc<Serving> = Arc::default();
        let (stored, room, timed) = (blobs.clone(), disk.clone(), load.clone());
        let sampler = Sampler::new(&pool, embedder.clone(), stored, room, timed, stall, serving.clone());
        Service {
            sampler: Arc::new(sampler),
            requests: TaskTracker::new(),
            keys: Arc::new(Keys::new(owner_token, runner.as_deref(), settings.metrics_are_public())),
            admission: Arc::new(Admission::new(Places {
                connections: settings.max_connections,
                uploads: settings.uploads_at_once,
                downloads: settings.downloads_at_once,
                event_streams: settings.event_streams,
                requests: settings.requests_at_once,
                waits: settings.waits_at_once,
                searches: settings.searches_at_once,
                embeds: settings.embeds_at_once,
                syntheses: settings.llm_concurrency,
                rates: PerSecond {
                    reads: settings.rate_reads,
                    writes: settings.rate_writes,
                    costly: settings.rate_costly,
                },
                principal_share: settings.principal_share,
                largest_body: largest_body(settings.max_body_bytes),
            })),
            copies: Arc::new(Copies::new(&pool)),
            creating: Arc::default(),
            task_types: TaskTypes::default(),
            metrics: crate::telemetry::recorder(),
            runner_documents: Arc::new(Semaphore::new(RUNNER_CALLS)),
            runner_queries: Arc::new(Semaphore::new(RUNNER_CALLS)),
            started: Instant::now(),
            stopping: Arc::default(),
            ending: CancellationToken::new(),
            watching: Arc::new(Semaphore::new(WATCHERS)),
            unlinking: Arc::new(Semaphore::new(1)),
            waits: Waits::default(),
            news: News::new(&pool),
            shapes: Arc::default(),
            rights: Arc::default(),
            core: Core {
                pool: database::pool_of_requests(&pool, connections, settings.statement_timeout),
                cross_encoder: Arc::new(CrossEncoder::new(&settings)),
                postings: Arc::new(Cache::new(POSTINGS_CACHE_BYTES)),
                lexicon: Lexicon::of(settings.language),
                expectations: Arc::default(),
                queries: Arc::default(),
                disk,
                spool: SpoolCache::new(blobs.clone(), &settings.data_dir, settings.spool_max),
                blobs,
                load,
                wake: Wake::default(),
                fetcher: Fetcher::new(&settings),
                language_model: Arc::new(LanguageModel::new(&settings, pool.clone())),
                batching: None,
                settings,
                embedder,
                coming: None,
                serving,
                reader,
                ocr: None,
            },
            task_pool: pool,
        }
    }

    /// The same service, whose tasks ask language models by batches.
    #[must_use]
    pub fn with_batching(mut self, batching: Arc<Batching>) -> Service {
        self.core.batching = Some(batching);
        self
    }

    /// The same service with these task types, some of which another crate registered. A badge for a type that is none of them is told of and no more,
    /// because another program of the fleet may have that type.
    #[must_use]
    pub fn with_task_types(self, task_types: TaskTypes) -> Service {
        for unknown in self.settings.task_badges.keys().filter(|name| task_types.get(name).is_none()) {
            let remedy = match nearest(unknown, task_types.names()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("its types are {}", task_types.names().collect::<Vec<_>>().join(", ")),
            };
            tracing::warn!(
                "SVC_TASK_BADGES has a badge for `{unknown}`, which is no task type of this program, so none of its tasks gets that badge: {remedy}"
            );
        }
        Service { task_types, ..self }
    }

    /// The same service with the model to which all vectors may be moved, if the settings name one. Call it once the task types are known.
    #[must_use]
    pub fn with_coming(mut self, coming: Option<Embedder>) -> Service {
        self.task_types.set_coming(coming.is_some());
        if let Some(coming) = &coming {
            // Nobody else has set it: it is set here alone, and once for a service.
            let _ = self.sampler.coming.set(coming.clone());
        }
        self.core.coming = coming;
        self
    }

    /// The same service, whose reads the standbys of its settings may answer, if they name some.
    ///
    /// # Errors
    /// The address of a standby cannot be read.
    pub fn with_replicas(self) -> Result<Service, DatabaseError> {
        if let Some(replicas) = Replicas::new(&self.settings, &self.pool)? {
            // Nobody else has set it: it is set here alone, and once for a service.
            let _ = self.sampler.replicas.set(Arc::new(replicas));
        }
        Ok(self)
    }

    /// The same service, whose full text has the language of the store where nobody has set one, because a search finds only words of its own language.
    ///
    /// # Errors
    /// The database does not tell the language.
    pub async fn with_language(mut self) -> Result<Service, DatabaseError> {
        let mut conn = self.task_pool.acquire().await?;
        let default = indexes::by_name(&mut conn, indexes::DEFAULT).await?;
        drop(conn);
        let Some(store) = default.map(|index| index.config.analyzer.language) else { return Ok(self) };
        let set = self.settings.language;
        if !self.settings.is_set("SVC_LANGUAGE") {
            self.core.lexicon = Lexicon::of(store);
        } else if set != store {
            tracing::warn!(
                set = set.name(),
                store = store.name(),
                "no search finds by full text what this process writes: set SVC_LANGUAGE as the services have it, or nowhere but there"
            );
        }
        Ok(self)
    }

    /// The same service, whose edits wait this long for tasks.
    #[must_use]
    pub fn with_waits(self, waits: Waits) -> Service {
        Service { waits, ..self }
    }

    /// The standbys that may answer reads; `None` if there are none.
    pub fn replicas(&self) -> Option<&Arc<Replicas>> {
        self.sampler.replicas.get()
    }

    /// The same service with the connections of a standby in place of those of requests.
    pub(crate) fn reading_at(&self, standby: &PgPool) -> Service {
        Service { core: Core { pool: standby.clone(), ..self.core.clone() }, ..self.clone() }
    }

    /// The same service with the OCR engine of its settings, if they name one. Call it once the task types are known.
    ///
    /// # Errors
    /// The engine cannot be used.
    pub async fn with_ocr(mut self) -> Result<Service, ocr::Unusable> {
        let engine = ocr::Engine::start(&self.settings, &self.reader).await?;
        self.task_types.set_ocr(engine.is_some());
        self.core.ocr = engine.map(Arc::new);
        Ok(self)
    }

    pub(crate) fn intake(&self) -> Intake<'_> {
        Intake { admission: &self.admission, copies: &self.copies, types: &self.task_types }
    }

    /// Notes that a token or a session has ended, or that somebody's rights are others, once that is committed: what this process
    /// remembers of callers is no longer true.
    pub fn rights_changed(&self) {
        self.rights.fetch_add(1, Ordering::Release);
    }

    /// Changes with each call of [`Service::rights_changed`].
    pub fn rights_version(&self) -> u64 {
        self.rights.load(Ordering::Acquire)
    }

    /// Closes the connections of requests; call it once none is under way. Those of tasks belong to the process's backend.
    pub async fn close(&self) {
        self.sampler.close().await;
        self.copies.close().await;
        self.pool.close().await;
        if let Some(replicas) = self.replicas() {
            replicas.close().await;
        }
    }

    /// What the tasks of this process work with.
    pub fn tools(&self) -> Tools {
        Tools::new(Core { pool: self.task_pool.clone(), ..self.core.clone() }, self.task_types.clone())
    }

    /// The model in this very process. If a runner passed calls on to another runner, it could end up calling itself.
    pub fn own_engine(&self) -> Result<&Engine, Failure> {
        self.embedder()?.engine().ok_or_else(|| {
            Failure::new(Code::NotConfigured, "this process has no model of its own, because it uses a runner itself")
                .with("setting", "SVC_RUNNER_URL")
        })
    }

    /// Refuses an operation whose need cannot be met.
    pub fn provide(&self, need: Option<Need>) -> Result<(), Failure> {
        match need {
            None => Ok(()),
            Some(Need::Model) => self.embedder().map(|_| ()),
            Some(Need::OwnModel) => self.own_engine().map(|_| ()),
        }
    }
}
