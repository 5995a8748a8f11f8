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

    /// Returns the path of a file in the model's own folder, which may be there.
    pub fn kept(&self, name: &str) -> PathBuf {
        self.whole.join(name)
    }

    /// Moves what was fetched of these files, which make the model complete, into place. Parts of older revisions are
    /// removed.
    pub fn finish<'a>(self, files: impl Iterator<Item = &'a str>) -> Result<(), FetchError> {
        let here = std::fs::read_dir(&self.part).into_iter().flatten().flatten().map(|entry| entry.path());
        for begun in here.filter(|path| path.extension().is_some_and(|extension| extension == "part")) {
            std::fs::remove_file(&begun).map_err(|source| FetchError::Io { path: begun, source })?;
        }
        if !self.whole.exists() {
            return rename(&self.part, &self.whole);
        }
        let mut fetched: Vec<&str> = files.filter(|file| self.part.join(file).is_file()).collect();
        // The folder is complete once no file is missing, so those that replace others come first.
        fetched.sort_by_key(|file| !self.kept(file).exists());
        for file in fetched {
            let kept = self.kept(file);
            if let Some(folder) = kept.parent() {
                create_folder(folder)?;
            }
            rename(&self.part.join(file), &kept)?;
        }
        std::fs::remove_dir_all(&self.part).map_err(|source| FetchError::Io { path: self.part.clone(), source })
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), FetchError> {
    std::fs::rename(from, to).map_err(|source| FetchError::Io { path: to.to_owned(), source })
}

fn create_folder(path: &Path) -> Result<(), FetchError> {
    std::fs::create_dir_all(path).map_err(|source| FetchError::Io { path: path.to_owned(), source })
}
