//! Request bodies, from HTTP.
use axum::extract::{FromRequest, Multipart, Request, multipart::Field};
use bytes::Bytes;
use futures_util::{StreamExt, future::BoxFuture, stream};
use http::header::CONTENT_TYPE;
use std::io;
use svc_client::{Body, Code, Failure, FileUpload, Json, Nothing, Wire};
use tokio::sync::{mpsc, oneshot};

/// The longest `options` part of a form.
const OPTIONS_BYTES: usize = 64 * 1024;
/// Pieces of a file that wait for the handler; with it the sender waits too.
const PIECES: usize = 4;

/// Reads a body off a request.
pub trait Decode: Body + Sized {
    /// `limit`: bytes of a body that is held in memory.
    fn decode(request: Request, limit: usize) -> impl Future<Output = Result<Self, Failure>> + Send;
    /// The constraints that types cannot express; also for calls in process, which are never decoded.
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Decode for Nothing {
    async fn decode(_: Request, _: usize) -> Result<Self, Failure> {
        Ok(Nothing {})
    }
}

impl<T: Wire> Decode for Json<T> {
    async fn decode(request: Request, limit: usize) -> Result<Self, Failure> {
        let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(Failure::new(
                Code::UnsupportedMediaType,
                "the body must be sent as `Content-Type: application/json`",
            ));
        }
        let bytes = axum::body::to_bytes(request.into_body(), limit)
            .await
            .map_err(|error| too_large_or_broken(&error, limit))?;
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

fn too_large_or_broken(error: &axum::Error, limit: usize) -> Failure {
    let text = error.to_string();
    if text.contains("length limit") {
        Failure::new(Code::TooLarge, format!("the body is over {limit} bytes"))
            .with("limit", limit)
            .with("setting", "SVC_MAX_BODY_BYTES")
    } else {
        Failure::new(Code::MalformedRequest, format!("the body broke off: {text}"))
    }
}

impl Decode for FileUpload {
    async fn decode(request: Request, _: usize) -> Result<Self, Failure> {
        let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !media_type.to_ascii_lowercase().starts_with("multipart/form-data") {
            return Err(Failure::new(
                Code::UnsupportedMediaType,
                "the body must be `multipart/form-data` with a part `file`",
            ));
        }
        let form = Multipart::from_request(request, &())
            .await
            .map_err(|e| Failure::new(Code::MalformedRequest, e.body_text()))?;
        let (first, started) = oneshot::channel();
        // Reads the form at the handler's pace; ends when either side lets go.
        tokio::spawn(read_form(form, first));
        started.await.unwrap_or_else(|_| Err(Failure::new(Code::MalformedRequest, "the form broke off")))
    }
}

async fn read_form(mut form: Multipart, first: oneshot::Sender<Result<FileUpload, Failure>>) {
    let mut options = None;
    let field = loop {
        match form.next_field().await {
            Ok(Some(field)) if field.name() == Some("file") => break field,
            Ok(Some(field)) => match read_options(field, &options).await {
                Ok(value) => options = Some(value),
                Err(failure) => return drop(first.send(Err(failure))),
            },
            Ok(None) => return drop(first.send(Err(Failure::field("file", "the form has no part `file`")))),
            Err(error) => return drop(first.send(Err(Failure::new(Code::MalformedRequest, error.body_text())))),
        }
    };
    let (pieces, mut received) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    let (end, ended) = oneshot::channel();
    let options_later: BoxFuture<'static, _> = Box::pin(async move {
        ended.await.unwrap_or_else(|_| Err(Failure::new(Code::MalformedRequest, "the form broke off")))
    });
    let upload = FileUpload {
        filename: field.file_name().map(str::to_owned),
        declared_mime: field.content_type().map(str::to_owned),
        length: None,
        bytes: stream::poll_fn(move |cx| received.poll_recv(cx)).boxed(),
        options: options_later,
    };
    if first.send(Ok(upload)).is_err() {
        return;
    }
    if !forward(field, &pieces).await {
        return;
    }
    drop(pieces);
    let _ = end.send(rest_of_form(form, options).await);
}

/// Passes a file's pieces on; false where the client broke off or nobody listens any more.
async fn forward(mut field: Field<'_>, pieces: &mpsc::Sender<io::Result<Bytes>>) -> bool {
    loop {
        match field.chunk().await {
            Ok(Some(piece)) => {
                if pieces.send(Ok(piece)).await.is_err() {
                    return false;
                }
            }
            Ok(None) => return true,
            Err(error) => {
                let _ = pieces.send(Err(io::Error::new(io::ErrorKind::UnexpectedEof, error.body_text()))).await;
                return false;
            }
        }
    }
}

async fn rest_of_form(
    mut form: Multipart,
    mut options: Option<serde_json::Value>,
) -> Result<Option<serde_json::Value>, Failure> {
    loop {
        match form.next_field().await {
            Ok(Some(field)) if field.name() == Some("file") => {
                return Err(Failure::field("file", "the form has two parts `file`; upload one file a call"));
            }
            Ok(Some(field)) => options = Some(read_options(field, &options).await?),
            Ok(None) => return Ok(options),
            Err(error) => return Err(Failure::new(Code::MalformedRequest, error.body_text())),
        }
    }
}

async fn read_options(mut field: Field<'_>, before: &Option<serde_json::Value>) -> Result<serde_json::Value, Failure> {
    match field.name() {
        Some("options") if before.is_some() => {
            return Err(Failure::field("options", "the form has two parts `options`"));
        }
        Some("options") => {}
        name => return Err(Failure::field(name.unwrap_or("?"), "the form takes the parts `file` and `options`")),
    }
    let mut text = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(|e| Failure::new(Code::MalformedRequest, e.body_text()))? {
        text.extend_from_slice(&piece);
        if text.len() > OPTIONS_BYTES {
            return Err(Failure::new(Code::TooLarge, format!("`options` is over {OPTIONS_BYTES} bytes"))
                .with("limit", OPTIONS_BYTES));
        }
    }
    serde_json::from_slice(&text).map_err(|e| Failure::field("options", format!("is not JSON: {e}")))
}
