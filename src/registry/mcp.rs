//! `/mcp`: the Model Context Protocol over HTTP. It holds no state between requests, so any process of the service answers. Who
//! may call is found out here; what a call does is a request to an operation, through the same routes as any other.
use super::{decode, surface};
use crate::{
    access::Caller,
    admission::amount::Amount,
    mcp::{Door, Toolbox},
    otlp,
    service::Service,
};
use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
    routing::{MethodRouter, post},
};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts, uri::Authority};
use rmcp::transport::{
    StreamableHttpServerConfig, StreamableHttpService, streamable_http_server::session::never::NeverSessionManager,
};
use serde::de::IgnoredAny;
use serde_json::json;
use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
};
use svc_client::{Access, Code, Failure, Remote};
use svc_ids::PrincipalId;
use tower::ServiceExt;

/// The headers of the protocol, which browsers ask for before they send them.
pub const HEADERS: [HeaderName; 4] = [
    HeaderName::from_static("mcp-protocol-version"),
    HeaderName::from_static("mcp-session-id"),
    HeaderName::from_static("mcp-method"),
    HeaderName::from_static("mcp-name"),
];
/// Where operations are called that are called in this process.
const HERE: &str = "http://service";

/// The error of JSON-RPC for what is no JSON, for what is no request, and for what failed here.
const NO_JSON: i32 = -32700;
const NO_REQUEST: i32 = -32600;
const FAILED: i32 = -32603;
/// The longest answer of the protocol's library that is no JSON.
const PLAIN_BYTES: usize = 4096;

/// What one process answers with.
struct Server {
    service: Arc<Service>,
    operations: Router,
    /// What calls are made with. It is made when the first call comes, and never reaches a network.
    http: OnceLock<Result<reqwest::Client, reqwest::Error>>,
    protocol: StreamableHttpService<Door, NeverSessionManager>,
}

/// The route, unless the settings close it. `operations` are the routes that tools call.
pub fn route(service: &Arc<Service>, operations: &Router) -> Option<MethodRouter> {
    let toolbox = Arc::new(Toolbox::new(super::contract(), service.settings.mcp_tools?));
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(usize::MAX)
        // These are judged here, before anything is read.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let door = Door::of_requests(toolbox);
    let protocol = StreamableHttpService::new(move || Ok(door.clone()), Arc::default(), config);
    let server =
        Arc::new(Server { service: service.clone(), operations: operations.clone(), http: OnceLock::new(), protocol });
    Some(post(move |request: Request| answer(server, request)))
}

async fn answer(server: Arc<Server>, request: Request) -> Response {
    let service = &server.service;
    let (mut parts, body) = request.into_parts();
    let principal = match admit(service, &parts).await {
        Ok(caller) => caller.principal_id(),
        Err(failure) => return surface::refusal(failure, &Request::from_parts(parts, ())),
    };
    let id = super::request_id(&parts.headers);
    let calls = match server.calls(&parts.headers, &id) {
        Ok(calls) => calls,
        Err(failure) => return surface::refusal(failure, &Request::from_parts(parts, ())),
    };
    // The library logs what it is given.
    parts.headers.remove(header::AUTHORIZATION);
    parts.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let bytes = match receive(service, principal, Request::from_parts(parts.clone(), body)).await {
        Ok(bytes) => bytes,
        Err(failure) => return surface::refusal(failure, &Request::from_parts(parts, ())),
    };
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(&bytes) {
        return finish(refusal(StatusCode::BAD_REQUEST, NO_JSON, &format!("the body is not JSON: {error}")), &id);
    }
    // The library reads a message with all of its values. What it cannot read it refuses by itself.
    let checked = Amount::of_bytes(service.settings.max_body_bytes).check(&bytes);
    if let Some(error) = checked.err().filter(serde_json::Error::is_data) {
        return finish(refusal(StatusCode::PAYLOAD_TOO_LARGE, NO_REQUEST, &error.to_string()), &id);
    }
    parts.extensions.insert(calls);
    let response = server.protocol.handle(Request::from_parts(parts, Body::from(bytes))).await;
    let mut response = speak(response.map(Body::new)).await;
    let length = http_body::Body::size_hint(response.body()).exact().unwrap_or_default();
    // What was done is told, also if there is no room for it in time.
    if let Some(room) = service.admission.answer(principal, length).await.unwrap_or_default() {
        response.extensions_mut().insert(Arc::new(room));
    }
    finish(response, &id)
}

