//! What the service says about itself. None of this uses the database; the sampler does.
use crate::{
    access::Caller,
    embedding::Embedder,
    registry::{self, Handle},
    sampler::Known,
    service::Service,
    telemetry,
};
use serde_json::json;
use std::sync::atomic::Ordering;
use svc_client::{
    Call, Code, Failure, VERSION, ops,
    wire::{
        CheckedPart, HealthResponse, HealthStatus, ModelState, OpenApiDocument, ReadinessCheck, ReadinessResponse,
        RerankerState,
    },
};

impl Handle<ops::read_health> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_health>) -> Result<HealthResponse, Failure> {
        let known = self.sampler.known();
        // An unknown state counts as degraded.
        let has_all =
            !matches!(self.sampler.feed.state(), Some((Err(_), _))) && !matches!(known.blob_store, Some(Err(_)));
        let sound = known.fresh().is_some_and(|sample| {
            has_all
                && self.disk.check().is_ok()
                && sample.numbers.writes.is_ok()
                && !sample.numbers.workers.is_empty()
                && sample.numbers.unserved_badges.is_empty()
                && sample.numbers.unserved_types.is_empty()
        });
        Ok(HealthResponse {
            status: if sound { HealthStatus::Ok } else { HealthStatus::Degraded },
            version: VERSION.to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            sampled_seconds_ago: age(&known),
        })
    }
}

impl Handle<ops::read_readiness> for Service {
    async fn handle(&self, caller: &Caller, _: Call<ops::read_readiness>) -> Result<ReadinessResponse, Failure> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Failure::new(Code::Unavailable, "the service is stopping").with("retry_after", 2));
        }
        let known = self.sampler.known();
        let model = model(self, &known);
        let checks = checks(self, &known, &model);
        // Without these it still finds and shows what it has.
        let can_wait =
            [CheckedPart::Disk, CheckedPart::Feed, CheckedPart::BlobStore, CheckedPart::Writes, CheckedPart::Standbys];
        let ready = checks.iter().all(|check| check.ok || can_wait.contains(&check.name));
        // Names of workers, versions and counts are only for the owner.
        if !matches!(caller, Caller::Owner) {
            return match ready {
                true => Ok(ReadinessResponse { ready, ..ReadinessResponse::default() }),
                false => Err(Failure::new(Code::Unavailable, "the service is not ready")
                    .with("remedy", "ask with the owner token to learn why")
                    .with("retry_after", 2)),
            };
        }
        let models: Vec<ModelState> = model.into_iter().collect();
        let reranker = self.cross_encoder.loaded().map(|reranker| {
            let info = reranker.info();
            RerankerState { name: info.name.clone(), device: info.device.clone(), pair_window: info.max_length }
        });
        if ready {
            return Ok(ReadinessResponse {
                ready,
                checks,
                queue: known.sample.as_ref().map(|sample| sample.numbers.queue()),
                workers: known.sample.as_ref().map(|sample| sample.numbers.workers.clone()).unwrap_or_default(),
                models,
                reranker,
                sampled_seconds_ago: age(&known),
            });
        }
        let reasons: Vec<String> =
            checks.iter().filter(|c| !c.ok).map(|c| format!("{}: {}", c.name, c.detail)).collect();
        Err(Failure::new(Code::Unavailable, reasons.join("; "))
            .with("checks", json!(checks))
            .with("models", json!(models))
            .with("reranker", json!(reranker))
            .with("sampled_seconds_ago", json!(age(&known)))
            .with("retry_after", 2))
    }
}

fn age(known: &Known) -> Option<f64> {
    known.sample.as_ref().map(|sample| sample.taken.elapsed().as_secs_f64())
}

