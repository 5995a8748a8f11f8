//! What a template needs to be rendered: the templates that it includes, and the values of its variables.
use super::super::documents::read;
use crate::{
    access::Caller, admission::Place, error::OrFail, reader, registry::Handle, service::Service, store,
    usetype::Usetype,
};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs::File,
    io::{Seek, Write},
    mem,
    ops::Range,
    time::Duration,
};
use svc_client::{
    Call, Code, Failure, Meta, Nothing, ops,
    wire::{
        DocumentPath, DocumentResponse, PageQuery, RenderRequest, TemplateDeclaration, TemplateVariable, VariableType,
    },
};
use svc_formats::{
    TemplateFault, TemplateFaultKind, TemplateJob, TemplateRead, TemplateText,
    isolated::{Answer, Request, Step},
};
use svc_ids::DocumentId;

/// How deep templates include each other.
const DEPTH: usize = 8;
/// How many templates one rendering takes.
const MOST: usize = 100;
/// What a rendering may cost.
const MEMORY: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(5);
/// The most bytes of the texts and declarations of all its templates.
const TEMPLATES_BYTES: usize = 16 << 20;
/// The most bytes of the documents' texts among its values.
const VALUES_BYTES: usize = 8 << 20;
/// How many bytes of texts are compared with parts that were changed since they were cut from them.
const COMPARED_BYTES: usize = 64 << 20;
/// The length from which a line is hardly in a text by chance.
const LONG_LINE: usize = 40;
/// How many documents under one are read for its text.
const PARTS: usize = 5_000;
/// Rows of a page of what is under a document.
const PAGE: u32 = 1_000;
/// How many children of a document its template sees.
const CHILDREN: u32 = 100;
/// A template that is not stored yet.
const NEW: i64 = 0;

/// A template of the caller; 404 if there is none of this id.
pub async fn of(service: &Service, caller: &Caller, id: i64) -> Result<DocumentResponse, Failure> {
    let document = read(service, caller, DocumentId(id), false).await?;
    match document.usetype == Usetype::Template.as_str() {
        true => Ok(document),
        false => Err(Failure::new(Code::NotFound, format!("document {id} is no template"))
            .with("remedy", "GET /templates lists the templates")),
    }
}

/// What a template declares. Whoever writes it as a plain document can write anything.
pub fn declaration(template: &DocumentResponse) -> Result<TemplateDeclaration, Failure> {
    serde_json::from_value(Value::Object(template.structured_content.clone())).map_err(|error| {
        let detail =
            format!("the structured content of template {} declares no variables and partials: {error}", template.id);
        Failure::field("structured_content", detail)
            .with("document_id", template.id)
            .with("remedy", format!("give both by PATCH /templates/{}", template.id))
    })
}

/// A template with all that it includes.
pub struct Templates {
    main: i64,
    texts: BTreeMap<i64, TemplateText>,
    declared: BTreeMap<i64, TemplateDeclaration>,
    /// The bytes that further templates may take.
    left: usize,
    /// The slot of everything that is read and rendered, until the templates are done with.
    _place: Place,
}

impl Templates {
    /// Reads all that a template includes, as far as the caller may; 422 if that is something else, too many, too deep or in a circle, 413 if it is too
    /// much.
    pub async fn gather(
        service: &Service,
        caller: &Caller,
        id: Option<i64>,
        content: &str,
        declared: TemplateDeclaration,
    ) -> Result<Templates, Failure> {
        let place = service.admission.rendering(caller.principal_id()).await?;
        let main = id.unwrap_or(NEW);
        let (texts, declarations) = (BTreeMap::new(), BTreeMap::new());
        let mut all = Templates { main, texts, declared: declarations, left: TEMPLATES_BYTES, _place: place };
        let mut level = vec![main];
        all.add(main, content.to_owned(), declared)?;
        for depth in 0.. {
            let wanted: BTreeSet<i64> = level
                .iter()
                .flat_map(|id| all.declared[id].partials.iter().map(|partial| partial.template_id))
                .collect();
            if wanted.is_empty() {
                break;
            }
            // A circle never ends, so this finds it too.
            if depth == DEPTH {
                let detail = format!("templates include each other more than {DEPTH} deep, or in a circle");
                return Err(
                    Failure::field("partials", detail).with("document_id", *wanted.iter().next().unwrap_or(&main))
                );
            }
            for id in &wanted {
                if all.texts.contains_key(id) {
                    continue;
                }
                if all.texts.len() == MOST {
                    return Err(Failure::field("partials", format!("one rendering takes at most {MOST} templates")));
                }
                let partial = of(service, caller, *id).await.map_err(|failure| match failure.code {
                    Code::NotFound => {
                        Failure::field("partials", format!("there is no template {id}")).with("document_id", *id)
                    }
                    _ => failure,
                })?;
                let declared = declaration(&partial)?;
                all.add(*id, partial.content, declared)?;
            }
            level = wanted.into_iter().collect();
        }
        Ok(all)
    }

