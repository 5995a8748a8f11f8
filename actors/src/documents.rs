//! Keeps one supervisor for each document that has tasks here. A supervisor stays while its document owes work, so that
//! what it knows of the document outlives a task. Of the supervisors without a running task only the most recently used
//! ones stay.

use crate::{
    document_supervisor::{DocumentArguments, DocumentMessage, DocumentSupervisor},
    hold::Hold,
    port::bounded,
    progress::{DocumentFacts, Record},
    shared::Shared,
    tree::{ActorKind, Label, Load, Post, Seat},
};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::{collections::HashMap, sync::Arc};
use svc_ids::RootId;
use tokio::{task::JoinHandle, time::Instant};

/// The most supervisors that are kept without a running task.
pub(crate) const MOST_IDLE: usize = 32;

pub(crate) struct Documents;

pub(crate) enum DocumentsMessage {
    Run(Hold),
    /// This supervisor goes on with a task that was claimed with the end of another of its tasks.
    Took {
        root_id: RootId,
        supervisor: ActorId,
    },
    /// A task of this supervisor ended, or did not start.
    Ended {
        root_id: RootId,
        supervisor: ActorId,
    },
    /// Asks the queue what the documents still owe, if that is due.
    Look,
    /// The queue's answer to the look with this number.
    Known {
        facts: Vec<DocumentFacts>,
        look: u64,
    },
}

pub(crate) struct DocumentsState {
    shared: Arc<Shared>,
    seat: Seat,
    /// The supervisors by root id. There are few: one for each running task, and the idle ones.
    open: HashMap<RootId, Open>,
    looking: Option<JoinHandle<()>>,
    looks: u64,
    /// When the last look began.
    looked: Instant,
    /// Counts the uses; the supervisor with the greatest number was used last.
    uses: u64,
}

struct Open {
    post: Post<DocumentMessage>,
    record: Arc<Record>,
    /// Grants sent and not yet ended. At zero the supervisor's mailbox is empty, so it may stop.
    tasks: usize,
    used: u64,
    /// How many looks had begun when it was last used.
    looks: u64,
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
        Ok(DocumentsState {
            shared,
            seat,
            open: HashMap::new(),
            looking: None,
            looks: 0,
            looked: Instant::now(),
            uses: 0,
        })
    }

    async fn post_start(
        &self,
        me: ActorRef<DocumentsMessage>,
        state: &mut DocumentsState,
    ) -> Result<(), ActorProcessingErr> {
        me.send_interval(state.shared.shortest_beat(), || DocumentsMessage::Look);
        Ok(())
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
                state.run(hold, &me).await;
            }
            DocumentsMessage::Took { root_id, supervisor } => {
                if let Some(open) = state.open.get_mut(&root_id).filter(|open| open.post.actor.get_id() == supervisor) {
                    open.tasks += 1;
                }
            }
            DocumentsMessage::Ended { root_id, supervisor } => {
                let used = state.use_now();
                if let Some(open) = state.open.get_mut(&root_id).filter(|open| open.post.actor.get_id() == supervisor) {
                    open.tasks = open.tasks.saturating_sub(1);
                    (open.used, open.looks) = used;
                    state.end_least_used();
                }
            }
            DocumentsMessage::Look => state.look(me),
            DocumentsMessage::Known { facts, look } => state.learn(&facts, look),
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
                tracing::error!(error = %error, "a document's supervisor failed; its tasks are given back");
                state.forget(who.get_id());
            }
            _ => {}
        }
        Ok(())
    }
}

impl DocumentsState {
    async fn run(&mut self, hold: Hold, me: &ActorRef<DocumentsMessage>) {
        let root_id = hold.grant.root_id;
        let (used, looks) = self.use_now();
        if !self.open.contains_key(&root_id) {
            let (load, record) = (Arc::<Load>::default(), Arc::<Record>::default());
            let arguments = DocumentArguments {
                shared: self.shared.clone(),
                parent: self.seat.id,
                load: load.clone(),
                root_id,
                record: record.clone(),
                documents: me.clone(),
            };
            match Actor::spawn_linked(None, DocumentSupervisor, arguments, me.get_cell()).await {
                Ok((actor, _)) => {
                    self.open.insert(root_id, Open { post: Post { actor, load }, record, tasks: 0, used, looks })
                }
                // Dropping the hold gives the task back.
                Err(error) => {
                    self.seat.load.error(&error);
                    tracing::error!(document.id = root_id.0, error = %error, "a document's supervisor did not start");
                    return;
                }
            };
        }
        if let Some(open) = self.open.get_mut(&root_id)
            && open.post.cast(DocumentMessage::Run(hold)).is_ok()
        {
            open.tasks += 1;
            (open.used, open.looks) = (used, looks);
        }
    }

    fn use_now(&mut self) -> (u64, u64) {
        self.uses += 1;
        (self.uses, self.looks)
    }

    /// Forgets a supervisor; the next task of its document gets a new one.
    fn forget(&mut self, supervisor: ActorId) {
        self.open.retain(|_, open| open.post.actor.get_id() != supervisor);
    }

    fn end_least_used(&mut self) {
        let idle = || self.open.iter().filter(|(_, open)| open.tasks == 0);
        if idle().count() > MOST_IDLE
            && let Some(root_id) = idle().min_by_key(|(_, open)| open.used).map(|(root_id, _)| *root_id)
            && let Some(open) = self.open.remove(&root_id)
        {
            open.post.actor.stop(None);
        }
    }

    /// Asks the queue beside the mailbox, one look at a time, as often as there are heartbeats: whoever looks at the tree soon sees the
    /// titles of documents that are new in it.
    fn look(&mut self, me: ActorRef<DocumentsMessage>) {
        // The ticks of a clock are a little early or late.
        let is_due = self.looked.elapsed() + self.shared.shortest_beat() / 2 >= self.shared.between_beats();
        if !is_due || self.open.is_empty() || self.looking.as_ref().is_some_and(|looking| !looking.is_finished()) {
            return;
        }
        self.looks += 1;
        self.looked = Instant::now();
        let (look, shared) = (self.looks, self.shared.clone());
        let roots: Vec<RootId> = self.open.keys().copied().collect();
        self.looking = Some(tokio::spawn(async move {
            match bounded(shared.settings.lease, shared.queue.documents(&roots)).await {
                Ok(facts) => drop(me.cast(DocumentsMessage::Known { facts, look })),
                Err(error) => tracing::debug!(error = %error, "looking at the documents at work failed"),
            }
        }));
    }

    /// Ends the supervisors that were idle when the queue was asked and whose documents owe nothing more.
    fn learn(&mut self, facts: &[DocumentFacts], look: u64) {
        let facts: HashMap<RootId, &DocumentFacts> = facts.iter().map(|facts| (facts.root_id, facts)).collect();
        self.open.retain(|root_id, open| {
            let known = facts.get(root_id);
            if let Some(facts) = known {
                open.record.learn(facts);
            }
            let was_idle = open.tasks == 0 && open.looks < look;
            let done = was_idle && known.is_none_or(|facts| facts.open_tasks == 0);
            if done {
                open.post.actor.stop(None);
            }
            !done
        });
    }
}
