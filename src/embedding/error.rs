//! Why a text has no vector.
use crate::error::IntoFailure;
use std::time::Duration;
use svc_client::{Code, Failure};
use svc_models::ModelError;

#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The runner could not be asked. Trying again later loses nothing.
    #[error("the runner is away: {reason}")]
    Away { reason: String, retry_after: Option<Duration> },
    /// The runner was asked and gave no usable answer.
    #[error("the runner failed: {0}")]
    Broken(String),
    /// The runner accepts no calls from here: the settings of one of the two are wrong.
    #[error("the runner refuses: {0}")]
    Refused(String),
    /// Nobody searches or makes vectors of this process's model now.
    #[error(
        "the vectors of {serving} serve, and this process does not have it: set SVC_EMBEDDING_MODEL to it (with SVC_EMBEDDING_PRECISION), or SVC_EMBEDDING_COMING_MODEL"
    )]
    NotServing { serving: String },
    /// The runner accepts calls, but not the texts of these numbers.
    #[error("the runner refuses the text: {reason}")]
    TextRefused { texts: Vec<usize>, reason: String },
}

impl EmbedError {
    pub(super) fn away(reason: impl Into<String>) -> EmbedError {
        EmbedError::Away { reason: reason.into(), retry_after: None }
    }

    /// The meaning of a refusal or of a missing answer.
    pub(super) fn of(failure: Failure) -> EmbedError {
        let number = |name: &str| failure.members.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0) as usize;
        let retry_after = failure.members.get("retry_after").and_then(serde_json::Value::as_u64);
        match failure.status {
            0 if failure.members.get("sent") == Some(&false.into()) => EmbedError::away(failure.detail),
            500 if failure.members.contains_key("without_direction") => {
                let texts = failure.members["without_direction"].as_array().into_iter().flatten();
                let texts = texts.filter_map(|text| usize::try_from(text.as_u64()?).ok()).collect();
                EmbedError::Model(ModelError::NoDirection { texts })
            }
            0 | 500 => EmbedError::Broken(failure.detail),
            // A body that came too slowly comes in time where less is under way.
            408 | 429 | 502 | 503 | 504 => {
                EmbedError::Away { reason: failure.detail, retry_after: retry_after.map(Duration::from_secs) }
            }
            401 | 403 => {
                EmbedError::Refused("SVC_RUNNER_KEY is not the runner's key: set both to the same key".to_owned())
            }
            404 => EmbedError::Refused("there is no svc with /runner routes at SVC_RUNNER_URL".to_owned()),
            400 | 413 | 415 | 422 if failure.code == Code::TextTooLong => EmbedError::Model(ModelError::TextTooLong {
                index: number("index"),
                token_count: number("token_count"),
                limit: number("limit"),
                chars_total: number("chars_total"),
            }),
            400 | 413 | 415 | 422 => EmbedError::TextRefused { texts: vec![0], reason: failure.to_string() },
            _ => EmbedError::Refused(failure.to_string()),
        }
    }
}

impl IntoFailure for ModelError {
    fn into_failure(self) -> Failure {
        match self {
            ModelError::TextTooLong { token_count, limit, chars_total, .. } => Failure::new(
                Code::TextTooLong,
                format!("the text has {token_count} tokens, but the model's window is {limit}"),
            )
            .with("token_count", token_count)
            .with("limit", limit)
            .with("chars_total", chars_total)
            .with("remedy", "split the text into documents that fit the window"),
            ModelError::DeviceLost { retry_after, message } => {
                tracing::warn!(reason = message, "no vector: the model's device is lost");
                Failure::new(Code::Unavailable, "the model's device is lost and is being opened again")
                    .with("remedy", "try again shortly")
                    .with("retry_after", retry_after.as_secs())
            }
            ModelError::NoDirection { texts } => {
                tracing::error!(texts = texts.len(), "the model returned vectors without a direction");
                Failure::new(
                    Code::Internal,
                    "the model returned no usable vector for a text: it is not finite, or zero",
                )
                .with("without_direction", texts)
            }
            error => {
                tracing::error!(error = %error, "the model failed");
                Failure::new(Code::Internal, "the model failed; the log has the cause under this request's id")
            }
        }
    }
}

