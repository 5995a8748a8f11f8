//! The vectors of documents. They are stored beside the document, at the width of their model, and compared with a
//! query's vector.
mod layout;

use super::{
    documents::add,
    places::Place,
    scope::{Readable, readable},
    search::{Eligible, eligible, literal},
};
pub use layout::{Index, Layout, Plans, begin, begin_looking_up, layout, parts, plan_anew};
pub(super) use layout::{definition, index_name, rows};
use pgvector::HalfVector;
use sqlx::{AssertSqlSafe, PgConnection, postgres::PgArguments};
use svc_ids::DocumentId;
use svc_models::Embedding;

/// So many vectors are all compared wherever everything is eligible: the HNSW index would hardly be faster, and might miss one. It is made
/// once a model has more.
pub const FEW: i64 = 3_000;

/// The width of a vector in the API. A narrower vector is padded with zeros.
pub const SHOWN_WIDTH: usize = 768;

/// A vector of one model, as it is stored and as queries are compared.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    /// The model's name and hash.
    pub model: &'a str,
    pub vector: HalfVector,
}

impl<'a> Stored<'a> {
    /// `vector` may be padded with zeros beyond the model's own width.
    pub fn new(model: &'a str, native_width: usize, vector: &[f32]) -> Stored<'a> {
        Stored { model, vector: HalfVector::from_f32_slice(&vector[..native_width.min(vector.len())]) }
    }
}

/// A document's vector, and how much it counts in the vector of its container.
#[derive(Clone, Debug)]
pub struct Weighted {
    pub vector: HalfVector,
    pub weight: f32,
}

impl Weighted {
    /// Takes what a model of this width made of a text.
    pub fn new(native_width: usize, mut embedding: Embedding) -> Weighted {
        embedding.vector.truncate(native_width);
        Weighted { vector: HalfVector::from_f32_slice(&embedding.vector), weight: embedding.weight }
    }
}

/// The mean of the vectors `v`, each by its weight. Times their number it is the weighted sum, in whose direction a
/// container's vector points, and whose length is the container's own weight.
macro_rules! weighted_mean {
    () => {
        "avg(v.embed::vector * array_fill(v.weight, ARRAY[vector_dims(v.embed)])::vector)"
    };
}
pub(super) use weighted_mean;

/// The vector at length 1: normalised again, because rounding to half precision changes its length.
pub fn unit(vector: &HalfVector) -> Vec<f32> {
    let mut unit: Vec<f32> = vector.to_vec().into_iter().map(f32::from).collect();
    let length = unit.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() as f32;
    if length > 0.0 {
        unit.iter_mut().for_each(|x| *x /= length);
    }
    unit
}

/// The vector as the API shows it.
pub fn shown(vector: &HalfVector) -> Vec<f32> {
    let mut shown = unit(vector);
    shown.resize(SHOWN_WIDTH.max(shown.len()), 0.0);
    shown
}

/// The documents above a document, and its vector if it has one of the model; `None` if there is no such document in the scope.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn of(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    model: &str,
) -> sqlx::Result<Option<(Vec<DocumentId>, Option<HalfVector>)>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    add(&mut arguments, model.to_owned());
    let query = concat!(
        "SELECT d.path, v.embed FROM documents d LEFT JOIN document_vectors v ON v.document_id = d.id AND v.embed_model = $4 WHERE d.id = $3 AND ",
        readable!()
    );
    sqlx::query_as_with(query, arguments).fetch_optional(conn).await
}

/// Stores the vectors of documents at and under a place, which are all of one model, in place of those that they have, of whatever model.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = within.id().0))]
pub async fn set(
    conn: &mut PgConnection,
    within: &Place,
    ids: &[DocumentId],
    vectors: &[Weighted],
    model: &str,
) -> sqlx::Result<()> {
    write(conn, ids, vectors, model, true).await
}

