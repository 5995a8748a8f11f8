//! Stored files on this process's disk, so that the tasks of a file do not each copy it out of the database or the object store.
//!
//! A file is known by the hash of its bytes, so anyone who may read a document may use its entry. The files have no names: they
//! are gone with the process, and a deleted document's bytes leave the disk soon after [`IDLE`] without use.
use super::{Spool, Spooled, nameless, reopen};
use crate::{
    blobs::{BlobError, Blobs},
    error::IntoFailure,
    reader::Reader,
    store::blobs::BlobRow,
    telemetry::{SPOOL_BYTES, SPOOL_COPIES},
};
use lru::LruCache;
use rustix::process::{Resource, getrlimit};
use sqlx::PgPool;
use std::{
    fs::File,
    io::{self, BufWriter, Seek},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use svc_client::Failure;
use svc_formats::{
    FormatError, Limits,
    isolated::{Answer, Input, Request, Step},
    xlsx::write_shared_strings,
};
use svc_ids::DocumentId;
use tokio::{sync::OnceCell, time::Instant};

/// How long a file is kept after its last use.
pub const IDLE: Duration = Duration::from_secs(600);
/// The most files that are kept; each holds a descriptor, and a workbook two.
const MOST_FILES: usize = 4_096;
/// What part of the descriptors that the process may open the files may hold.
const OF_DESCRIPTORS: usize = 4;
/// The size from which a workbook's shared strings are stored. Those of a smaller one are parsed again for each sheet,
/// which takes less time than a process of its own.
const SMALL_WORKBOOK: u64 = 64 << 10;

/// How much of a file is copied at a time.
const PIECE: usize = 8 << 20;

/// The reason why a stored file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error(transparent)]
    Stored(#[from] BlobError),
    #[error("the working file of document {document_id}: {source}")]
    File { document_id: DocumentId, source: io::Error },
}

impl IntoFailure for SpoolError {
    fn into_failure(self) -> Failure {
        match self {
            SpoolError::Stored(error) => error.into_failure(),
            SpoolError::File { source, .. } => source.into_failure(),
        }
    }
}

/// The files of one process. Files that nobody uses are dropped by age, or when other files need their room.
pub struct SpoolCache {
    blobs: Arc<Blobs>,
    folder: PathBuf,
    max_bytes: u64,
    max_files: usize,
    kept: Mutex<Kept>,
}

struct Kept {
    /// The files, by the hash of their bytes.
    slots: LruCache<String, Slot>,
    bytes: u64,
}

struct Slot {
    file: Arc<OnceCell<Arc<StoredFile>>>,
    bytes: u64,
    used: Instant,
}

/// A stored file on this disk; it stays there while this value is held.
pub struct StoredFile {
    document_id: DocumentId,
    content_hash: String,
    byte_size: u64,
    file: File,
    /// Whether later tasks will find the file here.
    is_kept: bool,
    shared_strings: OnceCell<Option<File>>,
}

impl SpoolCache {
    /// An empty cache in the service's data folder. It keeps at most `max_bytes` besides the files in use, and no more files than
    /// leave the process most of its descriptors.
    pub fn new(blobs: Arc<Blobs>, data_folder: &Path, max_bytes: u64) -> Arc<SpoolCache> {
        SpoolCache::of_files(blobs, data_folder, max_bytes, max_files())
    }

    fn of_files(blobs: Arc<Blobs>, data_folder: &Path, max_bytes: u64, max_files: usize) -> Arc<SpoolCache> {
        let kept = Mutex::new(Kept { slots: LruCache::unbounded(), bytes: 0 });
        let cache = Arc::new(SpoolCache { blobs, folder: data_folder.join("spool"), max_bytes, max_files, kept });
        let weak = Arc::downgrade(&cache);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(IDLE / 10);
            loop {
                tick.tick().await;
                match weak.upgrade() {
                    Some(cache) => cache.kept().drop_idle(),
                    None => return,
                }
            }
        });
        cache
    }

    /// The folder of working files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps the file of an upload for its tasks.
    pub fn keep(&self, document_id: DocumentId, spooled: Spooled) {
        let Spooled { file, byte_size, content_hash } = spooled;
        let Some(slot) = self.slot(&content_hash, byte_size) else { return };
        let file =
            StoredFile { document_id, content_hash, byte_size, file, is_kept: true, shared_strings: OnceCell::new() };
        // If another upload of the same bytes came first, its file is as good.
        let _ = slot.set(Arc::new(file));
    }

    /// The bytes of a document. Callers that ask for the same bytes at once wait for one copy; a connection is taken only to
    /// copy.
    ///
    /// # Errors
    /// Fails if the database, the object store or the disk fails, or if the bytes are not those that were stored.
    pub async fn open(&self, pool: &PgPool, blob: &BlobRow) -> Result<Arc<StoredFile>, SpoolError> {
        let bytes = u64::try_from(blob.byte_size).unwrap_or_default();
        let Some(slot) = self.slot(&blob.content_hash, bytes) else { return self.copy(pool, blob, false).await };
        let file = slot.get_or_try_init(|| self.copy(pool, blob, true)).await.cloned();
        if file.is_err() {
            self.kept().forget(&blob.content_hash, &slot);
        }
        file
    }

    async fn copy(&self, pool: &PgPool, blob: &BlobRow, is_kept: bool) -> Result<Arc<StoredFile>, SpoolError> {
        metrics::counter!(SPOOL_COPIES).increment(1);
        let spooled = self.spooled(pool, blob).await;
        if matches!(&spooled, Err(SpoolError::File { source, .. }) if crate::error::disk_is_full(source)) {
            // Dropping the files that nobody uses makes room for the next attempt.
            self.kept().make_room(0, 0);
        }
        let Spooled { file, byte_size, content_hash } = spooled?;
        let document_id = blob.document_id;
        Ok(Arc::new(StoredFile {
            document_id,
            content_hash,
            byte_size,
            file,
            is_kept,
            shared_strings: OnceCell::new(),
        }))
    }

    /// Copies stored bytes to a file without a name. The last piece only comes if their hash is right.
    pub async fn spooled(&self, pool: &PgPool, blob: &BlobRow) -> Result<Spooled, SpoolError> {
        let failed = |source| SpoolError::File { document_id: blob.document_id, source };
        let mut spool = Spool::new(&self.folder).map_err(failed)?;
        let mut reading = self.blobs.read(pool, blob, None, PIECE);
        while let Some(piece) = reading.next().await? {
            let written = tokio::task::spawn_blocking(move || spool.write(&piece).map(|()| spool));
            spool = written.await.map_err(io::Error::other).flatten().map_err(failed)?;
        }
        spool.finish().map_err(failed)
    }

    /// A workbook for one of its sheets: with its shared strings, which the first reading of a sheet writes for the others.
    ///
    /// # Errors
    /// The process has no descriptor left. If the strings cannot be written, the workbook comes without them.
    pub async fn workbook(&self, file: &StoredFile, reader: &Reader, limits: &Limits) -> Result<Input, SpoolError> {
        if !file.is_kept || file.byte_size < SMALL_WORKBOOK {
            return Ok(file.open()?.into());
        }
        let written = file.shared_strings.get_or_init(|| async {
            match self.write_strings(file, reader, limits).await {
                Ok((strings, bytes)) => {
                    self.grow(&file.content_hash, bytes);
                    Some(strings)
                }
                // Each sheet then meets the error itself and reports it as the error of reading its document.
                Err(error) => {
                    tracing::debug!(document.id = file.document_id.0, %error, "the shared strings were not written");
                    None
                }
            }
        });
        written.await;
        file.as_workbook()
    }

    async fn write_strings(
        &self,
        file: &StoredFile,
        reader: &Reader,
        limits: &Limits,
    ) -> Result<(File, u64), FormatError> {
        let input = file.open().map_err(|error| FormatError::Io { reason: error.to_string() })?;
        let mut out = BufWriter::with_capacity(1 << 18, nameless(&self.folder)?);
        let mut reading = reader.stream(input, &Request::new(Step::SharedStrings, limits.clone()))?;
        while let Some(answer) = reading.next().await? {
            let Answer::SharedStrings(texts) = answer else {
                return Err(FormatError::Crashed { reason: "it answered another question".to_owned() });
            };
            let write = move || write_shared_strings(&mut out, &texts).map(|()| out);
            out = tokio::task::spawn_blocking(write).await.map_err(io::Error::other)??;
        }
        let mut strings = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let bytes = strings.stream_position()?;
        Ok((reopen(&strings)?, bytes))
    }

    /// The entry for these bytes; `None` if they are more than the cache may hold.
    fn slot(&self, content_hash: &str, bytes: u64) -> Option<Arc<OnceCell<Arc<StoredFile>>>> {
        let mut kept = self.kept();
        if let Some(slot) = kept.slots.get_mut(content_hash) {
            slot.used = Instant::now();
            return Some(slot.file.clone());
        }
        kept.make_room(self.max_bytes.checked_sub(bytes)?, self.max_files.saturating_sub(1));
        let file = Arc::new(OnceCell::new());
        kept.slots.put(content_hash.to_owned(), Slot { file: file.clone(), bytes, used: Instant::now() });
        kept.count(bytes);
        Some(file)
    }

    /// Counts bytes that were added to a kept file; other files make room for them.
    fn grow(&self, content_hash: &str, bytes: u64) {
        let mut kept = self.kept();
        let Some(slot) = kept.slots.get_mut(content_hash) else { return };
        slot.bytes += bytes;
        kept.count(bytes);
        kept.make_room(self.max_bytes, self.max_files);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many files may be kept. More descriptors may be allowed later, and fewer are not.
fn max_files() -> usize {
    let allowed =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    (allowed / OF_DESCRIPTORS).clamp(1, MOST_FILES)
}

impl Kept {
    /// Drops the least recently used files until at most `bytes` and `files` are left.
    fn make_room(&mut self, bytes: u64, files: usize) {
        while (self.bytes > bytes || self.slots.len() > files)
            && let Some((_, slot)) = self.slots.pop_lru()
        {
            self.uncount(slot.bytes);
        }
    }

    fn drop_idle(&mut self) {
        while self.slots.peek_lru().is_some_and(|(_, slot)| slot.used.elapsed() >= IDLE)
            && let Some((_, slot)) = self.slots.pop_lru()
        {
            self.uncount(slot.bytes);
        }
    }

    /// Removes an entry whose copy failed, unless another caller has filled it.
    fn forget(&mut self, content_hash: &str, file: &Arc<OnceCell<Arc<StoredFile>>>) {
        let is_it = |slot: &Slot| Arc::ptr_eq(&slot.file, file) && !file.initialized();
        if self.slots.peek(content_hash).is_some_and(is_it)
            && let Some(slot) = self.slots.pop(content_hash)
        {
            self.uncount(slot.bytes);
        }
    }

    fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.show();
    }

    fn uncount(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.show();
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    fn show(&self) {
        metrics::gauge!(SPOOL_BYTES).set(self.bytes as f64);
    }
}

impl StoredFile {
    /// The file, for reading, with a position of its own.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn open(&self) -> Result<File, SpoolError> {
        reopen(&self.file).map_err(|error| self.failed(error))
    }

    /// The file, and its shared strings if they have been written.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn as_workbook(&self) -> Result<Input, SpoolError> {
        let written = self.shared_strings.get().and_then(Option::as_ref);
        let shared_strings = written.map(reopen).transpose().map_err(|error| self.failed(error))?;
        Ok(Input { file: self.open()?, shared_strings })
    }

    fn failed(&self, source: io::Error) -> SpoolError {
        SpoolError::File { document_id: self.document_id, source }
    }
}

#[cfg(test)]
mod tests;
