//! Transactions end, however the client that began them went away.
use crate::support::{server, until};
use sqlx::PgPool;
use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};
use svc::store::{
    advisory::AdvisoryLock,
    database,
    kept::KeptConnections,
    transaction::{
        begin, begin_bounded, begin_bounded_by_keys, begin_bounded_creating, begin_bounded_creating_by_keys,
        begin_creating, begin_creating_by_keys, begin_search, begin_snapshot,
    },
};

const LEASE: Duration = Duration::from_secs(90);

/// A pool with this many of the service's connections on a new database, and one more to look on.
async fn pools(connections: u32) -> (PgPool, PgPool) {
    let options = server::new_database().await;
    let onlooker = PgPool::connect_with(options.clone()).await.unwrap();
    sqlx::raw_sql("CREATE TABLE marks (mark bigint)").execute(&onlooker).await.unwrap();
    (database::pool(options, connections, LEASE), onlooker)
}

/// Drops a future after this many polls; `None` if it had not completed by then.
async fn polled<F: Future>(polls: usize, work: F) -> Option<F::Output> {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Whether the pool's next statement runs in a transaction that somebody else began.
async fn in_a_transaction(pool: &PgPool) -> bool {
    use sqlx::Row;
    let row = sqlx::raw_sql("SELECT now() <> statement_timestamp()").fetch_one(pool).await.unwrap();
    row.get(0)
}

/// What the server does for us, apart from what the onlooker asks.
async fn under_way(onlooker: &PgPool) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT state || ': ' || query FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'svc' AND state <> 'idle'",
    )
    .fetch_all(onlooker)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_transaction_that_is_dropped_at_any_moment_is_rolled_back() {
    let (pool, onlooker) = pools(1).await;
    let mut committed = Vec::new();
    // There are more polls than moments at which it waits; with the last ones it completes.
    for polls in 0..60_i64 {
        let work = async {
            let mut tx = begin(&pool).await.unwrap();
            sqlx::query("INSERT INTO marks VALUES ($1)").bind(polls).execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
        };
        if polled(polls as usize, work).await.is_some() {
            committed.push(polls);
        }
        assert!(!in_a_transaction(&pool).await, "dropped at poll {polls}");
    }
    assert!(!committed.is_empty() && committed.len() < 60, "{committed:?}");
    let marks: Vec<i64> = sqlx::query_scalar("SELECT mark FROM marks").fetch_all(&onlooker).await.unwrap();
    // A write that was dropped in its commit may be there too.
    assert!(committed.iter().all(|mark| marks.contains(mark)), "{marks:?} of {committed:?}");
    assert!(marks.len() <= committed.len() + 2, "{marks:?} of {committed:?}");
}

#[tokio::test]
async fn so_is_one_of_a_snapshot_of_a_search_of_a_creation_and_of_a_task() {
    let (pool, _) = pools(2).await;
    let kept = KeptConnections::new(pool.clone());
    for polls in 0..30 {
        polled(polls, begin_snapshot(&pool)).await;
        polled(polls, begin_search(&pool)).await;
        polled(polls, begin_creating_by_keys(&pool)).await;
        polled(polls, begin_bounded(&kept, LEASE)).await;
        polled(polls, begin_bounded_creating(&kept, LEASE)).await;
        assert!(!in_a_transaction(&pool).await, "dropped at poll {polls}");
        let mut conn = kept.lend().await.unwrap();
        let row = sqlx::raw_sql("SELECT now() <> statement_timestamp()").fetch_one(&mut *conn).await.unwrap();
        assert!(!sqlx::Row::get::<bool, _>(&row, 0), "dropped at poll {polls}");
        conn.keep();
    }
}

#[tokio::test]
async fn what_is_under_way_in_a_dropped_transaction_is_cancelled_at_the_server() {
    let (pool, onlooker) = pools(1).await;
    let mut tx = begin(&pool).await.unwrap();
    let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
    let work = tokio::spawn(async move {
        sqlx::query("SELECT pg_sleep(600)").execute(&mut *tx).await.unwrap();
    });
    until("the statement", async || (!under_way(&onlooker).await.is_empty()).then_some(())).await;
    work.abort();
    until("its cancel", async || under_way(&onlooker).await.is_empty().then_some(())).await;
    // The connection continues to serve: a cancel does not make a new one necessary.
    let after: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await.unwrap();
    assert_eq!(after, backend);
    assert!(!in_a_transaction(&pool).await);
}

