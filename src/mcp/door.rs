//! The server of the protocol: lists tools and documents, and passes calls on to the service.
use super::{
    arguments::Asked,
    ingestion, prompts, resources, synthesis,
    toolbox::{Row, Toolbox, reader_of},
    upload, window,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, ErrorCode,
        GetPromptRequestParams, GetPromptResponse, Implementation, JsonObject, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProgressNotificationParam, ProgressToken, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
        ServerConfig, Tool,
    },
    service::{Peer, RequestContext},
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use svc_client::{Code, Failure, Remote, VERSION, wire::FrontierResponse};

/// What a language model is told of the service before it sees a tool.
const INSTRUCTIONS: &str = "A store of documents as a tree: files are cut into sections and chunks, which can be found. Begin with \
search_hybrid; read_document shows a result, list_children and list_subtree what is under it. An answer that is too long \
has next_cursor: call again with it as cursor. An error has a code, and often a remedy.";
/// The methods whose parameters are read here; a request of one of them that reaches nobody had other parameters.
const METHODS: &[&str] = &["tools/call", "resources/read", "prompts/get", "initialize"];

/// One server. Over HTTP each request brings its own way to the service, which has its caller's rights.
#[derive(Clone)]
pub struct Door {
    toolbox: Arc<Toolbox>,
    calls: Option<Remote>,
}

impl Door {
    /// A server whose requests bring a [`Remote`] with them, among the extensions of their HTTP request.
    pub fn of_requests(toolbox: Arc<Toolbox>) -> Door {
        Door { toolbox, calls: None }
    }

    /// A server for one client, who calls the service in this way.
    pub fn of_client(toolbox: Arc<Toolbox>, calls: Remote) -> Door {
        Door { toolbox, calls: Some(calls) }
    }

    fn calls(&self, context: &RequestContext<RoleServer>) -> Result<Remote, ErrorData> {
        let brought = || context.extensions.get::<http::request::Parts>()?.extensions.get::<Remote>();
        let calls = self.calls.as_ref().or_else(brought);
        calls.cloned().ok_or_else(|| ErrorData::internal_error("the request has no way to the service", None))
    }
}

/// Calls a tool and shows the page of its answer that is asked for.
pub async fn answer(row: &Row, arguments: JsonObject, calls: &Remote, telling: &Telling) -> Result<Value, Failure> {
    let is_read = row.kind == svc_client::Tool::Read;
    let mut asked = Asked::read(arguments, is_read)?;
    if row.name() == upload::NAME {
        return Ok(first_part(row, upload::call(row, asked, calls, telling).await?));
    }
    let (from, of) = (std::mem::take(&mut asked.from), asked.cursor.take());
    match (&of, row.is_list()) {
        (Some(cursor), true) => drop(asked.arguments.insert("cursor".to_owned(), cursor.clone().into())),
        (Some(_), false) => return Err(Failure::field("cursor", "takes a next_cursor of this tool")),
        // An answer of a language model has one page, and another one would be made anew.
        (None, _) if row.name() == synthesis::NAME && !from.is_empty() => {
            return Err(Failure::field("cursor", "is not taken: the answer has one page"));
        }
        (None, _) => {}
    }
    let call = row.places.fill(asked.arguments)?;
    let mut whole = match row.name() == ingestion::NAME {
        true => ingestion::call(calls, call, telling).await?,
        false => calls.call(row.info, call).await?,
    };
    if row.name() == synthesis::NAME {
        return Ok(synthesis::shortened(whole));
    }
    if let Some(nodes) = whole.get_mut("nodes").and_then(Value::as_array_mut)
        && !is_read
    {
        return Ok(first_nodes(row, std::mem::take(nodes), whole));
    }
    if !is_read {
        return Ok(first_part(row, whole));
    }
    let (mut shown, next) = window::page(&whole, &row.answer, &from);
    if let Some(next) = next {
        shown["next_cursor"] = window::write_cursor(next, of).into();
    } else if let Some(next) = whole.get_mut("next_cursor") {
        // A page shortens long texts of other pages, and this one may be long.
        shown["next_cursor"] = next.take();
    }
    Ok(shown)
}

/// The most bytes of attempts that a change answers with; `read_evidence` has all of them.
const ATTEMPTS_BYTES: usize = window::MOST / 4;

