//! Ports and actors that fail.

use super::fake::*;
use crate::{
    dispatcher::Dispatcher,
    lock_manager::LockManager,
    shared::Shared,
    tree::{Load, Post},
    *,
};
use WriteMode::{Itself, Subtree};
use ractor::Actor;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use uuid::Uuid;

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_down_is_asked_ever_less_often_and_work_resumes() {
    let queue = FakeQueue::new();
    queue.down.store(true, SeqCst);
    let id = queue.add("probe", Lane::Io, &[1], Itself);
    let worker = worker(settings(), &queue, commit).await;
    let waker = worker.waker();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        waker.wake(Lanes::ALL);
    }
    let claims = queue.claims.load(SeqCst);
    assert!((10..40).contains(&claims), "{claims} claims in ten minutes");
    queue.down.store(false, SeqCst);
    until("the task's end", || queue.task(id).state == State::Completed).await;
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_be_written_holds_up_no_task() {
    let queue = FakeQueue::new();
    queue.start_fails.store(true, SeqCst);
    let (short, long) = (queue.add("short", Lane::Io, &[1], Itself), queue.add("long", Lane::Io, &[2], Itself));
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        if grant.task_type == "long" {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        Ok(queue.commit(&grant))
    };
    let worker = worker(settings(), &queue, script).await;
    until("the short one's end", || queue.task(short).state == State::Completed).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(queue.task(long).state, State::Claimed);
    queue.start_fails.store(false, SeqCst);
    until("written as running", || queue.task(long).state == State::Running).await;
    until("the long one's end", || queue.task(long).state == State::Completed).await;
    assert_eq!((queue.task(long).given_back, queue.task(long).attempt), (0, 1));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_answer_was_lost_is_asked_for_again_and_stops_nothing() {
    let queue = FakeQueue::new();
    queue.start_answer_is_lost.store(true, SeqCst);
    let id = queue.add("long", Lane::Io, &[1], Itself);
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(queue.commit(&grant))
    };
    let worker = worker(settings(), &queue, script).await;
    until("the end", || queue.task(id).state == State::Completed).await;
    assert!(!queue.start_answer_is_lost.load(SeqCst));
    assert_eq!((queue.task(id).given_back, queue.task(id).attempt), (0, 1));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_comes_after_the_commit_cuts_nothing_off() {
    /// A handler that commits and then has more to do that nobody else would do.
    struct Lingers(Arc<FakeQueue>, Arc<AtomicBool>);
    #[async_trait::async_trait]
    impl Handler for Lingers {
        async fn run(&self, grant: &Grant, _: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure> {
            drop(permit.end());
            let outcome = self.0.commit(grant);
            tokio::time::sleep(Duration::from_secs(5)).await;
            self.1.store(true, SeqCst);
            Ok(outcome)
        }
    }
    let (queue, went_on) = (FakeQueue::new(), Arc::<AtomicBool>::default());
    queue.add("probe", Lane::Io, &[1], Itself);
    let beats = queue.clone();
    let beat: BeatFactory = Box::new(move || Box::new(FakeBeat(beats.clone())));
    let handler = Lingers(queue.clone(), went_on.clone());
    let once = WorkerSettings { drain_once: true, ..settings() };
    let mut worker = Worker::start(once, queue.clone(), beat, Arc::new(handler)).await.unwrap();
    assert_eq!(ends(&mut worker).await, WorkerEnd::Drained);
    assert!(went_on.load(SeqCst));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_is_stopped_as_its_start_finds_the_reservation_gone() {
    let queue = FakeQueue::new();
    let id = queue.add("wait", Lane::Io, &[1], Itself);
    let gate = Gate::new();
    let passing = gate.clone();
    let script = move |grant: Grant, _, queue: Arc<FakeQueue>| {
        let gate = passing.clone();
        async move {
            // By now another worker has the task.
            queue.edit(grant.task_id, |task| (task.state, task.token) = (State::Running, Some(Uuid::new_v4())));
            gate.pass().await;
            Ok(queue.commit(&grant))
        }
    };
    // No heartbeat comes in time to tell.
    let deaf =
        WorkerSettings { heartbeat: Duration::from_secs(86_400), lease: Duration::from_secs(86_400 * 3), ..settings() };
    let worker = worker(deaf, &queue, script).await;
    until("stopped", || gate.left() == 1).await;
    assert_eq!(
        (queue.task(id).state, queue.task(id).failures.len(), queue.task(id).given_back),
        (State::Running, 0, 0)
    );
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_written_once_the_queue_is_back() {
    let queue = FakeQueue::new();
    let id = queue.add("fails", Lane::Io, &[1], Subtree);
    let behind = queue.add("probe", Lane::Io, &[1, 2], Itself);
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        if grant.task_type == "fails" {
            queue.down.store(true, SeqCst);
            return Err(TaskFailure::permanent("corrupt", "no pages"));
        }
        Ok(queue.commit(&grant))
    };
    let worker = worker(settings(), &queue, script).await;
    until("down", || queue.down.load(SeqCst)).await;
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert_eq!(queue.task(id).state, State::Claimed);
    queue.down.store(false, SeqCst);
    until("written", || queue.task(id).state == State::Failed).await;
    until("the task behind it", || queue.task(behind).state == State::Completed).await;
    assert_eq!(queue.task(id).failures.len(), 1);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn the_lock_managers_death_disturbs_no_running_task() {
    let queue = FakeQueue::new();
    let id = queue.add("wait", Lane::Cpu, &[1], Subtree);
    let fails = queue.add("fail", Lane::Cpu, &[2], Subtree);
    let gate = Gate::new();
    let passing = gate.clone();
    let script = move |grant: Grant, _, queue: Arc<FakeQueue>| {
        let gate = passing.clone();
        async move {
            gate.pass().await;
            if grant.task_type == "fail" {
                Err(TaskFailure::permanent("corrupt", ""))
            } else {
                Ok(queue.commit(&grant))
            }
        }
    };
    let worker = worker(settings(), &queue, script).await;
    until("running", || gate.entered() == 2).await;
    worker.shared().locks.get().unwrap().actor.kill();
    worker.shared().dispatcher.get().unwrap().actor.kill();
    gate.open();
    until("done", || queue.task(id).state == State::Completed && queue.task(fails).state == State::Failed).await;
    let next = queue.add("probe", Lane::Cpu, &[1], Subtree);
    until("claimed by the new ones", || queue.task(next).state == State::Completed).await;
    assert_eq!(queue.task(fails).failures.len(), 1);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_between_a_dispatchers_start_and_the_knowledge_of_its_address_is_not_lost() {
    let queue = FakeQueue::new();
    let never = Duration::from_secs(86_400);
    let slow = WorkerSettings { poll: never, reap: never, sweep: never, ..settings() };
    let beats = queue.clone();
    let beat: BeatFactory = Box::new(move || Box::new(FakeBeat(beats.clone())));
    let handler = Arc::new(Chains(queue.clone(), Gate::new()));
    let shared = Arc::new(Shared::new(slow, queue.clone(), handler, beat));
    let arguments = || (shared.clone(), 0, Arc::<Load>::default());
    let locks = Actor::spawn(None, LockManager, arguments()).await.unwrap().0;
    shared.locks.set(Post { actor: locks.clone(), load: Arc::default() });
    let dispatcher = Actor::spawn(None, Dispatcher, arguments()).await.unwrap().0;
    until("its first look", || queue.claims.load(SeqCst) == 1 && queue.sweeps.load(SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    // It has looked and is idle; whoever wakes it now does not find it.
    shared.wake(Lanes::ALL);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(queue.claims.load(SeqCst), 1);
    shared.set_dispatcher(Post { actor: dispatcher.clone(), load: Arc::default() });
    until("the look for the lost wake-up", || queue.claims.load(SeqCst) == 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    shared.wake(Lanes::ALL);
    until("the look for the next one", || queue.claims.load(SeqCst) == 3).await;
    dispatcher.stop(None);
    locks.stop(None);
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_keeps_ending_ends_the_worker_and_its_tasks_are_given_back() {
    let queue = FakeQueue::new();
    let id = queue.add("probe", Lane::Cpu, &[1], Itself);
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        queue.claim_panics.store(true, SeqCst);
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        Ok(queue.commit(&grant))
    };
    let mut worker = worker(settings(), &queue, script).await;
    let WorkerEnd::Failed(reason) = ends(&mut worker).await else { panic!("it failed") };
    assert!(reason.contains("lock_manager") && reason.contains("the claim is broken"), "{reason}");
    worker.stop(Duration::from_secs(60)).await;
    assert_eq!((queue.task(id).state, queue.task(id).token), (State::Pending, None));
}

#[tokio::test]
async fn a_panicking_heartbeat_is_started_again() {
    let queue = FakeQueue::new();
    queue.beat_panics.store(2, SeqCst);
    let worker = worker(quick(), &queue, commit).await;
    until("three beats", || queue.beats.load(SeqCst) >= 3).await;
    let root = worker.snapshot().root.unwrap();
    let heart = root.children.iter().find(|node| node.kind == "heart").unwrap();
    assert_eq!(heart.restarts, 2);
    assert!(heart.last_error.as_ref().unwrap().contains("broken"));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn tasks_are_stopped_when_beats_fail_and_when_they_hang() {
    for hangs in [false, true] {
        let queue = FakeQueue::new();
        let id = queue.add("wait", Lane::Cpu, &[1], Itself);
        let gate = Gate::new();
        let passing = gate.clone();
        let script = move |grant: Grant, _, queue: Arc<FakeQueue>| {
            let gate = passing.clone();
            async move {
                gate.pass().await;
                Ok(queue.commit(&grant))
            }
        };
        let short = WorkerSettings { lease: Duration::from_millis(400), ..quick() };
        let worker = worker(short, &queue, script).await;
        until("running", || gate.entered() == 1 && queue.count(State::Running) == 1).await;
        let holder = hangs.then(|| {
            let (queue, (free, freed)) = (queue.clone(), std::sync::mpsc::channel::<()>());
            let thread = std::thread::spawn(move || {
                let _hung = queue.beat_gate.lock().unwrap();
                let _ = freed.recv();
            });
            (free, thread)
        });
        queue.beat_fails.store(!hangs, SeqCst);
        let token = queue.task(id).token;
        until("stopped", || gate.left() >= 1).await;
        let task = queue.task(id);
        assert_eq!((task.state, task.token, task.failures.len(), task.given_back), (State::Running, token, 0, 0));
        if let Some((free, thread)) = holder {
            drop(free);
            thread.join().unwrap();
        }
        worker.stop(Duration::ZERO).await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_handler_that_blocks_the_only_thread_delays_no_beat() {
    let queue = FakeQueue::new();
    let id = queue.add("probe", Lane::Cpu, &[1], Itself);
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        let begun = queue.beats.load(SeqCst);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        // This deliberately does what a handler must not do.
        while queue.beats.load(SeqCst) < begun + 30 {
            assert!(std::time::Instant::now() < deadline, "the heart does not beat");
            std::thread::yield_now();
        }
        Ok(queue.commit(&grant))
    };
    let worker = worker(quick(), &queue, script).await;
    until("done", || queue.task(id).state == State::Completed).await;
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn grants_beyond_what_was_asked_for_are_given_back() {
    let queue = FakeQueue::new();
    queue.generous.store(true, SeqCst);
    for n in 0..30 {
        queue.add("probe", Lane::Cpu, &[n], Itself);
    }
    let gate = Gate::new();
    let passing = gate.clone();
    let script = move |grant: Grant, _, queue: Arc<FakeQueue>| {
        let gate = passing.clone();
        async move {
            gate.pass().await;
            Ok(queue.commit(&grant))
        }
    };
    let worker = worker(settings(), &queue, script).await;
    until("the lane is full", || gate.entered() == 2).await;
    until("the surplus is back", || queue.tasks().iter().any(|task| task.given_back > 0)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(gate.entered(), 2);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn the_snapshot_is_bounded_and_goes_with_the_beat() {
    let queue = FakeQueue::new();
    for n in 0..900 {
        queue.add("probe", Lane::Llm, &[n % 300, n], Itself);
    }
    let many = WorkerSettings { permits: Permits { llm: 900, ..settings().permits }, ..quick() };
    let gate = Gate::new();
    let passing = gate.clone();
    let script = move |_, _, _| {
        let gate = passing.clone();
        async move {
            gate.pass().await;
            Ok(Outcome::LostLease)
        }
    };
    let worker = worker(many, &queue, script).await;
    until("all run", || gate.entered() == 900).await;
    let seen = |queue: &FakeQueue| queue.last_snapshot.lock().unwrap().as_ref().map_or(0, |snapshot| snapshot.actors);
    until("seen by a beat", || seen(&queue) == 5 + 300 + 900).await;
    let snapshot = queue.last_snapshot.lock().unwrap().clone().unwrap();
    fn count(node: &TreeNode) -> usize {
        1 + node.children.iter().map(count).sum::<usize>()
    }
    let root = snapshot.root.as_ref().unwrap();
    assert_eq!((count(root), snapshot.omitted), (500, 705));
    let kinds: Vec<_> = root.children.iter().map(|node| node.kind.as_str()).collect();
    assert_eq!(kinds, ["heart", "documents", "lock_manager", "dispatcher"]);
    assert_eq!(root.children[1].children.len(), 300, "every document before any task is left out");
    let json = serde_json::to_string(&snapshot).unwrap();
    assert!(json.len() < 150_000, "{} bytes", json.len());
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_does_not_start() {
    let queue = FakeQueue::new();
    let settings = WorkerSettings { lease: Duration::from_secs(29), ..settings() };
    let beats = queue.clone();
    let beat: BeatFactory = Box::new(move || Box::new(FakeBeat(beats.clone())));
    struct Never;
    #[async_trait::async_trait]
    impl Handler for Never {
        async fn run(&self, _: &Grant, _: CancelToken, _: Permit) -> Result<Outcome, TaskFailure> {
            Ok(Outcome::LostLease)
        }
    }
    let error = Worker::start(settings, queue.clone(), beat, Arc::new(Never)).await.err().unwrap().to_string();
    assert!(error.contains("29s") && error.contains("10s"), "{error}");
    assert_eq!(queue.claims.load(SeqCst), 0);
}
