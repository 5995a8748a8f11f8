//! What one search reads of an index: all of it in one statement, so that it is of one moment without a transaction. A search that remembers all of it
//! only asks whether the index still has these contents, in a smaller statement.
use super::{postings::Resolved, terms::TermStats};
use crate::store::{
    documents::add,
    scope::readable,
    search::{Eligible, eligible},
};
use sqlx::{
    PgConnection, Postgres, Row, SqlSafeStr, SqlStr,
    postgres::{PgArguments, PgRow},
    types::Json,
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::Totals;

/// A sealed list that the caller has: the term and the seal.
pub type Known = (i32, i64);

/// Documents that the caller expects to find, by their numbers in an index; they are verified in the same statement.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen<'a> {
    pub index: IndexId,
    pub docnos: &'a [i32],
    /// `None` if every document of the index passes.
    pub eligible: Option<&'a Eligible>,
}

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
    /// Those of the foreseen documents that the index has.
    pub resolved: Vec<Resolved>,
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

/// The entries `e` of the documents that are foreseen, by the arguments of index and numbers. Each is looked up as the first of a range, which is where it is. If it were
/// looked up by equality, the planner would read all entries of an index that it takes for a small one, and keep that plan while the index grows.
macro_rules! foreseen {
    ($index:literal, $docnos:literal) => {
        concat!(
            "unnest((SELECT ",
            $docnos,
            "::int[])) u(docno)
               CROSS JOIN LATERAL (SELECT x.docno, x.document_id FROM search_index_entries x
                                    WHERE (x.index_id, x.docno) >= (",
            $index,
            ", u.docno) AND (x.index_id, x.docno) <= (",
            $index,
            ", u.docno) ORDER BY x.index_id, x.docno LIMIT 1) e"
        )
    };
}

/// The statement that reads an index; `passes` and its join say which of the foreseen documents pass. The planner does not see the terms and the numbers behind
/// their inner SELECTs. So a plan for these very values never looks cheaper to it than one for any, and it plans no search anew.
macro_rules! reading {
    ($($passes:tt)*) => {
        concat!(
            "WITH i AS MATERIALIZED (
             SELECT i.id, i.config, i.generation, i.rescored_at, i.docs + d.docs AS docs, i.tokens + d.tokens AS tokens,
                    i.contents # d.contents AS contents
               FROM search_indexes i CROSS JOIN LATERAL (
                    SELECT coalesce(sum(docs), 0)::bigint AS docs, coalesce(sum(tokens), 0)::bigint AS tokens,
                           coalesce(bit_xor(contents), 0) AS contents
                      FROM search_index_deltas WHERE index_id = i.id) d
              WHERE i.name = $12),
         s AS MATERIALIZED (
             SELECT term, term_id, df, generation, seal, avgdl_built FROM search_term_stats
              WHERE index_id = (SELECT id FROM i) AND term = ANY((SELECT $13::text[])::text[]))
         SELECT 0::smallint AS kind, NULL::int AS term_id, NULL::int AS first_doc, NULL::bytea AS data, NULL::int[] AS docs, NULL AS term,
                generation, rescored_at AS seal, docs AS count, tokens, NULL::real AS average, id, config, pg_backend_pid() AS backend,
                NULL::bigint[] AS documents, NULL::boolean[] AS passes, contents FROM i
         UNION ALL
         SELECT 1::smallint, term_id, NULL, NULL, NULL, term, generation, seal, df, NULL, avgdl_built, NULL, NULL, NULL, NULL, NULL, NULL FROM s
         UNION ALL
         SELECT 2::smallint, term_id, first_doc, data, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM search_term_postings
          WHERE index_id = (SELECT id FROM i) AND sealed AND term_id = ANY(ARRAY(
                SELECT s.term_id FROM s LEFT JOIN unnest($14::int[], $15::bigint[]) AS k(term_id, seal) ON k.term_id = s.term_id AND k.seal = s.seal
                 WHERE s.df > 0 AND k.term_id IS NULL))
         UNION ALL
         SELECT 3::smallint, term_id, first_doc, data, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM search_term_postings
          WHERE index_id = (SELECT id FROM i) AND NOT sealed AND term_id = ANY(ARRAY(SELECT term_id FROM s))
         UNION ALL
         SELECT 4::smallint, term_id, first_doc, NULL, docs, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM search_term_tombstones
          WHERE index_id = (SELECT id FROM i) AND term_id = ANY(ARRAY(SELECT term_id FROM s))
         UNION ALL
         SELECT 5::smallint, NULL, NULL, NULL, array_agg(f.docno), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                array_agg(f.document_id), array_agg(f.passes), NULL
           FROM (SELECT e.docno, e.document_id, ",
            $($passes)*,
            ") f"
        )
    };
}

/// All of the foreseen documents pass.
const READING: &str = reading!("true AS passes FROM ", foreseen!("$16", "$17"));

/// Those that are eligible pass.
const VERIFYING: &str = reading!(
    "d.id IS NOT NULL AS passes FROM ",
    foreseen!("$16", "$17"),
    " LEFT JOIN documents d ON d.id = e.document_id AND ",
    eligible!()
);

/// Reads what the index of this name knows of `terms`. The sealed rows of `known` lists are left out. Returns `None` if there is no such index.
pub async fn read(
    conn: &mut PgConnection,
    name: &str,
    terms: &[&str],
    known: &[Known],
    foreseen: Option<Foreseen<'_>>,
) -> sqlx::Result<Option<Reading>> {
    let (ids, seals): (Vec<i32>, Vec<i64>) = known.iter().copied().unzip();
    let eligible = foreseen.and_then(|foreseen| foreseen.eligible);
    let mut arguments = arguments(eligible);
    add(&mut arguments, name);
    add(&mut arguments, terms);
    add(&mut arguments, ids);
    add(&mut arguments, seals);
    add(&mut arguments, foreseen.map_or(IndexId(0), |foreseen| foreseen.index));
    add(&mut arguments, foreseen.map_or_else(Vec::new, |foreseen| foreseen.docnos.to_vec()));
    let statement = statement(eligible, READING, VERIFYING, &mut arguments);
    Reading::of(&sqlx::query_with::<Postgres, _>(statement, arguments).fetch_all(conn).await?)
}

/// The statement that only tells which contents an index has; `passes` and its join are those of `reading!`.
macro_rules! glancing {
    ($($passes:tt)*) => {
        concat!(
            "SELECT i.id, pg_backend_pid() AS backend, i.contents # d.contents AS contents, f.docs, f.documents, f.passes
               FROM search_indexes i
               CROSS JOIN LATERAL (SELECT coalesce(bit_xor(contents), 0) AS contents FROM search_index_deltas WHERE index_id = i.id) d
               CROSS JOIN (SELECT array_agg(f.docno) AS docs, array_agg(f.document_id) AS documents, array_agg(f.passes) AS passes
                             FROM (SELECT e.docno, e.document_id, ",
            $($passes)*,
            ") f) f
              WHERE i.name = $12"
        )
    };
}

const GLANCE: &str = glancing!("true AS passes FROM ", foreseen!("$13", "$14"));

const VERIFYING_GLANCE: &str = glancing!(
    "d.id IS NOT NULL AS passes FROM ",
    foreseen!("$13", "$14"),
    " LEFT JOIN documents d ON d.id = e.document_id AND ",
    eligible!()
);

/// What a glance shows of an index.
#[derive(Debug)]
pub struct Glance {
    /// The server's process that read it.
    pub backend: i32,
    pub id: IndexId,
    /// See [`Totals::contents`].
    pub contents: i64,
    /// Those of the foreseen documents that the index has.
    pub resolved: Vec<Resolved>,
}

/// Reads which contents the index of this name has, and verifies the documents that are foreseen if it has those. Returns `None` if there is no such index.
pub async fn glance(conn: &mut PgConnection, name: &str, foreseen: Foreseen<'_>) -> sqlx::Result<Option<Glance>> {
    let mut arguments = arguments(foreseen.eligible);
    add(&mut arguments, name);
    add(&mut arguments, foreseen.index);
    add(&mut arguments, foreseen.docnos.to_vec());
    let statement = statement(foreseen.eligible, GLANCE, VERIFYING_GLANCE, &mut arguments);
    let row = sqlx::query_with::<Postgres, _>(statement, arguments).fetch_optional(conn).await?;
    row.map(|row| {
        Ok(Glance {
            backend: row.try_get("backend")?,
            id: row.try_get("id")?,
            contents: row.try_get("contents")?,
            resolved: resolved(&row)?,
        })
    })
    .transpose()
}

/// The first eleven arguments of either statement are those of the predicate, whether it is in there or not.
fn arguments(eligible: Option<&Eligible>) -> PgArguments {
    match eligible {
        Some(eligible) => eligible.arguments(),
        None => Eligible::default().arguments(),
    }
}

fn statement(
    eligible: Option<&Eligible>,
    all: &'static str,
    verifying: &'static str,
    arguments: &mut PgArguments,
) -> SqlStr {
    match eligible {
        Some(eligible) => eligible.statement(verifying, arguments).into_sql_str(),
        None => SqlStr::from_static(all),
    }
}

impl Reading {
    /// Decodes of each row only the columns of its kind.
    fn of(rows: &[PgRow]) -> sqlx::Result<Option<Reading>> {
        let mut reading: Option<Reading> = None;
        let (mut stats, mut parts, mut verified) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            match row.try_get::<i16, _>("kind")? {
                0 => {
                    let Json(config) = row.try_get("config")?;
                    let totals = Totals {
                        config,
                        generation: row.try_get("generation")?,
                        rescored_at: row.try_get("seal")?,
                        docs: row.try_get("count")?,
                        tokens: row.try_get("tokens")?,
                        contents: row.try_get("contents")?,
                    };
                    reading = Some(Reading {
                        backend: row.try_get("backend")?,
                        id: row.try_get("id")?,
                        totals,
                        stats: Vec::new(),
                        parts: Vec::new(),
                        resolved: Vec::new(),
                    });
                }
                1 => stats.push(TermStats {
                    term: row.try_get("term")?,
                    term_id: row.try_get("term_id")?,
                    df: i32::try_from(row.try_get::<i64, _>("count")?).unwrap_or(i32::MAX),
                    generation: row.try_get("generation")?,
                    seal: row.try_get("seal")?,
                    avgdl_built: row.try_get("average")?,
                }),
                2 => parts.push(part(row, PartOf::Sealed(row.try_get("first_doc")?, row.try_get("data")?))?),
                3 => parts.push(part(row, PartOf::Tail(row.try_get("data")?))?),
                4 => parts.push(part(row, PartOf::Dead(row.try_get("docs")?))?),
                _ => verified = resolved(row)?,
            }
        }
        stats.sort_unstable_by(|a, b| a.term.cmp(&b.term));
        Ok(reading.map(|reading| Reading { stats, parts, resolved: verified, ..reading }))
    }
}

/// The foreseen documents that a row has.
fn resolved(row: &PgRow) -> sqlx::Result<Vec<Resolved>> {
    // An aggregate of nothing is NULL.
    let docnos = row.try_get::<Option<Vec<i32>>, _>("docs")?.unwrap_or_default();
    let documents = row.try_get::<Option<Vec<DocumentId>>, _>("documents")?.unwrap_or_default();
    let passes = row.try_get::<Option<Vec<bool>>, _>("passes")?.unwrap_or_default();
    let all = docnos.into_iter().zip(documents).zip(passes);
    Ok(all.map(|((docno, document_id), passes)| Resolved { docno, document_id, passes }).collect())
}

fn part(row: &PgRow, postings: PartOf) -> sqlx::Result<Part> {
    Ok(Part { term_id: row.try_get("term_id")?, postings })
}
