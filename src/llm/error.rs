//! Why a language model gave no answer.
use crate::error::IntoFailure;
use std::time::Duration;
use svc_client::{Code, Failure};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    /// Nobody has named an endpoint, and none answers where one is by default.
    #[error("there is no language model: {0}")]
    NotConfigured(String),
    /// The endpoint cannot be reached. Trying again later loses nothing.
    #[error("the language model is away: {0}")]
    Away(String),
    /// The endpoint has too much to do, for everybody who asks this model.
    #[error("the language model has too much to do: {reason}")]
    Busy {
        retry_after: Duration,
        reason: String,
        /// The model is not that of the settings: a caller named it, and all others go on.
        is_named: bool,
    },
    /// The endpoint accepts no such call: a setting is wrong. Without a status it accepts the call, and its model or its filter refuses the text.
    #[error("the language model refuses: {reason}")]
    Refused { status: u16, setting: &'static str, reason: String },
    /// The text is longer than what the model reads.
    #[error("the text is longer than the language model takes: {0}")]
    TooLong(String),
    /// The call went wrong, and may go well another time.
    #[error("the language model failed: {0}")]
    Broken(String),
    /// The model thought and said nothing.
    #[error(
        "the language model spent its whole answer on reasoning, also when it was asked not to: set SVC_SUMMARIZATION_DISABLE_THINKING=true, or name a model that does not reason in SVC_LLM_MODEL"
    )]
    OnlyReasoning,
}

impl LlmError {
    /// A word for metrics.
    pub fn code(&self) -> &'static str {
        match self {
            LlmError::NotConfigured(_) => "not_configured",
            LlmError::Away(_) => "away",
            LlmError::Busy { .. } => "busy",
            LlmError::Refused { .. } => "refused",
            LlmError::TooLong(_) => "too_long",
            LlmError::Broken(_) => "broken",
            LlmError::OnlyReasoning => "only_reasoning",
        }
    }
}

impl IntoFailure for LlmError {
    fn into_failure(self) -> Failure {
        tracing::warn!(error = %self, "no answer of the language model");
        let message = self.to_string();
        match self {
            LlmError::NotConfigured(_) => {
                Failure::new(Code::NotConfigured, message).with("setting", "SVC_LLM_BASE_URL")
            }
            LlmError::Away(_) => Failure::new(Code::Unavailable, message)
                .with("setting", "SVC_LLM_BASE_URL")
                .with("remedy", "start the endpoint, or correct its address")
                .with("retry_after", 5),
            LlmError::Busy { retry_after, .. } => Failure::new(Code::Unavailable, message)
                .with("remedy", "try again later")
                .with("retry_after", retry_after.as_secs().max(1)),
            LlmError::Refused { status, setting, .. } => {
                let failure = Failure::new(Code::LlmFailed, message).with("setting", setting);
                if status == 0 { failure } else { failure.with("upstream_status", status) }
            }
            LlmError::TooLong(_) => Failure::new(Code::LlmFailed, message)
                .with("setting", "SVC_LLM_CONTEXT_TOKENS")
                .with("remedy", "set SVC_LLM_CONTEXT_TOKENS to what the model takes"),
            LlmError::Broken(_) => Failure::new(Code::LlmFailed, message).with("remedy", "try again"),
            LlmError::OnlyReasoning => {
                Failure::new(Code::LlmFailed, message).with("setting", "SVC_SUMMARIZATION_DISABLE_THINKING")
            }
        }
    }
}
