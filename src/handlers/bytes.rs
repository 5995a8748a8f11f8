//! The stored bytes of files.
use crate::{
    access::Caller,
    admission,
    blobs::{BlobError, Reading},
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{self, ingest_nodes::Belongs},
    usetype::Usetype,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sqlx::PgPool;
use std::{ops::Range, time::Duration};
use svc_client::{Call, Code, Download, Failure, Pieces, Validated, ops};
use svc_ids::DocumentId;

/// The media type of bytes that are of no known format.
pub const UNKNOWN: &str = "application/octet-stream";
/// The most bytes of a file that are in memory for a download.
const PIECE: usize = 1 << 20;
/// How many times in a row the database, or the object store, may be unreachable before a download breaks off.
const AWAY: u32 = 15;
/// The pause between two tries while it is unreachable.
const PAUSE: Duration = Duration::from_secs(1);

impl Handle<ops::read_bytes> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_bytes>) -> Result<Validated<Download>, Failure> {
        let id = DocumentId(call.path.id);
        let (row, blob) = {
            let mut conn = self.pool.acquire().await.or_fail()?;
            let row = store::documents::read(&mut conn, &caller.readable(), id, false).await.or_fail()?;
            let row = row.ok_or_else(|| Failure::no_document(id.0))?;
            match store::blobs::of_document(&mut conn, id).await.or_fail()? {
                Some(blob) => (row, blob),
                None => {
                    let belongs = store::ingest_nodes::belongs(&mut conn, id).await.or_fail()?;
                    return Err(no_bytes(id, &row.usetype, belongs));
                }
            }
        };
        let etag = format!("\"{}\"", blob.content_hash);
        if call.meta.knows(&etag) {
            return Ok(Validated::NotModified { etag });
        }
        let size = u64::try_from(blob.byte_size).unwrap_or_default();
        let range = call.meta.range.as_deref().filter(|_| call.meta.may_send_range(&etag));
        let part = match wanted(range, size) {
            Wanted::Whole => None,
            Wanted::Part(part) => Some(part),
            Wanted::Beyond => {
                return Err(Failure::new(Code::RangeNotSatisfiable, format!("the file has {size} bytes"))
                    .with("size", size)
                    .with("remedy", "ask for a range within the file"));
            }
        };
        let place = self.admission.download(caller.principal_id()).await?;
        let reading = self.blobs.read(&self.pool, &blob, part.clone(), PIECE);
        let mut stored = Stored { id, pool: self.pool.clone(), reading };
        // If the first piece cannot be read, the answer is a failure that says why, and not a file that breaks off.
        let first = Box::pin(stored.piece()).await?;
        let media_type = blob.mime_type.unwrap_or_else(|| UNKNOWN.to_owned());
        let value = Download {
            file_name: Some(file_name(row.title, &row.usetype, &media_type)),
            media_type,
            size,
            part,
            bytes: pieces(first, stored, place),
        };
        Ok(Validated::Modified { etag, value })
    }
}

/// The name under which a file is saved. The title of a picture is its caption, which does not say what type it is of.
fn file_name(title: String, usetype: &str, media_type: &str) -> String {
    let ending = match media_type {
        "image/jpeg" => Some("jpg"),
        "image/svg+xml" => Some("svg"),
        other => other.strip_prefix("image/"),
    };
    match ending.filter(|_| usetype == Usetype::Image.as_str()) {
        Some(ending) => format!("{title}.{ending}"),
        None => title,
    }
}

fn no_bytes(id: DocumentId, usetype: &str, belongs: Option<Belongs>) -> Failure {
    // Of what was ingested only an import leaves out bytes. A usetype alone tells nothing, because callers give any to what they create.
    let is_file = |Belongs { root_id, .. }| root_id.document() == id || usetype == Usetype::File.as_str();
    let (why, remedy) = match belongs.is_some_and(is_file) {
        true => (
            "was imported without its bytes, as where another document has them",
            "read its text; once no other document has them, another import of the same archive stores them",
        ),
        false => ("is not a file: it has no stored bytes", "read its text, or ask for the file that contains it"),
    };
    Failure::new(Code::NotFound, format!("document {id} {why}")).with("remedy", remedy)
}

/// The part of a file that a `Range` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part(Range<u64>),
    /// The range contains no byte of the file.
    Beyond,
}

