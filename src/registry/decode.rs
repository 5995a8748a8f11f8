//! Receives request bodies, from HTTP and from callers in process.
use super::{
    form::{self, SpoolLimits},
    numbers, serving,
    strict::Strict,
};
use crate::{
    admission::{Place, amount::Amount},
    service::Service,
    spool::SpooledUpload,
};
use axum::{
    body::{Body as RequestBody, HttpBody},
    extract::Request,
};
use bytes::BytesMut;
use futures_util::StreamExt;
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::Segment;
use std::{collections::BTreeMap, time::Duration};
use svc_client::{
    Body, Code, Failure, FileUpload, Json, Nothing, OptionalJson, RdfSyntax, RdfText, TurtleText, Wire,
    constraint::Constraint, wire::EmbedQuery,
};
use svc_ids::PrincipalId;
use tokio::sync::oneshot::{self, error::RecvError};

/// The client sent too little of a body for too long; the listener raises this error.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body stalled: less than {least} bytes of it arrived in {within:?}")]
pub struct BodyStalled {
    pub least: u64,
    pub within: Duration,
}

/// Receives a body, from a request or from a caller in this process.
pub trait Decode: Body + Sized {
    /// The body as a handler receives it.
    type Received: Send + 'static;

    /// Takes a slot for the request before its body is read, if the body needs one; 429 if none becomes free. The
    /// caller keeps the slot until the request is answered. A body that is known to be empty needs none.
    fn admit(
        _: &Service,
        _: Option<PrincipalId>,
        _: &HeaderMap,
    ) -> impl Future<Output = Result<Option<Place>, Failure>> + Send {
        std::future::ready(Ok(None))
    }
    /// Reads the body of a request.
    fn decode(service: &Service, request: Request) -> impl Future<Output = Result<Self::Received, Failure>> + Send;
    /// The same body once more, for a second try; `None` if it is received only once.
    fn again(_: &Self::Received) -> Option<Self::Received> {
        None
    }
    /// Receives the body of a call in process. It is never decoded, so the constraints that types cannot express are
    /// checked here.
    fn receive(self, service: &Service) -> impl Future<Output = Result<Self::Received, Failure>> + Send;
}

/// A body up to this size is read at once.
const AT_ONCE_BYTES: usize = 64 << 10;

/// How long the end of a body that may be empty is waited for.
const END_OF_NOTHING: Duration = Duration::from_secs(1);

impl Decode for Nothing {
    type Received = Nothing;

    async fn decode(_: &Service, request: Request) -> Result<Self, Failure> {
        if is_empty(request.body()) {
            return Ok(Nothing {});
        }
        let whereto = format!("{} {}", request.method(), request.uri().path());
        let refusal = || {
            Failure::new(Code::UnsupportedMediaType, format!("{whereto} takes no body"))
                .with("remedy", "send the request without a body")
        };
        // Nobody waits for bytes that will be refused: without a token a client could hold connections with that.
        if request.body().size_hint().lower() > 0 {
            return Err(refusal());
        }
        // A body of unknown length may still be empty.
        match tokio::time::timeout(END_OF_NOTHING, whole(request, 0)).await {
            Ok(Ok(_)) => Ok(Nothing {}),
            Ok(Err(failure)) if failure.code != Code::TooLarge => Err(failure),
            _ => Err(refusal()),
        }
    }

    fn again(_: &Self) -> Option<Self> {
        Some(Nothing {})
    }

    async fn receive(self, _: &Service) -> Result<Self, Failure> {
        Ok(self)
    }
}

impl<T: Wire> Decode for Json<T> {
    type Received = Self;

    async fn admit(
        service: &Service,
        principal: Option<PrincipalId>,
        headers: &HeaderMap,
    ) -> Result<Option<Place>, Failure> {
        let length = length(headers, T::most_bytes(service.settings.max_body_bytes))?;
        service.admission.body(principal, length).await
    }

