//! The folder into which a model is fetched. One process at a time holds it.

use super::FetchError;
use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

/// How often to check whether another process has let go.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(super) struct Place {
    /// The model's final folder.
    whole: PathBuf,
    /// The folder that it is fetched into.
    part: PathBuf,
    _lock: File,
}

impl Place {
    /// Waits until no other process fetches the same model.
    pub async fn take(folder: &Path) -> Result<Self, FetchError> {
        let beside = |ending: &str| {
            let mut name = folder.file_name().unwrap_or_default().to_owned();
            name.push(ending);
            folder.with_file_name(name)
        };
        if let Some(models) = folder.parent() {
            create_folder(models)?;
        }
        let (part, path) = (beside(".part"), beside(".lock"));
        let failed = |source| FetchError::Io { path: path.clone(), source };
        let lock = File::create(&path).map_err(failed)?;
        let mut is_told = false;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::info!(model.folder = %folder.display(), "waiting for another process that is fetching this model");
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        }
        Ok(Self { whole: folder.to_owned(), part, _lock: lock })
    }

    /// Returns the path for a file that is being fetched, and makes its folder if necessary.
    pub fn file(&self, name: &str) -> Result<PathBuf, FetchError> {
        let path = self.part.join(name);
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        Ok(path)
    }

    /// Moves the complete model into place. Parts of older revisions of its files are removed.
    pub fn finish(self) -> Result<(), FetchError> {
        let files = std::fs::read_dir(&self.part).into_iter().flatten().flatten().map(|entry| entry.path());
        for begun in files.filter(|path| path.extension().is_some_and(|extension| extension == "part")) {
            std::fs::remove_file(&begun).map_err(|source| FetchError::Io { path: begun, source })?;
        }
        std::fs::rename(&self.part, &self.whole).map_err(|source| FetchError::Io { path: self.whole.clone(), source })
    }
}

fn create_folder(path: &Path) -> Result<(), FetchError> {
    std::fs::create_dir_all(path).map_err(|source| FetchError::Io { path: path.to_owned(), source })
}
