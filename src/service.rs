//! The service: what every operation works with.
use crate::{
    access::Keys,
    admission::Admission,
    disk::Disk,
    embedding::{Embedder, Model},
    error::OrFail,
    ingest::{Tools, copies::Copies, reader::Reader},
    sampler::Sampler,
    search::rerank::CrossEncoder,
    settings::Settings,
    store::{database, kept::KeptConnections},
};
use metrics_exporter_prometheus::PrometheusHandle;
use sqlx::PgPool;
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};
use svc_client::{Code, Failure, Need};
use svc_models::{Engine, HubSettings, ModelSettings, RerankerSettings};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_util::task::TaskTracker;

/// Bytes of sealed postings that a process keeps in memory.
const POSTINGS_CACHE_BYTES: usize = 256 << 20;
/// How long a request waits for its turn to have a file read.
const READING_PATIENCE: Duration = Duration::from_secs(5);
/// How long a search waits for its turn.
const SEARCHING_PATIENCE: Duration = Duration::from_secs(1);

/// Calls of one kind that a runner works on at a time: enough to keep its model busy, and a wait that callers sit out.
const RUNNER_CALLS: usize = 16;

/// One running service; cheap to share.
pub struct Service {
    pub settings: Arc<Settings>,
    /// The connections of requests; no statement on them takes longer than the settings allow.
    pub pool: PgPool,
    /// Those of tasks, so that neither side starves the other.
    pub task_pool: PgPool,
    /// What `/health`, `/ready` and `/metrics` tell.
    pub sampler: Arc<Sampler>,
    /// Requests that are being carried out, also those whose clients have gone.
    pub requests: TaskTracker,
    /// Places of searches: one takes two connections and much of a processor.
    pub searching: Semaphore,
    /// None where this process embeds nothing.
    pub embedder: Option<Embedder>,
    pub cross_encoder: CrossEncoder,
    pub postings: Arc<svc_ranking::Cache>,
    pub keys: Keys,
    pub admission: Admission,
    pub copies: Copies,
    pub metrics: PrometheusHandle,
    pub reader: Reader,
    /// Told of every write that was refused for want of room.
    pub disk: Arc<Disk>,
    /// Readers that requests have at work; tasks have permits of their own.
    pub reading: Arc<Semaphore>,
    /// Places of calls to the runner, of each kind its own, or documents that wait would keep queries out.
    pub runner_documents: Semaphore,
    pub runner_queries: Semaphore,
    /// Told when tasks were queued; the worker of this process listens.
    pub wake: crate::worker::wakeup::Wake,
    pub started: Instant,
    /// The process was asked to stop: it is not ready for more.
    pub stopping: AtomicBool,
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
        Service {
            pool: database::pool_of_requests(&pool, connections, settings.statement_timeout),
            sampler: Arc::new(Sampler::new(&pool, embedder.clone())),
            requests: TaskTracker::new(),
            searching: Semaphore::new(settings.searches_at_once),
            keys: Keys::new(owner_token, runner.as_deref(), settings.metrics_are_public()),
            admission: Admission::new(settings.uploads_at_once, settings.max_body_bytes),
            copies: Copies::new(&pool),
            task_pool: pool,
            cross_encoder: CrossEncoder::new(&settings),
            postings: Arc::new(svc_ranking::Cache::new(POSTINGS_CACHE_BYTES)),
            metrics: crate::telemetry::recorder(),
            reader,
            disk: Arc::new(Disk::new(&settings.data_dir, settings.disk_least_free)),
            reading: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(2, std::num::NonZero::get))),
            runner_documents: Semaphore::new(RUNNER_CALLS),
            runner_queries: Semaphore::new(RUNNER_CALLS),
            wake: crate::worker::wakeup::Wake::default(),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            settings,
            embedder,
        }
    }

    /// Closes the connections of requests, once there are no more of them; those of tasks are their worker's to close.
    pub async fn close(&self) {
        self.sampler.close().await;
        self.copies.close().await;
        self.pool.close().await;
    }

    /// What the tasks of this process work with.
    pub fn tools(&self) -> Tools {
        Tools {
            settings: self.settings.clone(),
            pool: self.task_pool.clone(),
            kept: KeptConnections::new(self.task_pool.clone()),
            embedder: self.embedder.clone(),
            postings: self.postings.clone(),
            reader: self.reader.clone(),
            disk: self.disk.clone(),
            wake: self.wake.clone(),
            settling: TaskTracker::new(),
        }
    }

    /// Leave to have a reader at work for a request; 429 where too many are, so that requests never start children without end.
    pub async fn reading_permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let permit = tokio::time::timeout(READING_PATIENCE, self.reading.clone().acquire_owned());
        match permit.await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::new(Code::TooManyRequests, "too many files are being read for other requests")
                .with("remedy", "try again shortly")
                .with("retry_after", READING_PATIENCE.as_secs())),
        }
    }

    /// Leave to search; 429 where as many as may are at work and none ends soon.
    pub async fn searching_permit(&self) -> Result<SemaphorePermit<'_>, Failure> {
        match tokio::time::timeout(SEARCHING_PATIENCE, self.searching.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::new(
                Code::TooManyRequests,
                format!("{} searches are at work, as many as may be at a time", self.settings.searches_at_once),
            )
            .with("setting", "SVC_SEARCHES_AT_ONCE")
            .with("remedy", "try again shortly")
            .with("retry_after", SEARCHING_PATIENCE.as_secs())),
        }
    }

    /// The model, here or at a runner, or the answer that there is none.
    pub async fn model(&self) -> Result<Model, Failure> {
        self.embedder.as_ref().ok_or_else(no_model)?.model().await.or_fail()
    }

    /// The engine that other models of this process share threads with.
    pub fn beside(&self) -> Option<&Engine> {
        self.embedder.as_ref().and_then(Embedder::engine)
    }

    /// The model of this very process: a runner that asked another one could come to ask itself.
    pub fn own_engine(&self) -> Result<&Engine, Failure> {
        self.embedder.as_ref().ok_or_else(no_model)?.engine().ok_or_else(|| {
            Failure::new(Code::NotConfigured, "this process has no model of its own: it embeds at a runner itself")
                .with("setting", "SVC_RUNNER_URL")
        })
    }

    /// Refuses an operation whose need cannot be met.
    pub fn provide(&self, need: Option<Need>) -> Result<(), Failure> {
        match need {
            None => Ok(()),
            Some(Need::Model) => self.embedder.as_ref().map(|_| ()).ok_or_else(no_model),
            Some(Need::OwnModel) => self.own_engine().map(|_| ()),
        }
    }
}

