//! What an operator does: each act is the call of an operation, and leads back to the page where it began.
use super::{
    Console,
    auth::{self, NOTICE, Viewer},
    layout, number, say, sign_in,
};
use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::HeaderMap;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{
    Code, Failure, Json,
    wire::{DeadChoice, DocumentPath, FailureChoice, TaskPath, TaskQuery, TaskStatus, TaskTypePath},
};

/// How many failed tasks under one document are queued again by one form.
const RETRIED: i64 = 1000;
/// How many failed tasks are read at a time.
const LISTED: u32 = 1000;
/// How long one form queues tasks again; the rest is left to the next.
const RETRY_TIME: Duration = Duration::from_secs(10);
/// The longest sentence that a page carries over from an act.
const LONGEST: usize = 600;

pub type Fields = HashMap<String, String>;

/// The fields of a form; what is no form has none.
pub fn fields(body: &Bytes) -> Fields {
    serde_html_form::from_bytes::<Vec<(String, String)>>(body).unwrap_or_default().into_iter().collect()
}

/// An address that somebody gave, if it is one of the console and none elsewhere.
pub fn own(given: Option<&String>) -> Option<&str> {
    let is_own = |given: &&str| {
        given.starts_with('/')
            && !given[1..].starts_with(['/', '\\'])
            && given.bytes().all(|byte| byte.is_ascii_graphic())
    };
    given.map(String::as_str).filter(is_own)
}

/// Where a form leads back to.
pub fn back(form: &Fields) -> &str {
    own(form.get("back")).unwrap_or("/")
}

/// Carries an act out to its end in a task of its own, because a browser hangs up when somebody goes to another page or sends the form twice.
pub async fn carry_out(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let act = console.service.requests.spawn(next.run(request));
    act.await.unwrap_or_else(|error| {
        tracing::error!(%error, "an act of the console was cut off");
        let detail = "this was not carried out to its end; the service's log says why";
        layout::bare_refusal(&Failure::new(Code::Internal, detail))
    })
}

/// A form that somebody who is signed in sends in order to act.
pub struct Act {
    console: Arc<Console>,
    viewer: Viewer,
    headers: HeaderMap,
    form: Fields,
}

impl FromRequest<Arc<Console>> for Act {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Act, Response> {
        let (mut parts, body) = request.into_parts();
        let viewer = Viewer::from_request_parts(&mut parts, console).await?;
        let headers = parts.headers.clone();
        let body = Bytes::from_request(Request::from_parts(parts, body), console).await;
        let form = fields(&body.map_err(IntoResponse::into_response)?);
        Ok(Act { console: Arc::clone(console), viewer, headers, form })
    }
}

impl Act {
    /// Checks the form, acts, and leads back with a sentence that says what came of it.
    async fn run(&self, act: impl AsyncFnOnce(&super::Calls) -> Result<String, Failure>) -> Response {
        if !self.viewer.owns_form(self.form.get("csrf")) {
            return sign_in::foreign();
        }
        let notice = match act(&self.console.calls(&self.viewer)).await {
            Ok(notice) => notice,
            Err(failure) => format!("Refused: {}", failure.detail),
        };
        self.console.acted();
        let notice: String = notice.chars().take(LONGEST).collect();
        sign_in::redirect(back(&self.form), auth::set_cookie(&self.headers, NOTICE, &layout::part(&notice), Some(30)))
    }
}

fn no_act() -> Failure {
    Failure::new(Code::NotFound, "there is no such act")
}

pub async fn on_task(Path((id, which)): Path<(String, String)>, act: Act) -> Response {
    act.run(async |calls: &super::Calls| {
        let path = TaskPath { id: number(&id)? };
        match which.as_str() {
            "retry" => calls.retry_task(path).await.map(|task| format!("Queued task {} again.", task.id)),
            "cancel" => calls.cancel_task(path).await.map(|task| match task.finished {
                true => format!("Cancelled task {}.", task.id),
                false => format!("Task {} will stop within 2 seconds.", task.id),
            }),
            _ => Err(no_act()),
        }
    })
    .await
}

pub async fn on_task_type(Path((task_type, which)): Path<(String, String)>, act: Act) -> Response {
    act.run(async |calls: &super::Calls| {
        let path = TaskTypePath { task_type };
        // A call in process is checked as one over the network is.
        match which.as_str() {
            "pause" => calls.pause_task_type(path).await.map(|state| format!("Paused {}.", state.task_type)),
            "resume" => calls.resume_task_type(path).await.map(|state| format!("Resumed {}.", state.task_type)),
            _ => Err(no_act()),
        }
    })
    .await
}

