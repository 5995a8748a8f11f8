//! Pages that were read a moment ago, for others who ask for the same.
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
/// How long a page is shown to others who ask for it.
const LASTS: Duration = Duration::from_secs(1);
/// A page that reads itself again is shown as it was for this many times what reading it took, so that those who leave it open cost the database
/// a small share of its time, however long the queue is.
const RESTS: u32 = 250;
/// The longest such time.
const RESTS_AT_MOST: Duration = Duration::from_secs(8);

/// What decides whether a page is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// How often somebody has changed something here.
    pub acts: u64,
    /// How many overviews have been taken.
    pub overviews: u64,
}

/// Who asks for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    Person,
    /// The page itself, which asks again at the next overview.
    LivePage,
}
/// A page with its title.
pub type Rendered = (StatusCode, String, String);

struct Kept {
    at: Instant,
    /// How long it took to read.
    took: Duration,
    version: Version,
    page: Arc<Rendered>,
}

impl Kept {
    fn serves(&self, asker: Asker, version: Version) -> bool {
        let age = self.at.elapsed();
        let is_same = self.version == version && age < LASTS;
        let rests = asker == Asker::LivePage && age < (self.took * RESTS).min(RESTS_AT_MOST);
        is_same || (rests && self.version.acts == version.acts)
    }
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
        asker: Asker,
        version: Version,
        read: impl AsyncFnOnce() -> Rendered,
    ) -> Arc<Rendered> {
        let Some(key) = key else { return Arc::new(read().await) };
        let kept = {
            let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            shown.get_or_insert(key, Arc::default).clone()
        };
        let mut kept = kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.serves(asker, version)) {
            return kept.page.clone();
        }
        let begun = Instant::now();
        let page = Arc::new(read().await);
        *kept = Some(Kept { at: Instant::now(), took: begun.elapsed(), version, page: page.clone() });
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_page_that_took_long_rests_for_those_who_leave_it_open_until_somebody_acts() {
        let (shown, readings) = (Shown::default(), AtomicU32::new(0));
        let read = async |key: &str, asker, acts, overviews| {
            let rendered = shown.read(Some(key.to_owned()), asker, Version { acts, overviews }, async || {
                // Reading takes some time, as it always does.
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(20) {
                    std::thread::yield_now();
                }
                (StatusCode::OK, readings.fetch_add(1, Ordering::Relaxed).to_string(), String::new())
            });
            rendered.await.1.clone()
        };
        assert_eq!(read("/failed", Asker::Person, 0, 0).await, "0");
        assert_eq!(read("/failed", Asker::LivePage, 0, 1).await, "0");
        assert_eq!(read("/failed", Asker::LivePage, 1, 1).await, "1");
        assert_eq!(read("/failed", Asker::Person, 1, 2).await, "2");
        assert_eq!(read("/tasks", Asker::LivePage, 1, 2).await, "3");
        assert_eq!(read("/failed", Asker::LivePage, 1, 3).await, "2");
    }
}
