//! Owns the permits: asks the lock manager for as many grants as there are idle slots, and hands the grants to the
//! documents.

use crate::{
    backoff::Streak,
    documents::DocumentsMessage,
    grant::{Lane, Lanes},
    hold::Hold,
    lock_manager::{Holds, LockMessage},
    port::{PortError, bounded},
    shared::Shared,
    tree::{ActorKind, Label, Load, Seat},
    worker::WorkerEnd,
};
use ractor::{
    Actor, ActorProcessingErr, ActorRef, MessagingErr, RpcReplyPort, SupervisionEvent, concurrency::JoinHandle,
    rpc::CallResult,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

pub(crate) struct Dispatcher;

pub(crate) enum DispatcherMessage {
    /// A task ended, or new work arrived.
    Wake,
    /// The wait with this number is over.
    Tick(u64),
    /// A hold that was claimed with the end of another task, and runs when nothing else is held.
    Alone(Hold),
    /// Answered when no claim is under way; useful once nothing more is claimed.
    Quiet(RpcReplyPort<()>),
}

pub(crate) struct DispatcherState {
    shared: Arc<Shared>,
    seat: Seat,
    streak: Streak,
    /// An error is being waited out; wake-ups do not shorten this wait.
    backing_off: bool,
    /// The queue was swept and has been empty since then.
    swept: bool,
    /// Which lane's turn it is while lanes are asked for one at a time.
    turn: usize,
    /// The task that waits until nothing else is held.
    alone: Option<Hold>,
    ticks: u64,
    timer: Option<JoinHandle<Result<(), MessagingErr<DispatcherMessage>>>>,
}

/// When to look next.
enum Next {
    Now,
    After(Duration),
    BackOff(Duration),
    Never,
}

impl Actor for Dispatcher {
    type Msg = DispatcherMessage;
    type State = DispatcherState;
    type Arguments = (Arc<Shared>, u64, Arc<Load>);

    async fn pre_start(
        &self,
        me: ActorRef<DispatcherMessage>,
        (shared, parent, load): Self::Arguments,
    ) -> Result<DispatcherState, ActorProcessingErr> {
        let seat = shared.board.sit(me.get_cell(), Label::of(ActorKind::Dispatcher, parent), load);
        let streak = Streak::new("claiming tasks", shared.settings.poll);
        // The previous dispatcher's hold was given back without an announcement, so look in every lane.
        shared.news.tell(Lanes::ALL);
        Ok(DispatcherState {
            shared,
            seat,
            streak,
            backing_off: false,
            swept: false,
            turn: 0,
            alone: None,
            ticks: 0,
            timer: None,
        })
    }

    async fn post_start(
        &self,
        me: ActorRef<DispatcherMessage>,
        state: &mut DispatcherState,
    ) -> Result<(), ActorProcessingErr> {
        me.cast(DispatcherMessage::Tick(state.ticks))?;
        Ok(())
    }

    async fn handle(
        &self,
        me: ActorRef<DispatcherMessage>,
        message: DispatcherMessage,
        state: &mut DispatcherState,
    ) -> Result<(), ActorProcessingErr> {
        // The flag is cleared before the look, so that a change during the look wakes again.
        state.shared.woken.store(false, Ordering::Release);
        match message {
            DispatcherMessage::Wake => {
                state.seat.load.handled();
                if state.backing_off {
                    return Ok(());
                }
            }
            DispatcherMessage::Alone(hold) => {
                // If a task that runs alone is waiting already, this hold is dropped, which gives it back.
                state.alone.get_or_insert(hold);
            }
            DispatcherMessage::Tick(tick) if tick == state.ticks => state.backing_off = false,
            DispatcherMessage::Tick(_) => return Ok(()),
            DispatcherMessage::Quiet(reply) => {
                state.seat.load.handled();
                // This is asked once nothing more is claimed, so the hold that waits for the others is given back.
                state.alone = None;
                let _ = reply.send(());
                return Ok(());
            }
        }
        let next = state.round().await;
        state.schedule(&me, next);
        Ok(())
    }

    // The default would stop this actor when a child ends.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<DispatcherMessage>,
        _: SupervisionEvent,
        _: &mut DispatcherState,
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

impl DispatcherState {
    async fn round(&mut self) -> Next {
        let shared = self.shared.clone();
        let settings = &shared.settings;
        if shared.closing.load(Ordering::Acquire) {
            self.alone = None;
            return Next::Never;
        }
        let (held, finished) = shared.ledger.totals();
        if let Some(hold) = self.alone.take() {
            if held > 1 && !hold.stopped() {
                self.alone = Some(hold);
            } else {
                self.send(hold);
            }
        }
        if shared.ledger.holds_one_that_runs_alone() {
            // Its end wakes this actor, and so do the ends of the tasks it waits for.
            return Next::After(settings.poll);
        }
        let left = settings.max_tasks.map_or(usize::MAX, |most| {
            usize::try_from(most.saturating_sub(finished)).unwrap_or(usize::MAX).saturating_sub(held)
        });
        if left == 0 {
            if held == 0 {
                shared.finish(WorkerEnd::MaxTasks);
            }
            return Next::After(settings.poll);
        }
        let idle = self.idle_slots();
        if idle.is_empty() {
            // The end of a task wakes this actor; the tick only matters if the wake-up was lost with an actor.
            return Next::After(settings.poll);
        }
        shared.news.poll(idle.iter().map(|(lane, _)| *lane).collect(), settings.poll);
        let (want, all) = self.want(idle, left);
        if want.is_empty() {
            return self.idle().await;
        }
        let told = shared.news.told();
        let Holds { holds, more } = match self.claim(want.clone()).await {
            Ok(holds) => holds,
            Err(error) => {
                self.seat.load.error(&error);
                return Next::BackOff(self.streak.error(&error));
            }
        };
        self.streak.success();
        shared.news.answered(&told, &want, &holds, more);
        let found = !holds.is_empty();
        self.swept &= !found;
        for hold in holds {
            if hold.grant.runs_alone {
                // If a task that runs alone is waiting already, this hold is dropped, which gives it back.
                self.alone.get_or_insert(hold);
            } else if !self.send(hold) {
                // The documents are being restarted and the unsent hold is given back. Claiming again at once would get
                // it again.
                return Next::After(settings.poll);
            }
        }
        match (more || !all || self.alone.is_some(), found) {
            (true, _) => Next::Now,
            (false, true) => Next::After(settings.poll),
            (false, false) => self.idle().await,
        }
    }

    fn send(&self, hold: Hold) -> bool {
        self.shared.documents.get().is_some_and(|documents| documents.cast(DocumentsMessage::Run(hold)).is_ok())
    }

    /// The idle slots of each lane that has any.
    fn idle_slots(&self) -> Vec<(Lane, usize)> {
        let shared = &self.shared;
        let idle = |lane| {
            let permits = shared.settings.permits.of(lane);
            permits.saturating_sub(shared.ledger.used(lane, permits))
        };
        Lane::ALL.into_iter().map(|lane| (lane, idle(lane))).filter(|(_, idle)| *idle > 0).collect()
    }

    /// Decides what to ask for, and whether that covers the idle slots of all lanes that may have work. If fewer tasks
    /// are left to run than slots are idle, it asks for one lane at a time, in turn, because no split over the lanes
    /// could know which of them has work.
    fn want(&mut self, mut idle: Vec<(Lane, usize)>, left: usize) -> (Vec<(Lane, usize)>, bool) {
        let with_work = self.shared.news.with_work();
        idle.retain(|(lane, _)| with_work.contains(*lane));
        if idle.iter().fold(0, |sum: usize, (_, idle)| sum.saturating_add(*idle)) <= left {
            return (idle, true);
        }
        self.turn = self.turn.wrapping_add(1);
        let (lane, idle) = idle[self.turn % idle.len()];
        (vec![(lane, idle.min(left))], false)
    }

    async fn claim(&self, want: Vec<(Lane, usize)>) -> Result<Holds, PortError> {
        let Some(locks) = self.shared.locks.get() else {
            return Err(PortError::new("the lock manager has not started"));
        };
        // Longer than a claim and giving back a surplus can take together.
        let patience = self.shared.settings.lease.saturating_mul(3);
        match locks.call(|reply| LockMessage::Claim { want, reply }, patience).await {
            Ok(CallResult::Success(answer)) => answer,
            Ok(CallResult::Timeout) => Err(PortError::new("the lock manager did not answer")),
            Ok(CallResult::SenderError) | Err(_) => Err(PortError::new("the lock manager ended")),
        }
    }

    /// Handles a round in which nothing is claimable.
    async fn idle(&mut self) -> Next {
        let shared = &self.shared;
        if !shared.settings.drain_once || shared.ledger.totals().0 > 0 {
            return Next::After(shared.settings.poll);
        }
        if self.swept {
            shared.finish(WorkerEnd::Drained);
            return Next::Never;
        }
        // A sweep may make tasks claimable, so the queue only counts as empty if it still is after one.
        match bounded(shared.settings.lease, shared.queue.sweep()).await {
            Ok(_) => {
                self.swept = true;
                shared.news.tell(Lanes::ALL);
                Next::Now
            }
            Err(error) => Next::BackOff(self.streak.error(&error)),
        }
    }

    fn schedule(&mut self, me: &ActorRef<DispatcherMessage>, next: Next) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        self.ticks += 1;
        let tick = self.ticks;
        let wait = match next {
            Next::Now => Duration::ZERO,
            Next::After(wait) => wait,
            Next::BackOff(wait) => {
                self.backing_off = true;
                wait
            }
            Next::Never => return,
        };
        if wait.is_zero() {
            // The tick goes through the mailbox, so that a stop can be handled first.
            let _ = me.cast(DispatcherMessage::Tick(tick));
        } else {
            self.timer = Some(me.send_after(wait, move || DispatcherMessage::Tick(tick)));
        }
    }
}
