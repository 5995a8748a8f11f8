//! What an answer shows of the documents that were found.
use crate::{
    core::Core,
    error::OrFail,
    store::{
        self,
        documents::{Listed, Shape},
        scope::Readable,
    },
};
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::{Failure, wire::DocumentResponse};
use svc_ids::DocumentId;

/// The documents of an answer, by rank. Their texts are included as long as there is room: a text that does not fit is
/// left out, and a shorter one after it may still be included. Their vectors, which are small, are shown if asked for.
pub(super) async fn show(
    core: &Core,
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    (content, embed): (bool, bool),
) -> Result<HashMap<DocumentId, DocumentResponse>, Failure> {
    let sizes = store::documents::sizes(conn, scope, ids).await.or_fail()?;
    let sizes: HashMap<DocumentId, Listed> = sizes.into_iter().map(|size| (size.id, size)).collect();
    let mut room = core.settings.page_bytes;
    let (whole, bare): (Vec<DocumentId>, Vec<DocumentId>) =
        ids.iter().filter(|id| sizes.contains_key(id)).partition(|id| {
            let size = &sizes[id];
            let bytes = size.structured_bytes + if content { size.content_bytes } else { 0 };
            let fits = bytes.unsigned_abs() <= room;
            room -= if fits { bytes.unsigned_abs() } else { 0 };
            fits
        });
    let shapes = [(whole, content, true), (bare, false, false)];
    let mut documents = HashMap::with_capacity(ids.len());
    for (ids, content, structured_content) in shapes {
        if !ids.is_empty() {
            let shape = Shape { embed, content, structured_content };
            let rows = store::documents::read_many(conn, scope, &ids, shape).await.or_fail()?;
            documents.extend(rows.into_iter().map(|row| (row.id, row.into())));
        }
    }
    Ok(documents)
}
