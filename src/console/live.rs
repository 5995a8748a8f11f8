//! Tells live pages that there is news. What is new, a page reads at its own address, so that it needs no state here.
use super::{
    Console,
    auth::{SessionState, Viewer},
    layout,
};
use crate::{
    admission::Place,
    error::OrFail,
    store::{
        event_feed::{self, Audience},
        story,
    },
};
use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use std::{convert::Infallible, sync::Arc, time::Duration};
use svc_client::Failure;
use tokio::{sync::watch, time::Instant};

/// The shortest time between two pieces of news for the owner.
const EVERY: Duration = Duration::from_secs(1);
/// The time between two messages to a principal. It hears no sooner of anything, because the moment would tell of each event that it may not read.
const BEAT: Duration = Duration::from_secs(2);
/// A principal is told at each of so many beats, whatever happened: a claim, a pause and a lost worker show on a page, but write neither an event nor an
/// attempt. A fixed clock tells nothing of what is hidden.
const CLOCK: u32 = 5;
/// How many of the newest events and attempts are looked at for news, so that a look takes no longer however much happened. The clock tells of the others.
const NEWEST: i64 = 1_000;
/// A stream without news says after this time that it lives.
const QUIET: Duration = Duration::from_secs(5);
/// The message that there is news.
const CHANGED: Bytes = Bytes::from_static(b"event: changed\ndata: 1\n\n");
/// The time between two looks whether the owner is still signed in.
const CHECK: Duration = Duration::from_secs(5);

/// What tells that a page may have changed.
enum News {
    /// Each overview: the owner's pages are made of them.
    Overviews(watch::Receiver<u64>),
    /// What a principal may read of what happened since it was looked for, and how many beats there were since the clock told it last.
    Readable { seen: Option<Seen>, beats: u32 },
}

/// What was there when news were looked for.
#[derive(Clone, Copy)]
struct Seen {
    event: i64,
    attempt: i64,
    /// The attempts at tasks up to this id were told. It is one look behind, because an attempt may be committed after one with a greater id.
    told_attempt: i64,
}

impl News {
    fn of(console: &Console, viewer: &Viewer) -> News {
        let sampler = &console.service.sampler;
        if viewer.is_owner() {
            sampler.look();
            return News::Overviews(sampler.follow());
        }
        News::Readable { seen: None, beats: 0 }
    }
}

/// Waits for the next overview; returns whether there was one in time.
async fn overview(console: &Console, taken: &mut watch::Receiver<u64>) -> bool {
    tokio::time::sleep(EVERY).await;
    console.service.sampler.look();
    let changed = async {
        if taken.changed().await.is_err() {
            // Nobody tells any more, because the service ends.
            std::future::pending::<()>().await;
        }
    };
    tokio::time::timeout(QUIET, changed).await.is_ok()
}

/// Whether something has happened since the last look that a principal may read: an event, or an attempt at a task, because what is ingested changes
/// before an event says so.
async fn look(console: &Console, viewer: &Viewer, seen: &mut Option<Seen>) -> Result<bool, Failure> {
    // The semaphore is never closed.
    let _turn = console.service.watching.acquire().await.ok();
    let mut conn = console.service.pool.acquire().await.or_fail()?;
    let (event, attempt) = event_feed::latest(&mut conn).await.or_fail()?;
    let last = seen.unwrap_or(Seen { event, attempt, told_attempt: attempt });
    let audience = Audience { readable: viewer.caller.readable(), principal: viewer.caller.principal_id() };
    let after_event = last.event.max(event - NEWEST);
    let is_told =
        event > last.event && event_feed::has_news(&mut conn, &audience, after_event, event).await.or_fail()?;
    let after_attempt = last.told_attempt.max(last.attempt - NEWEST);
    let went_on = !is_told
        && last.attempt > last.told_attempt
        && story::has_attempts(&mut conn, &audience.readable, after_attempt, last.attempt).await.or_fail()?;
    *seen = Some(Seen { event, attempt, told_attempt: last.attempt });
    Ok(is_told || went_on)
}

struct Follower {
    console: Arc<Console>,
    news: News,
    is_first: bool,
    viewer: Viewer,
    /// When the owner was last seen to be signed in.
    checked: Instant,
    _place: Place,
}

impl Follower {
    /// The next message; `None` when the service or the session ends.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_first) {
            return Some(Bytes::from_static(b"retry: 2000\n\n"));
        }
        let ending = self.console.service.ending.clone();
        tokio::select! {
            () = ending.cancelled() => None,
            message = self.message() => message,
        }
    }

    /// Waits for something that may show on the page; `None` when the session ends.
    async fn message(&mut self) -> Option<Bytes> {
        let is_new = match &mut self.news {
            News::Overviews(taken) => {
                if self.checked.elapsed() >= CHECK {
                    self.checked = Instant::now();
                    match self.viewer.session_state(&self.console).await {
                        SessionState::Ended => return None,
                        SessionState::HasOtherRights => return Some(CHANGED),
                        SessionState::Lasts => {}
                    }
                }
                overview(&self.console, taken).await
            }
            News::Readable { seen, beats } => {
                tokio::time::sleep(BEAT).await;
                *beats = (*beats + 1) % CLOCK;
                // A look with rights of before would tell of what the viewer may not read any more.
                match self.viewer.session_state(&self.console).await {
                    SessionState::Ended => return None,
                    SessionState::HasOtherRights => return Some(CHANGED),
                    SessionState::Lasts => {}
                }
                // While the database is away, nothing is new.
                *beats == 0 || look(&self.console, &self.viewer, seen).await.unwrap_or_default()
            }
        };
        Some(if is_new { CHANGED } else { Bytes::from_static(b": quiet\n\n") })
    }
}

pub async fn follow(State(console): State<Arc<Console>>, viewer: Viewer) -> Response {
    let place = match console.service.admission.live_page(viewer.caller.principal_id()) {
        Ok(place) => place,
        Err(failure) => return layout::bare_refusal(&failure),
    };
    let mut news = News::of(&console, &viewer);
    if let News::Readable { seen, .. } = &mut news
        && let Err(failure) = look(&console, &viewer, seen).await
    {
        return layout::bare_refusal(&failure);
    }
    let follower = Follower { news, is_first: true, viewer, checked: Instant::now(), _place: place, console };
    let messages = stream::unfold(follower, async |mut follower| {
        let message = follower.next().await?;
        Some((Ok::<_, Infallible>(message), follower))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(messages)).into_response()
}
