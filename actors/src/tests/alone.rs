//! A task that lost a lease may have taken its worker down, and next time it takes no other task with it.

use super::fake::*;
use crate::*;
use WriteMode::Itself;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use svc_ids::TaskId;

/// Tasks of this type have lost a lease.
const SUSPECT: &str = "suspect";

/// Runs tasks that take a while, and remembers which ran beside each other.
struct Watches {
    queue: Arc<FakeQueue>,
    /// Whether the end of a task claims the next ones.
    chains: bool,
    running: Mutex<BTreeSet<TaskId>>,
    together: Mutex<Vec<BTreeSet<TaskId>>>,
}

#[async_trait::async_trait]
impl Handler for Watches {
    async fn run(&self, grant: &Grant, _: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure> {
        {
            let mut running = self.running.lock().unwrap();
            running.insert(grant.task_id);
            self.together.lock().unwrap().push(running.clone());
        }
        tokio::time::sleep(Duration::from_millis(10 + grant.task_id.0 as u64 % 7)).await;
        let ending = permit.end();
        let outcome = self.queue.commit(grant);
        // Whatever its end claims, the task itself is still here.
        let claimed = (self.chains && !ending.want().is_empty()).then(|| self.queue.grant(ending.want()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        match claimed {
            Some(claimed) => ending.granted(claimed, Lanes::NONE),
            None => ending.brought(Lanes::NONE),
        }
        self.running.lock().unwrap().remove(&grant.task_id);
        Ok(outcome)
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_lost_a_lease_runs_while_its_worker_runs_nothing_else() {
    for chains in [false, true] {
        let queue = FakeQueue::new();
        let suspects = BTreeSet::from([0, 9, 25, 26, 39].map(TaskId));
        for (number, lane) in (0..40).zip(Lane::ALL.into_iter().cycle()) {
            let task_type = if suspects.contains(&TaskId(number)) { SUSPECT } else { "probe" };
            let id = queue.add(task_type, lane, &[number], Itself);
            queue.edit(id, |task| task.runs_alone = task.task_type == SUSPECT);
        }
        let handler =
            Arc::new(Watches { queue: queue.clone(), chains, running: Mutex::default(), together: Mutex::default() });
        let beats = queue.clone();
        let beat: BeatFactory = Box::new(move || Box::new(FakeBeat(beats.clone())));
        let drain = WorkerSettings { drain_once: true, ..settings() };
        let mut worker = Worker::start(drain, queue.clone(), beat, handler.clone()).await.unwrap();
        assert_eq!(ends(&mut worker).await, WorkerEnd::Drained);
        worker.stop(Duration::ZERO).await;
        assert_eq!(queue.count(State::Completed), 40);
        let together = handler.together.lock().unwrap();
        assert!(together.iter().any(|running| running.len() > 3), "the others run beside each other");
        let company: Vec<_> =
            together.iter().filter(|running| running.len() > 1 && !running.is_disjoint(&suspects)).collect();
        assert!(company.is_empty(), "chains {chains}: {company:?}");
    }
}
