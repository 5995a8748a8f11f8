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
    fs::{self, File, Permissions},
    io::{self, IsTerminal, Write},
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
/// How many links may lead from one to the next.
const LINKS: usize = 40;

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
        download(client, arguments.id, &mut io::stdout().lock()).await?;
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

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    CliError::Other(format!("{}: {error}", path.display()))
}

/// Writes the bytes to a file.
async fn fetch(client: &Client<Remote>, id: i64, path: &Path) -> Result<(String, u64), CliError> {
    let mut destination = Destination::begin_at(path)?;
    let done = download(client, id, &mut destination).await?;
    destination.end()?;
    Ok(done)
}

/// Where a command writes what it fetches.
pub(super) enum Destination {
    /// A file under another name, which nobody else has, beside the one that it gets once it is complete.
    File { part: NamedTempFile, path: PathBuf },
    /// A pipe, a device or the like, into which is written as it is.
    Open(File),
}

impl Destination {
    pub(super) fn begin_at(path: &Path) -> Result<Destination, CliError> {
        let unwritable = |error: io::Error| unwritable(path, &error);
        let mode = match fs::metadata(path) {
            Ok(facts) if !facts.is_file() => {
                let file = fs::OpenOptions::new().write(true).open(path).map_err(unwritable)?;
                return Ok(Destination::Open(file));
            }
            Ok(facts) => Some(facts.permissions().mode() & 0o777),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unwritable(error)),
        };
        let path = behind_links(path).map_err(unwritable)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        let part = tempfile::Builder::new()
            .prefix(&name)
            .suffix(".part")
            .permissions(Permissions::from_mode(mode.unwrap_or(0o666)))
            .tempfile_in(folder)
            .map_err(unwritable)?;
        // The mask of the process, which a new file heeds, may have taken rights away from the one before.
        if let Some(mode) = mode {
            part.as_file().set_permissions(Permissions::from_mode(mode)).map_err(unwritable)?;
        }
        Ok(Destination::File { part, path })
    }

    /// Gives a complete file its name.
    pub(super) fn end(self) -> Result<(), CliError> {
        let Destination::File { part, path } = self else { return Ok(()) };
        part.as_file().sync_all().map_err(|error| unwritable(&path, &error))?;
        part.persist(&path).map(drop).map_err(|failed| unwritable(&path, &failed.error))
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Destination::File { part, .. } => part.as_file_mut().write(bytes),
            Destination::Open(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::File { part, .. } => part.as_file_mut().flush(),
            Destination::Open(file) => file.flush(),
        }
    }
}

/// Where a path leads through links, also if there is nothing yet behind the last one.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            // What is no link is the end.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links lead from one to the next"))
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
