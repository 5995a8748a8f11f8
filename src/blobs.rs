//! Stored bytes, wherever they are: in large objects of the database, or in the object store that SVC_BLOB_STORE names. Both kinds are
//! readable for ever; new bytes go where the settings say.
//!
//! An object is put before the transaction that names it begins, and deleted only days after no row names it any more. So a row never
//! lacks its object, whatever is killed; what a lost transaction leaves is an orphan, which the weekly sweep finds.
mod client;
mod error;
mod multipart;
mod reading;
pub mod upkeep;

use crate::{
    settings::{BlobStore, STORE_SECRETS, Settings},
    store::{self, blobs::BlobPlace},
};
use bytes::Bytes;
pub use error::BlobError;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, path::Path};
pub use reading::Reading;
use sqlx::{PgConnection, PgPool};
use std::{
    io::{self, Read},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Semaphore;
use uuid::Uuid;

/// The object by which a store and its database know each other.
const MARK: &str = "svc-blob-store";
/// A larger mark is not ours.
const MARK_BYTES: u64 = 64;
/// The size of a part of an object; a smaller object has one.
const PART: usize = 8 << 20;
/// How many bytes of objects are in memory on their way to the store at a time, for the whole process.
const ROOM: usize = 4 * PART;
/// Memory is counted in units of this size.
const UNIT: usize = 64 << 10;

/// The stored bytes of one service; by default all of them are in its database.
#[derive(Default)]
pub struct Blobs {
    outside: Option<Outside>,
}

/// The object store.
struct Outside {
    settings: Arc<Settings>,
    store: BlobStore,
    client: OnceLock<Arc<dyn ObjectStore>>,
    id: OnceLock<Uuid>,
    is_known: AtomicBool,
    room: Arc<Semaphore>,
}

impl Blobs {
    /// The bytes of a service with these settings. Nothing is asked of the object store before it is needed.
    pub fn new(settings: &Arc<Settings>) -> Blobs {
        let outside = settings.blob_store.clone().map(|store| Outside {
            settings: settings.clone(),
            store,
            client: OnceLock::new(),
            id: OnceLock::new(),
            is_known: AtomicBool::new(false),
            room: Arc::new(Semaphore::new(ROOM / UNIT)),
        });
        Blobs { outside }
    }

    /// Whether new bytes go to an object store.
    pub fn are_outside(&self) -> bool {
        self.outside.is_some()
    }

    fn outside(&self) -> Result<&Outside, BlobError> {
        self.outside.as_ref().ok_or(BlobError::NotConfigured)
    }

    /// Puts bytes into the object store, if there is one. No transaction may be open meanwhile.
    ///
    /// # Errors
    /// The store is away, or the bytes cannot be read.
    pub async fn put<R: Read + Send + 'static>(
        &self,
        pool: &PgPool,
        source: impl FnOnce() -> io::Result<R>,
        byte_size: u64,
    ) -> Result<Ahead, BlobError> {
        let Some(outside) = &self.outside else { return Ok(Ahead::default()) };
        let client = outside.opened(pool).await?;
        // A put that is broken off may have had its effect, so the key is given up with this value from here on.
        let ahead = Ahead { object: Some((new_key(), client.clone())) };
        if let Some((key, _)) = &ahead.object {
            outside.put(&client, &Path::from(key.as_str()), source().map_err(BlobError::File)?, byte_size).await?;
        }
        Ok(ahead)
    }

    /// How the object store is, in words for people; `None` if neither the settings nor any file names one.
    pub async fn state(&self, pool: &PgPool) -> Option<Result<String, BlobError>> {
        let Some(outside) = &self.outside else {
            let has_objects = async { store::blobs::has_objects(&mut *pool.acquire().await?).await };
            return match has_objects.await {
                Ok(true) => Some(Err(BlobError::NotConfigured)),
                // Without the database the store's state is the least of the problems, and another check tells of it.
                Ok(false) | Err(_) => None,
            };
        };
        let asked = async {
            outside.check_mark(&outside.client()?, pool).await?;
            Ok("answers".to_owned())
        };
        Some(asked.await)
    }
}

