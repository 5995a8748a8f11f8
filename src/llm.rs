//! The language model that the settings name: an endpoint that speaks the chat completions of OpenAI's interface. svc runs none itself.
mod answer;
mod answering;
mod error;
mod request;

use crate::{
    fetch::retry_after,
    settings::{Secret, Settings, is_this_machine},
    store, telemetry,
};
pub use answer::{Received, Silence, Usage, after_thoughts};
use answering::messages;
pub use answering::{Answering, Piece};
pub use error::LlmError;
use futures_util::StreamExt;
use lru::LruCache;
pub use request::{Ask, Refused, TEMPERATURE, body_without_stream, fields_in, mark};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use sqlx::PgPool;
use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

const CONNECT: Duration = Duration::from_secs(5);
/// The most characters of a server's message that are shown.
const SHOWN: usize = 300;
/// The pause after a server has too much to do and does not say for how long.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The time between the turns of two that were refused, of a model that only some files name. No slot rests for it, so that thousands would come back
/// together.
const TURN: Duration = Duration::from_millis(100);
/// The most models of which it is kept what the server said. Callers name models in options as they like.
const MODELS: NonZeroUsize = NonZeroUsize::new(64).expect("more than none");
/// The fewest tokens of a question: the longest instructions, what stands around a text, and a text of which something can be said.
const LEAST_ASKED: usize = 1600;
/// What metrics call a model that is not that of the settings.
const OTHER: &str = "other";
/// How a call ended that was answered.
const ANSWERED: &str = "answered";

/// The endpoint, and how many calls of it are under way.
pub struct LanguageModel {
    endpoint: Option<Endpoint>,
    http: OnceLock<Result<reqwest::Client, String>>,
    calls: Arc<Semaphore>,
    /// What the server has said of the models that were asked last.
    models: Mutex<LruCache<String, Said>>,
    /// Where calls are counted.
    pool: PgPool,
}

/// What the server has said of a model, which holds for no other.
#[derive(Default)]
struct Said {
    pause: Option<Pause>,
    refused: Refused,
}

/// A time in which nobody asks, because the server has too much to do.
struct Pause {
    until: Instant,
    /// The turn of the last one that was refused.
    last: Instant,
    /// What the server said.
    reason: String,
}

impl Pause {
    /// How long the next one waits that is refused.
    fn turn(&mut self) -> Duration {
        let now = Instant::now();
        self.last = (self.last.max(self.until) + TURN).min(now + LONGEST_PAUSE);
        self.last.saturating_duration_since(now)
    }
}

struct Endpoint {
    url: String,
    model: String,
    key: Secret,
    timeout: Duration,
    /// Somebody named it. Where nobody did, an endpoint that does not answer is no failure: there is none.
    is_chosen: bool,
}

impl LanguageModel {
    /// Takes the endpoint from the settings; calls nobody.
    pub fn new(settings: &Settings, pool: PgPool) -> LanguageModel {
        let or = |first: &str, second: &str| if first.is_empty() { second } else { first }.to_owned();
        let base = or(&settings.llm_base_url, &settings.fallback_llm_url);
        let endpoint = (!base.is_empty()).then(|| Endpoint {
            url: format!("{}/chat/completions", base.trim_end_matches('/')),
            model: or(&settings.llm_model, &settings.fallback_llm_model),
            key: settings.llm_api_key.clone(),
            timeout: match settings.llm_timeout {
                Duration::ZERO => settings.fallback_llm_timeout,
                timeout => timeout,
            },
            is_chosen: !settings.llm_base_url.is_empty() || settings.is_set("SVC_FALLBACK_LLM_URL"),
        });
        LanguageModel {
            endpoint,
            http: OnceLock::new(),
            calls: Arc::new(Semaphore::new(settings.llm_concurrency)),
            models: Mutex::new(LruCache::new(MODELS)),
            pool,
        }
    }

    fn endpoint(&self) -> Result<&Endpoint, LlmError> {
        self.endpoint.as_ref().ok_or_else(|| {
            LlmError::NotConfigured(
                "set SVC_LLM_BASE_URL and SVC_LLM_MODEL to an OpenAI-compatible endpoint".to_owned(),
            )
        })
    }

