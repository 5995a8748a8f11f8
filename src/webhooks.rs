//! Calls the addresses of webhooks by the rules of Standard Webhooks: any process of the fleet sends any delivery,
//! until the receiver has it or its tries are used up. If a process dies after the answer and before it records it, the
//! delivery is sent once more, with the same id.
mod schedule;
mod signature;

use crate::{
    fetch::{FetchError, Fetcher, Limits, Request, is_inside, parse, retry_after},
    settings::Settings,
    store::{
        advisory::{SILENCE, within},
        deliveries::{self, Claimed, Ended, message_id},
        event_feed::{self, PAGE, Page, Wanted},
        transaction, webhooks,
        word::Word,
    },
};
use chrono::Utc;
use http::{HeaderName, HeaderValue, header};
use serde_json::{Value, json};
pub use signature::NewKey;
use sqlx::PgPool;
use std::time::Duration;
use svc_client::{
    Failure,
    wire::{EventKind, EventResponse},
};
use svc_ids::WebhookId;
use tokio::task::{JoinHandle, JoinSet};

/// The time between two looks while there is nothing to do.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a receiver may take.
const TRY: Duration = Duration::from_secs(20);
/// How long a claim lasts: a try, and what is read before it and recorded after it.
const CLAIM: Duration = Duration::from_secs(60);
/// A process that sends this many deliveries claims no further ones.
const AT_ONCE: usize = 64;
/// A webhook that has failed for so long is switched off with the next delivery that is given up.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most bytes of a body. A larger event is sent without its data.
const BODY_BYTES: usize = 20 << 10;
/// The most bytes of an answer, which nobody reads.
const ANSWER_BYTES: u64 = 64 << 10;

/// Refuses an address that the service would never call.
pub fn check(settings: &Settings, url: &str) -> Result<(), Failure> {
    let url = parse(url).map_err(|error| Failure::field("url", error))?;
    if url.scheme() != "https" && !settings.webhook_private {
        return Err(Failure::field(
            "url",
            "takes an https address: others are called only if SVC_WEBHOOK_PRIVATE is on",
        ));
    }
    if is_inside(&url) && !settings.webhook_private {
        return Err(Failure::field(
            "url",
            "takes a public address: others are called only if SVC_WEBHOOK_PRIVATE is on",
        ));
    }
    Ok(())
}

/// Serves the webhooks until it is aborted.
pub fn start(pool: PgPool, settings: &Settings) -> JoinHandle<()> {
    start_with(pool, settings, PAUSE)
}

/// Does the same with another time between two looks.
pub fn start_with(pool: PgPool, settings: &Settings, pause: Duration) -> JoinHandle<()> {
    let sender = Sender { fetcher: Fetcher::of_webhooks(settings), pool, is_private: settings.webhook_private };
    tokio::spawn(async move {
        let mut under_way = JoinSet::new();
        loop {
            let worked = match sender.work(&mut under_way).await {
                Ok(worked) => worked,
                Err(error) => {
                    tracing::debug!(%error, "webhooks wait while the database is away");
                    false
                }
            };
            if !worked {
                // A delivery that has ended makes room for the next one.
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    Some(_) = under_way.join_next() => {}
                }
            }
            while under_way.try_join_next().is_some() {}
        }
    })
}

#[derive(Clone)]
struct Sender {
    pool: PgPool,
    fetcher: Fetcher,
    /// Whether addresses may be called that are not public, and http.
    is_private: bool,
}

impl Sender {
    /// Looks at the next events of a webhook, and begins the deliveries that are due. Returns whether there was
    /// something to do.
    async fn work(&self, under_way: &mut JoinSet<()>) -> sqlx::Result<bool> {
        let looked = within(SILENCE, self.look()).await?;
        let room = under_way.len() < AT_ONCE;
        let claimed = if room { within(SILENCE, self.claim()).await? } else { Vec::new() };
        let worked = looked || !claimed.is_empty();
        for delivery in claimed {
            let sender = self.clone();
            under_way.spawn(async move {
                // After that time it is sent once more in any case.
                if let Err(error) = within(CLAIM, sender.deliver(&delivery)).await {
                    tracing::warn!(%error, webhook = delivery.webhook_id.0, "a delivery will be sent again, because its end could not be recorded");
                }
            });
        }
        Ok(worked)
    }

