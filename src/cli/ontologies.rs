//! `svc ontology`.
use super::{
    CliError,
    output::{Output, count, one_line, say},
};
use clap::{Args, Subcommand};
use std::{path::PathBuf, process::ExitCode};
use svc_client::{
    Client, Remote, TurtleText,
    wire::{DocumentPath, OntologyQuery, PageQuery},
};

#[derive(Args)]
pub struct OntologyArguments {
    #[command(subcommand)]
    command: OntologyCommand,
}

#[derive(Subcommand)]
enum OntologyCommand {
    /// Loads an ontology in Turtle; one with the same IRI at the same place is replaced.
    Add(AddArguments),
    /// Lists the ontologies.
    List,
    /// Lists the classes of an ontology, each with those that it is below.
    Classes {
        /// The document of the ontology.
        id: i64,
    },
    /// Deletes an ontology with its classes and bindings.
    Rm {
        /// The document of the ontology.
        id: i64,
    },
}

#[derive(Args)]
struct AddArguments {
    file: PathBuf,
    /// The document that the ontology is put under.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// Only the caller may read it.
    #[arg(long)]
    private: bool,
    /// The IRI that relative ones are resolved against.
    #[arg(long, value_name = "IRI")]
    base: Option<String>,
}

pub async fn ontology(
    client: &Client<Remote>,
    output: Output,
    arguments: OntologyArguments,
) -> Result<ExitCode, CliError> {
    match arguments.command {
        OntologyCommand::Add(arguments) => add(client, output, arguments).await?,
        OntologyCommand::List => list(client, output).await?,
        OntologyCommand::Classes { id } => classes(client, output, id).await?,
        OntologyCommand::Rm { id } => {
            client.delete_ontology(DocumentPath { id }).await?;
            if output == Output::Table {
                say!("ontology {id} is deleted");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn add(client: &Client<Remote>, output: Output, arguments: AddArguments) -> Result<(), CliError> {
    let AddArguments { file, under, private, base } = arguments;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| CliError::Other(format!("{}: {error}", one_line(&file.display().to_string(), 200))))?;
    let query = OntologyQuery { parent_id: under, private, base };
    let made = client.create_ontology(query, TurtleText(text)).await?;
    if output == Output::Json {
        return Ok(Output::line(&made)?);
    }
    say!("ontology {}: {}", made.document_id, one_line(&made.iri, 200));
    say!(
        "{}, {}, {}, {}",
        count(made.classes as usize, "class", "classes"),
        count(made.predicates as usize, "predicate", "predicates"),
        count(made.shapes.len(), "shape", "shapes"),
        count(made.facts as usize, "fact", "facts"),
    );
    for (term, times) in made.not_used {
        say!("not used: {} ({times})", one_line(&term, 200));
    }
    Ok(())
}

async fn list(client: &Client<Remote>, output: Output) -> Result<(), CliError> {
    let (mut query, mut rows) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.list_ontologies(query.clone()).await?;
        for ontology in page.ontologies {
            match output {
                Output::Json => Output::line(&ontology)?,
                Output::Table => rows.push(vec![
                    ontology.document_id.to_string(),
                    one_line(&ontology.title, 40),
                    ontology.classes.to_string(),
                    ontology.predicates.to_string(),
                    ontology.shapes.len().to_string(),
                    one_line(&ontology.iri, 100),
                ]),
            }
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if output == Output::Table {
        Output::table(&["ID", "TITLE", "CLASSES", "PREDICATES", "SHAPES", "IRI"], &rows)?;
    }
    Ok(())
}

async fn classes(client: &Client<Remote>, output: Output, id: i64) -> Result<(), CliError> {
    let (mut query, mut rows) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.list_classes(DocumentPath { id }, query.clone()).await?;
        for class in page.classes {
            let above: Vec<String> = class.sub_class_of.iter().map(i64::to_string).collect();
            match output {
                Output::Json => Output::line(&class)?,
                Output::Table => rows.push(vec![
                    class.document_id.to_string(),
                    one_line(&class.title, 60),
                    above.join(" "),
                    one_line(&class.iri, 100),
                ]),
            }
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if output == Output::Table {
        Output::table(&["ID", "TITLE", "BELOW", "IRI"], &rows)?;
    }
    Ok(())
}
