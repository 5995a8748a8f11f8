//! `svc cancel`.
use super::{
    CliError,
    output::{Output, say},
};
use clap::Args;
use std::process::ExitCode;
use svc_client::{Client, Remote, wire::DocumentPath};

#[derive(Args)]
pub struct CancelArguments {
    /// The file's document id.
    id: i64,
}

pub async fn cancel(client: &Client<Remote>, output: Output, arguments: CancelArguments) -> Result<ExitCode, CliError> {
    let done = client.cancel_ingest(DocumentPath { id: arguments.id }).await?;
    match output {
        Output::Json => Output::line(&done)?,
        Output::Table => say!(
            "document {}: {} waiting tasks cancelled, {} running tasks are being stopped",
            done.document_id,
            done.tasks_cancelled,
            done.tasks_stopping
        ),
    }
    Ok(ExitCode::SUCCESS)
}
