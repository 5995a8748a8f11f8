//! The document that is to get another one under it.
use crate::{
    access::Caller,
    error::OrFail,
    store::{self, places::Place},
};
use sqlx::PgConnection;
use svc_client::Failure;
use svc_ids::DocumentId;

/// Locks the parent of a document that is created or moved and has `levels` levels under itself. Refuses a parent that the caller
/// may not write, a tree of summaries, and a place deeper than the tree goes.
pub async fn lock(conn: &mut PgConnection, caller: &Caller, id: DocumentId, levels: usize) -> Result<Place, Failure> {
    let Some(parent) = store::places::lock_parent(conn, &caller.writable(), id).await.or_fail()? else {
        return Err(caller.refusal(conn, id).await.or_fail()?);
    };
    // The service deletes such a tree when a text changes that it quotes.
    if store::raptor::is_within_tree(conn, &parent).await.or_fail()? {
        let detail = format!("document {id} belongs to a tree of summaries, which holds nothing else");
        return Err(Failure::field("parent_id", detail).with("remedy", "choose the document that was summarised"));
    }
    parent.admits(levels)?;
    Ok(parent)
}
