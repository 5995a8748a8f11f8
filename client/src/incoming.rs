//! An answer that is being received.
use crate::{Failure, position::Known};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream::BoxStream};
use http::{HeaderMap, HeaderName};

/// A successful answer whose header has arrived and whose body has not been read yet.
pub struct Incoming {
    pub status: u16,
    pub headers: HeaderMap,
    response: reqwest::Response,
    called: Called,
    limit: usize,
    /// What the client knows of the store; an answer that comes in pieces adds to it.
    pub(crate) known: Known,
}

impl Incoming {
    pub(crate) fn new(mut response: reqwest::Response, called: Called, limit: usize, known: Known) -> Incoming {
        let (status, headers) = (response.status().as_u16(), std::mem::take(response.headers_mut()));
        Incoming { status, headers, response, called, limit, known }
    }

    /// A header's value as text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body piece by piece, without a limit on its length.
    pub fn pieces(self) -> BoxStream<'static, Result<Bytes, Failure>> {
        let called = self.called;
        self.response.bytes_stream().map_err(move |error| called.lost(&error)).boxed()
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// [`Code::Unreachable`](crate::Code::Unreachable) if the body breaks off or is longer than the client accepts.
    pub async fn bytes(self) -> Result<Vec<u8>, Failure> {
        let Incoming { mut response, called, limit, .. } = self;
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| called.lost(&error))? {
            if bytes.len() + piece.len() > limit {
                let detail = format!("the answer from {} is larger than {limit} bytes", called.base);
                return Err(called.failure(detail, true));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

/// What a failure tells of its call.
pub(crate) struct Called {
    pub base: String,
    /// Whether the call changes nothing.
    pub only_reads: bool,
}

impl Called {
    /// The failure of a call that got no answer, or only part of one.
    pub fn lost(&self, error: &reqwest::Error) -> Failure {
        // This says whether the service may have read the request: one that was never sent can safely be sent again.
        self.failure(why_lost(&self.base, error), !error.is_connect())
    }

    fn failure(&self, detail: String, sent: bool) -> Failure {
        Failure::unreachable(detail).with("sent", sent).with("only_reads", self.only_reads)
    }
}

/// Says why there is no answer, and which end to look at.
fn why_lost(base: &str, error: &reqwest::Error) -> String {
    let mut causes: Vec<&(dyn std::error::Error + 'static)> = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    let io = causes.iter().find_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    let mentions = |what: &str| causes.iter().any(|cause| cause.to_string().contains(what));
    match io {
        Some(std::io::ErrorKind::ConnectionRefused) => format!("nothing listens at {base} (connection refused)"),
        _ if mentions("dns error") => format!("the host of {base} is not known"),
        _ if error.is_timeout() => format!("no answer from {base} in time"),
        _ => {
            let cause = causes.last().map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("no answer from {base}{cause}; is an svc service there?")
        }
    }
}
