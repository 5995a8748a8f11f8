//! A process that claims and finishes short tasks through the functions that a worker calls.
use crate::figure::BoxError;
use serde_json::Map;
use sqlx::Connection;
use std::{
    ffi::OsString,
    io::Write as _,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use svc::store::{
    database,
    kept::KeptConnections,
    tasks::{self, AttemptRow, Claimer},
};
use svc_actors::{Grant, Lane};
use tokio::task::JoinSet;

/// Asks for its next tasks once the last ones are committed, as its peers do.
pub const EVEN: &str = "claim-after-commit";
/// Asks while the last ones commit: in a worker, too, a task with only its commit left passes its permit on.
pub const OVERLAPPED: &str = "claim-meanwhile";

/// What a claimer has beside the two connections that it keeps: eight claimers stay well below the hundred that the server takes.
const CONNECTIONS: u32 = 6;

/// The seconds that a claimer waited.
#[derive(Default)]
pub struct Spent {
    pub claims: f64,
    pub finishes: f64,
}

impl Spent {
    /// Adds what a claimer reported at its end.
    pub fn add(&mut self, said: &str) -> Result<(), BoxError> {
        let (claims, finishes) = said.split_once(' ').ok_or("a claimer did not say where its time went")?;
        self.claims += claims.parse::<f64>()?;
        self.finishes += finishes.parse::<f64>()?;
        Ok(())
    }
}

/// `EVEN|OVERLAPPED work URL TASKS BATCH`: prints `ready`, waits for a line, runs that many tasks, and prints `done`
/// with their number and where the time went. It has one thread, as its peers do.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BoxError::from)
        .and_then(|runtime| runtime.block_on(work(&arguments)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work(arguments: &[OsString]) -> Result<(), BoxError> {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let [mode, "work", url, tasks, batch] = words[..] else { return Err("a claimer takes four words".into()) };
    let (tasks, batch): (usize, usize) = (tasks.parse()?, batch.parse()?);
    let pool = database::pool(database::options(url)?, CONNECTIONS, Duration::from_secs(90));
    let kept = KeptConnections::new(pool);
    // The peers do not connect within their measured time either.
    kept.run(async |conn| conn.ping().await).await?;
    say("ready")?;
    // Nothing else happens meanwhile.
    std::io::stdin().read_line(&mut String::new())?;
    let claimer = Arc::new(Claimer {
        worker_id: format!("bench-{}", std::process::id()),
        badges: None,
        strict: false,
        lease: Duration::from_secs(90),
    });
    // This asks as a worker does, for whatever its idle slots could take; the queue has tasks of one kind.
    let want = [(Lane::Cpu, 2), (Lane::Model, 2), (Lane::Llm, 4), (Lane::Io, batch)];
    let (mut ending, mut spent) = (JoinSet::new(), Spent::default());
    for _ in 0..tasks / batch {
        let asked = Instant::now();
        let grants = kept.run(async |conn| tasks::claim(conn, &claimer, &want).await).await?.grants;
        if grants.len() != batch {
            return Err(format!("a claim of {batch} got {}", grants.len()).into());
        }
        let claimed = Instant::now();
        spent.claims += (claimed - asked).as_secs_f64();
        // As many tasks may be ending as there are slots.
        all_ended(&mut ending).await?;
        for grant in grants {
            let (kept, claimer) = (kept.clone(), claimer.clone());
            ending.spawn(async move { finish(&kept, &claimer.worker_id, &grant).await });
        }
        if mode == EVEN {
            all_ended(&mut ending).await?;
            spent.finishes += claimed.elapsed().as_secs_f64();
        }
    }
    all_ended(&mut ending).await?;
    say(&format!("done {tasks} {} {}", spent.claims, spent.finishes))
}

fn say(line: &str) -> Result<(), BoxError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

async fn all_ended(ending: &mut JoinSet<Result<(), BoxError>>) -> Result<(), BoxError> {
    while let Some(ended) = ending.join_next().await {
        ended??;
    }
    Ok(())
}

/// Ends a task that wrote nothing, by a durable commit of its own. A task that writes ends in its own transaction; the
/// figures of the peers do not include their tasks' writes either.
async fn finish(kept: &KeptConnections, worker: &str, grant: &Grant) -> Result<(), BoxError> {
    let mut conn = kept.lend().await?;
    let attempt = AttemptRow {
        grant,
        worker,
        started_at: chrono::Utc::now(),
        outcome: svc_client::wire::AttemptOutcome::Completed,
        detail: &Map::new(),
    };
    if !tasks::finish(&mut conn, &attempt).await? {
        return Err(format!("task {} was taken away", grant.task_id).into());
    }
    conn.keep();
    Ok(())
}
