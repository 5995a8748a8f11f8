//! What one search reads of an index: all of it in one statement, so that it is of one moment without a transaction.
use super::{Totals, terms::TermStats};
use sqlx::{PgConnection, types::Json};
use svc_ids::IndexId;
use svc_ranking::Config;

/// A sealed list that the caller has: the term and the seal.
pub type Known = (i32, i64);

/// An index as one search reads it.
#[derive(Debug)]
pub struct Reading {
    /// The server's process that read it.
    pub backend: i32,
    pub id: IndexId,
    pub totals: Totals,
    /// Those of the terms that the index knows, by term.
    pub stats: Vec<TermStats>,
    pub parts: Vec<Part>,
}

/// Postings of a term.
#[derive(Debug)]
pub struct Part {
    pub term_id: i32,
    pub postings: PartOf,
}

/// What a [`Part`] holds.
#[derive(Debug)]
pub enum PartOf {
    /// A sealed row, with its first document.
    Sealed(i32, Vec<u8>),
    Tail(Vec<u8>),
    /// The documents of tombstones.
    Dead(Vec<i32>),
}

#[derive(Debug, sqlx_macros::FromRow)]
struct Row {
    kind: i16,
    term_id: Option<i32>,
    first_doc: Option<i32>,
    data: Option<Vec<u8>>,
    docs: Option<Vec<i32>>,
    term: Option<String>,
    generation: Option<i64>,
    seal: Option<i64>,
    count: Option<i64>,
    tokens: Option<i64>,
    average: Option<f32>,
    id: Option<IndexId>,
    config: Option<Json<Config>>,
    backend: Option<i32>,
}

/// Reads what the index of this name knows of `terms`: of the `most` rarest of them at most. The sealed rows of `known` lists are left
/// out. Returns `None` if there is no such index.
pub async fn read(
    conn: &mut PgConnection,
    name: &str,
    terms: &[&str],
    known: &[Known],
    most: usize,
) -> sqlx::Result<Option<Reading>> {
    let (ids, seals): (Vec<i32>, Vec<i64>) = known.iter().copied().unzip();
    let rows: Vec<Row> = sqlx::query_as(
        "WITH i AS MATERIALIZED (
             SELECT i.id, i.config, i.generation, i.rescored_at, i.docs + d.docs AS docs, i.tokens + d.tokens AS tokens
               FROM search_indexes i CROSS JOIN LATERAL (
                    SELECT coalesce(sum(docs), 0)::bigint AS docs, coalesce(sum(tokens), 0)::bigint AS tokens
                      FROM search_index_deltas WHERE index_id = i.id) d
              WHERE i.name = $1),
         s AS MATERIALIZED (
             SELECT term, term_id, df, generation, seal, avgdl_built FROM search_term_stats
              WHERE index_id = (SELECT id FROM i) AND term = ANY($2) ORDER BY df, term LIMIT $5)
         SELECT 0::smallint AS kind, NULL::int AS term_id, NULL::int AS first_doc, NULL::bytea AS data, NULL::int[] AS docs, NULL AS term,
                generation, rescored_at AS seal, docs AS count, tokens, NULL::real AS average, id, config, pg_backend_pid() AS backend FROM i
         UNION ALL
         SELECT 1::smallint, term_id, NULL, NULL, NULL, term, generation, seal, df, NULL, avgdl_built, NULL, NULL, NULL FROM s
         UNION ALL
         SELECT 2::smallint, term_id, first_doc, data, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM search_term_postings
          WHERE index_id = (SELECT id FROM i) AND sealed AND term_id = ANY(ARRAY(
                SELECT s.term_id FROM s LEFT JOIN unnest($3::int[], $4::bigint[]) AS k(term_id, seal) ON k.term_id = s.term_id AND k.seal = s.seal
                 WHERE s.df > 0 AND k.term_id IS NULL))
         UNION ALL
         SELECT 3::smallint, term_id, first_doc, data, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM search_term_postings
          WHERE index_id = (SELECT id FROM i) AND NOT sealed AND term_id = ANY(ARRAY(SELECT term_id FROM s))
         UNION ALL
         SELECT 4::smallint, term_id, first_doc, NULL, docs, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM search_term_tombstones
          WHERE index_id = (SELECT id FROM i) AND term_id = ANY(ARRAY(SELECT term_id FROM s))",
    )
    .bind(name)
    .bind(terms)
    .bind(ids)
    .bind(seals)
    .bind(i64::try_from(most).unwrap_or(i64::MAX))
    .fetch_all(conn)
    .await?;
    Ok(Reading::of(rows))
}

impl Reading {
    fn of(rows: Vec<Row>) -> Option<Reading> {
        let mut reading: Option<Reading> = None;
        let (mut stats, mut parts) = (Vec::new(), Vec::with_capacity(rows.len()));
        for row in rows {
            let part = |postings| row.term_id.map(|term_id| Part { term_id, postings });
            match row.kind {
                0 => {
                    let totals = Totals {
                        config: row.config?.0,
                        generation: row.generation?,
                        rescored_at: row.seal?,
                        docs: row.count?,
                        tokens: row.tokens?,
                    };
                    reading = Some(Reading {
                        backend: row.backend?,
                        id: row.id?,
                        totals,
                        stats: Vec::new(),
                        parts: Vec::new(),
                    });
                }
                1 => stats.push(TermStats {
                    term: row.term?,
                    term_id: row.term_id?,
                    df: i32::try_from(row.count?).unwrap_or(i32::MAX),
                    generation: row.generation?,
                    seal: row.seal?,
                    avgdl_built: row.average?,
                }),
                2 => parts.extend(part(PartOf::Sealed(row.first_doc?, row.data.unwrap_or_default()))),
                3 => parts.extend(part(PartOf::Tail(row.data.unwrap_or_default()))),
                _ => parts.extend(part(PartOf::Dead(row.docs.unwrap_or_default()))),
            }
        }
        stats.sort_unstable_by(|a, b| a.term.cmp(&b.term));
        reading.map(|reading| Reading { stats, parts, ..reading })
    }
}
