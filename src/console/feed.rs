//! The bulk feed: whether it has its broker, what lies in its queues, who uploads, and what it gave up.
use super::{
    Calls,
    layout::{Page, card, form},
    say,
};
use crate::store::queue::COUNTED;
use maud::{Markup, html};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
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
        return Ok(Page { title, say: html! { "Not configured." }, body, is_live: true, as_of: None });
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
    Ok(Page { title, say: sentence(&feed), body, is_live: true, as_of: None })
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
            } p .body .dim { "This process works on " (say::many(feed.at_work.try_into().unwrap_or(i64::MAX), "message")) "; what a process was handed is ready no longer." } }
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

/// Both acts on messages that were given up, with what each asks first.
fn acts(fields: &[(&str, &str)], of: &str, replay_asks: Option<&str>, drop_asks: &str) -> Markup {
    html! {
        (form("/feed/dead/replay", fields, &format!("Replay{of}"), "", replay_asks, "/feed"))
        " "
        (form("/feed/dead/drop", fields, &format!("Drop{of}"), "danger", Some(drop_asks), "/feed"))
    }
}

/// The acts on many messages, of which the page may show only the first, so that each asks about the others too.
fn acts_on_many(fields: &[(&str, &str)], of: &str, which: &str, lie: i64) -> Markup {
    let verb = if lie == 1 { "lies" } else { "lie" };
    let also = format!("also those that are not shown ({} {verb} here in all)", say::count(lie));
    let replay = format!("Have every message {which} tried once more, {also}?");
    let drop = format!("Drop every message {which}, {also}? Nothing else here has what they say.");
    acts(fields, of, Some(&replay), &drop)
}

/// The acts on one message; none without an id, by which it is found.
fn acts_on(letter: &DeadLetter) -> Markup {
    let Some(message_id) = &letter.message_id else { return html! {} };
    // Others may have its id, so what tells it from these goes along.
    let sha256 = letter.sha256.as_deref().unwrap_or_default();
    let mut fields = vec![("message_id", message_id.as_str()), ("sha256", sha256)];
    let code = letter.code.as_deref().filter(|code| code.len() <= LONGEST_CODE);
    if code.is_some() || letter.code.is_none() {
        fields.push(("code", code.unwrap_or_default()));
    }
    // A foreign text may change the direction in which text runs, and must not change that of the question.
    let name = isolated(&short(named(letter), LONGEST_CODE));
    let why = code.map(|code| format!(", given up as {},", isolated(code))).unwrap_or_default();
    let ask = format!("Drop {name}{why} for good? Nothing else here has what it says.");
    acts(&fields, "", None, &ask)
}

fn isolated(text: &str) -> String {
    format!("\u{2068}{text}\u{2069}")
}

/// What a message is called: its file, or its id.
fn named(letter: &DeadLetter) -> &str {
    let name = letter.filename.as_deref().or(letter.source.as_deref()).or(letter.message_id.as_deref());
    name.unwrap_or("a message without an id")
}

/// A short name for what may be long and is somebody else's.
fn mark(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..8])
}

/// The id of each message's row. It stays the same while other messages come and go, so that no button becomes that of another message under
/// somebody's hand. Messages that are alike in all that is known are numbered.
fn row_ids(letters: &[DeadLetter]) -> Vec<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let id = |letter: &DeadLetter| {
        let mark = mark(&serde_json::to_vec(letter).unwrap_or_default());
        let number = seen.entry(mark.clone()).or_default();
        *number += 1;
        format!("dead-{mark}-{number}")
    };
    letters.iter().map(id).collect()
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
    let ids = row_ids(&feed.dead);
    let all = lie.unwrap_or_default();
    let right = html! { @if all > 0 { (acts_on_many(&[("all", "true")], " all", "that was given up", all)) } };
    card(
        "Dead letters",
        "what was given up, by reason",
        right,
        html! {
            @if let Some(why) = &feed.dead_failure { p .body .dim { "They cannot be read: " (why) } }
            @else if lie.is_none() { p .body .dim { "What was given up is not known while the broker does not answer." } }
            @else if feed.dead.is_empty() { p .body .dim { "Nothing was given up." } }
            @for code in codes { (of_code(feed, code, &ids, all)) }
            @if more > 0 { p .body .dim { "and " (say::count(more)) " more" } }
        },
    )
}

/// The shown messages with one code; without one, the broker itself gave them up.
fn of_code(feed: &FeedResponse, code: Option<&str>, ids: &[String], all: i64) -> Markup {
    let letters = feed.dead.iter().zip(ids).filter(|(letter, _)| letter.code.as_deref() == code);
    let id = code.map_or_else(|| "broker".to_owned(), |code| mark(code.as_bytes()));
    html! {
        table id={ "dead-of-" (id) } {
            thead { tr {
                th { @match code { Some(code) => span .mono { (short(code, LONGEST_CODE)) }, None => "given up by the broker, after too many deliveries" } }
                th .acts { span .skip { "Action" } @if let Some(code) = code.filter(|code| (1..=LONGEST_CODE).contains(&code.len())) {
                    (acts_on_many(&[("code", code)], " all of this code", &format!("with the code {}", isolated(code)), all))
                } }
            } }
            tbody { @for (letter, id) in letters { (row(letter, id)) } }
        }
    }
}

fn row(letter: &DeadLetter, id: &str) -> Markup {
    html! {
        tr id=(id) {
            td .message {
                (short(named(letter), LONGEST))
                div .dim {
                    @if let Some(detail) = &letter.detail { (short(detail, LONGEST)) " · " }
                    @if let Some(id) = &letter.message_id { (id) " · " }
                    @if let Some(user) = &letter.user { "of " (short(user, LONGEST_CODE)) " · " }
                    (say::bytes(letter.bytes.try_into().unwrap_or(i64::MAX)))
                }
            }
            td .acts { (acts_on(letter)) }
        }
    }
}
