//! Webhooks, with a receiver that is a real server on this machine.
mod failing;

use crate::{
    principals::{grant, someone},
    support::{PATIENCE, TestApp, Wish, document, until},
};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};
use svc::{
    events::sequencer,
    store::{
        self,
        deliveries::{self, Ended},
        event_feed,
    },
    webhooks,
};
use svc_client::{
    Client, Code, Failure, Json, Remote,
    wire::{
        DeliveryPath, DeliveryResponse, DeliveryState, DocumentPath, GrantPath, GrantRight, IssuedWebhook, NewDocument,
        NewWebhook, PageQuery, WaitQuery, WebhookPath,
    },
};
use tokio::{sync::Semaphore, task::JoinHandle};

/// A call as the receiver saw it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    id: String,
    timestamp: String,
    signature: String,
    body: String,
}

impl Seen {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether each signature is that of one of the keys, in their order.
    fn is_signed_by(&self, secrets: &[&str]) -> bool {
        let signed = secrets.iter().map(|secret| {
            let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
            let message = format!("{}.{}.{}", self.id, self.timestamp, self.body);
            format!("v1,{}", STANDARD.encode(hmac(&key, message.as_bytes())))
        });
        self.signature == signed.collect::<Vec<_>>().join(" ")
    }
}

/// HMAC as RFC 2104 defines it.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

