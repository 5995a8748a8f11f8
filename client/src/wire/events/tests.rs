//! Holds docs/events.md to the table of kinds.
use super::{Audience, EventKind};
use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

/// docs/events.md, from the table.
fn page() -> String {
    let mut page = "\
# Events

<!-- Generated from client/src/wire/events.rs; a test beside that file compares the two. -->

What happens is recorded in the transaction that makes it true, and numbered after its commit, without gaps. Everybody who
follows the events reads them in that order.

## How to follow

`GET /events` is a stream of server-sent events: `id` is the number, `event` the kind, `data` the event as JSON, for example
`{\"seq\": 7, \"kind\": \"ingest.settled\", \"at\": \"...\", \"document_id\": 3, \"root_id\": 3, \"data\": {\"nodes\": 12, ...}}`.

* `?kinds=ingest.settled,document.*` and `?root=3` choose; `?since=7` begins after number 7, `?since=now` with what happens next.
  Who names a `root` is told of what happens at or under that document, and of what moves away from under it.
* Of an ingestion only files and what fails are told; `?nodes=true` adds `ingest.nodes`, which tells of nodes as they settle.
* After a break, send the last id in `Last-Event-ID`, as browsers do by themselves. Events are kept for SVC_EVENT_RETENTION_HOURS;
  after that the answer is 410 `events_expired` with the oldest number.
* Where standbys answer reads, an event has a `position`. A read that sends the position as `SVC-After` sees what the event tells. The
  clients of this project send it by themselves. Events that come by a webhook or a broker have none: after them, send `SVC-After: now`.
* `svc events` prints them. With a message broker they are published there too: [docs/feed.md](feed.md).

## Webhooks

`POST /webhooks` with `{\"url\": \"https://...\", \"kinds\": \"ingest.*\"}` has an address called instead, by the rules of
[Standard Webhooks](https://www.standardwebhooks.com); its libraries verify the signature with the `secret` of the answer. The
body is `{\"type\": kind, \"timestamp\": at, \"data\": {\"seq\", \"document_id\", \"root_id\", \"data\"}}`, never more than 20 KiB.

* Anything but 2xx within 20 seconds is a failure, also a redirect. It is tried at once, after 5 s, 5 min, 30 min, 2, 5, 10, 14, 20
  and 24 h, or later if the receiver sends `Retry-After`; then the delivery is dead, and `POST /webhooks/deliveries/{id}/retry`
  sends it again. `webhook-id` is the same in every try: a receiver may see it twice.
* 410 switches the webhook off, and so does the last try of a delivery after a week in which everything failed, or the end of one that
  failed before and whose event is no longer kept. What waits for it is dead then.
* `ingest.nodes` is sent only if `kinds` names it.
* What is sent is chosen by the rights that its creator has then. A principal has webhooks of its own; the owner sees all.
* Only https addresses in public networks are called, unless SVC_WEBHOOK_PRIVATE is on.

## Who is told

The owner is told of everything. A principal is told of an event if all of this holds:

* The kind is for readers.
* It could read the document when the event happened: nothing closed the document then, or the principal has had a grant at or
  above it since before the event. For a move this holds of both places.
* It can read the document now. Of a document that is gone, the nearest ancestor that is left decides; at the top of the tree
  nothing does.

So a grant opens nothing of the past, and a protection closes it. Who could read a document until it was deleted together with its
access root is told of the deletion, and of nothing else that happened to it. A document that is open to all is also open to
principals that were created later.

## Kinds

| Kind | What happened | For | Its data |
|---|---|---|---|
"
    .to_owned();
    for kind in EventKind::ALL {
        let fields: Vec<String> = kind.fields().iter().map(|(name, holds)| format!("`{name}`: {holds}")).collect();
        let audience = match kind.audience() {
            Audience::Readers => "readers",
            Audience::Owner => "the owner",
        };
        writeln!(page, "| `{kind}` | {} | {audience} | {} |", kind.meaning(), fields.join("; ")).unwrap();
    }
    page.push_str("\nNo event of a kind without data is sent yet.\n");
    page
}

#[test]
fn the_page_of_events_is_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/events.md");
    let (kept, page) = (fs::read_to_string(&file).unwrap_or_default(), page());
    if kept != page {
        fs::write(file.with_extension("md.new"), page).unwrap();
        panic!("docs/events.md is out of date: read docs/events.md.new, then mv docs/events.md.new docs/events.md");
    }
}

#[test]
fn a_kind_has_one_name_and_says_what_happened() {
    let names: BTreeSet<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(names.len(), EventKind::ALL.len(), "two kinds share a name");
    assert!(EventKind::ALL.iter().all(|kind| kind.meaning().ends_with('.')));
}
