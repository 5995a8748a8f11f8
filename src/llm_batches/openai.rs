//! OpenAI's batches: a file of requests, and files of results when all of them are answered.
use super::{
    answer_of,
    api::{Api, KeyHeader, away, custom_id, id, message, segment},
    code,
    provider::{Accepted, Progress, ProviderError, Results, Submission, TOKEN_LIMIT},
};
use crate::{
    llm::is_about_length,
    settings::Secret,
    spool::reopen,
    store::{
        llm_batches::{BatchResult, Unanswered},
        summaries::LlmAnswer,
    },
};
use chrono::{DateTime, Utc};
use futures_util::StreamExt;
use reqwest::{
    Method,
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use svc_client::wire::LlmBatchOutcome;
use uuid::Uuid;

/// The name under which our key stands in a batch's metadata.
const KEY: &str = "svc_batch";
/// How many pages of a list of the provider are searched.
const PAGES: usize = 100;
/// The most files of one batch that are deleted at once.
const FILES: usize = 100;

#[derive(Debug)]
pub struct OpenAi(Api);

/// The name of the file with the requests of a batch, by which it is found again.
fn file_name(key: &str) -> String {
    format!("svc-{key}.jsonl")
}

/// A request, as a line of the file.
pub fn line(custom_id: &str, body: Value) -> String {
    json!({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}).to_string()
}

impl OpenAi {
    pub fn new(base: &str, key: Secret) -> Result<OpenAi, ProviderError> {
        Api::new(base, key, KeyHeader::Bearer).map(OpenAi)
    }

    pub async fn submit(&self, submission: Submission<'_>) -> Result<Accepted, ProviderError> {
        let file = reopen(submission.file).map_err(|error| away(error.to_string()))?;
        let part = Part::stream_with_length(tokio::fs::File::from_std(file), submission.bytes)
            .file_name(file_name(&submission.key.to_string()))
            .mime_str("application/jsonl")
            .map_err(|error| away(error.to_string()))?;
        let form = Form::new().text("purpose", "batch").part("file", part);
        let file = self.0.sent(self.0.call(Method::POST, "/files").multipart(form), submission.bytes).await?;
        let file = id(&file)?;
        let batch = json!({
            "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h",
            "metadata": {KEY: submission.key.to_string()},
        });
        let made = self.0.json(self.0.call(Method::POST, "/batches").json(&batch)).await;
        if let Err(ProviderError::NotTaken(_)) = made {
            // There is no next try, which would look for the file.
            let _ = self.forget_file(&file).await;
        }
        accepted(&made?)
    }

    /// If there is no batch with this key, the files of requests that earlier tries have brought for it are deleted.
    pub async fn find(&self, key: Uuid, since: DateTime<Utc>) -> Result<Option<Accepted>, ProviderError> {
        let (key, since) = (key.to_string(), since.timestamp() - 3600);
        let ours = self.listed("/batches", &[], since, 1, |batch| batch["metadata"][KEY] == *key).await?;
        if let Some(ours) = ours.first() {
            return accepted(ours).map(Some);
        }
        let (name, query) = (file_name(&key), [("purpose", "batch"), ("order", "desc")]);
        match self.listed("/files", &query, since, FILES, |file| file["filename"] == *name).await {
            Ok(files) => {
                for file in &files {
                    self.forget_file(&id(file)?).await?;
                }
            }
            // Not every server with batches lists its files.
            Err(ProviderError::Unknown(_) | ProviderError::NotTaken(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// What matches in a list of the provider, the newest first and at most so much, down to what is older than `since`.
    async fn listed(
        &self,
        path: &str,
        query: &[(&str, &str)],
        since: i64,
        most: usize,
        matches: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>, ProviderError> {
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..PAGES {
            let mut call = self.0.call(Method::GET, path).query(&[("limit", "100")]).query(query);
            if let Some(after) = &after {
                call = call.query(&[("after", after)]);
            }
            let page = self.0.json(call).await?;
            let listed = page["data"].as_array().map(Vec::as_slice).unwrap_or_default();
            found.extend(listed.iter().filter(|one| matches(one)).cloned());
            let Some(last) = listed.last() else { break };
            let is_old = last["created_at"].as_i64().is_some_and(|at| at < since);
            if found.len() >= most || page["has_more"] != true || is_old {
                break;
            }
            after = Some(id(last)?);
        }
        found.truncate(most);
        Ok(found)
    }

    /// Deletes a file, unless it is gone already or the server deletes none: a file that stays must not keep its batch from being submitted.
    async fn forget_file(&self, file: &str) -> Result<(), ProviderError> {
        match self.0.json(self.0.call(Method::DELETE, &format!("/files/{}", segment(file)))).await {
            Ok(_) | Err(ProviderError::Unknown(_) | ProviderError::NotTaken(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn progress(&self, provider_id: &str) -> Result<Progress, ProviderError> {
        let batch = self.0.json(self.0.call(Method::GET, &format!("/batches/{}", segment(provider_id)))).await?;
        let outcome = match batch["status"].as_str() {
            Some("completed") => LlmBatchOutcome::Completed,
            Some("failed") => LlmBatchOutcome::Failed,
            Some("expired") => LlmBatchOutcome::Expired,
            Some("cancelled") => LlmBatchOutcome::Cancelled,
            _ => return Ok(Progress::Working),
        };
        let error = &batch["errors"]["data"][0];
        let code = error["code"].as_str();
        if let (Some(TOKEN_LIMIT), Some(file)) = (code, batch["input_file_id"].as_str()) {
            // The requests are brought again with the next try, so this copy of the texts is of no use.
            let _ = self.forget_file(file).await;
        }
        let results = ["output_file_id", "error_file_id"].iter().filter_map(|name| batch[*name].as_str());
        Ok(Progress::Ended {
            outcome,
            results: results.filter(|id| !id.is_empty()).map(str::to_owned).collect(),
            problem: error["message"].as_str().map(message),
            code: code.map(str::to_owned),
        })
    }

    pub async fn results(&self, at: &str) -> Result<Results, ProviderError> {
        let lines = self.0.lines(self.0.call(Method::GET, &format!("/files/{}/content", segment(at)))).await?;
        Ok(lines.boxed())
    }

    pub async fn cancel(&self, provider_id: &str) -> Result<(), ProviderError> {
        let path = format!("/batches/{}/cancel", segment(provider_id));
        self.0.json(self.0.call(Method::POST, &path)).await.map(|_| ())
    }
}

fn accepted(batch: &Value) -> Result<Accepted, ProviderError> {
    let expires_at = batch["expires_at"].as_i64().and_then(|at| DateTime::from_timestamp(at, 0));
    Ok(Accepted { provider_id: id(batch)?, expires_at })
}

/// The result of a line of an output file or an error file.
pub fn result(line: &Value) -> Option<BatchResult> {
    Some(BatchResult { custom_id: custom_id(line)?, answer: answer(line) })
}

fn answer(line: &Value) -> Result<LlmAnswer, Unanswered> {
    let response = &line["response"];
    let said = |error: &Value| match error["message"].as_str() {
        Some(text) => message(format!("{text} {}", error["code"].as_str().unwrap_or_default()).trim()),
        None => message(&error.to_string()),
    };
    if response.is_null() {
        let error = &line["error"];
        let code = match error["code"].as_str() {
            Some("batch_expired") => code::EXPIRED,
            Some("batch_cancelled") => code::CANCELLED,
            _ => code::FAILED,
        };
        return Err(Unanswered::new(code, said(error)));
    }
    let status = response["status_code"].as_u64().unwrap_or(200);
    if status == 200 {
        return answer_of(&response["body"]);
    }
    let said = said(&response["body"]["error"]);
    let code = match status {
        413 => code::TOO_LONG,
        400 | 422 if is_about_length(&said) => code::TOO_LONG,
        408 | 409 | 425 | 429 => code::FAILED,
        400..500 => code::REFUSED,
        _ => code::FAILED,
    };
    Err(Unanswered::new(code, format!("status {status}: {said}")))
}
