//! The Model Context Protocol: every tool beside its operation, long answers, resources, progress, and who may do what.

mod hostile;
mod inspector;
mod prompts;
mod stdio;

use crate::{
    principals::{grant, someone},
    reach::{a_fact, a_path, call},
    support::{
        TOKEN, TestApp, Wish, contract, document, http,
        llm::{Llm, Reply},
        sample, until,
    },
    triples::predicate,
};
use reqwest::StatusCode;
use rmcp::{
    ClientHandler, RoleClient, ServiceExt,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ClientConfig, ClientRequest, JsonObject,
        ProgressNotificationParam, ReadResourceRequestParams, ResourceContents, ServerResult,
    },
    service::{NotificationContext, PeerRequestOptions, RunningService},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};
use svc::{
    mcp::{Door, Toolbox},
    registry,
};
use svc_client::{
    Json, OPERATIONS, Remote, Tool,
    wire::{DocumentPath, GrantRight, NewDocument, Settled, WaitQuery},
};

/// Posts a message to /mcp as a holder of this token does.
pub fn post(app: &TestApp, token: &str, message: &Value) -> reqwest::RequestBuilder {
    let request = http().post(format!("{}/mcp", app.base)).bearer_auth(token).json(message);
    request.header("accept", "application/json, text/event-stream").header("mcp-protocol-version", "2025-06-18")
}

/// The answer to a request of the protocol.
pub async fn ask(app: &TestApp, token: &str, method: &str, params: Value) -> Value {
    let answer = post(app, token, &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
    answer.send().await.unwrap().json().await.unwrap()
}

/// The result of a call of a tool over HTTP.
pub async fn use_tool(app: &TestApp, token: &str, name: &str, arguments: Value) -> Value {
    let mut answer = ask(app, token, "tools/call", json!({"name": name, "arguments": arguments})).await;
    assert!(answer.get("error").is_none(), "{name}: {answer}");
    answer["result"].take()
}

/// A client of the SDK that remembers what progress it was told.
#[derive(Clone, Default)]
struct Model {
    told: Arc<Mutex<Vec<ProgressNotificationParam>>>,
}

impl ClientHandler for Model {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default()
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.told.lock().unwrap().push(progress);
    }
}

/// A client that speaks with a server in this process, which calls the service with this token.
async fn model(app: &TestApp, token: &str) -> RunningService<RoleClient, Model> {
    let toolbox = Arc::new(Toolbox::new(registry::contract(), Tool::Destructive));
    let door = Door::of_client(toolbox, Remote::new(&app.base, token, http()));
    let (here, there) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move { door.serve(there).await.unwrap().waiting().await });
    Model::default().serve(here).await.unwrap()
}

fn arguments(value: Value) -> JsonObject {
    value.as_object().cloned().unwrap()
}

async fn call_tool(client: &RunningService<RoleClient, Model>, name: &'static str, given: Value) -> CallToolResult {
    client.call_tool(CallToolRequestParams::new(name).with_arguments(arguments(given))).await.unwrap()
}

/// What each tool is called with, about this document.
fn given(name: &str, id: i64) -> Value {
    match name {
        "search_hybrid" => json!({"query": "heron", "parent_id": id, "limit": 100}),
        "list_roots" => json!({}),
        "upload_file" => json!({"filename": "x.txt", "base64": "Qnl0ZXMgdGhhdCBub2Jv\nZHkgaGFzLg==", "parent_id": id}),
        "ingest" => json!({"entry": "raw", "content": "Words that nobody has.", "parent_id": id}),
        "create_document" => json!({"title": "t", "content": "c", "parent_id": id}),
        "assert_fact" => a_fact(id),
        "list_facts" => json!({"subject_id": id, "valid_at": "any"}),
        "supersede_fact" => json!({"id": id, "object_literal": format!("instead of {id}")}),
        "search_auto" => json!({"query": "heron", "parent_id": id, "limit": 100, "group_by": "none"}),
        "synthesize" => json!({"query": "heron", "parent_id": id, "limit": 100}),
        "find_neighbors" => json!({"document_id": id, "valid_at": "2026-01-01T00:00:00Z"}),
        "find_paths" => a_path(id),
        _ => json!({"id": id}),
    }
}

