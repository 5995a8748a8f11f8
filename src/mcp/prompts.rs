//! Templates as prompts: a client lists them, and has one rendered with its arguments.
use rmcp::model::{GetPromptResult, JsonObject, ListPromptsResult, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use svc_client::{
    Client, Code, Failure, OptionalJson, Remote,
    wire::{
        DocumentPath, DocumentResponse, EmbedQuery, PageQuery, RenderRequest, TemplateDeclaration, TemplateVariable,
        VariableType,
    },
};

/// Rows of a list of prompts.
const ROWS: u32 = 100;
/// Begins the name of a prompt, before the id of its template.
const NAME: &str = "template-";

/// The templates, page by page. One that declares nothing that can be read has no arguments.
pub async fn list(calls: &Remote, cursor: Option<String>) -> Result<ListPromptsResult, Failure> {
    let query = PageQuery { cursor, limit: Some(ROWS), include_content: false, ..PageQuery::default() };
    let page = Client(calls.clone()).list_templates(query).await?;
    let prompts = page.documents.into_iter().map(|template| {
        let arguments = declared(&template).variables.iter().map(argument).collect();
        Prompt::new(format!("{NAME}{}", template.id), None::<String>, Some(arguments)).with_title(template.title)
    });
    let mut list = ListPromptsResult::with_all_items(prompts.collect());
    list.next_cursor = page.next_cursor;
    Ok(list)
}

fn declared(template: &DocumentResponse) -> TemplateDeclaration {
    serde_json::from_value(Value::Object(template.structured_content.clone())).unwrap_or_default()
}

fn argument((name, variable): (&String, &TemplateVariable)) -> PromptArgument {
    let takes = match variable.kind {
        VariableType::String | VariableType::Any => None,
        VariableType::Document => Some("the id of a document".to_owned()),
        kind => Some(format!("JSON of the type {}", kind.as_str())),
    };
    let about: Vec<String> = variable.description.iter().cloned().chain(takes).collect();
    let argument = PromptArgument::new(name).with_required(variable.is_required());
    if about.is_empty() { argument } else { argument.with_description(about.join("; ")) }
}

/// What a template says with these arguments. They are texts; a value of another type comes as JSON.
pub async fn get(calls: &Remote, name: &str, arguments: JsonObject) -> Result<GetPromptResult, Failure> {
    let client = Client(calls.clone());
    let id = name.strip_prefix(NAME).and_then(|id| id.parse::<i64>().ok()).ok_or_else(|| {
        let shown: String = name.chars().take(100).collect();
        Failure::new(Code::NotFound, format!("there is no prompt `{shown}`; prompts/list shows those that there are"))
    })?;
    let path = DocumentPath { id };
    let template = client.read_template(path, EmbedQuery::default()).await?.value()?;
    let kinds = declared(&template).variables;
    let (mut variables, mut documents) = (Map::new(), BTreeMap::new());
    for (name, value) in arguments {
        match kinds.get(&name).map(|variable| variable.kind) {
            Some(VariableType::Document) => {
                documents.insert(name.clone(), number(&name, &value)?);
            }
            Some(VariableType::String | VariableType::Any) | None => {
                variables.insert(name, value);
            }
            Some(_) => {
                let value = match &value {
                    Value::String(text) => serde_json::from_str(text).unwrap_or(value),
                    _ => value,
                };
                variables.insert(name, value);
            }
        }
    }
    let rendered = client.render_template(path, OptionalJson(Some(RenderRequest { variables, documents }))).await?;
    let said = vec![PromptMessage::new_text(Role::User, rendered.text)];
    Ok(GetPromptResult::new(said).with_description(template.title))
}

fn number(name: &str, value: &Value) -> Result<i64, Failure> {
    let given = value.as_i64().or_else(|| value.as_str()?.trim().parse().ok());
    given.ok_or_else(|| Failure::field(name, "takes the id of a document"))
}