fn no_model() -> Failure {
    Failure::new(Code::NotConfigured, "this process has no embedding model").with("setting", "SVC_EMBEDDING_MODEL")
}

/// What the settings say of the model.
pub fn model_settings(settings: &Settings) -> ModelSettings {
    ModelSettings {
        model: settings.embedding_model.clone(),
        models_dir: Some(settings.models_dir()),
        device: settings.embedding_device.name().to_owned(),
        precision: settings.embedding_precision,
        threads: settings.embedding_threads,
        batch_size: settings.embedding_batch_size,
        token_batch_size: settings.token_batch_size,
        doc_window: settings.embedding_doc_window,
        token_window: settings.embedding_token_window,
        ..ModelSettings::default()
    }
}

/// What the settings say of the reranker.
pub fn reranker_settings(settings: &Settings) -> RerankerSettings {
    RerankerSettings {
        model: settings.reranker_model.clone(),
        models_dir: Some(settings.models_dir()),
        device: settings.reranker_device().name().to_owned(),
        threads: settings.embedding_threads,
        batch_size: settings.reranker_batch_size,
        max_length: settings.reranker_max_length,
        ..RerankerSettings::default()
    }
}

/// What the settings say of fetching models.
pub fn hub_settings(settings: &Settings) -> HubSettings {
    HubSettings {
        endpoint: (!settings.hub_endpoint.is_empty()).then(|| settings.hub_endpoint.clone()),
        offline: settings.hub_offline,
        silence: settings.hub_timeout,
        ..HubSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::Path, time::Duration};
    use svc_models::Precision;

    #[test]
    fn what_is_set_reaches_the_models() {
        let set = [
            ("HOME", "/home/reader"),
            ("SVC_EMBEDDING_MODEL", "owner/model@v1"),
            ("SVC_EMBEDDING_DEVICE", "ndarray"),
            ("SVC_EMBEDDING_THREADS", "3"),
            ("SVC_EMBEDDING_BATCH_SIZE", "7"),
            ("SVC_TOKEN_BATCH_SIZE", "5"),
            ("SVC_EMBEDDING_DOC_WINDOW", "4000"),
            ("SVC_EMBEDDING_TOKEN_WINDOW", "300"),
            ("SVC_RERANKER_MODEL", "/models/other"),
            ("SVC_RERANKER_MAX_LENGTH", "200"),
            ("SVC_RERANKER_BATCH_SIZE", "9"),
            ("SVC_HUB_ENDPOINT", "http://hub.example.org"),
            ("SVC_HUB_OFFLINE", "true"),
            ("SVC_HUB_TIMEOUT_SECONDS", "2.5"),
        ];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = Settings::load(Some(Path::new("/dev/null")), set.into_iter()).unwrap();
        let model = model_settings(&settings);
        assert_eq!((model.model.as_str(), model.device.as_str(), model.threads), ("owner/model@v1", "ndarray", 3));
        assert_eq!((model.batch_size, model.token_batch_size), (7, 5));
        assert_eq!((model.doc_window, model.token_window), (4000, 300));
        assert_eq!(model.models_dir.as_deref(), Some(Path::new("/home/reader/.cache/svc/models")));
        let reranker = reranker_settings(&settings);
        // A blank device follows the other's.
        assert_eq!((reranker.model.as_str(), reranker.device.as_str()), ("/models/other", "ndarray"));
        assert_eq!((reranker.max_length, reranker.batch_size, reranker.threads), (200, 9, 3));
        assert_eq!(model.precision, Precision::F32);
        let in_bf16 = [("HOME", "/home/reader"), ("SVC_EMBEDDING_PRECISION", "bf16")];
        let in_bf16 = in_bf16.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let in_bf16 = Settings::load(Some(Path::new("/dev/null")), in_bf16.into_iter()).unwrap();
        assert_eq!(model_settings(&in_bf16).precision, Precision::Bf16);
        let hub = hub_settings(&settings);
        assert_eq!((hub.endpoint.as_deref(), hub.offline), (Some("http://hub.example.org"), true));
        assert_eq!(hub.silence, Duration::from_millis(2500));
    }
}
