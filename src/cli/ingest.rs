//! `svc ingest`: uploads files, follows the frontier, and says at the end what failed and why.
use super::{
    CliError, SOME_FAILED,
    follow::follow,
    output::{Output, one_line, say},
};
use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};
use svc_client::{
    Client, Code, Failure, FileUpload, Remote,
    wire::{Attempt, AttemptOutcome, DocumentPath, ErrorType, FrontierResponse, Settled, UploadQuery},
};

/// How many uploads run at once.
const UPLOADS: usize = 4;
/// How many files are followed at once.
const WATCHED: usize = 32;

/// The exit code that a shell reports for a program ended by SIGINT.
const INTERRUPTED: u8 = 130;

#[derive(Args)]
pub struct IngestArguments {
    /// Files, and folders with everything in them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The document under which the files are put.
    #[arg(long, value_name = "ID")]
    parent: Option<i64>,
    /// Lets only the owner, and callers with a grant, read the files.
    #[arg(long)]
    private: bool,
    /// Puts these files before files of a lower priority at every stage: -100 to 100.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Ingest options as JSON, for example '{"structure": {"max_tokens": 200}}'.
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
    /// A file whose first line is the password for the files that need one; the password is never stored.
    #[arg(long, value_name = "PATH")]
    password_file: Option<PathBuf>,
    /// Returns when the files are stored, without following their ingestion.
    #[arg(long)]
    no_wait: bool,
}

svc_client::words! {
    /// What became of a file.
    FileState {
        InFlight = "in_flight",
        Settled = "settled",
        Failed = "failed",
        /// Somebody deleted it meanwhile.
        Deleted = "deleted",
        /// The upload itself was refused.
        Refused = "refused",
    }
}

impl From<Settled> for FileState {
    fn from(settled: Settled) -> FileState {
        match settled {
            Settled::InFlight => FileState::InFlight,
            Settled::Settled => FileState::Settled,
            Settled::Failed => FileState::Failed,
        }
    }
}

/// What happened to one file.
#[derive(Serialize)]
struct Report {
    file: String,
    document_id: Option<i64>,
    state: FileState,
    was_existing: bool,
    nodes: i64,
    nodes_failed: i64,
    warnings: Vec<String>,
    /// Why it failed.
    reason: Option<String>,
}

