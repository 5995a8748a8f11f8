//! What a search found: each result with the piece of text that shows why, and the way to it.
use super::{
    super::{Calls, Parameters, layout::Page, say},
    BYTES, named, search,
};
use crate::view::markup::{anchor, crumbs};
use futures_util::{StreamExt, stream};
use maud::{Markup, html};
use std::collections::HashMap;
use svc_client::{
    Failure, Json,
    wire::{
        AutoSearch, Crumb, DocumentPath, DocumentResponse, SearchResponse, SearchResult, Snippet, TotalIs, ViewSource,
    },
};

/// How many places are looked up at once.
const AT_ONCE: usize = 3;

/// Where a text stands: the documents above it, and its place in its file.
struct Place {
    breadcrumbs: Vec<Crumb>,
    source: Option<ViewSource>,
}

pub async fn read(calls: &Calls, given: &Parameters) -> Result<Page, Failure> {
    let wanted = search::Wanted::of(given);
    let answer = match ask(calls, &wanted).await {
        Ok(answer) => answer,
        // What was typed stays in its box, so that it can be mended.
        Err(failure) if failure.status < 500 => return Ok(page(&wanted, "", refused(&failure))),
        Err(failure) => return Err(failure),
    };
    let places = places(calls, &answer.results).await;
    let (count, is_more) = (i64::try_from(answer.total).unwrap_or(i64::MAX), answer.total_is == TotalIs::AtLeast);
    let said = format!(
        "{} found by {}, in {}",
        say::at_least(count, is_more),
        answer.method,
        say::took(answer.latency_ms / 1e3)
    );
    let (waits, others) = (answer.scope_state.in_flight, answer.scope_state.other_model);
    let body = html! {
        @if let Some(instead) = &answer.searched_instead {
            p { "Some of these words appear in no text. Searched for " strong { (instead.query) } " instead. " a href=(wanted.as_typed()) { "Search for “" (wanted.q) "”" } }
        }
        @if let Some(reason) = &answer.no_vector { p .dim { "Note: " (reason) "." } }
        @if waits > 0 { p .dim { (say::many(waits, "document")) " cannot be found yet, because they are still being read." } }
        @if others > 0 { p .dim { (say::many(others, "document")) " cannot be found by meaning, because they have yet to be read by the new model." } }
        @if answer.results.is_empty() && wanted.cursor.is_some() { section .card { p .body .dim { "There are no more results." } } }
        @else if answer.results.is_empty() { section .card { p .body .dim { "Nothing fits. Other words may, or another way to search." } } }
        @else { ol .found { @for result in &answer.results { (one(result, &places)) } } }
        @if let Some(cursor) = &answer.next_cursor { p { a href=(wanted.page(cursor)) rel="next" { "More results" } } }
    };
    Ok(page(&wanted, &said, body))
}

fn page(wanted: &search::Wanted, said: &str, found: Markup) -> Page {
    let body = html! {
        (search::form(wanted))
        @if wanted.parent.is_some() { p { a href=(wanted.everywhere()) { "Search everything" } } }
        (found)
    };
    Page { title: "Found".to_owned(), say: html! { (said) }, body, is_live: false, as_of: None }
}

fn refused(failure: &Failure) -> Markup {
    html! { div .finding .bad role="alert" { span .g aria-hidden="true" { "✕" } div { (failure.detail) } } }
}

async fn ask(calls: &Calls, wanted: &search::Wanted) -> Result<SearchResponse, Failure> {
    let asked: AutoSearch = wanted.request()?;
    let (calls, method) = (calls.clone(), wanted.method);
    // A search needs a deep stack where the compiler does not optimise, so it has one of its own.
    let task = tokio::spawn(async move {
        match method {
            "hybrid" => Box::pin(calls.search_hybrid(Json(asked.into()))).await,
            "vector" => Box::pin(calls.search_vector(Json(asked.into()))).await,
            "bm25" => Box::pin(calls.search_bm25(Json(asked.into()))).await,
            "fulltext" => Box::pin(calls.search_fulltext(Json(asked.into()))).await,
            "maxsim" => Box::pin(calls.search_maxsim(Json(asked.into()))).await,
            _ => Box::pin(calls.search_auto(Json(asked))).await,
        }
    });
    let task = tokio_util::task::AbortOnDropHandle::new(task);
    task.await.map_err(|error| Failure::new(svc_client::Code::Internal, error))?
}

/// The texts of a result; the document itself if it stands for no others.
fn texts(result: &SearchResult) -> Vec<(&DocumentResponse, Option<&Snippet>)> {
    match result.hits.as_deref() {
        Some(hits) if !hits.is_empty() => hits.iter().map(|hit| (&hit.document, hit.snippet.as_ref())).collect(),
        _ => vec![(&result.document, result.snippet.as_ref())],
    }
}

/// Where the best text of each result stands. What cannot be read any more has no place.
async fn places(calls: &Calls, results: &[SearchResult]) -> HashMap<i64, Place> {
    let best: Vec<i64> = results.iter().filter_map(|result| Some(texts(result).first()?.0.id)).collect();
    let calls = calls.clone();
    let places = stream::iter(best).map(move |id| place(calls.clone(), id)).buffered(AT_ONCE);
    places.collect::<Vec<_>>().await.into_iter().flatten().collect()
}

async fn place(calls: Calls, id: i64) -> Option<(i64, Place)> {
    let shown = calls.view_document(DocumentPath { id }).await.ok()?.value().ok()?;
    Some((id, Place { breadcrumbs: shown.breadcrumbs, source: shown.source }))
}

fn one(result: &SearchResult, places: &HashMap<i64, Place>) -> Markup {
    let texts = texts(result);
    let place = texts.first().and_then(|(best, _)| places.get(&best.id));
    html! {
        li .card {
            div .head { h2 { a href={ "/view/" (result.document.id) } { bdi { (named(&result.document)) } } } span .say { (result.document.usetype) } }
            div .body {
                @if let Some(place) = place { p .crumbs .way { (crumbs(&place.breadcrumbs)) @if let Some(source) = &place.source { (anchor(source, BYTES)) } } }
                @for (document, snippet) in texts { (text(result, document, snippet)) }
            }
        }
    }
}

fn text(result: &SearchResult, document: &DocumentResponse, snippet: Option<&Snippet>) -> Markup {
    html! {
        div .text {
            @if document.id != result.document.id { a href={ "/view/" (document.id) } { bdi { (named(document)) } } }
            @if let Some(snippet) = snippet { p dir="auto" { (marked(snippet)) } }
        }
    }
}

/// A piece of text with the words of the query marked.
fn marked(snippet: &Snippet) -> Markup {
    let letters: Vec<char> = snippet.text.chars().collect();
    let part =
        |from: usize, to: usize| letters.get(from..to).map(|part| part.iter().collect::<String>()).unwrap_or_default();
    let mut at = 0;
    let mut pieces = Vec::new();
    for word in &snippet.highlights {
        pieces.push((part(at, word.start), part(word.start, word.end)));
        at = word.end;
    }
    html! { @for (before, word) in pieces { (before) mark { (word) } } (part(at, letters.len())) }
}
