//! `svc bulk`: hands whole folders and manifests over, through the message broker or else by uploads, and keeps a journal, so that it goes on wherever it
//! was stopped. docs/feed.md explains it.
mod broker;
mod dead;
mod dry;
mod journal;
mod manifest;
mod rest;
mod walk;

use super::{
    CliError, INTERRUPTED, SOME_FAILED, client,
    output::{Output, count, one_line, say},
    own_json,
};
use crate::{
    feed::{broker::place as broker_place, producer::Target},
    settings::Settings,
};
use clap::{Args, Subcommand, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use journal::{Entry, Journal, Known, Outcome};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{Params, wire::UploadQuery};
use tokio::{
    sync::mpsc::{Receiver, channel},
    task::{JoinError, JoinHandle},
};
use walk::{Candidate, Content, Found, Reading, Sources};

/// How many files are found ahead of those that are read.
const AHEAD: usize = 64;
/// How many files are read at a time.
const READS: usize = 4;
/// How much of a reason is kept.
const REASON_CHARACTERS: usize = 500;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BulkArguments {
    #[command(subcommand)]
    command: Option<BulkCommand>,
    #[command(flatten)]
    send: SendArguments,
}

impl BulkArguments {
    /// Whether it shows what there is and does nothing else. What would be sent is known only by its exit code, once all of it is read.
    pub fn only_lists(&self) -> bool {
        match &self.command {
            Some(BulkCommand::Dead(arguments)) => arguments.only_looks(),
            None => false,
        }
    }
}

#[derive(Subcommand)]
enum BulkCommand {
    /// The messages that the bulk feed gave up: lists and shows them, sends them once more, drops them.
    Dead(dead::DeadArguments),
}

#[derive(Args)]
struct SendArguments {
    /// Folders with everything in them, files, and manifests: a path that ends in `.jsonl` names a file with a line of JSON for each file to
    /// send. Links inside folders are not followed.
    #[arg(required_unless_present = "list")]
    paths: Vec<PathBuf>,
    /// A file that names one file or folder a line; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// What was sent, and what became of it. The same command with the same journal sends what is missing, new or changed.
    #[arg(long, value_name = "FILE", default_value = "svc-bulk.journal")]
    journal: PathBuf,
    /// The document under which the files are put.
    #[arg(long = "under", alias = "parent", value_name = "ID")]
    parent: Option<i64>,
    /// Lets only the owner, and callers with a grant, read the files.
    #[arg(long)]
    private: bool,
    /// Puts these files before files of a lower priority at every stage: -100 to 100.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true, value_parser = value_parser!(i32).range(-100..=100))]
    priority: i32,
    /// Ingest options as JSON, for example '{"structure": {"max_tokens": 200}}'.
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
    /// Sends those files once more whose outcome an earlier run did not see; what is stored is not stored twice.
    #[arg(long)]
    again: bool,
    /// Says what would be sent and what cannot be, by the number of its line in a manifest, and sends nothing.
    #[arg(long)]
    dry_run: bool,
    /// Waits until what this run sent is ingested, and ends with 3 if some of it failed.
    #[arg(long)]
    wait: bool,
    /// How long to wait while nothing happens, before the rest is left to the next run.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    patience: u64,
}

impl SendArguments {
    fn target(&self) -> Result<Target, CliError> {
        let options = own_json("--options", self.options.as_deref())?;
        if options.as_ref().is_some_and(|options| options.pointer("/extract/password").is_some()) {
            let says =
                "--options takes no password here, because what is given up is kept: use svc ingest --password-file";
            return Err(CliError::Other(says.to_owned()));
        }
        let query =
            UploadQuery { parent_id: self.parent, private: self.private, priority: self.priority, event_time: None };
        query.check()?;
        Ok(Target { query, options })
    }
}

/// What became of the files.
#[derive(Default, Serialize)]
struct Account {
    files: usize,
    accepted: usize,
    /// Those whose bytes were stored before.
    duplicate: usize,
    rejected: usize,
    /// Those that have arrived, and whose outcome is not known yet.
    waiting: usize,
    /// Those that could not be read or sent.
    left: usize,
    /// With `--wait`, those of the accepted that are ingested, and those whose ingestion failed or was cancelled.
    settled: usize,
    failed: usize,
    /// Those that the journal already had.
    before: usize,
    /// Links and other things that are no files.
    skipped: usize,
}

/// A file that was not stored.
#[derive(Serialize)]
struct Refused<'a> {
    file: &'a str,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    reason: &'a str,
}

/// A file that is in the journal and can be sent.
struct Ready {
    candidate: Candidate,
    n: usize,
    mark: String,
    id: String,
    sha256: String,
    size: u64,
    content: Content,
}

type Read = (Candidate, Reading);

/// The files whose ingestion is waited for.
#[derive(Default)]
struct Ingesting {
    open: BTreeMap<i64, String>,
    early: BTreeMap<i64, Ended>,
}

/// How an ingestion ended.
struct Ended {
    /// `settled`, `failed` or `cancelled`.
    word: String,
    code: Option<String>,
    detail: Option<String>,
}

