//! The client over HTTP.
use crate::{
    Body, Code, Failure, VERSION, VERSION_HEADER,
    incoming::{Incoming, lost},
    operation::{Call, Operation, Outcome, Transport},
    reply::Reply,
};
use http::header;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A service at a remote address.
#[derive(Clone)]
pub struct Remote {
    base: String,
    token: String,
    http: reqwest::Client,
    answer_limit: usize,
}

/// The most bytes of an answer that is read whole, unless another limit is set.
const ANSWER_LIMIT: usize = 1 << 30;

/// Characters that a path segment may contain unescaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Remote {
    /// Makes a client for the service at `base`, for example `http://127.0.0.1:8000`.
    pub fn new(base: &str, token: &str, http: reqwest::Client) -> Remote {
        let (base, token) = (base.trim_end_matches('/').to_owned(), token.to_owned());
        Remote { base, token, http, answer_limit: ANSWER_LIMIT }
    }

    /// Returns the same client with another limit, in bytes, for answers that are read whole; streams have none.
    #[must_use]
    pub fn with_answer_limit(self, bytes: usize) -> Remote {
        Remote { answer_limit: bytes, ..self }
    }

    /// The address that the client calls.
    pub fn base(&self) -> &str {
        &self.base
    }
}

impl<O: Operation> Transport<O> for Remote {
    async fn send(&self, call: Call<O>) -> Outcome<O> {
        let path = serde_json::to_value(&call.path).map_err(Failure::unreachable)?;
        let mut request = self
            .http
            .request(O::INFO.method, format!("{}{}", self.base, fill(O::INFO.path, &path)))
            .header(VERSION_HEADER, VERSION)
            .bearer_auth(&self.token)
            .query(&call.query);
        if call.meta.accept.is_none() {
            request = request.header(header::ACCEPT, O::Reply::accept());
        }
        for (name, value) in call.meta.pairs() {
            request = request.header(name, value);
        }
        let response = call.body.attach(request).await?.send().await.map_err(|error| lost(&self.base, &error))?;
        let answer = Incoming::new(response, &self.base, self.answer_limit);
        if O::Reply::is_success(answer.status) {
            return O::Reply::receive(answer).await;
        }
        let retry_after = answer.header(header::RETRY_AFTER).and_then(|value| value.parse().ok());
        Err(refusal(answer.status, retry_after, &answer.bytes().await?))
    }
}

fn refusal(status: u16, retry_after: Option<u64>, bytes: &[u8]) -> Failure {
    let mut failure: Failure = serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let mut failure = Failure::new(
            Code::Unreachable,
            format!("status {status} without a problem description: is this the address of an svc service?"),
        );
        failure.status = status;
        failure
    });
    if let Some(seconds) = retry_after {
        failure.members.entry("retry_after").or_insert(seconds.into());
    }
    failure
}

/// Fills the path parameters into their placeholders, percent-encoded.
fn fill(template: &str, parameters: &serde_json::Value) -> String {
    let mut url = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        url.push_str(before);
        let Some((name, tail)) = after.split_once('}') else { break };
        let text = match &parameters[name] {
            serde_json::Value::String(text) => text.clone(),
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
        let failure = refusal(502, Some(7), b"<html>bad gateway</html>");
        assert_eq!((failure.status, failure.code), (502, Code::Unreachable));
        assert_eq!(failure.members["retry_after"], 7);
    }
}
