//! Sends heartbeats for everything the process holds. It has its own thread, so that neither CPU work nor a full async
//! pool delays it.

use crate::{
    backoff::Streak,
    shared::Shared,
    tree::{ActorKind, Label, Load, Seat},
};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

pub(crate) struct Heart;

pub(crate) enum HeartMessage {
    /// Look for reservations that were not confirmed in time. The heart's thread cannot do that while a heartbeat
    /// hangs.
    Watch,
    Panicked(String),
}

pub(crate) struct HeartState {
    shared: Arc<Shared>,
    seat: Seat,
    /// The thread ends when this is dropped.
    _alive: Arc<Sender<()>>,
}

impl Actor for Heart {
    type Msg = HeartMessage;
    type State = HeartState;
    type Arguments = (Arc<Shared>, u64, Arc<Load>);

    async fn pre_start(
        &self,
        me: ActorRef<HeartMessage>,
        (shared, parent, load): Self::Arguments,
    ) -> Result<HeartState, ActorProcessingErr> {
        let seat = shared.board.sit(me.get_cell(), Label::of(ActorKind::Heart, parent), load.clone());
        let (alive, pulse) = channel();
        let alive = Arc::new(alive);
        *shared.pulse.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&alive);
        let body = {
            let (shared, me) = (shared.clone(), me.clone());
            move || {
                let result = std::panic::catch_unwind(AssertUnwindSafe(|| beat(&shared, &load, &pulse)));
                if let Err(panic) = result {
                    let text = panic
                        .downcast_ref::<&str>()
                        .copied()
                        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                    let _ = me.cast(HeartMessage::Panicked(text.unwrap_or("a panic without a message").to_owned()));
                }
            }
        };
        thread::Builder::new().name("svc-heart".to_owned()).spawn(body)?;
        Ok(HeartState { shared, seat, _alive: alive })
    }

    async fn post_start(&self, me: ActorRef<HeartMessage>, state: &mut HeartState) -> Result<(), ActorProcessingErr> {
        let often = (state.shared.settings.heartbeat / 4).max(Duration::from_millis(1));
        me.send_interval(often, || HeartMessage::Watch);
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<HeartMessage>,
        message: HeartMessage,
        state: &mut HeartState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            HeartMessage::Watch => {
                expire(&state.shared);
                Ok(())
            }
            HeartMessage::Panicked(message) => {
                state.seat.load.error(&message);
                Err(format!("the heartbeat panicked: {message}").into())
            }
        }
    }

    // It has no children; the default would stop this actor if one ended.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<HeartMessage>,
        _: SupervisionEvent,
        _: &mut HeartState,
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// The thread's loop, which runs until the actor is gone. A message on `pulse` asks for an early heartbeat.
fn beat(shared: &Shared, load: &Load, pulse: &Receiver<()>) {
    let settings = &shared.settings;
    let mut beat = (shared.beat)();
    let mut streak = Streak::new("the heartbeat", settings.heartbeat);
    loop {
        let begun = Instant::now();
        let tokens = shared.ledger.tokens();
        // A worker that holds nothing also sends heartbeats, because others see it by its snapshot.
        match beat.beat(&tokens, &shared.snapshot()) {
            Ok(answers) => {
                streak.success();
                load.handled_unsent();
                shared.ledger.confirm(begun, &tokens, &answers);
            }
            Err(error) => {
                load.error(&error);
                streak.error(&error);
            }
        }
        expire(shared);
        let wait = shared.between_beats().saturating_sub(begun.elapsed());
        if pulse.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // Any number of requests since the last heartbeat count as one.
        while pulse.try_recv().is_ok() {}
    }
}

/// Gives up reservations one heartbeat before the database would give them to another worker.
fn expire(shared: &Shared) {
    let settings = &shared.settings;
    shared.ledger.expire(settings.lease.saturating_sub(settings.heartbeat));
}
