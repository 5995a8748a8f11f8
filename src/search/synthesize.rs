//! Answers of a language model from what a search found. The model reads the best texts and nothing else, and each sentence is checked for
//! literal quotes before anybody sees it.
mod grounding;

use super::{auto::auto_by, snippets::beginning};
use crate::{
    access::Caller,
    core::Core,
    error::OrFail,
    llm::{Answering, Ask, Piece, answer_tokens, mark, may_think},
    store::{self, documents::Beginning},
};
use grounding::{Claim, Quotable, Sentences};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};
use svc_client::{
    Code, Failure,
    wire::{
        AnswerCitation, AnswerPart, AnswerSentence, AnswerSource, AutoSearch, GroupBy, NoAnswer, SearchHit,
        SearchResponse, SearchResult, Snippet, SynthesizeResponse, SynthesizeSearch, TokenUsage,
    },
};
use svc_ids::DocumentId;

/// The instructions of the model. Whoever changes the file changes the version, and a test holds both together.
const INSTRUCTIONS: &str = include_str!("synthesize/prompt.md");
const PROMPT: &str = "synthesize/1";
const MAX_SOURCES: u32 = 8;
/// How many results are looked through for each source, because some have no text.
const LOOKED_THROUGH: u32 = 4;
/// The most results of a search.
const MOST_RESULTS: u32 = 100;
/// The most tokens of an answer.
const ANSWER_TOKENS: usize = 2048;
/// What stands before the question.
const QUESTION: &str = "Question: ";
/// The most bytes that stand around a source.
const FRAME_BYTES: usize = 80;
/// The fewest bytes of all sources together, however small the model's context is.
const LEAST_BYTES: usize = 1024;

/// A search, and the texts from which its question is to be answered.
pub struct Synthesis {
    started: Instant,
    found: SearchResponse,
    /// The number of results that the caller asked for.
    limit: usize,
    sources: Vec<AnswerSource>,
    texts: Vec<Quotable>,
    ask: Option<Ask>,
}

/// Finds the sources.
pub async fn prepare(core: &Core, caller: &Caller, body: SynthesizeSearch) -> Result<Synthesis, Failure> {
    core.language_model.must_exist().or_fail()?;
    let started = Instant::now();
    let most = body.max_sources.unwrap_or(MAX_SOURCES);
    let (limit, per_group) = (body.limit, body.per_group as usize);
    let question = body.query.clone();
    let hides_snippets = body.snippets == Some(false);
    let search = AutoSearch {
        limit: limit.max(most * LOOKED_THROUGH).min(MOST_RESULTS),
        // A snippet says where its text has what was looked for.
        snippets: Some(true),
        ..AutoSearch::from(body)
    };
    let mut found = Box::pin(auto_by(core, caller, search, GroupBy::None)).await?;
    let candidates = candidates(&found, per_group);
    let (sources, texts) = sources(core, caller, &candidates, most as usize, &question).await?;
    if hides_snippets {
        for result in &mut found.results {
            result.snippet = None;
            result.hits.iter_mut().flatten().for_each(|hit| hit.snippet = None);
        }
    }
    let context = core.settings.llm_context_tokens;
    let most_title = most_title(room(context, &question, sources.len()), sources.len());
    let ask = (!sources.is_empty()).then(|| Ask {
        purpose: "synthesize",
        instructions: INSTRUCTIONS.to_owned(),
        message: message(&question, &sources, &texts, most_title),
        max_tokens: answer_tokens(ANSWER_TOKENS, context) as u32,
        temperature: 0.0,
        schema: Some(schema()),
        model: None,
        thinks: may_think(&core.settings),
    });
    Ok(Synthesis { started, found, limit: limit as usize, sources, texts, ask })
}

/// A document that becomes a source if it has a text.
struct Candidate {
    id: DocumentId,
    /// Where its text has what was looked for, in code points.
    start: usize,
    /// Whether a group shows no more texts than come before this one in its section.
    is_further: bool,
}

impl Candidate {
    fn of(id: i64, snippet: Option<&Snippet>) -> Candidate {
        let start = snippet.filter(|snippet| snippet.document_id == id).map_or(0, |snippet| snippet.start);
        Candidate { id: DocumentId(id), start, is_further: false }
    }
}

