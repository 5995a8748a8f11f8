//! What happened, as it is told to those who follow it.
use crate::{
    Failure,
    constraint::{Constraint, Form, constrain},
    operation::{Params, Wire},
    position::Position,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// Which events to follow; an absent field does not filter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct EventQuery {
    /// Kinds with commas between them; `ingest.*` stands for all whose name begins so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<String>,
    /// Only what happened at or under this document, and what moved away from under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<i64>,
    /// Whether to tell also of the nodes of files as they settle, with `ingest.nodes`, which no list of kinds names by `ingest.*`.
    pub nodes: bool,
    /// The number of an event, to begin after it, or `now`; if absent, the stream begins with the oldest event that is kept. The
    /// header `Last-Event-ID` overrides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}
impl Params for EventQuery {
    constrain! {
        kinds: Constraint::Text(1, 1000, Form::NotBlank),
        since: Constraint::Text(1, 20, Form::NotBlank);
        |query| query.kinds().and_then(|_| query.since()).map(|_| ())
    }
}

/// Where a stream of events begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// With what happens from now on.
    Now,
    /// After the event with this number.
    After(i64),
}

impl EventQuery {
    /// The kinds that are wanted.
    pub fn kinds(&self) -> Result<Vec<EventKind>, Failure> {
        let mut wanted = self.kinds.as_deref().map_or(Ok(EventKind::usual()), kinds)?;
        if self.nodes && !wanted.contains(&EventKind::IngestNodes) {
            wanted.push(EventKind::IngestNodes);
        }
        Ok(wanted)
    }

    /// Where to begin.
    pub fn since(&self) -> Result<Option<Since>, Failure> {
        let read = |since: &str| match since {
            "now" => Ok(Since::Now),
            number => match number.parse() {
                Ok(number) if number >= 0 => Ok(Since::After(number)),
                _ => Err(Failure::field("since", "takes the number of an event, or `now`")),
            },
        };
        self.since.as_deref().map(read).transpose()
    }
}

