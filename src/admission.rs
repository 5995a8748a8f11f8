//! Slots that bound what requests take at a time, so that callers wait for a slot and not while they hold what others
//! need; and rate limits.
pub mod rates;

use rates::{PerSecond, Rates};
use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use svc_client::{Code, Failure};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request waits for a slot.
const PATIENCE: Duration = Duration::from_secs(5);
/// A body up to this size needs no slot.
const SMALL_BODY: u64 = 64 * 1024;
/// How much memory the bodies of all requests may take together, unless a single one may be larger.
const BODIES_BYTES: u64 = 256 << 20;
/// How many foreign addresses requests fetch at a time; a slow one must not keep uploads waiting.
const FETCHES: usize = 16;
const KIB: u64 = 1024;

/// A slot, which becomes free when this is dropped.
pub type Place = OwnedSemaphorePermit;

tokio::task_local! {
    /// The slots of the request that is carried out here.
    static HELD: Mutex<Vec<Place>>;
}

/// Carries out a request that holds these slots until it ends, or until it waits for tasks.
pub async fn holding<T>(slots: Vec<Place>, request: impl Future<Output = T>) -> T {
    HELD.scope(Mutex::new(slots), request).await
}

/// The right of a request to wait for tasks.
pub struct Waiting {
    _place: Place,
}

impl Waiting {
    /// Waits, and gives the request's other slots back first, because others have work to do meanwhile.
    pub async fn until<T>(self, done: impl Future<Output = T>) -> T {
        // A call in process holds none.
        drop(HELD.try_with(|held| mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner))));
        done.await
    }
}

/// The slots of one process.
pub struct Admission {
    uploads: Arc<Semaphore>,
    /// KiB of bodies that are held in memory.
    bodies: Arc<Semaphore>,
    /// Slots for the readers of files that requests start; tasks have their own permits.
    pub readers: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
    event_streams: Arc<Semaphore>,
    fetches: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    embeds: Arc<Semaphore>,
    /// How many requests a principal may make.
    pub rates: Rates,
}

/// The number of slots of one process.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub uploads: usize,
    pub downloads: usize,
    pub event_streams: usize,
    pub requests: usize,
    pub waits: usize,
    pub embeds: usize,
    pub rates: PerSecond,
    /// The largest body that is held in memory, in bytes.
    pub largest_body: u64,
}

