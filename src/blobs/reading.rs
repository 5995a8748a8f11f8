//! Stored bytes on their way in, piece by piece.
use super::{BlobError, Blobs, Outside};
use crate::store::{
    self,
    away::sql_state,
    blobs::{BlobPlace, BlobRow},
};
use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use std::{ops::Range, sync::Arc};
use svc_ids::DocumentId;

/// The bytes of a file, or of a part of it. Between two pieces nothing is held, neither a connection nor a request, so that a reader may be
/// as slow as it likes; after an error it may ask for the same piece again.
pub struct Reading {
    blobs: Arc<Blobs>,
    pool: PgPool,
    document_id: DocumentId,
    place: BlobPlace,
    byte_size: u64,
    left: Range<u64>,
    /// The most bytes of a piece.
    piece: u64,
    /// What was read of a whole file, and what it must hash to.
    check: Option<(Sha256, String)>,
}

impl Blobs {
    /// Reads the bytes of a file in pieces of at most `piece` bytes: all of them, or a part. If all are read, the last piece only comes once
    /// the hash of the whole is right. A part cannot be checked, because only the hash of the whole is known.
    pub fn read(self: &Arc<Self>, pool: &PgPool, blob: &BlobRow, part: Option<Range<u64>>, piece: usize) -> Reading {
        let byte_size = blob.byte_size.unsigned_abs();
        let whole = 0..byte_size;
        let left = part.unwrap_or(whole.clone());
        Reading {
            blobs: self.clone(),
            pool: pool.clone(),
            document_id: blob.document_id,
            place: blob.place.clone(),
            byte_size,
            check: (left == whole).then(|| (Sha256::new(), blob.content_hash.clone())),
            left,
            piece: piece as u64,
        }
    }
}

impl Reading {
    /// The next piece; `None` after the last one.
    ///
    /// # Errors
    /// The bytes are away, missing or not those that were stored.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let end = self.left.end.min(self.left.start.saturating_add(self.piece));
        let range = self.left.start..end;
        let piece = match self.piece(range.clone()).await {
            Err(BlobError::Missing { .. }) if self.was_moved().await? => self.piece(range).await?,
            read => read?,
        };
        let next = self.left.start + piece.len() as u64;
        if let Some((hasher, expected)) = &mut self.check {
            hasher.update(&piece);
            if next == self.left.end {
                let found = format!("sha256:{}", hex::encode(hasher.clone().finalize()));
                if found != *expected {
                    return Err(BlobError::Damaged {
                        document_id: self.document_id,
                        expected: expected.clone(),
                        found,
                    });
                }
            }
        }
        self.left.start = next;
        Ok(Some(piece))
    }

    /// Whether the bytes have another place now, where they are read from then on.
    async fn was_moved(&mut self) -> Result<bool, BlobError> {
        let now = store::blobs::place_of(&mut *self.pool.acquire().await?, self.document_id).await?;
        match now {
            Some(place) if place != self.place => {
                self.place = place;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn piece(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        let mut wanted = range.end - range.start;
        let piece = match &self.place {
            BlobPlace::LargeObject(oid) => {
                let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
                wanted = wanted.min(store::blobs::PIECE as u64);
                let length = i32::try_from(wanted).unwrap_or(i32::MAX);
                let mut conn = self.pool.acquire().await?;
                match store::blobs::read_at(&mut conn, *oid, offset, length).await {
                    // There is no such large object.
                    Err(error) if sql_state(&error) == "42704" => return Err(self.missing()),
                    read => Bytes::from(read?),
                }
            }
            BlobPlace::Object(key) => {
                let outside = self.blobs.outside()?;
                self.of_object(outside, &outside.client()?, &Path::from(key.as_str()), range).await?
            }
        };
        // Both kinds of store answer a range that ends beyond the bytes with those that are there.
        if (piece.len() as u64) < wanted { Err(self.short()) } else { Ok(piece) }
    }

    async fn of_object(
        &self,
        outside: &Outside,
        client: &Arc<dyn ObjectStore>,
        path: &Path,
        range: Range<u64>,
    ) -> Result<Bytes, BlobError> {
        match client.get_range(path, range.clone()).await {
            Ok(bytes) => Ok(bytes),
            Err(object_store::Error::NotFound { .. }) => {
                // In another store everything is missing, and then nothing is lost.
                outside.check_mark(client, &self.pool).await?;
                Err(self.missing())
            }
            // Some servers refuse a range that ends beyond the object, each by another error.
            Err(error) => match client.head(path).await {
                Ok(found) if found.size < range.end => Err(self.short()),
                _ => Err(outside.failed(error)),
            },
        }
    }

    fn missing(&self) -> BlobError {
        BlobError::Missing { document_id: self.document_id, place: self.place.clone() }
    }

    fn short(&self) -> BlobError {
        BlobError::Short { document_id: self.document_id, expected: self.byte_size }
    }
}