/// What a search found, best first. The hits of a group have its texts. A section that stands for its texts has none itself, so they come in its
/// place. No more of them come there than a group shows, so that one section does not keep other groups away; the others come last.
fn candidates(found: &SearchResponse, per_group: usize) -> Vec<Candidate> {
    let of_hit = |hit: &SearchHit| -> Vec<Candidate> {
        let of = |id| Candidate::of(id, hit.snippet.as_ref());
        if hit.texts.is_empty() {
            return vec![of(hit.document.id)];
        }
        let texts = hit.texts.iter().enumerate();
        texts.map(|(at, id)| Candidate { is_further: at >= per_group, ..of(*id) }).collect()
    };
    let mut all: Vec<Candidate> = Vec::new();
    for SearchResult { document, snippet, hits, .. } in &found.results {
        all.push(Candidate::of(document.id, snippet.as_ref()));
        all.extend(hits.iter().flatten().flat_map(of_hit));
    }
    let mut seen = HashSet::new();
    all.retain(|candidate| seen.insert(candidate.id));
    all.sort_by_key(|candidate| candidate.is_further);
    all
}

/// The best `most` candidates that have a text, with as much of each text as the model's context has room for. The texts are read here, because the answer
/// of the search leaves out those for which it has no room.
async fn sources(
    core: &Core,
    caller: &Caller,
    candidates: &[Candidate],
    most: usize,
    question: &str,
) -> Result<(Vec<AnswerSource>, Vec<Quotable>), Failure> {
    let mut conn = core.pool.acquire().await.or_fail()?;
    let mut read: Vec<(Beginning, usize)> = Vec::with_capacity(most);
    // Nearly all results have a text, so mostly this reads once.
    for some in candidates.chunks(most) {
        let ids: Vec<DocumentId> = some.iter().map(|candidate| candidate.id).collect();
        let characters = beginning(ids.len()) as i32;
        let rows = store::documents::beginnings(&mut conn, &caller.readable(), &ids, characters).await.or_fail()?;
        let texts = rows.into_iter().filter(|row| !row.text.trim().is_empty());
        let mut texts: HashMap<DocumentId, Beginning> = texts.map(|row| (row.id, row)).collect();
        let best = some.iter().filter_map(|candidate| Some((texts.remove(&candidate.id)?, candidate.start)));
        read.extend(best.take(most - read.len()));
        if read.len() == most {
            break;
        }
    }
    let ids: Vec<DocumentId> = read.iter().map(|(text, _)| text.id).collect();
    let mut anchors = store::view::anchors(&mut conn, &ids).await.or_fail()?;
    drop(conn);
    let mut left = room(core.settings.llm_context_tokens, question, read.len());
    let (mut sources, mut texts) = (Vec::new(), Vec::new());
    let count = read.len();
    let most_title = most_title(left, count);
    for (place, (Beginning { id, title, text, .. }, start)) in read.into_iter().enumerate() {
        let share = left / (count - place);
        let told = beginning_of(&title, most_title).len();
        let text = excerpt(&text, start, share.saturating_sub(told));
        left = left.saturating_sub(text.len() + told);
        sources.push(AnswerSource {
            marker: place as u32 + 1,
            document_id: id.0,
            title,
            anchor: anchors.remove(&id.0),
        });
        texts.push(Quotable::new(text.to_owned()));
    }
    Ok((sources, texts))
}

/// At most `most` bytes of a text, with what stands at `start` code points in the middle.
fn excerpt(text: &str, start: usize, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let at = text.char_indices().nth(start).map_or(text.len(), |(at, _)| at);
    let from = at.saturating_sub(most / 4).min(text.len() - most);
    let from = (from..=text.len()).find(|from| text.is_char_boundary(*from)).unwrap_or_default();
    let to = (from..=text.len().min(from + most)).rfind(|to| text.is_char_boundary(*to)).unwrap_or(from);
    &text[from..to]
}

/// How many bytes so many sources have together, with their titles.
fn room(context: usize, question: &str, sources: usize) -> usize {
    let bytes = context.saturating_sub(answer_tokens(ANSWER_TOKENS, context)) * 3;
    let others = INSTRUCTIONS.len() + QUESTION.len() + question.len() + 1 + FRAME_BYTES * sources;
    bytes.saturating_sub(others).max(LEAST_BYTES)
}

/// The most bytes of a title in a question where so many sources have this room together. A long title takes no more than a quarter from its text.
fn most_title(room: usize, sources: usize) -> usize {
    room / sources.max(1) / 4
}

fn beginning_of(title: &str, most: usize) -> &str {
    &title[..title.floor_char_boundary(most)]
}

