//! One caller's texts on their way to the model: they are tokenised beside the runtime, then go through the queue in
//! passes.

use crate::{
    ModelError,
    error::panic_message,
    queue::{Lane, Outcome, Queue, Work},
    ragged::{Ragged, plan_passes},
    worker::Threads,
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Texts with fewer bytes in total are tokenised on the caller's thread, because handing them to another thread takes
/// as long.
const TOKENISED_IN_PLACE: usize = 4096;

/// Says whether the caller is gone.
pub(crate) type IsGone<'a> = dyn Fn() -> bool + Sync + 'a;

/// Tokenises on the caller's side, so that the model's threads only run the model. Texts with many `bytes` are not
/// tokenised on the runtime's own threads. `tokenise` gets a function that says whether the caller is gone.
pub(crate) async fn beside_the_runtime<T: Send + 'static>(
    bytes: usize,
    tokenise: impl FnOnce(&IsGone<'_>) -> Result<T, ModelError> + Send + 'static,
) -> Result<T, ModelError> {
    let runtime = tokio::runtime::Handle::try_current();
    let (false, Ok(runtime)) = (bytes <= TOKENISED_IN_PLACE, runtime) else {
        return tokenise(&|| false);
    };
    // This is dropped with the future; the other thread sees that and stops.
    let waiting = Arc::new(());
    let watch = Arc::downgrade(&waiting);
    let task = runtime.spawn_blocking(move || tokenise(&|| watch.strong_count() == 0));
    match task.await {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(ModelError::Tokenize { message: panic_message(&*error.into_panic()) }),
        Err(_) => Err(ModelError::Stopped),
    }
}

/// Hears how many more texts are done.
pub type Heard<'a> = dyn Fn(usize) + Send + Sync + 'a;

/// Runs all sequences in passes of similar lengths, with at most `max_sequences` in one. `batch` makes the pass of the
/// sequences whose numbers it gets, and `done` hears of each pass that has ended. Returns the results in the order of the
/// sequences.
pub(crate) async fn run(
    threads: &Threads,
    lane: Lane,
    work: Work,
    lengths: &[usize],
    max_sequences: usize,
    batch: impl Fn(&[usize]) -> Ragged,
    done: &Heard<'_>,
) -> Result<Vec<Vec<f32>>, ModelError> {
    let Threads { queue, count, limit } = threads;
    let passes = plan_passes(lengths, *limit, max_sequences, *count);
    let mut outcomes = Outcomes { queue, waiting: Vec::with_capacity(passes.len()) };
    for pass in &passes {
        outcomes.waiting.push(queue.submit(lane, batch(pass), work.clone()).await?);
    }
    let mut results = vec![None; lengths.len()];
    for (pass, outcome) in passes.iter().zip(&mut outcomes.waiting) {
        for (&sequence, result) in pass.iter().zip(outcome.await.map_err(|_| ModelError::Stopped)??) {
            results[sequence] = result;
        }
        done(pass.len());
    }
    // The error names all of them at once, so that the caller can leave them out and ask only once more.
    let texts: Vec<usize> = (0..results.len()).filter(|&sequence| results[sequence].is_none()).collect();
    if !texts.is_empty() {
        return Err(ModelError::NoDirection { texts });
    }
    Ok(results.into_iter().flatten().collect())
}

/// The passes that a caller waits for. If this is dropped early, they leave the queue.
struct Outcomes<'a> {
    queue: &'a Queue,
    waiting: Vec<oneshot::Receiver<Outcome>>,
}

impl Drop for Outcomes<'_> {
    fn drop(&mut self) {
        let is_abandoned = self.waiting.iter().any(|outcome| !outcome.is_terminated());
        self.waiting.clear();
        if is_abandoned {
            self.queue.sweep();
        }
    }
}
