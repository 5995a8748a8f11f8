//! A provider of batches in a test: it plays OpenAI's files and batches and Anthropic's message batches, as their public references describe them, and does
//! wrong what the test wants.
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// What the provider says of one request.
#[derive(Clone, Debug)]
pub enum Says {
    Text(String),
    /// A text whose end is cut off.
    Cut(String),
    /// What the model thinks, and no answer.
    Thought(String),
    /// What the provider says of the answer as a whole.
    Message(Value),
    /// A status, with the type and the message of the error.
    Error(u16, &'static str, &'static str),
    /// The batch ends before the request is answered.
    Expires,
    /// Nothing at all.
    Nothing,
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// The call is not heard, and its connection breaks.
    Lost,
    /// The call is done, and its answer breaks off.
    AnswerLost,
    /// The call is refused with this status.
    Refused(u16),
    /// The call is done, and its answer never comes.
    Held,
    /// The call is done, and its answer comes when the test lets it go.
    HeldUntilReleased,
    /// The call is held before anything is done.
    HeldBefore,
}

/// How a batch is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    Completed,
    Expired,
    Failed,
    /// It fails because the provider has as many tokens in hand as it takes.
    Limited,
}

type Answer = Box<dyn FnMut(&Asked) -> Says + Send>;
type Fates = Box<dyn FnMut(&str) -> Fate + Send>;
type Lines = Box<dyn FnMut(&mut Vec<String>) + Send>;

/// A request in a batch.
#[derive(Clone, Debug)]
pub struct Asked {
    pub custom_id: String,
    pub model: String,
    pub instructions: String,
    pub message: String,
    /// What the model is asked, in the provider's words.
    pub params: Value,
}

/// A batch that was submitted.
#[derive(Clone, Debug)]
pub struct Batch {
    pub id: String,
    pub requests: Vec<Asked>,
    pub key: Option<String>,
    pub bytes: usize,
    /// The file that it was made of.
    file: Option<String>,
    ends: Option<Ends>,
    cancelled: bool,
    created: i64,
    lines: Vec<String>,
}

/// A file that was uploaded.
#[derive(Clone, Debug)]
pub struct StoredFile {
    pub id: String,
    pub name: String,
    content: Bytes,
    created: i64,
}

struct Inner {
    files: Vec<StoredFile>,
    batches: Vec<Batch>,
    answer: Answer,
    fates: Fates,
    spoil: Lines,
    calls: Vec<String>,
    heads: Vec<HeaderMap>,
    ends_at_once: bool,
    next: usize,
}

/// The provider.
#[derive(Clone)]
pub struct BatchProvider {
    /// The address for --llm-url.
    pub base: String,
    inner: Arc<Mutex<Inner>>,
    called: Arc<Notify>,
    released: Arc<Notify>,
}

impl BatchProvider {
    pub async fn start() -> BatchProvider {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let inner = Inner {
            files: Vec::new(),
            batches: Vec::new(),
            answer: Box::new(|asked| Says::Text(format!("A summary for {}.", asked.custom_id))),
            fates: Box::new(|_| Fate::Answered),
            spoil: Box::new(|_| ()),
            calls: Vec::new(),
            heads: Vec::new(),
            ends_at_once: false,
            next: 0,
        };
        let provider = BatchProvider {
            base,
            inner: Arc::new(Mutex::new(inner)),
            called: Arc::default(),
            released: Arc::default(),
        };
        let router = axum::Router::new().fallback(handle).with_state(provider.clone());
        let router = router.layer(axum::extract::DefaultBodyLimit::disable());
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// What it says of the requests of batches that end from now on.
    pub fn will_say(&self, answer: impl FnMut(&Asked) -> Says + Send + 'static) {
        self.inner().answer = Box::new(answer);
    }

    /// What becomes of each call, by its method and path.
    pub fn will(&self, fates: impl FnMut(&str) -> Fate + Send + 'static) {
        self.inner().fates = Box::new(fates);
    }

    /// Changes the lines of results.
    pub fn spoils(&self, spoil: impl FnMut(&mut Vec<String>) + Send + 'static) {
        self.inner().spoil = Box::new(spoil);
    }

    /// Ends each batch as soon as it is there.
    pub fn ends_at_once(&self) {
        self.inner().ends_at_once = true;
    }

    /// Ends the batches that are not over.
    pub fn end(&self, ends: Ends) {
        self.end_those(ends, |_| true);
    }

    /// Ends one batch, if it is not over.
    pub fn end_one(&self, id: &str, ends: Ends) {
        self.end_those(ends, |batch| batch.id == id);
    }

    fn end_those(&self, ends: Ends, is_meant: impl Fn(&Batch) -> bool) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        for batch in inner.batches.iter_mut().filter(|batch| batch.ends.is_none() && is_meant(batch)) {
            batch.ends = Some(ends);
            batch.lines = lines(batch, &mut inner.answer);
            (inner.spoil)(&mut batch.lines);
        }
    }

