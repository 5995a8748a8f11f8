//! `svc reprocess`: ingests a stored file again, follows that, and says at the end what became of it.
use super::{
    CliError, INTERRUPTED, SOME_FAILED,
    follow::follow,
    ingest::OptionArguments,
    output::{Output, say},
};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::{process::ExitCode, time::Duration};
use svc_client::{
    Client, Code, Failure, OptionalJson, Remote,
    wire::{DocumentPath, FrontierResponse, ReprocessRequest, ReprocessResponse},
};

#[derive(Args)]
pub struct ReprocessArguments {
    /// The file's document id.
    id: i64,
    #[command(flatten)]
    options: OptionArguments,
    /// Ends a reprocess of the file that is running, and begins anew.
    #[arg(long)]
    replace: bool,
    /// Returns when the reprocess has begun, without following it.
    #[arg(long)]
    no_wait: bool,
}

pub async fn reprocess(
    client: &Client<Remote>,
    output: Output,
    arguments: ReprocessArguments,
) -> Result<ExitCode, CliError> {
    let ReprocessArguments { id, options, replace, no_wait } = arguments;
    let request = ReprocessRequest { options: options.read()?, replace };
    let begun = client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await;
    let begun = begun.map_err(|failure| refused(id, failure))?;
    if no_wait {
        match output {
            Output::Json => Output::line(&begun)?,
            Output::Table => say!("document {id} is being reprocessed: `svc events --root {id}` tells how it ends"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg}, {elapsed}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let seen = |frontier: &FrontierResponse| {
        let settled = frontier.reprocess.as_ref().map_or(0, |progress| progress.nodes_settled);
        bar.set_message(format!("reprocessing, {settled} nodes settled"));
    };
    let followed = tokio::select! {
        followed = follow(client, id, &bar, seen) => Some(followed?),
        _ = tokio::signal::ctrl_c() => None,
    };
    bar.finish_and_clear();
    match followed {
        None => {
            crate::cli::output::tell!(
                "the reprocess continues in the background: `svc cancel {id}` ends it, and the tree stays as it is"
            );
            Ok(ExitCode::from(INTERRUPTED))
        }
        Some(None) => Err(CliError::Other(format!("somebody deleted document {id} meanwhile"))),
        Some(Some(frontier)) => report(client, output, &begun, &frontier).await,
    }
}

/// A refusal, with the command that helps.
fn refused(id: i64, failure: Failure) -> CliError {
    match failure.code == Code::Conflict && failure.members.contains_key("running_options") {
        true => CliError::Other(format!(
            "{}: `svc reprocess {id} --replace` ends that and begins anew, `svc cancel {id}` only ends it",
            failure.detail
        )),
        false => CliError::Call(failure),
    }
}

/// Says how the reprocess ended, as the evidence has it.
async fn report(
    client: &Client<Remote>,
    output: Output,
    begun: &ReprocessResponse,
    frontier: &FrontierResponse,
) -> Result<ExitCode, CliError> {
    let id = begun.document_id;
    let evidence = client.read_evidence(DocumentPath { id }).await?.evidence;
    let ended = evidence.get("reprocess").cloned().unwrap_or_default();
    // Of a reprocess that somebody replaced, nothing is recorded.
    let started_at = ended["started_at"].as_str().and_then(|at| at.parse::<chrono::DateTime<chrono::Utc>>().ok());
    let is_ours = started_at == Some(begun.started_at);
    let state = if is_ours { ended["state"].as_str().unwrap_or("?") } else { "replaced" };
    match output {
        Output::Json => Output::line(&json!({
            "document_id": id, "state": state, "nodes": frontier.nodes_total, "nodes_failed": frontier.nodes_failed,
            "warnings": frontier.warnings, "reprocess": if is_ours { ended.clone() } else { Value::Null },
        }))?,
        Output::Table => match state {
            "done" => say!(
                "document {id} has its new tree: {} nodes, {} links follow, {} do not, {} facts follow, {} do not (`svc tree {id}` shows it)",
                frontier.nodes_total,
                ended["links_followed"],
                ended["links_lost"],
                ended["facts_followed"],
                ended["facts_lost"]
            ),
            "replaced" => say!("document {id}: another reprocess was begun in place of this one"),
            _ => say!(
                "document {id} keeps its tree; reprocess {state}: {}",
                ended["reason"]["message"].as_str().unwrap_or("somebody ended it")
            ),
        },
    }
    Ok(if state == "done" { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}
