//! Files, latest first, and what happened to each.
use super::documents::page_by_id;
use crate::{access::Caller, error::OrFail, registry::Handle, service::Service, store};
use svc_client::{
    Call, Failure, ops,
    wire::{FilePage, StoryEntry, StoryResponse},
};
use svc_ids::DocumentId;

/// Files in a page by default.
const FILES: u32 = 50;
/// Entries in a part of a story by default.
const ENTRIES: u32 = 200;

impl Handle<ops::list_files> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_files>) -> Result<FilePage, Failure> {
        let limit = call.query.limit.unwrap_or(FILES);
        let cursor = call.query.cursor.as_deref().map(str::parse).transpose();
        let after = cursor.map_err(|_| Failure::field("cursor", "takes a next_cursor from this list"))?;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let after = DocumentId(after.unwrap_or(i64::MAX));
        let rows = store::story::files(&mut conn, &caller.readable(), &call.query, after, limit + 1).await.or_fail()?;
        let (files, next_cursor) = page_by_id(rows, limit, |file| file.id);
        Ok(FilePage { files, next_cursor })
    }
}

impl Handle<ops::read_story> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_story>) -> Result<StoryResponse, Failure> {
        let id = DocumentId(call.path.id);
        let before = call.query.cursor.as_deref().map_or(Ok(i64::MAX), str::parse);
        let before = before.map_err(|_| Failure::field("cursor", "takes a next_cursor of this story"))?;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let scope = caller.readable();
        let row = store::documents::read(&mut conn, &scope, id, false).await.or_fail()?;
        let row = row.ok_or_else(|| Failure::no_document(id.0))?;
        let limit = call.query.limit.unwrap_or(ENTRIES);
        let (entries, first) = store::story::story(&mut conn, &scope, id.as_root(), before, limit).await.or_fail()?;
        Ok(StoryResponse {
            document_id: id.0,
            title: row.title,
            state: row.settled.0,
            created_at: row.created_at,
            entries: entries.into_iter().map(|entry| caller.told_entry(entry)).collect(),
            next_cursor: (first > 1).then(|| first.to_string()),
        })
    }
}

impl Caller {
    /// What this caller is told of attempts that were alike; see [`Caller::told`].
    fn told_entry(&self, entry: StoryEntry) -> StoryEntry {
        match self {
            Caller::Owner => entry,
            Caller::Principal(_) | Caller::Nobody => {
                let told = entry.error_type != Some(svc_client::wire::ErrorType::Retryable);
                StoryEntry { worker: None, workers: 0, message: entry.message.filter(|_| told), ..entry }
            }
        }
    }
}
