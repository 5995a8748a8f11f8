//! Sends files as uploads, where there is no message broker.
use super::{
    Ended, Ready, Run, found,
    journal::Outcome,
    walk::{Content, Sources},
};
use crate::{
    cli::{
        CliError,
        follow::{follow, may_pass},
        patience::patiently,
    },
    feed::producer::Target,
};
use bytes::Bytes;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream, FuturesUnordered},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use svc_client::{
    Client, Code, Failure, FileUpload, Json, Remote,
    wire::{DocumentPath, Entry, FrontierResponse, IngestQuery, NewIngestion, PriorityChange, Settled, UploadResponse},
};

/// How many uploads run at once.
const UPLOADS: usize = 8;
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
                let sent: Result<Stored, Unsent> = sent;
                match sent {
                    // What was stored is not what was read, so this is not the end of it: the next run sends the file as it is then.
                    Ok(stored) if !sha256.is_empty() && stored.content_hash != format!("sha256:{sha256}") => {
                        run.journal.abandon(n);
                        run.left(&path, "it changed while it was sent")?;
                    }
                    Ok(stored) => {
                        let word = if stored.was_existing { "duplicate" } else { "accepted" };
                        let document_id = Some(stored.document_id);
                        run.ended(n, &path, Outcome { word: word.to_owned(), document_id, code: None, detail: None })?;
                    }
                    Err(Unsent::Changed(reason)) => {
                        run.journal.abandon(n);
                        run.left(&path, &reason)?;
                    }
                    Err(Unsent::Failed(failure)) if is_of_all(&failure) => return Err(failure.into()),
                    Err(Unsent::Failed(failure)) => {
                        let (code, detail) = (Some(failure.code.as_str().to_owned()), Some(failure.detail.clone()));
                        run.ended(n, &path, Outcome { word: "rejected".to_owned(), document_id: None, code, detail })?;
                    }
                }
            }
            Some(read) = reading.next(), if !reading.is_empty() => {
                if let Some(ready) = run.ready(read)? {
                    let target = ready.candidate.target(&run.target).clone();
                    uploads.push(upload(client, target, ready, run.patience));
                }
            }
            next = found.recv(), if !is_found && reading.len() < super::READS && uploads.len() + reading.len() < UPLOADS => match next {
                Some(next) => reading.extend(run.looked_at(next)?),
                None => is_found = true,
            },
        }
    }
    wait(run, client).await
}

/// Whether the service could not take an upload at that moment, whatever it was.
fn passes(failure: &Failure) -> bool {
    may_pass(failure) || failure.code == Code::StorageFull
}

/// Whether every other upload would fail so too.
fn is_of_all(failure: &Failure) -> bool {
    // A server that answers so is no service and stands in front of none, whatever it is sent.
    let is_another_server =
        failure.code == Code::Unreachable && matches!(failure.status, 1..=399 | 401 | 404 | 405 | 407);
    failure.code == Code::Unauthenticated || passes(failure) || is_another_server
}

/// Why nothing was stored.
enum Unsent {
    /// The file is no longer as it was when it was read, which no service can help.
    Changed(String),
    Failed(Failure),
}

impl From<Failure> for Unsent {
    fn from(failure: Failure) -> Unsent {
        Unsent::Failed(failure)
    }
}

/// What became of an upload, or of an address that the service fetched.
struct Stored {
    document_id: i64,
    content_hash: String,
    was_existing: bool,
}

/// Uploads a file or has an address fetched, and tries it again while the service cannot take it.
async fn upload(
    client: &Client<Remote>,
    target: Target,
    ready: Ready,
    patience: Duration,
) -> (usize, String, String, Result<Stored, Unsent>) {
    let sent = match &ready.content {
        Content::Url(url) => {
            let fetched = fetched(client, &target, url, &ready.candidate.name(), patience).await;
            // Nothing else tells which row an address is of.
            fetched.map_err(|mut failure| {
                if let Some(line) = ready.candidate.line() {
                    failure.detail = format!("{line}: {}", failure.detail);
                }
                Unsent::Failed(failure)
            })
        }
        Content::Bytes(_) | Content::Large(_) => {
            let may_pass = |unsent: &Unsent| matches!(unsent, Unsent::Failed(failure) if passes(failure));
            patiently(patience, may_pass, async || tried(client, &target, &ready).await).await
        }
    };
    (ready.n, ready.candidate.shown(), ready.sha256, sent)
}

