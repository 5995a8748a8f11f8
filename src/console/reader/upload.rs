//! Files that somebody drops on a page or chooses there: each is stored as a file of `POST /ingest/file` is, while it arrives.
use super::super::{
    Calls, Console,
    auth::{self, NOTICE, Viewer},
    draw, layout, say, sign_in,
};
use crate::registry::{FormBody, FormHead};
use axum::{
    extract::{FromRequestParts, Request, State},
    response::Response,
};
use futures_util::{StreamExt, stream, stream::BoxStream};
use http::header;
use std::{io, sync::Arc, time::Duration};
use svc_client::{
    Code, Failure, FileUpload,
    wire::{UploadQuery, UploadResponse},
};
use tokio::sync::Mutex;

/// The longest field beside the files.
const FIELD_BYTES: usize = 1024;
/// The longest sentence about a file that was not stored, and about a form that was not read to its end.
const LONGEST: usize = 300;
/// How many files are named that were not stored, and how much of each name.
const NAMED: usize = 10;
const NAME: usize = 80;
/// How many bytes they may take in the cookie that tells of them, because browsers drop one of 4 KiB.
const TOLD: usize = 2000;
/// How often a file waits until its uploader may make another request, or until there is a slot for it.
const WAITS: u32 = 60;

/// What came of a form.
#[derive(Default)]
struct Stored {
    parent: Option<i64>,
    files: Vec<UploadResponse>,
    /// The first files that were not stored, by name, and why.
    refused: Vec<(String, String)>,
    refusals: i64,
    /// Why the rest of the form was not read.
    cut: Option<String>,
}

pub async fn upload(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let viewer = match Viewer::from_request_parts(&mut parts, &console).await {
        Ok(viewer) => viewer,
        Err(response) => return response,
    };
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let stored = async {
        let (mut stored, form) = (Stored::default(), FormBody::new(kind, body)?);
        match store(&console.calls(&viewer), &viewer, form, &mut stored).await {
            // What is stored stays, and its uploader is told of it.
            Err(failure) if !stored.files.is_empty() => {
                stored.cut = Some(failure.detail);
                Ok(Some(stored))
            }
            Err(failure) => Err(failure),
            Ok(is_own) => Ok(is_own.then_some(stored)),
        }
    };
    let stored = match stored.await {
        Ok(Some(stored)) => stored,
        Ok(None) => return sign_in::foreign(),
        Err(failure) => return layout::bare_refusal(&failure),
    };
    console.acted();
    let to = match (stored.files.as_slice(), stored.refusals, stored.parent) {
        ([file], 0, _) => format!("/view/{}", file.document_id),
        (.., Some(parent)) => format!("/view/{parent}"),
        _ => "/view".to_owned(),
    };
    let notice = layout::part(&said(&stored));
    sign_in::redirect(&to, auth::set_cookie(&parts.headers, NOTICE, &notice, Some(30)))
}

/// A sentence about what came of it.
fn said(stored: &Stored) -> String {
    let known = stored.files.iter().filter(|file| file.was_existing).count();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let mut said = match (stored.files.len(), known) {
        (0, _) => "Nothing was stored.".to_owned(),
        (1, 1) => "This file was stored already.".to_owned(),
        (1, _) => "Stored the file.".to_owned(),
        (all, 0) => format!("Stored {}.", say::many(count(all), "file")),
        (all, known) => {
            format!("Stored {}; {} stored already.", say::many(count(all - known), "file"), say::count(count(known)))
        }
    };
    if stored.refusals > 0 {
        said += &format!(" Refused {}: {}.", say::many(stored.refusals, "file"), refusals(stored));
    }
    if let Some(cut) = &stored.cut {
        said += &format!(" The rest of the form was not read: {}.", draw::short(cut, LONGEST));
    }
    said
}

/// Which files were not stored, and why; a reason that is that of the file before is said once.
fn refusals(stored: &Stored) -> String {
    let (mut said, mut before, mut named) = (String::new(), "", 0);
    for (name, why) in &stored.refused {
        let mut one = draw::short(name, NAME);
        if why != before {
            one += &format!(": {}", draw::short(why, LONGEST));
        }
        if named > 0 && layout::part(&said).len() + layout::part(&one).len() > TOLD {
            break;
        }
        said += if named > 0 { "; " } else { "" };
        said += &one;
        before = why;
        named += 1;
    }
    match stored.refusals - named {
        0 => said,
        more => {
            let again = "the form may be sent again, since what is stored is not stored twice";
            format!("{said}; and {} more ({again})", say::count(more))
        }
    }
}

