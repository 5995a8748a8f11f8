//! The client over HTTP.
use crate::{
    Body, Code, Failure, FileUpload, VERSION, VERSION_HEADER,
    incoming::{Called, Incoming},
    meta::Meta,
    operation::{Call, Operation, OperationInfo, Outcome, Transport},
    position::{AFTER_HEADER, Known, NOW, POSITION_HEADER},
    reply::Reply,
};
use futures_util::future::BoxFuture;
use http::{StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Carries requests to a service otherwise than over the network.
pub type Sender =
    Arc<dyn Fn(http::Request<reqwest::Body>) -> BoxFuture<'static, http::Response<reqwest::Body>> + Send + Sync>;

/// A service at a remote address. Neither it nor its clones get an answer from a store that is older than what an earlier answer or an event showed them.
#[derive(Clone)]
pub struct Remote {
    base: String,
    token: String,
    http: reqwest::Client,
    answer_limit: usize,
    sender: Option<Sender>,
    known: Known,
    /// Whether the first request asks for the store of its own moment.
    begins_now: bool,
}

/// What an operation is sent by a caller that does not know its types.
#[derive(Default)]
pub struct Untyped {
    pub path: Map<String, Value>,
    pub query: Vec<(String, String)>,
    pub body: UntypedBody,
}

/// The body of a call whose types are not known.
#[derive(Default)]
pub enum UntypedBody {
    #[default]
    Nothing,
    Json(Value),
    File(FileUpload),
}

/// The most bytes of an answer that is read whole, unless another limit is set.
const ANSWER_LIMIT: usize = 1 << 30;

/// How much is shown of the address that a redirect names.
const LOCATION_CHARACTERS: usize = 200;

/// Characters that a path segment may contain unescaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Remote {
    /// Makes a client for the service at `base`, for example `http://127.0.0.1:8000`.
    pub fn new(base: &str, token: &str, http: reqwest::Client) -> Remote {
        let (base, token) = (base.trim_end_matches('/').to_owned(), token.to_owned());
        let known = Known::default();
        Remote { base, token, http, answer_limit: ANSWER_LIMIT, sender: None, known, begins_now: false }
    }

    /// Returns the same client, whose first answer too has all that was written before it asks: for a program that goes on where another
    /// one has ended.
    #[must_use]
    pub fn beginning_now(self) -> Remote {
        Remote { begins_now: true, ..self }
    }

    /// Returns the same client with another limit, in bytes, for answers that are read whole; streams have none.
    #[must_use]
    pub fn with_answer_limit(self, bytes: usize) -> Remote {
        Remote { answer_limit: bytes, ..self }
    }

    /// Returns the same client, whose requests `sender` carries.
    #[must_use]
    pub fn sent_by(self, sender: Sender) -> Remote {
        Remote { sender: Some(sender), ..self }
    }

    /// Calls an operation without knowing its types. The answer is JSON; null if it has no body.
    pub async fn call(&self, info: &OperationInfo, call: Untyped) -> Result<Value, Failure> {
        let request = self.request(info, &Value::Object(call.path)).query(&call.query);
        let request = match call.body {
            UntypedBody::Nothing => request,
            UntypedBody::Json(value) => {
                let bytes = serde_json::to_vec(&value).map_err(Failure::unreachable)?;
                // The length tells the service how much memory the body takes, also where no network counts it.
                let length = bytes.len();
                request
                    .header(header::CONTENT_LENGTH, length)
                    .header(header::CONTENT_TYPE, "application/json")
                    .body(bytes)
            }
            UntypedBody::File(file) => file.attach(request).await?,
        };
        let answer = self.answer(info, request.header(header::ACCEPT, "application/json")).await?;
        if !(200..300).contains(&answer.status) {
            return Err(refused(answer).await?);
        }
        match answer.bytes().await?.as_slice() {
            [] => Ok(Value::Null),
            bytes => serde_json::from_slice(bytes)
                .map_err(|error| Failure::unreachable(format!("the answer is no JSON: {error}"))),
        }
    }

    fn request(&self, info: &OperationInfo, path: &Value) -> reqwest::RequestBuilder {
        let request = self.http.request(info.method.clone(), format!("{}{}", self.base, fill(info.path, path)));
        request.header(VERSION_HEADER, VERSION).bearer_auth(&self.token)
    }

    async fn answer(&self, info: &OperationInfo, request: reqwest::RequestBuilder) -> Result<Incoming, Failure> {
        let called = Called { base: self.base.clone(), only_reads: info.only_reads() };
        let demand = self.known.demand();
        let request = match &demand.after {
            Some(after) => request.header(AFTER_HEADER, after),
            None if self.begins_now => request.header(AFTER_HEADER, NOW),
            None => request,
        };
        let response = match &self.sender {
            None => request.send().await,
            Some(send) => match request.build().and_then(http::Request::try_from) {
                Ok(request) => Ok(send(request).await.into()),
                Err(error) => Err(error),
            },
        };
        let response = response.inspect_err(|error| {
            // What was sent may have been carried out.
            if !called.only_reads && !error.is_connect() {
                self.known.note(None);
            }
        });
        let response = response.map_err(|error| called.lost(&error))?;
        let named = response.headers().get(POSITION_HEADER).and_then(|value| value.to_str().ok());
        match named.and_then(|named| named.parse().ok()) {
            Some(position) => self.known.answered(&demand, position),
            // A refusal tells of what is there, and a change may have taken effect. With 503 the primary may be away, and reads go on without it.
            None if !called.only_reads && response.status() != StatusCode::SERVICE_UNAVAILABLE => self.known.note(None),
            None => {}
        }
        Ok(Incoming::new(response, called, self.answer_limit, self.known.clone()))
    }

    /// Sends a request whose answer has one of the statuses that mean success. This knows no types of an operation, so that it is compiled
    /// once.
    async fn success(
        &self,
        info: &OperationInfo,
        request: reqwest::RequestBuilder,
        is_success: fn(u16) -> bool,
    ) -> Result<Incoming, Failure> {
        let answer = self.answer(info, request).await?;
        if is_success(answer.status) {
            return Ok(answer);
        }
        Err(refused(answer).await?)
    }

    /// The address that the client calls.
    pub fn base(&self) -> &str {
        &self.base
    }
}