/// Whether a document has this very vector.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn has(conn: &mut PgConnection, id: DocumentId, vector: &Weighted, model: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM document_vectors WHERE document_id = $1 AND embed_model = $2 AND embed = $3 AND weight = $4)",
    )
    .bind(id)
    .bind(model)
    .bind(&vector.vector)
    .bind(vector.weight)
    .fetch_one(conn)
    .await
}

/// Stores vectors of one model, beside those of others or in their place.
pub(super) async fn write(
    conn: &mut PgConnection,
    ids: &[DocumentId],
    vectors: &[Weighted],
    model: &str,
    alone: bool,
) -> sqlx::Result<()> {
    sqlx::query(
        "WITH others AS (DELETE FROM document_vectors WHERE $5 AND document_id = ANY($1) AND embed_model <> $4)
         INSERT INTO document_vectors (document_id, embed_model, embed, weight, root_id)
         SELECT d.id, $4, v.embed, v.weight, vector_root('document_vectors', d.id)
           FROM unnest($1::bigint[], $2::halfvec[], $3::real[]) AS v(id, embed, weight)
          CROSS JOIN LATERAL (SELECT d.id FROM documents d WHERE d.id = v.id OFFSET 0) d ORDER BY d.id
         ON CONFLICT (document_id, embed_model, root_id) DO UPDATE SET embed = excluded.embed, weight = excluded.weight",
    )
    .bind(ids)
    .bind(vectors.iter().map(|weighted| weighted.vector.clone()).collect::<Vec<_>>())
    .bind(vectors.iter().map(|weighted| weighted.weight).collect::<Vec<_>>())
    .bind(model)
    .bind(alone)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Lets the vectors at and under a document that came into another tree follow it into that tree's part of their table, if it is in parts.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn follow(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<()> {
    sqlx::query("SELECT follow_vectors($1)").bind(id).execute(conn).await.map(|_| ())
}

/// The nearest documents by cosine among all that are eligible.
#[derive(Debug)]
pub struct Nearest {
    pub ranked: Vec<(DocumentId, f64)>,
    /// How many eligible documents have a vector of the model.
    pub count: i64,
}

/// The nearest eligible documents by cosine, found by comparing each one; ties are broken by id. `None` if more than `most` are
/// eligible, which is found out before anything is compared.
pub async fn exact(
    conn: &mut PgConnection,
    eligible: &Eligible,
    query: &Stored<'_>,
    limit: i64,
    most: i64,
    layout: &Layout,
) -> sqlx::Result<Option<Nearest>> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, query.model.to_owned());
    add(&mut arguments, query.vector.clone());
    add(&mut arguments, limit);
    add(&mut arguments, most.saturating_add(1));
    add(&mut arguments, layout.root);
    // The ids are found first, because a join reads the key of every vector that there is. Without an ORDER BY of its own, the part that
    // compares cannot use the HNSW index, whose answer is not exact.
    let statement = eligible.statement(
        concat!(
            "WITH e AS MATERIALIZED (SELECT ARRAY(SELECT d.id FROM documents d WHERE ",
            eligible!(),
            " LIMIT $15) AS ids),
             n AS MATERIALIZED (
                 SELECT v.document_id, v.embed <=> (SELECT $13::halfvec) AS distance FROM document_vectors v
                  WHERE v.embed_model = $12 AND ($16::bigint IS NULL OR v.root_id = $16)
                    AND v.document_id = ANY((SELECT ids FROM e WHERE cardinality(ids) < $15)::bigint[]))
             SELECT cardinality(e.ids) < $15, (SELECT count(*) FROM n), r.document_id, 1 - r.distance
               FROM e LEFT JOIN (SELECT document_id, distance FROM n ORDER BY distance, document_id LIMIT $14) r ON true
              ORDER BY r.distance, r.document_id"
        ),
        &mut arguments,
    );
    let rows: Vec<(bool, i64, Option<DocumentId>, Option<f64>)> =
        sqlx::query_as_with(statement, arguments).persistent(eligible.composed.is_open()).fetch_all(conn).await?;
    let Some((true, count, ..)) = rows.first() else { return Ok(None) };
    let count = *count;
    Ok(Some(Nearest { ranked: rows.into_iter().filter_map(|(_, _, id, score)| Some((id?, score?))).collect(), count }))
}

