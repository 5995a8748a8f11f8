//! Token vectors: a row per token, and a pack per document that a search reads.
use super::{indexes::covers, nodes::NOT_OF_A_FILE, places::Place};
use pgvector::HalfVector;
use sqlx::PgConnection;
use svc_ids::DocumentId;

/// The tokens of one document that are kept, in the order of its text.
pub struct TokenRows<'a> {
    pub model: &'a str,
    pub places: Vec<i32>,
    pub token_ids: Vec<i32>,
    pub tiers: Vec<i16>,
    /// By width, 256, 384 and 512; empty if a width is not stored.
    pub vectors: [Vec<HalfVector>; 3],
    /// The number of components in a vector of the pack.
    pub width: i32,
    /// Half-precision numbers, little-endian, token by token.
    pub pack: Vec<u8>,
}

/// A document's pack.
#[derive(sqlx_macros::FromRow)]
pub struct Pack {
    pub document_id: DocumentId,
    pub width: i32,
    pub vectors: Vec<u8>,
}

/// The documents among these that should have token vectors: those that an index with token vectors covers, and the leaves of files whose option
/// `embed.tokens` asks for them. Each generation of a file has options of its own.
pub async fn wanted(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(concat!(
        "SELECT d.id FROM documents d WHERE d.id = ANY($1) AND (EXISTS (
             SELECT FROM search_indexes i WHERE (i.capabilities ->> 'maxsim')::boolean AND ",
        covers!(),
        r#") OR EXISTS (
             SELECT FROM ingest_node n JOIN node_origins o ON o.document_id = d.id AND o.rule <> ALL($2)
               LEFT JOIN generations g ON g.generation_id = n.root_id LEFT JOIN document_blobs b ON b.document_id = n.root_id
              WHERE n.document_id = d.parent_id AND coalesce(g.options, b.options) @> '{"embed": {"tokens": true}}')) ORDER BY 1"#
    ))
    .bind(documents)
    .bind(&NOT_OF_A_FILE[..])
    .fetch_all(conn)
    .await
}

/// Replaces the stored tokens of a document.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn replace(conn: &mut PgConnection, place: &Place, rows: &TokenRows<'_>) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM token_embeddings WHERE document_id = $1").bind(place.id()).execute(&mut *conn).await?;
    let column = |at: usize| (!rows.vectors[at].is_empty()).then_some(&rows.vectors[at]);
    sqlx::query(
        "INSERT INTO token_embeddings (document_id, token_idx, token_id, tier, embed_256, embed_384, embed_512)
         SELECT $1, token_idx, token_id, tier, embed_256, embed_384, embed_512
           FROM unnest($2::int[], $3::int[], $4::smallint[], $5::halfvec[], $6::halfvec[], $7::halfvec[])
             AS t(token_idx, token_id, tier, embed_256, embed_384, embed_512)",
    )
    .bind(place.id())
    .bind(&rows.places)
    .bind(&rows.token_ids)
    .bind(&rows.tiers)
    .bind(column(0))
    .bind(column(1))
    .bind(column(2))
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "INSERT INTO token_packs (document_id, model, width, tokens, vectors) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (document_id) DO UPDATE
            SET model = EXCLUDED.model, width = EXCLUDED.width, tokens = EXCLUDED.tokens, vectors = EXCLUDED.vectors, created_at = now()",
    )
    .bind(place.id())
    .bind(rows.model)
    .bind(rows.width)
    .bind(i32::try_from(rows.places.len()).unwrap_or(i32::MAX))
    .bind(&rows.pack)
    .execute(conn)
    .await
    .map(|_| ())
}

/// The packs of those documents that have one of this model.
pub async fn packs(conn: &mut PgConnection, ids: &[DocumentId], model: &str) -> sqlx::Result<Vec<Pack>> {
    sqlx::query_as("SELECT document_id, width, vectors FROM token_packs WHERE document_id = ANY($1) AND model = $2")
        .bind(ids)
        .bind(model)
        .fetch_all(conn)
        .await
}

/// Those of the documents that have token vectors of this model.
pub async fn present(conn: &mut PgConnection, ids: &[DocumentId], model: &str) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar("SELECT document_id FROM token_packs WHERE document_id = ANY($1) AND model = $2")
        .bind(ids)
        .bind(model)
        .fetch_all(conn)
        .await
}
