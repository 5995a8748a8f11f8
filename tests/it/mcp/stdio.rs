//! `svc mcp`: the protocol over standard input and output of a real process.
use crate::{
    crash::Process,
    support::{TOKEN, TestApp, Wish, document},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
};
use svc_client::{Json, wire::WaitQuery};

/// The command of a server for one client.
pub fn command(app: &TestApp, token: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(["mcp", "--config", "/dev/null"])
        .env("SVC_URL", &app.base)
        .env("SVC_TOKEN", token)
        .env_remove("SVC_API_TOKEN");
    command.env("SVC_LOG_LEVEL", "trace").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Sends the messages line by line, and returns the answers, in the order of their ids, and the log.
async fn talk(command: Command, messages: Vec<Value>) -> (Vec<Value>, String) {
    let awaited = messages.iter().filter(|message| message.get("id").is_some()).count();
    say(command, messages.iter().map(|message| message.to_string().into_bytes()).collect(), awaited).await
}

/// Sends lines, and returns so many answers, in the order of their ids, and the log.
async fn say(mut command: Command, lines: Vec<Vec<u8>>, awaited: usize) -> (Vec<Value>, String) {
    let work = move || {
        let mut process = Process(command.spawn().unwrap());
        let (mut to, from) = (process.0.stdin.take().unwrap(), process.0.stdout.take().unwrap());
        let mut log = process.0.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            log.read_to_string(&mut text).map(|_| text).unwrap()
        });
        for line in lines {
            to.write_all(&[&line[..], b"\n"].concat()).unwrap();
        }
        let lines = BufReader::new(from).lines().take(awaited);
        let mut answers: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        answers.sort_by_key(|answer| answer["id"].as_i64());
        drop(to);
        assert!(process.0.wait().unwrap().success());
        (answers, log.join().unwrap())
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn messages(calls: &[(&str, Value)]) -> Vec<Value> {
    let begin =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let mut all = vec![
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ];
    all.extend(
        calls
            .iter()
            .zip(1..)
            .map(|((method, params), id)| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})),
    );
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_speaks_to_a_program_that_calls_the_service() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id =
        app.client.create_document(WaitQuery::default(), Json(document("Heron", "It eats fish."))).await.unwrap().id;
    let calls = [
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "read_document", "arguments": {"id": id}})),
        ("resources/read", json!({"uri": format!("svc://documents/{id}")})),
        ("tools/call", json!({"name": "delete_document", "arguments": {"id": id}})),
    ];
    let (answers, log) = talk(command(&app, TOKEN), messages(&calls)).await;
    assert_eq!(answers[0]["result"]["serverInfo"]["name"], "svc");
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
    assert!(answers[1]["result"]["tools"].as_array().unwrap().len() > 10);
    assert_eq!(answers[2]["result"]["structuredContent"]["content"], "It eats fish.");
    assert_eq!(answers[3]["result"]["contents"][0]["text"], "# Heron\n\nIt eats fish.\n\n");
    assert_eq!(answers[4]["error"]["code"], -32602, "deleting is not offered unless asked for: {}", answers[4]);
    assert!(!log.contains(TOKEN), "{log}");

    let (answers, _) = talk(command(&app, "wrong"), messages(&calls[1..2])).await;
    let refused = &answers[1]["result"];
    assert_eq!((&refused["isError"], &refused["structuredContent"]["code"]), (&json!(true), &json!("unauthenticated")));
    let (answers, log) = talk(command(&app, TOKEN), Vec::new()).await;
    assert!(answers.is_empty() && !log.contains("panicked"), "{log}");

    let mut blank = command(&app, TOKEN);
    let output = tokio::task::spawn_blocking(move || blank.env("SVC_MCP_TOOLS", "").output().unwrap()).await.unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("SVC_MCP_TOOLS"));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_message_is_answered_and_ends_nothing() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let ping = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string().into_bytes();
    let begin = messages(&[]).into_iter().map(|message| message.to_string().into_bytes());
    // Also before anybody has begun to speak.
    let no_json = [b"not json".to_vec(), b"{\"jsonrpc\": ".to_vec(), b"\xff\xfe".to_vec()];
    let long = [&b" ".repeat(70_000)[..], &ping(json!(9))].concat();
    let no_request = [b"[]".to_vec(), ping(json!(1.5)), b"7".to_vec(), long];
    let older = json!({"jsonrpc": "1.0", "id": 5, "method": "ping"}).to_string().into_bytes();
    let mut lines = no_json.to_vec();
    lines.extend(begin);
    for (bad, id) in no_json.iter().chain(&no_request).zip(100..) {
        lines.push(bad.clone());
        lines.push(ping(json!(id)));
    }
    lines.push(older);
    let bad = no_json.len() * 2 + no_request.len();
    let pings = no_json.len() + no_request.len();
    let mut command = command(&app, TOKEN);
    command.env("SVC_MAX_BODY_BYTES", "65536");
    let (answers, log) = say(command, lines, bad + pings + 2).await;
    let of = |id: &Value, code: i64| {
        answers.iter().filter(|answer| answer["id"] == *id && answer["error"]["code"] == code).count()
    };
    assert_eq!(of(&Value::Null, -32700), no_json.len() * 2, "{answers:?}");
    assert_eq!(of(&Value::Null, -32600), no_request.len(), "{answers:?}");
    assert_eq!(of(&json!(5), -32600), 1, "{answers:?}");
    let pinged = answers.iter().filter(|answer| answer["result"].is_object() && answer["id"].as_i64() >= Some(100));
    assert_eq!(pinged.count(), pings, "{answers:?}");
    assert!(!log.contains("panicked"), "{log}");
    app.end().await;
}