async fn tried(client: &Client<Remote>, target: &Target, ready: &Ready) -> Result<Stored, Unsent> {
    let broke_off = Arc::new(OnceLock::new());
    let body = body(ready, target.options.clone(), &broke_off).await;
    let sent = client.upload_file(target.query, body.map_err(|error| Failure::field("file", error))?).await;
    let UploadResponse { document_id, content_hash, was_existing, .. } = sent.map_err(|failure| {
        // What broke off here looks like a service that went away.
        broke_off.get().cloned().map_or(Unsent::Failed(failure), Unsent::Changed)
    })?;
    Ok(Stored { document_id, content_hash, was_existing })
}

/// Has the service fetch an address, as a web page or as a PDF file, whichever it turns out to be.
async fn fetched(
    client: &Client<Remote>,
    target: &Target,
    url: &str,
    name: &str,
    patience: Duration,
) -> Result<Stored, Failure> {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let mut entries = [Entry::WikiUrl, Entry::WikiPdf];
    if path.to_ascii_lowercase().ends_with(".pdf") {
        entries.reverse();
    }
    let ask = async |entry| {
        let new = NewIngestion {
            url: Some(url.to_owned()),
            title: Some(name.to_owned()).filter(|name| !name.is_empty()),
            parent_id: target.query.parent_id,
            private: target.query.private,
            event_time: target.query.event_time,
            options: target.options.clone(),
            ..NewIngestion::of(entry)
        };
        client.ingest(IngestQuery { wait: false, ..IngestQuery::default() }, Json(new)).await
    };
    let tree = patiently(patience, passes, async || match ask(entries[0]).await {
        // What is there has another media type.
        Err(failure) if failure.code == Code::FetchFailed && !failure.members.contains_key("upstream_status") => {
            ask(entries[1]).await.map_err(|second| match second.code {
                Code::FetchFailed => neither(failure, &second),
                _ => second,
            })
        }
        asked => asked,
    })
    .await?;
    // This is tried again by itself: the next fetch would find the file that this one made, and leave its priority alone.
    if target.query.priority != 0 && !tree.was_existing {
        let (id, priority) = (tree.document_id, target.query.priority);
        let change = async || client.change_priority(DocumentPath { id }, Json(PriorityChange { priority })).await;
        patiently(patience, passes, change).await?;
    }
    let content_hash = tree.document.content_hash;
    Ok(Stored { document_id: tree.document_id, content_hash, was_existing: tree.was_existing })
}

/// Why an address is read neither as a page nor as a PDF file.
fn neither(mut first: Failure, second: &Failure) -> Failure {
    // Each entry names the media types that it takes, so that the reasons differ where these are at fault, and only there.
    if first.detail != second.detail {
        first.detail.push_str(
            "; over REST an address is read as a web page or a PDF file: save what it holds and name its path, or send the row through a broker (SVC_AMQP_URL)",
        );
    }
    first
}

