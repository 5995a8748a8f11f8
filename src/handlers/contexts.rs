//! Search contexts, which the owner manages and searches name.
use super::documents::{id_cursor, page_by_id};
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        audit::Entry,
        away::sql_state,
        contexts::{self, ContextRow},
        scope::Readable,
    },
};
use sqlx::{PgConnection, types::Json};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AuditAct, ContextConfig, ContextPage, ContextResponse},
};
use svc_ids::{ContextId, DocumentId};

fn no_context(id: i64) -> Failure {
    Failure::new(Code::NotFound, format!("there is no search context {id}"))
}

fn taken(name: &str) -> Failure {
    Failure::new(Code::Conflict, format!("there is a search context `{name}` already"))
        .with("remedy", "choose another name")
}

fn shown(row: ContextRow) -> ContextResponse {
    let ContextRow { id, name, config: Json(config), created_at, updated_at } = row;
    ContextResponse { id: id.0, name, config, created_at, updated_at }
}

/// Refuses what a search would be refused for.
async fn check(conn: &mut PgConnection, config: &ContextConfig) -> Result<(), Failure> {
    if let Some(id) = config.parent_id
        && !store::documents::is_readable(&mut *conn, &Readable::everything(), DocumentId(id)).await.or_fail()?
    {
        return Err(Failure::field("config.parent_id", format!("there is no document {id}")));
    }
    if let Some(name) = &config.index
        && store::indexes::by_name(conn, name).await.or_fail()?.is_none()
    {
        return Err(Failure::field("config.index", format!("there is no index `{name}`")));
    }
    Ok(())
}

/// Records what the owner does with a context, by the name that it has then.
async fn record(conn: &mut PgConnection, caller: &Caller, act: AuditAct, id: i64, name: &str) -> Result<(), Failure> {
    caller.record(conn, Entry::new(act).with("context_id", id).with("name", name)).await.or_fail()
}

impl Handle<ops::create_context> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_context>) -> Result<ContextResponse, Failure> {
        let new = call.body.0;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        check(&mut tx, &new.config).await?;
        let made = contexts::insert(&mut tx, &new.name, &new.config).await.or_fail()?;
        let made = made.map(shown).ok_or_else(|| taken(&new.name))?;
        record(&mut tx, caller, AuditAct::ContextCreate, made.id, &made.name).await?;
        tx.commit().await.or_fail()?;
        Ok(made)
    }
}

impl Handle<ops::list_contexts> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_contexts>) -> Result<ContextPage, Failure> {
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = contexts::page(&mut conn, &caller.readable(), ContextId(after), limit + 1).await.or_fail()?;
        let (contexts, next_cursor) = page_by_id(rows.into_iter().map(shown).collect(), limit, |context| context.id);
        Ok(ContextPage { contexts, next_cursor })
    }
}

impl Handle<ops::read_context> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_context>) -> Result<ContextResponse, Failure> {
        let id = call.path.id;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let row = contexts::read(&mut conn, &caller.readable(), ContextId(id)).await.or_fail()?;
        row.map(shown).ok_or_else(|| no_context(id))
    }
}

impl Handle<ops::update_context> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::update_context>) -> Result<ContextResponse, Failure> {
        let (id, change) = (call.path.id, call.body.0);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        if let Some(config) = &change.config {
            check(&mut tx, config).await?;
        }
        let name = change.name.as_deref();
        let row = match contexts::update(&mut tx, ContextId(id), name, change.config.as_ref()).await {
            Err(error) if sql_state(&error) == "23505" => return Err(taken(name.unwrap_or_default())),
            row => row.or_fail()?,
        };
        let changed = row.map(shown).ok_or_else(|| no_context(id))?;
        record(&mut tx, caller, AuditAct::ContextUpdate, id, &changed.name).await?;
        tx.commit().await.or_fail()?;
        Ok(changed)
    }
}

impl Handle<ops::delete_context> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_context>) -> Result<(), Failure> {
        let id = call.path.id;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let name = contexts::delete(&mut tx, ContextId(id)).await.or_fail()?.ok_or_else(|| no_context(id))?;
        record(&mut tx, caller, AuditAct::ContextDelete, id, &name).await?;
        tx.commit().await.or_fail()
    }
}
