//! `svc bytes`: writes the stored bytes of a file.
use super::{
    CliError,
    destination::{Destination, Named},
    output::{Output, one_line, say},
    patience::unless_silent,
};
use clap::Args;
use futures_util::TryStreamExt;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use svc_client::{
    Client, Code, Failure, Meta, Remote, Validated,
    wire::{DocumentPath, is_content_hash},
};

/// How many times in a row a download may break off without having received a byte.
const TRIES: u32 = 5;
/// The most seconds between two of them, however many the service asks for.
const LONGEST_PAUSE: u64 = 5;

#[derive(Args)]
pub struct BytesArguments {
    /// The file's id.
    id: i64,
    /// Where the bytes are written; standard output if it is left out.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub async fn bytes(client: &Client<Remote>, output: Output, arguments: BytesArguments) -> Result<ExitCode, CliError> {
    let Some(path) = &arguments.output else {
        if io::stdout().is_terminal() {
            return Err(CliError::Other(
                "bytes are not written to a terminal: name a file with -o, or use a pipe".to_owned(),
            ));
        }
        download(client, arguments.id, &mut Named::new("standard output", io::stdout().lock())).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let (media_type, size) = fetch(client, arguments.id, path).await?;
    match output {
        Output::Json => {
            Output::line(&json!({"document_id": arguments.id, "file": path, "media_type": media_type, "bytes": size}))?
        }
        Output::Table => say!("{}: {size} bytes, {media_type}", one_line(&path.display().to_string(), 200)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the bytes to a file.
async fn fetch(client: &Client<Remote>, id: i64, path: &Path) -> Result<(String, u64), CliError> {
    let mut destination = Destination::begin_at(path)?;
    let done = download(client, id, &mut destination).await?;
    destination.end()?;
    Ok(done)
}

fn damaged(id: i64) -> CliError {
    CliError::Other(format!(
        "the bytes of the file {id} have not the hash that they were stored with: restore them from a backup, or delete the document and upload the file again"
    ))
}

/// Writes all bytes of a file. A download that breaks off continues where it stopped. The hash of the whole is compared here, because the service cannot
/// check a part of a file. Returns the media type and the size.
pub(super) async fn download(
    client: &Client<Remote>,
    id: i64,
    out: &mut impl Write,
) -> Result<(String, u64), CliError> {
    let (mut written, mut tag, mut tries) = (0_u64, None::<String>, 0);
    let mut hash = Sha256::new();
    loop {
        let range = tag.as_ref().map(|_| format!("bytes={written}-"));
        let meta = Meta { range, if_range: tag.clone(), ..Meta::default() };
        let given = client.given(meta);
        let asked = given.read_bytes(DocumentPath { id });
        let answer = match tag {
            None => asked.await,
            // The service has them at hand.
            Some(_) => unless_silent(asked).await,
        };
        let broke_off = match answer {
            Ok(answer) => {
                let etag = answer.etag().to_owned();
                let Validated::Modified { value: mut file, .. } = answer else {
                    return Err(CliError::Other("the service sent no bytes".to_owned()));
                };
                if written > 0 && file.part.as_ref().is_none_or(|part| part.start != written) {
                    return Err(CliError::Other("the file changed while it was downloaded: try again".to_owned()));
                }
                tag = Some(etag);
                loop {
                    match unless_silent(file.bytes.try_next()).await {
                        Ok(Some(piece)) => {
                            out.write_all(&piece)?;
                            hash.update(&piece);
                            written += piece.len() as u64;
                            tries = 0;
                        }
                        Err(failure) => break failure,
                        Ok(None) if written < file.size => {
                            break Failure::new(Code::Unreachable, "the download broke off");
                        }
                        Ok(None) => {
                            out.flush()?;
                            let expected = tag.as_deref().map(|tag| tag.trim_start_matches("W/").trim_matches('"'));
                            let found = format!("sha256:{}", hex::encode(hash.finalize()));
                            if expected.is_some_and(|expected| is_content_hash(expected) && expected != found) {
                                return Err(damaged(id));
                            }
                            return Ok((file.media_type, file.size));
                        }
                    }
                }
            }
            Err(failure) => failure,
        };
        let is_busy = matches!(broke_off.code, Code::Unavailable | Code::TooManyRequests | Code::TimedOut);
        let broke_off_within = broke_off.code == Code::Unreachable && tag.is_some();
        if !(is_busy || broke_off_within) || tries == TRIES {
            return Err(broke_off.into());
        }
        tries += 1;
        let told = broke_off.members.get("retry_after").and_then(serde_json::Value::as_u64).unwrap_or_default();
        let pause = Duration::from_millis(200) * tries;
        tokio::time::sleep(pause.max(Duration::from_secs(told.min(LONGEST_PAUSE)))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt, future, stream};
    use std::sync::{Arc, Mutex};

    const WHOLE: &str = "The heron waits in the shallows.";
    const HALF: usize = 10;

    #[tokio::test(start_paused = true)]
    async fn a_download_in_the_middle_of_which_the_service_falls_silent_goes_on_from_there() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        let service = move |request: http::Request<reqwest::Body>| {
            let range = request.headers().get("range").map(|range| range.to_str().unwrap().to_owned());
            let mut heard = heard.lock().unwrap();
            heard.push(range);
            let tag = format!("\"sha256:{}\"", hex::encode(Sha256::digest(WHOLE)));
            let answer = http::Response::builder().header("etag", tag);
            match heard.len() {
                1 => {
                    let said = stream::iter([Ok(&WHOLE[..HALF])]).chain(stream::pending::<io::Result<&'static str>>());
                    let answer = answer.header("content-length", WHOLE.len());
                    future::ready(answer.body(reqwest::Body::wrap_stream(said)).unwrap()).boxed()
                }
                2 => future::pending().boxed(),
                _ => {
                    let range = format!("bytes {HALF}-{}/{}", WHOLE.len() - 1, WHOLE.len());
                    let answer = answer.status(206).header("content-range", range);
                    future::ready(answer.body(reqwest::Body::from(&WHOLE[HALF..])).unwrap()).boxed()
                }
            }
        };
        // Another test of this process may have set it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client(Remote::new("http://service", "", reqwest::Client::new()).sent_by(Arc::new(service)));
        let (mut out, hour) = (Vec::new(), Duration::from_secs(3_600));
        let done = tokio::time::timeout(hour, download(&client, 1, &mut out)).await.unwrap().unwrap();
        assert_eq!(done, ("application/octet-stream".to_owned(), WHOLE.len() as u64));
        assert_eq!(out, WHOLE.as_bytes());
        let goes_on = Some(format!("bytes={HALF}-"));
        assert_eq!(*asked.lock().unwrap(), [None, goes_on.clone(), goes_on]);
    }
}
