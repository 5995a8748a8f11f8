//! What happened, as it is told to those who follow it.
use crate::words::wire_words;

macro_rules! kinds { ($(
    $(#[doc = $doc:literal])+ $name:ident = $text:literal, for $for:ident, [$($field:literal: $holds:literal),*];
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
        ["content_hash": "`sha256:<hex>` of the bytes", "byte_size": "how many they are", "format": "what they are; null if nothing recognised them"];
    /// The bytes of a file came again.
    IngestDuplicate = "ingest.duplicate", for Readers,
        ["content_hash": "`sha256:<hex>` of the bytes", "linked": "whether the file was attached to another parent by a link"];
    /// Something about a file deserves attention: a part of it failed, or it settles without text or vectors.
    IngestWarning = "ingest.warning", for Readers,
        ["warning": "the name of the evidence that says more, or `part_failed`", "detail": "the value of the evidence; for `part_failed` the `task_type`, `error_type` and `code`"];
    /// Everything of a file is done, and what settled of it can be found.
    IngestSettled = "ingest.settled", for Readers,
        ["nodes": "the nodes of the file", "nodes_failed": "how many of them failed", "seconds": "the time since the file was stored"];
    /// A file failed and has no searchable tree.
    IngestFailed = "ingest.failed", for Readers,
        ["task_type": "the task that failed", "error_type": "the class of its failure", "code": "the stable reason"];
    /// Somebody ended the ingestion of a file.
    IngestCancelled = "ingest.cancelled", for Readers,
        ["tasks": "the tasks that this ended"];
    /// A file was ingested again with other options, and the new tree took the place of the old one.
    IngestReprocessed = "ingest.reprocessed", for Readers, [];
    /// A document was created, not by the ingestion of a file.
    DocumentCreated = "document.created", for Readers,
        ["parent_id": "the document above it; null at the top", "usetype": "its usetype"];
    /// A document was changed.
    DocumentUpdated = "document.updated", for Readers,
        ["parent_id": "the document above it; null at the top", "usetype": "its usetype", "fields": "the names of what was changed"];
    /// A document was moved, with everything under it.
    DocumentMoved = "document.moved", for Readers,
        ["parent_id": "the document above it now", "from_parent_id": "the document above it before", "usetype": "its usetype"];
    /// A document was deleted. Of what was under it, files, access roots and documents that were created on their own are told of by
    /// events of their own.
    DocumentDeleted = "document.deleted", for Readers,
        ["parent_id": "the document above it; null at the top", "usetype": "its usetype"];
    /// A fact was recorded.
    TripleCreated = "triple.created", for Readers, [];
    /// A fact was replaced by a newer one.
    TripleSuperseded = "triple.superseded", for Readers, [];
    /// A fact no longer holds.
    TripleInvalidated = "triple.invalidated", for Readers, [];
    /// A task failed and is not tried again. Those that failed because of it are not told of.
    TaskFailed = "task.failed", for Owner,
        ["task_id": "its id", "task_type": "its type", "error_type": "the class of its failure", "code": "the stable reason"];
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
    /// A message of the bulk feed was given up.
    FeedDead = "feed.dead", for Owner, [];
}

#[cfg(test)]
mod tests;
