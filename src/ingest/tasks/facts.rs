//! extract:facts: what a language model reads in a text, as facts that the text has the words of. Every answer is kept before the next question, so that
//! no attempt pays for what an earlier one got.
mod answer;
mod entities;
mod fitting;
mod storing;

use super::{
    Apply, Classify, OrTaskFailure,
    asking::{Asked, Asking, hash},
    summary::beginning,
};
use crate::{
    graph::occurrences,
    ingest::Tools,
    llm::{Ask, LlmError, answer_tokens, mark, may_think},
    store::{
        self,
        extraction::{NAMESPACE, SourceText, VocabularyRow},
        predicates::DEFAULT_NAMESPACE,
        scope::Readable,
        summaries::LlmAnswer,
    },
};
use answer::{Rules, check, predicate_key};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use svc_actors::{Meter, Outcome, TaskFailure};
use svc_client::wire::{ExtractFactsRequest, NewPredicates, ResolveNames, Settled, SupersedeFacts};
use svc_ids::{DocumentId, PredicateId};

/// The instructions of the model. Whoever changes the file changes the version, and a test holds both together.
const INSTRUCTIONS: &str = include_str!("facts/prompt.md");
pub(crate) const PROMPT: &str = "extract-facts/2";
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
/// The most of them for the classes of its subjects, and for those of its objects.
const CLASSES_CHARS: usize = 60;
/// The most bytes of the titles.
const TITLE_BYTES: usize = 1000;
/// The bytes that the rest of a question takes, besides the instructions.
const FRAME_BYTES: usize = 500;
/// The most bytes in which predicates are told of.
const TOLD_BYTES: usize = 8_000;
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
    /// The hash of the predicates that there were when the task was queued, where no other ones count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<String>,
}

impl Parameters {
    /// What a request for a document asks for, by the settings of a process and the predicates that there are.
    pub async fn new(
        tools: &crate::core::Core,
        conn: &mut sqlx::PgConnection,
        id: DocumentId,
        request: &ExtractFactsRequest,
    ) -> sqlx::Result<Parameters> {
        let settings = &tools.settings;
        let vocabulary = match request.new_predicates {
            Some(NewPredicates::Closed) => {
                let rows = store::extraction::vocabulary(conn, id, VOCABULARY).await?;
                let said = rows.iter().flat_map(|row| {
                    let more = [&row.label, &row.description].map(|text| text.as_deref().unwrap_or_default());
                    let classes = row.domains.iter().chain(std::iter::once(&row.name)).chain(&row.ranges);
                    [row.namespace.as_str()].into_iter().chain(classes.map(String::as_str)).chain(more)
                });
                Some(hex::encode(hash(&said.collect::<Vec<_>>())))
            }
            _ => None,
        };
        Ok(Parameters {
            content_hash: String::new(),
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
            vocabulary,
        })
    }

    /// The same for a text.
    pub fn of(&self, content_hash: String) -> Parameters {
        Parameters { content_hash, ..self.clone() }
    }
}

/// How many bytes the titles, the predicates and each piece of a text have in a question, by the tokens that the model reads. Predicates have a share of
/// their own, so that a text is cut into the same pieces whichever there are.
struct Room {
    titles: usize,
    told: usize,
    piece: usize,
}

impl Room {
    fn new(tokens: usize) -> Room {
        let room = (tokens * 3).saturating_sub(INSTRUCTIONS.len() + FRAME_BYTES);
        let titles = TITLE_BYTES.min(room / 5);
        let told = TOLD_BYTES.min((room - titles) / 3);
        Room { titles, told, piece: room - titles - told }
    }
}

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let grant = apply.grant;
    let parameters: Parameters = serde_json::from_value(grant.params.clone()).classified()?;
    let mut conn = tools.pool.acquire().await.classified()?;
    let source = store::extraction::text(&mut conn, grant.document_id).await.classified()?;
    if source.as_ref().is_some_and(|source| source.settled.0 == Settled::InFlight) {
        return Err(TaskFailure::away("unsettled", "the text was changed, and is not embedded and indexed yet"));
    }
    let is_text = |source: &SourceText| source.settled.0 == Settled::Settled && !source.content.trim().is_empty();
    let source = source.filter(is_text);
    let Some(source) = source else {
        drop(conn);
        return apply.begin().await?.skip("the document has no text that has settled".to_owned(), Map::new()).await;
    };
    let context = tools.settings.llm_context_tokens;
    let tokens = answer_tokens(parameters.max_tokens, context);
    let room = Room::new(context.saturating_sub(tokens));
    let vocabulary = Vocabulary::read(&mut conn, grant.document_id, &source.content, room.told).await.classified()?;
    drop(conn);
    let asking = Asking::new(tools, grant, None);
    let mut reading = Reading {
        asking,
        meter: &apply.meter,
        parameters: &parameters,
        source: &source,
        vocabulary: &vocabulary,
        tokens,
        room,
        thinks: may_think(&tools.settings),
        truncated: false,
    };
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
    /// By what a model may call them, as [`by_names`] has it.
    known: HashMap<String, PredicateId>,
    /// What the model is told, a line for each.
    told: String,
}

