//! The optional fields that providers refuse.
use crate::store::text::storable;
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashMap};

/// The fields that a provider refuses for these models, by model.
pub async fn refused(
    conn: &mut PgConnection,
    provider: &str,
    models: &[&str],
) -> sqlx::Result<HashMap<String, BTreeSet<String>>> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT model, field FROM llm_refused_fields WHERE provider = $1 AND model = ANY($2)")
            .bind(provider)
            .bind(models)
            .fetch_all(conn)
            .await?;
    let mut refused: HashMap<String, BTreeSet<String>> = HashMap::new();
    for (model, field) in rows {
        refused.entry(model).or_default().insert(field);
    }
    Ok(refused)
}

/// Records that a provider refuses these fields for a model.
pub async fn refuse(conn: &mut PgConnection, provider: &str, model: &str, fields: &BTreeSet<&str>) -> sqlx::Result<()> {
    if fields.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO llm_refused_fields (provider, model, field) SELECT $1, $2, f.field FROM unnest($3::text[]) AS f(field) ORDER BY f.field
         ON CONFLICT DO NOTHING",
    )
    .bind(provider)
    .bind(model)
    .bind(Vec::from_iter(fields.iter().copied()))
    .execute(conn)
    .await
    .map(|_| ())
}

/// Says of fields, each with the custom id of a request of a batch that has no result yet, whether they were sent.
pub async fn sent(conn: &mut PgConnection, batch_id: i64, fields: &[(&str, &str)]) -> sqlx::Result<Vec<bool>> {
    sqlx::query_scalar(
        "SELECT coalesce(position(c.member IN q.line) > 0, false)
           FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS c(custom_id, member, at)
           LEFT JOIN llm_batch_requests q ON q.batch_id = $1 AND q.custom_id = c.custom_id
          ORDER BY c.at",
    )
    .bind(batch_id)
    .bind(fields.iter().map(|(custom_id, _)| storable(custom_id).into_owned()).collect::<Vec<_>>())
    // The quotation marks of a text are escaped in a line, so this stands in it as the name of a member alone.
    .bind(fields.iter().map(|(_, field)| format!("\"{field}\":")).collect::<Vec<_>>())
    .fetch_all(conn)
    .await
}
