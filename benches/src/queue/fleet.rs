//! A hundred workers on one queue: how many claims they make for each task. They are the actors of a worker with the queue's own
//! functions; only their tasks do nothing but take time, and one connection hears the notifications for all of them.
use super::{claimer_named, fill};
use crate::figure::{BoxError, Figure};
use async_trait::async_trait;
use rand::RngExt;
use serde_json::{Map, json};
use sqlx::{PgPool, postgres::PgListener};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use svc::{
    store::{
        database,
        kept::KeptConnections,
        tasks::{self, AttemptRow, Claimer, NewTask},
        transaction,
    },
    worker::wakeup::{self, Wake},
};
use svc_actors::{
    Beat, BeatAnswer, CancelToken, Claimed, DocumentFacts, Grant, Handler, Lane, Lanes, Outcome, Permit, Permits,
    PortError, Queue, TaskFailure, TreeSnapshot, Waker, Worker, WorkerSettings, WriteMode,
};
use uuid::Uuid;

const WORKERS: usize = 100;
const FILES: usize = 1_000;
/// What the tasks of one file are, in their order; the last one is the model's.
const STAGES: [(&str, Lane); 4] =
    [("probe", Lane::Cpu), ("extract:text", Lane::Cpu), ("structure:declared", Lane::Cpu), ("embed", Lane::Model)];
/// How long a task takes on average: so short that together the workers could do more than the server can.
const WORK: Duration = Duration::from_millis(400);
/// Connections that all workers share: the server has a hundred.
const CONNECTIONS: u32 = 48;
const CHANNEL: &str = "svc_tasks";

/// What all workers did.
#[derive(Default)]
struct Counts {
    claims: AtomicUsize,
    /// Claims in the message of a task's end.
    at_ends: AtomicUsize,
    /// Separate claims that found nothing.
    empty: AtomicUsize,
    done: AtomicUsize,
}

