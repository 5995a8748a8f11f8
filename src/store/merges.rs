//! Entities that are taken for one. Both ends of a merge have one guard, or the merge counts for nothing: who sees one of them sees the other.
use super::{
    documents::add,
    places::Place,
    scope::{Readable, readable},
    word::Word,
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use svc_client::wire::{MergeMethod, MergeResponse};
use svc_ids::DocumentId;

/// The most documents that are taken for one. Whoever merges keeps to it, so that every set can be read as a whole.
pub const SET: usize = 1_000;
/// The most merges that a read of many sets at once looks at.
pub const MANY: usize = 100_000;

/// Two documents to take for one, which have one guard.
#[derive(Clone, Copy, Debug)]
pub struct NewMerge {
    pub kept_id: DocumentId,
    pub merged_id: DocumentId,
    pub method: MergeMethod,
    pub score: Option<f64>,
}

/// Records merges at the moment of the pen, which the caller has; returns their ids.
pub async fn insert(conn: &mut PgConnection, at: DateTime<Utc>, new: &[NewMerge]) -> sqlx::Result<Vec<i64>> {
    if new.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query_scalar(
        "INSERT INTO entity_merges (kept_id, merged_id, method, score, merged_at)
         SELECT m.*, $1 FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::float8[]) m RETURNING id",
    )
    .bind(at)
    .bind(new.iter().map(|new| new.kept_id).collect::<Vec<_>>())
    .bind(new.iter().map(|new| new.merged_id).collect::<Vec<_>>())
    .bind(new.iter().map(|new| new.method.as_str()).collect::<Vec<_>>())
    .bind(new.iter().map(|new| new.score).collect::<Vec<_>>())
    .fetch_all(conn)
    .await
}

/// Ends a merge between documents that the caller may change; false if it is undone already. The caller has the pen.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = kept.id().0))]
pub async fn undo(conn: &mut PgConnection, kept: &Place, id: i64, at: DateTime<Utc>) -> sqlx::Result<bool> {
    let done =
        sqlx::query("UPDATE entity_merges SET undone_at = $3 WHERE id = $1 AND kept_id = $2 AND undone_at IS NULL")
            .bind(id)
            .bind(kept.id())
            .bind(at)
            .execute(conn)
            .await?;
    Ok(done.rows_affected() == 1)
}

#[derive(sqlx_macros::FromRow)]
struct MergeRow {
    id: i64,
    kept_id: i64,
    kept_title: String,
    merged_id: i64,
    merged_title: String,
    method: Word<MergeMethod>,
    score: Option<f64>,
    merged_at: DateTime<Utc>,
    undone_at: Option<DateTime<Utc>>,
}

impl From<MergeRow> for MergeResponse {
    fn from(row: MergeRow) -> MergeResponse {
        let MergeRow { id, kept_id, kept_title, merged_id, merged_title, method, score, merged_at, undone_at } = row;
        let method = method.0;
        MergeResponse { id, kept_id, kept_title, merged_id, merged_title, method, score, merged_at, undone_at }
    }
}

/// Which merges are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub id: Option<i64>,
    pub document_id: Option<i64>,
    pub method: Option<MergeMethod>,
    /// Only those that were undone, or only those that were not.
    pub undone: Option<bool>,
}

/// Merges that the scope covers, by id, after `after`.
pub async fn page(
    conn: &mut PgConnection,
    scope: &Readable,
    wanted: &Wanted,
    after: i64,
    limit: u32,
) -> sqlx::Result<Vec<MergeResponse>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, wanted.id);
    add(&mut arguments, wanted.document_id);
    add(&mut arguments, wanted.method.map(MergeMethod::as_str));
    add(&mut arguments, wanted.undone);
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    let query = concat!(
        "SELECT e.id, e.kept_id, d.title AS kept_title, e.merged_id, o.title AS merged_title, e.method, e.score, e.merged_at, e.undone_at
           FROM entity_merges e JOIN documents d ON d.id = e.kept_id JOIN documents o ON o.id = e.merged_id AND o.guard = d.guard
          WHERE e.id > $7 AND ($3::bigint IS NULL OR e.id = $3) AND ($4::bigint IS NULL OR e.kept_id = $4 OR e.merged_id = $4)
            AND ($5::text IS NULL OR e.method = $5) AND ($6::boolean IS NULL OR (e.undone_at IS NOT NULL) = $6) AND ",
        readable!(),
        " ORDER BY e.id LIMIT $8"
    );
    let rows: Vec<MergeRow> = sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await?;
    Ok(rows.into_iter().map(MergeResponse::from).collect())
}

/// The documents that are taken for one with others at a moment.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    /// The canonical member of each document's set; a document without merges is not in here.
    canonical: HashMap<DocumentId, DocumentId>,
    members: HashMap<DocumentId, Vec<DocumentId>>,
}

