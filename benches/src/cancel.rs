//! Measures how long a cancelled ingestion of a large file lasts: its tasks, its reader, its transaction, and the work
//! of this process. It is cancelled in the middle of each stage.
use crate::{
    figure::{BoxError, Figure},
    formats::make,
    sandbox::with_app,
    uploads,
};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use svc::{app::App, reader::SUBCOMMAND};
use svc_client::{
    Client, FileUpload, Remote,
    wire::{DocumentPath, TaskQuery, TaskStatus, UploadQuery},
};

const PDF_PAGES: usize = 1000;
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How long a stage runs before its cancel, if it takes that long.
const INTO: Duration = Duration::from_millis(400);
/// The process counts as idle if it does almost nothing for this long.
const REST: Duration = Duration::from_millis(100);
/// A stage that does not begin within this time is not one of the file's.
const PATIENCE: Duration = Duration::from_secs(120);

/// A task type, and whether its result is being written.
type Stage = (&'static str, bool);
const OF_PDF: &[Stage] = &[("probe", false), ("extract:text", false), ("structure:", false), ("embed", false)];
const OF_WORKBOOK: &[Stage] =
    &[("probe", false), ("profile:sheet", false), ("extract:sheet", false), ("extract:sheet", true), ("embed", false)];

pub async fn run(rows: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let folder = tempfile::Builder::new().prefix("svc-bench.").tempdir()?;
    let (pdf, workbook) = (make("pdf", PDF_PAGES, folder.path())?, make("workbook", rows, folder.path())?);
    with_app(
        |_| {},
        async |app: &App| {
            each(app, "cancel/pdf", PDF_PAGES, &pdf, OF_PDF, out).await?;
            each(app, "cancel/workbook", rows, &workbook, OF_WORKBOOK, out).await
        },
    )
    .await
}

async fn each(
    app: &App,
    name: &str,
    n: usize,
    file: &Path,
    stages: &[Stage],
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let client = uploads::client(&format!("http://{}", app.address))?;
    for &(stage, writing) in stages {
        let upload = FileUpload::from_path(file, None).await?;
        let id = client.upload_file(UploadQuery::default(), upload).await?.document_id;
        let name = format!("{name}/{}{}", stage.trim_end_matches(':'), if writing { "/writing" } else { "" });
        if reaches(app, &client, id, stage, writing).await? {
            let begun = Instant::now();
            let answer = client.cancel_ingest(DocumentPath { id }).await?;
            let answered = begun.elapsed();
            let gone = gone(app, id, begun).await?;
            eprintln!("bench: {name}: answered after {answered:.2?}, {answer:?}; {gone:.2?}");
            out(Figure::alone(&name, n, "s", gone.seconds()));
        } else {
            eprintln!("bench: {name} is left out: the stage was over before it was seen");
            client.cancel_ingest(DocumentPath { id }).await.ok();
            gone(app, id, Instant::now()).await?;
        }
        client.delete_document(DocumentPath { id }).await?;
    }
    Ok(())
}

/// Waits for the middle of a stage.
async fn reaches(app: &App, client: &Client<Remote>, id: i64, stage: &str, writing: bool) -> Result<bool, BoxError> {
    let begun = Instant::now();
    loop {
        let query = TaskQuery { root_id: Some(id), status: Some(TaskStatus::Running), ..TaskQuery::default() };
        let running = client.list_tasks(query).await?.tasks.iter().any(|task| task.task_type.starts_with(stage));
        if running && (!writing || writers(app).await? > 0) {
            tokio::time::sleep(INTO).await;
            return Ok(true);
        }
        let open: i64 = count(app, "SELECT count(*) FROM task_queue WHERE root_id = $1 AND NOT final", id).await?;
        if open == 0 || begun.elapsed() > PATIENCE {
            return Ok(false);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Seconds until nothing of each kind was left.
#[derive(Debug, Default)]
struct Gone {
    tasks: Option<Duration>,
    readers: Option<Duration>,
    transactions: Option<Duration>,
    work: Option<Duration>,
}

impl Gone {
    fn seconds(&self) -> f64 {
        [self.tasks, self.readers, self.transactions, self.work]
            .into_iter()
            .flatten()
            .max()
            .unwrap_or_default()
            .as_secs_f64()
    }
}

async fn gone(app: &App, id: i64, begun: Instant) -> Result<Gone, BoxError> {
    let mut gone = Gone::default();
    loop {
        let tasks = "SELECT (SELECT count(*) FROM task_queue WHERE root_id = $1 AND NOT final)
                          + (SELECT count(*) FROM task_reservation r JOIN task_queue t ON t.id = r.task_id WHERE t.root_id = $1)";
        let now = |left: bool| (!left).then(|| begun.elapsed());
        if gone.tasks.is_none() {
            gone.tasks = now(count(app, tasks, id).await? > 0);
        }
        if gone.readers.is_none() {
            gone.readers = now(readers()? > 0);
        }
        if gone.transactions.is_none() {
            gone.transactions = now(writers(app).await? > 0);
        }
        if gone.work.is_none() {
            let (since, before) = (begun.elapsed(), cpu_time()?);
            tokio::time::sleep(REST).await;
            gone.work = Some(since).filter(|_| cpu_time().is_ok_and(|after| after - before < REST / 5));
        } else {
            tokio::time::sleep(LOOK).await;
        }
        if [gone.tasks, gone.readers, gone.transactions, gone.work].iter().all(Option::is_some) {
            return Ok(gone);
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("not gone after {PATIENCE:?}: {gone:?}").into());
        }
    }
}

async fn count(app: &App, sql: &'static str, id: i64) -> Result<i64, BoxError> {
    Ok(sqlx::query_scalar(sql).bind(id).fetch_one(&app.service.pool).await?)
}

/// Counts the transactions that write documents.
async fn writers(app: &App) -> Result<i64, BoxError> {
    let sql = "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                WHERE c.relname = 'documents' AND l.mode = 'RowExclusiveLock' AND l.pid <> pg_backend_pid() AND $1 IS NOT NULL";
    count(app, sql, 0).await
}

/// Counts the children of this process that read files.
fn readers() -> Result<usize, BoxError> {
    let mut count = 0;
    for process in std::fs::read_dir("/proc")?.flatten() {
        // A process that has just ended has no files any more.
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let of_ours = std::fs::read_to_string(process.path().join("status")).unwrap_or_default().lines().any(|line| {
            line.strip_prefix("PPid:").is_some_and(|parent| parent.trim() == std::process::id().to_string())
        });
        count += usize::from(of_ours && command.split(|byte| *byte == 0).any(|word| word == SUBCOMMAND.as_bytes()));
    }
    Ok(count)
}

/// The processor time of this process, including threads that have ended.
fn cpu_time() -> Result<Duration, BoxError> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The fields follow the name in brackets, which may contain spaces; they are in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}
