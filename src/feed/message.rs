//! What a message says: about itself in its properties, and about its file in an envelope or in its headers. Everything here was written
//! by somebody else.
use super::broker::ENVELOPE;
use crate::store::bulk::Receipt;
use chrono::{DateTime, Utc};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use svc_client::{
    Code, Failure, Params,
    wire::{OwnJson, UploadQuery},
};

/// The only type of message.
pub const TYPE: &str = "svc.upload.v1";
/// The longest id of a message, in characters.
const ID_CHARACTERS: usize = 200;
/// Headers of a message that this service put aside itself: who uploads, and how often it was tried.
pub const UPLOADER: &str = "svc-uploader";
pub const ROUNDS: &str = "svc-rounds";
/// Headers of a message that this service gave up: why.
pub const CODE: &str = "svc-code";
pub const DETAIL: &str = "svc-detail";

/// How much an envelope may have besides the text of its file.
const ENVELOPE_BYTES: u64 = 64 << 10;
/// The longest options of a file; as values they take many times as much.
const OPTIONS_BYTES: usize = 64 << 10;

/// The header in which a publisher may name its trace.
pub const TRACEPARENT: &str = "traceparent";

/// What the properties of a message say.
#[derive(Clone, Debug)]
pub struct Said {
    pub message_id: Option<String>,
    /// The user of the broker that published it, as the broker checked it.
    pub user: Option<String>,
    /// How often it was put aside because something was missing.
    pub rounds: u32,
    /// Whether the service put it aside or gave it up under a user of the broker that is not ours.
    pub is_of_another: bool,
    /// The trace that its publisher is in, as W3C writes it.
    pub traceparent: Option<String>,
    reply_to: Option<String>,
    correlation_id: Option<String>,
    kind: Option<String>,
    content_type: Option<String>,
    /// How the body is packed or encoded.
    content_encoding: Option<String>,
}

/// Where the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the message, as they are.
    Body,
    /// In the message, in base64.
    Inline(String),
    /// In a file under SVC_BULK_ROOT.
    Path(String),
    Url(String),
}

/// A file that a message brings.
#[derive(Debug)]
pub struct Upload {
    pub source: Source,
    /// `sha256:<hex>`.
    pub sha256: Option<String>,
    pub byte_size: Option<u64>,
    pub filename: Option<String>,
    pub declared_mime: Option<String>,
    pub query: UploadQuery,
    pub options: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(default)]
    v: Option<u32>,
    source: EnvelopeSource,
    sha256: Option<String>,
    byte_size: Option<u64>,
    filename: Option<String>,
    declared_mime: Option<String>,
    parent_id: Option<i64>,
    private: Option<bool>,
    priority: Option<i32>,
    /// As it stands: it is read once its length is known.
    #[serde(borrow)]
    options: Option<&'a RawValue>,
    event_time: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum EnvelopeSource {
    InlineBase64(String),
    Path(String),
    Url(String),
}

fn malformed(detail: impl std::fmt::Display) -> Failure {
    Failure::new(Code::MalformedRequest, detail).with("remedy", "see docs/feed.md for what a message holds")
}

fn text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::LongString(text) => String::from_utf8(text.as_bytes().to_vec()).ok()?,
        AMQPValue::ShortString(text) => text.as_str().to_owned(),
        AMQPValue::Boolean(flag) => flag.to_string(),
        AMQPValue::ShortShortInt(number) => number.to_string(),
        AMQPValue::ShortShortUInt(number) => number.to_string(),
        AMQPValue::ShortInt(number) => number.to_string(),
        AMQPValue::ShortUInt(number) => number.to_string(),
        AMQPValue::LongInt(number) => number.to_string(),
        AMQPValue::LongUInt(number) => number.to_string(),
        AMQPValue::LongLongInt(number) => number.to_string(),
        _ => return None,
    })
}

pub(super) fn header(headers: Option<&FieldTable>, name: &str) -> Result<Option<String>, Failure> {
    let Some(value) = headers.and_then(|headers| headers.inner().get(name)) else { return Ok(None) };
    text(value).map(Some).ok_or_else(|| malformed(format!("the header {name} is not a text, a number or a flag")))
}

