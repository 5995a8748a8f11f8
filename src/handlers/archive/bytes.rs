//! The stored bytes of files of an archive.
use crate::{
    access::Caller,
    error::OrFail,
    ingest::options::Requested,
    registry::Handle,
    service::Service,
    spool::{self, SpooledUpload},
    store::{self, archive, blobs::BlobRow, word::Word},
};
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
        let (copies, _turn) = self.copies.turn().await;
        let mut tx = store::transaction::begin_creating(copies).await.or_fail()?;
        store::blobs::lock_hash(&mut tx, &file.content_hash).await.or_fail()?;
        let Some(place) = store::places::lock_for_change(&mut tx, &caller.writable(), id).await.or_fail()? else {
            return Err(caller.refusal(&mut tx, id).await.or_fail()?);
        };
        let row = store::documents::read(&mut tx, &caller.readable(), id, false).await.or_fail()?;
        let row = row.ok_or_else(|| Failure::no_document(id.0))?;
        if let Some(blob) = store::blobs::of_document(&mut tx, id).await.or_fail()? {
            return match blob.content_hash == file.content_hash {
                true => Ok(ImportedBytes { document_id: id.0, was_existing: true, same_as: None }),
                false => Err(Failure::new(Code::Conflict, format!("document {id} has other bytes already"))),
            };
        }
        if row.content_hash != file.content_hash || !row.content.is_empty() {
            let detail =
                format!("the bytes have the hash {}, and document {id} was imported for others", file.content_hash);
            return Err(Failure::field("file", detail));
        }
        if let Some(same) = archive::same_bytes(&mut tx, &place, &file.content_hash).await.or_fail()? {
            return Ok(ImportedBytes { document_id: id.0, was_existing: false, same_as: Some(same.0) });
        }
        let lob = spool::to_large_object(&mut tx, &file.file).await.or_fail()?;
        let blob = BlobRow {
            document_id: id,
            lob,
            mime_type: query.mime_type,
            declared_mime,
            detected_by: query.detected_by.map(Word),
            format,
            byte_size: i64::try_from(file.byte_size).unwrap_or(i64::MAX),
            content_hash: file.content_hash,
            options,
        };
        store::blobs::insert(&mut tx, &place, &blob).await.or_fail()?;
        tx.commit().await.or_fail()?;
        Ok(ImportedBytes { document_id: id.0, was_existing: false, same_as: None })
    }
}
