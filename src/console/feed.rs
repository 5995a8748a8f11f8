//! The bulk feed: whether it has its broker, what lies in its queues, who uploads, and what it gave up.
use super::{
    Calls,
    layout::{Page, card, form},
    say,
};
use crate::store::queue::COUNTED;
use maud::{Markup, html};
use svc_client::{
    Failure,
    wire::{DeadLetter, FeedOutcome, FeedResponse, FeedState, MessageOutcome},
};

/// How much of a text of a message is shown; its publisher wrote it.
const LONGEST: usize = 200;
/// A longer code is none of ours, and no button acts on it.
const LONGEST_CODE: usize = 60;

pub async fn read(calls: &Calls) -> Result<Page, Failure> {
    let feed = calls.read_feed().await?;
    let title = "Bulk feed".to_owned();
    let remedy = feed.remedy.as_deref().unwrap_or_default();
    if feed.state == FeedState::NotConfigured {
        let body = html! { div .finding .note role="status" { span .g aria-hidden="true" { "i" } div { "The bulk feed is not configured: it takes files from a queue of a message broker." small { (remedy) } } } };
        return Ok(Page { title, say: html! { "Not configured." }, body, is_live: true });
    }
    let body = html! {
        @if feed.state == FeedState::Away {
            div .finding .bad role="status" { span .g aria-hidden="true" { "✕" } div { (feed.detail) small { (remedy) } } }
        }
        (figures(&feed))
        div .pair {
            div { (dead(&feed)) (outcomes(&feed.outcomes)) }
            div { (queues(&feed)) (uploaders(&feed)) }
        }
    };
    Ok(Page { title, say: sentence(&feed), body, is_live: true })
}

fn sentence(feed: &FeedResponse) -> Markup {
    let time = feed.since.map(|since| say::time(say::since(since))).unwrap_or_default();
    match feed.state {
        FeedState::Away => say::state("bad", "✕", &format!("no broker for {time}")),
        FeedState::Pauses => {
            html! { (say::state("wait", "○", "pauses by itself")) ": more than SVC_BULK_HIGH_WATER tasks are ready; it goes on when half of them are done." }
        }
        _ => html! { (say::state("run", "●", "takes messages")) ", connected for " (time) },
    }
}

/// How many messages wait in the queue whose name ends so; `None` while that is not known.
fn ready(feed: &FeedResponse, part: &str) -> Option<i64> {
    feed.queues.iter().find(|queue| queue.name.ends_with(part)).map(|queue| queue.ready.into())
}

fn known(number: Option<i64>) -> String {
    number.map_or_else(|| "–".to_owned(), say::count)
}

fn figures(feed: &FeedResponse) -> Markup {
    let (minute, hour) = (&feed.last_minute, &feed.last_hour);
    let is_more = hour.accepted + hour.duplicate + hour.rejected >= COUNTED;
    html! {
        section .card aria-label="Figures" { div .stats {
            div { b { (known(ready(feed, ".upload"))) } span { "messages wait at the broker" } }
            div { b { (say::count(minute.accepted)) } span { "accepted in the last minute" } }
            div { b { (say::at_least(hour.duplicate, is_more)) } span { "duplicates in the last hour" } }
            div { b { (say::at_least(hour.rejected, is_more)) } span { "rejected in the last hour" } }
            div { b { (known(ready(feed, ".dead"))) } span { "dead letters" } }
        } }
    }
}

fn queues(feed: &FeedResponse) -> Markup {
    let place = feed.place.as_deref().unwrap_or_default();
    card(
        "Queues",
        place,
        html! {},
        html! {
            @if feed.queues.is_empty() { p .body .dim { "What lies in them is not known while the broker does not answer." } }
            @else { table {
                thead { tr { th { "Queue" } th .num { "Ready" } th .num { "Takers" } } }
                tbody { @for queue in &feed.queues {
                    tr id={ "q-" (queue.name) } { td .mono .cut { (queue.name) } td .num .w1 { (say::count(queue.ready.into())) } td .num .w1 .dim { (say::count(queue.consumers.into())) } }
                } }
            } p .body .dim { "This process works on " (say::many(feed.at_work.try_into().unwrap_or(i64::MAX), "message")) "; it has up to 32 that are not acknowledged yet." } }
        },
    )
}

fn uploaders(feed: &FeedResponse) -> Markup {
    card(
        "Who uploads",
        "",
        html! {},
        html! {
            @if feed.uploaders.is_empty() { p .body .dim { "No service answers for a user of the broker, so every message is rejected. Bind one: " code { "svc access principals edit NAME --amqp-user USER" } } }
            @else { table {
                thead { tr { th { "Service" } th { "User of the broker" } th .num { "In an hour" } } }
                tbody { @for row in &feed.uploaders {
                    tr id={ "u-" (row.principal_id) } {
                        td .cut { (row.name) @if row.disabled { " " (say::state("bad", "✕", "disabled")) } }
                        td .cut { (row.amqp_user.as_deref().unwrap_or_default()) @if row.is_default { " " span .dim { "messages without a user" } } }
                        td .num .w1 { (say::count(row.messages)) }
                    }
                } }
            } }
        },
    )
}

