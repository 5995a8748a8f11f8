//! Bodies: incoming ones must keep moving, and at the end of an outgoing one the answer is made.
use super::activity::Request;
use crate::registry::BodyStalled;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// This many bytes of a body, or its end, must arrive within the time that a body may stall.
const STEP: u64 = 16 * 1024;

/// A body that fails once it stalls. Only the time for which its reader waits for the client counts.
pub(super) struct Paced<B> {
    body: B,
    limit: Duration,
    /// The bytes of the present step that have arrived, and how long they were waited for.
    came: u64,
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<B> Paced<B> {
    pub(super) fn new(body: B, limit: Duration) -> Paced<B> {
        Paced { body, limit, came: 0, waited: Duration::ZERO, waiting: None }
    }
}

impl<B> Body for Paced<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            let left = this.limit.saturating_sub(this.waited);
            let (_, sleep) = this.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(left))));
            ready!(sleep.as_mut().poll(cx));
            return Poll::Ready(Some(Err(BodyStalled { least: STEP, within: this.limit }.into())));
        };
        if let Some((since, _)) = this.waiting.take() {
            this.waited += since.elapsed();
        }
        if let Some(Ok(frame)) = &frame {
            this.came += frame.data_ref().map_or(0, |data| data.len() as u64);
            if this.came >= STEP {
                (this.came, this.waited) = (0, Duration::ZERO);
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer; when it ends, the answer is made.
pub(super) struct Answer {
    pub(super) body: axum::body::Body,
    pub(super) _request: Request,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