    /// Lets a held answer go.
    pub fn release(&self) {
        self.released.notify_one();
    }

    pub fn batches(&self) -> Vec<Batch> {
        self.inner().batches.clone()
    }

    /// The uploaded files that nobody has deleted, oldest first.
    pub fn files(&self) -> Vec<StoredFile> {
        self.inner().files.clone()
    }

    /// Has files that somebody else uploaded.
    pub fn has_files(&self, names: &[&str]) {
        for name in names {
            let mut inner = self.inner();
            inner.next += 1;
            let id = format!("file-{}", inner.next);
            let created = chrono::Utc::now().timestamp();
            inner.files.push(StoredFile { id, name: (*name).to_owned(), content: Bytes::new(), created });
        }
    }

    /// The calls so far, by method and path.
    pub fn calls(&self) -> Vec<String> {
        self.inner().calls.clone()
    }

    /// The headers of the calls so far.
    pub fn heads(&self) -> Vec<HeaderMap> {
        self.inner().heads.clone()
    }

    /// Waits until a call whose method and path begin so has come.
    pub async fn called(&self, begins: &str) {
        loop {
            let called = self.called.notified();
            if self.inner().calls.iter().any(|call| call.starts_with(begins)) {
                return;
            }
            called.await;
        }
    }
}

/// The results of a batch in both wire forms, newest request first.
fn lines(batch: &Batch, answer: &mut Answer) -> Vec<String> {
    let is_anthropic = batch.id.starts_with("msgbatch");
    let mut lines = Vec::new();
    for asked in batch.requests.iter().rev() {
        let has_failed = matches!(batch.ends, Some(Ends::Failed | Ends::Limited));
        let says = if has_failed { Says::Nothing } else { answer(asked) };
        let says = if batch.cancelled { Says::Expires } else { says };
        let line = match (says, is_anthropic) {
            (Says::Nothing, _) => continue,
            (Says::Text(text), false) => openai(asked, 200, &chat(&text, "stop")),
            (Says::Cut(text), false) => openai(asked, 200, &chat(&text, "length")),
            (Says::Thought(text), false) => {
                let mut body = chat("", "stop");
                body["choices"][0]["message"]["reasoning_content"] = text.into();
                openai(asked, 200, &body)
            }
            (Says::Message(body), false) => openai(asked, 200, &body),
            (Says::Error(status, kind, message), false) => {
                openai(asked, status, &json!({"error": {"message": message, "type": kind, "code": null}}))
            }
            (Says::Expires, false) => {
                let code = if batch.cancelled { "batch_cancelled" } else { "batch_expired" };
                let error = json!({"code": code, "message": "This request could not be executed."});
                json!({"id": "r", "custom_id": asked.custom_id, "response": null, "error": error})
            }
            (Says::Text(text), true) => {
                anthropic(asked, json!({"type": "succeeded", "message": message(&text, "end_turn")}))
            }
            (Says::Cut(text), true) => {
                anthropic(asked, json!({"type": "succeeded", "message": message(&text, "max_tokens")}))
            }
            (Says::Thought(text), true) => {
                let mut said = message("", "end_turn");
                said["content"] = json!([{"type": "thinking", "thinking": text}]);
                anthropic(asked, json!({"type": "succeeded", "message": said}))
            }
            (Says::Message(said), true) => anthropic(asked, json!({"type": "succeeded", "message": said})),
            (Says::Error(_, kind, message), true) => anthropic(
                asked,
                json!({"type": "errored", "error": {"type": "error", "error": {"type": kind, "message": message}}}),
            ),
            (Says::Expires, true) => {
                anthropic(asked, json!({"type": if batch.cancelled { "canceled" } else { "expired" }}))
            }
        };
        lines.push(line.to_string());
    }
    lines
}

