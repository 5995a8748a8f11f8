//! The model's threads.

use crate::{
    ModelError, VECTOR_WIDTH,
    encoder::Place,
    error::panic_message,
    pooling::pool,
    queue::{Outcome, Queue, Wanted, Work},
    ragged::Ragged,
};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::{
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
}

impl Threads {
    pub fn start(count: usize, queue_capacity: usize) -> Result<Arc<Self>, ModelError> {
        let queue = Arc::new(Queue::new(queue_capacity));
        start(count, &queue)?;
        Ok(Arc::new(Self { queue, count }))
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
            self.running.fetch_add(1, Ordering::Relaxed);
            let outcome = catch_unwind(AssertUnwindSafe(|| run(&pass.work, &pass.batch, self)));
            let outcome = outcome.map_err(|panic| panic_message(&*panic));
            if let Some(device) = &pass.work.device {
                device.ended(&pass.work.encoder, outcome.as_ref().err().map(String::as_str));
            }
            let outcome = outcome.unwrap_or_else(|message| Err(ModelError::ForwardPanicked { message }));
            self.running.fetch_sub(1, Ordering::Relaxed);
            // If the caller was cancelled meanwhile, nobody waits any more.
            let _ = pass.reply.send(outcome);
        }
    }
}

impl Place for Crew {
    fn run(&self, work: &mut (dyn FnMut(&dyn Fn() -> bool) + Send)) {
        let is_alone = || self.running.load(Ordering::Relaxed) == 1;
        match &self.shared_out {
            Some(pool) if is_alone() => pool.install(|| work(&|| !is_alone())),
            Some(_) => work(&is_alone),
            None => work(&|| false),
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

fn run(Work { encoder, wanted, .. }: &Work, batch: &Ragged, place: &dyn Place) -> Outcome {
    let hidden = encoder.hidden_size();
    let mut rows = encoder.forward_in(batch, place);
    batch
        .sequences
        .iter()
        .map(|sequence| {
            let rows = &mut rows[sequence.start * hidden..sequence.end * hidden];
            match wanted {
                Wanted::Vector(pooling) => match pool(*pooling, rows, hidden, VECTOR_WIDTH) {
                    Err(ModelError::NoDirection { .. }) => Ok(None),
                    pooled => pooled.map(Some),
                },
                Wanted::Rows => Ok(Some(rows.to_vec())),
                Wanted::Score(classifier) => Ok(Some(vec![classifier.score(&rows[..hidden])?])),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pooling, encoder::Encoder, queue::Lane};
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
        fn forward(&self, batch: &Ragged) -> Vec<f32> {
            self.threads.lock().unwrap().send(rayon::current_num_threads()).unwrap();
            let _ = self.go.lock().unwrap().recv();
            vec![1.0; batch.token_count()]
        }

        fn hidden_size(&self) -> usize {
            1
        }
    }

    /// Makes a step per token; each step reports its pass and how many threads it has, and waits until the test lets it
    /// go.
    struct Steps {
        threads: Mutex<Sender<(u32, usize)>>,
        go: [Mutex<Receiver<()>>; 2],
    }

    impl Encoder for Steps {
        fn forward(&self, _: &Ragged) -> Vec<f32> {
            unreachable!("it is run step by step")
        }

        fn forward_in(&self, batch: &Ragged, place: &dyn Place) -> Vec<f32> {
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
            vec![1.0; batch.token_count()]
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
        let queue = Arc::new(Queue::new(8));
        start(3, &queue).unwrap();
        let work = Work { encoder, wanted: Wanted::Vector(Pooling::Mean), device: None };
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
    async fn a_pass_that_runs_alone_has_all_threads_and_one_beside_it_has_its_own() {
        let (threads, seen) = channel();
        let (let_go, go) = channel();
        let encoder: Arc<dyn Encoder> = Arc::new(Gate { threads: Mutex::new(threads), go: Mutex::new(go) });
        let queue = Arc::new(Queue::new(8));
        start(3, &queue).unwrap();
        let work = Work { encoder, wanted: Wanted::Vector(Pooling::Mean), device: None };
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
