//! `svc predicates`.
use super::{
    CliError,
    output::{Output, one_line, say},
};
use clap::Args;
use std::process::ExitCode;
use svc_client::{
    Client, Json, Remote,
    wire::{NewPredicate, PredicateQuery},
};

#[derive(Args)]
pub struct PredicatesArguments {
    /// Creates the predicate namespace:name, or a name of the namespace `default`, in place of listing them.
    #[arg(long, value_name = "NAME")]
    add: Option<String>,
    /// Its own IRI.
    #[arg(long, requires = "add")]
    iri: Option<String>,
    /// A subject has one object at a time.
    #[arg(long, requires = "add")]
    functional: bool,
    /// Lists only those whose name or label has this text.
    #[arg(conflicts_with = "add")]
    text: Option<String>,
}

pub async fn predicates(
    client: &Client<Remote>,
    output: Output,
    arguments: PredicatesArguments,
) -> Result<ExitCode, CliError> {
    if let Some(name) = arguments.add {
        let (namespace, name) = match name.split_once(':') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned()),
            None => (None, name),
        };
        let new = NewPredicate {
            name,
            namespace,
            iri: arguments.iri,
            functional: arguments.functional,
            ..NewPredicate::default()
        };
        let made = client.create_predicate(Json(new)).await?;
        match output {
            Output::Json => Output::line(&made)?,
            Output::Table => say!("predicate {}: {}:{}", made.id, made.namespace, made.name),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut query = PredicateQuery { q: arguments.text, ..PredicateQuery::default() };
    let mut rows = Vec::new();
    loop {
        let page = client.list_predicates(query.clone()).await?;
        for predicate in page.predicates {
            match output {
                Output::Json => Output::line(&predicate)?,
                Output::Table => rows.push(vec![
                    predicate.id.to_string(),
                    one_line(&format!("{}:{}", predicate.namespace, predicate.name), 60),
                    one_line(predicate.label.as_deref().unwrap_or_default(), 40),
                    one_line(&predicate.iri, 100),
                ]),
            }
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if output == Output::Table {
        Output::table(&["ID", "NAME", "LABEL", "IRI"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}
