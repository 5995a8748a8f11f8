//! Terms and their document frequencies.

use sqlx::PgConnection;
use svc_ids::{DocumentId, IndexId};

#[derive(Clone, Debug, PartialEq, sqlx_macros::FromRow)]
pub struct TermStats {
    pub term: String,
    pub term_id: i32,
    /// The number of sealed postings.
    pub df: i32,
    pub generation: i64,
    /// Drawn anew whenever the term's postings are sealed.
    pub seal: i64,
    pub avgdl_built: f32,
}

/// What a compaction changed for one term.
#[derive(Clone, Copy, Debug)]
pub struct Sealed {
    pub term_id: i32,
    pub df: i32,
    pub avgdl_built: f32,
}

/// What the index knows of the terms with these ids, sorted by id.
pub async fn stats_by_id(conn: &mut PgConnection, index: IndexId, ids: &[i32]) -> sqlx::Result<Vec<TermStats>> {
    sqlx::query_as(
        "SELECT term, term_id, df, generation, seal, avgdl_built FROM search_term_stats
         WHERE index_id = $1 AND term_id = ANY($2) ORDER BY term_id",
    )
    .bind(index)
    .bind(ids)
    .fetch_all(conn)
    .await
}

/// Terms above `after` whose sealed postings have the generation `until` or an earlier one, ascending, at most `limit`.
pub async fn sealed_until(
    conn: &mut PgConnection,
    index: IndexId,
    until: i64,
    after: i32,
    limit: i64,
) -> sqlx::Result<Vec<i32>> {
    sqlx::query_scalar(
        "SELECT term_id FROM search_term_stats
         WHERE index_id = $1 AND term_id > $3 AND df > 0 AND generation <= $2 ORDER BY term_id LIMIT $4",
    )
    .bind(index)
    .bind(until)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await
}

pub async fn ids(conn: &mut PgConnection, index: IndexId, terms: &[&str]) -> sqlx::Result<Vec<(String, i32)>> {
    sqlx::query_as("SELECT term, term_id FROM search_term_stats WHERE index_id = $1 AND term = ANY($2)")
        .bind(index)
        .bind(terms)
        .fetch_all(conn)
        .await
}

/// Those of `terms` that the index of this name knows, each with the number of its sealed postings.
pub async fn sealed_counts(conn: &mut PgConnection, index: &str, terms: &[&str]) -> sqlx::Result<Vec<(String, i32)>> {
    sqlx::query_as(
        "SELECT term, df FROM search_term_stats
          WHERE index_id = (SELECT id FROM search_indexes WHERE name = $1) AND term = ANY($2)",
    )
    .bind(index)
    .bind(terms)
    .fetch_all(conn)
    .await
}

/// The terms of an index that begin with the same letter as this one: the next ones behind it, and then those before it, at most `most` of each.
pub async fn around(conn: &mut PgConnection, index: &str, term: &str, most: i64) -> sqlx::Result<Vec<String>> {
    let Some(first) = term.chars().next() else { return Ok(Vec::new()) };
    // There is no letter behind the last one, nor one that begins a term there.
    let behind = (u32::from(first) + 1..=u32::from(char::MAX)).find_map(char::from_u32).unwrap_or(char::MAX);
    sqlx::query_scalar(
        "(SELECT s.term FROM search_term_stats s
           WHERE s.index_id = (SELECT i.id FROM search_indexes i WHERE i.name = $1) AND s.term > $2 AND s.term < $4
           ORDER BY s.term LIMIT $5)
         UNION ALL
         (SELECT s.term FROM search_term_stats s
           WHERE s.index_id = (SELECT i.id FROM search_indexes i WHERE i.name = $1) AND s.term < $2 AND s.term >= $3
           ORDER BY s.term DESC LIMIT $5)",
    )
    .bind(index)
    .bind(term)
    .bind(first.to_string())
    .bind(behind.to_string())
    .bind(most)
    .fetch_all(conn)
    .await
}

/// How many documents of the index of this name have each of these terms, and how many documents the index has in all. A term that none of `documents` has there is left
/// out, so that nothing is told of a term which only other documents have.
pub async fn frequencies(
    conn: &mut PgConnection,
    index: &str,
    documents: &[DocumentId],
    terms: &[&str],
) -> sqlx::Result<Vec<(String, i64, i64)>> {
    sqlx::query_as(
        "SELECT s.term,
                (s.df + coalesce((SELECT sum(p.n) FROM search_term_postings p
                                   WHERE p.index_id = s.index_id AND p.term_id = s.term_id AND NOT p.sealed), 0)
                      - coalesce((SELECT sum(cardinality(t.docs)) FROM search_term_tombstones t
                                   WHERE t.index_id = s.index_id AND t.term_id = s.term_id), 0))::bigint,
                (i.docs + coalesce((SELECT sum(d.docs) FROM search_index_deltas d WHERE d.index_id = i.id), 0))::bigint
           FROM search_indexes i JOIN search_term_stats s ON s.index_id = i.id
          WHERE i.name = $1 AND s.term = ANY($2)
            AND s.term_id IN (SELECT unnest(e.terms) FROM search_index_entries e
                               WHERE e.document_id = ANY($3)
                                 AND e.index_id = (SELECT named.id FROM search_indexes named WHERE named.name = $1))",
    )
    .bind(index)
    .bind(terms)
    .bind(documents)
    .fetch_all(conn)
    .await
}

