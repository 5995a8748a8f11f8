//! The tokens of principals.
use super::{
    access::{no_principal, principal},
    documents::{id_cursor, page_by_id},
};
use crate::{
    access::{Caller, NewSecret},
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{self, api_tokens::NewRow, audit::Entry},
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use std::time::Duration;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{ApiTokenPage, ApiTokenResponse, AuditAct, GRACE_SECONDS, IssuedApiToken, PrincipalResponse},
};
use svc_ids::{ApiTokenId, PrincipalId};

fn no_token(id: ApiTokenId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no token {id}"))
}

fn to_come(expires_at: Option<DateTime<Utc>>) -> Result<(), Failure> {
    match expires_at {
        Some(time) if time <= Utc::now() => Err(Failure::field("expires_at", "takes a time in the future")),
        _ => Ok(()),
    }
}

/// Stores a new token and shows its secret, which is known only here.
async fn issue(
    conn: &mut PgConnection,
    principal: &PrincipalResponse,
    name: &str,
    expires_at: Option<DateTime<Utc>>,
) -> Result<IssuedApiToken, Failure> {
    let secret = NewSecret::draw();
    let principal_id = PrincipalId(principal.id);
    let row = NewRow { principal_id, name, hash: &secret.hash, prefix: secret.prefix(), expires_at };
    let token = store::api_tokens::insert(conn, &row).await.or_fail()?;
    Ok(IssuedApiToken { token, secret: secret.text })
}

impl Handle<ops::issue_api_token> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::issue_api_token>) -> Result<IssuedApiToken, Failure> {
        let new = call.body.0;
        to_come(new.expires_at)?;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let id = PrincipalId(call.path.id);
        let principal = store::principals::hold(&mut tx, id).await.or_fail()?.ok_or_else(|| no_principal(id))?;
        let issued = issue(&mut tx, &principal, &new.name, new.expires_at).await?;
        let entry = Entry::new(AuditAct::TokenIssue).principal(id, &principal.name);
        let entry = entry.with("token_id", issued.token.id).with("name", new.name);
        caller.record(&mut tx, entry).await.or_fail()?;
        tx.commit().await.or_fail()?;
        Ok(issued)
    }
}

impl Handle<ops::list_api_tokens> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_api_tokens>) -> Result<ApiTokenPage, Failure> {
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let id = PrincipalId(call.path.id);
        principal(&mut conn, id).await?;
        let rows = store::api_tokens::list(&mut conn, id, ApiTokenId(after), limit + 1).await.or_fail()?;
        let (tokens, next_cursor) = page_by_id(rows, limit, |token| token.id);
        Ok(ApiTokenPage { tokens, next_cursor })
    }
}

impl Handle<ops::read_api_token> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::read_api_token>) -> Result<ApiTokenResponse, Failure> {
        let id = ApiTokenId(call.path.id);
        let mut conn = self.pool.acquire().await.or_fail()?;
        store::api_tokens::read(&mut conn, id).await.or_fail()?.ok_or_else(|| no_token(id))
    }
}

impl Handle<ops::rotate_api_token> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::rotate_api_token>) -> Result<IssuedApiToken, Failure> {
        let (id, rotation) = (ApiTokenId(call.path.id), call.body.0.unwrap_or_default());
        to_come(rotation.expires_at)?;
        let grace = rotation.grace_seconds.unwrap_or(GRACE_SECONDS);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let old = store::api_tokens::outdate(&mut tx, id, Duration::from_secs(grace.into())).await.or_fail()?;
        let old = old.ok_or_else(|| no_token(id))?;
        if !old.is_current {
            return Err(Failure::new(
                Code::Conflict,
                format!("token {id} has expired, was revoked or was rotated before"),
            )
            .with("remedy", "issue a new token"));
        }
        let principal = principal(&mut tx, old.principal_id).await?;
        let issued = issue(&mut tx, &principal, &old.name, rotation.expires_at.or(old.expires_at)).await?;
        let entry = Entry::new(AuditAct::TokenRotate).principal(PrincipalId(principal.id), &principal.name);
        let entry = entry.with("token_id", id.0).with("new_token_id", issued.token.id).with("grace_seconds", grace);
        caller.record(&mut tx, entry).await.or_fail()?;
        tx.commit().await.or_fail()?;
        self.rights_changed();
        Ok(issued)
    }
}

impl Handle<ops::revoke_api_token> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::revoke_api_token>) -> Result<ApiTokenResponse, Failure> {
        let id = ApiTokenId(call.path.id);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let (token, is_news) = store::api_tokens::revoke(&mut tx, id).await.or_fail()?.ok_or_else(|| no_token(id))?;
        if is_news {
            let principal = principal(&mut tx, PrincipalId(token.principal_id)).await?;
            let entry = Entry::new(AuditAct::TokenRevoke).principal(PrincipalId(principal.id), &principal.name);
            caller.record(&mut tx, entry.with("token_id", id.0)).await.or_fail()?;
        }
        tx.commit().await.or_fail()?;
        self.rights_changed();
        Ok(token)
    }
}
