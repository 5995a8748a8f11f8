//! Moves the bytes of files, each by itself: they are copied, their hash is checked, and one transaction gives the row its new place and
//! gives up the old one. So a file has its bytes at each moment, and a kill leaves at most a copy that nothing names.
use super::To;
use crate::{
    blobs::{BlobError, Blobs, to_large_object},
    cli::output::one_line,
    spool::{SpoolCache, SpoolError, Spooled, reopen},
    store::{
        self,
        blobs::{BlobPlace, BlobRow},
        places,
        transaction::Transaction,
    },
};
use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::PgPool;
use std::{collections::BTreeSet, sync::Arc};
use svc_ids::DocumentId;

/// How many files are on their way at a time.
const AT_ONCE: usize = 4;
/// How many files are looked up at a time.
const PAGE: i64 = 500;

pub struct Mover {
    pub blobs: Arc<Blobs>,
    /// Keeps nothing; it makes the working files.
    pub spool: Arc<SpoolCache>,
    pub pool: PgPool,
    pub(super) to: To,
}

/// What was moved.
#[derive(Debug, Default)]
pub struct Tally {
    pub files: u64,
    pub bytes: u64,
    /// Files whose bytes are missing or damaged, and stay as they are.
    pub failed: BTreeSet<DocumentId>,
    /// How many other files have their bytes in the old place still.
    pub left: u64,
}

impl Mover {
    pub async fn run(&self) -> Result<Tally, BlobError> {
        if self.to == To::Object && !self.blobs.are_outside() {
            return Err(BlobError::NotConfigured);
        }
        let mut tally = Tally::default();
        let mut after = DocumentId(0);
        loop {
            let rows = self.page(after).await?;
            let Some(last) = rows.last() else { break };
            after = last.document_id;
            let moving = stream::iter(&rows).map(async |row| (row, self.moved(row).await)).buffer_unordered(AT_ONCE);
            tally = moving
                .map(Ok::<_, BlobError>)
                .try_fold(tally, async |mut tally, (row, moved)| match moved {
                    Ok(true) => {
                        Ok(Tally { files: tally.files + 1, bytes: tally.bytes + row.byte_size.unsigned_abs(), ..tally })
                    }
                    Ok(false) => Ok(tally),
                    Err(error @ (BlobError::Missing { .. } | BlobError::Damaged { .. } | BlobError::Short { .. })) => {
                        crate::cli::output::tell!("svc: {}", one_line(&error.to_string(), 400));
                        tally.failed.insert(row.document_id);
                        Ok(tally)
                    }
                    Err(error) => Err(error),
                })
                .await?;
        }
        tally.left = self.left(tally.failed.len() as u64).await?;
        Ok(tally)
    }

    /// The next files that have their bytes in the old place.
    async fn page(&self, after: DocumentId) -> sqlx::Result<Vec<BlobRow>> {
        let is_outside = self.to == To::Database;
        store::blobs::by_place(&mut *self.pool.acquire().await?, is_outside, after, PAGE).await
    }

    /// How many files have their bytes in the old place still, besides those that failed. Some may have come behind the last one that was
    /// looked up, and whoever deletes the old place has to know of these too.
    async fn left(&self, failed: u64) -> sqlx::Result<u64> {
        let (inside, outside) = store::blobs::count_places(&mut *self.pool.acquire().await?).await?;
        let stay = match self.to {
            To::Object => inside,
            To::Database => outside,
        };
        Ok(stay.unsigned_abs().saturating_sub(failed))
    }

    /// Moves the bytes of a file; false if it is gone, or if somebody else has moved them.
    async fn moved(&self, row: &BlobRow) -> Result<bool, BlobError> {
        let spooled = match self.spool.spooled(&self.pool, row).await {
            Err(_) if self.is_elsewhere(row).await? => return Ok(false),
            Err(SpoolError::Stored(error)) => return Err(error),
            Err(SpoolError::File { source, .. }) => return Err(BlobError::File(source)),
            Ok(spooled) => spooled,
        };
        match self.to {
            To::Object => self.to_object(row, &spooled).await,
            To::Database => self.to_database(row, &spooled).await,
        }
    }

    async fn is_elsewhere(&self, row: &BlobRow) -> sqlx::Result<bool> {
        let now = store::blobs::place_of(&mut *self.pool.acquire().await?, row.document_id).await?;
        Ok(now.as_ref() != Some(&row.place))
    }

    async fn to_object(&self, row: &BlobRow, spooled: &Spooled) -> Result<bool, BlobError> {
        let ahead = self.blobs.put(&self.pool, || reopen(&spooled.file), spooled.byte_size).await?;
        let mut tx = store::transaction::begin(&self.pool).await?;
        let place = ahead.place(&mut tx, || reopen(&spooled.file)).await?;
        if !replace(&mut tx, row, &place).await? {
            return Ok(false);
        }
        ahead.keep();
        tx.commit().await?;
        Ok(true)
    }

    async fn to_database(&self, row: &BlobRow, spooled: &Spooled) -> Result<bool, BlobError> {
        let source = reopen(&spooled.file).map_err(BlobError::File)?;
        let mut tx = store::transaction::begin(&self.pool).await?;
        let place = to_large_object(&mut tx, source).await?;
        if !replace(&mut tx, row, &place).await? {
            return Ok(false);
        }
        tx.commit().await?;
        Ok(true)
    }
}

async fn replace(tx: &mut Transaction, row: &BlobRow, new: &BlobPlace) -> sqlx::Result<bool> {
    match places::find_for_operator(tx, row.document_id).await? {
        Some(file) => store::blobs::replace(tx, &file, &row.place, new).await,
        None => Ok(false),
    }
}
