//! Anthropic's batches: a list of requests, and a list of results when all of them are over.
use super::{
    answer,
    api::{Api, KeyHeader, away, custom_id, id, message, segment},
    code,
    provider::{Accepted, Progress, ProviderError, Results, Submission},
    unanswered,
};
use crate::{
    llm::{Ask, Refused, TEMPERATURE, Usage, is_about_length},
    settings::Secret,
    spool::reopen,
    store::{
        llm_batches::{BatchResult, Unanswered},
        summaries::LlmAnswer,
    },
};
use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use svc_client::wire::LlmBatchOutcome;
use tokio::io::{AsyncBufReadExt, BufReader};

const BATCHES: &str = "/messages/batches";
const HEAD: &str = "{\"requests\":[";
const TAIL: &str = "]}";
/// The fields that a request need not have.
pub const OPTIONAL: [&str; 1] = [TEMPERATURE];

#[derive(Debug)]
pub struct Anthropic(Api);

/// A request, as it stands in the list.
pub fn line(custom_id: &str, ask: &Ask, model: &str, refused: &Refused) -> String {
    let mut params = json!({
        "model": model, "max_tokens": ask.max_tokens, "system": ask.instructions,
        "messages": [{"role": "user", "content": ask.message}],
    });
    if ask.temperature > 0.0 && !refused.contains(TEMPERATURE) {
        params[TEMPERATURE] = ask.temperature.into();
    }
    json!({"custom_id": custom_id, "params": params}).to_string()
}

impl Anthropic {
    pub fn new(base: &str, key: Secret) -> Result<Anthropic, ProviderError> {
        Api::new(base, key, KeyHeader::XApiKey).map(Anthropic)
    }

    fn call(&self, method: Method, path: &str) -> RequestBuilder {
        self.0.call(method, path).header("anthropic-version", "2023-06-01")
    }

    pub async fn submit(&self, submission: Submission<'_>) -> Result<Accepted, ProviderError> {
        let file = reopen(submission.file).map_err(|error| away(error.to_string()))?;
        let lines = BufReader::new(tokio::fs::File::from_std(file)).lines();
        let lines = stream::try_unfold((lines, true), |(mut lines, is_first)| async move {
            let line = lines.next_line().await?;
            Ok(line.map(|line| (if is_first { line } else { format!(",{line}") }, (lines, false))))
        });
        let end = |text: &'static str| stream::once(async move { Ok::<_, std::io::Error>(text.to_owned()) });
        let body = reqwest::Body::wrap_stream(end(HEAD).chain(lines).chain(end(TAIL)));
        // A comma takes the place of each line's end but the last one's.
        let length = submission.bytes.saturating_sub(1) + (HEAD.len() + TAIL.len()) as u64;
        let call = self.call(Method::POST, BATCHES).header("content-type", "application/json");
        accepted(&self.0.sent(call.header("content-length", length).body(body), length).await?)
    }

