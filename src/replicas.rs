//! Standbys of the database, which answer reads in the primary's place (docs/operations.md).
//!
//! A standby replays what the primary has written, and may be behind. It answers a read only if it has what the caller knows, and the last
//! change of what callers may read. Otherwise the primary answers, and so it does where a standby fails.
use crate::{
    settings::Settings,
    store::{
        database::{self, DatabaseError},
        replicas::{self, Identity, Standing, Written},
    },
};
use chrono::{DateTime, Utc};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use svc_client::{Position, wire::FindingKind};

/// Reads that a standby may answer, by the server that did.
pub const READS: &str = "svc_reads_total";
/// Whether a standby answers reads.
pub const UP: &str = "svc_standby_up";
/// How far a standby is behind the primary.
pub const BEHIND_SECONDS: &str = "svc_standby_behind_seconds";

/// The time between two examinations of the standbys.
const EVERY: Duration = Duration::from_secs(1);
/// How long a standby may take to say how far it is.
const ANSWER: Duration = Duration::from_millis(500);
/// How long the primary may take for that.
const PATIENCE: Duration = Duration::from_secs(5);
/// A standby that is further behind answers nothing, not even callers that know nothing. Nor does one that may be, because nobody has seen it catch up.
const FAR_BEHIND: Duration = Duration::from_secs(10);
/// The connections to a standby by which it says how far it is: busy reads must not make it look away.
const LOOKS: u32 = 4;
/// The first pause of a read that waits for a standby; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// What a standby must have replayed to answer a read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needed {
    /// The timeline of the primary, if it was asked: what a standby of another one has replayed says nothing.
    pub timeline: Option<i32>,
    /// What the caller knows.
    pub position: Option<Position>,
    /// The changes of guards that were committed before the caller's rights were looked up; `None` for a caller who reads everything.
    pub rights: Option<i64>,
}

impl Needed {
    fn is_met_by(&self, standing: &Standing) -> bool {
        self.timeline.is_none_or(|timeline| standing.timeline == timeline)
            && self.position.is_none_or(|position| standing.replayed.is_some_and(|replayed| replayed >= position))
            && self.rights.is_none_or(|rights| standing.rights >= rights)
    }
}

/// The standbys of the settings.
pub struct Replicas {
    primary: PgPool,
    standbys: Vec<Standby>,
    /// The standby that is asked first by the next read.
    next: AtomicUsize,
    /// How long a read waits for a standby.
    wait: Duration,
    /// Which history the primary has, as it said last.
    identity: Mutex<Option<Identity>>,
    started: AtomicBool,
}

impl Replicas {
    /// The standbys that the settings name; `None` if they name none. `primary` has the connections of requests.
    pub fn new(settings: &Settings, primary: &PgPool) -> Result<Option<Replicas>, DatabaseError> {
        let addresses = settings.database_read_url.iter().map(|address| database::read_options(address.expose()));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let connections = u32::try_from(settings.database_pool_size).unwrap_or(u32::MAX);
        let (lease, limit) = (settings.worker_lease, settings.statement_timeout);
        let standby = |options: PgConnectOptions| Standby {
            name: name(&options),
            pool: database::pool_of_reads(options.clone(), connections, lease, limit),
            looks: database::pool_of_reads(options, LOOKS, lease, ANSWER),
            state: Mutex::new(State::unknown()),
        };
        let standbys: Vec<Standby> = addresses.into_iter().map(standby).collect();
        Ok((!standbys.is_empty()).then(|| Replicas {
            primary: primary.clone(),
            standbys,
            next: AtomicUsize::new(0),
            wait: settings.read_wait,
            identity: Mutex::default(),
            started: AtomicBool::new(false),
        }))
    }

    /// Begins to examine the standbys again and again; further calls do nothing.
    pub fn start(self: &Arc<Replicas>) {
        if !self.started.swap(true, Ordering::Relaxed) {
            tokio::spawn(watch(Arc::downgrade(self)));
        }
    }

    /// What the primary has written by now.
    pub async fn written(&self) -> sqlx::Result<Written> {
        replicas::written(&mut *self.primary.acquire().await?).await
    }