impl Sets {
    /// The document by whose id answers name this one.
    pub fn canonical(&self, id: DocumentId) -> DocumentId {
        self.canonical.get(&id).copied().unwrap_or(id)
    }

    /// This document, if answers name it by another one.
    pub fn stated(&self, id: DocumentId) -> Option<i64> {
        self.canonical.get(&id).filter(|canonical| **canonical != id).map(|_| id.0)
    }

    /// All that are taken for the same as this document, and the document.
    pub fn members(&self, id: DocumentId) -> Vec<DocumentId> {
        self.members.get(&self.canonical(id)).cloned().unwrap_or_else(|| vec![id])
    }

    /// Each document of a set of several, with the one by whose id answers name it.
    pub fn all(&self) -> impl Iterator<Item = (DocumentId, DocumentId)> {
        self.canonical.iter().map(|(id, canonical)| (*id, *canonical))
    }

    /// How many documents are taken for the same as this one, with it.
    fn size(&self, id: DocumentId) -> usize {
        self.members.get(&self.canonical(id)).map_or(1, Vec::len)
    }

    /// Takes the documents of other sets in.
    pub fn extend(&mut self, other: Sets) {
        self.canonical.extend(other.canonical);
        self.members.extend(other.members);
    }

    /// The components of merges. The canonical member is the smallest one that was kept and in no merge given up.
    fn of(merges: &BTreeSet<(DocumentId, DocumentId)>) -> Sets {
        let mut beside: BTreeMap<DocumentId, Vec<DocumentId>> = BTreeMap::new();
        for (kept, merged) in merges {
            beside.entry(*kept).or_default().push(*merged);
            beside.entry(*merged).or_default().push(*kept);
        }
        let given_up: BTreeSet<DocumentId> = merges.iter().map(|(_, merged)| *merged).collect();
        let mut sets = Sets::default();
        for begin in beside.keys() {
            if sets.canonical.contains_key(begin) {
                continue;
            }
            let (mut set, mut open) = (BTreeSet::from([*begin]), vec![*begin]);
            while let Some(node) = open.pop() {
                open.extend(beside[&node].iter().copied().filter(|other| set.insert(*other)));
            }
            let first = set.iter().find(|id| !given_up.contains(id)).unwrap_or(begin);
            sets.canonical.extend(set.iter().map(|id| (*id, *first)));
            sets.members.insert(*first, set.into_iter().collect());
        }
        sets
    }
}

/// Whether any merge is in force at a moment.
pub async fn any(conn: &mut PgConnection, known_at: DateTime<Utc>) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM entity_merges WHERE merged_at <= $1 AND (undone_at IS NULL OR undone_at > $1))",
    )
    .bind(known_at)
    .fetch_one(conn)
    .await
}

/// All sets by the merges in force at a moment, as far as the scope covers them; `None` if there are more than [`MANY`] merges.
pub async fn all_sets(
    conn: &mut PgConnection,
    scope: &Readable,
    known_at: DateTime<Utc>,
) -> sqlx::Result<Option<Sets>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, known_at);
    add(&mut arguments, MANY as i64 + 1);
    let query = concat!(
        "SELECT e.kept_id, e.merged_id FROM entity_merges e
           JOIN documents d ON d.id = e.kept_id JOIN documents o ON o.id = e.merged_id AND o.guard = d.guard
          WHERE e.merged_at <= $3 AND (e.undone_at IS NULL OR e.undone_at > $3) AND ",
        readable!(),
        " ORDER BY e.id LIMIT $4"
    );
    let merges: Vec<(DocumentId, DocumentId)> =
        sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await?;
    Ok((merges.len() <= MANY).then(|| Sets::of(&merges.into_iter().collect())))
}

/// The sets of these few documents by the merges in force at a moment, as far as the scope covers them.
pub async fn sets(
    conn: &mut PgConnection,
    scope: &Readable,
    documents: &[DocumentId],
    known_at: DateTime<Utc>,
) -> sqlx::Result<Sets> {
    Ok(sets_within(conn, scope, documents, known_at, usize::MAX).await?.unwrap_or_default())
}

/// The documents by which answers name these ones: each of these that is taken for another, with that. Sets are read a few at a time if they are
/// large, so that it does not matter how many documents there are.
pub async fn named(
    conn: &mut PgConnection,
    scope: &Readable,
    documents: &[DocumentId],
    known_at: DateTime<Utc>,
) -> sqlx::Result<HashMap<DocumentId, DocumentId>> {
    let mut open = vec![documents];
    let mut named = HashMap::new();
    while let Some(part) = open.pop() {
        let most = if part.len() > 1 { MANY } else { usize::MAX };
        match sets_within(conn, scope, part, known_at, most).await? {
            Some(sets) => named.extend(part.iter().map(|id| (*id, sets.canonical(*id))).filter(|(id, one)| id != one)),
            None => {
                let (first, second) = part.split_at(part.len() / 2);
                open.extend([first, second]);
            }
        }
    }
    Ok(named)
}

