//! Takes messages and answers them: each is stored by the function that stores uploads, and acknowledged after the commit.
use super::{
    broker::{Broker, BrokerError, answer},
    dead,
    message::{CODE, DETAIL, ROUNDS, Said, UPLOADER, Upload, envelope_limit},
    outcomes,
    source::{self, Missing},
    turn::Lost,
};
use crate::{
    access::Caller,
    error::{IntoFailure, OrFail},
    ingest::{
        options::Requested,
        upload::{Incoming, arrive, recognise, title},
    },
    otlp,
    sampler::feed::Work,
    service::Service,
    store::{self, bulk::Receipt},
    telemetry,
    usetype::Usetype,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties,
    message::Delivery,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions},
    types::{AMQPValue, FieldTable},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use svc_client::{Code, Failure};
use tokio::time::Instant;

/// The name of the consumer on its channel.
const CONSUMER: &str = "svc";
/// How many messages the broker hands out at most before one is answered.
const PREFETCH: u16 = 12;
/// How many of them are worked on at a time.
const AT_ONCE: usize = 8;
/// How much memory the messages may take that the broker has handed out.
const IN_HAND: u64 = 64 << 20;
/// The time between two looks at the queue of tasks.
const LOOK: Duration = Duration::from_millis(500);
/// How much of the reason is told for which a message is given up.
const DETAIL_CHARACTERS: usize = 1_000;
/// How many bytes of headers a message that is given up keeps, of the 128 KiB of a frame, and how many each has if all together have more.
const HEADERS_BYTES: usize = 96 << 10;
const SHORT_BYTES: usize = 1 << 10;
/// How often a message is tried in each queue of retries.
const TRIES_EACH: u32 = 2;
/// The time between two tries while the database is away, first and later.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(5);
/// How long a message is held while the database is away. Brokers cut off who holds one for 30 minutes, and count that as a delivery.
const HOLD: Duration = Duration::from_secs(15 * 60);

/// What is to be told to the broker.
enum Answer {
    Ack,
    /// It is given up.
    Reject(Failure),
    /// It is put aside, to come back after a while.
    Later {
        rounds: u32,
        queue: String,
    },
}

/// What follows when no more messages are taken from a channel.
enum Next {
    End,
    /// Too many tasks are ready.
    Pause,
    /// Several messages are taken at a time again.
    GoOn,
}

/// Why a message was not stored.
enum Trouble {
    /// It can never be stored as it is.
    Rejected(Failure),
    /// Something that it names is missing.
    Later(Failure),
    /// The database, its disk or a slot is away.
    Away(Failure),
    /// The connection to the broker is gone, and the message comes again.
    Lost(BrokerError),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        match failure.code {
            Code::Unavailable | Code::TimedOut | Code::StorageFull | Code::TooManyRequests => Trouble::Away(failure),
            // Another change may hold the place, and a defect may be mended.
            Code::Internal => Trouble::Later(failure),
            Code::Conflict if failure.members.contains_key("task_id") => Trouble::Later(failure),
            _ => Trouble::Rejected(failure),
        }
    }
}

impl From<Missing> for Trouble {
    fn from(missing: Missing) -> Trouble {
        match missing {
            Missing::Refused(failure) => failure.into(),
            Missing::Later(failure) => Trouble::Later(failure),
        }
    }
}

impl From<Lost> for Trouble {
    fn from(lost: Lost) -> Trouble {
        match lost {
            Lost::Broker(error) => Trouble::Lost(error),
            Lost::Database(error) => Trouble::Away(error.into_failure()),
        }
    }
}

/// How many messages may be handed out, for files of up to this many bytes. A body that arrives is in a buffer of up to twice its size; later
/// an envelope is there as it came, with the text of its file, and with the bytes of it.
fn prefetch(inline_bytes: u64) -> u16 {
    let envelope = envelope_limit(inline_bytes);
    let each = 2 * envelope + inline_bytes;
    u16::try_from(IN_HAND / each).unwrap_or(PREFETCH).clamp(1, PREFETCH)
}

