//! Facts follow the documents that they are about and that state them: into other zones, and to their end. These functions are called in
//! the transactions that protect, move and delete documents, and take the pen only if there is a fact to change. Statements with long lists
//! are planned with their values, because only a constant list is hashed.
use super::{
    derived::{ends_gone, reguarded},
    write::{inherit, move_on, take_pen},
};
use crate::store::{events, text::Verbatim};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use std::collections::{BTreeMap, HashSet};
use svc_client::wire::EventKind;
use svc_ids::{DocumentId, TripleId};
use uuid::Uuid;

/// Puts the facts that documents at and under `root` state into the zones of these. Call it after their guards have changed.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.0))]
pub async fn into_zones(conn: &mut PgConnection, root: DocumentId) -> sqlx::Result<()> {
    reguarded(conn, root).await?;
    let states_anything: bool = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM triples t JOIN documents d ON d.id = t.source_id WHERE d.id = $1 OR d.path @> ARRAY[$1::bigint])
              + (SELECT count(*) FROM triple_citations c JOIN documents d ON d.id = c.document_id WHERE d.id = $1 OR d.path @> ARRAY[$1::bigint]) > 0",
    )
    .bind(root)
    .fetch_one(&mut *conn)
    .await?;
    if !states_anything {
        return Ok(());
    }
    // A delete of the source of a fact that is stated here too gives the fact to a document here, in the zone that this had until now.
    let at = take_pen(conn).await?;
    let moving: Vec<TripleId> = sqlx::query_scalar(
        "SELECT t.id FROM triples t JOIN documents d ON d.id = t.source_id
          WHERE (d.id = $1 OR d.path @> ARRAY[$1::bigint]) AND t.zone <> d.guard",
    )
    .bind(root)
    .fetch_all(&mut *conn)
    .await?;
    if moving.is_empty() {
        return Ok(());
    }
    // What somebody else in the old zone states too stays there.
    sqlx::query(
        "UPDATE triples t SET source_id = o.document_id
           FROM (SELECT DISTINCT ON (c.triple_id) c.triple_id, c.document_id
                   FROM triple_citations c JOIN triples t ON t.id = c.triple_id JOIN documents d ON d.id = c.document_id AND d.guard = t.zone
                  WHERE c.triple_id = ANY($1) ORDER BY c.triple_id, c.id) o
          WHERE t.id = o.triple_id",
    )
    .bind(&moving)
    .execute(&mut *conn)
    .await?;
    change_zones(conn, at, &moving).await
}

/// A believed fact whose time is believed already where it comes, in part or as a whole, and the first fact that says so.
#[derive(sqlx_macros::FromRow)]
struct Met {
    id: TripleId,
    zone: DocumentId,
    by: TripleId,
}

/// Puts facts into the zones of their sources. What is believed there already is merged, and so are two that come to the same zone: the facts of one
/// statement that come from one zone, which do not overlap, come together, and after those of another zone.
async fn change_zones(conn: &mut PgConnection, at: DateTime<Utc>, facts: &[TripleId]) -> sqlx::Result<()> {
    state_elsewhere(conn, at, facts).await?;
    let turns: Vec<(TripleId, i64)> = sqlx::query_as(
        "SELECT t.id, CASE WHEN t.invalidated_at IS NULL
                           THEN dense_rank() OVER (PARTITION BY t.statement, d.guard, t.invalidated_at IS NULL ORDER BY t.zone) ELSE 1 END
           FROM triples t JOIN documents d ON d.id = t.source_id AND d.guard <> t.zone WHERE t.id = ANY($1)",
    )
    .bind(facts)
    .fetch_all(&mut *conn)
    .await?;
    let mut by_turn: BTreeMap<i64, Vec<TripleId>> = BTreeMap::new();
    for (id, turn) in turns {
        by_turn.entry(turn).or_default().push(id);
    }
    for facts in by_turn.values() {
        change_zones_in_turn(conn, at, facts).await?;
    }
    Ok(())
}

