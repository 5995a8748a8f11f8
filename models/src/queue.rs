use crate::{
    ModelError,
    encoder::{Encoder, Wanted},
    health::Watched,
    ragged::Ragged,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Who waits for a pass. A person waits for a query; documents are embedded in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Query,
    Document,
}

/// Which model runs, and what is made of its rows. Models that share threads share a queue.
#[derive(Clone)]
pub(crate) struct Work {
    pub encoder: Arc<dyn Encoder>,
    pub wanted: Wanted,
    /// Learns how the pass ended.
    pub device: Arc<Watched>,
}

#[cfg(test)]
impl Work {
    /// Work of an encoder that is never opened again.
    pub fn alone(encoder: Arc<dyn Encoder>, wanted: Wanted) -> Self {
        let never = std::time::Duration::from_secs(3600);
        let device = Watched::new(Arc::clone(&encoder), Box::new(|| Err(ModelError::Stopped)), never);
        Self { encoder, wanted, device }
    }
}

/// What was wanted, for each sequence of a pass in order; `None` for a sequence whose vector has no direction.
pub(crate) type Outcome = Result<Vec<Option<Vec<f32>>>, ModelError>;

/// One pass through the model that waits for its turn.
pub(crate) struct Pass {
    pub lane: Lane,
    pub batch: Ragged,
    pub work: Work,
    pub reply: oneshot::Sender<Outcome>,
}

/// A pass in its lane. Its room is free again when it is taken or abandoned.
struct Waiting {
    pass: Pass,
    _room: Room,
}

struct Room {
    _pass: OwnedSemaphorePermit,
    _tokens: OwnedSemaphorePermit,
}

/// How many passes are taken from the query lane in a row before a waiting document gets its turn, so that a flood of
/// queries slows documents down but does not stop them.
pub(crate) const QUERIES_IN_A_ROW: usize = 64;

/// The bounded queue between callers and the model's threads.
pub(crate) struct Queue {
    lanes: Mutex<Lanes>,
    arrived: Condvar,
    queries: Bounds,
    documents: Bounds,
}

#[derive(Default)]
struct Lanes {
    queries: VecDeque<Waiting>,
    documents: VecDeque<Waiting>,
    queries_in_a_row: usize,
    closed: bool,
}

/// The bounds of one lane. Each lane has its own, so that waiting documents never keep queries out.
struct Bounds {
    passes: Arc<Semaphore>,
    tokens: Arc<Semaphore>,
    max_tokens: usize,
}

impl Bounds {
    fn new(max_passes: usize, tokens_per_pass: usize) -> Self {
        let max_tokens = max_passes.saturating_mul(tokens_per_pass).min(u32::MAX as usize);
        Self { passes: Arc::new(Semaphore::new(max_passes)), tokens: Arc::new(Semaphore::new(max_tokens)), max_tokens }
    }

    async fn room(&self, tokens: usize) -> Result<Room, ModelError> {
        // A text longer than the whole room has the room to itself.
        let tokens = tokens.min(self.max_tokens) as u32;
        let stopped = |_| ModelError::Stopped;
        let pass = Arc::clone(&self.passes).acquire_owned().await.map_err(stopped)?;
        let tokens = Arc::clone(&self.tokens).acquire_many_owned(tokens).await.map_err(stopped)?;
        Ok(Room { _pass: pass, _tokens: tokens })
    }
}

impl Queue {
    pub fn new(capacity: usize, tokens_per_pass: usize) -> Self {
        Self {
            lanes: Mutex::default(),
            arrived: Condvar::new(),
            queries: Bounds::new(capacity, tokens_per_pass),
            documents: Bounds::new(capacity, tokens_per_pass),
        }
    }

    /// Waits for room, queues the pass and returns the receiver for its outcome. If the receiver is dropped, the pass
    /// does not run.
    pub async fn submit(
        &self,
        lane: Lane,
        batch: Ragged,
        work: Work,
    ) -> Result<oneshot::Receiver<Outcome>, ModelError> {
        let bounds = match lane {
            Lane::Query => &self.queries,
            Lane::Document => &self.documents,
        };
        let room = bounds.room(batch.token_count()).await?;
        let (reply, outcome) = oneshot::channel();
        let waiting = Waiting { pass: Pass { lane, batch, work, reply }, _room: room };
        let mut lanes = self.lock();
        if lanes.closed {
            return Err(ModelError::Stopped);
        }
        match lane {
            Lane::Query => lanes.queries.push_back(waiting),
            Lane::Document => lanes.documents.push_back(waiting),
        }
        drop(lanes);
        self.arrived.notify_one();
        Ok(outcome)
    }