impl IntoFailure for EmbedError {
    fn into_failure(self) -> Failure {
        let (what, seconds) = match self {
            EmbedError::Model(error) => return error.into_failure(),
            EmbedError::TextRefused { reason, .. } => return Failure::new(Code::InvalidField, reason),
            EmbedError::NotServing { .. } => {
                ("the vectors of another model serve, which this process does not have; the service's log names it", 60)
            }
            EmbedError::Away { retry_after, .. } => {
                ("the embedding model's runner does not answer now", retry_after.map_or(2, |time| time.as_secs()))
            }
            EmbedError::Broken(_) => ("the embedding model's runner failed", 2),
            EmbedError::Refused(_) => ("the embedding model's runner refuses to work for this service", 60),
        };
        tracing::warn!(error = %self, "no vector");
        Failure::new(Code::Unavailable, what).with("remedy", "try again shortly").with("retry_after", seconds)
    }
}

/// Why a query has no vector. Who asked it learns of the query, and not of a document.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct QueryError(#[from] EmbedError);

impl IntoFailure for QueryError {
    fn into_failure(self) -> Failure {
        match self.0 {
            EmbedError::Model(ModelError::TextTooLong { token_count, limit, chars_total, .. }) => Failure::new(
                Code::TextTooLong,
                format!("the query has {token_count} tokens, but the model's window is {limit}"),
            )
            .with("field", "query")
            .with("token_count", token_count)
            .with("limit", limit)
            .with("chars_total", chars_total)
            .with("remedy", "ask in fewer words, or search by bm25 or auto, which take a longer query"),
            error => error.into_failure(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_pass_is_told_from_what_will_not() {
        let word = |failure: Failure| match EmbedError::of(failure) {
            EmbedError::Model(ModelError::TextTooLong { token_count, limit, .. }) => format!("{token_count}>{limit}"),
            EmbedError::Model(ModelError::NoDirection { texts }) => format!("no direction {}", texts[0]),
            EmbedError::Model(_) => "model".to_owned(),
            EmbedError::Away { retry_after, .. } => format!("away {}", retry_after.map_or(0, |time| time.as_secs())),
            EmbedError::Broken(_) => "broken".to_owned(),
            EmbedError::Refused(_) => "refused".to_owned(),
            EmbedError::NotServing { .. } => "not serving".to_owned(),
            EmbedError::TextRefused { .. } => "text refused".to_owned(),
        };
        let of = |code| Failure::new(code, "x");
        let lost = |sent: bool| of(Code::Unreachable).with("sent", sent);
        let bare = |status| Failure { status, ..of(Code::Unreachable) };
        for (failure, expected) in [
            (lost(false), "away 0"),
            (lost(true), "broken"),
            (of(Code::Unreachable), "broken"),
            (of(Code::TooManyRequests).with("retry_after", 3), "away 3"),
            (of(Code::Unavailable), "away 0"),
            (bare(408), "away 0"),
            (bare(502), "away 0"),
            (bare(504), "away 0"),
            (bare(301), "refused"),
            (of(Code::Internal), "broken"),
            (of(Code::Internal).with("without_direction", [2, 5]), "no direction 2"),
            (of(Code::Unauthenticated), "refused"),
            (bare(404), "refused"),
            (of(Code::VersionMismatch), "refused"),
            (of(Code::NotConfigured), "refused"),
            (of(Code::TextTooLong).with("token_count", 9).with("limit", 8), "9>8"),
            (of(Code::TooLarge), "text refused"),
            (of(Code::InvalidField), "text refused"),
        ] {
            let shown = failure.to_string();
            assert_eq!(word(failure), expected, "{shown}");
        }
    }
}