    /// Refuses at once where no endpoint is named.
    pub fn must_exist(&self) -> Result<(), LlmError> {
        self.endpoint().map(|_| ())
    }

    /// Whether somebody named an endpoint.
    pub fn is_chosen(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| endpoint.is_chosen)
    }

    /// Refuses where no endpoint is named and none answers by default.
    pub async fn must_answer(&self) -> Result<(), LlmError> {
        let endpoint = self.endpoint()?;
        if endpoint.is_chosen {
            return Ok(());
        }
        match self.http(endpoint)?.head(&endpoint.url).timeout(CONNECT).send().await {
            Err(error) if error.is_connect() => Err(endpoint.unreached(&error)),
            // Whatever it answers, somebody is there.
            _ => Ok(()),
        }
    }

    /// The model of the settings; blank without an endpoint.
    pub fn model(&self) -> &str {
        self.endpoint.as_ref().map_or("", |endpoint| &endpoint.model)
    }

    /// The model that is asked.
    fn asked<'a>(&'a self, ask: &'a Ask) -> &'a str {
        ask.model.as_deref().unwrap_or(self.model())
    }

    /// What metrics call the model of a call. Callers name models in options as they like, so that those of the settings alone have a name there.
    fn label(&self, ask: &Ask) -> &str {
        if self.asked(ask) == self.model() { self.model() } else { OTHER }
    }

    fn said_of<T>(&self, model: &str, look: impl FnOnce(&mut Said) -> T) -> T {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        look(models.get_or_insert_mut(model.to_owned(), Said::default))
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.endpoint.as_ref().map_or(Duration::ZERO, |endpoint| endpoint.timeout)
    }

    /// Begins a call. It ends, also at the server, when what this returns is dropped.
    pub async fn ask(self: &Arc<Self>, ask: Ask) -> Result<Answering, LlmError> {
        let begun = Instant::now();
        let permit = self.admitted(&ask).await.inspect_err(|error| count(ask.purpose, begun, error.code()))?;
        let answering = self.call(&ask, begun, permit).await;
        if let Err(error) = &answering {
            self.ended(ask.purpose, begun, error.code(), self.label(&ask), None).await;
        }
        answering
    }

    /// Waits for a place among the calls; refuses where there is no endpoint, or where its model is left alone for now.
    async fn admitted(&self, ask: &Ask) -> Result<Option<OwnedSemaphorePermit>, LlmError> {
        self.endpoint()?;
        self.heed_pause(ask)?;
        // The semaphore is never closed.
        let permit = self.calls.clone().acquire_owned().await.ok();
        self.heed_pause(ask)?;
        Ok(permit)
    }

    async fn call(
        self: &Arc<Self>,
        ask: &Ask,
        begun: Instant,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Answering, LlmError> {
        let endpoint = self.endpoint()?;
        let deadline = Instant::now() + endpoint.timeout;
        let response = self.send(endpoint, ask, ask.thinks, deadline).await?;
        Ok(Answering {
            model: self.clone(),
            ask: ask.clone(),
            thinks: ask.thinks,
            begun,
            deadline,
            messages: messages(response),
            received: Received::default(),
            said: String::new(),
            told: 0,
            is_over: false,
            permit,
        })
    }

    /// Counts a call that is over, with the model and what it took, if the server has counted: what failed may be paid for too. Metrics name the
    /// model by the label.
    async fn ended(
        &self,
        purpose: &'static str,
        begun: Instant,
        code: &'static str,
        label: &str,
        took: Option<(&str, Usage)>,
    ) {
        count(purpose, begun, code);
        // No call was made of an endpoint that is not there.
        if code == "not_configured" {
            return;
        }
        if let Some((_, usage)) = took {
            for (direction, tokens) in [("in", usage.prompt_tokens), ("out", usage.completion_tokens)] {
                let labels =
                    [("purpose", purpose.to_owned()), ("model", label.to_owned()), ("direction", direction.to_owned())];
                metrics::counter!(telemetry::LLM_TOKENS, &labels).increment(tokens);
            }
        }
        let number = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let (model, usage) = took.unwrap_or_default();
        let tokens = (number(usage.prompt_tokens), number(usage.completion_tokens));
        if let Err(error) = store::llm_usage::add(&self.pool, purpose, model, code != ANSWERED, tokens).await {
            tracing::warn!(error = %error, "a call of the language model could not be counted");
        }
    }

    fn http(&self, endpoint: &Endpoint) -> Result<&reqwest::Client, LlmError> {
        let made = self.http.get_or_init(|| {
            let http = reqwest::Client::builder()
                .connect_timeout(CONNECT)
                .retry(reqwest::retry::never())
                // Following a redirect would take texts and key to where nobody chose.
                .redirect(reqwest::redirect::Policy::none());
            // A proxy from the environment is meant for other machines.
            let http = if is_this_machine(&endpoint.url) { http.no_proxy() } else { http };
            http.build().map_err(|error| error.to_string())
        });
        made.as_ref().map_err(|error| LlmError::Broken(format!("the HTTP client cannot start: {error}")))
    }

    /// Sends a call, and sends it again without a field that the server does not know.
    async fn send(
        &self,
        endpoint: &Endpoint,
        ask: &Ask,
        thinks: bool,
        deadline: Instant,
    ) -> Result<Response, LlmError> {
        let (http, model) = (self.http(endpoint)?, self.asked(ask));
        let mut refused = self.said_of(model, |said| said.refused.clone());
        loop {
            let body = request::body(ask, model, thinks, &refused);
            let mut call = http.post(&endpoint.url).json(&body);
            if !endpoint.key.is_blank() {
                call = call.bearer_auth(endpoint.key.expose());
            }
            let response = match timeout_at(deadline, call.send()).await {
                Ok(answered) => answered.map_err(|error| endpoint.unreached(&error))?,
                Err(_) => return Err(endpoint.late()),
            };
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let pause = pause_of(&response);
            let text = endpoint.message(response, deadline).await;
            if matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY)
                && let Some(field) = request::refused_field(&body, &text)
            {
                tracing::info!(
                    model,
                    reason = shown(&text),
                    "the language model does not know a field, which is left out from now on"
                );
                refused.insert(field.to_owned());
                self.said_of(model, |said| said.refused.insert(field.to_owned()));
                continue;
            }
            return Err(self.refusal(endpoint, model, status, pause, &text));
        }
    }

    fn refusal(&self, endpoint: &Endpoint, model: &str, status: StatusCode, pause: Duration, text: &str) -> LlmError {
        let refused = |setting, reason| LlmError::Refused { status: status.as_u16(), setting, reason };
        let said = shown(text);
        let answers = || match said.as_str() {
            "" => format!("it answers {status}"),
            said => format!("it answers {status}: {said}"),
        };
        match status.as_u16() {
            // Something else is there, which has no such path.
            300..=399 | 401 | 403..=405 if !endpoint.is_chosen => LlmError::NotConfigured(format!(
                "nobody has named one, and what is at {} by default has no model for this service: set SVC_LLM_BASE_URL and SVC_LLM_MODEL",
                endpoint.url
            )),
            // What such an answer says may hold the key.
            401 | 403 => refused("SVC_LLM_API_KEY", "it does not accept SVC_LLM_API_KEY".to_owned()),
            404 => refused(
                "SVC_LLM_MODEL",
                format!(
                    "{} has no model `{model}` (SVC_LLM_MODEL), or SVC_LLM_BASE_URL is not its address: {said}",
                    endpoint.url
                ),
            ),
            413 => LlmError::TooLong(said),
            400 | 422 if is_about_length(text) => LlmError::TooLong(said),
            408 => LlmError::Broken(said),
            429 | 503 | 529 => {
                let (until, reason, is_named) = (Instant::now() + pause, answers(), model != endpoint.model);
                let turn = self.said_of(model, |said| {
                    let known = said.pause.as_ref().map(|known| (known.until, known.last));
                    let (before, last) = known.unwrap_or((until, until));
                    let pause = Pause { until: before.max(until), last, reason: reason.clone() };
                    said.pause.insert(pause).turn()
                });
                LlmError::Busy { retry_after: if is_named { turn } else { pause }, reason, is_named }
            }
            300..=499 => refused("SVC_LLM_BASE_URL", answers()),
            _ => LlmError::Broken(answers()),
        }
    }

    fn heed_pause(&self, ask: &Ask) -> Result<(), LlmError> {
        let model = self.asked(ask);
        let is_named = model != self.model();
        let paused = self.said_of(model, |said| {
            let pause = said.pause.as_mut()?;
            let left = pause.until.saturating_duration_since(Instant::now());
            (!left.is_zero()).then(|| (if is_named { pause.turn() } else { left }, pause.reason.clone()))
        });
        match paused {
            Some((retry_after, reason)) => Err(LlmError::Busy { retry_after, reason, is_named }),
            None => Ok(()),
        }
    }
}

