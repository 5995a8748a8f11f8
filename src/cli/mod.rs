//! The command line `svc`. It serves, and it talks to a running service through the remote client; `models`, `embed`,
//! `config`, `migrate` and `completions` work without one.
mod access;
mod archive;
mod ask;
mod backup;
mod blobs;
mod bulk;
mod bytes;
mod cancel;
mod cells;
mod config;
mod conversations;
mod destination;
mod documents;
mod edits;
mod embed;
mod events;
mod extraction;
mod facts;
mod fetch;
mod follow;
mod graph;
mod import;
mod ingest;
mod lint;
mod listing;
mod llm_batches;
mod mcp;
mod models;
mod ontologies;
mod output;
mod path;
mod patience;
mod pieces;
mod plan;
mod predicates;
mod priority;
mod raptor;
mod rdf;
mod reembed;
mod reindex;
mod reprocess;
mod search;
mod serve;
mod shape_bindings;
mod status;
mod templates;
mod token_file;
mod tree;
mod view;
mod worker;

use crate::{
    app::AppError,
    blobs::BlobError,
    embedded::backup::BackupError,
    ingest::extension::TaskTypes,
    otlp::OtlpError,
    secrets,
    settings::{Settings, SettingsError, is_this_machine},
    store::reindex::ReindexError,
};
use clap::{CommandFactory, Parser, Subcommand};
pub use llm_batches::batch_worker_main;
use output::Output;
use serde_json::Value;
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};
use svc_client::{Client, Code, Failure, Remote, wire::OwnJson};
pub use worker::worker_main;

/// The exit code if everything ended but some files were refused or failed.
pub const SOME_FAILED: u8 = 3;
/// The exit code that a shell reports for a program ended by SIGINT.
const INTERRUPTED: u8 = 130;

