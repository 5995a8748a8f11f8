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
    /// How people call it.
    #[arg(long, requires = "add")]
    label: Option<String>,
    /// What it means.
    #[arg(long, requires = "add")]
    description: Option<String>,
    /// A subject has one object at a time.
    #[arg(long, requires = "add")]
    functional: bool,
    /// An object has one subject at a time.
    #[arg(long, requires = "add")]
    inverse_functional: bool,
    /// What holds from subject to object holds from object to subject.
    #[arg(long, requires = "add")]
    symmetric: bool,
    /// It never holds in both directions.
    #[arg(long, requires = "add")]
    asymmetric: bool,
    /// What holds over two steps holds over one.
    #[arg(long, requires = "add")]
    transitive: bool,
    /// No subject has itself as object.
    #[arg(long, requires = "add")]
    irreflexive: bool,
    /// The predicate that says the same from object to subject, by its id.
    #[arg(long, value_name = "ID", requires = "add")]
    inverse_of: Option<i64>,
    /// A predicate that this one implies, by its id; may be given several times.
    #[arg(long, value_name = "ID", requires = "add")]
    sub_property_of: Vec<i64>,
    /// A predicate that never holds between the same two, by its id; may be given several times.
    #[arg(long, value_name = "ID", requires = "add")]
    disjoint_with: Vec<i64>,
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
            label: arguments.label,
            description: arguments.description,
            functional: arguments.functional,
            inverse_functional: arguments.inverse_functional,
            symmetric: arguments.symmetric,
            asymmetric: arguments.asymmetric,
            transitive: arguments.transitive,
            irreflexive: arguments.irreflexive,
            inverse_of: arguments.inverse_of,
            sub_property_of: arguments.sub_property_of,
            disjoint_with: arguments.disjoint_with,
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
