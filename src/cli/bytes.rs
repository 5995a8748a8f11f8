//! `svc bytes`: writes the stored bytes of a file.
use super::{
    CliError,
    output::{Output, one_line, say},
};
use clap::Args;
use futures_util::StreamExt;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{
    fs::Permissions,
    io::{IsTerminal, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use svc_client::{
    Client, Code, Failure, Meta, Remote, Validated,
    wire::{DocumentPath, is_content_hash},
};
use tempfile::NamedTempFile;

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
        if std::io::stdout().is_terminal() {
            return Err(CliError::Other(
                "bytes are not written to a terminal: name a file with -o, or use a pipe".to_owned(),
            ));
        }
        download(client, arguments.id, &mut std::io::stdout().lock()).await?;
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

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::Other(format!("{}: {error}", path.display()))
}

/// Writes the bytes to a file.
async fn fetch(client: &Client<Remote>, id: i64, path: &Path) -> Result<(String, u64), CliError> {
    let mut part = begin_file(path)?;
    let done = download(client, id, part.as_file_mut()).await?;
    end_file(part, path)?;
    Ok(done)
}

/// Begins a file under another name, which nobody else has, beside the one that it gets once it is complete.
pub(super) fn begin_file(path: &Path) -> Result<NamedTempFile, CliError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    let part = tempfile::Builder::new()
        .prefix(&name)
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder);
    part.map_err(|error| unwritable(path, &error))
}

/// Gives a complete file its name.
pub(super) fn end_file(part: NamedTempFile, path: &Path) -> Result<(), CliError> {
    part.as_file().sync_all().map_err(|error| unwritable(path, &error))?;
    part.persist(path).map(|_| ()).map_err(|failed| unwritable(path, &failed.error))
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
        let broke_off = match client.given(meta).read_bytes(DocumentPath { id }).await {
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
                    match file.bytes.next().await {
                        Some(Ok(piece)) => {
                            out.write_all(&piece)?;
                            hash.update(&piece);
                            written += piece.len() as u64;
                            tries = 0;
                        }
                        Some(Err(failure)) => break failure,
                        None if written < file.size => break Failure::new(Code::Unreachable, "the download broke off"),
                        None => {
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
