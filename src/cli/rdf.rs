//! `svc rdf`: facts to Turtle, and Turtle to facts.
use super::{
    CliError, INTERRUPTED,
    destination::{Destination, Named},
    output::{Output, count, one_line, say},
    patience::{patient, unless_silent},
};
use crate::{rdf::history::NAMESPACE, store::archive::MOST_SOURCES};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use futures_util::TryStreamExt;
use oxrdf::{BlankNode, NamedOrBlankNode, Term, Triple};
use oxttl::{TurtleParseError, TurtleParser, TurtleSerializer, turtle::LowLevelTurtleSerializer};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{
    collections::{HashMap, HashSet},
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
/// The most triples that describe a fact with its times, without those that name the documents that state it, and with these.
const DESCRIPTION: usize = 20;
const WITH_SOURCES: usize = DESCRIPTION + MOST_SOURCES;

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
    let Some(path) = output else {
        return written(client, query, &mut Named::new("standard output", io::stdout().lock())).await;
    };
    let mut destination = Destination::begin_at(&path)?;
    written(client, query, &mut destination).await?;
    destination.end()
}

async fn written(client: &Client<Remote>, query: TurtleQuery, out: &mut impl Write) -> Result<(), CliError> {
    let mut pieces = client.export_turtle(query).await?;
    while let Some(piece) = unless_silent(pieces.try_next()).await? {
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
        crate::cli::output::tell!(
            "{} of the file are stored; running the command again adds the others",
            count_of(&summary)
        );
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
    let checked = checked.await.map_err(|error| CliError::Other(error.to_string()))??;
    let query = ImportQuery { parent_id: under, base: None, import: Some(checked.hash.clone()) };
    let (parts, mut read) = tokio::sync::mpsc::channel(1);
    let reading = tokio::task::spawn_blocking(move || send_parts(&file, base.as_deref(), &checked, &parts));
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
    let told: HashSet<&NamedOrBlankNode> =
        triples.iter().filter(|triple| is_of_history(triple)).map(|triple| &triple.subject).collect();
    let is_told = triples.get(middle).is_some_and(|triple| told.contains(&triple.subject));
    let together = if is_told { WITH_SOURCES } else { DESCRIPTION };
    let begins = |at: &usize| triples[at - 1].subject != triples[*at].subject;
    let near = (middle.max(1)..triples.len()).take(together).find(begins);
    let near = near.or_else(|| (1..middle).rev().take(together).find(begins));
    let at = match near {
        Some(at) => at,
        None if triples.len() > together => middle,
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

/// Whether a triple tells of a fact, as a history does.
fn is_of_history(triple: &Triple) -> bool {
    triple.predicate.as_str().starts_with(NAMESPACE)
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
    let mut file = Hashed::open(path)?;
    let mut parser = parser(base)?.for_reader(BufReader::new(&mut file));
    for triple in parser.by_ref() {
        triple.map_err(|error| no_turtle(path, &error))?;
    }
    let prefixes = parser.prefixes().map(|(prefix, iri)| (prefix.to_owned(), iri.to_owned())).collect();
    drop(parser);
    Ok(Checked { hash: file.name(), prefixes })
}

/// A file that is hashed while it is read.
struct Hashed {
    file: File,
    hash: Sha256,
}

impl Hashed {
    fn open(path: &Path) -> Result<Hashed, CliError> {
        Ok(Hashed { file: open(path)?, hash: Sha256::new() })
    }

    /// A name for what was read.
    fn name(self) -> String {
        self.hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

fn open(path: &Path) -> Result<File, CliError> {
    let unreadable = |error: io::Error| CliError::Other(format!("{}: {error}", path.display()));
    let kind = std::fs::metadata(path).map_err(unreadable)?.file_type();
    // What comes out of a pipe is gone when the file is read again.
    if !kind.is_file() && !kind.is_dir() {
        let path = one_line(&path.display().to_string(), 200);
        return Err(CliError::Other(format!("{path} is a pipe or a device: write it to a file and import that")));
    }
    File::open(path).map_err(unreadable)
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

/// Reads a file again in parts, each a text of its own; it is an error if the file is not as it was when it was checked.
fn send_parts(
    path: &Path,
    base: Option<&str>,
    checked: &Checked,
    parts: &tokio::sync::mpsc::Sender<Part>,
) -> Result<(), CliError> {
    let prefixes = &checked.prefixes;
    let mut file = Hashed::open(path)?;
    let mut labels = Labels(HashMap::new());
    let mut last: Option<NamedOrBlankNode> = None;
    let mut is_told = false;
    let (mut writing, mut text, mut triples) = (serializer(prefixes), Vec::new(), 0);
    let send = |triples: usize, text: Vec<u8>| {
        // The receiver has gone when a part was refused, which it reports.
        Ok::<_, CliError>(parts.blocking_send(Part::written(triples, text)?).is_ok())
    };
    for triple in parser(base)?.for_reader(BufReader::new(&mut file)) {
        let triple = labels.renamed(triple.map_err(|error| no_turtle(path, &error))?);
        // What describes a fact with its times stays together.
        let goes_on = last.as_ref() == Some(&triple.subject);
        is_told = is_of_history(&triple) || (goes_on && is_told);
        let together = if is_told { WITH_SOURCES } else { DESCRIPTION };
        let stays = goes_on && triples < TRIPLES + together;
        if !stays && (triples >= TRIPLES || text.len() >= BYTES) {
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
    if file.name() != checked.hash {
        let path = one_line(&path.display().to_string(), 200);
        return Err(CliError::Other(format!(
            "{path} changed while it was imported, so that some of it may be missing: run the command again"
        )));
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt, future, stream};
    use std::{sync::Arc, time::Duration};

    #[tokio::test(start_paused = true)]
    async fn an_export_in_the_middle_of_which_the_service_falls_silent_fails() {
        let service = |_: http::Request<reqwest::Body>| {
            let said = stream::iter([Ok("<http://e/s> ")]).chain(stream::pending::<io::Result<&'static str>>());
            future::ready(http::Response::new(reqwest::Body::wrap_stream(said))).boxed()
        };
        // Another test of this process may have set it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client(Remote::new("http://service", "", reqwest::Client::new()).sent_by(Arc::new(service)));
        let (mut out, hour) = (Vec::new(), Duration::from_secs(3_600));
        let done = tokio::time::timeout(hour, written(&client, TurtleQuery::default(), &mut out)).await.unwrap();
        assert!(matches!(&done, Err(CliError::Call(failure)) if failure.code == Code::Unreachable), "{done:?}");
        assert_eq!(out, b"<http://e/s> ");
    }

    #[test]
    fn a_file_that_changes_after_it_was_checked_is_no_success() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.ttl");
        let triple = "<http://e/s> <http://e/p> <http://e/o> .\n";
        std::fs::write(&path, triple).unwrap();
        let checked = check(&path, None).unwrap();
        let (parts, _read) = tokio::sync::mpsc::channel(1);
        send_parts(&path, None, &checked, &parts).unwrap();
        std::fs::write(&path, "").unwrap();
        let changed = send_parts(&path, None, &checked, &parts).unwrap_err();
        assert!(changed.to_string().contains("graph.ttl changed while it was imported"), "{changed}");
    }

    #[test]
    fn what_describes_a_fact_that_many_documents_state_stays_in_one_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.ttl");
        let plain: String = (0..9_990).map(|number| format!("<http://e/{number}> <http://e/p> {number} .\n")).collect();
        let sources = (0..60).map(|id| id.to_string()).collect::<Vec<_>>().join(", ");
        let text = format!(
            "@prefix svc: <{NAMESPACE}> . @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
             {plain} <urn:svc:triple/9> a rdf:Statement ; rdf:subject <http://e/s> ; rdf:predicate <http://e/p> ; rdf:object 1 ;
                svc:sourceId {sources} . <http://e/last> <http://e/p> 1 ."
        );
        std::fs::write(&path, text).unwrap();
        let (parts, mut read) = tokio::sync::mpsc::channel(10);
        send_parts(&path, None, &check(&path, None).unwrap(), &parts).unwrap();
        let mut open: Vec<Part> = Vec::new();
        while let Ok(part) = read.try_recv() {
            open.push(part);
        }
        assert!(open.len() > 1);
        // The service may take smaller parts alone.
        let mut smallest = 0;
        while let Some(part) = open.pop() {
            let triples = TurtleParser::new().for_slice(part.text.as_bytes()).map(Result::unwrap);
            let triples: Vec<Triple> =
                triples.filter(|triple| triple.subject.to_string().contains("triple/9")).collect();
            assert!([0, 64].contains(&triples.len()), "{} triples of the description", triples.len());
            match part.triples > 100 {
                true => open.extend(halves(&part.text).unwrap().into_iter().flatten()),
                false => smallest += 1,
            }
        }
        assert!(smallest > 100);
    }
}
