use crate::{ModelError, encoder::Wanted, health::Watched, ragged::Ragged};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Who waits for a pass. A person waits for a query, and for the pairs that a search has a reranker read, which take much
/// longer, as do the sentences of its results among which it looks for the nearest; documents are embedded in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Query,
    Pair,
    Document,
}

/// Which model runs, and what is made of its rows. Models that share threads share a queue.
#[derive(Clone)]
pub(crate) struct Work {
    /// Gives the encoder when the pass begins, and learns how the pass ended.
    pub device: Arc<Watched>,
    pub wanted: Wanted,
}

#[cfg(test)]
impl Work {
    /// Work of an encoder that is never opened again.
    pub fn alone(encoder: Arc<dyn crate::encoder::Encoder>, wanted: Wanted) -> Self {
        let never = std::time::Duration::from_secs(3600);
        Self { device: Watched::new(encoder, Box::new(|| Err(ModelError::Stopped)), never), wanted }
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

/// How many queries go before a waiting pass of another lane until it has its turn, so that a flood of queries slows
/// the others down but does not stop them.
pub(crate) const QUERIES_IN_A_ROW: usize = 64;

/// For a document, a pass of pairs that goes before it counts as so many queries, because it takes as long as a document:
/// after eight of them the document has its turn.
const QUERIES_OF_PAIRS: usize = QUERIES_IN_A_ROW / 8;

/// The bounded queue between callers and the model's threads.
pub(crate) struct Queue {
    lanes: Mutex<Lanes>,
    arrived: Condvar,
    queries: Bounds,
    pairs: Bounds,
    documents: Bounds,
}

#[derive(Default)]
struct Lanes {
    queries: VecDeque<Waiting>,
    pairs: VecDeque<Waiting>,
    documents: VecDeque<Waiting>,
    /// How many queries were taken since pairs were.
    before_pairs: usize,
    /// How many queries were taken since a document was, and what the passes of pairs taken since then count as.
    before_documents: usize,
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
            pairs: Bounds::new(capacity, tokens_per_pass),
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
            Lane::Pair => &self.pairs,
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
            Lane::Pair => lanes.pairs.push_back(waiting),
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

    /// Takes what goes first, if anything does, for a thread that is between two steps of a pass of this lane.
    pub fn take_between_steps(&self, of: Lane) -> Option<Pass> {
        let mut lanes = self.lock();
        while let Some(waiting) = lanes.next_between_steps(of) {
            if !waiting.is_abandoned() {
                return Some(waiting.pass);
            }
        }
        None
    }

    /// Removes the passes that nobody waits for any more, which makes room for others.
    pub fn sweep(&self) {
        let mut lanes = self.lock();
        let Lanes { queries, pairs, documents, .. } = &mut *lanes;
        for lane in [queries, pairs, documents] {
            lane.retain(|waiting| !waiting.is_abandoned());
        }
    }

    /// How many passes wait for their turn.
    pub fn depth(&self) -> usize {
        let lanes = self.lock();
        lanes.queries.len() + lanes.pairs.len() + lanes.documents.len()
    }

    /// Ends the threads that take passes from here; waiting passes are dropped.
    pub fn close(&self) {
        for bounds in [&self.queries, &self.pairs, &self.documents] {
            bounds.passes.close();
            bounds.tokens.close();
        }
        let mut lanes = self.lock();
        lanes.closed = true;
        lanes.queries.clear();
        lanes.pairs.clear();
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
        let pairs_turn = self.before_pairs >= QUERIES_IN_A_ROW && !self.pairs.is_empty();
        let documents_turn = self.before_documents >= QUERIES_IN_A_ROW && !self.documents.is_empty();
        if !pairs_turn
            && !documents_turn
            && let Some(waiting) = self.queries.pop_front()
        {
            self.before_pairs += 1;
            self.before_documents += 1;
            return Some(waiting);
        }
        if !documents_turn && let Some(waiting) = self.next_pairs() {
            return Some(waiting);
        }
        self.before_documents = 0;
        self.documents.pop_front()
    }

    fn next_pairs(&mut self) -> Option<Waiting> {
        let waiting = self.pairs.pop_front()?;
        self.before_pairs = 0;
        self.before_documents += QUERIES_OF_PAIRS;
        Some(waiting)
    }

    fn next_between_steps(&mut self, of: Lane) -> Option<Waiting> {
        // A document that has begun takes a turn too, however many pairs wait.
        let pairs_may = self.before_documents < QUERIES_IN_A_ROW;
        match of {
            Lane::Query => None,
            Lane::Document if pairs_may => self.queries.pop_front().or_else(|| self.next_pairs()),
            Lane::Pair | Lane::Document => self.queries.pop_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        encoder::{Encoder, Place},
        ragged::TOKENS_PER_PASS,
    };
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

    /// Queues so many passes of each lane, and returns the first letters of their lanes in the order in which they are taken.
    async fn turns(lanes: [(Lane, usize); 3]) -> String {
        let queue = Queue::new(200, TOKENS_PER_PASS);
        let mut outcomes = Vec::new();
        for lane in lanes.into_iter().flat_map(|(lane, count)| std::iter::repeat_n(lane, count)) {
            let work = Work::alone(Arc::new(Nothing), Wanted::Rows);
            outcomes.push(queue.submit(lane, Ragged::from_sequences([&[1][..]]), work).await.unwrap());
        }
        let taken = outcomes.iter().filter_map(|_| queue.take());
        taken.filter_map(|pass| format!("{:?}", pass.lane).chars().next()).collect()
    }

    #[tokio::test]
    async fn pairs_go_after_queries_and_before_documents_and_no_lane_waits_for_ever() {
        let all = [(Lane::Document, 2), (Lane::Pair, 3), (Lane::Query, 4)];
        assert_eq!(turns(all).await, "QQQQPPPDD");
        let no_queries = [(Lane::Document, 3), (Lane::Pair, 20), (Lane::Query, 0)];
        assert_eq!(turns(no_queries).await, "PPPPPPPPDPPPPPPPPDPPPPD");
        let flood = [(Lane::Document, 2), (Lane::Pair, 2), (Lane::Query, 130)];
        let queries = |count: usize| "Q".repeat(count);
        let expected = format!("{}DP{}D{}P{}", queries(64), queries(56), queries(8), queries(2));
        assert_eq!(turns(flood).await, expected);
    }
}
