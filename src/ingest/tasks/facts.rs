//! extract:facts: what a language model reads in a text, as facts that the text has the words of. Every answer is kept before the next question, so that
//! no attempt pays for what an earlier one got.
mod answer;
mod entities;
mod storing;

use super::{
    Apply, Classify, OrTaskFailure,
    asking::{Asked, Asking, hash},
    summary::beginning,
};
use crate::{
    ingest::Tools,
    llm::{Ask, LlmError, mark},
    store::{self, extraction::SourceText, scope::Readable, summaries::LlmAnswer},
};
use answer::{Rules, check, predicate_key};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use svc_actors::{Grant, Outcome, TaskFailure};
use svc_client::wire::{ExtractFactsRequest, NewPredicates, ResolveNames, SupersedeFacts};
use svc_ids::PredicateId;

/// The instructions of the model. Whoever changes the file changes the version, and a test holds both together.
const INSTRUCTIONS: &str = include_str!("facts/prompt.md");
pub(crate) const PROMPT: &str = "extract-facts/1";
/// The fewest bytes of a piece that is cut in two because the model takes less.
const LEAST_BYTES: usize = 1024;
/// The most pieces of one text.
const PIECES: usize = 1000;
/// The most predicates that the model is told of.
const TOLD: usize = 60;
/// The most predicates among which these are chosen.
const VOCABULARY: i64 = 5_000;
/// The most characters of what is said of a predicate.
const PREDICATE_CHARS: usize = 200;
/// The most bytes of the titles.
const TITLE_BYTES: usize = 1000;
/// How much of an answer that cannot be used the attempt log shows.
const SHOWN: usize = 500;

/// What a task is asked to do. All of it is in the fingerprint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Parameters {
    /// The hash of the text when the task was queued.
    pub content_hash: String,
    pub prompt: String,
    pub model: String,
    pub temperature: f64,
    pub max_tokens: usize,
    pub max_facts: usize,
    pub confidence_threshold: f64,
    pub new_predicates: NewPredicates,
    pub resolve: ResolveNames,
    /// The least cosine of names that are taken for one.
    pub similarity: f64,
    pub supersede: SupersedeFacts,
    pub replace: bool,
    pub dry_run: bool,
}

impl Parameters {
    /// What a request asks for, by the settings of a process.
    pub fn new(tools: &crate::core::Core, request: &ExtractFactsRequest, content_hash: String) -> Parameters {
        let settings = &tools.settings;
        Parameters {
            content_hash,
            prompt: PROMPT.to_owned(),
            model: tools.language_model.model().to_owned(),
            temperature: settings.extraction_temperature,
            max_tokens: settings.extraction_max_tokens,
            max_facts: request.max_facts.map_or(settings.extraction_max_facts, |most| most as usize),
            confidence_threshold: request.confidence_threshold.unwrap_or(settings.extraction_confidence_threshold),
            new_predicates: request.new_predicates.unwrap_or(NewPredicates::Allow),
            resolve: request.resolve.unwrap_or(ResolveNames::Similar),
            similarity: settings.extraction_entity_similarity_threshold,
            supersede: request.supersede.unwrap_or(SupersedeFacts::Never),
            replace: request.replace,
            dry_run: request.dry_run,
        }
    }
}

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let parameters: Parameters = serde_json::from_value(grant.params.clone()).classified()?;
    let mut conn = tools.pool.acquire().await.classified()?;
    let source = store::extraction::text(&mut conn, grant.document_id).await.classified()?;
    let source = source.filter(|source| source.is_settled && !source.content.trim().is_empty());
    let Some(source) = source else {
        drop(conn);
        return apply.begin().await?.skip("the document has no text that has settled".to_owned(), Map::new()).await;
    };
    let vocabulary = Vocabulary::read(&mut conn, &source.content).await.classified()?;
    drop(conn);
    let mut reading = Reading::new(tools, grant, &parameters, &source, &vocabulary);
    let said = reading.said().await?;
    if reading.asking.waits() {
        let unchanged = [(grant.document_id, source.content_hash.clone())];
        return reading.asking.park(&unchanged).await;
    }
    let (asking, truncated) = (reading.asking, reading.truncated);
    let mut known = vocabulary.known;
    if parameters.new_predicates == NewPredicates::Closed {
        let mut conn = tools.pool.acquire().await.classified()?;
        let scope = Readable::under(&[source.zone]);
        let keys: Vec<String> = said.iter().filter_map(|fact| fact["predicate"].as_str()).map(predicate_key).collect();
        for (key, id) in store::extraction::extracted(&mut conn, &scope, &keys).await.classified()? {
            known.entry(key).or_insert(id);
        }
    }
    let text = source.content.clone();
    let (threshold, most) = (parameters.confidence_threshold, parameters.max_facts);
    let makes_predicates = parameters.new_predicates == NewPredicates::Allow;
    let checking = tokio::task::spawn_blocking(move || {
        check(said, &Rules { text: &text, predicates: &known, makes_predicates, threshold, most })
    });
    let (facts, dropped) = checking.await.classified()?;
    storing::store(tools, apply, storing::Found { parameters, source, facts, dropped, asking, truncated }).await
}

