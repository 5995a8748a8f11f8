//! Pages that were read within the last second, for others who ask for the same.
use http::StatusCode;
use lru::LruCache;
use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Mutex as Turn;

/// How many addresses are kept.
const KEPT: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// How long a page is shown to others.
const LASTS: Duration = Duration::from_secs(1);

/// What decides whether a page is still the same.
pub type Version = (u64, u64);
/// A page with its title.
pub type Rendered = (StatusCode, String, String);

struct Kept {
    at: Instant,
    version: Version,
    page: Arc<Rendered>,
}

pub struct Shown(Mutex<LruCache<String, Arc<Turn<Option<Kept>>>>>);

impl Default for Shown {
    fn default() -> Shown {
        Shown(Mutex::new(LruCache::new(KEPT)))
    }
}

impl Shown {
    /// The page under this key, read now unless somebody read it just now. Without a key it is read for this viewer alone.
    pub async fn read(
        &self,
        key: Option<String>,
        version: Version,
        read: impl AsyncFnOnce() -> Rendered,
    ) -> Arc<Rendered> {
        let Some(key) = key else { return Arc::new(read().await) };
        let kept = {
            let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            shown.get_or_insert(key, Arc::default).clone()
        };
        let mut kept = kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.version == version && kept.at.elapsed() < LASTS) {
            return kept.page.clone();
        }
        let page = Arc::new(read().await);
        *kept = Some(Kept { at: Instant::now(), version, page: page.clone() });
        page
    }
}
