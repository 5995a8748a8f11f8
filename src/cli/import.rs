//! `svc import`: creates a document for each line of a file, in batches, and says which lines were refused and why.
use super::{
    CliError, INTERRUPTED, SOME_FAILED, VALUES, archive,
    output::{Output, count, one_line, say},
    patience::patient,
    values,
};
use clap::{Args, value_parser};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};
use svc_client::{
    Client, Code, Failure, Json, Remote,
    wire::{BatchItem, BatchedDocument, NewBatch},
};

/// The most documents and bytes of lines in one call. A call is one transaction, so a small one is soon over.
const LINES: usize = 500;
const BYTES: usize = 4 << 20;
/// The longest line. The service refuses a larger body in any case.
const LINE_BYTES: usize = 15 << 20;
/// What some programs put before a text in UTF-8.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Args)]
pub struct ImportArguments {
    /// A folder that `svc export` made, or a file with one JSON object a line: `title`, `content`, and what else a document takes; `key` names
    /// it, and `parent_key` its parent. `-` reads standard input.
    file: PathBuf,
    /// The document under which what has no parent is put.
    #[arg(long = "under", alias = "parent", value_name = "ID")]
    parent: Option<i64>,
    /// Has the documents of a file embedded before those of a lower priority: -100 to 100.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true, value_parser = value_parser!(i32).range(-100..=100))]
    priority: i32,
}

/// A line that was refused; `line` counts from 1.
#[derive(Serialize)]
struct Refused {
    line: usize,
    reason: String,
}

/// What became of the lines.
#[derive(Default, Serialize)]
struct Summary {
    lines: usize,
    stored: usize,
    /// Those that an earlier import had stored.
    existing: usize,
    refused: usize,
}

