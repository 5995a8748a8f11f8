//! The client of a runner: gets the description of its model, embeds, and retries.
use super::{EmbedError, RemoteModel};
use crate::settings::{Settings, is_this_machine};
use futures_util::{StreamExt, TryStreamExt, stream};
use rand::RngExt;
use std::{
    future::Future,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{
    Client, Code, Failure, Json, Remote,
    wire::{
        Floats, ModelState, RunnerModel, RunnerModelQuery, RunnerTextKind, RunnerTexts, RunnerTokenTexts, RunnerTokens,
        RunnerVectors,
    },
};
use svc_models::{Embedding, Heard, ModelError, TokenCounter, TokenVectors, VECTOR_WIDTH};
use tokio::sync::Mutex;

/// The most texts of one call: short calls share the runner fairly, and a lost one costs little.
const TEXTS: usize = 64;
/// The most bytes of one call, for the same reason.
const BYTES: usize = 256 << 10;
/// The texts of one call for token vectors, whose answer is long.
const TOKEN_TEXTS: usize = 8;
/// How many calls of one batch are under way together, so that the runner always has the next one.
const CALLS: usize = 4;
const CONNECT: Duration = Duration::from_secs(5);
/// How long a description of the runner may take.
const DESCRIBE: Duration = Duration::from_secs(10);
/// How long a description without the tokenizer may take; a caller waits for it.
const PEEK: Duration = Duration::from_secs(2);
/// For how long the call for a query is retried, because a caller waits for it.
const QUERY_PATIENCE: Duration = Duration::from_secs(3);
/// How long the answer for a query may take: the search holds its slot meanwhile, and a runner that is silent is away.
const QUERY_ANSWER: Duration = Duration::from_secs(10);
/// For how long a call for documents is retried, whose task comes back by itself.
const DOCUMENT_PATIENCE: Duration = Duration::from_secs(20);
/// The pause before the first retry; each further pause is longer.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest pause before a retry.
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// How long a failed description is valid, so that those who wait for it do not ask one after the other.
const FAILURE_STANDS: Duration = Duration::from_secs(1);
/// The most bytes of an answer: above the longest possible one, 8 texts of 8,192 tokens of 768 components.
const ANSWER_BYTES: usize = 512 << 20;
/// The length of a vector that can stand for a text; a runner of ours sends unit vectors.
const LENGTHS: RangeInclusive<f64> = 0.9..=1.1;

/// A runner, and what is known of its model.
pub struct Runner {
    client: Client<Remote>,
    known: Mutex<Known>,
    /// The time limit of one call.
    timeout: Duration,
}

#[derive(Default)]
struct Known {
    model: Option<(Arc<ModelState>, TokenCounter)>,
    failed: Option<(Instant, String)>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("address", &self.client.0.base()).finish_non_exhaustive()
    }
}