/// Leaves the latest attempts that there is room for.
fn latest_attempts(answer: &mut Value) {
    let Some(attempts) = answer.get_mut("attempts").and_then(Value::as_array_mut) else { return };
    let mut room = ATTEMPTS_BYTES;
    let kept = attempts.iter().rev().take_while(|attempt| {
        let bytes = attempt.to_string().len();
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    let kept = kept.count();
    attempts.drain(..attempts.len() - kept);
}

/// What a change answered, as far as there is room, if a tool reads the same: the change would be made again to see the rest, so the cursor is
/// one of that tool.
fn first_part(row: &Row, mut whole: Value) -> Value {
    latest_attempts(&mut whole);
    if reader_of(row.name()).is_none() {
        return whole;
    }
    let (mut shown, next) = window::page(&whole, &row.answer, &[]);
    if let Some(next) = next {
        shown["next_cursor"] = window::write_cursor(next, None).into();
        // The other tool knows nothing of these, and they are few.
        if let Some(warnings) = whole.get_mut("warnings") {
            shown["warnings"] = warnings.take();
        }
    }
    shown
}

/// How many nodes a page of `list_subtree` has, if nobody says otherwise.
const NODES: usize = 100;

/// An ingested tree with the nodes that there is room for. It would be ingested again to see the others, so the cursor is one of the tool
/// `list_subtree`.
fn first_nodes(row: &Row, mut nodes: Vec<Value>, mut tree: Value) -> Value {
    let count = nodes.len();
    latest_attempts(&mut tree);
    nodes.truncate(NODES);
    tree["nodes"] = nodes.into();
    let (mut shown, next) = window::page(&tree, &row.answer, &[]);
    let at = match next.as_deref() {
        None if count <= NODES => return shown,
        None => vec![json!(NODES)],
        Some([part, rest @ ..]) if part == "nodes" => rest.to_vec(),
        Some(_) => vec![json!(0)],
    };
    shown["next_cursor"] = window::write_cursor([vec![json!("documents")], at].concat(), None).into();
    shown
}

/// Tells a client how far its call is, if it wants to know.
pub struct Telling {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    /// The progress that was told; it only grows.
    told: AtomicI64,
}

impl Telling {
    fn of(context: &RequestContext<RoleServer>) -> Telling {
        let token = context.meta.get_progress_token();
        Telling { to: token.map(|token| (context.peer.clone(), token)), told: AtomicI64::new(-1) }
    }

    /// Whether somebody wants to know.
    pub fn is_wanted(&self) -> bool {
        self.to.is_some()
    }

    /// Tells nobody.
    pub fn nobody() -> Telling {
        Telling { to: None, told: AtomicI64::new(-1) }
    }

    /// Tells how many nodes are settled. There is no total, because later tasks make more.
    pub async fn frontier(&self, frontier: &FrontierResponse) {
        let Some((peer, token)) = &self.to else { return };
        let settled = frontier.nodes_settled;
        if self.told.fetch_max(settled, Ordering::Relaxed) >= settled {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of nodes")]
        let mut progress = ProgressNotificationParam::new(token.clone(), settled as f64);
        progress.message = Some(format!("{settled} settled, {} in flight", frontier.nodes_in_flight));
        // A client that has gone needs no news.
        drop(peer.notify_progress(progress).await);
    }
}

/// A refusal of the service as the error of a request that is no call of a tool.
pub fn refused(failure: Failure) -> ErrorData {
    let code = match failure.code {
        Code::NotFound => ErrorCode::RESOURCE_NOT_FOUND,
        Code::InvalidField | Code::MalformedRequest => ErrorCode::INVALID_PARAMS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    ErrorData::new(code, failure.to_string(), serde_json::to_value(&failure).ok())
}

impl ServerHandler for Door {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("svc", VERSION))
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.toolbox.find(name).map(|row| row.description.clone())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.toolbox.list()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let row = self.toolbox.find(&request.name).ok_or_else(|| {
            let name: String = request.name.chars().take(100).collect();
            ErrorData::invalid_params(format!("there is no tool `{name}`; tools/list shows those that there are"), None)
        })?;
        let (calls, telling) = (self.calls(&context)?, Telling::of(&context));
        let answer = answer(row, request.arguments.unwrap_or_default(), &calls, &telling);
        let answer = tokio::select! {
            answer = answer => answer,
            // What was begun goes on; only the wait for it ends.
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the client cancelled the call", None)),
        };
        Ok(match answer {
            Ok(Value::Null) => CallToolResult::success(Vec::new()),
            Ok(answer) => CallToolResult::structured(answer),
            Err(failure) => CallToolResult::structured_error(serde_json::to_value(&failure).unwrap_or_default()),
        }
        .into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&self.calls(&context)?, cursor).await.map_err(refused)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (calls, toolbox) = (self.calls(&context)?, &self.toolbox);
        let read = resources::read(&calls, toolbox, &request.uri);
        let read = tokio::select! {
            read = read => read,
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the client cancelled the call", None)),
        };
        read.map(Into::into).map_err(refused)
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        prompts::list(&self.calls(&context)?, cursor).await.map_err(refused)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let calls = self.calls(&context)?;
        let got = prompts::get(&calls, &request.name, request.arguments.unwrap_or_default());
        let got = tokio::select! {
            got = got => got,
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the client cancelled the call", None)),
        };
        // The protocol has no other code for a prompt that is not there.
        let no_prompt = |failure: Failure| match failure.code {
            Code::NotFound => ErrorData { code: ErrorCode::INVALID_PARAMS, ..refused(failure) },
            _ => refused(failure),
        };
        got.map(Into::into).map_err(no_prompt)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(100).collect();
        Err(match METHODS.contains(&method.as_str()) {
            true => ErrorData::invalid_params(format!("the parameters of {method} do not have its form"), None),
            false => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method {method}"), None),
        })
    }
}