#[tokio::test]
async fn a_statement_without_a_transaction_that_nobody_waits_for_holds_no_connection() {
    let (pool, onlooker) = pools(1).await;
    let sleeper = pool.clone();
    let work = tokio::spawn(async move { sqlx::query("SELECT pg_sleep(600)").execute(&sleeper).await });
    until("the statement", async || (!under_way(&onlooker).await.is_empty()).then_some(())).await;
    work.abort();
    // The pool has one connection and lends it within seconds, or this fails.
    sqlx::query("SELECT 1").execute(&pool).await.unwrap();
    until("its cancel", async || under_way(&onlooker).await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn whoever_creates_waits_while_guards_change_and_is_cancelled_if_nobody_wants_it_any_more() {
    let (pool, onlooker) = pools(1).await;
    let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await.unwrap();
    let mut change = onlooker.begin().await.unwrap();
    let key = AdvisoryLock::Access.key();
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(key).execute(&mut *change).await.unwrap();
    let creators = pool.clone();
    let unwanted = tokio::spawn(async move { begin_creating(&creators).await.map(|_| ()) });
    let is_waiting = async || {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1 AND NOT granted";
        sqlx::query_scalar::<_, i64>(waits).bind(backend).fetch_one(&onlooker).await.unwrap() == 1
    };
    until("the wait", async || is_waiting().await.then_some(())).await;
    unwanted.abort();
    until("its cancel", async || (!is_waiting().await).then_some(())).await;
    let after: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await.unwrap();
    assert_eq!(after, backend, "the connection was closed");

    let creators = pool.clone();
    let wanted = tokio::spawn(async move { begin_creating_by_keys(&creators).await?.commit().await });
    until("the wait", async || is_waiting().await.then_some(())).await;
    change.commit().await.unwrap();
    wanted.await.unwrap().unwrap();
}

#[tokio::test]
async fn how_a_transaction_is_planned_ends_with_it() {
    let (pool, _) = pools(2).await;
    let kept = KeptConnections::new(pool.clone());
    let plans = "SELECT string_agg(current_setting(name), ' ')
                   FROM unnest(ARRAY['plan_cache_mode', 'enable_seqscan', 'enable_hashjoin', 'enable_mergejoin']) AS name";
    let before: String = sqlx::query_scalar(plans).fetch_one(&pool).await.unwrap();
    assert_eq!(before, "auto on on on");
    let begun = [begin_creating_by_keys(&pool).await.unwrap(), begin_bounded_by_keys(&kept, LEASE).await.unwrap()];
    for mut tx in begun {
        let within: String = sqlx::query_scalar(plans).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(within, "force_generic_plan off off off");
        tx.commit().await.unwrap();
    }
    let mut tx = begin_bounded_creating_by_keys(&kept, LEASE).await.unwrap();
    let within: String = sqlx::query_scalar(plans).fetch_one(&mut *tx).await.unwrap();
    assert_eq!(within, "force_generic_plan off off off");
    let after: String = sqlx::Row::get(&tx.commit_and(plans).await.unwrap()[0], 0);
    assert_eq!(after, before);
    for _ in 0..4 {
        let after: String = sqlx::query_scalar(plans).fetch_one(&pool).await.unwrap();
        assert_eq!(after, before);
    }
}

#[tokio::test]
async fn what_follows_a_commit_in_its_message_may_fail_alone() {
    let (pool, onlooker) = pools(1).await;
    let mut tx = begin(&pool).await.unwrap();
    sqlx::query("INSERT INTO marks VALUES (1)").execute(&mut *tx).await.unwrap();
    tx.commit_and("SELECT 1 / 0").await.unwrap_err();
    let marks: i64 = sqlx::query_scalar("SELECT count(*) FROM marks").fetch_one(&onlooker).await.unwrap();
    assert_eq!(marks, 1, "the commit stands");
    assert!(!in_a_transaction(&pool).await);
}