pub async fn ingest(client: &Client<Remote>, output: Output, arguments: IngestArguments) -> Result<ExitCode, CliError> {
    let started = Instant::now();
    let options = arguments.options.as_deref().map(serde_json::from_str::<Value>).transpose();
    let mut options = options.map_err(|error| CliError::Other(format!("--options is not JSON: {error}")))?;
    if let Some(path) = &arguments.password_file {
        let text = fs::read_to_string(path).map_err(|error| CliError::Other(format!("{}: {error}", path.display())))?;
        let password = text.lines().next().unwrap_or_default();
        // The service refuses other content of `extract`.
        match options.get_or_insert_with(|| json!({})) {
            Value::Object(groups) => drop(groups.insert("extract".to_owned(), json!({"password": password}))),
            _ => return Err(CliError::Other("--options takes a JSON object of groups".to_owned())),
        }
    }
    let files = files(&arguments.paths)?;
    let query = UploadQuery { parent_id: arguments.parent, private: arguments.private, priority: arguments.priority };

    let bar = ProgressBar::new(files.len() as u64);
    bar.set_style(
        ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} files, {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message("uploading");
    let uploads = stream::iter(files).map(|file| upload(client, file, query, options.clone())).buffered(UPLOADS);
    let mut reports: Vec<Report> = uploads.inspect(|_| bar.inc(1)).try_collect().await?;
    if !arguments.no_wait {
        let interrupted = tokio::select! {
            followed = follow_all(client, &mut reports, &bar) => followed.map(|()| false)?,
            _ = tokio::signal::ctrl_c() => true,
        };
        if interrupted {
            bar.finish_and_clear();
            let open = reports.iter().filter(|report| report.state == FileState::InFlight).count();
            eprintln!(
                "{open} files continue in the background: `svc status` shows the queue, `svc cancel ID` ends one"
            );
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
    bar.finish_and_clear();
    explain(client, &mut reports).await?;
    match output {
        Output::Json => reports.iter().try_for_each(Output::line)?,
        Output::Table => show(&reports, started.elapsed())?,
    }
    let bad = reports
        .iter()
        .any(|report| matches!(report.state, FileState::Failed | FileState::Refused) || report.nodes_failed > 0);
    Ok(if bad { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// The files under the paths, in the order of their names; links inside folders are not followed.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |path: &Path, error: std::io::Error| CliError::Other(format!("{}: {error}", path.display()));
    let mut files = Vec::new();
    for path in paths {
        let mut open = VecDeque::from([path.clone()]);
        let is_file = fs::metadata(path).map_err(|error| unreadable(path, error))?.is_file();
        if is_file {
            files.push(path.clone());
            continue;
        }
        while let Some(folder) = open.pop_front() {
            let mut entries: Vec<_> =
                fs::read_dir(&folder).and_then(Iterator::collect).map_err(|error| unreadable(&folder, error))?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => open.push_back(entry.path()),
                    Ok(kind) if kind.is_file() => files.push(entry.path()),
                    _ => {}
                }
            }
        }
    }
    if files.is_empty() { Err(CliError::Other("there are no files under these paths".to_owned())) } else { Ok(files) }
}

/// Uploads a file and reports the outcome. An error means that no other upload would succeed either.
async fn upload(
    client: &Client<Remote>,
    path: PathBuf,
    query: UploadQuery,
    options: Option<Value>,
) -> Result<Report, Failure> {
    let refused = |failure: Failure| Report {
        file: path.display().to_string(),
        document_id: None,
        state: FileState::Refused,
        was_existing: false,
        nodes: 0,
        nodes_failed: 0,
        warnings: Vec::new(),
        reason: Some(failure.to_string()),
    };
    let mut waited = Duration::from_millis(500);
    loop {
        let body = match FileUpload::from_path(&path, options.clone()).await {
            Ok(body) => body,
            Err(error) => return Ok(refused(Failure::field("file", error))),
        };
        match client.upload_file(query, body).await {
            Ok(stored) => {
                return Ok(Report {
                    document_id: Some(stored.document_id),
                    state: stored.settled.into(),
                    was_existing: stored.was_existing,
                    reason: None,
                    ..refused(Failure::new(Code::Internal, ""))
                });
            }
            // The service cannot take it now. Wait and send the file again, which is safe.
            Err(failure)
                if matches!(failure.code, Code::Unavailable | Code::TooManyRequests)
                    && waited < Duration::from_secs(60) =>
            {
                tokio::time::sleep(waited).await;
                waited *= 2;
            }
            Err(failure) if failure.code == Code::Unauthenticated => return Err(failure),
            Err(failure) => return Ok(refused(failure)),
        }
    }
}

/// Follows every file that was stored until it is done.
async fn follow_all(client: &Client<Remote>, reports: &mut [Report], bar: &ProgressBar) -> Result<(), CliError> {
    let open: Vec<(usize, i64)> =
        reports.iter().enumerate().filter_map(|(index, report)| Some((index, report.document_id?))).collect();
    bar.set_position(0);
    bar.set_length(open.len() as u64);
    // The number of settled nodes of each file.
    let settled: Vec<AtomicI64> = reports.iter().map(|_| AtomicI64::new(0)).collect();
    let seen = |index: usize, frontier: &FrontierResponse| {
        settled[index].store(frontier.nodes_settled, Ordering::Relaxed);
        let nodes: i64 = settled.iter().map(|nodes| nodes.load(Ordering::Relaxed)).sum();
        bar.set_message(format!("ingesting, {nodes} nodes settled"));
    };
    let seen = &seen;
    let follows = open.into_iter().map(|(index, id)| async move {
        Ok::<_, Failure>((index, follow(client, id, |frontier| seen(index, frontier)).await?))
    });
    let mut done = stream::iter(follows).buffer_unordered(WATCHED);
    while let Some((index, frontier)) = done.try_next().await? {
        match frontier {
            Some(frontier) => take(&mut reports[index], frontier),
            None => reports[index].state = FileState::Deleted,
        }
        bar.inc(1);
    }
    Ok(())
}

fn take(report: &mut Report, frontier: FrontierResponse) {
    report.state = frontier.settled.into();
    report.nodes = frontier.nodes_total;
    report.nodes_failed = frontier.nodes_failed;
    report.warnings = frontier.warnings;
}

/// Looks up why the failed files failed.
async fn explain(client: &Client<Remote>, reports: &mut [Report]) -> Result<(), CliError> {
    for report in reports.iter_mut().filter(|report| report.state == FileState::Failed) {
        let Some(id) = report.document_id else { continue };
        let mut evidence = client.read_evidence(DocumentPath { id }).await?.evidence;
        let attempts = evidence.remove("attempts").unwrap_or_default();
        let attempts: Vec<Attempt> = serde_json::from_value(attempts).unwrap_or_default();
        let failed = |attempt: &&Attempt| {
            attempt.outcome == AttemptOutcome::Failed && attempt.error_type != Some(ErrorType::Dependency)
        };
        report.reason = attempts.iter().rev().find(failed).map(|attempt| {
            let message = attempt.message.as_deref().unwrap_or("?");
            let error_type = attempt.error_type.map_or("?", ErrorType::as_str);
            format!("{message} ({}, {error_type})", attempt.task_type)
        });
    }
    Ok(())
}

fn show(reports: &[Report], elapsed: Duration) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = reports
        .iter()
        .map(|report| {
            let id = report.document_id.map_or("-".to_owned(), |id| id.to_string());
            let state =
                if report.was_existing { format!("{}, stored before", report.state) } else { report.state.to_string() };
            vec![one_line(&report.file, 60), id, state, report.nodes.to_string(), report.warnings.join(", ")]
        })
        .collect();
    Output::table(&["file", "document", "state", "nodes", "remarks"], &rows)?;
    let count = |state: FileState| reports.iter().filter(|report| report.state == state).count();
    let nodes: i64 = reports.iter().map(|report| report.nodes).sum();
    say!(
        "{} files in {:.1} s: {} settled, {} failed, {} refused, {} in flight; {nodes} nodes",
        reports.len(),
        elapsed.as_secs_f64(),
        count(FileState::Settled),
        count(FileState::Failed),
        count(FileState::Refused),
        count(FileState::InFlight)
    );
    for report in reports.iter().filter(|report| report.reason.is_some()) {
        say!("  {} {}: {}", report.file, report.state, one_line(report.reason.as_deref().unwrap_or_default(), 300));
    }
    Ok(())
}
