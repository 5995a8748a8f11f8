//! Calls of a provider over HTTP.
use super::provider::ProviderError;
use crate::{
    fetch::retry_after,
    settings::{Secret, is_this_machine},
};
use futures_util::{Stream, StreamExt, stream};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::io::StreamReader;

const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(120);
/// The slowest upload that is waited for, in bytes a second.
const SLOWEST: u64 = 50_000;
/// The most bytes of an answer that is no results.
const ANSWER_BYTES: usize = 16 << 20;
/// The most bytes of one line of results.
const LINE_BYTES: usize = 16 << 20;

/// How a provider takes the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    Bearer,
    XApiKey,
}

impl KeyHeader {
    const fn setting(self) -> &'static str {
        match self {
            KeyHeader::Bearer => "SVC_BATCH_OPENAI_KEY",
            KeyHeader::XApiKey => "SVC_BATCH_ANTHROPIC_KEY",
        }
    }
}

/// The address of a provider, and the right to call it.
#[derive(Debug)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    key: Secret,
    key_header: KeyHeader,
}

impl Api {
    pub fn new(base: &str, key: Secret, key_header: KeyHeader) -> Result<Api, ProviderError> {
        let base = base.trim_end_matches('/').to_owned();
        let parsed =
            reqwest::Url::parse(&base).map_err(|error| ProviderError::Refused(format!("the address: {error}")))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            let remedy = format!("the address holds a name or a password: set the key in {}", key_header.setting());
            return Err(ProviderError::Refused(remedy));
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .retry(reqwest::retry::never())
            // Following a redirect would take texts and key to where nobody chose.
            .redirect(reqwest::redirect::Policy::none());
        // A proxy from the environment is meant for other machines.
        let http = if is_this_machine(&base) { http.no_proxy() } else { http };
        let http =
            http.build().map_err(|error| ProviderError::Refused(format!("the HTTP client cannot start: {error}")))?;
        Ok(Api { http, base, key, key_header })
    }

    /// Begins a call of a path under the address.
    pub fn call(&self, method: Method, path: &str) -> RequestBuilder {
        let call = self.http.request(method, format!("{}{path}", self.base));
        match (self.key.is_blank(), self.key_header) {
            (true, _) => call,
            (false, KeyHeader::Bearer) => call.bearer_auth(self.key.expose()),
            (false, KeyHeader::XApiKey) => call.header("x-api-key", self.key.expose()),
        }
    }

    /// Sends a call and reads its JSON.
    pub async fn json(&self, call: RequestBuilder) -> Result<Value, ProviderError> {
        self.sent(call, 0).await
    }

    /// Sends a call with so many bytes and reads its JSON.
    pub async fn sent(&self, call: RequestBuilder, bytes: u64) -> Result<Value, ProviderError> {
        let response = self.send(call, SILENCE + Duration::from_secs(bytes / SLOWEST)).await?;
        let bytes = self.bytes(response).await?;
        serde_json::from_slice(&bytes).map_err(|error| away(format!("its answer is no JSON: {error}")))
    }

