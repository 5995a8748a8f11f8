//! A place for one bench: its own data folder, and settings that nothing on this machine affects.
use crate::figure::BoxError;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use svc::{
    app::App,
    reader::Reader,
    settings::{Settings, SettingsError},
};

pub const TOKEN: &str = "owner-token-of-the-benches";

/// Removed with its folder when dropped, unless the variable BENCH_FOLDER names one to keep.
pub struct Sandbox {
    folder: PathBuf,
    _removed: Option<tempfile::TempDir>,
}

impl Sandbox {
    pub fn new() -> std::io::Result<Self> {
        if let Some(kept) = std::env::var_os("BENCH_FOLDER").filter(|folder| !folder.is_empty()) {
            return Ok(Self { folder: kept.into(), _removed: None });
        }
        // It is not in the home folder: if we are root, PostgreSQL runs as another user, who may not enter that.
        let folder = tempfile::Builder::new().prefix("svc-bench.").tempdir()?;
        Ok(Self { folder: folder.path().to_owned(), _removed: Some(folder) })
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// All SVC_ variables of a process that works here.
    pub fn variables(&self) -> Vec<(String, String)> {
        // This is where `make setup` put the server and the model.
        let kept = ["SVC_CACHE_DIR", "SVC_POSTGRES_HOME"];
        let kept = kept.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
        let folder = self.folder.display().to_string();
        let own = [
            ("SVC_CONFIG", "/dev/null"),
            ("SVC_DATA_DIR", &folder),
            ("SVC_LISTEN", "127.0.0.1:0"),
            ("SVC_CONSOLE_LISTEN", "127.0.0.1:0"),
            ("SVC_LOG_LEVEL", "warn"),
            ("SVC_API_TOKEN", TOKEN),
        ];
        kept.chain(own.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
    }

    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let others =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let others = others.filter(|(name, _)| !name.starts_with("SVC_"));
        Settings::load(Some(Path::new("/dev/null")), others.chain(self.variables()))
    }
}

/// Measures on a service of its own in this process, which is stopped whatever happens. `change` changes its settings.
pub async fn with_app<T>(
    change: impl FnOnce(&mut Settings),
    measure: impl AsyncFnOnce(&App) -> Result<T, BoxError>,
) -> Result<T, BoxError> {
    let sandbox = Sandbox::new()?;
    let mut settings = sandbox.settings()?;
    change(&mut settings);
    let app = App::start(Arc::new(settings), TOKEN, Reader::of_this_program()).await?;
    let measured = interruptible(measure(&app)).await;
    app.stop(std::future::pending()).await;
    measured
}

/// Gives up when the process is asked to end, so that the caller can take down what it started.
pub async fn interruptible<T>(work: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    tokio::select! {
        done = work => done,
        () = svc::app::asked_to_stop() => Err("interrupted".into()),
    }
}
