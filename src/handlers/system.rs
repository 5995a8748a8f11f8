//! The service about itself.
use crate::{
    access::Caller,
    embedding::EmbedError,
    error::OrFail,
    registry::{self, Handle},
    service::Service,
    store, telemetry,
};
use serde_json::json;
use std::{sync::atomic::Ordering, time::Duration};
use svc_client::{
    Call, Code, Failure, VERSION, ops,
    wire::{HealthResponse, ModelState, OpenApiDocument, ReadinessCheck, ReadinessResponse, RerankerState},
};

impl Handle<ops::read_health> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_health>) -> Result<HealthResponse, Failure> {
        // Being alive does not hang on the database.
        let unserved = async {
            let mut conn = self.pool.acquire().await?;
            let badges = store::queue::unserved_badges(&mut conn).await?;
            let types = store::queue::unserved_types(&mut conn).await?;
            Ok::<_, sqlx::Error>(badges.into_iter().chain(types).collect::<Vec<_>>())
        };
        let unserved = tokio::time::timeout(Duration::from_millis(200), unserved)
            .await
            .unwrap_or(Ok(Vec::new()))
            .unwrap_or_default();
        let stalled = unserved.iter().any(|(_, _, oldest_seconds)| *oldest_seconds > 60.0);
        let status = if stalled { "degraded" } else { "ok" };
        Ok(HealthResponse {
            status: status.to_owned(),
            version: VERSION.to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
        })
    }
}

impl Handle<ops::read_readiness> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_readiness>) -> Result<ReadinessResponse, Failure> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Failure::new(Code::Unavailable, "the service is stopping").with("retry_after", 2));
        }
        let model = model(self).await;
        let mut checks = Vec::new();
        let mut check = |name: &str, outcome: Result<String, String>| {
            let ok = outcome.is_ok();
            checks.push(ReadinessCheck { name: name.to_owned(), ok, detail: outcome.unwrap_or_else(|reason| reason) });
        };
        check("model", model.as_ref().map(|state| state.identity.clone()).map_err(Clone::clone));
        let database = store::database::schema(&self.pool).await;
        check("database", database.as_ref().map(|_| "answers".to_owned()).map_err(|_| "does not answer".to_owned()));
        let (mut queue, mut workers) = (Default::default(), Vec::new());
        check("disk", self.disk.check());
        if let Ok(schema) = database {
            let fits = schema.check().map(|()| "all applied".to_owned());
            check("migrations", fits.map_err(|problem| problem.to_string()));
            let mut conn = self.pool.acquire().await.or_fail()?;
            queue = store::queue::state(&mut conn).await.or_fail()?;
            workers = store::workers::alive(&mut conn).await.or_fail()?;
            let badges = store::queue::unserved_badges(&mut conn).await.or_fail()?;
            let types = store::queue::unserved_types(&mut conn).await.or_fail()?;
            let unserved = badges.iter().map(|(badge, tasks, _)| match badge.as_str() {
                "" => format!("{tasks} tasks without a badge have no worker: all are strict about their badges"),
                badge => format!("{tasks} tasks with badge `{badge}` have no worker"),
            });
            let unserved =
                unserved.chain(types.iter().map(|(name, tasks, _)| {
                    format!("{tasks} tasks of type `{name}` have no worker that can run them")
                }));
            let unserved: Vec<String> = unserved.collect();
            check(
                "workers",
                match (workers.len(), unserved.is_empty()) {
                    (0, _) => {
                        Err("no worker is alive: start svc-worker, or set SVC_INGEST_WORKER_ENABLED=true".to_owned())
                    }
                    (_, false) => Err(unserved.join("; ")),
                    (count, true) => Ok(format!("{count} alive")),
                },
            );
        }
        let ready = checks.iter().all(|check| check.ok);
        let models: Vec<ModelState> = model.into_iter().collect();
        let reranker = self.cross_encoder.loaded().map(|reranker| {
            let info = reranker.info();
            RerankerState { name: info.name.clone(), device: info.device.clone(), pair_window: info.max_length }
        });
        if ready {
            return Ok(ReadinessResponse { ready, checks, queue, workers, models, reranker });
        }
        let reasons: Vec<String> =
            checks.iter().filter(|c| !c.ok).map(|c| format!("{}: {}", c.name, c.detail)).collect();
        Err(Failure::new(Code::Unavailable, reasons.join("; "))
            .with("checks", json!(checks))
            .with("models", json!(models))
            .with("reranker", json!(reranker))
            .with("retry_after", 2))
    }
}

/// The embedding model, or why there is none. Anyone may ask: where the runner is stays in the log.
async fn model(service: &Service) -> Result<ModelState, String> {
    let Some(embedder) = &service.embedder else {
        return Err("no embedding model is loaded: see SVC_EMBEDDING_MODEL".to_owned());
    };
    embedder.state().await.map_err(|error| {
        tracing::warn!(error = %error, "the model cannot be used");
        match error {
            EmbedError::Model(_) => {
                "the model's device is lost and being opened again: tasks that need vectors wait for it".to_owned()
            }
            EmbedError::Refused(_) => "the runner refuses to work for this service: see its log".to_owned(),
            _ => "the runner does not answer: tasks that need vectors wait for it".to_owned(),
        }
    })
}

impl Handle<ops::read_metrics> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_metrics>) -> Result<String, Failure> {
        // What this process counted stands even where the database is away.
        if let Err(error) = telemetry::refresh(&self.pool).await {
            tracing::warn!(error = %error, "the database's gauges are stale");
        }
        Ok(self.metrics.render())
    }
}

impl Handle<ops::read_openapi> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_openapi>) -> Result<OpenApiDocument, Failure> {
        Ok(OpenApiDocument(registry::contract().clone()))
    }
}
