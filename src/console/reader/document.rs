//! The page of a document: what it says, what is under it, where it comes from, and what is around it.
use super::{
    super::{
        Calls, Parameters,
        layout::{Page, card, more, query, warnings},
        say,
    },
    BYTES, named, search, upload_form,
};
use crate::view::markup::{anchor, crumbs, field, links, neighbours, shown as blocks};
use maud::{Markup, html};
use std::collections::BTreeMap;
use svc_client::{
    Failure, OptionalJson,
    wire::{
        ChildrenMode, DocumentPath, EmbedQuery, ExpandRequest, FactPage, FactQuery, FrontierResponse, LinksMode,
        Settled, ViewChildren, ViewResponse,
    },
};

/// How many facts a page tells.
const FACTS: u32 = 20;

pub async fn read(calls: &Calls, id: i64, given: &Parameters) -> Result<Page, Failure> {
    let path = DocumentPath { id };
    let shown = calls.view_document(path).await?.value()?;
    let cursor = given.get("cursor").cloned();
    let is_asked = cursor.is_some() || given.contains_key("children");
    let children = match is_asked {
        true => calls.expand_children(path, OptionalJson(Some(ExpandRequest { cursor, limit: None }))).await?,
        false => shown.children.clone(),
    };
    let facts =
        calls.list_facts(FactQuery { subject_id: Some(id), limit: Some(FACTS), ..FactQuery::default() }).await?;
    let objects = objects(calls, &facts).await?;
    let is_settled = shown.document.settled != Settled::InFlight;
    let frontier = match is_settled {
        true => None,
        false => Some(calls.read_frontier(path).await?),
    };
    let wanted = search::Wanted::of(&Parameters::from([("parent_id".to_owned(), id.to_string())]));
    let body = html! {
        nav .crumbs aria-label="Breadcrumbs" { a href="/view" { "All" } span aria-hidden="true" { " › " } (crumbs(&shown.breadcrumbs)) span aria-current="page" { bdi { (named(&shown.document)) } } }
        (warnings(&shown.warnings))
        @if let Some(frontier) = &frontier { (progress(frontier)) }
        (origin(&shown))
        div .reading {
            article {
                @if !is_asked { (blocks(&shown.blocks, shown.source.as_ref(), BYTES)) }
                @if shown.links.mode == LinksMode::Inline { (links(&shown.links.links)) }
                (under(&shown, &children))
                @if shown.links.mode == LinksMode::Footnotes { (links(&shown.links.links)) }
            }
            (neighbours(&shown))
            (told(&facts, &objects, id))
            (search::form(&wanted))
            @if shown.document.usetype != "record" { (upload_form(Some(id))) }
            p .foot-links {
                a href={ "/view/" (id) "/references" } { "What refers to it" } " · "
                a href={ "/documents/" (id) } { "How it was read" }
            }
        }
    };
    let say = html! { (shown.presentation.title) " " (say::settled(shown.document.settled)) };
    Ok(Page { title: heading(&shown), say, body, is_live: frontier.is_some(), as_of: None })
}

fn heading(shown: &ViewResponse) -> String {
    match shown.document.title.trim() {
        "" => format!("Document {}", shown.document.id),
        title => title.to_owned(),
    }
}

/// How far the reading is, while it goes on.
fn progress(frontier: &FrontierResponse) -> Markup {
    let (done, all) = (frontier.nodes_settled, frontier.nodes_total);
    html! {
        section .card .reads aria-label="Progress" { div .body {
            progress value=(done) max=(all.max(1)) aria-label="Parts that can be found" {}
            p { (say::count(done)) " of " (say::many(all, "part")) " can be found" @if frontier.nodes_failed > 0 { ", " (say::count(frontier.nodes_failed)) " failed" } "." }
            @for stage in &frontier.stages { p .dim { (stage.task_type) ": " (say::count(stage.pending + stage.held + stage.waiting_for_retry)) " to do" } }
        } }
    }
}

/// Where it comes from, and the fields that its rule shows.
fn origin(shown: &ViewResponse) -> Markup {
    html! {
        @if shown.source.is_some() || !shown.fields.is_empty() { section .card .origin aria-label="Origin" { dl .kv .body {
            @if let Some(source) = &shown.source {
                dt { "From" }
                dd {
                    @if source.document_id != shown.document.id { a href={ "/view/" (source.document_id) } { bdi { (source.title) } } ", " }
                    (anchor(source, BYTES)) " " span .dim { (source.mime_type) ", " (say::bytes(source.byte_size)) }
                }
            }
            @for one in &shown.fields { dt { (one.name.replace('_', " ")) } dd { bdi { (field(one)) } } }
        } } }
    }
}

fn under(shown: &ViewResponse, children: &ViewChildren) -> Markup {
    let here = format!("/view/{}", shown.document.id);
    let next = children.next_cursor.as_deref().map(|cursor| format!("{here}?{}", query(&[("cursor", cursor)])));
    html! {
        @if children.blocks.is_empty() && shown.children.mode == ChildrenMode::Collapsed {
            p { a .chip href={ (here) "?children=1" } { "Show what is under it" } }
        }
        (blocks(&children.blocks, shown.source.as_ref(), BYTES))
        (more(next))
    }
}

/// The titles of what facts lead to.
async fn objects(calls: &Calls, facts: &FactPage) -> Result<BTreeMap<i64, String>, Failure> {
    let mut titles = BTreeMap::new();
    for id in facts.facts.iter().filter_map(|fact| fact.object_id) {
        if titles.contains_key(&id) {
            continue;
        }
        // A fact is shown to who may read its ends, so this fails only for what has just been deleted.
        if let Ok(read) = calls.read_document(DocumentPath { id }, EmbedQuery::default()).await {
            titles.insert(id, read.value()?.title);
        }
    }
    Ok(titles)
}

fn told(facts: &FactPage, objects: &BTreeMap<i64, String>, id: i64) -> Markup {
    if facts.facts.is_empty() {
        return html! {};
    }
    let remark = if facts.next_cursor.is_some() { "that hold now, the first of them" } else { "that hold now" };
    card(
        "Facts",
        remark,
        html! {},
        html! { table { tbody { @for fact in &facts.facts { tr id={ "t-" (id) "-" (fact.id) } {
            td .w1 .dim { (fact.predicate) }
            td .message { @match fact.object_id {
                Some(object) => a href={ "/view/" (object) } { bdi { (objects.get(&object).map_or("…", String::as_str)) } },
                None => bdi { (fact.object_literal.as_deref().unwrap_or_default()) },
            } }
            td .w1 .dim .hide-s { @if let Some(from) = fact.valid_from { "from " (from.format("%Y-%m-%d")) } @if let Some(until) = fact.valid_until { " until " (until.format("%Y-%m-%d")) } }
        } } } } },
    )
}
