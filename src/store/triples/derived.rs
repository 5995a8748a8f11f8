//! Facts that rules derive: what they follow from, and which predicates wait for somebody to derive anew. Triggers on triples and predicates
//! (`follow_rules`, `follow_axioms`) add what waits, and close what hangs on a fact that is closed.
use super::{fact_readable, write::take_pen};
use crate::store::{
    documents::add,
    scope::{Readable, readable},
    text::Verbatim,
};
use chrono::{DateTime, Utc};
use futures_util::TryStreamExt;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::wire::FactType;
use svc_ids::{DocumentId, PredicateId, TripleId};
use uuid::Uuid;

/// How many premises of a fact are shown.
const PREMISES: i64 = 100;
/// How many characters of the reason of a failure are kept.
const REASON: i32 = 500;

/// The predicates that wait, each once, the first that came before others.
pub async fn waiting(conn: &mut PgConnection) -> sqlx::Result<Vec<PredicateId>> {
    sqlx::query_scalar("SELECT predicate_id FROM derivations GROUP BY predicate_id ORDER BY min(id)")
        .fetch_all(conn)
        .await
}

/// The changes for which these predicates wait.
pub async fn changes(conn: &mut PgConnection, predicates: &[PredicateId]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar("SELECT id FROM derivations WHERE predicate_id = ANY($1)").bind(predicates).fetch_all(conn).await
}

/// Takes changes off the list; true if all of them were still there, and these predicates wait no longer.
pub async fn catch_up(conn: &mut PgConnection, changes: &[i64], predicates: &[PredicateId]) -> sqlx::Result<bool> {
    let taken = sqlx::query("DELETE FROM derivations WHERE id = ANY($1)")
        .bind(changes)
        .persistent(false)
        .execute(&mut *conn)
        .await?;
    let query = "SELECT NOT EXISTS (SELECT FROM derivations WHERE predicate_id = ANY($1))";
    let are_done: bool = sqlx::query_scalar(query).bind(predicates).fetch_one(conn).await?;
    Ok(are_done && taken.rows_affected() == changes.len() as u64)
}

/// What somebody says of a predicate that rules go by. What several say of one are several of these.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Axiom {
    pub id: PredicateId,
    /// The predicate's own; an ontology says none.
    pub iri: Option<String>,
    pub is_symmetric: bool,
    pub is_transitive: bool,
    pub inverse_of: Option<PredicateId>,
    pub sub_property_of: Vec<PredicateId>,
    /// The guard of the ontology that says so, 0 without one.
    pub zone: DocumentId,
}

/// All predicates with axioms, and those of types and classes.
pub async fn axioms(conn: &mut PgConnection) -> sqlx::Result<Vec<Axiom>> {
    sqlx::query_as(
        "SELECT DISTINCT predicate_id AS id, iri, is_symmetric, is_transitive, inverse_of, sub_property_of, zone
           FROM predicate_axioms
          WHERE is_symmetric OR is_transitive OR inverse_of IS NOT NULL OR sub_property_of <> '{}'
             OR iri IN ('http://www.w3.org/1999/02/22-rdf-syntax-ns#type', 'http://www.w3.org/2000/01/rdf-schema#subClassOf')
          ORDER BY predicate_id, zone, iri",
    )
    .fetch_all(conn)
    .await
}

/// An asserted fact that is believed, with the guards of its ends.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct AssertedRow {
    pub id: TripleId,
    pub zone: DocumentId,
    pub subject_id: DocumentId,
    pub predicate_id: PredicateId,
    pub object_id: Option<DocumentId>,
    pub object_literal: Option<Verbatim>,
    pub object_datatype: Option<String>,
    pub object_language: Option<String>,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub subject_guard: DocumentId,
    pub object_guard: DocumentId,
}

/// The two predicates of classes. Of the facts of types only those matter that have to do with a class above or below another one.
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    pub of: PredicateId,
    pub above: PredicateId,
}

/// The predicate over `triples t` for the facts that something may follow from, by predicates and the two of classes.
macro_rules! premise {
    () => {
        "t.predicate_id = ANY($1) AND t.invalidated_at IS NULL AND t.derived_by IS NULL AND t.zone >= 0
            AND ($2::bigint IS NULL OR t.predicate_id <> $2 OR t.object_id IN (
                 SELECT unnest(ARRAY[c.subject_id, c.object_id]) FROM triples c WHERE c.predicate_id = $3 AND c.invalidated_at IS NULL))"
    };
}

