//! Webhooks and their deliveries. A principal has its own; the owner sees all.
use super::documents::{id_cursor, page_by_id};
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        audit::Entry,
        webhooks::{MOST, NewRow, Of},
    },
    webhooks::{self, NewKey},
};
use std::time::Duration;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AuditAct, DeliveryPage, DeliveryResponse, IssuedWebhook, WebhookPage, WebhookResponse},
};
use svc_ids::{DeliveryId, DocumentId, WebhookId};

/// How long the key from before a rotation signs too.
const GRACE: Duration = Duration::from_secs(24 * 3600);

fn no_webhook(id: WebhookId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no webhook {id}"))
}

/// The webhooks that a caller sees.
fn of(caller: &Caller) -> Of {
    caller.principal().map_or(Of::Everyone, |principal| Of::Principal(principal.id))
}

async fn read(service: &Service, caller: &Caller, id: WebhookId) -> Result<WebhookResponse, Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    store::webhooks::read(&mut conn, of(caller), id).await.or_fail()?.ok_or_else(|| no_webhook(id))
}

impl Handle<ops::create_webhook> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_webhook>) -> Result<IssuedWebhook, Failure> {
        let new = call.body.0;
        webhooks::check(&self.settings, &new.url)?;
        let (key, kinds) = (NewKey::draw(), new.kinds()?);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        if let Some(root) = new.root
            && !store::documents::is_readable(&mut tx, &caller.readable(), DocumentId(root)).await.or_fail()?
        {
            return Err(Failure::no_document(root));
        }
        let row = NewRow {
            principal_id: caller.principal().map(|principal| principal.id),
            url: new.url.trim(),
            kinds: &kinds,
            root_id: new.root,
            secret: &key.bytes,
        };
        let webhook = store::webhooks::insert(&mut tx, &row).await.or_fail()?.ok_or_else(|| {
            Failure::new(Code::Conflict, format!("a caller has at most {MOST} webhooks"))
                .with("remedy", "delete one first")
        })?;
        let entry = Entry::new(AuditAct::WebhookCreate).with("webhook_id", webhook.id).with("url", new.url.trim());
        caller.record(&mut tx, entry).await.or_fail()?;
        tx.commit().await.or_fail()?;
        Ok(IssuedWebhook { webhook, secret: key.text() })
    }
}

impl Handle<ops::list_webhooks> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_webhooks>) -> Result<WebhookPage, Failure> {
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = store::webhooks::list(&mut conn, of(caller), WebhookId(after), limit + 1).await.or_fail()?;
        let (webhooks, next_cursor) = page_by_id(rows, limit, |webhook| webhook.id);
        Ok(WebhookPage { webhooks, next_cursor })
    }
}

impl Handle<ops::read_webhook> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_webhook>) -> Result<WebhookResponse, Failure> {
        read(self, caller, WebhookId(call.path.id)).await
    }
}

impl Handle<ops::delete_webhook> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_webhook>) -> Result<(), Failure> {
        let id = WebhookId(call.path.id);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        if !store::webhooks::delete(&mut tx, of(caller), id).await.or_fail()? {
            return Err(no_webhook(id));
        }
        caller.record(&mut tx, Entry::new(AuditAct::WebhookDelete).with("webhook_id", id.0)).await.or_fail()?;
        tx.commit().await.or_fail()
    }
}

impl Handle<ops::rotate_webhook> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::rotate_webhook>) -> Result<IssuedWebhook, Failure> {
        let (id, key) = (WebhookId(call.path.id), NewKey::draw());
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let webhook = store::webhooks::rotate(&mut tx, of(caller), id, &key.bytes, GRACE).await.or_fail()?;
        let webhook = webhook.ok_or_else(|| no_webhook(id))?;
        caller.record(&mut tx, Entry::new(AuditAct::WebhookRotate).with("webhook_id", id.0)).await.or_fail()?;
        tx.commit().await.or_fail()?;
        Ok(IssuedWebhook { webhook, secret: key.text() })
    }
}

impl Handle<ops::test_webhook> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::test_webhook>) -> Result<DeliveryResponse, Failure> {
        let webhook = read(self, caller, WebhookId(call.path.id)).await?;
        if webhook.off_since.is_some() {
            return Err(switched_off(webhook.id));
        }
        let mut conn = self.pool.acquire().await.or_fail()?;
        store::deliveries::insert_test(&mut conn, WebhookId(webhook.id)).await.or_fail()
    }
}

fn switched_off(id: i64) -> Failure {
    Failure::new(Code::Conflict, format!("webhook {id} is switched off"))
        .with("remedy", "create another one in its place")
}

impl Handle<ops::list_deliveries> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::list_deliveries>) -> Result<DeliveryPage, Failure> {
        let limit = call.query.rows();
        let before = match call.query.cursor.as_deref() {
            Some(cursor) => id_cursor(Some(cursor))?,
            None => i64::MAX,
        };
        let webhook = read(self, caller, WebhookId(call.path.id)).await?;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = store::deliveries::list(&mut conn, WebhookId(webhook.id), before, limit + 1).await.or_fail()?;
        let (deliveries, next_cursor) = page_by_id(rows, limit, |delivery| delivery.id);
        Ok(DeliveryPage { deliveries, next_cursor })
    }
}

impl Handle<ops::retry_delivery> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::retry_delivery>) -> Result<DeliveryResponse, Failure> {
        let id = DeliveryId(call.path.id);
        let mut conn = self.pool.acquire().await.or_fail()?;
        store::deliveries::retry(&mut conn, of(caller), id)
            .await
            .or_fail()?
            .ok_or_else(|| Failure::new(Code::NotFound, format!("there is no delivery {id} of a webhook that is on")))
    }
}