pub async fn on_document(Path((id, which)): Path<(String, String)>, act: Act) -> Response {
    act.run(async |calls: &super::Calls| {
        let id = number(&id)?;
        match which.as_str() {
            "cancel" => {
                let cancelled = calls.cancel_ingest(DocumentPath { id }).await?;
                let ended = say::many(cancelled.tasks_cancelled, "task");
                Ok(format!(
                    "Cancelled the ingestion: {ended} ended, {} stop within 2 seconds.",
                    say::count(cancelled.tasks_stopping)
                ))
            }
            "retry" => retry_under(calls, id).await,
            _ => Err(no_act()),
        }
    })
    .await
}

/// Queues the failed tasks at and under a document again: those of a file, of a part of it, or of the files in a folder.
async fn retry_under(calls: &super::Calls, id: i64) -> Result<String, Failure> {
    // A document that is gone has no failed tasks either.
    calls.read_evidence(DocumentPath { id }).await?;
    let (mut retried, mut cursor, begun) = (0, None, Instant::now());
    // The list also has what will be tried again by itself, in whatever number.
    let is_whole = 'pages: loop {
        let (status, under, limit) = (Some(TaskStatus::Failed), Some(id), Some(LISTED));
        let page = calls.list_tasks(TaskQuery { status, under, limit, cursor, ..TaskQuery::default() }).await?;
        for task in page.tasks.into_iter().filter(|task| task.finished) {
            if begun.elapsed() > RETRY_TIME || retried >= RETRIED {
                break 'pages false;
            }
            match calls.retry_task(TaskPath { id: task.id }).await {
                Ok(_) => retried += 1,
                // It went back with another task that it had failed with, or is gone since it was listed.
                Err(failure) if matches!(failure.code, Code::Conflict | Code::NotFound) => {}
                Err(failure) => return Err(failure),
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() || begun.elapsed() > RETRY_TIME {
            break cursor.is_none();
        }
    };
    Ok(match (retried, is_whole) {
        (0, true) => "Nothing has failed for good here.".to_owned(),
        (0, false) => "So much is tried again by itself here that nothing else was found in time.".to_owned(),
        (retried, true) => format!("Queued {} again.", say::many(retried, "task")),
        (retried, false) => format!("Queued {} again; there are more.", say::many(retried, "task")),
    })
}

pub async fn retry_group(act: Act) -> Response {
    act.run(async |calls: &super::Calls| {
        let field = |name: &str| act.form.get(name).cloned().unwrap_or_default();
        let error_type =
            field("error_type").parse().map_err(|error| Failure::field("error_type", format!("{error}")))?;
        let code = act.form.get("code").cloned();
        let minutes = act.form.get("minutes").map(|minutes| minutes.parse()).transpose();
        let minutes = minutes.map_err(|error| Failure::field("minutes", format!("{error}")))?;
        let choice = FailureChoice { task_type: field("task_type"), error_type, code, minutes };
        let done = calls.retry_failures(Json(choice)).await?;
        Ok(match done.left {
            0 => format!("Queued {} again.", say::many(done.retried, "task")),
            left => format!(
                "Queued {} again; {} more have failed in the same way.",
                say::many(done.retried, "task"),
                say::count(left)
            ),
        })
    })
    .await
}

pub async fn on_dead(Path(which): Path<String>, act: Act) -> Response {
    act.run(async |calls: &super::Calls| {
        let field = |name: &str| act.form.get(name).cloned();
        let choice = DeadChoice {
            message_id: field("message_id"),
            code: field("code"),
            sha256: field("sha256"),
            all: field("all").is_some(),
        };
        let (done, did, more) = match which.as_str() {
            "replay" => (calls.replay_dead(Json(choice)).await?, "Sent", " once more"),
            "drop" => (calls.drop_dead(Json(choice)).await?, "Dropped", ""),
            _ => return Err(no_act()),
        };
        let mut said = match (done.taken, done.refused) {
            (0, 0) => "No such message lies there any more.".to_owned(),
            (taken, _) => format!("{did} {}{more}.", say::many(taken, "message")),
        };
        if done.refused > 0 {
            said += &format!(" {} stay, because the broker refused.", say::count(done.refused));
        }
        if done.more {
            said += " There may be more.";
        }
        Ok(said)
    })
    .await
}