impl Outside {
    fn client(&self) -> Result<Arc<dyn ObjectStore>, BlobError> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = client::open(&self.settings, &self.store).map_err(|error| self.failed(error))?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    /// The store, once it is known to be this database's.
    async fn opened(&self, pool: &PgPool) -> Result<Arc<dyn ObjectStore>, BlobError> {
        let client = self.client()?;
        // Where no disk is mounted any more there is a folder too, and it is empty.
        let may_change = matches!(self.store, BlobStore::Folder(_));
        if may_change || !self.is_known.load(Ordering::Relaxed) {
            self.check_mark(&client, pool).await?;
            self.is_known.store(true, Ordering::Relaxed);
        }
        Ok(client)
    }

    /// Checks that the store has this database's mark. One that no file needs yet gets it.
    async fn check_mark(&self, client: &Arc<dyn ObjectStore>, pool: &PgPool) -> Result<(), BlobError> {
        let id = match self.id.get() {
            Some(id) => *id,
            None => {
                let id = store::blobs::store_id(&mut *pool.acquire().await?).await?;
                *self.id.get_or_init(|| id)
            }
        };
        let mut mark = self.mark(client).await?;
        if mark.is_none() {
            if store::blobs::has_objects(&mut *pool.acquire().await?).await? {
                let reason = format!(
                    "{} has no object `{MARK}`, so it is not the one with this database's bytes: name that one, or mount its disk; a \
                     whole copy of it has the mark too, which is the text {id}",
                    self.store
                );
                return Err(BlobError::Away { reason });
            }
            let options = PutMode::Create.into();
            match client.put_opts(&Path::from(MARK), id.to_string().into(), options).await {
                Ok(_) => return Ok(()),
                // Another process was faster.
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
                Err(error) => return Err(self.failed(error)),
            }
            mark = self.mark(client).await?;
        }
        if mark.as_deref() == Some(id.to_string().as_str()) {
            return Ok(());
        }
        let reason = format!(
            "{} belongs to another database: each needs a bucket, a prefix or a folder of its own, because it deletes objects that it does \
             not know",
            self.store
        );
        Err(BlobError::Away { reason })
    }

    async fn mark(&self, client: &Arc<dyn ObjectStore>) -> Result<Option<String>, BlobError> {
        let found = match client.get(&Path::from(MARK)).await {
            Ok(found) if found.meta.size <= MARK_BYTES => found.bytes().await,
            Ok(_) => return Ok(Some(String::new())),
            Err(error) => Err(error),
        };
        match found {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn put(
        &self,
        client: &Arc<dyn ObjectStore>,
        path: &Path,
        source: impl Read + Send + 'static,
        byte_size: u64,
    ) -> Result<(), BlobError> {
        if byte_size > PART as u64 {
            return self.put_in_parts(client, path, source, byte_size).await;
        }
        let length = usize::try_from(byte_size).unwrap_or(PART);
        let _room = self.room(length).await;
        let (_, bytes) = read_full(source, length).await.map_err(BlobError::File)?;
        if bytes.len() != length {
            return Err(BlobError::File(io::ErrorKind::UnexpectedEof.into()));
        }
        client.put(path, bytes.into()).await.map(|_| ()).map_err(|error| self.failed(error))
    }

    /// Waits until these bytes may be in memory.
    async fn room(&self, bytes: usize) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX);
        // Nobody closes the semaphore.
        self.room.clone().acquire_many_owned(units).await.ok()
    }