impl Vocabulary {
    /// Reads the predicates, and chooses those to tell of in so many bytes: the ones whose words stand in the text before others.
    async fn read(conn: &mut sqlx::PgConnection, id: DocumentId, text: &str, most: usize) -> sqlx::Result<Vocabulary> {
        let rows = store::extraction::vocabulary(conn, id, VOCABULARY).await?;
        let known = by_names(&rows);
        let keys: Vec<String> =
            rows.iter().map(|row| predicate_key(row.label.as_deref().unwrap_or(&row.name))).collect();
        let words: Vec<(usize, &str)> =
            keys.iter().enumerate().flat_map(|(at, key)| key.split('_').map(move |word| (at, word))).collect();
        let words: Vec<(usize, &str)> = words.into_iter().filter(|(_, word)| word.len() > 3).collect();
        let found = occurrences::first(&text.to_lowercase(), &words.iter().map(|(_, word)| *word).collect::<Vec<_>>());
        let found = words.iter().zip(found).filter(|(_, place)| place.is_some());
        let near: HashSet<usize> = found.map(|((at, _), _)| *at).collect();
        let mut ranked: Vec<(bool, &VocabularyRow)> =
            rows.iter().enumerate().map(|(at, row)| (!near.contains(&at), row)).collect();
        ranked.sort_by_key(|(is_foreign, row)| (*is_foreign, row.id));
        ranked.truncate(TOLD);
        let line = |(_, row): (bool, &VocabularyRow)| (row.id, line_of(row));
        let mut bytes = 0;
        let fits = |(_, line): &(PredicateId, String)| {
            bytes += line.len() + 1;
            bytes <= most
        };
        let mut lines: Vec<(PredicateId, String)> = ranked.into_iter().map(line).take_while(fits).collect();
        lines.sort_by_key(|(id, _)| *id);
        Ok(Vocabulary { known, told: lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n") })
    }
}

/// Predicates by what a model may call them, to the letter or as [`predicate_key`] has it: `namespace:name` comes before a name alone, which is of the
/// namespace `default` before any other one, and a name before a label. Of several others that have a name or a label, it means none.
fn by_names(rows: &[VocabularyRow]) -> HashMap<String, PredicateId> {
    let whole = |row: &VocabularyRow| format!("{}:{}", row.namespace, row.name);
    let of = |namespace: &'static str| rows.iter().filter(move |row| row.namespace == namespace);
    let mut known: HashMap<String, Option<PredicateId>> = HashMap::new();
    let exact = rows.iter().map(|row| (whole(row), row.id));
    let exact = exact.chain(of(DEFAULT_NAMESPACE).map(|row| (row.name.clone(), row.id)));
    // A key does not tell `extracted:name` from a name alone.
    let keys = rows.iter().filter(|row| row.namespace != NAMESPACE).map(|row| (predicate_key(&whole(row)), row.id));
    let alone = of(DEFAULT_NAMESPACE).chain(of(NAMESPACE)).map(|row| (predicate_key(&row.name), row.id));
    for (name, id) in exact.chain(keys).chain(alone) {
        known.entry(name).or_insert(Some(id));
    }
    let names = rows.iter().map(|row| (predicate_key(&row.name), row.id)).collect();
    let labels = rows.iter().filter_map(|row| Some((predicate_key(row.label.as_deref()?), row.id))).collect();
    let passes: [Vec<(String, PredicateId)>; 2] = [names, labels];
    for pass in passes {
        let mut meant: HashMap<String, Option<PredicateId>> = HashMap::new();
        for (name, id) in pass {
            meant.entry(name).and_modify(|one| *one = one.filter(|one| *one == id)).or_insert(Some(id));
        }
        for (name, id) in meant {
            known.entry(name).or_insert(id);
        }
    }
    known.into_iter().filter_map(|(name, id)| Some((name, id?))).collect()
}

/// What the model is told of a predicate: its name, from what to what it leads, its label and its description.
fn line_of(row: &VocabularyRow) -> String {
    let mut line = svc_client::wire::predicate_name(&row.namespace, &row.name);
    for (word, classes) in [("from", &row.domains), ("to", &row.ranges)] {
        if !classes.is_empty() {
            let classes: String = classes.join(" or ").chars().take(CLASSES_CHARS).collect();
            line += &format!(" {word} {classes}");
        }
    }
    let more = [row.label.as_deref(), row.description.as_deref()].into_iter().flatten().collect::<Vec<_>>().join("; ");
    if !more.is_empty() {
        line += &format!(": {more}");
    }
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(PREDICATE_CHARS).collect()
}

/// A text that a language model reads, in pieces if it is long.
struct Reading<'a, 't> {
    asking: Asking<'a>,
    /// Counts the bytes that were read.
    meter: &'t Meter,
    parameters: &'t Parameters,
    source: &'t SourceText,
    vocabulary: &'t Vocabulary,
    /// The most tokens of an answer.
    tokens: usize,
    room: Room,
    thinks: bool,
    /// An answer was cut off.
    truncated: bool,
}

impl Reading<'_, '_> {
    /// What the model says of all pieces, each fact as it says it.
    async fn said(&mut self) -> Result<Vec<Value>, TaskFailure> {
        let most = self.room.piece;
        let (mut rest, mut said) = (self.source.content.trim(), Vec::new());
        let mut pieces = 0;
        let bytes = rest.len();
        self.meter.set(0, bytes, "bytes");
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
            self.meter.set(bytes - rest.len(), bytes, "bytes");
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
            let question = self.question(piece, None);
            let (given, problem) = match self.ask(&question, piece, None).await? {
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
            let mended = self.question(piece, Some(&given));
            match self.ask(&mended, piece, Some(&problem)).await? {
                Asked::Later => continue,
                Asked::Error(error) => return Err(error.classify()),
                Asked::Answer(given) => match answer::read(&given.answer, given.is_cut) {
                    Ok(facts) => {
                        self.truncated |= given.is_cut;
                        said.extend(facts);
                    }
                    Err(problem) => {
                        // What the model said of other pieces is kept.
                        self.asking.forget(&[question, mended]).await?;
                        return Err(unusable(&given, &problem));
                    }
                },
            }
        }
        Ok(said)
    }

    /// What tells a question from others: all that changes what a right answer to it is, and nothing else. The titles and the predicates that the model
    /// is told of are hints, and a text is not paid for again because a folder got another name or somebody made a predicate. Where only the predicates
    /// that exist count, the question is another one once there are others; they are those of the moment when the task was queued, so that no attempt
    /// pays for what an earlier one got. The zone is in it because titles are only told to the model that readers of the text may read.
    fn question(&self, piece: &str, before: Option<&LlmAnswer>) -> Vec<u8> {
        hash(&[
            PROMPT,
            self.asking.model(),
            &self.parameters.temperature.to_string(),
            &self.tokens.to_string(),
            &self.parameters.max_facts.to_string(),
            self.parameters.vocabulary.as_deref().unwrap_or_default(),
            &self.source.zone.to_string(),
            &self.told_at(),
            piece,
            // A second question is about the answer to the first.
            before.map_or("", |given| given.answer.as_str()),
        ])
    }

    /// The reference time of the text, as the model is told it.
    fn told_at(&self) -> String {
        self.source.told_at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Asks of a piece; with what was wrong with an answer that came before.
    async fn ask(&mut self, question: &[u8], piece: &str, problem: Option<&str>) -> Result<Asked, TaskFailure> {
        let titles = self.source.titles.join(" > ");
        let titles = titles.split_whitespace().collect::<Vec<_>>().join(" ");
        // The nearest titles say most.
        let titles = &titles[titles.ceil_char_boundary(titles.len().saturating_sub(self.room.titles))..];
        let mut message = message(self.parameters.max_facts, &self.told_at(), titles, &self.vocabulary.told, piece);
        if let Some(problem) = problem {
            message += &format!(
                "\nYour last answer could not be read: {problem}. Answer again, with the JSON object alone.\n"
            );
        }
        let ask = Ask {
            purpose: "extract",
            instructions: INSTRUCTIONS.to_owned(),
            message,
            max_tokens: u32::try_from(self.tokens).unwrap_or(u32::MAX),
            temperature: self.parameters.temperature,
            schema: Some(answer::schema()),
            model: None,
            thinks: self.thinks,
        };
        self.asking.asked(question.to_vec(), ask).await
    }
}

fn message(most: usize, told_at: &str, titles: &str, predicates: &str, piece: &str) -> String {
    let mark = mark();
    format!(
        "Give at most {most} facts. The reference time of the text is {told_at}.\n\nTitles:\n{mark}\n{titles}\n{mark}\n\nPredicates that exist:\n{mark}\n{predicates}\n{mark}\n\nText:\n{mark}\n{piece}\n{mark}\n"
    )
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

    #[test]
    fn a_question_and_its_answer_fit_what_the_model_takes_however_little_that_is() {
        for context in [2048, 4096, 8192, 100_000] {
            let tokens = answer_tokens(4096, context);
            let Room { titles, told, piece } = Room::new(context - tokens);
            let x = |bytes: usize| "x".repeat(bytes);
            let message = message(1000, "2024-05-01T00:00:00Z", &x(titles), &x(told), &x(piece));
            let asked = (INSTRUCTIONS.len() + message.len()).div_ceil(3);
            assert!(asked + tokens <= context, "{asked} of {context}");
            assert!(piece >= LEAST_BYTES, "{context}");
        }
    }
}
