//! Transactions. Only [`begin`] and its relatives begin one, because sqlx's own is not safe to drop: a `begin` that is
//! dropped before its answer arrives leaves the transaction open on a connection that the pool gives to somebody else.
//!
//! A [`Transaction`] that is dropped at any point (by an error, a timeout, a client that hung up, a failure of
//! something that ran beside it) is rolled back before its connection is used again. A statement that is still under
//! way then is cancelled at the server. If that is impossible, the connection is closed.
use super::kept::{KeptConnections, Lent};
use futures_util::TryStreamExt;
use sqlx::{Connection, Either, PgConnection, PgPool, postgres::PgRow};
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};
use svc_ids::{IndexId, RootId};

/// How long an abandoned statement may take to end by itself: most do, and a cancel costs more than waiting.
pub(super) const GRACE: Duration = Duration::from_millis(20);

/// How long a rollback or a cancel may take before the connection is closed instead.
const ANSWER: Duration = Duration::from_secs(5);

/// An open transaction. If it is dropped without [`commit`](Transaction::commit), nothing of it remains.
#[derive(Debug)]
pub struct Transaction {
    /// Only what consumes the transaction takes this.
    conn: Option<Lent>,
    pool: PgPool,
    /// The server's process for this connection, once it has been reported.
    backend: Option<i32>,
}

/// Begins a transaction on a connection of the pool.
pub async fn begin(pool: &PgPool) -> sqlx::Result<Transaction> {
    on(pool, "BEGIN").await
}

/// Begins a transaction whose commit does not wait for the disk. A crash of the server may lose it; it must be one that is then made again from
/// what was committed before. Every later commit that does wait keeps it too.
pub async fn begin_unflushed(pool: &PgPool) -> sqlx::Result<Transaction> {
    on(pool, "BEGIN; SET LOCAL synchronous_commit = off").await
}

/// Has each connection keep the plans of a transaction's statements, which look for rows by their keys: they would be planned alike for any values, and
/// that would take longer than to run them. Such a plan must go from row to row by indexes even if the tables are small when it is made, because it is
/// kept while they grow. These settings leave one other way, to read an index from end to end, so a statement that joins has `OFFSET 0` in each look-up, or
/// `LIMIT` with a parameter in what it looks for, of which the planner then expects few. What has no index, such as two lists, must not be joined at all.
const BY_KEYS: &str = "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// Begins a transaction that settles these roots, as [`begin_unflushed`] does. Returns those of them under which no other transaction settles; the others
/// belong to that one. Its statements look for a few rows by their keys.
pub async fn begin_settling(pool: &PgPool, roots: &[RootId]) -> sqlx::Result<(Transaction, Vec<RootId>)> {
    let begin = format!("BEGIN; SET LOCAL synchronous_commit = off; {BY_KEYS}; {}", super::locks::trying_files(roots));
    let (tx, rows) = open_with(Lent::pooled(pool.acquire().await?), pool, &begin).await?;
    let taken = rows.iter().map(|row| sqlx::Row::try_get(row, 0)).collect::<sqlx::Result<_>>()?;
    Ok((tx, taken))
}

/// Begins a read-only transaction whose statements all see the same moment.
pub async fn begin_snapshot(pool: &PgPool) -> sqlx::Result<Transaction> {
    on(pool, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
}

/// Begins the transaction of a search: a snapshot in which each filter is planned with its values, because a generic
/// plan cannot use the partial indexes behind the optional parts. The lock comes before the snapshot, so that the table of vectors which a
/// statement finds is the one whose rows and form the snapshot shows.
pub async fn begin_search(pool: &PgPool) -> sqlx::Result<Transaction> {
    on(pool, BEGIN_SEARCH).await
}

const BEGIN_SEARCH: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL plan_cache_mode = force_custom_plan;
                            LOCK TABLE ONLY document_vectors IN ACCESS SHARE MODE";

/// Begins the transaction of a search (see [`begin_search`]) and sends a first statement in the same message. The statement has no parameters;
/// its rows are returned.
pub async fn begin_search_with(pool: &PgPool, statement: &str) -> sqlx::Result<(Transaction, Vec<PgRow>)> {
    let begin = format!("{BEGIN_SEARCH}; {statement}");
    open_with(Lent::pooled(pool.acquire().await?), pool, &begin).await
}

/// Begins the transaction of an audit: a search, see [`begin_search`], whose statements read much of a table. What they read is brought together by hashing, because the
/// planner cannot count what is computed and would sort it; and several processes read it, even where that takes less than a second.
pub async fn begin_audit(pool: &PgPool) -> sqlx::Result<Transaction> {
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_mergejoin = off;
                 SET LOCAL work_mem = '64MB'; SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0;
                 LOCK TABLE ONLY document_vectors IN ACCESS SHARE MODE";
    on(pool, begin).await
}

/// Begins a transaction of a task, in which no statement may take longer than `limit`. So when its client's host is
/// gone, the server ends the statement by itself and releases its rows.
pub async fn begin_bounded(kept: &KeptConnections, limit: Duration) -> sqlx::Result<Transaction> {
    let conn = kept.lend().await?;
    open(conn, kept.pool(), &format!("BEGIN; {}", limiting(limit))).await
}

/// Does the same for a task whose statements look for a few rows by their keys: each connection keeps their plans.
pub async fn begin_bounded_by_keys(kept: &KeptConnections, limit: Duration) -> sqlx::Result<Transaction> {
    let conn = kept.lend().await?;
    open(conn, kept.pool(), &format!("BEGIN; {}; {BY_KEYS}", limiting(limit))).await
}

/// Does the same and says whether no other transaction settles under this root, which none does then until this one ends.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn begin_bounded_settling(
    kept: &KeptConnections,
    limit: Duration,
    root_id: RootId,
) -> sqlx::Result<(Transaction, bool)> {
    let conn = kept.lend().await?;
    let begin = format!("BEGIN; {}; {BY_KEYS}; {}", limiting(limit), super::locks::trying_files(&[root_id]));
    let (tx, taken) = open_with(conn, kept.pool(), &begin).await?;
    Ok((tx, !taken.is_empty()))
}

