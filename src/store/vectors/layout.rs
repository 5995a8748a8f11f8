//! How the table of vectors is laid out: in parts by the root of a document or not, and under which kind of index.
use super::{Stored, WIDEST, looking};
use crate::store::{
    search::Eligible,
    transaction::{Transaction, begin_search_with},
};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, FromRow, PgConnection, PgPool, postgres::PgRow};
use std::fmt::Display;
use svc_ids::DocumentId;

/// Even a small part has to be looked at in so many places.
const LEAST_ENTRIES: i64 = 40;

/// Among so many vectors, [`FEWEST`] candidates of an index of bits have the nearest ones in them, as measured.
const FEW: f64 = 20_000.0;
/// How many candidates of an index of bits are compared at least.
const FEWEST: f64 = 200.0;
/// Each is a row that is read, so there is an end.
const MOST: f64 = 2_000.0;

/// What an HNSW index is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// The vectors themselves.
    Halves,
    /// The signs of their numbers, one bit each: a third of the memory or less. They propose, and the vectors score.
    Bits,
}

/// The name of the index of a model's vectors in a table.
pub(in crate::store) fn index_name(table: &str, index: Index, model: &str, width: usize) -> String {
    let kind = match index {
        Index::Halves => "",
        Index::Bits => "bits_",
    };
    format!("{table}_{kind}{width}_{}", hex::encode(&Sha256::digest(model)[..6]))
}

/// What follows the table's name in the definition of an index of vectors of this width, with the condition that it ends with.
pub(in crate::store) fn definition(index: Index, width: impl Display, condition: &str) -> String {
    let made_of = match index {
        Index::Halves => format!("(embed::halfvec({width})) halfvec_cosine_ops"),
        Index::Bits => format!("(binary_quantize(embed)::bit({width})) bit_hamming_ops"),
    };
    format!(" USING hnsw ({made_of}) WITH (m = 16, ef_construction = 64){condition}")
}

/// How a search meets the vectors of a model. By default it expects one table with an index of halves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Layout {
    /// In how many parts they are; 0 for one table.
    pub parts: i64,
    /// The share of all vectors that the largest part has; 0 if nobody has counted them.
    pub largest: f64,
    /// The only root whose part has to be read, where they are in parts and everything eligible is under it.
    pub root: Option<DocumentId>,
    /// How many vectors the index of bits has, where that is the only one.
    pub bits: Option<f64>,
    /// How many entries the indexes look at in this transaction, if that was set.
    pub set: Option<i64>,
    /// Whether the vectors of the model have no index, because they are few or it is being built.
    pub unindexed: bool,
}

impl Layout {
    /// How many candidates an index has to propose at least, so that the nearest are among them: the more vectors there are, the more of them
    /// have nearly the same bits.
    pub fn least_candidates(&self) -> i64 {
        self.bits.map_or(0, |vectors| (FEWEST * (vectors / FEW).sqrt()).clamp(FEWEST, MOST) as i64)
    }

    /// How many entries all indexes that are looked at are looked at together at least.
    pub fn least_entries(&self) -> i64 {
        if self.root.is_none() { self.parts * LEAST_ENTRIES } else { 0 }
    }

    /// Whether one index has all vectors that are met, and returns what it finds at its first look by their distance, the nearest first.
    pub fn is_in_order(&self) -> bool {
        self.parts == 0 && self.bits.is_none()
    }

    /// How many entries the index of each part is looked at by a search that wants so many candidates, and looks at `entries` in all.
    pub fn looked_at(&self, entries: i64, candidates: i64) -> i64 {
        self.entries_of_a_part(entries.max(candidates.min(WIDEST)))
    }

    /// How many entries the index of each part is looked at, so that the largest part has its share of so many. All parts are looked at as widely, and a large
    /// tree makes one of them large.
    fn entries_of_a_part(&self, entries: i64) -> i64 {
        let entries = match self.root.is_none() && self.parts > 1 {
            true => (entries as f64 * self.largest.max(1.0 / self.parts as f64)).ceil() as i64,
            false => entries,
        };
        entries.clamp(LEAST_ENTRIES, WIDEST)
    }
}

/// How the vectors are laid out that a search meets. It holds until the transaction ends, if that is one of
/// [`begin_search`](crate::store::transaction::begin_search).
pub async fn layout(conn: &mut PgConnection, eligible: &Eligible, query: &Stored<'_>) -> sqlx::Result<Layout> {
    of(&sqlx::raw_sql(AssertSqlSafe(statement(eligible, query))).fetch_one(conn).await?)
}

/// How the statements of a search by vectors are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plans {
    /// Anew each time, with the values of the filter.
    Anew,
    /// Once for each connection. This is for [`approximate`](super::approximate) where everything is eligible: all that its plan depends on is in its
    /// text. Before another statement, [`plan_anew`] has to be called.
    Kept,
}

/// Has every statement planned anew until the transaction ends.
pub async fn plan_anew(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("SET LOCAL plan_cache_mode = force_custom_plan").execute(conn).await.map(|_| ())
}

