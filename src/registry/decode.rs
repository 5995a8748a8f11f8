//! Request bodies, from HTTP.
use super::form;
use crate::{admission::Place, listener::BodyStalled, service::Service};
use axum::{body::Body as HttpBody, extract::Request};
use bytes::BytesMut;
use futures_util::StreamExt;
use http::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use svc_client::{Body, Code, Failure, FileUpload, Json, Nothing, Wire};

/// Reads a body off a request.
pub trait Decode: Body + Sized {
    /// Takes a place for the request before its body is read, where the body needs one; 429 where none comes free. The caller
    /// keeps the place until the request is answered.
    fn admit(_: &Service, _: &HeaderMap) -> impl Future<Output = Result<Option<Place>, Failure>> + Send {
        std::future::ready(Ok(None))
    }
    fn decode(service: &Service, request: Request) -> impl Future<Output = Result<Self, Failure>> + Send;
    /// The constraints that types cannot express; also for calls in process, which are never decoded.
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Decode for Nothing {
    async fn decode(_: &Service, _: Request) -> Result<Self, Failure> {
        Ok(Nothing {})
    }
}

impl<T: Wire> Decode for Json<T> {
    async fn admit(service: &Service, headers: &HeaderMap) -> Result<Option<Place>, Failure> {
        let limit = service.settings.max_body_bytes;
        let announced = announced(headers).unwrap_or(limit);
        if announced > limit { Err(body_too_large(limit)) } else { service.admission.body(announced).await }
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
        let bytes = whole(request, service.settings.max_body_bytes).await?;
        let mut deserializer = serde_json::Deserializer::from_slice(&bytes);
        let value: T = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let field = error.path().to_string();
            match error.inner().classify() {
                serde_json::error::Category::Data => {
                    let failure = Failure::new(Code::InvalidField, format!("{field}: {}", error.inner()));
                    if field == "." { failure } else { failure.with("field", field) }
                }
                _ => Failure::new(Code::MalformedRequest, format!("the body is not JSON: {}", error.inner())),
            }
        })?;
        deserializer
            .end()
            .map_err(|error| Failure::new(Code::MalformedRequest, format!("the body is not JSON: {error}")))?;
        value.check().map(|()| Json(value))
    }

    fn check(&self) -> Result<(), Failure> {
        self.0.check()
    }
}

impl Decode for FileUpload {
    async fn admit(service: &Service, headers: &HeaderMap) -> Result<Option<Place>, Failure> {
        form::check_length(announced(headers), service.settings.max_upload_bytes)?;
        service.admission.upload().await.map(Some)
    }

    async fn decode(service: &Service, request: Request) -> Result<Self, Failure> {
        let media_type = media_type(request.headers()).to_owned();
        if !media_type.to_ascii_lowercase().starts_with("multipart/form-data") {
            return Err(Failure::new(
                Code::UnsupportedMediaType,
                "the body must be `multipart/form-data` with a part `file`",
            ));
        }
        form::upload(&media_type, request.into_body(), service.settings.max_upload_bytes).await
    }
}

fn media_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The length that the client says the body has.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A whole body, of at most `limit` bytes.
async fn whole(request: Request, limit: u64) -> Result<BytesMut, Failure> {
    let announced = announced(request.headers()).unwrap_or_default().min(limit);
    let mut bytes = BytesMut::with_capacity(usize::try_from(announced).unwrap_or_default());
    let mut frames = HttpBody::into_data_stream(request.into_body());
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

/// Why a body does not come to its end.
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
