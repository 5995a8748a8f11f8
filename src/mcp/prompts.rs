//! Templates as prompts: a client lists them, and has one rendered with its arguments.
use rmcp::model::{GetPromptResult, JsonObject, ListPromptsResult, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use svc_client::{
    Client, Code, Failure, OptionalJson, Remote,
    wire::{
        DocumentPath, DocumentResponse, EmbedQuery, PageQuery, RenderRequest, TemplateDeclaration, TemplateVariable,
        VariableType,
    },
};

/// Rows of a list of prompts.
const ROWS: u32 = 100;
/// How many further templates are read for what those of a list, or one that is rendered, include.
const PARTIALS: usize = 200;
/// Begins the name of a prompt, before the id of its template.
const NAME: &str = "template-";

/// The templates, page by page. One that declares nothing that can be read has no arguments.
pub async fn list(calls: &Remote, cursor: Option<String>) -> Result<ListPromptsResult, Failure> {
    let query = PageQuery { cursor, limit: Some(ROWS), include_content: false, ..PageQuery::default() };
    let client = Client(calls.clone());
    let page = client.list_templates(query).await?;
    let mut known = Known::of(&page.documents);
    let mut prompts = Vec::new();
    for template in page.documents {
        let arguments = known.variables(&client, template.id).await?.iter().map(argument).collect();
        let prompt = Prompt::new(format!("{NAME}{}", template.id), None::<String>, Some(arguments));
        prompts.push(prompt.with_title(template.title));
    }
    let mut list = ListPromptsResult::with_all_items(prompts);
    list.next_cursor = page.next_cursor;
    Ok(list)
}

/// What templates declare, by id.
struct Known {
    declared: HashMap<i64, TemplateDeclaration>,
    /// How many others may still be read.
    left: usize,
}

impl Known {
    fn of(templates: &[DocumentResponse]) -> Known {
        let declared = templates.iter().map(|template| (template.id, declared(template)));
        Known { declared: declared.collect(), left: PARTIALS }
    }

    /// The variables that a template takes: its own, and those of all that it includes. Of two of one name its own counts, as in a rendering.
    async fn variables(
        &mut self,
        client: &Client<Remote>,
        id: i64,
    ) -> Result<BTreeMap<String, TemplateVariable>, Failure> {
        let (mut included, mut open) = (BTreeSet::new(), vec![id]);
        while let Some(next) = open.pop() {
            if !included.insert(next) {
                continue;
            }
            if !self.declared.contains_key(&next) && self.left > 0 {
                self.left -= 1;
                let read = client.read_template(DocumentPath { id: next }, EmbedQuery::default()).await;
                let of = match read {
                    Ok(template) => declared(&template.value()?),
                    // What is gone, or closed to the caller, is told by a rendering.
                    Err(failure) if failure.code == Code::NotFound => TemplateDeclaration::default(),
                    Err(failure) => return Err(failure),
                };
                self.declared.insert(next, of);
            }
            let partials = self.declared.get(&next).into_iter().flat_map(|declared| &declared.partials);
            open.extend(partials.map(|partial| partial.template_id));
        }
        let others = included.into_iter().filter(|included| *included != id);
        let all = others.chain([id]).filter_map(|id| self.declared.get(&id));
        Ok(all.flat_map(|declared| declared.variables.clone()).collect())
    }
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
    let kinds = Known::of(std::slice::from_ref(&template)).variables(&client, id).await?;
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
