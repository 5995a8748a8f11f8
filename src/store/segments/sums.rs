//! The vectors of the segments that callers asked for: the sums of what is in them.
use crate::store::{nodes::SEGMENT, places::Place, vectors::weighted_mean};
use sqlx::PgConnection;
use svc_ids::{DocumentId, TaskId};

/// A segment without a text of its own; the arguments are the row of its document and the placeholder of the rule.
macro_rules! is_sum {
    ($document:literal, $rule:literal) => {
        concat!(
            $document,
            ".content = '' AND EXISTS (SELECT 1 FROM node_origins o WHERE o.document_id = ",
            $document,
            ".id AND o.rule = ",
            $rule,
            ")"
        )
    };
}

/// Whether the vector of a document is the sum of what is directly under it, as that of a segment that a caller asked for is.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn is_sum(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<bool> {
    let query = concat!("SELECT EXISTS (SELECT 1 FROM documents d WHERE d.id = $1 AND ", is_sum!("d", "$2"), ")");
    sqlx::query_scalar(query).bind(id).bind(SEGMENT).fetch_one(conn).await
}

/// Takes the vectors of the segments that hold these documents, and of the segments that hold those. Returns the segments that hold the
/// documents, whose sums are to be made anew.
pub async fn forget(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<Place>> {
    sqlx::query_as(concat!(
        "WITH RECURSIVE above AS (
             SELECT s.id, s.parent_id, s.path, true AS is_nearest
               FROM documents d CROSS JOIN LATERAL (SELECT * FROM documents s WHERE s.id = d.parent_id OFFSET 0) s WHERE d.id = ANY($1) AND ",
        is_sum!("s", "$2"),
        " UNION SELECT s.id, s.parent_id, s.path, false
                  FROM above a CROSS JOIN LATERAL (SELECT * FROM documents s WHERE s.id = a.parent_id OFFSET 0) s WHERE ",
        is_sum!("s", "$2"),
        "), gone AS (DELETE FROM document_vectors WHERE document_id = ANY(ARRAY(SELECT id FROM above)))
         SELECT id, path FROM above WHERE is_nearest ORDER BY id"
    ))
    .bind(documents)
    .bind(SEGMENT)
    .fetch_all(conn)
    .await
}

/// A task that waits to make the sum of a segment. It waits until this transaction ends, so it meets what this transaction does.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = segment.id().0))]
pub async fn waiting(conn: &mut PgConnection, segment: &Place, embed: &str) -> sqlx::Result<Option<TaskId>> {
    sqlx::query_scalar(
        "SELECT id FROM task_queue WHERE scope_document_id = $1 AND task_type = $2 AND status = 'pending' AND claim_token IS NULL
          ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
    )
    .bind(segment.id())
    .bind(embed)
    .fetch_optional(conn)
    .await
}

/// Gives segments the weighted sum of the vectors directly under each, except of what has rights of its own, in place of the vectors that they
/// have. A segment without any gets none.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = within.id().0))]
pub async fn set(conn: &mut PgConnection, within: &Place, segments: &[DocumentId], model: &str) -> sqlx::Result<()> {
    write(conn, segments, model, true).await
}

/// Makes such sums, beside the vectors of other models or in their place.
pub(in crate::store) async fn write(
    conn: &mut PgConnection,
    segments: &[DocumentId],
    model: &str,
    alone: bool,
) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM document_vectors WHERE document_id = ANY($1) AND ($3 OR embed_model = $2)")
        .bind(segments)
        .bind(model)
        .bind(alone)
        .execute(&mut *conn)
        .await?;
    sqlx::query(concat!(
        "INSERT INTO document_vectors (document_id, embed_model, embed, weight, root_id)
         SELECT id, $2, l2_normalize(mean)::halfvec, vector_norm(mean) * vectors, vector_root('document_vectors', id)
           FROM (SELECT d.parent_id AS id, count(*) AS vectors, ",
        weighted_mean!(),
        " AS mean
                   FROM documents s JOIN documents d ON d.parent_id = s.id AND d.guard = s.guard
                   JOIN document_vectors v ON v.document_id = d.id AND v.embed_model = $2
                  WHERE s.id = ANY($1) GROUP BY d.parent_id) sums
          WHERE vector_norm(mean) > 0",
    ))
    .bind(segments)
    .bind(model)
    .execute(conn)
    .await
    .map(|_| ())
}
