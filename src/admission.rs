//! Slots that bound what requests take at a time, so that callers wait for a slot and not while they hold what others
//! need; and rate limits.
pub mod amount;
pub mod rates;
mod slots;

use rates::{PerSecond, Rates};
pub use slots::Place;
use slots::{Full, Slots};
use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use svc_client::{Code, Failure};
use svc_ids::PrincipalId;
use tokio_util::sync::CancellationToken;

/// How long a request waits for a slot.
const PATIENCE: Duration = Duration::from_secs(5);
/// A body up to this size needs no slot.
const SMALL_BODY: u64 = 64 * 1024;
/// How much memory the bodies of all requests may take together, and all answers that clients have not read yet, unless a single
/// one may be larger.
const BODIES_BYTES: u64 = 256 << 20;
/// How many foreign addresses requests fetch at a time; a slow one must not keep uploads waiting.
const FETCHES: usize = 16;
/// How many pages of the console may be live at a time, the owner's and the principals'.
const LIVE_PAGES: (usize, usize) = (100, 200);
/// How many pages of the console are read from the database at a time, the owner's and the principals'.
const PAGES: (usize, usize) = (4, 4);
/// How many exports of whole graphs run at a time.
const EXPORTS: usize = 2;
/// How many moves of documents, and changes of access roots and of what indexes cover, run, or wait to run, at a time; each holds a connection to the
/// database meanwhile.
const MOVES: usize = 4;
/// How many analyses of whole graphs run at a time.
const ANALYSES: usize = 1;
const KIB: u64 = 1024;

tokio::task_local! {
    /// The slots of the request that is carried out here.
    static HELD: Mutex<Vec<Place>>;
    /// Cancelled when the client of the request that is carried out here has gone.
    static GONE: CancellationToken;
}

/// Carries out a request that holds these slots until it ends, or until it waits for tasks.
pub async fn holding<T>(slots: Vec<Place>, request: impl Future<Output = T>) -> T {
    HELD.scope(Mutex::new(slots), request).await
}

/// Carries out a request whose client is there until `gone` is cancelled.
pub async fn for_client<T>(gone: CancellationToken, request: impl Future<Output = T>) -> T {
    GONE.scope(gone, request).await
}

/// Cancelled when the client of the request that is carried out here has gone. A call in process has nobody who could go.
pub fn client_gone() -> CancellationToken {
    GONE.try_with(CancellationToken::clone).unwrap_or_default()
}

/// The right of a request to wait for tasks.
pub struct Waiting {
    _place: Place,
}

impl Waiting {
    /// Waits, and gives the request's other slots back first, because others have work to do meanwhile. Ends early when the client
    /// has gone, because nobody waits then.
    pub async fn until<T>(self, done: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        give_back();
        let gone = client_gone();
        tokio::select! {
            biased;
            done = done => done,
            () = gone.cancelled() => Err(Failure::new(Code::Unavailable, "the client did not wait for the tasks to end")),
        }
    }

    /// Does the same for a change that goes on without its client.
    pub async fn carry_out<T>(self, done: impl Future<Output = T>) -> T {
        give_back();
        done.await
    }
}

/// Gives the slots of the request that is carried out here back. A call in process holds none.
fn give_back() {
    drop(HELD.try_with(|held| mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner))));
}

/// The slots of one process. What a client may hold for as long as it is slow, and what takes the processor for long, is shared among
/// principals: of uploads, bodies, readings, downloads, exports, streams, fetches, waits, searches, embeddings and moves, one principal leaves some to the others.
pub struct Admission {
    /// Requests whose bodies arrive, at most one a connection.
    arriving: Slots,
    uploads: Slots,
    /// KiB of bodies that are held in memory.
    bodies: Slots,
    /// KiB of answers that are not sent yet.
    answers: Slots,
    /// Slots for the readers of files that requests start; tasks have their own permits.
    readers: Slots,
    /// Slots for the templates that requests read and render.
    renderings: Slots,
    downloads: Slots,
    /// Graphs that are written while they are read from the database.
    exports: Slots,
    event_streams: Slots,
    fetches: Slots,
    requests: Slots,
    waits: Slots,
    searches: Slots,
    embeds: Slots,
    /// Answers that the language model is asked for.
    syntheses: Slots,
    /// Analyses of whole graphs, which take memory and a processor for long.
    analyses: Slots,
    /// Moves of documents, and changes of access roots and of what indexes cover, which wait for what is stored meanwhile.
    moves: Slots,
    /// Pages of the console that are live, and those that are being read: the operator's first, so that nobody else is in its way.
    live_pages: (Slots, Slots),
    pages: (Slots, Slots),
    /// How many requests a principal may make.
    pub rates: Rates,
}