/// Reads kinds with commas between them, each a kind or a family with `.*`.
pub fn kinds(list: &str) -> Result<Vec<EventKind>, Failure> {
    let mut wanted = Vec::new();
    for word in list.split(',').map(str::trim) {
        let family = word.strip_suffix('*').filter(|family| family.ends_with('.'));
        let of: Vec<EventKind> = EventKind::ALL
            .iter()
            .copied()
            .filter(|kind| match family {
                Some(family) => kind.is_usual() && kind.as_str().starts_with(family),
                None => kind.as_str() == word,
            })
            .collect();
        if of.is_empty() {
            let word: String = word.chars().take(64).collect();
            let detail = format!(
                "takes kinds of docs/events.md with commas between them, or `ingest.*` and the like, got `{word}`"
            );
            return Err(Failure::field("kinds", detail));
        }
        wanted.extend(of.into_iter().filter(|kind| !wanted.contains(kind)).collect::<Vec<_>>());
    }
    Ok(wanted)
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct EventResponse {
    /// Its number. Events are read in the order of their numbers; a number that is missing belongs to an event that is not shown.
    pub seq: i64,
    pub kind: EventKind,
    /// When it happened, which may be a little out of order.
    pub at: DateTime<Utc>,
    /// What it happened to; null if to no document.
    pub document_id: Option<i64>,
    /// The file that the document belongs to, or the document itself.
    pub root_id: Option<i64>,
    /// Further facts, by kind: docs/events.md.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Value,
    /// A read that sends this as `SVC-After` sees what the event tells; absent unless standbys answer reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
}
impl Wire for EventResponse {
    fn position(&self) -> Option<Position> {
        self.position.as_deref()?.parse().ok()
    }
}

macro_rules! kinds { ($(
    $(#[doc = $doc:literal])+ $name:ident = $text:literal, for $for:ident, [$($field:literal: $holds:expr),*];
)*) => {
    wire_words! {
        /// What happened.
        EventKind { $( $(#[doc = $doc])+ $name = $text, )* }
    }

    impl EventKind {
        /// Every kind, family by family.
        pub const ALL: &[EventKind] = &[$( EventKind::$name ),*];

        /// What happened, in a sentence or two.
        pub fn meaning(self) -> &'static str { match self { $( EventKind::$name => concat!($($doc),+).trim_ascii(), )* } }

        /// The fields of its data, each with what it holds.
        pub fn fields(self) -> &'static [(&'static str, &'static str)] {
            match self { $( EventKind::$name => &[$( ($field, $holds) ),*], )* }
        }

        /// Who is told.
        pub fn audience(self) -> Audience { match self { $( EventKind::$name => Audience::$for, )* } }
    }
} }

impl EventKind {
    /// Whether a kind is told of without being named. A large file has thousands of nodes.
    pub fn is_usual(self) -> bool {
        self != EventKind::IngestNodes
    }

    /// What is told if no kinds are named.
    pub fn usual() -> Vec<EventKind> {
        EventKind::ALL.iter().copied().filter(|kind| kind.is_usual()).collect()
    }
}

/// What fields of several kinds hold.
const TRIPLES: &str = "the ids of the first 256";
const ABOVE: &str = "the document above it; null at the top";
const USETYPE: &str = "its usetype";
const ERROR_TYPE: &str = "the class of its failure";
const CODE: &str = "the stable reason";
const BULK: &str = "the message of the bulk feed that brought them; absent if none did";

/// Who is told of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Whoever may read the document.
    Readers,
    /// The owner alone.
    Owner,
}

kinds! {
    /// A file was stored, and its ingestion begins.
    IngestAccepted = "ingest.accepted", for Readers,
        ["content_hash": "`sha256:<hex>` of the bytes", "byte_size": "how many they are", "format": "what they are; null if nothing recognised them", "message_id": BULK];
    /// The bytes of a file came again.
    IngestDuplicate = "ingest.duplicate", for Readers,
        ["content_hash": "`sha256:<hex>` of the bytes", "linked": "whether the file was attached to another parent by a link", "message_id": BULK];
    /// Something about a file deserves attention: a part of it failed, it settles without text or vectors, or a reprocess of it did not succeed.
    IngestWarning = "ingest.warning", for Readers,
        ["warning": "the name of the evidence that says more, or `part_failed`", "detail": "the value of the evidence; for `part_failed` an object of `task_type`, `error_type` and `code`, for `reprocess` the `state` and, as `reason`, such an object"];
    /// Nodes of a file settled, and can be found. It happened to the node above them. Only with `nodes=true`, or where this
    /// kind is named; of the tree that a reprocess makes it is not told.
    IngestNodes = "ingest.nodes", for Readers,
        ["nodes": "the ids of those that the caller may read, 256 at most"];
    /// Everything of a file is done, and what settled of it can be found.
    IngestSettled = "ingest.settled", for Readers,
        ["nodes": "the nodes of the file", "nodes_failed": "how many of them failed", "seconds": "the time since the file was stored"];
    /// A file failed and has no searchable tree.
    IngestFailed = "ingest.failed", for Readers,
        ["task_type": "the task that failed", "error_type": ERROR_TYPE, "code": CODE];
    /// Somebody ended the ingestion of a file.
    IngestCancelled = "ingest.cancelled", for Readers,
        ["tasks": "the tasks that this ended"];
    /// A file was ingested again with other options, and the new tree took the place of the old one.
    IngestReprocessed = "ingest.reprocessed", for Readers,
        ["nodes": "the nodes of the file now", "nodes_failed": "how many of them failed", "seconds": "the time since the reprocess began",
         "links_followed": "how many links follow to the new tree", "links_lost": "how many do not, because no node of it has the anchor; the evidence `reprocess` lists them",
         "documents_moved": "how many documents of callers had their place in the old tree, and follow",
         "facts_followed": "how many facts follow to the new tree", "facts_lost": "how many are closed, because no node of it has the anchor of their end or source"];
    /// A document was created, not by the ingestion of a file. Of what an import brings, each file, access root and separately created document has an event, and so has what the archive begins with.
    DocumentCreated = "document.created", for Readers,
        ["parent_id": ABOVE, "usetype": USETYPE];
    /// A document was changed.
    DocumentUpdated = "document.updated", for Readers,
        ["parent_id": ABOVE, "usetype": USETYPE, "fields": "the names of what was changed"];
    /// A document was moved, with everything under it.
    DocumentMoved = "document.moved", for Readers,
        ["parent_id": "the document above it now", "from_parent_id": "the document above it before", "usetype": USETYPE];
    /// A document was deleted. Each file, access root or separately created document that was under it has an event of its own.
    DocumentDeleted = "document.deleted", for Readers,
        ["parent_id": ABOVE, "usetype": USETYPE];
    /// Facts about the document were recorded. Facts whose object or source has other readers than the document are told to the owner alone.
    TripleCreated = "triple.created", for Readers, ["triple_ids": TRIPLES, "triples": "how many"];
    /// Facts about the document were replaced by newer ones.
    TripleSuperseded = "triple.superseded", for Readers, ["triple_ids": TRIPLES, "triples": "how many"];
    /// Facts about the document are no longer believed.
    TripleInvalidated = "triple.invalidated", for Readers, ["triple_ids": TRIPLES, "triples": "how many"];
    /// A task failed and is not tried again. Those that failed because of it are not told of, and neither are those that
    /// lack a part that is not configured, such as a language model.
    TaskFailed = "task.failed", for Owner,
        ["task_id": "its id", "task_type": "its type", "error_type": ERROR_TYPE, "code": CODE];
    /// Tasks wait, and no living worker can run them.
    QueueStalled = "queue.stalled", for Owner,
        ["what": "`badge` or `task_type`", "name": "which; the empty badge is that of tasks without one", "tasks": "how many wait", "seconds": "how long the oldest has waited"];
    /// What a `queue.stalled` told of is over.
    QueueServed = "queue.served", for Owner,
        ["what": "`badge` or `task_type`", "name": "which", "seconds": "how long it lasted"];
    /// A worker joined the fleet, or came back.
    WorkerJoined = "worker.joined", for Owner,
        ["worker_id": "its id", "version": "its version", "badges": "the badges that it answers to"];
    /// A worker left the fleet.
    WorkerLost = "worker.lost", for Owner,
        ["worker_id": "its id", "reason": "`signed_off` or `silent`"];
    /// A webhook was switched off.
    WebhookOff = "webhook.off", for Owner,
        ["webhook_id": "its id", "reason": "`gone`: the receiver answered with 410; `failing`: everything failed for a week"];
    /// A message of the bulk feed was given up.
    FeedDead = "feed.dead", for Owner,
        ["message_id": "its id; null if it has none", "code": CODE, "detail": "what was wrong", "remedy": "what to do; null if nothing is known",
         "content_hash": "`sha256:<hex>`; null if it names none", "reply_to": "where its producer reads the outcome; null for none",
         "correlation_id": "the producer's mark; null for none"];
}

#[cfg(test)]
mod tests;