    /// A standby that has what is needed, or has it soon; `None` if the primary has to answer.
    pub async fn find(&self, needed: Needed) -> Option<Turn<'_>> {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let first = self.next.fetch_add(1, Ordering::Relaxed) % self.standbys.len();
            let (before, from) = self.standbys.split_at(first);
            let usable: Vec<&Standby> = from.iter().chain(before).filter(|standby| standby.is_usable()).collect();
            let mut is_any_behind = false;
            for standby in usable {
                match standby.look().await {
                    Some(standing) if needed.is_met_by(&standing) => {
                        return Some(Turn { standby, started: standing.started });
                    }
                    Some(_) => is_any_behind = true,
                    None => {}
                }
            }
            let left = self.wait.saturating_sub(begun.elapsed());
            if !is_any_behind || left.is_zero() {
                return None;
            }
            tokio::time::sleep(pause.min(left)).await;
            pause *= 2;
        }
    }

    /// Examines all standbys now.
    pub async fn examine(&self) {
        let asked = async {
            let mut conn = self.primary.acquire().await?;
            Ok::<_, sqlx::Error>((replicas::identity(&mut conn).await?, replicas::written(&mut conn).await?.position))
        };
        // While the primary is away, the standbys go on answering callers that need no more than what they have.
        let position = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok((identity, position))) => {
                *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
                Some(position)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the primary does not say how far it is");
                None
            }
            Err(_) => None,
        };
        let identity = *self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        for standby in &self.standbys {
            standby.examine(identity, position).await;
        }
    }

    /// Examines all standbys until it is known of each that answers whether it is far behind. That takes long only where one may be.
    pub async fn examine_until_known(&self) {
        self.examine().await;
        let begun = Instant::now();
        // One that catches up no more is far behind after this, unless the primary does not answer.
        while begun.elapsed() <= FAR_BEHIND + EVERY && self.standbys.iter().any(Standby::is_catching_up) {
            tokio::time::sleep(EVERY).await;
            self.examine().await;
        }
    }

    /// How many standbys answer reads, of how many, or why some do not.
    pub fn state(&self) -> Result<String, String> {
        let troubles = self.troubles();
        match troubles.is_empty() {
            true => Ok(format!("{} answer reads", self.standbys.len())),
            false => Err(troubles.into_iter().map(|(_, about, _)| about).collect::<Vec<_>>().join("; ")),
        }
    }

    /// The standbys that do not answer reads, each with the reason and for how many seconds that has been so.
    pub fn troubles(&self) -> Vec<(FindingKind, String, f64)> {
        let trouble = |standby: &Standby| {
            let state = standby.lock();
            let behind = state.behind();
            match &state.away {
                Some((reason, since)) => {
                    let about = format!("{} {reason}", standby.name);
                    Some((FindingKind::StandbyAway, about, since.elapsed().as_secs_f64()))
                }
                None if behind > FAR_BEHIND => {
                    let about = format!("{} is {} s behind the primary", standby.name, behind.as_secs());
                    Some((FindingKind::StandbyBehind, about, behind.as_secs_f64()))
                }
                None if !state.has_caught_up => {
                    let about = format!("{} has not caught up with the primary yet", standby.name);
                    Some((FindingKind::StandbyBehind, about, behind.as_secs_f64()))
                }
                None => None,
            }
        };
        self.standbys.iter().filter_map(trouble).collect()
    }

    /// Closes the connections to the standbys.
    pub async fn close(&self) {
        for standby in &self.standbys {
            standby.pool.close().await;
            standby.looks.close().await;
        }
    }
}

/// Examines the standbys until the service is gone, and holds them only meanwhile.
async fn watch(replicas: Weak<Replicas>) {
    while let Some(replicas) = replicas.upgrade().filter(|replicas| !replicas.primary.is_closed()) {
        replicas.examine().await;
        drop(replicas);
        tokio::time::sleep(EVERY).await;
    }
}