pub async fn import(client: &Client<Remote>, output: Output, arguments: ImportArguments) -> Result<ExitCode, CliError> {
    if arguments.file.is_dir() {
        if arguments.priority != 0 {
            let says =
                "--priority is for a file: what a folder brings in is embedded with the priority 0, if it has to be";
            return Err(CliError::Other(says.to_owned()));
        }
        return archive::import(client, output, &arguments.file, arguments.parent).await;
    }
    let bar = ProgressBar::no_length();
    let mut summary = Summary::default();
    let done = tokio::select! {
        done = run(client, output, &arguments, &bar, &mut summary) => Some(done),
        _ = tokio::signal::ctrl_c() => None,
    };
    bar.finish_and_clear();
    let again = "run the same command again to go on: lines that are stored are not stored twice";
    match done {
        None => {
            crate::cli::output::tell!(
                "stopped at line {}; the {} documents that are stored are embedded in the background; {again}",
                summary.lines,
                summary.stored
            );
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Some(Err(error)) => {
            crate::cli::output::tell!("{} documents are stored; {again}", summary.stored);
            return Err(error);
        }
        Some(Ok(())) => {}
    }
    match output {
        Output::Json => Output::line(&summary)?,
        Output::Table => {
            let Summary { lines, stored, existing, refused } = summary;
            let (lines, documents) = (count(lines, "line", "lines"), count(stored, "document", "documents"));
            say!("{lines}: {documents} stored, {existing} stored before, {refused} refused");
            if stored > 0 {
                say!("they are found once they are embedded: `svc status` shows the queue");
            }
        }
    }
    Ok(if summary.refused > 0 { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

async fn run(
    client: &Client<Remote>,
    output: Output,
    arguments: &ImportArguments,
    bar: &ProgressBar,
    summary: &mut Summary,
) -> Result<(), CliError> {
    let mut lines = Some(Lines::open(&arguments.file, arguments.parent)?);
    while let Some(mut reader) = lines.take() {
        let read = tokio::task::spawn_blocking(move || reader.part().map(|part| (reader, part)));
        let (reader, part) = read.await.map_err(|error| CliError::Other(error.to_string()))??;
        if part.is_end {
            return Ok(());
        }
        lines = Some(reader);
        let mut refused = part.refused;
        let answers = send(client, part.items, arguments.priority, &mut refused).await?;
        summary.lines = part.last_line;
        summary.existing += answers.iter().filter(|answer| answer.was_existing).count();
        summary.stored += answers.iter().filter(|answer| !answer.was_existing).count();
        summary.refused += refused.len();
        refused.sort_by_key(|refused| refused.line);
        for line in &refused {
            match output {
                Output::Json => Output::line(line)?,
                Output::Table => bar.suspend(|| say_refused(line))?,
            }
        }
        bar.set_position(summary.lines as u64);
    }
    Ok(())
}

fn say_refused(refused: &Refused) -> Result<(), CliError> {
    say!("line {} is refused: {}", refused.line, one_line(&refused.reason, 400));
    Ok(())
}

/// Stores a part of the lines. One that the service refuses is left out, and the others are sent again. Where the service does
/// not say which one it refuses, such as for a body that is too large, the two halves are sent apart.
async fn send(
    client: &Client<Remote>,
    items: Vec<(usize, BatchItem)>,
    priority: i32,
    refused: &mut Vec<Refused>,
) -> Result<Vec<BatchedDocument>, CliError> {
    let (mut parts, mut answers) = (vec![items], Vec::new());
    while let Some(mut items) = parts.pop() {
        while !items.is_empty() {
            let call = async || {
                let documents = items.iter().map(|(_, item)| item.clone()).collect();
                client.create_documents(Json(NewBatch { documents, priority })).await
            };
            let failure = match patient(call).await {
                Ok(answer) => {
                    answers.extend(answer.documents);
                    break;
                }
                Err(failure) => failure,
            };
            let index = failure.members.get("index").and_then(|index| usize::try_from(index.as_u64()?).ok());
            match index.or((items.len() == 1).then_some(0)).filter(|index| *index < items.len()) {
                _ if !is_of_the_lines(&failure) => return Err(failure.into()),
                Some(index) => {
                    let (line, _) = items.remove(index);
                    refused.push(Refused { line, reason: failure.to_string() });
                }
                None => parts.push(items.split_off(items.len() / 2)),
            }
        }
    }
    Ok(answers)
}

/// Whether the service refuses what the lines hold, and not the call.
fn is_of_the_lines(failure: &Failure) -> bool {
    let field = failure.members.get("field").and_then(Value::as_str).unwrap_or_default();
    failure.members.contains_key("index")
        || matches!(failure.code, Code::MalformedRequest | Code::TooLarge)
        // What the database cannot hold comes without a field.
        || (failure.code == Code::InvalidField && (field.is_empty() || field.starts_with("documents")))
}

/// The lines of a file, read in parts.
struct Lines {
    input: Box<dyn BufRead + Send>,
    parent: Option<i64>,
    line: usize,
    /// A line that no longer fitted into the last part; empty: none.
    kept: Vec<u8>,
    /// How often each line without a key came, so that the second of two equal lines is another document.
    seen: HashMap<[u8; 16], u32>,
    /// The line on which each key was first, by the key's hash.
    keys: HashMap<[u8; 16], usize>,
}

struct Part {
    items: Vec<(usize, BatchItem)>,
    refused: Vec<Refused>,
    last_line: usize,
    is_end: bool,
}

impl Lines {
    fn open(path: &Path, parent: Option<i64>) -> Result<Lines, CliError> {
        let input: Box<dyn BufRead + Send> = if path == Path::new("-") {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let file = File::open(path).map_err(|error| CliError::Other(format!("{}: {error}", path.display())))?;
            Box::new(BufReader::with_capacity(1 << 16, file))
        };
        Ok(Lines { input, parent, line: 0, kept: Vec::new(), seen: HashMap::new(), keys: HashMap::new() })
    }

    fn part(&mut self) -> io::Result<Part> {
        let mut part = Part { items: Vec::new(), refused: Vec::new(), last_line: self.line, is_end: true };
        let (mut bytes, mut held, mut line) = (0, 0, Vec::new());
        while part.items.len() < LINES && bytes < BYTES {
            line.clear();
            line.append(&mut self.kept);
            if line.is_empty() {
                self.input.by_ref().take(LINE_BYTES as u64).read_until(b'\n', &mut line)?;
            }
            if self.line == 0 && line.starts_with(BOM) {
                line.drain(..BOM.len());
            }
            if line.is_empty() {
                break;
            }
            let of_line = values(&line);
            if bytes > 0 && (bytes + line.len() > BYTES || held + of_line > VALUES) {
                self.kept = line;
                break;
            }
            self.line += 1;
            (part.last_line, part.is_end) = (self.line, false);
            bytes += line.len();
            held += of_line;
            let item = match line.len() == LINE_BYTES && line.last() != Some(&b'\n') {
                true => {
                    skip_line(&mut self.input)?;
                    Err(format!("it is longer than {} MiB", LINE_BYTES >> 20))
                }
                false if line.trim_ascii().is_empty() => continue,
                false => self.item(line.trim_ascii()),
            };
            match item {
                Ok(item) => part.items.push((self.line, item)),
                Err(reason) => part.refused.push(Refused { line: self.line, reason }),
            }
        }
        Ok(part)
    }

    fn item(&mut self, line: &[u8]) -> Result<BatchItem, String> {
        let mut item: BatchItem = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        item.check_as("").map_err(|failure| failure.detail)?;
        // A line that names its parent is the same line under whatever the others are put.
        let under = self.parent.filter(|_| item.parent_id.is_none() && item.parent_key.is_none());
        item.parent_id = item.parent_id.or(under);
        if let Some(key) = &item.key {
            let first = *self.keys.entry(hash(&[key.as_bytes()])).or_insert(self.line);
            if first != self.line {
                return Err(format!("line {first} has the key too"));
            }
        } else {
            let hash = hash(&[format!("{under:?}").as_bytes(), line]);
            let copy = self.seen.entry(hash).or_default();
            item.key = Some(format!("line:{}:{copy}", hex::encode(hash)));
            *copy += 1;
        }
        Ok(item)
    }
}

fn hash(parts: &[&[u8]]) -> [u8; 16] {
    let whole = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize();
    let mut hash = [0; 16];
    hash.copy_from_slice(&whole[..16]);
    hash
}

/// Reads up to the end of a line without keeping it.
fn skip_line(input: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (length, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(length);
        if is_end {
            return Ok(());
        }
    }
}