    fn add(&mut self, id: i64, text: String, declared: TemplateDeclaration) -> Result<(), Failure> {
        let declaration = serde_json::to_string(&declared).map_err(|error| Failure::new(Code::Internal, error))?;
        self.left = self.left.checked_sub(text.len() + declaration.len()).ok_or_else(|| {
            let detail = format!("the template and what it includes have more than {TEMPLATES_BYTES} bytes");
            let failure = too_large(detail).with("limit", TEMPLATES_BYTES);
            if id == NEW { failure } else { failure.with("document_id", id) }
        })?;
        let partials = declared.partials.iter().map(|partial| (partial.name.clone(), partial.template_id)).collect();
        self.texts.insert(id, TemplateText { text, partials });
        self.declared.insert(id, declared);
        Ok(())
    }

    /// Checks a template that is about to be stored: its grammar, and that it declares what it uses.
    pub async fn check(mut self, service: &Service) -> Result<(), Failure> {
        for (name, variable) in &self.declared[&self.main].variables {
            if let Some(default) = &variable.default {
                fits(name, variable, default).map_err(|detail| Failure::field("variables", detail))?;
            }
        }
        let read = self.run(service, None).await?;
        if let Some(fault) = read.fault {
            return Err(self.faulty(&fault, "content"));
        }
        let used = read.variables.get(&self.main).map_or(&[][..], Vec::as_slice);
        match used.iter().find(|name| !self.declared[&self.main].variables.contains_key(*name)) {
            Some(name) => Err(Failure::field("variables", format!("the text uses `{name}`, which is not declared"))
                .with("remedy", "declare it, or set it in the text")),
            None => Ok(()),
        }
    }

    /// All variables that a rendering takes; of two of one name that of the template itself.
    fn variables(&self) -> BTreeMap<&str, &TemplateVariable> {
        let others = self.declared.iter().filter(|(id, _)| **id != self.main).map(|(_, declared)| declared);
        let all = others.chain([&self.declared[&self.main]]);
        all.flat_map(|declared| &declared.variables).map(|(name, variable)| (name.as_str(), variable)).collect()
    }

    /// The value of each variable; 422 that names the one that is missing, unknown or of another type.
    pub async fn values(
        &self,
        service: &Service,
        caller: &Caller,
        mut asked: RenderRequest,
    ) -> Result<Map<String, Value>, Failure> {
        let variables = self.variables();
        let unknown = |name: &str| {
            let known = variables.keys().copied().collect::<Vec<_>>().join(", ");
            Failure::field(name, format!("is no variable of the template, which has: {known}"))
        };
        for name in asked.variables.keys() {
            match variables.get(name.as_str()) {
                None => return Err(unknown(name)),
                Some(variable) if variable.kind == VariableType::Document => {
                    return Err(Failure::field(name, "is a document: name its id in `documents`"));
                }
                Some(_) => {}
            }
        }
        for name in asked.documents.keys() {
            match variables.get(name.as_str()) {
                None => return Err(unknown(name)),
                Some(variable) if variable.kind != VariableType::Document => {
                    return Err(Failure::field(name, "is no document: give its value in `variables`"));
                }
                Some(_) => {}
            }
        }
        let mut values = Map::new();
        let mut left = Left { bytes: VALUES_BYTES, parts: PARTS, compared: COMPARED_BYTES };
        // The variable that has each document.
        let mut named: BTreeMap<i64, &str> = BTreeMap::new();
        for (name, variable) in variables {
            let value = match (asked.variables.remove(name), asked.documents.get(name)) {
                (Some(value), _) => {
                    fits(name, variable, &value).map_err(|detail| Failure::field(name, detail))?;
                    value
                }
                (None, Some(id)) => match named.get(id).and_then(|first| values.get(*first)) {
                    Some(known) => {
                        left.take(known["content"].as_str().map_or(0, str::len), 0, *id)?;
                        known.clone()
                    }
                    None => {
                        let read = document(service, caller, *id, &mut left).await?;
                        named.insert(*id, name);
                        read
                    }
                },
                (None, None) if variable.is_required() => {
                    return Err(Failure::field(name, "is required: the template has no default for it"));
                }
                (None, None) => {
                    let value = variable.default.clone().unwrap_or(Value::Null);
                    // Whoever writes a template as a plain document can write any default.
                    if !value.is_null() {
                        fits(name, variable, &value).map_err(|detail| Failure::field(name, detail))?;
                    }
                    value
                }
            };
            values.insert(name.to_owned(), value);
        }
        Ok(values)
    }