    /// Blocks until there is a pass that somebody still waits for; returns `None` once the queue is closed.
    pub fn take(&self) -> Option<Pass> {
        let mut lanes = self.lock();
        loop {
            if lanes.closed {
                return None;
            }
            match lanes.next() {
                Some(waiting) if waiting.is_abandoned() => drop(waiting),
                Some(waiting) => return Some(waiting.pass),
                None => lanes = self.arrived.wait(lanes).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Takes a query for a thread that runs documents now, if one waits.
    pub fn take_query(&self) -> Option<Pass> {
        let mut lanes = self.lock();
        while let Some(waiting) = lanes.queries.pop_front() {
            if !waiting.is_abandoned() {
                return Some(waiting.pass);
            }
        }
        None
    }

    /// Removes the passes that nobody waits for any more, which makes room for others.
    pub fn sweep(&self) {
        let mut lanes = self.lock();
        lanes.queries.retain(|waiting| !waiting.is_abandoned());
        lanes.documents.retain(|waiting| !waiting.is_abandoned());
    }

    /// How many passes wait for their turn.
    pub fn depth(&self) -> usize {
        let lanes = self.lock();
        lanes.queries.len() + lanes.documents.len()
    }

    /// Ends the threads that take passes from here; waiting passes are dropped.
    pub fn close(&self) {
        for bounds in [&self.queries, &self.documents] {
            bounds.passes.close();
            bounds.tokens.close();
        }
        let mut lanes = self.lock();
        lanes.closed = true;
        lanes.queries.clear();
        lanes.documents.clear();
        drop(lanes);
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        // Nothing under the lock leaves the lanes half changed.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn is_abandoned(&self) -> bool {
        self.pass.reply.is_closed()
    }
}

impl Lanes {
    fn next(&mut self) -> Option<Waiting> {
        let documents_turn = self.queries_in_a_row >= QUERIES_IN_A_ROW && !self.documents.is_empty();
        if !documents_turn && let Some(waiting) = self.queries.pop_front() {
            self.queries_in_a_row += 1;
            return Some(waiting);
        }
        self.queries_in_a_row = 0;
        self.documents.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encoder::Place, ragged::TOKENS_PER_PASS};
    use std::time::Duration;
    use tokio::time::timeout;

    struct Nothing;

    impl Encoder for Nothing {
        fn forward(&self, _: &Ragged, _: Wanted, _: &dyn Place) -> Vec<f32> {
            Vec::new()
        }

        fn hidden_size(&self) -> usize {
            1
        }
    }

    #[tokio::test]
    async fn what_waits_is_bounded_in_tokens_too_and_a_longer_text_has_the_room_to_itself() {
        let queue = Queue::new(4, TOKENS_PER_PASS);
        let submit = |tokens: usize| {
            let work = Work::alone(Arc::new(Nothing), Wanted::Rows);
            queue.submit(Lane::Document, Ragged::from_sequences([&vec![1; tokens][..]]), work)
        };
        // This polls a future once: it is done, or it waits for room.
        let at_once = |tokens: usize| timeout(Duration::ZERO, submit(tokens));
        let half = 2 * TOKENS_PER_PASS;
        let _first = at_once(half).await.expect("there is room").unwrap();
        let _second = at_once(half).await.expect("there is room").unwrap();
        assert!(at_once(1).await.is_err(), "two of four passes wait, and all of the tokens");
        assert!(queue.take().is_some());
        assert!(at_once(half + 1).await.is_err(), "half of the room is free");
        assert!(queue.take().is_some());
        let _long = at_once(100 * TOKENS_PER_PASS).await.expect("nothing else waits").unwrap();
        assert!(at_once(1).await.is_err());
        assert_eq!(queue.depth(), 1);
    }
}