impl Admission {
    pub fn new(places: Places) -> Admission {
        let bodies = usize::try_from(BODIES_BYTES.max(places.largest_body + KIB) / KIB).unwrap_or(usize::MAX);
        Admission {
            uploads: Arc::new(Semaphore::new(places.uploads)),
            bodies: Arc::new(Semaphore::new(bodies.min(Semaphore::MAX_PERMITS))),
            readers: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(2, std::num::NonZero::get))),
            downloads: Arc::new(Semaphore::new(places.downloads)),
            event_streams: Arc::new(Semaphore::new(places.event_streams)),
            fetches: Arc::new(Semaphore::new(FETCHES)),
            requests: Arc::new(Semaphore::new(places.requests)),
            waits: Arc::new(Semaphore::new(places.waits)),
            embeds: Arc::new(Semaphore::new(places.embeds)),
            rates: Rates::new(places.rates),
        }
    }

    /// Waits for a slot to work on a request whose body has arrived.
    pub async fn request(&self) -> Result<Place, Failure> {
        let refusal = || {
            Failure::new(Code::TooManyRequests, "the service is already working on as many requests as it may at once")
                .with("setting", "SVC_REQUESTS_AT_ONCE")
        };
        wait(&self.requests, 1, refusal).await
    }

    /// Takes a slot for a request that will wait for tasks. Take it before anything is stored: a request that finds none
    /// is refused at once, because the others may wait for minutes.
    pub fn waiting(&self) -> Result<Waiting, Failure> {
        let refusal = |_| {
            Failure::new(Code::TooManyRequests, "as many requests as may wait for tasks at once are waiting already")
                .with("setting", "SVC_WAITS_AT_ONCE")
                .with("remedy", "ask for an answer at once and look for the result later, or try again later")
                .with("retry_after", PATIENCE.as_secs())
        };
        self.waits.clone().try_acquire_owned().map(|place| Waiting { _place: place }).map_err(refusal)
    }

    /// Waits for a slot to embed a document on request.
    pub async fn embed(&self) -> Result<Place, Failure> {
        let refusal = || {
            Failure::new(Code::TooManyRequests, "the service is already embedding as many documents as it may at once")
                .with("setting", "SVC_EMBEDS_AT_ONCE")
        };
        wait(&self.embeds, 1, refusal).await
    }

    /// Waits for a slot to receive a file and store it.
    pub async fn upload(&self) -> Result<Place, Failure> {
        let refusal = || {
            Failure::new(Code::TooManyRequests, "the service is already storing as many files as it may at once")
                .with("setting", "SVC_UPLOADS_AT_ONCE")
        };
        wait(&self.uploads, 1, refusal).await
    }

    /// Waits for a slot to fetch a foreign address.
    pub async fn fetch(&self) -> Result<Place, Failure> {
        wait(&self.fetches, 1, || {
            Failure::new(Code::TooManyRequests, "too many addresses are being fetched for other requests")
        })
        .await
    }

    /// Waits for a slot to send the bytes of a file. The download keeps the slot until it ends.
    pub async fn download(&self) -> Result<Place, Failure> {
        let refusal = || {
            Failure::new(Code::TooManyRequests, "the service is already sending as many files as it may at once")
                .with("setting", "SVC_DOWNLOADS_AT_ONCE")
        };
        wait(&self.downloads, 1, refusal).await
    }

    /// Takes a slot for a stream of events. A request that finds none is refused at once, because streams may last for
    /// hours.
    pub fn event_stream(&self) -> Result<Place, Failure> {
        self.event_streams.clone().try_acquire_owned().map_err(|_| {
            Failure::new(Code::TooManyRequests, "the service already has as many streams of events open as it may")
                .with("setting", "SVC_EVENT_STREAMS")
                .with("remedy", "ask for the current state without `Accept: text/event-stream`, or try again later")
                .with("retry_after", PATIENCE.as_secs())
        })
    }

    /// Waits for a slot to hold a body of up to `bytes` bytes in memory.
    pub async fn body(&self, bytes: u64) -> Result<Option<Place>, Failure> {
        if bytes <= SMALL_BODY {
            return Ok(None);
        }
        let refusal = || Failure::new(Code::TooManyRequests, "too many large bodies are being read for other requests");
        wait(&self.bodies, u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX), refusal).await.map(Some)
    }

    /// Waits for a slot to have a file read in a child process, which limits how many children requests start.
    pub async fn reader(&self) -> Result<Place, Failure> {
        wait(&self.readers, 1, || {
            Failure::new(Code::TooManyRequests, "too many files are being read for other requests")
        })
        .await
    }
}

async fn wait(places: &Arc<Semaphore>, count: u32, refusal: impl FnOnce() -> Failure) -> Result<Place, Failure> {
    match tokio::time::timeout(PATIENCE, places.clone().acquire_many_owned(count)).await {
        Ok(Ok(place)) => Ok(place),
        _ => Err(refusal().with("remedy", "try again shortly").with("retry_after", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places {
        uploads: 2,
        downloads: 1,
        event_streams: 1,
        requests: 1,
        waits: 1,
        embeds: 1,
        rates: PerSecond { reads: 0, writes: 0, costly: 0 },
        largest_body: 16 << 20,
    };

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_place_in_time_is_told_when_to_come_again() {
        let admission = Admission::new(Places { largest_body: 16 << 20, ..PLACES });
        let held = (admission.upload().await.expect("a place"), admission.upload().await.expect("a place"));
        let refused = admission.upload().await.expect_err("full");
        assert_eq!((refused.status, &refused.members["retry_after"]), (429, &5.into()));
        drop(held);
        assert!(admission.upload().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_tasks_holds_no_slot_that_others_need() {
        let admission = Admission::new(PLACES);
        let slots = vec![admission.request().await.expect("a slot"), admission.upload().await.expect("a slot")];
        let request = async {
            let waiting = admission.waiting().expect("a slot");
            assert!(admission.request().await.is_err(), "it is at work");
            let refused = admission.waiting().err().expect("only one may wait");
            assert_eq!(refused.members["setting"], "SVC_WAITS_AT_ONCE");
            waiting.until(async { assert!(admission.request().await.is_ok(), "it waits") }).await;
        };
        holding(slots, request).await;
        assert!(admission.waiting().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_each_other_and_small_ones_for_nobody() {
        let admission = Admission::new(Places { largest_body: 300 << 20, ..PLACES });
        let largest = admission.body(300 << 20).await.expect("the largest body fits");
        assert!(admission.body(16 << 20).await.is_err());
        assert!(admission.body(SMALL_BODY).await.is_ok());
        drop(largest);
        assert!(admission.body(16 << 20).await.is_ok());
    }
}
