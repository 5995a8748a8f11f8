//! The stored files, latest first.
use super::{
    Calls, Parameters,
    layout::{Page, chip, more, query},
    now, say,
};
use crate::store::story::NAMED;
use maud::html;
use svc_client::{Failure, wire::FileQuery};

const STATES: [(&str, &str); 4] =
    [("", "All"), ("in_flight", "In flight"), ("settled", "Settled"), ("failed", "Failed")];

pub async fn read(calls: &Calls, given: &Parameters) -> Result<Page, Failure> {
    let text = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
    let (state, name) = (text("state"), text("name"));
    let wanted = FileQuery {
        state: match state {
            "" => None,
            state => Some(state.parse().map_err(|error| Failure::field("state", format!("{error}")))?),
        },
        name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        cursor: given.get("cursor").cloned(),
        limit: None,
    };
    let page = calls.list_files(wanted).await?;
    let address = |state: &str, cursor: &str| {
        format!("/documents?{}", query(&[("state", state), ("name", name), ("cursor", cursor)]))
    };
    let body = html! {
        section .card {
            div .filters {
                form .find-in method="get" action="/documents" {
                    input name="name" type="search" value=(name) aria-label="Part of a file's name" placeholder="Part of a name";
                    @if !state.is_empty() { input type="hidden" name="state" value=(state); }
                    button { "Find" }
                }
                @for (word, label) in STATES { (chip(&address(word, ""), word == state, label, None)) }
            }
            @if page.files.is_empty() && name.is_empty() { p .body .dim { "No such file." } }
            @else if !page.files.is_empty() { table {
                thead { tr { th .file { "File" } th { "State" } th .hide-s { "Format" } th .num .hide-s { "Size" } th .hide-s { "Nodes" } th .num { "Age" } } }
                tbody { @for file in &page.files {
                    tr id={ "f-" (file.id) } {
                        td .cut { a href={ "/documents/" (file.id) } title=(file.title) { (file.title) } }
                        td .w1 { (say::settled(file.state)) }
                        td .w1 .dim .hide-s { (file.format.as_deref().unwrap_or("–")) }
                        td .num .w1 .dim .hide-s { (say::bytes(file.byte_size)) }
                        td .dim .hide-s { (now::far(file)) }
                        td .num .w1 .dim { (say::time(say::since(file.created_at))) }
                    }
                } }
            } }
            @if !name.is_empty() && page.next_cursor.is_none() { p .body .dim {
                (if page.files.is_empty() { "No such file is" } else { "These are" }) " among the latest " (say::count(NAMED)) " that you may read; older ones are not looked at. "
                a .lnk href={ "/view?" (query(&[("q", name)])) } { "Search in all that is stored" }
            } }
            (more(page.next_cursor.map(|cursor| address(state, &cursor))))
        }
    };
    Ok(Page { title: "Documents".to_owned(), say: html! { "files, latest first" }, body, is_live: true, as_of: None })
}
