//! The queue's only client in this process. It claims reservations through the queue's port, and writes the ends of
//! tasks that did not write their own.

use crate::{
    backoff::Streak,
    grant::{ErrorClass, Grant, Lane, Lanes, TaskFailure},
    hold::{self, Hold},
    ledger::{Owed, StopReason},
    port::{Claimed, PortError, bounded},
    shared::Shared,
    tree::{ActorKind, Label, Load, Seat},
};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tracing::Instrument;
use uuid::Uuid;

/// For how long one log line stands for all tasks that are put off for the same.
const SAID: Duration = Duration::from_secs(60);

pub(crate) struct LockManager;

/// The result of a claim; each hold gives itself back when dropped.
#[derive(Default)]
pub(crate) struct Holds {
    pub holds: Vec<Hold>,
    /// Asking again at once may get more.
    pub more: bool,
}

pub(crate) enum LockMessage {
    /// One claim for all idle slots.
    Claim {
        want: Vec<(Lane, usize)>,
        reply: RpcReplyPort<Result<Holds, PortError>>,
    },
    /// Write what is owed to the queue.
    WriteBack,
    Reap,
    Sweep,
}

pub(crate) struct LockState {
    shared: Arc<Shared>,
    seat: Seat,
    reaping: Option<JoinHandle<()>>,
    sweeping: Option<JoinHandle<()>>,
}

impl Drop for LockState {
    /// Upkeep is for a worker that goes on. One that ends closes its connections, on which upkeep would fail.
    fn drop(&mut self) {
        for work in [&self.reaping, &self.sweeping].into_iter().flatten() {
            work.abort();
        }
    }
}

impl Actor for LockManager {
    type Msg = LockMessage;
    type State = LockState;
    type Arguments = (Arc<Shared>, u64, Arc<Load>);

    async fn pre_start(
        &self,
        me: ActorRef<LockMessage>,
        (shared, parent, load): Self::Arguments,
    ) -> Result<LockState, ActorProcessingErr> {
        let seat = shared.board.sit(me.get_cell(), Label::of(ActorKind::LockManager, parent), load);
        Ok(LockState { shared, seat, reaping: None, sweeping: None })
    }

    async fn post_start(&self, me: ActorRef<LockMessage>, state: &mut LockState) -> Result<(), ActorProcessingErr> {
        // This writes what tasks left behind while there was no lock manager.
        write_back(&state.shared);
        // Both run at once: after a crash of the whole fleet, nobody else frees what it held.
        me.cast(LockMessage::Reap)?;
        me.cast(LockMessage::Sweep)?;
        me.send_interval(state.shared.settings.reap, || LockMessage::Reap);
        me.send_interval(state.shared.settings.sweep, || LockMessage::Sweep);
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<LockMessage>,
        message: LockMessage,
        state: &mut LockState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            LockMessage::Claim { want, reply } => {
                state.seat.load.handled();
                let answer = claim(&state.shared, &want).await;
                if let Err(error) = &answer {
                    state.seat.load.error(error);
                }
                // If nobody waits for the holds any more, they are dropped, which gives them back.
                let _ = reply.send(answer);
            }
            LockMessage::WriteBack => {
                state.seat.load.handled();
                write_back(&state.shared);
            }
            LockMessage::Reap => {
                // This repeats what is owed, in case the message about it was lost with an actor.
                write_back(&state.shared);
                upkeep(&mut state.reaping, reap(state.shared.clone()));
            }
            LockMessage::Sweep => upkeep(&mut state.sweeping, sweep(state.shared.clone())),
        }
        Ok(())
    }

    // The default would stop this actor when a child ends.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<LockMessage>,
        _: SupervisionEvent,
        _: &mut LockState,
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

async fn claim(shared: &Arc<Shared>, want: &[(Lane, usize)]) -> Result<Holds, PortError> {
    if shared.closing.load(Ordering::Acquire) {
        return Ok(Holds::default());
    }
    let asked = Instant::now();
    let Claimed { grants, more } = bounded(shared.settings.lease, shared.queue.claim(want)).await?;
    let (mut holds, surplus) = hold::admit(shared, grants, want, asked);
    // Dropping the surplus gives it back.
    drop(surplus);
    if shared.closing.load(Ordering::Acquire) {
        // The worker was stopped meanwhile. Dropping the holds gives them back before their tasks begin.
        holds.clear();
    }
    Ok(Holds { holds, more })
}

/// Starts writing what is owed. Each piece is written separately, so that one that hangs delays no other.
pub(crate) fn write_back(shared: &Arc<Shared>) {
    let mut back = Vec::new();
    for (grant, owed) in shared.ledger.take_owed() {
        match owed {
            Owed::Return | Owed::Interrupted => back.push(grant.token),
            Owed::Failure(failure) => {
                let shared = shared.clone();
                let span = grant.span();
                tokio::spawn(async move { write_failure(shared, &grant, &failure).await }.instrument(span));
            }
        }
    }
    if !back.is_empty() {
        let shared = shared.clone();
        tokio::spawn(async move { write_return(shared, back).await });
    }
}

