//! summarize:llm: the paraphrase of a container whose text does not fit the model's window, by a language model. More text than the language model
//! reads at once is summarised in groups, and then their summaries. Every answer is kept before the next question, so that no attempt pays
//! for what an earlier one got.
//!
//! If no summary can be had, the container settles with the weighted sum of its children's vectors, and its evidence says why.
mod groups;

use super::{
    Apply, Classify, OrTaskFailure,
    asking::{Asked, Asking, hash},
    structure::model,
    windows::{self, Embedded},
};
use crate::{
    embedding::Model,
    ingest::{Tools, segments::outdate_sums, sums::EMBEDDING},
    llm::{Ask, LlmError, answer_tokens, mark, may_think},
    store::{
        self,
        evidence::Evidence,
        nodes::TextRow,
        raptor::{Placed, ReadingKey},
        rollups::Container,
        summaries::{LlmAnswer, Source},
        word::Word,
    },
    usetype::Usetype,
};
pub(super) use groups::{Groups, beginning};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_actors::{Grant, Meter, Outcome, TaskFailure};
use svc_client::wire::Settled;
use svc_ids::DocumentId;
use svc_ranking::sentences;

/// The instructions of the model. Whoever changes the file changes the version, and a test holds both together.
const INSTRUCTIONS: &str = include_str!("summary/prompt.md");
pub(super) const PROMPT: &str = "summarize/1";
/// The most tokens of an answer, with what the model reasons before it.
const ANSWER_TOKENS: usize = 2048;
/// The most words that are asked for, however much the embedding model reads.
pub(super) const MOST_WORDS: usize = 600;
/// The fewest bytes of a group that are cut in two because the model takes less.
const LEAST_BYTES: usize = 1024;
/// The bytes that the rest of a question takes, besides the instructions.
const FRAME_BYTES: usize = 200;
/// How often summaries are summarised.
const LEVELS: usize = 4;
/// How many texts are in memory at once.
const TEXTS: usize = 64;
/// Why a task is skipped whose container is rolled up anew, if at all.
const CHANGED: &str = "the container was changed or cancelled meanwhile";

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let model = model(tools).await?;
    let mut conn = tools.pool.acquire().await.classified()?;
    let waiting = store::rollups::waiting(&mut conn, &[grant.document_id]).await.classified()?;
    if waiting.is_empty() {
        // A part of it may be in flight, and would be missing from what is asked.
        drop(conn);
        return apply.begin().await?.skip(CHANGED.to_owned(), Map::new()).await;
    }
    let mut sources = sources(&mut conn, &[grant.document_id], None).await.classified()?;
    drop(conn);
    let sources = sources.remove(&grant.document_id).unwrap_or_default();
    let mut writing = Writing::new(tools, &apply, model);
    match writing.summarise(&sources).await {
        Ok(Summarised::Told(told)) => writing.apply(apply, &sources, told).await,
        Ok(Summarised::NoText) => match tools.language_model.must_exist() {
            Err(error) if tools.batching.is_none() => {
                Err(with_reason(tools, grant.document_id, error.classify()).await?)
            }
            _ => settle_without_text(tools, apply).await,
        },
        Ok(Summarised::Waits) => writing.asking.park(&hashes(&sources)).await,
        Err(failure) => Err(with_reason(tools, grant.document_id, failure).await?),
    }
}

/// Settles a container under which no text settled, as when all of its leaves failed.
async fn settle_without_text(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let (grant, id) = (apply.grant, apply.grant.document_id);
    let reason = "no text under the container has settled";
    let mut tx = apply.begin().await?;
    store::locks::tree(tx.conn(), id).await.classified()?;
    if !store::rollups::lock(tx.conn(), id, &[id]).await.classified()?.is_empty() {
        let rollup = store::evidence::read_one(tx.conn(), id, Evidence::Rollup).await.classified()?;
        let mut rollup = rollup.unwrap_or_else(|| json!({}));
        rollup["not_summarized"] = json!({"reason": reason, "embedding": EMBEDDING});
        store::evidence::record_all(tx.conn(), &[(id, Evidence::Rollup, rollup)]).await.classified()?;
        if id == grant.root_id.document() {
            outdate_sums(&tools.settings.task_badges, tx.conn(), &[id]).await.classified()?;
        }
        store::rollups::done(tx.conn(), grant.root_id, &[id]).await.classified()?;
    }
    tx.skip(reason.to_owned(), Map::new()).await
}

