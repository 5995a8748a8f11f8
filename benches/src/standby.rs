//! A standby of a server that a bench started, as the tests make it.
#[path = "../../tests/it/support/standby.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
#[expect(clippy::unwrap_used, reason = "a standby that does not start ends the bench")]
mod made;

pub use made::Standby;
use std::time::Duration;

/// How often to ask.
const LOOK: Duration = Duration::from_millis(20);

/// Asks repeatedly until there is an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    eprintln!("bench: waits for {what}");
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Removes what standbys had on the disk, once they are gone.
pub fn remove() {
    let _ = std::fs::remove_dir_all(server::path());
}

/// Where standbys are.
mod server {
    use std::{
        fs,
        os::unix::fs::PermissionsExt,
        path::{Path, PathBuf},
        sync::OnceLock,
    };

    pub fn path() -> PathBuf {
        std::env::temp_dir().join(format!("svc-bench-standby.{}", std::process::id()))
    }

    /// The folder of all standbys, which the user who runs them may enter.
    pub fn folder() -> &'static Path {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        FOLDER.get_or_init(|| {
            let folder = path();
            // Whatever is wrong with it, the standby's own folder cannot be made in it then, and says so.
            let _ = fs::create_dir(&folder);
            let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o711));
            folder
        })
    }
}