fn outcome(of: MessageOutcome) -> Markup {
    match of {
        MessageOutcome::Accepted => say::state("done", "✓", "accepted"),
        MessageOutcome::Duplicate => say::state("done", "✓", "duplicate"),
        MessageOutcome::Rejected => say::state("bad", "✕", "rejected"),
    }
}

fn outcomes(latest: &[FeedOutcome]) -> Markup {
    card(
        "Latest outcomes",
        "",
        html! {},
        html! {
            @if latest.is_empty() { p .body .dim { "No message has come yet." } }
            @else { table {
                thead { tr { th { "Outcome" } th { "Message" } th .hide-s { "Uploader" } th .num { "Ago" } } }
                tbody { @for row in latest {
                    tr {
                        td .w1 { (outcome(row.outcome)) }
                        td .message {
                            @match row.document_id { Some(id) => a href={ "/documents/" (id) } { (row.title.as_deref().unwrap_or("a file without a name")) }, None => (row.message_id) }
                            @if row.code.is_some() || row.document_id.is_some() { div .dim {
                                @if let Some(code) = &row.code { span .mono { (code) } " · " (row.detail.as_deref().unwrap_or_default()) } @else { (row.message_id) }
                            } }
                        }
                        td .w1 .dim .hide-s { (row.principal.as_deref().unwrap_or("–")) }
                        td .num .w1 .dim { (say::time(say::since(row.at))) }
                    }
                } }
            } }
        },
    )
}

/// Both acts on messages that were given up.
fn acts(fields: &[(&str, &str)], all: &str) -> Markup {
    html! {
        (form("/feed/dead/replay", fields, &format!("Replay{all}"), "", all_asks(all, "Have these messages tried once more?").as_deref(), "/feed"))
        " "
        (form("/feed/dead/drop", fields, &format!("Drop{all}"), "danger", Some("Drop for good? Nothing else here has what the message says."), "/feed"))
    }
}

fn all_asks(all: &str, ask: &str) -> Option<String> {
    (!all.is_empty()).then(|| ask.to_owned())
}

fn short(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn dead(feed: &FeedResponse) -> Markup {
    let lie = ready(feed, ".dead");
    let more = lie.unwrap_or_default() - feed.dead.len() as i64;
    // Those with one code stand together, in the order in which the first of them lies.
    let mut codes: Vec<Option<&str>> = Vec::new();
    for letter in &feed.dead {
        if !codes.contains(&letter.code.as_deref()) {
            codes.push(letter.code.as_deref());
        }
    }
    let right = html! { @if lie.unwrap_or_default() > 0 { (acts(&[("all", "true")], " all")) } };
    card(
        "Dead letters",
        "what was given up, by reason",
        right,
        html! {
            @if let Some(why) = &feed.dead_failure { p .body .dim { "They cannot be read: " (why) } }
            @else if lie.is_none() { p .body .dim { "What was given up is not known while the broker does not answer." } }
            @else if feed.dead.is_empty() { p .body .dim { "Nothing was given up." } }
            @for code in codes {
                @let of_code = feed.dead.iter().filter(|letter| letter.code.as_deref() == code);
                table {
                    thead { tr {
                        th { @match code { Some(code) => span .mono { (short(code, LONGEST_CODE)) }, None => "given up by the broker, after too many deliveries" } }
                        th .acts { span .skip { "Action" } @if let Some(code) = code.filter(|code| code.len() <= LONGEST_CODE) { (acts(&[("code", code)], " these")) } }
                    } }
                    tbody { @for letter in of_code { (row(letter)) } }
                }
            }
            @if more > 0 { p .body .dim { "and " (say::count(more)) " more" } }
        },
    )
}

fn row(letter: &DeadLetter) -> Markup {
    let what = letter.filename.as_deref().or(letter.source.as_deref()).or(letter.message_id.as_deref());
    html! {
        tr {
            td .message {
                (short(what.unwrap_or("a message without an id"), LONGEST))
                div .dim {
                    @if let Some(detail) = &letter.detail { (short(detail, LONGEST)) " · " }
                    @if let Some(id) = &letter.message_id { (id) " · " }
                    @if let Some(user) = &letter.user { "of " (short(user, LONGEST_CODE)) " · " }
                    (say::bytes(letter.bytes.try_into().unwrap_or(i64::MAX)))
                }
            }
            td .acts { @if let Some(id) = &letter.message_id { (acts(&[("message_id", id)], "")) } }
        }
    }
}
