//! Fetches one file: looks it up, continues where an earlier try ended, checks it, and moves it into place.

use super::{
    FetchError, HubSettings, Progress,
    checksum::Checksum,
    client::{HubClient, RemoteFile, causes},
    place::Place,
};
use reqwest::{Response, StatusCode, header::CONTENT_RANGE};
use sha2::{Digest, Sha256};
use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};
use tokio::io::AsyncWriteExt;

/// No model whose vectors can be stored has more weights.
const MAX_WEIGHT_BYTES: u64 = 8 << 30;
/// The largest of the other files is a tokenizer's vocabulary.
const MAX_OTHER_BYTES: u64 = 64 << 20;

pub(super) async fn download(
    client: &mut HubClient,
    place: &Place,
    file: &str,
    pinned: Option<&str>,
    settings: &HubSettings,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<(), FetchError> {
    let mut patience = Patience::new(settings);
    let remote = loop {
        match client.look_up(file).await {
            Ok(remote) => break remote,
            Err(error) => patience.after(error, false).await?,
        }
    };
    let expected = pinned.map(|hex| Checksum::Sha256(hex.to_owned())).or_else(|| remote.checksum.clone());
    if let (Some(Checksum::Sha256(expected)), Some(Checksum::Sha256(got))) = (&expected, &remote.checksum)
        && expected != got
    {
        return Err(FetchError::Checksum { file: file.to_owned(), expected: expected.clone(), got: got.clone() });
    }
    let limit = if file.ends_with(".safetensors") { MAX_WEIGHT_BYTES } else { MAX_OTHER_BYTES };
    if let Some(bytes) = remote.size.filter(|&size| size > limit) {
        return Err(FetchError::TooLarge { file: file.to_owned(), bytes, limit });
    }
    let whole = place.file(file)?;
    // It comes from a run that ended before the model was complete, or from whoever put only some files into its folder.
    let known = if whole.is_file() { whole.clone() } else { place.kept(file) };
    if known.is_file() && expected.is_some() && mismatch(&known, expected.as_ref()).await?.is_none() {
        return Ok(());
    }
    let part = Part::new(&whole, &remote, file, limit);
    let mut is_second_time = false;
    let mut patience = Patience::new(settings);
    loop {
        let before = part.len();
        match part.fetch_rest(client, progress).await {
            Err(error) => patience.after(error, part.len() > before).await?,
            Ok(()) => {
                let Some(got) = mismatch(&part.path, expected.as_ref()).await? else { break };
                part.remove()?;
                // The fetch starts once more from the beginning, in case an earlier run left bad bytes.
                if before == 0 || std::mem::replace(&mut is_second_time, true) {
                    let expected = expected.map(|checksum| checksum.hex().to_owned()).unwrap_or_default();
                    return Err(FetchError::Checksum { file: file.to_owned(), expected, got });
                }
            }
        }
    }
    if expected.is_none() {
        tracing::warn!(model.file = file, "the hub has no hash for this file, so only its length was checked");
    }
    std::fs::rename(&part.path, &whole).map_err(|source| FetchError::Io { path: whole, source })
}

/// Counts tries that brought nothing new, and waits between them.
struct Patience<'a> {
    settings: &'a HubSettings,
    fruitless: u32,
}

impl<'a> Patience<'a> {
    fn new(settings: &'a HubSettings) -> Self {
        Self { settings, fruitless: 0 }
    }

    /// Waits before the next try, or returns the error if another try is useless.
    async fn after(&mut self, error: FetchError, has_progress: bool) -> Result<(), FetchError> {
        self.fruitless = if has_progress { 0 } else { self.fruitless + 1 };
        if !error.is_passing() || self.fruitless >= self.settings.attempts {
            return Err(error);
        }
        tracing::info!(problem = %error, "trying again");
        tokio::time::sleep(self.settings.pause * (1 << self.fruitless.min(6))).await;
        Ok(())
    }
}

/// The part of a file that has arrived.
struct Part<'a> {
    path: PathBuf,
    file: &'a str,
    size: Option<u64>,
    limit: u64,
}

