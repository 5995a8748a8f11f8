//! `svc rdf`: facts to Turtle, and Turtle to facts.
use super::{
    CliError, INTERRUPTED,
    bytes::{begin_file, end_file},
    output::{Output, count, one_line, say},
    patience::patient,
};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use futures_util::TryStreamExt;
use oxrdf::{BlankNode, NamedOrBlankNode, Term, Triple};
use oxttl::{TurtleParseError, TurtleParser, TurtleSerializer, turtle::LowLevelTurtleSerializer};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};
use svc_client::{
    Client, Code, Failure, RdfSyntax, RdfText, Remote,
    wire::{ImportQuery, ImportedGraph, TurtleQuery},
};

/// The most triples and bytes of one call. A call is one transaction, so a small one is soon over.
const TRIPLES: usize = 10_000;
const BYTES: usize = 4 << 20;
/// The most triples that describe a fact with its times.
const DESCRIPTION: usize = 20;

#[derive(Args)]
pub struct RdfArguments {
    #[command(subcommand)]
    command: RdfCommand,
}

#[derive(Subcommand)]
enum RdfCommand {
    /// Writes facts as Turtle.
    Export(ExportArguments),
    /// Asserts the facts of a file in Turtle or N-Triples, in parts; running it again adds nothing.
    Import(ImportArguments),
}

#[derive(Args)]
struct ExportArguments {
    /// Where the text is written; standard output if it is left out.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only facts about this document and what is under it, and facts that these state.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// Only facts that hold at this time [default: now].
    #[arg(long, value_name = "TIME")]
    at: Option<DateTime<Utc>>,
    /// What the store believed at this time [default: now].
    #[arg(long, value_name = "TIME")]
    known: Option<DateTime<Utc>>,
    /// Leaves out what rules derived.
    #[arg(long)]
    asserted: bool,
    /// Describes facts of all times with their times, also those that are no longer believed.
    #[arg(long)]
    history: bool,
    /// Adds what ontologies say of their classes and predicates.
    #[arg(long)]
    ontologies: bool,
}

#[derive(Args)]
struct ImportArguments {
    file: PathBuf,
    /// The document that states the facts, and gets the new documents under it.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// The IRI that relative ones are resolved against.
    #[arg(long, value_name = "IRI")]
    base: Option<String>,
}

pub async fn rdf(client: &Client<Remote>, output: Output, arguments: RdfArguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        RdfCommand::Export(arguments) => export(client, arguments).await.map(|()| ExitCode::SUCCESS),
        RdfCommand::Import(arguments) => import(client, output, arguments).await,
    }
}

async fn export(client: &Client<Remote>, arguments: ExportArguments) -> Result<(), CliError> {
    let ExportArguments { output, under, at, known, asserted, history, ontologies } = arguments;
    let query =
        TurtleQuery { parent_id: under, ontologies, asserted_only: asserted, history, valid_at: at, known_at: known };
    let Some(path) = output else { return written(client, query, &mut io::stdout().lock()).await };
    let mut part = begin_file(&path)?;
    written(client, query, part.as_file_mut()).await?;
    end_file(part, &path)
}

async fn written(client: &Client<Remote>, query: TurtleQuery, out: &mut impl Write) -> Result<(), CliError> {
    let mut pieces = client.export_turtle(query).await?;
    while let Some(piece) = pieces.try_next().await? {
        out.write_all(&piece)?;
    }
    Ok(out.flush()?)
}

/// What became of the triples of a file.
#[derive(Default, Serialize)]
struct Summary {
    triples: u64,
    created: u64,
    merged: u64,
    existing: u64,
    nodes_created: u64,
    predicates_created: u64,
    ill_typed: u64,
}

impl Summary {
    fn add(&mut self, done: &ImportedGraph) {
        self.triples += u64::from(done.triples);
        self.created += u64::from(done.created);
        self.merged += u64::from(done.merged);
        self.existing += u64::from(done.existing);
        self.nodes_created += u64::from(done.nodes_created);
        self.predicates_created += u64::from(done.predicates_created);
        self.ill_typed += u64::from(done.ill_typed);
    }
}

