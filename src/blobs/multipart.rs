//! Large objects on their way out: in parts, a few at a time, so that memory does not grow with the file.
use super::{BlobError, Outside, PART, read_full};
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, path::Path};
use std::{
    io::{self, Read},
    sync::Arc,
};
use tokio::task::JoinSet;

/// How many parts of an object are on their way at a time.
const AT_ONCE: usize = 4;

/// An upload that is not complete. Dropped, it is aborted, so that its parts take no room; what a kill leaves is for the rule of the bucket
/// that docs/operations.md names.
struct Unfinished(Option<Box<dyn MultipartUpload>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(mut upload) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                // What the server said may quote a secret, so it is not told.
                if upload.abort().await.is_err() {
                    tracing::debug!("an upload to the object store could not be aborted");
                }
            });
        }
    }
}

impl Outside {
    pub(super) async fn put_in_parts(
        &self,
        client: &Arc<dyn ObjectStore>,
        path: &Path,
        mut source: impl Read + Send + 'static,
        byte_size: u64,
    ) -> Result<(), BlobError> {
        let upload = client.put_multipart(path).await.map_err(|error| self.failed(error))?;
        let mut upload = Unfinished(Some(upload));
        let mut under_way = JoinSet::new();
        let mut left = byte_size;
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(PART).min(PART);
            let room = self.room(length).await;
            let (back, part) = read_full(source, length).await.map_err(BlobError::File)?;
            if part.len() != length {
                return Err(BlobError::File(io::ErrorKind::UnexpectedEof.into()));
            }
            source = back;
            left -= length as u64;
            if let Some(upload) = &mut upload.0 {
                let sending = upload.put_part(part.into());
                under_way.spawn(async move {
                    let sent = sending.await;
                    drop(room);
                    sent
                });
            }
            if under_way.len() >= AT_ONCE {
                self.one_sent(&mut under_way).await?;
            }
        }
        while !under_way.is_empty() {
            self.one_sent(&mut under_way).await?;
        }
        if let Some(finished) = &mut upload.0 {
            finished.complete().await.map_err(|error| self.failed(error))?;
        }
        upload.0 = None;
        Ok(())
    }

    /// Waits for a part.
    async fn one_sent(&self, under_way: &mut JoinSet<object_store::Result<()>>) -> Result<(), BlobError> {
        match under_way.join_next().await {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(self.failed(error)),
            Some(Err(error)) => Err(BlobError::File(io::Error::other(error))),
        }
    }
}