/// How operators know a server: by its host and port, or the folder of its socket.
fn name(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

/// One standby.
struct Standby {
    name: String,
    /// The connections of reads.
    pool: PgPool,
    looks: PgPool,
    state: Mutex<State>,
}

/// What is known of a standby.
struct State {
    /// Why it answers nothing, and since when.
    away: Option<(String, Instant)>,
    /// A position of the primary that it has not replayed yet, and when the primary was there.
    goal: Option<(Instant, Position)>,
    /// How long it took to reach the last goal.
    lag: Duration,
    /// Whether it has reached a goal since it was away for long. Until then nobody knows how far behind it is.
    has_caught_up: bool,
}

impl State {
    fn unknown() -> State {
        let away = Some(("has not been asked yet".to_owned(), Instant::now()));
        State { away, goal: None, lag: Duration::ZERO, has_caught_up: false }
    }

    /// Ends the absence of a standby; says whether it was away. What one replays that was away for longer than a standby may be behind nobody knows.
    fn is_back(&mut self) -> bool {
        let Some((_, since)) = self.away.take() else { return false };
        if since.elapsed() > FAR_BEHIND {
            (self.goal, self.lag, self.has_caught_up) = (None, Duration::ZERO, false);
        }
        true
    }

    fn behind(&self) -> Duration {
        self.goal.map_or(self.lag, |(since, _)| self.lag.max(since.elapsed()))
    }

    /// Takes note of how far the primary was, if it said so, and after that the standby.
    fn measure(&mut self, written: Option<Position>, replayed: Position) {
        let reached = self.goal.filter(|(_, goal)| replayed >= *goal);
        if let Some((since, _)) = reached {
            (self.lag, self.goal, self.has_caught_up) = (since.elapsed(), None, true);
        }
        match written {
            Some(written) if replayed >= written => {
                (self.lag, self.goal, self.has_caught_up) = (Duration::ZERO, None, true);
            }
            Some(written) if self.goal.is_none() => self.goal = Some((Instant::now(), written)),
            Some(_) => {}
            // Without the primary nobody knows what is to be reached, and what was behind before stays as far behind.
            None => {
                if let Some((since, _)) = self.goal.take() {
                    self.lag = self.lag.max(since.elapsed());
                }
            }
        }
    }
}

impl Standby {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_usable(&self) -> bool {
        let state = self.lock();
        state.away.is_none() && state.has_caught_up && state.behind() <= FAR_BEHIND
    }

    /// Whether it may be far behind, and a later examination tells.
    fn is_catching_up(&self) -> bool {
        let state = self.lock();
        state.away.is_none() && !state.has_caught_up && state.behind() <= FAR_BEHIND
    }

    /// How far it is now; `None` if it cannot answer, and then it is not asked again before its next examination.
    async fn look(&self) -> Option<Standing> {
        let asked = async { replicas::standing(&mut *self.looks.acquire().await?).await };
        let found = match tokio::time::timeout(ANSWER, asked).await {
            Ok(found) => found.map_err(|error| format!("does not answer: {error}")),
            Err(_) => Err(silent()),
        };
        match found.and_then(|standing| fault(&standing).map(|()| standing)) {
            Ok(standing) => Some(standing),
            Err(reason) => {
                self.is_away(reason);
                None
            }
        }
    }

    /// Finds out whether it may answer reads, and how far behind it is.
    async fn examine(&self, primary: Option<Identity>, written: Option<Position>) {
        let asked = async {
            let mut conn = self.looks.acquire().await?;
            let has_settings = database::has_settings(&mut *conn).await?;
            let identity = replicas::identity(&mut conn).await?;
            Ok::<_, sqlx::Error>((has_settings, identity, replicas::standing(&mut conn).await?))
        };
        let found = match tokio::time::timeout(ANSWER, asked).await {
            Ok(found) => found.map_err(|error| format!("does not answer: {error}")),
            Err(_) => Err(silent()),
        };
        let found = found.and_then(|(has_settings, identity, standing)| {
            fault(&standing)?;
            // Without them a search that its service has given up runs on there to its end.
            if !has_settings {
                return Err("drops the settings that svc asks for with a connection, as a pooler does".to_owned());
            }
            shares_history(primary, identity).map(|()| standing)
        });
        match found {
            Ok(standing) => {
                let mut state = self.lock();
                let was_away = state.is_back();
                if let Some(replayed) = standing.replayed {
                    state.measure(written, replayed);
                }
                if was_away {
                    tracing::info!(standby = self.name, "a standby is there, and answers reads once it has caught up");
                }
            }
            Err(reason) => self.is_away(reason),
        }
        let (is_up, behind) = (self.is_usable(), self.lock().behind());
        metrics::gauge!(UP, "standby" => self.name.clone()).set(if is_up { 1.0 } else { 0.0 });
        metrics::gauge!(BEHIND_SECONDS, "standby" => self.name.clone()).set(behind.as_secs_f64());
    }

    /// Notes why it answers nothing; how long that has been so goes on to count.
    fn is_away(&self, reason: String) {
        let mut state = self.lock();
        let since = state.away.take().map(|(_, since)| since);
        if since.is_none() {
            tracing::warn!(standby = self.name, reason, "a standby answers no reads, and the primary does");
        }
        state.away = Some((reason, since.unwrap_or_else(Instant::now)));
    }
}

fn silent() -> String {
    format!("gives no answer within {ANSWER:?}")
}

/// Refuses a server that cannot answer in the primary's place.
fn fault(standing: &Standing) -> Result<(), String> {
    match standing {
        Standing { is_standby: false, .. } => Err("takes writes, so it is no standby any more".to_owned()),
        Standing { replayed: None, .. } => Err("does not tell how far it has replayed the log".to_owned()),
        _ => Ok(()),
    }
}

/// Refuses a server whose log is not the primary's.
fn shares_history(primary: Option<Identity>, standby: Identity) -> Result<(), String> {
    match primary {
        None => Err("waits until the primary says which database it has".to_owned()),
        Some(primary) if primary.system != standby.system => {
            Err("is no standby of this primary: SVC_DATABASE_READ_URL names another database".to_owned())
        }
        Some(primary) if primary.timeline != standby.timeline => {
            Err(format!("is on timeline {}, and the primary on {}", standby.timeline, primary.timeline))
        }
        Some(_) => Ok(()),
    }
}

/// A standby that may answer a read.
pub struct Turn<'a> {
    standby: &'a Standby,
    /// When the run of the server began that had what was needed.
    started: DateTime<Utc>,
}