/// Finds out who calls. A page of another name or origin must not use what a browser can reach.
async fn admit(service: &Service, request: &Parts) -> Result<Caller, Failure> {
    let text = |name: HeaderName| request.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST).or_else(|| Some(request.uri.authority()?.as_str())).unwrap_or_default();
    if !is_own_name(host, &service.settings.public_hosts) {
        return Err(Failure::new(Code::Forbidden, "/mcp is not called by this name")
            .with("remedy", "call the service by its address or as localhost, or add the name to SVC_PUBLIC_HOSTS"));
    }
    let origins = &service.settings.cors_origins;
    if text(header::ORIGIN).is_some_and(|origin| !origins.iter().any(|known| known.eq_ignore_ascii_case(origin))) {
        return Err(Failure::new(Code::Forbidden, "/mcp is not called by pages of this origin")
            .with("remedy", "add the origin to SVC_CORS_ORIGINS"));
    }
    let caller = service.keys.authenticate(&service.pool, Access::Read, &request.headers).await?;
    let media_type = text(header::CONTENT_TYPE).unwrap_or_default();
    if !media_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let detail = "the body must be sent as `Content-Type: application/json`";
        return Err(Failure::new(Code::UnsupportedMediaType, detail));
    }
    decode::unpacked(&request.headers)?;
    Ok(caller)
}

/// Whether a request names this service. No foreign page has an address of numbers for its name.
fn is_own_name(host: &str, names: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_matches(['[', ']']);
    let listed = |known: &String| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name);
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || names.iter().any(listed)
}

/// Reads a request, which is in memory only while there is room for it. A call takes its own room for what it sends on.
async fn receive(service: &Service, principal: Option<PrincipalId>, request: Request) -> Result<Bytes, Failure> {
    let limit = service.settings.max_body_bytes;
    let _arriving = service.admission.arriving(principal)?;
    let _room = service.admission.body(principal, decode::length(request.headers(), limit)?).await?;
    decode::whole(request, limit).await.map(BytesMut::freeze)
}

impl Server {
    /// The way of a request's tools to the operations: through their routes, as the caller of the request.
    fn calls(&self, headers: &HeaderMap, id: &str) -> Result<Remote, Failure> {
        let http = self.http.get_or_init(|| reqwest::Client::builder().no_proxy().build());
        let http = http.as_ref().map_err(|error| Failure::new(Code::Internal, error))?.clone();
        let operations = self.operations.clone();
        let authorization = headers.get(header::AUTHORIZATION).cloned();
        let id = HeaderValue::from_str(id).ok();
        let trace = headers.get(&otlp::HEADERS[0]).cloned();
        let send = move |request: http::Request<reqwest::Body>| {
            let mut request = request.map(Body::new);
            let headers = request.headers_mut();
            headers.remove(header::AUTHORIZATION);
            headers.extend(authorization.clone().map(|value| (header::AUTHORIZATION, value)));
            headers.extend(id.clone().map(|value| (HeaderName::from_static("x-request-id"), value)));
            headers.extend(trace.clone().map(|value| (otlp::HEADERS[0].clone(), value)));
            let answer = operations.clone().oneshot(request);
            async move {
                let Ok(response) = answer.await;
                response.map(|body| reqwest::Body::wrap_stream(body.into_data_stream()))
            }
            .boxed()
        };
        // An earlier call of the model may have written just now what this one is to find.
        Ok(Remote::new(HERE, "", http).sent_by(Arc::new(send)).beginning_now())
    }
}

/// The library's answer, with an error of the protocol in place of a plain text.
async fn speak(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let is_json = parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
    if parts.status.as_u16() < 400 || is_json {
        return Response::from_parts(parts, body);
    }
    let text = axum::body::to_bytes(body, PLAIN_BYTES).await.unwrap_or_default();
    match parts.status {
        // It has read the body, and found no message in it.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            refusal(StatusCode::BAD_REQUEST, NO_REQUEST, "the body is no message of JSON-RPC, or too deep")
        }
        status if status.is_server_error() => refusal(status, FAILED, "the service failed"),
        status => refusal(status, NO_REQUEST, &String::from_utf8_lossy(&text)),
    }
}

fn refusal(status: StatusCode, code: i32, message: &str) -> Response {
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
    (status, axum::Json(error)).into_response()
}

