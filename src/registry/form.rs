//! An upload, from a `multipart/form-data` body: at most a part `file` and a part `options`, in either order.
use super::{
    decode::{broken, from_json},
    multipart::{FormError, HEAD_BYTES, Head, Parts, Step},
};
use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::Value;
use std::io;
use svc_client::{Code, Failure, FileUpload};
use tokio::sync::oneshot;

/// The longest `options` part.
const OPTIONS_BYTES: usize = 64 * 1024;
/// How much a form may hold besides its file.
const BESIDE_BYTES: u64 = 2 * OPTIONS_BYTES as u64;

/// A form that is being read.
struct Form {
    parts: Parts,
    frames: BodyDataStream,
    options: Option<Value>,
}

/// Refuses a form that announces more bytes than a file may have.
pub(super) fn check_length(announced: Option<u64>, limit: u64) -> Result<(), Failure> {
    match announced {
        Some(length) if length > limit.saturating_add(BESIDE_BYTES) => Err(too_large(limit)),
        _ => Ok(()),
    }
}

/// Reads up to the bytes of the file, which the upload then streams at its handler's pace.
pub(super) async fn upload(content_type: &str, body: Body, limit: u64) -> Result<FileUpload, Failure> {
    let parts = Parts::new(content_type).map_err(malformed)?;
    let mut form = Form { parts, frames: body.into_data_stream(), options: None };
    let head = form.next_file().await?.ok_or_else(|| Failure::field("file", "the form has no part `file`"))?;
    if head.file_name.as_ref().is_some_and(|name| name.contains('\0')) {
        return Err(Failure::field("file", "the file's name must not contain the character U+0000 (NUL)"));
    }
    let (hand_on, rest) = oneshot::channel::<Form>();
    let pieces = stream::try_unfold((form, hand_on, 0), move |(mut form, hand_on, read)| async move {
        match form.piece().await.map_err(io::Error::other)? {
            Some(piece) => {
                let read = read + piece.len() as u64;
                match read > limit {
                    true => Err(io::Error::other(too_large(limit))),
                    false => Ok(Some((piece, (form, hand_on, read)))),
                }
            }
            None => {
                // Whoever dropped the options does not need the rest.
                drop(hand_on.send(form));
                Ok(None)
            }
        }
    });
    let options = async move {
        let mut form = rest.await.map_err(|_| malformed(FormError::Ended))?;
        match form.next_file().await? {
            Some(_) => Err(Failure::field("file", "the form has two parts `file`; upload one file a call")),
            None => form.end().await,
        }
    };
    Ok(FileUpload {
        filename: head.file_name,
        declared_mime: head.content_type,
        length: None,
        bytes: pieces.boxed(),
        options: Box::pin(options),
    })
}

impl Form {
    /// The next actual step; reads frames as they are needed.
    async fn step(&mut self) -> Result<Step, Failure> {
        loop {
            match self.parts.next().map_err(malformed)? {
                Step::NeedsFrame => match self.frames.next().await {
                    Some(frame) => self.parts.feed(&frame.map_err(|error| broken(&error))?),
                    None => return Err(malformed(FormError::Ended)),
                },
                step => return Ok(step),
            }
        }
    }

    /// The next part `file`, where there is one; reads `options` on the way and refuses every other part.
    async fn next_file(&mut self) -> Result<Option<Head>, Failure> {
        loop {
            match self.step().await? {
                Step::Part(head) => match head.name.as_deref() {
                    Some("file") => return Ok(Some(head)),
                    Some("options") if self.options.is_some() => {
                        return Err(Failure::field("options", "the form has two parts `options`"));
                    }
                    Some("options") => self.options = Some(self.read_options().await?),
                    name => {
                        return Err(Failure::field(
                            name.unwrap_or("?"),
                            "the form takes the parts `file` and `options`",
                        ));
                    }
                },
                Step::EndOfForm => return Ok(None),
                _ => {}
            }
        }
    }

    async fn read_options(&mut self) -> Result<Value, Failure> {
        let mut text = Vec::new();
        while let Some(piece) = self.piece().await? {
            text.extend_from_slice(&piece);
            if text.len() > OPTIONS_BYTES {
                return Err(Failure::new(Code::TooLarge, format!("`options` is over {OPTIONS_BYTES} bytes"))
                    .with("limit", OPTIONS_BYTES));
            }
        }
        from_json(&text, "the text").map_err(|failure| match failure.code {
            Code::MalformedRequest => Failure::field("options", failure.detail),
            _ => failure,
        })
    }

    /// The next bytes of the part that is being read; `None` at its end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        match self.step().await? {
            Step::Data(bytes) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// Reads what little may stand behind the form, so that the connection can be used again, and gives the options.
    async fn end(mut self) -> Result<Option<Value>, Failure> {
        let mut behind = 0;
        while let Some(frame) = self.frames.next().await {
            behind += frame.map_err(|error| broken(&error))?.len();
            if behind > HEAD_BYTES {
                return Err(malformed(FormError::Damaged("too much follows its last boundary")));
            }
        }
        Ok(self.options)
    }
}

fn malformed(error: FormError) -> Failure {
    Failure::new(Code::MalformedRequest, error)
}

fn too_large(limit: u64) -> Failure {
    Failure::new(Code::TooLarge, format!("the file is over {limit} bytes"))
        .with("limit", limit)
        .with("setting", "SVC_MAX_UPLOAD_BYTES")
}
