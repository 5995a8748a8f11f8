//! What a task asks a language model. Every answer is kept before the next question, so that no attempt pays for what an earlier one got, and a
//! process with batches leaves its questions to the next one.
use super::{AWAY_RESTS, Classify, LANGUAGE_MODEL_AWAY, LANGUAGE_MODEL_BUSY, OrTaskFailure};
use crate::{
    ingest::Tools,
    llm::{Ask, LlmError},
    llm_batches::{TASK_BYTES, TASK_REQUESTS, code},
    store::{
        self,
        llm_batches::{Parked, Parking, Request, Said},
        summaries::{Asker, LlmAnswer},
    },
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use std::{
    slice,
    time::{Duration, Instant},
};
use svc_actors::{ErrorClass, Grant, Outcome, TaskFailure};
use svc_ids::DocumentId;

/// The errors of batches that stay when the task tries again: the question is another one then.
const KEPT: [&str; 2] = [code::TOO_LONG, code::ONLY_REASONING];
/// The errors of one question that say nothing of the task's others.
const OF_ONE: [&str; 3] = [code::TOO_LONG, code::ONLY_REASONING, code::REFUSED];
/// The least pause after a batch failed as a whole.
const BROKEN_PAUSE: Duration = Duration::from_secs(1800);

impl Classify for LlmError {
    fn classify(self) -> TaskFailure {
        let message = self.to_string();
        match self {
            LlmError::NotConfigured(_) => {
                let message = format!("{message} (SVC_LLM_BASE_URL)");
                TaskFailure::new(ErrorClass::Dependency, "no_language_model", message)
            }
            LlmError::Away(_) => {
                TaskFailure { rest: Some(AWAY_RESTS), ..TaskFailure::away(LANGUAGE_MODEL_AWAY, message) }
            }
            LlmError::Busy { retry_after, is_named, .. } => TaskFailure {
                retry_after: Some(retry_after),
                // Nearly all tasks of the lane ask the model of the settings.
                rest: (!is_named).then_some(retry_after),
                ..TaskFailure::away(LANGUAGE_MODEL_BUSY, message)
            },
            LlmError::Refused { setting, .. } => {
                TaskFailure::permanent("language_model_refuses", message).with_detail("setting", setting)
            }
            LlmError::TooLong(_) => {
                TaskFailure::permanent("text_too_long", message).with_detail("setting", "SVC_LLM_CONTEXT_TOKENS")
            }
            LlmError::Broken(_) => TaskFailure::retryable("language_model_failed", message),
            LlmError::OnlyReasoning => TaskFailure::permanent("only_reasoning", message)
                .with_detail("setting", "SVC_SUMMARIZATION_DISABLE_THINKING"),
        }
    }
}

/// What came of a question.
pub(super) enum Asked {
    Answer(LlmAnswer),
    Error(LlmError),
    /// It is asked in the next batch.
    Later,
}

/// What a process that asks by batches does about a question.
enum Turn {
    Asked(Asked),
    /// It calls the language model: no batch has answered, and the task has no further attempt for another one.
    Call(Vec<u8>, Ask),
}

/// A question for a batch.
struct Wanted {
    hash: Vec<u8>,
    ask: Ask,
}

/// How long an attempt goes on asking.
struct Clock {
    /// When it began to ask.
    begun: Option<Instant>,
    /// The time after which the task goes on in another attempt.
    enough: Duration,
    /// It has got an answer, which the next attempt need not ask for.
    has_gained: bool,
}

impl Clock {
    fn new(deadline: Option<Duration>) -> Clock {
        Clock { begun: None, enough: deadline.map_or(Duration::MAX, |deadline| deadline / 2), has_gained: false }
    }

    /// Whether the next attempt goes on. One that has got nothing goes on itself, however late it is, because the next one would be as late.
    fn is_over(&self) -> bool {
        self.has_gained && self.begun.is_some_and(|begun| begun.elapsed() >= self.enough)
    }
}

/// The questions of one task.
pub(super) struct Asking<'a> {
    tools: &'a Tools,
    grant: &'a Grant,
    /// The language model of the file's options; `None`: that of the settings.
    pub llm: Option<String>,
    clock: Clock,
    /// The hashes of the questions that were answered.
    pub asked: Vec<Vec<u8>>,
    /// The questions that wait for a batch of a provider.
    wanted: Vec<Wanted>,
    wanted_bytes: usize,
    /// No batch has answered and no further attempt can wait for one, so that whatever has no answer yet is asked of the language model.
    calls: bool,
    /// How many of the questions an earlier attempt has asked.
    kept: usize,
    /// How many answers came by batches.
    batched: usize,
    /// The model that answered last.
    name: String,
    tokens: (i64, i64),
}

