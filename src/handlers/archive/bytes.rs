//! The stored bytes of files of an archive.
use crate::{
    access::Caller,
    blobs::Ahead,
    error::OrFail,
    ingest::options::Requested,
    registry::Handle,
    service::Service,
    spool::{self, SpooledUpload},
    store::{self, archive, blobs::BlobRow, places::Place, word::Word},
};
use sqlx::PgConnection;
use svc_client::{Call, Code, Failure, ops, wire::ImportedBytes};
use svc_formats::Format;
use svc_ids::DocumentId;

impl Handle<ops::import_bytes> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::import_bytes, SpooledUpload>,
    ) -> Result<ImportedBytes, Failure> {
        let (id, query) = (DocumentId(call.path.id), call.query);
        let SpooledUpload { declared_mime, file, options, .. } = call.body;
        let options = Requested::read(options, self.task_types.groups())?.options.to_value();
        let format = query.format.as_deref().map(|format| {
            let unknown = |_| Failure::field("format", format!("there is no format `{format}`"));
            format.parse::<Format>().map(|format| format.as_str().to_owned()).map_err(unknown)
        });
        let format = format.transpose()?;
        // The file may have taken long to arrive.
        let caller = &caller.again(&self.pool).await?;
        let ahead = match self.blobs.are_outside() {
            false => Ahead::default(),
            true => {
                let mut conn = self.pool.acquire().await.or_fail()?;
                let place = caller.writes(&mut conn, id).await.or_fail()??;
                if let Some(known) = known(&mut conn, caller, &place, &file.content_hash).await? {
                    return Ok(known);
                }
                drop(conn);
                self.blobs.put(&self.pool, || spool::reopen(&file.file), file.byte_size).await.or_fail()?
            }
        };
        let (copies, _turn) = self.copies.turn().await;
        let mut tx = store::transaction::begin_creating(copies).await.or_fail()?;
        store::blobs::lock_hash(&mut tx, &file.content_hash).await.or_fail()?;
        // It may have waited long for its turn, and for others with the same bytes.
        let caller = &caller.again_on(&mut tx).await?;
        let place = caller.writes(&mut tx, id).await.or_fail()??;
        if let Some(known) = known(&mut tx, caller, &place, &file.content_hash).await? {
            return Ok(known);
        }
        // The bytes come before the lock of the document, because copying them takes long.
        let bytes_at = ahead.place(&mut tx, || spool::reopen(&file.file)).await.or_fail()?;
        let Some(place) = store::places::lock_for_change(&mut tx, &caller.writable(), id).await.or_fail()? else {
            return Err(caller.refusal(&mut tx, id).await.or_fail()?);
        };
        if let Some(known) = known(&mut tx, caller, &place, &file.content_hash).await? {
            return Ok(known);
        }
        let blob = BlobRow {
            document_id: id,
            place: bytes_at,
            mime_type: query.mime_type,
            declared_mime,
            detected_by: query.detected_by.map(Word),
            format,
            byte_size: i64::try_from(file.byte_size).unwrap_or(i64::MAX),
            content_hash: file.content_hash,
            options,
        };
        store::blobs::insert(&mut tx, &place, &blob).await.or_fail()?;
        ahead.keep();
        tx.commit().await.or_fail()?;
        Ok(ImportedBytes { document_id: id.0, was_existing: false, same_as: None })
    }
}

/// Finds out whether a document is to have these bytes: `None` if it is, and otherwise which document has them already.
async fn known(
    conn: &mut PgConnection,
    caller: &Caller,
    place: &Place,
    content_hash: &str,
) -> Result<Option<ImportedBytes>, Failure> {
    let id = place.id();
    let row = store::documents::read(conn, &caller.readable(), id, false).await.or_fail()?;
    let row = row.ok_or_else(|| Failure::no_document(id.0))?;
    if let Some(blob) = store::blobs::of_document(conn, id).await.or_fail()? {
        return match blob.content_hash == content_hash {
            true => Ok(Some(ImportedBytes { document_id: id.0, was_existing: true, same_as: None })),
            false => Err(Failure::new(Code::Conflict, format!("document {id} has other bytes already"))
                .with("remedy", "import the archive under another name, which gives its files other ids")),
        };
    }
    // A picture has a text of its own beside its bytes, and goes with its file.
    if store::images::is_picture(conn, place, content_hash).await.or_fail()? {
        return Ok(None);
    }
    // An empty file has the hash of an empty text, which any document may have.
    if !archive::is_imported(conn, place).await.or_fail()? {
        return Err(Failure::field("file", format!("document {id} came with no archive, and takes no bytes"))
            .with("remedy", "upload the file by itself with POST /ingest/file"));
    }
    if row.content_hash != content_hash || !row.content.is_empty() {
        let detail = format!("the bytes have the hash {content_hash}, and document {id} was imported for others");
        return Err(Failure::field("file", detail));
    }
    let same = archive::same_bytes(conn, place, content_hash).await.or_fail()?;
    Ok(same.map(|same| ImportedBytes { document_id: id.0, was_existing: false, same_as: Some(same.0) }))
}
