//! Runs the tasks of one document, each in its own actor. It stays between tasks and knows how far the document has
//! come.

use crate::{
    documents::DocumentsMessage,
    grant::{Grant, TaskFailure},
    hold::Hold,
    progress::Record,
    shared::Shared,
    task_actor::TaskActor,
    tree::{ActorKind, Label, Load, Seat},
};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::{collections::HashMap, sync::Arc};
use svc_ids::RootId;

pub(crate) struct DocumentSupervisor;

pub(crate) enum DocumentMessage {
    Run(Hold),
    /// A task's actor is about to end. An actor that is killed never sends this.
    Ended {
        grant: Arc<Grant>,
        end: TaskEnd,
        /// What was claimed together with the task's end. If this message is never read, dropping it gives the holds
        /// back.
        next: Vec<Hold>,
    },
    /// An actor is gone. This arrives after the actor's own last message, whereas a supervision event could overtake
    /// that one.
    Gone {
        actor: ActorId,
        error: Option<String>,
    },
}

/// How a task ended, from its document's point of view.
pub(crate) enum TaskEnd {
    Done,
    Failed(TaskFailure),
    /// It was given back, or its reservation was lost.
    Neither,
}

pub(crate) struct DocumentArguments {
    pub shared: Arc<Shared>,
    pub parent: u64,
    pub load: Arc<Load>,
    pub root_id: RootId,
    pub record: Arc<Record>,
    pub documents: ActorRef<DocumentsMessage>,
}

pub(crate) struct DocumentState {
    shared: Arc<Shared>,
    seat: Seat,
    root_id: RootId,
    record: Arc<Record>,
    documents: ActorRef<DocumentsMessage>,
    tasks: HashMap<ActorId, Arc<Grant>>,
}

impl Actor for DocumentSupervisor {
    type Msg = DocumentMessage;
    type State = DocumentState;
    type Arguments = DocumentArguments;

    async fn pre_start(
        &self,
        me: ActorRef<DocumentMessage>,
        arguments: DocumentArguments,
    ) -> Result<DocumentState, ActorProcessingErr> {
        let DocumentArguments { shared, parent, load, root_id, record, documents } = arguments;
        let label = Label {
            document_id: Some(root_id.document()),
            record: Some(record.clone()),
            ..Label::of(ActorKind::Document, parent)
        };
        let seat = shared.board.sit(me.get_cell(), label, load);
        Ok(DocumentState { shared, seat, root_id, record, documents, tasks: HashMap::new() })
    }

    async fn handle(
        &self,
        me: ActorRef<DocumentMessage>,
        message: DocumentMessage,
        state: &mut DocumentState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DocumentMessage::Run(hold) => {
                state.seat.load.handled();
                state.run(hold, &me).await;
            }
            DocumentMessage::Ended { grant, end, next } => {
                match end {
                    TaskEnd::Done => state.record.done(),
                    TaskEnd::Failed(failure) => state.record.failed(&grant, &failure),
                    TaskEnd::Neither => {}
                }
                for hold in next {
                    state.go_on(hold, &me).await;
                }
            }
            DocumentMessage::Gone { actor, error } => {
                if let Some(error) = error {
                    state.seat.load.error(error);
                }
                if state.tasks.remove(&actor).is_some() {
                    state.record.at_work(state.tasks.values().map(Arc::as_ref));
                    state.ended(&me);
                }
            }
        }
        Ok(())
    }

    // The default would stop this actor when one task ends, and all other tasks of the document with it.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<DocumentMessage>,
        event: SupervisionEvent,
        _: &mut DocumentState,
    ) -> Result<(), ActorProcessingErr> {
        let (actor, error) = match event {
            SupervisionEvent::ActorTerminated(who, ..) => (who.get_id(), None),
            SupervisionEvent::ActorFailed(who, error) => (who.get_id(), Some(error.to_string())),
            _ => return Ok(()),
        };
        // If this supervisor is ending, it takes its tasks with it and nobody counts them any more.
        let _ = me.cast(DocumentMessage::Gone { actor, error });
        Ok(())
    }
}

impl DocumentState {
    /// Runs the next task of this document directly; a task of another document takes the usual way.
    async fn go_on(&mut self, hold: Hold, me: &ActorRef<DocumentMessage>) {
        if hold.grant.root_id == self.root_id {
            let _ = self.documents.cast(DocumentsMessage::Took { root_id: self.root_id, supervisor: me.get_id() });
            self.run(hold, me).await;
        } else if let Some(documents) = self.shared.documents.get() {
            // If the documents actor is being restarted, it drops the hold, which gives the task back.
            let _ = documents.cast(DocumentsMessage::Run(hold));
        }
    }

    async fn run(&mut self, hold: Hold, me: &ActorRef<DocumentMessage>) {
        let grant = hold.grant.clone();
        let arguments = (self.shared.clone(), self.seat.id, hold, me.clone());
        match Actor::spawn_linked(None, TaskActor, arguments, me.get_cell()).await {
            Ok((actor, _)) => {
                self.tasks.insert(actor.get_id(), grant);
                self.record.at_work(self.tasks.values().map(Arc::as_ref));
            }
            Err(error) => {
                // This is no failure of the task, which may have been cancelled or drained before its actor started.
                // The hold was dropped with the arguments, which gave the task back.
                grant.span().in_scope(|| tracing::debug!(error = %error, "a task's actor did not start"));
                self.ended(me);
            }
        }
    }

    fn ended(&self, me: &ActorRef<DocumentMessage>) {
        // If the documents actor is gone, it takes this actor with it.
        let _ = self.documents.cast(DocumentsMessage::Ended { root_id: self.root_id, supervisor: me.get_id() });
    }
}
