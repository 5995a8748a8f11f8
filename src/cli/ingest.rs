//! `svc ingest`: uploads files, follows the frontier, and says at the end what failed and why.
use super::{
    CliError, INTERRUPTED, SOME_FAILED,
    events::Following,
    follow::{follow, may_pass},
    output::{Output, count, one_line, say},
    own_json,
    patience::{Presence, is_out_of_reach},
};
use clap::{Args, value_parser};
use futures_util::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    fs,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    time::{Duration, Instant},
};
use svc_client::{
    Client, Code, Failure, FileUpload, Remote,
    wire::{Attempt, AttemptOutcome, DocumentPath, ErrorType, EventQuery, FrontierResponse, Settled, UploadQuery},
};

/// How many uploads run at once.
const UPLOADS: usize = 4;
/// The kinds of events after which nothing is left to do for a file.
const ENDS: &str = "ingest.settled,ingest.failed,ingest.cancelled,document.deleted";

#[derive(Args)]
pub struct IngestArguments {
    /// Files, and folders with everything in them. Links inside folders are not followed.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The document under which the files are put.
    #[arg(long = "under", alias = "parent", value_name = "ID")]
    parent: Option<i64>,
    /// Lets only the owner, and callers with a grant, read the files.
    #[arg(long)]
    private: bool,
    /// Puts these files before files of a lower priority at every stage: -100 to 100.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true, value_parser = value_parser!(i32).range(-100..=100))]
    priority: i32,
    #[command(flatten)]
    options: OptionArguments,
    /// Returns when the files are stored, without following their ingestion.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Args)]
pub struct OptionArguments {
    /// Ingest options as JSON, for example '{"structure": {"max_tokens": 200}}'.
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
    /// A file whose first line is the password for the files that need one; the password is never stored.
    #[arg(long, value_name = "PATH")]
    password_file: Option<PathBuf>,
}

impl OptionArguments {
    /// The options to send, with the password among them.
    pub fn read(&self) -> Result<Option<Value>, CliError> {
        let mut options = own_json("--options", self.options.as_deref())?;
        if let Some(path) = &self.password_file {
            let text =
                fs::read_to_string(path).map_err(|error| CliError::Other(format!("{}: {error}", path.display())))?;
            let password = text.lines().next().unwrap_or_default();
            // The service refuses other content of `extract`.
            match options.get_or_insert_with(|| json!({})) {
                Value::Object(groups) => drop(groups.insert("extract".to_owned(), json!({"password": password}))),
                _ => return Err(CliError::Other("--options takes a JSON object of groups".to_owned())),
            }
        }
        Ok(options)
    }
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
    let options = arguments.options.read()?;
    let (files, left_out) = files(&arguments.paths)?;
    if left_out > 0 {
        crate::cli::output::tell!(
            "{} left out, such as links",
            count(left_out, "thing that is no file was", "things that are no files were")
        );
    }
    if files.is_empty() {
        return Err(CliError::Other("there are no files under these paths".to_owned()));
    }
    let query = UploadQuery {
        parent_id: arguments.parent,
        private: arguments.private,
        priority: arguments.priority,
        event_time: None,
    };

