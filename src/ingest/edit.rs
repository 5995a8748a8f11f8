//! What an edit of a text leads to: the document is embedded anew, and the containers of its file are rolled up anew.
use crate::{
    core::Core,
    error::OrFail,
    ingest::{
        queueing::{Queueing, Work},
        segments::outdate_sums,
        tasks::types::EMBED,
    },
    search::bm25,
    store::{
        self,
        edits::{Reopened, Reopening},
        ingest_nodes::{ChildrenDone, Frontier},
        places::Place,
    },
};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use svc_actors::{LeafRange, WriteMode};
use svc_client::{Code, Failure};
use svc_ids::{DocumentId, RootId, TaskId};

/// Locks a leaf of a file and the containers above it, before the leaf is changed. The caller holds the lock of the file.
pub async fn lock(conn: &mut PgConnection, leaf: &Place, file: RootId) -> Result<(), Failure> {
    match store::edits::lock_line(conn, leaf, &ids(&leaf.containers(file.document()))).await.or_fail()? {
        true => Ok(()),
        false => Err(is_cancelled(file)),
    }
}

fn is_cancelled(file: RootId) -> Failure {
    Failure::new(Code::Conflict, format!("the ingestion of file {file} is being cancelled"))
        .with("file_id", file.0)
        .with("remedy", "try again when its frontier has nothing in flight")
        .with("retry_after", 5)
}

/// Locks the containers above a part of a file that will be deleted, before the part. Returns false if the file is being cancelled. The
/// caller holds the lock of the file.
pub async fn lock_above(conn: &mut PgConnection, part: &Place, file: RootId) -> Result<bool, Failure> {
    let containers = part.containers(file.document());
    let Some(parent) = containers.last() else { return Ok(true) };
    store::edits::lock_line(conn, parent, &ids(&containers)).await.or_fail()
}

/// Tells the containers above a document that it will be deleted: those of its file go back in flight, since they settled with what is
/// to go. The caller has locked them by [`lock_above`], whose answer is `goes_on`, and then the document.
pub async fn take_out(
    conn: &mut PgConnection,
    place: &Place,
    file: Option<RootId>,
    goes_on: bool,
) -> Result<(), Failure> {
    let waiting = store::ingest_nodes::waited_for(conn, place.id()).await.or_fail()?;
    let mut done = waiting.map(|at| ChildrenDone { root_id: at.root_id, parent_id: at.parent_id, done: 1, failed: 0 });
    let containers = file.map(|file| place.containers(file.document())).unwrap_or_default();
    if let (Some(file), Some(parent)) = (file, containers.last()) {
        match (goes_on, done) {
            (true, _) => {
                let Reopened { settled, failed } =
                    store::edits::take_out(conn, place, file, &ids(&containers)).await.or_fail()?;
                let change = Frontier { in_flight: settled + failed, settled: -settled, failed: -failed, total: 0 };
                store::ingest_nodes::count(conn, file.document(), change).await.or_fail()?;
            }
            // What waits for it fails with the rest of the file.
            (false, Some(_)) => {}
            (false, None) => return Err(is_cancelled(file)),
        }
        done = done.or(Some(ChildrenDone { root_id: file, parent_id: parent.id(), done: 0, failed: 0 }));
    }
    match done {
        Some(done) => store::ingest_nodes::children_done(conn, &[done]).await.or_fail(),
        None => Ok(()),
    }
}

fn ids(places: &[Place]) -> Vec<DocumentId> {
    places.iter().map(Place::id).collect()
}

/// Takes what was made of a document's old text out of every index, and queues what makes it anew. Returns the task that embeds
/// the document, which may have been waiting already.
pub async fn embed_again(
    core: &Core,
    conn: &mut PgConnection,
    place: &Place,
    file: Option<RootId>,
    grown: i64,
) -> Result<Option<TaskId>, Failure> {
    let containers = file.map(|file| place.containers(file.document())).unwrap_or_default();
    // A rollup of theirs that runs now has read the old text.
    for container in &containers {
        store::reservations::hold_for_edit(conn, container, WriteMode::Itself).await.or_fail()?;
    }
    // What waits in a batch of a provider would keep the text from being found for up to a day.
    let mode = if file.is_some() { WriteMode::Subtree } else { WriteMode::Itself };
    store::llm_batches::leave(conn, place, mode).await.or_fail()?;
    let tokens = store::edits::forget_vectors(conn, place, file).await.or_fail()?;
    if file.is_none() {
        outdate_sums(&core.settings.task_badges, conn, &[place.id()]).await.or_fail()?;
    }
    bm25::remove(conn, None, &[place.id()]).await.or_fail()?;
    let waiting = store::edits::waiting_embed(conn, place, file, EMBED.name, tokens).await.or_fail()?;
    let mut params = Map::new();
    if tokens {
        params.insert("tokens".to_owned(), true.into());
    }
    let (Some(file), Some(parent)) = (file, containers.last()) else {
        if waiting.is_some() {
            return Ok(waiting);
        }
        let badges = &core.settings.task_badges;
        let queueing = Queueing { root_id: place.id().as_root(), badges, priority: 0 };
        let work = Work::of(&EMBED).write_mode(WriteMode::Itself).params(Value::Object(params));
        return queueing.add(conn, place, work).await.or_fail().map(Some);
    };
    let what = Reopening { containers: &ids(&containers), tokens: grown };
    let Reopened { settled, failed } = store::edits::reopen(conn, Some(place), what).await.or_fail()?;
    let change = Frontier { in_flight: settled + failed, settled: -settled, failed: -failed, total: 0 };
    store::ingest_nodes::count(conn, file.document(), change).await.or_fail()?;
    if waiting.is_some() {
        return Ok(waiting);
    }
    let line = place.children_path();
    params.insert("leaves".to_owned(), json!([[place.id(), place.id()]]));
    let leaves = LeafRange { first: line.clone(), last: line };
    let work = Work::of(&EMBED).params(Value::Object(params)).leaves(&leaves);
    let task = Queueing::of_file(file, &core.settings.task_badges).add(conn, parent, work).await.or_fail()?;
    store::ingest_nodes::grow(conn, parent.id(), 1, 0, 0).await.or_fail()?;
    Ok(Some(task))
}
