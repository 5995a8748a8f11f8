//! `svc mcp`.
use super::CliError;
use crate::{
    logging,
    mcp::{Door, Lines, Toolbox},
    registry,
    settings::Settings,
};
use rmcp::{ServiceExt, transport::stdio_pipes};
use std::{process::ExitCode, sync::Arc};
use svc_client::{Client, Remote};

/// Speaks the Model Context Protocol over standard input and output until the input ends. The log goes to standard error.
pub async fn mcp(settings: &Settings, client: Client<Remote>) -> Result<ExitCode, CliError> {
    logging::start(settings.log_level, settings.log_format, None);
    let Some(most) = settings.mcp_tools else {
        return Err(CliError::Other(
            "SVC_MCP_TOOLS is blank, so there are no tools: set it to read, write or all".to_owned(),
        ));
    };
    let door = Door::of_client(Arc::new(Toolbox::new(registry::contract(), most)), client.0);
    let (read, write) = stdio_pipes();
    let most = usize::try_from(settings.max_body_bytes).unwrap_or(usize::MAX);
    let running = match door.serve(Lines::new(read, write, most)).await {
        Ok(running) => running,
        // Nobody has begun to speak.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(CliError::Other(format!("the client does not speak the protocol: {error}"))),
    };
    running.waiting().await.map_err(|error| CliError::Other(format!("the server of the protocol ended: {error}")))?;
    Ok(ExitCode::SUCCESS)
}
