//! `svc priority`.
use super::{
    CliError,
    output::{Output, say},
};
use clap::{Args, value_parser};
use std::process::ExitCode;
use svc_client::{
    Client, Json, Remote,
    wire::{DocumentPath, PriorityChange},
};

#[derive(Args)]
pub struct PriorityArguments {
    /// The file's document id.
    id: i64,
    /// The new priority, -100 to 100; an upload that names none has 0.
    #[arg(allow_negative_numbers = true, value_parser = value_parser!(i32).range(-100..=100))]
    priority: i32,
}

pub async fn priority(
    client: &Client<Remote>,
    output: Output,
    arguments: PriorityArguments,
) -> Result<ExitCode, CliError> {
    let change = PriorityChange { priority: arguments.priority };
    let done = client.change_priority(DocumentPath { id: arguments.id }, Json(change)).await?;
    match output {
        Output::Json => Output::line(&done)?,
        Output::Table => say!(
            "document {}: priority {}, {} unfinished tasks changed",
            done.document_id,
            done.priority,
            done.tasks_changed
        ),
    }
    Ok(ExitCode::SUCCESS)
}
