//! The vectors of texts. A text that is longer than the model's window is embedded in windows, whose weighted sum is its vector, so that
//! a search by meaning also finds what stands at its end.
use super::OrTaskFailure;
use crate::{
    embedding::{EmbedError, Model},
    ingest::tree::BATCH_TOKENS,
    search::{self, titles},
    store::{nodes::TextRow, vectors::Weighted},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};
use svc_actors::{Meter, TaskFailure};
use svc_formats::{ChunkOptions, chunk};
use svc_ids::DocumentId;
use svc_models::{Embedding, ModelError};

/// The most tokens of one text that are embedded: as many as a task has of a file's chunks. A vector of more would say little of any
/// part of it, and the task would take minutes.
const MOST_TOKENS: usize = BATCH_TOKENS as usize;
/// A longer text exceeds every window, so that nobody needs to try. What stands after the first `LONG_BYTES` of it is in no window, and is
/// only counted: cutting it would read it again and again.
const LONG_BYTES: usize = 1 << 20;
/// A window begins with the last of this many parts of the one before, so that what is said where one ends stands whole in one of them.
const PARTS: usize = 8;
const NO_DIRECTION: &str = "the model returned no numbers for this text; embed it with another model; until then only its words are searchable";
const UNKNOWN: &str =
    "the model knows none of the text's tokens; embed it with another model; until then only its words are searchable";
const REFUSED: &str = "chunk the document, or raise SVC_MAX_BODY_BYTES of the runner and the bound of a proxy before it, and embed it; until then only its words are searchable";
const CHUNK: &str = "chunk the document";
/// A text that every model has a vector of.
const PROBE: &str = "Water flows down the hill.";

/// A text to embed, with the titles above it from the top down.
struct Titled {
    id: DocumentId,
    titles: Vec<String>,
    text: String,
}

impl Titled {
    fn of(row: &TextRow, with_titles: bool) -> Titled {
        let before = if with_titles { titles::before(row) } else { Vec::new() };
        Titled {
            id: row.id,
            titles: before.into_iter().map(str::to_owned).collect(),
            text: search::text(&row.usetype, &row.title, &row.content),
        }
    }

    /// The text behind its titles, of which the first ones, which are the farthest, are left out.
    fn without(&self, left_out: usize) -> String {
        titles::join(self.titles.iter().skip(left_out).map(String::as_str), &self.text)
    }
}

#[derive(Default)]
pub(super) struct Embedded {
    pub ids: Vec<DocumentId>,
    pub vectors: Vec<Weighted>,
    /// The evidence of texts that were embedded in windows or with the titles above them, and of nodes without a vector: the reason and the
    /// remedy.
    pub notes: Vec<(DocumentId, Value)>,
    /// The documents whose texts do not fit the model's window.
    pub too_long: HashSet<DocumentId>,
}

impl Embedded {
    /// Leaves out every document that is not among these.
    pub fn keep(&mut self, kept: &HashSet<DocumentId>) {
        let vectors = std::mem::take(&mut self.ids).into_iter().zip(std::mem::take(&mut self.vectors));
        (self.ids, self.vectors) = vectors.filter(|(id, _)| kept.contains(id)).unzip();
        self.notes.retain(|(id, _)| kept.contains(id));
    }

    /// The nodes without a vector, each with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (DocumentId, &str)> {
        self.notes.iter().filter_map(|(id, note)| Some((*id, note["skipped"].as_str()?)))
    }
}

/// Texts to embed, those of one document one after the other.
type Texts = Vec<(DocumentId, String)>;
/// What is said of long texts.
type Notes = BTreeMap<DocumentId, Value>;
/// How many titles stand before texts that have some.
type Counts = BTreeMap<DocumentId, usize>;

/// Embeds texts of which nobody is told how many are done, and above which are no titles.
pub(super) async fn embed(model: &Model, rows: &[TextRow]) -> Result<Embedded, TaskFailure> {
    embed_counted(model, rows, false, &Meter::default()).await
}