/// Hands over the believed facts with these predicates that somebody asserted, by id, at most `limit`, but those of some zones.
pub async fn asserted(
    conn: &mut PgConnection,
    predicates: &[PredicateId],
    classes: Option<Classes>,
    left_out: &[DocumentId],
    limit: i64,
    mut take: impl FnMut(AssertedRow),
) -> sqlx::Result<()> {
    let query = concat!(
        "SELECT t.id, t.zone, t.subject_id, t.predicate_id, t.object_id, t.object_literal, t.object_datatype, t.object_language,
                        t.valid_from, t.valid_until, coalesce(s.guard, -1) AS subject_guard, coalesce(o.guard, -1) AS object_guard
           FROM triples t LEFT JOIN documents s ON s.id = t.subject_id LEFT JOIN documents o ON o.id = t.object_id
          WHERE ",
        premise!(),
        " AND t.zone <> ALL($5) ORDER BY t.id LIMIT $4"
    );
    let mut rows = sqlx::query_as(query)
        .bind(predicates)
        .bind(classes.map(|classes| classes.of))
        .bind(classes.map(|classes| classes.above))
        .bind(limit)
        .bind(left_out)
        .persistent(false)
        .fetch(conn);
    while let Some(row) = rows.try_next().await? {
        take(row);
    }
    Ok(())
}

/// The zones whose facts no longer fit if at most `limit` are read: those that are open to all first, then those of the zones with the fewest.
pub async fn large_zones(
    conn: &mut PgConnection,
    predicates: &[PredicateId],
    classes: Option<Classes>,
    limit: i64,
) -> sqlx::Result<Vec<DocumentId>> {
    let query = concat!(
        "SELECT z.zone FROM (
             SELECT t.zone, sum(count(*)) OVER (ORDER BY t.zone <> 0, count(*), t.zone) AS with_smaller FROM triples t WHERE ",
        premise!(),
        " GROUP BY t.zone) z WHERE z.with_smaller > $4"
    );
    sqlx::query_scalar(query)
        .bind(predicates)
        .bind(classes.map(|classes| classes.of))
        .bind(classes.map(|classes| classes.above))
        .bind(limit)
        .persistent(false)
        .fetch_all(conn)
        .await
}

/// A derived fact that is believed.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct DerivedRow {
    pub id: TripleId,
    pub statement: Uuid,
    pub zone: DocumentId,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub derived_by: String,
    pub premises: Vec<TripleId>,
}

/// The believed facts with these predicates that were derived.
pub async fn believed(conn: &mut PgConnection, predicates: &[PredicateId]) -> sqlx::Result<Vec<DerivedRow>> {
    sqlx::query_as(
        "SELECT t.id, t.statement, t.zone, t.valid_from, t.valid_until, t.derived_by,
                ARRAY(SELECT p.premise_id FROM triple_premises p WHERE p.derived_id = t.id AND p.ended_at IS NULL ORDER BY p.premise_id) AS premises
           FROM triples t WHERE t.predicate_id = ANY($1) AND t.invalidated_at IS NULL AND t.derived_by IS NOT NULL",
    )
    .bind(predicates)
    .fetch_all(conn)
    .await
}

/// A derived fact to record.
#[derive(Clone, Debug)]
pub struct NewDerived {
    pub id: TripleId,
    pub zone: DocumentId,
    pub subject_id: DocumentId,
    pub predicate_id: PredicateId,
    pub object_id: Option<DocumentId>,
    pub literal: Option<(String, String, Option<String>)>,
    pub statement: Uuid,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub fact_type: FactType,
    pub derived_by: String,
}

/// Records derived facts. The caller has the pen.
pub async fn insert(conn: &mut PgConnection, at: DateTime<Utc>, new: &[NewDerived]) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO triples (id, zone, subject_id, predicate_id, object_id, object_literal, object_datatype, object_language, statement,
                valid_from, valid_until, created_at, recorded_at, fact_type, derived_by) OVERRIDING SYSTEM VALUE
         SELECT n.id, n.zone, n.subject_id, n.predicate_id, n.object_id, n.literal, n.datatype, n.language, n.statement,
                n.valid_from, n.valid_until, $1, $1, n.fact_type, n.derived_by
           FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::uuid[],
                       $11::timestamptz[], $12::timestamptz[], $13::text[], $14::text[])
                n(id, zone, subject_id, predicate_id, object_id, literal, datatype, language, statement, valid_from, valid_until, fact_type, derived_by)",
    )
    .bind(at)
    .bind(new.iter().map(|row| row.id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.zone).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.subject_id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.predicate_id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.object_id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.literal.as_ref().map(|(value, ..)| Verbatim(value.clone()))).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.literal.as_ref().map(|(_, datatype, _)| datatype.as_str())).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.literal.as_ref().and_then(|(_, _, language)| language.as_deref())).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.statement).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.valid_from).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.valid_until).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.fact_type.as_str()).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.derived_by.as_str()).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Says what derived facts follow from since a moment: pairs of a fact and a premise. Call it with new facts after they are recorded, and with