/// Records what stops being open to all in the zones of the other documents that state it, before it comes into that of its source: who reads one of
/// those need not be able to read the source. What was closed stays with its source alone, because it may hold for a time that no other document states.
async fn state_elsewhere(conn: &mut PgConnection, at: DateTime<Utc>, facts: &[TripleId]) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO triples (zone, subject_id, predicate_id, object_id, object_literal, object_datatype, object_language, statement,
                valid_from, valid_until, created_at, recorded_at, previous_id, fact_type, source_id)
         SELECT o.zone, t.subject_id, t.predicate_id, t.object_id, t.object_literal, t.object_datatype, t.object_language, t.statement,
                lower(piece), upper(piece), t.created_at, $1, t.id,
                CASE WHEN t.fact_type = 'atemporal' AND piece <> t.valid THEN 'static' ELSE t.fact_type END, o.source_id
           FROM triples t JOIN documents s ON s.id = t.source_id AND s.guard <> 0
          CROSS JOIN LATERAL (
                SELECT DISTINCT ON (d.guard) d.guard AS zone, d.id AS source_id FROM triple_citations c JOIN documents d ON d.id = c.document_id
                 WHERE c.triple_id = t.id AND d.guard NOT IN (-1, 0, s.guard) ORDER BY d.guard, c.id) o
          CROSS JOIN LATERAL unnest(tstzmultirange(t.valid) - coalesce((
                SELECT range_agg(x.valid) FROM believed_during(t.statement, o.zone, t.valid) x WHERE x.derived_by IS NULL), '{}')) piece
          WHERE t.id = ANY($2) AND t.zone = 0 AND t.invalidated_at IS NULL AND t.derived_by IS NULL ORDER BY t.id, o.zone",
    )
    .bind(at)
    .bind(facts)
    .persistent(false)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "INSERT INTO triple_citations (triple_id, document_id, quote_start, quote_end, source_hash, confidence, cited_at)
         SELECT x.id, c.document_id, c.quote_start, c.quote_end, c.source_hash, c.confidence, c.cited_at
           FROM triples t JOIN documents s ON s.id = t.source_id AND s.guard <> 0 JOIN triple_citations c ON c.triple_id = t.id
           JOIN documents d ON d.id = c.document_id AND d.guard NOT IN (-1, 0, s.guard)
          CROSS JOIN LATERAL believed_during(t.statement, d.guard, t.valid) x
          WHERE t.id = ANY($1) AND t.zone = 0 AND t.invalidated_at IS NULL AND t.derived_by IS NULL AND x.derived_by IS NULL
          ORDER BY c.id ON CONFLICT DO NOTHING",
    )
    .bind(facts)
    .persistent(false)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Puts facts, of which no two with one statement overlap, into the zones of their sources.
async fn change_zones_in_turn(conn: &mut PgConnection, at: DateTime<Utc>, facts: &[TripleId]) -> sqlx::Result<()> {
    let met: Vec<Met> = sqlx::query_as(
        "SELECT t.id, d.guard AS zone, min(x.id) AS by
           FROM triples t JOIN documents d ON d.id = t.source_id AND d.guard <> t.zone
          CROSS JOIN LATERAL believed_during(t.statement, d.guard, t.valid) x
          WHERE t.id = ANY($1) AND t.invalidated_at IS NULL AND x.derived_by IS NULL GROUP BY t.id, d.guard",
    )
    .bind(facts)
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    let ids: Vec<TripleId> = met.iter().map(|met| met.id).collect();
    if !met.is_empty() {
        let left: Vec<(TripleId, TripleId)> = sqlx::query_as(
            "WITH closed AS (
                 UPDATE triples t SET invalidated_at = $1, invalidation = 'merged', invalidated_by = m.by, zone = m.zone
                   FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) m(id, zone, by) WHERE t.id = m.id RETURNING t.*)
             INSERT INTO triples (zone, subject_id, predicate_id, object_id, object_literal, object_datatype, object_language, statement,
                    valid_from, valid_until, created_at, recorded_at, previous_id, fact_type, source_id, derived_by)
             SELECT c.zone, c.subject_id, c.predicate_id, c.object_id, c.object_literal, c.object_datatype, c.object_language, c.statement,
                    lower(piece), upper(piece), c.created_at, $1, c.id, CASE c.fact_type WHEN 'atemporal' THEN 'static' ELSE c.fact_type END,
                    c.source_id, c.derived_by
               FROM closed c CROSS JOIN LATERAL unnest(tstzmultirange(c.valid) - (
                    SELECT range_agg(x.valid) FROM believed_during(c.statement, c.zone, c.valid) x WHERE x.derived_by IS NULL)) piece
             RETURNING previous_id, id",
        )
        .persistent(false)
        .bind(at)
        .bind(&ids)
        .bind(met.iter().map(|met| met.zone).collect::<Vec<_>>())
        .bind(met.iter().map(|met| met.by).collect::<Vec<_>>())
        .fetch_all(&mut *conn)
        .await?;
        let taken = met.iter().map(|met| (met.id, met.by));
        inherit(conn, &left.into_iter().chain(taken).collect::<Vec<_>>()).await?;
    }
    sqlx::query(
        "UPDATE triples t SET zone = d.guard FROM documents d
          WHERE t.id = ANY($1) AND d.id = t.source_id AND t.zone <> d.guard AND t.id <> ALL($2)",
    )
    .bind(facts)
    .bind(&ids)
    .persistent(false)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Closes the facts about documents that were deleted or set aside, and those that no other document states, which only the owner sees from then on. What
