//! Grants, and the access roots that they stand on.
use super::{
    access::principal,
    documents::{id_cursor, page_by_id},
    lists::must_exist,
};
use crate::{
    access::Caller,
    error::{IntoFailure, OrFail},
    ingest::{raptor, segments::outdate_sums, titles},
    registry::Handle,
    service::Service,
    store::{self, audit::Entry, away::sql_state},
};
use sqlx::PgConnection;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AccessRootResponse, AuditAct, GrantPage, GrantPath, GrantResponse, GrantRight},
};
use svc_ids::{DocumentId, PrincipalId};

impl Handle<ops::put_grant> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::put_grant>) -> Result<GrantResponse, Failure> {
        let (path, right) = (call.path, call.body.0.right);
        let mut moving = None;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let mut granted = grant(&mut tx, caller, path, right).await?;
        if granted.is_none() {
            // The document is no access root yet. Making it one must be the first statement of a transaction.
            principal(&mut tx, PrincipalId(path.principal_id)).await?;
            tx.rollback().await.or_fail()?;
            moving = Some(self.admission.moving(caller.principal_id()).await?);
            tx = store::transaction::begin(&self.pool).await.or_fail()?;
            protect(self, &mut tx, caller, DocumentId(path.id)).await?;
            granted = grant(&mut tx, caller, path, right).await?;
        }
        let Some(granted) = granted else {
            principal(&mut tx, PrincipalId(path.principal_id)).await?;
            return Err(Failure::no_document(path.id));
        };
        tx.commit().await.or_fail()?;
        drop(moving);
        self.rights_changed();
        Ok(granted)
    }
}

/// Grants a right and records that; `None` if the document is no access root, or the principal does not exist.
async fn grant(
    conn: &mut PgConnection,
    caller: &Caller,
    path: GrantPath,
    right: GrantRight,
) -> Result<Option<GrantResponse>, Failure> {
    let (principal, root) = (PrincipalId(path.principal_id), DocumentId(path.id));
    let granted = store::access::grant(conn, principal, root, right).await.or_fail()?;
    if let Some(granted) = &granted {
        let entry = Entry::new(AuditAct::GrantPut).principal(PrincipalId(granted.principal_id), &granted.principal);
        caller.record(conn, entry.document(root).with("right", right.as_str())).await.or_fail()?;
    }
    Ok(granted)
}

/// Makes a document an access root, unless it is one, and records that; 404 if it does not exist. Call it as the
/// transaction's first statement.
async fn protect(service: &Service, conn: &mut PgConnection, caller: &Caller, id: DocumentId) -> Result<(), Failure> {
    let is_new = store::access::protect(conn, id).await.map_err(|error| match sql_state(&error).as_ref() {
        // The document was deleted meanwhile.
        "23503" => Failure::no_document(id.0),
        _ => error.into_failure(),
    })?;
    if is_new {
        // Summaries of documents above tell of it, and their readers may not read it any more.
        if let Some(place) = store::places::find(conn, &caller.writable(), id).await.or_fail()? {
            if store::raptor::is_within_tree(conn, &place).await.or_fail()? {
                let detail =
                    format!("document {id} belongs to a tree of summaries, whose readers are those of what it quotes");
                return Err(Failure::field("id", detail).with("remedy", "name the document that was summarised"));
            }
            raptor::forget_over(conn, std::slice::from_ref(&place)).await.or_fail()?;
            outdate_sums(&service.settings.task_badges, conn, &[id]).await.or_fail()?;
            titles::are_others(service, conn, &place).await?;
        }
        return caller.record(conn, Entry::new(AuditAct::DocumentProtect).document(id)).await.or_fail();
    }
    must_exist(conn, caller, id).await
}

impl Handle<ops::delete_grant> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_grant>) -> Result<(), Failure> {
        let GrantPath { id, principal_id } = call.path;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let principal = principal(&mut tx, PrincipalId(principal_id)).await?;
        if !store::access::ungrant(&mut tx, PrincipalId(principal_id), DocumentId(id)).await.or_fail()? {
            let detail = format!("principal {principal_id} has no grant on document {id}");
            return Err(Failure::new(Code::NotFound, detail));
        }
        let entry = Entry::new(AuditAct::GrantDelete)
            .principal(PrincipalId(principal_id), &principal.name)
            .document(DocumentId(id));
        caller.record(&mut tx, entry).await.or_fail()?;
        tx.commit().await.or_fail()?;
        self.rights_changed();
        Ok(())
    }
}

impl Handle<ops::list_document_grants> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_document_grants>) -> Result<GrantPage, Failure> {
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let id = DocumentId(call.path.id);
        must_exist(&mut conn, caller, id).await?;
        let rows = store::access::grants_on(&mut conn, id, PrincipalId(after), limit + 1).await.or_fail()?;
        let (grants, next_cursor) = page_by_id(rows, limit, |grant| grant.principal_id);
        Ok(GrantPage { grants, next_cursor })
    }
}

impl Handle<ops::list_principal_grants> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_principal_grants>) -> Result<GrantPage, Failure> {
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let id = PrincipalId(call.path.id);
        principal(&mut conn, id).await?;
        let rows = store::access::grants_of(&mut conn, id, DocumentId(after), limit + 1).await.or_fail()?;
        let (grants, next_cursor) = page_by_id(rows, limit, |grant| grant.document_id);
        Ok(GrantPage { grants, next_cursor })
    }
}

impl Handle<ops::protect_document> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::protect_document>) -> Result<AccessRootResponse, Failure> {
        let id = DocumentId(call.path.id);
        let _moving = self.admission.moving(caller.principal_id()).await?;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        protect(self, &mut tx, caller, id).await?;
        let root = store::access::root(&mut tx, id).await.or_fail()?.ok_or_else(|| Failure::no_document(id.0))?;
        tx.commit().await.or_fail()?;
        Ok(root)
    }
}

impl Handle<ops::unprotect_document> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::unprotect_document>) -> Result<(), Failure> {
        let id = DocumentId(call.path.id);
        let _moving = self.admission.moving(caller.principal_id()).await?;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        store::access::hold_alone(&mut tx).await.or_fail()?;
        caller.record_unprotected(&mut tx, &[id], false).await.or_fail()?;
        if !store::access::unprotect_held(&mut tx, id).await.or_fail()? {
            must_exist(&mut tx, caller, id).await?;
            return Err(Failure::new(Code::NotFound, format!("document {id} is no access root")));
        }
        outdate_sums(&self.settings.task_badges, &mut tx, &[id]).await.or_fail()?;
        if let Some(place) = store::places::find(&mut tx, &caller.writable(), id).await.or_fail()? {
            titles::are_more(self, &mut tx, &place).await?;
        }
        tx.commit().await.or_fail()
    }
}
