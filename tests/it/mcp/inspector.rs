//! The MCP inspector, a client of other people, by its command line: over HTTP and over standard input and output.
use super::stdio;
use crate::support::{TOKEN, TestApp, missing, repository, server, settings};
use base64::Engine as _;
use serde_json::{Value, json};
use std::{ffi::OsString, process::Command};
use svc_client::{Json, wire::WaitQuery};

/// Runs the inspector on a server, the program of which comes at last, and returns what it printed and its exit code; `None` if it is not on this machine.
async fn inspect((target, behind): &(Vec<OsString>, Vec<OsString>), call: &[&str]) -> Option<(Value, i32)> {
    let program = settings(&[]).cache_dir.join("inspector/node_modules/.bin/mcp-inspector");
    if !program.exists() {
        return None;
    }
    let home = tempfile::tempdir_in(server::work_dir()).unwrap();
    let mut command = Command::new("node");
    command
        .arg(program)
        .arg("--cli")
        .args(target)
        .args(call)
        .args(behind)
        .env("HOME", home.path())
        .env("NO_PROXY", "127.0.0.1");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().ok()?;
    let (printed, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let printed = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed} {complaint}"));
    Some((printed, output.status.code().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_other_people_lists_calls_and_reads() {
    let app = TestApp::start().await;
    let id = app.create("Heron", "It eats fish.", None).await.id;
    let template = json!({"title": "Ask", "content": "What of {{ bird }}?", "variables": {"bird": {"type": "string"}}});
    let template = serde_json::from_value(template).unwrap();
    let template = app.client.create_template(WaitQuery::default(), Json(template)).await.unwrap().id;
    let text = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let over_http = text(&[
        &format!("{}/mcp", app.base),
        "--transport",
        "http",
        "--header",
        &format!("Authorization: Bearer {TOKEN}"),
    ]);
    let over_pipes =
        text(&["--transport", "stdio", "-e", &format!("SVC_URL={}", app.base), "-e", &format!("SVC_TOKEN={TOKEN}")]);
    let program = stdio::command(&app, TOKEN);
    let own = ["--".as_ref(), program.get_program(), "mcp".as_ref(), "--config".as_ref(), "/dev/null".as_ref()]
        .map(OsString::from);
    for target in [(over_http, Vec::new()), (over_pipes, own.to_vec())] {
        let Some((listed, code)) = inspect(&target, &["--method", "tools/list", "--strict"]).await else {
            missing("the MCP inspector as a client (config/setup.sh inspector needs node and npm)");
            break;
        };
        // With --strict, the code says whether a schema keeps clients from using a tool.
        assert_eq!((code, listed["tools"].as_array().unwrap().len()), (0, 19), "{target:?}");
        let (id_given, uri) = (format!("id={id}"), format!("svc://documents/{id}"));
        let call = ["--method", "tools/call", "--tool-name", "read_document", "--tool-arg", &id_given];
        let (answer, code) = inspect(&target, &call).await.unwrap();
        assert_eq!((code, &answer["structuredContent"]["content"]), (0, &json!("It eats fish.")));
        let call = ["--method", "tools/call", "--tool-name", "read_document", "--tool-arg", "id=999"];
        let (answer, code) = inspect(&target, &call).await.unwrap();
        assert_eq!((code, &answer["structuredContent"]["code"]), (5, &json!("not_found")), "{answer}");
        let call = ["--method", "tools/call", "--tool-name", "search_auto", "--tool-arg", "query=what does it eat"];
        let (answer, code) = inspect(&target, &call).await.unwrap();
        assert_eq!((code, answer["isError"].as_bool().unwrap_or_default()), (0, false), "{answer}");
        assert!(answer["structuredContent"].to_string().contains("It eats fish."), "{answer}");
        let (listed, _) = inspect(&target, &["--method", "prompts/list"]).await.unwrap();
        let name = format!("template-{template}");
        assert_eq!(listed["prompts"][0]["name"], name, "{listed}");
        let call = ["--method", "prompts/get", "--prompt-name", &name, "--prompt-args", "bird=herons"];
        let (prompt, code) = inspect(&target, &call).await.unwrap();
        assert_eq!((code, &prompt["messages"][0]["content"]["text"]), (0, &json!("What of herons?")), "{prompt}");
        let (listed, _) = inspect(&target, &["--method", "resources/list"]).await.unwrap();
        let uris: Vec<&Value> = listed["resources"].as_array().unwrap().iter().map(|one| &one["uri"]).collect();
        assert!(uris.contains(&&json!(uri)), "{uris:?}");
        let (read, _) = inspect(&target, &["--method", "resources/read", "--uri", &uri]).await.unwrap();
        assert_eq!(read["contents"][0]["text"], "# Heron\n\nIt eats fish.\n\n");
    }
    app.end().await;
}

/// Calls a tool with the inspector's client, and returns what it was told meanwhile and the answer; `None` if it is not on this machine.
async fn follow(kind: &str, target: &str, tool: &str, given: &Value) -> Option<(Vec<Value>, Value)> {
    let packages = settings(&[]).cache_dir.join("inspector");
    if !packages.join("node_modules/@modelcontextprotocol/client").exists() {
        return None;
    }
    let mut command = Command::new("node");
    command.arg(repository().join("tests/it/mcp/progress.cjs")).arg(packages).args([
        kind,
        target,
        tool,
        &given.to_string(),
    ]);
    command.env("SVC_TOKEN", TOKEN).env("NO_PROXY", "127.0.0.1");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().ok()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let mut printed: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaint}"));
    let told = printed["told"].as_array().unwrap().clone();
    Some((told, printed["answer"].take()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_other_people_is_told_how_far_an_ingestion_is() {
    let app = TestApp::start().await;
    // The one client asks over HTTP, the other starts a program that asks the service.
    let program = stdio::command(&app, TOKEN);
    let url = format!("SVC_URL={}", app.base);
    let program = json!(["env", url, program.get_program().to_str().unwrap(), "mcp", "--config", "/dev/null"]);
    for (kind, target) in [("http", format!("{}/mcp", app.base)), ("stdio", program.to_string())] {
        let text = format!("# Herons of {kind}\n\nThey eat fish.\n\n# Ducks\n\nThey eat grass.\n");
        let ingest = json!({"entry": "markdown", "content": text});
        let bytes = base64::engine::general_purpose::STANDARD.encode(format!("# Coots of {kind}\n\nThey dive.\n"));
        let upload = json!({"filename": format!("{kind}.md"), "base64": bytes, "wait": true, "private": true});
        for (tool, given) in [("ingest", ingest), ("upload_file", upload)] {
            let Some((told, answer)) = follow(kind, &target, tool, &given).await else {
                missing("the progress that a client of others is told (config/setup.sh inspector needs node and npm)");
                return app.end().await;
            };
            let answer = &answer["structuredContent"];
            let frontier = &answer["frontier"];
            assert_eq!(
                (&frontier["settled"], &frontier["nodes_in_flight"]),
                (&"settled".into(), &0.into()),
                "{answer}"
            );
            let progress: Vec<f64> = told.iter().map(|told| told["progress"].as_f64().unwrap()).collect();
            assert!(
                !progress.is_empty() && progress.windows(2).all(|two| two[0] < two[1]),
                "{tool} over {kind}: {told:?}"
            );
            let last = told.last().unwrap();
            assert!(last["message"].as_str().unwrap().contains(" settled, ") && last.get("total").is_none(), "{last}");
            // This client drops what it is told in the moment of the answer, which follows the last news of an upload at once.
            let settled = frontier["nodes_settled"].as_f64().unwrap();
            let is_whole = last["progress"].as_f64() == Some(settled);
            assert!(is_whole || (tool == "upload_file" && last["progress"].as_f64() < Some(settled)), "{last}");
        }
    }
    app.end().await;
}