/// A document store organised as a tree: it ingests files and finds what is in them by meaning and by words.
#[derive(Parser)]
#[command(name = "svc", version, propagate_version = true)]
struct Arguments {
    /// The settings file [default: the one that SVC_CONFIG names, else ./svc.toml if it exists].
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// The token to send, the owner's or a principal's [default: SVC_TOKEN, else SVC_API_TOKEN, else the owner token that
    /// `svc serve` made and keeps in the data folder]; for `svc serve` the owner token. Other users of the machine can read the arguments of a
    /// command while it runs, so SVC_TOKEN keeps a token better; `svc serve` takes it out of its own at once.
    #[arg(long, global = true, value_name = "TOKEN")]
    token: Option<String>,
    /// Prints JSON lines, the default for a pipe.
    #[arg(long, global = true)]
    json: bool,
    /// Prints readable tables, the default for a terminal.
    #[arg(long, global = true, conflicts_with = "json")]
    table: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the service until it is asked to stop.
    Serve,
    /// Uploads files and folders, and follows their ingestion to its end.
    Ingest(ingest::IngestArguments),
    /// Hands whole folders over, by the message broker or else by uploads, with a journal by which it goes on after a break.
    Bulk(bulk::BulkArguments),
    /// Has the service fetch web pages, PDF files and papers, and ingest them.
    Fetch(fetch::FetchArguments),
    /// Writes a part of the tree, or all of it, to a folder, with stored bytes, vectors, links, facts and grants.
    Export(archive::ExportArguments),
    /// Brings in the folder of an export, or creates a document for each line of a file of JSON objects; a repeated import stores only what is
    /// missing.
    Import(import::ImportArguments),
    /// Shows what an upload of a file would do; stores nothing.
    Analyze(plan::AnalyzeArguments),
    /// Shows which tasks files of a format get, and on what they depend.
    Explain(plan::ExplainArguments),
    /// Ingests a stored file again with other options, while the tree that it has stays searchable.
    Reprocess(reprocess::ReprocessArguments),
    /// Ends a file's ingestion, or only its reprocess if one runs.
    Cancel(cancel::CancelArguments),
    /// Changes the priority of a file's ingestion.
    Priority(priority::PriorityArguments),
    /// Searches the documents.
    Search(Box<search::SearchArguments>),
    /// Finds documents that are like another one.
    Similar(search::SimilarArguments),
    /// Answers a question from the documents by the language model of the settings, with the sources of each sentence.
    Ask(ask::AskArguments),
    /// Makes summaries over the texts under a document.
    Raptor(raptor::RaptorArguments),
    /// Chooses what to read under a document within a budget of tokens.
    Portfolio(raptor::PortfolioArguments),
    /// Shows a document and everything under it.
    Tree(tree::TreeArguments),
    /// Lists documents: those without a parent, or the children of one.
    Ls(documents::LsArguments),
    /// Creates a document from a text that is given or piped in.
    Add(edits::AddArguments),
    /// Changes fields of a document.
    Edit(edits::EditArguments),
    /// Moves a document and everything under it.
    Mv(edits::MvArguments),
    /// Cuts a document's text into documents under it.
    Split(pieces::SplitArguments),
    /// Cuts a document's text into chunks under it.
    Chunk(pieces::ChunkArguments),
    /// Puts a document's children into segments, between which the subject changes.
    Segment(pieces::SegmentArguments),
    /// Shows a document as people read it, with what is under it, above it and around it.
    View(view::ViewArguments),
    /// Shows one document with its text.
    Get(documents::IdArguments),
    /// Writes the stored bytes of a document's file to a file or to a pipe.
    Bytes(bytes::BytesArguments),
    /// Deletes a document, everything under it, and their stored bytes.
    Rm(documents::IdArguments),
    /// Reads cells of a stored workbook.
    Cells(cells::CellsArguments),
    /// Asserts facts about documents, lists them as of any time, replaces and ends them.
    Facts(facts::FactsArguments),
    /// Has the language model of the settings read facts in the texts at and under a document.
    ExtractFacts(extraction::ExtractFactsArguments),
    /// Lists which entities are taken for one, makes such merges by hand, and undoes them.
    Merges(extraction::MergesArguments),
    /// Finds the shortest path between two documents along facts; the exit code is 1 if there is none.
    Path(path::PathArguments),
    /// Analyses the graph of documents: what is central, how it groups, and what has changed.
    Graph(graph::GraphArguments),
    /// Audits facts and documents; the exit code is 1 if more is wrong than is accepted.
    Lint(lint::LintArguments),
    /// Writes facts as Turtle, and reads facts from Turtle.
    Rdf(rdf::RdfArguments),
    /// Loads, lists and deletes ontologies.
    Ontology(ontologies::OntologyArguments),
    /// Binds shapes of ontologies, and holds facts against them.
    Shapes(shape_bindings::ShapesArguments),
    /// Lists predicates, or creates one.
    Predicates(predicates::PredicatesArguments),
    /// Stores whole conversations.
    Conversation(conversations::ConversationArguments),
    /// Stores, lists and renders templates of prompts.
    Template(templates::TemplateArguments),
    /// Manages who may read and write what: principals, tokens, grants and the audit.
    Access(access::AccessArguments),
    /// Prints what happens, as it happens.
    Events(events::EventsArguments),
    /// Shows the service's checks, queue and workers.
    Status,
    /// Lists the known, cached and loaded models; fetches models.
    Models(models::ModelsArguments),
    /// Lets a language model use the service: speaks the Model Context Protocol over standard input and output.
    Mcp,
    /// Prints the vector of a text.
    Embed(embed::EmbedArguments),
    /// Prints every setting with its value and where it came from.
    Config(config::ConfigArguments),
    /// Copies the embedded database of a running service to a folder, and verifies the copy.
    Backup(backup::BackupArguments),
    /// Restores a backup into the data folder, which must be empty; the service starts on it afterwards.
    Restore(backup::RestoreArguments),
    /// Moves the stored bytes of files between the database and the object store, and verifies them.
    Blobs(blobs::BlobsArguments),
    /// Moves all vectors to the model of SVC_EMBEDDING_COMING_MODEL while the other one answers, and follows that to its end.
    Reembed(reembed::ReembedArguments),
    /// Brings the table of vectors and its indexes into the form that SVC_VECTOR_PARTITIONS and SVC_VECTOR_INDEX want.
    Reindex(reindex::ReindexArguments),
    /// Applies pending migrations to the database.
    Migrate(config::MigrateArguments),
    /// Prints the completions of `svc` for a shell, for example `source <(svc completions bash)`.
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether the command works on while it prints, or has more to say by its exit code than that it is done. Of those that also list, such as
    /// `svc facts`, a change is over before anything is printed of it.
    fn goes_on_unread(&self) -> bool {
        match self {
            Command::Bulk(arguments) => !arguments.only_lists(),
            Command::Ingest(_)
            | Command::Fetch(_)
            | Command::Export(_)
            | Command::Import(_)
            | Command::Reprocess(_)
            | Command::Cancel(_)
            | Command::Priority(_)
            | Command::Raptor(_)
            | Command::Add(_)
            | Command::Edit(_)
            | Command::Mv(_)
            | Command::Split(_)
            | Command::Chunk(_)
            | Command::Segment(_)
            | Command::Rm(_)
            | Command::ExtractFacts(_)
            | Command::Conversation(_)
            | Command::Backup(_)
            | Command::Restore(_)
            | Command::Blobs(_)
            | Command::Reembed(_)
            | Command::Reindex(_)
            | Command::Lint(_)
            | Command::Shapes(_)
            | Command::Path(_)
            | Command::Status
            | Command::Migrate(_) => true,
            _ => false,
        }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    App(#[from] AppError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
    #[error(transparent)]
    Reindex(#[from] ReindexError),
    #[error("{}", with_next_step(.0))]
    Call(#[from] Failure),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Other(String),
}

impl From<OtlpError> for CliError {
    fn from(error: OtlpError) -> CliError {
        SettingsError::Invalid(vec![error.to_string()]).into()
    }
}

/// The answer of a call that waits; `None` after Ctrl-C, once it is said what goes on without this program.
async fn unless_interrupted<T>(
    answer: impl Future<Output = Result<T, Failure>>,
    goes_on: &str,
) -> Result<Option<T>, CliError> {
    tokio::select! {
        answer = answer => Ok(Some(answer?)),
        _ = tokio::signal::ctrl_c() => {
            crate::cli::output::tell!("{goes_on}");
            Ok(None)
        }
    }
}

/// A failed call, with what to do next.
fn with_next_step(failure: &Failure) -> String {
    match failure.code {
        Code::Unauthenticated => {
            "the service refuses the token: set SVC_TOKEN, or --token, to its owner token or to a principal's"
                .to_owned()
        }
        Code::Unreachable if failure.status == 0 => {
            let says = |member: &str| failure.members.get(member).and_then(Value::as_bool);
            match (says("sent"), says("only_reads")) {
                (Some(false), _) => format!("{}: start `svc serve`, or set SVC_URL to its address", failure.detail),
                (Some(true), Some(false)) => format!(
                    "{}; what was asked for may have been carried out all the same: look before you repeat it",
                    failure.detail
                ),
                // It changes nothing, or an answer came, which says itself what is wrong with it.
                _ => failure.detail.clone(),
            }
        }
        _ => failure.to_string(),
    }
}

/// Runs `svc` and returns its exit code. `types` are the task types of the program, some of which it may have registered.
pub fn main(types: TaskTypes) -> ExitCode {
    if let Some(code) = crate::reader::serve_if_asked(std::env::args_os()) {
        return code;
    }
    let arguments = Arguments::parse();
    if let Command::Completions { shell } = arguments.command {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Arguments::command(), "svc", &mut text);
        return match std::io::Write::write_all(&mut std::io::stdout(), &text) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                crate::cli::output::tell!("svc: {error}");
                ExitCode::FAILURE
            }
            // The reader has closed the pipe because it has enough; that is not a failure.
            _ => ExitCode::SUCCESS,
        };
    }
    let environment = match arguments.command {
        Command::Serve => match secrets::withdrawn_environment(arguments.token.as_deref()) {
            Ok(environment) => environment,
            Err(error) => return not_withdrawn("svc", &error),
        },
        _ => secrets::environment(),
    };
    run_to_end("svc", run(arguments, environment, types))
}

fn not_withdrawn(name: &str, error: &std::io::Error) -> ExitCode {
    crate::cli::output::tell!("{name}: the secrets cannot be taken out of the environment: {error}");
    ExitCode::FAILURE
}

/// The bytes of a thread's stack, of which only what is used takes memory. A deep call of the build of `make demo`, which is not optimised, comes near the
/// usual 2 MiB, and a stack that overflows ends the process.
const STACK: usize = 8 << 20;

/// Runs a program on its own runtime and prints one line if it fails. Bad settings give exit code 2.
fn run_to_end(name: &str, work: impl Future<Output = Result<ExitCode, CliError>>) -> ExitCode {
    // A second provider in the process would be our own mistake, and then the first one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = match builder.enable_all().thread_stack_size(STACK).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            crate::cli::output::tell!("{name}: the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(work).unwrap_or_else(|error| {
        // The reader of our output has enough, which is not a failure.
        let is_unread = matches!(&error, CliError::Io(io) if io.kind() == std::io::ErrorKind::BrokenPipe);
        if is_unread && !output::goes_on_unread() {
            return ExitCode::SUCCESS;
        }
        // It may quote what somebody stored.
        crate::cli::output::tell!("{name}: {}", output::harmless(&error.to_string()));
        match error {
            CliError::Settings(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    });
    // Blocking work that nobody waits for must not delay the end.
    runtime.shutdown_background();
    code
}

async fn run(
    arguments: Arguments,
    mut environment: BTreeMap<String, String>,
    types: TaskTypes,
) -> Result<ExitCode, CliError> {
    let name = if matches!(arguments.command, Command::Serve) { "SVC_API_TOKEN" } else { "SVC_TOKEN" };
    environment.extend(arguments.token.map(|token| (name.to_owned(), token)));
    let settings = Settings::load(arguments.config.as_deref(), environment.into_iter())?;
    let output = Output::choose(arguments.json, arguments.table);
    if arguments.command.goes_on_unread() {
        output::go_on_unread();
    }
    match arguments.command {
        Command::Serve => serve::serve(settings, types).await,
        Command::Ingest(arguments) => ingest::ingest(&client(&settings)?, output, arguments).await,
        Command::Bulk(arguments) => bulk::bulk(&settings, output, arguments).await,
        Command::Fetch(arguments) => fetch::fetch(&client(&settings)?, output, arguments).await,
        Command::Export(arguments) => archive::export(&client(&settings)?, output, arguments).await,
        Command::Import(arguments) => import::import(&client(&settings)?, output, arguments).await,
        Command::Analyze(arguments) => plan::analyze(&client(&settings)?, output, arguments).await,
        Command::Explain(arguments) => plan::explain(&client(&settings)?, output, arguments).await,
        Command::Reprocess(arguments) => reprocess::reprocess(&client(&settings)?, output, arguments).await,
        Command::Cancel(arguments) => cancel::cancel(&client(&settings)?, output, arguments).await,
        Command::Priority(arguments) => priority::priority(&client(&settings)?, output, arguments).await,
        Command::Search(arguments) => search::search(&client(&settings)?, output, *arguments).await,
        Command::Similar(arguments) => search::similar(&client(&settings)?, output, arguments).await,
        Command::Ask(arguments) => ask::ask(&client(&settings)?, output, arguments).await,
        Command::Raptor(arguments) => raptor::raptor(&client(&settings)?, output, arguments).await,
        Command::Portfolio(arguments) => raptor::portfolio(&client(&settings)?, output, arguments).await,
        Command::Tree(arguments) => tree::tree(&client(&settings)?, output, arguments).await,
        Command::Ls(arguments) => documents::ls(&client(&settings)?, output, arguments).await,
        Command::Add(arguments) => edits::add(&client(&settings)?, output, arguments).await,
        Command::Edit(arguments) => edits::edit(&client(&settings)?, output, arguments).await,
        Command::Mv(arguments) => edits::mv(&client(&settings)?, output, arguments).await,
        Command::Split(arguments) => pieces::split(&client(&settings)?, output, arguments).await,
        Command::Chunk(arguments) => pieces::chunk(&client(&settings)?, output, arguments).await,
        Command::Segment(arguments) => pieces::segment(&client(&settings)?, output, arguments).await,
        Command::View(arguments) => view::view(&client(&settings)?, output, arguments).await,
        Command::Get(arguments) => documents::get(&client(&settings)?, output, arguments).await,
        Command::Facts(arguments) => facts::facts(&client(&settings)?, output, arguments).await,
        Command::ExtractFacts(arguments) => extraction::extract_facts(&client(&settings)?, output, arguments).await,
        Command::Merges(arguments) => extraction::merges(&client(&settings)?, output, arguments).await,
        Command::Path(arguments) => path::path(&client(&settings)?, output, arguments).await,
        Command::Template(arguments) => templates::template(&client(&settings)?, output, arguments).await,
        Command::Conversation(arguments) => conversations::conversation(&client(&settings)?, output, arguments).await,
        Command::Graph(arguments) => graph::graph(&client(&settings)?, output, arguments).await,
        Command::Lint(arguments) => lint::lint(&client(&settings)?, output, arguments).await,
        Command::Rdf(arguments) => rdf::rdf(&client(&settings)?, output, arguments).await,
        Command::Ontology(arguments) => ontologies::ontology(&client(&settings)?, output, arguments).await,
        Command::Shapes(arguments) => shape_bindings::shapes(&client(&settings)?, output, arguments).await,
        Command::Predicates(arguments) => predicates::predicates(&client(&settings)?, output, arguments).await,
        Command::Bytes(arguments) => bytes::bytes(&client(&settings)?, output, arguments).await,
        Command::Rm(arguments) => documents::rm(&client(&settings)?, output, arguments).await,
        Command::Cells(arguments) => cells::cells(&client(&settings)?, output, arguments).await,
        Command::Access(arguments) => access::access(&client(&settings)?, output, arguments).await,
        Command::Events(arguments) => events::events(&client(&settings)?, output, arguments).await,
        Command::Status => status::status(&prompt_client(&settings)?, output).await,
        Command::Models(arguments) => models::models(&settings, &client(&settings)?, output, arguments).await,
        Command::Mcp => mcp::mcp(&settings, client(&settings)?).await,
        Command::Embed(arguments) => embed::embed(&settings, output, arguments).await,
        Command::Config(arguments) => config::config(&settings, output, &arguments),
        Command::Backup(arguments) => backup::backup(&settings, output, &arguments).await,
        Command::Restore(arguments) => backup::restore(&settings, output, &arguments).await,
        Command::Blobs(arguments) => blobs::blobs(settings, output, arguments).await,
        Command::Reembed(arguments) => reembed::reembed(&client(&settings)?, output, arguments).await,
        Command::Reindex(arguments) => reindex::reindex(settings, output, arguments).await,
        Command::Migrate(arguments) => config::migrate(&settings, &arguments).await,
        // This is printed before any setting is read.
        Command::Completions { .. } => Ok(ExitCode::SUCCESS),
    }
}

/// A service that takes longer to connect counts as gone.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A connection on which nothing arrives that was sent counts as gone after this time, and so does a service that is silent where it must not be.
const SILENT_FOR: Duration = Duration::from_secs(180);

/// The most values of JSON in a call for many documents: any service takes as many, however small its bodies are.
const VALUES: usize = 100_000;

/// At least as many values as a line of JSON has.
fn values(line: &[u8]) -> usize {
    1 + line.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

/// What an argument gives as JSON, such as ingest options; a key that stands twice is refused, because only one of the values could be sent.
fn own_json(argument: &str, text: Option<&str>) -> Result<Option<Value>, CliError> {
    let read = text.map(serde_json::from_str::<OwnJson>).transpose();
    let read = read.map_err(|error| {
        let what = if error.is_data() { "" } else { " is not JSON" };
        CliError::Other(format!("{argument}{what}: {error}"))
    })?;
    Ok(read.and_then(|OwnJson(value)| value))
}

/// A number that JSON can hold. Another one would be sent as none, for which the service takes its default.
fn finite(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|number| number.is_finite()).ok_or_else(|| "takes a number such as 0.5".to_owned())
}

/// The client for the service that the settings name. It waits for as long as the service works: that has limits of its own, which this side does not
/// know, and carries a change out although nobody waits for it.
fn client(settings: &Settings) -> Result<Client<Remote>, CliError> {
    Ok(client_by(settings, waiting(settings)?))
}

/// The same for what the service answers at once, so that one that hangs counts as gone.
fn prompt_client(settings: &Settings) -> Result<Client<Remote>, CliError> {
    Ok(client_by(settings, prompt(settings)?))
}

fn waiting(settings: &Settings) -> Result<reqwest::Client, CliError> {
    built(http_builder(settings))
}

fn prompt(settings: &Settings) -> Result<reqwest::Client, CliError> {
    built(http_builder(settings).read_timeout(SILENT_FOR))
}

fn http_builder(settings: &Settings) -> reqwest::ClientBuilder {
    let http = reqwest::Client::builder()
        .connect_timeout(CONNECT_WITHIN)
        .tcp_user_timeout(SILENT_FOR)
        // A redirect drops the token, and makes a read of what was a change.
        .redirect(reqwest::redirect::Policy::none());
    // A proxy from the environment is meant for other machines, and must not see the token.
    if is_this_machine(&settings.service_url()) { http.no_proxy() } else { http }
}

fn built(http: reqwest::ClientBuilder) -> Result<reqwest::Client, CliError> {
    http.build().map_err(|error| CliError::Other(format!("the HTTP client cannot start: {error}")))
}

fn client_by(settings: &Settings, http: reqwest::Client) -> Client<Remote> {
    let url = settings.service_url();
    let token = match settings.token_to_show().expose() {
        // This is the token of this user's service on this machine.
        "" if is_this_machine(&url) => token_file::read(&settings.data_dir).unwrap_or_default(),
        token => token.to_owned(),
    };
    // Another command may have written just now what this one is to find.
    Client(Remote::new(&url, &token, http).beginning_now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_command_waits_for_as_long_as_the_service_works_and_a_look_at_its_state_does_not() {
        // Another test of this process may have set it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let home = [("HOME".to_owned(), "/home/someone".to_owned())];
        let settings = Settings::load(Some(Path::new("/dev/null")), home.into_iter()).unwrap();
        let gives_up = |http: reqwest::Client| format!("{http:?}").contains("read_timeout");
        assert!(!gives_up(waiting(&settings).unwrap()));
        assert!(gives_up(prompt(&settings).unwrap()));
    }

    #[test]
    fn a_call_that_was_sent_is_looked_after_and_one_that_was_not_needs_a_service() {
        let lost = Failure::new(Code::Unreachable, "no answer from http://there");
        let of = |sent: bool, only_reads: bool| lost.clone().with("sent", sent).with("only_reads", only_reads);
        for (failure, starts, looks) in [
            (of(false, false), true, false),
            (of(false, true), true, false),
            (of(true, false), false, true),
            (of(true, true), false, false),
            (lost.clone(), false, false),
        ] {
            let said = with_next_step(&failure);
            assert!(said.starts_with("no answer from http://there"), "{said}");
            assert_eq!(said.contains("start `svc serve`"), starts, "{said}");
            assert_eq!(said.contains("look before you repeat it"), looks, "{said}");
        }
    }

    #[test]
    fn whose_exit_code_is_an_answer_goes_on_unread() {
        let goes_on =
            |line: &[&str]| Arguments::try_parse_from([&["svc"], line].concat()).unwrap().command.goes_on_unread();
        for line in [&["status"][..], &["path", "1", "2"], &["bulk", "--dry-run", "."], &["rm", "1"]] {
            assert!(goes_on(line), "{line:?}");
        }
        for line in [&["ls"][..], &["bulk", "dead", "list"], &["get", "1"]] {
            assert!(!goes_on(line), "{line:?}");
        }
    }
}
