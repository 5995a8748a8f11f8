//! A call under way: what the endpoint streams, until its end.
use super::{
    ANSWERED, Ask, LanguageModel, LlmError, Usage,
    answer::{Received, Silence},
    shown,
};
use futures_util::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use reqwest::{Response, header};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use svc_client::{Code, Failure, event_data};
use tokio::{
    runtime::Handle,
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

/// How long an answer that has begun may pause.
const STALL: Duration = Duration::from_secs(60);
/// The most bytes of one answer.
const ANSWER_BYTES: usize = 4 << 20;
/// The message after the last one.
const DONE: &str = "[DONE]";
/// How a call ended whose answer nobody waited for to its end.
const STOPPED: &str = "stopped";

pub type Messages = BoxStream<'static, Result<String, String>>;

/// The messages of an answer, whether it is streamed or, from a server that does not stream, one.
pub fn messages(response: Response) -> Messages {
    let media = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_streamed = !media.starts_with("application/json");
    let mut read = 0;
    let pieces = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(|error| format!("its answer broke off: {error}"))?;
        read += piece.len();
        if read > ANSWER_BYTES { Err(format!("its answer is longer than {ANSWER_BYTES} bytes")) } else { Ok(piece) }
    });
    if is_streamed {
        let pieces = pieces.map_err(|reason| Failure::new(Code::Unreachable, reason));
        return event_data(pieces.boxed()).map_err(|failure| failure.detail).boxed();
    }
    let whole = async move {
        let parts: Vec<_> = pieces.try_collect().await?;
        Ok(String::from_utf8_lossy(&parts.concat()).into_owned())
    };
    stream::once(whole).chain(stream::once(async { Ok(DONE.to_owned()) })).boxed()
}

/// What comes of an answer.
#[derive(Debug)]
pub enum Piece {
    Text(String),
    /// The model only thought and is asked once more: the texts before this are no part of its answer.
    Anew,
}

