//! `svc access tokens`.
use super::{PAGE, id_of, time};
use crate::cli::{
    CliError,
    output::{Output, one_line, say},
};
use chrono::{DateTime, TimeDelta, Utc};
use clap::Subcommand;
use svc_client::{
    Client, Json, OptionalJson, Remote,
    wire::{ApiTokenPath, ApiTokenResponse, ApiTokenRotation, IssuedApiToken, NewApiToken, PageQuery, PrincipalPath},
};

#[derive(Subcommand)]
pub enum Command {
    /// Lists the tokens of a principal, without their secrets.
    List {
        /// The principal's name or id.
        principal: String,
    },
    /// Issues a token and prints its secret, which is shown only now.
    Issue {
        /// The principal's name or id.
        principal: String,
        /// What the token is for.
        #[arg(long, default_value = "svc access tokens issue")]
        name: String,
        /// The days after which it ends by itself [default: never].
        #[arg(long)]
        days: Option<u32>,
    },
    /// Issues a token in place of another, which stays valid for a grace time, and prints the new secret.
    Rotate {
        /// The id of the old token.
        id: i64,
        /// How long the old token goes on, in seconds, at most 604,800 [default: 86,400].
        #[arg(long)]
        grace_seconds: Option<u32>,
        /// The days after which the new token ends by itself [default: as the old one was to last].
        #[arg(long)]
        days: Option<u32>,
    },
    /// Revokes a token, from the next request on.
    Revoke {
        /// The token's id.
        id: i64,
    },
}

pub async fn run(client: &Client<Remote>, output: Output, command: Command) -> Result<(), CliError> {
    match command {
        Command::List { principal } => {
            let id = id_of(client, &principal).await?;
            show(output, &all(client, id).await?)
        }
        Command::Issue { principal, name, days } => {
            let id = id_of(client, &principal).await?;
            let new = NewApiToken { name, expires_at: days.map(in_days).transpose()? };
            let token = client.issue_api_token(PrincipalPath { id }, Json(new)).await?;
            issued(client, output, &token).await
        }
        Command::Rotate { id, grace_seconds, days } => {
            let rotation = ApiTokenRotation { grace_seconds, expires_at: days.map(in_days).transpose()? };
            let token = client.rotate_api_token(ApiTokenPath { id }, OptionalJson(Some(rotation))).await?;
            issued(client, output, &token).await
        }
        Command::Revoke { id } => show(output, &[client.revoke_api_token(ApiTokenPath { id }).await?]),
    }
}

fn in_days(days: u32) -> Result<DateTime<Utc>, CliError> {
    let end = Utc::now().checked_add_signed(TimeDelta::days(days.into()));
    end.ok_or_else(|| CliError::Other(format!("--days {days} is too long: leave it out for a token that never ends")))
}

async fn all(client: &Client<Remote>, id: i64) -> Result<Vec<ApiTokenResponse>, CliError> {
    let (mut tokens, mut cursor) = (Vec::new(), None);
    loop {
        let query = PageQuery { cursor, limit: Some(PAGE), ..PageQuery::default() };
        let page = client.list_api_tokens(PrincipalPath { id }, query).await?;
        tokens.extend(page.tokens);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tokens);
        }
    }
}

async fn issued(client: &Client<Remote>, output: Output, issued: &IssuedApiToken) -> Result<(), CliError> {
    match output {
        Output::Json => Output::line(issued)?,
        Output::Table => {
            show(output, std::slice::from_ref(&issued.token))?;
            let id = issued.token.principal_id;
            // The secret is shown only now, whatever becomes of this call.
            let name = client.read_principal(PrincipalPath { id }).await.map(|principal| principal.name);
            say!("it is a token of principal {id}: {}", one_line(name.as_deref().unwrap_or("?"), 200));
            say!("its secret, which is shown only now: {}", issued.secret);
        }
    }
    Ok(())
}

/// How a token stands now.
fn state(token: &ApiTokenResponse) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(revoked), _) => format!("revoked {}", time(revoked)),
        (None, Some(end)) if end <= Utc::now() => format!("expired {}", time(end)),
        (None, Some(end)) => format!("expires {}", time(end)),
        (None, None) => "does not expire".to_owned(),
    }
}

fn show(output: Output, tokens: &[ApiTokenResponse]) -> Result<(), CliError> {
    if output == Output::Json {
        return Ok(tokens.iter().try_for_each(Output::line)?);
    }
    let row = |token: &ApiTokenResponse| {
        vec![
            token.id.to_string(),
            format!("{}…", token.prefix),
            one_line(&token.name, 40),
            state(token),
            token.last_used_at.map_or("never".to_owned(), time),
        ]
    };
    let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
    Ok(Output::table(&["token", "begins", "name", "state", "last used"], &rows)?)
}