    let bar = ProgressBar::new(files.len() as u64);
    bar.set_style(
        ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} files, {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message("uploading");
    let number = files.len();
    let mut reports = Vec::with_capacity(number);
    let service = Presence::default();
    let work = async {
        let send = |file| upload(client, &service, file, query, options.clone());
        let uploads = stream::iter(files).map(send).buffered(UPLOADS);
        let mut uploads = pin!(uploads);
        while let Some(report) = uploads.try_next().await? {
            reports.push(report);
            bar.inc(1);
        }
        if arguments.no_wait { Ok(()) } else { follow_all(client, &mut reports, &bar).await }
    };
    let done: Option<Result<(), CliError>> = tokio::select! {
        done = work => Some(done),
        _ = tokio::signal::ctrl_c() => None,
    };
    bar.finish_and_clear();
    let say_what_is_left = || {
        if reports.len() < number {
            let left = number - reports.len();
            crate::cli::output::tell!(
                "{left} files were not uploaded: run the same command again, which stores no file twice"
            );
        }
    };
    match done {
        None => {
            // What ended until then is said nowhere else, and neither are the ids of the others.
            if !reports.is_empty() {
                tell(output, &reports, started.elapsed())?;
            }
            let open = reports.iter().filter(|report| report.state == FileState::InFlight).count();
            crate::cli::output::tell!(
                "{open} files continue in the background: `svc status` shows the queue, `svc cancel ID` ends one"
            );
            say_what_is_left();
            return Ok(ExitCode::from(INTERRUPTED));
        }
        // What was stored before is there, and the service goes on with it.
        Some(Err(error)) => {
            if !reports.is_empty() {
                tell(output, &reports, started.elapsed())?;
                say_what_is_left();
            }
            return Err(error);
        }
        Some(Ok(())) => {}
    }
    // What is known of the files is told also to whoever does not wait for this.
    tokio::select! {
        () = explain(client, &service, &mut reports) => {}
        _ = tokio::signal::ctrl_c() => {
            crate::cli::output::tell!("stopped before it was known why each file failed: the evidence of a document says it");
        }
    }
    tell(output, &reports, started.elapsed())?;
    let bad = reports
        .iter()
        .any(|report| matches!(report.state, FileState::Failed | FileState::Refused) || report.nodes_failed > 0);
    Ok(if bad { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// The files under the paths, in the order of their names, and how many other things were left out; links inside folders are not followed.
fn files(paths: &[PathBuf]) -> Result<(Vec<PathBuf>, usize), CliError> {
    let unreadable = |path: &Path, error: std::io::Error| CliError::Other(format!("{}: {error}", path.display()));
    let (mut files, mut left_out) = (Vec::new(), 0);
    for path in paths {
        let mut open = VecDeque::from([path.clone()]);
        let kind = fs::metadata(path).map_err(|error| unreadable(path, error))?.file_type();
        if kind.is_file() {
            files.push(path.clone());
            continue;
        }
        if !kind.is_dir() {
            let path = path.display();
            return Err(CliError::Other(format!(
                "{path} is neither a file nor a folder: write what it gives to a file, and ingest that"
            )));
        }
        while let Some(folder) = open.pop_front() {
            let mut entries: Vec<_> =
                fs::read_dir(&folder).and_then(Iterator::collect).map_err(|error| unreadable(&folder, error))?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                match entry.file_type().map_err(|error| unreadable(&entry.path(), error))? {
                    kind if kind.is_dir() => open.push_back(entry.path()),
                    kind if kind.is_file() => files.push(entry.path()),
                    _ => left_out += 1,
                }
            }
        }
    }
    Ok((files, left_out))
}

/// Uploads a file and reports the outcome. An error means that no other upload would succeed either.
async fn upload(
    client: &Client<Remote>,
    service: &Presence,
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
    // A file is sent again as it is then, which is safe.
    let call = async || {
        let body = FileUpload::from_path(&path, options.clone()).await;
        client.upload_file(query, body.map_err(|error| Failure::field("file", error))?).await
    };
    match service.patient(call).await {
        Ok(stored) => Ok(Report {
            document_id: Some(stored.document_id),
            state: stored.settled.into(),
            was_existing: stored.was_existing,
            reason: None,
            ..refused(Failure::new(Code::Internal, ""))
        }),
        Err(failure) if failure.code == Code::Unauthenticated || is_out_of_reach(&failure) => Err(failure),
        Err(failure) => Ok(refused(failure)),
    }
}

/// Follows every file that was stored until it is done: one after the other, each by its own stream, which shows how far it has
/// come. Meanwhile the stream of events tells of others that have ended, which are then not followed. A missed event costs nothing.
async fn follow_all(client: &Client<Remote>, reports: &mut [Report], bar: &ProgressBar) -> Result<(), CliError> {
    // The same bytes may have come twice.
    let mut open: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, report) in reports.iter().enumerate() {
        if let Some(id) = report.document_id {
            open.entry(id).or_default().push(index);
        }
    }
    bar.set_position(0);
    bar.set_length(open.values().map(Vec::len).sum::<usize>() as u64);
    let query = EventQuery { kinds: Some(ENDS.to_owned()), since: Some("now".to_owned()), ..EventQuery::default() };
    // Without it the files are followed one after another.
    let mut events = if open.len() > 1 { Following::begin(client, query).await.ok() } else { None };
    let settled = Cell::new(0);
    let seen = |frontier: &FrontierResponse| {
        bar.set_message(format!("ingesting, {} nodes settled", settled.get() + frontier.nodes_settled));
    };
    while let Some(first) = open.keys().next().copied() {
        let mut followed = pin!(follow(client, first, bar, seen));
        while open.contains_key(&first) {
            let (id, frontier) = tokio::select! {
                frontier = &mut followed => (first, frontier?),
                id = next_end(&mut events) => match open.contains_key(&id) {
                    true => match ended(client, id).await? {
                        Some(frontier) => (id, frontier),
                        None => continue,
                    },
                    // It is not one of these files.
                    false => continue,
                },
            };
            for index in open.remove(&id).unwrap_or_default() {
                match frontier.clone() {
                    Some(frontier) => take(&mut reports[index], frontier),
                    None => reports[index].state = FileState::Deleted,
                }
                bar.inc(1);
            }
            settled.set(settled.get() + frontier.map_or(0, |frontier| frontier.nodes_settled));
        }
    }
    Ok(())
}

/// Waits for the next document that an event tells of; waits for ever if there is no stream.
async fn next_end(events: &mut Option<Following<'_>>) -> i64 {
    while let Some(following) = events {
        match following.next().await {
            Ok(event) => match event.document_id {
                Some(id) => return id,
                None => continue,
            },
            Err(_) => *events = None,
        }
    }
    std::future::pending().await
}

/// The last frontier of a file that is done, `Some(None)` if it was deleted; `None` while there is work left.
async fn ended(client: &Client<Remote>, id: i64) -> Result<Option<Option<FrontierResponse>>, Failure> {
    match client.read_frontier(DocumentPath { id }).await {
        Ok(frontier) if frontier.nodes_in_flight == 0 && frontier.tasks_unfinished == 0 => Ok(Some(Some(frontier))),
        Err(failure) if failure.code == Code::NotFound => Ok(Some(None)),
        Err(failure) if !may_pass(&failure) => Err(failure),
        // It is followed in its turn.
        Ok(_) | Err(_) => Ok(None),
    }
}

fn take(report: &mut Report, frontier: FrontierResponse) {
    report.state = frontier.settled.into();
    report.nodes = frontier.nodes_total;
    report.nodes_failed = frontier.nodes_failed;
    report.warnings = frontier.warnings;
}

/// Looks up why the failed files failed. What is known of the files is told in any case.
async fn explain(client: &Client<Remote>, service: &Presence, reports: &mut [Report]) {
    for report in reports.iter_mut().filter(|report| report.state == FileState::Failed) {
        let Some(id) = report.document_id else { continue };
        let mut evidence = match service.patient(async || client.read_evidence(DocumentPath { id }).await).await {
            Ok(read) => read.evidence,
            Err(failure) if failure.code == Code::NotFound => {
                report.state = FileState::Deleted;
                continue;
            }
            Err(failure) => {
                crate::cli::output::tell!("the service does not say why files failed: {failure}");
                return;
            }
        };
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
}

fn tell(output: Output, reports: &[Report], elapsed: Duration) -> Result<(), CliError> {
    match output {
        Output::Json => Ok(reports.iter().try_for_each(Output::line)?),
        Output::Table => show(reports, elapsed),
    }
}

fn show(reports: &[Report], elapsed: Duration) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = reports
        .iter()
        .map(|report| {
            let id = report.document_id.map_or("-".to_owned(), |id| id.to_string());
            let state =
                if report.was_existing { format!("{}, stored before", report.state) } else { report.state.to_string() };
            let remarks = one_line(&report.warnings.join(", "), 400);
            vec![one_line(&report.file, 60), id, state, report.nodes.to_string(), remarks]
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
        let reason = one_line(report.reason.as_deref().unwrap_or_default(), 300);
        say!("  {} {}: {reason}", one_line(&report.file, 300), report.state);
    }
    Ok(())
}
