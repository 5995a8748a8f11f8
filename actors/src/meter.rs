//! How far a running task is, as its handler says.

use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many parts of a task are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TaskProgress {
    pub done: u64,
    pub of: u64,
    /// What is counted, such as `pages`.
    pub unit: &'static str,
}

/// Where a handler says how far its task is, and the tree's snapshot reads it. While nothing was said, nothing is shown.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<Option<TaskProgress>>>);

impl Meter {
    fn lock(&self) -> MutexGuard<'_, Option<TaskProgress>> {
        // A panic cannot leave this plain data half-written, so a poisoned lock is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many of so many parts are done.
    pub fn set(&self, done: usize, of: usize, unit: &'static str) {
        let (done, of) = (done as u64, of as u64);
        *self.lock() = Some(TaskProgress { done: done.min(of), of, unit });
    }

    /// So many more parts are done of those that were said before.
    pub fn advance(&self, by: usize) {
        if let Some(progress) = self.lock().as_mut() {
            progress.done = progress.done.saturating_add(by as u64).min(progress.of);
        }
    }

    pub(crate) fn read(&self) -> Option<TaskProgress> {
        *self.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_never_done_more_than_there_is() {
        let meter = Meter::default();
        meter.advance(3);
        assert_eq!(meter.read(), None, "nothing was said");
        meter.set(2, 5, "pages");
        meter.clone().advance(1);
        assert_eq!(meter.read(), Some(TaskProgress { done: 3, of: 5, unit: "pages" }));
        meter.advance(usize::MAX);
        assert_eq!(meter.read().map(|progress| progress.done), Some(5));
        meter.set(9, 5, "texts");
        assert_eq!(meter.read(), Some(TaskProgress { done: 5, of: 5, unit: "texts" }));
    }
}
