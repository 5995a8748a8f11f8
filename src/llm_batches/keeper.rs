//! Moves batches on: closes, submits, polls, keeps results. Every step is recorded before the next one begins, so that a keeper which is killed anywhere
//! goes on where it was.
mod files;

use super::{
    Batching, TASK_BYTES, code,
    provider::{Accepted, Progress, Provider, ProviderError, Submission, TOKEN_LIMIT},
};
use crate::{
    store::{
        self,
        llm_batches::{BatchCounts, BatchResult, BatchRow},
        transaction,
    },
    telemetry,
};
use files::{ANSWERS, Part, REQUESTS, Written};
use futures_util::StreamExt;
use sqlx::{Connection, PgConnection, PgPool};
use std::{
    collections::{BTreeSet, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::wire::{LlmBatchOutcome, LlmBatchState};
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio_util::sync::CancellationToken;

/// The size of a message in the count of what is in memory.
const MESSAGE_BYTES: usize = 2000;
/// How many results are kept in one transaction.
const RESULTS: usize = 500;
/// The longest first pause after a provider did not do what it was asked; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// How often a batch is submitted although the provider may have it and cannot be asked.
const DOUBTS: i32 = 3;
/// How long a batch waits for which the provider has no room, if no other batch of its model ends before.
const PUT_OFF: Duration = Duration::from_secs(1800);
/// How often, and after which pause each, it is tried to record that the provider has a batch.
const RECORDS: u32 = 10;
const RECORD_PAUSE: Duration = Duration::from_secs(1);

/// What a keeper is told.
#[derive(Debug)]
pub struct KeeperSettings {
    pub provider: Provider,
    pub batching: Arc<Batching>,
    /// The folder that keeps what was sent and what came; `None`: nothing is kept.
    pub store: Option<PathBuf>,
    /// Where a batch is written before it is sent.
    pub spool: PathBuf,
    /// How long a batch waits for more requests.
    pub wait: Duration,
    /// The time between two looks at the provider's batches.
    pub poll: Duration,
    /// How long ended batches and the files of the store are kept.
    pub kept: Duration,
}

/// Why a keeper cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("another svc-batch-worker for this provider works on this database; stop it first")]
    Another,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Keeps the batches of one provider; there is one for each database.
#[derive(Debug)]
pub struct Keeper {
    pool: PgPool,
    settings: KeeperSettings,
    /// The connection that holds the right to be the only one.
    lead: Option<PgConnection>,
    next_poll: Instant,
    paused_until: Instant,
    pause: Duration,
    problem: Option<String>,
    stopping: CancellationToken,
}

impl Keeper {
    pub fn new(pool: PgPool, settings: KeeperSettings) -> Keeper {
        let now = Instant::now();
        let (pause, stopping) = (settings.poll.clamp(LEAST_PAUSE, PAUSE), CancellationToken::new());
        Keeper { pool, settings, lead: None, next_poll: now, paused_until: now, pause, problem: None, stopping }
    }

    /// Once this is cancelled, a pass moves no further batch on, and ends when the provider has answered about the one that it is at.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// What went wrong with the provider in the last pass.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Moves each batch as far as it goes now; with `hurry`, batches are submitted without waiting for more requests, and the provider is asked at once.
    /// Returns whether a batch has ended, so that its tasks can be taken up.
    pub async fn pass(&mut self, hurry: bool) -> Result<bool, KeeperError> {
        let name = self.settings.batching.provider;
        // A keeper that lost the right stops at the first statement, which fails on the connection that held it.
        let mut lead = match self.lead.take() {
            Some(lead) => lead,
            None => {
                let lead = store::llm_batches::lead(&self.pool, name as i64).await?;
                let mut lead = lead.ok_or(KeeperError::Another)?;
                files::sweep(&mut lead, &self.settings).await?;
                lead
            }
        };
        let moved = self.move_on(&mut lead, hurry).await?;
        self.lead = Some(lead);
        Ok(moved)
    }

    async fn move_on(&mut self, lead: &mut PgConnection, hurry: bool) -> sqlx::Result<bool> {
        let name = self.settings.batching.provider.as_str();
        let wait = if hurry { Duration::ZERO } else { self.settings.wait };
        store::llm_batches::close_due(lead, name, wait).await?;
        let mut ended = false;
        let asks = hurry || Instant::now() >= self.paused_until;
        let polls = hurry || Instant::now() >= self.next_poll;
        if asks && polls {
            self.next_poll = Instant::now() + self.settings.poll;
        }
        self.problem = None;
        let mut is_away = false;
        for batch in store::llm_batches::owed(lead, name).await? {
            if self.stopping.is_cancelled() {
                break;
            }
            let is_due = asks && (polls || batch.state.0 != LlmBatchState::Submitted);
            let step = match batch.state.0 {
                LlmBatchState::Open | LlmBatchState::Closed if batch.is_cancelled => {
                    self.end(lead, &batch, LlmBatchOutcome::Cancelled, BatchCounts::default(), None).await?;
                    Ok(true)
                }
                LlmBatchState::Submitted if is_due => {
                    let looked = self.look(lead, &batch).await?;
                    // The batch may have ended long ago while nobody looked, and its answers are paid for.
                    let is_without_answers = match &looked {
                        Ok(is_over) => !is_over,
                        Err(ProviderError::Unknown(_)) => true,
                        Err(_) => batch.is_cancelled,
                    };
                    match batch.is_given_up && is_without_answers {
                        true => self.give_up(lead, &batch).await.map(|()| Ok(true))?,
                        false => looked,
                    }
                }
                LlmBatchState::Submitted => Ok(false),
                _ if batch.is_given_up => self.give_up(lead, &batch).await.map(|()| Ok(true))?,
                LlmBatchState::Closed | LlmBatchState::Submitting if is_due && !batch.is_put_off => {
                    self.submit(lead, &batch).await?
                }
                _ => Ok(false),
            };
            match step {
                Ok(is_over) => ended |= is_over,
                Err(error) => {
                    tracing::warn!(batch.id = batch.id, error = %error, "a batch does not move on; it is tried again");
                    store::llm_batches::note(lead, batch.id, &error.to_string()).await?;
                    self.problem = Some(error.to_string());
                    // What is wrong with one batch keeps no other from moving on.
                    let (ProviderError::Away { .. } | ProviderError::Refused(_)) = error else { continue };
                    let asked = if let ProviderError::Away { retry_after, .. } = error { retry_after } else { None };
                    self.paused_until = Instant::now() + asked.unwrap_or_default().max(self.pause).min(LONGEST_PAUSE);
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                    is_away = true;
                    break;
                }
            }
        }
        if asks && !is_away {
            self.pause = self.settings.poll.clamp(LEAST_PAUSE, PAUSE);
        }
        let forgotten = store::llm_batches::tidy(lead, name, self.settings.kept).await?;
        if let Some(store) = &self.settings.store {
            for (id, key) in forgotten {
                for part in [REQUESTS, ANSWERS] {
                    files::remove(&files::path(store, id, key, part));
                }
            }
        }
        Ok(ended)
    }

    /// Ends a batch that its provider did not end in time.
    async fn give_up(&self, lead: &mut PgConnection, batch: &BatchRow) -> sqlx::Result<()> {
        let outcome = if batch.is_cancelled { LlmBatchOutcome::Cancelled } else { LlmBatchOutcome::Expired };
        let problem = "the provider did not end it in time".to_owned();
        self.end(lead, batch, outcome, BatchCounts::default(), Some(problem)).await
    }

    /// Hands a batch to the provider, unless the provider has it already.
    async fn submit(&self, lead: &mut PgConnection, batch: &BatchRow) -> sqlx::Result<Result<bool, ProviderError>> {
        let found = match batch.submitting_at {
            Some(since) => self.settings.provider.find(batch.key, since).await,
            None => Ok(None),
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let accepted = match found {
            Some(accepted) => {
                tracing::info!(
                    batch.id = batch.id,
                    provider.id = accepted.provider_id,
                    "the provider has the batch already"
                );
                Ok(accepted)
            }
            None if batch.is_cancelled => {
                self.end(lead, batch, LlmBatchOutcome::Cancelled, BatchCounts::default(), None).await?;
                return Ok(Ok(true));
            }
            None if batch.doubts >= DOUBTS => {
                let problem = in_doubt("each time the worker ended before the provider had answered");
                self.end(lead, batch, LlmBatchOutcome::Failed, BatchCounts::default(), Some(problem)).await?;
                return Ok(Ok(true));
            }
            None => {
                let written = match self.write(lead, batch).await? {
                    Ok(written) => written,
                    Err(error) => {
                        let reason = format!("its requests could not be written to a file: {error}");
                        return Ok(Err(ProviderError::Away { reason, retry_after: None, is_certain: true }));
                    }
                };
                if written.requests == 0 {
                    // All of its tasks have left.
                    self.end(lead, batch, LlmBatchOutcome::Cancelled, BatchCounts::default(), None).await?;
                    return Ok(Ok(true));
                }
                let (size, is_in_doubt) = ((written.requests, written.bytes), !self.settings.provider.can_find());
                if !store::llm_batches::submitting(lead, batch.id, size, is_in_doubt).await? {
                    return Ok(Ok(false));
                }
                let submission = Submission { key: batch.key, file: &written.file, bytes: written.bytes };
                self.settings.provider.submit(submission).await
            }
        };
        match accepted {
            Ok(accepted) => {
                self.record(batch, &accepted).await?;
                Ok(Ok(false))
            }
            Err(ProviderError::NotTaken(reason)) => {
                self.end(lead, batch, LlmBatchOutcome::Failed, BatchCounts::default(), Some(reason)).await?;
                Ok(Ok(true))
            }
            Err(error) if self.settings.provider.can_find() => Ok(Err(error)),
            Err(error @ ProviderError::Away { is_certain: false, .. }) => {
                if batch.doubts + 1 < DOUBTS {
                    return Ok(Err(error));
                }
                let problem = in_doubt(&error.to_string());
                self.end(lead, batch, LlmBatchOutcome::Failed, BatchCounts::default(), Some(problem)).await?;
                Ok(Ok(true))
            }
            Err(error) => {
                store::llm_batches::not_sent(lead, batch.id).await?;
                Ok(Err(error))
            }
        }
    }

    /// Records that the provider has a batch, on connections of the pool: the one that holds the right to be the only keeper may have been lost while the
    /// provider took its time, and nobody else knows under which name it has the batch.
    async fn record(&self, batch: &BatchRow, accepted: &Accepted) -> sqlx::Result<()> {
        let (id, provider_id) = (batch.id, accepted.provider_id.as_str());
        let mut tries = 1;
        let recorded = loop {
            match store::llm_batches::submitted(&self.pool, id, provider_id, accepted.expires_at).await {
                Err(error) if tries < RECORDS => {
                    tracing::warn!(
                        batch.id = id,
                        provider.id = provider_id,
                        error = %error,
                        "it could not be recorded that a batch was submitted; it is tried again"
                    );
                    tries += 1;
                    tokio::time::sleep(RECORD_PAUSE).await;
                }
                recorded => break recorded,
            }
        };
        match recorded {
            Ok(true) => tracing::info!(batch.id = id, provider.id = provider_id, "a batch was submitted"),
            Ok(false) => tracing::warn!(
                batch.id = id,
                provider.id = provider_id,
                "the provider has this batch although it ended or was submitted by another worker; cancel it at the provider"
            ),
            Err(error) => {
                tracing::error!(
                    batch.id = id,
                    provider.id = provider_id,
                    "the provider has this batch, which could not be recorded; cancel it at the provider"
                );
                return Err(error);
            }
        }
        Ok(())
    }

    /// Has a batch wait for which the provider has no room beside the others of its model. Returns false if there are no others, whose end would make room.
    async fn put_off(&self, lead: &mut PgConnection, batch: &BatchRow, problem: Option<&str>) -> sqlx::Result<bool> {
        let said = problem.unwrap_or(TOKEN_LIMIT);
        let problem = format!("it is submitted again when another batch of its model has ended: {said}");
        if !store::llm_batches::put_off(lead, batch.id, PUT_OFF, &problem).await? {
            return Ok(false);
        }
        if let Some(store) = &self.settings.store {
            // The next try writes the requests again, under another key.
            files::remove(&files::path(store, batch.id, batch.key, REQUESTS));
        }
        tracing::info!(batch.id = batch.id, reason = said, "the provider has no room for a batch yet");
        Ok(true)
    }

    /// Writes the requests of a batch to a file.
    async fn write(&self, lead: &mut PgConnection, batch: &BatchRow) -> sqlx::Result<io::Result<Written>> {
        let (file, kept) = match files::begin(&self.settings, batch) {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        let mut file = BufWriter::new(tokio::fs::File::from_std(file));
        let (mut requests, mut bytes, mut after) = (0, 0, String::new());
        loop {
            let lines = store::llm_batches::lines(lead, batch.id, &after).await?;
            let Some((last, _)) = lines.last() else { break };
            after.clone_from(last);
            for (_, line) in &lines {
                requests += 1;
                bytes += line.len() as u64 + 1;
                let written = async {
                    file.write_all(line.as_bytes()).await?;
                    file.write_all(b"\n").await
                };
                if let Err(error) = written.await {
                    return Ok(Err(error));
                }
            }
        }
        if let Err(error) = file.flush().await {
            return Ok(Err(error));
        }
        let file = file.into_inner().into_std().await;
        Ok(kept.map_or(Ok(()), Part::end).map(|()| Written { file, requests, bytes }))
    }

    /// Asks the provider how far a batch is, and keeps its results if it is over.
    async fn look(&self, lead: &mut PgConnection, batch: &BatchRow) -> sqlx::Result<Result<bool, ProviderError>> {
        let provider_id = batch.provider_id.as_deref().unwrap_or_default();
        let progress = match self.settings.provider.progress(provider_id).await {
            Ok(Progress::Working) if batch.is_cancelled => match self.settings.provider.cancel(provider_id).await {
                Ok(()) | Err(ProviderError::NotTaken(_)) => self.settings.provider.progress(provider_id).await,
                Err(error) => Err(error),
            },
            progress => progress,
        };
        if let Ok(Progress::Ended { problem, code: Some(code), .. }) = &progress
            && code == TOKEN_LIMIT
            && !batch.is_cancelled
            && self.put_off(lead, batch, problem.as_deref()).await?
        {
            return Ok(Ok(false));
        }
        match progress {
            Ok(Progress::Working) => Ok(Ok(false)),
            Ok(Progress::Ended { outcome, results, problem, .. }) => match self.keep(batch, &results).await? {
                Ok(counts) => {
                    self.end(lead, batch, outcome, counts, problem).await?;
                    Ok(Ok(true))
                }
                // The batch is there, and its results are not, for good.
                Err(ProviderError::Unknown(reason) | ProviderError::NotTaken(reason)) => {
                    self.end(lead, batch, outcome, BatchCounts::default(), Some(reason)).await?;
                    Ok(Ok(true))
                }
                Err(error) => Ok(Err(error)),
            },
            // A wrong address knows no batch either, so this alone throws away nothing that was paid.
            Err(ProviderError::Unknown(reason)) if batch.is_cancelled || batch.is_overdue => {
                let outcome = if batch.is_cancelled { LlmBatchOutcome::Cancelled } else { LlmBatchOutcome::Failed };
                self.end(lead, batch, outcome, BatchCounts::default(), Some(reason)).await?;
                Ok(Ok(true))
            }
            Err(ProviderError::Unknown(reason)) => Ok(Err(ProviderError::Unknown(format!(
                "{reason}; see that the address and the key are those that it was submitted with, or give it up: svc-batch-worker cancel {}",
                batch.id
            )))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Keeps all results of a batch, a few at a time.
    async fn keep(&self, batch: &BatchRow, results: &[String]) -> sqlx::Result<Result<BatchCounts, ProviderError>> {
        let id = batch.id;
        let most = 2 * usize::try_from(self.settings.batching.caps.requests).unwrap_or(usize::MAX / 4);
        let (mut counts, mut read) = (BatchCounts::default(), 0);
        let mut seen: HashSet<String> = HashSet::new();
        let kept = self.settings.store.as_ref().map(|store| Part::begin(store, batch, ANSWERS));
        let mut copy = match kept.transpose() {
            Ok(copy) => copy,
            Err(error) => return Ok(Err(not_kept(&error))),
        };
        for at in results {
            let mut lines = match self.settings.provider.results(at).await {
                Ok(lines) => lines,
                Err(error) => return Ok(Err(error)),
            };
            let (mut part, mut bytes) = (Vec::new(), 0);
            loop {
                let line = match lines.next().await.transpose() {
                    Ok(line) => line,
                    Err(error) => return Ok(Err(error)),
                };
                read += 1;
                // No provider has so much to say of a batch.
                let is_end = line.is_none() || read > most + 1000;
                if let Some(line) = line {
                    if let Some(Err(error)) = line.as_ref().zip(copy.as_mut()).map(|(line, copy)| copy.add(line)) {
                        return Ok(Err(not_kept(&error)));
                    }
                    match line.as_ref().and_then(|line| self.settings.provider.result(line)) {
                        Some(result) if seen.contains(&result.custom_id) => counts.repeated += 1,
                        Some(result) => {
                            seen.insert(result.custom_id.clone());
                            bytes += result.answer.as_ref().map_or(MESSAGE_BYTES, |answer| answer.answer.len());
                            part.push(result);
                        }
                        None => counts.unknown += 1,
                    }
                }
                if part.len() >= RESULTS || bytes >= TASK_BYTES || (is_end && !part.is_empty()) {
                    // What a crash of the server takes back is read again, because only the end of the batch keeps it from that: it waits for the disk, and
                    // comes only where no crash came before it.
                    let mut tx = transaction::begin_unflushed(&self.pool).await?;
                    let refused = self.passing(&mut tx, id, &mut part).await?;
                    // Whoever lost the right to keep batches may still end here: what is kept twice is kept once.
                    let came = store::llm_batches::record(&mut tx, id, &part).await?;
                    let provider = self.settings.batching.provider.as_str();
                    store::llm_batches::refuse(&mut tx, provider, &batch.model, &refused).await?;
                    tx.commit().await?;
                    counts.add(came);
                    (part, bytes) = (Vec::new(), 0);
                }
                if is_end {
                    break;
                }
            }
        }
        if let Some(Err(error)) = copy.map(Part::end) {
            return Ok(Err(not_kept(&error)));
        }
        Ok(Ok(counts))
    }

    /// Makes of each refusal for an optional field that was sent a failure that passes, because the next request lacks the field. Returns these fields.
    async fn passing(
        &self,
        conn: &mut PgConnection,
        batch_id: i64,
        results: &mut [BatchResult],
    ) -> sqlx::Result<BTreeSet<&'static str>> {
        let mut named = Vec::new();
        for (at, result) in results.iter().enumerate() {
            // A model that has read the request refuses its text, and may name a field in its own words.
            if let Err(refusal) = &result.answer
                && refusal.code == code::REFUSED
                && refusal.model.is_empty()
            {
                named.extend(self.settings.batching.optional_fields_in(&refusal.message).map(|field| (at, field)));
            }
        }
        let mut fields = BTreeSet::new();
        if named.is_empty() {
            return Ok(fields);
        }
        let asked: Vec<(&str, &str)> =
            named.iter().map(|(at, field)| (results[*at].custom_id.as_str(), *field)).collect();
        let sent = store::llm_batches::sent(conn, batch_id, &asked).await?;
        for ((at, field), _) in named.into_iter().zip(sent).filter(|(_, is_sent)| *is_sent) {
            // The first one that was sent is refused.
            if let Err(refusal) = &mut results[at].answer
                && refusal.code == code::REFUSED
            {
                code::FAILED.clone_into(&mut refusal.code);
                fields.insert(field);
            }
        }
        Ok(fields)
    }

    async fn end(
        &self,
        lead: &mut PgConnection,
        batch: &BatchRow,
        outcome: LlmBatchOutcome,
        counts: BatchCounts,
        problem: Option<String>,
    ) -> sqlx::Result<()> {
        let (kind, says) = match outcome {
            LlmBatchOutcome::Completed => (code::MISSING, "the batch ended without a result for the request"),
            LlmBatchOutcome::Failed => (code::BROKEN, "the batch failed as a whole"),
            LlmBatchOutcome::Expired => (code::EXPIRED, "the batch expired before the request was answered"),
            LlmBatchOutcome::Cancelled => (code::CANCELLED, "the batch was cancelled before the request was answered"),
        };
        let message = problem.map_or_else(|| says.to_owned(), |problem| format!("{says}: {problem}"));
        let mut tx = transaction::begin(&self.pool).await?;
        // A server that crashed since results were kept may have lost them, and has ended this connection. Only what is read again then is all that came.
        lead.ping().await?;
        let ours = store::llm_batches::end(&mut tx, batch.id, outcome, counts, (kind, &message)).await?;
        tx.commit().await?;
        if ours {
            metrics::counter!(telemetry::LLM_BATCHES, "provider" => self.settings.batching.provider.as_str(), "outcome" => outcome.as_str())
                .increment(1);
            tracing::info!(
                batch.id = batch.id,
                outcome = outcome.as_str(),
                answered = counts.answered,
                failed = counts.failed,
                "a batch has ended"
            );
        }
        Ok(())
    }
}

fn in_doubt(why: &str) -> String {
    format!("it is unknown whether the provider has it, after {DOUBTS} submissions: {why}")
}

fn not_kept(error: &io::Error) -> ProviderError {
    let reason = format!("its results could not be written to the folder of --store: {error}");
    ProviderError::Away { reason, retry_after: None, is_certain: true }
}
