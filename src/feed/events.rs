//! Publishes what happens: one process of the fleet reads the events in their order, by the rights of a principal, and moves on when the
//! broker has them. If it dies in between, some are published again, none is left out, and the order stays.
use super::{
    broker::{Broker, BrokerError},
    turn::{Lost, PAUSE},
};
use crate::{
    access::Caller,
    service::Service,
    store::{
        advisory::{self, AdvisoryLock, SILENCE, within},
        deliveries::message_id,
        event_feed::{self, Audience, Page, Wanted},
    },
};
use lapin::BasicProperties;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{
    Failure,
    wire::{EventKind, EventResponse},
};
use tokio::time::timeout;

/// The name under which the position is kept.
const READER: &str = "amqp";
/// How many events are read at once, which is how many may be published again after a break.
const AT_ONCE: i64 = 100;
/// How long after it was read an event may be published; the rights of what is left are looked up again.
const FRESH: Duration = Duration::from_secs(1);
/// The name of the owner, which no principal has.
const OWNER: &str = "owner";
/// The type of a message.
const TYPE: &str = "svc.event.v1";

/// Publishes events until the broker cannot be used; does nothing if the settings name nobody by whose rights.
pub(super) async fn publish(service: &Arc<Service>, broker: &Broker) -> BrokerError {
    if service.settings.amqp_events_principal.is_empty() {
        return std::future::pending().await;
    }
    loop {
        match turn(service, broker).await {
            Ok(()) => {}
            Err(Lost::Broker(error)) => return error,
            Err(Lost::Database(error)) => tracing::debug!(%error, "events wait while the database is away"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Publishes for as long as this process is the one and has its connection.
async fn turn(service: &Service, broker: &Broker) -> Result<(), Lost> {
    let ours = within(SILENCE, advisory::alone(&service.task_pool, AdvisoryLock::EventsOut)).await?;
    let Some(mut conn) = ours else { return Ok(()) };
    let mut news = service.news.follow();
    let mut after = within(SILENCE, event_feed::position(&mut conn, READER)).await?;
    // The event that the broker did not take.
    let mut refused = None;
    loop {
        if *news.borrow_and_update() <= after {
            // The number is read again now and then, since an announcement may be lost.
            let _ = timeout(PAUSE, news.changed()).await;
        }
        let audience = match audience(service).await {
            Ok(audience) => audience,
            Err(error) => {
                tracing::debug!(%error, "events wait while nobody can say who may read them");
                return Ok(());
            }
        };
        let Some(audience) = audience else {
            let name = service.settings.amqp_events_principal.as_str();
            tracing::warn!(
                name,
                "no events are published: SVC_AMQP_EVENTS_PRINCIPAL names no principal that is enabled"
            );
            while matches!(self::audience(service).await, Ok(None)) {
                tokio::time::sleep(PAUSE).await;
            }
            continue;
        };
        let wanted = Wanted { kinds: EventKind::usual(), root: None };
        let page = event_feed::page(&mut conn, &audience, &wanted, after, AT_ONCE);
        let Page { events, looked_at, .. } = within(SILENCE, page).await?;
        let next = match looked_at {
            Some((first, _)) => first,
            // Numbers have no gaps, so what is not there was deleted because it was too old.
            None => within(SILENCE, event_feed::kept(&mut conn)).await?.oldest,
        };
        if next > after + 1 {
            let missed = next - after - 1;
            tracing::warn!(
                missed,
                "events were deleted, because they were older than SVC_EVENT_RETENTION_HOURS, before the broker had them"
            );
        }
        // Rights are of the moment at which an event is read, so that nothing may lie here for long before it goes.
        let read_at = Instant::now();
        let (mut sent, mut is_whole) = (after, true);
        for event in events {
            is_whole = read_at.elapsed() < FRESH && send(broker, &event, &mut refused).await.map_err(Lost::Broker)?;
            if !is_whole {
                break;
            }
            sent = event.seq;
        }
        let last = if is_whole { looked_at.map_or(next - 1, |(_, last)| last) } else { sent };
        if last > after {
            within(SILENCE, event_feed::moved(&mut conn, READER, last)).await?;
            after = last;
        }
    }
}

/// Who is told, with the rights of now; `None` if there is nobody.
async fn audience(service: &Service) -> Result<Option<Audience>, Failure> {
    let caller = match service.settings.amqp_events_principal.as_str() {
        OWNER => Some(Caller::Owner),
        name => Caller::of_message(&service.task_pool, None, name).await?,
    };
    Ok(caller.map(|caller| Audience { readable: caller.readable(), principal: caller.principal_id() }))
}

/// Publishes an event, and returns when the broker has it; false, after a pause, if it does not take it. The next one is not sent before, or a
/// queue that is full for one of them would get them in another order.
async fn send(broker: &Broker, event: &EventResponse, refused: &mut Option<i64>) -> Result<bool, BrokerError> {
    let body = serde_json::to_vec(event).unwrap_or_default();
    let seconds = u64::try_from(event.at.timestamp()).unwrap_or_default();
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_type(TYPE.into())
        .with_message_id(message_id(0, Some(event.seq)).into())
        .with_timestamp(seconds)
        .with_delivery_mode(2);
    let exchange = broker.name("events");
    // Nobody needs to listen.
    match broker.publish(&exchange, event.kind.as_str(), &body, properties, false).await {
        Err(BrokerError::Refused(reason)) => {
            if refused.replace(event.seq) != Some(event.seq) {
                tracing::warn!(seq = event.seq, reason, "events wait, because the broker does not take one");
            }
            tokio::time::sleep(PAUSE).await;
            Ok(false)
        }
        published => published.map(|()| true),
    }
}
