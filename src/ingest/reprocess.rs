//! Reprocessing: a file is ingested again, with other options, beside the tree that it has. docs/ingest.md describes it.
//!
//! The new tree is a generation: a root of ingestion of its own, which the tasks work on as on any file, and which nobody can reach. When
//! its root has settled, [`swap`] puts it under the file in one transaction. A generation that ends in any other way is removed. Each
//! step is a transaction of its own, and the sweep takes the next one if a process dies between two.
mod swap;

use crate::{
    access::Caller,
    admission::Admission,
    core::Core,
    error::{IntoFailure, OrFail},
    ingest::{options::Requested, tasks::types::TaskTypes, unlock, upload},
    search::bm25,
    store::{
        self,
        admin::Cancel,
        blobs::BlobRow,
        documents::DocumentRow,
        evidence::Evidence,
        ingest_nodes::Belongs,
        places::Place,
        reprocess::{Fate, Generation},
        reservations::EditError,
    },
};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use std::time::Duration;
use svc_actors::{Lane, Lanes};
use svc_client::{
    Code, Failure,
    wire::{ReprocessRequest, ReprocessResponse, Settled},
};
use svc_formats::Format;
use svc_ids::{DocumentId, RootId};

/// For how long the tasks that wait at and under a file let its generation go first: longer than the time between two sweeps.
const STAND_BACK: Duration = Duration::from_secs(90);

/// Why a generation could not be ended now.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    #[error("{0}")]
    Held(EditError),
    #[error(transparent)]
    Index(#[from] bm25::Error),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl IntoFailure for EndError {
    fn into_failure(self) -> Failure {
        match self {
            EndError::Held(error) => error.into_failure(),
            EndError::Index(error) => error.into_failure(),
            EndError::Database(error) => error.into_failure(),
        }
    }
}

impl From<EditError> for EndError {
    fn from(error: EditError) -> EndError {
        match error {
            EditError::Database(error) => EndError::Database(error),
            held => EndError::Held(held),
        }
    }
}

/// Generations that were given up, and how many of their tasks were cancelled and are being stopped.
#[derive(Debug, Default)]
pub struct GivenUp {
    pub generations: Vec<RootId>,
    pub cancelled: i64,
    pub stopping: i64,
}

/// Begins a generation of a file; the answer comes before any of its tasks runs. Also returns what was given up for it.
pub async fn begin(
    core: &Core,
    admission: &Admission,
    types: &TaskTypes,
    caller: &Caller,
    id: DocumentId,
    request: ReprocessRequest,
    may_change: impl FnOnce(DocumentRow) -> Result<(), Failure>,
) -> Result<(ReprocessResponse, GivenUp), Failure> {
    let Requested { options, password } = Requested::read(request.options, types.groups())?;
    let blob = {
        let mut conn = core.pool.acquire().await.or_fail()?;
        ingested_file(&mut conn, caller, id).await?.1
    };
    let format = blob.format.as_deref().and_then(|format| format.parse::<Format>().ok());
    let opened = match (password, format) {
        (Some(password), Some(format)) => {
            let file = core.spool.open(&core.pool, &blob).await.or_fail()?;
            unlock::unlock(core, admission, caller, &file.open().or_fail()?, format, password).await?
        }
        _ => None,
    };
    // The file may have taken long to open.
    let caller = &caller.again(&core.pool).await?;
    let mut tx = store::transaction::begin_creating(&core.pool).await.or_fail()?;
    let (file, _) = ingested_file(&mut tx, caller, id).await?;
    store::locks::files_around(&mut tx, id).await.or_fail()?;
    let Some(file) = store::places::lock_for_change(&mut tx, &caller.writable(), file.id()).await.or_fail()? else {
        return Err(caller.refusal(&mut tx, id).await.or_fail()?);
    };
    let before = store::documents::read(&mut tx, &caller.readable(), id, true).await.or_fail()?;
    may_change(before.ok_or_else(|| Failure::no_document(id.0))?)?;
    refuse_unless_at_rest(&mut tx, caller, &file).await?;
    if opened.is_none() && store::reprocess::lacks_text(&mut tx, &file).await.or_fail()? {
        return Err(without_text(id));
    }
    let given_up = match store::reprocess::running(&mut tx, id).await.or_fail()? {
        None => GivenUp::default(),
        Some(_) if request.replace => give_up(&mut tx, &file).await.or_fail()?,
        Some(running) => return Err(already_running(id, &running)),
    };
    let options = options.to_value();
    let place = store::reprocess::begin(&mut tx, &file, &options).await.or_fail()?;
    if let Some(opened) = &opened {
        opened.store(&mut tx, &place).await?;
    }
    store::evidence::record(&mut tx, place.id(), Evidence::Options, &options).await.or_fail()?;
    let priority = store::ingest_nodes::priority(&mut tx, id.as_root()).await.or_fail()?.unwrap_or_default();
    upload::begin(core, &mut tx, &place, priority).await.or_fail()?;
    let begun = store::reprocess::running(&mut tx, id).await.or_fail()?;
    let started_at = begun.ok_or_else(|| Failure::no_document(id.0))?.started_at;
    tx.commit().await.or_fail()?;
    core.wake.notify(Lanes::of(Lane::Cpu));
    let replaced = !given_up.generations.is_empty();
    Ok((
        ReprocessResponse {
            document_id: id.0,
            root_id: place.id().0,
            started_at,
            options,
            options_before: blob.options,
            replaced,
        },
        given_up,
    ))
}

