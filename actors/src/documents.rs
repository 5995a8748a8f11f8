//! Keeps one supervisor a document that has tasks here, and ends it when it is idle.

use crate::document_supervisor::{DocumentMessage, DocumentSupervisor};
use crate::hold::Hold;
use crate::shared::Shared;
use crate::tree::{ActorKind, Label, Load, Post, Seat};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct Documents;

pub(crate) enum DocumentsMessage {
    Run(Hold),
    /// A task of this supervisor ended, or did not come to be.
    Ended {
        root_id: i64,
        supervisor: ActorId,
    },
}

pub(crate) struct DocumentsState {
    shared: Arc<Shared>,
    seat: Seat,
    /// By root id. Supervisors are few: there are never more than two a permit.
    open: HashMap<i64, Open>,
}

struct Open {
    post: Post<DocumentMessage>,
    /// Grants sent and not ended; at zero nothing can be in the supervisor's mailbox, so it may stop.
    tasks: usize,
}

impl Actor for Documents {
    type Msg = DocumentsMessage;
    type State = DocumentsState;
    type Arguments = (Arc<Shared>, u64, Arc<Load>);

    async fn pre_start(
        &self,
        me: ActorRef<DocumentsMessage>,
        (shared, parent, load): Self::Arguments,
    ) -> Result<DocumentsState, ActorProcessingErr> {
        let seat = shared.board.sit(me.get_cell(), Label::of(ActorKind::Documents, parent), load);
        Ok(DocumentsState { shared, seat, open: HashMap::new() })
    }

    async fn handle(
        &self,
        me: ActorRef<DocumentsMessage>,
        message: DocumentsMessage,
        state: &mut DocumentsState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DocumentsMessage::Run(hold) => {
                state.seat.load.handled();
                let root_id = hold.grant.root_id;
                if !state.open.contains_key(&root_id) {
                    let load = Arc::<Load>::default();
                    let arguments = (state.shared.clone(), state.seat.id, load.clone(), root_id, me.clone());
                    match Actor::spawn_linked(None, DocumentSupervisor, arguments, me.get_cell()).await {
                        Ok((actor, _)) => state.open.insert(root_id, Open { post: Post { actor, load }, tasks: 0 }),
                        // Dropping the hold gives the task back.
                        Err(error) => {
                            state.seat.load.error(&error);
                            tracing::error!(document.id = root_id, error = %error, "a document's supervisor did not start");
                            return Ok(());
                        }
                    };
                }
                if let Some(open) = state.open.get_mut(&root_id)
                    && open.post.cast(DocumentMessage::Run(hold)).is_ok()
                {
                    open.tasks += 1;
                }
            }
            DocumentsMessage::Ended { root_id, supervisor } => {
                let Some(open) = state.open.get_mut(&root_id) else { return Ok(()) };
                if open.post.actor.get_id() != supervisor {
                    return Ok(());
                }
                open.tasks = open.tasks.saturating_sub(1);
                if open.tasks == 0
                    && let Some(open) = state.open.remove(&root_id)
                {
                    open.post.actor.stop(None);
                }
            }
        }
        Ok(())
    }

    // The default would stop this actor when a child ends.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<DocumentsMessage>,
        event: SupervisionEvent,
        state: &mut DocumentsState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(who, ..) => state.forget(who.get_id()),
            SupervisionEvent::ActorFailed(who, error) => {
                state.seat.load.error(&error);
                tracing::error!(error = %error, "a document's supervisor failed; its tasks are written back");
                state.forget(who.get_id());
            }
            _ => {}
        }
        Ok(())
    }
}

impl DocumentsState {
    /// The next task of the document gets a new supervisor.
    fn forget(&mut self, supervisor: ActorId) {
        self.open.retain(|_, open| open.post.actor.get_id() != supervisor);
    }
}
