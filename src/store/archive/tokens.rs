//! Token vectors on their way out of the store.
use super::no_summary;
use crate::{
    store::{
        documents::add,
        raptor,
        scope::{Readable, readable},
    },
    usetype::Usetype,
};
use pgvector::HalfVector;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_ids::DocumentId;

/// A document that has token vectors.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Packed {
    pub id: DocumentId,
    pub model: String,
    /// An estimate of what they take in an answer.
    pub bytes: i64,
}

/// The documents after `after`, by id, at or under a document, or anywhere, that have token vectors.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.map(|id| id.0)))]
pub async fn packed(
    conn: &mut PgConnection,
    scope: &Readable,
    under: Option<DocumentId>,
    after: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<Packed>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, after);
    add(&mut arguments, under);
    add(&mut arguments, i64::from(limit));
    add(&mut arguments, raptor::RULE);
    sqlx::query_as_with(
        concat!(
            // The pack has the widest vectors of at most three widths.
            "SELECT d.id, k.model, 4 * octet_length(k.vectors)::bigint + 64 * k.tokens::bigint AS bytes
               FROM token_packs k JOIN documents d ON d.id = k.document_id
              WHERE k.document_id > $3 AND ($4::bigint IS NULL OR d.id = $4 OR d.path @> ARRAY[$4]) AND ",
            readable!(),
            " AND ",
            no_summary!("$6"),
            " ORDER BY k.document_id LIMIT $5"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// A token of a document, with its vector in each width that is kept.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct TokenRow {
    pub document_id: DocumentId,
    pub token_idx: i32,
    pub token_id: i32,
    pub tier: i16,
    pub embed_256: Option<HalfVector>,
    pub embed_384: Option<HalfVector>,
    pub embed_512: Option<HalfVector>,
}

/// The tokens of these documents, by document and in the order of its text.
pub async fn tokens(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<TokenRow>> {
    sqlx::query_as(
        "SELECT document_id, token_idx, token_id, tier, embed_256, embed_384, embed_512 FROM token_embeddings
          WHERE document_id = ANY($1) ORDER BY document_id, token_idx",
    )
    .bind(ids)
    .fetch_all(conn)
    .await
}

/// The hashes of the texts that token vectors of these documents are made of, as `search::text` puts them together. The server hashes them one after
/// the other, so that many large ones never meet in memory.
pub async fn text_hashes(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<HashMap<DocumentId, String>> {
    let hashes: Vec<(DocumentId, String)> = sqlx::query_as(
        "SELECT id, 'sha256:' || encode(sha256(convert_to(CASE WHEN usetype = ANY($2) THEN content ELSE title || chr(10) || content END, 'UTF8')), 'hex')
           FROM documents WHERE id = ANY($1)",
    )
    .bind(ids)
    .bind(Usetype::leaves())
    .fetch_all(conn)
    .await?;
    Ok(hashes.into_iter().collect())
}
