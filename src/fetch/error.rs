//! Why nothing was fetched.
use super::Url;
use std::{error::Error, io};

/// Why nothing was fetched. The texts name the host alone: a path or a query may hold a secret, and what an address
/// answered is nobody's business.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    #[error("the address cannot be fetched: {reason}")]
    Address { reason: &'static str },
    #[error(
        "{host} has no public address, and the service only fetches from public ones: an operator can allow others by SVC_FETCH_ALLOW"
    )]
    Forbidden { host: String },
    #[error("the name {host} cannot be looked up: check the address")]
    Unresolved { host: String },
    #[error("{host} cannot be reached: {reason}")]
    Unreached { host: String, reason: String },
    #[error("{host} redirects more than {limit} times")]
    Redirects { host: String, limit: usize },
    #[error("{host} sends more than {limit} bytes, the value of SVC_FETCH_MAX_BYTES")]
    TooLarge { host: String, limit: u64 },
    #[error("{host} did not send everything within the time of SVC_FETCH_TIMEOUT_SECONDS")]
    Timeout { host: String },
    #[error("{host} sends too slowly")]
    Stalled { host: String },
    #[error("the answer of {host} cannot be used: {reason}")]
    Broken { host: String, reason: String },
}

fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

impl FetchError {
    /// Whether the address itself is refused, so that another try would be refused too.
    pub fn is_refusal(&self) -> bool {
        matches!(self, FetchError::Address { .. } | FetchError::Forbidden { .. })
    }

    pub(super) fn forbidden(url: &Url) -> FetchError {
        FetchError::Forbidden { host: host(url) }
    }

    pub(super) fn unresolved(url: &Url) -> FetchError {
        FetchError::Unresolved { host: host(url) }
    }

    pub(super) fn timeout(url: &Url) -> FetchError {
        FetchError::Timeout { host: host(url) }
    }

    pub(super) fn stalled(url: &Url) -> FetchError {
        FetchError::Stalled { host: host(url) }
    }

    pub(super) fn too_large(url: &Url, limit: u64) -> FetchError {
        FetchError::TooLarge { host: host(url), limit }
    }

    pub(super) fn broken(url: &Url, reason: impl Into<String>) -> FetchError {
        FetchError::Broken { host: host(url), reason: reason.into() }
    }

    /// Says what went wrong without the address, which the client's own texts contain.
    pub(super) fn of(url: &Url, error: reqwest::Error) -> FetchError {
        match cause(&error) {
            Some(reason) => FetchError::Unreached { host: host(url), reason },
            None if error.is_timeout() => {
                FetchError::Unreached { host: host(url), reason: "it does not answer".into() }
            }
            None if error.is_connect() => FetchError::Unreached { host: host(url), reason: "no connection".into() },
            None => FetchError::broken(url, "it does not keep to HTTP"),
        }
    }
}

/// What TLS or the operating system says; `None` if neither is the cause.
fn cause(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(format!("TLS fails: {error}"));
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        // An error of TLS is inside one of input or output.
        return match error.get_ref() {
            Some(inner) => cause(inner),
            None => Some(error.kind().to_string()),
        };
    }
    cause(error.source()?)
}
