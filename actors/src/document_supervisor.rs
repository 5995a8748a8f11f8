//! Runs the tasks of one document, each in an actor of its own.

use crate::documents::DocumentsMessage;
use crate::hold::Hold;
use crate::shared::Shared;
use crate::task_actor::TaskActor;
use crate::tree::{ActorKind, Label, Load, Seat};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::sync::Arc;

pub(crate) struct DocumentSupervisor;

pub(crate) enum DocumentMessage {
    Run(Hold),
}

pub(crate) struct DocumentState {
    shared: Arc<Shared>,
    seat: Seat,
    root_id: i64,
    documents: ActorRef<DocumentsMessage>,
}

impl Actor for DocumentSupervisor {
    type Msg = DocumentMessage;
    type State = DocumentState;
    type Arguments = (Arc<Shared>, u64, Arc<Load>, i64, ActorRef<DocumentsMessage>);

    async fn pre_start(
        &self,
        me: ActorRef<DocumentMessage>,
        arguments: Self::Arguments,
    ) -> Result<DocumentState, ActorProcessingErr> {
        let (shared, parent, load, root_id, documents) = arguments;
        let label = Label { document_id: Some(root_id), ..Label::of(ActorKind::Document, parent) };
        let seat = shared.board.sit(me.get_cell(), label, load);
        Ok(DocumentState { shared, seat, root_id, documents })
    }

    async fn handle(
        &self,
        me: ActorRef<DocumentMessage>,
        message: DocumentMessage,
        state: &mut DocumentState,
    ) -> Result<(), ActorProcessingErr> {
        let DocumentMessage::Run(hold) = message;
        state.seat.load.handled();
        let task_id = hold.grant.task_id;
        let arguments = (state.shared.clone(), state.seat.id, hold);
        if let Err(error) = Actor::spawn_linked(None, TaskActor, arguments, me.get_cell()).await {
            // Not a failure of the task: it may have been cancelled or drained before its actor stood. The hold was dropped
            // with the arguments, which gave it back.
            tracing::debug!(task.id = task_id, error = %error, "a task's actor did not start");
            state.ended(&me);
        }
        Ok(())
    }

    // The default would stop this actor, and with it all other tasks of the document, when one task ends.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<DocumentMessage>,
        event: SupervisionEvent,
        state: &mut DocumentState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(..) => state.ended(&me),
            SupervisionEvent::ActorFailed(_, error) => {
                state.seat.load.error(&error);
                state.ended(&me);
            }
            _ => {}
        }
        Ok(())
    }
}

impl DocumentState {
    fn ended(&self, me: &ActorRef<DocumentMessage>) {
        // Documents that are gone take this actor with them.
        let _ = self.documents.cast(DocumentsMessage::Ended { root_id: self.root_id, supervisor: me.get_id() });
    }
}