#[derive(Default)]
struct Told {
    seen: Vec<Seen>,
    /// The next answers; 204 when there are none.
    answers: VecDeque<(u16, Option<(&'static str, String)>)>,
    at_work: usize,
    most_at_work: usize,
}

/// A receiver, whose calls are answered once they find a place.
#[derive(Clone)]
pub(super) struct Receiver {
    told: Arc<Mutex<Told>>,
    gate: Arc<Semaphore>,
    pub(super) url: String,
}

impl Receiver {
    pub(super) async fn start() -> Receiver {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let receiver = Receiver { told: Arc::default(), gate: Arc::new(Semaphore::new(1000)), url };
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        receiver
    }

    fn answers(&self, answers: impl IntoIterator<Item = (u16, Option<(&'static str, String)>)>) {
        self.told.lock().unwrap().answers.extend(answers);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.told.lock().unwrap().seen.clone()
    }

    async fn until_seen(&self, count: usize) -> Vec<Seen> {
        until("the calls", async || Some(self.seen()).filter(|seen| seen.len() >= count)).await
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/json");
    let seen = Seen {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let answer = {
        let mut told = receiver.told.lock().unwrap();
        told.seen.push(seen);
        told.at_work += 1;
        told.most_at_work = told.most_at_work.max(told.at_work);
        told.answers.pop_front()
    };
    let _place = receiver.gate.acquire().await.unwrap();
    receiver.told.lock().unwrap().at_work -= 1;
    let (status, header) = answer.unwrap_or((204, None));
    let status = StatusCode::from_u16(status).unwrap();
    match header {
        Some((name, value)) => (status, [(name, value)]).into_response(),
        None => status.into_response(),
    }
}

/// A service without a worker that numbers events and calls receivers.
struct World {
    app: TestApp,
    tasks: Vec<JoinHandle<()>>,
    receiver: Receiver,
}

impl World {
    async fn start() -> World {
        let settings: &[(&str, &str)] = &[("SVC_WEBHOOK_PRIVATE", "true")];
        let app = TestApp::with(Wish { no_worker: true, settings, ..Wish::default() }).await;
        let tasks = vec![sequencer::start(app.pool.clone()), webhooks::start(app.pool.clone(), &app.service.settings)];
        World { app, tasks, receiver: Receiver::start().await }
    }

    async fn hook(&self, client: &Client<Remote>, kinds: &str) -> IssuedWebhook {
        hook(client, &self.receiver.url, kinds).await.unwrap()
    }

    async fn create(&self, parent_id: Option<i64>) -> i64 {
        let new = NewDocument { parent_id, ..document("A place", "A text about herons.") };
        self.app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id
    }

    async fn deliveries(&self, id: i64) -> Vec<DeliveryResponse> {
        self.app.client.list_deliveries(WebhookPath { id }, PageQuery::default()).await.unwrap().deliveries
    }

    async fn until_state(&self, id: i64, state: DeliveryState) -> DeliveryResponse {
        until("the delivery", async || {
            self.deliveries(id).await.into_iter().next().filter(|delivery| delivery.state == state)
        })
        .await
    }

    /// Lets what waits for its next try be due, once the tries under way are recorded.
    async fn hurry(&self) {
        until("a wait", async || {
            let hurried = sqlx::query(
                "UPDATE webhook_delivery SET due_at = now() WHERE state = 'pending' AND claim IS NULL AND tries > 0 AND due_at > now()",
            );
            (hurried.execute(&self.app.pool).await.unwrap().rows_affected() > 0).then_some(())
        })
        .await;
    }

    async fn end(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.app.end().await;
    }
}

async fn hook(client: &Client<Remote>, url: &str, kinds: &str) -> Result<IssuedWebhook, Failure> {
    let new = NewWebhook { url: url.to_owned(), kinds: Some(kinds.to_owned()), root: None };
    client.create_webhook(Json(new)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_is_signed_and_tried_again_with_the_same_id_until_it_arrives() {
    let world = World::start().await;
    let issued = world.hook(&world.app.client, "document.created").await;
    assert!(!format!("{issued:?}").contains(&issued.secret[6..]));
    world.receiver.answers([
        (500, None),
        (302, Some(("location", world.receiver.url.clone()))),
        (503, Some(("retry-after", "3600".to_owned()))),
    ]);
    let id = world.create(None).await;
    world.receiver.until_seen(1).await;
    world.hurry().await;
    world.receiver.until_seen(2).await;
    world.hurry().await;
    world.receiver.until_seen(3).await;
    let asked = "SELECT due_at > now() + interval '50 minutes' FROM webhook_delivery WHERE status = 503";
    until("what the receiver asked for", async || {
        sqlx::query_scalar::<_, bool>(asked).fetch_optional(&world.app.pool).await.unwrap().filter(|later| *later)
    })
    .await;
    world.hurry().await;
    let seen = world.receiver.until_seen(4).await;
    let delivered = world.until_state(issued.webhook.id, DeliveryState::Delivered).await;
    assert_eq!((delivered.tries, delivered.status, &delivered.error), (4, Some(204), &None));
    assert_eq!(seen.iter().map(|seen| &seen.id).collect::<BTreeSet<_>>(), BTreeSet::from([&delivered.message_id]));
    assert!(seen.iter().all(|seen| seen.is_signed_by(&[&issued.secret])), "{seen:?}");
    let body = seen[0].json();
    assert_eq!((&body["type"], &body["data"]["document_id"]), (&json!("document.created"), &json!(id)));
    assert_eq!(seen.len(), 4, "no redirect is followed");

    let rotated = world.app.client.rotate_webhook(WebhookPath { id: issued.webhook.id }).await.unwrap();
    assert!(rotated.webhook.old_secret_until.is_some() && rotated.secret != issued.secret);
    let test = world.app.client.test_webhook(WebhookPath { id: issued.webhook.id }).await.unwrap();
    let seen = world.receiver.until_seen(5).await;
    assert_eq!((&seen[4].id, &seen[4].json()["type"]), (&test.message_id, &json!("webhook.test")));
    assert!(seen[4].is_signed_by(&[&rotated.secret, &issued.secret]), "{seen:?}");
    let shown = world.app.raw("GET", &format!("/webhooks/{}", issued.webhook.id)).send().await.unwrap().text().await;
    assert!(!shown.unwrap().contains("secret\""), "a secret is never shown again");
    world.app.client.delete_webhook(WebhookPath { id: issued.webhook.id }).await.unwrap();
    world.end().await;
}

/// A receiver's status counts, and nobody reads what else it says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_receiver_says_beside_its_status_does_not_matter() {
    let world = World::start().await;
    let webhook = world.hook(&world.app.client, "document.created").await.webhook;
    world.receiver.answers([
        (302, Some(("location", "https://[".to_owned()))),
        (200, Some(("content-encoding", "br".to_owned()))),
    ]);
    world.create(None).await;
    let status = "SELECT status FROM webhook_delivery WHERE status IS NOT NULL";
    let first: i32 =
        until("the first answer", async || sqlx::query_scalar(status).fetch_optional(&world.app.pool).await.unwrap())
            .await;
    assert_eq!(first, 302);
    world.hurry().await;
    let delivered = world.until_state(webhook.id, DeliveryState::Delivered).await;
    assert_eq!((delivered.tries, delivered.status), (2, Some(200)));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_arrives_is_dead_until_somebody_tries_it_again() {
    let world = World::start().await;
    let webhook = world.hook(&world.app.client, "document.created").await.webhook;
    world.receiver.answers((0..10).map(|_| (500, None)));
    world.create(None).await;
    for tries in 1..10 {
        world.receiver.until_seen(tries).await;
        world.hurry().await;
    }
    let dead = world.until_state(webhook.id, DeliveryState::Dead).await;
    assert_eq!((dead.tries, dead.status), (10, Some(500)));
    let hook = world.app.client.read_webhook(WebhookPath { id: webhook.id }).await.unwrap();
    assert!(hook.failing_since.is_some() && hook.off_since.is_none());
    world.app.client.retry_delivery(DeliveryPath { id: dead.id }).await.unwrap();
    let delivered = world.until_state(webhook.id, DeliveryState::Delivered).await;
    assert_eq!((delivered.id, delivered.tries), (dead.id, 1));
    let hook = world.app.client.read_webhook(WebhookPath { id: webhook.id }).await.unwrap();
    assert_eq!(hook.failing_since, None);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_receiver_has_four_calls_at_a_time_from_all_processes() {
    let mut world = World::start().await;
    let other = webhooks::start(world.app.pool.clone(), &world.app.service.settings);
    world.tasks.push(other);
    world.receiver.gate.forget_permits(1000);
    let webhook = world.hook(&world.app.client, "document.created").await.webhook;
    for _ in 0..10 {
        world.create(None).await;
    }
    until("the queue", async || Some(world.deliveries(webhook.id).await).filter(|all| all.len() == 10)).await;
    world.receiver.until_seen(4).await;
    world.receiver.gate.add_permits(1000);
    until("the end", async || {
        let all = world.deliveries(webhook.id).await;
        all.iter().all(|delivery| delivery.state == DeliveryState::Delivered).then_some(())
    })
    .await;
    let ids: BTreeSet<String> = world.receiver.seen().into_iter().map(|seen| seen.id).collect();
    assert_eq!((ids.len(), world.receiver.seen().len()), (10, 10), "each once");
    assert!(world.receiver.told.lock().unwrap().most_at_work <= 4);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_before_it_records_an_answer_leaves_it_to_be_sent_again() {
    let mut world = World::start().await;
    world.receiver.gate.forget_permits(1000);
    let webhook = world.hook(&world.app.client, "document.created").await.webhook;
    world.create(None).await;
    world.receiver.until_seen(1).await;
    let dead = world.tasks.pop().unwrap();
    dead.abort();
    assert!(dead.await.unwrap_err().is_cancelled());
    world.receiver.gate.add_permits(1000);
    world.tasks.push(webhooks::start(world.app.pool.clone(), &world.app.service.settings));
    assert_eq!(world.deliveries(webhook.id).await[0].state, DeliveryState::Pending);
    sqlx::query("UPDATE webhook_delivery SET claimed_until = now()").execute(&world.app.pool).await.unwrap();
    let seen = world.receiver.until_seen(2).await;
    assert_eq!((&seen[0].id, &seen[0].body), (&seen[1].id, &seen[1].body));
    assert_eq!(world.until_state(webhook.id, DeliveryState::Delivered).await.tries, 2);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_principal_has_its_own_webhooks_and_is_sent_what_it_may_read_then() {
    let world = World::start().await;
    let (reader, other) = (someone(&world.app, "reader").await, someone(&world.app, "other").await);
    let closed = world.create(None).await;
    grant(&world.app, &reader, closed, GrantRight::Read).await;
    let hidden = world.create(None).await;
    world.app.client.protect_document(DocumentPath { id: hidden }).await.unwrap();
    // A webhook begins with the next number, so what happened before has its numbers first.
    let is_numbered = "SELECT NOT EXISTS (SELECT FROM event_outbox WHERE seq IS NULL)";
    until("the numbers", async || {
        sqlx::query_scalar::<_, bool>(is_numbered).fetch_one(&world.app.pool).await.unwrap().then_some(())
    })
    .await;
    let issued = world.hook(&reader.client, "document.created,webhook.off").await;
    let path = WebhookPath { id: issued.webhook.id };
    assert_eq!(other.client.read_webhook(path).await.unwrap_err().code, Code::NotFound);
    assert_eq!(other.client.rotate_webhook(path).await.unwrap_err().code, Code::NotFound);
    assert_eq!(other.client.delete_webhook(path).await.unwrap_err().code, Code::NotFound);
    assert_eq!(other.client.list_deliveries(path, PageQuery::default()).await.unwrap_err().code, Code::NotFound);
    assert!(other.client.list_webhooks(PageQuery::default()).await.unwrap().webhooks.is_empty());
    assert_eq!(
        world.app.client.list_webhooks(PageQuery::default()).await.unwrap().webhooks,
        std::slice::from_ref(&issued.webhook)
    );

    world.create(Some(hidden)).await;
    let shown = world.create(Some(closed)).await;
    let seen = world.receiver.until_seen(1).await;
    assert_eq!(seen[0].json()["data"]["document_id"], json!(shown));

    // It was queued while it could be read, and is due when it cannot be read any more.
    world.receiver.answers([(500, None)]);
    world.create(Some(closed)).await;
    world.receiver.until_seen(2).await;
    let rights = GrantPath { id: closed, principal_id: reader.id };
    world.app.client.delete_grant(rights).await.unwrap();
    world.hurry().await;
    let withheld = world.until_state(path.id, DeliveryState::Withheld).await;
    assert_eq!(other.client.retry_delivery(DeliveryPath { id: withheld.id }).await.unwrap_err().code, Code::NotFound);
    assert_eq!(world.receiver.seen().len(), 2);
    world.end().await;
}

#[tokio::test]
async fn addresses_inside_are_called_only_if_the_setting_says_so() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for url in [
        "http://example.org/hook",
        "ftp://example.org/",
        "no address",
        "https://name:word@example.org/",
        "https://127.0.0.1:9/hook",
        "https://[::1]/hook",
        "https://0x7f000001/",
        "https://10.0.0.1/",
        "https://example.org/\r\nhook",
    ] {
        let refused = hook(&app.client, url, "ingest.*").await.unwrap_err();
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!("url")), "{url}");
    }
    let refused = hook(&app.client, "https://example.org/", "ingest").await.unwrap_err();
    assert_eq!(refused.members["field"], "kinds");
    let inside = hook(&app.client, "https://localhost:9/hook", "ingest.*").await.unwrap().webhook;
    let tasks = webhooks::start(app.pool.clone(), &app.service.settings);
    let path = WebhookPath { id: inside.id };
    let refused = async || {
        app.client.test_webhook(path).await.unwrap();
        let failed = until("the try", async || {
            let all = app.client.list_deliveries(path, PageQuery::default()).await.unwrap().deliveries;
            all.into_iter().next().filter(|delivery| delivery.error.is_some())
        });
        failed.await.error.unwrap()
    };
    assert!(refused().await.contains("SVC_WEBHOOK_PRIVATE"));
    // As if it had been created while the setting was on.
    sqlx::query("UPDATE webhooks SET url = 'http://example.org/hook'").execute(&app.pool).await.unwrap();
    let reason = refused().await;
    assert!(reason.contains("https") && reason.contains("SVC_WEBHOOK_PRIVATE"), "{reason}");
    tasks.abort();
    app.end().await;
}

#[tokio::test]
async fn deliveries_that_are_over_go_with_the_events() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let webhook = hook(&app.client, "https://example.org/", "ingest.*").await.unwrap().webhook;
    let off = hook(&app.client, "https://example.org/", "ingest.*").await.unwrap().webhook;
    sqlx::query(
        "INSERT INTO webhook_delivery (webhook_id, state, created_at)
         SELECT w.id, state, now() - interval '1 hour'
           FROM webhooks w, unnest(ARRAY['pending', 'delivered', 'dead', 'withheld']) AS s(state)",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("UPDATE webhooks SET off_since = now() - interval '1 hour' WHERE id = $1")
        .bind(off.id)
        .execute(&app.pool)
        .await
        .unwrap();
    let shown = app.client.list_deliveries(WebhookPath { id: off.id }, PageQuery::default()).await.unwrap().deliveries;
    let dead = shown.iter().filter(|delivery| delivery.state == DeliveryState::Dead).count();
    assert_eq!((shown.len(), dead), (4, 2), "nothing is sent to it any more: {shown:?}");
    let mut conn = app.pool.acquire().await.unwrap();
    assert!(!deliveries::sweep(&mut conn, Duration::from_secs(60)).await.unwrap());
    let left: Vec<(i64, String)> =
        sqlx::query_as("SELECT webhook_id, state FROM webhook_delivery").fetch_all(&mut *conn).await.unwrap();
    assert_eq!(left, [(webhook.id, "pending".to_owned())]);
    assert_eq!(event_feed::newest(&app.pool).await.unwrap(), 0, "nobody numbers here");
    drop(conn);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_creations_at_once_do_not_pass_the_limit_of_a_creator() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let bob = someone(&app, "bob").await;
    for (creator, client) in [(Some(bob.id), &bob.client), (None, &app.client)] {
        sqlx::query(
            "INSERT INTO webhooks (principal_id, url, kinds, secret, after_seq)
             SELECT $1, 'https://example.org/', ARRAY['document.created'], decode(repeat('00', 32), 'hex'), 0 FROM generate_series(1, $2)",
        )
        .bind(creator)
        .bind(i32::try_from(store::webhooks::MOST).unwrap() - 2)
        .execute(&app.pool)
        .await
        .unwrap();
        let made = join_all((0..14).map(|_| hook(client, "https://example.org/", "ingest.*"))).await;
        let refused: Vec<Failure> = made.into_iter().filter_map(Result::err).collect();
        assert!(refused.iter().all(|failure| failure.code == Code::Conflict), "{refused:?}");
        assert_eq!(refused.len(), 12, "{creator:?}");
    }
    app.end().await;
}

#[tokio::test]
async fn slow_receivers_of_many_webhooks_keep_none_from_its_turn() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    sqlx::raw_sql(
        "INSERT INTO webhooks (url, kinds, secret, after_seq)
         SELECT 'http://127.0.0.1:1/', '{}', decode(repeat('00', 32), 'hex'), 0 FROM generate_series(1, 18);
         INSERT INTO webhook_delivery (webhook_id, seq) SELECT w.id, n FROM webhooks w, generate_series(1, 9) n",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let mut served = BTreeSet::new();
    // None of the calls ends.
    for _ in 0..2 {
        let mut tx = app.pool.begin().await.unwrap();
        let claimed = deliveries::claim(&mut tx, Duration::from_secs(60)).await.unwrap();
        served.extend(claimed.iter().map(|delivery| delivery.webhook_id));
        tx.commit().await.unwrap();
    }
    assert_eq!(served.len(), 18);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_delivery_begins_the_next_one() {
    const EVENTS: usize = 61;
    let settings: &[(&str, &str)] = &[("SVC_WEBHOOK_PRIVATE", "true")];
    let app = TestApp::with(Wish { no_worker: true, settings, ..Wish::default() }).await;
    let receiver = Receiver::start().await;
    hook(&app.client, &receiver.url, "document.created").await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO event_outbox (seq, kind, owner_only) SELECT n, 'document.created', false FROM generate_series(1, 61) n;
         UPDATE event_counter SET last = 61",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    // Nothing is left to the pause between two looks.
    let sender = webhooks::start_with(app.pool.clone(), &app.service.settings, 2 * PATIENCE);
    let seen = receiver.until_seen(EVENTS).await;
    let ids: BTreeSet<&String> = seen.iter().map(|seen| &seen.id).collect();
    assert_eq!((ids.len(), seen.len()), (EVENTS, EVENTS), "each once");
    assert!(receiver.told.lock().unwrap().most_at_work <= 4);
    sender.abort();
    app.end().await;
}

#[tokio::test]
async fn a_claim_reads_a_few_deliveries_however_many_wait() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    // Those of the second webhook wait for their next try.
    sqlx::raw_sql(
        "INSERT INTO webhooks (url, kinds, secret, after_seq)
         SELECT 'http://127.0.0.1:1/', '{}', decode(repeat('00', 32), 'hex'), 0 FROM generate_series(1, 2);
         INSERT INTO webhook_delivery (webhook_id, seq, due_at)
         SELECT w.id, n, CASE WHEN w.id = (SELECT min(id) FROM webhooks) THEN now() ELSE now() + interval '1 day' END
           FROM webhooks w, generate_series(1, 50000) n;
         ANALYZE webhook_delivery",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let claim = async || {
        let mut tx = app.pool.begin().await.unwrap();
        let claimed = deliveries::claim(&mut tx, Duration::from_secs(60)).await.unwrap();
        let read: i64 = sqlx::query_scalar(
            "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'webhook_delivery'",
        )
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        assert!(read < 1000, "a claim of {} reads {read} rows", claimed.len());
        claimed
    };
    for _ in 0..8 {
        let claimed = claim().await;
        assert_eq!(claimed.len(), 4);
        assert!(claim().await.is_empty(), "four are under way");
        let mut conn = app.pool.acquire().await.unwrap();
        for delivery in &claimed {
            deliveries::record(&mut conn, delivery, &Ended::Delivered { status: 204 }).await.unwrap();
        }
    }
    app.end().await;
}