/// Lets each further statement of a transaction take as long as `limit`.
pub async fn allow(conn: &mut PgConnection, limit: Duration) -> sqlx::Result<()> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(limiting(limit))).execute(conn).await.map(|_| ())
}

fn limiting(limit: Duration) -> String {
    format!("SET LOCAL statement_timeout = {}", limit.as_millis().clamp(1, i32::MAX as u128))
}

/// Begins a transaction that creates nodes. No guard changes until it ends.
pub async fn begin_creating(pool: &PgPool) -> sqlx::Result<Transaction> {
    creating(Lent::pooled(pool.acquire().await?), pool, "BEGIN").await
}

/// Does the same with a commit that does not wait for the disk, see [`begin_unflushed`].
pub async fn begin_creating_unflushed(pool: &PgPool) -> sqlx::Result<Transaction> {
    creating(Lent::pooled(pool.acquire().await?), pool, "BEGIN; SET LOCAL synchronous_commit = off").await
}

/// Does the same for a transaction whose statements look for a few rows by their keys: each connection keeps their plans.
pub async fn begin_creating_by_keys(pool: &PgPool) -> sqlx::Result<Transaction> {
    creating(Lent::pooled(pool.acquire().await?), pool, &format!("BEGIN; {BY_KEYS}")).await
}

/// Begins a transaction that creates nodes. Mostly no guard is being changed, and then the message that begins it does all. A wait is a statement
/// of its own: the server's process is only known once the message that begins is answered, and without it nobody can cancel the wait.
async fn creating(conn: Lent, pool: &PgPool, begin: &str) -> sqlx::Result<Transaction> {
    let begin = format!("{begin}; {}", super::access::sharing());
    let (mut tx, rows) = open_with(conn, pool, &begin).await?;
    let is_shared: bool = sqlx::Row::try_get(rows.last().ok_or(sqlx::Error::RowNotFound)?, 0)?;
    if !is_shared {
        super::access::share(&mut tx).await?;
    }
    Ok(tx)
}

/// Begins a transaction that moves nodes. Until it ends, nothing is created and no other guard changes.
pub async fn begin_moving(pool: &PgPool) -> sqlx::Result<Transaction> {
    let mut tx = begin(pool).await?;
    super::access::hold_alone(&mut tx).await?;
    Ok(tx)
}

/// Does the same for a transaction that changes which documents an index covers, one that is there or a new one. It waits for a compaction of the index
/// before it is alone, because a compaction takes seconds, and nothing is created while somebody is alone.
pub async fn begin_covering(pool: &PgPool, index: Option<IndexId>) -> sqlx::Result<Transaction> {
    let mut tx = begin(pool).await?;
    if let Some(index) = index {
        super::indexes::postings::lock_compaction(&mut tx, index).await?;
    }
    super::access::hold_alone(&mut tx).await?;
    Ok(tx)
}

/// Begins the transaction of a task that creates nodes, see [`begin_bounded`] and [`begin_creating`].
pub async fn begin_bounded_creating(kept: &KeptConnections, limit: Duration) -> sqlx::Result<Transaction> {
    creating(kept.lend().await?, kept.pool(), &format!("BEGIN; {}", limiting(limit))).await
}