    /// The text with these values, and the variables that it uses.
    pub async fn render(
        mut self,
        service: &Service,
        values: Map<String, Value>,
    ) -> Result<(String, Vec<String>), Failure> {
        let read = self.run(service, Some(values)).await?;
        if let Some(fault) = &read.fault {
            return Err(self.faulty(fault, "template"));
        }
        let used: BTreeSet<String> = read.variables.into_values().flatten().collect();
        let text = read.text.ok_or_else(|| Failure::new(Code::Internal, "the template said nothing"))?;
        Ok((text, used.into_iter().collect()))
    }

    /// Has the templates read in a process of its own, which takes their texts.
    async fn run(&mut self, service: &Service, values: Option<Map<String, Value>>) -> Result<TemplateRead, Failure> {
        let job = TemplateJob { templates: mem::take(&mut self.texts), main: self.main, values };
        let bytes = serde_json::to_vec(&job).map_err(|error| Failure::new(Code::Internal, error))?;
        drop(job);
        let most = service.settings.parser_answer_bytes.min(64 << 20);
        if bytes.len() as u64 > most {
            return Err(
                too_large("the templates and values take more than one rendering takes".to_owned()).with("limit", most)
            );
        }
        let mut input =
            File::from(memfd_create("template", MemfdFlags::CLOEXEC).map_err(std::io::Error::from).or_fail()?);
        input.write_all(&bytes).and_then(|()| input.rewind()).or_fail()?;
        drop(bytes);
        let mut limits = reader::limits(&service.settings);
        limits.memory = limits.memory.min(MEMORY);
        limits.cpu_time = limits.cpu_time.min(TIME);
        limits.wall_time = limits.wall_time.min(2 * TIME);
        match service.reader.read(input, &Request::new(Step::Template, limits)).await {
            Ok((Answer::Template(read), _)) => Ok(read),
            Ok(_) => Err(Failure::new(Code::Internal, "the reader gave another answer than it was asked for")),
            Err(error) if error.limit().is_some() => Err(too_large(format!(
                "the rendering takes more than {} seconds or {} MiB",
                TIME.as_secs(),
                MEMORY >> 20
            ))),
            Err(error) if error.is_permanent() => {
                Err(Failure::field("template", format!("cannot be rendered: {error}")))
            }
            Err(_) => Err(Failure::new(Code::Unavailable, "the template could not be read now").with("retry_after", 2)),
        }
    }

    fn faulty(&self, fault: &TemplateFault, field: &str) -> Failure {
        let place = match (fault.line, fault.column) {
            (Some(line), Some(column)) => format!(" at line {line}, column {column}"),
            (Some(line), None) => format!(" at line {line}"),
            _ => String::new(),
        };
        let of = if fault.template == self.main { String::new() } else { format!("template {}: ", fault.template) };
        let detail = format!("{of}{}{place}", fault.detail);
        let failure = match fault.kind {
            TemplateFaultKind::TooLong => too_large(detail),
            TemplateFaultKind::Syntax | TemplateFaultKind::Values => Failure::field(field, detail),
        };
        let failure = fault.line.into_iter().fold(failure, |failure, line| failure.with("line", line));
        let failure = fault.column.into_iter().fold(failure, |failure, column| failure.with("column", column));
        if fault.template == NEW { failure } else { failure.with("document_id", fault.template) }
    }
}

fn too_large(detail: String) -> Failure {
    Failure::new(Code::TooLarge, detail).with("remedy", "shorten the template, or give it less")
}

/// Whether a value is of a variable's type; the error says what is wrong.
fn fits(name: &str, variable: &TemplateVariable, value: &Value) -> Result<(), String> {
    let fits = match variable.kind {
        VariableType::Any => true,
        VariableType::String => value.is_string(),
        VariableType::Number => value.is_number(),
        VariableType::Boolean => value.is_boolean(),
        VariableType::Array => value.is_array(),
        VariableType::Object => value.is_object(),
        // A document is named when a template is rendered.
        VariableType::Document => value.is_null(),
    };
    if fits { Ok(()) } else { Err(format!("`{name}` takes a value of the type {}", variable.kind.as_str())) }
}

/// What was read above the next parts of a document.
#[derive(Default)]
struct Above {
    /// The documents whose texts were taken, or are said by one that was, each with where that one stands in what was taken.
    texts: HashMap<i64, Range<usize>>,
    /// The sections without a text, which may lie between a text and what was cut from it.
    sections: HashSet<i64>,
}

impl Above {
    /// Where the text of the nearest document above a part, but for such sections, stands in what was taken.
    fn text_over(&self, part: &DocumentResponse) -> Option<Range<usize>> {
        let nearest = part.path.iter().rev().find(|id| !self.sections.contains(*id))?;
        self.texts.get(nearest).cloned()
    }
}

