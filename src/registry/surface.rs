//! What every answer shows to the outside, whether or not it is of an operation: its id, its headers, its line in the
//! log.
use super::{RATE_LIMIT, RATE_LIMIT_POLICY, problem, request_id};
use crate::{
    admission::rates::Standing,
    otlp::{self, Attribute},
    telemetry,
};
use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, HeaderValue, header};
use std::time::Duration;
use svc_client::{Access, Code, Failure, OperationInfo};

/// The longest id that is accepted from a caller.
const ID_BYTES: usize = 128;
/// A poll that takes longer is logged.
const SLOW: Duration = Duration::from_secs(1);
/// The name, in log and metrics, for what reaches no operation.
const NO_OPERATION: &str = "none";

/// The id that a caller, or a proxy before the service, gave the request; `None` if it is not in a form that is safe to
/// log.
pub(super) fn given_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get("x-request-id")?.to_str().ok()?;
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    (plain && (1..=ID_BYTES).contains(&id.len())).then_some(id)
}

/// Refuses a request that reaches no operation.
pub fn refusal<B>(failure: Failure, request: &http::Request<B>) -> Response {
    let (id, path, status) = (request_id(request.headers()), request.uri().path(), failure.status);
    metrics::counter!(telemetry::REQUESTS, "operation" => NO_OPERATION, "status" => status.to_string()).increment(1);
    tracing::info!(request.id = %id, method = %request.method(), path, status, "refused");
    let mut response = problem(failure, path, &id);
    harden(response.headers_mut());
    response
}

pub(super) async fn nothing_there(request: Request) -> Response {
    let detail = format!("there is nothing at {}; /openapi.json lists every operation", request.uri().path());
    refusal(Failure::new(Code::NotFound, detail), &request)
}

pub(super) async fn wrong_method(request: Request) -> Response {
    let detail = format!("{} does not take {}", request.uri().path(), request.method());
    refusal(Failure::new(Code::MethodNotAllowed, detail), &request)
}

/// Sends a browser that opens the address to the documentation.
pub(super) async fn front_door() -> Redirect {
    Redirect::temporary("/docs/")
}

/// Adds the headers that keep a browser from misinterpreting an answer, or from showing it in somebody's frame.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await.into_response();
    harden(response.headers_mut());
    response
}

/// Adds the headers that say what the caller has left of its requests.
pub(super) fn rate(response: &mut Response, standing: &Standing) {
    for (name, value) in [(RATE_LIMIT_POLICY, standing.policy()), (RATE_LIMIT, standing.limit())] {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
}

fn harden(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static("frame-ancestors 'none'"));
}

/// Logs an answered request. A poll that was answered quickly and successfully is only logged at debug, because the log
/// would otherwise hold little else.
pub(super) fn log(info: &OperationInfo, path: &str, status: u16, elapsed: Duration) {
    let elapsed_ms = elapsed.as_secs_f64() * 1e3;
    if is_poll(info) && status < 400 && elapsed < SLOW {
        tracing::debug!(method = %info.method, path, status, elapsed_ms, "answered");
    } else {
        tracing::info!(method = %info.method, path, status, elapsed_ms, "answered");
    }
}

/// The trace of a request. A poll begins none, because the traces would otherwise hold little else.
pub(super) fn trace(info: &OperationInfo, headers: &HeaderMap, id: &str) -> otlp::Span {
    if is_poll(info) && !headers.contains_key(&otlp::HEADERS[0]) {
        return otlp::Span::none();
    }
    otlp::Span::of_request(info.name, headers, || {
        vec![
            Attribute::new("http.request.method", info.method.as_str().to_owned()),
            Attribute::new("http.route", info.path),
            Attribute::new("request.id", id.to_owned()),
        ]
    })
}

/// Ends the trace of a request, whose answer may still be sent.
pub(super) fn end_trace(trace: &otlp::Span, response: &Response) {
    let status = response.status();
    // What a caller did wrong is no fault of the service.
    let fault = status.is_server_error().then(|| status.as_str());
    trace.end([Attribute::new("http.response.status_code", i64::from(status.as_u16()))], fault);
}

/// Whether programs call it again and again.
fn is_poll(info: &OperationInfo) -> bool {
    let watched = matches!(info.access, Access::Public | Access::Metrics) || info.path.starts_with("/admin/");
    info.method == http::Method::GET && (watched || info.path.ends_with("/frontier"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_client::OPERATIONS;

    #[test]
    fn only_an_id_that_a_log_can_hold_is_taken_over() {
        let given = |id: &str| {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static("x-request-id"),
                HeaderValue::from_str(id).expect("a value"),
            )]);
            given_id(&headers).map(str::to_owned)
        };
        for plain in ["a", "1f0c:7_x.y-z", &"x".repeat(ID_BYTES)] {
            assert_eq!(given(plain).as_deref(), Some(plain));
        }
        for other in ["", "a b", "a\tb", "<script>", "a\"b", &"x".repeat(ID_BYTES + 1)] {
            assert_eq!(given(other), None, "{other}");
        }
        assert_eq!(given_id(&HeaderMap::new()), None);
    }

    #[test]
    fn what_programs_ask_for_again_and_again_is_a_poll() {
        let polls: Vec<&str> = OPERATIONS.iter().filter(|info| is_poll(info)).map(|info| info.name).collect();
        for poll in ["read_frontier", "read_health", "read_readiness", "read_metrics", "list_tasks", "list_workers"] {
            assert!(polls.contains(&poll), "{poll} is not in {polls:?}");
        }
        for other in ["create_document", "list_roots", "retry_task", "search", "runner_model"] {
            assert!(!polls.contains(&other), "{other}");
        }
    }
}
