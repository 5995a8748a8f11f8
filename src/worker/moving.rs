//! Moves of all vectors to another model: one process of the fleet at a time gives the documents that lack a vector to tasks, lets the new model
//! serve when none is left, and deletes what is then not needed any more.
use crate::{
    core::Core,
    ingest::{
        queueing::{Queueing, Work},
        tasks::{
            reembed::{MODEL, PAGE, TOKENS},
            types::{REEMBED, TaskTypes},
        },
    },
    store::{
        llm_batches,
        model_moves::{self, Lacking, Move},
        reindex, transaction,
    },
};
use serde_json::json;
use sqlx::PgConnection;
use std::time::Duration;
use svc_actors::{Lane, Lanes, WriteMode};
use svc_client::wire::ModelMoveState;
use svc_ids::DocumentId;
use tokio::task::JoinHandle;

/// The time between two looks for something to move, and while something is moved.
const PAUSE: Duration = Duration::from_secs(1);
const AT_WORK: Duration = Duration::from_millis(200);
/// How many tasks wait or run at a time: enough for a fleet, and few enough for others to have their turn.
const TASKS: i64 = 32;
/// The most documents of one task, and the bytes of text after which it takes no more.
const TOGETHER: usize = 64;
const BYTES: i64 = 128 << 10;
/// From this pass on, so small a part of all documents may still lack a vector when the new model begins to serve: where somebody always writes,
/// some always do, and they get theirs right after it.
const PATIENT_PASSES: i32 = 3;
const FEW: i64 = 1_000;
/// A move stands behind all that callers wait for.
const PRIORITY: i32 = -100;

/// Moves vectors whenever there are some to move, until it is aborted.
pub fn start(core: Core, types: TaskTypes) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let pause = match step(&core, &types).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "the move to another model waits; it goes on soon");
                    PAUSE
                }
            };
            tokio::time::sleep(pause).await;
        }
    })
}

/// Does what is due now. Returns how long to wait for the next step.
async fn step(core: &Core, types: &TaskTypes) -> sqlx::Result<Duration> {
    let last = model_moves::read(&mut *core.pool.acquire().await?).await?;
    let Some(last) = last.filter(|last| !matches!(last.state.0, ModelMoveState::Done | ModelMoveState::Cancelled))
    else {
        return Ok(PAUSE);
    };
    let is_called_off = last.state.0 == ModelMoveState::Cancelling;
    let has_index = is_called_off || reindex::has_index(&mut *core.pool.acquire().await?, &last.to_model).await?;
    offer(core, types, &last.to_model).await;
    // A runner is asked here, since nobody else may: where nothing is to be embedded, no task does.
    if !has_index && let Some(model) = core.model_named(&last.to_model).await {
        reindex::add_index_of_move(&core.pool, &last.to_model, model.native_width()).await?;
    }
    // No document moves until this commits, because each task gets the region of its document's place.
    let mut tx = transaction::begin_creating(&core.pool).await?;
    let Some(moved) = model_moves::take(&mut tx).await? else {
        tx.rollback().await?;
        return Ok(AT_WORK);
    };
    let (state, to) = (moved.state.0, moved.to_model.as_str());
    let is_fed = match state {
        ModelMoveState::Moving | ModelMoveState::Emptying if !moved.rests => feed(core, &mut tx, &moved).await?,
        _ => false,
    };
    tx.commit().await?;
    if is_fed {
        core.wake.notify(Lanes::of(Lane::Model));
    }
    // These hold no lock on the move, because tasks that hold documents wait for that one.
    match state {
        ModelMoveState::Emptying if moved.is_known => empty(core, to).await,
        ModelMoveState::Cancelling => undo(core, &moved).await,
        _ => Ok(AT_WORK),
    }
}

/// Has a process whose settings name no coming model take the tasks of a move for as long as its own model is the one to which vectors are moved: once
/// that serves, the settings may name it alone while its last vectors are still to be made.
pub async fn offer(core: &Core, types: &TaskTypes, to: &str) {
    if core.coming.is_none() {
        types.set_coming(core.model_named(to).await.is_some());
    }
}

/// Gives the next documents to tasks, as far as there is room for these; says whether it did. After the last ones it begins the next pass, or lets
/// the new model serve.
async fn feed(core: &Core, tx: &mut PgConnection, moved: &Move) -> sqlx::Result<bool> {
    let (to, open) = (moved.to_model.as_str(), model_moves::unfinished(tx, REEMBED.name).await?);
    if open >= TASKS {
        return Ok(false);
    }
    let room = usize::try_from(TASKS - open).unwrap_or_default();
    let most = i64::try_from(room * TOGETHER).unwrap_or(i64::MAX);
    let lacking = model_moves::lacking(tx, to, moved.up_to, most).await?;
    // Searches use the token vectors of the model that serves, so those of another one are replaced after it does.
    let with_tokens = lacking.is_empty() && open == 0 && moved.state.0 == ModelMoveState::Emptying;
    let lacking = if with_tokens { model_moves::lacking_tokens(tx, to, most).await? } else { lacking };
    if lacking.is_empty() {
        if open == 0 {
            end_pass(tx, moved).await?;
        }
        return Ok(false);
    }
    let mut rest = lacking.as_slice();
    for _ in 0..room {
        let Some((page, after)) = cut(rest) else { break };
        rest = after;
        let at = standing(page).unwrap_or(&page[0]);
        let ids: Vec<DocumentId> = page.iter().map(|lacking| lacking.place.id()).collect();
        let (place, badges) = (&at.place, &core.settings.task_badges);
        if at.is_batched {
            llm_batches::leave(tx, place, WriteMode::Itself).await?;
        }
        let queueing = Queueing { root_id: place.id().as_root(), badges, priority: PRIORITY };
        let params = json!({PAGE: ids, MODEL: to, TOKENS: with_tokens});
        queueing.add(tx, place, Work::of(&REEMBED).params(params)).await?;
        if let Some(last) = ids.last().filter(|_| !with_tokens) {
            model_moves::advance(tx, *last).await?;
        }
    }
    Ok(true)
}

