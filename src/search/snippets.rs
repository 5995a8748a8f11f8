//! The piece of each result that shows why it was found.
use super::Ranking;
use crate::{
    core::Core,
    error::OrFail,
    store::{self, documents::Beginning},
};
use std::{collections::HashMap, time::Duration};
use svc_client::{
    Code, Failure,
    wire::{Highlight, Snippet, SnippetOf},
};
use svc_ids::DocumentId;
use svc_ranking::{Highlighter, dot, sentences};

/// The most code points of a snippet.
const LENGTH: usize = 240;
/// How many code points of all results are read, of each as many as of the others, and no fewer or more of one than these.
const READ: usize = 8 << 20;
const READ_OF_ONE: (usize, usize) = (16 << 10, 1 << 20);
/// How many sentences are compared with a query by meaning, and how many of one result.
const SENTENCES: usize = 48;
const SENTENCES_OF_ONE: usize = 8;
/// How long that may take.
const COMPARE: Duration = Duration::from_millis(300);

/// How many characters are read of each of so many documents.
pub(super) fn beginning(documents: usize) -> usize {
    (READ / documents.max(1)).clamp(READ_OF_ONE.0, READ_OF_ONE.1)
}

/// The snippets of documents with these beginnings: the piece with most of the query's words; if a text has none and the search goes
/// by meaning, the piece from its sentence nearest to the query, among the first ones; otherwise its beginning.
pub(super) async fn of(
    core: &Core,
    query: &str,
    ranking: &Ranking<'_>,
    read: Vec<Beginning>,
) -> Result<HashMap<DocumentId, Snippet>, Failure> {
    let index = ranking.index().unwrap_or("default");
    // An index that a leg has just searched is known.
    let config = match core.postings.index(index).filter(|_| ranking.has_words()) {
        Some(known) => known.totals.config.analyzer,
        None => {
            let mut conn = core.pool.acquire().await.or_fail()?;
            let index = store::indexes::by_name(&mut conn, index).await.or_fail()?;
            index.map(|index| index.config.0.analyzer).unwrap_or_default()
        }
    };
    let asked = query.to_owned();
    // Long texts take a while, so they do not run on the runtime's threads.
    let work = tokio::task::spawn_blocking(move || {
        let highlighter = Highlighter::new(config, &asked);
        let best: Vec<Option<Snippet>> = read.iter().map(|read| best(&highlighter, read)).collect();
        (highlighter, read, best)
    });
    let stopped = |error| Failure::new(Code::Internal, error);
    let (highlighter, read, mut best) = work.await.map_err(stopped)?;
    let without: Vec<&Beginning> =
        read.iter().zip(&best).filter(|(_, best)| best.is_none()).map(|(read, _)| read).collect();
    let nearest = match ranking.has_vectors() && !without.is_empty() {
        true => nearest(core, query, &without).await,
        false => HashMap::new(),
    };
    for (read, best) in read.iter().zip(&mut best).filter(|(_, best)| best.is_none()) {
        let (of, text) = speaking(read);
        let start = nearest.get(&read.id).copied().unwrap_or_default();
        *best = Some(shown(read.id, of, highlighter.at(text, start, LENGTH)));
    }
    Ok(read.iter().zip(best).filter_map(|(read, best)| Some((read.id, best?))).collect())
}

/// A document without a text has its title.
fn speaking(read: &Beginning) -> (SnippetOf, &str) {
    if read.text.trim().is_empty() { (SnippetOf::Title, &read.title) } else { (SnippetOf::Content, &read.text) }
}

fn best(highlighter: &Highlighter, read: &Beginning) -> Option<Snippet> {
    let (of, text) = speaking(read);
    highlighter.best(text, LENGTH).map(|snippet| shown(read.id, of, snippet))
}

fn shown(id: DocumentId, of: SnippetOf, snippet: svc_ranking::Snippet) -> Snippet {
    let highlight = |(start, end)| Highlight { start, end };
    Snippet {
        document_id: id.0,
        of,
        text: snippet.text,
        start: snippet.start,
        highlights: snippet.highlights.into_iter().map(highlight).collect(),
    }
}

/// Where the sentences begin that are nearest to the query, each in its text. What cannot be told in time is left out: a search does not
/// fail for a snippet.
async fn nearest(core: &Core, query: &str, read: &[&Beginning]) -> HashMap<DocumentId, usize> {
    let of_one = (SENTENCES / read.len()).clamp(1, SENTENCES_OF_ONE);
    let mut places: Vec<(DocumentId, usize)> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for read in read.iter().take(SENTENCES) {
        let (_, text) = speaking(read);
        let end = text.char_indices().nth(LENGTH * SENTENCES_OF_ONE).map_or(text.len(), |(at, _)| at);
        let mut behind = 0;
        for sentence in sentences(&text[..end]).into_iter().take(of_one) {
            let Some(at) = text[behind..].find(sentence) else { continue };
            places.push((read.id, behind + at));
            texts.push(sentence.to_owned());
            behind += at + sentence.len();
        }
    }
    let compared = async {
        let model = core.model().await.ok()?;
        let query = core.queries.of(&model, query).await.ok()??;
        let embedded = model.embed_waited_for(texts).await.ok()?;
        Some((query, embedded))
    };
    let Ok(Some((query, embedded))) = tokio::time::timeout(COMPARE, compared).await else { return HashMap::new() };
    let mut best: HashMap<DocumentId, (f32, usize)> = HashMap::new();
    for ((id, at), embedding) in places.into_iter().zip(embedded) {
        let cosine = if embedding.vector.len() == query.len() { dot(&query, &embedding.vector) } else { -1.0 };
        let known = best.entry(id).or_insert((cosine, at));
        if cosine > known.0 {
            *known = (cosine, at);
        }
    }
    best.into_iter().map(|(id, (_, at))| (id, at)).collect()
}