/// The predicates that somebody made.
struct Vocabulary {
    /// By their keys: `namespace:name`, and the name alone where it is of the namespace `default` or of no other one.
    known: HashMap<String, PredicateId>,
    /// What the model is told, a line for each.
    told: String,
}

impl Vocabulary {
    /// Reads the predicates, and chooses those to tell of: the ones whose words stand in the text before others.
    async fn read(conn: &mut sqlx::PgConnection, text: &str) -> sqlx::Result<Vocabulary> {
        let rows = store::extraction::vocabulary(conn, VOCABULARY).await?;
        let mut known = HashMap::new();
        for row in &rows {
            known.entry(predicate_key(&format!("{}:{}", row.namespace, row.name))).or_insert(row.id);
        }
        for row in &rows {
            known.entry(predicate_key(&row.name)).or_insert(row.id);
            if let Some(label) = &row.label {
                known.entry(predicate_key(label)).or_insert(row.id);
            }
        }
        let text = text.to_lowercase();
        let mut ranked: Vec<(bool, &store::extraction::VocabularyRow)> = rows
            .iter()
            .map(|row| {
                let key = predicate_key(row.label.as_deref().unwrap_or(&row.name));
                (!key.split('_').any(|word| word.len() > 3 && text.contains(word)), row)
            })
            .collect();
        ranked.sort_by_key(|(is_foreign, row)| (*is_foreign, row.id));
        ranked.truncate(TOLD);
        ranked.sort_by_key(|(_, row)| row.id);
        let line = |(_, row): &(bool, &store::extraction::VocabularyRow)| {
            let name = svc_client::wire::predicate_name(&row.namespace, &row.name);
            let more =
                [row.label.as_deref(), row.description.as_deref()].into_iter().flatten().collect::<Vec<_>>().join("; ");
            let more = more.split_whitespace().collect::<Vec<_>>().join(" ");
            let line = if more.is_empty() { name } else { format!("{name}: {more}") };
            line.chars().take(PREDICATE_CHARS).collect::<String>()
        };
        Ok(Vocabulary { known, told: ranked.iter().map(line).collect::<Vec<_>>().join("\n") })
    }
}

/// A text that a language model reads, in pieces if it is long.
struct Reading<'a, 't> {
    tools: &'a Tools,
    asking: Asking<'a>,
    parameters: &'t Parameters,
    source: &'t SourceText,
    vocabulary: &'t Vocabulary,
    /// An answer was cut off.
    truncated: bool,
}

impl<'a, 't> Reading<'a, 't> {
    fn new(
        tools: &'a Tools,
        grant: &'a Grant,
        parameters: &'t Parameters,
        source: &'t SourceText,
        vocabulary: &'t Vocabulary,
    ) -> Reading<'a, 't> {
        let asking = Asking::new(tools, grant, None);
        Reading { tools, asking, parameters, source, vocabulary, truncated: false }
    }

    /// The most tokens of an answer.
    fn answer_tokens(&self) -> usize {
        self.parameters.max_tokens.min(self.tools.settings.llm_context_tokens / 2)
    }

    /// What the model says of all pieces, each fact as it says it.
    async fn said(&mut self) -> Result<Vec<Value>, TaskFailure> {
        let context = self.tools.settings.llm_context_tokens.saturating_sub(self.answer_tokens()) * 3;
        let beside = INSTRUCTIONS.len() + self.vocabulary.told.len() + TITLE_BYTES + 500;
        let most = context.saturating_sub(beside).max(LEAST_BYTES);
        let (mut rest, mut said) = (self.source.content.trim(), Vec::new());
        let mut pieces = 0;
        while !rest.is_empty() {
            let piece = beginning(rest, most);
            rest = rest[piece.len()..].trim_start();
            pieces += 1;
            if pieces > PIECES {
                let message = format!(
                    "the text has more than {PIECES} pieces of {most} bytes, which is what the model reads at once"
                );
                return Err(
                    TaskFailure::permanent("text_too_long", message).with_detail("setting", "SVC_LLM_CONTEXT_TOKENS")
                );
            }
            said.extend(self.said_of(piece).await?);
            if self.asking.wants_enough() {
                break;
            }
        }
        Ok(said)
    }