/// another one states goes on. `guards`: what those that were deleted had, so that who could read them is told of facts about them; blank for those that
/// are set aside. Returns the asserted facts that were closed.
pub async fn documents_gone(
    conn: &mut PgConnection,
    gone: &[DocumentId],
    guards: &[i64],
) -> sqlx::Result<Vec<TripleId>> {
    if concerned(conn, gone).await?.is_empty() && !state_with_others(conn, gone).await? {
        ends_gone(conn, gone).await?;
        return Ok(Vec::new());
    }
    let at = take_pen(conn).await?;
    // Meanwhile another writer may have left a part of one of them.
    let concerned = concerned(conn, gone).await?;
    ends_gone(conn, gone).await?;
    let kept: Vec<TripleId> = sqlx::query_scalar(
        "UPDATE triples t SET source_id = o.document_id
           FROM (SELECT DISTINCT ON (c.triple_id) c.triple_id, c.document_id
                   FROM triple_citations c JOIN triples t ON t.id = c.triple_id JOIN documents d ON d.id = c.document_id
                  WHERE c.triple_id = ANY($1) AND c.document_id <> ALL($2) AND d.guard <> -1 ORDER BY c.triple_id, d.guard <> t.zone, c.id) o
          WHERE t.id = o.triple_id AND t.source_id = ANY($2) AND t.subject_id <> ALL($2)
            AND (t.object_id IS NULL OR t.object_id <> ALL($2)) RETURNING t.id",
    )
    .bind(&concerned)
    .bind(gone)
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    let ending: Vec<TripleId> = sqlx::query_scalar(
        "SELECT id FROM triples WHERE id = ANY($1) AND id <> ALL($2) AND invalidated_at IS NULL AND derived_by IS NULL",
    )
    .bind(&concerned)
    .bind(&kept)
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    // Only what somebody asserted is told of: what follows from it goes with it.
    events::facts_about(conn, EventKind::TripleInvalidated, &ending, gone, guards).await?;
    sqlx::query(
        "UPDATE triples SET invalidated_at = coalesce(invalidated_at, $1), invalidation = coalesce(invalidation, 'source_deleted'),
                zone = CASE WHEN source_id = ANY($4) THEN -1 ELSE zone END
          WHERE id = ANY($2) AND id <> ALL($3)",
    )
    .bind(at)
    .bind(&concerned)
    .bind(&kept)
    .bind(gone)
    .persistent(false)
    .execute(&mut *conn)
    .await?;
    change_zones(conn, at, &kept).await?;
    Ok(ending)
}

/// The facts about these documents that are believed, and all that these state.
async fn concerned(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<TripleId>> {
    sqlx::query_scalar(
        "SELECT id FROM triples WHERE invalidated_at IS NULL AND (subject_id = ANY($1) OR object_id = ANY($1))
         UNION SELECT id FROM triples WHERE source_id = ANY($1)",
    )
    .bind(documents)
    .fetch_all(conn)
    .await
}

/// Whether these documents state a believed fact of which another document is the source. A delete of that one at the same time would give the fact to
/// one of these.
async fn state_with_others(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM triple_citations c JOIN triples t ON t.id = c.triple_id
                         WHERE c.document_id = ANY($1) AND t.invalidated_at IS NULL)",
    )
    .bind(documents)
    .persistent(false)
    .fetch_one(conn)
    .await
}

