//! How far the servers of the database are: the primary, which writes, and standbys, which replay what it wrote.
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use std::sync::atomic::{AtomicBool, Ordering};
use svc_client::Position;

tokio::task_local! {
    /// Whether a statement, or a part of the answer, of the read that is carried out here has failed.
    static FAILED: AtomicBool;
}

/// Carries out a read. Says with its outcome whether a statement or a part of the answer has failed, which an answer in several parts may tell of only one.
pub async fn reading<T>(read: impl Future<Output = T>) -> (T, bool) {
    let watched = async {
        let outcome = read.await;
        (outcome, FAILED.with(|failed| failed.load(Ordering::Relaxed)))
    };
    FAILED.scope(AtomicBool::new(false), watched).await
}

/// Notes that a statement, or a part of an answer, has failed; outside of [`reading`] nobody asks.
pub fn note_failure() {
    let _ = FAILED.try_with(|failed| failed.store(true, Ordering::Relaxed));
}

/// Which timeline a server is on. A primary knows it at once. A standby that follows a new primary says so in its recovery before it does in its next checkpoint.
macro_rules! timeline {
    () => {
        "CASE WHEN pg_is_in_recovery()
              THEN (SELECT greatest(c.timeline_id, r.min_recovery_end_timeline) FROM pg_control_checkpoint() c, pg_control_recovery() r)
              ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer END"
    };
}

/// What the primary has written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Positions of two timelines do not compare.
    pub timeline: i32,
    /// The end of its log, which is behind everything that was committed before.
    pub position: Position,
    /// How often guards have changed.
    pub rights: i64,
}

/// What the primary has written by now.
pub async fn written(conn: &mut PgConnection) -> sqlx::Result<Written> {
    let (timeline, position, rights): (i32, i64, i64) = sqlx::query_as(concat!(
        "SELECT ",
        timeline!(),
        ", (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, c.changes FROM access_changes c"
    ))
    .fetch_one(conn)
    .await?;
    Ok(Written { timeline, position: Position(end_of_record(position.cast_unsigned())), rights })
}

/// The bytes of a page of the log, and of the headers with which a page and a segment begin. No record ends right after one.
const PAGE: u64 = 8192;
const HEADERS: [u64; 2] = [24, 40];

/// Where the last record before a position ends. The next one is written behind the header of a page if that is full, and until it is, no
/// standby replays as far as that.
fn end_of_record(position: u64) -> u64 {
    let within = position % PAGE;
    if HEADERS.contains(&within) { position - within } else { position }
}

/// How far a standby is.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Whether it replays the log of another server, and takes no writes.
    pub is_standby: bool,
    pub timeline: i32,
    /// How far it has replayed; `None` if it does not tell.
    pub replayed: Option<Position>,
    /// How many changes of guards it has replayed.
    pub rights: i64,
    /// When this run of the server began. A later run may for a while be behind this one.
    pub started: DateTime<Utc>,
}

/// How far a standby is by now. What is read after this on the same run is no older.
pub async fn standing(conn: &mut PgConnection) -> sqlx::Result<Standing> {
    let (is_standby, timeline, replayed, rights, started): (bool, i32, Option<i64>, i64, DateTime<Utc>) =
        sqlx::query_as(concat!(
            "SELECT pg_is_in_recovery(), ",
            timeline!(),
            ", (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint, c.changes, pg_postmaster_start_time() FROM access_changes c"
        ))
        .fetch_one(conn)
        .await?;
    Ok(Standing {
        is_standby,
        timeline,
        replayed: replayed.map(|position| Position(position.cast_unsigned())),
        rights,
        started,
    })
}

/// What tells whether two servers share one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Alike for a primary and all of its standbys.
    pub system: i64,
    /// Grows when a standby takes over. Positions of two timelines do not compare.
    pub timeline: i32,
}

/// Which history a server has.
pub async fn identity(conn: &mut PgConnection) -> sqlx::Result<Identity> {
    let (system, timeline): (i64, i32) =
        sqlx::query_as(concat!("SELECT s.system_identifier, ", timeline!(), " FROM pg_control_system() s"))
            .fetch_one(conn)
            .await?;
    Ok(Identity { system, timeline })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_page_counts_as_the_end_of_the_page_before() {
        for (position, end) in [(0x4018, 0x4000), (0x100_0028, 0x100_0000), (0x4000, 0x4000), (0x4048, 0x4048)] {
            assert_eq!(end_of_record(position), end, "{position:X}");
        }
    }

    #[tokio::test]
    async fn a_statement_that_fails_is_noted_whatever_comes_of_it() {
        let swallowed = async {
            note_failure();
            7
        };
        assert_eq!(reading(swallowed).await, (7, true));
        assert_eq!(reading(async { 8 }).await, (8, false));
        note_failure();
    }
}