impl Runner {
    /// Makes the client for the runner of the settings; calls nobody yet.
    pub fn new(settings: &Settings) -> Result<Arc<Runner>, EmbedError> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            // Following a redirect would turn the call into another one.
            .redirect(reqwest::redirect::Policy::none());
        // A proxy from the environment is meant for other machines, and must see neither the key nor the texts.
        let http = if is_this_machine(&settings.runner_url) { http.no_proxy() } else { http };
        let http =
            http.build().map_err(|error| EmbedError::Refused(format!("the HTTP client cannot start: {error}")))?;
        let remote = Remote::new(&settings.runner_url, settings.runner_key.expose(), http);
        let client = Client(remote.with_answer_limit(ANSWER_BYTES));
        Ok(Arc::new(Runner { client, known: Mutex::default(), timeout: settings.runner_timeout }))
    }

    /// The model as it was last described. Asks the runner if that never happened, or if the runner has loaded another
    /// model since.
    pub(super) async fn model(self: &Arc<Self>) -> Result<RemoteModel, EmbedError> {
        let mut known = self.known.lock().await;
        if let Some((state, counter)) = &known.model {
            return Ok(RemoteModel { state: state.clone(), counter: counter.clone(), runner: self.clone() });
        }
        if let Some((at, reason)) = &known.failed
            && at.elapsed() < FAILURE_STANDS
        {
            return Err(EmbedError::away(reason.clone()));
        }
        match self.described().await {
            Ok((state, counter)) => {
                tracing::info!(model = state.identity, device = state.device, "the runner has a model");
                *known = Known { model: Some((state.clone(), counter.clone())), failed: None };
                Ok(RemoteModel { state, counter, runner: self.clone() })
            }
            Err(error) => {
                if let EmbedError::Away { reason, .. } = &error {
                    known.failed = Some((Instant::now(), reason.clone()));
                }
                Err(error)
            }
        }
    }

    /// The model as it was last described; `None` if the runner would have to be asked.
    pub(super) async fn known_model(self: &Arc<Self>) -> Option<RemoteModel> {
        let known = self.known.lock().await;
        let (state, counter) = known.model.as_ref()?;
        Some(RemoteModel { state: state.clone(), counter: counter.clone(), runner: self.clone() })
    }

    async fn described(&self) -> Result<(Arc<ModelState>, TokenCounter), EmbedError> {
        let RunnerModel { model, document_prefix, tokenizer } = self.describe(true, DESCRIBE).await?;
        if model.width > VECTOR_WIDTH || model.width == 0 {
            return Err(EmbedError::Refused(format!(
                "its model {} gives vectors of {} components, and the database holds 1 to {VECTOR_WIDTH}: give the runner another SVC_EMBEDDING_MODEL",
                model.identity, model.width
            )));
        }
        let tokenizer = tokenizer.ok_or_else(|| EmbedError::Broken("it sent no tokenizer".to_owned()))?;
        let counter =
            tokio::task::spawn_blocking(move || TokenCounter::from_json(tokenizer.as_bytes(), &document_prefix))
                .await
                .map_err(|error| EmbedError::Broken(error.to_string()))?
                .map_err(|error| EmbedError::Broken(error.to_string()))?;
        Ok((Arc::new(model), counter))
    }

    async fn describe(&self, tokenizer: bool, limit: Duration) -> Result<RunnerModel, EmbedError> {
        match tokio::time::timeout(limit, self.client.runner_model(RunnerModelQuery { tokenizer })).await {
            Ok(answer) => answer.map_err(EmbedError::of),
            Err(_) => Err(EmbedError::away(format!("the runner did not describe its model within {limit:?}"))),
        }
    }

    /// The runner's present state.
    pub(super) async fn state(&self) -> Result<ModelState, EmbedError> {
        self.describe(false, PEEK).await.map(|described| described.model)
    }

    /// One embedding per text, in the order of the texts; `done` hears of each call that has ended.
    pub(super) async fn embed_documents(
        &self,
        model: &RemoteModel,
        texts: Vec<String>,
        done: &Heard<'_>,
    ) -> Result<Vec<Embedding>, EmbedError> {
        let calls =
            stream::iter(parts(texts, TEXTS)).map(async |(first, texts)| self.part(model, first, texts, done).await);
        let embeddings: Vec<Vec<Embedding>> = calls.buffered(CALLS).try_collect().await?;
        Ok(embeddings.into_iter().flatten().collect())
    }

    /// The embeddings of the texts of one call, of which a runner that refuses it gets the halves: it, or a proxy before it, may take no body
    /// as large as all of them.
    async fn part(
        &self,
        model: &RemoteModel,
        first: usize,
        texts: Vec<String>,
        done: &Heard<'_>,
    ) -> Result<Vec<Embedding>, EmbedError> {
        let (mut open, mut made) = (vec![(first, texts)], Vec::new());
        let mut refused: Option<(Vec<usize>, String)> = None;
        while let Some((first, mut texts)) = open.pop() {
            let count = texts.len();
            match self.embed(model, &texts, first, RunnerTextKind::Document).await {
                Ok(answer) => {
                    let weights = answer.weights.0;
                    let is_weight = |weight: &f32| weight.is_finite() && *weight > 0.0;
                    self.check(&model.state, &answer.model, weights.len() == count && weights.iter().all(is_weight))?;
                    done(count);
                    let embedding = |(vector, weight)| Embedding { vector: padded(vector), weight };
                    made.extend(answer.vectors.into_iter().zip(weights).map(embedding));
                }
                Err(EmbedError::TextRefused { .. }) if count > 1 => {
                    let rest = texts.split_off(count / 2);
                    open.push((first + texts.len(), rest));
                    open.push((first, texts));
                }
                // The error names all of them, so that the caller can leave them out together.
                Err(EmbedError::TextRefused { texts, reason }) => {
                    refused.get_or_insert((Vec::new(), reason)).0.extend(texts);
                }
                Err(error) => return Err(error),
            }
        }
        match refused {
            None => Ok(made),
            Some((texts, reason)) => Err(EmbedError::TextRefused { texts, reason }),
        }
    }

    /// The vector of a query.
    pub(super) async fn embed_query(&self, model: &RemoteModel, text: String) -> Result<Vec<f32>, EmbedError> {
        let answer = self.embed(model, &[text], 0, RunnerTextKind::Query).await?;
        let vector = answer.vectors.into_iter().next().map(padded);
        vector.ok_or_else(|| EmbedError::Broken("the runner gave no vector".to_owned()))
    }

    /// The vectors of queries, in one call.
    pub(super) async fn embed_queries(
        &self,
        model: &RemoteModel,
        texts: Vec<String>,
    ) -> Result<Vec<Vec<f32>>, EmbedError> {
        let answer = self.embed(model, &texts, 0, RunnerTextKind::Query).await?;
        Ok(answer.vectors.into_iter().map(padded).collect())
    }

    async fn embed(
        &self,
        model: &RemoteModel,
        texts: &[String],
        first: usize,
        kind: RunnerTextKind,
    ) -> Result<RunnerVectors, EmbedError> {
        let state = &*model.state;
        let body = RunnerTexts { texts: texts.to_vec(), kind, model: Some(state.identity.clone()) };
        let answer = self.call(kind, first, async || self.client.runner_embed(Json(body.clone())).await).await;
        let answer = judged(answer, model, texts, state.document_window).await?;
        let is_whole = |one: &Floats| is_vector(&one.0, state.width);
        self.check(state, &answer.model, answer.vectors.len() == texts.len() && answer.vectors.iter().all(is_whole))?;
        Ok(answer)
    }

    /// The token vectors of each text, in the order of the texts.
    pub(super) async fn tokens(
        &self,
        model: &RemoteModel,
        texts: Vec<String>,
        kind: RunnerTextKind,
    ) -> Result<Vec<TokenVectors>, EmbedError> {
        let state = &*model.state;
        let calls = stream::iter(parts(texts, TOKEN_TEXTS)).map(async |(first, texts)| {
            let body = RunnerTokenTexts { texts, kind, model: Some(state.identity.clone()) };
            let answer = self.call(kind, first, async || self.client.runner_tokens(Json(body.clone())).await).await;
            let answer = judged(answer, model, &body.texts, state.token_window).await?;
            let is_whole = |tokens: &RunnerTokens| is_whole(tokens, state.width);
            self.check(
                state,
                &answer.model,
                answer.texts.len() == body.texts.len() && answer.texts.iter().all(is_whole),
            )?;
            Ok::<_, EmbedError>(answer.texts.into_iter().map(token_vectors).collect::<Vec<_>>())
        });
        let vectors: Vec<Vec<TokenVectors>> = calls.buffered(CALLS).try_collect().await?;
        Ok(vectors.into_iter().flatten().collect())
    }

    /// Checks that an answer comes from the expected model and is complete.
    fn check(&self, model: &ModelState, answered: &str, whole: bool) -> Result<(), EmbedError> {
        match (answered == model.identity, whole) {
            (true, true) => Ok(()),
            (true, false) => Err(EmbedError::Broken(
                "its answer has vectors of another number, width or length than the model's".to_owned(),
            )),
            (false, _) => Err(EmbedError::Broken(format!("it answered with model {answered}"))),
        }
    }

    /// Makes a call, and repeats it with growing delays if that may help; `first` is the number of the first text.
    async fn call<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        kind: RunnerTextKind,
        first: usize,
        ask: impl Fn() -> F,
    ) -> Result<T, EmbedError> {
        let (patience, limit) = match kind {
            RunnerTextKind::Query => (QUERY_PATIENCE, self.timeout.min(QUERY_ANSWER)),
            RunnerTextKind::Document => (DOCUMENT_PATIENCE, self.timeout),
        };
        let (begun, mut delay, mut broken) = (Instant::now(), FIRST_DELAY, None);
        loop {
            let answer = match tokio::time::timeout(limit, ask()).await {
                Ok(answer) => answer,
                Err(_) => {
                    return Err(match kind {
                        // Nothing says that the text is at fault, and the caller may try again.
                        RunnerTextKind::Query => EmbedError::away(format!("no answer within {limit:?}")),
                        RunnerTextKind::Document => {
                            EmbedError::Broken(format!("no answer within SVC_RUNNER_TIMEOUT_SECONDS, {limit:?}"))
                        }
                    });
                }
            };
            let failure = match answer {
                Ok(value) => return Ok(value),
                Err(failure) if failure.code == Code::Conflict => {
                    self.known.lock().await.model = None;
                    return Err(EmbedError::away(failure.detail));
                }
                Err(failure) => failure,
            };
            let wait = match EmbedError::of(failure) {
                EmbedError::Away { reason, retry_after } => (EmbedError::Away { reason, retry_after }, retry_after),
                EmbedError::Broken(reason) => {
                    // The runner may have died of this text, so this failure must count, whatever a later try says.
                    broken.get_or_insert(reason.clone());
                    (EmbedError::Broken(reason), None)
                }
                error => return Err(moved(error, first)),
            };
            let (error, asked) = wait;
            let pause = delay.mul_f64(rand::rng().random_range(0.5..1.5)).max(asked.unwrap_or_default());
            if begun.elapsed() + pause > patience {
                return Err(broken.map_or(error, EmbedError::Broken));
            }
            tracing::debug!(error = %error, "calling the runner again");
            tokio::time::sleep(pause).await;
            delay = (delay * 2).min(LONGEST_DELAY);
        }
    }
}