pub fn chat(text: &str, finish: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "batched-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 7, "total_tokens": 77},
    })
}

pub fn message(text: &str, stop: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "batched-model",
        "content": [{"type": "text", "text": text}], "stop_reason": stop, "usage": {"input_tokens": 70, "output_tokens": 7},
    })
}

fn openai(asked: &Asked, status: u16, body: &Value) -> Value {
    json!({"id": "r", "custom_id": asked.custom_id, "response": {"status_code": status, "request_id": "q", "body": body}, "error": null})
}

fn anthropic(asked: &Asked, result: Value) -> Value {
    json!({"custom_id": asked.custom_id, "result": result})
}

async fn handle(
    State(provider): State<BatchProvider>,
    method: Method,
    uri: Uri,
    head: HeaderMap,
    body: Bytes,
) -> Response {
    let call = format!("{method} {}", uri.path().trim_start_matches("/v1"));
    let fate = {
        let mut inner = provider.inner();
        inner.calls.push(call.clone());
        inner.heads.push(head.clone());
        (inner.fates)(&call)
    };
    provider.called.notify_waiters();
    match fate {
        Fate::Answered => provider.act(&call, &head, &uri, &body),
        Fate::Lost => broken(),
        Fate::AnswerLost => {
            provider.act(&call, &head, &uri, &body);
            broken()
        }
        Fate::Refused(status) => {
            let error = json!({"error": {"type": "some_error", "message": "not now"}}).to_string();
            (StatusCode::from_u16(status).unwrap(), error).into_response()
        }
        Fate::Held => {
            provider.act(&call, &head, &uri, &body);
            std::future::pending().await
        }
        Fate::HeldUntilReleased => {
            let answer = provider.act(&call, &head, &uri, &body);
            provider.released.notified().await;
            answer
        }
        Fate::HeldBefore => std::future::pending().await,
    }
}

/// An answer that breaks off in the middle.
fn broken() -> Response {
    let pieces =
        futures_util::stream::iter([Ok(Bytes::from_static(b"{\"id\": \"")), Err(std::io::Error::other("cut"))]);
    ([(header::CONTENT_LENGTH, "1000")], Body::from_stream(pieces)).into_response()
}

impl BatchProvider {
    fn act(&self, call: &str, head: &HeaderMap, uri: &Uri, body: &Bytes) -> Response {
        let answer = self.answer(call, head, uri, body);
        if self.inner().ends_at_once {
            self.end(Ends::Completed);
        }
        answer
    }

