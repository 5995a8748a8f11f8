//! `svc access`.
mod grants;
mod principals;
mod tokens;

use super::{
    CliError,
    listing::Listing,
    output::{Output, one_line, say},
};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use svc_client::{
    Client, Remote,
    wire::{AuditEntry, AuditQuery, PrincipalQuery},
};

/// Rows that one call asks for.
const PAGE: u32 = 200;

#[derive(Args)]
pub struct AccessArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Says who the token is, and what it was granted.
    Whoami,
    /// The callers besides the owner.
    #[command(subcommand)]
    Principals(principals::Command),
    /// The tokens of principals.
    #[command(subcommand)]
    Tokens(tokens::Command),
    /// What principals may read and write, and the documents that are closed to all others.
    #[command(subcommand)]
    Grants(grants::Command),
    /// Lists who changed principals, tokens, grants, access roots and webhooks, who moved documents to other readers,
    /// and who acted on the queue; newest first.
    Audit(AuditArguments),
}

#[derive(Args)]
struct AuditArguments {
    /// Only acts on this principal, by name or id.
    #[arg(long)]
    principal: Option<String>,
    /// Only acts on this document.
    #[arg(long)]
    document: Option<i64>,
    /// Only acts on this task.
    #[arg(long)]
    task: Option<i64>,
    /// Only acts on tasks that this worker held.
    #[arg(long)]
    worker: Option<String>,
    /// The most entries to show [default: 200 in a table, and all as JSON lines].
    #[arg(long)]
    most: Option<usize>,
}

pub async fn access(client: &Client<Remote>, output: Output, arguments: AccessArguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        Command::Whoami => whoami(client, output).await?,
        Command::Principals(command) => principals::run(client, output, command).await?,
        Command::Tokens(command) => tokens::run(client, output, command).await?,
        Command::Grants(command) => grants::run(client, output, command).await?,
        Command::Audit(arguments) => audit(client, output, arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The id of a principal that is given by its name or its id.
async fn id_of(client: &Client<Remote>, principal: &str) -> Result<i64, CliError> {
    if let Ok(id) = principal.parse() {
        return Ok(id);
    }
    let query = PrincipalQuery { name: Some(principal.to_owned()), ..PrincipalQuery::default() };
    let found = client.list_principals(query).await?.principals.pop();
    found.map(|principal| principal.id).ok_or_else(|| {
        CliError::Other(format!(
            "there is no principal `{}`: `svc access principals list` lists them",
            one_line(principal, 200)
        ))
    })
}

fn time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

async fn whoami(client: &Client<Remote>, output: Output) -> Result<(), CliError> {
    let me = client.read_caller().await?;
    if output == Output::Json {
        return Ok(Output::line(&me)?);
    }
    let Some(principal) = &me.principal else {
        say!("the owner, who reads and writes everything");
        return Ok(());
    };
    say!("principal {}: {} ({})", principal.id, one_line(&principal.name, 200), principal.kind.as_str());
    if let Some(token) = &me.token {
        let end = token.expires_at.map_or("does not expire".to_owned(), |end| format!("expires {}", time(end)));
        say!("token {}: {} ({}…), {end}", token.id, one_line(&token.name, 200), token.prefix);
    }
    if me.grants.is_empty() {
        say!(
            "reads what is open to all, and was granted nothing: the owner grants it documents by `svc access grants`"
        );
        return Ok(());
    }
    say!("reads what is open to all, and with everything under them:");
    Output::table(&["document", "right"], &me.grants.iter().map(grants::row_of_principal).collect::<Vec<_>>())?;
    if me.more_grants {
        say!("… and more");
    }
    Ok(())
}

async fn audit(client: &Client<Remote>, output: Output, arguments: AuditArguments) -> Result<(), CliError> {
    let principal_id = match &arguments.principal {
        Some(principal) => Some(id_of(client, principal).await?),
        None => None,
    };
    let (mut listing, mut cursor): (_, Option<String>) = (Listing::new(output, arguments.most), None);
    loop {
        let limit = Some(PAGE);
        let AuditArguments { document: document_id, task: task_id, .. } = arguments;
        let worker = arguments.worker.clone();
        let query = AuditQuery { principal_id, document_id, task_id, worker, cursor: cursor.take(), limit };
        let page = client.list_audit(query).await?;
        cursor = page.next_cursor;
        if !listing.take(page.entries, cursor.is_some())? {
            break;
        }
    }
    if output == Output::Table {
        let row = |entry: &AuditEntry| {
            let detail = serde_json::to_string(&entry.detail).unwrap_or_default();
            vec![
                time(entry.at),
                one_line(&entry.actor, 40),
                entry.act.as_str().to_owned(),
                entry.principal.as_deref().map(|name| one_line(name, 40)).unwrap_or_default(),
                entry.document_id.map(|id| id.to_string()).unwrap_or_default(),
                one_line(&detail, 120),
            ]
        };
        let rows: Vec<Vec<String>> = listing.kept.iter().map(row).collect();
        Output::table(&["time", "actor", "act", "principal", "document", "detail"], &rows)?;
    }
    listing.end();
    Ok(())
}