/// Takes messages until the service ends or the connection is lost; pauses while there are too many ready tasks. What was taken is ended
/// before this returns.
///
/// A message that nobody can read ends the connection, and the broker counts a failed delivery of every message that it had handed out. So the
/// next messages are taken `one_by_one`, until some of them were read.
pub(super) async fn consume(service: &Arc<Service>, broker: &Broker, one_by_one: &mut bool) -> Result<(), BrokerError> {
    loop {
        let prefetch = if *one_by_one { 1 } else { prefetch(service.settings.bulk_inline_bytes) };
        let mut read = 0;
        let channel = broker.channel().await?;
        answer(channel.basic_qos(prefetch, BasicQosOptions::default())).await?;
        wait_for_room(service).await;
        let (queue, options) = (broker.name("upload"), BasicConsumeOptions::default());
        let mut deliveries =
            answer(channel.basic_consume(queue.into(), CONSUMER.into(), options, FieldTable::default())).await?;
        let mut under_way = FuturesUnordered::new();
        // A look needs a connection, which those that are under way may hold, so they go on meanwhile.
        let mut looking = FuturesUnordered::new();
        let mut look = tokio::time::interval(LOOK);
        let mut unlooked = 0;
        let next = loop {
            broker.at_work.store(under_way.len(), Ordering::Relaxed);
            tokio::select! {
                () = service.ending.cancelled() => break Next::End,
                _ = look.tick(), if looking.is_empty() => {
                    unlooked = 0;
                    looking.push(is_full(service, service.settings.bulk_high_water));
                }
                Some(must_pause) = looking.next(), if !looking.is_empty() => {
                    if must_pause {
                        break Next::Pause;
                    }
                }
                delivery = deliveries.next(), if looking.is_empty() && under_way.len() < AT_ONCE => match delivery {
                    Some(delivery) => {
                        under_way.push(take(service, broker, delivery?));
                        unlooked += 1;
                        if unlooked == prefetch {
                            look.reset_immediately();
                        }
                    }
                    None => return Err(BrokerError::Ended),
                },
                Some(done) = under_way.next(), if !under_way.is_empty() => {
                    done?;
                    read += 1;
                    if *one_by_one && read == PREFETCH {
                        *one_by_one = false;
                        break Next::GoOn;
                    }
                }
            }
        };
        // What was handed out already is worked on to its end: if it went back, the broker would count that as a delivery that failed.
        answer(channel.basic_cancel(CONSUMER.into(), BasicCancelOptions::default())).await?;
        let mut rest = true;
        while rest || !under_way.is_empty() {
            broker.at_work.store(under_way.len(), Ordering::Relaxed);
            tokio::select! {
                delivery = deliveries.next(), if rest && under_way.len() < AT_ONCE => match delivery {
                    Some(delivery) => under_way.push(take(service, broker, delivery?)),
                    None => rest = false,
                },
                Some(done) = under_way.next(), if !under_way.is_empty() => done?,
            }
        }
        broker.at_work.store(0, Ordering::Relaxed);
        answer(channel.close(200, "".into())).await?;
        match next {
            Next::End => return Ok(()),
            Next::GoOn => {}
            Next::Pause => wait_for_half(service).await,
        }
    }
}

/// Whether more tasks than this are ready; unknown counts as no.
async fn is_full(service: &Service, most: usize) -> bool {
    let most = i64::try_from(most).unwrap_or(i64::MAX - 1);
    let Ok(mut conn) = service.pool.acquire().await else { return false };
    store::bulk::ready_tasks(&mut conn, most + 1).await.is_ok_and(|ready| ready > most)
}

async fn wait_for_room(service: &Service) {
    if is_full(service, service.settings.bulk_high_water).await {
        wait_for_half(service).await;
    }
}

async fn wait_for_half(service: &Service) {
    let high_water = service.settings.bulk_high_water;
    tracing::info!(high_water, "the bulk feed pauses until half of the ready tasks are done");
    service.sampler.feed.note(Ok(Work::Pauses));
    while !service.ending.is_cancelled() && is_full(service, high_water / 2).await {
        tokio::time::sleep(LOOK).await;
    }
    service.sampler.feed.note(Ok(Work::Takes));
}