/// Begins the transaction of a search by vectors (see [`begin_search`](crate::store::transaction::begin_search)) and reads the layout of the vectors in the
/// same message. The HNSW indexes look at `entries` entries until the transaction ends, or until another number is set.
pub async fn begin(
    pool: &PgPool,
    eligible: &Eligible,
    query: &Stored<'_>,
    entries: i64,
    plans: Plans,
) -> sqlx::Result<(Transaction, Layout)> {
    let mut first = format!("{}; {}", looking(entries), statement(eligible, query));
    if plans == Plans::Kept {
        first.push_str("; SET LOCAL plan_cache_mode = force_generic_plan");
    }
    let (tx, rows) = begin_search_with(pool, &first).await?;
    let layout = of(rows.first().ok_or(sqlx::Error::RowNotFound)?)?;
    Ok((tx, Layout { set: Some(entries), ..layout }))
}

/// Begins the transaction of a search that compares no vectors and only looks whether documents have some, and reads in the same message in how many parts they are.
pub async fn begin_looking_up(pool: &PgPool) -> sqlx::Result<(Transaction, Layout)> {
    let parts = "SELECT count(*) AS parts, 0::double precision AS largest, NULL::bigint AS root, NULL::double precision AS vectors, false AS unindexed
                   FROM pg_inherits h WHERE h.inhparent = to_regclass('document_vectors')";
    let (tx, rows) = begin_search_with(pool, parts).await?;
    let layout = of(rows.first().ok_or(sqlx::Error::RowNotFound)?)?;
    Ok((tx, layout))
}

/// The statement that reads the layout. It has no parameters, so that it can go in one message with the beginning of its transaction.
fn statement(eligible: &Eligible, query: &Stored<'_>) -> String {
    let [halves, bits] = names(query);
    // Without a place this reads no document. Whoever locks the table of documents would keep this message waiting, and a message cannot be cancelled
    // before the process of its server is known.
    let place = eligible.parent_id.map_or_else(|| "NULL".to_owned(), |id| format!("'{}'", id.0));
    format!("SELECT parts, largest, root, vectors, unindexed FROM vector_layout('{halves}', '{bits}', {place}::bigint)")
}

fn of(row: &PgRow) -> sqlx::Result<Layout> {
    let (parts, largest, root, bits, unindexed): (i64, f64, Option<DocumentId>, Option<f64>, bool) =
        FromRow::from_row(row)?;
    Ok(Layout { parts, largest, root, bits, set: None, unindexed })
}

/// The names of a model's indexes: of halves, and of bits. They have letters, digits and `_` alone.
fn names(query: &Stored<'_>) -> [String; 2] {
    let width = query.vector.to_vec().len();
    [Index::Halves, Index::Bits].map(|index| index_name("document_vectors", index, query.model, width))
}

/// Reads roughly how many rows a table or an index has, with its parts.
const ROWS: &str = "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::float8 FROM pg_class c
     WHERE c.oid = to_regclass($1) OR c.oid IN (SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = to_regclass($1))";

/// About how many rows a table or an index has, with its parts.
pub(in crate::store) async fn rows(conn: &mut PgConnection, name: &str) -> sqlx::Result<f64> {
    sqlx::query_scalar(ROWS).bind(name).fetch_one(conn).await
}

/// In how many parts the vectors are; 1 for one table.
pub async fn parts(conn: &mut PgConnection) -> sqlx::Result<usize> {
    let parts: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_inherits h WHERE h.inhparent = to_regclass('document_vectors')")
            .fetch_one(conn)
            .await?;
    Ok(usize::try_from(parts).unwrap_or_default().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_parts_are_looked_at_as_widely_together_as_one_table() {
        let parted = Layout { parts: 8, ..Layout::default() };
        assert_eq!([200, 800, 2_000].map(|entries| parted.entries_of_a_part(entries)), [40, 100, 250]);
        let uneven = Layout { largest: 0.63, ..parted };
        assert_eq!([40, 200, 2_000].map(|entries| uneven.entries_of_a_part(entries)), [40, 126, 1_000]);
        let scoped = Layout { root: Some(DocumentId(1)), ..uneven };
        for layout in [Layout::default(), scoped] {
            assert_eq!([200, 1_000, 2_000].map(|entries| layout.entries_of_a_part(entries)), [200, 1_000, 1_000]);
        }
    }

    #[test]
    fn more_vectors_need_more_candidates_of_bits() {
        let of = |bits| Layout { bits, ..Layout::default() }.least_candidates();
        assert_eq!([None, Some(0.0), Some(20_000.0), Some(80_000.0), Some(1e9)].map(of), [0, 200, 200, 400, 2_000]);
        let parted = Layout { parts: 8, ..Layout::default() };
        let looked_at = |candidates| [Layout::default(), parted].map(|layout| layout.looked_at(200, candidates));
        assert_eq!([40, 400, 2_000].map(looked_at), [[200, 40], [400, 50], [1_000, 125]]);
    }
}