/// A run of the command.
struct Run {
    journal: Journal,
    known: Arc<Known>,
    target: Target,
    /// The target as a text, of which a message id and a key are made.
    whereto: Arc<str>,
    /// How many bytes of a file are held.
    most: u64,
    output: Output,
    bar: ProgressBar,
    account: Account,
    /// With `--wait`, the documents that were accepted and are not ingested yet, and those of which that was told before they were known.
    ingesting: Option<Ingesting>,
    patience: Duration,
    /// When something happened last.
    moved: Instant,
}

pub async fn bulk(settings: &Settings, output: Output, arguments: BulkArguments) -> Result<ExitCode, CliError> {
    let arguments = match arguments {
        BulkArguments { command: Some(BulkCommand::Dead(arguments)), .. } => {
            return dead::dead(settings, output, arguments).await;
        }
        BulkArguments { send, .. } => send,
    };
    let target = arguments.target()?;
    let by_broker = !settings.amqp_url.is_blank();
    let to = match by_broker {
        true => broker_place(settings).map_err(|error| CliError::Other(error.to_string()))?,
        false => settings.service_url(),
    };
    let whereto: Arc<str> = json!({"query": target.query, "options": target.options}).to_string().into();
    let most = settings.bulk_inline_bytes;
    let manifests = manifest::Reading { target: target.clone(), most, by_broker };
    if arguments.dry_run {
        let (known, but) = Journal::look(&arguments.journal, &to)?;
        let root = broker::root(settings);
        let plan = dry::Plan { known, whereto, target, most, broker: by_broker.then_some(root.as_deref()) };
        return dry::run(plan, Sources { paths: arguments.paths, list: arguments.list, but, manifests }, output).await;
    }
    let (journal, keys) = Journal::open(&arguments.journal, &to)?;
    let bar = ProgressBar::no_length();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg}, {elapsed}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let but = Some(journal.identity()?);
    let sources = Sources { paths: arguments.paths, list: arguments.list, but, manifests };
    let mut run = Run {
        journal,
        known: Arc::default(),
        target,
        whereto,
        most,
        output,
        bar,
        account: Account::default(),
        ingesting: arguments.wait.then(Ingesting::default),
        patience: Duration::from_secs(arguments.patience),
        moved: Instant::now(),
    };
    let work = async {
        match by_broker {
            true => broker::send(&mut run, settings, keys, sources, arguments.again).await,
            false => {
                run.known = Arc::new(run.journal.known(keys));
                rest::send(&mut run, &client(settings)?, sources).await
            }
        }
    };
    let done = tokio::select! {
        done = work => Some(done),
        _ = tokio::signal::ctrl_c() => None,
    };
    run.bar.finish_and_clear();
    let ingesting = run.still_ingesting();
    run.account.waiting = run.journal.waiting() + ingesting;
    let Account { files, accepted, duplicate, rejected, waiting, left, settled, failed, before, skipped } =
        &run.account;
    match output {
        Output::Json => Output::line(&run.account)?,
        Output::Table => {
            let files = count(*files, "file", "files");
            say!(
                "{files}: {accepted} accepted, {duplicate} duplicate, {rejected} rejected, {waiting} waiting, {left} left, {before} sent before"
            );
            if arguments.wait {
                say!("of the accepted, {settled} are ingested and {failed} failed");
            }
            if *skipped > 0 {
                say!(
                    "{} left out, such as links",
                    count(*skipped, "thing that is no file was", "things that are no files were")
                );
            }
        }
    }
    if ingesting > 0 {
        crate::cli::output::tell!(
            "{} not ingested yet: svc status tells how it goes on",
            count(ingesting, "file is", "files are")
        );
    }
    if *waiting > ingesting {
        crate::cli::output::tell!(
            "{} for an answer: the next run takes it, and one with --again asks anew",
            count(*waiting - ingesting, "file waits", "files wait")
        );
    }
    let is_whole = rejected + waiting + left + failed == 0;
    let again = format!("run the same command again to go on: {} says what is done", arguments.journal.display());
    match done {
        None => {
            crate::cli::output::tell!("stopped; {again}");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Some(Err(error)) => {
            crate::cli::output::tell!("{again}");
            Err(error)
        }
        Some(Ok(())) if is_whole => Ok(ExitCode::SUCCESS),
        Some(Ok(())) => {
            crate::cli::output::tell!("{again}");
            Ok(ExitCode::from(SOME_FAILED))
        }
    }
}

/// Begins to look for files.
fn found(sources: Sources) -> Receiver<Found> {
    let (sender, receiver) = channel(AHEAD);
    tokio::task::spawn_blocking(move || walk::walk(sources, &sender));
    receiver
}

impl Run {
    /// Begins to read what was found, if it is a file.
    fn looked_at(&mut self, found: Found) -> Result<Option<JoinHandle<Read>>, CliError> {
        match found {
            Found::File(candidate) => {
                self.account.files += 1;
                self.moved = Instant::now();
                return Ok(Some(self.read(candidate)));
            }
            Found::Skipped => self.account.skipped += 1,
            Found::Unreadable { path, reason } => self.left(&path, &reason)?,
        }
        Ok(None)
    }

