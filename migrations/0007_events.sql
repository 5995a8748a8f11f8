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

-- What no living worker serves and was told of.
CREATE TABLE queue_stall (
    -- A badge or a task_type.
    what  text NOT NULL,
    name  text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (what, name)
);