    /// What the model says of a piece; of its halves, each by itself, if it is too long for the model.
    async fn said_of(&mut self, piece: &str) -> Result<Vec<Value>, TaskFailure> {
        let (mut open, mut said) = (vec![piece], Vec::new());
        while let Some(piece) = open.pop() {
            let (given, problem) = match self.ask(piece, None).await? {
                Asked::Later => continue,
                Asked::Error(error @ LlmError::TooLong(_)) if piece.len() / 2 < LEAST_BYTES => {
                    return Err(error.classify());
                }
                Asked::Error(LlmError::TooLong(_)) => {
                    let first = beginning(piece, piece.len() / 2);
                    open.push(piece[first.len()..].trim_start());
                    open.push(first);
                    continue;
                }
                Asked::Error(error) => return Err(error.classify()),
                Asked::Answer(given) => match answer::read(&given.answer, given.is_cut) {
                    Ok(facts) => {
                        self.truncated |= given.is_cut;
                        said.extend(facts);
                        continue;
                    }
                    Err(problem) => (given, problem),
                },
            };
            match self.ask(piece, Some((&given, &problem))).await? {
                Asked::Later => continue,
                Asked::Error(error) => return Err(error.classify()),
                Asked::Answer(given) => match answer::read(&given.answer, given.is_cut) {
                    Ok(facts) => {
                        self.truncated |= given.is_cut;
                        said.extend(facts);
                    }
                    Err(problem) => return Err(unusable(&given, &problem)),
                },
            }
        }
        Ok(said)
    }

    /// Asks of a piece; with what was wrong with an answer that came before.
    async fn ask(&mut self, piece: &str, before: Option<(&LlmAnswer, &str)>) -> Result<Asked, TaskFailure> {
        let message = |mark: &str| {
            let titles = self.source.titles.join(" > ");
            let titles = titles.split_whitespace().collect::<Vec<_>>().join(" ");
            // The nearest titles say most.
            let titles = &titles[titles.ceil_char_boundary(titles.len().saturating_sub(TITLE_BYTES))..];
            let mut message = format!(
                "Give at most {} facts. The reference time of the text is {}.\n\nTitles:\n{mark}\n{titles}\n{mark}\n\nPredicates that exist:\n{mark}\n{}\n{mark}\n\nText:\n{mark}\n{piece}\n{mark}\n",
                self.parameters.max_facts,
                self.source.told_at.format("%Y-%m-%dT%H:%M:%SZ"),
                self.vocabulary.told,
            );
            if let Some((_, problem)) = before {
                message += &format!(
                    "\nYour last answer could not be read: {problem}. Answer again, with the JSON object alone.\n"
                );
            }
            message
        };
        let temperature = self.parameters.temperature;
        let earlier = before.map_or("", |(given, _)| given.answer.as_str());
        let parts = [
            PROMPT,
            self.asking.model(),
            &temperature.to_string(),
            &self.answer_tokens().to_string(),
            &message(""),
            earlier,
        ];
        let hash = hash(&parts);
        let ask = Ask {
            purpose: "extract",
            instructions: INSTRUCTIONS.to_owned(),
            message: message(&mark()),
            max_tokens: u32::try_from(self.answer_tokens()).unwrap_or(u32::MAX),
            temperature,
            schema: Some(answer::schema()),
            model: None,
            thinks: true,
        };
        self.asking.asked(hash, ask).await
    }
}

fn unusable(given: &LlmAnswer, problem: &str) -> TaskFailure {
    let shown: String = given.answer.chars().take(SHOWN).collect();
    TaskFailure::permanent(
        "llm_answer_unusable",
        format!("the language model gave no facts in the form that was asked for, twice: {problem}"),
    )
    .with_detail("answer", shown)
}

/// How many facts were dropped, by the reason.
type Dropped = BTreeMap<&'static str, usize>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_changes_with_the_instructions() {
        insta::assert_snapshot!("prompt", format!("{PROMPT} {}", hex::encode(&hash(&[INSTRUCTIONS])[..8])));
    }
}