impl<O: Operation> Transport<O> for Remote {
    async fn send(&self, call: Call<O>) -> Outcome<O> {
        let path = serde_json::to_value(&call.path).map_err(Failure::unreachable)?;
        let request = self.request(&O::INFO, &path).query(&call.query);
        let request = with_meta(request, &call.meta, O::Reply::accept());
        let request = call.body.attach(request).await?;
        let answer = self.success(&O::INFO, request, O::Reply::is_success).await?;
        O::Reply::receive(answer).await
    }
}

/// Adds the headers of a call, which says by itself or by its operation what answers it takes.
fn with_meta(mut request: reqwest::RequestBuilder, meta: &Meta, accept: &'static str) -> reqwest::RequestBuilder {
    if meta.accept.is_none() {
        request = request.header(header::ACCEPT, accept);
    }
    for (name, value) in meta.pairs() {
        request = request.header(name, value);
    }
    request
}

/// The failure that an answer tells of.
async fn refused(answer: Incoming) -> Result<Failure, Failure> {
    let retry_after = answer.header(header::RETRY_AFTER).and_then(|value| value.parse().ok());
    let location: Option<String> =
        answer.header(header::LOCATION).map(|text| text.chars().take(LOCATION_CHARACTERS).collect());
    Ok(refusal(answer.status, retry_after, location.as_deref(), &answer.bytes().await?))
}

fn refusal(status: u16, retry_after: Option<u64>, location: Option<&str>, bytes: &[u8]) -> Failure {
    let mut failure: Failure = serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let mut failure = Failure::new(Code::Unreachable, not_ours(status, location));
        failure.status = status;
        failure
    });
    if let Some(seconds) = retry_after {
        failure.members.entry("retry_after").or_insert(seconds.into());
    }
    failure
}

/// What is said of an answer that no service gave.
fn not_ours(status: u16, location: Option<&str>) -> String {
    match status {
        300..400 => {
            let location = location.unwrap_or("another address");
            format!(
                "status {status} sends this call on to {location}, which gets neither the call nor the token: set SVC_URL to the address \
                 of the service itself"
            )
        }
        413 => format!("a proxy in front of the service refused it with status {status}: raise its limit"),
        // These tell of a server that knows nothing of the service, and not of what it was sent.
        400..500 if !matches!(status, 401 | 404 | 405 | 407) => {
            format!("a proxy in front of the service refused it with status {status}: its log says why")
        }
        _ => format!("status {status} without a problem description: is this the address of an svc service?"),
    }
}

/// Fills the path parameters into their placeholders, percent-encoded.
fn fill(template: &str, parameters: &Value) -> String {
    let mut url = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        url.push_str(before);
        let Some((name, tail)) = after.split_once('}') else { break };
        let text = match &parameters[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        url.extend(utf8_percent_encode(&text, SEGMENT));
        rest = tail;
    }
    url.push_str(rest);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_parameter_cannot_leave_its_segment() {
        let parameters = serde_json::json!({"id": 7, "name": "../a b/{id}?x=%"});
        assert_eq!(
            fill("/documents/{id}/by/{name}/x", &parameters),
            "/documents/7/by/..%2Fa%20b%2F%7Bid%7D%3Fx%3D%25/x"
        );
    }

    #[test]
    fn an_answer_that_is_not_ours_says_so() {
        let failure = refusal(502, Some(7), None, b"<html>bad gateway</html>");
        assert_eq!((failure.status, failure.code), (502, Code::Unreachable));
        assert_eq!(failure.members["retry_after"], 7);
        for (status, says) in
            [(413, "with status 413: raise its limit"), (403, "status 403"), (404, "is this the address")]
        {
            let failure = refusal(status, None, None, b"<html></html>");
            assert!(failure.status == status && failure.detail.contains(says), "{failure}");
        }
        let moved = refusal(301, None, Some("https://there.example/"), b"");
        assert!(moved.detail.contains("https://there.example/") && moved.detail.contains("SVC_URL"), "{moved}");
        assert!(refusal(308, None, None, b"").detail.contains("another address"));
    }
}
