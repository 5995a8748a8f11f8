//! The messages that were given up: looked at, sent once more, or dropped. Each stays in its queue until something else has it.
use super::{
    broker::{Broker, BrokerError, answer},
    message::{CODE, DETAIL, ROUNDS, Said, Source, TRACEPARENT, UPLOADER, header},
};
use crate::settings::Settings;
use lapin::{
    BasicProperties, Channel,
    message::{BasicGetMessage, Delivery},
    options::{BasicAckOptions, BasicGetOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use svc_client::wire::DeadLetter;

/// The key with which a message is published once more.
const REPLAY: &str = "upload.replay";
/// How a broker begins the headers that it writes itself.
const OF_BROKER: &str = "x-";

/// A message that was given up. Unless [`Dead::replay`] or [`Dead::drop`] takes it, the queue keeps it.
pub struct Letter {
    pub about: DeadLetter,
    said: Said,
    delivery: Delivery,
}

/// The queue of what was given up, from its first message to the last that was there at the beginning.
pub struct Dead {
    broker: Broker,
    channel: Channel,
    left: u32,
    /// How large a file in a message may be.
    inline_bytes: u64,
}

impl Dead {
    pub async fn open(settings: &Settings) -> Result<Dead, BrokerError> {
        let broker = Broker::connect(settings).await?;
        let left = broker.depth("dead").await.map_err(|error| match error.is_missing() {
            true => BrokerError::NoFeed(broker.name("dead")),
            false => error,
        })?;
        let channel = broker.channel().await?;
        Ok(Dead { broker, channel, left, inline_bytes: settings.bulk_inline_bytes })
    }

    /// The next message, one in memory at a time. The queue gets back at the end what nobody took.
    pub async fn next(&mut self) -> Result<Option<Letter>, BrokerError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let got = answer(self.channel.basic_get(self.broker.name("dead").into(), BasicGetOptions::default())).await;
        let got = got.map_err(|error| match error {
            // The client keeps who asked waiting when it cannot read the answer.
            BrokerError::Silent if !self.broker.is_connected() => BrokerError::Lost,
            error => error,
        })?;
        let Some(BasicGetMessage { delivery, .. }) = got else { return Ok(None) };
        let said = Said::read(&delivery.properties, &self.broker.user);
        let headers = delivery.properties.headers().as_ref();
        let text = |name: &str| header(headers, name).ok().flatten();
        let upload = said.upload(headers, &delivery.data, self.inline_bytes).ok();
        let about = DeadLetter {
            message_id: said.message_id.clone(),
            user: said.user.clone(),
            code: text(CODE),
            detail: text(DETAIL),
            filename: upload.as_ref().and_then(|upload| upload.filename.clone()),
            sha256: upload.as_ref().and_then(|upload| upload.sha256.clone()),
            source: upload.as_ref().and_then(|upload| match &upload.source {
                Source::Path(place) | Source::Url(place) => Some(place.clone()),
                Source::Body | Source::Inline(_) => None,
            }),
            parent_id: upload.and_then(|upload| upload.query.parent_id),
            bytes: delivery.data.len() as u64,
        };
        Ok(Some(Letter { about, said, delivery }))
    }

    /// Publishes a message once more, and takes it out of the queue when the broker has it. Who is killed in between leaves both, which
    /// have one id and are stored once.
    pub async fn replay(&self, letter: Letter) -> Result<(), BrokerError> {
        let Letter { said, delivery, .. } = letter;
        if said.is_of_another {
            // It would become a message of ours, with our rights.
            return Err(BrokerError::OfAnother(self.broker.user.clone()));
        }
        let properties = anew(&delivery.properties, &said, &self.broker.user);
        self.broker.publish(&self.broker.prefix, REPLAY, &delivery.data, properties, true).await?;
        answer(delivery.acker.ack(BasicAckOptions::default())).await.map(|_| ())
    }

    /// Takes a message out of the queue for good.
    pub async fn drop(&self, letter: Letter) -> Result<(), BrokerError> {
        answer(letter.delivery.acker.ack(BasicAckOptions::default())).await.map(|_| ())
    }

    pub fn is_connected(&self) -> bool {
        self.broker.is_connected()
    }

    pub async fn close(self) {
        self.broker.close().await;
    }
}

/// The headers that name further queues.
const COPIES: [&str; 2] = ["CC", "BCC"];
/// How a producer begins the headers that the service reads.
const OURS: &str = "svc-";
/// How much of the other headers a message keeps. All its headers go in one frame, and what the service adds must find room there too.
const OTHERS_BYTES: usize = 16 << 10;

/// The properties under which a message begins anew, as its first publisher's.
fn anew(properties: &BasicProperties, said: &Said, user: &str) -> BasicProperties {
    let mut headers = kept_headers(properties, |name| {
        ![CODE, DETAIL, ROUNDS, UPLOADER].contains(&name) && !name.starts_with(OF_BROKER)
    });
    headers.insert(UPLOADER.into(), AMQPValue::LongString(said.user.clone().unwrap_or_default().into()));
    kept(properties).with_headers(headers).with_user_id(user.into())
}

/// Those headers that a message keeps when this service publishes it again. By `CC` and `BCC` the broker would hand it to further queues, in the name of the
/// service, which may write where the producer may not.
pub(super) fn kept_headers(properties: &BasicProperties, is_kept: impl Fn(&str) -> bool) -> FieldTable {
    let mut headers = FieldTable::default();
    let mut room = OTHERS_BYTES;
    let old = properties.headers().as_ref().map(|headers| headers.inner()).into_iter().flatten();
    for (name, value) in old.filter(|(name, _)| !COPIES.contains(&name.as_str()) && is_kept(name.as_str())) {
        if !name.as_str().starts_with(OURS) && name.as_str() != TRACEPARENT {
            let Some(left) = room.checked_sub(name.as_str().len() + size(value)) else { continue };
            room = left;
        }
        headers.insert(name.clone(), value.clone());
    }
    headers
}

/// About how many bytes a value of a header takes.
pub(super) fn size(value: &AMQPValue) -> usize {
    let within = match value {
        AMQPValue::LongString(text) => text.as_bytes().len(),
        AMQPValue::ByteArray(bytes) => bytes.as_slice().len(),
        AMQPValue::FieldArray(values) => values.as_slice().iter().map(size).sum(),
        AMQPValue::FieldTable(values) => {
            values.inner().iter().map(|(name, value)| name.as_str().len() + size(value)).sum()
        }
        _ => 0,
    };
    within + 10
}

/// What a message keeps when this service publishes it again: all but its headers, its user, and the time after which it expires.
pub(super) fn kept(properties: &BasicProperties) -> BasicProperties {
    let mut kept = BasicProperties::default().with_delivery_mode(2);
    for (text, with) in [
        (
            properties.content_type(),
            BasicProperties::with_content_type as fn(BasicProperties, ShortString) -> BasicProperties,
        ),
        (properties.content_encoding(), BasicProperties::with_content_encoding),
        (properties.correlation_id(), BasicProperties::with_correlation_id),
        (properties.reply_to(), BasicProperties::with_reply_to),
        (properties.message_id(), BasicProperties::with_message_id),
        (properties.kind(), BasicProperties::with_type),
        (properties.app_id(), BasicProperties::with_app_id),
    ] {
        if let Some(text) = text {
            kept = with(kept, text.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::broker::ENVELOPE;

    #[test]
    fn what_begins_anew_is_its_first_publishers_and_does_not_expire() {
        let mut headers = FieldTable::default();
        for name in ["CC", "BCC", "svc-sha256", "svc-code", "svc-detail", "svc-rounds", "svc-uploader", "x-death"] {
            headers.insert(name.into(), AMQPValue::LongString("producer".into()));
        }
        let buried = BasicProperties::default()
            .with_message_id("m".into())
            .with_content_type(ENVELOPE.into())
            .with_expiration("1".into())
            .with_user_id("svc".into())
            .with_headers(headers);
        let said = Said::read(&buried, "svc");
        assert!(!said.is_of_another);
        let anew = anew(&buried, &said, "svc");
        let names: Vec<&str> =
            anew.headers().as_ref().expect("headers").inner().keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["svc-sha256", "svc-uploader"]);
        assert_eq!(Said::read(&anew, "svc").user.as_deref(), Some("producer"));
        assert!(anew.expiration().is_none() && anew.content_type().is_some() && anew.message_id().is_some());
        // What nobody here reads takes no room from what is added.
        let long = |bytes: usize| AMQPValue::LongString("x".repeat(bytes).into());
        let mut headers = FieldTable::default();
        for (name, value) in [("a", long(OTHERS_BYTES)), ("b", long(10)), ("svc-options", long(OTHERS_BYTES))] {
            headers.insert(name.into(), value);
        }
        let kept = kept_headers(&BasicProperties::default().with_headers(headers), |_| true);
        let names: Vec<&str> = kept.inner().keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["b", "svc-options"]);
        // Whoever is not the service must not replay what the service buried.
        assert!(Said::read(&buried, "mallory").is_of_another);
    }
}
