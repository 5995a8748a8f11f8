//! The connection to the broker, and the exchanges and queues there.
use super::levels;
use crate::{settings::Settings, telemetry};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ErrorKind, ExchangeKind,
    PublisherConfirm,
    options::{
        BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    },
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
    types::{AMQPValue, FieldTable},
    uri::AMQPUri,
};
use std::{sync::atomic::AtomicUsize, time::Duration};
use svc_client::wire::FeedQueue;
use tokio::time::timeout;

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The time between two questions whether the broker still answers.
const WATCH: Duration = Duration::from_secs(20);
/// How often a message may be delivered without an answer before the broker gives it up. A restart of the service counts as well, for all
/// messages that it holds.
const DELIVERIES: i64 = 20;
/// The media type of a message that describes a file.
pub const ENVELOPE: &str = "application/vnd.svc.upload+json";
/// The key with which uploads are published.
pub const UPLOAD: &str = "upload.file";

/// Why the broker cannot be used. No text holds its address, which has a password in it.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("the broker cannot be used: {0}")]
    Broker(lapin::Error),
    #[error("the address of the broker in SVC_AMQP_URL cannot be read: write amqp://user:password@host:port/vhost")]
    Address,
    #[error(
        "the broker handed out a message whose properties or names of headers are not UTF-8, and that ended the connection: remove it from its \
         queue with the broker's own tools, or wait until the broker gives it up"
    )]
    Unreadable,
    #[error(
        "the connection ended while a message was fetched: if that comes again, the message has properties or names of headers that are not UTF-8, \
         and only the broker's own tools can remove it from its queue"
    )]
    Lost,
    #[error("the broker did not answer within {} s", ANSWER.as_secs())]
    Silent,
    #[error("the broker does not take the message now: {0}")]
    Refused(String),
    #[error("no queue takes what is published to `{0}`")]
    Unroutable(String),
    #[error("the broker ended the delivery of messages")]
    Ended,
    #[error(
        "the broker has no queue `{0}`: start `svc serve` with the same SVC_AMQP_URL and SVC_AMQP_PREFIX, which makes it"
    )]
    NoFeed(String),
    #[error(
        "the user `{0}` of the broker may not write to the default exchange, over which the feed tries messages again and answers a `reply_to`: \
         let the user write to `amq.default`"
    )]
    NoDefaultExchange(String),
    #[error("the service gave it up under another user of the broker than `{0}`: use the SVC_AMQP_URL of the service")]
    OfAnother(String),
}

impl BrokerError {
    /// Whether another message may still be published.
    pub fn is_of_message(&self) -> bool {
        matches!(self, BrokerError::OfAnother(_) | BrokerError::Refused(_))
    }

    /// Whether one message ended the connection, for which all that were handed out with it pay.
    pub fn ended_by_a_message(&self) -> bool {
        let BrokerError::Broker(error) = self else { return matches!(self, BrokerError::Unreadable) };
        let too_large = AMQPErrorKind::Hard(AMQPHardError::FRAMEERROR);
        matches!(error.kind(), ErrorKind::ProtocolError(error) if *error.kind() == too_large)
    }

    /// Whether the broker says that there is no such queue.
    pub fn is_missing(&self) -> bool {
        self.is_soft(&AMQPSoftError::NOTFOUND)
    }

    /// Whether the broker closed a channel, and no more than that, for this reason.
    fn is_soft(&self, reason: &AMQPSoftError) -> bool {
        let BrokerError::Broker(error) = self else { return false };
        matches!(error.kind(), ErrorKind::ProtocolError(error) if matches!(error.kind(), AMQPErrorKind::Soft(soft) if soft == reason))
    }
}

impl From<lapin::Error> for BrokerError {
    fn from(error: lapin::Error) -> BrokerError {
        match error.kind() {
            ErrorKind::ParsingError(_) => BrokerError::Unreadable,
            _ => BrokerError::Broker(error),
        }
    }
}

/// The end of the name of a queue in which messages wait for so long: `5s`, `10m`.
fn waits(time: Duration) -> String {
    match (time.as_millis() % 1000, time.as_secs()) {
        (0, seconds) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (0, seconds) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        (0, seconds) => format!("{seconds}s"),
        _ => format!("{}ms", time.as_millis()),
    }
}

fn address(settings: &Settings) -> Result<AMQPUri, BrokerError> {
    settings.amqp_url.expose().parse().map_err(|_: String| BrokerError::Address)
}

/// Which feed the settings name, without the password.
pub fn place(settings: &Settings) -> Result<String, BrokerError> {
    let AMQPUri { authority, vhost, .. } = address(settings)?;
    Ok(format!("{} of the broker {}:{}, host {vhost}", settings.amqp_prefix, authority.host, authority.port))
}

