-- What happened, for those who follow it. A row refers to no table, because it outlives what it tells of.

CREATE TABLE event_outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The number of the event, without gaps and in the order in which it may be read; null until the sequencer gives it. A number
    -- that is given at the insert would lose events: a reader that has seen 2 would never read 1 if 1 commits after it.
    seq         bigint,
    kind        text NOT NULL,
    document_id bigint,
    -- The file that the document belongs to, or the document itself.
    root_id     bigint,
    -- The ancestors and the guard of the document as of the event, by which it is decided who could read the document then.
    path        bigint[] NOT NULL DEFAULT '{}',
    guard       bigint NOT NULL DEFAULT 0,
    -- The same from before a move; null for every other event.
    from_path   bigint[],
    from_guard  bigint,
    -- The principals whose grants went with the document, because the access root was deleted too.
    readers     bigint[],
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    data        jsonb NOT NULL DEFAULT '{}',
    owner_only  boolean NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX event_outbox_unnumbered ON event_outbox (id) WHERE seq IS NULL;
CREATE UNIQUE INDEX event_outbox_seq ON event_outbox (seq);

-- The last number that was given. It is kept apart from the events, which are deleted when they are old.
CREATE TABLE event_counter (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    last bigint NOT NULL
);
INSERT INTO event_counter (last) VALUES (0);

-- What no living worker serves, as an event told; the row goes when it is served again.
CREATE TABLE queue_stall (
    -- A badge or a task_type.
    what  text NOT NULL,
    name  text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (what, name)
);

-- The addresses that are called when something happens.
CREATE TABLE webhooks (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Who created it, by whose rights events are chosen; null for the owner.
    principal_id bigint REFERENCES principals (id) ON DELETE CASCADE,
    url          text NOT NULL,
    -- All if empty.
    kinds        text[] NOT NULL,
    -- Only what happens at or under this document.
    root_id      bigint,
    -- The key of its signatures. It is stored as it is, because a signature cannot be made without it.
    secret       bytea NOT NULL CHECK (octet_length(secret) = 32),
    -- The key from before a rotation, which signs too until old_until.
    old_secret   bytea,
    old_until    timestamptz,
    -- The number of the last event that was looked at.
    after_seq    bigint NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- When the first try failed after the last success; null while tries succeed.
    failing_since timestamptz,
    off_since    timestamptz,
    -- When a delivery was begun last, by which webhooks take turns; null before the first.
    tried_at     timestamptz
);
CREATE INDEX webhooks_principal ON webhooks (principal_id, id);

-- One event for one webhook. Any process sends it.
CREATE TABLE webhook_delivery (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    webhook_id    bigint NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    -- The number of the event; null for a test.
    seq           bigint,
    state         text NOT NULL DEFAULT 'pending',
    tries         integer NOT NULL DEFAULT 0,
    due_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The process that sends it has until then to record the end; after that another one sends it again.
    claimed_until timestamptz,
    claim         uuid,
    tried_at      timestamptz,
    status        integer,
    error         text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (webhook_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook_id, due_at, id) WHERE state = 'pending';
-- What is under way, and what was when its process died.
CREATE INDEX webhook_delivery_claimed ON webhook_delivery (webhook_id) WHERE claimed_until IS NOT NULL;
CREATE INDEX webhook_delivery_list ON webhook_delivery (webhook_id, id);
CREATE INDEX webhook_delivery_over ON webhook_delivery (id) WHERE state <> 'pending';