    async fn decode(service: &Service, request: Request) -> Result<Self, Failure> {
        let media_type = media_type(request.headers());
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(Failure::new(
                Code::UnsupportedMediaType,
                "the body must be sent as `Content-Type: application/json`",
            ));
        }
        let most = T::most_bytes(service.settings.max_body_bytes);
        let shows_embed = T::SHOWS_EMBED && serving::query::<EmbedQuery>(request.uri().query())?.include_embed;
        let bytes = whole(request, most).await?;
        let is_small = bytes.len() <= AT_ONCE_BYTES;
        let read = move || -> Result<Self, Failure> {
            let mut value: T = from_json(&bytes, "the body", T::constraints, most)
                .map_err(|failure| retired::<T>(&bytes).unwrap_or(failure))?;
            if shows_embed {
                value.show_embed();
            }
            value.check().map(|()| Json(value))
        };
        if is_small {
            return read();
        }
        // A large body takes a while to read, and requests that share the thread would wait for it.
        let (done, outcome) = oneshot::channel();
        blocking(Box::new(move || drop(done.send(read()))));
        outcome.await.map_err(unread)?
    }

    fn again(received: &Self) -> Option<Self> {
        Some(Json(received.0.clone()))
    }

    async fn receive(self, _: &Service) -> Result<Self, Failure> {
        self.0.check().map(|()| self)
    }
}

impl<T: Wire> Decode for OptionalJson<T> {
    type Received = Self;

    async fn admit(
        service: &Service,
        principal: Option<PrincipalId>,
        headers: &HeaderMap,
    ) -> Result<Option<Place>, Failure> {
        Json::<T>::admit(service, principal, headers).await
    }

    async fn decode(service: &Service, request: Request) -> Result<Self, Failure> {
        // A client may name a media type and send nothing.
        if is_empty(request.body())
            || (media_type(request.headers()).is_empty() && announced(request.headers()).is_none())
        {
            return Nothing::decode(service, request).await.map(|_| OptionalJson(None));
        }
        Json::decode(service, request).await.map(|Json(value)| OptionalJson(Some(value)))
    }

    fn again(received: &Self) -> Option<Self> {
        Some(OptionalJson(received.0.clone()))
    }

    async fn receive(self, _: &Service) -> Result<Self, Failure> {
        self.0.as_ref().map_or(Ok(()), T::check).map(|()| self)
    }
}

impl Decode for RdfText {
    type Received = Self;

    async fn admit(
        service: &Service,
        principal: Option<PrincipalId>,
        headers: &HeaderMap,
    ) -> Result<Option<Place>, Failure> {
        let length = length(headers, service.settings.max_body_bytes)?;
        service.admission.body(principal, length).await
    }

    async fn decode(service: &Service, request: Request) -> Result<Self, Failure> {
        let syntax = syntax(request.headers(), &RdfSyntax::ALL)?;
        Ok(RdfText { syntax, text: text(service, request).await? })
    }

    async fn receive(self, _: &Service) -> Result<Self, Failure> {
        Ok(self)
    }
}

impl Decode for TurtleText {
    type Received = Self;

    async fn admit(
        service: &Service,
        principal: Option<PrincipalId>,
        headers: &HeaderMap,
    ) -> Result<Option<Place>, Failure> {
        RdfText::admit(service, principal, headers).await
    }

    async fn decode(service: &Service, request: Request) -> Result<Self, Failure> {
        syntax(request.headers(), &[RdfSyntax::Turtle])?;
        text(service, request).await.map(TurtleText)
    }

    async fn receive(self, _: &Service) -> Result<Self, Failure> {
        Ok(self)
    }
}

/// Does work on a thread where no other request waits for it. The type of the work is erased, because a task is compiled once for each type of
/// work.
fn blocking(work: Box<dyn FnOnce() + Send>) {
    drop(tokio::task::spawn_blocking(work));
}