/// Stores the files of a form; false if the form is not this session's. What the session is known by comes before any file.
async fn store(calls: &Calls, viewer: &Viewer, mut form: FormBody, stored: &mut Stored) -> Result<bool, Failure> {
    let mut is_own = false;
    while let Some(head) = form.part().await? {
        match head.name.as_deref() {
            Some("csrf" | "parent_id") if !stored.files.is_empty() => {
                return Err(Failure::field(head.name.as_deref().unwrap_or("?"), "comes before the files"));
            }
            Some("csrf") => is_own = viewer.owns_form(Some(&form.text("csrf", FIELD_BYTES).await?)),
            Some("parent_id") => {
                let parent = form.text("parent_id", FIELD_BYTES).await?.parse();
                stored.parent = Some(parent.map_err(|_| Failure::field("parent_id", "takes a whole number"))?);
            }
            Some("file") if !is_own => return Ok(false),
            Some("file") => {
                let name = head.file_name.clone().unwrap_or_default();
                let part = Arc::new(Mutex::new(Part { form, is_over: false, is_taken: false }));
                match one(calls, stored.parent, head, &part).await {
                    Ok(Some(file)) => stored.files.push(file),
                    Ok(None) => {}
                    Err(failure) => {
                        stored.refusals += 1;
                        let is_too_large = failure.code == Code::TooLarge;
                        if stored.refused.len() < NAMED {
                            stored.refused.push((name, failure.detail));
                        }
                        // Nobody waits for the rest of what is too large.
                        if is_too_large {
                            let cut = "store again whatever came behind the file that is too large";
                            stored.cut = Some(cut.to_owned());
                            break;
                        }
                    }
                }
                let mut part = Arc::into_inner(part)
                    .ok_or_else(|| Failure::new(Code::Internal, "a file is still being read"))?
                    .into_inner();
                while part.next().await?.is_some() {}
                form = part.form;
            }
            name => return Err(Failure::field(name.unwrap_or("?"), "this form takes no such field")),
        }
    }
    Ok(is_own)
}

/// Stores a file; `None` if nothing was chosen, for which a browser sends a file without name and bytes.
async fn one(
    calls: &Calls,
    parent_id: Option<i64>,
    head: FormHead,
    part: &Arc<Mutex<Part>>,
) -> Result<Option<UploadResponse>, Failure> {
    let first = part.lock().await.next().await?;
    if first.is_none() && head.file_name.as_deref().is_none_or(str::is_empty) {
        return Ok(None);
    }
    let mut waits = 0;
    loop {
        let file = FileUpload {
            filename: head.file_name.clone(),
            declared_mime: head.content_type.clone(),
            length: None,
            bytes: stream::iter(first.clone().map(Ok)).chain(pieces(part.clone())).boxed(),
            options: None,
        };
        let query = UploadQuery { parent_id, ..UploadQuery::default() };
        // Others store their files while this one waits for its sender.
        let stored = match calls.0.service.admission.upload(calls.0.caller.principal_id()).await {
            Ok(_place) => calls.upload_file(query, file).await,
            Err(failure) => Err(failure),
        };
        let refused = match stored {
            Err(failure) if failure.code == Code::TooManyRequests && waits < WAITS => failure,
            ended => return ended.map(Some),
        };
        // What was taken of a file cannot be stored by another call.
        let is_whole = !part.lock().await.is_taken;
        let after = refused.members.get("retry_after").and_then(serde_json::Value::as_u64).filter(|_| is_whole);
        let Some(seconds) = after else { return Err(refused) };
        // The rest of the form stays with the browser meanwhile.
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        waits += 1;
    }
}

/// The part of a form that is being read.
struct Part {
    form: FormBody,
    is_over: bool,
    /// Whether somebody has begun to take what comes behind its first bytes.
    is_taken: bool,
}

impl Part {
    /// The next bytes; `None` at the end of the part, however often it is asked for.
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, Failure> {
        if self.is_over {
            return Ok(None);
        }
        let piece = self.form.piece().await?;
        self.is_over = piece.is_none();
        Ok(piece)
    }
}

/// The bytes of a part. What nobody takes of them stays in the part.
fn pieces(part: Arc<Mutex<Part>>) -> BoxStream<'static, io::Result<bytes::Bytes>> {
    let next = async |part: Arc<Mutex<Part>>| {
        let mut taken = part.lock().await;
        taken.is_taken = true;
        let piece = taken.next().await.map_err(|failure| io::Error::other(failure.detail)).transpose()?;
        drop(taken);
        Some((piece, part))
    };
    stream::unfold(part, next).fuse().boxed()
}
