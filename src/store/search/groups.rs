//! What a search needs to know in order to put documents together into groups.
use super::{Composed, Eligible, eligible, written_ids};
use crate::{
    store::{
        documents::add,
        scope::{Readable, readable},
        vectors::Stored,
    },
    usetype::Usetype,
};
use sqlx::{AssertSqlSafe, FromRow, PgConnection, postgres::PgRow};
use std::collections::HashMap;
use svc_ids::DocumentId;

/// The most texts under one container that are compared with a query.
const COMPARED: i64 = 1_000;

/// A document of a ranking, or one above it.
#[derive(Clone, Debug)]
pub struct Member {
    pub id: DocumentId,
    /// The ids of its ancestors, root first.
    pub path: Vec<i64>,
    pub usetype: String,
    /// Whether it has a text of its own.
    pub has_text: bool,
    pub readable: bool,
    /// Whether it is readable and settled, and no excluded usetype keeps it out of results.
    pub may_be_shown: bool,
    /// How many readable texts are its children, if they were counted; they are counted only for a section that the caller may read.
    pub texts: Option<i64>,
}

/// For which sections the readable texts are counted along, as [`texts_in`] does: for those above at least two of these documents. Under any other container
/// there may be a million texts that the caller may not read, and the count would look at each of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted<'a> {
    pub among: &'a [DocumentId],
    /// The count goes no further than this.
    pub most: i64,
}

#[derive(sqlx_macros::FromRow)]
struct MemberRow {
    id: DocumentId,
    path: Vec<i64>,
    usetype: String,
    has_text: bool,
    readable: bool,
    is_settled: bool,
    texts: Option<i64>,
}

/// The documents and all their ancestors, also those that the caller must not be shown.
pub async fn members(
    conn: &mut PgConnection,
    eligible: &Eligible,
    ids: &[DocumentId],
    counted: Counted<'_>,
) -> sqlx::Result<Vec<Member>> {
    let statement = AssertSqlSafe(statement(&eligible.scope, ids, counted));
    read(eligible, &sqlx::raw_sql(statement).fetch_all(conn).await?)
}

/// What is read of a member, without what is counted, from `documents d`.
macro_rules! member {
    () => {
        concat!(
            "SELECT d.id, d.path, d.usetype, d.content <> '' AS has_text, d.settled = 'settled' AS is_settled, ",
            readable!(),
            " AS readable FROM documents d"
        )
    };
}

/// The statement of [`members`], which has no parameters, so that it can go in one message with others; [`read`] reads its rows.
pub fn statement(scope: &Readable, ids: &[DocumentId], counted: Counted<'_>) -> String {
    // The planner does not know how many ids a query returns, so it looks up each id.
    let statement = concat!(
        "WITH found AS MATERIALIZED (",
        member!(),
        " WHERE d.id = ANY((SELECT {ids})::bigint[])),
              m AS (SELECT * FROM found UNION ALL ",
        member!(),
        " WHERE d.id = ANY(ARRAY(SELECT unnest(path) FROM found EXCEPT SELECT id FROM found))),
              crowded AS MATERIALIZED (SELECT f.path[cardinality(f.path)] AS id FROM found f WHERE f.id = ANY((SELECT {among})::bigint[])
                                        GROUP BY 1 HAVING count(*) > 1)
         SELECT m.*, CASE WHEN m.readable AND m.is_settled AND m.usetype IN ({sections}) AND m.id IN (SELECT c.id FROM crowded c)
                          THEN (SELECT count(*) FROM (SELECT FROM documents d
                    WHERE d.parent_id = m.id AND d.settled = 'settled' AND d.content <> '' AND ",
        readable!(),
        " LIMIT {most}) t) END AS texts FROM m"
    );
    let sections = Usetype::SECTIONS.map(|section| format!("'{}'", section.as_str())).join(", ");
    let statement =
        scope.written(statement).replace("{most}", &counted.most.to_string()).replace("{sections}", &sections);
    statement.replace("{among}", &written_ids(counted.among)).replace("{ids}", &written_ids(ids))
}

/// What the rows of [`statement`] say.
pub fn read(eligible: &Eligible, rows: &[PgRow]) -> sqlx::Result<Vec<Member>> {
    let member = |row: &PgRow| -> sqlx::Result<Member> {
        let MemberRow { id, path, usetype, has_text, readable, is_settled, texts } = MemberRow::from_row(row)?;
        let may_be_shown = readable && is_settled && !eligible.excluded_usetypes.contains(&usetype);
        Ok(Member { id, path, usetype, has_text, readable, may_be_shown, texts })
    };
    rows.iter().map(member).collect()
}

/// The most further groups inside of the known ones that are told from these.
const NESTED: i64 = 1_000;

/// Whether there is an eligible document outside of these groups, each of which is a container with its parts. `parts` are the usetypes
/// of parts: any other document under a container is a group of its own. A part belongs to the nearest group above it, whatever that one is in.
pub async fn has_others(
    conn: &mut PgConnection,
    eligible: &Eligible,
    containers: &[DocumentId],
    parts: &[&str],
) -> sqlx::Result<bool> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, containers.to_vec());
    add(&mut arguments, parts.iter().map(|part| (*part).to_owned()).collect::<Vec<String>>());
    add(&mut arguments, NESTED);
    let statement = eligible.statement(
        concat!(
            "WITH nested AS MATERIALIZED (
                 SELECT coalesce(array_agg(b.id), '{}') AS ids FROM (
                     SELECT b.id FROM documents b
                      WHERE b.path && $12::bigint[] AND b.usetype <> ALL($13::text[]) AND b.id <> ALL($12) LIMIT $14) b)
             SELECT EXISTS (SELECT FROM documents d WHERE ",
            eligible!(),
            " AND d.id <> ALL($12) AND (NOT d.path && $12 OR (
                 SELECT cardinality(n.ids) = $14 OR (d.path || d.id) && n.ids AND (
                            SELECT g.id = ANY(n.ids) FROM unnest(d.path || d.id) WITH ORDINALITY g(id, depth)
                             WHERE g.id = ANY($12) OR g.id = ANY(n.ids) ORDER BY g.depth DESC LIMIT 1)
                   FROM nested n)))"
        ),
        &mut arguments,
    );
    sqlx::query_scalar_with(statement, arguments).persistent(eligible.composed.is_open()).fetch_one(conn).await
}