async fn import(client: &Client<Remote>, output: Output, arguments: ImportArguments) -> Result<ExitCode, CliError> {
    let mut summary = Summary::default();
    let done = tokio::select! {
        done = send_all(client, arguments, &mut summary) => Some(done),
        _ = tokio::signal::ctrl_c() => None,
    };
    if matches!(done, None | Some(Err(CliError::Call(_)))) {
        eprintln!("{} of the file are stored; running the command again adds the others", count_of(&summary));
    }
    match done {
        None => return Ok(ExitCode::from(INTERRUPTED)),
        Some(done) => done?,
    }
    match output {
        Output::Json => Output::line(&summary)?,
        Output::Table => {
            let Summary { created, merged, existing, nodes_created, predicates_created, ill_typed, .. } = summary;
            say!("{}: {created} created, {merged} merged, {existing} known before", count_of(&summary));
            say!("{nodes_created} documents and {predicates_created} predicates are new");
            if ill_typed > 0 {
                say!("{ill_typed} literals are not what their datatype says; they are kept to the letter");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends a file in parts; `summary` says at any time how far it has come.
async fn send_all(client: &Client<Remote>, arguments: ImportArguments, summary: &mut Summary) -> Result<(), CliError> {
    let ImportArguments { file, under, base } = arguments;
    let (path, from) = (file.clone(), base.clone());
    let checked = tokio::task::spawn_blocking(move || check(&path, from.as_deref()));
    let Checked { hash, prefixes } = checked.await.map_err(|error| CliError::Other(error.to_string()))??;
    let query = ImportQuery { parent_id: under, base: None, import: Some(hash) };
    let (parts, mut read) = tokio::sync::mpsc::channel(1);
    let reading = tokio::task::spawn_blocking(move || send_parts(&file, base.as_deref(), &prefixes, &parts));
    let mut most = usize::MAX;
    while let Some(part) = read.recv().await {
        let mut open = vec![part];
        while let Some(part) = open.pop() {
            // What the service has refused by its size is not sent again in that size.
            let refusal = match part.triples <= most.saturating_add(DESCRIPTION) {
                true => match send(client, &query, &part.text).await {
                    Ok(done) => {
                        summary.add(&done);
                        continue;
                    }
                    Err(failure) if failure.code != Code::TooLarge => return Err(failure.into()),
                    Err(failure) => Some(failure),
                },
                false => None,
            };
            match (halves(&part.text)?, refusal) {
                (Some([first, second]), refusal) => {
                    if refusal.is_some() {
                        most = most.min(part.triples.div_ceil(2));
                    }
                    open.extend([second, first]);
                }
                (None, Some(failure)) => return Err(failure.into()),
                (None, None) => summary.add(&send(client, &query, &part.text).await?),
            }
        }
    }
    reading.await.map_err(|error| CliError::Other(error.to_string()))?
}

fn count_of(summary: &Summary) -> String {
    count(usize::try_from(summary.triples).unwrap_or(usize::MAX), "triple", "triples")
}

/// Triples that are sent in one call.
struct Part {
    triples: usize,
    /// Turtle, which stands by itself.
    text: String,
}

/// The two halves of a text that was written by [`serializer`]; `None` if what it has stays together.
fn halves(text: &str) -> Result<Option<[Part; 2]>, CliError> {
    let mut parser = TurtleParser::new().for_slice(text.as_bytes());
    let triples: Result<Vec<Triple>, _> = parser.by_ref().collect();
    let triples = triples.map_err(|error| CliError::Other(error.to_string()))?;
    let prefixes: Vec<(String, String)> =
        parser.prefixes().map(|(prefix, iri)| (prefix.to_owned(), iri.to_owned())).collect();
    let middle = triples.len() / 2;
    // What describes a fact with its times stays together.
    let begins = |at: &usize| triples[at - 1].subject != triples[*at].subject;
    let near = (middle.max(1)..triples.len()).take(DESCRIPTION).find(begins);
    let near = near.or_else(|| (1..middle).rev().take(DESCRIPTION).find(begins));
    let at = match near {
        Some(at) => at,
        None if triples.len() > DESCRIPTION => middle,
        None => return Ok(None),
    };
    let (first, second) = triples.split_at(at);
    Ok(Some([Part::of(&prefixes, first)?, Part::of(&prefixes, second)?]))
}

impl Part {
    fn of(prefixes: &[(String, String)], triples: &[Triple]) -> Result<Part, CliError> {
        let (mut writing, mut text) = (serializer(prefixes), Vec::new());
        for triple in triples {
            writing.serialize_triple(triple, &mut text)?;
        }
        writing.finish(&mut text)?;
        Part::written(triples.len(), text)
    }

    fn written(triples: usize, text: Vec<u8>) -> Result<Part, CliError> {
        let text = String::from_utf8(text).map_err(|error| CliError::Other(error.to_string()))?;
        Ok(Part { triples, text })
    }
}

/// Begins a text with the prefixes of a file.
fn serializer(prefixes: &[(String, String)]) -> LowLevelTurtleSerializer {
    let known = prefixes.iter().fold(TurtleSerializer::new(), |serializer, (prefix, iri)| {
        serializer.clone().with_prefix(prefix, iri).unwrap_or(serializer)
    });
    known.low_level()
}

async fn send(client: &Client<Remote>, query: &ImportQuery, text: &str) -> Result<ImportedGraph, Failure> {
    let text = || RdfText { syntax: RdfSyntax::Turtle, text: text.to_owned() };
    patient(async || client.import_turtle(query.clone(), text()).await).await
}

/// What the first reading of a file tells.
struct Checked {
    /// A name for the file's blank nodes, the same whenever the same file is read.
    hash: String,
    prefixes: Vec<(String, String)>,
}

/// Reads a whole file, so that nothing of it is sent if it is faulty somewhere.
fn check(path: &Path, base: Option<&str>) -> Result<Checked, CliError> {
    let mut file = Hashed { file: open(path)?, hash: Sha256::new() };
    let mut parser = parser(base)?.for_reader(BufReader::new(&mut file));
    for triple in parser.by_ref() {
        triple.map_err(|error| no_turtle(path, &error))?;
    }
    let prefixes = parser.prefixes().map(|(prefix, iri)| (prefix.to_owned(), iri.to_owned())).collect();
    drop(parser);
    let hash: String = file.hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(Checked { hash, prefixes })
}

/// A file that is hashed while it is read.
struct Hashed {
    file: File,
    hash: Sha256,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

fn open(path: &Path) -> Result<File, CliError> {
    File::open(path).map_err(|error| CliError::Other(format!("{}: {error}", path.display())))
}

fn parser(base: Option<&str>) -> Result<TurtleParser, CliError> {
    match base {
        None => Ok(TurtleParser::new()),
        Some(base) => TurtleParser::new()
            .with_base_iri(base)
            .map_err(|error| CliError::Other(format!("--base takes an absolute IRI: {error}"))),
    }
}

fn no_turtle(path: &Path, error: &TurtleParseError) -> CliError {
    let path = one_line(&path.display().to_string(), 200);
    CliError::Other(match error {
        TurtleParseError::Io(error) => format!("{path}: {error}"),
        TurtleParseError::Syntax(error) => {
            let start = error.location().start;
            format!("{path}, line {}, column {}: {}", start.line + 1, start.column + 1, error.message())
        }
    })
}

/// Reads a file in parts, each a text of its own.
fn send_parts(
    path: &Path,
    base: Option<&str>,
    prefixes: &[(String, String)],
    parts: &tokio::sync::mpsc::Sender<Part>,
) -> Result<(), CliError> {
    let mut labels = Labels(HashMap::new());
    let mut last: Option<NamedOrBlankNode> = None;
    let (mut writing, mut text, mut triples) = (serializer(prefixes), Vec::new(), 0);
    let send = |triples: usize, text: Vec<u8>| {
        // The receiver has gone when a part was refused, which it reports.
        Ok::<_, CliError>(parts.blocking_send(Part::written(triples, text)?).is_ok())
    };
    for triple in parser(base)?.for_reader(BufReader::new(open(path)?)) {
        let triple = labels.renamed(triple.map_err(|error| no_turtle(path, &error))?);
        // What describes a fact with its times stays together.
        let goes_on = last.as_ref() == Some(&triple.subject) && triples < TRIPLES + DESCRIPTION;
        if !goes_on && (triples >= TRIPLES || text.len() >= BYTES) {
            writing.finish(&mut text)?;
            if !send(triples, std::mem::take(&mut text))? {
                return Ok(());
            }
            (writing, triples) = (serializer(prefixes), 0);
        }
        writing.serialize_triple(&triple, &mut text)?;
        triples += 1;
        last = Some(triple.subject);
    }
    if triples > 0 {
        writing.finish(&mut text)?;
        send(triples, text)?;
    }
    Ok(())
}

/// The labels of blank nodes by their order in the file: the parser names nodes without a label anew each time.
struct Labels(HashMap<BlankNode, BlankNode>);

impl Labels {
    fn renamed(&mut self, triple: Triple) -> Triple {
        let subject = match triple.subject {
            NamedOrBlankNode::BlankNode(node) => NamedOrBlankNode::BlankNode(self.label(node)),
            named @ NamedOrBlankNode::NamedNode(_) => named,
        };
        let object = match triple.object {
            Term::BlankNode(node) => Term::BlankNode(self.label(node)),
            other @ (Term::NamedNode(_) | Term::Literal(_)) => other,
        };
        Triple { subject, predicate: triple.predicate, object }
    }

    fn label(&mut self, node: BlankNode) -> BlankNode {
        let next = self.0.len();
        self.0.entry(node).or_insert_with(|| BlankNode::new_unchecked(format!("n{next}"))).clone()
    }
}