fn finish(mut response: Response, id: &str) -> Response {
    super::identify(&mut response, id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use svc_client::{OPERATIONS, Tool};

    const DOCUMENTATION: &str = include_str!("../../docs/mcp.md");

    #[test]
    fn a_model_can_read_what_the_tools_are() {
        let toolbox = Toolbox::new(crate::registry::contract(), Tool::Destructive);
        let list = toolbox.list();
        let bytes = |tools: &[rmcp::model::Tool]| serde_json::to_vec(tools).expect("JSON").len();
        let size = |tool: &rmcp::model::Tool| (tool.name.clone(), bytes(std::slice::from_ref(tool)));
        let sizes: Vec<_> = list.iter().map(size).collect();
        assert!(bytes(&list) < 24 * 1024, "{} bytes: {sizes:?}", bytes(&list));
        for tool in &list {
            let text = serde_json::to_string(tool).expect("JSON");
            for hidden in ["$ref", "include_embed", "\"embed\"", "allOf"] {
                assert!(!text.contains(hidden), "{}: {hidden}", tool.name);
            }
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
            let input = serde_json::to_string(&tool.input_schema).expect("JSON");
            assert!(!input.contains("null"), "{}: some clients take one type at a time", tool.name);
        }
    }

    #[test]
    fn no_two_arguments_of_a_tool_have_one_name() {
        let contract = crate::registry::contract();
        for info in OPERATIONS.iter().filter(|info| info.tool.is_some()) {
            let entry = &contract["paths"][info.path][info.method.as_str().to_ascii_lowercase()];
            let parameters = entry["parameters"].as_array().into_iter().flatten();
            let parameters = parameters.filter(|parameter| parameter["in"] != "header");
            let names = parameters.filter_map(|parameter| parameter["name"].as_str());
            // It may stand in the query in place of the body, and no tool takes it.
            let mut names: Vec<_> = names.filter(|name| *name != "include_embed").collect();
            if let Some(body) = entry["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str() {
                let body = contract.pointer(&body[1..]).expect("it resolves");
                names.extend(body["properties"].as_object().expect("an object").keys().map(String::as_str));
            }
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}: {names:?}", info.name);
        }
    }

    #[test]
    fn a_tool_is_offered_as_far_as_the_settings_say() {
        let names = |most| {
            let toolbox = Toolbox::new(crate::registry::contract(), most);
            toolbox.list().into_iter().map(|tool| tool.name.into_owned()).collect::<BTreeSet<_>>()
        };
        let (read, write, all) = (names(Tool::Read), names(Tool::Write), names(Tool::Destructive));
        assert!(read.is_subset(&write) && write.is_subset(&all));
        assert!(!read.contains("create_document") && write.contains("create_document"));
        assert!(!write.contains("delete_document") && all.contains("delete_document"));
        let documented = |level: &str| {
            let row = DOCUMENTATION.lines().find(|line| line.starts_with(&format!("| `{level}`"))).expect("a row");
            let tools = row.rsplit('|').nth(1).expect("two cells").split('`').skip(1).step_by(2).map(str::to_owned);
            tools.collect::<BTreeSet<_>>()
        };
        assert_eq!(documented("read"), read, "docs/mcp.md");
        assert_eq!(documented("write"), &write - &read, "docs/mcp.md");
        assert_eq!(documented("all"), &all - &write, "docs/mcp.md");
        let rows = OPERATIONS.iter().filter(|info| info.tool.is_some());
        assert_eq!(all, rows.map(|info| info.name.to_owned()).collect());
        // What is the owner's alone is no tool.
        assert!(
            OPERATIONS.iter().all(|info| info.tool.is_none() || matches!(info.access, Access::Read | Access::Write))
        );
    }

    #[test]
    fn only_own_names_are_answered() {
        let names = ["docs.example.org".to_owned(), "other.example:8443".to_owned()];
        for own in [
            "localhost",
            "LOCALHOST:8000",
            "127.0.0.1:8000",
            "[::1]:8000",
            "10.1.2.3",
            "docs.example.org:80",
            "other.example:8443",
        ] {
            assert!(is_own_name(own, &names), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "other.example",
            "a b",
            "docs.example.org.",
        ] {
            assert!(!is_own_name(foreign, &names), "{foreign}");
        }
    }
}
