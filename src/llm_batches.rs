//! Batches: summaries that a provider makes within a day, at about half the price. A worker with these parks its tasks in batches instead of calling
//! a language model; [`Keeper`] submits the batches, polls the provider and keeps what it answers.
mod anthropic;
mod api;
mod keeper;
mod mock;
mod openai;
mod parking;
mod provider;

use crate::{
    llm::{Ask, Received, Refused, Silence, Usage, body_without_stream, fields_in},
    store::{
        self,
        group_commit::GroupCommit,
        llm_batches::{BatchCaps, Parked, Parking, Unanswered},
        summaries::LlmAnswer,
        text::storable,
    },
};
pub use keeper::{Keeper, KeeperError, KeeperSettings};
pub use mock::Mock;
pub use provider::{Provider, ProviderError, ProviderName};
use serde_json::Value;
use sqlx::PgPool;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The most bytes of the requests of one task in one batch, so that a task that asks of a long text does not fill the memory.
pub const TASK_BYTES: usize = 16 << 20;
/// The most questions of one task in one batch.
pub const TASK_REQUESTS: usize = 1000;

/// No call has more tokens than this, whatever a provider says, so that sums stay numbers.
const MOST_TOKENS: u64 = 1 << 40;

/// How a process asks by batches.
#[derive(Debug)]
pub struct Batching {
    pub provider: ProviderName,
    /// The model of requests whose file names none.
    pub model: String,
    pub caps: BatchCaps,
    /// The tasks that are ready to wait.
    ready: GroupCommit<Parking, sqlx::Result<Parked>>,
    /// Answers are being applied to many tasks at once.
    applies: AtomicBool,
}

impl Batching {
    pub fn new(provider: ProviderName, model: String, caps: BatchCaps) -> Arc<Batching> {
        let (ready, applies) = (GroupCommit::new(parking::LIMITS, parking::bytes), AtomicBool::new(false));
        Arc::new(Batching { provider, model, caps, ready, applies })
    }

    /// Has a running task wait for a batch.
    #[tracing::instrument(level = "debug", skip_all, fields(task.id = task.grant.task_id.0, document.id = task.grant.document_id.0))]
    pub async fn park(self: &Arc<Batching>, pool: &PgPool, task: Parking) -> sqlx::Result<Parked> {
        let (pool, batching) = (pool.clone(), self.clone());
        let park = move |tasks: Vec<Parking>| {
            let (pool, batching) = (pool.clone(), batching.clone());
            async move { parking::park(&pool, &batching, &tasks).await }
        };
        self.ready.carry_out(task, park).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// Has many running tasks wait for a batch, in one transaction; [`Parked`] says of each what became of it.
    pub async fn park_all(&self, pool: &PgPool, tasks: &[Parking]) -> sqlx::Result<Vec<Parked>> {
        parking::together(pool, self, tasks).await
    }

    /// Keeps claims from taking up one by one what is applied together, until the value that this returns is dropped.
    pub fn applying(&self) -> Applying<'_> {
        self.applies.store(true, Ordering::Relaxed);
        Applying(self)
    }

    /// Whether answers are being applied to many tasks at once.
    pub fn is_applying(&self) -> bool {
        self.applies.load(Ordering::Relaxed)
    }

    /// The fields that the provider refuses for these models, by model.
    pub async fn refused(&self, pool: &PgPool, models: &[&str]) -> sqlx::Result<HashMap<String, Refused>> {
        let mut conn = pool.acquire().await?;
        store::llm_batches::refused(&mut conn, self.provider.as_str(), models).await
    }

    /// The request for a question without what the provider refuses, as one line of JSON.
    pub fn line(&self, custom_id: &str, ask: &Ask, refused: &HashMap<String, Refused>) -> String {
        let (model, nothing) = (ask.model.as_deref().unwrap_or(&self.model), Refused::new());
        let refused = refused.get(model).unwrap_or(&nothing);
        match self.provider {
            ProviderName::Anthropic => anthropic::line(custom_id, ask, model, refused),
            ProviderName::OpenAi | ProviderName::Mock => {
                openai::line(custom_id, body_without_stream(ask, model, refused))
            }
        }
    }

    /// The fields that a refusal names and that a request need not have.
    fn optional_fields_in(&self, refusal: &str) -> impl Iterator<Item = &'static str> {
        let is_anthropic = self.provider == ProviderName::Anthropic;
        fields_in(refusal).filter(move |field| !is_anthropic || anthropic::OPTIONAL.contains(field))
    }
}

/// See [`Batching::applying`].
#[derive(Debug)]
pub struct Applying<'a>(&'a Batching);

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        self.0.applies.store(false, Ordering::Relaxed);
    }
}

/// Codes of errors of single requests.
pub mod code {
    /// The text is longer than what the model reads.
    pub const TOO_LONG: &str = "too_long";
    /// The provider accepts no such request.
    pub const REFUSED: &str = "refused";
    /// The provider failed, and may succeed another time.
    pub const FAILED: &str = "failed";
    /// The batch failed as a whole.
    pub const BROKEN: &str = "broken";
    pub const ONLY_REASONING: &str = "only_reasoning";
    pub const EXPIRED: &str = "expired";
    pub const CANCELLED: &str = "cancelled";
    /// The batch ended, and said nothing of the request.
    pub const MISSING: &str = "missing";
}

/// An answer as a provider of chat completions words it, or why there is none.
fn answer_of(message: &Value) -> Result<LlmAnswer, Unanswered> {
    let mut received = Received::default();
    let mut text = received.take(message).map_err(|error| Unanswered::new(code::FAILED, error))?;
    text.push_str(&received.rest());
    let said = received.without_thoughts(&text).trim();
    let model = received.model.as_deref().unwrap_or_default();
    let usage = received.usage.unwrap_or_default();
    if !said.is_empty() {
        return Ok(answer(said, received.is_cut(), model, usage));
    }
    Err(match received.silence(&text) {
        Silence::Thought => unanswered(code::ONLY_REASONING, "the model thought and said nothing", model, usage),
        Silence::Refused(reason) => {
            let reason = api::message(&format!("the language model refuses: {reason}"));
            unanswered(code::REFUSED, &reason, model, usage)
        }
        Silence::Empty => unanswered(code::FAILED, "the answer is empty", model, usage),
    })
}

fn answer(text: &str, is_cut: bool, model: &str, usage: Usage) -> LlmAnswer {
    LlmAnswer {
        answer: storable(text).into_owned(),
        is_cut,
        model: storable(model).into_owned(),
        prompt_tokens: count(usage.prompt_tokens),
        completion_tokens: count(usage.completion_tokens),
        batch_id: None,
    }
}

/// Why there is no answer to a request that the model has read, and has to be paid for.
fn unanswered(code: &str, message: &str, model: &str, usage: Usage) -> Unanswered {
    Unanswered {
        code: code.to_owned(),
        message: message.to_owned(),
        model: storable(model).into_owned(),
        prompt_tokens: count(usage.prompt_tokens),
        completion_tokens: count(usage.completion_tokens),
    }
}

fn count(tokens: u64) -> i64 {
    i64::try_from(tokens.min(MOST_TOKENS)).unwrap_or(i64::MAX)
}
