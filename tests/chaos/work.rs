//! The work that goes on meanwhile, and what must be true of it in the end.
use crate::{
    faults::Fleet,
    feed,
    support::{
        self, TOKEN,
        broker::{self, Broker},
        disk::Disk,
        invariants,
        rude::{RudeClients, ordinary},
    },
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use svc::{app::App, embedded::EmbeddedPostgres, reader::Reader};
use svc_client::{
    Client, FileUpload, OptionalJson, Remote,
    wire::{DocumentPath, ReprocessRequest, UploadQuery},
};

/// How long the fleet may take to finish what was begun.
const PATIENCE: Duration = Duration::from_secs(600);

/// The time between two files, so that the work neither runs out nor piles up.
const PACE: Duration = Duration::from_millis(400);

const RUDE_CLIENTS: u64 = 2;

/// A task that loses this many workers fails for good.
const LAST_LOSS: i64 = 3;

/// Hurts the fleet for this long, lets it finish, and checks.
pub async fn run(seed: u64, time: Duration) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = Folder(std::env::temp_dir().join(format!("svc-chaos-{}", std::process::id())));
    let disk = Disk::mount(&folder.0.join("disk"), 1500);
    if disk.is_none() {
        println!("left out: a full disk (this user may not mount a file system of its own)");
    }
    let home = support::settings(&[]).postgres_home;
    let database = EmbeddedPostgres::start(&folder.0.join("disk/database"), &home).await.unwrap();
    let options = database.connect_options();
    let broker = tokio::task::spawn_blocking(Broker::start).await.unwrap();
    if broker.is_none() {
        println!("left out: the bulk feed (no message broker here: config/setup.sh broker)");
    }
    let at = broker.as_ref().map(|broker| broker.address);
    let app = serve(&folder, &options, at).await;
    support::transitions::hold(&app.service.pool).await;
    // This folder is on the disk that fills up.
    let data_dir = folder.0.join("disk/data");
    let mut fleet = Fleet::start(database, &data_dir, disk, broker, time).await;

    let done = Arc::new(AtomicBool::new(false));
    let base = format!("http://{}", app.address);
    let messages = match at {
        Some(at) => {
            feed::answer_for_guest(&base).await;
            Some(tokio::spawn(feed::publish(at, done.clone())))
        }
        None => None,
    };
    let uploads = tokio::spawn(upload(base, seed, done.clone()));
    let rude = RudeClients::start(&app.address.to_string(), TOKEN, false, RUDE_CLIENTS, seed ^ 2);
    let (mut random, start) = (SmallRng::seed_from_u64(seed), Instant::now());
    while start.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(random.random_range(100..1200))).await;
        fleet.hurt(&mut random).await;
    }
    done.store(true, Ordering::SeqCst);
    let Uploaded { stored, refused, deleted, reprocessed } = uploads.await.unwrap();
    let misdeeds = rude.stop().await;
    println!("chaos: rude clients {:?}", misdeeds.counts);
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let of_messages = match messages {
        Some(messages) => feed::check(&pool, &mut fleet, messages.await.unwrap(), PATIENCE).await,
        None => Vec::new(),
    };
    drain(&pool, &mut fleet).await;
    invariants::check_drained(&pool).await;
    let stored: BTreeSet<i64> = stored.into_iter().chain(of_messages).collect();
    report(&pool, &fleet, &stored, &refused, deleted).await;
    println!("chaos: {reprocessed} reprocesses accepted");
    check_answers(&app).await;
    pool.close().await;
    app.stop(std::future::ready(())).await;
    fleet.end().stop().await;
}

async fn serve(folder: &Folder, options: &sqlx::postgres::PgConnectOptions, broker: Option<SocketAddr>) -> App {
    let broker = broker.map(broker::url).unwrap_or_default();
    let socket = options.get_socket().unwrap().display().to_string();
    let (user, port, name) = (options.get_username(), options.get_port(), options.get_database().unwrap());
    let url = format!("postgres://{user}@localhost:{port}/{name}?host={socket}");
    let data_dir = folder.0.join("disk/data").display().to_string();
    let settings = support::settings(&[
        ("SVC_DATA_DIR", &data_dir),
        ("SVC_LISTEN", "127.0.0.1:0"),
        ("SVC_CONSOLE_LISTEN", "127.0.0.1:0"),
        ("SVC_DATABASE_URL", &url),
        ("SVC_MIGRATE", "auto"),
        ("SVC_INGEST_WORKER_ENABLED", "false"),
        ("SVC_AMQP_URL", &broker),
        ("SVC_AMQP_PREFIX", feed::PREFIX),
    ]);
    App::start(Arc::new(settings), TOKEN, Reader::new(PathBuf::from(env!("CARGO_BIN_EXE_svc")))).await.unwrap()
}

