//! `svc tree`.
use super::{
    CliError,
    listing::Listing,
    output::{Output, one_line, say},
};
use clap::Args;
use std::{collections::HashMap, process::ExitCode};
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

fn show(nodes: &[DocumentResponse]) -> Result<(), CliError> {
    let mut children: HashMap<Option<i64>, Vec<&DocumentResponse>> = HashMap::new();
    for node in &nodes[1..] {
        children.entry(node.parent_id).or_default().push(node);
    }
    let mut open = vec![(&nodes[0], 0)];
    while let Some((node, depth)) = open.pop() {
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
        let mut below = children.remove(&Some(node.id)).unwrap_or_default();
        below.sort_by_key(|child| (child.position.map_or(i64::MAX, i64::from), child.id));
        open.extend(below.into_iter().rev().map(|child| (child, depth + 1)));
    }
    Ok(())
}
