//! What a bad client, or a page that has no business here, sends to /mcp.
use super::{ask, post, use_tool};
use crate::support::{TOKEN, TestApp, Wish, document, http, until};
use futures_util::StreamExt;
use serde_json::{Value, json};
use svc_client::{
    Json,
    wire::{DocumentPath, PageQuery, WaitQuery},
};

async fn idle(settings: &[(&str, &str)]) -> TestApp {
    TestApp::with(Wish { settings, no_worker: true, ..Wish::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_is_an_error_of_the_protocol_and_what_the_service_refuses_is_a_result() {
    let app = idle(&[]).await;
    let raw = |body: String| post(&app, TOKEN, &json!(null)).body(body).send();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"name": "read_document", "arguments": {arguments}}}}}"#
        )
    };
    for (body, status, code) in [
        (String::new(), 400, -32700),
        ("{".to_owned(), 400, -32700),
        ("\u{0}".to_owned(), 400, -32700),
        ("7".to_owned(), 400, -32600),
        ("[]".to_owned(), 400, -32600),
        (r#"{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}"#.to_owned(), 400, -32600),
        (call(&deep), 400, -32600),
        (call("7"), 200, -32602),
        (call("[7]"), 200, -32602),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 7}}"#.to_owned(), 200, -32602),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "drop_tables"}}"#.to_owned(),
            200,
            -32602,
        ),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "x"}}"#.to_owned(), 200, -32602),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "nothing/there"}"#.to_owned(), 200, -32601),
    ] {
        let shown: String = body.chars().take(120).collect();
        let answer = raw(body).await.unwrap();
        assert_eq!(answer.status(), status, "{shown}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
    }
    let id = app.client.create_document(WaitQuery::default(), Json(document("t", "c"))).await.unwrap().id;
    let huge = "x".repeat(100_000);
    for (name, arguments, code) in [
        ("read_document", json!({}), "invalid_field"),
        ("read_document", json!({"id": "seven"}), "invalid_field"),
        ("read_document", json!({"id": {"a": [id]}}), "invalid_field"),
        ("read_document", json!({"id": format!("{id}/../../admin/tasks")}), "invalid_field"),
        ("read_document", json!({"id": id, "colour": 1}), "invalid_field"),
        ("read_document", json!({"id": id, "cursor": 7}), "invalid_field"),
        ("read_document", json!({"id": id, "cursor": format!("~{huge}")}), "invalid_field"),
        ("list_roots", json!({"limit": 0}), "invalid_field"),
        ("list_roots", json!({"cursor": huge}), "invalid_field"),
        ("list_children", json!({"id": 999}), "not_found"),
        ("search_hybrid", json!({"query": ["a"]}), "invalid_field"),
        ("search_hybrid", json!({"query": "a", "limit": 1e300}), "invalid_field"),
        ("create_document", json!({"title": "t", "content": "c", "parent_id": 999}), "not_found"),
        ("create_document", json!({"title": huge, "content": "c"}), "invalid_field"),
        ("ingest", json!({"entry": "raw", "content": "x", "pipeline_config": {}}), "unknown_option"),
        ("upload_file", json!({"filename": "x"}), "invalid_field"),
        ("upload_file", json!({"filename": "x", "base64": "!"}), "invalid_field"),
        ("upload_file", json!({"filename": "a\u{0}b", "base64": "eA=="}), "invalid_field"),
        ("upload_file", json!({"base64": "eA=="}), "invalid_field"),
        ("upload_file", json!({"filename": "x", "base64": "eA==", "url": "http://127.0.0.1/"}), "invalid_field"),
        ("upload_file", json!({"filename": "x", "base64": "eA==", "wait": "yes"}), "invalid_field"),
        ("upload_file", json!({"filename": "x", "base64": "eA==", "options": 7}), "invalid_field"),
        ("upload_file", json!({"url": "file:///etc/passwd"}), "invalid_field"),
    ] {
        let answer = use_tool(&app, TOKEN, name, arguments.clone()).await;
        let problem = &answer["structuredContent"];
        let shown: String = arguments.to_string().chars().take(120).collect();
        assert_eq!((&answer["isError"], &problem["code"]), (&json!(true), &json!(code)), "{name} {shown}: {problem}");
        assert_eq!(serde_json::from_str::<Value>(answer["content"][0]["text"].as_str().unwrap()).unwrap(), *problem);
    }
    for uri in [
        "",
        "svc://documents/",
        "svc://documents/x",
        "svc://documents/1/../2",
        "file:///etc/passwd",
        "svc://documents/1?x=1",
        "svc://documents/1?cursor=%ff",
        "svc://documents/1?cursor=é",
        "svc://documents/9",
    ] {
        let answer = ask(&app, TOKEN, "resources/read", json!({"uri": uri})).await;
        assert_eq!(answer["error"]["code"], -32002, "{uri}: {answer}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_may_be_as_large_as_elsewhere_and_no_larger() {
    let app = idle(&[("SVC_MAX_BODY_BYTES", "1 MiB")]).await;
    let message = |length: usize| {
        let arguments = json!({"title": "t", "content": "x".repeat(length)});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "create_document", "arguments": arguments}})
    };
    let answer = post(&app, TOKEN, &message(1 << 20)).send().await.unwrap();
    assert_eq!(answer.status(), 413);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["setting"], "SVC_MAX_BODY_BYTES");
    let answer: Value = post(&app, TOKEN, &message(1_000_000)).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["result"]["isError"], false);
    // A body whose length nobody announces is counted as it comes.
    let pieces = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 64 * 1024])).take(64);
    let answer = post(&app, TOKEN, &json!(null)).body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
    assert_eq!(answer.status(), 413);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_own_names_and_known_pages_are_answered() {
    let app = idle(&[("SVC_PUBLIC_HOSTS", "docs.example.org"), ("SVC_CORS_ORIGINS", "https://app.example.org")]).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for (header, value, status) in [
        ("host", "docs.example.org", 200),
        ("host", "localhost:8000", 200),
        ("host", "evil.example", 403),
        ("origin", "https://app.example.org", 200),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("content-type", "text/plain", 415),
        ("content-encoding", "gzip", 415),
        ("content-encoding", "identity", 200),
        ("accept", "application/json", 200),
        ("mcp-protocol-version", "1999-01-01", 400),
    ] {
        let mut request = post(&app, TOKEN, &list).build().unwrap();
        request.headers_mut().insert(header, value.parse().unwrap());
        let answer = http().execute(request).await.unwrap();
        assert_eq!(answer.status(), status, "{header}: {value}");
        assert!(
            answer.headers().contains_key("x-request-id") && answer.headers().contains_key("x-content-type-options")
        );
    }
    for method in ["GET", "DELETE", "PUT"] {
        assert_eq!(app.raw(method, "/mcp").send().await.unwrap().status(), 405, "{method}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_tools_has_no_door_and_one_that_only_reads_changes_nothing() {
    let app = idle(&[("SVC_MCP_TOOLS", "")]).await;
    assert_eq!(app.raw("POST", "/mcp").send().await.unwrap().status(), 404);
    app.end().await;
    let app = idle(&[("SVC_MCP_TOOLS", "read")]).await;
    let params = json!({"name": "create_document", "arguments": {"title": "t", "content": "c"}});
    assert_eq!(ask(&app, TOKEN, "tools/call", params).await["error"]["code"], -32602);
    assert!(app.client.list_roots(Default::default()).await.unwrap().documents.is_empty());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_leaves_its_place_to_others_and_the_ingestion_alone() {
    let mut app = idle(&[("SVC_EVENT_STREAMS", "1")]).await;
    let message = |bytes: &str| {
        let arguments = json!({"filename": "x.md", "base64": bytes, "wait": true});
        let params = json!({"name": "upload_file", "arguments": arguments, "_meta": {"progressToken": 7}});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    };
    let answer = post(&app, TOKEN, &message("IyBIZXJvbnMK")).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut news = answer.bytes_stream();
    let first = String::from_utf8(news.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(first.contains("notifications/progress"), "{first}");
    let second = post(&app, TOKEN, &message("IyBEdWNrcwo=")).send().await.unwrap().text().await.unwrap();
    assert!(second.contains("SVC_EVENT_STREAMS"), "{second}");
    drop(news);
    until("the place of the client that has gone", async || {
        let mut answer = post(&app, TOKEN, &message("IyBHZWVzZQo=")).send().await.unwrap();
        let first = answer.chunk().await.unwrap()?;
        String::from_utf8_lossy(&first).contains("notifications/progress").then_some(())
    })
    .await;
    app.start_worker().await;
    for file in app.client.list_files(Default::default()).await.unwrap().files {
        assert!(app.settled(file.id).await.is_at_rest());
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_follow_an_ingestion_is_told_where_the_file_is() {
    let app = idle(&[("SVC_EVENT_STREAMS", "1")]).await;
    let first = app.upload_bytes("heron.md", "# The heron\n\nIt waits.").await.unwrap().document_id;
    let mut held = app.client.follow_frontier(DocumentPath { id: first }).await.unwrap();
    assert!(held.next().await.is_some());
    let file = json!({"filename": "coot.md", "base64": "IyBUaGUgY29vdA==", "wait": true});
    let refused = use_tool(&app, TOKEN, "upload_file", file).await;
    assert_eq!(refused["isError"], true, "{refused}");
    let problem = &refused["structuredContent"];
    let stored = app.client.list_roots(PageQuery::default()).await.unwrap().documents;
    let stored = stored.iter().find(|document| document.title == "coot.md").unwrap().id;
    assert_eq!(problem["code"], "too_many_requests", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains(&format!("stored as document {stored},")), "{problem}");
    drop(held);
    app.end().await;
}
