//! `svc template`.
use super::{
    CliError,
    output::{Output, one_line, say},
};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};
use svc_client::{
    Client, Json, OptionalJson, Remote,
    wire::{DocumentPath, NewTemplate, PageQuery, RenderRequest, TemplateDeclaration, WaitQuery},
};

#[derive(Args)]
pub struct TemplateArguments {
    #[command(subcommand)]
    command: TemplateCommand,
}

#[derive(Subcommand)]
enum TemplateCommand {
    /// Prints what a template says with values.
    Render(RenderArguments),
    /// Stores a template from a file in the syntax of Jinja.
    Create(CreateArguments),
    /// Lists the templates.
    List,
}

#[derive(Args)]
struct RenderArguments {
    /// The template's id.
    id: i64,
    /// The value of a variable, as in `--set count=3`: JSON, or else a text.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    values: Vec<(String, String)>,
    /// The document that a variable stands for, as in `--document report=17`.
    #[arg(long = "document", value_name = "NAME=ID", value_parser = pair)]
    documents: Vec<(String, String)>,
}

#[derive(Args)]
struct CreateArguments {
    /// The file with the text.
    file: PathBuf,
    /// What the template is called [default: the file's name].
    #[arg(long)]
    title: Option<String>,
    /// What it declares, as JSON: {"variables": {"name": {"type": "string"}}, "partials": [{"name": "head", "template_id": 7}]}.
    #[arg(long, value_name = "JSON")]
    declares: Option<String>,
    /// The document under which it is put.
    #[arg(long = "under", alias = "parent", value_name = "ID")]
    parent: Option<i64>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("takes a name, an equals sign and a value")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub async fn template(
    client: &Client<Remote>,
    output: Output,
    arguments: TemplateArguments,
) -> Result<ExitCode, CliError> {
    match arguments.command {
        TemplateCommand::Render(arguments) => render(client, output, arguments).await,
        TemplateCommand::Create(arguments) => create(client, output, arguments).await,
        TemplateCommand::List => list(client, output).await,
    }
}

async fn render(client: &Client<Remote>, output: Output, arguments: RenderArguments) -> Result<ExitCode, CliError> {
    let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
    let variables: Map<String, Value> = arguments.values.into_iter().map(|(name, text)| (name, value(text))).collect();
    let mut documents = BTreeMap::new();
    for (name, id) in arguments.documents {
        let id = id
            .parse()
            .map_err(|_| CliError::Other(format!("--document {name}: `{id}` is not the id of a document")))?;
        documents.insert(name, id);
    }
    let path = DocumentPath { id: arguments.id };
    let rendered = client.render_template(path, OptionalJson(Some(RenderRequest { variables, documents }))).await?;
    match output {
        Output::Json => Output::line(&rendered)?,
        Output::Table => say!("{}", rendered.text),
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(client: &Client<Remote>, output: Output, arguments: CreateArguments) -> Result<ExitCode, CliError> {
    let CreateArguments { file, title, declares, parent } = arguments;
    let named = file.display().to_string();
    let content = tokio::fs::read_to_string(&file).await;
    let content = content.map_err(|error| CliError::Other(format!("{named}: {error}")))?;
    let declared = declares.as_deref().map_or_else(|| Ok(TemplateDeclaration::default()), serde_json::from_str);
    let declared = declared.map_err(|error| CliError::Other(format!("--declares: {error}")))?;
    let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let new = NewTemplate {
        title: title.unwrap_or(name),
        content,
        variables: declared.variables,
        partials: declared.partials,
        parent_id: parent,
        private: false,
    };
    let made = client.create_template(WaitQuery::default(), Json(new)).await?;
    match output {
        Output::Json => Output::line(&made)?,
        Output::Table => say!("{}  {}", made.id, one_line(&made.title, 60)),
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client<Remote>, output: Output) -> Result<ExitCode, CliError> {
    let mut cursor = None;
    loop {
        let query = PageQuery { cursor, include_content: false, ..PageQuery::default() };
        let page = client.list_templates(query).await?;
        match output {
            Output::Json => page.documents.iter().try_for_each(Output::line)?,
            Output::Table => {
                for template in &page.documents {
                    say!("{}  {}", template.id, one_line(&template.title, 80));
                }
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