/// What it means that a runner refuses a text alone: whatever it has against it, one over the model's window is too long, and its tokens are counted here.
async fn judged<T>(
    answer: Result<T, EmbedError>,
    model: &RemoteModel,
    texts: &[String],
    limit: usize,
) -> Result<T, EmbedError> {
    let (Err(EmbedError::TextRefused { texts: refused, .. }), [text]) = (&answer, texts) else { return answer };
    let (counter, text, index) = (model.counter.clone(), text.clone(), refused.first().copied().unwrap_or_default());
    // The longest text takes a second.
    let counted =
        tokio::task::spawn_blocking(move || Ok::<_, ModelError>((counter.count_tokens(&text)?, text.chars().count())));
    let (token_count, chars_total) = counted.await.map_err(|error| EmbedError::Broken(error.to_string()))??;
    if token_count <= limit {
        return answer;
    }
    Err(ModelError::TextTooLong { index, token_count, limit, chars_total }.into())
}

/// Renumbers a text of one call to its number among all of the caller's texts.
fn moved(error: EmbedError, first: usize) -> EmbedError {
    match error {
        EmbedError::Model(ModelError::TextTooLong { index, token_count, limit, chars_total }) => {
            let index = index + first;
            EmbedError::Model(ModelError::TextTooLong { index, token_count, limit, chars_total })
        }
        EmbedError::Model(ModelError::NoDirection { texts }) => {
            let texts = texts.into_iter().map(|index| index + first).collect();
            EmbedError::Model(ModelError::NoDirection { texts })
        }
        EmbedError::TextRefused { texts, reason } => {
            EmbedError::TextRefused { texts: texts.into_iter().map(|index| index + first).collect(), reason }
        }
        error => error,
    }
}