    /// Sends a call whose answer is one JSON value a line; a line that is none is `None`.
    pub async fn lines(
        &self,
        call: RequestBuilder,
    ) -> Result<impl Stream<Item = Result<Option<Value>, ProviderError>> + Send + 'static, ProviderError> {
        let response = self.send(call, SILENCE).await?;
        let pieces = stream::unfold(response.bytes_stream().boxed(), |mut pieces| async move {
            match tokio::time::timeout(SILENCE, pieces.next()).await {
                Ok(piece) => piece.map(|piece| (piece.map_err(std::io::Error::other), pieces)),
                Err(_) => Some((Err(std::io::Error::other(format!("silent for {SILENCE:?}"))), pieces)),
            }
        });
        Ok(json_lines(BufReader::new(StreamReader::new(pieces.boxed()))))
    }

    async fn send(&self, call: RequestBuilder, within: Duration) -> Result<Response, ProviderError> {
        let response = match tokio::time::timeout(within, call.send()).await {
            Ok(sent) => sent.map_err(|error| ProviderError::Away {
                reason: self.shown(&reason(&error)),
                retry_after: None,
                is_certain: error.is_connect(),
            })?,
            Err(_) => return Err(away(format!("no answer within {within:?}"))),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        let said = self.bytes(response).await.unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        let parsed: Option<Value> = serde_json::from_str(&said).ok();
        let said = parsed.as_ref().and_then(|value| value["error"]["message"].as_str()).unwrap_or(&said).to_owned();
        let said = self.shown(&said);
        Err(match status {
            // What such an answer says may hold the key.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ProviderError::Refused(format!(
                "{} does not accept {} ({status})",
                self.base,
                self.key_header.setting()
            )),
            StatusCode::NOT_FOUND => ProviderError::Unknown(format!("{} answers {status}: {said}", self.base)),
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::CONFLICT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS => {
                ProviderError::Away { reason: format!("it answers {status}: {said}"), retry_after, is_certain: true }
            }
            status if status.is_server_error() => {
                // A server that has too much to do says so before it does anything.
                let is_certain = matches!(status.as_u16(), 503 | 529);
                ProviderError::Away { reason: format!("it answers {status}: {said}"), retry_after, is_certain }
            }
            status if status.is_redirection() => {
                ProviderError::Refused(format!("{} answers {status}: name its right address with --llm-url", self.base))
            }
            status => ProviderError::NotTaken(format!("it answers {status}: {said}")),
        })
    }

    async fn bytes(&self, response: Response) -> Result<Vec<u8>, ProviderError> {
        let mut bytes = Vec::new();
        let mut pieces = response.bytes_stream();
        loop {
            let piece = tokio::time::timeout(SILENCE, pieces.next()).await;
            let Some(piece) = piece.map_err(|_| away(format!("silent for {SILENCE:?}")))? else { break };
            bytes.extend_from_slice(&piece.map_err(|error| away(self.shown(&reason(&error))))?);
            if bytes.len() > ANSWER_BYTES {
                return Err(away(format!("its answer is longer than {ANSWER_BYTES} bytes")));
            }
        }
        Ok(bytes)
    }

    /// One line of a few hundred characters, without the key.
    fn shown(&self, text: &str) -> String {
        let text = if self.key.is_blank() { text.to_owned() } else { text.replace(self.key.expose(), "[key]") };
        text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
    }
}

pub fn away(reason: String) -> ProviderError {
    ProviderError::Away { reason, retry_after: None, is_certain: false }
}

/// The id in an answer, if it can be one.
pub fn id(value: &Value) -> Result<String, ProviderError> {
    let id = value["id"].as_str().filter(|id| !id.is_empty() && id.len() <= 200 && segment(id) == *id);
    id.map(str::to_owned).ok_or_else(|| away("its answer names no id that can be one".to_owned()))
}

/// An id as a part of a path, whatever a server made of it.
pub fn segment(id: &str) -> String {
    id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).collect()
}

/// Most characters of what a provider says against a request.
const MESSAGE: usize = 2000;

/// What a provider says against a request, in a length that can be kept.
pub fn message(text: &str) -> String {
    text.chars().take(MESSAGE).collect()
}

/// The name of a request in a line of results; `None` if it can be none of ours.
pub fn custom_id(line: &Value) -> Option<String> {
    line["custom_id"].as_str().filter(|id| id.len() <= 64).map(str::to_owned)
}

fn reason(error: &reqwest::Error) -> String {
    let mut reason = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        reason = format!("{reason}: {cause}");
        source = cause.source();
    }
    reason
}

/// The JSON values of a text, one a line; a line that is none, or is too long, is `None`.
pub fn json_lines(
    text: impl tokio::io::AsyncBufRead + Send + Unpin + 'static,
) -> impl Stream<Item = Result<Option<Value>, ProviderError>> + Send + 'static {
    stream::try_unfold(text, |mut text| async move {
        let mut line = Vec::new();
        let mut is_too_long = false;
        loop {
            let piece = text.fill_buf().await.map_err(|error| away(format!("its results broke off: {error}")))?;
            let (taken, is_over) = match piece.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (piece.len(), piece.is_empty()),
            };
            is_too_long |= line.len() + taken > LINE_BYTES;
            if !is_too_long {
                line.extend_from_slice(&piece[..taken]);
            }
            let is_end = piece.is_empty();
            text.consume(taken);
            if is_end && line.is_empty() && !is_too_long {
                return Ok(None);
            }
            let is_blank = !is_too_long && line.iter().all(u8::is_ascii_whitespace);
            match (is_over, is_blank) {
                (true, true) => line.clear(),
                (true, false) => break,
                (false, _) => {}
            }
        }
        let value = if is_too_long { None } else { serde_json::from_slice(&line).ok() };
        Ok(Some((value, text)))
    })
}