impl Turn<'_> {
    /// The connections to the standby.
    pub fn pool(&self) -> &PgPool {
        &self.standby.pool
    }

    /// How operators know the standby.
    pub fn name(&self) -> &str {
        &self.standby.name
    }

    /// How far the standby is after the read; `None` if that may have met another run of the server, or one that takes writes by now.
    pub async fn end(&self) -> Option<Position> {
        let standing = self.standby.look().await?;
        standing.replayed.filter(|_| standing.started == self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(replayed: u64, rights: i64) -> Standing {
        let (replayed, started) = (Some(Position(replayed)), DateTime::UNIX_EPOCH);
        Standing { is_standby: true, timeline: 1, replayed, rights, started }
    }

    #[test]
    fn a_standby_must_have_both_what_is_known_and_the_last_change_of_rights() {
        let needed =
            |position: Option<u64>, rights| Needed { timeline: Some(1), position: position.map(Position), rights };
        assert!(Needed::default().is_met_by(&standing(0, 0)));
        assert!(needed(Some(7), Some(2)).is_met_by(&standing(7, 2)));
        assert!(!needed(Some(8), Some(2)).is_met_by(&standing(7, 2)));
        assert!(!needed(None, Some(3)).is_met_by(&standing(7, 2)));
        assert!(!needed(Some(7), Some(2)).is_met_by(&Standing { timeline: 2, ..standing(7, 2) }), "of another history");
        let silent = Standing { replayed: None, ..standing(0, 0) };
        assert!(!needed(Some(0), None).is_met_by(&silent) && fault(&silent).is_err());
        assert!(fault(&Standing { is_standby: false, ..standing(9, 9) }).is_err());
    }

    /// Two standbys that nobody reaches.
    fn unreached() -> Replicas {
        let addresses = "postgres://svc@127.0.0.1:1/svc, postgres://svc@127.0.0.1:2/svc";
        let environment = [("HOME", "/nonexistent"), ("SVC_DATABASE_READ_URL", addresses)];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = Settings::load(Some(std::path::Path::new("/dev/null")), environment.into_iter());
        let settings = settings.expect("settings");
        let primary = database::pool(PgConnectOptions::new(), 1, settings.worker_lease);
        Replicas::new(&settings, &primary).expect("addresses").expect("standbys")
    }

    #[tokio::test]
    async fn a_standby_that_is_far_behind_is_a_finding_and_answers_nothing() {
        let replicas = unreached();
        let troubles = replicas.troubles();
        assert!(troubles.len() == 2 && troubles.iter().all(|(kind, ..)| *kind == FindingKind::StandbyAway));
        assert!(replicas.find(Needed::default()).await.is_none(), "nobody has been asked yet");
        for standby in &replicas.standbys {
            standby.lock().away = None;
            assert!(!standby.is_usable() && standby.is_catching_up(), "it may be hours behind");
        }
        let troubles = replicas.troubles();
        assert!(troubles.len() == 2 && troubles.iter().all(|(kind, ..)| *kind == FindingKind::StandbyBehind));
        for standby in &replicas.standbys {
            standby.lock().has_caught_up = true;
        }
        assert_eq!(replicas.state(), Ok("2 answer reads".to_owned()));
        let long_ago = Instant::now().checked_sub(2 * FAR_BEHIND).expect("a machine that has run for a while");
        replicas.standbys[1].lock().goal = Some((long_ago, Position(1)));
        let troubles = replicas.troubles();
        let [(FindingKind::StandbyBehind, about, seconds)] = &troubles[..] else { panic!("{troubles:?}") };
        assert!(about.starts_with("127.0.0.1:2 is ") && *seconds >= 20.0, "{about}");
        assert!(replicas.standbys[0].is_usable() && !replicas.standbys[1].is_usable());
        assert_eq!(replicas.state(), Err(about.clone()));
        let back = &replicas.standbys[0];
        back.is_away("does not answer".to_owned());
        assert!(back.lock().is_back() && back.is_usable(), "one slow answer says nothing of what it has replayed");
        back.lock().away = Some(("does not answer".to_owned(), long_ago));
        assert!(back.lock().is_back() && !back.is_usable() && back.is_catching_up(), "it may have been off for hours");
    }

    #[test]
    fn a_server_of_another_database_or_history_is_refused() {
        let of = |system, timeline| Identity { system, timeline };
        assert_eq!(shares_history(Some(of(1, 1)), of(1, 1)), Ok(()));
        for (primary, standby) in [(None, of(1, 1)), (Some(of(2, 1)), of(1, 1)), (Some(of(1, 2)), of(1, 1))] {
            assert!(shares_history(primary, standby).is_err(), "{primary:?} {standby:?}");
        }
    }

    #[test]
    fn a_standby_that_has_what_the_primary_has_is_not_behind_and_one_that_stands_still_is() {
        let mut state = State::unknown();
        state.measure(Some(Position(10)), Position(10));
        assert!(state.behind() == Duration::ZERO && state.has_caught_up);
        state.measure(Some(Position(20)), Position(10));
        let (since, goal) = state.goal.expect("a goal");
        state.measure(Some(Position(30)), Position(10));
        assert_eq!(state.goal, Some((since, goal)), "it still has to reach the first one");
        state.measure(Some(Position(40)), Position(25));
        assert_eq!(state.goal.map(|(_, goal)| goal), Some(Position(40)));
        state.measure(None, Position(25));
        assert_eq!(state.goal, None, "the primary is away");
        state.measure(Some(Position(40)), Position(26));
        state.measure(Some(Position(40)), Position(40));
        assert_eq!((state.goal, state.behind()), (None, Duration::ZERO));
        // What a primary that was lost had written beyond that is no goal any more.
        state.goal = Some((Instant::now(), Position(90)));
        state.measure(Some(Position(50)), Position(50));
        assert_eq!((state.goal, state.behind()), (None, Duration::ZERO));
    }

    #[test]
    fn what_is_not_known_of_a_standby_does_not_count_as_nothing() {
        let mut state = State::unknown();
        state.measure(Some(Position(20)), Position(10));
        assert!(!state.has_caught_up, "it may be hours behind");
        state.measure(None, Position(10));
        assert!(!state.has_caught_up, "the primary does not say so");
        state.measure(Some(Position(20)), Position(10));
        state.measure(Some(Position(30)), Position(20));
        assert!(state.has_caught_up, "it has what the primary had when it was first asked");
        // Its replay has been paused for long when the primary is not asked in time.
        let long_ago = Instant::now().checked_sub(2 * FAR_BEHIND).expect("a machine that has run for a while");
        state.goal = Some((long_ago, Position(30)));
        state.measure(None, Position(20));
        assert!(state.goal.is_none() && state.behind() >= 2 * FAR_BEHIND, "{:?}", state.behind());
        state.measure(Some(Position(40)), Position(20));
        assert!(state.behind() >= 2 * FAR_BEHIND, "it has replayed nothing: {:?}", state.behind());
        state.measure(Some(Position(50)), Position(40));
        assert!(state.behind() < FAR_BEHIND, "it goes on: {:?}", state.behind());
    }
}