/// A fact about a document that is believed now.
async fn believed(app: &TestApp, subject: i64) -> i64 {
    let facts = use_tool(app, TOKEN, "list_facts", json!({"subject_id": subject})).await;
    facts["structuredContent"]["facts"][0]["id"].as_i64().unwrap()
}

/// An answer without what the tools do not show and what tells the time.
fn lasting(mut answer: Value) -> Value {
    for name in ["latency_ms", "request_id", "instance", "oldest_seconds"] {
        answer.as_object_mut().map(|members| members.remove(name));
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_answers_what_its_operation_answers() {
    let llm = Llm::start().await;
    let answer = json!({"answered": true, "sentences": [{"text": "They eat fish.", "citations": [{"source": 1, "quote": "heron"}]}]});
    llm.will_say(move |_| Reply::said(&answer.to_string()));
    let settings =
        [("SVC_MCP_TOOLS", "all"), ("SVC_LLM_BASE_URL", llm.base.as_str()), ("SVC_LLM_MODEL", "asked-model")];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let (sheet, _) = app.ingest(&sample("duck-counts.xlsx")).await;
    let parent = app.create("Herons", "A heron stands in the water.", None).await.id;
    app.create("Grey heron", "The grey heron eats fish.", Some(parent)).await;
    predicate(&app, "knows").await;
    let client = model(&app, TOKEN).await;
    let listed = client.list_all_tools().await.unwrap();
    let over_http = ask(&app, TOKEN, "tools/list", json!({})).await;
    assert_eq!(serde_json::to_value(&listed).unwrap(), over_http["result"]["tools"]);
    let mut rows: Vec<_> = OPERATIONS.iter().filter(|row| row.tool.is_some()).collect();
    rows.sort_by_key(|row| row.tool);
    assert_eq!(listed.len(), rows.len());
    for row in rows {
        let tool = listed.iter().find(|tool| tool.name == row.name).unwrap();
        let hints = tool.annotations.clone().unwrap();
        assert_eq!(tool.description.as_deref(), Some(row.summary()));
        assert_eq!(hints.read_only_hint, Some(row.tool == Some(Tool::Read)), "{}", row.name);
        assert_eq!(hints.is_destructive(), matches!(row.tool, Some(Tool::Read | Tool::Destructive)), "{}", row.name);
        let id = match row.name {
            "read_cells" | "cancel_ingest" => sheet,
            // Each time the fact that is believed now gets another object.
            "supersede_fact" => believed(&app, parent).await,
            _ => parent,
        };
        // What is still being embedded is not deleted.
        let over_http = until(row.name, async || {
            let answer = use_tool(&app, TOKEN, row.name, given(row.name, id)).await;
            (answer["structuredContent"]["code"] != "conflict").then_some(answer)
        });
        let over_http = over_http.await;
        if row.tool == Some(Tool::Read) {
            let rest: Value = call(&app, TOKEN, row, id, &[]).send().await.unwrap().json().await.unwrap();
            assert_eq!(lasting(over_http["structuredContent"].clone()), lasting(rest), "{}", row.name);
        }
        assert_eq!(over_http["isError"], false, "{}: {over_http}", row.name);
        if let Some(schema) = &tool.output_schema {
            let schema: &'static Value = Box::leak(Box::new(Value::Object((**schema).clone())));
            let mut broken = Vec::new();
            contract::validate(schema, &over_http["structuredContent"], &mut broken);
            assert!(broken.is_empty(), "{}: {broken:?}", row.name);
            let text: Value = serde_json::from_str(over_http["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(text, over_http["structuredContent"], "{}", row.name);
        }
        if row.name == "delete_document" {
            continue;
        }
        let id = if row.name == "supersede_fact" { believed(&app, parent).await } else { id };
        let answer = serde_json::to_value(call_tool(&client, row.name, given(row.name, id)).await).unwrap();
        if row.tool == Some(Tool::Read) {
            let (one, other) = (&answer["structuredContent"], &over_http["structuredContent"]);
            assert_eq!(lasting(one.clone()), lasting(other.clone()), "{}", row.name);
        }
        assert_eq!(answer["isError"], false, "{}: {answer}", row.name);
    }
    // A second page would be one of another answer.
    let shelf = app.create("Herons", "A heron.", None).await.id;
    let own = arguments(json!({"note": "x".repeat(70_000)}));
    let new = NewDocument { parent_id: Some(shelf), structured_content: own, ..document("Heron", "The heron waits.") };
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let note = app.client.create_document(wait, Json(new)).await.unwrap().id;
    let said = use_tool(&app, TOKEN, "synthesize", json!({"query": "heron", "parent_id": shelf})).await;
    let said = &said["structuredContent"];
    assert!(said["next_cursor"].is_null() && said["answer"].is_string(), "{said}");
    let found = said["results"].as_array().unwrap().iter().find(|found| found["id"] == note).unwrap();
    assert_eq!(found["omitted"], json!(["content", "structured_content"]));
    let further = json!({"query": "heron", "parent_id": shelf, "cursor": "~eyJhdCI6WyJyZXN1bHRzIiwxXX0"});
    let refused = use_tool(&app, TOKEN, "synthesize", further).await;
    assert_eq!(refused["structuredContent"]["field"], "cursor");
    let gone = use_tool(&app, TOKEN, "read_document", json!({"id": parent})).await;
    assert_eq!((&gone["isError"], &gone["structuredContent"]["code"]), (&json!(true), &json!("not_found")));
    let metrics = app.raw("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    for counted in ["operation=\"search_hybrid\",status=\"200\"", "operation=\"delete_document\",status=\"204\""] {
        assert!(metrics.contains(counted), "{counted}");
    }
    client.cancel().await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_refused_as_the_operation_refuses() {
    let settings = [("SVC_MCP_TOOLS", "all")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let id = app.client.create_document(WaitQuery::default(), Json(document("Closed", "heron"))).await.unwrap().id;
    app.client.protect_document(DocumentPath { id }).await.unwrap();
    let (stranger, reader) = (someone(&app, "stranger").await, someone(&app, "reader").await);
    grant(&app, &reader, id, GrantRight::Read).await;
    for row in OPERATIONS.iter().filter(|row| row.tool.is_some()) {
        let rest = call(&app, "no token", row, id, &[]).header("x-request-id", "the-same").send().await.unwrap();
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": row.name, "arguments": given(row.name, id)}});
        let mcp = post(&app, "no token", &message).header("x-request-id", "the-same").send().await.unwrap();
        assert_eq!((mcp.status(), rest.status()), (StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED), "{}", row.name);
        assert_eq!(mcp.headers()["www-authenticate"], "Bearer");
        let (mcp, rest): (Value, Value) = (mcp.json().await.unwrap(), rest.json().await.unwrap());
        assert_eq!(lasting(mcp), lasting(rest), "{}", row.name);
        for who in [&stranger, &reader] {
            let rest = call(&app, &who.secret, row, id, &[]).send().await.unwrap();
            let (status, rest): (_, Value) = (rest.status(), rest.json().await.unwrap_or_default());
            let mcp = use_tool(&app, &who.secret, row.name, given(row.name, id)).await;
            assert_eq!(mcp["isError"], !status.is_success(), "{}: {mcp} and {status} {rest}", row.name);
            if !status.is_success() {
                assert_eq!(lasting(mcp["structuredContent"].clone()), lasting(rest), "{}", row.name);
            }
        }
    }
    for (who, closed) in [(&stranger, true), (&reader, false)] {
        let list = ask(&app, &who.secret, "resources/list", json!({})).await;
        assert_eq!(list["result"]["resources"].as_array().unwrap().is_empty(), closed, "{list}");
        for part in ["", "/subtree", "/evidence"] {
            let read =
                ask(&app, &who.secret, "resources/read", json!({"uri": format!("svc://documents/{id}{part}")})).await;
            assert_eq!(read["error"]["data"]["code"] == "not_found", closed, "{part}: {read}");
        }
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_has_the_limits_that_it_has_elsewhere() {
    let settings = [("SVC_RATE_READS", "1")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let who = someone(&app, "eager").await;
    let refused = until("a refusal", async || {
        let answer = use_tool(&app, &who.secret, "list_roots", json!({})).await;
        (answer["isError"] == true).then(|| answer["structuredContent"].clone())
    });
    let refused = refused.await;
    assert_eq!((&refused["code"], &refused["status"]), (&json!("too_many_requests"), &json!(429)));
    assert!(refused["retry_after"].is_u64());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_is_read_page_by_page_to_its_end() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let text: String = (0..20_000).map(|number| format!("{number} Graureiher \"stehen\"\n")).collect();
    let parent = app.client.create_document(WaitQuery::default(), Json(document("Long", &text))).await.unwrap().id;
    let mut children = Vec::new();
    for number in 0..30 {
        let new = NewDocument { parent_id: Some(parent), ..document(&format!("child {number}"), &"x".repeat(9_000)) };
        children.push(app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id);
    }
    let pages = async |name: &str, mut given: Value| {
        let mut pages = Vec::new();
        loop {
            let answer = use_tool(&app, TOKEN, name, given.clone()).await;
            assert_eq!(answer["isError"], false, "{answer}");
            assert!(answer["content"][0]["text"].as_str().unwrap().len() <= 64 * 1024);
            let page = answer["structuredContent"].clone();
            given["cursor"] = page["next_cursor"].clone();
            pages.push(page);
            if given["cursor"].is_null() {
                return pages;
            }
        }
    };
    let read = pages("read_document", json!({"id": parent})).await;
    assert!(read.len() > 5 && read.iter().all(|page| page["title"] == "Long" && page["id"] == parent));
    assert_eq!(read.iter().map(|page| page["content"].as_str().unwrap()).collect::<String>(), text);
    // The pages of the service itself are divided too.
    for (limit, at_least) in [(100, 5), (7, 5), (3, 10)] {
        let listed = pages("list_children", json!({"id": parent, "limit": limit})).await;
        let ids: Vec<_> = listed
            .iter()
            .flat_map(|page| page["documents"].as_array().unwrap())
            .map(|d| d["id"].as_i64().unwrap())
            .collect();
        assert!(ids == children && listed.len() >= at_least, "{limit}: {} pages of {ids:?}", listed.len());
    }
    let foreign = use_tool(&app, TOKEN, "read_document", json!({"id": parent, "cursor": "7.9"})).await;
    assert_eq!(foreign["structuredContent"]["field"], "cursor");

    // What is created is shown as far as there is room, and the rest is read.
    let created = use_tool(&app, TOKEN, "create_document", json!({"title": "Long too", "content": text})).await;
    assert!(created["content"][0]["text"].as_str().unwrap().len() <= 64 * 1024);
    let created = &created["structuredContent"];
    let (begun, cursor) = (created["content"].as_str().unwrap(), &created["next_cursor"]);
    assert!(created["title"] == "Long too" && begun.len() > 40 * 1024 && text.starts_with(begun), "{}", begun.len());
    let rest = pages("read_document", json!({"id": created["id"], "cursor": cursor})).await;
    let rest: String = rest.iter().map(|page| page["content"].as_str().unwrap()).collect();
    assert_eq!(format!("{begun}{rest}"), text);
    // Of a file that was worked on again and again, an upload tells of the latest attempts.
    let file = app.upload_bytes("a.md", "# A\n\nText.").await.unwrap().document_id;
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, param_fingerprint)
         SELECT $1, 1, 'probe', n, 'failed', 'retryable', 'away', repeat('x', 1000), 'w', now(), '' FROM generate_series(1, 500) n",
    )
    .bind(file)
    .execute(&app.pool)
    .await
    .unwrap();
    let again = json!({"filename": "a.md", "base64": "IyBBCgpUZXh0Lg=="});
    let again = use_tool(&app, TOKEN, "upload_file", again).await;
    assert!(again["content"][0]["text"].as_str().unwrap().len() <= 64 * 1024);
    let attempts = again["structuredContent"]["attempts"].as_array().unwrap();
    assert_eq!(again["structuredContent"]["document_id"], file);
    assert!(attempts.len() > 5 && attempts.last().unwrap()["attempt"] == 500, "{}", attempts.len());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_resources() {
    let app = TestApp::start().await;
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    for number in 0..150 {
        app.client.create_document(WaitQuery::default(), Json(document(&format!("root {number}"), ""))).await.unwrap();
    }
    let client = model(&app, TOKEN).await;
    assert!(client.peer_info().unwrap().capabilities.prompts.is_some());
    let resources = client.list_all_resources().await.unwrap();
    assert_eq!(resources.len(), 151);
    assert_eq!(resources.iter().map(|resource| &resource.uri).collect::<BTreeSet<_>>().len(), 151);
    let templates = client.list_all_resource_templates().await.unwrap();
    assert!(templates.iter().any(|template| template.uri_template == "svc://documents/{id}{?cursor}"));
    let read = async |uri: String| {
        let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
        let [ResourceContents::TextResourceContents { text, meta, .. }] = read.contents.as_slice() else {
            panic!("{read:?}")
        };
        let next = meta.as_ref().map(|meta| meta["svc/next"].as_str().unwrap().to_owned());
        (text.clone(), next)
    };
    let (markdown, next) = read(format!("svc://documents/{file}")).await;
    assert!(next.is_none() && markdown.starts_with("# handbook.md\n"), "{markdown:.200}");
    for node in app.subtree(file).await {
        assert!(markdown.contains(&node.content), "{} is not there", node.title);
    }
    let (subtree, _) = read(format!("svc://documents/{file}/subtree")).await;
    assert!(!serde_json::from_str::<Value>(&subtree).unwrap()["documents"].as_array().unwrap().is_empty());
    let (evidence, _) = read(format!("svc://documents/{file}/evidence")).await;
    assert_eq!(serde_json::from_str::<Value>(&evidence).unwrap()["document_id"], file);

    // Long words are few tokens, which is all that takes a model long.
    let text: String = (0..3_000).map(|number| format!("{number} {}\n", "x".repeat(120))).collect();
    let part = |number: usize| format!("{number:05} {} ", "y".repeat(113)).repeat(100);
    let long = app.create("Long", &text, None).await.id;
    for number in 0..12 {
        app.create(&format!("part {number}"), &part(number), Some(long)).await;
    }
    let (mut uri, mut whole, mut pages) = (format!("svc://documents/{long}"), String::new(), 0);
    loop {
        let (page, next) = read(uri).await;
        assert!(page.len() < 70 * 1024, "{}", page.len());
        pages += 1;
        let Some(next) = next else {
            whole += &page;
            break;
        };
        whole += page.strip_suffix(&format!("The text goes on in {next}\n")).unwrap();
        uri = next;
    }
    let positions: Vec<_> =
        (0..12).map(|number| whole.find(&format!("## part {number}\n\n{}", part(number))).unwrap()).collect();
    assert!(pages > 5 && whole.contains(&text) && positions.is_sorted(), "{pages} pages");
    client.cancel().await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_waits_tells_how_far_it_is_and_what_is_cancelled_goes_on() {
    let mut app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let client = model(&app, TOKEN).await;
    let given = json!({"filename": "notes.md", "base64": "IyBIZXJvbnMKClRoZXkgZWF0IGZpc2guCg==", "wait": true});
    let request = || {
        ClientRequest::CallToolRequest(CallToolRequest::new(
            CallToolRequestParams::new("upload_file").with_arguments(arguments(given.clone())),
        ))
    };
    let handle = client.send_cancellable_request(request(), PeerRequestOptions::no_options()).await.unwrap();
    let stored = until("the file", async || app.client.list_files(Default::default()).await.unwrap().files.pop()).await;
    handle.cancel(Some("enough".to_owned())).await.unwrap();
    assert_eq!(app.client.read_frontier(DocumentPath { id: stored.id }).await.unwrap().settled, Settled::InFlight);
    app.start_worker().await;
    assert_eq!(app.settled(stored.id).await.settled, Settled::Settled);

    let given = json!({"filename": "more.md", "base64": "IyBEdWNrcwoKVGhleSBlYXQgZ3Jhc3MuCg==", "wait": true});
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(
        CallToolRequestParams::new("upload_file").with_arguments(arguments(given)),
    ));
    let handle = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    let token = handle.progress_token.clone();
    let ServerResult::CallToolResult(answer) = handle.await_response().await.unwrap() else { panic!("another answer") };
    let answer = answer.structured_content.unwrap();
    assert_eq!((&answer["settled"], &answer["frontier"]["nodes_in_flight"]), (&json!("settled"), &json!(0)));
    let told: Vec<_> =
        client.service().told.lock().unwrap().iter().filter(|told| told.progress_token == token).cloned().collect();
    assert!(!told.is_empty() && told.windows(2).all(|two| two[0].progress < two[1].progress), "{told:?}");
    let last = told.last().unwrap();
    assert!(last.total.is_none() && last.message.as_ref().unwrap().contains("settled, 0 in flight"), "{last:?}");

    // So does an ingestion, which answers what it answers to those who do not want to know.
    let given = json!({"entry": "markdown", "content": "# Coots\n\nThey dive.\n\n# Rails\n\nThey hide.\n"});
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(
        CallToolRequestParams::new("ingest").with_arguments(arguments(given.clone())),
    ));
    let handle = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    let token = handle.progress_token.clone();
    let ServerResult::CallToolResult(answer) = handle.await_response().await.unwrap() else { panic!("another answer") };
    let mut answer = answer.structured_content.unwrap();
    let told: Vec<_> =
        client.service().told.lock().unwrap().iter().filter(|told| told.progress_token == token).cloned().collect();
    assert!(!told.is_empty() && told.windows(2).all(|two| two[0].progress < two[1].progress), "{told:?}");
    assert_eq!(told.last().unwrap().progress, answer["frontier"]["nodes_settled"].as_f64().unwrap());
    assert_eq!(answer["was_existing"], false);
    answer["was_existing"] = true.into();
    assert_eq!(use_tool(&app, TOKEN, "ingest", given).await["structuredContent"], answer);
    client.cancel().await.unwrap();
    app.end().await;
}

/// The cursor of a search goes into its body, and is longer than what a page shows of other pages.
#[tokio::test]
async fn a_search_is_read_page_by_page_to_its_end() {
    let app = TestApp::start().await;
    let mut all = BTreeSet::new();
    for number in 0..60 {
        all.insert(app.create(&format!("heron {number}"), &"The heron waits. ".repeat(200), None).await.id);
    }
    let mut given = json!({"query": "heron", "limit": 25, "group_by": "none", "include_content": true});
    let (mut found, mut pages) = (BTreeSet::new(), 0);
    loop {
        let answer = use_tool(&app, TOKEN, "search_hybrid", given.clone()).await;
        assert_eq!(answer["isError"], false, "{answer}");
        let page = &answer["structuredContent"];
        for result in page["results"].as_array().unwrap() {
            let id = result["id"].as_i64().unwrap();
            assert!(found.insert(id), "{id} comes twice");
        }
        pages += 1;
        given["cursor"] = page["next_cursor"].clone();
        if given["cursor"].is_null() {
            break;
        }
    }
    assert!(found == all && pages > 3, "{pages} pages, {} of {}", found.len(), all.len());
    app.end().await;
}

#[tokio::test]
async fn what_a_client_leaves_out_of_an_upload_may_be_null() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    // Nothing is fetched from there.
    let address = json!({"url": "http://127.0.0.1:9/a.pdf", "private": null, "priority": null, "base64": null});
    let refused = use_tool(&app, TOKEN, "upload_file", address).await;
    assert_eq!(refused["structuredContent"]["field"], "url", "{refused}");
    let urgent = json!({"url": "http://127.0.0.1:9/a.pdf", "priority": 5});
    let refused = use_tool(&app, TOKEN, "upload_file", urgent).await;
    assert_eq!(refused["structuredContent"]["field"], "priority", "{refused}");
    app.end().await;
}

/// Clients that keep all numbers as doubles write a whole one with a point.
#[tokio::test]
async fn a_whole_number_with_a_point_is_taken_wherever_a_tool_takes_one() {
    let app = TestApp::start().await;
    let parent = app.create("Herons", "All of them.", None).await.id;
    let children = [app.create("A", "One.", Some(parent)).await.id, app.create("B", "Two.", Some(parent)).await.id];
    let point = |number: i64| json!(number as f64);
    let read = use_tool(&app, TOKEN, "read_document", json!({"id": point(parent)})).await;
    assert_eq!(read["structuredContent"]["id"], parent, "{read}");
    let listed = use_tool(&app, TOKEN, "list_children", json!({"id": point(parent), "limit": point(1)})).await;
    let listed = listed["structuredContent"]["documents"].as_array().unwrap();
    assert_eq!(listed.iter().map(|child| &child["id"]).collect::<Vec<_>>(), [&json!(children[0])]);
    let facts = use_tool(&app, TOKEN, "list_facts", json!({"subject_id": point(parent)})).await;
    assert_eq!(facts["isError"], false, "{facts}");
    let half = use_tool(&app, TOKEN, "read_document", json!({"id": parent as f64 + 0.5})).await;
    assert_eq!((&half["isError"], &half["structuredContent"]["field"]), (&json!(true), &json!("id")), "{half}");
    app.end().await;
}
