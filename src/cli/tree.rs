//! `svc tree`.
use super::{
    CliError,
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
    /// The most nodes to show.
    #[arg(long, default_value_t = 200)]
    most: usize,
}

pub async fn tree(client: &Client<Remote>, output: Output, arguments: TreeArguments) -> Result<ExitCode, CliError> {
    let path = DocumentPath { id: arguments.id };
    let top = client.read_document(path, Default::default()).await?.value()?;
    let mut nodes = vec![top];
    let mut cursor = None;
    let more = loop {
        let query = PageQuery { cursor: cursor.take(), limit: Some(500), ..PageQuery::default() };
        let page = client.list_subtree(path, query).await?;
        nodes.extend(page.documents);
        cursor = page.next_cursor;
        if cursor.is_none() || nodes.len() > arguments.most {
            break cursor.is_some() || nodes.len() > arguments.most;
        }
    };
    nodes.truncate(arguments.most.max(1));
    match output {
        Output::Json => nodes.iter().try_for_each(Output::line)?,
        Output::Table => show(&nodes, more)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(nodes: &[DocumentResponse], more: bool) -> Result<(), CliError> {
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
    if more {
        say!("… and more; raise --most to see them");
    }
    Ok(())
}
