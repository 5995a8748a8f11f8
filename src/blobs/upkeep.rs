//! What the object store holds beside what files need: garbage, which goes after a while, and orphans, which become garbage.
use super::{BlobError, Blobs, Outside, is_ours, shards};
use crate::{
    settings::BlobStore,
    store::{
        self,
        blobs::{BlobPlace, BlobRow},
    },
};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use sqlx::PgPool;
use std::{
    collections::HashMap,
    fs, io, path,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// How many objects are deleted, or asked for in the database, at once.
const CHUNK: usize = 1_000;
/// How many single requests are under way at a time.
const AT_ONCE: usize = 8;
/// How long an object that the store did not delete lets the others go before it.
const PUT_OFF: Duration = Duration::from_secs(3_600);
/// After so many objects that the store did not delete, those that are left are not tried: it is away.
const MOST_REFUSED: usize = 100;
/// A younger object may be on its way: its row comes with the transaction that follows the put.
const ON_ITS_WAY: TimeDelta = TimeDelta::days(1);

/// An object of the store.
struct Found {
    byte_size: u64,
    modified_at: DateTime<Utc>,
}

/// What became of objects that were to be deleted.
#[derive(Default)]
struct Deleted {
    /// The keys of those that are not there any more.
    gone: Vec<String>,
    /// The keys of those that the store did not delete.
    refused: Vec<String>,
    /// Why it did not delete the first of these.
    error: Option<BlobError>,
}

/// What is wrong with an object or with the bytes of a file.
#[derive(Debug)]
pub enum Finding {
    /// A file's bytes are missing, damaged or cannot be read.
    Lost(BlobError),
    /// An object that no file and no garbage names.
    Orphan { key: String, byte_size: u64 },
}

/// What a look at all stored bytes came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub files: u64,
    pub bytes: u64,
    pub lost: u64,
    pub orphans: u64,
}

impl Blobs {
    /// Deletes objects that have been garbage for longer than they are kept; returns how many. It ends after a thousand of them, so that
    /// whoever calls it can do something else in between.
    ///
    /// # Errors
    /// The store is away, or did not delete one of them. The others are gone all the same, and that one is tried again later.
    pub async fn remove_garbage(&self, pool: &PgPool) -> Result<usize, BlobError> {
        let Some(outside) = &self.outside else { return Ok(0) };
        let kept = Duration::try_from_secs_f64(outside.settings.blob_keep_days * 86_400.0).unwrap_or(Duration::MAX);
        let keys = store::blobs::garbage(&mut *pool.acquire().await?, kept, CHUNK as i64).await?;
        if keys.is_empty() {
            return Ok(0);
        }
        let client = outside.opened(pool).await?;
        let Deleted { gone, refused, error } = outside.delete(&client, keys).await;
        store::blobs::forget_garbage(&mut *pool.acquire().await?, &gone).await?;
        match error {
            Some(error) => {
                store::blobs::put_off_garbage(&mut *pool.acquire().await?, &refused, kept, PUT_OFF).await?;
                Err(error)
            }
            None => Ok(gone.len()),
        }
    }

    /// Notes objects older than a day that nothing names as garbage; returns how many.
    pub async fn sweep(&self, pool: &PgPool) -> Result<u64, BlobError> {
        let Some(outside) = &self.outside else { return Ok(0) };
        let client = outside.opened(pool).await?;
        let mut noted = 0;
        for shard in shards() {
            let found = outside.list(&client, &shard).await?;
            let keys: Vec<String> =
                found.into_iter().filter(|(_, object)| is_old(object)).map(|(key, _)| key).collect();
            for keys in keys.chunks(CHUNK) {
                noted += store::blobs::note_orphans(&mut *pool.acquire().await?, keys).await?;
            }
        }
        if let BlobStore::Folder(folder) = outside.store.clone() {
            let removed = tokio::task::spawn_blocking(move || remove_unfinished(&folder)).await;
            removed.map_err(io::Error::other).flatten().map_err(BlobError::File)?;
        }
        Ok(noted)
    }

    /// Holds the object store against the database, both ways: which bytes are missing or have another size, and which objects nothing
    /// names. With `reads`, all bytes are read and their hashes compared, also of those in the database.
    pub async fn verify(
        self: &Arc<Self>,
        pool: &PgPool,
        reads: bool,
        mut tell: impl FnMut(&Finding),
    ) -> Result<Verified, BlobError> {
        let mut verified = Verified::default();
        let mut note = |verified: &mut Verified, finding: Finding| {
            match &finding {
                Finding::Lost(_) => verified.lost += 1,
                Finding::Orphan { .. } => verified.orphans += 1,
            }
            tell(&finding);
        };
        if let Some(outside) = &self.outside {
            let client = outside.opened(pool).await?;
            for shard in shards() {
                // First the objects and then the rows: what comes and goes in between is asked for once more.
                let mut found = outside.list(&client, &shard).await?;
                let rows = store::blobs::with_keys(&mut *pool.acquire().await?, &format!("{shard}/")).await?;
                for row in rows {
                    let BlobPlace::Object(key) = &row.place else { continue };
                    verified.files += 1;
                    verified.bytes += row.byte_size.unsigned_abs();
                    let is_whole =
                        found.remove(key).is_some_and(|found| found.byte_size == row.byte_size.unsigned_abs());
                    // It may have been deleted or moved meanwhile; the next reading tells.
                    if (!is_whole || reads)
                        && let Err(error) = self.check(pool, &row, !is_whole).await
                    {
                        note(&mut verified, Finding::Lost(given_up(error)?));
                    }
                }
                let old: Vec<String> =
                    found.iter().filter(|(_, object)| is_old(object)).map(|(key, _)| key.clone()).collect();
                for keys in old.chunks(CHUNK) {
                    for key in store::blobs::unknown_keys(&mut *pool.acquire().await?, keys).await? {
                        // What was garbage may have been removed meanwhile.
                        if let Ok(there) = client.head(&Path::from(key.as_str())).await {
                            note(&mut verified, Finding::Orphan { key, byte_size: there.size });
                        }
                    }
                }
            }
        } else if store::blobs::has_objects(&mut *pool.acquire().await?).await? {
            return Err(BlobError::NotConfigured);
        }
        if !reads {
            return Ok(verified);
        }
        let mut after = svc_ids::DocumentId(0);
        loop {
            let rows = store::blobs::by_place(&mut *pool.acquire().await?, false, after, CHUNK as i64).await?;
            let Some(last) = rows.last() else { return Ok(verified) };
            after = last.document_id;
            for row in rows {
                verified.files += 1;
                verified.bytes += row.byte_size.unsigned_abs();
                if let Err(error) = self.check(pool, &row, false).await {
                    note(&mut verified, Finding::Lost(given_up(error)?));
                }
            }
        }
    }