/// Adds to a failure what the container's evidence says if the failure is final.
async fn with_reason(tools: &Tools, id: DocumentId, mut failure: TaskFailure) -> Result<TaskFailure, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    let rollup = store::evidence::read_one(&mut conn, id, Evidence::Rollup).await.classified()?;
    let mut rollup = rollup.unwrap_or_else(|| json!({}));
    rollup["not_summarized"] = json!({"reason": failure.message, "embedding": EMBEDDING});
    failure.evidence.insert(Evidence::Rollup.as_str().to_owned(), rollup);
    Ok(failure)
}

/// The documents of sources, each with the hash of its text.
pub(super) fn hashes(sources: &[Source]) -> Vec<(DocumentId, String)> {
    sources.iter().map(|source| (source.id, source.content_hash.clone())).collect()
}

/// The sources of containers, those of each in the order in which they are read; none of a container whose texts surely have more than `most` bytes.
pub(super) async fn sources(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    most: Option<usize>,
) -> sqlx::Result<HashMap<DocumentId, Vec<Source>>> {
    let most = most.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
    let mut found: HashMap<DocumentId, Vec<Source>> = HashMap::new();
    for source in store::summaries::sources(conn, containers, most).await? {
        found.entry(source.container).or_default().push(source);
    }
    let placed: Vec<(DocumentId, Vec<Placed<'_>>)> =
        found.iter().map(|(id, sources)| (*id, sources.iter().map(Source::placed).collect())).collect();
    let nodes: Vec<(DocumentId, &[Placed<'_>])> = placed.iter().map(|(id, placed)| (*id, placed.as_slice())).collect();
    let keys = store::raptor::all_reading_keys(conn, &nodes).await?;
    let mut keys: HashMap<DocumentId, Vec<ReadingKey>> = nodes.iter().map(|(id, _)| *id).zip(keys).collect();
    for (id, sources) in &mut found {
        let keys = keys.remove(id).unwrap_or_default();
        let mut keyed: Vec<_> = keys.into_iter().zip(std::mem::take(sources)).collect();
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        *sources = keyed.into_iter().map(|(_, source)| source).collect();
    }
    Ok(found)
}

/// The language model that the options of a task's file name.
pub(super) fn llm_of(grant: &Grant) -> Option<String> {
    grant.params["rollup"]["llm_model"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The most words of a summary that is to fill half of the window of an embedding model: three words take about four tokens. Four summaries fit a group
/// of the next level, of so many bytes.
pub(super) fn words(model: &Model, most: usize) -> usize {
    (model.document_window() / 2 * 3 / 4).min(MOST_WORDS).min(most / 4 / 8).max(8)
}

/// A summary as a text to be embedded.
pub(super) fn row(id: DocumentId, text: &str) -> TextRow {
    TextRow {
        id,
        title: String::new(),
        content: text.to_owned(),
        usetype: Usetype::Summary.as_str().to_owned(),
        settled: Word(Settled::InFlight),
        titles: Vec::new(),
    }
}

/// What is shown of a container that has a summary.
pub(super) fn effective(container: &Container, window: usize, told: &Told, left_out: usize) -> Value {
    let mut effective = json!({
        "method": "llm_summary", "source_children": container.children, "tokens": container.tokens, "window": window,
        "characters": told.text.chars().count(), "text": told.text,
    });
    if let Some(at) = told.truncated_at {
        effective["truncated_at"] = at.into();
    }
    if left_out > 0 {
        effective["left_out"] = left_out.into();
    }
    effective
}

/// What is said of the rollup of a container that has a summary.
pub(super) fn rolled_up(rollup: Option<Value>, has_vector: bool) -> Value {
    let mut rollup = rollup.unwrap_or_else(|| json!({}));
    if let Some(rollup) = rollup.as_object_mut() {
        rollup.remove("not_summarized");
    }
    if has_vector {
        rollup["embedding"] = store::rollups::OF_SUMMARY.into();
    }
    rollup
}

/// A text of the language model.
pub(super) struct Told {
    pub text: String,
    /// The number of characters that were kept, if the text was too long.
    pub truncated_at: Option<usize>,
}

/// How far a summary came.
enum Summarised {
    Told(Told),
    NoText,
    /// Questions wait for a batch of a provider.
    Waits,
}

/// The work on one container.
struct Writing<'a> {
    tools: &'a Tools,
    asking: Asking<'a>,
    model: Model,
    /// Counts the texts that were read.
    meter: Meter,
    id: DocumentId,
    words: usize,
    /// The most bytes of a group.
    most: usize,
    /// The characters of summaries of parts that were not summarised in turn.
    left_out: usize,
}

impl<'a> Writing<'a> {
    fn new(tools: &'a Tools, apply: &Apply<'a>, model: Model) -> Writing<'a> {
        let grant = apply.grant;
        let most = most_bytes(tools);
        Writing {
            tools,
            asking: Asking::new(tools, grant, llm_of(grant)),
            words: words(&model, most),
            model,
            meter: apply.meter.clone(),
            id: grant.document_id,
            most,
            left_out: 0,
        }
    }

    /// The summary of the sources.
    async fn summarise(&mut self, sources: &[Source]) -> Result<Summarised, TaskFailure> {
        let mut groups = Groups::new(self.most);
        let mut told = Vec::new();
        self.meter.set(0, sources.len(), "texts");
        for part in sources.chunks(TEXTS) {
            let ids: Vec<DocumentId> = part.iter().map(|source| source.id).collect();
            let mut conn = self.tools.pool.acquire().await.classified()?;
            let texts = store::summaries::texts(&mut conn, &ids).await.classified()?;
            drop(conn);
            for source in part {
                let text = texts.get(&source.id).map_or("", String::as_str);
                for group in groups.add(&source.title, text) {
                    told.extend(self.tell_all(group).await?);
                    groups.limit(self.most);
                    if self.asking.wants_enough() {
                        return Ok(Summarised::Waits);
                    }
                }
                self.meter.advance(1);
            }
        }
        let mut last = groups.end();
        for _ in 1..LEVELS {
            if told.is_empty() {
                break;
            }
            if let Some(group) = last.take() {
                told.extend(self.tell_all(group).await?);
            }
            // What a batch will tell is still unknown.
            if self.asking.waits() {
                return Ok(Summarised::Waits);
            }
            let mut groups = Groups::new(self.most);
            let mut next = Vec::new();
            for one in std::mem::take(&mut told) {
                // Each level must be shorter than the one before, also if the model does not heed the number of words.
                let text = beginning(&one.text, self.most / 4);
                self.left_out += one.text[text.len()..].chars().count();
                for group in groups.add("", text) {
                    next.extend(self.tell_all(group).await?);
                    groups.limit(self.most);
                }
            }
            (told, last) = (next, groups.end());
        }
        if self.asking.waits() {
            return Ok(Summarised::Waits);
        }
        if !told.is_empty() {
            // Only a text of many megabytes and a model that reads little come here.
            let rest = told.drain(1..).map(|told| told.text.chars().count()).sum::<usize>();
            self.left_out += rest + last.map_or(0, |last| last.chars().count());
            last = told.pop().map(|first| first.text);
        }
        let Some(group) = last else { return Ok(Summarised::NoText) };
        // Short summaries of what is below need no further one.
        if self.asking.asked.is_empty() {
            let told = self.fit(group.clone()).await?;
            if told.truncated_at.is_none() {
                return Ok(Summarised::Told(told));
            }
        }
        let mut told = self.tell_all(group).await?;
        if self.asking.waits() {
            return Ok(Summarised::Waits);
        }
        Ok(Summarised::Told(match (told.pop(), told.is_empty()) {
            (None, _) => return Ok(Summarised::NoText),
            (Some(one), true) => one,
            (Some(last), false) => {
                let texts: Vec<String> = told.into_iter().chain([last]).map(|told| told.text).collect();
                self.fit(texts.join("\n\n")).await?
            }
        }))
    }

    /// What the model tells of a group; of its halves, each by itself, if the group is too long for the model.
    async fn tell_all(&mut self, group: String) -> Result<Vec<Told>, TaskFailure> {
        let (mut open, mut told) = (vec![group], Vec::new());
        while let Some(group) = open.pop() {
            match self.tell(&group).await? {
                Ok(one) => told.push(one),
                Err(error @ LlmError::TooLong(_)) if group.len() / 2 < LEAST_BYTES => return Err(error.classify()),
                Err(LlmError::TooLong(_)) => {
                    let first = beginning(&group, group.len() / 2);
                    // The next groups of a batch are asked together with this one, so they stay as they are.
                    if self.tools.batching.is_none() {
                        self.most = self.most.min(group.len() / 2);
                    }
                    open.push(group[first.len()..].trim_start().to_owned());
                    open.push(first.to_owned());
                }
                Err(error) => return Err(error.classify()),
            }
        }
        Ok(told)
    }

    /// What the model tells of a text. If that does not fit the window, the model is asked once more for less, and then the end is cut off.
    async fn tell(&mut self, text: &str) -> Result<Result<Told, LlmError>, TaskFailure> {
        let mut words = self.words;
        loop {
            let LlmAnswer { answer, is_cut, .. } = match self.asked(text, words).await? {
                Asked::Answer(answer) => answer,
                Asked::Error(error) => return Ok(Err(error)),
                Asked::Later => return Ok(Ok(Told { text: String::new(), truncated_at: None })),
            };
            let told = self.fit(answer).await?;
            if words == self.words && (is_cut || told.truncated_at.is_some()) {
                words = (words / 2).max(4);
                continue;
            }
            // The last sentence of an answer that was cut off at the endpoint is none.
            return Ok(Ok(match (is_cut, told.truncated_at) {
                (true, None) => cut(&told.text, told.text.len().saturating_sub(1)),
                _ => told,
            }));
        }
    }

    /// The answer to one question; an earlier one if there is one.
    async fn asked(&mut self, text: &str, words: usize) -> Result<Asked, TaskFailure> {
        ask(self.tools, &mut self.asking, text, words).await
    }

    /// As many sentences of a text as fit the window.
    async fn fit(&self, text: String) -> Result<Told, TaskFailure> {
        fit(&self.model, text, self.model.document_window()).await
    }

    async fn apply(self, apply: Apply<'_>, sources: &[Source], told: Told) -> Result<Outcome, TaskFailure> {
        let (tools, grant, id) = (self.tools, apply.grant, self.id);
        let embedded = windows::embed(&self.model, &[row(id, &told.text)]).await?;
        // Whoever closes or moves a document waits, and so does whoever deletes something in this tree; they then remove the summary, or came before this look.
        let mut tx = apply.begin_creating_in_tree(id).await?;
        let waiting = store::rollups::lock(tx.conn(), id, &[id]).await.classified()?.pop();
        let Some(container) = waiting else {
            return tx.skip(CHANGED.to_owned(), Map::new()).await;
        };
        // A summary below that has lost its text is no longer a source; the texts that it was made of are sources again.
        let now = self::sources(tx.conn(), &[id], None).await.classified()?.remove(&id).unwrap_or_default();
        if now != sources {
            let message = "documents were changed while they were being summarised";
            return Err(TaskFailure::away("changed", message));
        }
        let rollup = store::evidence::read_one(tx.conn(), id, Evidence::Rollup).await.classified()?;
        let Embedded { ids: with_vector, vectors, .. } = embedded;
        store::summaries::set_vectors(tx.conn(), &with_vector, &vectors, self.model.identity()).await.classified()?;
        let took = self.asking.took(PROMPT);
        let effective = effective(&container, self.model.document_window(), &told, self.left_out);
        let evidence = [
            (id, Evidence::EffectiveContent, effective),
            (id, Evidence::Rollup, rolled_up(rollup, !with_vector.is_empty())),
            (id, Evidence::LlmSummarize, took.clone()),
        ];
        store::evidence::record_all(tx.conn(), &evidence).await.classified()?;
        self.asking.keep_only(tx.conn()).await?;
        if id == grant.root_id.document() {
            outdate_sums(&tools.settings.task_badges, tx.conn(), &[id]).await.classified()?;
        }
        store::rollups::done(tx.conn(), grant.root_id, &[id]).await.classified()?;
        let Value::Object(detail) = took else { return tx.complete(Map::new()).await };
        tx.complete(detail).await
    }
}

/// What a language model tells of a text in so many words; what it told before if it was asked before.
pub(super) async fn ask(
    tools: &Tools,
    asking: &mut Asking<'_>,
    text: &str,
    words: usize,
) -> Result<Asked, TaskFailure> {
    let hash = question(asking.model(), text, words);
    let ask = asked_for(tools, asking.llm.clone(), text, words);
    asking.asked(hash, ask).await
}

/// Tells the question of so many words about a text from others.
pub(super) fn question(model: &str, text: &str, words: usize) -> Vec<u8> {
    hash(&[PROMPT, model, &words.to_string(), text])
}

/// How a language model, that of the settings if none is named, is asked for a summary of a text in so many words.
pub(super) fn asked_for(tools: &Tools, llm: Option<String>, text: &str, words: usize) -> Ask {
    Ask {
        purpose: "summarize",
        instructions: INSTRUCTIONS.to_owned(),
        message: message(text, words),
        max_tokens: answer_tokens(ANSWER_TOKENS, tools.settings.llm_context_tokens) as u32,
        temperature: 0.0,
        schema: None,
        model: llm,
        thinks: may_think(&tools.settings),
    }
}

fn message(text: &str, words: usize) -> String {
    let mark = mark();
    format!("Summarise the text between the marks in at most {words} words.\n\n{mark}\n{text}\n{mark}\n")
}

/// As many sentences of a text as have at most so many tokens.
pub(super) async fn fit(model: &Model, text: String, most_tokens: usize) -> Result<Told, TaskFailure> {
    let model = model.clone();
    let fitted = tokio::task::spawn_blocking(move || {
        // A tokenizer that fails on a text has a defect; then the length in bytes is a safe upper bound.
        let fits = |text: &str| model.count_tokens(text).unwrap_or(text.len()) <= most_tokens;
        if fits(&text) {
            return Told { text, truncated_at: None };
        }
        let ends: Vec<usize> =
            sentences(&text).iter().map(|one| one.as_ptr() as usize - text.as_ptr() as usize + one.len()).collect();
        let fitting = ends.partition_point(|end| fits(&text[..*end]));
        match fitting.checked_sub(1).and_then(|at| ends.get(at)) {
            Some(end) => cut(&text, *end),
            None => {
                let mut most = text.len() / 2;
                while most > 0 && !fits(beginning(&text, most)) {
                    most /= 2;
                }
                cut(&text, most)
            }
        }
    });
    fitted.await.classified()
}

/// How many bytes a language model reads at once beside the instructions.
pub(super) fn most_bytes(tools: &Tools) -> usize {
    room(tools.settings.llm_context_tokens)
}

fn room(context: usize) -> usize {
    let tokens = context.saturating_sub(answer_tokens(ANSWER_TOKENS, context));
    (tokens * 3).saturating_sub(INSTRUCTIONS.len() + FRAME_BYTES)
}

/// A text without what comes after so many bytes, or after the last sentence before them.
fn cut(text: &str, most: usize) -> Told {
    let text = beginning(text, most);
    Told { text: text.to_owned(), truncated_at: Some(text.chars().count()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_changes_with_the_instructions() {
        insta::assert_snapshot!("prompt", format!("{PROMPT} {}", hex::encode(&hash(&[INSTRUCTIONS])[..8])));
    }

    #[test]
    fn a_question_and_its_answer_fit_what_the_model_takes_however_little_that_is() {
        for context in [2048, 4096, 8192, 100_000] {
            let message = message(&"x".repeat(room(context)), MOST_WORDS);
            let asked = (INSTRUCTIONS.len() + message.len()).div_ceil(3);
            assert!(asked + answer_tokens(ANSWER_TOKENS, context) <= context, "{asked} of {context}");
            assert!(room(context) >= LEAST_BYTES, "{context}");
        }
    }

    #[test]
    fn an_answer_that_was_cut_off_ends_with_a_whole_sentence() {
        let text = "The first sentence stands here as it was written. The second one breaks in the mid";
        let told = cut(text, text.len() - 1);
        assert_eq!(
            (told.text.as_str(), told.truncated_at),
            ("The first sentence stands here as it was written.", Some(49))
        );
    }
}
