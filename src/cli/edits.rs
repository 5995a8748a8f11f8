//! `svc add`, `svc edit` and `svc mv`.
use super::{
    CliError,
    output::{Output, one_line, say},
};
use chrono::{DateTime, Utc};
use clap::{ArgGroup, Args};
use serde_json::{Map, Value};
use std::{
    io::{IsTerminal, Read},
    path::PathBuf,
    process::ExitCode,
};
use svc_client::{
    Client, Json, Meta, Remote,
    wire::{DocumentChange, DocumentPath, DocumentResponse, NewDocument, OwnJson, WaitQuery},
};

#[derive(Args)]
pub struct AddArguments {
    /// The title [default: the first line of the text that is not blank].
    #[arg(long)]
    title: Option<String>,
    #[command(flatten)]
    text: TextArguments,
    /// The document above it [default: none].
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// What the document is [default: markdown].
    #[arg(long)]
    usetype: Option<String>,
    /// Its place among its siblings.
    #[arg(long, allow_negative_numbers = true)]
    position: Option<i32>,
    /// The time that the text is about, as in 2021-02-03T04:05:06Z.
    #[arg(long)]
    event_time: Option<DateTime<Utc>>,
    /// JSON of your own to store with it.
    #[arg(long, value_name = "JSON", value_parser = object)]
    structured_content: Option<Map<String, Value>>,
    /// Lets only the owner, and callers with a grant, read it.
    #[arg(long)]
    private: bool,
    /// Answers once the document can be found by its meaning.
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
pub struct EditArguments {
    /// The document's id.
    id: i64,
    /// The new title.
    #[arg(long)]
    title: Option<String>,
    #[command(flatten)]
    text: TextArguments,
    /// What the document is.
    #[arg(long)]
    usetype: Option<String>,
    /// Its place among its siblings, or `none`.
    #[arg(long, allow_negative_numbers = true, value_parser = nullable::<i32>)]
    position: Option<Nullable<i32>>,
    /// The time that the text is about, as in 2021-02-03T04:05:06Z, or `none`.
    #[arg(long, value_parser = nullable::<DateTime<Utc>>)]
    event_time: Option<Nullable<DateTime<Utc>>>,
    /// JSON of your own in place of what is stored with it.
    #[arg(long, value_name = "JSON", value_parser = object)]
    structured_content: Option<Map<String, Value>>,
    /// Changes the document only if its ETag is still this one; `svc get` shows it.
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
    /// Answers once the new text can be found by its meaning.
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
#[command(
    // A group that is required comes before everything else in a usage that clap writes.
    override_usage = "svc mv [OPTIONS] <ID> <UNDER|--top>",
    group(ArgGroup::new("place").args(["under", "top"]).required(true))
)]
pub struct MvArguments {
    /// The document to move, with all under it.
    id: i64,
    /// The document to put it under.
    under: Option<i64>,
    /// Puts it at the top of the tree.
    #[arg(long)]
    top: bool,
}

#[derive(Args)]
struct TextArguments {
    /// The text.
    #[arg(long, conflicts_with = "file")]
    content: Option<String>,
    /// Reads the text from a file; `-` is standard input.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

impl TextArguments {
    /// The text that was given, if one was.
    fn read(&self) -> Result<Option<String>, CliError> {
        match (&self.content, &self.file) {
            (Some(content), _) => Ok(Some(content.clone())),
            (None, Some(path)) if path.as_os_str() == "-" => stdin().map(Some),
            (None, Some(path)) => std::fs::read_to_string(path)
                .map(Some)
                .map_err(|error| CliError::Other(format!("{}: {error}", path.display()))),
            (None, None) => Ok(None),
        }
    }
}

fn stdin() -> Result<String, CliError> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| CliError::Other(format!("standard input is no text: {error}")))?;
    Ok(text)
}

/// A value, or none.
#[derive(Clone, Copy, Debug)]
struct Nullable<T>(Option<T>);

fn nullable<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Nullable<T>, String> {
    match text {
        "none" => Ok(Nullable(None)),
        text => text.parse().map(|value| Nullable(Some(value))).map_err(|error: T::Err| error.to_string()),
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(OwnJson(Some(Value::Object(object)))) => Ok(object),
        Ok(_) => Err("takes a JSON object".to_owned()),
        Err(error) => Err(format!("takes a JSON object: {error}")),
    }
}

pub async fn add(client: &Client<Remote>, output: Output, arguments: AddArguments) -> Result<ExitCode, CliError> {
    let content = match arguments.text.read()? {
        Some(content) => content,
        None if std::io::stdin().is_terminal() => {
            return Err(CliError::Other("there is no text: give --content or --file, or pipe it in".to_owned()));
        }
        None => stdin()?,
    };
    let first_line = || content.lines().map(str::trim).find(|line| !line.is_empty());
    let Some(title) = arguments.title.or_else(|| first_line().map(|line| one_line(line, 200))) else {
        return Err(CliError::Other("there is no title: the text is blank, so give --title".to_owned()));
    };
    let new = NewDocument {
        title,
        content,
        parent_id: arguments.under,
        usetype: arguments.usetype,
        structured_content: arguments.structured_content.unwrap_or_default(),
        position: arguments.position,
        event_time: arguments.event_time,
        private: arguments.private,
        priority: 0,
    };
    let query = WaitQuery { wait: arguments.wait, ..WaitQuery::default() };
    let created = client.create_document(query, Json(new)).await?;
    show(output, "created", &created.document, &created.warnings)
}

pub async fn edit(client: &Client<Remote>, output: Output, arguments: EditArguments) -> Result<ExitCode, CliError> {
    let change = DocumentChange {
        content: arguments.text.read()?,
        title: arguments.title,
        structured_content: arguments.structured_content,
        usetype: arguments.usetype,
        position: arguments.position.map(|position| position.0),
        event_time: arguments.event_time.map(|time| time.0),
        parent_id: None,
    };
    let query = WaitQuery { wait: arguments.wait, ..WaitQuery::default() };
    let guarded = client.given(Meta { if_match: arguments.if_match, ..Meta::default() });
    let updated = guarded.update_document(DocumentPath { id: arguments.id }, query, Json(change)).await?;
    show(output, "changed", &updated.value.document, &updated.value.warnings)
}

pub async fn mv(client: &Client<Remote>, output: Output, arguments: MvArguments) -> Result<ExitCode, CliError> {
    let change = DocumentChange { parent_id: Some(arguments.under), ..DocumentChange::default() };
    let path = DocumentPath { id: arguments.id };
    let updated = client.update_document(path, WaitQuery::default(), Json(change)).await?;
    show(output, "moved", &updated.value.document, &[])
}

fn show(output: Output, done: &str, document: &DocumentResponse, warnings: &[String]) -> Result<ExitCode, CliError> {
    match output {
        Output::Json => Output::line(document)?,
        Output::Table => {
            let place = document.parent_id.map_or("at the top".to_owned(), |parent| format!("under document {parent}"));
            say!("{done} document {}: {}, {place}", document.id, one_line(&document.title, 80));
        }
    }
    for warning in warnings {
        crate::cli::output::tell!("svc: {}", one_line(warning, 400));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_of_an_object_is_dropped_unsaid() {
        assert_eq!(object(r#"{"a": {"b": 1}}"#).unwrap()["a"]["b"], 1);
        assert!(object(r#"{"a": {"b": 1, "b": 2}}"#).unwrap_err().contains("`b`"));
        assert_eq!(object("null").unwrap_err(), "takes a JSON object");
    }
}
