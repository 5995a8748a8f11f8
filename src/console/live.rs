//! Tells live pages that there is news. What is new, a page reads at its own address, so that it needs no state here.
use super::{Console, auth::Viewer, layout};
use crate::admission::Place;
use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

/// The shortest time between two pieces of news.
const EVERY: Duration = Duration::from_secs(1);
/// A stream without news says after this time that it lives.
const QUIET: Duration = Duration::from_secs(5);
/// The time between two looks whether the viewer is still signed in.
const CHECK: Duration = Duration::from_secs(5);

struct Follower {
    console: Arc<Console>,
    news: watch::Receiver<u64>,
    is_first: bool,
    viewer: Viewer,
    /// When the viewer was last seen to be signed in.
    checked: Instant,
    _place: Place,
}

impl Follower {
    /// The next message; `None` when the service or the session ends.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_first) {
            return Some(Bytes::from_static(b"retry: 2000\n\n"));
        }
        if self.checked.elapsed() >= CHECK {
            if !self.viewer.is_signed_in(&self.console).await {
                return None;
            }
            self.checked = Instant::now();
        }
        let ending = self.console.service.ending.clone();
        let news = async {
            tokio::time::sleep(EVERY).await;
            if !self.viewer.is_owner() {
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
    let place = match console.service.admission.live_page(viewer.caller.principal_id()) {
        Ok(place) => place,
        Err(failure) => return layout::bare_refusal(&failure),
    };
    if viewer.is_owner() {
        console.service.sampler.look();
    }
    let news = console.service.sampler.follow();
    let follower = Follower { news, is_first: true, viewer, checked: Instant::now(), _place: place, console };
    let messages = stream::unfold(follower, async |mut follower| {
        let message = follower.next().await?;
        Some((Ok::<_, Infallible>(message), follower))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(messages)).into_response()
}
