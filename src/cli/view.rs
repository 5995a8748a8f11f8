//! `svc view`.
use super::{
    CliError,
    output::{Output, one_line, say},
};
use clap::Args;
use serde_json::Value;
use std::{io, process::ExitCode};
use svc_client::{
    Client, OptionalJson, Remote,
    wire::{BlockKind, ChildrenMode, Crumb, DocumentPath, ExpandRequest, PageQuery, ViewBlock, ViewResponse},
};

/// The longest title, name or value of a cell.
const LONGEST: usize = 200;
/// The longest warning, which says at its end what to do.
const WARNING: usize = 400;

#[derive(Args)]
pub struct ViewArguments {
    /// The document's id.
    id: i64,
    /// Shows all that is under it, and not only the first page.
    #[arg(long)]
    all: bool,
    /// Lists what refers to it: links, facts, and texts that name it as `[[id]]`.
    #[arg(long, conflicts_with = "all")]
    references: bool,
}

pub async fn view(client: &Client<Remote>, output: Output, arguments: ViewArguments) -> Result<ExitCode, CliError> {
    let path = DocumentPath { id: arguments.id };
    if arguments.references {
        return references(client, output, path).await;
    }
    let shown = client.view_document(path).await?.value()?;
    match output {
        Output::Json => Output::line(&shown)?,
        Output::Table => {
            head(&shown)?;
            shown.blocks.iter().try_for_each(block)?;
            shown.children.blocks.iter().try_for_each(block)?;
        }
    }
    // Of what is closed no page has come yet.
    let is_closed = shown.children.mode == ChildrenMode::Collapsed;
    let mut cursor = shown.children.next_cursor;
    let mut goes_on = arguments.all && (is_closed || cursor.is_some());
    while goes_on {
        let request = ExpandRequest { cursor: cursor.take(), limit: None };
        let page = client.expand_children(path, OptionalJson(Some(request))).await?;
        match output {
            Output::Json => Output::line(&page)?,
            Output::Table => page.blocks.iter().try_for_each(block)?,
        }
        cursor = page.next_cursor;
        goes_on = cursor.is_some();
    }
    if output == Output::Table {
        match is_closed && !arguments.all {
            true => say!("what is under it is closed; --all shows it"),
            false if cursor.is_some() => say!("… and more; --all shows it"),
            false => {}
        }
        for link in &shown.links.links {
            let way = if link.outgoing { "→" } else { "←" };
            say!("{way} {} {}", link.link_type, named(&link.document));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn named(crumb: &Crumb) -> String {
    match (crumb.id, &crumb.title) {
        (Some(id), Some(title)) => format!("{} [{id}]", one_line(title, LONGEST)),
        _ => "…".to_owned(),
    }
}

/// The title, and where the document is and comes from.
fn head(shown: &ViewResponse) -> io::Result<()> {
    let document = &shown.document;
    if !shown.breadcrumbs.is_empty() {
        say!("{}", shown.breadcrumbs.iter().map(named).collect::<Vec<_>>().join(" › "));
    }
    say!("{} — {} {}", one_line(&document.title, LONGEST), shown.presentation.title, document.id);
    if let Some(source) = &shown.source {
        let range = |name: &str, [first, last]: [u32; 2]| match first == last {
            true => format!(", {name} {first}"),
            false => format!(", {name}s {first} to {last}"),
        };
        let pages = source.pages.map(|pages| range("page", pages)).unwrap_or_default();
        let slides = source.slides.map(|slides| range("slide", slides)).unwrap_or_default();
        let cells = source.cells.as_ref().map(|cells| format!(", {}", one_line(cells, LONGEST))).unwrap_or_default();
        say!("from {} [{}]{pages}{slides}{cells}", one_line(&source.title, LONGEST), source.document_id);
    }
    for warning in &shown.warnings {
        say!("warning: {}", one_line(warning, WARNING));
    }
    for field in &shown.fields {
        say!("{}: {}", field.name, value(&field.value));
    }
    say!("");
    Ok(())
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => one_line(text, LONGEST),
        other => one_line(&other.to_string(), LONGEST),
    }
}

fn block(block: &ViewBlock) -> io::Result<()> {
    let title = one_line(block.title.as_deref().unwrap_or_default(), LONGEST);
    match block.kind {
        BlockKind::Heading => say!("{} {title}\n", "#".repeat(usize::from(block.level.unwrap_or(2)))),
        BlockKind::Turn => {
            let time = block.time.map(|time| format!(" ({})", time.format("%Y-%m-%d %H:%M:%S"))).unwrap_or_default();
            say!("{}{time}:", one_line(block.speaker.as_deref().unwrap_or_default(), LONGEST));
        }
        BlockKind::Document | BlockKind::Image => say!("• {title} [{}]", block.document_id),
        BlockKind::Record | BlockKind::Table => {
            let rows = block.rows.iter().map(|row| row.values.iter().map(value).collect::<Vec<_>>());
            let columns: Vec<String> = block.columns.iter().map(|column| one_line(column, LONGEST)).collect();
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            Output::table(&columns, &rows.collect::<Vec<_>>())?;
            if block.cut {
                say!("… the rows have more columns; `svc view` of a row shows all of its fields");
            }
            say!("");
        }
        BlockKind::Markdown | BlockKind::Plain | BlockKind::Code => {
            for line in block.text.as_deref().unwrap_or_default().lines() {
                // Nothing in a document can control the terminal.
                say!("{}", line.replace(char::is_control, " "));
            }
            if block.cut {
                say!("… `svc get {}` shows all of it", block.document_id);
            }
            say!("");
        }
    }
    Ok(())
}

async fn references(client: &Client<Remote>, output: Output, path: DocumentPath) -> Result<ExitCode, CliError> {
    let mut cursor = None;
    loop {
        let query = PageQuery { cursor: cursor.take(), ..PageQuery::default() };
        let page = client.list_back_references(path, query).await?;
        for reference in &page.references {
            match output {
                Output::Json => Output::line(reference)?,
                Output::Table => {
                    let relation = reference.relation.as_deref().unwrap_or("[[…]]");
                    say!("{} {relation} {}", reference.kind.as_str(), named(&reference.document));
                }
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