/// Closes the facts that a document stated and no longer states: all that are not among `kept`. What another document states too, or somebody
/// without a source, is recorded anew without this one, in the zone of who states it. Returns the subject of each that was closed.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = source.0))]
pub async fn no_longer_stated(
    conn: &mut PgConnection,
    source: DocumentId,
    kept: &[TripleId],
) -> sqlx::Result<Vec<DocumentId>> {
    if others_stated(conn, source, kept).await?.is_empty() {
        return Ok(Vec::new());
    }
    let at = take_pen(conn).await?;
    // Meanwhile another writer may have closed some of them, or left a part of one.
    let gone = others_stated(conn, source, kept).await?;
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    let (gone, subjects): (Vec<TripleId>, Vec<DocumentId>) = gone.into_iter().unzip();
    events::facts(conn, EventKind::TripleInvalidated, &gone).await?;
    sqlx::query("UPDATE triples SET invalidated_at = $1, invalidation = 'replaced' WHERE id = ANY($2)")
        .bind(at)
        .bind(&gone)
        .execute(&mut *conn)
        .await?;
    let stated: Vec<(TripleId, TripleId)> = sqlx::query_as(
        "INSERT INTO triples (zone, subject_id, predicate_id, object_id, object_literal, object_datatype, object_language, statement,
                valid_from, valid_until, created_at, recorded_at, previous_id, fact_type, source_id, derived_by)
         SELECT t.zone, t.subject_id, t.predicate_id, t.object_id, t.object_literal, t.object_datatype, t.object_language, t.statement,
                t.valid_from, t.valid_until, t.created_at, $1, t.id, t.fact_type,
                CASE WHEN t.source_id = $3 THEN o.document_id ELSE t.source_id END, t.derived_by
           FROM triples t LEFT JOIN LATERAL (
                SELECT c.document_id FROM triple_citations c JOIN documents d ON d.id = c.document_id
                 WHERE c.triple_id = t.id AND c.document_id <> $3 AND d.guard <> -1 ORDER BY d.guard <> t.zone, c.id LIMIT 1) o ON true
          WHERE t.id = ANY($2) AND (t.source_id IS NULL OR o.document_id IS NOT NULL) ORDER BY t.id RETURNING previous_id, id",
    )
    .bind(at)
    .bind(&gone)
    .bind(source)
    .fetch_all(&mut *conn)
    .await?;
    inherit(conn, &stated).await?;
    let stated: Vec<TripleId> = stated.into_iter().map(|(_, new)| new).collect();
    sqlx::query("DELETE FROM triple_citations WHERE triple_id = ANY($1) AND document_id = $2")
        .bind(&stated)
        .bind(source)
        .execute(&mut *conn)
        .await?;
    // What was recorded just now may have to be closed for what another zone has already.
    let at = move_on(conn).await?;
    change_zones(conn, at, &stated).await?;
    Ok(subjects)
}