/// Has the HNSW indexes look at so many entries at a time until the transaction ends, and go on while too few of them are wanted.
pub(super) async fn look_at(conn: &mut PgConnection, entries: i64) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(looking(entries))).execute(conn).await.map(|_| ())
}

/// The statements of [`look_at`].
fn looking(entries: i64) -> String {
    format!(
        "SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = {entries};
         SET LOCAL hnsw.max_scan_tuples = 200000; SET LOCAL hnsw.scan_mem_multiplier = 4"
    )
}

/// How many entries the HNSW index looks at before it returns the first, where everything is eligible.
pub const LOOKED_AT: i64 = 200;

/// The most entries that one look at an HNSW index may have.
pub const WIDEST: i64 = 1_000;

/// The nearest `limit` of the first `candidates` eligible documents that the model's HNSW index returns, which looks at `entries` at a
/// time (at most [`WIDEST`]); it may return fewer than there are.
pub async fn approximate(
    conn: &mut PgConnection,
    eligible: &Eligible,
    query: &Stored<'_>,
    limit: i64,
    candidates: i64,
    entries: i64,
    layout: &Layout,
) -> sqlx::Result<Vec<(DocumentId, f64)>> {
    let candidates = candidates.max(layout.least_candidates());
    let entries = layout.looked_at(entries, candidates);
    if layout.set != Some(entries) {
        look_at(conn, entries).await?;
    }
    let (entry, asked) = match layout.bits {
        Some(_) => ("binary_quantize(v.embed)::bit({width}) <~>", "binary_quantize({query}::halfvec)::bit({width})"),
        None => ("v.embed::halfvec({width}) <=>", "{query}::halfvec({width})"),
    };
    // The expression of the index names its width, so the query must name the same.
    let statement = NEAREST
        .replace("{entry}", entry)
        .replace("{asked}", asked)
        .replace("{width}", &query.vector.to_vec().len().to_string());
    if eligible.is_open() {
        let mut arguments = PgArguments::default();
        add(&mut arguments, query.vector.clone());
        add(&mut arguments, limit);
        let statement = statement
            .replace("{part}", "true")
            .replace("{query}", "$1")
            .replace("{limit}", "$2")
            .replace("{candidates}", &candidates.to_string())
            .replace("{model}", &literal(query.model));
        let statement = AssertSqlSafe(eligible.written(&statement));
        return sqlx::query_as_with(statement, arguments).fetch_all(conn).await;
    }
    let mut arguments = eligible.arguments();
    add(&mut arguments, query.model.to_owned());
    add(&mut arguments, query.vector.clone());
    add(&mut arguments, limit);
    add(&mut arguments, candidates);
    add(&mut arguments, layout.root);
    let statement = statement
        .replace("{part}", "($16::bigint IS NULL OR v.root_id = $16)")
        .replace("{query}", "$13")
        .replace("{limit}", "$14")
        .replace("{candidates}", "$15")
        .replace("{model}", "$12");
    let statement = eligible.statement(&statement, &mut arguments);
    sqlx::query_as_with(statement, arguments).persistent(eligible.composed.is_open()).fetch_all(conn).await
}

/// The statement of [`approximate`]. The plan depends on the model, on how many candidates are wanted and on what is eligible. Where everything is
/// eligible, these are in the text, and one plan serves every such search.
const NEAREST: &str = concat!(
    "WITH near AS MATERIALIZED (
         SELECT v.document_id, v.embed <=> (SELECT {query}::halfvec) AS distance FROM document_vectors v JOIN documents d ON d.id = v.document_id
          WHERE v.embed_model = {model} AND {part} AND ",
    eligible!(),
    " ORDER BY {entry} (SELECT {asked}) LIMIT {candidates})
     SELECT document_id, 1 - distance AS score FROM near ORDER BY score DESC, document_id LIMIT {limit}"
);
