-- The ingest scheduler. PostgreSQL decides: a row of task_reservation is the grant.

CREATE TYPE pathrange AS RANGE (subtype = text, collation = "C");

CREATE TABLE task_queue (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_type         text NOT NULL,
    scope_document_id bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    status            text NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'claimed', 'running', 'batched', 'completed', 'failed')),
    write_mode        text NOT NULL CHECK (write_mode IN ('self', 'children', 'subtree')),
    dependencies      bigint[] NOT NULL DEFAULT '{}',
    params            jsonb NOT NULL DEFAULT '{}',
    param_fingerprint text NOT NULL DEFAULT '',
    service_badge     text,
    claimed_by        text,
    heartbeat_at      timestamptz,
    batch_id          text,
    batched_at        timestamptz,
    retry_count       integer NOT NULL DEFAULT 0,
    max_retries       integer NOT NULL DEFAULT 5,
    retry_after       timestamptz,
    error_type        text CHECK (error_type IN ('retryable', 'permanent', 'timeout', 'dependency')),
    retryable         boolean GENERATED ALWAYS AS (error_type IN ('retryable', 'timeout')) STORED,
    priority          integer NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- From here on the scheduler's own.
    lane              text NOT NULL CHECK (lane IN ('cpu', 'model', 'llm', 'io')),
    node_path         text COLLATE "C" NOT NULL,  -- '1/5/9/': ends in the node's own id
    node_depth        integer NOT NULL,
    root_id           bigint NOT NULL,            -- the node whose tree the task belongs to
    ready             boolean NOT NULL DEFAULT true,  -- an index hint: may be claimed now
    unmet_deps        integer NOT NULL DEFAULT 0 CHECK (unmet_deps >= 0),
    parked_on         bigint,                     -- the task whose region or intent is in the way
    park_count        integer NOT NULL DEFAULT 0,
    parked_since      timestamptz,
    claim_token       uuid,
    lease_losses      integer NOT NULL DEFAULT 0,
    cancel_requested_at timestamptz,
    -- Completed, or failed and not to be tried again: owes no more work.
    final             boolean NOT NULL DEFAULT false,
    CHECK (NOT ready OR (NOT final AND status IN ('pending', 'failed') AND parked_on IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX task_queue_ready ON task_queue (lane, priority DESC, created_at, id) WHERE ready;
CREATE INDEX task_queue_ready_badge ON task_queue (lane, coalesce(service_badge, ''), priority DESC, created_at, id) WHERE ready;
CREATE INDEX task_queue_parked ON task_queue (parked_on, priority DESC, created_at, id) WHERE parked_on IS NOT NULL;
CREATE INDEX task_queue_retry ON task_queue (retry_after) WHERE status = 'failed' AND NOT ready AND NOT final AND parked_on IS NULL;
CREATE INDEX task_queue_failed ON task_queue (id) WHERE status = 'failed' AND final;
CREATE INDEX task_queue_open ON task_queue (root_id) WHERE NOT final;
CREATE INDEX task_queue_held ON task_queue (heartbeat_at) WHERE status IN ('claimed', 'running');
CREATE INDEX task_queue_scope ON task_queue (scope_document_id);

CREATE TABLE task_reservation (
    task_id     bigint PRIMARY KEY REFERENCES task_queue (id) ON DELETE CASCADE,
    claim_token uuid NOT NULL,
    worker      text NOT NULL,
    since       timestamptz NOT NULL DEFAULT now(),
    node_path   text COLLATE "C" NOT NULL,
    node_depth  integer NOT NULL,
    write_mode  text NOT NULL,
    prange      pathrange NOT NULL,
    drange      int4range NOT NULL,
    -- The proof: two regions that intersect cannot both be held, whatever the code does.
    EXCLUDE USING gist (prange WITH &&, drange WITH &&)
);

-- Regions that were freed since the last claim; a claim wakes what was parked on them.
CREATE TABLE task_release (task_id bigint NOT NULL);

-- A task that waited too long lays one down, and younger tasks that overlap it stand back.
CREATE TABLE task_intent (
    task_id    bigint PRIMARY KEY REFERENCES task_queue (id) ON DELETE CASCADE,
    priority   integer NOT NULL,
    created_at timestamptz NOT NULL,
    prange     pathrange NOT NULL,
    drange     int4range NOT NULL
);
CREATE INDEX task_intent_region ON task_intent USING gist (prange, drange);

-- A region is a box: the paths that it covers by the depths that it covers. '0' sorts right after '/'.
CREATE FUNCTION region_paths(path text, mode text) RETURNS pathrange LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE mode WHEN 'self' THEN pathrange(path, path, '[]') ELSE pathrange(path, left(path, -1) || '0', '[)') END $$;
CREATE FUNCTION region_depths(depth integer, mode text) RETURNS int4range LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE mode WHEN 'self' THEN int4range(depth, depth, '[]')
                     WHEN 'children' THEN int4range(depth, depth + 1, '[]')
                     ELSE int4range(depth, NULL) END $$;

-- Claims up to `want` tasks of one lane in the exact order: priority descending, then age.
-- One short global lock and insert first: no deadlock, and the constraint is the proof. The caller's
-- transaction may commit asynchronously, only because the token is random: a claim that is lost in a
-- crash leaves its worker with a token that no row has.
-- `badges` NULL: takes every task. `strict`: leaves tasks without a badge alone.
CREATE FUNCTION claim_tasks(worker_id text, badges text[], strict boolean, wanted_lane text, want integer, intent_after_parks integer, intent_after interval)
RETURNS SETOF task_queue LANGUAGE plpgsql AS $$
DECLARE
    candidate task_queue; held task_queue; got integer := 0; blocked integer; rounds integer := 0; blocker bigint; token uuid;
BEGIN
    LOOP
        blocked := 0; rounds := rounds + 1;
        FOR candidate IN SELECT * FROM ready_tasks(badges, strict, wanted_lane, want - got + 8) LOOP
            -- A row that is being deleted is not waited for, nor a reservation made that would outlive it.
            PERFORM 1 FROM task_queue t WHERE t.id = candidate.id AND t.ready FOR NO KEY UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            SELECT * FROM try_reserve(candidate, worker_id) INTO token, blocker;
            IF token IS NOT NULL THEN
                UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
                       claim_token = token, parked_on = NULL, parked_since = NULL WHERE t.id = candidate.id RETURNING * INTO held;
                got := got + 1;
                RETURN NEXT held;
                EXIT WHEN got >= want;
            ELSE
                blocked := blocked + 1;
                PERFORM park_task(candidate, blocker, intent_after_parks, intent_after);
            END IF;
        END LOOP;
        EXIT WHEN got >= want OR blocked = 0 OR rounds >= 64;
    END LOOP;
END $$;

-- The first ready tasks of a lane. A worker with badges merges one index scan a badge: one plain scan
-- would read its way through everything that waits for other badges.
CREATE FUNCTION ready_tasks(badges text[], strict boolean, wanted_lane text, most integer)
RETURNS SETOF task_queue LANGUAGE plpgsql AS $$
BEGIN
    IF badges IS NULL THEN
        RETURN QUERY SELECT t.* FROM task_queue t WHERE t.ready AND t.lane = wanted_lane
                      ORDER BY t.priority DESC, t.created_at, t.id LIMIT most;
    ELSE
        RETURN QUERY SELECT t.* FROM unnest(CASE WHEN strict THEN badges ELSE array_append(badges, '') END) AS key(badge) CROSS JOIN LATERAL (
                         SELECT q.* FROM task_queue q
                          WHERE q.ready AND q.lane = wanted_lane AND coalesce(q.service_badge, '') = key.badge
                          ORDER BY q.priority DESC, q.created_at, q.id LIMIT most) t
                      ORDER BY t.priority DESC, t.created_at, t.id LIMIT most;
    END IF;
END $$;

-- Takes the candidate's region, or names what is in the way.
CREATE FUNCTION try_reserve(candidate task_queue, worker_id text, OUT token uuid, OUT blocker bigint) LANGUAGE plpgsql AS $$
DECLARE
    paths pathrange := region_paths(candidate.node_path, candidate.write_mode);
    depths int4range := region_depths(candidate.node_depth, candidate.write_mode);
BEGIN
    SELECT i.task_id INTO blocker FROM task_intent i
     WHERE i.prange && paths AND i.drange && depths AND i.task_id <> candidate.id
       AND (i.priority > candidate.priority OR (i.priority = candidate.priority AND (i.created_at, i.task_id) < (candidate.created_at, candidate.id)))
     LIMIT 1;
    IF blocker IS NOT NULL THEN RETURN; END IF;
    token := gen_random_uuid();
    INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
    VALUES (candidate.id, token, worker_id, candidate.node_path, candidate.node_depth, candidate.write_mode, paths, depths)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        DELETE FROM task_intent i WHERE i.task_id = candidate.id;
        RETURN;
    END IF;
    token := NULL;
    SELECT r.task_id INTO blocker FROM task_reservation r WHERE r.prange && paths AND r.drange && depths LIMIT 1;
END $$;

-- Takes a blocked task out of the ready index until its blocker is gone; without this a held subtree
-- with many tasks under it is scanned whole by every claim.
CREATE FUNCTION park_task(candidate task_queue, blocker bigint, intent_after_parks integer, intent_after interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF blocker IS NULL THEN
        RETURN;  -- it went away while we looked: the next round tries again
    END IF;
    UPDATE task_queue t SET ready = false, parked_on = blocker, park_count = t.park_count + 1,
           parked_since = coalesce(t.parked_since, now()) WHERE t.id = candidate.id;
    IF candidate.park_count + 1 >= intent_after_parks OR candidate.parked_since < now() - intent_after THEN
        INSERT INTO task_intent (task_id, priority, created_at, prange, drange)
        VALUES (candidate.id, candidate.priority, candidate.created_at,
                region_paths(candidate.node_path, candidate.write_mode), region_depths(candidate.node_depth, candidate.write_mode))
        ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Makes ready what may be claimed again: retries whose time has come, and tasks whose blocker is gone;
-- a few at a time, so that no claim waits long.
CREATE FUNCTION wake_tasks() RETURNS void LANGUAGE plpgsql AS $$
DECLARE freed bigint[]; woken integer;
BEGIN
    UPDATE task_queue t SET ready = true WHERE t.id IN (
        SELECT id FROM task_queue WHERE status = 'failed' AND NOT ready AND NOT final AND parked_on IS NULL AND retry_after <= now()
         ORDER BY retry_after LIMIT 100 FOR UPDATE SKIP LOCKED);
    SELECT array_agg(DISTINCT r.task_id) INTO freed FROM (SELECT task_id FROM task_release LIMIT 500) r;
    IF freed IS NULL THEN RETURN; END IF;
    WITH wake AS (
        SELECT id FROM task_queue WHERE parked_on = ANY (freed) AND status IN ('pending', 'failed') AND NOT final
         ORDER BY priority DESC, created_at, id LIMIT 32 FOR UPDATE SKIP LOCKED)
    UPDATE task_queue t SET ready = true, parked_on = NULL FROM wake WHERE t.id = wake.id;
    GET DIAGNOSTICS woken = ROW_COUNT;
    DELETE FROM task_release WHERE task_id = ANY (freed);
    IF woken >= 32 THEN
        INSERT INTO task_release SELECT unnest(freed);
    END IF;
END $$;

-- Ingestion's own counters, for nodes that have tasks or children in flight.
CREATE TABLE ingest_node (
    document_id     bigint PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    parent_id       bigint,            -- whose count falls when this node is done; NULL at the root
    file_root       bigint NOT NULL,
    open_tasks      integer NOT NULL DEFAULT 0 CHECK (open_tasks >= 0),
    open_children   integer NOT NULL DEFAULT 0 CHECK (open_children >= 0),
    failed_children integer NOT NULL DEFAULT 0,
    tokens          bigint NOT NULL DEFAULT 0,   -- of the text under a container, by its chunks
    rollup          text NOT NULL DEFAULT 'none' CHECK (rollup IN ('none', 'queued', 'done'))
);
CREATE INDEX ingest_node_root ON ingest_node (file_root);
CREATE INDEX ingest_node_parent ON ingest_node (parent_id);

-- Append only, so that a thousand finished children never meet on one row.
CREATE TABLE settle_event (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    file_root   bigint NOT NULL,
    document_id bigint NOT NULL,       -- the node to look at
    done        integer NOT NULL,      -- how many of its children are done
    failed      integer NOT NULL       -- how many of those failed
);
CREATE INDEX settle_event_root ON settle_event (file_root, id);

CREATE TABLE frontier_delta (
    root_id   bigint NOT NULL,
    total     bigint NOT NULL,
    in_flight bigint NOT NULL,
    settled   bigint NOT NULL,
    failed    bigint NOT NULL
);
CREATE INDEX frontier_delta_root ON frontier_delta (root_id);

CREATE TABLE task_attempts (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    document_id       bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    task_id           bigint NOT NULL,
    task_type         text NOT NULL,
    attempt           integer NOT NULL,
    outcome           text NOT NULL CHECK (outcome IN ('completed', 'skipped', 'failed', 'lease_lost')),
    error_type        text,
    code              text,
    message           text,
    worker            text NOT NULL,
    started_at        timestamptz NOT NULL,
    ended_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    param_fingerprint text NOT NULL,
    detail            jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX task_attempts_document ON task_attempts (document_id, id);

CREATE TABLE workers (
    worker_id  text PRIMARY KEY,
    boot_nonce uuid NOT NULL,
    version    text NOT NULL,
    badges     text[] NOT NULL,
    task_types text[] NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    beat_at    timestamptz NOT NULL DEFAULT now(),
    lease      interval NOT NULL,
    snapshot   jsonb NOT NULL DEFAULT '{}'
);
