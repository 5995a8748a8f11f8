//! Logs and measures answers whose bodies are produced while they are sent.
use crate::telemetry;
use axum::{
    body::{Body, Bytes, HttpBody},
    response::Response,
};
use http::header;
use http_body::{Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};
use tracing::Span;

/// Makes the end of a streamed body appear in the log of its request; any other answer is passed on unchanged.
pub(super) fn watch(response: Response, operation: &'static str, started: Instant) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    metrics::gauge!(telemetry::STREAMS, "operation" => operation).increment(1.0);
    let (span, length) = (Span::current(), response.headers().get(header::CONTENT_LENGTH));
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    response.map(|body| Body::new(Streamed { body, operation, started, span, length, bytes: 0, ended: false }))
}

/// A streamed body. If it is dropped before its end, the client has gone or the service has ended.
struct Streamed {
    body: Body,
    operation: &'static str,
    started: Instant,
    span: Span,
    /// The length of the body, if it is known; nobody polls the body again after that many bytes.
    length: Option<u64>,
    bytes: u64,
    ended: bool,
}

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let _entered = this.span.enter();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => this.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(error)) => tracing::warn!(error = %error, "the stream broke off"),
            None => this.ended = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        metrics::gauge!(telemetry::STREAMS, "operation" => self.operation).decrement(1.0);
        let elapsed_ms = self.started.elapsed().as_secs_f64() * 1e3;
        let (bytes, complete) = (self.bytes, self.ended || self.length == Some(self.bytes));
        self.span.in_scope(|| tracing::info!(bytes, complete, elapsed_ms, "the stream ended"));
    }
}