/// Why the broker that the settings name cannot be used; `None` if it can, or if they name none.
pub async fn missing(settings: &Settings) -> Option<BrokerError> {
    if settings.amqp_url.is_blank() {
        return None;
    }
    match Broker::connect(settings).await {
        Ok(broker) => {
            broker.close().await;
            None
        }
        Err(error) => Some(error),
    }
}

/// Waits for an answer of the broker, but not for ever.
pub(super) async fn answer<T>(answer: impl Future<Output = lapin::Result<T>>) -> Result<T, BrokerError> {
    timeout(ANSWER, answer).await.map_err(|_| BrokerError::Silent)?.map_err(BrokerError::Broker)
}

/// A message that the broker may not have yet.
#[must_use = "the broker may refuse it"]
pub struct Sent {
    confirm: PublisherConfirm,
    /// The key with which it was published, which is the name of a queue where that alone gets it.
    pub to: String,
}

impl Sent {
    /// Returns when the broker has the message.
    pub async fn confirmed(self) -> Result<(), BrokerError> {
        match answer(self.confirm).await? {
            Confirmation::Ack(None) | Confirmation::NotRequested => Ok(()),
            Confirmation::Ack(Some(_)) => Err(BrokerError::Unroutable(self.to)),
            Confirmation::Nack(_) => Err(BrokerError::Refused("a queue is full".to_owned())),
        }
    }
}

/// A connection, with a channel on which everything is published and confirmed.
pub struct Broker {
    connection: Connection,
    publishing: Channel,
    /// What all names begin with.
    pub prefix: String,
    /// The user that this connection belongs to.
    pub user: String,
    /// The queues in which a message waits for its next try, and for how long.
    pub retries: Vec<(String, Duration)>,
    /// How many messages are worked on.
    pub at_work: AtomicUsize,
}

impl Broker {
    pub async fn connect(settings: &Settings) -> Result<Broker, BrokerError> {
        let properties = ConnectionProperties::default().with_connection_name("svc".into());
        let uri = address(settings)?;
        let user = uri.authority.userinfo.username.clone();
        let connection = answer(levels::connect(uri, properties)).await?;
        let publishing = answer(connection.create_channel()).await?;
        answer(publishing.confirm_select(ConfirmSelectOptions::default())).await?;
        let retries = settings.bulk_retry.iter().map(|time| (waits(*time), *time)).collect();
        let prefix = settings.amqp_prefix.clone();
        Ok(Broker { connection, publishing, prefix, user, retries, at_work: AtomicUsize::new(0) })
    }

    pub fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// A channel of its own.
    pub async fn channel(&self) -> Result<Channel, BrokerError> {
        answer(self.connection.create_channel()).await
    }

    /// The name of one of our exchanges or queues.
    pub fn name(&self, part: &str) -> String {
        format!("{}.{part}", self.prefix)
    }

    /// Makes the exchanges and queues that do not exist, and asks for the right that the feed needs besides; whatever exists must be as it would be made.
    pub async fn declare(&self) -> Result<(), BrokerError> {
        let mut channel = self.channel().await?;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        for (name, kind) in [
            (self.prefix.clone(), ExchangeKind::Topic),
            (self.name("dlx"), ExchangeKind::Fanout),
            (self.name("events"), ExchangeKind::Topic),
        ] {
            answer(channel.exchange_declare(name.into(), kind, durable, FieldTable::default())).await?;
        }
        let text = |text: &str| AMQPValue::LongString(text.into());
        let number = AMQPValue::LongLongInt;
        let queue = async |channel: &Channel, part: &str, arguments: &[(&str, AMQPValue)]| {
            let mut table = FieldTable::default();
            table.insert("x-queue-type".into(), text("quorum"));
            for (name, value) in arguments {
                table.insert((*name).into(), value.clone());
            }
            let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            answer(channel.queue_declare(self.name(part).into(), durable, table)).await
        };
        // No message is lost between two queues; that strategy refuses what is too much instead of dropping the oldest.
        let safely = [("x-dead-letter-strategy", text("at-least-once")), ("x-overflow", text("reject-publish"))];
        let mut upload =
            vec![("x-delivery-limit", number(DELIVERIES)), ("x-dead-letter-exchange", text(&self.name("dlx")))];
        upload.extend(safely.clone());
        queue(&channel, "upload", &upload).await?;
        // Looking at a message counts as a delivery, and RabbitMQ 4 gives up after 20 of them by default. What finds no room stays in the queue before.
        let dead = [("x-delivery-limit", number(1_000_000)), ("x-overflow", text("reject-publish"))];
        let mut made = queue(&channel, "dead", &dead).await;
        if made.as_ref().is_err_and(|error| error.is_soft(&AMQPSoftError::PRECONDITIONFAILED)) {
            // A queue of an earlier version lacks the last argument, and goes on without it. The refusal has closed the channel.
            channel = self.channel().await?;
            made = queue(&channel, "dead", &dead[..1]).await;
        }
        made?;
        for (part, wait) in &self.retries {
            let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            let mut retry = vec![
                ("x-message-ttl", number(wait)),
                ("x-dead-letter-exchange", text(&self.prefix)),
                ("x-dead-letter-routing-key", text("upload.retry")),
            ];
            retry.extend(safely.clone());
            queue(&channel, &format!("retry.{part}"), &retry).await?;
        }
        for (part, exchange, key) in [("upload", self.prefix.clone(), "upload.#"), ("dead", self.name("dlx"), "")] {
            let bound = channel.queue_bind(
                self.name(part).into(),
                exchange.into(),
                key.into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            );
            answer(bound).await?;
        }
        // No queue has this name, so the message goes nowhere. A user without the right would lose the connection with each message that is tried again.
        let asked = self.publish("", &self.name("permitted"), b"", BasicProperties::default(), false).await;
        match asked {
            Err(error) if error.is_soft(&AMQPSoftError::ACCESSREFUSED) => {
                Err(BrokerError::NoDefaultExchange(self.user.clone()))
            }
            asked => asked,
        }
    }

