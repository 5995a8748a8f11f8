//! Sends files as uploads, where there is no message broker.
use super::{
    Ready, Run, found,
    journal::Outcome,
    walk::{Content, Sources},
};
use crate::cli::{CliError, follow::may_pass};
use futures_util::{StreamExt, stream::FuturesUnordered};
use std::time::{Duration, Instant};
use svc_client::{
    Client, Code, Failure, FileUpload, Remote,
    wire::{UploadQuery, UploadResponse},
};

/// How many uploads run at once.
const UPLOADS: usize = 8;
/// The time between two tries of an upload, first and later.
const SOONEST: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(30);
/// How much of a file is read at a time.
const PIECE: usize = 256 << 10;

/// Sends everything; an error means that no other upload would succeed either.
pub async fn send(run: &mut Run, client: &Client<Remote>, sources: Sources) -> Result<(), CliError> {
    let mut found = found(sources);
    let (mut reading, mut uploads) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut is_found = false;
    while !is_found || !reading.is_empty() || !uploads.is_empty() {
        tokio::select! {
            Some((n, path, sha256, sent)) = uploads.next(), if !uploads.is_empty() => {
                let (path, sha256): (String, String) = (path, sha256);
                let sent: Result<UploadResponse, Failure> = sent;
                match sent {
                    // What was stored is not what was read, so this is not the end of it: the next run sends the file as it is then.
                    Ok(stored) if stored.content_hash != format!("sha256:{sha256}") => {
                        run.journal.abandon(n);
                        run.left(&path, "it changed while it was sent")?;
                    }
                    Ok(stored) => {
                        let word = if stored.was_existing { "duplicate" } else { "accepted" };
                        let document_id = Some(stored.document_id);
                        run.ended(n, &path, Outcome { word: word.to_owned(), document_id, code: None, detail: None })?;
                    }
                    Err(failure) if failure.code == Code::Unauthenticated || passes(&failure) => return Err(failure.into()),
                    Err(failure) => {
                        let (code, detail) = (Some(failure.code.as_str().to_owned()), Some(failure.detail.clone()));
                        run.ended(n, &path, Outcome { word: "rejected".to_owned(), document_id: None, code, detail })?;
                    }
                }
            }
            Some(read) = reading.next(), if !reading.is_empty() => {
                if let Some(ready) = run.ready(read)? {
                    uploads.push(upload(client, run.target.query, run.target.options.clone(), ready, run.patience));
                }
            }
            next = found.recv(), if !is_found && reading.len() < super::READS && uploads.len() + reading.len() < UPLOADS => match next {
                Some(next) => reading.extend(run.looked_at(next)?),
                None => is_found = true,
            },
        }
    }
    Ok(())
}

/// Whether the service could not take an upload at that moment, whatever it was.
fn passes(failure: &Failure) -> bool {
    may_pass(failure) || failure.code == Code::StorageFull
}

/// Uploads a file, and tries it again while the service cannot take it.
async fn upload(
    client: &Client<Remote>,
    query: UploadQuery,
    options: Option<serde_json::Value>,
    ready: Ready,
    patience: Duration,
) -> (usize, String, String, Result<UploadResponse, Failure>) {
    let Ready { candidate, n, sha256, size, content, .. } = ready;
    let (begun, mut pause) = (Instant::now(), SOONEST);
    let sent = loop {
        let body = match body(&content, &candidate.name(), size, options.clone()).await {
            Ok(body) => body,
            Err(error) => break Err(Failure::field("file", error)),
        };
        match client.upload_file(query, body).await {
            Err(failure) if passes(&failure) && begun.elapsed() < patience => tokio::time::sleep(pause).await,
            sent => break sent,
        }
        pause = (pause * 2).min(LATEST);
    };
    (n, candidate.shown(), sha256, sent)
}

async fn body(
    content: &Content,
    name: &str,
    size: u64,
    options: Option<serde_json::Value>,
) -> std::io::Result<FileUpload> {
    let file = match content {
        Content::Bytes(bytes) => return Ok(FileUpload::from_bytes(name, bytes.clone(), options)),
        Content::Large(file) => file.try_clone()?,
    };
    let mut file = tokio::fs::File::from_std(file);
    tokio::io::AsyncSeekExt::rewind(&mut file).await?;
    // The length is that of what was read: a file that has grown is cut off there, and has another hash.
    let bytes = tokio_util::io::ReaderStream::with_capacity(tokio::io::AsyncReadExt::take(file, size), PIECE).boxed();
    Ok(FileUpload { filename: Some(name.to_owned()), declared_mime: None, length: Some(size), bytes, options })
}
