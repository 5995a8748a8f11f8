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
        ingest_nodes::Frontier,
        places::Place,
    },
};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use svc_actors::{LeafRange, WriteMode};
use svc_client::{Code, Failure};
use svc_ids::{DocumentId, RootId, TaskId};

/// An estimate, for the counts of tokens under containers. A rollup whose text may fit the model's window counts exactly.
pub const CHARACTERS_OF_A_TOKEN: i64 = 4;

/// Locks a leaf of a file and the containers above it, before the leaf is changed. The caller holds the lock of the file.
pub async fn lock(conn: &mut PgConnection, leaf: &Place, file: RootId) -> Result<(), Failure> {
    if store::edits::lock_line(conn, leaf, &ids(&leaf.containers(file.document()))).await.or_fail()? {
        return Ok(());
    }
    Err(Failure::new(Code::Conflict, format!("the ingestion of file {file} is being cancelled"))
        .with("file_id", file.0)
        .with("remedy", "try again when its frontier has nothing in flight")
        .with("retry_after", 5))
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
    let tokens = store::edits::forget_vectors(conn, place, file).await.or_fail()?;
    if file.is_none() {
        outdate_sums(&core.settings.task_badges, conn, &[place.id()]).await.or_fail()?;
    }
    bm25::remove(conn, None, &[place.id()]).await.or_fail()?;
    let waiting = store::edits::waiting_embed(conn, place, EMBED.name, tokens).await.or_fail()?;
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
    let Reopened { settled, failed } = store::edits::reopen(conn, place, what).await.or_fail()?;
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
