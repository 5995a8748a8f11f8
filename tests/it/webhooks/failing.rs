//! Receivers that fail: when they are called again, and when no more.
use super::World;
use crate::support::until;
use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use svc_client::{
    Code,
    wire::{DeliveryPath, DeliveryState, WebhookPath},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_gone_or_fails_for_a_week_is_called_no_more() {
    let world = World::start().await;
    let gone = world.hook(&world.app.client, "document.created").await.webhook;
    world.receiver.answers([(410, None)]);
    world.create(None).await;
    let dead = world.until_state(gone.id, DeliveryState::Dead).await;
    let off = async |id| world.app.client.read_webhook(WebhookPath { id }).await.unwrap().off_since;
    until("the end", async || off(gone.id).await).await;
    let refused = world.app.client.test_webhook(WebhookPath { id: gone.id }).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
    assert_eq!(world.app.client.retry_delivery(DeliveryPath { id: dead.id }).await.unwrap_err().code, Code::NotFound);

    let failing = world.hook(&world.app.client, "document.created").await.webhook;
    world.receiver.answers([(500, None), (500, None)]);
    world.create(None).await;
    world.receiver.until_seen(2).await;
    until("the first failure", async || {
        world.app.client.read_webhook(WebhookPath { id: failing.id }).await.unwrap().failing_since
    })
    .await;
    assert_eq!(off(failing.id).await, None);
    sqlx::query("UPDATE webhooks SET failing_since = now() - interval '8 days'")
        .execute(&world.app.pool)
        .await
        .unwrap();
    sqlx::query("UPDATE webhook_delivery SET tries = 9 WHERE state = 'pending'")
        .execute(&world.app.pool)
        .await
        .unwrap();
    world.hurry().await;
    until("the end", async || off(failing.id).await).await;
    let told: Vec<(Value, bool)> =
        sqlx::query_as("SELECT data, owner_only FROM event_outbox WHERE kind = 'webhook.off' ORDER BY id")
            .fetch_all(&world.app.pool)
            .await
            .unwrap();
    let expected = [
        (json!({"webhook_id": gone.id, "reason": "gone"}), true),
        (json!({"webhook_id": failing.id, "reason": "failing"}), true),
    ];
    assert_eq!(told, expected);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failed_try_switches_no_webhook_off_however_long_ago_the_one_before_failed() {
    let world = World::start().await;
    let webhook = world.hook(&world.app.client, "document.created").await.webhook;
    // The last delivery was given up, and nothing has happened since.
    sqlx::query("UPDATE webhooks SET failing_since = now() - interval '8 days'")
        .execute(&world.app.pool)
        .await
        .unwrap();
    world.receiver.answers([(500, None)]);
    world.create(None).await;
    world.hurry().await;
    let ended = until("the end of the delivery", async || {
        world
            .deliveries(webhook.id)
            .await
            .into_iter()
            .next()
            .filter(|delivery| delivery.state != DeliveryState::Pending)
    })
    .await;
    assert_eq!((ended.state, ended.tries), (DeliveryState::Delivered, 2));
    let shown = world.app.client.read_webhook(WebhookPath { id: webhook.id }).await.unwrap();
    assert_eq!((shown.off_since, shown.failing_since), (None, None));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_fails_for_a_week_is_called_no_more_also_if_no_event_is_kept_until_its_last_try() {
    let world = World::start().await;
    let webhook = world.hook(&world.app.client, "document.created").await.webhook;
    world.receiver.answers([(500, None)]);
    world.create(None).await;
    let read = async || world.app.client.read_webhook(WebhookPath { id: webhook.id }).await.unwrap();
    until("the first failure", async || read().await.failing_since).await;
    sqlx::query("UPDATE webhooks SET failing_since = now() - interval '8 days'")
        .execute(&world.app.pool)
        .await
        .unwrap();
    sqlx::query("DELETE FROM event_outbox").execute(&world.app.pool).await.unwrap();
    world.hurry().await;
    let dead = world.until_state(webhook.id, DeliveryState::Dead).await;
    assert!(dead.error.as_deref().is_some_and(|error| error.contains("no longer kept")), "{dead:?}");
    until("the end", async || read().await.off_since).await;
    let told: Value = sqlx::query_scalar("SELECT data FROM event_outbox WHERE kind = 'webhook.off'")
        .fetch_one(&world.app.pool)
        .await
        .unwrap();
    assert_eq!(told, json!({"webhook_id": webhook.id, "reason": "failing"}));
    assert_eq!(world.receiver.seen().len(), 1, "it was not sent again");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_no_longer_kept_is_no_failure_of_its_receiver() {
    let world = World::start().await;
    let webhook = world.hook(&world.app.client, "document.created").await.webhook;
    world.create(None).await;
    let delivered = world.until_state(webhook.id, DeliveryState::Delivered).await;
    sqlx::query("DELETE FROM event_outbox").execute(&world.app.pool).await.unwrap();
    world.app.client.retry_delivery(DeliveryPath { id: delivered.id }).await.unwrap();
    let dead = world.until_state(webhook.id, DeliveryState::Dead).await;
    assert!(dead.error.as_deref().is_some_and(|error| error.contains("no longer kept")), "{dead:?}");
    let shown = world.app.client.read_webhook(WebhookPath { id: webhook.id }).await.unwrap();
    assert_eq!(shown.failing_since, None);
    assert_eq!(world.receiver.seen().len(), 1, "it was not sent again");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_may_say_by_a_date_when_it_is_called_again() {
    let world = World::start().await;
    world.hook(&world.app.client, "document.created").await;
    let date = (Utc::now() + TimeDelta::hours(1)).format("%a, %d %b %Y %H:%M:%S GMT").to_string();
    world.receiver.answers([(503, Some(("retry-after", date)))]);
    world.create(None).await;
    let asked = "SELECT due_at > now() + interval '50 minutes' FROM webhook_delivery WHERE status = 503";
    let is_later: bool =
        until("the answer", async || sqlx::query_scalar(asked).fetch_optional(&world.app.pool).await.unwrap()).await;
    assert!(is_later, "it is called again after 5 s");
    world.end().await;
}

/// Who has mended a receiver need not wait for the end of a try that hangs there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_a_try_while_the_last_one_is_under_way_gets_another_one() {
    let world = World::start().await;
    let webhook = world.hook(&world.app.client, "document.created").await.webhook;
    world.receiver.answers([(500, None), (500, None)]);
    world.create(None).await;
    until("the end of the first try", async || {
        let last = "UPDATE webhook_delivery SET tries = 9 WHERE tries = 1 AND claim IS NULL";
        (sqlx::query(last).execute(&world.app.pool).await.unwrap().rows_affected() == 1).then_some(())
    })
    .await;
    world.receiver.gate.forget_permits(1000);
    world.hurry().await;
    world.receiver.until_seen(2).await;
    let id = world.deliveries(webhook.id).await[0].id;
    world.app.client.retry_delivery(DeliveryPath { id }).await.unwrap();
    world.receiver.gate.add_permits(1000);
    assert_eq!(world.until_state(webhook.id, DeliveryState::Delivered).await.tries, 1);
    world.end().await;
}
