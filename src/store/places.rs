//! Places in the tree that may be written: the proof that whoever changes something there has the right to.
//!
//! A function that changes a document, or what hangs on it, takes a [`Place`], and only this module makes one out of a
//! [`Writable`]. So a handler that forgets to ask for the right does not compile. Two changes need no such right: see
//! [`find_locked_file`] and [`find_for_operator`].
use super::{
    documents::add,
    scope::{Readable, Writable, readable},
};
use sqlx::PgConnection;
use svc_actors::Grant;
use svc_client::Failure;
use svc_ids::DocumentId;

/// The most levels that callers may give the tree; the nodes that ingestion makes under a file may go a few levels
/// deeper. An entry of an index holds the ids of a document and all its ancestors, and its size has a limit.
pub const DEEPEST: usize = 240;

/// The place of a node in the tree, whose holder may change the node.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Place {
    pub(super) id: DocumentId,
    pub(super) path: Vec<i64>,
}

impl Place {
    /// The place that a worker's claim covers. Whoever queued the task had the right to change the node.
    pub fn of_claim(grant: &Grant) -> Place {
        let path = grant.region.path.split_last().map_or(&[][..], |(_, ancestors)| ancestors);
        Place { id: grant.document_id, path: path.to_vec() }
    }

    /// The place of a node that this transaction made somewhere under this one; `ancestors` are the node's, root first.
    pub fn of_new(&self, id: DocumentId, ancestors: Vec<i64>) -> Place {
        debug_assert!(ancestors.contains(&self.id.0), "{id} is not under {}", self.id);
        Place { id, path: ancestors }
    }

    pub fn id(&self) -> DocumentId {
        self.id
    }

    /// The ids of the node's ancestors, root first.
    pub fn path(&self) -> &[i64] {
        &self.path
    }

    /// Whether this is a node itself or lies somewhere under it.
    pub fn is_within(&self, id: DocumentId) -> bool {
        self.id == id || self.path.contains(&id.0)
    }

    /// The place that the node has once it is moved under another one, or to the top.
    pub fn moved(&self, under: Option<&Place>) -> Place {
        Place { id: self.id, path: under.map(Place::children_path).unwrap_or_default() }
    }

    /// The places from an ancestor down to the parent. Whoever may change a leaf of a file may so change its
    /// containers, which are kept up to date with it.
    pub fn containers(&self, from: DocumentId) -> Vec<Place> {
        let first = self.path.iter().position(|id| *id == from.0).unwrap_or(self.path.len());
        (first..self.path.len())
            .map(|at| Place { id: DocumentId(self.path[at]), path: self.path[..at].to_vec() })
            .collect()
    }

    /// Refuses a child that would have this many levels under it, if that is deeper than the tree goes.
    pub fn admits(&self, levels: usize) -> Result<(), Failure> {
        if self.path.len() + 1 + levels < DEEPEST {
            return Ok(());
        }
        let detail = format!("document {} lies too deep: the tree has at most {DEEPEST} levels", self.id);
        Err(Failure::field("parent_id", detail).with("limit", DEEPEST))
    }

    /// The path of what is directly under this node.
    pub fn children_path(&self) -> Vec<i64> {
        let mut path = self.path.clone();
        path.push(self.id.0);
        path
    }
}

/// Finds a node without locking it; `None` if the node does not exist or the scope does not cover it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn find(conn: &mut PgConnection, scope: &Writable, id: DocumentId) -> sqlx::Result<Option<Place>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!("SELECT d.id, d.path FROM documents d WHERE d.id = $3 AND ", readable!());
    sqlx::query_as_with(query, arguments).fetch_optional(conn).await
}

/// Finds a node without locking it, also one that a reprocess builds and no scope covers. It is for an operator who works on the database
/// itself, such as on where the stored bytes of all files are.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn find_for_operator(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Option<Place>> {
    sqlx::query_as("SELECT id, path FROM documents WHERE id = $1").bind(id).fetch_optional(conn).await
}

/// Those of the nodes above a place that the scope covers.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn above(conn: &mut PgConnection, scope: &Writable, place: &Place) -> sqlx::Result<Vec<i64>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, place.path().to_vec());
    let query = concat!("SELECT d.id FROM documents d WHERE d.id = ANY($3) AND ", readable!());
    sqlx::query_scalar_with(query, arguments).fetch_all(conn).await
}

/// Finds a file that is not read because its password is missing, for a caller that may read it and has its bytes with their password: what
/// that caller adds tells the store nothing that is not in them. `None` if the task of this type, which opens it, ended in another way than
/// with one of these codes.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn find_locked_file(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    content_hash: &str,
    opened_by: &str,
    refused_as: &[&'static str],
) -> sqlx::Result<Option<Place>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    add(&mut arguments, content_hash.to_owned());
    add(&mut arguments, opened_by.to_owned());
    add(&mut arguments, refused_as.to_vec());
    let query = concat!(
        "SELECT d.id, d.path FROM documents d JOIN document_blobs b ON b.document_id = d.id
           JOIN LATERAL (SELECT t.id, t.status, t.final FROM task_queue t
                          WHERE t.scope_document_id = d.id AND t.task_type = $5 ORDER BY t.id DESC LIMIT 1) t ON true
          WHERE d.id = $3 AND b.content_hash = $4 AND t.status <> 'completed'
            AND (NOT t.final OR (SELECT a.code FROM task_attempts a WHERE a.document_id = d.id AND a.task_id = t.id ORDER BY a.id DESC LIMIT 1) = ANY($6))
            AND ",
        readable!()
    );
    sqlx::query_as_with(query, arguments).fetch_optional(conn).await
}

/// Finds the node that is to get a child, and keeps it from being deleted until the transaction ends.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn lock_parent(conn: &mut PgConnection, scope: &Writable, id: DocumentId) -> sqlx::Result<Option<Place>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!("SELECT d.id, d.path FROM documents d WHERE d.id = $3 AND ", readable!(), " FOR KEY SHARE");
    sqlx::query_as_with(query, arguments).fetch_optional(conn).await
}

/// Locks a node that will be deleted.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn lock_for_delete(conn: &mut PgConnection, scope: &Writable, id: DocumentId) -> sqlx::Result<Option<Place>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!("SELECT d.id, d.path FROM documents d WHERE d.id = $3 AND ", readable!(), " FOR UPDATE");
    sqlx::query_as_with(query, arguments).fetch_optional(conn).await
}

/// Locks a node that will be changed or moved.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn lock_for_change(conn: &mut PgConnection, scope: &Writable, id: DocumentId) -> sqlx::Result<Option<Place>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!("SELECT d.id, d.path FROM documents d WHERE d.id = $3 AND ", readable!(), " FOR NO KEY UPDATE");
    sqlx::query_as_with(query, arguments).fetch_optional(conn).await
}
