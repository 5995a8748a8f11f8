//! Starts the permanent actors and restarts each one that ends. If one keeps ending, the worker ends with an error.

use crate::{
    dispatcher::Dispatcher,
    documents::Documents,
    heart::Heart,
    lock_manager::LockManager,
    meter::Meter,
    shared::Shared,
    tree::{ActorKind, Label, Load, Post, Seat},
    worker::WorkerEnd,
};
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How often in a row a child is restarted before the worker gives up.
const MOST_RESTARTS: u32 = 6;
/// The first delay; each further one is twice as long.
const FIRST_DELAY: Duration = Duration::from_millis(50);
/// A child that has run this long counts as healthy again.
const STEADY: Duration = Duration::from_secs(60);

pub(crate) struct Root;

pub(crate) enum RootMessage {
    Start(usize),
}

/// In starting order: nothing is claimed before the heart beats and the documents can take it.
const CHILDREN: [ActorKind; 4] =
    [ActorKind::Heart, ActorKind::Documents, ActorKind::LockManager, ActorKind::Dispatcher];

struct Child {
    kind: ActorKind,
    load: Arc<Load>,
    actor: Option<ActorId>,
    started: Instant,
    ends: u32,
}

pub(crate) struct RootState {
    shared: Arc<Shared>,
    seat: Seat,
    children: Vec<Child>,
    _ending: Ending,
}

/// However the tree ends, this tells the worker's owner. An end that is already recorded stands.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.finish(WorkerEnd::Failed("the actor tree ended".to_owned()));
    }
}

impl Actor for Root {
    type Msg = RootMessage;
    type State = RootState;
    type Arguments = Arc<Shared>;

    async fn pre_start(&self, me: ActorRef<RootMessage>, shared: Arc<Shared>) -> Result<RootState, ActorProcessingErr> {
        let label = Label {
            kind: ActorKind::Root,
            parent: None,
            task: None,
            document_id: None,
            record: None,
            meter: Meter::default(),
        };
        let seat = shared.board.sit(me.get_cell(), label, Arc::default());
        let child = |kind| Child { kind, load: Arc::default(), actor: None, started: Instant::now(), ends: 0 };
        let children = CHILDREN.into_iter().map(child).collect();
        let mut state = RootState { _ending: Ending(shared.clone()), shared, seat, children };
        for at in 0..state.children.len() {
            state.start(at, me.get_cell()).await?;
        }
        Ok(state)
    }

    async fn handle(
        &self,
        me: ActorRef<RootMessage>,
        message: RootMessage,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let RootMessage::Start(at) = message;
        match state.start(at, me.get_cell()).await {
            Ok(()) => Ok(()),
            Err(error) => state.ended(at, &error.to_string(), &me),
        }
    }

    // The default would end the whole worker when any child ends.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<RootMessage>,
        event: SupervisionEvent,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let (who, error) = match event {
            SupervisionEvent::ActorTerminated(who, _, reason) => (who, reason.unwrap_or_else(|| "stopped".to_owned())),
            SupervisionEvent::ActorFailed(who, error) => (who, error.to_string()),
            _ => return Ok(()),
        };
        match state.children.iter().position(|child| child.actor == Some(who.get_id())) {
            Some(at) => state.ended(at, &error, &me),
            None => Ok(()),
        }
    }
}

impl RootState {
    async fn start(&mut self, at: usize, me: ActorCell) -> Result<(), SpawnErr> {
        let child = &mut self.children[at];
        let load = child.load.clone();
        let arguments = (self.shared.clone(), self.seat.id, load.clone());
        let actor = match child.kind {
            ActorKind::Heart => Actor::spawn_linked(None, Heart, arguments, me).await?.0.get_id(),
            ActorKind::Documents => {
                let actor = Actor::spawn_linked(None, Documents, arguments, me).await?.0;
                self.shared.documents.set(Post { actor: actor.clone(), load });
                actor.get_id()
            }
            ActorKind::LockManager => {
                let actor = Actor::spawn_linked(None, LockManager, arguments, me).await?.0;
                self.shared.locks.set(Post { actor: actor.clone(), load });
                // Something may have become owed after the new one's first look and before it had an address.
                self.shared.poke_locks();
                actor.get_id()
            }
            _ => {
                let actor = Actor::spawn_linked(None, Dispatcher, arguments, me).await?.0;
                self.shared.set_dispatcher(Post { actor: actor.clone(), load });
                actor.get_id()
            }
        };
        child.actor = Some(actor);
        child.started = Instant::now();
        Ok(())
    }

    fn ended(&mut self, at: usize, error: &str, me: &ActorRef<RootMessage>) -> Result<(), ActorProcessingErr> {
        let child = &mut self.children[at];
        let kind = child.kind.as_str();
        if child.actor.take().is_some() && child.started.elapsed() >= STEADY {
            child.ends = 0;
        }
        child.load.error(error);
        child.ends += 1;
        if child.ends > MOST_RESTARTS {
            tracing::error!(actor = kind, error, "an actor keeps ending, so the worker ends");
            self.shared.finish(WorkerEnd::Failed(format!("{kind} ended {} times in a row: {error}", child.ends)));
            me.stop(None);
            return Ok(());
        }
        let delay = FIRST_DELAY.saturating_mul(1 << (child.ends - 1));
        tracing::error!(actor = kind, error, delay_ms = delay.as_millis() as u64, "an actor ended; restarting it");
        child.load.restarted();
        me.send_after(delay, move || RootMessage::Start(at));
        Ok(())
    }
}
