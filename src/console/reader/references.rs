//! What refers to a document: links, facts, and texts that name it.
use super::{
    super::{
        Calls, Parameters,
        layout::{Page, more, query},
    },
    named,
};
use crate::view::markup::{crumbs, title};
use maud::html;
use svc_client::{
    Failure,
    wire::{DocumentPath, PageQuery, ReferenceKind},
};

const ROWS: u32 = 50;

pub async fn read(calls: &Calls, id: i64, given: &Parameters) -> Result<Page, Failure> {
    let path = DocumentPath { id };
    let document = calls.read_document(path, Default::default()).await?.value()?;
    let above = calls.list_breadcrumbs(path).await?.breadcrumbs;
    let asked = PageQuery { cursor: given.get("cursor").cloned(), limit: Some(ROWS), ..PageQuery::default() };
    let page = calls.list_back_references(path, asked).await?;
    let next = page.next_cursor.map(|cursor| format!("/view/{id}/references?{}", query(&[("cursor", &cursor)])));
    let body = html! {
        nav .crumbs aria-label="Breadcrumbs" { a href="/view" { "All" } span aria-hidden="true" { " › " } (crumbs(&above)) a href={ "/view/" (id) } { bdi { (named(&document)) } } }
        section .card {
            @if page.references.is_empty() { p .body .dim { @if next.is_some() { "There is nothing on this page; the next one may have something." } @else { "Nothing that you may read refers to it." } } }
            @else { table {
                thead { tr { th .file { "Document" } th { "By" } th { "As" } } }
                tbody { @for reference in &page.references { tr {
                    td .cut { @match reference.document.id { Some(id) => a href={ "/view/" (id) } { bdi { (title(&reference.document)) } }, None => span { "…" } } }
                    td .w1 .dim { (said(reference.kind)) }
                    td .dim { (reference.relation.as_deref().unwrap_or_default()) }
                } } }
            } }
            (more(next))
        }
    };
    Ok(Page {
        title: "What refers to it".to_owned(),
        say: html! { bdi { (document.title) } },
        body,
        is_live: false,
        as_of: None,
    })
}

fn said(kind: ReferenceKind) -> &'static str {
    match kind {
        ReferenceKind::Link => "a link",
        ReferenceKind::Fact => "a fact",
        ReferenceKind::Text => "its text",
    }
}
