//! Documents, page by page.
use super::documents::id_cursor;
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        documents::{Listed, Shape, SiblingCursor, sibling_position},
    },
};
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::{
    Call, Failure, ops,
    wire::{DocumentPage, DocumentResponse, PageQuery},
};
use svc_ids::DocumentId;

/// An estimate of the bytes that a row takes in an answer besides its texts.
const ROW_BYTES: u64 = 1024;
/// An estimate of the bytes that a vector takes in an answer.
const EMBED_BYTES: u64 = 8 * 1024;

impl Handle<ops::list_roots> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_roots>) -> Result<DocumentPage, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        children(self, &mut conn, caller, &call.query, None, None).await
    }
}

impl Handle<ops::list_subtree> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_subtree>) -> Result<DocumentPage, Failure> {
        reading(self, caller, DocumentId(call.path.id), &call.query, true).await
    }
}

/// A page of what is under a document in the order in which it is read. Its cursors are its own.
pub(super) async fn reading(
    service: &Service,
    caller: &Caller,
    id: DocumentId,
    query: &PageQuery,
    with_summaries: bool,
) -> Result<DocumentPage, Failure> {
    let after = query.cursor.as_deref().map(reading_cursor).transpose()?.unwrap_or_default();
    let (scope, limit) = (caller.readable(), query.rows() + 1);
    let mut conn = service.pool.acquire().await.or_fail()?;
    must_exist(&mut conn, caller, id).await?;
    let found = store::documents::reading(&mut conn, &scope, id, &after, limit, with_summaries).await.or_fail()?;
    let listed = found.iter().map(|found| found.listed).collect();
    let cursor = |last: &Listed| {
        let way = found.iter().find(|found| found.listed.id == last.id).map_or(&[][..], |found| &found.way);
        let places = way.iter().map(|place| format!("{}.{}", written_position(place), place.id));
        places.collect::<Vec<_>>().join(".")
    };
    page(service, &mut conn, caller, query, listed, cursor).await
}

/// The position of a place as a number that is not negative, and short for those that are usual: 0 for none.
fn written_position(place: &SiblingCursor) -> i64 {
    match place.position {
        position if position > i64::from(i32::MAX) => 0,
        position if position >= 0 => 2 * position + 1,
        position => -2 * position,
    }
}

/// The places of a way, each a written position and an id.
fn reading_cursor(text: &str) -> Result<Vec<SiblingCursor>, Failure> {
    let numbers = text.split('.').map(str::parse).collect::<Result<Vec<i64>, _>>().map_err(|_| not_a_cursor())?;
    let (places, rest) = numbers.as_chunks();
    let place = |[written, id]: &[i64; 2]| {
        let position = match written % 2 {
            0 if *written == 0 => None,
            0 => Some(i32::try_from(-(written / 2)).ok()?),
            _ => Some(i32::try_from(written / 2).ok()?),
        };
        Some(SiblingCursor { position: sibling_position(position), id: DocumentId(*id) })
    };
    let places: Option<Vec<SiblingCursor>> = places.iter().map(place).collect();
    places.filter(|_| rest.is_empty()).ok_or_else(not_a_cursor)
}

impl Handle<ops::list_children> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_children>) -> Result<DocumentPage, Failure> {
        let id = DocumentId(call.path.id);
        let mut conn = self.pool.acquire().await.or_fail()?;
        must_exist(&mut conn, caller, id).await?;
        children(self, &mut conn, caller, &call.query, Some(id), None).await
    }
}

impl Handle<ops::list_siblings> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_siblings>) -> Result<DocumentPage, Failure> {
        let id = DocumentId(call.path.id);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let path = path(&mut conn, caller, id).await?;
        let parent = path.last().copied().map(DocumentId);
        children(self, &mut conn, caller, &call.query, parent, Some(id)).await
    }
}

