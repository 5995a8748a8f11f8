//! What every page has: the column of pages, the heading, forms, and the answers around them.
use super::{
    auth::{NOTICE, Viewer, set_cookie},
    say,
};
use crate::store::queue::COUNTED;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode, header};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::sync::LazyLock;
use svc_client::{Failure, VERSION, wire::OverviewResponse};

/// Stands in pages that several viewers share where each has the token of its own forms. It is drawn at random, so that no
/// text of others holds it.
static CSRF: LazyLock<String> = LazyLock::new(|| hex::encode(rand::random::<[u8; 32]>()));
/// What stays as it is in an address.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// A page without what every page has.
pub struct Page {
    pub title: String,
    /// One sentence that says how things are.
    pub say: Markup,
    pub body: Markup,
    /// Whether the page follows what happens. Nobody wants a text to move while it is read.
    pub is_live: bool,
    /// When what the page tells was measured, if that was not now.
    pub as_of: Option<DateTime<Utc>>,
}

/// The address of a page in the column, its name, its key, and how many things it is about, if that is known.
type Entry = (&'static str, &'static str, Option<String>, bool);

fn entries(viewer: &Viewer, overview: Option<&OverviewResponse>) -> Vec<Entry> {
    if !viewer.is_owner() {
        return vec![("/view", "Reader", None, false), ("/documents", "Documents", None, false)];
    }
    let number = |of: fn(&OverviewResponse) -> i64| overview.map(|now| say::count(of(now)));
    let owed = overview.map(super::now::owed).map(|(owed, is_more)| say::at_least(owed, is_more));
    let failed = overview.map_or(0, |now| now.queue.failed);
    vec![
        ("/", "Now", None, false),
        ("/actors", "Actors", number(|now| now.workers.iter().map(|worker| worker.actors as i64).sum()), false),
        ("/regions", "Regions", number(|now| now.regions_held), false),
        ("/tasks", "Tasks", owed, false),
        ("/failed", "Failed", overview.map(|_| say::at_least(failed, failed >= COUNTED)), failed > 0),
        ("/documents", "Documents", None, false),
        ("/workers", "Workers", number(|now| now.workers.len() as i64), false),
        ("/feed", "Bulk feed", None, false),
        ("/view", "Reader", None, false),
    ]
}

/// The whole content of a page, which a live page exchanges.
pub fn frame(viewer: &Viewer, place: &str, overview: Option<&OverviewResponse>, page: Page) -> Markup {
    let who = viewer.caller.principal().map_or("owner", |principal| principal.name.as_str());
    html! {
        div #page class=[(!page.is_live).then_some("still")] {
            nav aria-label="Pages" {
                a .skip href="#main" { "To the page" }
                div .brand { "svc " small { (VERSION) " · " (who) } }
                @for (address, name, number, is_bad) in entries(viewer, overview) {
                    a href=(address) aria-current=[(address == place).then_some("page")] {
                        (name)
                        @if let Some(number) = number { span .n .bad[is_bad] { (number) } }
                    }
                }
                form .find method="get" action="/find" role="search" {
                    input #find name="q" type="search" aria-label="Find a task, a document or a file" placeholder="Task, document, file";
                }
                div .foot {
                    span .keys { kbd { "/" } " find  " kbd { "g" } " " kbd { "a" } " go  " kbd { "?" } " keys" }
                    (form("/theme", &[], "Light or dark", "", None, &viewer.address))
                    (form("/logout", &[], "Sign out", "", None, "/login"))
                }
            }
            main #main tabindex="-1" {
                header .top {
                    h1 { (page.title) }
                    span .say { (page.say) }
                    span .live {
                        span .dot aria-hidden="true" {}
                        span .when { "as of " (page.as_of.unwrap_or_else(Utc::now).format("%H:%M:%S")) " UTC" }
                        span .held { "held" }
                        span .lost { "no connection" }
                        kbd title="holds the page, and lets it go on" { "p" }
                    }
                }
                @if let Some(notice) = &viewer.notice { div #notice .finding .note role="status" { span .g aria-hidden="true" { "i" } div { (notice) } } }
                (page.body)
            }
        }
    }
}

/// The page of a refusal: what the service would tell a program.
pub fn refusal(failure: &Failure) -> (StatusCode, Page) {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let remedy = failure.members.get("remedy").and_then(|remedy| remedy.as_str());
    let body = html! {
        div .finding .bad role="status" {
            span .g aria-hidden="true" { "✕" }
            div { (failure.detail) @if let Some(remedy) = remedy { small { (remedy) } } }
        }
    };
    (status, Page { title: failure.title.clone(), say: html! {}, body, is_live: true, as_of: None })
}