/// The body of a message that is worked on, which the metrics count.
struct Body(f64);

impl Body {
    fn of(data: &Bytes) -> Body {
        metrics::counter!(telemetry::FEED_CONSUMED).increment(1);
        metrics::gauge!(telemetry::FEED_BODIES).increment(1.0);
        let bytes = data.len() as f64;
        metrics::gauge!(telemetry::FEED_BODY_BYTES).increment(bytes);
        Body(bytes)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        metrics::gauge!(telemetry::FEED_BODIES).decrement(1.0);
        metrics::gauge!(telemetry::FEED_BODY_BYTES).decrement(self.0);
    }
}

/// Works on one message to its end.
async fn take(service: &Arc<Service>, broker: &Broker, delivery: Delivery) -> Result<(), BrokerError> {
    let Delivery { properties, mut data, acker, .. } = delivery;
    // The buffer grew while the body arrived, and may be twice as large.
    data.shrink_to_fit();
    let data = Bytes::from(data);
    let _body = Body::of(&data);
    let said = Said::read(&properties, &broker.user);
    let trace = otlp::Span::of_queued("take message", said.traceparent.as_deref(), Vec::new);
    let answer_of = trace.carry(Box::pin(end(service, broker, &said, &properties, &data))).await?;
    let code = match &answer_of {
        Answer::Ack => None,
        Answer::Reject(failure) => Some(failure.code.as_str()),
        Answer::Later { .. } => Some("later"),
    };
    trace.end([], code);
    match answer_of {
        // A message whose acknowledgement does not arrive comes again, and is counted then.
        Answer::Ack => {
            let acked = answer(acker.ack(BasicAckOptions::default())).await?;
            metrics::counter!(telemetry::FEED_ACKED).increment(1);
            acked
        }
        Answer::Reject(failure) => {
            metrics::counter!(telemetry::FEED_REJECTED, "code" => failure.code.as_str()).increment(1);
            let buried = buried(&properties, &said, broker, &failure);
            match broker.publish(&broker.name("dlx"), "", &data, buried, true).await {
                Ok(()) => answer(acker.ack(BasicAckOptions::default())).await?,
                // The broker puts it there by itself, without the reason, once there is room.
                Err(BrokerError::Refused(_)) => answer(acker.reject(BasicRejectOptions { requeue: false })).await?,
                Err(error) => return Err(error),
            }
        }
        Answer::Later { rounds, queue } => {
            metrics::counter!(telemetry::FEED_RETRIED, "queue" => queue.clone()).increment(1);
            match put_aside(service, broker, &queue, &data, &aside(&properties, &said, broker, rounds)).await? {
                true => answer(acker.ack(BasicAckOptions::default())).await?,
                // The broker counts this as a delivery, as it would if it cut off who holds a message for too long.
                false => answer(acker.reject(BasicRejectOptions { requeue: true })).await?,
            }
        }
    };
    Ok(())
}