    /// Queues the deliveries of one webhook that has not looked at the newest events. Returns whether there was such a
    /// webhook.
    async fn look(&self) -> sqlx::Result<bool> {
        let mut tx = transaction::begin(&self.pool).await?;
        let Some(webhook) = webhooks::behind(&mut tx).await? else {
            tx.rollback().await?;
            return Ok(false);
        };
        let kinds = match webhook.kinds.as_slice() {
            [] => EventKind::usual(),
            kinds => kinds.iter().map(|Word(kind)| *kind).collect(),
        };
        let wanted = Wanted { kinds, root: webhook.root_id };
        let Page { events, looked_at, .. } =
            event_feed::page(&mut tx, &webhook.audience(), &wanted, webhook.after_seq, PAGE).await?;
        let seqs: Vec<i64> = events.iter().map(|event| event.seq).collect();
        // Events that were deleted because they were too old are passed over.
        let up_to = match looked_at {
            Some((_, last)) => last,
            None => event_feed::kept(&mut tx).await?.newest,
        };
        webhooks::enqueue(&mut tx, webhook.id, &seqs, up_to).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn claim(&self) -> sqlx::Result<Vec<Claimed>> {
        let mut tx = transaction::begin(&self.pool).await?;
        let claimed = deliveries::claim(&mut tx, CLAIM).await?;
        tx.commit().await?;
        Ok(claimed)
    }

    async fn deliver(&self, delivery: &Claimed) -> sqlx::Result<()> {
        let Some(ended) = self.send(delivery).await? else { return Ok(()) };
        let mut conn = self.pool.acquire().await?;
        deliveries::record(&mut conn, delivery, &ended).await?;
        match &ended {
            Ended::Failed { status, error, again } => {
                let (webhook, is_last) = (delivery.webhook_id.0, again.is_none());
                tracing::debug!(webhook, delivery = delivery.id.0, error, is_last, "a webhook was not delivered");
                // A failure of long ago says nothing of the tries that a delivery still has.
                if is_last {
                    deliveries::switch_off(&mut conn, delivery.webhook_id, *status == Some(GONE), PATIENCE).await?;
                }
            }
            // Where events are kept for a shorter time than the tries of a delivery take, none comes to its last try.
            Ended::Expired if delivery.tries > 1 => {
                deliveries::switch_off(&mut conn, delivery.webhook_id, false, PATIENCE).await?;
            }
            Ended::Delivered { .. } | Ended::Expired | Ended::Withheld => {}
        }
        Ok(())
    }

    /// Sends a delivery once; `None` if its webhook was deleted or switched off meanwhile.
    async fn send(&self, delivery: &Claimed) -> sqlx::Result<Option<Ended>> {
        let mut conn = self.pool.acquire().await?;
        let Some(target) = webhooks::target(&mut conn, delivery.webhook_id).await? else { return Ok(None) };
        let body = match delivery.seq {
            None => test_body(delivery.webhook_id),
            Some(seq) => {
                // The rights of the creator may have changed since the delivery was queued.
                let Some(webhook) = webhooks::served(&mut conn, delivery.webhook_id).await? else { return Ok(None) };
                let page = event_feed::page(&mut conn, &webhook.audience(), &Wanted::all(), seq - 1, 1).await?;
                match (page.looked_at, page.events.into_iter().next()) {
                    (Some((first, _)), Some(event)) if first == seq => body(event),
                    (Some((first, _)), None) if first == seq => return Ok(Some(Ended::Withheld)),
                    _ => return Ok(Some(Ended::Expired)),
                }
            }
        };
        drop(conn);
        Ok(Some(match self.post(&target, delivery, body.to_string()).await {
            Ok(answer) if (200..300).contains(&answer.status) => Ended::Delivered { status: answer.status },
            Ok(Answered { status, retry_after }) => {
                let error = format!("the receiver answered with {status}");
                let again = schedule::again(delivery.tries, retry_after).filter(|_| status != GONE);
                Ended::Failed { status: Some(status), error, again }
            }
            Err(error) => {
                let again = schedule::again(delivery.tries, None);
                Ended::Failed { status: None, error: reason(&error), again }
            }
        }))
    }

    async fn post(&self, target: &webhooks::Target, delivery: &Claimed, body: String) -> Result<Answered, FetchError> {
        let url = parse(&target.url)?;
        // It may have been created under another setting.
        if url.scheme() != "https" && !self.is_private {
            let reason = "it is not https, and others are called only if SVC_WEBHOOK_PRIVATE is on";
            return Err(FetchError::Address { reason });
        }
        let (id, timestamp) = (message_id(delivery.id.0, delivery.seq), Utc::now().timestamp());
        let signature = signature::sign(&target.keys, &id, timestamp, &body);
        let limits = Limits { redirects: 0, connect: TRY / 2, total: TRY, stall: TRY, bytes: ANSWER_BYTES };
        let mut request =
            Request::post(url, body, limits).with(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in
            [("webhook-id", id), ("webhook-timestamp", timestamp.to_string()), ("webhook-signature", signature)]
        {
            if let Ok(value) = HeaderValue::from_str(&value) {
                request = request.with(HeaderName::from_static(name), value);
            }
        }
        let answer = self.fetcher.send(request).await?;
        Ok(Answered { status: answer.status.as_u16(), retry_after: retry_after(&answer.headers) })
    }
}

/// The status of a receiver that wants nothing more.
const GONE: u16 = 410;

/// What a receiver answered.
struct Answered {
    status: u16,
    retry_after: Option<Duration>,
}

/// Why nothing was answered, in words that fit a webhook.
fn reason(error: &FetchError) -> String {
    match error {
        FetchError::Forbidden { host } => {
            format!("{host} has no public address, and others are called only if SVC_WEBHOOK_PRIVATE is on")
        }
        FetchError::Address { reason } => format!("the address cannot be called: {reason}"),
        FetchError::Timeout { host } | FetchError::Stalled { host } => format!("{host} did not answer in time"),
        error => error.to_string(),
    }
}

fn test_body(webhook: WebhookId) -> Value {
    json!({"type": "webhook.test", "timestamp": Utc::now(), "data": {"webhook_id": webhook.0}})
}

/// An event as it is sent, never larger than [`BODY_BYTES`].
fn body(event: EventResponse) -> Value {
    let EventResponse { seq, kind, at, document_id, root_id, data, position: _ } = event;
    let of = |data: Value| {
        json!({
            "type": kind, "timestamp": at,
            "data": {"seq": seq, "document_id": document_id, "root_id": root_id, "data": data},
        })
    };
    let whole = of(data);
    if whole.to_string().len() > BODY_BYTES { of(json!({"omitted": true})) } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_body_is_larger_than_the_limit() {
        let event = |size: usize| EventResponse {
            seq: i64::MAX,
            kind: EventKind::DocumentUpdated,
            at: Utc::now(),
            document_id: Some(7),
            root_id: Some(7),
            data: json!({"fields": ["x".repeat(size)]}),
            position: None,
        };
        assert_eq!(body(event(10))["data"]["data"]["fields"][0], "x".repeat(10));
        let cut = body(event(BODY_BYTES));
        assert!(cut.to_string().len() < 1000 && cut["data"]["data"]["omitted"] == true, "{cut}");
    }
}