/// Answers with a whole page, or with its content alone where a live page asks for that.
pub fn respond(viewer: &Viewer, status: StatusCode, title: &str, frame: &str) -> Response {
    let frame = frame.replace(CSRF.as_str(), &viewer.csrf);
    if viewer.wants_fragment {
        return (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], frame).into_response();
    }
    let mut response = (status, whole(title, viewer.theme, maud::PreEscaped(&frame), true)).into_response();
    if viewer.notice.is_some()
        && let Some(cookie) = set_cookie(&HeaderMap::new(), NOTICE, "", Some(0))
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// A whole page of the browser.
pub fn whole(title: &str, theme: Option<&str>, body: impl maud::Render, is_live: bool) -> axum::response::Html<String> {
    let [style, script, morph] = super::assets::NAMES.each_ref().map(|name| format!("/assets/{name}"));
    let page = html! {
        (DOCTYPE)
        html lang="en" data-theme=[theme] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · svc" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href=(style);
                @if is_live {
                    script src=(morph) defer {}
                    script src=(script) defer {}
                }
            }
            body {
                (body)
                @if is_live { (help()) }
            }
        }
    };
    axum::response::Html(page.into_string())
}

fn help() -> Markup {
    let pages = [
        ("n", "Now"),
        ("a", "Actors"),
        ("r", "Regions"),
        ("t", "Tasks"),
        ("f", "Failed"),
        ("d", "Documents"),
        ("w", "Workers"),
        ("b", "Bulk feed"),
        ("v", "Reader"),
    ];
    html! {
        dialog #help aria-label="Keys" {
            h2 { "Keys" }
            dl .kv {
                @for (key, name) in pages { dt { kbd { "g" } " " kbd { (key) } } dd { (name) } }
                dt { kbd { "j" } " " kbd { "k" } } dd { "next and previous row" }
                dt { kbd { "Enter" } } dd { "opens the row" }
                dt { kbd { "/" } } dd { "finds a task, a document or a file" }
                dt { kbd { "p" } } dd { "holds the page, and lets it go on" }
            }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// A refusal before it is known who asks.
pub fn bare_refusal(failure: &Failure) -> Response {
    let (status, page) = refusal(failure);
    let body = html! { main .alone { h1 { (page.title) } (page.body) p { a href="/" { "To the console" } } } };
    (status, whole(&page.title, None, body, false)).into_response()
}

/// A button that changes something: a form of its own, which leads back to this address.
pub fn form(
    action: &str,
    fields: &[(&str, &str)],
    label: &str,
    class: &str,
    confirm: Option<&str>,
    back: &str,
) -> Markup {
    // A form stays the same one while its page goes on only if it does the same, so that no button becomes another under somebody's hand. What many
    // forms of a page do with fields stands in rows that have ids.
    let id = fields.is_empty().then(|| format!("do-{action}"));
    html! {
        form id=[id] method="post" action=(action) data-confirm=[confirm] {
            (csrf())
            input type="hidden" name="back" value=(back);
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button class=[(!class.is_empty()).then_some(class)] { (label) }
        }
    }
}

/// What shows that a form is one of this session.
pub fn csrf() -> Markup {
    html! { input type="hidden" name="csrf" value=(*CSRF); }
}

/// A part of an address, escaped.
pub fn part(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

/// A query, escaped, without what is blank.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| format!("{name}={}", part(value))).collect::<Vec<_>>().join("&")
}

/// The text that [`part`] escaped.
pub fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A link of a row of filters.
pub fn chip(href: &str, is_chosen: bool, label: &str, number: Option<String>) -> Markup {
    html! {
        a .chip href=(href) aria-current=[is_chosen.then_some("true")] {
            (label) @if let Some(number) = number { " " span .n2 { (number) } }
        }
    }
}

/// The link to the next page of a list.
pub fn more(href: Option<String>) -> Markup {
    html! { @if let Some(href) = href { div .filters .last { a .chip href=(href) { "Next page" } } } }
}

/// What a file's frontier warns of, above what a page says of it.
pub fn warnings(warnings: &[String]) -> Markup {
    html! { @for warning in warnings {
        div .finding .warn role="status" { span .g aria-hidden="true" { "◐" } div { bdi { (warning) } } }
    } }
}

/// A card with a heading.
pub fn card(title: &str, remark: &str, right: Markup, body: Markup) -> Markup {
    html! {
        section .card {
            div .head { h2 { (title) } span .say { (remark) } span .right { (right) } }
            (body)
        }
    }
}
