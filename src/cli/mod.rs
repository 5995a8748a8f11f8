//! The command line `svc`: serves, and talks to a running service over the remote client; `models` and `embed` work without one.
mod cancel;
mod cells;
mod config;
mod embed;
mod ingest;
mod models;
mod output;
mod priority;
mod search;
mod serve;
mod status;
mod tree;
mod worker;

pub use worker::worker_main;

use crate::{
    app::AppError,
    secrets,
    settings::{Settings, SettingsError},
};
use clap::{Parser, Subcommand};
use output::Output;
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};
use svc_client::{Client, Failure, Remote};

/// Done, but some files were refused or failed.
pub const SOME_FAILED: u8 = 3;

/// A document store organised as a tree: ingestion, retrieval and a knowledge graph in one unit.
#[derive(Parser)]
#[command(name = "svc", version, propagate_version = true)]
struct Arguments {
    /// The settings file; else the one that SVC_CONFIG names, else ./svc.toml where there is one.
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// JSON lines, as a pipe gets them anyway.
    #[arg(long, global = true)]
    json: bool,
    /// Readable tables, as a terminal gets them anyway.
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
    /// Ends a file's ingestion.
    Cancel(cancel::CancelArguments),
    /// Changes the priority of a file's ingestion.
    Priority(priority::PriorityArguments),
    /// Searches.
    Search(search::SearchArguments),
    /// Shows a document and what is under it.
    Tree(tree::TreeArguments),
    /// Reads cells of a stored workbook.
    Cells(cells::CellsArguments),
    /// Shows what the service says of itself.
    Status,
    /// Lists the models that are known, cached and loaded; fetches them.
    Models(models::ModelsArguments),
    /// Prints the vector of a text.
    Embed(embed::EmbedArguments),
    /// Prints every setting with its value and where it came from.
    Config(config::ConfigArguments),
    /// Applies the migrations that the database lacks.
    Migrate(config::MigrateArguments),
}

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    App(#[from] AppError),
    #[error(transparent)]
    Call(#[from] Failure),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Other(String),
}

/// What `svc` does; returns its exit code.
pub fn main() -> ExitCode {
    if let Some(code) = crate::ingest::reader::serve_if_asked(std::env::args_os()) {
        return code;
    }
    let arguments = Arguments::parse();
    let environment = match arguments.command {
        Command::Serve => match secrets::withdrawn_environment() {
            Ok(environment) => environment,
            Err(error) => return not_withdrawn("svc", &error),
        },
        _ => secrets::environment(),
    };
    run_to_end("svc", run(arguments, environment))
}

fn not_withdrawn(name: &str, error: &std::io::Error) -> ExitCode {
    eprintln!("{name}: the secrets cannot be taken out of the environment: {error}");
    ExitCode::FAILURE
}

/// Runs a program on a runtime of its own and says in one line why it did not do what it was asked; 2 for bad settings.
fn run_to_end(name: &str, work: impl Future<Output = Result<ExitCode, CliError>>) -> ExitCode {
    // A second provider in the process would be a mistake of ours, and the first one stands.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: the runtime does not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(work).unwrap_or_else(|error| {
        // Whoever read has enough: that is no failure.
        if matches!(&error, CliError::Io(io) if io.kind() == std::io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        eprintln!("{name}: {error}");
        match error {
            CliError::Settings(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    });
    // Blocking work that nobody waits for any more must not hold the end up.
    runtime.shutdown_background();
    code
}

async fn run(arguments: Arguments, environment: BTreeMap<String, String>) -> Result<ExitCode, CliError> {
    let settings = Settings::load(arguments.config.as_deref(), environment.into_iter())?;
    let output = Output::choose(arguments.json, arguments.table);
    match arguments.command {
        Command::Serve => serve::serve(settings).await,
        Command::Ingest(arguments) => ingest::ingest(&client(&settings)?, output, arguments).await,
        Command::Cancel(arguments) => cancel::cancel(&client(&settings)?, output, arguments).await,
        Command::Priority(arguments) => priority::priority(&client(&settings)?, output, arguments).await,
        Command::Search(arguments) => search::search(&client(&settings)?, output, arguments).await,
        Command::Tree(arguments) => tree::tree(&client(&settings)?, output, arguments).await,
        Command::Cells(arguments) => cells::cells(&client(&settings)?, output, arguments).await,
        Command::Status => status::status(&client(&settings)?, output).await,
        Command::Models(arguments) => models::models(&settings, &client(&settings)?, output, arguments).await,
        Command::Embed(arguments) => embed::embed(&settings, output, arguments).await,
        Command::Config(arguments) => config::config(&settings, output, &arguments),
        Command::Migrate(arguments) => config::migrate(&settings, &arguments).await,
    }
}

/// The client of the service that the settings name.
fn client(settings: &Settings) -> Result<Client<Remote>, CliError> {
    let http = reqwest::Client::builder()
        .build()
        .map_err(|error| CliError::Other(format!("the HTTP client does not start: {error}")))?;
    Ok(Client(Remote::new(&settings.service_url(), settings.api_token.expose(), http)))
}