/// An ingested file with its bytes: 404 if the caller does not see the document, 403 if it may not change it, 409 if it is no ingested
/// file.
async fn ingested_file(conn: &mut PgConnection, caller: &Caller, id: DocumentId) -> Result<(Place, BlobRow), Failure> {
    let place = caller.writes(conn, id).await.or_fail()??;
    let belongs = store::ingest_nodes::belongs(conn, id).await.or_fail()?;
    let blob = store::blobs::of_document(conn, id).await.or_fail()?;
    match (blob, belongs) {
        (_, Some(Belongs { root_id, .. })) if root_id.document() != id => {
            let detail = format!("document {id} is a part of the file {root_id}: use that id");
            Err(Failure::new(Code::Conflict, detail).with("file_id", root_id.0))
        }
        (Some(blob), Some(_)) => Ok((place, blob)),
        (None, Some(_)) => {
            let detail = format!(
                "document {id} has no stored bytes to read again: an import leaves out those that another document has"
            );
            Err(Failure::new(Code::Conflict, detail).with(
                "remedy",
                "reprocess the other document; or delete that one, and import the archive of this one again",
            ))
        }
        _ => Err(Failure::new(Code::Conflict, format!("document {id} is not an ingested file"))
            .with("remedy", "GET /documents/files lists the files")),
    }
}

/// Refuses a file that is still being ingested, or that has parts which are access roots.
async fn refuse_unless_at_rest(conn: &mut PgConnection, caller: &Caller, file: &Place) -> Result<(), Failure> {
    let id = file.id();
    let row = store::documents::read(conn, &caller.readable(), id, false).await.or_fail()?;
    if row.ok_or_else(|| Failure::no_document(id.0))?.settled.0 == Settled::InFlight {
        return Err(Failure::new(Code::Conflict, format!("document {id} is still being ingested"))
            .with("retry_after", 5)
            .with(
                "remedy",
                format!("try again once it is settled, or end its ingestion with POST /ingest/file/{id}/cancel"),
            ));
    }
    let old = swap::Old::read(conn, file).await.or_fail()?;
    let roots = store::reprocess::access_roots(conn, &old.nodes).await.or_fail()?;
    if !roots.is_empty() {
        let detail =
            format!("parts of document {id} are access roots; those of a new tree would be as open as the file");
        return Err(Failure::new(Code::Conflict, detail)
            .with("document_ids", roots.iter().map(|root| root.0).collect::<Vec<_>>())
            .with("remedy", "protect the file itself, and make these parts ordinary documents again"));
    }
    Ok(())
}