impl Said {
    /// Reads the properties. `user` is the one of our own connection: only what it published can have been put aside by us.
    pub fn read(properties: &BasicProperties, user: &str) -> Said {
        let of = |property: &Option<lapin::types::ShortString>| property.as_ref().map(|text| text.as_str().to_owned());
        let headers = properties.headers().as_ref();
        let ours = of(properties.user_id()).is_some_and(|by| by == user);
        let aside = |name: &str| header(headers, name).ok().flatten().filter(|_| ours);
        let by = match aside(UPLOADER) {
            Some(uploader) => Some(uploader).filter(|uploader| !uploader.is_empty()),
            None => of(properties.user_id()),
        };
        Said {
            message_id: of(properties.message_id()),
            user: by,
            is_of_another: !ours && headers.is_some_and(|headers| headers.contains_key(UPLOADER)),
            traceparent: header(headers, TRACEPARENT).ok().flatten(),
            rounds: aside(ROUNDS).and_then(|rounds| rounds.parse().ok()).unwrap_or_default(),
            reply_to: of(properties.reply_to()).filter(|to| !to.is_empty()),
            correlation_id: of(properties.correlation_id()),
            kind: of(properties.kind()),
            content_type: of(properties.content_type()),
            content_encoding: of(properties.content_encoding()),
        }
    }

    /// What is known of the message, if it can be told from others. `prefix` begins the names of our own queues, where nobody reads
    /// outcomes.
    pub fn receipt(&self, prefix: &str) -> Result<Receipt, Failure> {
        let id = self.message_id.as_deref().unwrap_or_default();
        let is_usable = (1..=ID_CHARACTERS).contains(&id.chars().count()) && !id.contains('\0');
        if !is_usable {
            return Err(malformed(format!("the property message_id takes 1 to {ID_CHARACTERS} characters and no NUL")));
        }
        let storable = |text: &Option<String>| text.clone().filter(|text| !text.contains('\0'));
        let ours = format!("{prefix}.");
        Ok(Receipt {
            principal_id: None,
            message_id: id.to_owned(),
            reply_to: storable(&self.reply_to).filter(|queue| !queue.starts_with(&ours)),
            correlation_id: storable(&self.correlation_id),
        })
    }

    /// What the message says of its file, which may have this many bytes if it is in the message.
    pub fn upload(&self, headers: Option<&FieldTable>, body: &[u8], inline_bytes: u64) -> Result<Upload, Failure> {
        if self.kind.as_deref().is_some_and(|kind| kind != TYPE) {
            return Err(malformed(format!("the property type takes {TYPE}")));
        }
        if let Some(packing) = self.content_encoding.as_deref().filter(|coding| !is_plain(coding)) {
            let detail = format!(
                "the body is packed as `{packing}` by its property content_encoding, and nothing here unpacks one"
            );
            return Err(Failure::new(Code::UnsupportedMediaType, detail)
                .with("remedy", "publish the file as it is, without content_encoding, and with the SHA-256 of that"));
        }
        if self.is_of_another {
            let failure = malformed(format!("only the service itself writes the header {UPLOADER}"));
            return Err(failure
                .with("remedy", "publish it without this header, or replay it by the SVC_AMQP_URL of the service"));
        }
        let mut upload = match self.content_type.as_deref() {
            Some(content_type) if is_envelope(content_type) => {
                // Nothing of what is too large is read.
                fits(body.len() as u64, envelope_limit(inline_bytes), inline_bytes)?;
                upload_of(envelope(body)?)?
            }
            content_type => {
                fits(body.len() as u64, inline_bytes, inline_bytes)?;
                headed(headers, content_type)?
            }
        };
        if let Some(sha256) = upload.sha256.take() {
            upload.sha256 = Some(hash(&sha256)?);
        } else if !matches!(upload.source, Source::Url(_)) {
            return Err(Failure::field("sha256", "a message names the SHA-256 of its file, unless that is fetched"));
        }
        upload.query.check()?;
        Ok(upload)
    }
}

/// Whether bodies under this `content_encoding` are as they are: it names nothing, an encoding of MIME that changes no byte, or the characters of
/// a text, as some libraries do unasked.
fn is_plain(coding: &str) -> bool {
    const PLAIN: [&str; 8] = ["", "identity", "binary", "7bit", "8bit", "utf-8", "utf8", "us-ascii"];
    PLAIN.iter().any(|plain| coding.trim().eq_ignore_ascii_case(plain))
}

/// Whether a media type is that of an envelope, in any case and with any parameters, as some libraries add them unasked.
pub fn is_envelope(media_type: &str) -> bool {
    media_type.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(ENVELOPE))
}

/// A SHA-256 as it is stored.
fn hash(text: &str) -> Result<String, Failure> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
    match hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(format!("sha256:{hex}")),
        false => Err(Failure::field("sha256", "takes 64 hexadecimal digits")),
    }
}