impl Endpoint {
    /// Why no answer began.
    fn unreached(&self, error: &reqwest::Error) -> LlmError {
        let mut reason = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            reason = cause.to_string();
            source = cause.source();
        }
        let reason = format!("{}: {}", self.url, shown(&reason));
        match (error.is_connect(), self.is_chosen) {
            (true, false) => LlmError::NotConfigured(format!(
                "nobody has named one, and none answers by default at {reason}: set SVC_LLM_BASE_URL and SVC_LLM_MODEL"
            )),
            (true, true) => LlmError::Away(reason),
            (false, _) => LlmError::Broken(reason),
        }
    }

    fn late(&self) -> LlmError {
        LlmError::Broken(format!("no answer within {:?} (SVC_LLM_TIMEOUT)", self.timeout))
    }

    /// What the server says of a refusal, without the key.
    async fn message(&self, response: Response, deadline: Instant) -> String {
        let mut pieces = response.bytes_stream();
        let mut bytes = Vec::new();
        while let Ok(Some(Ok(piece))) = timeout_at(deadline, pieces.next()).await {
            bytes.extend_from_slice(&piece);
            if bytes.len() > 64 << 10 {
                break;
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let parsed: Option<Value> = serde_json::from_str(&text).ok();
        let said = parsed.as_ref().map(|value| match &value["error"] {
            Value::Object(error) => {
                let field = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
                [field("message"), field("code"), field("param")].join(" ").trim().to_owned()
            }
            Value::String(error) => error.clone(),
            _ => value["message"].as_str().or(value["detail"].as_str()).unwrap_or(&text).to_owned(),
        });
        let said = said.unwrap_or(text);
        if self.key.is_blank() { said } else { said.replace(self.key.expose(), "[key]") }
    }
}

/// The most tokens of an answer that may have so many, by those that the model reads and writes in one call.
pub fn answer_tokens(most: usize, context: usize) -> usize {
    most.min(context / 2).min(context.saturating_sub(LEAST_ASKED))
}

/// Whether models may reason before they answer.
pub fn may_think(settings: &Settings) -> bool {
    settings.summarization_disable_thinking != Some(true)
}

/// Counts in the metrics of this process what came of an ask.
fn count(purpose: &'static str, begun: Instant, code: &'static str) {
    metrics::counter!(telemetry::LLM_CALLS, "purpose" => purpose, "outcome" => code).increment(1);
    telemetry::seconds(telemetry::LLM_SECONDS, "purpose", purpose.to_owned(), begun.elapsed());
}

/// One line of at most a few hundred characters.
fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// How long the server asks to be left alone.
fn pause_of(response: &Response) -> Duration {
    retry_after(response.headers()).unwrap_or(PAUSE).min(LONGEST_PAUSE)
}

/// Whether a refusal says that a text is too long.
pub fn is_about_length(text: &str) -> bool {
    let text = text.to_lowercase();
    [
        "context_length",
        "context length",
        "context size",
        "maximum context",
        "context window",
        "too many tokens",
        "prompt is too long",
    ]
    .iter()
    .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_refused_come_back_one_after_the_other_and_none_waits_for_ever() {
        let until = Instant::now() + PAUSE;
        let mut pause = Pause { until, last: until, reason: String::new() };
        let mut turn = || {
            pause.turn();
            pause.last
        };
        let turns: Vec<Instant> = (0..9_000).map(|_| turn()).collect();
        assert_eq!((turns[0], turns[999]), (until + TURN, until + 1_000 * TURN));
        assert!(turns.is_sorted(), "nobody goes before those that were refused earlier");
        assert!(pause.turn() <= LONGEST_PAUSE);
        // Turns that are over keep nobody waiting.
        let mut later = Pause { until, last: until - PAUSE, reason: String::new() };
        later.turn();
        assert_eq!(later.last, until + TURN);
    }
}