/// 409 for an imported file of which the tasks would read something else than its upload did.
fn without_text(id: DocumentId) -> Failure {
    let detail = format!(
        "document {id} was imported without the text that the request which stored it read with a password, or made of its bytes"
    );
    Failure::new(Code::Conflict, detail).with(
        "remedy",
        "send its password in `extract.password` if it has one; otherwise reprocess it in the store that it came from and import it again, or store it anew with POST /ingest",
    )
}

fn already_running(id: DocumentId, running: &Generation) -> Failure {
    Failure::new(Code::Conflict, format!("document {id} is being reprocessed already"))
        .with("started_at", running.started_at.to_rfc3339())
        .with("running_options", running.options.clone())
        .with("retry_after", 5)
        .with("remedy", "wait until that ends, or send `replace`: true to end it and begin anew")
}

/// Gives up the generation of a file, whose lock the caller holds. It is removed once no worker holds a task of it.
pub async fn give_up(conn: &mut PgConnection, file: &Place) -> sqlx::Result<GivenUp> {
    let generation = store::reprocess::abandon(conn, file).await?;
    let given_up = stop(conn, generation.into_iter().collect()).await?;
    store::reservations::let_go_on(conn, file).await?;
    Ok(given_up)
}

/// Does the same for all files at and under a place that is about to be deleted.
pub async fn give_up_under(conn: &mut PgConnection, place: &Place) -> sqlx::Result<GivenUp> {
    let generations = store::reprocess::abandon_under(conn, place).await?;
    stop(conn, generations).await
}

async fn stop(conn: &mut PgConnection, generations: Vec<Generation>) -> sqlx::Result<GivenUp> {
    let mut given_up = GivenUp::default();
    for generation in generations {
        // From here on no task of the generation commits, so none leaves new tasks behind.
        store::locks::nodes(conn, generation.id).await?;
        let place = generation.place();
        // A waiting task may be claimed between two looks.
        loop {
            store::admin::cancel_held(conn, Cancel::Root(&place)).await?;
            let cancelled = store::admin::cancel_waiting(conn, Cancel::Root(&place)).await?;
            given_up.cancelled += cancelled.len() as i64;
            if !store::admin::goes_on(conn, Cancel::Root(&place)).await? {
                break;
            }
        }
        given_up.stopping += store::admin::stopping(conn, generation.id).await?;
        given_up.generations.push(generation.id);
    }
    Ok(given_up)
}

/// Records that somebody ended the reprocess of a file.
pub async fn record_cancel(conn: &mut PgConnection, file: &Place, generation: &Generation) -> sqlx::Result<()> {
    store::reprocess::record(conn, file, &outcome("cancelled", generation)).await
}

/// What the evidence of a reprocess says however it ended.
fn outcome(state: &str, generation: &Generation) -> Value {
    json!({"state": state, "options": generation.options, "started_at": generation.started_at, "ended_at": chrono::Utc::now()})
}

/// Ends a generation, if it is time to. An error is logged: the sweep tries again.
pub async fn end_or_leave(core: &Core, id: RootId) {
    match end(core, id).await {
        Ok(()) => {}
        Err(EndError::Held(error)) => {
            tracing::debug!(root.id = id.0, error = %error, "a reprocess ends once its file is at rest");
        }
        Err(error) => {
            tracing::warn!(root.id = id.0, error = %error, "a reprocess could not be ended; the sweep tries again");
        }
    }
}

