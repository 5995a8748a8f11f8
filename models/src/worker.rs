//! The model's threads.

use crate::{
    ModelError,
    encoder::{Encoder, Place, Wanted},
    error::panic_message,
    pooling::has_direction,
    queue::{Lane, Outcome, Pass, QUERIES_IN_A_ROW, Queue, Work},
    ragged::{PassLimit, Ragged},
};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// What the threads share.
struct Crew {
    queue: Arc<Queue>,
    /// How many passes run now.
    running: AtomicUsize,
    /// As many threads as take passes. While a pass is alone on the machine, these threads share it, so that the last
    /// pass of a large request leaves no core idle. Beside other passes, a pass runs on the thread that took it, which
    /// costs no handover and keeps its memory in one core's cache.
    shared_out: Option<ThreadPool>,
}

/// Threads that run models, and the queue before them. They end with the last handle.
pub(crate) struct Threads {
    pub queue: Arc<Queue>,
    pub count: usize,
    pub limit: PassLimit,
}

impl Threads {
    pub fn start(count: usize, limit: PassLimit, queue_capacity: usize) -> Result<Arc<Self>, ModelError> {
        let queue = Arc::new(Queue::new(queue_capacity, limit.tokens));
        start(count, &queue)?;
        Ok(Arc::new(Self { queue, count, limit }))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Starts `threads` threads that take passes from `queue` until it is closed.
fn start(threads: usize, queue: &Arc<Queue>) -> Result<(), ModelError> {
    let named = |number| format!("model-shared-{number}");
    let shared_out = match threads {
        1 => None,
        _ => Some(
            ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(named)
                .build()
                .map_err(|error| not_started(threads, &error.to_string()))?,
        ),
    };
    let crew = Arc::new(Crew { queue: Arc::clone(queue), running: AtomicUsize::new(0), shared_out });
    let (ready, started) = mpsc::channel();
    for number in 0..threads {
        let (crew_of_thread, ready) = (Arc::clone(&crew), ready.clone());
        let spawned = thread::Builder::new().name(format!("model-{number}")).spawn(move || {
            // This pool has only this thread: nothing inside a pass forks, joins or waits for another pass.
            let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
            let is_started = pool.is_ok();
            // The receiver is gone only if another thread failed to start; the queue is closed then.
            let _ = ready.send(pool.as_ref().map(|_| ()).map_err(ToString::to_string));
            drop(ready);
            if is_started {
                crew_of_thread.serve();
            }
        });
        if let Err(error) = spawned {
            crew.queue.close();
            return Err(not_started(threads, &error.to_string()));
        }
    }
    drop(ready);
    for result in started {
        if let Err(problem) = result {
            crew.queue.close();
            return Err(not_started(threads, &problem));
        }
    }
    Ok(())
}

impl Crew {
    fn serve(&self) {
        while let Some(pass) = self.queue.take() {
            self.run(pass);
        }
    }

    fn run(&self, Pass { lane, batch, work: Work { device, wanted }, reply }: Pass) {
        // The device may have been lost, and opened again, while the pass waited.
        let outcome = device.encoder().and_then(|encoder| {
            self.running.fetch_add(1, Ordering::Relaxed);
            let place = Seat { crew: self, lane };
            let outcome = catch_unwind(AssertUnwindSafe(|| made(&*encoder, wanted, &batch, &place)));
            let outcome = outcome.map_err(|panic| panic_message(&*panic));
            device.ended(&encoder, outcome.as_ref().err().map(String::as_str));
            self.running.fetch_sub(1, Ordering::Relaxed);
            outcome.unwrap_or_else(|message| Err(ModelError::ForwardPanicked { message }))
        });
        // If the caller was cancelled meanwhile, nobody waits any more.
        let _ = reply.send(outcome);
    }
}

/// The place of one pass.
struct Seat<'a> {
    crew: &'a Crew,
    lane: Lane,
}

impl Place for Seat<'_> {
    /// Runs what waits and goes first, so that a query waits for a step of a pass of documents or pairs and not for all of
    /// it, however large the model or the texts are.
    fn pause(&self) {
        let first = (0..QUERIES_IN_A_ROW).map_while(|_| self.crew.queue.take_between_steps(self.lane));
        first.for_each(|pass| self.crew.run(pass));
    }

