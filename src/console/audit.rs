//! Who did what to the thing that a page is about, as the audit has it.
use super::{layout::card, say};
use maud::{Markup, html};
use serde_json::Value;
use svc_client::wire::AuditEntry;

/// How many acts are shown.
pub const SHOWN: u32 = 10;
/// The longest detail of an act that is shown.
const LONGEST: usize = 200;

/// The latest acts, if there are any.
pub fn card_of(entries: &[AuditEntry]) -> Markup {
    html! { @if !entries.is_empty() { (card("Who did what", "newest first", html! {}, html! { table {
        thead { tr { th { "When" } th { "Who" } th { "Did what" } th .hide-s { "More" } } }
        tbody { @for entry in entries {
            tr id={ "audit-" (entry.id) } {
                td .w1 .dim { (say::time(say::since(entry.at))) " ago" }
                td .w1 { (entry.actor) }
                td .w1 { (entry.act.as_str()) }
                td .message .dim .hide-s { (detail(entry)) }
            }
        } }
    } })) } }
}

/// What else is known of an act, on one line.
fn detail(entry: &AuditEntry) -> String {
    let known = entry.detail.iter().filter(|(_, value)| !value.is_null());
    let said = known.map(|(name, value)| match value {
        Value::String(text) => format!("{} {text}", name.replace('_', " ")),
        value => format!("{} {value}", name.replace('_', " ")),
    });
    let said: String = said.collect::<Vec<_>>().join(" · ");
    super::draw::short(&said, LONGEST)
}