/// Frees the holdings when the writing ends, even by a panic of the port.
struct Settling {
    shared: Arc<Shared>,
    tokens: Vec<Uuid>,
    /// Whether the tasks count as done.
    finished: bool,
    /// Work that was given back waits for the next poll; an immediate wake-up might claim it again and again.
    wakes: bool,
}

impl Drop for Settling {
    fn drop(&mut self) {
        for token in &self.tokens {
            self.shared.ledger.written(*token, self.finished);
        }
        if self.wakes {
            self.shared.wake(Lanes::ALL);
        }
    }
}

async fn write_failure(shared: Arc<Shared>, grant: &Grant, failure: &TaskFailure) {
    let settling = Settling { shared, tokens: vec![grant.token], finished: failure.counts, wakes: true };
    let shared = &settling.shared;
    let (begun, mut streak) = (Instant::now(), Streak::new("writing a task's failure", shared.settings.poll));
    loop {
        match bounded(shared.settings.lease, shared.queue.fail(grant, failure)).await {
            Ok(true) => {
                // A drain that left slots empty would end with tasks that it has not tried.
                if let Some(time) = failure.rest
                    && !shared.settings.drain_once
                {
                    shared.ledger.rest(grant.lane, time);
                }
                log(shared, failure);
                return;
            }
            Ok(false) => return,
            Err(error) => {
                let delay = streak.error(&error);
                if !keeps_trying(shared, &[grant.token], begun) {
                    return;
                }
                tokio::time::sleep(delay).await;
            }
        }
    }
}

/// Thousands of tasks may lack the same, and the first one says it: for good where a part is not there, for a while where it is away.
fn log(shared: &Shared, failure: &TaskFailure) {
    let (class, code, message) = (failure.class, failure.code.as_str(), failure.message.as_str());
    match (class == ErrorClass::Dependency, failure.counts) {
        (true, _) if shared.is_first_lack(code, Duration::MAX) => {
            tracing::info!(error.class = %class, error.code = code, error = message, "task failed; others like it are only counted");
        }
        (false, false) if shared.is_first_lack(code, SAID) => {
            tracing::warn!(error.class = %class, error.code = code, error = message, "task put off; others like it are only counted for a minute");
        }
        (false, true) => tracing::warn!(error.class = %class, error.code = code, error = message, "task failed"),
        (_, true) => tracing::debug!(error.class = %class, error.code = code, error = message, "task failed"),
        (_, false) => tracing::debug!(error.class = %class, error.code = code, error = message, "task put off"),
    }
}

async fn write_return(shared: Arc<Shared>, tokens: Vec<Uuid>) {
    let settling = Settling { shared, tokens, finished: false, wakes: false };
    let (shared, tokens) = (&settling.shared, &settling.tokens);
    let (begun, mut streak) = (Instant::now(), Streak::new("giving tasks back", shared.settings.poll));
    while let Err(error) = bounded(shared.settings.lease, shared.queue.give_back(tokens)).await {
        let delay = streak.error(&error);
        if !keeps_trying(shared, tokens, begun) {
            return;
        }
        tokio::time::sleep(delay).await;
    }
}

/// Whether to try again. After errors for the length of a lease, or once none of the tokens is ours, the reaper does it
/// instead.
fn keeps_trying(shared: &Shared, tokens: &[Uuid], begun: Instant) -> bool {
    let lost = tokens.iter().all(|token| shared.ledger.stopped(*token) == Some(StopReason::Lost));
    if lost || begun.elapsed() > shared.settings.lease {
        tracing::error!(
            tasks = tokens.len(),
            "the end of tasks could not be written; the tasks run again when their lease expires"
        );
        return false;
    }
    true
}

/// Runs upkeep beside the mailbox, one of each kind at a time.
fn upkeep(running: &mut Option<JoinHandle<()>>, work: impl Future<Output = ()> + Send + 'static) {
    if running.as_ref().is_none_or(JoinHandle::is_finished) {
        *running = Some(tokio::spawn(work));
    }
}

async fn reap(shared: Arc<Shared>) {
    match bounded(shared.settings.lease, shared.queue.reap()).await {
        Ok(0) => {}
        Ok(tasks) => {
            tracing::warn!(tasks, "freed expired claims");
            shared.wake(Lanes::ALL);
        }
        Err(error) => tracing::warn!(error = %error, "looking for expired claims failed"),
    }
}

async fn sweep(shared: Arc<Shared>) {
    match bounded(shared.settings.lease, shared.queue.sweep()).await {
        Ok(true) => shared.wake(Lanes::ALL),
        Ok(false) => {}
        Err(error) => tracing::warn!(error = %error, "the periodic sweep failed"),
    }
}
