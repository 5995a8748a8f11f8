//! What all providers have in common.
use super::{
    anthropic::{self, Anthropic},
    mock::Mock,
    openai::{self, OpenAi},
};
use crate::{
    settings::Secret,
    store::llm_batches::{BatchCaps, BatchResult},
};
use chrono::{DateTime, Utc};
use futures_util::stream::BoxStream;
use serde_json::Value;
use std::{fs::File, time::Duration};
use svc_client::wire::LlmBatchOutcome;
use uuid::Uuid;

svc_client::words! {
    /// A provider by its name.
    pub ProviderName { Mock = "mock", OpenAi = "openai", Anthropic = "anthropic", }
}

impl ProviderName {
    /// The most requests and bytes of one batch, with room for what stands around the requests.
    pub const fn caps(self) -> BatchCaps {
        match self {
            ProviderName::OpenAi | ProviderName::Mock => BatchCaps { requests: 50_000, bytes: 190_000_000 },
            ProviderName::Anthropic => BatchCaps { requests: 100_000, bytes: 243_000_000 },
        }
    }
}

/// Why a provider did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// It cannot be reached, or has too much to do; whether it did what it was asked may be unknown.
    #[error("the provider is away: {reason}")]
    Away {
        reason: String,
        retry_after: Option<Duration>,
        /// Whether it surely did not do it.
        is_certain: bool,
    },
    /// It accepts no such call. Somebody has to correct a setting.
    #[error("the provider refuses: {0}")]
    Refused(String),
    /// It accepts this batch in no case.
    #[error("the provider does not take the batch: {0}")]
    NotTaken(String),
    /// It does not know the batch.
    #[error("the provider does not know the batch: {0}")]
    Unknown(String),
}

/// The word of a provider that began no request of a batch, because it has as many tokens of this model in hand as it takes.
pub const TOKEN_LIMIT: &str = "token_limit_exceeded";

/// Where a submitted batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Working,
    Ended {
        outcome: LlmBatchOutcome,
        /// Where its results are, in the provider's words.
        results: Vec<String>,
        /// What the provider says of the whole batch, if it went wrong.
        problem: Option<String>,
        /// The provider's word for that.
        code: Option<String>,
    },
}

/// A batch that a provider has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub provider_id: String,
    pub expires_at: Option<DateTime<Utc>>,
}

/// What is submitted: a file with one request a line.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    pub key: Uuid,
    pub file: &'a File,
    pub bytes: u64,
}

/// The lines of results; `None` is a line that is no JSON.
pub type Results = BoxStream<'static, Result<Option<Value>, ProviderError>>;

/// A provider of batches.
#[derive(Debug)]
pub enum Provider {
    OpenAi(OpenAi),
    Anthropic(Anthropic),
    Mock(Mock),
}

impl Provider {
    pub fn openai(base: &str, key: Secret) -> Result<Provider, ProviderError> {
        OpenAi::new(base, key).map(Provider::OpenAi)
    }

    pub fn anthropic(base: &str, key: Secret) -> Result<Provider, ProviderError> {
        Anthropic::new(base, key).map(Provider::Anthropic)
    }

    /// Hands a batch over.
    pub async fn submit(&self, submission: Submission<'_>) -> Result<Accepted, ProviderError> {
        match self {
            Provider::OpenAi(provider) => provider.submit(submission).await,
            Provider::Anthropic(provider) => provider.submit(submission).await,
            Provider::Mock(provider) => provider.submit(submission).await,
        }
    }

    /// The batch with this key, if the provider has it and can tell.
    pub async fn find(&self, key: Uuid, since: DateTime<Utc>) -> Result<Option<Accepted>, ProviderError> {
        match self {
            Provider::OpenAi(provider) => provider.find(key, since).await,
            Provider::Anthropic(provider) => provider.find(since).await,
            Provider::Mock(provider) => provider.find(key).await,
        }
    }

    /// Whether [`find`](Self::find) tells of every batch.
    pub fn can_find(&self) -> bool {
        !matches!(self, Provider::Anthropic(_))
    }

    pub async fn progress(&self, provider_id: &str) -> Result<Progress, ProviderError> {
        match self {
            Provider::OpenAi(provider) => provider.progress(provider_id).await,
            Provider::Anthropic(provider) => provider.progress(provider_id).await,
            Provider::Mock(provider) => provider.progress(provider_id).await,
        }
    }

    /// Reads results, which come in any order.
    pub async fn results(&self, at: &str) -> Result<Results, ProviderError> {
        match self {
            Provider::OpenAi(provider) => provider.results(at).await,
            Provider::Anthropic(provider) => provider.results(at).await,
            Provider::Mock(provider) => provider.results(at).await,
        }
    }

    /// What a line of results says; `None` if it names no request.
    pub fn result(&self, line: &Value) -> Option<BatchResult> {
        match self {
            Provider::OpenAi(_) | Provider::Mock(_) => openai::result(line),
            Provider::Anthropic(_) => anthropic::result(line),
        }
    }

    /// Asks for the end of a batch. What was answered until then is still delivered.
    pub async fn cancel(&self, provider_id: &str) -> Result<(), ProviderError> {
        match self {
            Provider::OpenAi(provider) => provider.cancel(provider_id).await,
            Provider::Anthropic(provider) => provider.cancel(provider_id).await,
            Provider::Mock(provider) => provider.cancel(provider_id).await,
        }
    }
}