/// How long an envelope may be, for a file of up to this many bytes as base64.
pub(super) fn envelope_limit(inline_bytes: u64) -> u64 {
    inline_bytes.div_ceil(3) * 4 + ENVELOPE_BYTES
}

/// Refuses what is longer than its limit, by the limit of files in messages.
pub(super) fn fits(bytes: u64, limit: u64, inline_bytes: u64) -> Result<(), Failure> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Failure::new(Code::TooLarge, format!("a message holds files of up to {inline_bytes} bytes"))
        .with("limit", inline_bytes)
        .with("setting", "SVC_BULK_INLINE_BYTES")
        .with("remedy", "put the file under SVC_BULK_ROOT and name its path, or upload it by POST /ingest/file"))
}

/// The options of a file from their text.
fn options(text: &str, field: &str) -> Result<Value, Failure> {
    if text.len() > OPTIONS_BYTES {
        return Err(Failure::field(field, format!("takes up to {OPTIONS_BYTES} bytes")));
    }
    let read: Result<OwnJson, _> = serde_json::from_str(text);
    let read = read.map_err(|error| Failure::field(field, format!("takes the JSON of options: {error}")))?;
    Ok(read.0.unwrap_or_default())
}

/// A line of a manifest, which is an envelope whose `sha256` may be missing.
pub struct Line {
    pub upload: Upload,
    /// Whether the line itself says who may read the file, and how urgent it is.
    pub says_private: bool,
    pub says_priority: bool,
}

/// What a line of a manifest says.
pub fn line(text: &[u8]) -> Result<Line, Failure> {
    let read = envelope(text)?;
    let (says_private, says_priority) = (read.private.is_some(), read.priority.is_some());
    let mut upload = upload_of(read)?;
    upload.sha256 = upload.sha256.as_deref().map(hash).transpose()?;
    upload.query.check()?;
    Ok(Line { upload, says_private, says_priority })
}

fn envelope(body: &[u8]) -> Result<Envelope<'_>, Failure> {
    let read: Result<Envelope<'_>, _> = serde_json::from_slice(body);
    let read = read.map_err(|error| malformed(format!("the body is not the JSON of a file: {error}")))?;
    if read.v.is_some_and(|version| version != 1) {
        return Err(malformed("v takes 1"));
    }
    Ok(read)
}

fn upload_of(read: Envelope<'_>) -> Result<Upload, Failure> {
    Ok(Upload {
        source: match read.source {
            EnvelopeSource::InlineBase64(text) => Source::Inline(text),
            EnvelopeSource::Path(path) => Source::Path(path),
            EnvelopeSource::Url(url) => Source::Url(url),
        },
        sha256: read.sha256,
        byte_size: read.byte_size,
        filename: read.filename,
        declared_mime: read.declared_mime,
        query: UploadQuery {
            parent_id: read.parent_id,
            private: read.private.unwrap_or_default(),
            priority: read.priority.unwrap_or_default(),
            event_time: read.event_time,
        },
        options: read.options.map(|text| options(text.get(), "options")).transpose()?.filter(|value| !value.is_null()),
    })
}

/// A message whose body is the file, and whose headers say the rest.
fn headed(headers: Option<&FieldTable>, content_type: Option<&str>) -> Result<Upload, Failure> {
    let takes = |name: &str, what: &str| Failure::field(name, format!("takes {what}"));
    let parsed = |name: &str, what: &str| {
        let text = header(headers, name)?;
        text.map(|text| text.trim().parse::<i64>().map_err(|_| takes(name, what))).transpose()
    };
    let options = header(headers, "svc-options")?.map(|text| options(&text, "svc-options"));
    let private = match header(headers, "svc-private")?.as_deref() {
        None | Some("false" | "0") => false,
        Some("true" | "1") => true,
        Some(_) => return Err(takes("svc-private", "true or false")),
    };
    let time = header(headers, "svc-event-time")?;
    let time =
        time.map(|text| text.parse().map_err(|_| takes("svc-event-time", "a time such as 2026-05-01T12:00:00Z")));
    let priority = parsed("svc-priority", "a whole number from -100 to 100")?.unwrap_or_default();
    Ok(Upload {
        source: Source::Body,
        sha256: header(headers, "svc-sha256")?,
        byte_size: None,
        filename: header(headers, "svc-filename")?,
        declared_mime: content_type.map(str::to_owned),
        query: UploadQuery {
            parent_id: parsed("svc-parent-id", "the id of a document")?,
            private,
            priority: priority.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
            event_time: time.transpose()?,
        },
        options: options.transpose()?,
    })
}

#[cfg(test)]
mod tests;