/// The number of slots of one process.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub connections: usize,
    pub uploads: usize,
    pub downloads: usize,
    pub event_streams: usize,
    pub requests: usize,
    pub waits: usize,
    pub searches: usize,
    pub embeds: usize,
    pub syntheses: usize,
    pub rates: PerSecond,
    /// The part of what clients hold that one principal may hold.
    pub principal_share: f64,
    /// The largest body that is held in memory, in bytes.
    pub largest_body: u64,
}

impl Admission {
    pub fn new(places: Places) -> Admission {
        let kib = |bytes: u64| usize::try_from(bytes / KIB).unwrap_or(usize::MAX);
        let (bodies, largest) = (kib(BODIES_BYTES.max(places.largest_body + KIB)), kib(places.largest_body + KIB));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of a number of slots, which is positive and small"
        )]
        let part = |all: usize| ((all as f64 * places.principal_share) as usize).max(1);
        let shared = |all: usize| Slots::new(all, part(all));
        let unshared = |all: usize| Slots::new(all, all);
        // The share of a principal is a slot at least, so where there is only one, nobody else would find any.
        let children = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
        Admission {
            arriving: shared(places.connections),
            uploads: shared(places.uploads),
            // The largest body must fit into a share.
            bodies: Slots::new(bodies, part(bodies).max(largest)),
            answers: Slots::new(bodies, part(bodies)),
            readers: shared(children),
            renderings: shared(children),
            downloads: shared(places.downloads),
            exports: shared(EXPORTS),
            event_streams: shared(places.event_streams),
            fetches: shared(FETCHES),
            requests: unshared(places.requests),
            waits: shared(places.waits),
            searches: shared(places.searches),
            embeds: shared(places.embeds),
            syntheses: shared(places.syntheses),
            analyses: unshared(ANALYSES),
            moves: shared(MOVES),
            live_pages: (unshared(LIVE_PAGES.0), shared(LIVE_PAGES.1)),
            pages: (unshared(PAGES.0), shared(PAGES.1)),
            rates: Rates::new(places.rates),
        }
    }

    /// Takes a slot for a request whose body arrives, so that one principal whose bodies are slow leaves connections to the others.
    pub fn arriving(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || busy("as many requests as there may be connections are arriving");
        let taken = self.arriving.take_now(principal);
        taken.map_err(|full| refused(full, "requests whose bodies have not arrived", refusal))
    }

    /// Waits for a slot to work on a request whose body has arrived.
    pub async fn request(&self) -> Result<Place, Failure> {
        self.requests.take(None, 1).await.map_err(|_| {
            busy("the service is already working on as many requests as it may at once")
                .with("setting", "SVC_REQUESTS_AT_ONCE")
        })
    }

    /// Takes a slot for a request that will wait for tasks. Take it before anything is stored: a request that finds none
    /// is refused at once, because the others may wait for minutes.
    pub fn waiting(&self, principal: Option<PrincipalId>) -> Result<Waiting, Failure> {
        let refusal = || {
            busy("as many requests as may wait for tasks at once are waiting already")
                .with("setting", "SVC_WAITS_AT_ONCE")
                .with("remedy", "ask for an answer at once and look for the result later, or try again later")
        };
        let taken = self.waits.take_now(principal);
        taken
            .map(|place| Waiting { _place: place })
            .map_err(|full| refused(full, "requests that wait for tasks", refusal))
    }

    /// Waits for a slot to search.
    pub async fn search(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal =
            || busy("as many searches as may run at once are running already").with("setting", "SVC_SEARCHES_AT_ONCE");
        self.searches.take(principal, 1).await.map_err(|full| refused(full, "searches", refusal))
    }

    /// How many searches could begin now.
    pub fn free_searches(&self) -> usize {
        self.searches.free()
    }

    /// Waits for a slot to embed a document on request, or to cut one.
    pub async fn embed(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || {
            busy("the service is already embedding and cutting as many documents as it may at once")
                .with("setting", "SVC_EMBEDS_AT_ONCE")
        };
        self.embeds.take(principal, 1).await.map_err(|full| refused(full, "embeddings and cuts", refusal))
    }

    /// Waits for a slot to have the language model answer a question.
    pub async fn synthesis(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || {
            busy("the language model is already answering as many questions as it may at once")
                .with("setting", "SVC_LLM_CONCURRENCY")
        };
        self.syntheses.take(principal, 1).await.map_err(|full| refused(full, "questions", refusal))
    }

    /// Waits for the slot of an analysis of a whole graph.
    pub async fn analysis(&self) -> Result<Place, Failure> {
        let refusal = || busy("another analysis of a graph is running");
        self.analyses.take(None, 1).await.map_err(|full| refused(full, "analyses", refusal))
    }

    /// Waits for a slot to move or segment documents, or to change an access root or what an index covers; meanwhile nobody creates documents. Take it before
    /// a connection: whoever waits here holds none.
    pub async fn moving(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal =
            || busy("as many moves and changes of access roots and indexes as may run at once are running already");
        let what = "moves and changes of access roots and indexes";
        self.moves.take(principal, 1).await.map_err(|full| refused(full, what, refusal))
    }

    /// Waits for a slot to receive a file and store it.
    pub async fn upload(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || {
            busy("the service is already storing as many files as it may at once")
                .with("setting", "SVC_UPLOADS_AT_ONCE")
        };
        self.uploads.take(principal, 1).await.map_err(|full| refused(full, "uploads", refusal))
    }

    /// Waits for a slot to fetch a foreign address.
    pub async fn fetch(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || busy("too many addresses are being fetched for other requests");
        self.fetches.take(principal, 1).await.map_err(|full| refused(full, "fetches of addresses", refusal))
    }

    /// Waits for a slot to send the bytes of a file. The download keeps the slot until it ends.
    pub async fn download(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || {
            busy("the service is already sending as many files as it may at once")
                .with("setting", "SVC_DOWNLOADS_AT_ONCE")
        };
        self.downloads.take(principal, 1).await.map_err(|full| refused(full, "downloads", refusal))
    }

    /// Takes a slot for the export of a graph, which keeps it until it ends. A request that finds none is refused at once, because exports may
    /// last for minutes.
    pub fn export(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || {
            busy(&format!("the service is already writing {EXPORTS} graphs as Turtle, which is the most at once"))
                .with("remedy", "wait until one of these has ended, or read facts page by page with GET /triples")
        };
        self.exports.take_now(principal).map_err(|full| refused(full, "exports of graphs", refusal))
    }

    /// Takes a slot for a stream of events. A request that finds none is refused at once, because streams may last for
    /// hours.
    pub fn event_stream(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || {
            busy("the service already has as many streams of events open as it may")
                .with("setting", "SVC_EVENT_STREAMS")
                .with("remedy", "ask for the current state without `Accept: text/event-stream`, or try again later")
        };
        self.event_streams.take_now(principal).map_err(|full| refused(full, "streams of events", refusal))
    }

    /// Takes a slot for a page of the console that stays live.
    pub fn live_page(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let slots = if principal.is_some() { &self.live_pages.1 } else { &self.live_pages.0 };
        let refusal = || busy("as many pages as may be live are live already");
        slots.take_now(principal).map_err(|full| refused(full, "live pages", refusal))
    }

    /// Waits for a slot to read a page of the console.
    pub async fn page(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let slots = if principal.is_some() { &self.pages.1 } else { &self.pages.0 };
        let refusal = || busy("as many pages as may be read at once are being read, and the database answers slowly");
        slots.take(principal, 1).await.map_err(|full| refused(full, "pages", refusal))
    }

    /// Waits for a slot to hold a body of up to `bytes` bytes in memory.
    pub async fn body(&self, principal: Option<PrincipalId>, bytes: u64) -> Result<Option<Place>, Failure> {
        if bytes <= SMALL_BODY {
            return Ok(None);
        }
        let refusal = || busy("too many large bodies are being read for other requests");
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX);
        self.bodies.take(principal, kib).await.map(Some).map_err(|full| refused(full, "large bodies", refusal))
    }

    /// Waits for room for an answer of `bytes` bytes, which it takes until the client has read it. One that is larger than a principal's
    /// share takes the share.
    pub async fn answer(&self, principal: Option<PrincipalId>, bytes: u64) -> Result<Option<Place>, Failure> {
        if bytes <= SMALL_BODY {
            return Ok(None);
        }
        let refusal = || busy("too many large answers wait for other clients to read them");
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).min(self.answers.share());
        let taken = self.answers.take(principal, kib).await;
        taken.map(Some).map_err(|full| refused(full, "large answers that it has not read", refusal))
    }

    /// Waits for a slot to have a template read or rendered in a child process.
    pub async fn rendering(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || busy("as many templates as may be read and rendered at once are being rendered");
        self.renderings.take(principal, 1).await.map_err(|full| refused(full, "renderings", refusal))
    }

    /// Waits for a slot to have a file read in a child process, which limits how many children requests start.
    pub async fn reader(&self, principal: Option<PrincipalId>) -> Result<Place, Failure> {
        let refusal = || busy("too many files are being read for other requests");
        self.readers.take(principal, 1).await.map_err(|full| refused(full, "readings of files", refusal))
    }
}

