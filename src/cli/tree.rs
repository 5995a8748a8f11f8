//! `svc tree`.
use super::{
    CliError,
    listing::Listing,
    output::{Output, one_line, say},
};
use clap::Args;
use std::{collections::HashSet, process::ExitCode};
use svc_client::{
    Client, Remote,
    wire::{DocumentPath, DocumentResponse, PageQuery},
};

#[derive(Args)]
pub struct TreeArguments {
    /// The document at the top.
    id: i64,
    /// The most nodes to show [default: 200 in a table, and all as JSON lines].
    #[arg(long)]
    most: Option<usize>,
}

pub async fn tree(client: &Client<Remote>, output: Output, arguments: TreeArguments) -> Result<ExitCode, CliError> {
    let path = DocumentPath { id: arguments.id };
    let top = client.read_document(path, Default::default()).await?.value()?;
    let mut listing = Listing::new(output, arguments.most.map(|most| most.max(1)));
    let (mut nodes, mut cursor) = (vec![top], None);
    loop {
        let query = PageQuery { cursor: cursor.take(), limit: Some(500), ..PageQuery::default() };
        let page = client.list_subtree(path, query).await?;
        nodes.extend(page.documents);
        cursor = page.next_cursor;
        if !listing.take(std::mem::take(&mut nodes), cursor.is_some())? {
            break;
        }
    }
    if output == Output::Table {
        show(&listing.kept)?;
    }
    listing.end();
    Ok(ExitCode::SUCCESS)
}

/// Shows documents in the order of reading, each under the nearest one above it that is shown: its reader may not read what is between them.
fn show(nodes: &[DocumentResponse]) -> Result<(), CliError> {
    let shown: HashSet<i64> = nodes.iter().map(|node| node.id).collect();
    for node in nodes {
        let depth = node.path.iter().filter(|above| shown.contains(*above)).count();
        let text = one_line(&node.content, 70);
        let text = if text.is_empty() { String::new() } else { format!(": {text}") };
        say!(
            "{}{} {} “{}” [{}]{text}",
            "  ".repeat(depth),
            node.id,
            node.usetype,
            one_line(&node.title, 60),
            node.settled
        );
    }
    Ok(())
}
