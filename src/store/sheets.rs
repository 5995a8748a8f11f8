//! The sheets of workbooks, as their structure task recorded them.
use super::{blobs::BlobRow, evidence::Evidence};
use serde_json::Value;
use sqlx::PgConnection;
use svc_ids::DocumentId;

/// The bytes of the file that a node is in, or is.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn file_of(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Option<BlobRow>> {
    sqlx::query_as(
        "SELECT b.document_id, b.lob, b.object, b.mime_type, b.declared_mime, b.detected_by, b.format, b.byte_size, b.content_hash, b.options
           FROM documents n CROSS JOIN LATERAL unnest(n.path || n.id) WITH ORDINALITY AS above(id, depth)
           JOIN document_blobs b ON b.document_id = above.id AND b.is_file
          WHERE n.id = $1 ORDER BY above.depth DESC LIMIT 1",
    )
    .bind(id)
    .fetch_optional(conn)
    .await
}

/// The workbook of a sheet: the nearest file above it, or the generation of one that is being built.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = sheet.0))]
pub async fn workbook_of(conn: &mut PgConnection, sheet: DocumentId) -> sqlx::Result<Option<DocumentId>> {
    sqlx::query_scalar(
        "SELECT above.id FROM documents s CROSS JOIN LATERAL unnest(s.path) WITH ORDINALITY AS above(id, depth)
          WHERE s.id = $1 AND (EXISTS (SELECT FROM document_blobs b WHERE b.document_id = above.id AND b.is_file)
                               OR EXISTS (SELECT FROM generations g WHERE g.generation_id = above.id))
          ORDER BY above.depth DESC LIMIT 1",
    )
    .bind(sheet)
    .fetch_optional(conn)
    .await
}

/// Where in a workbook a node's own cells are: the index of its sheet, and the cells of its anchor unless it is a sheet
/// itself.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0, root.id = workbook.0))]
pub async fn cells_of(
    conn: &mut PgConnection,
    workbook: DocumentId,
    id: DocumentId,
) -> sqlx::Result<Option<(i32, Option<String>)>> {
    sqlx::query_as(
        "SELECT (s.anchor->>'index')::int, CASE WHEN s.document_id <> n.id THEN own.anchor->>'cells' END
           FROM documents n CROSS JOIN LATERAL unnest(n.path || n.id) WITH ORDINALITY AS above(id, depth)
           JOIN node_origins s ON s.document_id = above.id AND s.rule = 'structure:sheets'
           LEFT JOIN node_origins own ON own.document_id = n.id
          WHERE n.id = $2 AND above.depth > array_position(n.path, $1) ORDER BY above.depth DESC LIMIT 1",
    )
    .bind(workbook)
    .bind(id)
    .fetch_optional(conn)
    .await
}

/// The `used_range` that the profile of a sheet recorded, in an object; `None` if the profile has not run, or failed. Segments may lie between the
/// workbook and its sheets.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = workbook.0))]
pub async fn profile(conn: &mut PgConnection, workbook: DocumentId, index: i32) -> sqlx::Result<Option<Value>> {
    sqlx::query_scalar(
        "WITH RECURSIVE holders AS (
             SELECT $1::bigint AS id
             UNION ALL SELECT s.id FROM holders h JOIN documents s ON s.parent_id = h.id AND s.usetype = 'section')
         SELECT jsonb_build_object('used_range', e.value->'used_range')
           FROM holders h JOIN documents d ON d.parent_id = h.id
           JOIN node_origins o ON o.document_id = d.id AND o.rule = 'structure:sheets'
           JOIN node_evidence e ON e.document_id = d.id AND e.name = $3
          WHERE (o.anchor->>'index')::int = $2",
    )
    .bind(workbook)
    .bind(index)
    .bind(Evidence::ProfileSheet.as_str())
    .fetch_optional(conn)
    .await
}
