//! The model's threads.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

use crate::{
    ModelError, Pooling, VECTOR_WIDTH,
    encoder::Encoder,
    pooling::{normalise, pool},
    queue::{Outcome, Queue, Wanted},
    ragged::Ragged,
};

/// Starts `threads` threads that take passes from `queue` until it is closed.
pub(crate) fn start(
    threads: usize,
    queue: &Arc<Queue>,
    encoder: &Arc<dyn Encoder>,
    pooling: Pooling,
) -> Result<(), ModelError> {
    let (ready, started) = mpsc::channel();
    for number in 0..threads {
        let (queue_of_thread, encoder, ready) = (Arc::clone(queue), Arc::clone(encoder), ready.clone());
        let spawned = thread::Builder::new().name(format!("model-{number}")).spawn(move || {
            // A pool of this thread alone: nothing inside a pass forks, joins or waits for another pass, and as many
            // passes run as there are threads.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
            let is_started = pool.is_ok();
            // The receiver is gone only when another thread failed to start; the queue is closed then.
            let _ = ready.send(pool.as_ref().map(|_| ()).map_err(ToString::to_string));
            drop(ready);
            if is_started {
                serve(&queue_of_thread, &*encoder, pooling);
            }
        });
        if let Err(error) = spawned {
            queue.close();
            return Err(not_started(threads, &error.to_string()));
        }
    }
    drop(ready);
    for result in started {
        if let Err(problem) = result {
            queue.close();
            return Err(not_started(threads, &problem));
        }
    }
    Ok(())
}

fn not_started(threads: usize, problem: &str) -> ModelError {
    tracing::error!(model.threads = threads, problem, "a model thread could not be started");
    ModelError::Setting {
        setting: "threads",
        value: threads.to_string(),
        problem: "the system refused to start so many threads; take fewer",
    }
}

fn serve(queue: &Queue, encoder: &dyn Encoder, pooling: Pooling) {
    while let Some(pass) = queue.take() {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(encoder, pooling, &pass.batch, pass.wanted)))
            .unwrap_or_else(|panic| Err(ModelError::ForwardPanicked { message: panic_message(&*panic) }));
        // Nobody waits any more when the caller was cancelled meanwhile.
        let _ = pass.reply.send(outcome);
    }
}

fn run(encoder: &dyn Encoder, pooling: Pooling, batch: &Ragged, wanted: Wanted) -> Outcome {
    let hidden = encoder.hidden_size();
    let mut rows = encoder.forward(batch);
    batch
        .sequences
        .iter()
        .map(|sequence| {
            let rows = &mut rows[sequence.start * hidden..sequence.end * hidden];
            match wanted {
                Wanted::Vector => pool(pooling, rows, hidden, VECTOR_WIDTH),
                Wanted::Rows => {
                    rows.chunks_exact_mut(hidden).try_for_each(normalise)?;
                    Ok(rows.to_vec())
                }
            }
        })
        .collect()
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