/// The failure for a large body whose reader ended without an outcome, as it does if it panics.
fn unread(_: RecvError) -> Failure {
    tracing::error!("the reader of a large body ended without an outcome");
    Failure::new(Code::Internal, "the body could not be read; the log has the cause under this request's id")
}

/// The form of RDF that a body is sent in; 415, which names the media type, if it is none of these.
fn syntax(headers: &HeaderMap, accepted: &[RdfSyntax]) -> Result<RdfSyntax, Failure> {
    let media_type = media_type(headers);
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let known = accepted.iter().copied().find(|syntax| essence.eq_ignore_ascii_case(syntax.media_type()));
    known.ok_or_else(|| {
        let accepted = accepted.iter().map(|syntax| syntax.media_type()).collect::<Vec<_>>().join("` or `");
        let sent = match essence {
            "" => "it was sent without one".to_owned(),
            sent => format!("it was sent as `{}`", sent.chars().take(100).collect::<String>()),
        };
        let detail = format!("the body must be sent as `Content-Type: {accepted}`, and {sent}");
        Failure::new(Code::UnsupportedMediaType, detail)
    })
}

/// A whole body, as a text.
async fn text(service: &Service, request: Request) -> Result<String, Failure> {
    let bytes = whole(request, service.settings.max_body_bytes).await?;
    String::from_utf8(bytes.into()).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(Code::MalformedRequest, format!("the body is not UTF-8 from byte {at} on"))
    })
}

/// Whether a body is known to be empty.
pub(super) fn is_empty(body: &RequestBody) -> bool {
    body.is_end_stream() || body.size_hint().exact() == Some(0)
}

/// Reads a JSON text strictly, which has at most `most` bytes. `what` names the text in the error.
pub(super) fn from_json<T: DeserializeOwned>(
    bytes: &[u8],
    what: &str,
    constraints: Constraints,
    most: u64,
) -> Result<T, Failure> {
    let no_json =
        |error: &serde_json::Error| Failure::new(Code::MalformedRequest, format!("{what} is not JSON: {error}"));
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let amount = Amount::of_bytes(most);
    let value = serde_path_to_error::deserialize(Strict::json(&mut deserializer, &amount)).map_err(|error| {
        let index = error.path().iter().find_map(|segment| match segment {
            Segment::Seq { index } => Some(*index),
            _ => None,
        });
        let (field, error) = (error.path().to_string(), error.into_inner());
        if !error.is_data() {
            return no_json(&error);
        }
        let reason = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let failure = misfit(what, &field, reason.strip_suffix(&place).unwrap_or(&reason), constraints);
        index.into_iter().fold(failure, |failure, index| failure.with("index", index))
    })?;
    deserializer.end().map_err(|error| no_json(&error))?;
    if let Some(number) = numbers::first_rounded(bytes) {
        let shown: String = number.chars().take(50).collect();
        return Err(Failure::new(
            Code::InvalidField,
            format!("{what}: the number {shown} has more digits than are kept"),
        )
        .with("remedy", "send it as a string, or with the digits of a 64-bit integer or a double-precision number"));
    }
    Ok(value)
}

