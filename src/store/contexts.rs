//! Search contexts: values of searches under a name.
use super::{
    documents::add,
    scope::{Readable, readable},
};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use std::collections::{HashMap, HashSet};
use svc_client::wire::{ContextConfig, SearchFilter};
use svc_ids::{ContextId, DocumentId, IndexId};

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct ContextRow {
    pub id: ContextId,
    pub name: String,
    pub config: Json<ContextConfig>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The documents `named` in the filter of `search_contexts c`, in which other filters lie; a condition follows.
macro_rules! named_in_filter {
    () => {
        "WITH RECURSIVE parts(part) AS (
             SELECT c.config -> 'filter' WHERE c.config -> 'filter' IS NOT NULL
             UNION ALL
             SELECT inner_part FROM parts p
              CROSS JOIN jsonb_array_elements(coalesce(p.part -> 'any', '[]') || coalesce(p.part -> 'all', '[]')
                                              || coalesce(p.part -> 'none', '[]')) AS inside(inner_part))
         SELECT FROM parts p
          CROSS JOIN jsonb_array_elements_text(coalesce(p.part -> 'under', '[]') || coalesce(p.part -> 'exclude', '[]')) AS named(id)
          WHERE "
    };
}

/// Whoever may not read all documents that a context names does not see the context; its arguments are $1 and $2. The documents are its parent and
/// those of its filter. A document of a filter that is gone keeps nothing secret, nor does a part of the tree that a reprocess replaced, whose rows are
/// deleted later.
macro_rules! visible {
    () => {
        concat!(
            "($1 OR (c.config ->> 'parent_id' IS NULL
                     OR EXISTS (SELECT FROM documents d WHERE d.id = (c.config ->> 'parent_id')::bigint AND ",
            readable!(),
            ")) AND NOT EXISTS (",
            named_in_filter!(),
            "EXISTS (SELECT FROM documents d WHERE d.id = named.id::bigint AND d.guard <> -1 AND NOT ",
            readable!(),
            ")))"
        )
    };
}

/// Stores a context; `None` if the name is taken.
pub async fn insert(conn: &mut PgConnection, name: &str, config: &ContextConfig) -> sqlx::Result<Option<ContextRow>> {
    sqlx::query_as(
        "INSERT INTO search_contexts (name, config) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id, name, config, created_at, updated_at",
    )
    .bind(name)
    .bind(Json(config))
    .fetch_optional(conn)
    .await
}

#[tracing::instrument(level = "debug", skip_all, fields(context.id = id.0))]
pub async fn read(conn: &mut PgConnection, scope: &Readable, id: ContextId) -> sqlx::Result<Option<ContextRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    sqlx::query_as_with(
        concat!(
            "SELECT id, name, config, created_at, updated_at FROM search_contexts c WHERE c.id = $3 AND ",
            visible!()
        ),
        arguments,
    )
    .fetch_optional(conn)
    .await
}

/// The values of the context with this name.
pub async fn by_name(conn: &mut PgConnection, scope: &Readable, name: &str) -> sqlx::Result<Option<ContextConfig>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, name.to_owned());
    let config: Option<Json<ContextConfig>> = sqlx::query_scalar_with(
        concat!("SELECT config FROM search_contexts c WHERE c.name = $3 AND ", visible!()),
        arguments,
    )
    .fetch_optional(conn)
    .await?;
    Ok(config.map(|Json(config)| config))
}