/// Embeds texts, behind the titles above them if these are wanted; the meter counts them, or their windows.
pub(super) async fn embed_counted(
    model: &Model,
    rows: &[TextRow],
    with_titles: bool,
    meter: &Meter,
) -> Result<Embedded, TaskFailure> {
    let (titled, unknown) = told_apart(model, rows.iter().map(|row| Titled::of(row, with_titles)).collect()).await?;
    let titled: Arc<[Titled]> = titled.into();
    let mut texts: Texts = titled.iter().map(|titled| (titled.id, titled.without(0))).collect();
    let counts = titled.iter().map(|titled| (titled.id, titled.titles.len()));
    let mut counts: Counts = counts.filter(|(_, count)| *count > 0).collect();
    let only = |texts: &Texts| texts.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>();
    let ask = async |texts: Vec<String>| {
        meter.set(0, texts.len(), "texts");
        match texts.is_empty() {
            true => Ok(Vec::new()),
            false => model.embed_documents_heard(texts, &|done| meter.advance(done)).await,
        }
    };
    let mut notes = Notes::new();
    let mut cut_at = usize::MAX;
    if texts.iter().any(|(_, text)| text.len() > LONG_BYTES) {
        cut_at = model.document_window();
        (texts, notes, counts) = cut_long(model, titled.clone(), cut_at).await?;
    }
    let mut embedded = ask(only(&texts)).await;
    let mut refused = BTreeSet::new();
    loop {
        // A runner that was started anew may have a smaller window than it told of before.
        if let Some(limit) = exceeded(&embedded).filter(|limit| *limit < cut_at) {
            cut_at = limit;
            (texts, notes, counts) = cut_long(model, titled.clone(), limit).await?;
        } else if let Some(poison) = poison(&embedded) {
            // A runner only names the texts of one call. Each turn leaves out at least one.
            let is_poison = |index: usize| poison.contains(&index);
            let count = (0..texts.len()).filter(|index| is_poison(*index)).count();
            if count == 0 {
                break;
            }
            // Where no text has a vector, the probe tells whether the model is broken; then the texts must be tried again.
            if count == texts.len() {
                model.embed_documents(vec![PROBE.to_owned()]).await.classified()?;
            }
            if let Err(error @ EmbedError::TextRefused { .. }) = &embedded {
                tracing::warn!(texts = count, %error, "texts get no vectors");
                refused.extend(poison.iter().filter_map(|index| texts.get(*index)).map(|(id, _)| *id));
            }
            let left = std::mem::take(&mut texts).into_iter().enumerate().filter(|(index, _)| !is_poison(*index));
            texts = left.map(|(_, text)| text).collect();
        } else {
            break;
        }
        embedded = ask(only(&texts)).await;
    }
    let exceeding = notes.keys().copied().collect();
    let mut made = texts.into_iter().map(|(id, _)| id).zip(embedded.classified()?).peekable();
    let (mut ids, mut vectors) = (Vec::new(), Vec::new());
    for row in rows {
        let windows: Vec<Embedding> =
            std::iter::from_fn(|| made.next_if(|(id, _)| *id == row.id)).map(|(_, embedding)| embedding).collect();
        let count = windows.len();
        if let Some(sum) = Embedding::sum(windows) {
            ids.push(row.id);
            vectors.push(Weighted::new(model.native_width(), sum));
            if let Some(titles) = counts.get(&row.id) {
                notes.entry(row.id).or_insert_with(|| json!({}))["titles"] = (*titles).into();
            }
            notes.entry(row.id).and_modify(|note| note["windows"] = count.into());
        } else if unknown.contains(&row.id) {
            notes.insert(row.id, json!({"skipped": "unknown_tokens", "remedy": UNKNOWN}));
        } else if refused.contains(&row.id) {
            let bytes = row.content.len();
            notes.insert(row.id, json!({"skipped": "runner_refuses", "bytes": bytes, "remedy": REFUSED}));
        } else if notes.get(&row.id).is_none_or(|note| note.get("skipped").is_none()) {
            notes.insert(row.id, json!({"skipped": "no_direction", "remedy": NO_DIRECTION}));
        }
    }
    Ok(Embedded { ids, vectors, notes: notes.into_iter().collect(), too_long: exceeding })
}

