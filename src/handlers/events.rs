//! What happened, as a stream that never ends by itself and goes on where a caller left off.
use crate::{
    access::Caller,
    admission,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        event_feed::{Audience, Given, PAGE, Page, Wanted},
    },
};
use chrono::{DateTime, Utc};
use futures_util::stream;
use sqlx::{PgConnection, PgPool};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use svc_client::{
    Call, Code, Event, EventStream, Failure, Sent, ops,
    wire::{EventResponse, Since},
};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// The header by which a caller goes on where it was.
const HEADER: &str = "Last-Event-ID";
/// How often a stream makes sure that its caller may still read, if it has no events, and tells how far it has come. It tells that no
/// sooner, because the moment would tell of each event that its caller may not read.
const BEAT: Duration = Duration::from_secs(2);
/// For how long after it was read a page is handed out. What is left then is read again, by the rights of that moment.
const FRESH: Duration = Duration::from_secs(1);
/// The pause while the database is away.
const PAUSE: Duration = Duration::from_secs(1);
/// How many times in a row the database may be unreachable before a stream ends.
const AWAY: u32 = 30;

impl Handle<ops::follow_events> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::follow_events>,
    ) -> Result<EventStream<EventResponse>, Failure> {
        let place = self.admission.event_stream(caller.principal_id())?;
        let (field, since) = match call.meta.last_event_id.as_deref() {
            Some(id) => {
                let id = id.trim().parse::<i64>().ok().filter(|id| *id >= 0);
                let id = id.ok_or_else(|| Failure::field(HEADER, "takes the id of an event of this service"))?;
                (HEADER, Some(Since::After(id)))
            }
            None => ("since", call.query.since()?),
        };
        let news = self.news.follow();
        let mut conn = self.pool.acquire().await.or_fail()?;
        let kept = store::event_feed::kept(&mut conn).await.or_fail()?;
        let after = match since {
            None => kept.oldest - 1,
            Some(Since::Now) => kept.newest,
            Some(Since::After(after)) if after > kept.newest => {
                return Err(Failure::field(field, format!("the last event has the number {}", kept.newest)));
            }
            Some(Since::After(after)) if after + 1 < kept.oldest => return Err(expired(kept.oldest)),
            Some(Since::After(after)) => after,
        };
        let Given { at: after_at, .. } = store::event_feed::given(&mut conn, after).await.or_fail()?;
        drop(conn);
        let follow = Follow {
            pool: self.pool.clone(),
            has_standbys: self.replicas().is_some(),
            caller: caller.clone(),
            wanted: Wanted { kinds: call.query.kinds()?, root: call.query.root },
            after,
            after_at,
            position: Some(after),
            next_beat: Instant::now(),
            read: VecDeque::new(),
            read_at: Instant::now(),
            end: (after, after_at),
            news,
            reading: self.watching.clone(),
            ending: self.ending.clone(),
            _place: place,
        };
        Ok(EventStream::new(stream::unfold(Some(follow), async |follow| follow?.next().await)))
    }
}

fn expired(oldest: i64) -> Failure {
    gone(format!("the oldest event that is kept has the number {oldest}"), oldest)
}

/// Says why events that a caller has not been told of are not there.
fn gone(reason: String, oldest: i64) -> Failure {
    Failure::new(Code::EventsExpired, reason).with("oldest_seq", oldest).with(
        "remedy",
        "read the present state of what you follow, and follow again without `since` and `Last-Event-ID`",
    )
}

/// A stream of events. It reads the next page when the caller has taken the one before, or has left some of it for too long, with the rights that the
/// caller has then.
struct Follow {
    pool: PgPool,
    /// Whether reads may be answered by servers that are behind.
    has_standbys: bool,
    caller: Caller,
    wanted: Wanted,
    /// The number of the last event that the caller was told of, or that was looked at and is not for it.
    after: i64,
    /// When that event happened; `None` if it was not kept.
    after_at: Option<DateTime<Utc>>,
    /// That number, if the caller has not been told of it: a caller that resumes there misses nothing, though it was sent no event.
    position: Option<i64>,
    /// When the caller is next told of that number.
    next_beat: Instant,
    /// Events that were read and have not been sent yet.
    read: VecDeque<EventResponse>,
    /// When they were read.
    read_at: Instant,
    /// The number and the moment of the last event that was looked at with them.
    end: (i64, Option<DateTime<Utc>>),
    news: watch::Receiver<i64>,
    reading: Arc<Semaphore>,
    ending: CancellationToken,
    _place: admission::Place,
}

type Item = Result<Sent<EventResponse>, Failure>;