pub async fn run(pool: &PgPool, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    for files in [FILES, FILES / 10] {
        fill(pool, files).await?;
        sqlx::query("UPDATE task_queue SET task_type = 'probe', lane = 'cpu'").execute(pool).await?;
        // What a notification says depends on how many workers there are.
        sqlx::query(
            "INSERT INTO workers (worker_id, boot_nonce, version, badges, task_types, lease)
             SELECT 'worker-' || n, gen_random_uuid(), 'bench', '{}', '{}', interval '1 hour' FROM generate_series(1, $1) n
             ON CONFLICT DO NOTHING",
        )
        .bind(i32::try_from(WORKERS)?)
        .execute(pool)
        .await?;
        let shared = database::pool((*pool.connect_options()).clone(), CONNECTIONS, Duration::from_secs(90));
        let counts = Arc::new(Counts::default());
        let (mut workers, mut wakers, mut tellers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..WORKERS {
            let (worker, wake) = start(&shared, number, &counts).await?;
            wakers.push((worker.waker(), wake.sender()));
            tellers.push(wakeup::announce(shared.clone(), wake, Some(worker.waker())));
            workers.push(worker);
        }
        let ear = tokio::spawn(hear(pool.clone(), wakers));
        let tasks = files * STAGES.len();
        let start = Instant::now();
        while counts.done.load(Ordering::Relaxed) < tasks {
            if start.elapsed() > Duration::from_secs(600) {
                return Err("the workers do not come to an end".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let seconds = start.elapsed().as_secs_f64();
        let claims = counts.claims.load(Ordering::Relaxed);
        let empty = counts.empty.load(Ordering::Relaxed);
        let at_ends = counts.at_ends.load(Ordering::Relaxed);
        ear.abort();
        tellers.iter().for_each(tokio::task::JoinHandle::abort);
        for worker in workers {
            worker.stop(Duration::from_secs(5)).await;
        }
        shared.close().await;
        let name = format!("queue/fleet/workers={WORKERS},files={files}");
        out(Figure::alone(&format!("{name}/claims_a_task"), tasks, "claims", claims as f64 / tasks as f64));
        out(Figure::alone(&format!("{name}/empty_claims_a_task"), tasks, "claims", empty as f64 / tasks as f64));
        out(Figure::alone(&format!("{name}/claims_at_ends"), tasks, "claims", at_ends as f64 / tasks as f64));
        out(Figure::alone(&format!("{name}/tasks"), tasks, "tasks/s", tasks as f64 / seconds));
    }
    Ok(())
}

/// Hears for all workers what each of them would hear by itself.
async fn hear(pool: PgPool, wakers: Vec<(Waker, Uuid)>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    loop {
        let said = listener.recv().await?;
        wakers.iter().for_each(|(waker, own)| waker.wake(wakeup::heard(said.payload(), *own)));
    }
}

async fn start(pool: &PgPool, number: usize, counts: &Arc<Counts>) -> Result<(Worker, Wake), BoxError> {
    let claimer = claimer_named(&format!("worker-{number}"));
    let wake = Wake::default();
    let settings = WorkerSettings::new(claimer.worker_id.clone(), Permits { cpu: 2, model: 2, llm: 0, io: 0 });
    let queue =
        Simulated { kept: KeptConnections::new(pool.clone()), claimer: claimer.clone(), counts: counts.clone() };
    let handler = Work { pool: pool.clone(), claimer, counts: counts.clone(), wake: wake.clone() };
    let worker = Worker::start(settings, Arc::new(queue), Box::new(|| Box::new(Steady)), Arc::new(handler)).await?;
    Ok((worker, wake))
}

struct Simulated {
    kept: KeptConnections,
    claimer: Claimer,
    counts: Arc<Counts>,
}

#[async_trait]
impl Queue for Simulated {
    async fn claim(&self, want: &[(Lane, usize)]) -> Result<Claimed, PortError> {
        self.counts.claims.fetch_add(1, Ordering::Relaxed);
        let mut conn = self.kept.pool().acquire().await.map_err(PortError::new)?;
        let claimed = tasks::claim(&mut *conn, &self.claimer, want).await.map_err(PortError::new)?;
        if claimed.grants.is_empty() {
            self.counts.empty.fetch_add(1, Ordering::Relaxed);
        }
        Ok(claimed)
    }

    async fn start(&self, _: &Grant) -> Result<bool, PortError> {
        Ok(true)
    }

    async fn give_back(&self, _: &[Uuid]) -> Result<(), PortError> {
        Ok(())
    }

    async fn fail(&self, _: &Grant, failure: &TaskFailure) -> Result<bool, PortError> {
        Err(PortError::new(format!("a task failed: {}", failure.message)))
    }

    async fn reap(&self) -> Result<u64, PortError> {
        Ok(0)
    }

    async fn documents(&self, _: &[svc_ids::RootId]) -> Result<Vec<DocumentFacts>, PortError> {
        Ok(Vec::new())
    }

    async fn sweep(&self) -> Result<bool, PortError> {
        Ok(false)
    }
}

/// No lease is lost here.
struct Steady;

impl Beat for Steady {
    fn beat(&mut self, tokens: &[Uuid], _: &TreeSnapshot) -> Result<Vec<BeatAnswer>, PortError> {
        Ok(tokens.iter().map(|token| BeatAnswer { token: *token, cancel_requested: false }).collect())
    }
}

struct Work {
    pool: PgPool,
    claimer: Claimer,
    counts: Arc<Counts>,
    wake: Wake,
}

impl Work {
    /// Queues what follows and ends the task, as the service's tasks do.
    async fn end(&self, grant: &Grant, permit: Permit) -> Result<(), sqlx::Error> {
        let mut tx = transaction::begin(&self.pool).await?;
        let next = STAGES.iter().skip_while(|(stage, _)| *stage != grant.task_type).nth(1);
        if let Some((task_type, lane)) = next {
            let task = NewTask {
                task_type,
                lane: *lane,
                document_id: grant.document_id,
                path: &[],
                root_id: grant.root_id,
                write_mode: WriteMode::Subtree,
                leaves: None,
                dependencies: &[],
                params: &json!({}),
                badge: None,
                priority: 0,
                traceparent: None,
            };
            tasks::enqueue(&mut tx, &task).await?;
        }
        let detail = Map::new();
        let attempt = AttemptRow {
            grant,
            worker: &self.claimer.worker_id,
            started_at: chrono::Utc::now(),
            outcome: svc_client::wire::AttemptOutcome::Completed,
            detail: &detail,
        };
        let ending = permit.end();
        let ended = match ending.want() {
            [] => tasks::finish_and_commit(tx, &attempt).await?.map(|ended| (ended, None)),
            want => tasks::finish_and_claim(tx, &attempt, &self.claimer, want).await?,
        };
        let (ended, claimed) = ended.ok_or(sqlx::Error::RowNotFound)?;
        let leads_to =
            if ended.is_waited_for { Lanes::ALL } else { next.map_or(Lanes::NONE, |(_, lane)| Lanes::of(*lane)) };
        match claimed {
            Some(claimed) => {
                self.counts.at_ends.fetch_add(1, Ordering::Relaxed);
                self.wake.notify_elsewhere(if claimed.more { Lanes::ALL } else { leads_to });
                ending.granted(claimed, leads_to);
            }
            None => {
                self.wake.notify_elsewhere(leads_to);
                ending.brought(leads_to);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Handler for Work {
    async fn run(&self, grant: &Grant, _: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure> {
        let share = rand::rng().random_range(0.5..1.5);
        tokio::time::sleep(WORK.mul_f64(share)).await;
        self.end(grant, permit).await.map_err(|error| TaskFailure::permanent("bench", error.to_string()))?;
        self.counts.done.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Completed)
    }
}
