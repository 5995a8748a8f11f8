//! Runs one task. Stopping this actor drops the handler's future.

use crate::{
    backoff::Streak,
    document_supervisor::DocumentMessage,
    grant::{ErrorClass, Grant, Outcome, TaskFailure},
    hold::{Hold, Report},
    port::bounded,
    shared::Shared,
    tree::{ActorKind, Label, Load, Seat},
};
use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tracing::Instrument;

/// A task that ends sooner is never written as running separately: it starts and ends in one transaction.
const SHORT: Duration = Duration::from_millis(50);

pub(crate) struct TaskActor;

pub(crate) enum TaskMessage {
    Run,
}

pub(crate) struct TaskState {
    shared: Arc<Shared>,
    seat: Seat,
    supervisor: ActorRef<DocumentMessage>,
    /// Dropped with the state when the actor is killed, and so after the handler's future.
    hold: Option<Hold>,
}

impl Actor for TaskActor {
    type Msg = TaskMessage;
    type State = TaskState;
    type Arguments = (Arc<Shared>, u64, Hold, ActorRef<DocumentMessage>);

    async fn pre_start(
        &self,
        me: ActorRef<TaskMessage>,
        (shared, parent, hold, supervisor): Self::Arguments,
    ) -> Result<TaskState, ActorProcessingErr> {
        if !hold.bind(me.get_cell()) {
            return Err("the task was stopped before it began".into());
        }
        let grant = &hold.grant;
        let label = Label {
            task: Some(grant.clone()),
            document_id: Some(grant.document_id),
            meter: hold.meter.clone(),
            ..Label::of(ActorKind::Task, parent)
        };
        let seat = shared.board.sit(me.get_cell(), label, Arc::<Load>::default());
        Ok(TaskState { shared, seat, supervisor, hold: Some(hold) })
    }

    async fn post_start(&self, me: ActorRef<TaskMessage>, _: &mut TaskState) -> Result<(), ActorProcessingErr> {
        me.cast(TaskMessage::Run)?;
        Ok(())
    }

    async fn handle(
        &self,
        me: ActorRef<TaskMessage>,
        _: TaskMessage,
        state: &mut TaskState,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(hold) = state.hold.as_mut() {
            let span = hold.grant.span();
            hold.report = run(&state.shared, hold, &state.seat).instrument(span).await;
            // If the supervisor is gone, it takes this actor with it.
            let (grant, end, next) = (hold.grant.clone(), hold.end(), hold.take_follow_up());
            let _ = state.supervisor.cast(DocumentMessage::Ended { grant, end, next });
        }
        // The hold is dropped now and not with the state, which stays in the supervisor's mailbox for a while.
        state.hold = None;
        me.stop(None);
        Ok(())
    }

    // It has no children; the default would stop this actor if one ended.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<TaskMessage>,
        _: SupervisionEvent,
        _: &mut TaskState,
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// Runs the task. Returns `None` if the handler never began, so that the task may be given back.
async fn run(shared: &Shared, hold: &mut Hold, seat: &Seat) -> Option<Report> {
    if hold.stopped() {
        return None;
    }
    if hold.grant.runs_alone {
        // This is written before the task begins, because only a task that ran can have taken its worker down.
        match bounded(shared.settings.lease, shared.queue.start(&hold.grant)).await {
            Ok(true) => {}
            Ok(false) => return Some(Report::Lost),
            Err(error) => {
                tracing::warn!(error = %error, "a task that must run alone could not be started");
                return None;
            }
        }
    }
    hold.begin();
    seat.load.handled();
    let grant = &hold.grant;
    // The call itself is inside, for a handler that panics before it returns a future.
    let work =
        AssertUnwindSafe(async { shared.handler.run(grant, hold.cancel.clone(), hold.permit()).await }).catch_unwind();
    let in_time = async {
        match grant.deadline {
            None => Ok(work.await),
            Some(deadline) => tokio::time::timeout(deadline, work).await.map_err(|_| deadline),
        }
    };
    let ended = tokio::select! {
        biased;
        ended = in_time => ended,
        () = reservation_gone(shared, grant) => {
            tracing::info!("the reservation was lost before the task began");
            return Some(Report::Lost);
        }
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(deadline) => {
            hold.cancel.cancel();
            let message = format!("{} ran longer than its deadline of {deadline:?}", grant.task_type);
            return Some(Report::Failed(TaskFailure::new(ErrorClass::Timeout, "timeout", message)));
        }
    };
    Some(match ended {
        Ok(Ok(Outcome::Completed | Outcome::Batched)) => Report::Finished,
        Ok(Ok(Outcome::Skipped { reason })) => {
            tracing::debug!(reason, "task skipped");
            Report::Finished
        }
        Ok(Ok(Outcome::LostLease)) => {
            tracing::warn!("the reservation was lost before the commit; nothing was written");
            Report::Lost
        }
        Ok(Err(failure)) => Report::Failed(failure),
        Err(panic) => {
            // A panic may happen by chance once or twice, but a task that always panics must not be retried for ever.
            let class = if grant.attempt < 3 { ErrorClass::Retryable } else { ErrorClass::Permanent };
            Report::Failed(TaskFailure::new(class, "panic", message_of(panic.as_ref())))
        }
    })
}

/// Has the task written as running once it has taken a while. Returns only if the reservation is gone, long before a
/// heartbeat would tell.
async fn reservation_gone(shared: &Shared, grant: &Grant) {
    tokio::time::sleep(SHORT).await;
    let mut streak = Streak::new("starting a task", shared.settings.poll);
    loop {
        match bounded(shared.settings.lease, shared.queue.start(grant)).await {
            // A task that commits may have completed already, so its own fence decides.
            Ok(false) if !shared.ledger.is_committing(grant.token) => return,
            Ok(_) => return std::future::pending().await,
            Err(error) => tokio::time::sleep(streak.error(&error)).await,
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").chars().take(2_000).collect()
}