/// others before a premise of theirs is closed. The caller has the pen.
pub async fn set_premises(
    conn: &mut PgConnection,
    at: DateTime<Utc>,
    facts: &[TripleId],
    premises: &[(TripleId, TripleId)],
) -> sqlx::Result<()> {
    sqlx::query("UPDATE triple_premises SET ended_at = $1 WHERE derived_id = ANY($2) AND ended_at IS NULL")
        .bind(at)
        .bind(facts)
        .execute(&mut *conn)
        .await?;
    sqlx::query(
        "INSERT INTO triple_premises (derived_id, premise_id, recorded_at)
         SELECT n.fact, n.premise, $1 FROM unnest($2::bigint[], $3::bigint[]) n(fact, premise)",
    )
    .bind(at)
    .bind(premises.iter().map(|(fact, _)| *fact).collect::<Vec<_>>())
    .bind(premises.iter().map(|(_, premise)| *premise).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Closes derived facts that no longer follow, or for another time. The caller has the pen.
pub async fn close(conn: &mut PgConnection, at: DateTime<Utc>, facts: &[TripleId]) -> sqlx::Result<()> {
    sqlx::query("UPDATE triples SET invalidated_at = $1, invalidation = 'rederived' WHERE id = ANY($2) AND invalidated_at IS NULL")
        .bind(at)
        .bind(facts)
        .persistent(false)
        .execute(conn)
        .await
        .map(|_| ())
}

/// How many derived facts were closed at a moment because a premise was, as far as the scope covers them.
pub async fn closed_at(conn: &mut PgConnection, scope: &Readable, at: DateTime<Utc>) -> sqlx::Result<i64> {
    let mut arguments = scope.arguments();
    add(&mut arguments, at);
    let query = concat!(
        "SELECT count(*) FROM triples t
          WHERE t.invalidated_at = $3 AND t.derived_by IS NOT NULL AND t.invalidation = 'premise_invalidated' AND ",
        fact_readable!()
    );
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_one(conn).await
}

/// Records in which zones too much follows from the facts of these predicates; in zone 0, too much follows for all.
pub async fn give_up(conn: &mut PgConnection, predicates: &[PredicateId], zones: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM derivations_given_up WHERE predicate_id = ANY($1) AND zone <> ALL($2)")
        .bind(predicates)
        .bind(zones)
        .execute(&mut *conn)
        .await?;
    sqlx::query(
        "INSERT INTO derivations_given_up (predicate_id, zone)
         SELECT p.id, z.zone FROM predicates p CROSS JOIN unnest($2::bigint[]) z(zone) WHERE p.id = ANY($1) ON CONFLICT DO NOTHING",
    )
    .bind(predicates)
    .bind(zones)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Has all predicates that were given up wait to be derived anew.
pub async fn retry_given_up(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO derivations (predicate_id) SELECT DISTINCT predicate_id FROM derivations_given_up")
        .execute(conn)
        .await
        .map(|_| ())
}

/// Records that what follows from the facts of a predicate could not be derived, and why. The first time stays until a try succeeds.
#[tracing::instrument(level = "debug", skip_all, fields(predicate.id = predicate.0))]
pub async fn failed(conn: &mut PgConnection, predicate: PredicateId, reason: &str) -> sqlx::Result<()> {
    // It is tried again every second, and mostly fails for the same reason.
    sqlx::query(
        "INSERT INTO derivation_failures AS f (predicate_id, reason) SELECT p.id, left($2, $3) FROM predicates p WHERE p.id = $1
         ON CONFLICT (predicate_id) DO UPDATE SET reason = excluded.reason WHERE f.reason <> excluded.reason",
    )
    .bind(predicate)
    .bind(reason.replace('\0', ""))
    .bind(REASON)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Forgets earlier failures, because what follows from the facts of these predicates was derived.
pub async fn succeeded(conn: &mut PgConnection, predicates: &[PredicateId]) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM derivation_failures WHERE predicate_id = ANY($1)")
        .bind(predicates)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Has derived facts follow when the documents at and under `root` have got other guards: what was derived through such a document, or by
/// the axioms of such an ontology, is the owner's alone from now on, and is derived anew.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.0))]
pub async fn reguarded(conn: &mut PgConnection, root: DocumentId) -> sqlx::Result<()> {
    let predicates: Vec<PredicateId> = sqlx::query_scalar(
        "SELECT u.id FROM (
             SELECT t.predicate_id AS id FROM documents d JOIN triples t ON t.object_id = d.id AND t.invalidated_at IS NULL
              WHERE d.id = $1 OR d.path @> ARRAY[$1::bigint]
              UNION
             SELECT t.predicate_id FROM documents d JOIN triples t ON t.subject_id = d.id AND t.invalidated_at IS NULL
              WHERE d.id = $1 OR d.path @> ARRAY[$1::bigint]
              UNION
             SELECT a.predicate_id FROM documents d JOIN ontology_predicates a ON a.ontology_id = d.id WHERE d.id = $1 OR d.path @> ARRAY[$1::bigint]) u
          WHERE is_ruled(u.id)",
    )
    .bind(root)
    .fetch_all(&mut *conn)
    .await?;
    if predicates.is_empty() && through(conn, root).await?.is_empty() {
        return Ok(());
    }
    // Whoever derives had the pen until now: what was recorded before the guards changed is seen from here on.
    take_pen(conn).await?;
    let hanging = through(conn, root).await?;
    sqlx::query("INSERT INTO derivations (predicate_id) SELECT unnest($1::bigint[])")
        .bind(&predicates)
        .execute(&mut *conn)
        .await?;
    withdraw(conn, &hanging).await
}

/// What was derived through documents at and under `root` that are no end of it, or by the axioms of ontologies there.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.0))]
async fn through(conn: &mut PgConnection, root: DocumentId) -> sqlx::Result<Vec<TripleId>> {
    sqlx::query_scalar(
        "SELECT t.id FROM documents d JOIN triples p ON p.object_id = d.id JOIN triple_premises x ON x.premise_id = p.id AND x.ended_at IS NULL
           JOIN triples t ON t.id = x.derived_id AND t.zone <> -1 AND t.subject_id <> d.id AND t.object_id IS DISTINCT FROM d.id
          WHERE d.id = $1 OR d.path @> ARRAY[$1::bigint]
          UNION
         SELECT t.id FROM documents d JOIN ontology_predicates a ON a.ontology_id = d.id
          CROSS JOIN LATERAL unnest(ARRAY[a.predicate_id, a.inverse_of] || a.sub_property_of) q(id)
           JOIN triples t ON t.predicate_id = q.id AND t.derived_by IS NOT NULL AND t.zone <> -1
          WHERE d.id = $1 OR d.path @> ARRAY[$1::bigint]",
    )
    .bind(root)
    .fetch_all(conn)
    .await
}

/// Closes what follows from facts about documents that were deleted; if some of these facts are believed, the caller has the pen. Only the owner
/// sees these facts from then on, and what followed from them.
pub async fn ends_gone(conn: &mut PgConnection, gone: &[DocumentId]) -> sqlx::Result<()> {
    let hanging: Vec<TripleId> = sqlx::query_scalar(
        "SELECT x.derived_id FROM triples t JOIN triple_premises x ON x.premise_id = t.id AND x.ended_at IS NULL WHERE t.subject_id = ANY($1)
          UNION SELECT x.derived_id FROM triples t JOIN triple_premises x ON x.premise_id = t.id AND x.ended_at IS NULL WHERE t.object_id = ANY($1)",
    )
    .bind(gone)
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    match hanging.is_empty() {
        true => Ok(()),
        false => withdraw(conn, &hanging).await,
    }
}

/// Closes derived facts and shows them to the owner alone, whatever follows from them too.
async fn withdraw(conn: &mut PgConnection, facts: &[TripleId]) -> sqlx::Result<()> {
    let at = take_pen(conn).await?;
    sqlx::query(
        "UPDATE triples SET zone = -1, invalidated_at = coalesce(invalidated_at, $1), invalidation = coalesce(invalidation, 'premise_invalidated')
          WHERE id = ANY($2) AND zone <> -1",
    )
    .bind(at)
    .bind(facts)
    .persistent(false)
    .execute(conn)
    .await
    .map(|_| ())
}

/// What derived facts follow from now, or did at a time that was known, as far as the scope covers it; of each fact the first.
pub async fn premises(
    conn: &mut PgConnection,
    scope: &Readable,
    facts: &[TripleId],
    known_at: Option<DateTime<Utc>>,
) -> sqlx::Result<HashMap<TripleId, Vec<i64>>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, facts.to_vec());
    add(&mut arguments, PREMISES);
    add(&mut arguments, known_at);
    let rows: Vec<(TripleId, i64)> = sqlx::query_as_with(
        concat!(
            "SELECT k.id, p.premise_id FROM unnest($3::bigint[]) k(id) CROSS JOIN LATERAL (
                 SELECT p.premise_id FROM triple_premises p JOIN triples t ON t.id = p.premise_id
                  WHERE p.derived_id = k.id AND p.recorded_at <= coalesce($5::timestamptz, 'infinity')
                    AND (p.ended_at IS NULL OR p.ended_at > $5) AND ",
            fact_readable!(),
            " ORDER BY p.premise_id LIMIT $4) p"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await?;
    let mut premises: HashMap<TripleId, Vec<i64>> = HashMap::new();
    for (fact, premise) in rows {
        premises.entry(fact).or_default().push(premise);
    }
    Ok(premises)
}
