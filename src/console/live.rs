//! Tells live pages that there is news. What is new, a page reads at its own address, so that it needs no state here.
use super::{Console, auth::Viewer};
use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// The shortest time between two pieces of news.
const EVERY: Duration = Duration::from_secs(1);
/// A stream without news says after this time that it lives.
const QUIET: Duration = Duration::from_secs(5);

struct Follower {
    console: Arc<Console>,
    news: watch::Receiver<u64>,
    is_first: bool,
    is_owner: bool,
    _place: OwnedSemaphorePermit,
}

impl Follower {
    /// The next message; `None` when the service ends.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_first) {
            return Some(Bytes::from_static(b"retry: 2000\n\n"));
        }
        let ending = self.console.service.ending.clone();
        let news = async {
            tokio::time::sleep(EVERY).await;
            if !self.is_owner {
                // What others see does not come from the overview, so time alone tells them to look.
                tokio::time::sleep(EVERY).await;
                return true;
            }
            self.console.service.sampler.look();
            matches!(tokio::time::timeout(QUIET, self.news.changed()).await, Ok(Ok(())))
        };
        tokio::select! {
            () = ending.cancelled() => None,
            is_new = news => Some(Bytes::from_static(if is_new { b"event: changed\ndata: 1\n\n" } else { b": quiet\n\n" })),
        }
    }
}

pub async fn follow(State(console): State<Arc<Console>>, viewer: Viewer) -> Response {
    let Ok(place) = console.viewers.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "10")]).into_response();
    };
    if viewer.is_owner() {
        console.service.sampler.look();
    }
    let news = console.service.sampler.follow();
    let follower = Follower { news, is_first: true, is_owner: viewer.is_owner(), _place: place, console };
    let messages = stream::unfold(follower, async |mut follower| {
        let message = follower.next().await?;
        Some((Ok::<_, Infallible>(message), follower))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(messages)).into_response()
}