/// Does the same for a task whose statements look for a few rows by their keys: each connection keeps their plans.
pub async fn begin_bounded_creating_by_keys(kept: &KeptConnections, limit: Duration) -> sqlx::Result<Transaction> {
    creating(kept.lend().await?, kept.pool(), &format!("BEGIN; {}; {BY_KEYS}", limiting(limit))).await
}

/// Begins a look at what a transaction has written, in which no statement may take longer than `limit`. One that does fails, and the transaction
/// goes on once the look has ended.
pub async fn begin_look(conn: &mut PgConnection, limit: Duration) -> sqlx::Result<()> {
    let begin = sqlx::AssertSqlSafe(format!("SAVEPOINT look; {}", limiting(limit)));
    sqlx::raw_sql(begin).execute(conn).await.map(|_| ())
}

/// Ends a look, whatever came of it: the limit of statements is again what it was.
pub async fn end_look(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT look; RELEASE SAVEPOINT look").execute(conn).await.map(|_| ())
}

/// A connection for statements that are no transaction together: each sees a moment of its own, and none of them has to be committed.
#[derive(Debug)]
pub struct Statements(Transaction);

/// Takes a connection for single statements.
pub async fn statements(pool: &PgPool) -> sqlx::Result<Statements> {
    let conn = Lent::pooled(pool.acquire().await?);
    Ok(Statements(Transaction { conn: Some(conn), pool: pool.clone(), backend: None }))
}

impl Statements {
    /// Remembers the server's process for this connection, which a statement has told. From here on a statement that is under way when
    /// this is dropped is cancelled.
    pub fn served_by(&mut self, backend: i32) {
        self.0.backend = Some(backend);
    }

    /// Gives the connection back.
    pub fn end(mut self) {
        if let Some(conn) = self.0.conn.take() {
            conn.keep();
        }
    }
}

impl Deref for Statements {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Statements {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

async fn on(pool: &PgPool, begin: &str) -> sqlx::Result<Transaction> {
    open(Lent::pooled(pool.acquire().await?), pool, begin).await
}

async fn open(conn: Lent, pool: &PgPool, begin: &str) -> sqlx::Result<Transaction> {
    open_with(conn, pool, begin).await.map(|(transaction, _)| transaction)
}

/// Begins a transaction, and returns the rows of the other statements in the message.
async fn open_with(conn: Lent, pool: &PgPool, begin: &str) -> sqlx::Result<(Transaction, Vec<PgRow>)> {
    // Whatever happens to this future from here on, dropping the value ends the transaction.
    let mut transaction = Transaction { conn: Some(conn), pool: pool.clone(), backend: None };
    let begin = sqlx::AssertSqlSafe(format!("{begin}; SELECT pg_backend_pid()"));
    let mut rows = sqlx::raw_sql(begin).fetch_all(&mut *transaction).await?;
    let backend = rows.pop().ok_or(sqlx::Error::RowNotFound)?;
    transaction.backend = Some(sqlx::Row::try_get(&backend, 0)?);
    Ok((transaction, rows))
}

impl Transaction {
    /// Commits everything that was written, and gives the connection back.
    pub async fn commit(self) -> sqlx::Result<()> {
        self.end("COMMIT").await
    }

    /// Commits, and runs a statement without parameters in the same message, which is a transaction of its own. Returns its rows. If the statement fails,
    /// the commit stands.
    pub async fn commit_and(mut self, then: &str) -> sqlx::Result<Vec<PgRow>> {
        let message = sqlx::AssertSqlSafe(format!("COMMIT; {then}"));
        let rows = sqlx::raw_sql(message).fetch_all(&mut *self).await?;
        if let Some(conn) = self.conn.take() {
            conn.keep();
        }
        Ok(rows)
    }

    /// Runs a last statement, which has no parameters, and commits, in one message: a client that stops at any moment
    /// has done both or neither. If the statement fails, nothing is committed.
    pub async fn commit_after(mut self, statement: &str) -> sqlx::Result<Vec<PgRow>> {
        let message = sqlx::AssertSqlSafe(format!("{statement}; COMMIT"));
        // The whole answer is read, because the outcome of the commit is at its end.
        let rows = sqlx::raw_sql(message).fetch_all(&mut *self).await?;
        if let Some(conn) = self.conn.take() {
            conn.keep();
        }
        Ok(rows)
    }

