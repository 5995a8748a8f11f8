//! `svc ls`, `svc get` and `svc rm`.
use super::{
    CliError,
    output::{Output, one_line, say},
};
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;
use svc_client::{
    Client, Remote,
    wire::{DocumentPath, DocumentResponse, PageQuery},
};

#[derive(Args)]
pub struct LsArguments {
    /// The document whose children are listed [default: the documents without a parent].
    id: Option<i64>,
    /// The most documents to show.
    #[arg(long, default_value_t = 200)]
    most: usize,
}

#[derive(Args)]
pub struct IdArguments {
    /// The document's id.
    id: i64,
}

pub async fn ls(client: &Client<Remote>, output: Output, arguments: LsArguments) -> Result<ExitCode, CliError> {
    let mut documents: Vec<DocumentResponse> = Vec::new();
    let mut cursor = None;
    let more = loop {
        let query = PageQuery { cursor: cursor.take(), limit: Some(200), ..PageQuery::default() };
        let page = match arguments.id {
            Some(id) => client.list_children(DocumentPath { id }, query).await?,
            None => client.list_roots(query).await?,
        };
        documents.extend(page.documents);
        cursor = page.next_cursor;
        if cursor.is_none() || documents.len() >= arguments.most {
            break cursor.is_some() || documents.len() > arguments.most;
        }
    };
    documents.truncate(arguments.most);
    match output {
        Output::Json => documents.iter().try_for_each(Output::line)?,
        Output::Table => {
            let row = |document: &DocumentResponse| {
                let state = document.settled.to_string();
                let time = document.created_at.format("%Y-%m-%d %H:%M").to_string();
                vec![document.id.to_string(), document.usetype.clone(), state, time, one_line(&document.title, 80)]
            };
            Output::table(
                &["document", "usetype", "state", "created", "title"],
                &documents.iter().map(row).collect::<Vec<_>>(),
            )?;
            if more {
                say!("… and more; raise --most to see them");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A document with the version by which a later change may name it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    document: &'a DocumentResponse,
    etag: &'a str,
}

pub async fn get(client: &Client<Remote>, output: Output, arguments: IdArguments) -> Result<ExitCode, CliError> {
    let read = client.read_document(DocumentPath { id: arguments.id }, Default::default()).await?;
    let etag = read.etag().to_owned();
    let document = read.value()?;
    match output {
        Output::Json => Output::line(&Shown { document: &document, etag: &etag })?,
        Output::Table => {
            let title = one_line(&document.title, 200);
            say!("document {}: {title} [{}], ETag {etag}", document.id, document.settled);
            if document.content.is_empty() {
                let id = document.id;
                say!("(no text of its own: `svc tree {id}` shows the parts that hold it, `svc bytes {id}` the file)");
            }
            for line in document.content.lines() {
                say!("{}", line.replace(char::is_control, " "));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn rm(client: &Client<Remote>, output: Output, arguments: IdArguments) -> Result<ExitCode, CliError> {
    client.delete_document(DocumentPath { id: arguments.id }).await?;
    match output {
        Output::Json => Output::line(&serde_json::json!({"deleted": arguments.id}))?,
        Output::Table => say!("deleted document {} and everything under it", arguments.id),
    }
    Ok(ExitCode::SUCCESS)
}