    /// Reads the bytes of a file, unless the file is gone meanwhile. One that `is_suspect` had another size in a list of the store.
    async fn check(self: &Arc<Self>, pool: &PgPool, row: &BlobRow, is_suspect: bool) -> Result<(), BlobError> {
        let mut reading = self.read(pool, row, None, super::PART);
        let read = loop {
            match reading.next().await {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if read.is_err() && store::blobs::place_of(&mut *pool.acquire().await?, row.document_id).await?.is_none() {
            return Ok(());
        }
        read?;
        // All that was stored is there, and more behind it: nobody reads that, but this is not the object that was put.
        if is_suspect
            && let (Some(outside), BlobPlace::Object(key)) = (&self.outside, &row.place)
            && let Ok(found) = outside.client()?.head(&Path::from(key.as_str())).await
            && found.size != row.byte_size.unsigned_abs()
        {
            return Err(BlobError::Damaged {
                document_id: row.document_id,
                expected: row.content_hash.clone(),
                found: format!("something of {} bytes", found.size),
            });
        }
        Ok(())
    }
}

/// The error of one file, or the end of the whole look if it is not about that file.
fn given_up(error: BlobError) -> Result<BlobError, BlobError> {
    match error {
        lost @ (BlobError::Missing { .. } | BlobError::Damaged { .. } | BlobError::Short { .. }) => Ok(lost),
        other => Err(other),
    }
}

fn is_old(object: &Found) -> bool {
    Utc::now() - object.modified_at >= ON_ITS_WAY
}

impl Outside {
    /// The objects of a shard that are ours.
    async fn list(&self, client: &Arc<dyn ObjectStore>, shard: &str) -> Result<HashMap<String, Found>, BlobError> {
        let listed = client.list(Some(&Path::from(shard))).try_filter_map(|object| async move {
            let found = Found { byte_size: object.size, modified_at: object.last_modified };
            let key = object.location.to_string();
            Ok(is_ours(&key).then_some((key, found)))
        });
        listed.try_collect().await.map_err(|error| self.failed(error))
    }

    /// Deletes objects; those that are gone already are no error.
    async fn delete(&self, client: &Arc<dyn ObjectStore>, keys: Vec<String>) -> Deleted {
        let paths: Vec<_> = keys.iter().map(|key| Ok(Path::from(key.as_str()))).collect();
        let answers: Vec<_> = client.delete_stream(stream::iter(paths).boxed()).collect().await;
        if answers.iter().all(Result::is_ok) {
            return Deleted { gone: keys, ..Deleted::default() };
        }
        // Many in one request: which of them failed is not known by every server.
        let singly = stream::iter(keys).map(|key| async move {
            let answer = client.delete(&Path::from(key.as_str())).await;
            (key, answer)
        });
        let mut answers = pin!(singly.buffer_unordered(AT_ONCE));
        let mut deleted = Deleted::default();
        while deleted.refused.len() < MOST_REFUSED
            && let Some((key, answer)) = answers.next().await
        {
            match answer {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => deleted.gone.push(key),
                Err(error) => {
                    if deleted.error.is_none() {
                        deleted.error = Some(self.not_deleted(&key, error));
                    }
                    deleted.refused.push(key);
                }
            }
        }
        deleted
    }

    /// What it means that an object was not deleted. What a store answers does not always say which one it was.
    fn not_deleted(&self, key: &str, error: object_store::Error) -> BlobError {
        match self.failed(error) {
            BlobError::Away { reason } => {
                BlobError::Away { reason: format!("it did not delete the object {key}: {reason}") }
            }
            other => other,
        }
    }
}

/// Removes files of a folder whose writing was broken off by a kill longer than a day ago.
fn remove_unfinished(folder: &path::Path) -> io::Result<()> {
    let day = ON_ITS_WAY.to_std().unwrap_or_default();
    for shard in shards() {
        let entries = match fs::read_dir(folder.join(shard)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            // The library writes to a key, this sign and a number, and renames the whole file.
            let is_unfinished = name.to_string_lossy().split_once('#').is_some_and(|(key, _)| key.len() == 32);
            let age =
                entry.metadata().and_then(|found| found.modified()).map(|at| SystemTime::now().duration_since(at));
            if is_unfinished && matches!(age, Ok(Ok(age)) if age > day) {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}