/// What uploading came to.
struct Uploaded {
    /// The files that are left.
    stored: BTreeSet<i64>,
    /// Those of them that a delete was refused for: it waited for a task that it had ended before.
    refused: BTreeSet<i64>,
    deleted: usize,
    reprocessed: usize,
}

/// Uploads small files one after the other, repeating each until it is stored. It deletes some, and has some processed anew.
async fn upload(base: String, seed: u64, done: Arc<AtomicBool>) -> Uploaded {
    let client = Client(Remote::new(&base, TOKEN, support::http()));
    let mut random = SmallRng::seed_from_u64(seed ^ 1);
    let (mut stored, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let (mut number, mut deleted, mut reprocessed) = (0, 0, 0);
    while !done.load(Ordering::SeqCst) {
        number += 1;
        let parts = random.random_range(1..6);
        let text: String = (0..parts)
            .map(|part| {
                format!("# Part {part} of file {number}\n\n{}\n\n", "Plain words about nothing much. ".repeat(8))
            })
            .collect();
        loop {
            let file = FileUpload::from_bytes(&format!("file-{number}.md"), text.clone().into_bytes(), None);
            match client.upload_file(UploadQuery::default(), file).await {
                Ok(answer) => {
                    stored.insert(answer.document_id);
                    break;
                }
                // The file may be stored or not; sending the same bytes again finds out.
                Err(failure) if failure.status == 503 || failure.status == 0 => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                // The disk is full, or a statement was cut off.
                Err(failure) if matches!(failure.status, 429 | 500 | 507) => {
                    tokio::time::sleep(Duration::from_millis(100)).await
                }
                Err(failure) => panic!("an upload was refused: {failure}"),
            }
        }
        let any = random.random_range(0..stored.len());
        let id = stored.iter().nth(any).copied().expect("one was just stored");
        match random.random_range(0..4) {
            0 => match delete(&client, id).await {
                true => {
                    stored.remove(&id);
                    refused.remove(&id);
                    deleted += 1;
                }
                false => drop(refused.insert(id)),
            },
            1 if reprocess(&client, id, random.random_range(20..60), random.random()).await => reprocessed += 1,
            _ => {}
        }
        tokio::time::sleep(PACE).await;
    }
    Uploaded { stored, refused, deleted, reprocessed }
}

/// Has a file processed anew with chunks of this size; returns false if it is being ingested or processed now.
async fn reprocess(client: &Client<Remote>, id: i64, size: u32, replace: bool) -> bool {
    let options = serde_json::json!({"structure": {"max_tokens": size}});
    let request = ReprocessRequest { options: Some(options), replace };
    loop {
        match client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request.clone()))).await {
            Ok(_) => return true,
            Err(failure) if failure.status == 409 => return false,
            // Where it was stored and the answer got lost, the next call replaces it or is told of it.
            Err(failure) if matches!(failure.status, 0 | 429 | 500 | 503 | 507) => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            Err(failure) => panic!("a reprocess was refused: {failure}"),
        }
    }
}

/// Deletes a file; returns false if a task that works on it does not let go.
async fn delete(client: &Client<Remote>, id: i64) -> bool {
    loop {
        match client.delete_document(DocumentPath { id }).await {
            Ok(_) => break,
            // It was deleted by a call whose answer was lost.
            Err(failure) if failure.status == 404 => break,
            Err(failure) if failure.status == 409 => return false,
            Err(failure) if matches!(failure.status, 0 | 429 | 500 | 503 | 507) => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            Err(failure) => panic!("a deletion was refused: {failure}"),
        }
    }
    true
}

