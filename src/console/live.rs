//! Tells live pages that there is news. What is new, a page reads at its own address, so that it needs no state here.
use super::{
    Console,
    auth::{SessionState, Viewer},
    layout,
};
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
/// The message that there is news.
const CHANGED: Bytes = Bytes::from_static(b"event: changed\ndata: 1\n\n");
/// The time between two looks whether the viewer is still signed in.
const CHECK: Duration = Duration::from_secs(5);

/// What tells that a page may have changed.
enum News {
    /// Each overview: the owner's pages are made of them.
    Overviews(watch::Receiver<u64>),
    /// Each event, and how the queue was when the page was told last: what is ingested changes before an event says so.
    Events { newest: watch::Receiver<i64>, queue: Option<u64> },
}

impl News {
    fn of(console: &Console, viewer: &Viewer) -> News {
        let sampler = &console.service.sampler;
        if viewer.is_owner() {
            sampler.look();
            return News::Overviews(sampler.follow());
        }
        News::Events { newest: console.service.news.follow(), queue: sampler.queue_mark() }
    }

    /// Returns when something has happened that may show on the page.
    async fn changed(&mut self, console: &Console) {
        let is_followed = match self {
            News::Overviews(taken) => {
                console.service.sampler.look();
                taken.changed().await.is_ok()
            }
            News::Events { newest, queue } => loop {
                let now = console.service.sampler.queue_mark();
                if std::mem::replace(queue, now) != now {
                    // What happened until now is told with it.
                    newest.borrow_and_update();
                    break true;
                }
                if let Ok(changed) = tokio::time::timeout(EVERY, newest.changed()).await {
                    break changed.is_ok();
                }
            },
        };
        if !is_followed {
            // Nobody tells any more, because the service ends.
            std::future::pending().await
        }
    }
}

struct Follower {
    console: Arc<Console>,
    news: News,
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
            self.checked = Instant::now();
            match self.viewer.session_state(&self.console).await {
                SessionState::Ended => return None,
                SessionState::HasOtherRights => return Some(CHANGED),
                SessionState::Lasts => {}
            }
        }
        let ending = self.console.service.ending.clone();
        let news = async {
            tokio::time::sleep(if self.viewer.is_owner() { EVERY } else { EVERY * 2 }).await;
            tokio::time::timeout(QUIET, self.news.changed(&self.console)).await.is_ok()
        };
        tokio::select! {
            () = ending.cancelled() => None,
            is_new = news => Some(if is_new { CHANGED } else { Bytes::from_static(b": quiet\n\n") }),
        }
    }
}

pub async fn follow(State(console): State<Arc<Console>>, viewer: Viewer) -> Response {
    let place = match console.service.admission.live_page(viewer.caller.principal_id()) {
        Ok(place) => place,
        Err(failure) => return layout::bare_refusal(&failure),
    };
    let news = News::of(&console, &viewer);
    let follower = Follower { news, is_first: true, viewer, checked: Instant::now(), _place: place, console };
    let messages = stream::unfold(follower, async |mut follower| {
        let message = follower.next().await?;
        Some((Ok::<_, Infallible>(message), follower))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(messages)).into_response()
}