/// Reads a `Range` as RFC 9110 defines it. A range that cannot be read, has another unit or is one of several is
/// answered with the whole file.
fn wanted(range: Option<&str>, size: u64) -> Wanted {
    let spec =
        range.and_then(|range| range.trim().split_once('=')).filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"));
    let Some((first, last)) = spec.and_then(|(_, spec)| spec.trim().split_once('-')).filter(|_| size > 0) else {
        return Wanted::Whole;
    };
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first > last => Wanted::Whole,
        (Some(first), _) if first >= size && (last.is_empty() || number(last).is_some()) => Wanted::Beyond,
        (Some(first), Some(last)) => Wanted::Part(first..last.saturating_add(1).min(size)),
        (Some(first), None) if last.is_empty() => Wanted::Part(first..size),
        (None, Some(0)) if first.is_empty() => Wanted::Beyond,
        (None, Some(suffix)) if first.is_empty() => Wanted::Part(size.saturating_sub(suffix)..size),
        _ => Wanted::Whole,
    }
}

/// Reads digits as a number. A number that is too large for any file becomes the largest.
fn number(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// The stored bytes of a document on their way to a client.
struct Stored {
    id: DocumentId,
    pool: PgPool,
    reading: Reading,
}

impl Stored {
    /// The next piece. Bytes that went with their document are not damaged, so that nobody is told that they are.
    async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        match self.reading.next().await {
            Err(BlobError::Missing { .. } | BlobError::Damaged { .. } | BlobError::Short { .. })
                if self.is_gone().await? =>
            {
                Err(Failure::no_document(self.id.0))
            }
            read => read.or_fail(),
        }
    }

    async fn is_gone(&self) -> Result<bool, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        Ok(store::blobs::of_document(&mut conn, self.id).await.or_fail()?.is_none())
    }
}

/// The bytes of a file, of which the first piece is read, and each further one as the client takes it.
fn pieces(first: Option<Bytes>, stored: Stored, place: admission::Place) -> Pieces {
    stream::try_unfold((first, stored, place), |(first, mut stored, place)| async move {
        let piece = match first {
            Some(first) => Some(first),
            None => next(&mut stored).await?,
        };
        Ok(piece.map(|piece| (piece, (None, stored, place))))
    })
    .boxed()
}

async fn next(stored: &mut Stored) -> Result<Option<Bytes>, Failure> {
    let mut away = 0;
    loop {
        match stored.piece().await {
            Err(failure) if failure.code == Code::Unavailable && away < AWAY => tokio::time::sleep(PAUSE).await,
            read => return read,
        }
        away += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_saved_under_a_name_with_its_type() {
        for (usetype, media_type, name) in [
            ("image", "image/png", "Figure 1.png"),
            ("image", "image/jpeg", "Figure 1.jpg"),
            ("image", "image/svg+xml", "Figure 1.svg"),
            ("image", UNKNOWN, "Figure 1"),
            ("file", "image/png", "Figure 1"),
        ] {
            assert_eq!(file_name("Figure 1".to_owned(), usetype, media_type), name, "{usetype} {media_type}");
        }
    }

    #[test]
    fn a_range_is_read_as_the_standard_says() {
        let read = |text: &str| wanted(Some(text), 1000);
        for (text, part) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-999", 0..1000),
            ("bytes=0-", 0..1000),
            ("Bytes=10-19", 10..20),
            ("bytes= 990-5000", 990..1000),
            ("bytes=990-99999999999999999999999", 990..1000),
            ("bytes=-1", 999..1000),
            ("bytes=-5000", 0..1000),
        ] {
            assert_eq!(read(text), Wanted::Part(part), "{text}");
        }
        for text in ["bytes=1000-", "bytes=1000-1001", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(read(text), Wanted::Beyond, "{text}");
        }
        for text in [
            "bytes=5-4",
            "bytes=0-1,5-6",
            "bytes=0-1, -1",
            "lines=0-1",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=1-b",
            "bytes=1000-b",
            "bytes=+1-2",
            "bytes=--1",
            "",
        ] {
            assert_eq!(read(text), Wanted::Whole, "{text}");
        }
        assert_eq!(wanted(None, 1000), Wanted::Whole);
        for text in ["bytes=0-0", "bytes=-1", "bytes=5-"] {
            assert_eq!(wanted(Some(text), 0), Wanted::Whole, "an empty file has no ranges: {text}");
        }
    }
}