impl<'a> Part<'a> {
    /// The ETag is part of the name, so a part that was fetched under another ETag is never continued.
    fn new(whole: &Path, remote: &RemoteFile, file: &'a str, limit: u64) -> Self {
        let mut name = OsString::from(whole.file_name().unwrap_or_default());
        if let Some(etag) = &remote.etag {
            let hash = Sha256::digest(etag);
            name.push(format!(".{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3]));
        }
        name.push(".part");
        let part = Self { path: whole.with_file_name(name), file, size: remote.size, limit };
        if remote.etag.is_none() {
            // Without an ETag nothing tells whether it is still the same file.
            let _ = part.remove();
        }
        part
    }

    fn len(&self) -> u64 {
        self.path.metadata().map_or(0, |metadata| metadata.len())
    }

    fn remove(&self) -> Result<(), FetchError> {
        match std::fs::remove_file(&self.path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(self.io(source)),
            _ => Ok(()),
        }
    }

    async fn fetch_rest(&self, client: &HubClient, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<(), FetchError> {
        let mut start = self.len();
        if self.size.is_some_and(|size| start > size) {
            self.remove()?;
            start = 0;
        }
        if start > 0 && self.size == Some(start) {
            return Ok(());
        }
        let response = client.get(self.file, start).await?;
        let is_rest = match response.status() {
            StatusCode::PARTIAL_CONTENT if start_of(&response) == Some(start) => true,
            StatusCode::OK => false,
            status => {
                self.remove()?;
                return Err(self.broken_off(start, &format!("the hub answered with status {status} and another part")));
            }
        };
        let mut options = tokio::fs::OpenOptions::new();
        options.create(true).write(true).append(is_rest).truncate(!is_rest);
        let mut file = options.open(&self.path).await.map_err(|source| self.io(source))?;
        let come = self.append(response, &mut file, if is_rest { start } else { 0 }, client, progress).await;
        // This happens after an interruption too: what has arrived is kept.
        file.flush().await.map_err(|source| self.io(source))?;
        if matches!(come, Err(FetchError::TooLarge { .. })) {
            self.remove()?;
        }
        come?;
        file.sync_all().await.map_err(|source| self.io(source))
    }

    async fn append(
        &self,
        mut response: Response,
        file: &mut tokio::fs::File,
        mut bytes: u64,
        client: &HubClient,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<(), FetchError> {
        let limit = self.size.unwrap_or(self.limit);
        loop {
            progress(Progress { file: self.file, bytes, total: self.size });
            let chunk = match tokio::time::timeout(client.silence(), response.chunk()).await {
                Err(_) => return Err(self.broken_off(bytes, "silence")),
                Ok(Err(error)) => return Err(self.broken_off(bytes, &causes(&error))),
                Ok(Ok(chunk)) => chunk,
            };
            let Some(chunk) = chunk else { break };
            bytes += chunk.len() as u64;
            if bytes > limit {
                return Err(FetchError::TooLarge { file: self.file.to_owned(), bytes, limit });
            }
            file.write_all(&chunk).await.map_err(|source| self.io(source))?;
        }
        match self.size {
            Some(size) if bytes < size => Err(self.broken_off(bytes, "the connection ended")),
            _ => Ok(()),
        }
    }

    fn broken_off(&self, bytes: u64, problem: &str) -> FetchError {
        FetchError::BrokenOff { file: self.file.to_owned(), bytes, problem: problem.to_owned() }
    }

    fn io(&self, source: std::io::Error) -> FetchError {
        FetchError::Io { path: self.path.clone(), source }
    }
}

/// The position of a partial answer's first byte.
fn start_of(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

/// Returns the file's hash if it is not the expected one.
async fn mismatch(path: &Path, expected: Option<&Checksum>) -> Result<Option<String>, FetchError> {
    let Some(expected) = expected.cloned() else { return Ok(None) };
    let path = path.to_owned();
    let hashed = tokio::task::spawn_blocking({
        let path = path.clone();
        move || {
            let mut file = File::open(&path)?;
            let mut hasher = expected.hasher(file.metadata()?.len());
            let mut buffer = vec![0; 1 << 20];
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    read => hasher.update(&buffer[..read]),
                }
            }
            let got = hasher.hex();
            Ok((got != expected.hex()).then_some(got))
        }
    });
    hashed
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|source| FetchError::Io { path, source })
}
