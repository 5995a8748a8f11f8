//! The other side of the feed: publishes files, and reads back what became of them.
use super::{
    broker::{Broker, BrokerError, ENVELOPE, Sent, UPLOAD, answer},
    message::TYPE,
};
use crate::settings::Settings;
use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Consumer,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use serde::Deserialize;
use serde_json::{Value, json};
use svc_client::wire::UploadQuery;

/// How many outcomes the broker hands out before one is acknowledged.
const PREFETCH: u16 = 256;
/// How long the broker keeps outcomes that nobody reads, in milliseconds.
const KEPT: i64 = 7 * 24 * 3600 * 1000;

/// Where files are put, and how.
#[derive(Clone, Debug, Default)]
pub struct Target {
    pub query: UploadQuery,
    pub options: Option<Value>,
}

/// Where the service finds the bytes of a file.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// In the message.
    Here(&'a [u8]),
    /// At this path under SVC_BULK_ROOT.
    Path(&'a str),
    /// At this address.
    Url(&'a str),
}

/// A file to publish.
pub struct Message<'a> {
    pub id: &'a str,
    /// Comes back with each outcome.
    pub mark: &'a str,
    /// If blank, that of its source.
    pub filename: &'a str,
    pub declared_mime: Option<&'a str>,
    /// Of an address it may not be known.
    pub sha256: Option<&'a str>,
    pub place: Place<'a>,
}

/// What the service says of a message.
#[derive(Debug, Deserialize)]
pub struct Outcome {
    pub message_id: Option<String>,
    pub outcome: String,
    pub document_id: Option<i64>,
    pub code: Option<String>,
    pub detail: Option<String>,
}

/// An outcome that the broker keeps until [`Told::heard`].
pub struct Told {
    pub mark: Option<String>,
    /// `None` if it cannot be read.
    pub outcome: Option<Outcome>,
    delivery: Delivery,
}

impl Told {
    pub async fn heard(self) -> Result<(), BrokerError> {
        answer(self.delivery.acker.ack(BasicAckOptions::default())).await.map(|_| ())
    }
}

/// A producer of messages with a queue of its own for outcomes, which outlives it.
pub struct Producer {
    broker: Broker,
    channel: Channel,
    answers: String,
    outcomes: Consumer,
    /// Whether the queue of outcomes was there, so that it holds what was told since.
    pub was_kept: bool,
}

impl Producer {
    /// Connects. `answers`: the queue for the outcomes.
    pub async fn connect(settings: &Settings, answers: &str) -> Result<Producer, BrokerError> {
        let broker = Broker::connect(settings).await?;
        // A message that is published before a service has made the queues would go nowhere.
        broker.depth("upload").await.map_err(|error| match error.is_missing() {
            true => BrokerError::NoFeed(broker.name("upload")),
            false => error,
        })?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let asked = answer(broker.channel().await?.queue_declare(answers.into(), passive, FieldTable::default())).await;
        let was_kept = match asked {
            Ok(_) => true,
            Err(error) if error.is_missing() => false,
            Err(error) => return Err(error),
        };
        let channel = broker.channel().await?;
        if !was_kept {
            let mut arguments = FieldTable::default();
            // A quorum queue that was made a moment before the broker crashed was seen to answer nobody afterwards.
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
            arguments.insert("x-expires".into(), AMQPValue::LongLongInt(KEPT));
            let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            answer(channel.queue_declare(answers.into(), durable, arguments)).await?;
        }
        answer(channel.basic_qos(PREFETCH, BasicQosOptions::default())).await?;
        let (options, table) = (BasicConsumeOptions::default(), FieldTable::default());
        let outcomes = answer(channel.basic_consume(answers.into(), "".into(), options, table)).await?;
        Ok(Producer { broker, channel, answers: answers.to_owned(), outcomes, was_kept })
    }

    /// Publishes a file.
    pub async fn send(&self, target: &Target, message: &Message<'_>) -> Result<Sent, BrokerError> {
        let mut properties = BasicProperties::default()
            .with_message_id(message.id.into())
            .with_correlation_id(message.mark.into())
            .with_reply_to(self.answers.as_str().into())
            .with_type(TYPE.into())
            .with_user_id(self.broker.user.as_str().into())
            .with_delivery_mode(2);
        let UploadQuery { parent_id, private, priority, event_time } = target.query;
        let filename = Some(message.filename).filter(|name| !name.is_empty());
        let source = match message.place {
            Place::Here(_) => None,
            Place::Path(path) => Some(json!({"path": path})),
            Place::Url(url) => Some(json!({"url": url})),
        };
        let envelope;
        let body = match (message.place, source) {
            (Place::Here(bytes), _) => {
                let text = |text: &str| AMQPValue::LongString(text.into());
                let mut said =
                    vec![("svc-private", AMQPValue::Boolean(private)), ("svc-priority", AMQPValue::LongInt(priority))];
                said.extend(message.sha256.map(|hash| ("svc-sha256", text(hash))));
                said.extend(filename.map(|name| ("svc-filename", text(name))));
                said.extend(parent_id.map(|id| ("svc-parent-id", AMQPValue::LongLongInt(id))));
                said.extend(target.options.as_ref().map(|options| ("svc-options", text(&options.to_string()))));
                said.extend(event_time.map(|time| ("svc-event-time", text(&time.to_rfc3339()))));
                let mut headers = FieldTable::default();
                for (name, value) in said {
                    headers.insert(name.into(), value);
                }
                properties = properties.with_headers(headers);
                if let Some(mime) = message.declared_mime {
                    properties = properties.with_content_type(mime.into());
                }
                bytes
            }
            (_, source) => {
                properties = properties.with_content_type(ENVELOPE.into());
                envelope = json!({
                    "v": 1, "source": source, "sha256": message.sha256, "filename": filename, "declared_mime": message.declared_mime,
                    "parent_id": parent_id, "private": private, "priority": priority, "options": target.options, "event_time": event_time,
                })
                .to_string();
                envelope.as_bytes()
            }
        };
        self.broker.send(&self.broker.prefix, UPLOAD, body, properties, true).await
    }

    /// The next outcome.
    pub async fn outcome(&mut self) -> Result<Told, BrokerError> {
        let delivery = self.outcomes.next().await.ok_or(BrokerError::Ended)??;
        let mark = delivery.properties.correlation_id().as_ref().map(|mark| mark.as_str().to_owned());
        Ok(Told { mark, outcome: serde_json::from_slice(&delivery.data).ok(), delivery })
    }

    /// Ends the connection; the queue of outcomes goes with it if nothing more is expected there.
    pub async fn end(self, is_complete: bool) {
        if is_complete {
            // The broker removes it by itself if this fails.
            drop(answer(self.channel.queue_delete(self.answers.into(), QueueDeleteOptions::default())).await);
        }
        self.broker.close().await;
    }
}
