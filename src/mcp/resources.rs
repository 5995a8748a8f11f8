//! Documents as resources: a document with all under it as Markdown, and its subtree and evidence as JSON.
use super::{
    door::{Telling, answer},
    toolbox::Toolbox,
    window::{MOST, read_cursor},
};
use percent_encoding::percent_decode_str;
use rmcp::model::{
    JsonObject, ListResourcesResult, MetaObject, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
};
use serde_json::{Value, json};
use svc_client::{Client, Code, Failure, Remote, wire::PageQuery};

const SCHEME: &str = "svc://documents/";
const MARKDOWN: &str = "text/markdown";
const JSON: &str = "application/json";
/// Rows of a list of resources.
const ROWS: u32 = 100;
/// A Markdown heading is at most this deep.
const DEEPEST_HEADING: usize = 6;
/// Begins a cursor of the text of a document itself, and one of what is under it.
const ITSELF: char = 'd';
const UNDER: char = 's';

pub fn templates() -> Vec<ResourceTemplate> {
    let template = |path: &str, name: &str, about: &str, media_type: &str| {
        ResourceTemplate::new(format!("{SCHEME}{{id}}{path}{{?cursor}}"), name)
            .with_description(about)
            .with_mime_type(media_type)
    };
    vec![
        template("", "document", "A document with everything under it, as Markdown.", MARKDOWN),
        template("/subtree", "subtree", "Everything under a document, as the tool list_subtree shows it.", JSON),
        template("/evidence", "evidence", "What the pipeline recorded about a document.", JSON),
    ]
}

/// The documents without a parent, page by page.
pub async fn list(calls: &Remote, cursor: Option<String>) -> Result<ListResourcesResult, Failure> {
    let query = PageQuery { cursor, limit: Some(ROWS), include_content: false, ..PageQuery::default() };
    let page = Client(calls.clone()).list_roots(query).await?;
    let resources = page
        .documents
        .into_iter()
        .map(|document| Resource::new(format!("{SCHEME}{}", document.id), document.title).with_mime_type(MARKDOWN));
    let mut list = ListResourcesResult::with_all_items(resources.collect());
    list.next_cursor = page.next_cursor;
    Ok(list)
}

/// The address of a resource, taken apart.
struct Address<'a> {
    id: i64,
    part: &'a str,
    cursor: Option<String>,
}

fn address(uri: &str) -> Option<Address<'_>> {
    let rest = uri.strip_prefix(SCHEME)?;
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let (id, part) = path.split_once('/').unwrap_or((path, ""));
    let cursor = match query {
        None => None,
        Some(query) => Some(percent_decode_str(query.strip_prefix("cursor=")?).decode_utf8().ok()?.into_owned()),
    };
    Some(Address { id: id.parse().ok()?, part, cursor })
}

/// One page of a resource; what is left of it has an address of its own.
pub async fn read(calls: &Remote, toolbox: &Toolbox, uri: &str) -> Result<ReadResourceResult, Failure> {
    let shown: String = uri.chars().take(100).collect();
    let unknown = || {
        Failure::new(Code::NotFound, format!("there is no resource {shown}; resources/templates/list shows their form"))
    };
    let address = address(uri).ok_or_else(unknown)?;
    let ask = async |tool: &str, cursor: Option<&str>| {
        let row = toolbox.find(tool).ok_or_else(unknown)?;
        let mut arguments = JsonObject::from_iter([("id".to_owned(), json!(address.id))]);
        arguments.extend(cursor.map(|cursor| ("cursor".to_owned(), json!(cursor))));
        answer(row, arguments, calls, &Telling::nobody()).await
    };
    let own = |page: &Value| page["next_cursor"].as_str().map(str::to_owned);
    let (text, next) = match address.part {
        "" => {
            let (phase, cursor) = match address.cursor.as_deref() {
                None => (ITSELF, None),
                Some(cursor) => {
                    let phase = cursor.chars().next().filter(|phase| [ITSELF, UNDER].contains(phase));
                    (phase.ok_or_else(unknown)?, Some(&cursor[1..]).filter(|cursor| !cursor.is_empty()))
                }
            };
            let mut text = String::new();
            let mut next = None;
            if phase == ITSELF {
                let page = ask("read_document", cursor).await?;
                next = own(&page);
                text = section(&page, 0, cursor.is_some(), next.is_some());
                next = next.map(|next| format!("{ITSELF}{next}"));
            }
            if next.is_none() {
                let cursor = cursor.filter(|_| phase == UNDER);
                let page = ask("list_subtree", cursor).await?;
                let under = sections(&page, address.id, cursor);
                if text.is_empty() || text.len() + under.len() <= MOST {
                    text += &under;
                    next = own(&page).map(|next| format!("{UNDER}{next}"));
                } else {
                    next = Some(UNDER.to_string());
                }
            }
            (text, next)
        }
        "subtree" => {
            let page = ask("list_subtree", address.cursor.as_deref()).await?;
            (page.to_string(), own(&page))
        }
        "evidence" => {
            let page = ask("read_evidence", address.cursor.as_deref()).await?;
            (page.to_string(), own(&page))
        }
        _ => return Err(unknown()),
    };
    let slash = if address.part.is_empty() { "" } else { "/" };
    let next = next.map(|next| format!("{SCHEME}{}{slash}{}?cursor={next}", address.id, address.part));
    let (media_type, text) = match (address.part, &next) {
        ("", Some(next)) => (MARKDOWN, format!("{text}The text goes on in {next}\n")),
        ("", None) => (MARKDOWN, text),
        _ => (JSON, text),
    };
    let mut contents = ResourceContents::text(text, uri).with_mime_type(media_type);
    if let Some(next) = next {
        contents = contents.with_meta(MetaObject(JsonObject::from_iter([("svc/next".to_owned(), json!(next))])));
    }
    Ok(ReadResourceResult::new(vec![contents]))
}

/// The documents of a page as sections, each as deep as it is under the one with this id.
fn sections(page: &Value, id: i64, cursor: Option<&str>) -> String {
    let is_inside =
        |cursor: Option<&str>| cursor.is_some_and(|cursor| read_cursor(cursor).is_ok_and(|(at, _)| at.len() > 2));
    let documents = page["documents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = String::new();
    for (number, document) in documents.iter().enumerate() {
        let path = document["path"].as_array().map(Vec::as_slice).unwrap_or_default();
        let above = path.iter().position(|above| above.as_i64() == Some(id)).unwrap_or_default();
        let is_rest = number == 0 && is_inside(cursor);
        let is_cut = number + 1 == documents.len() && is_inside(page["next_cursor"].as_str());
        text += &section(document, path.len().saturating_sub(above), is_rest, is_cut);
    }
    text
}

/// A document's title and text, without what the page before had, and what the next one has.
fn section(document: &Value, depth: usize, is_rest: bool, is_cut: bool) -> String {
    let text = |name: &str| document[name].as_str().unwrap_or_default();
    let title: Vec<_> = text("title").split_whitespace().collect();
    let heading = match is_rest {
        true => String::new(),
        false => format!("{} {}\n\n", "#".repeat((depth + 1).min(DEEPEST_HEADING)), title.join(" ")),
    };
    let end = if is_cut || text("content").is_empty() { "" } else { "\n\n" };
    format!("{heading}{}{end}", text("content"))
}