/// Puts a message into a queue of retries, or into another of them while that is full; waits while all are. Returns false if they stay full.
async fn put_aside(
    service: &Service,
    broker: &Broker,
    queue: &str,
    body: &[u8],
    properties: &BasicProperties,
) -> Result<bool, BrokerError> {
    let others = broker.retries.iter().map(|(part, _)| part.as_str()).filter(|part| *part != queue);
    let queues: Vec<&str> = std::iter::once(queue).chain(others).collect();
    let begun = Instant::now();
    let mut pause = SOONEST;
    while begun.elapsed() < HOLD {
        for queue in &queues {
            let queue = broker.name(&format!("retry.{queue}"));
            match broker.publish("", &queue, body, properties.clone(), true).await {
                Err(BrokerError::Refused(reason)) => {
                    tracing::warn!(queue, reason, "a message that is to be tried later finds no room");
                }
                published => return published.map(|()| true),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // It comes again: it was never answered.
            () = service.ending.cancelled() => return Err(BrokerError::Ended),
        }
        pause = (pause * 2).min(LATEST);
    }
    Ok(false)
}

/// The properties of a message that is put aside. The broker lets nobody publish in another's name, so the name goes into a header.
fn aside(properties: &BasicProperties, said: &Said, broker: &Broker, rounds: u32) -> BasicProperties {
    let mut headers = dead::kept_headers(properties, |_| true);
    headers.insert(UPLOADER.into(), AMQPValue::LongString(said.user.clone().unwrap_or_default().into()));
    headers.insert(ROUNDS.into(), AMQPValue::LongLongInt(rounds.into()));
    dead::kept(properties).with_headers(headers).with_user_id(broker.user.as_str().into())
}

/// The properties of a message that is given up, with the reason. Of headers that leave no room for it in their frame, only the short ones stay.
fn buried(properties: &BasicProperties, said: &Said, broker: &Broker, failure: &Failure) -> BasicProperties {
    let buried = aside(properties, said, broker, said.rounds);
    let mut headers = buried.headers().clone().unwrap_or_default();
    if headers.inner().values().map(dead::size).sum::<usize>() > HEADERS_BYTES {
        let short = headers.inner().iter().filter(|(_, value)| dead::size(value) <= SHORT_BYTES);
        headers = short.map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>().into();
    }
    headers.insert(CODE.into(), AMQPValue::LongString(failure.code.as_str().into()));
    headers.insert(DETAIL.into(), AMQPValue::LongString(failure.detail.as_str().into()));
    buried.with_headers(headers)
}

/// What a message ends with. While the database is away it is tried again, for as long as the broker lets us hold it.
async fn end(
    service: &Arc<Service>,
    broker: &Broker,
    said: &Said,
    properties: &BasicProperties,
    body: &Bytes,
) -> Result<Answer, BrokerError> {
    let begun = Instant::now();
    let mut pause = SOONEST;
    loop {
        let failure = match tried(service, broker, said, properties, body).await {
            Ok(answer) => return Ok(answer),
            Err(Trouble::Lost(error)) => return Err(error),
            Err(Trouble::Away(failure) | Trouble::Later(failure) | Trouble::Rejected(failure)) => failure,
        };
        tracing::warn!(message = said.message_id, %failure, "a message waits");
        if begun.elapsed() > HOLD {
            // The broker holds it for a while where it is held no longer here.
            let queue = broker.retries.get(1).or(broker.retries.last()).map(|(part, _)| part.clone());
            return Ok(Answer::Later { rounds: said.rounds, queue: queue.unwrap_or_default() });
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // It comes again: it was never answered.
            () = service.ending.cancelled() => return Err(BrokerError::Ended),
        }
        pause = (pause * 2).min(LATEST);
    }
}

/// Tries once to store a message, or to record why it never will be. An error of the database means that nothing was decided.
async fn tried(
    service: &Arc<Service>,
    broker: &Broker,
    said: &Said,
    properties: &BasicProperties,
    body: &Bytes,
) -> Result<Answer, Trouble> {
    let mut receipt = match said.receipt(&broker.prefix) {
        Ok(receipt) => receipt,
        Err(failure) => {
            tracing::warn!(%failure, "a message without an id is rejected");
            let mut conn = service.pool.acquire().await.or_fail().map_err(Trouble::Away)?;
            store::bulk::dead(&mut conn, None, None, &failure).await.or_fail().map_err(Trouble::Away)?;
            return Ok(Answer::Reject(failure));
        }
    };
    let mut sha256 = None;
    let storing = Box::pin(stored(service, broker, said, &mut receipt, &mut sha256, properties, body));
    let trouble = match storing.await {
        Ok(()) => return Ok(Answer::Ack),
        Err(trouble) => trouble,
    };
    let mut failure = match trouble {
        Trouble::Lost(_) | Trouble::Away(_) => return Err(trouble),
        Trouble::Later(failure) => match broker.retries.get((said.rounds / TRIES_EACH) as usize) {
            Some((queue, _)) => return Ok(Answer::Later { rounds: said.rounds + 1, queue: queue.clone() }),
            None => failure,
        },
        Trouble::Rejected(failure) => {
            // Another delivery of it may have been stored while this one was worked on.
            let mut conn = service.pool.acquire().await.or_fail().map_err(Trouble::Away)?;
            let known = store::bulk::stored(&mut conn, &receipt).await.or_fail().map_err(Trouble::Away)?;
            if let Some(known) = known.filter(|known| known.sha256 == sha256) {
                drop(conn);
                outcomes::again(service, broker, &receipt, &known).await?;
                return Ok(Answer::Ack);
            }
            failure
        }
    };
    // It may quote the message, and everybody who is told of it holds it.
    if let Some((end, _)) = failure.detail.char_indices().nth(DETAIL_CHARACTERS) {
        failure.detail.truncate(end);
    }
    tracing::warn!(message = receipt.message_id, code = failure.code.as_str(), "a message is rejected");
    let recorded = async {
        let mut tx = store::transaction::begin(&service.pool).await?;
        store::bulk::reject(&mut tx, &receipt, sha256.as_deref(), &failure).await?;
        tx.commit().await
    };
    recorded.await.or_fail().map_err(Trouble::Away)?;
    Ok(Answer::Reject(failure))
}

/// Stores what a message brings, or tells again what became of it.
async fn stored(
    service: &Arc<Service>,
    broker: &Broker,
    said: &Said,
    receipt: &mut Receipt,
    sha256: &mut Option<String>,
    properties: &BasicProperties,
    body: &Bytes,
) -> Result<(), Trouble> {
    let name = &service.settings.amqp_principal;
    let Some(caller) = Caller::of_message(&service.pool, said.user.as_deref(), name).await? else {
        return Err(unauthenticated(said.user.as_deref()).into());
    };
    receipt.principal_id = caller.principal_id();
    let upload = said.upload(properties.headers().as_ref(), body, service.settings.bulk_inline_bytes)?;
    sha256.clone_from(&upload.sha256);
    let mut conn = service.pool.acquire().await.or_fail()?;
    let known = store::bulk::stored(&mut conn, receipt).await.or_fail()?;
    drop(conn);
    if let Some(known) = known {
        if sha256.is_some() && known.sha256 != *sha256 {
            let failure = Failure::new(Code::Conflict, "a message with this id brought other bytes before");
            return Err(Trouble::Rejected(failure.with("remedy", "give each file a message_id of its own")));
        }
        return Ok(outcomes::again(service, broker, receipt, &known).await?);
    }
    let Upload { options, query, .. } = &upload;
    let intake = service.intake();
    let requested = Requested::read(options.clone(), intake.types.groups())?;
    let arrived = source::arrive(service, caller.principal_id(), &upload, body).await?;
    *sha256 = Some(arrived.file.content_hash.clone());
    let (file, detection) = recognise(arrived.file, arrived.filename.as_deref()).await?;
    let incoming = Incoming {
        title: title(arrived.filename.as_deref()),
        declared_mime: arrived.declared_mime,
        file,
        detection,
        usetype: Usetype::File,
        requested,
        prepared: None,
        evidence: Vec::new(),
        receipt: Some(receipt.clone()),
    };
    arrive(service, intake, &caller, *query, incoming).await?;
    Ok(())
}

/// 401 for a message that nobody answers for. The owner never does.
fn unauthenticated(user: Option<&str>) -> Failure {
    let (detail, remedy) = match user {
        Some(user) => (
            format!("no service answers for the broker's user `{}`", user.chars().take(100).collect::<String>()),
            "bind one: svc access principals edit NAME --amqp-user USER",
        ),
        None => (
            "the message names no user of the broker".to_owned(),
            "publish it with the property user_id, or name a principal in SVC_AMQP_PRINCIPAL",
        ),
    };
    Failure::new(Code::Unauthenticated, detail).with("remedy", remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_in_hand_have_their_bound_of_memory() {
        let taken = |inline: u64| u64::from(prefetch(inline)) * (2 * envelope_limit(inline) + inline);
        for inline in [1, 1 << 10, 1 << 20, 3 << 20, 5_000_000, 16 << 20] {
            assert!(taken(inline) <= IN_HAND, "{inline}: {}", taken(inline));
        }
        assert_eq!((prefetch(1 << 20), prefetch(16 << 20)), (PREFETCH, 1));
        assert_eq!(prefetch(u64::MAX / 8), 1, "one at least is taken");
    }
}