impl<'a> Asking<'a> {
    pub fn new(tools: &'a Tools, grant: &'a Grant, llm: Option<String>) -> Asking<'a> {
        Asking {
            tools,
            grant,
            llm,
            clock: Clock::new(grant.deadline),
            asked: Vec::new(),
            wanted: Vec::new(),
            wanted_bytes: 0,
            calls: false,
            kept: 0,
            batched: 0,
            name: String::new(),
            tokens: (0, 0),
        }
    }

    /// The model that is asked.
    pub fn model(&self) -> &str {
        self.llm.as_deref().unwrap_or(match &self.tools.batching {
            Some(batching) => &batching.model,
            None => self.tools.language_model.model(),
        })
    }

    fn asker(&self) -> Asker<'a> {
        Asker { document_id: self.grant.document_id, task_type: &self.grant.task_type }
    }

    /// Forgets answers that are of no use, so that whoever asks the same again asks the model. A process that ends before the task has failed
    /// leaves it to another attempt, which asks again too.
    pub async fn forget(&self, asked: &[Vec<u8>]) -> Result<(), TaskFailure> {
        let mut conn = self.tools.pool.acquire().await.classified()?;
        store::summaries::forget(&mut conn, asked).await.classified()
    }

    /// Forgets what was answered to other questions than these, in the transaction of a task that completes.
    pub async fn keep_only(&self, conn: &mut PgConnection) -> Result<(), TaskFailure> {
        store::summaries::keep_only(conn, self.asker(), self.grant.task_id, &self.asked).await.classified()
    }

    /// The answer to one question, which its hash tells from others; an earlier one if there is one.
    pub async fn asked(&mut self, mut hash: Vec<u8>, mut ask: Ask) -> Result<Asked, TaskFailure> {
        self.clock.begun.get_or_insert_with(Instant::now);
        let mut conn = self.tools.pool.acquire().await.classified()?;
        let mut known = store::summaries::answer(&mut conn, self.asker(), &hash).await.classified()?;
        if known.as_ref().is_some_and(|known| known.answer.trim().is_empty()) {
            // An answer without a letter tells nobody anything, so the model is asked again.
            store::summaries::forget(&mut conn, slice::from_ref(&hash)).await.classified()?;
            known = None;
        }
        self.kept += usize::from(known.is_some());
        if known.is_none() && self.tools.batching.is_some() && !self.calls {
            match self.asked_later(&mut conn, hash, ask).await? {
                Turn::Asked(asked) => return Ok(asked),
                Turn::Call(its_hash, itself) => {
                    self.calls = true;
                    (hash, ask) = (its_hash, itself);
                }
            }
        }
        drop(conn);
        let answer = match known {
            Some(answer) => answer,
            None if self.clock.is_over() => {
                let message = "the text takes more calls than one attempt has time for; the next one goes on";
                return Err(TaskFailure::away("unfinished", message));
            }
            None => {
                let answer = match self.call(ask).await {
                    Ok(answer) => answer,
                    Err(error) => return Ok(Asked::Error(error)),
                };
                let mut conn = self.tools.pool.acquire().await.classified()?;
                store::summaries::keep_answer(&mut conn, self.asker(), &hash, &answer).await.classified()?;
                self.clock.has_gained = true;
                answer
            }
        };
        self.tokens.0 = self.tokens.0.saturating_add(answer.prompt_tokens);
        self.tokens.1 = self.tokens.1.saturating_add(answer.completion_tokens);
        self.asked.push(hash);
        self.name.clone_from(&answer.model);
        self.batched += usize::from(answer.batch_id.is_some());
        Ok(Asked::Answer(answer))
    }

    /// What a batch said against a question; else the question is asked in the next batch.
    async fn asked_later(&mut self, conn: &mut PgConnection, hash: Vec<u8>, ask: Ask) -> Result<Turn, TaskFailure> {
        let task_id = self.grant.task_id;
        let said = store::llm_batches::said(conn, task_id, &hash, &OF_ONE).await.classified()?;
        let Some(Said { code: kind, message, times, is_own }) = said else {
            self.want(hash, ask);
            return Ok(Turn::Asked(Asked::Later));
        };
        if is_own {
            match kind.as_str() {
                code::TOO_LONG => return Ok(Turn::Asked(Asked::Error(LlmError::TooLong(message)))),
                // The model is asked once more not to reason.
                code::ONLY_REASONING if ask.thinks && times == 1 => {
                    self.want(hash, Ask { thinks: false, ..ask });
                    return Ok(Turn::Asked(Asked::Later));
                }
                code::ONLY_REASONING => {
                    let message = format!(
                        "{message}: set SVC_SUMMARIZATION_DISABLE_THINKING=true, or name a model that does not reason"
                    );
                    return Err(TaskFailure::permanent("only_reasoning", message)
                        .with_detail("setting", "SVC_SUMMARIZATION_DISABLE_THINKING"));
                }
                code::REFUSED => return Err(TaskFailure::permanent("language_model_refuses", message)),
                _ => {}
            }
        }
        // A provider that takes no batch now, as for a limit of the account, may take one when another has ended.
        let retry_after = (kind == code::BROKEN).then_some(BROKEN_PAUSE);
        let failure = TaskFailure { retry_after, ..TaskFailure::retryable(format!("batch_{kind}"), message) };
        let can_call = self.tools.language_model.is_chosen();
        if can_call && store::tasks::is_last(conn, self.grant, &failure).await.classified()? {
            // What was said stays: if the endpoint is away, whoever goes on calls it too, and waits for no further batch.
            return Ok(Turn::Call(hash, ask));
        }
        if !is_own {
            self.want(hash, ask);
            return Ok(Turn::Asked(Asked::Later));
        }
        store::llm_batches::forget_said(conn, task_id, &KEPT).await.classified()?;
        Err(failure)
    }

    /// Keeps a question for the next batch; equal parts are asked of once.
    fn want(&mut self, hash: Vec<u8>, ask: Ask) {
        if !self.wanted.iter().any(|wanted| wanted.hash == hash) {
            self.wanted_bytes += ask.message.len();
            self.wanted.push(Wanted { hash, ask });
        }
    }

    /// Whether questions wait for a batch.
    pub fn waits(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Whether the questions so far are enough for one batch.
    pub fn wants_enough(&self) -> bool {
        self.wanted_bytes >= TASK_BYTES || self.wanted.len() >= TASK_REQUESTS
    }

    /// Leaves the questions to the next batch, in which the task waits, unless one of the documents that it asks of, each with the hash of its
    /// text, is another by now.
    pub async fn park(self, sources: &[(DocumentId, String)]) -> Result<Outcome, TaskFailure> {
        let (tools, grant) = (self.tools, self.grant);
        // Only a process with batches wants any.
        let Some(batching) = &tools.batching else { return Ok(Outcome::LostLease) };
        let model = self.llm.as_deref().unwrap_or(&batching.model).to_owned();
        let refused = batching.refused(&tools.pool, &[&model]).await.classified()?;
        let many = self.wanted.len() > 1;
        let requests: Vec<Request> = self
            .wanted
            .into_iter()
            .enumerate()
            .map(|(at, Wanted { hash, ask })| {
                let custom_id = match many {
                    false => format!("task-{}", grant.task_id),
                    true => format!("task-{}-{}", grant.task_id, at + 1),
                };
                let line = batching.line(&custom_id, &ask, &refused);
                Request { custom_id, asked: hash, sources: Vec::new(), line }
            })
            .collect();
        let parking = Parking { grant: grant.clone(), model, requests, sources: sources.to_vec() };
        match batching.park(&tools.pool, parking).await.classified()? {
            Parked::Waits => return Ok(Outcome::Batched),
            Parked::Changed => {
                return Err(TaskFailure::away("changed", "documents were changed before they could be asked of"));
            }
            Parked::Awaited => {
                return Err(TaskFailure::away("unsettled", "the text waits to be embedded and indexed first"));
            }
            Parked::Lost | Parked::Later => {}
        }
        let mut conn = tools.pool.acquire().await.classified()?;
        match store::tasks::is_cancelled(&mut conn, grant).await.classified()? {
            true => Err(TaskFailure::cancelled()),
            false => Ok(Outcome::LostLease),
        }
    }

    async fn call(&self, ask: Ask) -> Result<LlmAnswer, LlmError> {
        let mut answering = self.tools.language_model.ask(ask).await?;
        let answer = answering.whole().await?;
        let usage = answering.usage().unwrap_or_default();
        let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        Ok(LlmAnswer {
            answer: store::text::storable(answer.trim()).into_owned(),
            is_cut: answering.is_cut(),
            model: store::text::storable(answering.name()).into_owned(),
            prompt_tokens: count(usage.prompt_tokens),
            completion_tokens: count(usage.completion_tokens),
            batch_id: None,
        })
    }

    /// What the questions took, as evidence.
    pub fn took(&self, prompt: &str) -> Value {
        let calls = Calls { all: self.asked.len(), kept: self.kept, batched: self.batched };
        took(prompt, &self.name, calls, self.tokens, self.clock.begun.unwrap_or_else(Instant::now))
    }
}

/// How many questions there were, how many of them an earlier attempt had asked, and how many were answered by a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    pub all: usize,
    pub kept: usize,
    pub batched: usize,
}

/// What questions took, as evidence.
pub(super) fn took(prompt: &str, model: &str, calls: Calls, tokens: (i64, i64), begun: Instant) -> Value {
    json!({
        "model": (!model.is_empty()).then_some(model), "prompt": prompt, "calls": calls.all, "kept_calls": calls.kept, "batched_calls": calls.batched,
        "prompt_tokens": tokens.0, "completion_tokens": tokens.1, "milliseconds": u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// Tells questions apart.
pub(super) fn hash(parts: &[&str]) -> Vec<u8> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_is_late_before_it_asks_gets_one_answer_and_leaves_the_rest_to_the_next_one() {
        let mut clock = Clock::new(Some(Duration::ZERO));
        assert!(!clock.is_over(), "nothing was asked");
        clock.begun = Some(Instant::now());
        assert!(!clock.is_over(), "the next attempt would have to ask the same");
        clock.has_gained = true;
        assert!(clock.is_over());
        let unbounded = Clock { has_gained: true, begun: clock.begun, ..Clock::new(None) };
        assert!(!unbounded.is_over());
    }
}