/// A call that is being answered.
pub struct Answering {
    pub(super) model: Arc<LanguageModel>,
    pub(super) ask: Ask,
    pub(super) thinks: bool,
    pub(super) begun: Instant,
    pub(super) deadline: Instant,
    pub(super) messages: Messages,
    pub(super) received: Received,
    /// What has come of the text, and how many bytes of it were returned.
    pub(super) said: String,
    pub(super) told: usize,
    pub(super) is_over: bool,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl Answering {
    /// The next piece; `None` at the end. Thoughts whose end alone is in the text are returned too; where nothing else came, a second answer follows.
    pub async fn next(&mut self) -> Result<Option<Piece>, LlmError> {
        loop {
            match self.piece().await {
                Ok(Some(text)) => {
                    self.said.push_str(&text);
                    // White space alone says nothing, so it waits for the letter that it stands before.
                    if self.told < self.said.len() && !self.said.trim_start().is_empty() {
                        let piece = self.said[self.told..].to_owned();
                        self.told = self.said.len();
                        return Ok(Some(Piece::Text(piece)));
                    }
                }
                Ok(None) if !self.received.without_thoughts(&self.said).trim().is_empty() => {
                    self.end(ANSWERED).await;
                    return Ok(None);
                }
                Ok(None) => {
                    let said = std::mem::take(&mut self.said);
                    self.told = 0;
                    self.once_more(&said).await?;
                    return Ok(Some(Piece::Anew));
                }
                Err(error) => {
                    self.end(error.code()).await;
                    return Err(error);
                }
            }
        }
    }

    /// The whole text.
    pub async fn whole(&mut self) -> Result<String, LlmError> {
        let mut text = String::new();
        loop {
            match self.piece().await {
                Ok(Some(piece)) => text.push_str(&piece),
                Ok(None) => {
                    let said = self.received.without_thoughts(&text).trim();
                    if !said.is_empty() {
                        self.end(ANSWERED).await;
                        return Ok(said.to_owned());
                    }
                    self.once_more(&text).await?;
                    text.clear();
                }
                Err(error) => {
                    self.end(error.code()).await;
                    return Err(error);
                }
            }
        }
    }

    /// Asks once more without reasoning, if the model has said this without a letter and reasoned.
    async fn once_more(&mut self, said: &str) -> Result<(), LlmError> {
        let error = match (self.received.silence(said), self.thinks) {
            (Silence::Thought, true) => {
                // What was only thought is paid for too.
                self.end(LlmError::OnlyReasoning.code()).await;
                let (model, ask) = (self.model.clone(), self.ask.clone());
                // The place is kept for the second call.
                let permit = self.permit.take();
                let endpoint = model.endpoint()?;
                let deadline = Instant::now() + endpoint.timeout;
                (self.begun, self.received, self.thinks, self.is_over) =
                    (Instant::now(), Received::default(), false, false);
                match model.send(endpoint, &ask, false, deadline).await {
                    Ok(response) => {
                        self.messages = messages(response);
                        (self.deadline, self.permit) = (deadline, permit);
                        return Ok(());
                    }
                    Err(error) => error,
                }
            }
            (Silence::Thought, false) => LlmError::OnlyReasoning,
            (Silence::Refused(reason), _) => {
                LlmError::Refused { status: 0, setting: "SVC_LLM_MODEL", reason: shown(&reason) }
            }
            (Silence::Empty, _) => LlmError::Broken("its answer is empty".to_owned()),
        };
        self.end(error.code()).await;
        Err(error)
    }

    async fn piece(&mut self) -> Result<Option<String>, LlmError> {
        if self.is_over {
            return Ok(None);
        }
        // Before its first word a call waits in the server's queue, and the model reads its question or thinks without showing that.
        let until = match self.received.has_begun {
            true => self.deadline.min(Instant::now() + STALL),
            false => self.deadline,
        };
        let message = match timeout_at(until, self.messages.next()).await {
            Ok(message) => message.transpose().map_err(LlmError::Broken)?,
            Err(_) if until < self.deadline => {
                return Err(LlmError::Broken(format!("its answer stood still for {STALL:?}")));
            }
            Err(_) => return Err(self.model.endpoint()?.late()),
        };
        let is_done = message.as_deref().is_some_and(|message| message.trim() == DONE);
        let Some(message) = message.filter(|_| !is_done) else {
            let rest = self.received.rest();
            if !rest.is_empty() {
                return Ok(Some(rest));
            }
            return match is_done || self.received.finish.is_some() {
                true => Ok(None),
                false => Err(LlmError::Broken("its answer broke off".to_owned())),
            };
        };
        let message: Value = serde_json::from_str(&message)
            .map_err(|_| LlmError::Broken(format!("its answer is not of chat completions: {}", shown(&message))))?;
        self.received.take(&message).map(Some).map_err(|error| LlmError::Broken(shown(&error)))
    }

    /// Counts the call, which is over.
    async fn end(&mut self, code: &'static str) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let took = self.took(code);
        let took = took.as_ref().map(|(name, usage)| (name.as_str(), *usage));
        self.model.ended(self.ask.purpose, self.begun, code, self.model.label(&self.ask), took).await;
    }

    /// The model and what it took, if it answered or the server has counted.
    fn took(&self, code: &'static str) -> Option<(String, Usage)> {
        let usage = self.usage();
        (code == ANSWERED || usage.is_some()).then(|| (self.name().to_owned(), usage.unwrap_or_default()))
    }

    /// The model that answers, as the server names it, or as it was asked for.
    pub fn name(&self) -> &str {
        self.received.model.as_deref().unwrap_or(self.model.asked(&self.ask))
    }

    /// What the server counted, as soon as it has.
    pub fn usage(&self) -> Option<Usage> {
        self.received.usage
    }

    /// Whether the answer was broken off: it was as long as it may be, or a filter ended it.
    pub fn is_cut(&self) -> bool {
        self.received.is_cut()
    }
}

impl Drop for Answering {
    /// Counts a call whose caller hangs up, because what came until then is paid for.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let code = if self.received.finish.is_some() { ANSWERED } else { STOPPED };
        let (model, took) = (self.model.clone(), self.took(code));
        let (purpose, begun, label) = (self.ask.purpose, self.begun, model.label(&self.ask).to_owned());
        runtime.spawn(async move {
            let took = took.as_ref().map(|(name, usage)| (name.as_str(), *usage));
            model.ended(purpose, begun, code, &label, took).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use serde_json::json;
    use sqlx::postgres::PgPoolOptions;
    use std::path::Path;

    /// A call that may take 180 s, whose messages come so many seconds after one another.
    fn answering(messages: Vec<(u64, Value)>) -> Answering {
        let home = [("HOME".to_owned(), "/nonexistent".to_owned())];
        let settings = Settings::load(Some(Path::new("/dev/null")), home.into_iter()).unwrap();
        let pool = PgPoolOptions::new().connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
        let model = Arc::new(LanguageModel::new(&settings, pool));
        let messages = stream::iter(messages).then(|(seconds, message)| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(message.to_string())
        });
        let ask = Ask {
            purpose: "test",
            instructions: String::new(),
            message: String::new(),
            max_tokens: 9,
            temperature: 0.0,
            schema: None,
            model: None,
            thinks: true,
        };
        Answering {
            deadline: Instant::now() + model.timeout(),
            model,
            ask,
            thinks: true,
            begun: Instant::now(),
            messages: messages.boxed(),
            received: Received::default(),
            said: String::new(),
            told: 0,
            is_over: false,
            permit: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_answer_that_has_begun_must_go_on_soon() {
        let role = json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]});
        let thought = json!({"choices": [{"delta": {"reasoning_content": "hm"}}]});
        let word = json!({"choices": [{"delta": {"content": "a"}}]});
        for (messages, want) in [
            (vec![(90, word.clone())], Ok("a")),
            (vec![(1, role.clone()), (90, word.clone())], Ok("a")),
            (vec![(1, thought), (90, word.clone())], Err("stood still for 60s")),
            (vec![(90, role), (91, word)], Err("SVC_LLM_TIMEOUT")),
        ] {
            let mut answering = answering(messages.clone());
            let said = loop {
                match answering.piece().await {
                    Ok(Some(text)) if text.is_empty() => {}
                    said => break said,
                }
            };
            // It is counted nowhere.
            answering.is_over = true;
            match (said, want) {
                (Ok(said), Ok(want)) => assert_eq!(said.as_deref(), Some(want), "{messages:?}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{messages:?}: {error}"),
                (said, _) => panic!("{messages:?}: {said:?}"),
            }
        }
    }
}