/// The window that a text exceeds.
fn exceeded(embedded: &Result<Vec<Embedding>, EmbedError>) -> Option<usize> {
    match embedded {
        Err(EmbedError::Model(ModelError::TextTooLong { limit, .. })) => Some(*limit),
        _ => None,
    }
}

/// The numbers of the texts that get no vector, whatever company they are in.
fn poison(embedded: &Result<Vec<Embedding>, EmbedError>) -> Option<Vec<usize>> {
    match embedded {
        Err(EmbedError::Model(ModelError::NoDirection { texts }) | EmbedError::TextRefused { texts, .. }) => {
            Some(texts.clone())
        }
        _ => None,
    }
}

/// The texts of which the model knows some token, and the documents of the others: the vectors of these would all be the same, whatever they
/// say, and so would those of a query of unknown tokens.
async fn told_apart(model: &Model, texts: Vec<Titled>) -> Result<(Vec<Titled>, BTreeSet<DocumentId>), TaskFailure> {
    let model = model.clone();
    let told = tokio::task::spawn_blocking(move || {
        let (mut known, mut unknown) = (Vec::with_capacity(texts.len()), BTreeSet::new());
        for titled in texts {
            if model.is_unknown(&titled.text)? {
                unknown.insert(titled.id);
            } else {
                known.push(titled);
            }
        }
        Ok::<_, EmbedError>((known, unknown))
    });
    told.await.classified()?.classified()
}

/// Puts windows in the place of the texts that exceed the model's window. A text that only exceeds it with its titles has fewer of them, and
/// one that exceeds it by itself has none.
async fn cut_long(model: &Model, texts: Arc<[Titled]>, limit: usize) -> Result<(Texts, Notes, Counts), TaskFailure> {
    let model = model.clone();
    let cut = tokio::task::spawn_blocking(move || {
        let (mut all, mut notes, mut counts) = (Texts::new(), Notes::new(), Counts::new());
        for titled in texts.iter() {
            let (id, titles) = (titled.id, titled.titles.len());
            let mut left_out = if titled.text.len() > LONG_BYTES { titles } else { 0 };
            let mut text = titled.without(left_out);
            let mut tokens = count(&model, &text)?;
            while tokens > limit && left_out < titles {
                left_out += 1;
                text = titled.without(left_out);
                tokens = count(&model, &text)?;
            }
            if tokens <= limit {
                if left_out < titles {
                    counts.insert(id, titles - left_out);
                }
                all.push((id, text));
                continue;
            }
            let head = &text[..text.floor_char_boundary(LONG_BYTES)];
            let Windows { windows, mut left_out } = windows(&model, head, limit)?;
            left_out += count(&model, &text[head.len()..])?.saturating_sub(model.count_tokens("")?);
            notes.insert(id, note(tokens, &windows, left_out, limit, &text));
            all.extend(windows.into_iter().map(|window| (id, window)));
        }
        Ok::<_, EmbedError>((all, notes, counts))
    });
    cut.await.classified()?.classified()
}

/// The tokens of a text, which is read in pieces, since a tokenizer takes a hundred times the memory of what it reads.
fn count(model: &Model, text: &str) -> Result<usize, EmbedError> {
    let (mut rest, mut tokens) = (text, 0);
    while rest.len() > LONG_BYTES {
        let piece = &rest[..rest.floor_char_boundary(LONG_BYTES)];
        // A word that is cut in two would count as two.
        let end = piece.rfind(char::is_whitespace).filter(|end| *end > 0).unwrap_or(piece.len());
        tokens += model.count_content_tokens(&rest[..end])?;
        rest = &rest[end..];
    }
    Ok(tokens + model.count_tokens(rest)?)
}

fn note(tokens: usize, windows: &[String], left_out: usize, limit: usize, text: &str) -> Value {
    if windows.is_empty() {
        let remedy = format!("{CHUNK}; until then only its words are searchable");
        return json!({"skipped": "text_too_long", "token_count": tokens, "limit": limit, "chars_total": text.chars().count(), "remedy": remedy});
    }
    let mut note = json!({"windows": windows.len(), "tokens": tokens});
    if left_out > 0 {
        note["left_out"] = left_out.into();
        note["remedy"] = format!("{CHUNK}; until then its vector lacks the last {left_out} tokens").into();
    }
    note
}