/// The sets of these documents by the merges in force at a moment, as far as the scope covers them; `None` if these are more than `most` merges.
/// It is one statement, however many merges lie between two members.
pub async fn sets_within(
    conn: &mut PgConnection,
    scope: &Readable,
    documents: &[DocumentId],
    known_at: DateTime<Utc>,
    most: usize,
) -> sqlx::Result<Option<Sets>> {
    let limit = |rows: usize| i64::try_from(rows.saturating_add(1)).unwrap_or(i64::MAX);
    let mut arguments = scope.arguments();
    add(&mut arguments, documents.to_vec());
    add(&mut arguments, known_at);
    // Each member but those that are asked for was reached by a merge of its own, so that more members than this have too many merges.
    add(&mut arguments, limit(most.saturating_add(documents.len())));
    add(&mut arguments, limit(most));
    // Each member is looked up by the indexes, and no plan reads all documents for each step.
    let query = concat!(
        "WITH RECURSIVE member(id) AS (
             SELECT unnest($3::bigint[])
              UNION
             SELECT x.id FROM member m CROSS JOIN LATERAL (
                    SELECT CASE e.kept_id WHEN m.id THEN e.merged_id ELSE e.kept_id END AS id FROM (
                           SELECT * FROM entity_merges WHERE kept_id = m.id UNION ALL SELECT * FROM entity_merges WHERE merged_id = m.id) e
                      JOIN documents d ON d.id = e.kept_id JOIN documents o ON o.id = e.merged_id AND o.guard = d.guard
                     WHERE e.merged_at <= $4 AND (e.undone_at IS NULL OR e.undone_at > $4) AND ",
        readable!(),
        " OFFSET 0) x)
         SELECT x.kept_id, x.merged_id FROM (SELECT id FROM member LIMIT $5) m CROSS JOIN LATERAL (
                SELECT DISTINCT e.kept_id, e.merged_id FROM entity_merges e
                  JOIN documents d ON d.id = e.kept_id JOIN documents o ON o.id = e.merged_id AND o.guard = d.guard
                 WHERE e.kept_id = m.id AND e.merged_at <= $4 AND (e.undone_at IS NULL OR e.undone_at > $4) AND ",
        readable!(),
        " OFFSET 0) x LIMIT $6"
    );
    let merges: Vec<(DocumentId, DocumentId)> =
        sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await?;
    Ok((merges.len() <= most).then(|| Sets::of(&merges.into_iter().collect())))
}

/// Which of these merges may be made one after the other at a moment, so that no set becomes larger than [`SET`]. One that joins what is one
/// already may.
pub async fn fitting(
    conn: &mut PgConnection,
    new: &[NewMerge],
    known_at: DateTime<Utc>,
) -> sqlx::Result<Vec<NewMerge>> {
    let ends: BTreeSet<DocumentId> = new.iter().flat_map(|merge| [merge.kept_id, merge.merged_id]).collect();
    let (mut of, mut sizes): (HashMap<DocumentId, DocumentId>, HashMap<DocumentId, usize>) =
        (HashMap::new(), HashMap::new());
    for part in Vec::from_iter(ends).chunks(MANY / SET) {
        let sets = sets(conn, &Readable::everything(), part, known_at).await?;
        for id in part {
            of.insert(*id, sets.canonical(*id));
            sizes.insert(sets.canonical(*id), sets.size(*id));
        }
    }
    let mut fitting = Vec::new();
    for merge in new {
        let (kept, merged) = (of[&merge.kept_id], of[&merge.merged_id]);
        let both = sizes[&kept] + sizes[&merged];
        if kept != merged {
            if both > SET {
                continue;
            }
            sizes.insert(kept, both);
            of.values_mut().filter(|set| **set == merged).for_each(|set| *set = kept);
        }
        fitting.push(*merge);
    }
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_component_of_merges_and_its_first_kept_member_names_it() {
        let merges = [(5, 3), (3, 9), (1, 2)].map(|(kept, merged)| (DocumentId(kept), DocumentId(merged)));
        let sets = Sets::of(&BTreeSet::from(merges));
        for (id, canonical) in [(5, 5), (3, 5), (9, 5), (1, 1), (2, 1), (4, 4)] {
            assert_eq!(sets.canonical(DocumentId(id)), DocumentId(canonical));
        }
        assert_eq!(sets.members(DocumentId(9)), [3, 5, 9].map(DocumentId));
        assert_eq!(sets.members(DocumentId(4)), [DocumentId(4)]);
    }
}
