//! Receives an upload from a `multipart/form-data` body: at most one part `file` and one part `options`, in either
//! order. The file is spooled to disk as it arrives, so a handler has the complete form before it starts.
use super::{
    decode::{broken, from_json},
    multipart::{FormError, HEAD_BYTES, Head, Parts, Step},
};
use crate::{
    error::OrFail,
    service::Service,
    spool::{Spool, SpooledUpload},
};
use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use std::{io, path::PathBuf};
use svc_client::{Code, Failure, FileUpload, wire::OwnJson};

/// The longest `options` part.
const OPTIONS_BYTES: usize = 64 * 1024;
/// How much a form may hold besides its file.
const BESIDE_BYTES: u64 = 2 * OPTIONS_BYTES as u64;

/// The folder of spooled files, and how large one may be.
pub(super) struct SpoolLimits {
    folder: PathBuf,
    bytes: u64,
}

impl SpoolLimits {
    pub(super) fn of(service: &Service) -> SpoolLimits {
        SpoolLimits { folder: service.spool.folder().to_owned(), bytes: service.settings.max_upload_bytes }
    }

    fn empty_spool(&self) -> Result<Spool, Failure> {
        Spool::new(&self.folder).or_fail()
    }

    /// Appends a piece; 413 once the file is too large.
    async fn append(&self, mut spool: Spool, piece: Bytes) -> Result<Spool, Failure> {
        if spool.byte_size() + piece.len() as u64 > self.bytes {
            return Err(too_large(self.bytes));
        }
        blocking(move || spool.write(&piece).map(|()| spool)).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Failure::new(Code::Internal, e))?.or_fail()
}

/// Refuses a form that announces more bytes than a file may have.
pub(super) fn check_length(announced: Option<u64>, limit: u64) -> Result<(), Failure> {
    match announced {
        Some(length) if length > limit.saturating_add(BESIDE_BYTES) => Err(too_large(limit)),
        _ => Ok(()),
    }
}

/// Reads a form to its end.
pub(super) async fn upload(content_type: &str, body: Body, limits: SpoolLimits) -> Result<SpooledUpload, Failure> {
    let mut form = FormBody::new(content_type, body)?;
    let (mut file, mut options) = (None, None);
    while let Some(head) = form.part().await? {
        match head.name.as_deref() {
            Some("file") if file.is_some() => {
                return Err(Failure::field("file", "the form has two parts `file`; upload one file per call"));
            }
            Some("file") => {
                check_name(head.file_name.as_deref())?;
                let mut spool = limits.empty_spool()?;
                while let Some(piece) = form.piece().await? {
                    spool = limits.append(spool, piece).await?;
                }
                file = Some((head, blocking(move || spool.finish()).await?));
            }
            Some("options") if options.is_some() => {
                return Err(Failure::field("options", "the form has two parts `options`"));
            }
            Some("options") => options = Some(form.options().await?),
            name => {
                return Err(Failure::field(name.unwrap_or("?"), "the form takes the parts `file` and `options`"));
            }
        }
    }
    form.end().await?;
    let (head, file) = file.ok_or_else(|| Failure::field("file", "the form has no part `file`"))?;
    Ok(SpooledUpload { filename: head.file_name, declared_mime: head.content_type, file, options })
}

/// Spools a file from a caller in this process.
pub(super) async fn spool(upload: FileUpload, limits: SpoolLimits) -> Result<SpooledUpload, Failure> {
    let FileUpload { filename, declared_mime, mut bytes, options, .. } = upload;
    check_name(filename.as_deref())?;
    let mut spool = limits.empty_spool()?;
    while let Some(piece) = bytes.next().await {
        let piece =
            piece.map_err(|error| Failure::new(Code::MalformedRequest, format!("the upload broke off: {error}")))?;
        spool = limits.append(spool, piece).await?;
    }
    Ok(SpooledUpload { filename, declared_mime, file: blocking(move || spool.finish()).await?, options })
}

fn check_name(name: Option<&str>) -> Result<(), Failure> {
    match name {
        Some(name) if name.contains('\0') => {
            Err(Failure::field("file", "the file's name must not contain the character U+0000 (NUL)"))
        }
        _ => Ok(()),
    }
}

/// A form that is being read.
pub(crate) struct FormBody {
    parts: Parts,
    frames: BodyDataStream,
}

impl FormBody {
    /// The form in a body of this media type.
    pub(crate) fn new(content_type: &str, body: Body) -> Result<FormBody, Failure> {
        Ok(FormBody { parts: Parts::new(content_type).map_err(malformed)?, frames: body.into_data_stream() })
    }

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

    /// The head of the next part; `None` after the last one.
    pub(crate) async fn part(&mut self) -> Result<Option<Head>, Failure> {
        loop {
            match self.step().await? {
                Step::Part(head) => return Ok(Some(head)),
                Step::EndOfForm => return Ok(None),
                _ => {}
            }
        }
    }

    async fn options(&mut self) -> Result<Value, Failure> {
        let text = self.short("options", OPTIONS_BYTES).await?;
        let read: Result<OwnJson, Failure> = from_json(&text, "the text", Vec::new, OPTIONS_BYTES as u64);
        let read = read.map_err(|failure| match failure.code {
            Code::MalformedRequest => Failure::field("options", failure.detail),
            _ if failure.members.contains_key("field") => failure,
            _ => {
                let detail = format!("options: {}", failure.detail);
                Failure { detail, ..failure }.with("field", "options")
            }
        })?;
        Ok(read.0.unwrap_or_default())
    }

    /// The whole part that is being read; 413 if it is over `most` bytes.
    async fn short(&mut self, name: &str, most: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > most {
                return Err(Failure::new(Code::TooLarge, format!("`{name}` is over {most} bytes"))
                    .with("limit", most)
                    .with("remedy", format!("send a shorter `{name}`")));
            }
        }
        Ok(bytes)
    }

    /// The text of a field, without what is not UTF-8.
    pub(crate) async fn text(&mut self, name: &str, most: usize) -> Result<String, Failure> {
        Ok(String::from_utf8_lossy(&self.short(name, most).await?).into_owned())
    }

    /// The next bytes of the part that is being read; `None` at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        match self.step().await? {
            Step::Data(bytes) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// Reads the little that may follow the form, so that the connection can be used again.
    async fn end(mut self) -> Result<(), Failure> {
        let mut behind = 0;
        while let Some(frame) = self.frames.next().await {
            behind += frame.map_err(|error| broken(&error))?.len();
            if behind > HEAD_BYTES {
                return Err(malformed(FormError::Damaged("too much follows its last boundary")));
            }
        }
        Ok(())
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