/// Where a task of these documents stands. At one with a task in a batch of a provider it would wait for as long as that one, and at a container it
/// would count as one of its file's.
fn standing(page: &[Lacking]) -> Option<&Lacking> {
    page.iter().min_by_key(|lacking| (lacking.is_batched, lacking.is_container))
}

/// What one task takes of these documents, which is at least one, and what it leaves.
fn cut(rest: &[Lacking]) -> Option<(&[Lacking], &[Lacking])> {
    let mut bytes = 0;
    let fits = |lacking: &&Lacking| {
        bytes += lacking.bytes;
        bytes <= BYTES
    };
    let together = rest.iter().take(TOGETHER).take_while(fits).count().max(1);
    (!rest.is_empty()).then(|| rest.split_at(together))
}

/// Ends a pass whose tasks have all ended.
async fn end_pass(tx: &mut PgConnection, moved: &Move) -> sqlx::Result<()> {
    // Without it searches would compare every vector; a worker with the model is about to make it.
    if !reindex::has_index(tx, &moved.to_model).await? {
        return Ok(());
    }
    if moved.state.0 == ModelMoveState::Moving {
        let few = if moved.passes + 1 >= PATIENT_PASSES { moved.wanted / FEW } else { 0 };
        let left = model_moves::lacking(tx, &moved.to_model, DocumentId(0), few.saturating_add(1)).await?;
        if i64::try_from(left.len()).is_ok_and(|left| left <= few) {
            tracing::info!(model = moved.to_model, made = moved.done, "the vectors of another model serve from now on");
            return model_moves::serve(tx).await;
        }
    }
    model_moves::begin_pass(tx).await
}

/// Drops the indexes of models that do not serve any more and deletes some of their vectors, and ends the move once none of either is left. Returns
/// how long to wait for the next step.
async fn empty(core: &Core, to: &str) -> sqlx::Result<Duration> {
    let is_dropped = reindex::drop_indexes_of_others(&core.pool, to).await?;
    let mut tx = transaction::begin(&core.pool).await?;
    let is_left = model_moves::delete_others(&mut tx, to).await?;
    let is_over = is_dropped && !is_left && model_moves::unfinished(&mut tx, REEMBED.name).await? == 0;
    if is_over && model_moves::end(&mut tx).await? {
        tracing::info!(model = to, "the move to another model is done");
    }
    tx.commit().await?;
    Ok(match (is_dropped, is_left) {
        // While somebody holds the table, searches wait for as long as this does, so they must have it in between.
        (false, _) => PAUSE,
        (true, true) => Duration::ZERO,
        (true, false) => AT_WORK,
    })
}

/// Deletes some vectors that a move made which was called off, and then their index; the move is over once none of either is left. Returns how long to
/// wait for the next step.
async fn undo(core: &Core, moved: &Move) -> sqlx::Result<Duration> {
    let mut tx = transaction::begin(&core.pool).await?;
    let is_left = model_moves::undo(&mut tx, &moved.to_model).await?;
    let others = is_left || model_moves::has_others(&mut tx, &moved.serving).await?;
    tx.commit().await?;
    if is_left {
        return Ok(Duration::ZERO);
    }
    if !others && !reindex::drop_indexes_of_others(&core.pool, &moved.serving).await? {
        return Ok(PAUSE);
    }
    model_moves::end_undone(&mut *core.pool.acquire().await?).await?;
    Ok(AT_WORK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::batch::new_place;

    fn lacking(id: i64, bytes: i64, is_container: bool, is_batched: bool) -> Lacking {
        Lacking { place: new_place(None, DocumentId(id)), bytes, is_container, is_batched }
    }

    #[test]
    fn a_task_stands_where_no_batch_keeps_it_waiting() {
        let at = |page: &[Lacking]| standing(page).map(|lacking| lacking.place.id().0);
        let page = [lacking(1, 1, false, true), lacking(2, 1, true, false), lacking(3, 1, false, false)];
        assert_eq!((at(&page), at(&page[..2]), at(&page[..1]), at(&[])), (Some(3), Some(2), Some(1), None));
    }

    #[test]
    fn a_task_takes_a_bounded_part_and_always_something() {
        let lacking = |id, bytes| lacking(id, bytes, false, false);
        let many: Vec<Lacking> = (1..200).map(|id| lacking(id, 100)).collect();
        assert_eq!(cut(&many).map(|(page, rest)| (page.len(), rest.len())), Some((TOGETHER, 199 - TOGETHER)));
        let long = [lacking(1, 10 * BYTES), lacking(2, 1)];
        assert_eq!(cut(&long).map(|(page, rest)| (page.len(), rest.len())), Some((1, 1)));
        assert!(cut(&[]).is_none());
    }
}