fn message(question: &str, sources: &[AnswerSource], texts: &[Quotable], most_title: usize) -> String {
    let mark = mark();
    let mut message = format!("{QUESTION}{question}\n");
    for (source, text) in sources.iter().zip(texts) {
        let title = beginning_of(&source.title, most_title);
        message += &format!("\nsource {}\n{mark}\n{title}\n{}\n{mark}\n", source.marker, text.text());
    }
    message
}

fn schema() -> Value {
    let object = |properties: Value| {
        let names: Vec<String> = properties.as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default();
        json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
    };
    let citation = object(json!({"source": {"type": "integer"}, "quote": {"type": "string"}}));
    let citations = json!({"type": "array", "items": citation});
    let sentence = object(json!({"text": {"type": "string"}, "citations": citations}));
    object(json!({"answered": {"type": "boolean"}, "sentences": {"type": "array", "items": sentence}}))
}

impl Synthesis {
    /// Whether the model must be called.
    pub fn has_sources(&self) -> bool {
        self.ask.is_some()
    }

    /// Begins the answer.
    pub async fn answer(mut self, core: &Core) -> Result<Answer, Failure> {
        let answering = match self.ask.take() {
            Some(ask) => Some(core.language_model.ask(ask).await.or_fail()?),
            None => None,
        };
        let told = AnswerPart::Sources(self.sources.clone());
        Ok(Answer {
            synthesis: self,
            answering,
            read: Sentences::default(),
            sentences: Vec::new(),
            citations: Vec::new(),
            told: [told].into(),
            is_over: false,
        })
    }
}

/// An answer that is being made.
pub struct Answer {
    synthesis: Synthesis,
    answering: Option<Answering>,
    read: Sentences,
    sentences: Vec<AnswerSentence>,
    citations: Vec<AnswerCitation>,
    /// What is known and was not told yet.
    told: std::collections::VecDeque<AnswerPart>,
    is_over: bool,
}

impl Answer {
    /// The next part; the last one is [`AnswerPart::Done`].
    pub async fn next(&mut self) -> Result<Option<AnswerPart>, Failure> {
        loop {
            if let Some(part) = self.told.pop_front() {
                return Ok(Some(part));
            }
            if self.is_over {
                return Ok(None);
            }
            let piece = match &mut self.answering {
                Some(answering) => answering.next().await.or_fail()?,
                None => None,
            };
            match piece {
                Some(Piece::Text(text)) => {
                    for claim in self.read.take(&text) {
                        self.check(claim);
                    }
                }
                // Of thoughts no sentence was read.
                Some(Piece::Anew) => self.read = Sentences::default(),
                None => self.end()?,
            }
        }
    }

    /// The whole answer.
    pub async fn whole(mut self) -> Result<SynthesizeResponse, Failure> {
        while let Some(part) = self.next().await? {
            if let AnswerPart::Done(whole) = part {
                return Ok(*whole);
            }
        }
        Err(Failure::new(Code::Internal, "the answer has no end"))
    }

