//! `svc access grants`.
use super::{PAGE, id_of};
use crate::cli::{
    CliError,
    output::{Output, one_line, say},
};
use clap::{ArgGroup, Subcommand, ValueEnum};
use serde_json::json;
use svc_client::{
    Client, Json, Remote,
    wire::{DocumentPath, GrantPath, GrantResponse, GrantRight, NewGrant, PageQuery, PrincipalPath},
};

#[derive(Subcommand)]
pub enum Command {
    /// Lists the grants on a document, or those of a principal.
    #[command(group(ArgGroup::new("of").args(["document", "principal"]).required(true)))]
    List {
        /// The document.
        #[arg(long)]
        document: Option<i64>,
        /// The principal's name or id.
        #[arg(long)]
        principal: Option<String>,
    },
    /// Grants a principal a document and everything under it; the document is closed to all others from then on.
    Put {
        document: i64,
        /// The principal's name or id.
        principal: String,
        #[arg(value_enum)]
        right: Right,
    },
    /// Takes a grant away; the document stays closed.
    Rm {
        document: i64,
        /// The principal's name or id.
        principal: String,
    },
    /// Makes a document an access root: it is closed, with everything under it, to all who have no grant.
    Protect { document: i64 },
    /// Makes an access root an ordinary document again, and takes its grants away.
    Unprotect { document: i64 },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Right {
    Read,
    Write,
}

pub async fn run(client: &Client<Remote>, output: Output, command: Command) -> Result<(), CliError> {
    match command {
        Command::List { document, principal } => {
            let of = match (document, principal) {
                (Some(id), _) => Of::Document(id),
                (None, Some(principal)) => Of::Principal(id_of(client, &principal).await?),
                (None, None) => return Err(CliError::Other("name a --document or a --principal".to_owned())),
            };
            show(output, &all(client, of).await?)
        }
        Command::Put { document, principal, right } => {
            let right = match right {
                Right::Read => GrantRight::Read,
                Right::Write => GrantRight::Write,
            };
            let path = GrantPath { id: document, principal_id: id_of(client, &principal).await? };
            show(output, &[client.put_grant(path, Json(NewGrant { right })).await?])
        }
        Command::Rm { document, principal } => {
            let path = GrantPath { id: document, principal_id: id_of(client, &principal).await? };
            client.delete_grant(path).await?;
            match output {
                Output::Json => Output::line(&json!({"document_id": document, "principal_id": path.principal_id}))?,
                Output::Table => say!("took the grant away; document {document} stays closed to all without a grant"),
            }
            Ok(())
        }
        Command::Protect { document } => {
            let root = client.protect_document(DocumentPath { id: document }).await?;
            match output {
                Output::Json => Output::line(&root)?,
                Output::Table => say!("document {document} is closed to all without a grant on it or above it"),
            }
            Ok(())
        }
        Command::Unprotect { document } => {
            client.unprotect_document(DocumentPath { id: document }).await?;
            match output {
                Output::Json => Output::line(&json!({"document_id": document}))?,
                Output::Table => say!("document {document} is as open as what is above it"),
            }
            Ok(())
        }
    }
}

/// Whose grants.
#[derive(Clone, Copy)]
enum Of {
    Document(i64),
    Principal(i64),
}

async fn all(client: &Client<Remote>, of: Of) -> Result<Vec<GrantResponse>, CliError> {
    let (mut grants, mut cursor) = (Vec::new(), None);
    loop {
        let query = PageQuery { cursor, limit: Some(PAGE), ..PageQuery::default() };
        let page = match of {
            Of::Document(id) => client.list_document_grants(DocumentPath { id }, query).await?,
            Of::Principal(id) => client.list_principal_grants(PrincipalPath { id }, query).await?,
        };
        grants.extend(page.grants);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(grants);
        }
    }
}

/// A grant as a row of a table of one principal's.
pub(super) fn row_of_principal(grant: &GrantResponse) -> Vec<String> {
    vec![grant.document_id.to_string(), grant.right.as_str().to_owned()]
}

fn show(output: Output, grants: &[GrantResponse]) -> Result<(), CliError> {
    if output == Output::Json {
        return Ok(grants.iter().try_for_each(Output::line)?);
    }
    let row = |grant: &GrantResponse| {
        let principal = format!("{} ({})", one_line(&grant.principal, 60), grant.principal_id);
        [row_of_principal(grant), vec![principal]].concat()
    };
    Ok(Output::table(&["document", "right", "principal"], &grants.iter().map(row).collect::<Vec<_>>())?)
}
