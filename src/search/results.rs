//! What an answer shows of the documents that were found.
use super::snippets::beginning;
use crate::{
    core::Core,
    error::OrFail,
    store::{
        self,
        documents::{Beginning, Shape, ShownRow, Waiting, Wanted},
        scope::Readable,
    },
};
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
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

/// What was read of the documents of an answer.
pub(super) struct Read {
    pub documents: HashMap<DocumentId, DocumentResponse>,
    /// The beginnings of the documents whose words are shown.
    pub beginnings: Vec<Beginning>,
    /// Whether anything waits that a search cannot show; absent if nothing was read.
    pub waiting: Option<Waiting>,
}

/// The documents of an answer, by rank, and the beginnings of those whose words are shown. Texts of documents are included as long as there is
/// room: a text that does not fit is left out, and a shorter one after it may still be included. Their vectors, which are small, are shown if
/// asked for.
pub(super) async fn show(
    core: &Core,
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    spoken: &[DocumentId],
    shows: &Shows,
) -> Result<Read, Failure> {
    let shape = Shape { embed: shows.embed, content: shows.content, structured_content: shows.structured_content };
    let mut room = core.settings.page_bytes;
    // Each document may have this share, whatever the others have. Mostly the share is enough for all of its text.
    let share = room / (ids.len().max(1) as u64);
    let characters = beginning(spoken.len());
    let wanted = Wanted { ids, shape, share, spoken, characters: characters as i32 };
    let mut rows = match ids {
        [] => Vec::new(),
        _ => store::documents::shown(conn, scope, &wanted).await.or_fail()?,
    };
    let waiting = rows.first().map(|row| row.waiting);
    let spoken: HashSet<DocumentId> = spoken.iter().copied().collect();
    let mut beginnings = Vec::with_capacity(spoken.len());
    for row in rows.iter_mut().filter(|row| spoken.contains(&row.document.id)) {
        let whole = || row.document.content.chars().take(characters).collect();
        beginnings.push(Beginning {
            id: row.document.id,
            usetype: row.document.usetype.clone(),
            title: row.document.title.clone(),
            text: row.beginning.take().unwrap_or_else(whole),
        });
    }
    let mut rows: HashMap<DocumentId, ShownRow> = rows.into_iter().map(|row| (row.document.id, row)).collect();
    let mut documents: HashMap<DocumentId, DocumentResponse> = HashMap::with_capacity(ids.len());
    let mut larger = Vec::new();
    for id in ids {
        let Some(ShownRow { mut document, content_bytes, structured_bytes, fits, .. }) = rows.remove(id) else {
            continue;
        };
        let bytes =
            if shows.structured_content { structured_bytes } else { 0 } + if shows.content { content_bytes } else { 0 };
        let has_room = bytes.unsigned_abs() <= room;
        room -= if has_room { bytes.unsigned_abs() } else { 0 };
        match (has_room, fits) {
            (true, false) => larger.push(*id),
            (false, true) => document.strip(),
            _ => {}
        }
        documents.insert(*id, document.into());
    }
    if !larger.is_empty() {
        let rows = store::documents::read_many(conn, scope, &larger, shape).await.or_fail()?;
        documents.extend(rows.into_iter().map(|row| (row.id, row.into())));
    }
    if let Some(fields) = &shows.fields {
        documents.values_mut().for_each(|document| document.show_only(fields));
    }
    Ok(Read { documents, beginnings, waiting })
}

/// The documents of an answer that is none of a search, in their order: all that they hold, as far as there is room, and their vectors if those are
/// asked for.
pub async fn documents(
    core: &Core,
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    include_embed: bool,
) -> Result<Vec<DocumentResponse>, Failure> {
    let mut read = show(core, conn, scope, ids, &[], &Shows::of(None, true, include_embed)).await?.documents;
    Ok(ids.iter().filter_map(|id| read.remove(id)).collect())
}
