//! Runs the tasks of one document, each in an actor of its own, and knows how far the document is: it stays between tasks.

use crate::documents::DocumentsMessage;
use crate::grant::{Grant, TaskFailure};
use crate::hold::Hold;
use crate::progress::Record;
use crate::shared::Shared;
use crate::task_actor::TaskActor;
use crate::tree::{ActorKind, Label, Load, Seat};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct DocumentSupervisor;

pub(crate) enum DocumentMessage {
    Run(Hold),
    /// A task's actor is about to end; one that is killed never says so.
    Ended {
        grant: Arc<Grant>,
        end: TaskEnd,
        /// What was claimed together with its end; given back where this message is never read.
        next: Vec<Hold>,
    },
    /// An actor is gone. It comes behind the actor's own last word, which an event of the supervision would overtake.
    Gone {
        actor: ActorId,
        error: Option<String>,
    },
}

/// What a task came to, as far as its document is concerned.
pub(crate) enum TaskEnd {
    Done,
    Failed(TaskFailure),
    /// Given back, or no longer ours.
    Neither,
}

pub(crate) struct DocumentArguments {
    pub shared: Arc<Shared>,
    pub parent: u64,
    pub load: Arc<Load>,
    pub root_id: i64,
    pub record: Arc<Record>,
    pub documents: ActorRef<DocumentsMessage>,
}

pub(crate) struct DocumentState {
    shared: Arc<Shared>,
    seat: Seat,
    root_id: i64,
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
            document_id: Some(root_id),
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

    // The default would stop this actor, and with it all other tasks of the document, when one task ends.
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
        // A supervisor that ends takes its tasks with it, so nobody counts them any more.
        let _ = me.cast(DocumentMessage::Gone { actor, error });
        Ok(())
    }
}

impl DocumentState {
    /// Runs the next task of this document without a detour; another document's goes its usual way.
    async fn go_on(&mut self, hold: Hold, me: &ActorRef<DocumentMessage>) {
        if hold.grant.root_id == self.root_id {
            let _ = self.documents.cast(DocumentsMessage::Took { root_id: self.root_id, supervisor: me.get_id() });
            self.run(hold, me).await;
        } else if let Some(documents) = self.shared.documents.get() {
            // One that is being restarted drops the hold, which gives it back.
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
                // Not a failure of the task: it may have been cancelled or drained before its actor stood. The hold was
                // dropped with the arguments, which gave it back.
                tracing::debug!(task.id = grant.task_id, error = %error, "a task's actor did not start");
                self.ended(me);
            }
        }
    }

    fn ended(&self, me: &ActorRef<DocumentMessage>) {
        // Documents that are gone take this actor with them.
        let _ = self.documents.cast(DocumentsMessage::Ended { root_id: self.root_id, supervisor: me.get_id() });
    }
}
