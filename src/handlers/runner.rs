//! Vectors for workers and services that load no model.
use crate::{
    access::Caller,
    embedding::{self, EmbedError},
    error::IntoFailure,
    registry::Handle,
    service::Service,
};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{Floats, RunnerModel, RunnerTextKind, RunnerTokenVectors, RunnerTokens, RunnerVectors},
};
use svc_models::{Engine, ModelError};
use tokio::sync::SemaphorePermit;

/// The seconds after which a refused caller may come again.
const COME_AGAIN: u64 = 1;

impl Handle<ops::runner_model> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::runner_model>) -> Result<RunnerModel, Failure> {
        let engine = self.own_engine()?;
        let tokenizer = call.query.tokenizer.then(|| String::from_utf8_lossy(engine.tokenizer_json()).into_owned());
        let document_prefix = engine.info().document_prefix.clone();
        Ok(RunnerModel { model: embedding::state(engine), document_prefix, tokenizer })
    }
}

impl Handle<ops::runner_embed> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::runner_embed>) -> Result<RunnerVectors, Failure> {
        let body = call.body.0;
        let engine = expected(self.own_engine()?, body.model.as_deref())?;
        let _turn = turn(self, body.kind)?;
        let mut weights = Vec::new();
        let vectors = match body.kind {
            RunnerTextKind::Document => {
                let embeddings = engine.embed_documents(body.texts).await.map_err(refusal)?;
                weights.extend(embeddings.iter().map(|embedding| embedding.weight));
                embeddings.into_iter().map(|embedding| embedding.vector).collect()
            }
            RunnerTextKind::Query => {
                let mut vectors = Vec::with_capacity(body.texts.len());
                for (index, text) in body.texts.into_iter().enumerate() {
                    vectors.push(engine.embed_query(text).await.map_err(|error| refusal(at(error, index)))?);
                }
                vectors
            }
        };
        let width = engine.info().native_width;
        let own = |mut vector: Vec<f32>| {
            // The rest is padding for the database.
            vector.truncate(width);
            Floats(vector)
        };
        let vectors = vectors.into_iter().map(own).collect();
        Ok(RunnerVectors { model: engine.info().identity.clone(), vectors, weights: Floats(weights) })
    }
}

impl Handle<ops::runner_tokens> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::runner_tokens>) -> Result<RunnerTokenVectors, Failure> {
        let body = call.body.0;
        let engine = expected(self.own_engine()?, body.model.as_deref())?;
        let _turn = turn(self, body.kind)?;
        let texts = embedding::token_vectors(engine, body.texts, body.kind).await.map_err(|error| match error {
            EmbedError::Model(error) => refusal(error),
            error => error.into_failure(),
        })?;
        let tokens = texts.into_iter().map(|text| RunnerTokens {
            token_ids: text.token_ids,
            offsets: text.offsets.into_iter().map(|range| (range.start, range.end)).collect(),
            width: text.width,
            values: Floats(text.values),
            importance: Floats(text.importance),
            tiers: text.tiers,
        });
        Ok(RunnerTokenVectors { model: engine.info().identity.clone(), texts: tokens.collect() })
    }
}

/// Refuses a caller that expects another model: its vectors could not be compared with these.
fn expected<'a>(engine: &'a Engine, model: Option<&str>) -> Result<&'a Engine, Failure> {
    let own = &engine.info().identity;
    match model {
        Some(model) if model != own => {
            Err(Failure::new(Code::Conflict, format!("this runner's model is {own}, not {model}"))
                .with("model", own.clone())
                .with("remedy", "read /runner/model again"))
        }
        _ => Ok(engine),
    }
}

/// Takes a slot among the calls that are served. If there is none, it returns 429, so that waiting stays bounded and
/// callers come back by themselves.
fn turn(service: &Service, kind: RunnerTextKind) -> Result<SemaphorePermit<'_>, Failure> {
    let places = match kind {
        RunnerTextKind::Document => &service.runner_documents,
        RunnerTextKind::Query => &service.runner_queries,
    };
    places.try_acquire().map_err(|_| {
        Failure::new(Code::TooManyRequests, "this runner's queue is full of texts")
            .with("remedy", "try again shortly, or start another runner")
            .with("retry_after", COME_AGAIN)
    })
}

/// The failure for a model's error; it says which of several texts was too long.
fn refusal(error: ModelError) -> Failure {
    let index = match &error {
        ModelError::TextTooLong { index, .. } => Some(*index),
        _ => None,
    };
    let failure = error.into_failure();
    match index {
        Some(index) => failure.with("index", index),
        None => failure,
    }
}

fn at(error: ModelError, index: usize) -> ModelError {
    match error {
        ModelError::TextTooLong { token_count, limit, chars_total, .. } => {
            ModelError::TextTooLong { index, token_count, limit, chars_total }
        }
        ModelError::NoDirection { .. } => ModelError::NoDirection { texts: vec![index] },
        error => error,
    }
}