async fn end(core: &Core, id: RootId) -> Result<(), EndError> {
    let pool = &core.pool;
    let fate = store::reprocess::fate(&mut *pool.acquire().await?, id).await?;
    match fate {
        None | Some(Fate::Wait) => Ok(()),
        Some(Fate::Remove) => remove(pool, id).await,
        Some(Fate::Fail) => {
            fail(pool, id).await?;
            remove_given_up(pool, id).await
        }
        Some(Fate::Swap) => match swap::swap(core, id).await {
            Err(held @ EndError::Held(_)) => {
                go_first(pool, id).await?;
                Err(held)
            }
            swapped => {
                swapped?;
                remove_given_up(pool, id).await
            }
        },
    }
}

/// Has the tasks that wait at and under the file of a generation stand back, until it has taken its place once those have ended that are held: the end of
/// one claims the next one, and there may be thousands.
async fn go_first(pool: &PgPool, id: RootId) -> Result<(), EndError> {
    let mut tx = store::transaction::begin(pool).await?;
    let Some(file) = store::reprocess::file_of(&mut tx, id).await? else { return Ok(()) };
    let Some((file, _)) = store::reprocess::lock(&mut tx, file, id).await? else { return Ok(()) };
    store::reservations::put_off_waiting(&mut tx, &file, &[], STAND_BACK).await?;
    Ok(tx.commit().await?)
}

/// Removes a generation if its end gave it up and no worker holds a task of it.
async fn remove_given_up(pool: &PgPool, id: RootId) -> Result<(), EndError> {
    let fate = store::reprocess::fate(&mut *pool.acquire().await?, id).await?;
    match fate {
        Some(Fate::Remove) => remove(pool, id).await,
        _ => Ok(()),
    }
}

/// Gives up a generation that failed, and says so at its file, whose tree stays.
async fn fail(pool: &PgPool, id: RootId) -> Result<(), EndError> {
    let mut tx = store::transaction::begin(pool).await?;
    let Some(file) = store::reprocess::file_of(&mut tx, id).await? else { return Ok(()) };
    store::locks::files_around(&mut tx, file).await?;
    let Some((file, generation)) = store::reprocess::lock(&mut tx, file, id).await? else { return Ok(()) };
    let reason = store::reprocess::reason(&mut tx, id).await?;
    discard(&mut tx, &file, &generation, reason.unwrap_or_default()).await?;
    Ok(tx.commit().await?)
}

/// Gives up a generation that may not take its place, and records why.
async fn discard(
    conn: &mut PgConnection,
    file: &Place,
    generation: &Generation,
    reason: Value,
) -> Result<(), EndError> {
    store::reprocess::abandon(conn, file).await?;
    let mut failed = outcome("failed", generation);
    failed["reason"] = reason;
    Ok(store::reprocess::record(conn, file, &failed).await?)
}

/// Deletes a generation that was given up.
async fn remove(pool: &PgPool, id: RootId) -> Result<(), EndError> {
    let mut tx = store::transaction::begin(pool).await?;
    store::locks::file(&mut tx, id).await?;
    if store::blobs::are_many(&mut tx, id.document()).await? {
        // The sweep deletes them.
        store::blobs::unlink_later(&mut tx).await?;
    }
    let gone = store::reprocess::remove(&mut tx, id).await?;
    bm25::remove(&mut tx, None, &gone).await?;
    store::ingest_nodes::forget(&mut tx, &gone).await?;
    Ok(tx.commit().await?)
}

/// Ends all generations whose root left flight, that were given up, or whose file is gone.
pub async fn sweep(core: Core) {
    let ended = async { store::reprocess::ended(&mut *core.pool.acquire().await?).await };
    end_all(&core, ended.await).await;
}

/// Does the same for those of one root of ingestion.
pub async fn sweep_root(core: Core, root_id: RootId) {
    let ended = async { store::reprocess::ended_of(&mut *core.pool.acquire().await?, root_id).await };
    end_all(&core, ended.await).await;
}

async fn end_all(core: &Core, ended: sqlx::Result<Vec<RootId>>) {
    match ended {
        Ok(ended) => {
            for id in ended {
                end_or_leave(core, id).await;
            }
        }
        Err(error) => tracing::warn!(error = %error, "could not look for reprocesses that have ended"),
    }
}
