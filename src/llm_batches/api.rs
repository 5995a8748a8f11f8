//! Calls of a provider over HTTP.
use super::provider::ProviderError;
use crate::{embedding::is_this_machine, settings::Secret};
use futures_util::{Stream, StreamExt, TryStreamExt};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::io::StreamReader;

const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may be silent in the middle of a call.
const SILENCE: Duration = Duration::from_secs(120);
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
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
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
        let response = self.send(call).await?;
        let bytes = self.bytes(response).await?;
        serde_json::from_slice(&bytes).map_err(|error| away(format!("its answer is no JSON: {error}")))
    }

    /// Sends a call whose answer is one JSON value a line; a line that is none is `None`.
    pub async fn lines(
        &self,
        call: RequestBuilder,
    ) -> Result<impl Stream<Item = Result<Option<Value>, ProviderError>> + Send + 'static, ProviderError> {
        let response = self.send(call).await?;
        let pieces = response.bytes_stream().map_err(std::io::Error::other);
        Ok(json_lines(BufReader::new(StreamReader::new(pieces))))
    }

    async fn send(&self, call: RequestBuilder) -> Result<Response, ProviderError> {
        let response = call.send().await.map_err(|error| away(self.shown(&reason(&error))))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after =
            retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok()).map(Duration::from_secs);
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
                ProviderError::Away { reason: format!("it answers {status}: {said}"), retry_after }
            }
            status if status.is_server_error() => {
                ProviderError::Away { reason: format!("it answers {status}: {said}"), retry_after }
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
        while let Some(piece) = pieces.next().await {
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
    ProviderError::Away { reason, retry_after: None }
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
    futures_util::stream::try_unfold(text, |mut text| async move {
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