/// Waits until nothing owes work.
async fn drain(pool: &sqlx::PgPool, fleet: &mut Fleet) {
    let start = Instant::now();
    loop {
        fleet.revive();
        let open: Result<i64, _> = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM task_queue WHERE NOT final) + (SELECT count(*) FROM documents WHERE settled = 'in_flight')
                  + (SELECT count(*) FROM settle_event) + (SELECT count(*) FROM task_reservation)",
        )
        .fetch_one(pool)
        .await;
        match open {
            Ok(0) => return,
            _ if start.elapsed() > PATIENCE => {
                let queue = if open.is_ok() { support::queue_text(pool).await } else { String::new() };
                panic!("not drained: {open:?}; {}\n{queue}", fleet.database_text().await)
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Checks that later clients notice nothing of what was done to the service.
async fn check_answers(app: &App) {
    let base = format!("http://{}", app.address);
    let seen = ordinary(&base, TOKEN, &support::http(), |seen| seen.good() >= 200 || !seen.troubles.is_empty()).await;
    assert!(seen.troubles.is_empty(), "after all was done: {:#?}", seen.troubles);
}

/// Checks that every stored file exists, and failed only if its workers died under it or a delete ended its tasks and was refused then.
async fn report(pool: &sqlx::PgPool, fleet: &Fleet, stored: &BTreeSet<i64>, refused: &BTreeSet<i64>, deleted: usize) {
    let files: Vec<(i64, String)> =
        sqlx::query_as("SELECT id, settled FROM documents WHERE usetype = 'file' ORDER BY id")
            .fetch_all(pool)
            .await
            .unwrap();
    let there: BTreeSet<i64> = files.iter().map(|(id, _)| *id).collect();
    assert_eq!(&there, stored, "files that were stored, and files that are there");
    let failed = files.iter().filter(|(_, settled)| settled == "failed").count();
    let reasons: Vec<(String, String, i64)> = sqlx::query_as(
        "SELECT error_type, code, count(*) FROM task_attempts WHERE outcome = 'failed' GROUP BY 1, 2 ORDER BY 3 DESC",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let refused: Vec<i64> = refused.iter().copied().collect();
    let permanent: Vec<String> = sqlx::query_scalar(
        "SELECT concat_ws(' ', t.task_type, 'of file', t.root_id, to_json(a)) FROM task_attempts a LEFT JOIN task_queue t ON t.id = a.task_id
          WHERE a.outcome = 'failed' AND a.error_type = 'permanent' AND NOT coalesce(a.code = 'cancelled' AND t.root_id = ANY($1), false)",
    )
    .bind(&refused)
    .fetch_all(pool)
    .await
    .unwrap();
    assert!(permanent.is_empty(), "sound files failed for good: {permanent:#?}");
    check_failures(pool, &refused).await;
    let (attempts, lost): (i64, i64) =
        sqlx::query_as("SELECT count(*), count(*) FILTER (WHERE outcome = 'lease_lost') FROM task_attempts")
            .fetch_one(pool)
            .await
            .unwrap();
    println!("chaos: {:?}", fleet.counts);
    println!(
        "chaos: {} files stored, {} settled, {failed} failed, {deleted} more deleted; {attempts} attempts, {lost} leases lost; failures {reasons:?}",
        files.len(),
        files.len() - failed
    );
    println!("chaos: every invariant holds");
}

/// Checks that each task that failed lost as many workers as may die under one, waited for such a task, or was ended for a delete that was
/// refused then, and that a file failed because of such tasks.
async fn check_failures(pool: &sqlx::PgPool, refused: &[i64]) {
    let unexplained: Vec<String> = sqlx::query_scalar(
        "SELECT concat_ws(' ', 'task', t.id, t.task_type, t.error_type, 'of file', t.root_id, (SELECT json_agg(a ORDER BY a.id) FROM task_attempts a WHERE a.task_id = t.id))
           FROM task_queue t
          WHERE t.status = 'failed' AND NOT CASE t.error_type
                WHEN 'timeout' THEN $1 <= (SELECT count(*) FROM task_attempts a WHERE a.task_id = t.id AND a.code = 'lease_expired' AND a.message LIKE '% fell silent')
                WHEN 'permanent' THEN t.root_id = ANY($2)
                WHEN 'dependency' THEN EXISTS (SELECT FROM task_queue d WHERE d.id = ANY(t.dependencies) AND d.status = 'failed')
                ELSE false END
         UNION ALL
         SELECT 'file ' || id FROM documents
          WHERE usetype = 'file' AND settled = 'failed'
            AND NOT EXISTS (SELECT FROM task_queue t WHERE t.root_id = documents.id AND t.status = 'failed')",
    )
    .bind(LAST_LOSS)
    .bind(refused)
    .fetch_all(pool)
    .await
    .unwrap();
    assert!(unexplained.is_empty(), "failures without a worker that died: {unexplained:#?}");
}

struct Folder(PathBuf);
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
