//! Entries, rows of postings and tombstones.

use super::copy::Copy;
use sqlx::PgConnection;
use std::{collections::HashSet, fmt::Write};
use svc_ids::{DocumentId, IndexId};

/// A row of `search_term_postings`.
#[derive(Clone, Debug)]
pub struct PostingsRow {
    pub term_id: i32,
    pub first_doc: i32,
    pub last_doc: i32,
    pub n: i32,
    pub ub: f32,
    pub sealed: bool,
    pub data: Vec<u8>,
}

/// A row of `search_index_entries`; `terms` and `tfs` correspond.
#[derive(Clone, Debug)]
pub struct Entry {
    pub docno: i32,
    pub document_id: DocumentId,
    pub length: i32,
    pub terms: Vec<i32>,
    pub tfs: Vec<i16>,
}

/// The place of a sealed row.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Head {
    pub term_id: i32,
    pub first_doc: i32,
    pub last_doc: i32,
    pub n: i32,
}

/// The term and the first document of a row, and what it holds: the bytes of postings, or the documents of tombstones.
pub type Keyed<T> = (i32, i32, T);

/// Waits until no compaction of the index runs, and keeps any from starting before the transaction ends.
/// This lock comes before all others, also before [`AdvisoryLock::Access`](crate::store::advisory::AdvisoryLock): a compaction takes seconds, and whoever
/// waits for its end should hold nothing that others wait for. So a transaction takes the lock of one index alone.
pub async fn lock_compaction(conn: &mut PgConnection, index: IndexId) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('search_index_compaction:' || $1::text, 0))")
        .bind(index)
        .execute(conn)
        .await?;
    Ok(())
}

/// Does the same as [`lock_compaction`], but returns false at once if another compaction holds the lock.
pub async fn try_lock_compaction(conn: &mut PgConnection, index: IndexId) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT pg_try_advisory_xact_lock(hashtextextended('search_index_compaction:' || $1::text, 0))")
        .bind(index)
        .fetch_one(conn)
        .await
}

/// `count` new document numbers of an index, ascending; an error with the state [`NO_NUMBERS`] if it has none left.
pub async fn next_docnos(conn: &mut PgConnection, index: IndexId, count: usize) -> sqlx::Result<Vec<i32>> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let mut docnos: Vec<i32> = sqlx::query_scalar(
        "SELECT nextval(('search_docno_' || $1::bigint)::regclass)::int FROM generate_series(1, $2::bigint)",
    )
    .bind(index)
    .bind(count)
    .fetch_all(conn)
    .await?;
    docnos.sort_unstable();
    Ok(docnos)
}

/// The state of the error that [`next_docnos`] has at the end of the numbers.
pub const NO_NUMBERS: &str = "2200H";

/// From this number on, rows go by COPY rather than as parameters. Over TCP a COPY costs one delayed acknowledgement,
/// about 40 ms, because its end is a separate packet; from here on it is worth that.
const COPIED: usize = 8_192;

pub async fn insert_entries(conn: &mut PgConnection, index: IndexId, entries: &[Entry]) -> sqlx::Result<()> {
    let docnos: Vec<i32> = entries.iter().map(|entry| entry.docno).collect();
    let documents: Vec<DocumentId> = entries.iter().map(|entry| entry.document_id).collect();
    let lengths: Vec<i32> = entries.iter().map(|entry| entry.length).collect();
    // An array of arrays must be rectangular, so the inner ones travel as text.
    let terms: Vec<String> = entries.iter().map(|entry| array(&entry.terms)).collect();
    let tfs: Vec<String> = entries.iter().map(|entry| array(&entry.tfs)).collect();
    sqlx::query(
        "INSERT INTO search_index_entries (index_id, docno, document_id, length, terms, tfs)
         SELECT $1, docno, document_id, length, terms::int[], tfs::smallint[]
         FROM unnest($2::int[], $3::bigint[], $4::int[], $5::text[], $6::text[])
              AS u (docno, document_id, length, terms, tfs)",
    )
    .bind(index)
    .bind(docnos)
    .bind(documents)
    .bind(lengths)
    .bind(terms)
    .bind(tfs)
    .execute(conn)
    .await?;
    Ok(())
}

fn array<T: std::fmt::Display>(items: &[T]) -> String {
    let mut out = String::with_capacity(2 + 8 * items.len());
    for item in items {
        out.push(if out.is_empty() { '{' } else { ',' });
        // Writing to a String cannot fail.
        let _ = write!(out, "{item}");
    }
    out.push_str(if out.is_empty() { "{}" } else { "}" });
    out
}

