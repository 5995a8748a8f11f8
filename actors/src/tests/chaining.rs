//! The next task is claimed together with the end of the last one.

use super::fake::*;
use crate::*;
use WriteMode::Itself;
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

fn one_permit() -> WorkerSettings {
    let never = Duration::from_secs(86_400);
    WorkerSettings { permits: Permits { cpu: 1, model: 0, llm: 0, io: 0 }, poll: never, sweep: never * 9, ..settings() }
}

#[tokio::test(start_paused = true)]
async fn a_documents_tasks_follow_each_other_under_one_supervisor_and_one_claim() {
    let queue = FakeQueue::new();
    for n in 0..50 {
        queue.add("probe", Lane::Cpu, &[7, n], Itself);
    }
    for n in 0..50 {
        queue.add("probe", Lane::Cpu, &[8, n], Itself);
    }
    let (worker, _) = chaining(one_permit(), &queue).await;
    until("all of both documents", || queue.count(State::Completed) == 100).await;
    // These are the first claim and those that the sweep and the reaping at the start woke, and no more.
    assert!(queue.claims.load(SeqCst) <= 6, "{} claims", queue.claims.load(SeqCst));
    assert_eq!(queue.most_held.lock().unwrap()[&Lane::Cpu], 1, "no permit is given out twice");
    let root = worker.snapshot().root.unwrap();
    let documents = root.children.iter().find(|node| node.kind == "documents").unwrap();
    let done: Vec<_> = documents.children.iter().map(|node| node.progress.as_ref().unwrap().tasks.done).collect();
    assert_eq!(done, [50, 50], "each document has one supervisor from its first task to its last");
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_task_claims_is_not_left_to_the_poll() {
    let queue = FakeQueue::new();
    queue.add("wait", Lane::Cpu, &[1], Itself);
    let (worker, gate) = chaining(one_permit(), &queue).await;
    until("at the gate, its claim answered with nothing", || gate.entered() == 1).await;
    let next = queue.add("probe", Lane::Cpu, &[2], Itself);
    worker.wake();
    until("the other task, beside the commit", || queue.task(next).state == State::Completed).await;
    gate.open();
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_dies_with_a_grant_in_its_hands_gives_it_back() {
    let queue = FakeQueue::new();
    let first = queue.add("wait", Lane::Cpu, &[1], Itself);
    let next = queue.add("probe", Lane::Cpu, &[1], Itself);
    let poll = WorkerSettings { poll: Duration::from_secs(1), ..one_permit() };
    let (worker, gate) = chaining(poll, &queue).await;
    until("at the gate", || gate.entered() == 1).await;
    assert_eq!((queue.task(first).state, queue.task(next).state), (State::Completed, State::Claimed));
    worker.shared().documents.get().unwrap().actor.kill();
    until("the next task, after all", || queue.task(next).state == State::Completed).await;
    let task = queue.task(next);
    assert_eq!((task.given_back, task.failures.len()), (1, 0));
    worker.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_stopped_takes_nothing_more_with_the_end_of_a_task() {
    let queue = FakeQueue::new();
    queue.add("wait", Lane::Cpu, &[1], Itself);
    let next = queue.add("probe", Lane::Cpu, &[2], Itself);
    let (worker, gate) = chaining(one_permit(), &queue).await;
    until("at the gate", || gate.entered() == 1).await;
    worker.stop(Duration::ZERO).await;
    let task = queue.task(next);
    assert_eq!((task.state, task.failures.len()), (State::Pending, 0), "what it had claimed is given back");
}