    fn answer(&self, call: &str, head: &HeaderMap, uri: &Uri, body: &Bytes) -> Response {
        let mut inner = self.inner();
        let parts: Vec<&str> = call.split(['/', ' ']).filter(|part| !part.is_empty()).collect();
        inner.next += 1;
        let number = inner.next;
        let created = chrono::Utc::now().timestamp();
        let value = match parts.as_slice() {
            ["POST", "files"] => {
                let id = format!("file-{number}");
                let (name, content) = part_of_form(head, body);
                inner.files.push(StoredFile { id: id.clone(), name, content, created });
                json!({"id": id, "object": "file", "purpose": "batch"})
            }
            ["GET", "files"] => {
                let query = uri.query().unwrap_or_default();
                assert!(query.contains("purpose=batch") && query.contains("order=desc"), "{query}");
                let after = query.split("after=").nth(1);
                let newest: Vec<&StoredFile> = inner.files.iter().rev().collect();
                let start = after.map_or(0, |after| newest.iter().position(|file| file.id == after).unwrap() + 1);
                let page: Vec<Value> = (newest.iter().skip(start).take(2))
                    .map(|file| json!({"id": file.id, "object": "file", "purpose": "batch", "filename": file.name, "created_at": file.created}))
                    .collect();
                json!({"object": "list", "has_more": start + page.len() < newest.len(), "data": page})
            }
            ["DELETE", "files", id] => {
                let before = inner.files.len();
                inner.files.retain(|file| file.id != *id);
                if inner.files.len() == before {
                    return not_found();
                }
                json!({"id": id, "object": "file", "deleted": true})
            }
            ["POST", "batches"] => {
                let asked: Value = serde_json::from_slice(body).unwrap();
                assert_eq!(
                    (&asked["endpoint"], &asked["completion_window"]),
                    (&json!("/v1/chat/completions"), &json!("24h"))
                );
                let file = inner.files.iter().find(|file| asked["input_file_id"] == *file.id).unwrap().content.clone();
                let requests = String::from_utf8(file.to_vec()).unwrap();
                let requests = requests.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                let requests = requests.map(|line| {
                    assert_eq!((&line["method"], &line["url"]), (&json!("POST"), &json!("/v1/chat/completions")));
                    asked_of(
                        &line,
                        &line["body"],
                        &line["body"]["messages"][0]["content"],
                        &line["body"]["messages"][1]["content"],
                    )
                });
                let batch = Batch {
                    id: format!("batch_{number}"),
                    requests: requests.collect(),
                    key: asked["metadata"]["svc_batch"].as_str().map(str::to_owned),
                    bytes: file.len(),
                    file: asked["input_file_id"].as_str().map(str::to_owned),
                    ends: None,
                    cancelled: false,
                    created,
                    lines: Vec::new(),
                };
                inner.batches.push(batch.clone());
                shown(&batch)
            }
            ["GET", "batches"] => {
                let after = uri.query().and_then(|query| query.split("after=").nth(1)).map(str::to_owned);
                let newest: Vec<&Batch> =
                    inner.batches.iter().rev().filter(|batch| batch.id.starts_with("batch_")).collect();
                let start = after.map_or(0, |after| newest.iter().position(|batch| batch.id == after).unwrap() + 1);
                // Small pages, so that a search goes through several.
                let page: Vec<Value> = newest.iter().skip(start).take(2).map(|batch| shown(batch)).collect();
                json!({"object": "list", "has_more": start + page.len() < newest.len(), "data": page})
            }
            ["GET", "batches", id] => match inner.batches.iter().find(|batch| batch.id == *id) {
                Some(batch) => shown(batch),
                None => return not_found(),
            },
            ["POST", "batches", id, "cancel"] => match cancel(&mut inner, id) {
                Some(batch) => shown(&batch),
                None => return not_found(),
            },
            ["GET", "files", id, "content"] => {
                let Some((kind, id)) = id.split_once("-of-") else { return not_found() };
                let batch = inner.batches.iter().find(|batch| batch.id == id).unwrap();
                let is_error = |line: &&String| !line.contains("\"status_code\":200");
                let lines: Vec<&String> =
                    batch.lines.iter().filter(|line| is_error(line) == (kind == "errors")).collect();
                return lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_response();
            }
            ["POST", "messages", "batches"] => {
                assert_eq!(head["anthropic-version"], "2023-06-01");
                let asked: Value = serde_json::from_slice(body).unwrap();
                let requests = asked["requests"].as_array().unwrap().iter().map(|line| {
                    let params = &line["params"];
                    assert!(params["max_tokens"].is_u64(), "{params}");
                    asked_of(line, params, &params["system"], &params["messages"][0]["content"])
                });
                let batch = Batch {
                    id: format!("msgbatch_{number}"),
                    requests: requests.collect(),
                    key: None,
                    bytes: body.len(),
                    file: None,
                    ends: None,
                    cancelled: false,
                    created,
                    lines: Vec::new(),
                };
                inner.batches.push(batch.clone());
                shown(&batch)
            }
            ["GET", "messages", "batches"] => {
                let all: Vec<Value> =
                    inner.batches.iter().rev().filter(|batch| batch.id.starts_with("msg")).map(shown).collect();
                json!({"data": all, "has_more": false})
            }
            ["GET", "messages", "batches", id] => match inner.batches.iter().find(|batch| batch.id == *id) {
                Some(batch) => shown(batch),
                None => return not_found(),
            },
            ["POST", "messages", "batches", id, "cancel"] => match cancel(&mut inner, id) {
                Some(batch) => shown(&batch),
                None => return not_found(),
            },
            ["GET", "messages", "batches", id, "results"] => {
                let batch = inner.batches.iter().find(|batch| batch.id == *id).unwrap();
                return batch.lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_response();
            }
            _ => return not_found(),
        };
        ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
    }
}

