//! Entities that are taken for one, and are no more once that is undone.
use super::{
    documents::{id_cursor, page_by_id},
    lists::must_exist,
};
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        merges::{self, Wanted},
        places::Place,
        triples::write,
    },
};
use sqlx::PgConnection;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{MergeMethod, MergePage, MergeResponse},
};
use svc_ids::DocumentId;

impl Handle<ops::list_merges> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_merges>) -> Result<MergePage, Failure> {
        let query = call.query;
        let (limit, after) = (query.rows(), id_cursor(query.cursor.as_deref())?);
        let mut tx = store::transaction::begin_snapshot(&self.pool).await.or_fail()?;
        if let Some(id) = query.document_id {
            must_exist(&mut tx, caller, DocumentId(id)).await?;
        }
        let wanted =
            Wanted { id: None, document_id: query.document_id, method: query.method, undone: Some(query.undone) };
        let rows = merges::page(&mut tx, &caller.readable(), &wanted, after, limit + 1).await.or_fail()?;
        let (merges, next_cursor) = page_by_id(rows, limit, |row| row.id);
        Ok(MergePage { merges, next_cursor })
    }
}

impl Handle<ops::merge_entities> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::merge_entities>) -> Result<MergeResponse, Failure> {
        let new = call.body.0;
        let (kept_id, merged_id) = (DocumentId(new.kept_id), DocumentId(new.merged_id));
        // No document changes its guard until this ends.
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        both(&mut tx, caller, kept_id, merged_id).await?;
        let scope = caller.readable();
        let guards = write::lock_ends(&mut tx, &scope, &[kept_id, merged_id]).await.or_fail()?;
        match guards.as_slice() {
            [(_, one), (_, other)] if one == other => {}
            [_, _] => {
                let detail = format!("documents {kept_id} and {merged_id} are not open to the same readers");
                return Err(Failure::field("merged_id", detail).with("remedy", "move one beside the other"));
            }
            _ => return Err(Failure::no_document(merged_id.0)),
        }
        let at = write::take_pen(&mut tx).await.or_fail()?;
        let sets = merges::sets(&mut tx, &scope, &[kept_id], at).await.or_fail()?;
        if sets.members(kept_id).contains(&merged_id) {
            let detail = format!("documents {kept_id} and {merged_id} are taken for one already");
            let members: Vec<i64> = sets.members(kept_id).into_iter().map(|id| id.0).collect();
            return Err(Failure::new(Code::Conflict, detail).with("document_ids", members));
        }
        let new = merges::NewMerge { kept_id, merged_id, method: MergeMethod::Manual, score: None };
        if merges::fitting(&mut tx, &[new], at).await.or_fail()?.is_empty() {
            let detail = format!(
                "with the documents that {kept_id} and {merged_id} are taken for, more than {} would be one",
                merges::SET
            );
            return Err(Failure::new(Code::Conflict, detail)
                .with("reason", "set_too_large")
                .with("remedy", "undo merges that are wrong, or have facts say that two documents are the same"));
        }
        let ids = merges::insert(&mut tx, at, &[new]).await.or_fail()?;
        let wanted = Wanted { id: ids.first().copied(), ..Wanted::default() };
        let made = merges::page(&mut tx, &scope, &wanted, 0, 1).await.or_fail()?.pop();
        tx.commit().await.or_fail()?;
        made.ok_or_else(|| Failure::new(Code::Internal, "the merge was not recorded"))
    }
}

/// The place of the first of two documents, of which the caller must be allowed to write both.
async fn both(conn: &mut PgConnection, caller: &Caller, one: DocumentId, other: DocumentId) -> Result<Place, Failure> {
    let place = caller.writes(conn, one).await.or_fail()??;
    caller.writes(conn, other).await.or_fail()??;
    Ok(place)
}

impl Handle<ops::undo_merge> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::undo_merge>) -> Result<(), Failure> {
        let id = call.path.id;
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let wanted = Wanted { id: Some(id), ..Wanted::default() };
        let merge = merges::page(&mut tx, &caller.readable(), &wanted, 0, 1).await.or_fail()?.pop();
        let merge = merge.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no merge {id}")))?;
        let kept = both(&mut tx, caller, DocumentId(merge.kept_id), DocumentId(merge.merged_id)).await?;
        let at = write::take_pen(&mut tx).await.or_fail()?;
        if !merges::undo(&mut tx, &kept, id, at).await.or_fail()? {
            return Err(Failure::new(Code::Conflict, format!("merge {id} is undone already")));
        }
        tx.commit().await.or_fail()
    }
}