struct Windows {
    windows: Vec<String>,
    /// How many tokens stand after the last window, because the text is too long for one vector.
    left_out: usize,
}

/// Cuts a text between its sentences into windows that overlap.
fn windows(model: &Model, text: &str, limit: usize) -> Result<Windows, EmbedError> {
    let room = limit.saturating_sub(model.count_tokens("")?);
    let options = ChunkOptions { max_tokens: (room / PARTS).max(1), max_chars: usize::MAX, ..ChunkOptions::default() };
    // A tokenizer that fails on a text has a defect; then the length in bytes is a safe upper bound.
    let count = |text: &str| model.count_content_tokens(text).unwrap_or(text.len());
    let parts = chunk(text, 0..text.len(), &options, &count);
    // A line break between two parts is at most a token of its own.
    let lengths: Vec<usize> = parts.iter().map(|part| part.tokens + 1).collect();
    let (spans, end) = spans(&lengths, room, MOST_TOKENS.max(room));
    let mut windows = Vec::with_capacity(spans.len());
    for mut span in spans {
        // Only a character that is longer than a part, or a tokenizer whose counts do not add up, is over the limit.
        while !span.is_empty() {
            let parts: Vec<_> = parts[span.clone()].iter().map(|part| part.content(text)).collect();
            let window = parts.join("\n");
            if model.count_tokens(&window)? <= limit {
                windows.push(window);
                break;
            }
            span.end -= 1;
        }
    }
    Ok(Windows { windows, left_out: lengths[end..].iter().sum() })
}

/// The parts of each window, and the first part after the last window: a window has as many parts as there is `room` for, and begins
/// with the last part of the one before; all of them have at most `most` tokens, but there is at least one.
fn spans(lengths: &[usize], room: usize, most: usize) -> (Vec<std::ops::Range<usize>>, usize) {
    let (mut spans, mut total, mut start, mut end) = (Vec::new(), 0, 0, 0);
    while end < lengths.len() {
        let (mut stop, mut tokens) = (start, 0);
        while stop < lengths.len() && (stop == start || tokens + lengths[stop] <= room) {
            tokens += lengths[stop];
            stop += 1;
        }
        if total + tokens > most && !spans.is_empty() {
            break;
        }
        // Beside the last part of the window before, nothing more has room here.
        if stop == end {
            start = end;
            continue;
        }
        spans.push(start..stop);
        (total, end) = (total + tokens, stop);
        start = if stop - start > 1 { stop - 1 } else { stop };
    }
    (spans, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_overlap_have_room_and_hold_everything_up_to_the_cap(
            lengths in prop::collection::vec(1usize..30, 1..200),
            room in 10usize..60,
            most in 10usize..2000,
        ) {
            let (spans, end) = spans(&lengths, room, most);
            let tokens = |span: &std::ops::Range<usize>| lengths[span.clone()].iter().sum::<usize>();
            prop_assert!(!spans.is_empty() && spans[0].start == 0 && spans[spans.len() - 1].end == end);
            for span in &spans {
                prop_assert!(!span.is_empty() && (tokens(span) <= room || span.len() == 1));
            }
            for pair in spans.windows(2) {
                prop_assert!(pair[0].end < pair[1].end && pair[1].start <= pair[0].end, "{spans:?}");
                // A window begins anew only where the part before leaves no room.
                let fits = lengths[pair[0].end - 1] + lengths[pair[0].end] <= room;
                prop_assert!(pair[1].start < pair[0].end || pair[0].len() == 1 || !fits, "{spans:?}");
            }
            let total: usize = spans.iter().map(tokens).sum();
            prop_assert!(total <= most || spans.len() == 1);
            prop_assert!(end == lengths.len() || total + room > most || lengths.iter().any(|length| *length > room));
        }
    }
}
