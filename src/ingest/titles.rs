//! Chunks are embedded and indexed with the titles above them. What changes such a title, or who may read it, has the chunks embedded anew.
use super::{
    queueing::{Queueing, Work},
    tasks::{titles::ALONE, types::EMBED_TITLES},
};
use crate::{
    core::Core,
    error::OrFail,
    search::bm25,
    store::{self, places::Place},
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use svc_actors::WriteMode;
use svc_client::Failure;
use svc_ids::DocumentId;

/// Has the chunks under a document embedded anew, and a container of a file indexed anew, after its title changed, or whether it is a part; until then
/// they are found by the old titles. So are those that a reprocess of the document is making.
pub async fn changed(core: &Core, conn: &mut PgConnection, place: &Place) -> Result<(), Failure> {
    let Some(above) = store::titles::above(conn, place).await.or_fail()? else { return Ok(()) };
    let is_told = above.is_indexed || core.settings.title_paths;
    if let Some(generation) = store::titles::tell_generation(conn, place).await.or_fail()? {
        match is_told {
            true => queue(core, conn, &generation).await.or_fail()?,
            false => queue_alone(core, conn, &generation).await.or_fail()?,
        }
    }
    match above.has_parts && is_told {
        true => queue(core, conn, place).await.or_fail(),
        false if above.is_container => queue_alone(core, conn, place).await.or_fail(),
        false => Ok(()),
    }
}

/// Does the same for a document and all under it, after it came under other titles, or has other readers than what is above it. As nothing
/// must be found by titles that its readers may not read, neither its words nor its vector find it until then.
pub async fn are_others(core: &Core, conn: &mut PgConnection, place: &Place) -> Result<(), Failure> {
    let chunks = under_titles(core, conn, place).await.or_fail()?;
    if chunks.is_empty() {
        return Ok(());
    }
    bm25::remove(conn, None, &chunks).await.or_fail()?;
    let sums = store::titles::sums_under(conn, place).await.or_fail()?;
    store::rollups::forget_vectors(conn, &[chunks, sums].concat()).await.or_fail()?;
    queue(core, conn, place).await.or_fail()
}

/// Does the same for a document and all under it, after it became as open as what is above it. Until then they are found by the titles that they
/// had, which all may read who may read them.
pub async fn are_more(core: &Core, conn: &mut PgConnection, place: &Place) -> Result<(), Failure> {
    follow(core, conn, place).await.or_fail()
}

/// Does the same after another tree took the place of what is above it, and with that the tasks that the old one had: who may read the new titles may
/// read the old ones.
pub async fn follow(core: &Core, conn: &mut PgConnection, place: &Place) -> sqlx::Result<()> {
    match under_titles(core, conn, place).await?.is_empty() {
        true => Ok(()),
        false => queue(core, conn, place).await,
    }
}

/// What can be found at and under a part of another document by the titles above that, also if that was so before the settings were others.
async fn under_titles(core: &Core, conn: &mut PgConnection, place: &Place) -> sqlx::Result<Vec<DocumentId>> {
    let above = store::titles::above(conn, place).await?;
    let Some(above) = above.filter(|above| above.is_part) else { return Ok(Vec::new()) };
    let chunks = store::titles::settled_chunks(conn, place).await?;
    let are_found =
        above.is_indexed || core.settings.title_paths || store::titles::are_in_vectors(conn, &chunks).await?;
    Ok(if are_found { chunks } else { Vec::new() })
}

/// Queues the task. One that waits begins anew instead, and one that runs leaves the rest to that, so that changes in a row do the work once.
async fn queue(core: &Core, conn: &mut PgConnection, place: &Place) -> sqlx::Result<()> {
    make_way(conn, place).await?;
    if store::titles::begin_anew(conn, place, EMBED_TITLES.name).await? {
        return Ok(());
    }
    add(core, conn, place, json!({})).await
}

/// Takes what waits in a batch of a provider out of the region of the task, which it would keep for up to a day.
async fn make_way(conn: &mut PgConnection, place: &Place) -> sqlx::Result<()> {
    store::llm_batches::leave(conn, place, WriteMode::Itself).await
}

/// Queues a task for a container alone. One that waits sees its present title.
async fn queue_alone(core: &Core, conn: &mut PgConnection, place: &Place) -> sqlx::Result<()> {
    make_way(conn, place).await?;
    let params = json!({ALONE: true});
    if store::titles::waits(conn, place, EMBED_TITLES.name, &[json!({}), params.clone()]).await? {
        return Ok(());
    }
    add(core, conn, place, params).await
}

async fn add(core: &Core, conn: &mut PgConnection, place: &Place, params: Value) -> sqlx::Result<()> {
    // The sums of the containers above a part of a file are made anew too.
    let file = store::edits::part(conn, place).await?.and_then(|part| part.file);
    let root_id = file.unwrap_or(place.id().as_root());
    let queueing = Queueing::of_file(root_id, &core.settings.task_badges);
    queueing.add(conn, place, Work::of(&EMBED_TITLES).params(params)).await.map(|_| ())
}
