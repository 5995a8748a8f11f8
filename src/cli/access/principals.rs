//! `svc access principals`.
use super::{PAGE, id_of, time};
use crate::cli::{
    CliError,
    output::{Output, one_line, say},
};
use clap::{Subcommand, ValueEnum};
use svc_client::{
    Client, Json, Remote,
    wire::{NewPrincipal, PrincipalChange, PrincipalKind, PrincipalPath, PrincipalQuery, PrincipalResponse},
};

#[derive(Subcommand)]
pub enum Command {
    /// Lists the principals.
    List,
    /// Creates a principal.
    Add {
        /// Its name, which no other principal has.
        name: String,
        #[arg(long, value_enum, default_value_t = Kind::User)]
        kind: Kind,
    },
    /// Renames a principal, changes its kind, or has it answer for the messages of a user of the broker.
    Edit {
        /// Its name or id.
        principal: String,
        #[arg(long)]
        name: Option<String>,
        #[arg(long, value_enum)]
        kind: Option<Kind>,
        /// The user of the message broker for whose messages it answers, if it is a service; blank for none.
        #[arg(long)]
        amqp_user: Option<String>,
    },
    /// Closes the service to a principal's tokens, from the next request on.
    Disable {
        /// Its name or id.
        principal: String,
    },
    /// Lets the tokens of a disabled principal work again.
    Enable {
        /// Its name or id.
        principal: String,
    },
    /// Deletes a principal with its tokens and grants, and no document.
    Rm {
        /// Its name or id.
        principal: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    User,
    Service,
}

impl From<Kind> for PrincipalKind {
    fn from(kind: Kind) -> PrincipalKind {
        match kind {
            Kind::User => PrincipalKind::User,
            Kind::Service => PrincipalKind::Service,
        }
    }
}

pub async fn run(client: &Client<Remote>, output: Output, command: Command) -> Result<(), CliError> {
    match command {
        Command::List => show(output, &all(client).await?),
        Command::Add { name, kind } => {
            let made = client.create_principal(Json(NewPrincipal { name, kind: kind.into() })).await?;
            show(output, &[made])
        }
        Command::Edit { principal, name, kind, amqp_user } => {
            let change = PrincipalChange { name, kind: kind.map(PrincipalKind::from), amqp_user, disabled: None };
            update(client, output, &principal, change).await
        }
        Command::Disable { principal } => {
            update(client, output, &principal, PrincipalChange { disabled: Some(true), ..Default::default() }).await
        }
        Command::Enable { principal } => {
            update(client, output, &principal, PrincipalChange { disabled: Some(false), ..Default::default() }).await
        }
        Command::Rm { principal } => {
            let id = id_of(client, &principal).await?;
            client.delete_principal(PrincipalPath { id }).await?;
            match output {
                Output::Json => Output::line(&serde_json::json!({"deleted": id}))?,
                Output::Table => say!("deleted principal {id} with its tokens and grants"),
            }
            Ok(())
        }
    }
}

async fn all(client: &Client<Remote>) -> Result<Vec<PrincipalResponse>, CliError> {
    let (mut principals, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.list_principals(PrincipalQuery { name: None, cursor, limit: Some(PAGE) }).await?;
        principals.extend(page.principals);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(principals);
        }
    }
}

async fn update(
    client: &Client<Remote>,
    output: Output,
    principal: &str,
    change: PrincipalChange,
) -> Result<(), CliError> {
    let id = id_of(client, principal).await?;
    show(output, &[client.update_principal(PrincipalPath { id }, Json(change)).await?])
}

fn show(output: Output, principals: &[PrincipalResponse]) -> Result<(), CliError> {
    if output == Output::Json {
        return Ok(principals.iter().try_for_each(Output::line)?);
    }
    let row = |principal: &PrincipalResponse| {
        vec![
            principal.id.to_string(),
            one_line(&principal.name, 60),
            principal.kind.as_str().to_owned(),
            if principal.disabled { "disabled" } else { "enabled" }.to_owned(),
            one_line(principal.amqp_user.as_deref().unwrap_or("-"), 60),
            time(principal.created_at),
        ]
    };
    let rows: Vec<Vec<String>> = principals.iter().map(row).collect();
    Ok(Output::table(&["principal", "name", "kind", "state", "amqp user", "created"], &rows)?)
}