impl Follow {
    /// The next event and the rest of the stream; `None` when the service ends.
    async fn next(mut self) -> Option<(Item, Option<Follow>)> {
        let mut away = 0;
        loop {
            // Its caller goes on where it is at another process, however much is left to tell.
            if self.ending.is_cancelled() {
                return None;
            }
            if self.read_at.elapsed() >= FRESH {
                self.read.clear();
            }
            if let Some(event) = self.read.pop_front() {
                (self.after, self.after_at, self.position) = (event.seq, Some(event.at), None);
                if self.read.is_empty() {
                    self.end_page();
                }
                let event = Event { id: Some(event.seq.to_string()), name: event.kind.as_str().into(), data: event };
                return Some((Ok(Sent::Event(event)), Some(self)));
            }
            if let Some(position) = self.position.take_if(|_| self.next_beat <= Instant::now()) {
                self.next_beat = Instant::now() + BEAT;
                return Some((Ok(Sent::Position(position.to_string())), Some(self)));
            }
            let looked = if *self.news.borrow_and_update() > self.after {
                self.look().await
            } else {
                tokio::select! {
                    _ = self.news.changed() => continue,
                    () = tokio::time::sleep_until(self.next_beat) => {
                        if self.position.is_none() {
                            self.next_beat = Instant::now() + BEAT;
                        }
                        self.beat().await
                    }
                    () = self.ending.cancelled() => return None,
                }
            };
            match looked {
                Ok(()) => away = 0,
                Err(failure) if failure.code == Code::Unavailable && away < AWAY => {
                    away += 1;
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => {}
                        () = self.ending.cancelled() => return None,
                    }
                }
                Err(failure) => return Some((Err(failure), None)),
            }
        }
    }

    /// Goes on behind the last event that was looked at, once nothing of its page is left to be sent.
    fn end_page(&mut self) {
        let told = self.after;
        (self.after, self.after_at) = self.end;
        // An event that is sent tells its number itself.
        if self.after != told {
            self.position = Some(self.after);
        }
    }

    /// Gives the caller the rights that it has now; 401 if its token has ended.
    async fn renew(&mut self) -> Result<(), Failure> {
        self.caller = self.caller.again(&self.pool).await?;
        Ok(())
    }

    /// Makes sure that the caller may still read, and that a failover has not lost what it has read.
    async fn beat(&mut self) -> Result<(), Failure> {
        self.renew().await?;
        // The number is smaller also while this process has not read the newest one yet.
        if *self.news.borrow() < self.after {
            self.verify(&mut *self.pool.acquire().await.or_fail()?).await?;
        }
        Ok(())
    }

    /// Refuses to go on after a failover that lost the event that was looked at last. Numbers are given again then, so that other events up to that
    /// number would be left out.
    async fn verify(&self, conn: &mut PgConnection) -> Result<(), Failure> {
        let Given { newest, at } = store::event_feed::given(conn, self.after).await.or_fail()?;
        if newest >= self.after && (at.is_none() || at == self.after_at) {
            return Ok(());
        }
        let oldest = store::event_feed::kept(conn).await.or_fail()?.oldest;
        Err(gone(format!("a failover of the database lost the event with the number {}", self.after), oldest))
    }

    /// Reads the next page.
    async fn look(&mut self) -> Result<(), Failure> {
        // The semaphore is never closed.
        let _turn = self.reading.clone().acquire_owned().await.ok();
        self.renew().await?;
        let audience = Audience { readable: self.caller.readable(), principal: self.caller.principal_id() };
        let mut conn = self.pool.acquire().await.or_fail()?;
        self.verify(&mut conn).await?;
        let page = store::event_feed::page(&mut conn, &audience, &self.wanted, self.after, PAGE).await.or_fail()?;
        let Page { mut events, looked_at, last_at } = page;
        if self.has_standbys && !events.is_empty() {
            // The position is read after the page, so everything on the page is before it.
            let position = store::replicas::written(&mut conn).await.or_fail()?.position.to_string();
            events.iter_mut().for_each(|event| event.position = Some(position.clone()));
        }
        // Numbers have no gaps, so a gap is what was deleted because it was too old.
        match looked_at {
            Some((first, last)) if first == self.after + 1 => {
                (self.read, self.read_at, self.end) = (events.into(), Instant::now(), (last, last_at));
                if self.read.is_empty() {
                    self.end_page();
                }
                Ok(())
            }
            Some((first, _)) => Err(expired(first)),
            None => Err(expired(store::event_feed::kept(&mut conn).await.or_fail()?.oldest)),
        }
    }
}
