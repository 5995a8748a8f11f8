-- The queue of ingestion, its bookkeeping, and the fleet of workers. The database alone grants a region: a row of
-- task_reservation is the grant.

CREATE TYPE pathrange AS RANGE (subtype = text, collation = "C");

-- These are domains because a domain is checked when a value is assigned. A CHECK of the table would be read and planned
-- by every statement that writes a row.
CREATE DOMAIN task_status AS text CHECK (VALUE IN ('pending', 'claimed', 'running', 'batched', 'completed', 'failed'));
CREATE DOMAIN task_write_mode AS text CHECK (VALUE IN ('self', 'children', 'subtree'));
CREATE DOMAIN task_error_type AS text CHECK (VALUE IN ('retryable', 'permanent', 'timeout', 'dependency'));
CREATE DOMAIN task_lane AS text CHECK (VALUE IN ('cpu', 'model', 'llm', 'io'));

-- Rows of the queue live for seconds, and each claim reads past the index entries of what was done since the last vacuum. So the
-- queue's tables are vacuumed by their number of dead rows instead of by their share, and without pauses.
CREATE TABLE task_queue (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_type         text NOT NULL,
    scope_document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    status            task_status NOT NULL DEFAULT 'pending',
    write_mode        task_write_mode NOT NULL,
    dependencies      bigint[] NOT NULL DEFAULT '{}',
    params            jsonb NOT NULL DEFAULT '{}',
    param_fingerprint text NOT NULL DEFAULT '',
    service_badge     text,
    claimed_by        text,
    heartbeat_at      timestamptz,
    -- The batch in which the task waits for a provider's answers, a number of llm_batches. Set only while the task is batched.
    batch_id          text,
    batched_at        timestamptz,
    retry_count       integer NOT NULL DEFAULT 0,
    max_retries       integer NOT NULL DEFAULT 5,
    retry_after       timestamptz,
    error_type        task_error_type,
    priority          integer NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The columns from here on are the scheduler's own.
    lane              task_lane NOT NULL,
    -- The ids from the root to the node itself: '1/5/9/'.
    node_path         text COLLATE "C" NOT NULL,
    node_depth        integer NOT NULL,
    -- The node whose tree the task belongs to.
    root_id           bigint NOT NULL,
    -- A task that writes only some leaves under its node names the first and the last of their keys.
    first_leaf        text COLLATE "C",
    last_leaf         text COLLATE "C",
    -- An index hint: the task may be claimed now.
    ready             boolean NOT NULL DEFAULT true,
    unmet_deps        integer NOT NULL DEFAULT 0,
    -- The task whose region or intent is in the way, or the negative of the pause that is.
    parked_on         bigint,
    park_count        integer NOT NULL DEFAULT 0,
    parked_since      timestamptz,
    claim_token       uuid,
    -- The end of the worker's lease of this task.
    lease_until       timestamptz,
    -- How often a lease of this task ran out. With the retries, they number the task's attempts.
    lapses            integer NOT NULL DEFAULT 0,
    -- The lapses that count against the task, because the worker never came back.
    lease_losses      integer NOT NULL DEFAULT 0,
    cancel_requested_at timestamptz,
    -- Why the task could not be tried, if that is the last thing that happened to it.
    put_off_code      text,
    put_off_message   text,
    -- The task is completed, or has failed and is not tried again: it owes no more work.
    final             boolean NOT NULL DEFAULT false,
    -- The trace of what queued the task, as W3C writes it.
    traceparent       text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX task_queue_ready ON task_queue (lane, priority DESC, created_at, id) WHERE ready;
CREATE INDEX task_queue_ready_badge ON task_queue (lane, coalesce(service_badge, ''), priority DESC, created_at, id) WHERE ready;
CREATE INDEX task_queue_parked ON task_queue (parked_on, priority DESC, created_at, id) WHERE parked_on IS NOT NULL;
CREATE INDEX task_queue_open ON task_queue (root_id) WHERE NOT final;
-- The finished tasks of a file, which a reprocess takes along or deletes while nobody may create. A task comes into it once, when it ends.
CREATE INDEX task_queue_ended ON task_queue (root_id) WHERE final;
CREATE INDEX task_queue_scope ON task_queue (scope_document_id);
-- How far everything under a node is, whatever files it is of.
CREATE INDEX task_queue_under ON task_queue (node_path) WHERE NOT final;
-- Neither status nor heartbeat_at is in any index, so a start or a beat changes no index and the new
-- version of the row stays in its page.
CREATE INDEX task_queue_retry ON task_queue (retry_after) WHERE retry_after IS NOT NULL AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL;
CREATE INDEX task_queue_unmet ON task_queue (id) WHERE unmet_deps > 0 AND NOT final;
CREATE INDEX task_queue_failed ON task_queue (id) WHERE final AND error_type IS NOT NULL;
-- A page of what owes work, in the order of its numbers.
CREATE INDEX task_queue_owed ON task_queue (id) WHERE NOT final;
CREATE INDEX task_queue_held ON task_queue (claim_token) WHERE claim_token IS NOT NULL;
-- A count of what the queue still owes reads the first thousands of each type and badge, and not the whole table, which also holds the
-- finished tasks of a week.
CREATE INDEX task_queue_unfinished ON task_queue (task_type, coalesce(service_badge, ''), created_at) WHERE NOT final;
-- The badges of what the queue still owes, one after another: those that nobody answers to are found without the tasks of all others.
CREATE INDEX task_queue_badge ON task_queue (service_badge, id) WHERE service_badge IS NOT NULL AND NOT final;
-- What each batch of a provider holds.
CREATE INDEX task_queue_batched ON task_queue (batch_id, id) WHERE batch_id IS NOT NULL;
-- A search says how many documents of its scope wait for their vectors, or could not get them: documents that were written over REST,
-- which have a task of their own. It looks at the newest of those that wait, and at the newest of those that failed, without reading past the
-- others. The columns of the condition change with no start and no beat, whose updates stay within their page.
CREATE INDEX task_queue_document_embeds ON task_queue (final, scope_document_id)
    WHERE task_type = 'embed' AND root_id = scope_document_id AND (NOT final OR error_type IS NOT NULL);
-- The same of chunks that came under other titles.
CREATE INDEX task_queue_titles ON task_queue (scope_document_id)
    WHERE task_type = 'embed:titles' AND (NOT final OR error_type IS NOT NULL);
-- Documents written over REST that wait for their vectors at and under one document, without the tasks of other types there.
CREATE INDEX task_queue_embeds_under ON task_queue (node_path) WHERE task_type = 'embed' AND root_id = scope_document_id AND NOT final;

-- The regions that are held. No foreign key to task_queue, which would look up and lock the task's row once more: the claim that
-- inserts a row holds the task's row, and the function free_region deletes it with the task.
CREATE TABLE task_reservation (
    task_id       bigint PRIMARY KEY,
    claim_token   uuid NOT NULL,
    worker        text NOT NULL,
    since         timestamptz NOT NULL DEFAULT now(),
    node_path     text COLLATE "C" NOT NULL,
    node_depth    integer NOT NULL,
    write_mode    text NOT NULL,
    prange        pathrange NOT NULL,
    drange        int4range NOT NULL,
    -- Something is parked on it, or was.
    is_waited_for boolean NOT NULL DEFAULT false,
    -- The proof: two regions that intersect cannot both be held, whatever the code does.
    EXCLUDE USING gist (prange WITH &&, drange WITH &&)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- A task that has waited too long leaves an intent, and younger tasks that overlap it stand back.
CREATE TABLE task_intent (
    task_id    bigint PRIMARY KEY REFERENCES task_queue (id) ON DELETE CASCADE,
    priority   integer NOT NULL,
    created_at timestamptz NOT NULL,
    prange     pathrange NOT NULL,
    drange     int4range NOT NULL
);
CREATE INDEX task_intent_region ON task_intent USING gist (prange, drange);

-- Task types that nobody may claim for now. A candidate of such a type is parked on the negative of this id.
CREATE TABLE paused_task_type (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_type text NOT NULL UNIQUE,
    since     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Blockers that may be gone: the next claim looks at what is parked on them. Each is a task's id, or the negative of a pause's.
CREATE TABLE task_release (task_id bigint NOT NULL)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Each lost lease that counts against a task, with the start of the worker that held it. Once that worker beats again,
-- the loss no longer counts.
CREATE TABLE task_loss (
    task_id    bigint NOT NULL REFERENCES task_queue (id) ON DELETE CASCADE,
    boot_nonce uuid NOT NULL,
    lost_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task_id, lost_at)
);
CREATE INDEX task_loss_worker ON task_loss (boot_nonce);

-- The log of attempts. No foreign key to documents, by which each line would lock its document's row and so write to that row's
-- page: the writer of a line holds the task's row, and the function forget_attempts deletes the lines with the document.
-- The outcome is completed, skipped, failed, lease_lost or batched; only svc's own words are written, so no constraint checks them.
CREATE TABLE task_attempts (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    document_id       bigint NOT NULL,
    task_id           bigint NOT NULL,
    task_type         text NOT NULL,
    attempt           integer NOT NULL,
    outcome           text NOT NULL,
    error_type        text,
    code              text,
    message           text,
    worker            text NOT NULL,
    started_at        timestamptz NOT NULL,
    ended_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    param_fingerprint text NOT NULL,
    detail            jsonb NOT NULL DEFAULT '{}',
    -- The task failed for good. Its row may be gone soon, because a reprocess takes it.
    is_last           boolean NOT NULL DEFAULT false
);
CREATE INDEX task_attempts_document ON task_attempts (document_id, id);
-- Lines are written in the order of time, so that a few bytes a page find those of the last hour.
CREATE INDEX task_attempts_ended ON task_attempts USING brin (ended_at) WITH (pages_per_range = 16, autosummarize = on);
-- Why a task failed.
CREATE INDEX task_attempts_failed ON task_attempts (task_id, id) WHERE outcome NOT IN ('completed', 'skipped', 'batched');

-- Ingestion's own counters, for nodes that have tasks or children in flight.
CREATE TABLE ingest_node (
    document_id     bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    -- The node whose count falls when this node is done; NULL at the root.
    parent_id       bigint,
    root_id         bigint NOT NULL,
    open_tasks      integer NOT NULL DEFAULT 0 CHECK (open_tasks >= 0),
    open_children   integer NOT NULL DEFAULT 0 CHECK (open_children >= 0),
    failed_children integer NOT NULL DEFAULT 0,
    -- The tokens of the text under a container, counted by its chunks.
    tokens          bigint NOT NULL DEFAULT 0,
    rollup          text NOT NULL DEFAULT 'none' CHECK (rollup IN ('none', 'segmented', 'queued', 'done')),
    -- True at the root of an ingestion that was cancelled, until no node under it is in flight any more: a file of a million nodes
    -- is not marked as failed in one transaction.
    cancelled       boolean NOT NULL DEFAULT false,
    -- The priority of the upload, on the row of the file's root alone.
    priority        integer NOT NULL DEFAULT 0,
    -- The trace of the upload, on that row too.
    traceparent     text
);
CREATE INDEX ingest_node_root ON ingest_node (root_id);
CREATE INDEX ingest_node_parent ON ingest_node (parent_id);
CREATE INDEX ingest_node_cancelled ON ingest_node (document_id) WHERE cancelled;

-- Append only, so that a thousand finished children never meet on one row.
CREATE TABLE settle_event (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    root_id     bigint NOT NULL,
    -- The node to look at.
    document_id bigint NOT NULL,
    -- How many of its children are done, and how many of those failed.
    done        integer NOT NULL,
    failed      integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX settle_event_root ON settle_event (root_id, id);

-- Changes to the counts of nodes under a root. A reader adds them up.
CREATE TABLE frontier_delta (
    root_id   bigint NOT NULL,
    total     bigint NOT NULL,
    in_flight bigint NOT NULL,
    settled   bigint NOT NULL,
    failed    bigint NOT NULL
);
CREATE INDEX frontier_delta_root ON frontier_delta (root_id);

CREATE TABLE workers (
    worker_id  text PRIMARY KEY,
    boot_nonce uuid NOT NULL,
    version    text NOT NULL,
    badges     text[] NOT NULL,
    -- The worker leaves tasks without a badge alone.
    strict     boolean NOT NULL DEFAULT false,
    -- The worker is in the service whose data folder this database is in. Its process holds that folder's lock for as long as it lives.
    holds_folder boolean NOT NULL DEFAULT false,
    task_types text[] NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    beat_at    timestamptz NOT NULL DEFAULT now(),
    lease      interval NOT NULL,
    snapshot   jsonb NOT NULL DEFAULT '{}',
    -- The worker fell silent, and an event told of it.
    lost       boolean NOT NULL DEFAULT false
);

-- Workers that signed off a moment ago: others may be about to take their places.
CREATE TABLE workers_left (
    worker_id  text PRIMARY KEY,
    badges     text[] NOT NULL,
    strict     boolean NOT NULL,
    task_types text[] NOT NULL,
    left_at    timestamptz NOT NULL
);

-- When the fleet last did what one of its workers does for all.
CREATE TABLE upkeep_turn (
    name     text PRIMARY KEY,
    taken_at timestamptz NOT NULL
);