pub async fn insert_postings(conn: &mut PgConnection, index: IndexId, rows: &[PostingsRow]) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    if rows.len() < COPIED {
        sqlx::query(
            "INSERT INTO search_term_postings (index_id, term_id, first_doc, last_doc, n, ub, sealed, data)
             SELECT $1, u.* FROM unnest($2::int[], $3::int[], $4::int[], $5::int[], $6::real[], $7::boolean[], $8::bytea[]) AS u",
        )
        .bind(index)
        .bind(rows.iter().map(|row| row.term_id).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.first_doc).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.last_doc).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.n).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.ub).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.sealed).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.data.as_slice()).collect::<Vec<_>>())
        .execute(conn)
        .await?;
        return Ok(());
    }
    let mut copy = Copy::new(
        conn,
        "COPY search_term_postings (index_id, term_id, first_doc, last_doc, n, ub, sealed, data)
         FROM STDIN (FORMAT binary)",
    )
    .await?;
    for row in rows {
        copy.row(8);
        copy.field(&index.0.to_be_bytes());
        copy.field(&row.term_id.to_be_bytes());
        copy.field(&row.first_doc.to_be_bytes());
        copy.field(&row.last_doc.to_be_bytes());
        copy.field(&row.n.to_be_bytes());
        copy.field(&row.ub.to_be_bytes());
        copy.field(&[u8::from(row.sealed)]);
        copy.field(&row.data);
        copy.flush().await?;
    }
    copy.finish().await
}

pub async fn insert_tombstones(conn: &mut PgConnection, index: IndexId, rows: &[Keyed<Vec<i32>>]) -> sqlx::Result<()> {
    for (term, first, docs) in rows {
        sqlx::query("INSERT INTO search_term_tombstones (index_id, term_id, first_doc, docs) VALUES ($1, $2, $3, $4)")
            .bind(index)
            .bind(term)
            .bind(first)
            .bind(docs)
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}

pub async fn insert_delta(conn: &mut PgConnection, index: IndexId, docs: i32, tokens: i64) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO search_index_deltas (index_id, docs, tokens, contents) VALUES ($1, $2, $3, $4)")
        .bind(index)
        .bind(docs)
        .bind(tokens)
        .bind(rand::random::<i64>())
        .execute(conn)
        .await?;
    Ok(())
}

/// Takes documents out of one index, or of every index if `index` is `None`: their entries become tombstones of their
/// terms, and the totals shrink, all in one statement. Returns how many entries there were.
pub async fn bury(conn: &mut PgConnection, index: Option<IndexId>, documents: &[DocumentId]) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        // They are locked in one order, so that two callers that remove the same documents wait and do not deadlock.
        "WITH found AS (
             SELECT index_id, docno FROM search_index_entries
             WHERE document_id = ANY($1) AND ($2::bigint IS NULL OR index_id = $2)
             ORDER BY index_id, docno FOR UPDATE
         ), gone AS (
             DELETE FROM search_index_entries e USING found f
             WHERE e.index_id = f.index_id AND e.docno = f.docno
             RETURNING e.index_id, e.docno, e.length, e.terms
         ), counted AS (
             -- Chunks keep each row of tombstones well inside a page.
             SELECT index_id, docno, terms, row_number() OVER (PARTITION BY index_id ORDER BY docno) / 500 AS chunk FROM gone
         ), tombstones AS (
             INSERT INTO search_term_tombstones (index_id, term_id, first_doc, docs)
             SELECT c.index_id, t, min(c.docno), array_agg(c.docno ORDER BY c.docno)
             FROM counted c, unnest(c.terms) AS t GROUP BY c.index_id, t, c.chunk
         ), deltas AS (
             INSERT INTO search_index_deltas (index_id, docs, tokens, contents)
             SELECT index_id, -count(*)::int, -sum(length)::bigint, $3::bigint FROM gone GROUP BY index_id
         )
         SELECT count(*) FROM gone",
    )
    .bind(documents)
    .bind(index)
    .bind(rand::random::<i64>())
    .fetch_one(conn)
    .await
}

/// Those of these documents that an index holds.
pub async fn held(
    conn: &mut PgConnection,
    index: IndexId,
    documents: &[DocumentId],
) -> sqlx::Result<HashSet<DocumentId>> {
    let held: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT document_id FROM search_index_entries WHERE index_id = $1 AND document_id = ANY($2)",
    )
    .bind(index)
    .bind(documents)
    .fetch_all(conn)
    .await?;
    Ok(held.into_iter().collect())
}

/// Gives the entries of a document to another one, in place of all that this has.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = from.0, to.id = to.0))]
pub async fn hand_over(conn: &mut PgConnection, from: DocumentId, to: DocumentId) -> sqlx::Result<()> {
    bury(&mut *conn, None, &[to]).await?;
    sqlx::query("UPDATE search_index_entries SET document_id = $2 WHERE document_id = $1")
        .bind(from)
        .bind(to)
        .execute(conn)
        .await
        .map(|_| ())
}