/// What fields of a request take beyond their types.
pub(super) type Constraints = fn() -> Vec<(&'static str, Constraint)>;

/// The 422 that names the field, or the whole if no field is concerned.
pub(super) fn misfit(whole: &str, path: &str, reason: &str, constraints: Constraints) -> Failure {
    // serde's path ends above a field that is missing, or is there twice.
    for (says, takes) in [("missing field `", "must be given"), ("duplicate field `", "must be given only once")] {
        if let Some(field) = reason.strip_prefix(says).and_then(|rest| rest.strip_suffix('`')) {
            let field = if path == "." { field.to_owned() } else { format!("{path}.{field}") };
            return Failure::field(&field, takes);
        }
    }
    if path == "." {
        return Failure::new(Code::InvalidField, format!("{whole}: {reason}"));
    }
    match constraints().into_iter().find(|(field, _)| *field == path) {
        // What the field takes is less than what its type holds.
        Some((_, Constraint::Whole(least, most))) => {
            Failure::field(path, format!("takes a whole number from {least} to {most}"))
        }
        _ => Failure::field(path, reason),
    }
}

/// The failure for a field of an earlier release, if the body has one.
fn retired<T: Wire>(body: &[u8]) -> Option<Failure> {
    let fields: BTreeMap<String, IgnoredAny> = serde_json::from_slice(body).ok()?;
    fields.keys().find_map(|field| T::retired(field))
}

impl Decode for FileUpload {
    type Received = SpooledUpload;

    async fn admit(
        service: &Service,
        principal: Option<PrincipalId>,
        headers: &HeaderMap,
    ) -> Result<Option<Place>, Failure> {
        form::check_length(announced(headers), service.settings.max_upload_bytes)?;
        service.admission.upload(principal).await.map(Some)
    }

    async fn decode(service: &Service, request: Request) -> Result<SpooledUpload, Failure> {
        let media_type = media_type(request.headers()).to_owned();
        if !media_type.to_ascii_lowercase().starts_with("multipart/form-data") {
            return Err(Failure::new(
                Code::UnsupportedMediaType,
                "the body must be `multipart/form-data` with a part `file`",
            ));
        }
        form::upload(&media_type, request.into_body(), SpoolLimits::of(service)).await
    }

    async fn receive(self, service: &Service) -> Result<SpooledUpload, Failure> {
        form::spool(self, SpoolLimits::of(service)).await
    }
}

fn media_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// 415 for a body that is packed, because nothing here unpacks one: a file would be stored as its packing, and a text would be no JSON.
pub(super) fn unpacked(headers: &HeaderMap) -> Result<(), Failure> {
    let is_none = |coding: &str| {
        let coding = coding.trim();
        coding.is_empty() || coding.eq_ignore_ascii_case("identity")
    };
    let mut named = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let Some(packing) = named.find(|codings| !codings.split(',').all(is_none)) else { return Ok(()) };
    let shown: String = packing.chars().take(100).collect();
    let detail = format!("the body is packed as `{shown}`, and this service unpacks none");
    Err(Failure::new(Code::UnsupportedMediaType, detail).with("remedy", "send it unpacked, without `Content-Encoding`"))
}

/// The length that the client announces for the body.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// How long a body may be: what the client announces, or the limit; 413 if it announces more.
pub(super) fn length(headers: &HeaderMap, limit: u64) -> Result<u64, Failure> {
    let announced = announced(headers).unwrap_or(limit);
    if announced > limit { Err(body_too_large(limit)) } else { Ok(announced) }
}

/// A whole body of at most `limit` bytes.
pub(super) async fn whole(request: Request, limit: u64) -> Result<BytesMut, Failure> {
    let announced = announced(request.headers()).unwrap_or_default().min(limit);
    let mut bytes = BytesMut::with_capacity(usize::try_from(announced).unwrap_or_default());
    let mut frames = RequestBody::into_data_stream(request.into_body());
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|error| broken(&error))?;
        if (bytes.len() + frame.len()) as u64 > limit {
            return Err(body_too_large(limit));
        }
        bytes.extend_from_slice(&frame);
    }
    Ok(bytes)
}

fn body_too_large(limit: u64) -> Failure {
    Failure::new(Code::TooLarge, format!("the body is over {limit} bytes"))
        .with("limit", limit)
        .with("setting", "SVC_MAX_BODY_BYTES")
}

/// Why a body did not arrive completely.
pub(super) fn broken(error: &axum::Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(stalled) = error.downcast_ref::<BodyStalled>() {
            return Failure::new(Code::RequestTimeout, stalled)
                .with("setting", "SVC_BODY_TIMEOUT_SECONDS")
                .with("remedy", "send the body without long pauses");
        }
        cause = error.source();
    }
    Failure::new(Code::MalformedRequest, format!("the body broke off: {error}"))
}