/// A page of the children of a document, or of the documents without a parent, without one of them. The parent itself need not be readable.
async fn children(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    query: &PageQuery,
    parent: Option<DocumentId>,
    except: Option<DocumentId>,
) -> Result<DocumentPage, Failure> {
    let after = query.cursor.as_deref().map(sibling_cursor).transpose()?;
    let (scope, limit) = (caller.readable(), query.rows() + 1);
    let listed = store::documents::children(conn, &scope, parent, except, after, limit).await.or_fail()?;
    let cursor = |last: &Listed| format!("{}.{}", sibling_position(last.position), last.id);
    page(service, conn, caller, query, listed, cursor).await
}

fn sibling_cursor(text: &str) -> Result<SiblingCursor, Failure> {
    let parts = text.split_once('.').and_then(|(position, id)| {
        Some(SiblingCursor { position: position.parse().ok()?, id: DocumentId(id.parse().ok()?) })
    });
    parts.ok_or_else(not_a_cursor)
}

fn not_a_cursor() -> Failure {
    Failure::field("cursor", "takes a next_cursor from this list")
}

impl Handle<ops::list_ancestors> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_ancestors>) -> Result<DocumentPage, Failure> {
        let after = id_cursor(call.query.cursor.as_deref())?;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let path = path(&mut conn, caller, DocumentId(call.path.id)).await?;
        let begin = match call.query.cursor {
            None => 0,
            Some(_) => path.iter().position(|id| *id == after).ok_or_else(not_a_cursor)? + 1,
        };
        let ids: Vec<DocumentId> = path[begin..].iter().copied().map(DocumentId).collect();
        let mut listed = store::documents::sizes(&mut conn, &caller.readable(), &ids).await.or_fail()?;
        listed.sort_unstable_by_key(|row| ids.iter().position(|id| *id == row.id));
        listed.truncate(call.query.rows() as usize + 1);
        page(self, &mut conn, caller, &call.query, listed, |last| last.id.to_string()).await
    }
}

/// The ids of a document's ancestors, root first; 404 if the caller may not read the document.
async fn path(conn: &mut PgConnection, caller: &Caller, id: DocumentId) -> Result<Vec<i64>, Failure> {
    let path = store::documents::path(conn, &caller.readable(), id).await.or_fail()?;
    path.ok_or_else(|| Failure::no_document(id.0))
}

/// 404 if the caller may read no such document.
pub(super) async fn must_exist(conn: &mut PgConnection, caller: &Caller, id: DocumentId) -> Result<(), Failure> {
    let found = store::documents::sizes(conn, &caller.readable(), &[id]).await.or_fail()?;
    if found.is_empty() { Err(Failure::no_document(id.0)) } else { Ok(()) }
}

/// The documents of a page: as many of the listed ones as there is room for, and at least one. The list has one more
/// than was asked for if there are more.
pub(super) async fn page(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    query: &PageQuery,
    mut listed: Vec<Listed>,
    cursor: impl Fn(&Listed) -> String,
) -> Result<DocumentPage, Failure> {
    let (found, mut room) = (listed.len(), service.settings.page_bytes);
    listed.truncate(query.rows() as usize);
    let fitting = listed.iter().take_while(|row| {
        let (bytes, left) = (bytes(row, query), room);
        room = room.saturating_sub(bytes);
        bytes <= left
    });
    listed.truncate(fitting.count().max(1));
    let next_cursor = listed.last().filter(|_| listed.len() < found).map(cursor);
    let ids: Vec<DocumentId> = listed.iter().map(|row| row.id).collect();
    let shape = Shape { embed: query.include_embed, content: query.include_content, structured_content: true };
    let rows = store::documents::read_many(conn, &caller.readable(), &ids, shape).await.or_fail()?;
    let mut rows: HashMap<DocumentId, DocumentResponse> = rows.into_iter().map(|row| (row.id, row.into())).collect();
    Ok(DocumentPage { documents: ids.iter().filter_map(|id| rows.remove(id)).collect(), next_cursor })
}

/// An estimate of the bytes that a row takes in the answer.
fn bytes(row: &Listed, query: &PageQuery) -> u64 {
    let content = if query.include_content { row.content_bytes.unsigned_abs() } else { 0 };
    let embed = if query.include_embed { EMBED_BYTES } else { 0 };
    ROW_BYTES + content + row.structured_bytes.unsigned_abs() + embed
}
