//! Counts of documents that were found, by what they have.
use crate::store::{
    documents::add,
    scope::{Readable, readable},
};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_ids::DocumentId;

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub enum Counted<'a> {
    Usetype,
    /// Of the nearest file at or above the document.
    Format,
    /// The values at a key of the structured content.
    Key(&'a str),
    Parent,
    /// The topmost document, below this one if it is given.
    Root(Option<DocumentId>),
    /// Spans of time of this length, by the word that PostgreSQL has for it.
    EventTime(&'a str),
    CreatedAt(&'a str),
}

/// The documents that are counted, each with the group to which it belongs.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    pub ids: Vec<DocumentId>,
    pub groups: Vec<DocumentId>,
}

/// How many groups have which value.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub values: Vec<(Value, i64)>,
    /// How many values there are.
    pub distinct: i64,
    /// How many groups have any value.
    pub with: i64,
}

/// The values of the documents `m`, a row each, and their order. $1 and $2 are the scope, $3 and $4 the documents and groups, $5 is the limit.
macro_rules! counted {
    ($values:expr, $order:literal) => {
        concat!(
            "WITH m AS MATERIALIZED (
                 SELECT u.key, d.id, d.path, d.parent_id, d.usetype, d.structured_content, d.event_time, d.created_at
                   FROM unnest($3::bigint[], $4::bigint[]) AS u (id, key) JOIN documents d ON d.id = u.id WHERE ",
            readable!(),
            "), v AS MATERIALIZED (SELECT m.key, x.value FROM m CROSS JOIN LATERAL (",
            $values,
            ") x WHERE x.value IS NOT NULL),
                  c AS MATERIALIZED (SELECT v.value, count(DISTINCT v.key) AS count FROM v GROUP BY v.value)
             SELECT best.value, best.count, (SELECT count(*) FROM c) AS of_all, (SELECT count(DISTINCT v.key) FROM v) AS with_any
               FROM (SELECT) one LEFT JOIN LATERAL (SELECT c.value, c.count FROM c ORDER BY ",
            $order,
            " LIMIT $5) best ON true ORDER BY ",
            $order
        )
    };
}

/// Counts by one kind of value, as far as the caller may read what has the value.
pub async fn count(
    conn: &mut PgConnection,
    scope: &Readable,
    matched: &Matched,
    counted: Counted<'_>,
    limit: i64,
) -> sqlx::Result<Counts> {
    let mut arguments = scope.arguments();
    add(&mut arguments, matched.ids.clone());
    add(&mut arguments, matched.groups.clone());
    add(&mut arguments, limit);
    let statement = match counted {
        Counted::Usetype => counted!("SELECT to_jsonb(m.usetype) AS value", "count DESC, value"),
        Counted::Format => counted!(
            concat!(
                "SELECT to_jsonb(b.format) AS value FROM unnest(m.path || m.id) WITH ORDINALITY AS p (id, place)
                   JOIN documents d ON d.id = p.id JOIN document_blobs b ON b.document_id = d.id AND b.is_file WHERE ",
                readable!(),
                " ORDER BY p.place DESC LIMIT 1"
            ),
            "count DESC, value"
        ),
        Counted::Key(key) => {
            add(&mut arguments, key.to_owned());
            // What is one value in a list and what stands alone are one to their readers.
            counted!(
                "SELECT DISTINCT e.value FROM jsonb_array_elements(CASE jsonb_typeof(m.structured_content -> $6::text)
                        WHEN 'array' THEN m.structured_content -> $6::text ELSE jsonb_build_array(m.structured_content -> $6::text) END) AS e (value)
                  WHERE jsonb_typeof(e.value) IN ('string', 'number', 'boolean') AND length(e.value #>> '{}') <= 255",
                "count DESC, value"
            )
        }
        Counted::Parent => counted!(
            concat!("SELECT to_jsonb(d.id) AS value FROM documents d WHERE d.id = m.parent_id AND ", readable!()),
            "count DESC, value"
        ),
        Counted::Root(below) => {
            add(&mut arguments, below);
            counted!(
                concat!(
                    "SELECT to_jsonb(d.id) AS value FROM unnest(m.path || m.id) WITH ORDINALITY AS p (id, place) JOIN documents d ON d.id = p.id
                      WHERE p.place > coalesce(array_position(m.path, $6::bigint), 0) AND ",
                    readable!(),
                    " ORDER BY p.place LIMIT 1"
                ),
                "count DESC, value"
            )
        }
        Counted::EventTime(bucket) => {
            // The year before the year 1 is 0 in the API, and -1 in PostgreSQL.
            add(&mut arguments, bucket.to_owned());
            counted!(
                "SELECT to_jsonb(CASE WHEN t.year > 0 THEN to_char(t.at, 'YYYY-MM-DD')
                                      ELSE CASE WHEN t.year < -1 THEN '-' ELSE '' END || lpad((-t.year - 1)::text, 4, '0') || to_char(t.at, '-MM-DD') END) AS value
                   FROM (SELECT b.at, extract(year FROM b.at)::integer AS year
                           FROM (SELECT date_trunc($6::text, m.event_time AT TIME ZONE 'UTC') AS at) b) t",
                "value #>> '{}' LIKE '-%', CASE WHEN value #>> '{}' LIKE '-%' THEN -split_part(value #>> '{}', '-', 2)::integer END DESC, value DESC"
            )
        }
        Counted::CreatedAt(bucket) => {
            add(&mut arguments, bucket.to_owned());
            counted!(
                "SELECT to_jsonb(to_char(date_trunc($6::text, m.created_at AT TIME ZONE 'UTC'), 'YYYY-MM-DD')) AS value",
                "value DESC"
            )
        }
    };
    let rows: Vec<(Option<Value>, Option<i64>, i64, i64)> =
        sqlx::query_as_with(statement, arguments).fetch_all(conn).await?;
    let (distinct, with) = rows.first().map_or((0, 0), |(_, _, distinct, with)| (*distinct, *with));
    let values = rows.into_iter().filter_map(|(value, count, ..)| Some((value?, count?))).collect();
    Ok(Counts { values, distinct, with })
}

/// The titles of documents.
pub async fn titles(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
) -> sqlx::Result<HashMap<DocumentId, String>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    let statement = concat!("SELECT d.id, d.title FROM documents d WHERE d.id = ANY($3::bigint[]) AND ", readable!());
    let rows: Vec<(DocumentId, String)> = sqlx::query_as_with(statement, arguments).fetch_all(conn).await?;
    Ok(rows.into_iter().collect())
}
