//! The client over HTTP.
use crate::{
    Body, Code, Failure, VERSION, VERSION_HEADER,
    operation::{Call, Operation, Outcome, Transport},
    reply::Reply,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A service at a remote address.
#[derive(Clone)]
pub struct Remote {
    base: String,
    token: String,
    http: reqwest::Client,
    answer_limit: usize,
}

/// The most bytes of an answer, unless another limit is set.
const ANSWER_LIMIT: usize = 1 << 30;

/// Characters that a path segment may contain unescaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Remote {
    /// Makes a client for the service at `base`, for example `http://127.0.0.1:8000`.
    pub fn new(base: &str, token: &str, http: reqwest::Client) -> Remote {
        let (base, token) = (base.trim_end_matches('/').to_owned(), token.to_owned());
        Remote { base, token, http, answer_limit: ANSWER_LIMIT }
    }

    /// The same client, but it accepts no answer of more bytes.
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
        let request = self
            .http
            .request(O::INFO.method, format!("{}{}", self.base, fill(O::INFO.path, &path)))
            .header(VERSION_HEADER, VERSION)
            .bearer_auth(&self.token)
            .query(&call.query);
        let request = call.body.attach(request).await?;
        let (status, retry_after, bytes) = exchange(&self.base, request, self.answer_limit).await?;
        if status == O::Reply::STATUS { O::Reply::decode(&bytes) } else { Err(refusal(status, retry_after, &bytes)) }
    }
}

/// Sends a request; gives the status, the seconds of a `Retry-After` and the body.
async fn exchange(
    base: &str,
    request: reqwest::RequestBuilder,
    limit: usize,
) -> Result<(u16, Option<u64>, Vec<u8>), Failure> {
    let lost = |error: reqwest::Error| {
        // Whether the request may have been read: what was never sent can be sent again without a thought.
        Failure::unreachable(why_lost(base, &error)).with("sent", !error.is_connect())
    };
    let mut response = request.send().await.map_err(lost)?;
    let status = response.status().as_u16();
    let retry_after =
        response.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(lost)? {
        if bytes.len() + piece.len() > limit {
            return Err(
                Failure::unreachable(format!("the answer from {base} is over {limit} bytes")).with("sent", true)
            );
        }
        bytes.extend_from_slice(&piece);
    }
    Ok((status, retry_after, bytes))
}

/// Why there is no answer, in words that say which end to look at.
fn why_lost(base: &str, error: &reqwest::Error) -> String {
    let mut causes: Vec<&(dyn std::error::Error + 'static)> = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    let io = causes.iter().find_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    let said = |what: &str| causes.iter().any(|cause| cause.to_string().contains(what));
    match io {
        Some(std::io::ErrorKind::ConnectionRefused) => format!("nobody listens at {base} (connection refused)"),
        _ if said("dns error") => format!("the host of {base} is not known"),
        _ if error.is_timeout() => format!("no answer from {base} in time"),
        _ => {
            let cause = causes.last().map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("no answer from {base}{cause}; is an svc service there?")
        }
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