    /// What an error of the store means. The answers of some servers quote the token that they refuse, so secrets are taken out.
    fn failed(&self, error: object_store::Error) -> BlobError {
        let settings = &self.settings;
        let of_stores = STORE_SECRETS.iter().filter_map(|name| settings.of_stores.get(*name));
        let secrets = of_stores.chain([&settings.blob_secret_access_key]).filter(|secret| !secret.is_blank());
        error::failed(error, secrets)
    }
}

/// An object that was put before the transaction whose row will name it, or nothing if bytes stay in the database. Dropped before it is
/// kept, it is deleted again.
#[derive(Default)]
pub struct Ahead {
    object: Option<(String, Arc<dyn ObjectStore>)>,
}

impl Ahead {
    /// The place for a row: the object, or a new large object of the transaction with the bytes of `source`.
    pub async fn place<R: Read + Send + 'static>(
        &self,
        conn: &mut PgConnection,
        source: impl FnOnce() -> io::Result<R>,
    ) -> sqlx::Result<BlobPlace> {
        match &self.object {
            Some((key, _)) => Ok(BlobPlace::Object(key.clone())),
            None => to_large_object(conn, source().map_err(sqlx::Error::Io)?).await,
        }
    }

    /// From here on the object stays: the commit that comes now makes a row name it, even if its answer is lost.
    pub fn keep(mut self) {
        self.object = None;
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // If this fails, or there is no runtime any more, the sweep finds the object.
        if let Some((key, client)) = self.object.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                // What the server said may quote a secret, so it is not told.
                if client.delete(&Path::from(key)).await.is_err() {
                    tracing::debug!("an object that no row names could not be deleted; the sweep will");
                }
            });
        }
    }
}

/// A key that says nothing of the bytes: who knows a text must not learn from the store whether somebody else has it. Its first two
/// digits make folders of a bearable size.
fn new_key() -> String {
    let random = Uuid::new_v4().simple().to_string();
    format!("{}/{random}", &random[..2])
}

/// Whether a key is of the form that this service gives. Others are not its own, and stay.
fn is_ours(key: &str) -> bool {
    let is_hex = |text: &str| text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    key.split_once('/').is_some_and(|(shard, name)| name.len() == 32 && is_hex(name) && shard == &name[..2])
}

/// What keys begin with, one after the other: parts of the store small enough to be compared with the database at once.
fn shards() -> impl Iterator<Item = String> {
    (0..=u8::MAX).map(|shard| format!("{shard:02x}"))
}

/// Copies everything that a source gives into a large object of the transaction.
pub async fn to_large_object(
    conn: &mut PgConnection,
    mut source: impl Read + Send + 'static,
) -> sqlx::Result<BlobPlace> {
    let object = store::blobs::create(conn).await?;
    loop {
        let (back, piece) = read_full(source, store::blobs::PIECE).await.map_err(sqlx::Error::Io)?;
        source = back;
        if piece.is_empty() {
            return object.close(conn).await.map(BlobPlace::LargeObject);
        }
        object.write(conn, &piece).await?;
    }
}

/// Reads `length` bytes on a blocking thread, or as many as there are.
async fn read_full<R: Read + Send + 'static>(mut source: R, length: usize) -> io::Result<(R, Bytes)> {
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::with_capacity(length);
        source.by_ref().take(length as u64).read_to_end(&mut bytes)?;
        Ok((source, Bytes::from(bytes)))
    });
    read.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_and_known_again_and_no_other_object_is_taken_for_ours() {
        let (one, other) = (new_key(), new_key());
        assert_ne!(one, other);
        assert!(is_ours(&one) && is_ours(&other), "{one} {other}");
        assert!(shards().any(|shard| one.starts_with(&format!("{shard}/"))));
        for foreign in [MARK, "", "/", "ab/", "ab/cd", "photo.jpg", "zz/zz23456789abcdef0123456789abcdef"] {
            assert!(!is_ours(foreign), "{foreign}");
        }
        assert!(!is_ours(&one.to_uppercase()) && !is_ours(&format!("x{one}")) && !is_ours(&format!("{one}#1")));
    }
}
