//! A provider in a folder: for trials and tests, without a language model. Whoever runs it decides when a batch is over.
use super::{
    api::{away, json_lines, segment},
    provider::{Accepted, Progress, ProviderError, Results, Submission},
};
use crate::spool::reopen;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::{
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
};
use svc_client::wire::LlmBatchOutcome;
use tokio::io::BufReader;
use uuid::Uuid;

const REQUESTS: &str = "requests.jsonl";
const RESULTS: &str = "results.jsonl";
/// A batch with this file is cancelled.
const CANCELLED: &str = "cancelled";
/// The most words that a mock answer takes from its text.
const WORDS: usize = 40;

/// A folder with a folder for each batch.
#[derive(Debug)]
pub struct Mock {
    folder: PathBuf,
}

impl Mock {
    pub fn new(folder: PathBuf) -> Mock {
        Mock { folder }
    }

    fn batch(&self, id: &str) -> PathBuf {
        self.folder.join(segment(id))
    }

    pub async fn submit(&self, submission: Submission<'_>) -> Result<Accepted, ProviderError> {
        let id = submission.key.to_string();
        let (batch, from) = (self.batch(&id), reopen(submission.file));
        blocking(move || {
            let mut from = from?;
            std::fs::create_dir_all(&batch)?;
            write(&batch, REQUESTS, |file| io::copy(&mut from, file).map(|_| ()))
        })
        .await?;
        Ok(Accepted { provider_id: id, expires_at: None })
    }

    pub async fn find(&self, key: Uuid) -> Result<Option<Accepted>, ProviderError> {
        let id = key.to_string();
        Ok(self.batch(&id).join(REQUESTS).exists().then_some(Accepted { provider_id: id, expires_at: None }))
    }

    pub async fn progress(&self, provider_id: &str) -> Result<Progress, ProviderError> {
        let batch = self.batch(provider_id);
        if !batch.join(REQUESTS).exists() {
            return Err(ProviderError::Unknown(format!("{} holds no requests", batch.display())));
        }
        let results = batch.join(RESULTS).exists().then(|| provider_id.to_owned());
        Ok(match (batch.join(CANCELLED).exists(), results) {
            (true, results) => ended(LlmBatchOutcome::Cancelled, results.into_iter().collect()),
            (false, Some(results)) => ended(LlmBatchOutcome::Completed, vec![results]),
            (false, None) => Progress::Working,
        })
    }

    pub async fn results(&self, at: &str) -> Result<Results, ProviderError> {
        let file =
            tokio::fs::File::open(self.batch(at).join(RESULTS)).await.map_err(|error| away(error.to_string()))?;
        Ok(json_lines(BufReader::new(file)).boxed())
    }

    pub async fn cancel(&self, provider_id: &str) -> Result<(), ProviderError> {
        let batch = self.batch(provider_id);
        blocking(move || write(&batch, CANCELLED, |_| Ok(()))).await
    }

    /// Answers all requests of the batches that have no results; each answer is the beginning of its text. Returns how many batches that were.
    pub fn finalize(folder: &Path) -> io::Result<usize> {
        let mut count = 0;
        for batch in std::fs::read_dir(folder)? {
            let batch = batch?.path();
            if !batch.join(REQUESTS).exists() || batch.join(RESULTS).exists() || batch.join(CANCELLED).exists() {
                continue;
            }
            let requests = io::BufReader::new(std::fs::File::open(batch.join(REQUESTS))?);
            write(&batch, RESULTS, |file| {
                let mut file = io::BufWriter::new(file);
                for line in requests.lines() {
                    let request: Value = serde_json::from_str(&line?)?;
                    writeln!(file, "{}", answered(&request))?;
                }
                file.flush()
            })?;
            count += 1;
        }
        Ok(count)
    }
}

fn ended(outcome: LlmBatchOutcome, results: Vec<String>) -> Progress {
    Progress::Ended { outcome, results, problem: None, code: None }
}

fn answered(request: &Value) -> Value {
    let messages = &request["body"]["messages"];
    let asked = messages[1]["content"].as_str().unwrap_or_default();
    // The text stands between two lines that repeat a mark.
    let mut lines = asked.lines().skip_while(|line| line.len() != 32 || !line.bytes().all(|b| b.is_ascii_hexdigit()));
    let mark = lines.next().unwrap_or_default();
    let text: Vec<&str> = lines.take_while(|line| *line != mark).flat_map(str::split_whitespace).take(WORDS).collect();
    let words = |text: &str| text.split_whitespace().count();
    let body = json!({
        "model": request["body"]["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text.join(" ")}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": words(asked), "completion_tokens": text.len()},
    });
    json!({"custom_id": request["custom_id"], "response": {"status_code": 200, "body": body}, "error": null})
}

/// Writes a file so that it is there whole or not at all, and only for its owner.
fn write(folder: &Path, name: &str, fill: impl FnOnce(&mut std::fs::File) -> io::Result<()>) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    fill(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(folder.join(name)).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), ProviderError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| away(error.to_string())),
        Err(error) => Err(away(error.to_string())),
    }
}
