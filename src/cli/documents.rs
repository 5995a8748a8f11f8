//! `svc ls`, `svc get` and `svc rm`.
use super::{
    CliError,
    listing::Listing,
    output::{Output, one_line, say},
};
use crate::usetype::Usetype;
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
    /// The most documents to show [default: 200 in a table, and all as JSON lines].
    #[arg(long)]
    most: Option<usize>,
}

#[derive(Args)]
pub struct IdArguments {
    /// The document's id.
    id: i64,
}

pub async fn ls(client: &Client<Remote>, output: Output, arguments: LsArguments) -> Result<ExitCode, CliError> {
    let (mut listing, mut cursor) = (Listing::new(output, arguments.most), None);
    loop {
        let query = PageQuery { cursor: cursor.take(), limit: Some(200), ..PageQuery::default() };
        let page = match arguments.id {
            Some(id) => client.list_children(DocumentPath { id }, query).await?,
            None => client.list_roots(query).await?,
        };
        cursor = page.next_cursor;
        if !listing.take(page.documents, cursor.is_some())? {
            break;
        }
    }
    if output == Output::Table {
        let row = |document: &DocumentResponse| {
            let state = document.settled.to_string();
            let time = document.created_at.format("%Y-%m-%d %H:%M").to_string();
            vec![document.id.to_string(), document.usetype.clone(), state, time, one_line(&document.title, 80)]
        };
        let rows: Vec<Vec<String>> = listing.kept.iter().map(row).collect();
        Output::table(&["document", "usetype", "state", "created", "title"], &rows)?;
    }
    listing.end();
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
                let is_file = Usetype::named(&document.usetype).is_some_and(Usetype::has_bytes);
                let file = if is_file { format!(", `svc bytes {id}` the file") } else { String::new() };
                say!("(no text of its own: `svc tree {id}` shows the parts that hold it{file})");
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