/// The 429 of a service that has no slot left.
fn busy(detail: &str) -> Failure {
    Failure::new(Code::TooManyRequests, detail)
        .with("remedy", "try again shortly")
        .with("retry_after", PATIENCE.as_secs())
}

/// The 429 of a principal that holds its share of `what`, or of a service that has no slot left.
fn refused(full: Full, what: &str, busy_service: impl FnOnce() -> Failure) -> Failure {
    match full {
        Full::All => busy_service(),
        Full::Share => {
            busy(&format!("this principal already has as many {what} under way as one principal may have at once"))
                .with("setting", "SVC_PRINCIPAL_SHARE")
                .with("remedy", "end some of them first, or try again later")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places {
        connections: 4,
        uploads: 2,
        downloads: 1,
        event_streams: 1,
        requests: 1,
        waits: 1,
        searches: 1,
        syntheses: 1,
        embeds: 1,
        rates: PerSecond { reads: 0, writes: 0, costly: 0 },
        principal_share: 0.5,
        largest_body: 16 << 20,
    };

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_place_in_time_is_told_when_to_come_again() {
        let admission = Admission::new(Places { largest_body: 16 << 20, ..PLACES });
        let held = (admission.upload(None).await.expect("a place"), admission.upload(None).await.expect("a place"));
        let refused = admission.upload(None).await.expect_err("full");
        assert_eq!((refused.status, &refused.members["retry_after"]), (429, &5.into()));
        drop(held);
        assert!(admission.upload(None).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_tasks_holds_no_slot_that_others_need() {
        let admission = Admission::new(PLACES);
        let slots = vec![admission.request().await.expect("a slot"), admission.upload(None).await.expect("a slot")];
        let request = async {
            let waiting = admission.waiting(None).expect("a slot");
            assert!(admission.request().await.is_err(), "it is at work");
            let refused = admission.waiting(None).err().expect("only one may wait");
            assert_eq!(refused.members["setting"], "SVC_WAITS_AT_ONCE");
            let done = async { admission.request().await.map(|_| ()) };
            assert!(waiting.until(done).await.is_ok(), "it waits");
        };
        holding(slots, request).await;
        assert!(admission.waiting(None).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_each_other_and_small_ones_for_nobody() {
        let admission = Admission::new(Places { largest_body: 300 << 20, ..PLACES });
        let largest = admission.body(None, 300 << 20).await.expect("the largest body fits");
        assert!(admission.body(None, 16 << 20).await.is_err());
        assert!(admission.body(None, SMALL_BODY).await.is_ok());
        drop(largest);
        assert!(admission.body(None, 16 << 20).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_leaves_readers_to_others_however_few_there_are() {
        let (anna, bert) = (Some(PrincipalId(1)), Some(PrincipalId(2)));
        let admission = Admission::new(Places { principal_share: 0.01, ..PLACES });
        let held = admission.reader(anna).await.expect("her share");
        let refused = admission.reader(anna).await.expect_err("her share is one");
        assert_eq!(refused.members["setting"], "SVC_PRINCIPAL_SHARE");
        assert!(admission.reader(bert).await.is_ok(), "another finds one");
        assert!(admission.reader(None).await.is_ok(), "and so does the owner");
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_body_fits_into_a_share_and_two_do_not() {
        let (anna, bert) = (Some(PrincipalId(1)), Some(PrincipalId(2)));
        let admission = Admission::new(Places { largest_body: 200 << 20, principal_share: 0.1, ..PLACES });
        let largest = admission.body(anna, 200 << 20).await.expect("the largest body fits");
        let refused = admission.body(anna, 200 << 20).await.expect_err("a second does not");
        assert_eq!(refused.members["setting"], "SVC_PRINCIPAL_SHARE");
        assert!(admission.body(bert, 1 << 20).await.is_ok(), "others find room");
        drop(largest);
    }
}
