-- The bulk feed: what became of the messages of a broker, and how far its readers of events are.

-- The user of the broker whose messages a principal answers for. The broker checks the user of each message.
ALTER TABLE principals ADD COLUMN amqp_user text UNIQUE CHECK (amqp_user <> '');

-- One outcome for each message, written in the transaction that makes it true: a message that comes again finds it here.
CREATE TABLE bulk_message (
    -- The uploader, whose messages have ids of their own; null if none could be told.
    principal_id   bigint REFERENCES principals (id) ON DELETE CASCADE,
    message_id     text NOT NULL,
    -- `sha256:<hex>`, as stored or as the message says; null if neither is known.
    sha256         text,
    document_id    bigint REFERENCES documents (id) ON DELETE CASCADE,
    outcome        text NOT NULL CHECK (outcome IN ('accepted', 'duplicate', 'rejected')),
    -- Why it was rejected.
    code           text,
    detail         text,
    -- Where its producer wants to read the outcome, and by which mark.
    reply_to       text,
    correlation_id text,
    -- An event says how the ingestion of the document ended, perhaps before an edit put it back in flight.
    has_ended      boolean NOT NULL DEFAULT false,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE NULLS NOT DISTINCT (principal_id, message_id),
    CHECK ((outcome = 'rejected') = (document_id IS NULL))
);
-- Many messages may have brought the bytes of one document. An event is of one of them by its id, or of the one that was stored.
CREATE INDEX bulk_message_document ON bulk_message (document_id, message_id) WHERE document_id IS NOT NULL;
CREATE INDEX bulk_message_accepted ON bulk_message (document_id) WHERE outcome = 'accepted';
-- The latest outcomes, which the operator is shown.
CREATE INDEX bulk_message_at ON bulk_message (at);
CREATE INDEX bulk_message_rejected ON bulk_message (at) WHERE outcome = 'rejected';

-- The messages of documents that were deleted, for as long as events are kept: what became of them is told later.
CREATE TABLE bulk_gone (
    document_id    bigint NOT NULL,
    message_id     text NOT NULL,
    sha256         text,
    outcome        text NOT NULL,
    -- The ingestion had ended, and an event says so.
    has_ended      boolean NOT NULL,
    reply_to       text,
    correlation_id text,
    at             timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX bulk_gone_document ON bulk_gone (document_id, message_id);
CREATE INDEX bulk_gone_at ON bulk_gone (at);

-- How far a reader of events inside the service is. It moves on after what it read has arrived.
CREATE TABLE event_reader (
    name text PRIMARY KEY,
    seq  bigint NOT NULL
);
