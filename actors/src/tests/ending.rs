//! However a task ends, its region and permit become free again and the queue is told once.

use super::fake::*;
use crate::*;
use WriteMode::{Itself, Subtree};
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

/// Starts a worker in which tasks of type `wait` wait at the gate and all others commit at once.
async fn gated(settings: WorkerSettings, queue: &Arc<FakeQueue>) -> (Worker, Arc<Gate>) {
    let gate = Gate::new();
    let passing = gate.clone();
    let script = move |grant: Grant, _, queue: Arc<FakeQueue>| {
        let gate = passing.clone();
        async move {
            if grant.task_type == "wait" {
                gate.pass().await;
            }
            Ok(queue.commit(&grant))
        }
    };
    (worker(settings, queue, script).await, gate)
}

fn one_permit() -> WorkerSettings {
    WorkerSettings { permits: Permits { cpu: 1, model: 0, llm: 0, io: 0 }, ..settings() }
}

#[tokio::test(start_paused = true)]
async fn a_panic_frees_region_and_permit_and_fails_the_task_once() {
    let queue = FakeQueue::new();
    let panics = queue.add("panics", Lane::Cpu, &[1, 2], Itself);
    let behind = queue.add("probe", Lane::Cpu, &[1], Subtree);
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        assert!(grant.task_type != "panics", "page {} has no size", 3);
        Ok(queue.commit(&grant))
    };
    let worker = worker(one_permit(), &queue, script).await;
    until("the task behind it", || queue.task(behind).state == State::Completed).await;
    let failures = queue.task(panics).failures;
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!((failures[0].class, failures[0].code.as_str()), (ErrorClass::Retryable, "panic"));
    assert_eq!(failures[0].message, "page 3 has no size");
    // The third attempt is the last.
    for _ in 0..2 {
        queue.edit(panics, |task| task.state = State::Pending);
        until("failed again", || queue.task(panics).state == State::Failed).await;
    }
    let classes: Vec<_> = queue.task(panics).failures.iter().map(|failure| failure.class).collect();
    assert_eq!(classes, [ErrorClass::Retryable, ErrorClass::Retryable, ErrorClass::Permanent]);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn the_death_of_the_supervisors_is_no_fault_of_their_tasks() {
    let queue = FakeQueue::new();
    let killed = queue.add("wait", Lane::Cpu, &[1], Subtree);
    let (worker, gate) = gated(one_permit(), &queue).await;
    until("running", || gate.entered() == 1).await;
    worker.shared().documents.get().unwrap().actor.kill();
    until("running again", || gate.entered() == 2).await;
    assert_eq!(gate.left(), 1, "the first handler's future was dropped");
    let task = queue.task(killed);
    assert_eq!((task.given_back, task.failures.len()), (1, 0), "no attempt is spent");
    gate.open();
    until("done", || queue.task(killed).state == State::Completed).await;
    let next = queue.add("probe", Lane::Cpu, &[1], Subtree);
    until("the next task, under new supervisors", || queue.task(next).state == State::Completed).await;
    let root = worker.snapshot().root.unwrap();
    let documents = root.children.iter().find(|node| node.kind == "documents").unwrap();
    assert_eq!(documents.restarts, 1);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_actor_is_killed_time_and_again_fails_in_the_end() {
    let queue = FakeQueue::new();
    let killed = queue.add("wait", Lane::Cpu, &[1], Subtree);
    let (worker, gate) = gated(one_permit(), &queue).await;
    for times in 1..=3 {
        until("running", || gate.entered() == times).await;
        let token = queue.task(killed).token.unwrap();
        worker.shared().ledger.actor(token).unwrap().kill();
    }
    until("failed", || queue.task(killed).state == State::Failed).await;
    let task = queue.task(killed);
    assert_eq!((task.given_back, task.failures.len(), task.failures[0].code.as_str()), (2, 1, "stopped"));
    assert_eq!(task.failures[0].class, ErrorClass::Retryable);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_killed_task_actor_frees_what_it_held() {
    let queue = FakeQueue::new();
    let killed = queue.add("wait", Lane::Cpu, &[1], Subtree);
    let neighbour = queue.add("wait", Lane::Io, &[2], Subtree);
    let (worker, gate) = gated(settings(), &queue).await;
    until("running", || gate.entered() == 2 && queue.count(State::Running) == 2).await;
    let token = queue.task(killed).token.unwrap();
    worker.shared().ledger.actor(token).unwrap().kill();
    until("given back", || queue.task(killed).given_back == 1).await;
    assert_eq!((queue.task(killed).failures.len(), queue.task(neighbour).state), (0, State::Running));
    gate.open();
    until("both are done", || queue.count(State::Completed) == 2).await;
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_over_its_deadline_fails_as_timeout() {
    let queue = FakeQueue::new();
    let late = queue.add("wait", Lane::Cpu, &[1], Itself);
    queue.edit(late, |task| task.deadline = Some(Duration::from_secs(600)));
    let (worker, gate) = gated(settings(), &queue).await;
    until("failed", || queue.task(late).state == State::Failed).await;
    let failures = queue.task(late).failures;
    assert_eq!((failures.len(), failures[0].class, failures[0].code.as_str()), (1, ErrorClass::Timeout, "timeout"));
    assert!(failures[0].message.contains("600s"), "{}", failures[0].message);
    assert_eq!(gate.left(), 1);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_lost_reservation_stops_the_task_and_writes_nothing() {
    let queue = FakeQueue::new();
    let lost = queue.add("wait", Lane::Cpu, &[1], Itself);
    let (worker, gate) = gated(quick(), &queue).await;
    until("running", || gate.entered() == 1).await;
    // Another worker has it now, for good.
    let other = uuid::Uuid::new_v4();
    queue.edit(lost, |task| (task.token, task.state) = (Some(other), State::Claimed));
    until("stopped", || gate.left() == 1).await;
    until("forgotten", || worker.shared().ledger.totals().0 == 0).await;
    gate.open();
    let task = queue.task(lost);
    assert_eq!((task.state, task.token, task.failures.len(), task.given_back), (State::Claimed, Some(other), 0, 0));
    worker.stop(Duration::ZERO).await;
    assert_eq!(queue.task(lost).token, Some(other));
}

#[tokio::test]
async fn a_cancel_is_heard_by_the_beat() {
    let queue = FakeQueue::new();
    let cancelled = queue.add("wait", Lane::Cpu, &[1], Itself);
    let (worker, gate) = gated(quick(), &queue).await;
    until("running", || gate.entered() == 1).await;
    queue.edit(cancelled, |task| task.cancel_requested = true);
    let before = queue.beats.load(SeqCst);
    until("failed", || queue.task(cancelled).state == State::Failed).await;
    let failures = queue.task(cancelled).failures;
    assert_eq!((failures.len(), failures[0].class, failures[0].code.as_str()), (1, ErrorClass::Permanent, "cancelled"));
    assert!(queue.beats.load(SeqCst) > before && gate.left() == 1);
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_document_is_clear_on_return_and_others_go_on() {
    let queue = FakeQueue::new();
    let ours = [queue.add("wait", Lane::Cpu, &[1, 5], Itself), queue.add("wait", Lane::Llm, &[1, 6], Itself)];
    let other = queue.add("wait", Lane::Io, &[2], Itself);
    let (worker, gate) = gated(settings(), &queue).await;
    until("running", || gate.entered() == 3 && queue.count(State::Running) == 3).await;
    worker.cancel_document(svc_ids::RootId(1)).await;
    for id in ours {
        assert_eq!(queue.task(id).state, State::Failed);
        assert_eq!(queue.task(id).failures[0].code, "cancelled");
    }
    assert_eq!(queue.task(other).state, State::Running);
    gate.open();
    until("the other document's task", || queue.task(other).state == State::Completed).await;
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn work_on_another_thread_learns_that_its_task_is_stopped() {
    let queue = FakeQueue::new();
    queue.add("probe", Lane::Cpu, &[1], Itself);
    let (said, heard) = std::sync::mpsc::channel();
    let script = move |_, cancel: CancelToken, _| {
        let said = said.clone();
        async move {
            let work = tokio::task::spawn_blocking(move || {
                said.send("began").unwrap();
                while !cancel.is_cancelled() {
                    std::thread::yield_now();
                }
                said.send("cancelled").unwrap();
            });
            work.await.unwrap();
            Err(TaskFailure::retryable("interrupted", ""))
        }
    };
    let worker = worker(settings(), &queue, script).await;
    let began = tokio::task::spawn_blocking(move || (heard.recv().unwrap(), heard));
    let (word, heard) = began.await.unwrap();
    assert_eq!(word, "began");
    worker.cancel_document(svc_ids::RootId(1)).await;
    assert_eq!(tokio::task::spawn_blocking(move || heard.recv().unwrap()).await.unwrap(), "cancelled");
    worker.stop(Duration::ZERO).await;
    assert_eq!(queue.task(svc_ids::TaskId(0)).failures.len(), 1);
    assert_eq!(queue.task(svc_ids::TaskId(0)).failures[0].code, "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_tasks_finish_and_gives_back_the_rest() {
    let queue = FakeQueue::new();
    let short = queue.add("short", Lane::Cpu, &[1], Itself);
    let long = queue.add("long", Lane::Cpu, &[2], Itself);
    let waiting = queue.add("short", Lane::Cpu, &[2], Subtree);
    let script = |grant: Grant, _, queue: Arc<FakeQueue>| async move {
        let seconds = if grant.task_type == "long" { 1000 } else { 5 };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(queue.commit(&grant))
    };
    let worker = worker(settings(), &queue, script).await;
    until("both run", || queue.count(State::Running) == 2).await;
    worker.stop(Duration::from_secs(60)).await;
    assert_eq!(queue.task(short).state, State::Completed);
    let long = queue.task(long);
    assert_eq!((long.state, long.given_back, long.failures.len()), (State::Pending, 1, 0));
    assert_eq!((queue.task(waiting).state, queue.task(waiting).attempt), (State::Pending, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_under_way_at_the_stop_is_given_back() {
    let queue = FakeQueue::new();
    *queue.claim_takes.lock().unwrap() = Duration::from_secs(3);
    let id = queue.add("wait", Lane::Cpu, &[1], Itself);
    let (worker, gate) = gated(settings(), &queue).await;
    until("claimed", || queue.task(id).state == State::Claimed).await;
    worker.stop(Duration::ZERO).await;
    let task = queue.task(id);
    assert_eq!((task.state, task.given_back, gate.entered()), (State::Pending, 1, 0));
}