fn cancel(inner: &mut Inner, id: &str) -> Option<Batch> {
    let Inner { batches, answer, .. } = inner;
    let batch = batches.iter_mut().find(|batch| batch.id == id)?;
    if batch.ends.is_none() {
        batch.cancelled = true;
        batch.ends = Some(Ends::Completed);
        batch.lines = lines(batch, answer);
    }
    Some(batch.clone())
}

fn asked_of(line: &Value, params: &Value, instructions: &Value, message: &Value) -> Asked {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Asked {
        custom_id: text(&line["custom_id"]),
        model: text(&params["model"]),
        instructions: text(instructions),
        message: text(message),
        params: params.clone(),
    }
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, json!({"error": {"type": "not_found_error", "message": "no such thing"}}).to_string())
        .into_response()
}

/// A batch as its provider shows it.
fn shown(batch: &Batch) -> Value {
    let time = |at: i64| chrono::DateTime::from_timestamp(at, 0).unwrap().to_rfc3339();
    if batch.id.starts_with("msgbatch") {
        let count =
            |kind: &str| batch.lines.iter().filter(|line| line.contains(&format!("\"type\":\"{kind}\""))).count();
        return json!({
            "id": batch.id, "type": "message_batch", "processing_status": if batch.ends.is_some() { "ended" } else { "in_progress" },
            "request_counts": {"processing": 0, "succeeded": count("succeeded"), "errored": count("errored"), "canceled": count("canceled"), "expired": count("expired")},
            "created_at": time(batch.created), "expires_at": time(batch.created + 86_400), "results_url": "http://192.0.2.1/elsewhere",
        });
    }
    let status = match batch.ends {
        None => "in_progress",
        Some(_) if batch.cancelled => "cancelled",
        Some(Ends::Completed) => "completed",
        Some(Ends::Expired) => "expired",
        Some(Ends::Failed | Ends::Limited) => "failed",
    };
    let errors = match batch.ends {
        Some(Ends::Failed) => json!({"data": [{"code": "invalid", "message": "The file is not readable."}]}),
        Some(Ends::Limited) => {
            json!({"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached."}]})
        }
        _ => Value::Null,
    };
    let file = |kind: &str| batch.ends.map(|_| format!("{kind}-of-{}", batch.id));
    json!({
        "id": batch.id, "object": "batch", "status": status, "created_at": batch.created, "expires_at": batch.created + 86_400,
        "metadata": {"svc_batch": batch.key}, "input_file_id": batch.file, "output_file_id": file("output"),
        "error_file_id": file("errors"), "errors": errors,
    })
}

/// The name and the content of the file in a form.
fn part_of_form(head: &HeaderMap, body: &Bytes) -> (String, Bytes) {
    let media = head[header::CONTENT_TYPE].to_str().unwrap();
    let boundary = format!("--{}", media.split("boundary=").nth(1).unwrap());
    let text = std::str::from_utf8(body).unwrap();
    assert!(text.contains("name=\"purpose\"\r\n\r\nbatch\r\n"), "{text}");
    let file = text.split(&boundary).find(|part| part.contains("filename=")).unwrap();
    let (head, content) = file.split_once("\r\n\r\n").unwrap();
    let name = head.split("filename=\"").nth(1).unwrap().split('"').next().unwrap();
    (name.to_owned(), Bytes::copy_from_slice(content.strip_suffix("\r\n").unwrap().as_bytes()))
}