/// Each thing that the service needs, and whether it is there.
fn checks(service: &Service, known: &Known, model: &Result<ModelState, String>) -> Vec<ReadinessCheck> {
    let mut checks = Vec::new();
    let mut check = |name: CheckedPart, outcome: Result<String, String>| {
        let ok = outcome.is_ok();
        checks.push(ReadinessCheck { name, ok, detail: outcome.unwrap_or_else(|reason| reason) });
    };
    check(CheckedPart::Model, model.as_ref().map(|state| state.identity.clone()).map_err(Clone::clone));
    check(CheckedPart::Disk, service.disk.check());
    if let Some((feed, _)) = service.sampler.feed.state() {
        check(CheckedPart::Feed, feed.map(|work| work.says().to_owned()));
    }
    if let Some(state) = &known.blob_store {
        check(CheckedPart::BlobStore, state.clone());
    }
    if let Some(replicas) = service.replicas() {
        check(CheckedPart::Standbys, replicas.state());
    }
    // To do without one is a choice and no fault.
    let engine = service.ocr.as_ref().map(|engine| format!("{}, {}", engine.name(), engine.languages()));
    check(CheckedPart::Ocr, Ok(engine.unwrap_or_else(|| "none: SVC_OCR_ENGINE names no engine".to_owned())));
    let Some(sample) = known.fresh() else {
        let reason = known.failure.clone();
        check(CheckedPart::Database, Err(reason.unwrap_or_else(|| "has not answered yet, or not recently".to_owned())));
        return checks;
    };
    check(CheckedPart::Database, Ok("answers".to_owned()));
    check(CheckedPart::Writes, sample.numbers.writes.clone().map(|()| "taken".to_owned()));
    check(CheckedPart::Migrations, sample.numbers.schema.clone().map(|()| "all applied".to_owned()));
    let unserved = sample.numbers.unserved();
    check(
        CheckedPart::Workers,
        match (&sample.numbers.writes, sample.numbers.workers.len(), unserved.is_empty()) {
            // No worker can record there that it is alive.
            (Err(_), ..) => Ok("not known: the database takes no heartbeats".to_owned()),
            (_, 0, _) => Err("no worker is alive: start svc-worker, or set SVC_INGEST_WORKER_ENABLED=true".to_owned()),
            (_, _, false) => Err(unserved.join("; ")),
            (_, count, true) => Ok(format!("{count} alive")),
        },
    );
    checks
}

/// The embedding model with which this process works, as [`crate::core::Core::model_of`] chooses it, or why there is none.
fn model(service: &Service, known: &Known) -> Result<ModelState, String> {
    let Some(own) = &service.embedder else {
        return Err("no embedding model is loaded: set SVC_EMBEDDING_MODEL".to_owned());
    };
    let (runner, coming_runner) = (known.runner.as_ref(), known.coming_runner.as_ref());
    let Some(served) = service.serving.served() else { return state(own, runner) };
    let (identity, serving) = (own.identity(runner), Some(served.model.as_str()));
    if identity == serving {
        return state(own, runner);
    }
    let coming = service.coming.as_ref();
    if let Some(coming) = coming.filter(|coming| coming.identity(coming_runner) == serving) {
        return state(coming, coming_runner);
    }
    if identity.is_none_or(|identity| !served.refuses(identity)) {
        return state(own, runner);
    }
    match (coming.map(Embedder::engine), coming_runner) {
        (Some(None), Some(Err(reason))) => Err(reason.clone()),
        // It is asked soon.
        (Some(None), None) => state(own, runner),
        _ => Err(format!(
            "the vectors of {} serve: set SVC_EMBEDDING_MODEL or SVC_EMBEDDING_COMING_MODEL to it",
            served.model
        )),
    }
}

/// The state of a model; `told` is what its runner said last, if it is at one.
fn state(embedder: &Embedder, told: Option<&Result<ModelState, String>>) -> Result<ModelState, String> {
    match embedder.engine() {
        Some(engine) => engine.ready().map(|()| crate::embedding::state(engine)).map_err(|error| {
            tracing::warn!(error = %error, "the model cannot be used");
            "the model's device is lost and is being opened again; tasks that need vectors wait for it".to_owned()
        }),
        None => told.cloned().unwrap_or_else(|| Err("the runner has not answered yet".to_owned())),
    }
}

impl Handle<ops::read_metrics> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_metrics>) -> Result<String, Failure> {
        // What this process counted is valid even if the database is away.
        Ok(telemetry::render(self.sampler.known().sample.as_deref(), &self.metrics))
    }
}

impl Handle<ops::read_openapi> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_openapi>) -> Result<OpenApiDocument, Failure> {
        Ok(OpenApiDocument(registry::contract_of(self)))
    }
}