/// Splits texts into calls with at most `most` texts and a limited number of bytes, each with the number of its first
/// text. A single text may be longer.
fn parts(texts: Vec<String>, most: usize) -> Vec<(usize, Vec<String>)> {
    let mut parts: Vec<(usize, Vec<String>)> = Vec::new();
    let mut bytes = 0;
    for (index, text) in texts.into_iter().enumerate() {
        let full = |part: &Vec<String>| part.len() >= most || bytes + text.len() > BYTES;
        if parts.last().is_none_or(|(_, part)| full(part)) {
            parts.push((index, Vec::new()));
            bytes = 0;
        }
        bytes += text.len();
        if let Some((_, part)) = parts.last_mut() {
            part.push(text);
        }
    }
    parts
}

fn padded(mut vector: Floats) -> Vec<f32> {
    vector.0.resize(VECTOR_WIDTH, 0.0);
    vector.0
}

/// Whether it can be a vector of a text: of this width, and neither without direction nor beyond all numbers.
fn is_vector(values: &[f32], width: usize) -> bool {
    let length = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
    values.len() == width && LENGTHS.contains(&length)
}

fn is_whole(tokens: &RunnerTokens, width: usize) -> bool {
    let count = tokens.token_ids.len();
    tokens.width == width
        && tokens.values.0.len() == count * width
        && tokens.values.0.chunks_exact(width.max(1)).all(|row| is_vector(row, width))
        && [tokens.offsets.len(), tokens.importance.0.len(), tokens.tiers.len()] == [count; 3]
}