/// Waits until what was accepted is ingested, or until nothing of it has ended for as long as the patience lasts.
async fn wait(run: &mut Run, client: &Client<Remote>) -> Result<(), CliError> {
    while let Some(first) = run.ingesting.as_ref().and_then(|ingesting| ingesting.open.keys().next().copied()) {
        run.show();
        let patience = run.patience.saturating_sub(run.moved.elapsed());
        let followed = tokio::time::timeout(patience, follow(client, first, &run.bar, |_| ())).await;
        match followed {
            Ok(followed) => ended(run, first, followed?)?,
            Err(_) => {
                // What takes longer is left, as an answer of a broker would be, unless others have ended meanwhile.
                if !look(run, client).await? {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Notes what has ended of all that is waited for; false if nothing has.
async fn look(run: &mut Run, client: &Client<Remote>) -> Result<bool, CliError> {
    let open: Vec<i64> = run.ingesting.iter().flat_map(|ingesting| ingesting.open.keys().copied()).collect();
    let mut has_ended = false;
    for id in open {
        let frontier = match client.read_frontier(DocumentPath { id }).await {
            Ok(frontier) if frontier.is_at_rest() => Some(frontier),
            Err(failure) if failure.code == Code::NotFound => None,
            Err(failure) if !may_pass(&failure) => return Err(failure.into()),
            Ok(_) | Err(_) => continue,
        };
        ended(run, id, frontier)?;
        has_ended = true;
    }
    Ok(has_ended)
}

/// Notes how an ingestion ended; a file without a frontier is gone.
fn ended(run: &mut Run, id: i64, frontier: Option<FrontierResponse>) -> Result<(), CliError> {
    let (word, detail) = match frontier {
        Some(frontier) if frontier.settled == Settled::Settled => ("settled", None),
        Some(frontier) => ("failed", frontier.warnings.first().cloned()),
        None => ("cancelled", Some("somebody has deleted it".to_owned())),
    };
    run.ingested(id, Ended { word: word.to_owned(), code: None, detail })
}

/// Why the bytes of a file ended too soon, once they have.
type BrokeOff = Arc<OnceLock<String>>;

async fn body(ready: &Ready, options: Option<serde_json::Value>, broke_off: &BrokeOff) -> std::io::Result<FileUpload> {
    let (name, declared_mime) = (ready.candidate.name(), ready.candidate.declared_mime().map(str::to_owned));
    let file = match &ready.content {
        Content::Bytes(bytes) => {
            let upload = FileUpload::from_bytes(&name, bytes.clone(), options);
            return Ok(FileUpload { declared_mime, filename: Some(name).filter(|name| !name.is_empty()), ..upload });
        }
        Content::Large(file) => file.try_clone()?,
        Content::Url(_) => return Err(std::io::Error::other("an address has no bytes here")),
    };
    let mut file = tokio::fs::File::from_std(file);
    tokio::io::AsyncSeekExt::rewind(&mut file).await?;
    let bytes = as_many_as_were_read(file, ready.size, broke_off.clone());
    Ok(FileUpload { filename: Some(name), declared_mime, length: Some(ready.size), bytes, options })
}

/// The bytes of a file that had `size` bytes when it was read, or an error if it no longer has so many.
fn as_many_as_were_read(
    file: tokio::fs::File,
    size: u64,
    broke_off: BrokeOff,
) -> BoxStream<'static, std::io::Result<Bytes>> {
    // A file that has grown is cut off where it ended then, and has another hash.
    let bytes = tokio::io::AsyncReadExt::take(file, size);
    let pieces = tokio_util::io::ReaderStream::with_capacity(bytes, PIECE);
    let mut missing = size;
    let judged = move |piece: Option<std::io::Result<Bytes>>| {
        let reason = match piece {
            Some(Ok(piece)) => {
                missing -= piece.len() as u64;
                return std::future::ready(Some(Ok(piece)));
            }
            None if missing == 0 => return std::future::ready(None),
            None => "it changed while it was sent".to_owned(),
            Some(Err(error)) => format!("it cannot be read any more: {error}"),
        };
        // After an error the end comes too, and the first reason stands.
        let _ = broke_off.set(reason.clone());
        std::future::ready(Some(Err(std::io::Error::other(reason))))
    };
    pieces.map(Some).chain(stream::iter([None])).filter_map(judged).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;
    use std::io::{Seek, Write};

    #[tokio::test]
    async fn a_file_that_ends_too_soon_says_so_and_one_that_has_grown_is_cut_off() {
        for (bytes, sent, reason) in [
            ("whole", Some("whole"), None),
            ("whole and more", Some("whole"), None),
            ("who", None, Some("it changed while it was sent")),
        ] {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(bytes.as_bytes()).expect("written");
            file.rewind().expect("rewound");
            let broke_off = BrokeOff::default();
            let pieces = as_many_as_were_read(tokio::fs::File::from_std(file), 5, broke_off.clone());
            let read: std::io::Result<Vec<Bytes>> = pieces.try_collect().await;
            assert_eq!(read.ok().map(|pieces| pieces.concat()).as_deref(), sent.map(str::as_bytes), "{bytes}");
            assert_eq!(broke_off.get().map(String::as_str), reason, "{bytes}");
        }
    }

    #[test]
    fn what_a_proxy_refuses_for_good_is_of_one_file_and_what_no_service_answers_is_of_all() {
        for (status, passes_later, ends_the_run) in [
            (0, true, true),
            (408, true, true),
            (429, true, true),
            (502, true, true),
            (413, false, false),
            (403, false, false),
            (404, false, true),
            (302, false, true),
        ] {
            let mut failure = Failure::new(Code::Unreachable, "a proxy");
            failure.status = status;
            assert_eq!((passes(&failure), is_of_all(&failure)), (passes_later, ends_the_run), "{status}");
        }
    }
}
