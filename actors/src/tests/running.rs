//! Work that goes well.

use super::fake::*;
use crate::*;
use WriteMode::{Children, Itself, Subtree};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

#[tokio::test(start_paused = true)]
async fn a_thousand_tasks_keep_to_permits_and_regions() {
    let queue = FakeQueue::new();
    for n in 0..1000i64 {
        let (root, child) = (n % 7, 100 + n % 50);
        match n % 5 {
            0 => queue.add("structure", Lane::Cpu, &[root], Subtree),
            1 => queue.add("summarize", Lane::Model, &[root, child], Children),
            2 => queue.add("summarize:llm", Lane::Llm, &[root, child], Itself),
            3 => queue.add("probe", Lane::Io, &[root, child, 900 + n], Itself),
            _ => queue.add("extract:text", Lane::Cpu, &[root, child, 900 + n], Itself),
        };
    }
    type Running = Arc<Mutex<HashMap<svc_ids::TaskId, (Lane, Region)>>>;
    let running: Running = Arc::default();
    let most: Arc<Mutex<HashMap<Lane, usize>>> = Arc::default();
    let (seen, peak) = (running.clone(), most.clone());
    let script = move |grant: Grant, _, queue: Arc<FakeQueue>| {
        let (running, most) = (seen.clone(), peak.clone());
        async move {
            {
                let mut running = running.lock().unwrap();
                assert!(
                    !running.values().any(|(_, other)| other.overlaps(&grant.region)),
                    "two tasks on {:?}",
                    grant.region
                );
                running.insert(grant.task_id, (grant.lane, grant.region.clone()));
                let now = running.values().filter(|(lane, _)| *lane == grant.lane).count();
                let mut most = most.lock().unwrap();
                let peak = most.entry(grant.lane).or_default();
                *peak = now.max(*peak);
            }
            tokio::time::sleep(Duration::from_millis(grant.task_id.0 as u64 % 13)).await;
            running.lock().unwrap().remove(&grant.task_id);
            Ok(queue.commit(&grant))
        }
    };
    let mut worker = worker(WorkerSettings { drain_once: true, ..settings() }, &queue, script).await;
    assert_eq!(ends(&mut worker).await, WorkerEnd::Drained);
    assert_eq!(queue.count(State::Completed), 1000);
    let (held, run) = (queue.most_held.lock().unwrap().clone(), most.lock().unwrap().clone());
    for lane in Lane::ALL {
        assert_eq!(run[&lane], settings().permits.of(lane), "{lane}: every permit is used");
        assert!(held[&lane] <= settings().permits.of(lane), "{lane}: held {}", held[&lane]);
    }
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_is_heard_before_the_poll_and_many_are_one() {
    let queue = FakeQueue::new();
    let slow =
        WorkerSettings { poll: Duration::from_secs(86_400), sweep: Duration::from_secs(86_400 * 9), ..settings() };
    let worker = worker(slow, &queue, commit).await;
    until("the first sweep", || queue.sweeps.load(SeqCst) > 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = queue.claims.load(SeqCst);
    let id = queue.add("probe", Lane::Io, &[1], Itself);
    // There is no await in between, so the dispatcher cannot look before the last wake-up.
    (0..1000).for_each(|_| worker.wake());
    until("the woken task's end", || queue.task(id).state == State::Completed).await;
    assert!(queue.claims.load(SeqCst) - before < 10);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn one_claim_asks_for_all_idle_slots() {
    let queue = FakeQueue::new();
    for n in 0..8 {
        queue.add("probe", Lane::Llm, &[n], Itself);
    }
    let gate = Gate::new();
    let passing = gate.clone();
    let script = move |grant, _, queue: Arc<FakeQueue>| {
        let gate = passing.clone();
        async move {
            gate.pass().await;
            Ok(queue.commit(&grant))
        }
    };
    let worker = worker(settings(), &queue, script).await;
    until("three in the lane", || gate.entered() == 3).await;
    assert_eq!(queue.count(State::Pending), 5);
    gate.open();
    until("all done", || queue.count(State::Completed) == 8).await;
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_documents_supervisor_ends_when_it_is_idle() {
    let queue = FakeQueue::new();
    for n in 0..3 {
        queue.add("summarize:llm", Lane::Llm, &[7, n], Itself);
    }
    let gate = Gate::new();
    let passing = gate.clone();
    let script = move |grant, _, queue: Arc<FakeQueue>| {
        let gate = passing.clone();
        async move {
            gate.pass().await;
            Ok(queue.commit(&grant))
        }
    };
    let worker = worker(settings(), &queue, script).await;
    until("all in", || gate.entered() == 3).await;
    let supervisors = |worker: &Worker| {
        let root = worker.snapshot().root.unwrap();
        let documents = root.children.into_iter().find(|node| node.kind == "documents").unwrap();
        documents.children
    };
    let open = supervisors(&worker);
    assert_eq!(open.len(), 1, "one supervisor for the three tasks of one document");
    assert_eq!((open[0].kind.as_str(), open[0].document_id), ("document", Some(svc_ids::DocumentId(7))));
    let tasks: BTreeSet<_> =
        open[0].children.iter().map(|task| (task.task_id, task.task_type.as_deref(), task.kind.as_str())).collect();
    assert_eq!(tasks, [0, 1, 2].map(|id| (Some(svc_ids::TaskId(id)), Some("summarize:llm"), "rollup")).into());
    let run = open[0].children[0].run.clone().unwrap();
    assert_eq!((run.attempt, run.lane, run.phase), (1, Lane::Llm, Phase::Preparing));
    assert_eq!((run.region.path[0], run.region.mode), (7, Itself));
    gate.open();
    until("no supervisor", || supervisors(&worker).is_empty()).await;
    assert!(queue.looks.load(SeqCst) > 0, "it asked what the document still owes");
    let again = queue.add("summarize:llm", Lane::Llm, &[7, 1], Itself);
    until("a new supervisor's task", || queue.task(again).state == State::Completed).await;
    worker.stop(Duration::ZERO).await;
}

/// The documents of a worker's tree, by their root.
fn documents(worker: &Worker) -> HashMap<i64, TreeNode> {
    let root = worker.snapshot().root.unwrap();
    let documents = root.children.into_iter().find(|node| node.kind == "documents").unwrap();
    documents.children.into_iter().map(|node| (node.document_id.unwrap().0, node)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_knows_its_document_from_one_task_to_the_next() {
    let queue = FakeQueue::new();
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        match grant.task_type.as_str() {
            "extract:text" => Err(TaskFailure::permanent("bad_zip", "member 3 does not inflate")),
            _ => Ok(queue.commit(&grant)),
        }
    };
    queue.add("probe", Lane::Cpu, &[7], Itself);
    let waits = queue.add("embed", Lane::Model, &[7, 9], Itself);
    // Another worker holds it, so the document owes work but none of it runs here.
    queue.edit(waits, |task| task.token = Some(uuid::Uuid::nil()));
    let worker = worker(settings(), &queue, script).await;
    let progress = |worker: &Worker| documents(worker).remove(&7).and_then(|node| node.progress);
    until("the first task's end", || progress(&worker).is_some_and(|progress| progress.tasks.done == 1)).await;
    // This is far longer than a look takes.
    tokio::time::sleep(Duration::from_secs(100)).await;
    let known = progress(&worker).unwrap();
    assert_eq!((known.title.as_deref(), known.stage.as_deref()), (Some("title 7"), Some("probe")));
    assert_eq!(known.tasks, TaskCounts { open: Some(1), held: 0, done: 1, failed: 0 });
    assert!(known.last_failure.is_none());

    queue.add("extract:text", Lane::Cpu, &[7, 8], Itself);
    until("the failure", || progress(&worker).is_some_and(|progress| progress.tasks.failed == 1)).await;
    let known = progress(&worker).unwrap();
    let failure = known.last_failure.unwrap();
    assert_eq!((failure.task_type.as_str(), failure.code.as_str()), ("extract:text", "bad_zip"));
    assert!(failure.message.contains("member 3"));
    assert_eq!((known.tasks.done, known.stage.as_deref()), (1, Some("extract")));
    queue.edit(waits, |task| task.token = None);
    worker.wake();
    until("nothing is owed any more", || documents(&worker).is_empty()).await;
    assert_eq!(queue.task(waits).state, State::Completed);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_document_soon_has_its_title_for_those_who_look() {
    let queue = FakeQueue::new();
    let id = queue.add("wait", Lane::Cpu, &[7], Itself);
    let gate = Gate::new();
    let passing = gate.clone();
    let script = move |grant: Grant, _, queue: Arc<FakeQueue>| {
        let gate = passing.clone();
        async move {
            gate.pass().await;
            Ok(queue.commit(&grant))
        }
    };
    // No heartbeat is due while this runs.
    let slow =
        WorkerSettings { heartbeat: Duration::from_secs(86_400), lease: Duration::from_secs(86_400 * 3), ..settings() };
    let worker = worker(slow, &queue, script).await;
    until("at work", || gate.entered() == 1).await;
    let title = || documents(&worker).remove(&7).and_then(|node| node.progress).and_then(|progress| progress.title);
    assert_eq!(title(), None);
    let begun = tokio::time::Instant::now();
    worker.waker().watch();
    until("the title", || title().is_some()).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?} of the clock that the test moves", begun.elapsed());
    gate.open();
    until("done", || queue.task(id).state == State::Completed).await;
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn of_the_supervisors_without_a_task_the_last_used_ones_stay() {
    let queue = FakeQueue::new();
    for root in 0..100 {
        queue.add("probe", Lane::Io, &[root], Itself);
        // This stays owed for ever, because no lane of this worker takes it.
        queue.add("summarize:llm", Lane::Llm, &[root], Itself);
    }
    let few = WorkerSettings { permits: Permits { cpu: 0, model: 0, llm: 0, io: 1 }, ..settings() };
    let worker = worker(few, &queue, commit).await;
    until("all probes", || queue.count(State::Completed) == 100).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let mut left: Vec<i64> = documents(&worker).into_keys().collect();
    left.sort_unstable();
    assert_eq!(left, (100 - documents::MOST_IDLE as i64..100).collect::<Vec<_>>());
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn max_tasks_is_kept_exactly_whichever_lane_has_the_work() {
    for lane in Lane::ALL {
        let queue = FakeQueue::new();
        for n in 0..20 {
            queue.add("probe", lane, &[n], Itself);
        }
        let mut worker = worker(WorkerSettings { max_tasks: Some(5), ..settings() }, &queue, commit).await;
        assert_eq!(ends(&mut worker).await, WorkerEnd::MaxTasks);
        assert_eq!((queue.count(State::Completed), queue.count(State::Pending)), (5, 15));
        worker.stop(Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_put_off_is_none_of_the_tasks_after_which_a_worker_ends() {
    let queue = FakeQueue::new();
    for n in 0..10 {
        queue.add(if n < 3 { "away" } else { "probe" }, Lane::Cpu, &[n], Itself);
    }
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        match grant.task_type.as_str() {
            "away" => Err(TaskFailure::away("no_model", "it is away")),
            _ => Ok(queue.commit(&grant)),
        }
    };
    let mut worker = worker(WorkerSettings { max_tasks: Some(2), ..settings() }, &queue, script).await;
    assert_eq!(ends(&mut worker).await, WorkerEnd::MaxTasks);
    assert_eq!((queue.count(State::Completed), queue.count(State::Failed), queue.count(State::Pending)), (2, 3, 5));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn what_many_tasks_lack_is_said_once_and_again_after_a_while() {
    const WHILE: Duration = Duration::from_secs(60);
    let worker = worker(settings(), &FakeQueue::new(), commit).await;
    let is_first = |code, within| worker.shared().is_first_lack(code, within);
    assert!(is_first("away", WHILE) && !is_first("away", WHILE) && is_first("absent", Duration::MAX));
    tokio::time::advance(WHILE).await;
    assert!(is_first("away", WHILE) && !is_first("away", WHILE) && !is_first("absent", Duration::MAX));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_when_fewer_tasks_come_than_allowed() {
    let queue = FakeQueue::new();
    for lane in Lane::ALL {
        queue.add("probe", lane, &[lane as i64], Itself);
    }
    let drain = WorkerSettings { drain_once: true, max_tasks: Some(6), ..settings() };
    let mut worker = worker(drain, &queue, commit).await;
    assert_eq!(ends(&mut worker).await, WorkerEnd::Drained);
    assert_eq!(queue.count(State::Completed), 4);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn draining_an_empty_queue_sweeps_before_it_ends() {
    let queue = FakeQueue::new();
    let mut worker = worker(WorkerSettings { drain_once: true, ..settings() }, &queue, commit).await;
    assert_eq!(ends(&mut worker).await, WorkerEnd::Drained);
    assert!(queue.sweeps.load(SeqCst) > 0);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn two_workers_in_one_process_share_a_queue_and_nothing_else() {
    let queue = FakeQueue::new();
    for n in 0..200 {
        queue.add("probe", Lane::Cpu, &[n % 5, n], Itself);
        queue.add("structure", Lane::Cpu, &[n % 5], Subtree);
    }
    let drain = || WorkerSettings { drain_once: true, ..settings() };
    let mut one = worker(WorkerSettings { worker_id: "one".into(), ..drain() }, &queue, commit).await;
    let two = worker(WorkerSettings { worker_id: "two".into(), ..settings() }, &queue, commit).await;
    assert_eq!(ends(&mut one).await, WorkerEnd::Drained);
    until("all done", || queue.count(State::Completed) == 400).await;
    one.stop(Duration::ZERO).await;
    let later = queue.add("probe", Lane::Cpu, &[1], Itself);
    until("the other goes on", || queue.task(later).state == State::Completed).await;
    assert_eq!(two.snapshot().worker_id, "two");
    two.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_handlers_own_failure_and_skip_are_taken_as_they_are() {
    let queue = FakeQueue::new();
    let corrupt = queue.add("corrupt", Lane::Cpu, &[1], Itself);
    let skipped = queue.add("skipped", Lane::Cpu, &[2], Itself);
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        if grant.task_type == "corrupt" {
            let wait = Some(Duration::from_secs(7));
            return Err(TaskFailure {
                retry_after: wait,
                ..TaskFailure::permanent("bad_zip", "member 3 does not inflate")
            });
        }
        queue.commit(&grant);
        Ok(Outcome::Skipped { reason: "nothing to do".into() })
    };
    let mut worker = worker(WorkerSettings { drain_once: true, ..settings() }, &queue, script).await;
    ends(&mut worker).await;
    let failure = &queue.task(corrupt).failures[..];
    assert_eq!(failure.len(), 1);
    assert_eq!((failure[0].class, failure[0].code.as_str()), (ErrorClass::Permanent, "bad_zip"));
    assert_eq!(failure[0].retry_after, Some(Duration::from_secs(7)));
    assert_eq!((queue.task(skipped).state, queue.task(skipped).failures.len()), (State::Completed, 0));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lacks_what_a_task_needs_leaves_others_like_it_to_other_workers_for_a_while() {
    const REST: Duration = Duration::from_secs(60);
    let queue = FakeQueue::new();
    for n in 0..8 {
        queue.add("summarize:llm", Lane::Llm, &[n], Itself);
    }
    let lacks = |_: Grant, _, _: Arc<FakeQueue>| async {
        Err(TaskFailure { rest: Some(REST), ..TaskFailure::away("no_model", "another worker has it") })
    };
    let one = worker(settings(), &queue, lacks).await;
    until("a failure in each slot", || queue.count(State::Failed) == 3).await;
    tokio::time::sleep(REST / 2).await;
    assert_eq!(queue.count(State::Failed), 3);
    let two = worker(WorkerSettings { worker_id: "two".into(), ..settings() }, &queue, commit).await;
    until("the others to be done elsewhere", || queue.count(State::Completed) == 5).await;
    two.stop(Duration::ZERO).await;
    queue.add("summarize:llm", Lane::Llm, &[9], Itself);
    until("the worker to try again", || queue.count(State::Failed) == 4).await;
    one.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_tries_every_task_although_each_lacks_the_same() {
    let queue = FakeQueue::new();
    for n in 0..8 {
        queue.add("summarize:llm", Lane::Llm, &[n], Itself);
    }
    let lacks = |_: Grant, _, _: Arc<FakeQueue>| async {
        Err(TaskFailure { rest: Some(Duration::from_secs(60)), ..TaskFailure::away("no_model", "it is away") })
    };
    let mut worker = worker(WorkerSettings { drain_once: true, ..settings() }, &queue, lacks).await;
    assert_eq!(ends(&mut worker).await, WorkerEnd::Drained);
    assert_eq!((queue.count(State::Failed), queue.count(State::Pending)), (8, 0));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_only_commits_passes_its_permit_on_to_one_other() {
    /// A handler with nothing to prepare, which commits once the test lets it.
    struct Commits {
        queue: Arc<FakeQueue>,
        entered: Arc<AtomicU64>,
        gate: Arc<Semaphore>,
    }
    #[async_trait::async_trait]
    impl Handler for Commits {
        async fn run(&self, grant: &Grant, _: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure> {
            drop(permit.end());
            self.entered.fetch_add(1, SeqCst);
            self.gate.acquire().await.unwrap().forget();
            Ok(self.queue.commit(grant))
        }
    }
    let queue = FakeQueue::new();
    for root in 0..5 {
        queue.add("probe", Lane::Cpu, &[root], Itself);
    }
    let (entered, gate) = (Arc::<AtomicU64>::default(), Arc::new(Semaphore::new(0)));
    let handler = Commits { queue: queue.clone(), entered: entered.clone(), gate: gate.clone() };
    let one = WorkerSettings { permits: Permits { cpu: 1, model: 0, llm: 0, io: 0 }, drain_once: true, ..settings() };
    let beats = queue.clone();
    let beat: BeatFactory = Box::new(move || Box::new(FakeBeat(beats.clone())));
    let mut worker = Worker::start(one, queue.clone(), beat, Arc::new(handler)).await.unwrap();
    until("the second task while the first commits", || entered.load(SeqCst) == 2).await;
    for ended in 1..=3 {
        // This is far longer than a poll: as many tasks commit as there are permits, and one more keeps its own.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(entered.load(SeqCst), ended + 1);
        gate.add_permits(1);
        until("the next task", || entered.load(SeqCst) == ended + 2).await;
    }
    gate.add_permits(2);
    assert_eq!(ends(&mut worker).await, WorkerEnd::Drained);
    assert_eq!(queue.count(State::Completed), 5);
    assert_eq!(queue.most_held.lock().unwrap()[&Lane::Cpu], 2);
    worker.stop(Duration::ZERO).await;
}