/// A document of an index by its number there.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Resolved {
    pub docno: i32,
    pub document_id: DocumentId,
    /// Whether it is eligible.
    pub passes: bool,
}

/// The documents with the numbers `docnos`, which all pass.
pub async fn documents(conn: &mut PgConnection, index: IndexId, docnos: &[i32]) -> sqlx::Result<Vec<Resolved>> {
    sqlx::query_as(
        "SELECT docno, document_id, true AS passes FROM search_index_entries WHERE index_id = $1 AND docno = ANY($2)",
    )
    .bind(index)
    .bind(docnos)
    .fetch_all(conn)
    .await
}

/// Terms above `after` with tails or tombstones, ascending, at most `limit`.
pub async fn pending_terms(conn: &mut PgConnection, index: IndexId, after: i32, limit: i64) -> sqlx::Result<Vec<i32>> {
    // This is a loop of index look-ups, because DISTINCT would read every tail of the terms that have thousands.
    sqlx::query_scalar(
        "WITH RECURSIVE next AS (
             SELECT least((SELECT min(term_id) FROM search_term_postings WHERE index_id = $1 AND term_id > $2 AND NOT sealed),
                          (SELECT min(term_id) FROM search_term_tombstones WHERE index_id = $1 AND term_id > $2)) AS t,
                    1::bigint AS i
             UNION ALL
             SELECT least((SELECT min(term_id) FROM search_term_postings WHERE index_id = $1 AND term_id > t AND NOT sealed),
                          (SELECT min(term_id) FROM search_term_tombstones WHERE index_id = $1 AND term_id > t)),
                    i + 1
             FROM next WHERE t IS NOT NULL AND i < $3
         )
         SELECT t FROM next WHERE t IS NOT NULL ORDER BY t",
    )
    .bind(index)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// The places of the tail rows of `terms`, by term and first document, at most `limit`.
pub async fn tail_heads(conn: &mut PgConnection, index: IndexId, terms: &[i32], limit: i64) -> sqlx::Result<Vec<Head>> {
    sqlx::query_as(
        "SELECT term_id, first_doc, last_doc, n FROM search_term_postings
         WHERE index_id = $1 AND term_id = ANY($2) AND NOT sealed ORDER BY term_id, first_doc LIMIT $3",
    )
    .bind(index)
    .bind(terms)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// The tombstones of `terms` by term and first document, at most `limit`.
pub async fn tombstones(
    conn: &mut PgConnection,
    index: IndexId,
    terms: &[i32],
    limit: i64,
) -> sqlx::Result<Vec<Keyed<Vec<i32>>>> {
    sqlx::query_as(
        "SELECT term_id, first_doc, docs FROM search_term_tombstones
         WHERE index_id = $1 AND term_id = ANY($2) ORDER BY term_id, first_doc LIMIT $3",
    )
    .bind(index)
    .bind(terms)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// The places of the sealed rows of `terms`, by term and first document.
pub async fn heads(conn: &mut PgConnection, index: IndexId, terms: &[i32]) -> sqlx::Result<Vec<Head>> {
    sqlx::query_as(
        "SELECT term_id, first_doc, last_doc, n FROM search_term_postings
         WHERE index_id = $1 AND term_id = ANY($2) AND sealed ORDER BY term_id, first_doc",
    )
    .bind(index)
    .bind(terms)
    .fetch_all(conn)
    .await
}

/// Deletes the rows `(term, first document)`, all sealed or all tails, and returns their bytes, by term and first
/// document.
pub async fn take_rows(
    conn: &mut PgConnection,
    index: IndexId,
    sealed: bool,
    terms: &[i32],
    firsts: &[i32],
) -> sqlx::Result<Vec<Keyed<Vec<u8>>>> {
    sqlx::query_as(
        "WITH gone AS (
             DELETE FROM search_term_postings p USING unnest($3::int[], $4::int[]) AS k (term_id, first_doc)
             WHERE p.index_id = $1 AND p.sealed = $2 AND p.term_id = k.term_id AND p.first_doc = k.first_doc
             RETURNING p.term_id, p.first_doc, p.data)
         SELECT term_id, first_doc, data FROM gone ORDER BY term_id, first_doc",
    )
    .bind(index)
    .bind(sealed)
    .bind(terms)
    .bind(firsts)
    .fetch_all(conn)
    .await
}

/// Deletes the tombstone rows `(term, first document)`.
pub async fn delete_tombstones(
    conn: &mut PgConnection,
    index: IndexId,
    terms: &[i32],
    firsts: &[i32],
) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM search_term_tombstones s USING unnest($2::int[], $3::int[]) AS k (term_id, first_doc)
         WHERE s.index_id = $1 AND s.term_id = k.term_id AND s.first_doc = k.first_doc",
    )
    .bind(index)
    .bind(terms)
    .bind(firsts)
    .execute(conn)
    .await?;
    Ok(())
}
