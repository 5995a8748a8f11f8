//! `svc analyze` and `svc explain`: what an upload would do.
use super::{
    CliError,
    output::{Output, one_line, say},
    own_json,
};
use clap::Args;
use serde_json::Value;
use std::{path::PathBuf, process::ExitCode};
use svc_client::{
    Client, FileUpload, Json, Remote,
    wire::{AnalyzeResponse, ExplainRequest, PlanRow},
};
use svc_formats::Format;

/// A line of a table is cut here.
const REASON_CHARACTERS: usize = 60;

#[derive(Args)]
pub struct AnalyzeArguments {
    /// The file to examine; nothing of it is stored.
    file: PathBuf,
    /// Ingest options as JSON, for example '{"structure": {"max_tokens": 200}}'.
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
}

#[derive(Args)]
pub struct ExplainArguments {
    #[arg(help = format!("One of {}", Format::ALL.map(Format::as_str).join(", ")))]
    format: String,
    /// What is known of the file, for example '{"has_text_layer": true}'.
    #[arg(long, value_name = "JSON")]
    patterns: Option<String>,
    /// Ingest options as JSON, for example '{"structure": {"max_tokens": 200}}'.
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
}

pub async fn analyze(
    client: &Client<Remote>,
    output: Output,
    arguments: AnalyzeArguments,
) -> Result<ExitCode, CliError> {
    let options = own_json("--options", arguments.options.as_deref())?;
    let file = FileUpload::from_path(&arguments.file, options).await;
    let file = file.map_err(|error| CliError::Other(format!("{}: {error}", arguments.file.display())))?;
    let analysis = client.analyze_file(file).await?;
    match output {
        Output::Json => Output::line(&analysis)?,
        Output::Table => show(&analysis)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(analysis: &AnalyzeResponse) -> Result<(), CliError> {
    let AnalyzeResponse { file, plan, probe_failed, already_stored } = analysis;
    let format = file.format.as_deref().unwrap_or("unknown format");
    say!("{format}, {} bytes, {}", file.byte_size, file.content_hash);
    if let Some(stored) = already_stored {
        let options = if stored.options_agree { "the same options" } else { "other options" };
        say!("document {} holds these bytes, ingested with {options}", stored.document_id);
    }
    if let Some(failure) = probe_failed {
        say!("an upload fails: {} ({}, {})", one_line(&failure.message, 200), failure.code, failure.error_type);
    }
    match plan {
        Some(plan) => table(&plan.tasks),
        None => Ok(()),
    }
}

pub async fn explain(
    client: &Client<Remote>,
    output: Output,
    arguments: ExplainArguments,
) -> Result<ExitCode, CliError> {
    let patterns = match own_json("--patterns", arguments.patterns.as_deref())? {
        None => None,
        Some(Value::Object(patterns)) => Some(patterns),
        Some(_) => return Err(CliError::Other("--patterns takes a JSON object".to_owned())),
    };
    let options = own_json("--options", arguments.options.as_deref())?;
    let request = ExplainRequest { format: arguments.format, patterns, options };
    let plan = client.explain_ingest(Json(request)).await?;
    match output {
        Output::Json => Output::line(&plan)?,
        Output::Table => {
            table(&plan.tasks)?;
            if !plan.patterns_ignored.is_empty() {
                say!("no task of this format asks for {}", plan.patterns_ignored.join(", "));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[PlanRow]) -> Result<(), CliError> {
    let row = |row: &PlanRow| {
        let then = row.if_condition_holds.map(|then| format!(": {then} if it holds")).unwrap_or_default();
        let reason = one_line(row.reason.as_deref().unwrap_or_default(), REASON_CHARACTERS);
        vec![
            row.task.clone(),
            format!("{}{then}", row.outcome),
            row.requires.join(", "),
            row.forbids.join(", "),
            row.after.join(", "),
            reason,
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    Ok(Output::table(&["task", "outcome", "requires", "forbids", "after", "reason"], &rows)?)
}
