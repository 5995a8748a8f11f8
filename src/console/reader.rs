//! The reader: what is stored, as people read it. Without an id it lists the roots and searches; with one it shows a document.
mod document;
mod found;
mod references;
mod search;
mod upload;

use super::{
    Calls, Console, Parameters,
    auth::Viewer,
    layout::{self, Page, csrf, more, query},
    number, say,
};
use crate::{registry, view::markup::Bytes};
use axum::{
    extract::{Path, State},
    response::Response,
};
pub use document::read as document;
use http::{HeaderMap, HeaderValue, header};
use maud::{Markup, html};
pub use references::read as references;
use std::sync::Arc;
use svc_client::{
    Failure, Meta,
    wire::{DocumentPath, DocumentResponse, PageQuery},
};
pub use upload::upload;

/// Where a browser that is signed in finds the bytes of a file.
const BYTES: Bytes = |id| format!("/view/{id}/bytes");
/// How many roots a page lists.
const ROOTS: u32 = 50;
/// Types that a browser shows and that run nothing in the console's name; it saves others.
const SHOWN: [&str; 5] = [PDF, "image/png", "image/jpeg", "image/gif", "image/webp"];
const PDF: &str = "application/pdf";
/// The policy of a PDF that is shown. Chrome shows it by a plugin with a style of its own, to which the policy of the answer applies.
const PDF_POLICY: &str = "frame-ancestors 'none'";

/// The roots, or what a search finds.
pub async fn read(calls: &Calls, given: &Parameters) -> Result<Page, Failure> {
    match given.get("q").is_some_and(|text| !text.trim().is_empty()) {
        true => found::read(calls, given).await,
        false => roots(calls, given).await,
    }
}

async fn roots(calls: &Calls, given: &Parameters) -> Result<Page, Failure> {
    let wanted = PageQuery { cursor: given.get("cursor").cloned(), limit: Some(ROOTS), ..PageQuery::default() };
    let page = calls.list_roots(PageQuery { include_content: false, ..wanted }).await?;
    let next = page.next_cursor.map(|cursor| format!("/view?{}", query(&[("cursor", &cursor)])));
    let body = html! {
        (search::form(&search::Wanted::of(given)))
        (upload_form(None))
        section .card {
            div .head { h2 { "Stored" } span .say { "what is at the top of the tree" } }
            @if page.documents.is_empty() { p .body .dim { "Nothing that you may read is stored here." } }
            @else { (rows(&page.documents)) }
            (more(next))
        }
    };
    Ok(Page { title: "Reader".to_owned(), say: html! {}, body, is_live: false, as_of: None })
}

/// Documents by name.
fn rows(documents: &[DocumentResponse]) -> Markup {
    html! { table {
        thead { tr { th .file { "Title" } th .hide-s { "Usetype" } th { "State" } th .num .hide-s { "Stored" } } }
        tbody { @for document in documents { tr id={ "d-" (document.id) } {
            td .cut { a href={ "/view/" (document.id) } title=(document.title) { bdi { (named(document)) } } }
            td .w1 .dim .hide-s { (document.usetype) }
            td .w1 { (say::settled(document.settled)) }
            td .num .w1 .dim .hide-s { (say::time(say::since(document.created_at))) " ago" }
        } } }
    } }
}

/// What a document is called.
fn named(document: &DocumentResponse) -> &str {
    if document.title.trim().is_empty() { "without a title" } else { &document.title }
}

/// Where files are dropped or chosen. A script sends them at once, so it hides the button.
fn upload_form(parent: Option<i64>) -> Markup {
    let here = parent.map_or_else(|| "/view".to_owned(), |parent| format!("/view/{parent}"));
    html! {
        form .drop method="post" action="/view/upload" enctype="multipart/form-data" {
            (csrf())
            @if let Some(parent) = parent { input type="hidden" name="parent_id" value=(parent); }
            label { span { "Store files" @if parent.is_some() { " under this document" } ": drop them here, or choose them" } input type="file" name="file" multiple required; }
            button { "Store" }
            // A page does not hear that its browser was told to stop, and this leads back to the form then as well.
            p .sending role="status" { "The files are being sent; others can follow once these are stored. " a href=(here) { "Stop" } }
        }
    }
}

/// The bytes of a file: shown if a browser can do that safely, else saved.
pub async fn bytes(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    viewer: Viewer,
) -> Response {
    let read = async {
        let path = DocumentPath { id: number(&id)? };
        console.calls(&viewer).given(Meta::read(&headers)).read_bytes(path).await
    };
    match read.await {
        Ok(validated) => {
            let mut response = registry::file(validated);
            let is_shown = |kind: &HeaderValue| SHOWN.iter().any(|shown| kind.as_bytes() == shown.as_bytes());
            let headers = response.headers_mut();
            if headers.get(header::CONTENT_TYPE).is_some_and(is_shown)
                && let Some(named) = headers.get(header::CONTENT_DISPOSITION).and_then(|named| named.to_str().ok())
                && let Ok(inline) = HeaderValue::try_from(named.replacen("attachment", "inline", 1))
            {
                headers.insert(header::CONTENT_DISPOSITION, inline);
                if headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == PDF.as_bytes()) {
                    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PDF_POLICY));
                }
            }
            response
        }
        Err(failure) => layout::bare_refusal(&failure),
    }
}
