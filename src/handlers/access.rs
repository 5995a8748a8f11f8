//! Principals, who the caller is, and the record of who did what.
use super::documents::{id_cursor, page_by_id};
use crate::{
    access::Caller,
    error::{OrFail, unauthenticated},
    registry::Handle,
    service::Service,
    store::{self, audit::Entry, away::sql_state},
};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AuditAct, AuditPage, CallerResponse, PrincipalKind, PrincipalPage, PrincipalResponse},
};
use svc_ids::{DocumentId, PrincipalId};

/// How many grants the caller is shown.
const GRANTS: u32 = 1000;

pub(super) fn no_principal(id: PrincipalId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no principal {id}"))
}

fn taken(name: &str) -> Failure {
    Failure::new(Code::Conflict, format!("there is a principal `{name}` already")).with("remedy", "choose another name")
}

fn answered_for(user: &str) -> Failure {
    Failure::new(Code::Conflict, format!("another principal answers for the broker's user `{user}` already"))
        .with("remedy", "take the user from it first, with a blank amqp_user")
}

/// 404 if there is no such principal.
pub(super) async fn principal(conn: &mut PgConnection, id: PrincipalId) -> Result<PrincipalResponse, Failure> {
    store::principals::read(conn, id).await.or_fail()?.ok_or_else(|| no_principal(id))
}

impl Handle<ops::read_caller> for Service {
    async fn handle(&self, caller: &Caller, _: Call<ops::read_caller>) -> Result<CallerResponse, Failure> {
        let Some(principal) = caller.principal() else {
            let owner = matches!(caller, Caller::Owner);
            return Ok(CallerResponse { owner, principal: None, token: None, grants: Vec::new(), more_grants: false });
        };
        let mut tx = store::transaction::begin_snapshot(&self.pool).await.or_fail()?;
        let mut grants = store::access::grants_of(&mut tx, principal.id, DocumentId(0), GRANTS + 1).await.or_fail()?;
        let more_grants = grants.len() > GRANTS as usize;
        grants.truncate(GRANTS as usize);
        let token = match principal.token_id {
            Some(token_id) => store::api_tokens::read(&mut tx, token_id).await.or_fail()?,
            None => None,
        };
        // The principal may have been deleted since the request came.
        let principal = store::principals::read(&mut tx, principal.id).await.or_fail()?.ok_or_else(unauthenticated)?;
        Ok(CallerResponse { owner: false, principal: Some(principal), token, grants, more_grants })
    }
}

impl Handle<ops::create_principal> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_principal>) -> Result<PrincipalResponse, Failure> {
        let new = call.body.0;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let made = store::principals::insert(&mut tx, &new).await.or_fail()?.ok_or_else(|| taken(&new.name))?;
        let entry = Entry::new(AuditAct::PrincipalCreate).principal(PrincipalId(made.id), &made.name);
        caller.record(&mut tx, entry.with("kind", made.kind.as_str())).await.or_fail()?;
        tx.commit().await.or_fail()?;
        Ok(made)
    }
}

impl Handle<ops::list_principals> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_principals>) -> Result<PrincipalPage, Failure> {
        let query = call.query;
        let (limit, after) = (query.limit.unwrap_or(100), id_cursor(query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows =
            store::principals::list(&mut conn, query.name.as_deref(), PrincipalId(after), limit + 1).await.or_fail()?;
        let (principals, next_cursor) = page_by_id(rows, limit, |principal| principal.id);
        Ok(PrincipalPage { principals, next_cursor })
    }
}

impl Handle<ops::read_principal> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::read_principal>) -> Result<PrincipalResponse, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        principal(&mut conn, PrincipalId(call.path.id)).await
    }
}

impl Handle<ops::update_principal> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::update_principal>) -> Result<PrincipalResponse, Failure> {
        let (id, change) = (PrincipalId(call.path.id), call.body.0);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let before = principal(&mut tx, id).await?;
        let after = match store::principals::update(&mut tx, id, &change).await {
            Err(error) if sql_state(&error) == "23505" => {
                let is_user =
                    error.as_database_error().and_then(|error| error.constraint()) == Some("principals_amqp_user_key");
                return Err(match change.amqp_user.filter(|_| is_user) {
                    Some(user) => answered_for(&user),
                    None => taken(change.name.as_deref().unwrap_or_default()),
                });
            }
            updated => updated.or_fail()?.ok_or_else(|| no_principal(id))?,
        };
        // One that was bound as a service keeps its user, and answers again once it is a service.
        if change.amqp_user.is_some() && after.amqp_user.is_some() && after.kind != PrincipalKind::Service {
            let failure = Failure::field("amqp_user", "takes a user of the broker only for a service");
            return Err(failure.with("remedy", "make it a service: svc access principals edit NAME --kind service"));
        }
        let changes = match serde_json::to_value(&change) {
            Ok(Value::Object(changes)) => changes,
            _ => Map::new(),
        };
        let entry = Entry::new(AuditAct::PrincipalUpdate).principal(id, &before.name);
        let entry = changes.into_iter().fold(entry, |entry, (name, value)| entry.with(&name, value));
        caller.record(&mut tx, entry).await.or_fail()?;
        tx.commit().await.or_fail()?;
        self.rights_changed();
        Ok(after)
    }
}

impl Handle<ops::delete_principal> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_principal>) -> Result<(), Failure> {
        let id = PrincipalId(call.path.id);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let (name, gone) = store::principals::delete(&mut tx, id).await.or_fail()?.ok_or_else(|| no_principal(id))?;
        let entry = Entry::new(AuditAct::PrincipalDelete).principal(id, &name);
        let entry = gone.into_iter().fold(entry, |entry, (name, value)| entry.with(&name, value));
        caller.record(&mut tx, entry).await.or_fail()?;
        tx.commit().await.or_fail()?;
        self.rights_changed();
        Ok(())
    }
}

impl Handle<ops::list_audit> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_audit>) -> Result<AuditPage, Failure> {
        let query = call.query;
        let before = match query.cursor.as_deref() {
            None => i64::MAX,
            cursor => id_cursor(cursor)?,
        };
        let limit = query.limit.unwrap_or(100);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = store::audit::list(&mut conn, &query, before, limit + 1).await.or_fail()?;
        let (entries, next_cursor) = page_by_id(rows, limit, |entry| entry.id);
        Ok(AuditPage { entries, next_cursor })
    }
}