    /// Nothing in this provider's list names a batch as ours, and its requests are not shown. So nothing is found, and the batch is submitted again:
    /// in doubt a batch is paid twice and never lost.
    pub async fn find(&self, since: DateTime<Utc>) -> Result<Option<Accepted>, ProviderError> {
        let page = self.0.json(self.call(Method::GET, BATCHES).query(&[("limit", "20")])).await?;
        let young: Vec<&str> = page["data"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .filter(|batch| time(&batch["created_at"]).is_some_and(|at| at >= since - chrono::TimeDelta::minutes(5)))
            .filter_map(|batch| batch["id"].as_str())
            .collect();
        if !young.is_empty() {
            tracing::warn!(
                batches = young.join(", "),
                "one of these may be the batch that is submitted again now; cancel it at the provider if nobody else made it"
            );
        }
        Ok(None)
    }

    pub async fn progress(&self, provider_id: &str) -> Result<Progress, ProviderError> {
        let path = format!("{BATCHES}/{}", segment(provider_id));
        let batch = self.0.json(self.call(Method::GET, &path)).await?;
        if batch["processing_status"] != "ended" {
            return Ok(Progress::Working);
        }
        let count = |name: &str| batch["request_counts"][name].as_u64().unwrap_or_default();
        let outcome = match (count("expired"), count("canceled")) {
            (0, 0) => LlmBatchOutcome::Completed,
            (0, _) => LlmBatchOutcome::Cancelled,
            _ => LlmBatchOutcome::Expired,
        };
        // The address in `results_url` is the provider's word; the key goes only to the address that somebody chose.
        Ok(Progress::Ended { outcome, results: vec![provider_id.to_owned()], problem: None, code: None })
    }

    pub async fn results(&self, at: &str) -> Result<Results, ProviderError> {
        let lines = self.0.lines(self.call(Method::GET, &format!("{BATCHES}/{}/results", segment(at)))).await?;
        Ok(lines.boxed())
    }

    pub async fn cancel(&self, provider_id: &str) -> Result<(), ProviderError> {
        let path = format!("{BATCHES}/{}/cancel", segment(provider_id));
        self.0.json(self.call(Method::POST, &path)).await.map(|_| ())
    }
}

fn time(value: &Value) -> Option<DateTime<Utc>> {
    value.as_str()?.parse().ok()
}

fn accepted(batch: &Value) -> Result<Accepted, ProviderError> {
    Ok(Accepted { provider_id: id(batch)?, expires_at: time(&batch["expires_at"]) })
}

/// What a line of results says.
pub fn result(line: &Value) -> Option<BatchResult> {
    Some(BatchResult { custom_id: custom_id(line)?, answer: answer_to(&line["result"]) })
}

fn answer_to(result: &Value) -> Result<LlmAnswer, Unanswered> {
    let failed = |code: &str, text: String| Err(Unanswered::new(code, message(&text)));
    match result["type"].as_str() {
        Some("succeeded") => {
            let said = &result["message"];
            let parts = said["content"].as_array().map(Vec::as_slice).unwrap_or_default();
            let texts = parts.iter().filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str());
            let text: String = texts.collect();
            let count = |name: &str| said["usage"][name].as_u64().unwrap_or_default();
            let usage = Usage { prompt_tokens: count("input_tokens"), completion_tokens: count("output_tokens") };
            let model = said["model"].as_str().unwrap_or_default();
            match text.trim() {
                "" if said["stop_reason"] == "refusal" => {
                    Err(unanswered(code::REFUSED, "the model refuses to answer", model, usage))
                }
                "" => Err(unanswered(code::FAILED, "the answer is empty", model, usage)),
                text => {
                    let ends = ["max_tokens", "model_context_window_exceeded", "refusal"];
                    let is_cut = said["stop_reason"].as_str().is_some_and(|reason| ends.contains(&reason));
                    Ok(answer(text, is_cut, model, usage))
                }
            }
        }
        Some("errored") => {
            // The error stands in an envelope that names itself an error too.
            let error = if result["error"]["error"].is_object() { &result["error"]["error"] } else { &result["error"] };
            let said = error["message"].as_str().unwrap_or_default();
            let code = match error["type"].as_str().unwrap_or_default() {
                "request_too_large" => code::TOO_LONG,
                "invalid_request_error" if is_about_length(said) => code::TOO_LONG,
                "invalid_request_error"
                | "authentication_error"
                | "billing_error"
                | "permission_error"
                | "not_found_error" => code::REFUSED,
                _ => code::FAILED,
            };
            failed(code, format!("{}: {said}", error["type"].as_str().unwrap_or("error")))
        }
        Some("canceled") => {
            failed(code::CANCELLED, "the batch was cancelled before the request was answered".to_owned())
        }
        Some("expired") => failed(code::EXPIRED, "the batch expired before the request was answered".to_owned()),
        _ => failed(code::FAILED, "the provider says nothing that is known of the request".to_owned()),
    }
}
