//! `svc models` and `svc models fetch`.
use super::{
    CliError,
    output::{Output, say},
};
use crate::{
    app::AppError,
    settings::{Settings, hub_settings},
};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::{path::PathBuf, process::ExitCode, time::Duration};
use svc_client::{
    Client, Remote,
    wire::{ModelState, RerankerState},
};
use svc_models::{LibraryModel, ModelKind, Progress, fetch_model, library};

/// A service that does not answer within this time counts as absent.
const SERVICE_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Args)]
pub struct ModelsArguments {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
}

#[derive(Subcommand)]
enum ModelsCommand {
    /// Fetches a model into the cache folder: a name from the list, or a hub id [default: the model of the settings].
    Fetch { model: Option<String> },
}

#[derive(Serialize)]
struct Row {
    name: String,
    kind: &'static str,
    width: Option<usize>,
    /// The number of tokens in the longest text.
    window: Option<usize>,
    cached: bool,
    folder: PathBuf,
    /// The state of the model in the running service; null if it has not loaded the model.
    loaded: Option<ModelState>,
    /// The same for a cross-encoder.
    reranks: Option<RerankerState>,
}

pub async fn models(
    settings: &Settings,
    client: &Client<Remote>,
    output: Output,
    arguments: ModelsArguments,
) -> Result<ExitCode, CliError> {
    match arguments.command {
        None => list(settings, client, output).await,
        Some(ModelsCommand::Fetch { model }) => {
            fetch(settings, output, &model.unwrap_or(settings.embedding_model.clone())).await
        }
    }
}

async fn list(settings: &Settings, client: &Client<Remote>, output: Output) -> Result<ExitCode, CliError> {
    let answer = tokio::time::timeout(SERVICE_ANSWERS_WITHIN, client.read_readiness()).await;
    let (mut loaded, reranker) = match answer {
        Ok(Ok(ready)) => (Some(ready.models), ready.reranker),
        // A service that is not ready for work still has its models.
        Ok(Err(failure)) => {
            let member = |name| failure.members.get(name).cloned().unwrap_or_default();
            (serde_json::from_value(member("models")).ok(), serde_json::from_value(member("reranker")).ok().flatten())
        }
        Err(_) => (None, None),
    };
    let models = library(&settings.models_dir()).into_iter();
    let rows: Vec<Row> = models.map(|model| row(model, loaded.as_mut(), reranker.as_ref())).collect();
    match output {
        Output::Json => rows.iter().try_for_each(Output::line)?,
        Output::Table => {
            let number = |number: Option<usize>| number.map_or("?".to_owned(), |number| number.to_string());
            let cells = |row: &Row| {
                let embeds = row.loaded.as_ref().map(|state| {
                    let (document, token) = (state.document_window, state.token_window);
                    format!("on {} in {}, windows {document} and {token}", state.device, state.precision)
                });
                let reranks =
                    row.reranks.as_ref().map(|state| format!("on {}, pairs of {}", state.device, state.pair_window));
                let loaded = embeds.or(reranks).unwrap_or_default();
                let place = if row.cached { row.folder.display().to_string() } else { "not here".to_owned() };
                vec![row.name.clone(), row.kind.to_owned(), number(row.width), number(row.window), place, loaded]
            };
            Output::table(
                &["model", "kind", "width", "window", "cached", "loaded"],
                &rows.iter().map(cells).collect::<Vec<_>>(),
            )?;
            match loaded {
                None => say!("no service answers at {}", settings.service_url()),
                // Their folders are not in the library.
                Some(others) => {
                    for state in others {
                        say!("the service has loaded {} on {}", state.identity, state.device);
                    }
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the row of a model, and takes what the service has loaded of it out of `loaded`.
fn row(model: LibraryModel, loaded: Option<&mut Vec<ModelState>>, reranker: Option<&RerankerState>) -> Row {
    let loaded = loaded.and_then(|loaded| {
        let is_of = |state: &ModelState| state.identity.rsplit_once('@').is_some_and(|(name, _)| name == model.name);
        Some(loaded.remove(loaded.iter().position(is_of)?))
    });
    let kind = match model.kind {
        ModelKind::Embedding => "embedding",
        ModelKind::CrossEncoder => "cross-encoder",
        _ => "other",
    };
    let (width, window, cached) = (model.width, model.positions, model.is_here);
    let reranks = reranker.filter(|state| state.name == model.name).cloned();
    Row { name: model.name, kind, width, window, cached, folder: model.folder, loaded, reranks }
}

async fn fetch(settings: &Settings, output: Output, model: &str) -> Result<ExitCode, CliError> {
    let bar = match output {
        Output::Table => ProgressBar::new(0),
        Output::Json => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {bytes}/{total_bytes} {bytes_per_sec}") {
        bar.set_style(style);
    }
    let progress = |progress: Progress<'_>| {
        bar.set_message(progress.file.to_owned());
        bar.set_length(progress.total.unwrap_or(progress.bytes));
        bar.set_position(progress.bytes);
    };
    let folder = fetch_model(model, Some(&settings.models_dir()), &hub_settings(settings), &progress)
        .await
        .map_err(AppError::from)?;
    bar.finish_and_clear();
    match output {
        Output::Json => Output::line(&serde_json::json!({"model": model, "folder": folder}))?,
        Output::Table => say!("{model} is in {}", folder.display()),
    }
    Ok(ExitCode::SUCCESS)
}