/// Contexts after `after` by id, at most `limit`.
pub async fn page(
    conn: &mut PgConnection,
    scope: &Readable,
    after: ContextId,
    limit: u32,
) -> sqlx::Result<Vec<ContextRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    sqlx::query_as_with(
        concat!(
            "SELECT id, name, config, created_at, updated_at FROM search_contexts c WHERE c.id > $3 AND ",
            visible!(),
            " ORDER BY c.id LIMIT $4"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await
}

/// Changes what is given; `None` if there is no such context.
#[tracing::instrument(level = "debug", skip_all, fields(context.id = id.0))]
pub async fn update(
    conn: &mut PgConnection,
    id: ContextId,
    name: Option<&str>,
    config: Option<&ContextConfig>,
) -> sqlx::Result<Option<ContextRow>> {
    sqlx::query_as(
        "UPDATE search_contexts SET name = coalesce($2, name), config = coalesce($3, config), updated_at = clock_timestamp()
          WHERE id = $1 RETURNING id, name, config, created_at, updated_at",
    )
    .bind(id)
    .bind(name)
    .bind(config.map(Json))
    .fetch_optional(conn)
    .await
}

/// Returns the name that it had; `None` if there is no such context.
#[tracing::instrument(level = "debug", skip_all, fields(context.id = id.0))]
pub async fn delete(conn: &mut PgConnection, id: ContextId) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar("DELETE FROM search_contexts WHERE id = $1 RETURNING name").bind(id).fetch_optional(conn).await
}

/// Has contexts name the documents that take the place of those that go. Returns the contexts that name one without such a document.
pub async fn redirect(
    conn: &mut PgConnection,
    counterparts: &HashMap<DocumentId, DocumentId>,
    gone: &[DocumentId],
) -> sqlx::Result<Vec<ContextId>> {
    let naming: Vec<(ContextId, Json<ContextConfig>)> = sqlx::query_as(concat!(
        "SELECT c.id, c.config FROM search_contexts c WHERE (c.config ->> 'parent_id')::bigint = ANY($1) OR EXISTS (",
        named_in_filter!(),
        "named.id::bigint = ANY($1)) ORDER BY c.id FOR NO KEY UPDATE OF c"
    ))
    .bind(gone)
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    if naming.is_empty() {
        return Ok(Vec::new());
    }
    let goes: HashSet<DocumentId> = gone.iter().copied().collect();
    let (mut ids, mut configs, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    for (id, Json(mut config)) in naming {
        let mut lacks_one = false;
        for named in named(&mut config) {
            let old = DocumentId(*named);
            match counterparts.get(&old) {
                Some(new) => *named = new.0,
                None => lacks_one |= goes.contains(&old),
            }
        }
        lost.extend(lacks_one.then_some(id));
        ids.push(id);
        configs.push(Json(config));
    }
    sqlx::query(
        "UPDATE search_contexts c SET config = n.config, updated_at = clock_timestamp()
           FROM unnest($1::bigint[], $2::jsonb[]) AS n(id, config) WHERE c.id = n.id AND c.config <> n.config",
    )
    .bind(ids)
    .bind(configs)
    .execute(conn)
    .await?;
    Ok(lost)
}

/// Has contexts that name an index go on to name it once it has another name. Call it before the index is locked, because a reprocess locks
/// contexts before indexes.
pub async fn follow_index(conn: &mut PgConnection, index: IndexId, name: &str) -> sqlx::Result<()> {
    sqlx::query(
        "WITH naming AS MATERIALIZED (
             SELECT c.id FROM search_contexts c
              WHERE c.config ->> 'index' = (SELECT i.name FROM search_indexes i WHERE i.id = $1 AND i.name <> $2) ORDER BY c.id FOR NO KEY UPDATE)
         UPDATE search_contexts c SET config = jsonb_set(c.config, '{index}', to_jsonb($2::text)), updated_at = clock_timestamp()
           FROM naming n WHERE c.id = n.id",
    )
    .bind(index)
    .bind(name)
    .execute(conn)
    .await
    .map(|_| ())
}

/// The documents that a context names.
fn named(config: &mut ContextConfig) -> Vec<&mut i64> {
    let mut named: Vec<&mut i64> = config.parent_id.iter_mut().collect();
    let mut filters: Vec<&mut SearchFilter> = config.filter.iter_mut().collect();
    while let Some(SearchFilter { exclude, under, any, all, none, .. }) = filters.pop() {
        named.extend([exclude, under].into_iter().flatten().flatten());
        filters.extend([any, all, none].into_iter().flatten().flatten());
    }
    named
}