    /// Keeps of a sentence's quotes those that stand in a source: the one that is named, or another.
    fn check(&mut self, claim: Claim) {
        let number = self.sentences.len() as u32;
        let mut markers = Vec::new();
        for (named, quote) in claim.quotes {
            let Synthesis { sources, texts, .. } = &self.synthesis;
            let named = named.and_then(|number| number.checked_sub(1)).filter(|place| *place < texts.len());
            let order = named.into_iter().chain((0..texts.len()).filter(|place| Some(*place) != named));
            let found = order.into_iter().find_map(|place| Some((place, texts[place].find(&quote)?)));
            let Some((place, quote)) = found else { continue };
            let source = &sources[place];
            self.citations.push(AnswerCitation {
                marker: source.marker,
                sentence: number,
                document_id: source.document_id,
                title: source.title.clone(),
                anchor: source.anchor.clone(),
                quote: quote.to_owned(),
            });
            if !markers.contains(&source.marker) {
                markers.push(source.marker);
            }
        }
        let sentence = AnswerSentence { unsupported: markers.is_empty(), text: claim.text, markers };
        self.told.push_back(AnswerPart::Delta(sentence.clone()));
        self.sentences.push(sentence);
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.is_over = true;
        let (answered, rest) = std::mem::take(&mut self.read).end();
        for claim in rest {
            self.check(claim);
        }
        let is_supported = self.sentences.iter().any(|sentence| !sentence.unsupported);
        let reason = match (&self.answering, is_supported) {
            (None, _) => Some(NoAnswer::NoSources),
            (Some(_), true) => None,
            (Some(_), false) if !answered || self.sentences.is_empty() => Some(NoAnswer::NotInSources),
            (Some(_), false) => {
                let sources: Vec<i64> = self.synthesis.sources.iter().map(|source| source.document_id).collect();
                return Err(Failure::new(
                    Code::UngroundedAnswer,
                    "the language model answered, but no quote that it gives for its sentences stands in the sources",
                )
                .with("sentences", self.sentences.iter().map(|sentence| sentence.text.clone()).collect::<Vec<_>>())
                .with("document_ids", sources)
                .with(
                    "remedy",
                    "read the documents, ask in other words, or use a model that follows instructions better",
                ));
            }
        };
        let text = |sentence: &AnswerSentence| {
            let markers: String = sentence.markers.iter().map(|marker| format!("[{marker}]")).collect();
            format!("{} {markers}", sentence.text).trim_end().to_owned()
        };
        let answer = reason.is_none().then(|| self.sentences.iter().map(text).collect::<Vec<_>>().join(" "));
        let usage = self.answering.as_ref().and_then(Answering::usage);
        let Synthesis { started, found, limit, sources, .. } = &mut self.synthesis;
        let mut results = std::mem::take(&mut found.results);
        results.truncate(*limit);
        self.told.push_back(AnswerPart::Citations(self.citations.clone()));
        self.told.push_back(AnswerPart::Done(Box::new(SynthesizeResponse {
            answer,
            reason,
            sentences: std::mem::take(&mut self.sentences),
            citations: std::mem::take(&mut self.citations),
            sources: std::mem::take(sources),
            results,
            method: found.method,
            scope_state: found.scope_state,
            model: self.answering.as_ref().map(|answering| answering.name().to_owned()),
            prompt: PROMPT.to_owned(),
            truncated: self.answering.as_ref().is_some_and(Answering::is_cut),
            latency_ms: started.elapsed().as_secs_f64() * 1e3,
            usage: usage.map(|usage| TokenUsage {
                prompt_tokens: usage.prompt_tokens,
                completion_tokens: usage.completion_tokens,
            }),
        })));
        // The server's connection is free now.
        self.answering = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn the_version_changes_with_the_instructions() {
        let hash = hex::encode(Sha256::digest(INSTRUCTIONS));
        insta::assert_snapshot!("prompt", format!("{PROMPT} {}", &hash[..16]));
    }

    #[test]
    fn a_question_and_its_answer_fit_what_the_model_takes_however_little_that_is() {
        let question = "what does the grey heron eat ".repeat(10);
        let long = "鷺".repeat(1000);
        let counts = [1, MAX_SOURCES as usize, 20];
        for context in [2048, 4096, 8192, 100_000] {
            for (count, title) in counts.map(|count| [(count, ""), (count, long.as_str())]).concat() {
                let room = room(context, &question, count);
                let most_title = most_title(room, count);
                let source = |at: usize| AnswerSource {
                    marker: at as u32 + 1,
                    document_id: 1,
                    title: title.to_owned(),
                    anchor: None,
                };
                let sources: Vec<AnswerSource> = (0..count).map(source).collect();
                let most = room / count - beginning_of(title, most_title).len();
                let texts: Vec<Quotable> = (0..count).map(|_| Quotable::new("x".repeat(most))).collect();
                let asked = (INSTRUCTIONS.len() + message(&question, &sources, &texts, most_title).len()).div_ceil(3);
                assert!(asked + answer_tokens(ANSWER_TOKENS, context) <= context, "{count}: {asked} of {context}");
                let told = message(&question, &sources[..1], &texts[..1], most_title);
                assert_eq!(told.contains("鷺鷺"), !title.is_empty(), "much of a title is told");
            }
        }
    }

    #[test]
    fn an_excerpt_is_short_enough_and_has_what_was_found() {
        let text: String = (0..500).map(|n| format!("é{n} ")).collect();
        for start in [0, 7, 900, text.chars().count() - 1, usize::MAX] {
            for most in [0, 1, 2, 50, 333] {
                let cut = excerpt(&text, start, most);
                assert!(cut.len() <= most, "{start} {most}");
                let at = text.char_indices().nth(start).map_or(text.len() - 1, |(at, _)| at);
                let from = cut.as_ptr() as usize - text.as_ptr() as usize;
                assert!(most < 8 || (from..=from + cut.len()).contains(&at), "{start} {most}");
            }
        }
        assert_eq!(excerpt("short", 3, 9), "short");
    }
}
