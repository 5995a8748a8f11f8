//! Bodies: incoming ones must keep moving, and come back where they are not read to their end; at the end of an outgoing
//! one the answer is made.
use super::activity::Request;
use crate::registry::BodyStalled;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    future::poll_fn,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// This many bytes of a body, or its end, must arrive within the time that a body may stall.
const STEP: u64 = 16 * 1024;
/// The rest of a body that its reader left is read within this time, if it is no longer than this.
const REST_TIMEOUT: Duration = Duration::from_millis(100);
const REST_BYTES: u64 = 64 * 1024;

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

/// A body that comes back to the connection when its reader is done with it.
pub(super) struct Lent<B> {
    body: Option<B>,
    rest: Rest<B>,
}

/// What the reader of a body leaves of it.
pub(super) struct Rest<B>(Arc<Mutex<Left<B>>>);

enum Left<B> {
    /// Nobody knows yet.
    Unknown,
    Nothing,
    Some(B),
}

/// Lends a body to its reader.
pub(super) fn lend<B>(body: B) -> (Lent<B>, Rest<B>) {
    let left = Arc::new(Mutex::new(Left::Unknown));
    (Lent { body: Some(body), rest: Rest(left.clone()) }, Rest(left))
}

impl<B> Rest<B> {
    fn set(&self, left: Left<B>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }
}

impl<B: Body<Data = Bytes> + Unpin> Rest<B> {
    /// Whether nothing of the body is still to come. A short rest of it is read for that, if a look at it asks the client
    /// for nothing.
    pub(super) async fn is_over(&self, may_look: bool) -> bool {
        let left = mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), Left::Unknown);
        let mut body = match left {
            Left::Nothing => return true,
            // Somebody still reads it.
            Left::Unknown => return false,
            Left::Some(body) => body,
        };
        if body.is_end_stream() {
            return true;
        }
        if !may_look || body.size_hint().lower() > REST_BYTES {
            return false;
        }
        let read = async {
            let mut bytes = 0;
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                let Ok(frame) = frame else { return false };
                bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if bytes > REST_BYTES {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(REST_TIMEOUT, read).await.unwrap_or(false)
    }
}

impl<B: Body + Unpin> Body for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if frame.is_none() {
            self.body = None;
            self.rest.set(Left::Nothing);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            self.rest.set(Left::Some(body));
        }
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