    /// Publishes a message, and returns when the broker has it. `must_arrive`: whether it is an error if no queue takes it.
    pub async fn publish(
        &self,
        exchange: &str,
        key: &str,
        body: &[u8],
        properties: BasicProperties,
        must_arrive: bool,
    ) -> Result<(), BrokerError> {
        self.send(exchange, key, body, properties, must_arrive).await?.confirmed().await
    }

    /// Publishes a message as [`Self::publish`] does, and does not wait until the broker has it. What is sent in an order arrives in it.
    pub async fn send(
        &self,
        exchange: &str,
        key: &str,
        body: &[u8],
        properties: BasicProperties,
        must_arrive: bool,
    ) -> Result<Sent, BrokerError> {
        let options = BasicPublishOptions { mandatory: must_arrive, ..BasicPublishOptions::default() };
        let sent = self.publishing.basic_publish(exchange.into(), key.into(), options, body, properties);
        Ok(Sent { confirm: answer(sent).await?, to: key.to_owned() })
    }

    /// How many messages lie in a queue.
    pub async fn depth(&self, part: &str) -> Result<u32, BrokerError> {
        Ok(self.look(&[part]).await?.iter().map(|queue| queue.ready).sum())
    }

    /// What lies in each of our queues, that of what was given up last.
    pub async fn queues(&self) -> Result<Vec<FeedQueue>, BrokerError> {
        self.look(&self.parts().iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// The ends of the names of our queues, in the order in which a message may go through them.
    fn parts(&self) -> Vec<String> {
        let retries = self.retries.iter().map(|(part, _)| format!("retry.{part}"));
        ["upload".to_owned()].into_iter().chain(retries).chain(["dead".to_owned()]).collect()
    }

    async fn look(&self, parts: &[&str]) -> Result<Vec<FeedQueue>, BrokerError> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let channel = self.channel().await?;
        let mut queues = Vec::with_capacity(parts.len());
        for part in parts {
            let name = self.name(part);
            let queue = answer(channel.queue_declare(name.as_str().into(), passive, FieldTable::default())).await?;
            queues.push(FeedQueue { name, ready: queue.message_count(), consumers: queue.consumer_count() });
        }
        answer(channel.close(200, "".into())).await?;
        Ok(queues)
    }

    /// Asks now and then whether the broker still answers, and what lies in the queues; returns why it does not answer.
    pub async fn watch(&self) -> BrokerError {
        let parts = self.parts();
        loop {
            match self.look(&parts.iter().map(String::as_str).collect::<Vec<_>>()).await {
                Ok(queues) => {
                    for (part, queue) in parts.iter().zip(queues) {
                        metrics::gauge!(telemetry::FEED_READY, "queue" => part.clone()).set(f64::from(queue.ready));
                    }
                }
                Err(error) => return error,
            }
            tokio::time::sleep(WATCH).await;
        }
    }

    /// Tells that nobody knows any more what lies in the queues.
    pub fn forget_ready(&self) {
        for part in self.parts() {
            metrics::gauge!(telemetry::FEED_READY, "queue" => part).set(f64::NAN);
        }
    }

    /// Ends the connection; what was not answered is delivered again.
    pub async fn close(&self) {
        let _ = timeout(ANSWER, self.connection.close(200, "".into())).await;
    }
}
