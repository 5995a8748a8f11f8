//! The folder that a model comes into, held by one process at a time.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use super::FetchError;

/// Between two looks whether another process has let go.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(super) struct Place {
    /// Where the model will lie.
    whole: PathBuf,
    /// Where it comes in.
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
                        tracing::info!(model.folder = %folder.display(), "another process fetches this model");
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        }
        Ok(Self { whole: folder.to_owned(), part, _lock: lock })
    }

    /// The path of a file that comes in, its folder made where it is not.
    pub fn file(&self, name: &str) -> Result<PathBuf, FetchError> {
        let path = self.part.join(name);
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        Ok(path)
    }

    /// All is there. What was begun of a file's older revision goes.
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
