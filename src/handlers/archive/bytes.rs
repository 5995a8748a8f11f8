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
                let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
                if let Wanted::No(known) = wanted(&mut tx, caller, id, &file.content_hash).await? {
                    return Ok(known);
                }
                tx.rollback().await.or_fail()?;
                self.blobs.put(&self.pool, || spool::reopen(&file.file), file.byte_size).await.or_fail()?
            }
        };
        let (copies, _turn) = self.copies.turn().await;
        let mut tx = store::transaction::begin_creating(copies).await.or_fail()?;
        let place = match wanted(&mut tx, caller, id, &file.content_hash).await? {
            Wanted::No(known) => return Ok(known),
            Wanted::For(place) => place,
        };
        let bytes_at = ahead.place(&mut tx, || spool::reopen(&file.file)).await.or_fail()?;
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

/// Whether bytes are wanted.
enum Wanted {
    /// They are there already, or another document has them.
    No(ImportedBytes),
    For(Place),
}

/// Locks the document of imported bytes, and finds out whether it is to have them.
async fn wanted(
    conn: &mut PgConnection,
    caller: &Caller,
    id: DocumentId,
    content_hash: &str,
) -> Result<Wanted, Failure> {
    store::blobs::lock_hash(conn, content_hash).await.or_fail()?;
    let Some(place) = store::places::lock_for_change(conn, &caller.writable(), id).await.or_fail()? else {
        return Err(caller.refusal(conn, id).await.or_fail()?);
    };
    let row = store::documents::read(conn, &caller.readable(), id, false).await.or_fail()?;
    let row = row.ok_or_else(|| Failure::no_document(id.0))?;
    if let Some(blob) = store::blobs::of_document(conn, id).await.or_fail()? {
        return match blob.content_hash == content_hash {
            true => Ok(Wanted::No(ImportedBytes { document_id: id.0, was_existing: true, same_as: None })),
            false => Err(Failure::new(Code::Conflict, format!("document {id} has other bytes already"))
                .with("remedy", "import the archive under another name, which gives its files other ids")),
        };
    }
    // A picture has a text of its own beside its bytes, and goes with its file.
    if store::images::is_picture(conn, &place, content_hash).await.or_fail()? {
        return Ok(Wanted::For(place));
    }
    if row.content_hash != content_hash || !row.content.is_empty() {
        let detail = format!("the bytes have the hash {content_hash}, and document {id} was imported for others");
        return Err(Failure::field("file", detail));
    }
    if let Some(same) = archive::same_bytes(conn, &place, content_hash).await.or_fail()? {
        return Ok(Wanted::No(ImportedBytes { document_id: id.0, was_existing: false, same_as: Some(same.0) }));
    }
    Ok(Wanted::For(place))
}