    fn run(&self, work: &mut (dyn FnMut(&dyn Fn() -> bool) + Send)) {
        let is_alone = || {
            self.pause();
            self.crew.running.load(Ordering::Relaxed) == 1
        };
        match &self.crew.shared_out {
            Some(pool) if is_alone() => pool.install(|| work(&|| !is_alone())),
            Some(_) => work(&is_alone),
            None => work(&|| {
                is_alone();
                false
            }),
        }
    }
}

fn not_started(threads: usize, problem: &str) -> ModelError {
    tracing::error!(model.threads = threads, problem, "a model thread could not be started");
    ModelError::Setting {
        setting: "threads",
        value: threads.to_string(),
        problem: "the system refused to start that many threads; use fewer",
    }
}

fn made(encoder: &dyn Encoder, wanted: Wanted, batch: &Ragged, place: &dyn Place) -> Outcome {
    let hidden = encoder.hidden_size();
    let made = encoder.forward(batch, wanted, place);
    let of_text = |(at, sequence): (usize, &Range<usize>)| match wanted {
        Wanted::Vector(_) => {
            Ok(Some(&made[at * hidden..(at + 1) * hidden]).filter(|row| has_direction(row)).map(<[f32]>::to_vec))
        }
        Wanted::Rows => Ok(Some(made[sequence.start * hidden..sequence.end * hidden].to_vec())),
        Wanted::Score if made[at].is_finite() => Ok(Some(vec![made[at]])),
        Wanted::Score => Err(ModelError::NoScore),
    };
    batch.sequences.iter().enumerate().map(of_text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pooling, ragged::TOKENS_PER_PASS};
    use std::sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    };

    /// Reports how many threads it has to itself, and waits until the test lets it go.
    struct Gate {
        threads: Mutex<Sender<usize>>,
        go: Mutex<Receiver<()>>,
    }

    impl Encoder for Gate {
        fn forward(&self, batch: &Ragged, _: Wanted, place: &dyn Place) -> Vec<f32> {
            place.run(&mut |_| self.pass());
            vec![1.0; batch.sequences.len()]
        }

        fn hidden_size(&self) -> usize {
            1
        }
    }

    impl Gate {
        fn pass(&self) {
            self.threads.lock().unwrap().send(rayon::current_num_threads()).unwrap();
            let _ = self.go.lock().unwrap().recv();
        }
    }

    /// Makes a step per token; each step reports its pass and how many threads it has, and waits until the test lets it
    /// go.
    struct Steps {
        threads: Mutex<Sender<(u32, usize)>>,
        go: [Mutex<Receiver<()>>; 2],
    }

    impl Encoder for Steps {
        fn forward(&self, batch: &Ragged, _: Wanted, place: &dyn Place) -> Vec<f32> {
            let (pass, mut left) = (batch.token_ids[0], batch.token_count());
            while left > 0 {
                place.run(&mut |is_left| {
                    while left > 0 {
                        self.threads.lock().unwrap().send((pass, rayon::current_num_threads())).unwrap();
                        let _ = self.go[pass as usize].lock().unwrap().recv();
                        left -= 1;
                        if is_left() {
                            return;
                        }
                    }
                });
            }
            vec![1.0; batch.sequences.len()]
        }

        fn hidden_size(&self) -> usize {
            1
        }
    }

    #[tokio::test]
    async fn a_pass_gives_threads_up_for_one_that_comes_and_has_them_again_when_that_is_done() {
        let (threads, seen) = channel();
        let (let_first, go_first) = channel();
        let (let_second, go_second) = channel();
        let go = [Mutex::new(go_first), Mutex::new(go_second)];
        let encoder: Arc<dyn Encoder> = Arc::new(Steps { threads: Mutex::new(threads), go });
        let queue = Arc::new(Queue::new(8, TOKENS_PER_PASS));
        start(3, &queue).unwrap();
        let work = Work::alone(encoder, Wanted::Vector(Pooling::Mean));
        let submit = |ids: &[u32]| queue.submit(Lane::Document, Ragged::from_sequences([ids]), work.clone());
        let first = submit(&[0; 4]).await.unwrap();
        assert_eq!(seen.recv().unwrap(), (0, 3));
        let second = submit(&[1]).await.unwrap();
        assert_eq!(seen.recv().unwrap(), (1, 1));
        let_first.send(()).unwrap();
        assert_eq!(seen.recv().unwrap(), (0, 1));
        let_second.send(()).unwrap();
        second.await.unwrap().unwrap();
        for _ in 0..2 {
            let_first.send(()).unwrap();
            assert_eq!(seen.recv().unwrap(), (0, 3));
        }
        let_first.send(()).unwrap();
        first.await.unwrap().unwrap();
        queue.close();
    }

    #[tokio::test]
    async fn a_query_goes_between_the_steps_of_a_document_or_of_pairs() {
        for (lane, count) in [(Lane::Document, 1), (Lane::Document, 2), (Lane::Pair, 1), (Lane::Pair, 2)] {
            let (threads, seen) = channel();
            let (let_step, go_step) = channel();
            let (let_query, go_query) = channel();
            let go = [Mutex::new(go_step), Mutex::new(go_query)];
            let encoder: Arc<dyn Encoder> = Arc::new(Steps { threads: Mutex::new(threads), go });
            let queue = Arc::new(Queue::new(8, TOKENS_PER_PASS));
            let work = Work::alone(encoder, Wanted::Vector(Pooling::Mean));
            let submit = |lane, ids: &[u32]| queue.submit(lane, Ragged::from_sequences([ids]), work.clone());
            let mut others = Vec::new();
            for _ in 0..2 * count {
                others.push(submit(lane, &[0; 3]).await.unwrap());
            }
            start(count, &queue).unwrap();
            for _ in 0..count {
                assert_eq!(seen.recv().unwrap().0, 0);
            }
            let query = submit(Lane::Query, &[1]).await.unwrap();
            let_step.send(()).unwrap();
            assert_eq!(seen.recv().unwrap().0, 1, "the query is next, though every thread has another pass");
            let_query.send(()).unwrap();
            query.await.unwrap().unwrap();
            for _ in 1..3 * others.len() {
                let_step.send(()).unwrap();
            }
            for other in others {
                other.await.unwrap().unwrap();
            }
            queue.close();
        }
    }

    #[tokio::test]
    async fn pairs_go_between_the_steps_of_a_document_which_still_comes_to_its_end() {
        let (threads, seen) = channel();
        let (let_document, go_document) = channel();
        let (let_pair, go_pair) = channel();
        let go = [Mutex::new(go_document), Mutex::new(go_pair)];
        let encoder: Arc<dyn Encoder> = Arc::new(Steps { threads: Mutex::new(threads), go });
        let queue = Arc::new(Queue::new(32, TOKENS_PER_PASS));
        let work = Work::alone(encoder, Wanted::Vector(Pooling::Mean));
        let submit = |lane, ids: &[u32]| queue.submit(lane, Ragged::from_sequences([ids]), work.clone());
        let document = submit(Lane::Document, &[0; 2]).await.unwrap();
        start(1, &queue).unwrap();
        assert_eq!(seen.recv().unwrap().0, 0);
        let mut pairs = Vec::new();
        for _ in 0..20 {
            pairs.push(submit(Lane::Pair, &[1]).await.unwrap());
            let_pair.send(()).unwrap();
        }
        let_document.send(()).unwrap();
        let_document.send(()).unwrap();
        document.await.unwrap().unwrap();
        let passes: Vec<u32> = seen.try_iter().map(|(pass, _)| pass).collect();
        assert_eq!(passes.iter().position(|&pass| pass == 0), Some(8), "{passes:?}");
        for pair in pairs {
            pair.await.unwrap().unwrap();
        }
        queue.close();
    }

    #[tokio::test]
    async fn a_pass_that_runs_alone_has_all_threads_and_one_beside_it_has_its_own() {
        let (threads, seen) = channel();
        let (let_go, go) = channel();
        let encoder: Arc<dyn Encoder> = Arc::new(Gate { threads: Mutex::new(threads), go: Mutex::new(go) });
        let queue = Arc::new(Queue::new(8, TOKENS_PER_PASS));
        start(3, &queue).unwrap();
        let work = Work::alone(encoder, Wanted::Vector(Pooling::Mean));
        let submit = || queue.submit(Lane::Document, Ragged::from_sequences([&[1u32, 2][..]]), work.clone());
        for _ in 0..2 {
            let first = submit().await.unwrap();
            assert_eq!(seen.recv().unwrap(), 3);
            let second = submit().await.unwrap();
            assert_eq!(seen.recv().unwrap(), 1);
            let_go.send(()).unwrap();
            let_go.send(()).unwrap();
            for outcome in [first, second] {
                assert_eq!(outcome.await.unwrap().unwrap().len(), 1);
            }
        }
        queue.close();
    }
}
