//! The next task is claimed together with the end of the last one.

use super::fake::*;
use crate::*;
use WriteMode::Itself;
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

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

/// Ends two tasks crosswise: an `early` one claims, and its answer is on the way until a gate opens; meanwhile a `late`
/// one commits and brings a task to the model's lane, whose slot the early one has set aside.
struct Crosswise {
    queue: Arc<FakeQueue>,
    answer: Arc<Gate>,
    late: Arc<Gate>,
}

#[async_trait::async_trait]
impl Handler for Crosswise {
    async fn run(&self, grant: &Grant, _: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure> {
        let brought = match grant.task_type.as_str() {
            "early" => Lanes::NONE,
            "late" => {
                self.late.clone().pass().await;
                self.queue.add("embed", Lane::Model, &[3], Itself);
                Lanes::of(Lane::Model)
            }
            _ => return Ok(self.queue.commit(grant)),
        };
        let ending = permit.end();
        assert_eq!(ending.want().iter().any(|(lane, _)| *lane == Lane::Model), grant.task_type == "early");
        let outcome = self.queue.commit(grant);
        let claimed = self.queue.grant(ending.want());
        if grant.task_type == "early" {
            self.answer.clone().pass().await;
        }
        ending.granted(claimed, brought);
        Ok(outcome)
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_task_brings_while_another_claims_for_that_lane_is_not_left_to_the_poll() {
    let queue = FakeQueue::new();
    queue.add("early", Lane::Cpu, &[1], Itself);
    let late = queue.add("late", Lane::Io, &[2], Itself);
    let (answer, gate) = (Gate::new(), Gate::new());
    let handler = Crosswise { queue: queue.clone(), answer: answer.clone(), late: gate.clone() };
    let beats = queue.clone();
    let beat: BeatFactory = Box::new(move || Box::new(FakeBeat(beats.clone())));
    let each_one = WorkerSettings { permits: Permits { cpu: 1, model: 1, llm: 0, io: 1 }, ..one_permit() };
    let worker = Worker::start(each_one, queue.clone(), beat, Arc::new(handler)).await.unwrap();
    until("the early one's claim, and the late one", || answer.entered() == 1 && gate.entered() == 1).await;
    gate.open();
    until("the late one's end", || queue.task(late).state == State::Completed && gate.left() == 1).await;
    // This is far longer than everything takes but the answer.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(queue.count(State::Pending), 1, "the model's slot is set aside");
    answer.open();
    until("what the late one brought", || queue.count(State::Completed) == 3).await;
    worker.stop(Duration::ZERO).await;
}