/// Whether each of these terms still has this id.
pub async fn agree(conn: &mut PgConnection, index: IndexId, terms: &[&str], ids: &[i32]) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT count(*) = cardinality($2::text[]) FROM unnest($2::text[], $3::int[]) AS u (term, term_id)
           JOIN search_term_stats s ON s.index_id = $1 AND s.term = u.term COLLATE \"C\" AND s.term_id = u.term_id",
    )
    .bind(index)
    .bind(terms)
    .bind(ids)
    .fetch_one(conn)
    .await
}

/// Inserts those of `terms`, which must be sorted, that are new, and returns their ids; read the others' ids with
/// [`ids`] afterwards. This is one statement, which holds no lock beyond its own end if the connection is in no
/// transaction.
pub async fn insert(conn: &mut PgConnection, index: IndexId, terms: &[&str]) -> sqlx::Result<Vec<(String, i32)>> {
    sqlx::query_as(
        "INSERT INTO search_term_stats (index_id, term) SELECT $1, t FROM unnest($2::text[]) AS t ORDER BY t COLLATE \"C\"
         ON CONFLICT DO NOTHING RETURNING term, term_id",
    )
    .bind(index)
    .bind(terms)
    .fetch_all(conn)
    .await
}

/// Of the next terms above `after`, at most `limit`: those whose sealed postings are all gone, and the last one looked at, `None` if there is no further one. A term that was
/// never sealed may belong to a text that is about to be written, unless it was there at the end of the look before.
pub async fn without_sealed(
    conn: &mut PgConnection,
    index: IndexId,
    after: i32,
    limit: i64,
) -> sqlx::Result<(Vec<i32>, Option<i32>)> {
    sqlx::query_as(
        "SELECT coalesce(array_agg(term_id) FILTER (WHERE df = 0 AND (generation > 0 OR term_id <= terms_seen)), '{}'), max(term_id)
           FROM (SELECT term_id, df, generation, (SELECT terms_seen FROM search_indexes WHERE id = $1) AS terms_seen FROM search_term_stats
                  WHERE index_id = $1 AND term_id > $2 ORDER BY term_id LIMIT $3) s",
    )
    .bind(index)
    .bind(after)
    .bind(limit)
    .fetch_one(conn)
    .await
}

/// Says at the end of a look which term was the last one.
pub async fn set_seen(conn: &mut PgConnection, index: IndexId, last: i32) -> sqlx::Result<()> {
    sqlx::query("UPDATE search_indexes SET terms_seen = $2 WHERE id = $1")
        .bind(index)
        .bind(last)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Deletes those of these terms that have no postings at all, and returns how many these are. The caller holds the index alone, so that nobody writes a term in between.
pub async fn delete_unused(conn: &mut PgConnection, index: IndexId, ids: &[i32]) -> sqlx::Result<u64> {
    let deleted = sqlx::query(
        "DELETE FROM search_term_stats s WHERE s.index_id = $1 AND s.term_id = ANY($2) AND s.df = 0
            AND NOT EXISTS (SELECT FROM search_term_postings p WHERE p.index_id = s.index_id AND NOT p.sealed AND p.term_id = s.term_id)
            AND NOT EXISTS (SELECT FROM search_term_tombstones t WHERE t.index_id = s.index_id AND t.term_id = s.term_id)",
    )
    .bind(index)
    .bind(ids)
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}

pub async fn set_sealed(
    conn: &mut PgConnection,
    index: IndexId,
    generation: i64,
    sealed: &[Sealed],
) -> sqlx::Result<()> {
    let ids: Vec<i32> = sealed.iter().map(|term| term.term_id).collect();
    let dfs: Vec<i32> = sealed.iter().map(|term| term.df).collect();
    let averages: Vec<f32> = sealed.iter().map(|term| term.avgdl_built).collect();
    sqlx::query(
        "UPDATE search_term_stats s SET df = u.df, generation = $2, seal = $6, avgdl_built = u.avgdl_built
         FROM unnest($3::int[], $4::int[], $5::real[]) AS u (term_id, df, avgdl_built)
         WHERE s.index_id = $1 AND s.term_id = u.term_id",
    )
    .bind(index)
    .bind(generation)
    .bind(ids)
    .bind(dfs)
    .bind(averages)
    .bind(rand::random::<i64>())
    .execute(conn)
    .await?;
    Ok(())
}