/// The best texts in each of these containers: the nearest to the query, or the first ones if there is no vector. Each with its
/// container and its cosine. `parts` are the usetypes of what belongs to a container: nothing else stands between it and its texts. Of a
/// container with very many texts, only some are looked at.
pub async fn texts_of(
    conn: &mut PgConnection,
    eligible: &Eligible,
    containers: &[DocumentId],
    parts: &[&str],
    query: Option<&Stored<'_>>,
    per_container: u32,
) -> sqlx::Result<Vec<(DocumentId, DocumentId, Option<f64>)>> {
    // The filter chose the containers. What is shown of them is their best text, whatever its usetype or time, unless its place keeps it out.
    let eligible = Eligible {
        scope: eligible.scope.clone(),
        parent_id: eligible.parent_id,
        usetypes: Some(parts.iter().map(|part| (*part).to_owned()).collect()),
        excluded_usetypes: eligible.excluded_usetypes.clone(),
        excluded: eligible.excluded.clone(),
        composed: Composed { only_places: true, ..eligible.composed.clone() },
        ..Eligible::default()
    };
    let mut arguments = eligible.arguments();
    add(&mut arguments, query.map(|query| query.model.to_owned()));
    add(&mut arguments, query.map(|query| query.vector.clone()));
    add(&mut arguments, containers.to_vec());
    add(&mut arguments, COMPARED);
    add(&mut arguments, i64::from(per_container));
    let statement = eligible.statement(
        concat!(
            "SELECT c.id, best.id, best.score FROM unnest($14::bigint[]) c(id) CROSS JOIN LATERAL (
                 SELECT n.id, 1 - (v.embed <=> $13::halfvec) AS score
                   FROM (SELECT d.id, d.path FROM documents d WHERE d.path @> ARRAY[c.id] AND d.content <> '' AND ",
            eligible!(),
            " LIMIT $15) n LEFT JOIN document_vectors v ON v.document_id = n.id AND v.embed_model = $12
                  WHERE NOT EXISTS (SELECT FROM documents b WHERE b.id = ANY(n.path) AND b.path @> ARRAY[c.id] AND b.usetype <> ALL($4::text[]))
                  ORDER BY score DESC NULLS LAST, n.id LIMIT $16) best
              ORDER BY c.id, best.score DESC NULLS LAST, best.id"
        ),
        &mut arguments,
    );
    sqlx::query_as_with(statement, arguments).persistent(eligible.composed.is_open()).fetch_all(conn).await
}

/// How many readable texts each of these sections has as its children, counted up to `most`.
pub async fn texts_in(
    conn: &mut PgConnection,
    scope: &Readable,
    sections: &[DocumentId],
    most: i64,
) -> sqlx::Result<HashMap<DocumentId, i64>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, sections.to_vec());
    add(&mut arguments, most);
    let rows: Vec<(DocumentId, i64)> = sqlx::query_as_with(
        concat!(
            "SELECT s.id, (SELECT count(*) FROM (SELECT FROM documents d
                 WHERE d.parent_id = s.id AND d.settled = 'settled' AND d.content <> '' AND ",
            readable!(),
            " LIMIT $4) t) FROM unnest($3::bigint[]) s(id)"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().collect())
}
