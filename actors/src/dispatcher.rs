//! Owns the permits: asks the lock manager for as many grants as slots are idle, and hands them to the documents.

use crate::backoff::Streak;
use crate::documents::DocumentsMessage;
use crate::grant::Lane;
use crate::hold::Hold;
use crate::lock_manager::LockMessage;
use crate::port::{PortError, bounded};
use crate::shared::Shared;
use crate::tree::{ActorKind, Label, Load, Seat};
use crate::worker::WorkerEnd;
use ractor::concurrency::JoinHandle;
use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr, RpcReplyPort, SupervisionEvent};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) struct Dispatcher;

pub(crate) enum DispatcherMessage {
    /// A task ended, or work came in.
    Wake,
    /// The wait numbered so is over.
    Tick(u64),
    /// Answered when no claim is under way; of use when nothing more is claimed.
    Quiet(RpcReplyPort<()>),
}

pub(crate) struct DispatcherState {
    shared: Arc<Shared>,
    seat: Seat,
    streak: Streak,
    /// Waiting out an error: wake-ups do not shorten this.
    backing_off: bool,
    /// The queue was swept and has been empty since.
    swept: bool,
    /// Claims in a row that found nothing, and whose turn it is, while lanes are asked for one at a time.
    empty_lanes: usize,
    turn: usize,
    ticks: u64,
    timer: Option<JoinHandle<Result<(), MessagingErr<DispatcherMessage>>>>,
}

/// When to look again.
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
        // A wake-up sent to a predecessor died with its mailbox.
        shared.woken.store(false, Ordering::Release);
        let streak = Streak::new("claiming tasks", shared.settings.poll);
        Ok(DispatcherState {
            shared,
            seat,
            streak,
            backing_off: false,
            swept: false,
            empty_lanes: 0,
            turn: 0,
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
        match message {
            DispatcherMessage::Wake => {
                state.seat.load.handled();
                // Before the look, so that what happens during it wakes again.
                state.shared.woken.store(false, Ordering::Release);
                if state.backing_off {
                    return Ok(());
                }
            }
            DispatcherMessage::Tick(tick) if tick == state.ticks => state.backing_off = false,
            DispatcherMessage::Tick(_) => return Ok(()),
            DispatcherMessage::Quiet(reply) => {
                state.seat.load.handled();
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
            return Next::Never;
        }
        let (held, finished) = shared.ledger.totals();
        let left = settings.max_tasks.map_or(usize::MAX, |most| {
            usize::try_from(most.saturating_sub(finished)).unwrap_or(usize::MAX).saturating_sub(held)
        });
        if left == 0 {
            if held == 0 {
                shared.finish(WorkerEnd::MaxTasks);
            }
            return Next::After(settings.poll);
        }
        let (want, all_lanes) = self.want(left);
        if want.is_empty() {
            // The end of a task wakes; the tick is for the case that the wake-up was lost with an actor.
            return Next::After(settings.poll);
        }
        let asked = want.iter().fold(0, |sum: usize, (_, idle)| sum.saturating_add(*idle));
        let holds = match self.claim(want).await {
            Ok(holds) => holds,
            Err(error) => {
                self.seat.load.error(&error);
                return Next::BackOff(self.streak.error(&error));
            }
        };
        self.streak.success();
        if holds.is_empty() {
            self.empty_lanes += 1;
            return if all_lanes || self.empty_lanes >= Lane::ALL.len() { self.idle().await } else { Next::Now };
        }
        (self.swept, self.empty_lanes) = (false, 0);
        let found = holds.len();
        for hold in holds {
            let sent =
                shared.documents.get().is_some_and(|documents| documents.cast(DocumentsMessage::Run(hold)).is_ok());
            if !sent {
                // The documents are being restarted, and what was not sent is given back: at once it would come round again.
                return Next::After(settings.poll);
            }
        }
        if found < asked || !all_lanes { Next::Now } else { Next::After(settings.poll) }
    }

    /// The idle slots, and whether that is all of them. Where fewer tasks are left to run than slots are idle, one lane is
    /// asked for at a time, in turn: no split over the lanes could know which of them has work.
    fn want(&mut self, left: usize) -> (Vec<(Lane, usize)>, bool) {
        let shared = &self.shared;
        let idle = |lane| {
            let permits = shared.settings.permits.of(lane);
            permits.saturating_sub(shared.ledger.used(lane, permits))
        };
        let mut want: Vec<(Lane, usize)> = Lane::ALL.into_iter().map(|lane| (lane, idle(lane))).collect();
        want.retain(|(_, idle)| *idle > 0);
        if want.iter().fold(0, |sum: usize, (_, idle)| sum.saturating_add(*idle)) <= left {
            return (want, true);
        }
        self.turn = self.turn.wrapping_add(1);
        let (lane, idle) = want[self.turn % want.len()];
        (vec![(lane, idle.min(left))], false)
    }

    async fn claim(&self, want: Vec<(Lane, usize)>) -> Result<Vec<Hold>, PortError> {
        let Some(locks) = self.shared.locks.get() else {
            return Err(PortError::new("the lock manager has not started"));
        };
        // Longer than a claim and the giving back of a surplus may take together.
        let patience = self.shared.settings.lease.saturating_mul(3);
        match locks.call(|reply| LockMessage::Claim { want, reply }, patience).await {
            Ok(CallResult::Success(answer)) => answer,
            Ok(CallResult::Timeout) => Err(PortError::new("the lock manager did not answer")),
            Ok(CallResult::SenderError) | Err(_) => Err(PortError::new("the lock manager ended")),
        }
    }

    /// Nothing is claimable.
    async fn idle(&mut self) -> Next {
        self.empty_lanes = 0;
        let shared = &self.shared;
        if !shared.settings.drain_once || shared.ledger.totals().0 > 0 {
            return Next::After(shared.settings.poll);
        }
        if self.swept {
            shared.finish(WorkerEnd::Drained);
            return Next::Never;
        }
        // A sweep may bring work to light, so the queue is only empty if it still is after one.
        match bounded(shared.settings.lease, shared.queue.sweep()).await {
            Ok(()) => {
                self.swept = true;
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
            // Through the mailbox, so that a stop is heard in between.
            let _ = me.cast(DispatcherMessage::Tick(tick));
        } else {
            self.timer = Some(me.send_after(wait, move || DispatcherMessage::Tick(tick)));
        }
    }
}
