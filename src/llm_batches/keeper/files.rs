//! The files of a keeper: what it sends, and what the folder of its store keeps of that and of what comes.
use super::KeeperSettings;
use crate::{
    spool,
    store::{self, llm_batches::BatchRow},
};
use serde_json::Value;
use sqlx::PgConnection;
use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::NamedTempFile;
use uuid::Uuid;

/// The parts of a batch that the store keeps.
pub const REQUESTS: &str = "requests";
pub const ANSWERS: &str = "results";

/// The requests of a batch in a file.
pub struct Written {
    pub file: File,
    pub requests: i32,
    pub bytes: u64,
}

/// A part of what is kept of a batch, on its way into the store.
pub struct Part {
    file: NamedTempFile,
    path: PathBuf,
}

impl Part {
    /// Begins a file that only its owner reads, in a folder that is made if it is missing. Until its end its name says of which batch it is, so that it
    /// is removed if this process is killed.
    pub fn begin(store: &Path, batch: &BatchRow, part: &str) -> io::Result<Part> {
        std::fs::create_dir_all(store)?;
        let path = path(store, batch.id, batch.key, part);
        let file = tempfile::Builder::new().prefix(&format!(".{}.", stem(batch.id, batch.key))).tempfile_in(store)?;
        Ok(Part { file, path })
    }

    pub fn add(&mut self, line: &Value) -> io::Result<()> {
        writeln!(self.file, "{line}")
    }

    pub fn end(self) -> io::Result<()> {
        self.file.persist(self.path).map(|_| ()).map_err(|error| error.error)
    }
}

/// Begins the file of the requests of a batch: one without a name, unless the store keeps it.
pub fn begin(settings: &KeeperSettings, batch: &BatchRow) -> io::Result<(File, Option<Part>)> {
    let Some(store) = &settings.store else { return Ok((spool::nameless(&settings.spool)?, None)) };
    let part = Part::begin(store, batch, REQUESTS)?;
    Ok((part.file.as_file().try_clone()?, Some(part)))
}

/// Where a part of a batch is kept.
pub fn path(store: &Path, id: i64, key: Uuid, part: &str) -> PathBuf {
    store.join(format!("{}.{part}.jsonl", stem(id, key)))
}

/// How the names of the files of a batch begin. The key tells databases apart that share a folder.
fn stem(id: i64, key: Uuid) -> String {
    format!("batch-{id}-{key}")
}

/// The key in the name of a file of a batch, and whether the file is still on its way.
fn key_of(name: &str) -> Option<(Uuid, bool)> {
    let whole = name.strip_prefix('.');
    let (id, rest) = whole.unwrap_or(name).strip_prefix("batch-")?.split_once('-')?;
    let (key, _) = rest.split_once('.')?;
    id.parse::<i64>().ok()?;
    Some((key.parse().ok()?, whole.is_some()))
}

/// Removes from the store what nobody removes any more: what a keeper of this provider was killed over, and the old files of batches that are
/// forgotten.
pub async fn sweep(lead: &mut PgConnection, settings: &KeeperSettings) -> sqlx::Result<()> {
    let Some(store) = &settings.store else { return Ok(()) };
    let found: Vec<(PathBuf, Uuid, bool)> = match std::fs::read_dir(store) {
        Ok(entries) => {
            let of_batch = |entry: std::fs::DirEntry| {
                let (key, is_on_its_way) = key_of(entry.file_name().to_str()?)?;
                Some((entry.path(), key, is_on_its_way))
            };
            entries.flatten().filter_map(of_batch).collect()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            tracing::warn!(path = %store.display(), error = %error, "the folder of the batches cannot be read");
            return Ok(());
        }
    };
    let keys: Vec<Uuid> = found.iter().map(|(_, key, _)| *key).collect();
    let known = store::llm_batches::providers(lead, &keys).await?;
    for (path, key, is_on_its_way) in found {
        let is_left = match known.get(&key) {
            // This is the only keeper of its provider, and it writes nothing yet.
            Some(provider) => is_on_its_way && provider == settings.batching.provider.as_str(),
            // Another database may know it.
            None => is_older(&path, settings.kept),
        };
        if is_left {
            remove(&path);
        }
    }
    Ok(())
}

fn is_older(path: &Path, age: Duration) -> bool {
    let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|elapsed| elapsed > age))
}

pub fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), error = %error, "a file of an old batch could not be removed")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_batch_is_known_by_its_name() {
        let key = Uuid::from_u128(7);
        let kept = path(Path::new("/s"), 12, key, REQUESTS);
        assert_eq!(kept.file_name().and_then(|name| name.to_str()).and_then(key_of), Some((key, false)));
        assert_eq!(key_of(&format!(".{}.x1", stem(12, key))), Some((key, true)));
        for name in
            ["notes.txt", ".batch-", "batch-12-7.requests.jsonl", "batch-x-00000000-0000-0000-0000-000000000007.a"]
        {
            assert_eq!(key_of(name), None, "{name}");
        }
    }
}
