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
use svc_client::{
    Failure,
    wire::{DocumentField, DocumentResponse},
};
use svc_ids::DocumentId;

/// What an answer shows of each document.
#[derive(Clone, Debug)]
pub(super) struct Shows {
    content: bool,
    structured_content: bool,
    embed: bool,
    /// These alone.
    fields: Option<Vec<DocumentField>>,
}

impl Shows {
    pub fn of(fields: Option<&[DocumentField]>, include_content: bool, include_embed: bool) -> Shows {
        let has = |field, default| fields.map_or(default, |fields| fields.contains(&field));
        Shows {
            content: has(DocumentField::Content, include_content),
            structured_content: has(DocumentField::StructuredContent, true),
            embed: has(DocumentField::Embed, include_embed),
            fields: fields.map(<[DocumentField]>::to_vec),
        }
    }
}

/// The documents of an answer, by rank. Their texts are included as long as there is room: a text that does not fit is
/// left out, and a shorter one after it may still be included. Their vectors, which are small, are shown if asked for.
pub(super) async fn show(
    core: &Core,
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    shows: &Shows,
) -> Result<HashMap<DocumentId, DocumentResponse>, Failure> {
    let sizes = store::documents::sizes(conn, scope, ids).await.or_fail()?;
    let sizes: HashMap<DocumentId, Listed> = sizes.into_iter().map(|size| (size.id, size)).collect();
    let mut room = core.settings.page_bytes;
    let (whole, bare): (Vec<DocumentId>, Vec<DocumentId>) =
        ids.iter().filter(|id| sizes.contains_key(id)).partition(|id| {
            let size = &sizes[id];
            let bytes = if shows.structured_content { size.structured_bytes } else { 0 }
                + if shows.content { size.content_bytes } else { 0 };
            let fits = bytes.unsigned_abs() <= room;
            room -= if fits { bytes.unsigned_abs() } else { 0 };
            fits
        });
    let shapes = [(whole, shows.content, shows.structured_content), (bare, false, false)];
    let mut documents: HashMap<DocumentId, DocumentResponse> = HashMap::with_capacity(ids.len());
    for (ids, content, structured_content) in shapes {
        if !ids.is_empty() {
            let shape = Shape { embed: shows.embed, content, structured_content };
            let rows = store::documents::read_many(conn, scope, &ids, shape).await.or_fail()?;
            documents.extend(rows.into_iter().map(|row| (row.id, row.into())));
        }
    }
    if let Some(fields) = &shows.fields {
        documents.values_mut().for_each(|document| document.show_only(fields));
    }
    Ok(documents)
}