fn token_vectors(tokens: RunnerTokens) -> TokenVectors {
    TokenVectors {
        token_ids: tokens.token_ids,
        offsets: tokens.offsets.into_iter().map(|(start, end)| start..end).collect(),
        width: tokens.width,
        values: tokens.values.0,
        importance: tokens.importance.0,
        tiers: tokens.tiers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_hold_every_text_once_in_order_and_keep_both_caps() {
        let texts: Vec<String> = (0..300).map(|n| "x".repeat(if n == 150 { 2 * BYTES } else { n * 40 })).collect();
        let parts = parts(texts.clone(), TEXTS);
        for (first, part) in &parts {
            assert!(part.len() <= TEXTS && !part.is_empty(), "{}", part.len());
            assert!(part.len() == 1 || part.iter().map(String::len).sum::<usize>() <= BYTES);
            assert_eq!(texts[*first], part[0]);
        }
        assert_eq!(parts.into_iter().flat_map(|(_, part)| part).collect::<Vec<_>>(), texts);
    }

    #[test]
    fn token_vectors_that_stand_for_no_token_are_not_whole() {
        let tokens = |values: [f32; 4]| RunnerTokens {
            token_ids: vec![5, 6],
            offsets: vec![(0, 3), (4, 7)],
            width: 2,
            values: Floats(values.to_vec()),
            importance: Floats(vec![1.0, 1.0]),
            tiers: vec![50, 100],
        };
        assert!(is_whole(&tokens([1.0, 0.0, 0.6, 0.8]), 2));
        for odd in [0.0, f32::NAN, f32::INFINITY, 1e30] {
            assert!(!is_whole(&tokens([1.0, 0.0, 0.0, odd]), 2), "{odd}");
        }
        assert!(!is_whole(&tokens([1.0, 0.0, 0.6, 0.8]), 4), "these are of another width");
    }
}
