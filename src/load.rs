//! How long what this process does has taken lately. Each process tells the database, so that findings know of all of them.
use crate::{
    settings::Settings,
    store::growth::{self, Figure, Growth, RECENT, Sizes, Thresholds, Timed},
};
use sqlx::{PgConnection, PgPool};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub const SEARCH_SECONDS: &str = "svc_search_seconds";
pub const BM25_SECONDS: &str = "svc_bm25_seconds";
pub const ENCODE_SECONDS: &str = "svc_encode_seconds";

/// How many calls of a kind are remembered.
const REMEMBERED: usize = 1_000;
/// The time between two tellings.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// The time between two looks at the sizes, which change slowly.
const MEASURED_EVERY: Duration = Duration::from_secs(60);

/// The embedded server expects half of the memory to hold pages, and any other three quarters, which docs/operations.md advises. Of either
/// this share is half of the memory.
const OF_EMBEDDED: f64 = 1.0;
const OF_OTHERS: f64 = 2.0 / 3.0;
/// What claims may take on the embedded server, unless the setting says otherwise: it shares the processors with the models, and a claim that
/// waits for these says nothing of the queue.
const CLAIM_OF_EMBEDDED: Duration = Duration::from_millis(250);

/// When calls ended, and what they took.
type Calls = VecDeque<(Instant, Duration)>;

/// What this process remembers of its own calls, and of the sizes of what grows.
pub struct Load {
    process: Uuid,
    calls: Mutex<[Calls; Timed::ALL.len()]>,
    /// Whether there were calls since the database was told.
    has_news: AtomicBool,
    sizes: Mutex<Option<(Instant, Sizes)>>,
    thresholds: Thresholds,
}

impl Load {
    pub fn new(settings: &Settings) -> Load {
        Load {
            process: Uuid::new_v4(),
            calls: Mutex::default(),
            has_news: AtomicBool::new(false),
            sizes: Mutex::default(),
            thresholds: thresholds(settings),
        }
    }

    /// Notes what a call took that has just ended.
    pub fn record(&self, what: Timed, took: Duration) {
        // The others have histograms where they happen.
        let metric = match what {
            Timed::Search => Some(SEARCH_SECONDS),
            Timed::Bm25 => Some(BM25_SECONDS),
            Timed::Encode => Some(ENCODE_SECONDS),
            Timed::Claim | Timed::Embed => None,
        };
        if let Some(metric) = metric {
            metrics::histogram!(metric).record(took.as_secs_f64());
        }
        let mut all = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = &mut all[what as usize];
        if calls.len() == REMEMBERED {
            calls.pop_front();
        }
        calls.push_back((Instant::now(), took));
        self.has_news.store(true, Ordering::Release);
    }

    /// What the latest calls took.
    fn figures(&self) -> Vec<Figure> {
        let all = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |what: Timed| {
            let recent = all[what as usize].iter().filter(|(at, _)| at.elapsed() < RECENT);
            let mut took: Vec<f64> = recent.map(|(_, took)| took.as_secs_f64()).collect();
            took.sort_unstable_by(f64::total_cmp);
            let p95 = *took.get((took.len() * 95).div_ceil(100).checked_sub(1)?)?;
            let calls = i32::try_from(took.len()).unwrap_or(i32::MAX);
            Some(Figure { what, calls, p95, total: took.iter().sum() })
        };
        Timed::ALL.into_iter().filter_map(of).collect()
    }

    /// Tells the database what the latest calls took, if there were any since it was told.
    pub async fn tell(&self, pool: &PgPool) -> sqlx::Result<()> {
        if !self.has_news.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let told = growth::tell(pool, self.process, &self.figures()).await;
        if told.is_err() {
            self.has_news.store(true, Ordering::Release);
        }
        told
    }

    /// How large what grows is, as it was measured within the last minute, or before somebody held it alone.
    pub async fn sizes(&self, conn: &mut PgConnection) -> sqlx::Result<Sizes> {
        let known = *self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, sizes)) = known
            && at.elapsed() < MEASURED_EVERY
        {
            return Ok(sizes);
        }
        let Some(sizes) = growth::sizes(conn).await? else {
            return Ok(known.map(|(_, sizes)| sizes).unwrap_or_default());
        };
        *self.sizes.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), sizes));
        Ok(sizes)
    }

    /// What the signs of growth are read from.
    pub async fn growth(&self, conn: &mut PgConnection) -> sqlx::Result<Growth> {
        Ok(Growth { thresholds: self.thresholds, sizes: self.sizes(conn).await? })
    }
}

/// Where the signs begin on the server that the settings name.
fn thresholds(settings: &Settings) -> Thresholds {
    let is_embedded = settings.database_url.is_blank();
    let is_default = settings.is_default("SVC_GROWTH_CLAIM_SECONDS");
    Thresholds {
        files: settings.growth_file_bytes,
        search: settings.growth_search,
        claim: if is_embedded && is_default { CLAIM_OF_EMBEDDED } else { settings.growth_claim },
        vectors: if is_embedded { OF_EMBEDDED } else { OF_OTHERS },
    }
}

/// Tells the database again and again, until the load is gone or the pool is closed.
pub fn keep_told(load: &Arc<Load>, pool: PgPool) -> JoinHandle<()> {
    let load = Arc::downgrade(load);
    tokio::spawn(async move {
        while let Some(load) = load.upgrade()
            && !pool.is_closed()
        {
            if let Err(error) = load.tell(&pool).await {
                tracing::debug!(%error, "the database could not be told what calls took");
            }
            drop(load);
            tokio::time::sleep(TOLD_EVERY).await;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_server_is_measured_by_the_memory_and_the_processors_that_it_shares() {
        let of = |set: &[(&str, &str)]| {
            let set = set.iter().chain(&[("HOME", "/nonexistent")]);
            let set = set.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let settings = Settings::load(Some(std::path::Path::new("/dev/null")), set);
            let Thresholds { claim, vectors, .. } = thresholds(&settings.expect("settings"));
            (claim, vectors)
        };
        let server = ("SVC_DATABASE_URL", "postgres://svc@server/svc");
        assert_eq!(of(&[]), (Duration::from_millis(250), 1.0));
        assert_eq!(of(&[server]), (Duration::from_millis(50), 2.0 / 3.0));
        let set = ("SVC_GROWTH_CLAIM_SECONDS", "0.05");
        assert_eq!(of(&[set]), (Duration::from_millis(50), 1.0), "whoever sets it gets it");
    }
}
