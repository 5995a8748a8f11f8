//! `svc shapes`.
use super::{
    CliError,
    output::{Output, count, one_line, say},
};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use svc_client::{
    Client, Json, Remote,
    wire::{
        NewShapeBinding, PageQuery, ShapeBindingChange, ShapeBindingPath, ShapeBindingResponse, ShapeMode, ShapeTerm,
        ValidationQuery,
    },
};

#[derive(Args)]
pub struct ShapesArguments {
    #[command(subcommand)]
    command: ShapesCommand,
}

#[derive(Subcommand)]
enum ShapesCommand {
    /// Binds a shape of an ontology: writes of facts are held against it.
    Bind(BindArguments),
    /// Lists the bindings.
    List,
    /// Changes what becomes of a write that breaks the shape; any mode but off takes over a binding that does not hold.
    Mode {
        /// The binding.
        id: i64,
        /// off, warn or reject.
        mode: ShapeMode,
    },
    /// Takes a binding away.
    Unbind {
        /// The binding.
        id: i64,
    },
    /// Holds all facts against a bound shape; ends with 1 if they do not conform.
    Validate(ValidateArguments),
}

#[derive(Args)]
struct BindArguments {
    /// The IRI of the shape, or of the ontology for all of its shapes.
    shape: String,
    /// Only nodes at and under this document.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// What becomes of a write that breaks the shape: off, warn or reject [default: warn].
    #[arg(long)]
    mode: Option<ShapeMode>,
}

#[derive(Args)]
struct ValidateArguments {
    /// The binding.
    id: i64,
    /// Only facts that hold at this time [default: now].
    #[arg(long, value_name = "TIME")]
    at: Option<DateTime<Utc>>,
    /// What the store believed at this time [default: now].
    #[arg(long, value_name = "TIME")]
    known: Option<DateTime<Utc>>,
    /// Leaves out what rules derived.
    #[arg(long)]
    asserted: bool,
    /// Writes the report as Turtle, in the words of SHACL.
    #[arg(long)]
    turtle: bool,
}

pub async fn shapes(client: &Client<Remote>, output: Output, arguments: ShapesArguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        ShapesCommand::Bind(BindArguments { shape, under, mode }) => {
            let new = NewShapeBinding { shape, document_id: under, mode };
            told(output, &client.create_shape_binding(Json(new)).await?)?;
        }
        ShapesCommand::List => list(client, output).await?,
        ShapesCommand::Mode { id, mode } => {
            let change = ShapeBindingChange { mode };
            told(output, &client.update_shape_binding(ShapeBindingPath { id }, Json(change)).await?)?;
        }
        ShapesCommand::Unbind { id } => {
            client.delete_shape_binding(ShapeBindingPath { id }).await?;
            if output == Output::Table {
                say!("binding {id} is deleted");
            }
        }
        ShapesCommand::Validate(arguments) => return validate(client, output, arguments).await,
    }
    Ok(ExitCode::SUCCESS)
}

fn told(output: Output, binding: &ShapeBindingResponse) -> Result<(), CliError> {
    if output == Output::Json {
        return Ok(Output::line(binding)?);
    }
    let holds = match binding.holds {
        true => "",
        false => ", but does not hold: whoever bound it is disabled, or may not write there any more",
    };
    say!("binding {}: {} ({}{holds})", binding.id, one_line(&binding.shape, 200), binding.mode);
    Ok(())
}

async fn list(client: &Client<Remote>, output: Output) -> Result<(), CliError> {
    let (mut query, mut rows) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.list_shape_bindings(query.clone()).await?;
        for binding in page.bindings {
            match output {
                Output::Json => Output::line(&binding)?,
                Output::Table => rows.push(vec![
                    binding.id.to_string(),
                    binding.mode.to_string(),
                    if binding.holds { "yes" } else { "no" }.to_owned(),
                    binding.document_id.map_or_else(|| "all".to_owned(), |id| id.to_string()),
                    one_line(&binding.shape, 100),
                ]),
            }
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if output == Output::Table {
        Output::table(&["ID", "MODE", "HOLDS", "UNDER", "SHAPE"], &rows)?;
    }
    Ok(())
}

async fn validate(client: &Client<Remote>, output: Output, arguments: ValidateArguments) -> Result<ExitCode, CliError> {
    let ValidateArguments { id, at, known, asserted, turtle } = arguments;
    let query = ValidationQuery { valid_at: at, known_at: known, asserted_only: asserted, turtle };
    let report = client.validate_shape(ShapeBindingPath { id }, query).await?;
    let conforms = report.conforms == Some(true);
    match (&report.turtle, output) {
        (Some(turtle), _) => say!("{turtle}"),
        (None, Output::Json) => report.results.iter().try_for_each(Output::line)?,
        (None, Output::Table) => {
            let row = |result: &svc_client::wire::ShapeResult| {
                let value = result.value.as_ref().map(shown).unwrap_or_default();
                let path = result.path.as_deref().unwrap_or_default();
                vec![shown(&result.focus), one_line(path, 60), one_line(&value, 40), one_line(&result.message, 100)]
            };
            let rows: Vec<Vec<String>> = report.results.iter().map(row).collect();
            if !rows.is_empty() {
                Output::table(&["NODE", "PATH", "VALUE", "WHAT IS WRONG"], &rows)?;
            }
            let nodes = count(report.focus_nodes as usize, "node", "nodes");
            match (conforms, report.truncated) {
                (true, _) => say!("{nodes} conform"),
                (false, None) => say!("{nodes}: {}", count(report.results.len(), "result", "results")),
                (false, Some(limit)) => say!("{nodes}: the validation ended early, at the limit of {limit}"),
            }
        }
    }
    Ok(if conforms { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn shown(term: &ShapeTerm) -> String {
    let text = match (term.document_id, &term.iri, &term.literal) {
        (_, _, Some(literal)) => format!("\"{literal}\""),
        (Some(id), Some(iri), None) => format!("{id} {iri}"),
        (_, iri, None) => iri.clone().unwrap_or_default(),
    };
    one_line(&text, 60)
}