    /// Does the same as [`commit_after`](Self::commit_after) with several last statements. Returns the rows of each.
    pub async fn commit_after_all(mut self, statements: &[String]) -> sqlx::Result<Vec<Vec<PgRow>>> {
        let message = statements.iter().map(String::as_str).chain(["COMMIT"]).collect::<Vec<_>>().join("; ");
        // Where a statement ends, the list of the next one begins.
        let mut answers: Vec<Vec<PgRow>> = vec![Vec::new()];
        {
            let mut answer = sqlx::raw_sql(sqlx::AssertSqlSafe(message)).fetch_many(&mut *self);
            while let Some(part) = answer.try_next().await? {
                match part {
                    Either::Left(_) => answers.push(Vec::new()),
                    Either::Right(row) => {
                        if let Some(rows) = answers.last_mut() {
                            rows.push(row);
                        }
                    }
                }
            }
        }
        if let Some(conn) = self.conn.take() {
            conn.keep();
        }
        answers.truncate(statements.len());
        Ok(answers)
    }

    /// Does the same as [`commit_after`](Self::commit_after), with further statements behind the commit in the same
    /// message, which are a transaction of their own. Returns the rows of the last statement and those of each
    /// statement after the commit; `None` for these if one of them failed, and then the commit stands.
    pub async fn commit_after_and(
        mut self,
        statement: &str,
        then: &str,
    ) -> sqlx::Result<(Vec<PgRow>, Option<Vec<Vec<PgRow>>>)> {
        let message = sqlx::AssertSqlSafe(format!("{statement}; COMMIT; {then}"));
        // Where a statement ends, the list of the next one begins.
        let mut answers: Vec<Vec<PgRow>> = vec![Vec::new()];
        let read = {
            let mut answer = sqlx::raw_sql(message).fetch_many(&mut *self);
            loop {
                match answer.try_next().await {
                    Ok(Some(Either::Left(_))) => answers.push(Vec::new()),
                    Ok(Some(Either::Right(row))) => {
                        if let Some(rows) = answers.last_mut() {
                            rows.push(row);
                        }
                    }
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            }
        };
        let committed = answers.len() > 2;
        match read {
            Ok(()) => {
                if let Some(conn) = self.conn.take() {
                    conn.keep();
                }
            }
            Err(error) if !committed => return Err(error),
            Err(_) => return Ok((answers.swap_remove(0), None)),
        }
        let mut answers = answers.into_iter();
        let last = answers.next().unwrap_or_default();
        Ok((last, Some(answers.skip(1).collect())))
    }

    /// Undoes everything that was written, and waits until it is undone. Dropping the transaction does the same in the
    /// background.
    pub async fn rollback(self) -> sqlx::Result<()> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, statement: &'static str) -> sqlx::Result<()> {
        sqlx::raw_sql(statement).execute(&mut *self).await?;
        if let Some(conn) = self.conn.take() {
            conn.keep();
        }
        Ok(())
    }
}

impl Deref for Transaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.conn.as_deref().expect("only what consumes the transaction takes its connection")
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.conn.as_deref_mut().expect("only what consumes the transaction takes its connection")
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Outside a runtime the connection is closed.
        if let Some(conn) = self.conn.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(abandon(conn, self.pool.clone(), self.backend));
        }
    }
}

/// Ends the transaction of a connection that nobody waits for any more, and the statement that may still be under way
/// in it.
async fn abandon(mut conn: Lent, pool: PgPool, backend: Option<i32>) {
    let ended = {
        let mut ended = std::pin::pin!(roll_back(&mut conn));
        match tokio::time::timeout(GRACE, &mut ended).await {
            Ok(ended) => ended,
            Err(_) => {
                // The connection is ours until this returns, so its process serves nobody else.
                if let Some(backend) = backend
                    && !matches!(tokio::time::timeout(ANSWER, cancel(&pool, backend)).await, Ok(Ok(())))
                {
                    return;
                }
                tokio::time::timeout(ANSWER, ended).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
            }
        }
    };
    if ended.is_ok() {
        conn.keep();
    }
}

async fn roll_back(conn: &mut PgConnection) -> sqlx::Result<()> {
    drain(conn).await?;
    sqlx::raw_sql("ROLLBACK").execute(conn).await.map(|_| ())
}

/// Reads what the server still sends for abandoned statements; sends nothing if there are none.
pub(super) async fn drain(conn: &mut PgConnection) -> sqlx::Result<()> {
    loop {
        match conn.flush().await {
            // It does not matter that such a statement failed or was cancelled.
            Err(sqlx::Error::Database(_)) => {}
            drained => return drained,
        }
    }
}

/// Cancels what a process of the server does, over another connection: an idle one of the pool, or a new one if there
/// is none, because all of them may be waiting for exactly this.
async fn cancel(pool: &PgPool, backend: i32) -> sqlx::Result<()> {
    let cancel = sqlx::query("SELECT pg_cancel_backend($1)").bind(backend);
    if let Some(mut conn) = pool.try_acquire() {
        return cancel.execute(&mut *conn).await.map(|_| ());
    }
    let mut conn = PgConnection::connect_with(&pool.connect_options()).await?;
    cancel.execute(&mut conn).await?;
    conn.close().await
}