    fn read(&self, candidate: Candidate) -> JoinHandle<Read> {
        let (known, whereto, most) = (self.known.clone(), self.whereto.clone(), self.most);
        tokio::task::spawn_blocking(move || {
            let reading = walk::read(&candidate, &whereto, most, &known);
            (candidate, reading)
        })
    }

    /// Notes what was read in the journal; `None` if it is not to be sent.
    fn ready(&mut self, read: Result<Read, JoinError>) -> Result<Option<Ready>, CliError> {
        let (candidate, reading) = read.map_err(|error| CliError::Other(error.to_string()))?;
        match reading {
            Reading::Known => self.account.before += 1,
            Reading::Unreadable(reason) => self.left(&candidate.shown(), &reason)?,
            Reading::File { key, sha256, size, content } => {
                let path = candidate.shown();
                let parts = [path.as_str(), candidate.whereto(&self.whereto), &sha256];
                let id = parts.iter().fold(Sha256::new(), |hash, part| {
                    hash.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
                });
                let entry = Entry { path, message_id: hex::encode(id.finalize()) };
                let (n, mark) = self.journal.file(&entry, key, &sha256)?;
                return Ok(Some(Ready { candidate, n, mark, id: entry.message_id, sha256, size, content }));
            }
        }
        Ok(None)
    }

    /// A file that this run does not send.
    fn left(&mut self, path: &str, reason: &str) -> Result<(), CliError> {
        self.account.left += 1;
        self.refused(&Refused { file: path, outcome: "left", code: None, reason })
    }

    /// Notes what became of a file.
    fn ended(&mut self, n: usize, path: &str, mut outcome: Outcome) -> Result<(), CliError> {
        outcome.detail = outcome.detail.map(|detail| detail.chars().take(REASON_CHARACTERS).collect());
        if !self.journal.ended(n, &outcome)? {
            return Ok(());
        }
        self.moved = Instant::now();
        match outcome.word.as_str() {
            "accepted" => {
                self.account.accepted += 1;
                self.is_to_be_ingested(outcome.document_id, path)?;
            }
            "duplicate" => self.account.duplicate += 1,
            word => {
                self.account.rejected += 1;
                let reason = outcome.detail.as_deref().unwrap_or_default();
                self.refused(&Refused { file: path, outcome: word, code: outcome.code.as_deref(), reason })?;
            }
        }
        self.show();
        Ok(())
    }

    /// Waits for the ingestion of what was accepted, if anybody wants that.
    fn is_to_be_ingested(&mut self, document_id: Option<i64>, path: &str) -> Result<(), CliError> {
        let (Some(ingesting), Some(id)) = (self.ingesting.as_mut(), document_id) else { return Ok(()) };
        match ingesting.early.remove(&id) {
            Some(ended) => self.count_ingested(path, &ended),
            None => {
                ingesting.open.insert(id, path.to_owned());
                Ok(())
            }
        }
    }

    /// Notes that an ingestion has ended.
    fn ingested(&mut self, document_id: i64, ended: Ended) -> Result<(), CliError> {
        let Some(ingesting) = self.ingesting.as_mut() else { return Ok(()) };
        self.moved = Instant::now();
        match ingesting.open.remove(&document_id) {
            Some(path) => self.count_ingested(&path, &ended),
            None => {
                ingesting.early.insert(document_id, ended);
                Ok(())
            }
        }
    }

    fn count_ingested(&mut self, path: &str, ended: &Ended) -> Result<(), CliError> {
        if ended.word == "settled" {
            self.account.settled += 1;
            return Ok(());
        }
        self.account.failed += 1;
        let reason = ended.detail.as_deref().unwrap_or("its ingestion did not end well; svc status tells more");
        self.refused(&Refused { file: path, outcome: &ended.word, code: ended.code.as_deref(), reason })
    }

    /// How many ingestions are waited for.
    fn still_ingesting(&self) -> usize {
        self.ingesting.as_ref().map_or(0, |ingesting| ingesting.open.len())
    }

    fn refused(&self, refused: &Refused<'_>) -> Result<(), CliError> {
        match self.output {
            Output::Json => Output::line(refused)?,
            Output::Table => self.bar.suspend(|| -> Result<(), CliError> {
                let (file, reason) = (one_line(refused.file, 200), one_line(refused.reason, 300));
                say!(
                    "{file} is {}: {reason}{}",
                    refused.outcome,
                    refused.code.map(|code| format!(" ({code})")).unwrap_or_default()
                );
                Ok(())
            })?,
        }
        Ok(())
    }

    fn show(&self) {
        let Account { files, accepted, duplicate, rejected, .. } = &self.account;
        let (waiting, answered) = (self.journal.waiting(), accepted + duplicate + rejected);
        self.bar.set_message(format!(
            "{files} files found, {answered} answered, {rejected} of them rejected, {waiting} waiting"
        ));
        self.bar.tick();
    }

    fn has_patience(&self) -> bool {
        self.moved.elapsed() < self.patience
    }
}