/// The believed facts that a document states, but for `kept`, with their subjects.
async fn others_stated(
    conn: &mut PgConnection,
    source: DocumentId,
    kept: &[TripleId],
) -> sqlx::Result<Vec<(TripleId, DocumentId)>> {
    sqlx::query_as(
        "SELECT DISTINCT t.id, t.subject_id FROM triple_citations c JOIN triples t ON t.id = c.triple_id
          WHERE c.document_id = $1 AND t.invalidated_at IS NULL AND t.id <> ALL($2) ORDER BY t.id",
    )
    .bind(source)
    .bind(kept)
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// A document of a tree that is replaced, and the one in its place.
#[derive(Clone, Copy, Debug)]
pub struct Counterpart {
    pub old: DocumentId,
    pub new: DocumentId,
}

/// An end of a fact that is replaced.
#[derive(sqlx_macros::FromRow)]
struct Redirected {
    id: TripleId,
    subject_id: DocumentId,
    predicate_id: svc_ids::PredicateId,
    object_id: Option<DocumentId>,
    object_literal: Option<Verbatim>,
    object_datatype: Option<String>,
    object_language: Option<String>,
}

/// Has the facts about documents that are replaced, and those that they state, follow to what takes their place: such a fact is closed, and
/// recorded anew. Call it before the old documents are deleted, `gone`, which closes the facts whose ends have no counterpart. Returns the
/// facts that were recorded anew.
pub async fn redirect(
    conn: &mut PgConnection,
    counterparts: &[Counterpart],
    gone: &[DocumentId],
) -> sqlx::Result<Vec<TripleId>> {
    let old: Vec<DocumentId> = counterparts.iter().map(|pair| pair.old).collect();
    let new: Vec<DocumentId> = counterparts.iter().map(|pair| pair.new).collect();
    let concerned: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM triples WHERE invalidated_at IS NULL AND (subject_id = ANY($1) OR object_id = ANY($1) OR source_id = ANY($1)))
             OR EXISTS (SELECT FROM triple_citations WHERE document_id = ANY($1))",
    )
    .bind(&old)
    .fetch_one(&mut *conn)
    .await?;
    if !concerned {
        return Ok(Vec::new());
    }
    let at = take_pen(conn).await?;
    // The new text has the words where the old one had them, or the hash says that it has not.
    sqlx::query(
        "UPDATE triple_citations c SET document_id = p.new FROM unnest($1::bigint[], $2::bigint[]) p(old, new)
          WHERE c.document_id = p.old AND NOT EXISTS (SELECT FROM triple_citations x WHERE x.triple_id = c.triple_id AND x.document_id = p.new)",
    )
    .bind(&old)
    .bind(&new)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE triples t SET source_id = p.new FROM unnest($1::bigint[], $2::bigint[]) p(old, new) WHERE t.source_id = p.old",
    )
    .bind(&old)
    .bind(&new)
    .execute(&mut *conn)
    .await?;
    let known: HashSet<DocumentId> = old.iter().copied().collect();
    let lost: Vec<DocumentId> = gone.iter().copied().filter(|id| !known.contains(id)).collect();
    sqlx::query(
        "UPDATE triples t SET source_id = o.document_id
           FROM (SELECT DISTINCT ON (c.triple_id) c.triple_id, c.document_id
                   FROM triples t JOIN triple_citations c ON c.triple_id = t.id JOIN documents d ON d.id = c.document_id AND d.guard = t.zone
                  WHERE t.source_id = ANY($1) AND t.invalidated_at IS NULL AND c.document_id <> ALL($2) ORDER BY c.triple_id, c.id) o
          WHERE t.id = o.triple_id",
    )
    .bind(&lost)
    .bind(gone)
    .persistent(false)
    .execute(&mut *conn)
    .await?;
    let moved: Vec<Redirected> = sqlx::query_as(
        "SELECT t.id, coalesce(s.new, t.subject_id) AS subject_id, t.predicate_id, coalesce(o.new, t.object_id) AS object_id,
                t.object_literal, t.object_datatype, t.object_language
           FROM triples t LEFT JOIN unnest($1::bigint[], $2::bigint[]) s(old, new) ON s.old = t.subject_id
           LEFT JOIN unnest($1::bigint[], $2::bigint[]) o(old, new) ON o.old = t.object_id
          WHERE t.invalidated_at IS NULL AND t.derived_by IS NULL AND (t.subject_id = ANY($1) OR t.object_id = ANY($1)) AND t.subject_id <> ALL($3)
            AND (t.object_id IS NULL OR t.object_id <> ALL($3)) AND (t.source_id IS NULL OR t.source_id <> ALL($3))",
    )
    .bind(&old)
    .bind(&new)
    .bind(&lost)
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    let statements: Vec<Uuid> = moved.iter().map(Redirected::statement).collect();
    sqlx::query("UPDATE triples SET invalidated_at = $1, invalidation = 'reprocessed' WHERE id = ANY($2)")
        .bind(at)
        .bind(moved.iter().map(|fact| fact.id).collect::<Vec<_>>())
        .execute(&mut *conn)
        .await?;
    let followed: Vec<(TripleId, TripleId)> = sqlx::query_as(
        "INSERT INTO triples (zone, subject_id, predicate_id, object_id, object_literal, object_datatype, object_language, statement,
                valid_from, valid_until, created_at, recorded_at, previous_id, fact_type, source_id, derived_by)
         SELECT t.zone, m.subject_id, t.predicate_id, m.object_id, t.object_literal, t.object_datatype, t.object_language, m.statement,
                t.valid_from, t.valid_until, t.created_at, $1, t.id, t.fact_type, t.source_id, t.derived_by
           FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[]) m(id, subject_id, object_id, statement)
           JOIN triples t ON t.id = m.id
          WHERE NOT EXISTS (SELECT FROM believed_during(m.statement, t.zone, t.valid) x WHERE x.derived_by IS NULL)
         RETURNING previous_id, id",
    )
    .persistent(false)
    .bind(at)
    .bind(moved.iter().map(|fact| fact.id).collect::<Vec<_>>())
    .bind(moved.iter().map(|fact| fact.subject_id).collect::<Vec<_>>())
    .bind(moved.iter().map(|fact| fact.object_id).collect::<Vec<_>>())
    .bind(&statements)
    .fetch_all(&mut *conn)
    .await?;
    sqlx::query("UPDATE triples t SET invalidated_by = f.new FROM unnest($1::bigint[], $2::bigint[]) f(old, new) WHERE t.id = f.old")
        .bind(followed.iter().map(|(old, _)| *old).collect::<Vec<_>>())
        .bind(followed.iter().map(|(_, new)| *new).collect::<Vec<_>>())
        .execute(&mut *conn)
        .await?;
    inherit(conn, &followed).await?;
    Ok(followed.into_iter().map(|(_, new)| new).collect())
}

impl Redirected {
    fn statement(&self) -> Uuid {
        use super::write::{Object, statement};
        let object = match (self.object_id, &self.object_literal) {
            (Some(id), _) => Object::Node(id),
            (None, value) => Object::Literal {
                value: value.as_ref().map_or_else(String::new, |value| value.0.clone()),
                datatype: self.object_datatype.clone().unwrap_or_default(),
                language: self.object_language.clone(),
            },
        };
        statement(self.subject_id, self.predicate_id, &object)
    }
}