/// Those of a page of documents that were cut from the text of a document above.
async fn cut(service: &Service, page: &[DocumentResponse]) -> Result<HashSet<DocumentId>, Failure> {
    let texts = page.iter().filter(|part| !part.content.is_empty()).map(|part| DocumentId(part.id));
    let texts: Vec<DocumentId> = texts.collect();
    let mut conn = service.pool.acquire().await.or_fail()?;
    store::nodes::cut(&mut conn, &texts).await.or_fail()
}

/// Whether a text has each line of another one, as a table has the lines of its chunks, of which each begins with the table's header.
fn has_lines_of(text: &str, other: &str) -> bool {
    let mut lines: HashSet<&str> = other.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let all = lines.len();
    for line in text.lines() {
        lines.remove(line.trim());
    }
    let has_others = lines.len() < all;
    // A chunk may begin and end within a line. The letters of a short line stand anywhere by chance.
    let is_cut = |line: &str| match line.len() >= LONG_LINE {
        true => text.contains(line),
        false => has_others && text.lines().map(str::trim).any(|own| own.starts_with(line) || own.ends_with(line)),
    };
    lines.len() <= 2 && lines.into_iter().all(is_cut)
}

/// A document as a template sees it. Its text is its own, or that of all under it, each text once.
async fn document(service: &Service, caller: &Caller, id: i64, left: &mut Left) -> Result<Value, Failure> {
    let found = read(service, caller, DocumentId(id), false).await?;
    let path = DocumentPath { id };
    let meta = Meta::default();
    let query = PageQuery { limit: Some(CHILDREN), include_content: false, ..PageQuery::default() };
    let children = Call { meta: meta.clone(), path, query, body: Nothing {} };
    let children = Handle::<ops::list_children>::handle(service, caller, children).await?.documents;
    let mut content = found.content;
    left.take(content.len(), 1, id)?;
    let mut above = Above::default();
    let mut cursor = None;
    let mut is_more = content.is_empty() && !children.is_empty();
    while is_more {
        let query = PageQuery { cursor, limit: Some(PAGE), ..PageQuery::default() };
        let page = Call { meta: meta.clone(), path, query, body: Nothing {} };
        let page = Handle::<ops::list_subtree>::handle(service, caller, page).await?;
        left.take(0, page.documents.len(), id)?;
        let cut = cut(service, &page.documents).await?;
        for part in &page.documents {
            if part.content.is_empty() {
                if part.usetype == Usetype::Section.as_str() {
                    above.sections.insert(part.id);
                }
                continue;
            }
            // The chunks of a long table or record hold what is in its own text.
            let over = above.text_over(part).filter(|_| cut.contains(&DocumentId(part.id)));
            if let Some(over) = over.filter(|over| left.is_said(&content[over.clone()], part)) {
                // What was cut from the part in turn is in that text too.
                above.texts.insert(part.id, over);
                continue;
            }
            if part.usetype == Usetype::Summary.as_str() {
                continue;
            }
            left.take(part.content.len() + 2, 0, id)?;
            content.push_str(if content.is_empty() { "" } else { "\n\n" });
            let start = content.len();
            content.push_str(&part.content);
            above.texts.insert(part.id, start..content.len());
        }
        cursor = page.next_cursor;
        is_more = cursor.is_some();
    }
    let child = |child: DocumentResponse| json!({"id": child.id, "title": child.title, "usetype": child.usetype});
    let children: Vec<Value> = children.into_iter().map(child).collect();
    Ok(
        json!({"id": found.id, "title": found.title, "usetype": found.usetype, "content": content, "children": children}),
    )
}

/// What documents may still bring into a rendering.
struct Left {
    bytes: usize,
    /// How many documents may still be read.
    parts: usize,
    /// The bytes that may still be looked at to tell whether parts that were changed still say what the text above them does.
    compared: usize,
}

impl Left {
    /// Whether a text says what a part says that was cut from it. A part whose text was changed since says something else.
    fn is_said(&mut self, text: &str, part: &DocumentResponse) -> bool {
        if part.created_at == part.updated_at {
            return true;
        }
        match self.compared.checked_sub(text.len()) {
            Some(left) => {
                self.compared = left;
                has_lines_of(text, &part.content)
            }
            // To say a text twice is better than to leave one out.
            None => false,
        }
    }

    /// 413 once the documents of a rendering have more text or parts than it takes.
    fn take(&mut self, bytes: usize, parts: usize, id: i64) -> Result<(), Failure> {
        let over = |what: &str, limit: usize| {
            Failure::new(Code::TooLarge, format!("the documents have more than {limit} {what}"))
                .with("limit", limit)
                .with("document_id", id)
                .with("remedy", "name a part of the document")
        };
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| over("bytes of text", VALUES_BYTES))?;
        self.parts = self.parts.checked_sub(parts).ok_or_else(|| over("documents in and under them", PARTS))?;
        Ok(())
    }
}
