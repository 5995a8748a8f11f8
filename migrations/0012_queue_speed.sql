-- The queue, cheaper: each statement on task_queue pays for every constraint and index of it, so there are fewer of both,
-- and a claim, the starts of what it claimed, and a finish are a few statements each.

-- Checked where a value is assigned; a CHECK of the table is read and planned anew by every statement that writes a row.
CREATE DOMAIN task_status AS text CHECK (VALUE IN ('pending', 'claimed', 'running', 'batched', 'completed', 'failed'));
CREATE DOMAIN task_write_mode AS text CHECK (VALUE IN ('self', 'children', 'subtree'));
CREATE DOMAIN task_error_type AS text CHECK (VALUE IN ('retryable', 'permanent', 'timeout', 'dependency'));
CREATE DOMAIN task_lane AS text CHECK (VALUE IN ('cpu', 'model', 'llm', 'io'));

DROP VIEW task_blockage;
DROP INDEX task_queue_retry, task_queue_failed, task_queue_held;
ALTER TABLE task_queue
    DROP COLUMN retryable,
    DROP CONSTRAINT task_queue_status_check, DROP CONSTRAINT task_queue_write_mode_check, DROP CONSTRAINT task_queue_error_type_check,
    DROP CONSTRAINT task_queue_lane_check, DROP CONSTRAINT task_queue_unmet_deps_check, DROP CONSTRAINT task_queue_check,
    ALTER COLUMN status TYPE task_status, ALTER COLUMN write_mode TYPE task_write_mode, ALTER COLUMN error_type TYPE task_error_type,
    ALTER COLUMN lane TYPE task_lane,
    ADD CHECK (unmet_deps >= 0 AND (NOT ready OR (claim_token IS NULL AND NOT final AND parked_on IS NULL)));

-- Still a column to whoever writes `t.retryable`.
CREATE FUNCTION retryable(t task_queue) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT t.error_type IN ('retryable', 'timeout') $$;

-- Without `status` and `heartbeat_at` in any index, a start and a beat change no index: the new row version stays in its page.
CREATE INDEX task_queue_retry ON task_queue (retry_after) WHERE retry_after IS NOT NULL AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL;
CREATE INDEX task_queue_failed ON task_queue (id) WHERE final AND error_type IS NOT NULL;
CREATE INDEX task_queue_held ON task_queue (claim_token) WHERE claim_token IS NOT NULL;

-- What is parked on a task that holds nothing any more is found by that, so a finish need not say that it freed a region.
DROP FUNCTION wake_tasks();
DROP TABLE task_release;

-- Makes ready what may be claimed again: retries whose time has come, and tasks whose blocker is gone; a few at a time, so
-- that no claim waits long. Steps through the parked tasks from blocker to blocker, however many wait for each.
CREATE FUNCTION wake_tasks() RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM task_queue WHERE retry_after <= now() AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL) THEN
        UPDATE task_queue t SET ready = true WHERE t.id = ANY (ARRAY(
            SELECT q.id FROM task_queue q
             WHERE q.retry_after <= now() AND NOT q.ready AND NOT q.final AND q.parked_on IS NULL AND q.claim_token IS NULL AND q.status = 'failed'
             ORDER BY q.retry_after LIMIT 100 FOR UPDATE SKIP LOCKED));
    END IF;
    IF EXISTS (SELECT 1 FROM task_queue WHERE parked_on IS NOT NULL) THEN
        WITH RECURSIVE blocker(id) AS (
            (SELECT q.parked_on FROM task_queue q WHERE q.parked_on IS NOT NULL ORDER BY q.parked_on LIMIT 1)
            UNION ALL
            SELECT (SELECT q.parked_on FROM task_queue q WHERE q.parked_on > b.id ORDER BY q.parked_on LIMIT 1) FROM blocker b WHERE b.id IS NOT NULL),
        gone AS MATERIALIZED (
            SELECT b.id FROM blocker b
             WHERE b.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = b.id)
               AND NOT EXISTS (SELECT 1 FROM task_intent i WHERE i.task_id = b.id)
               AND NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.id = -b.id)),
        woken AS (
            SELECT q.id FROM task_queue q WHERE coalesce(q.parked_on, 0) <> 0 AND q.id = ANY (ARRAY(
                SELECT w.id FROM gone CROSS JOIN LATERAL (
                    SELECT p.id, p.priority, p.created_at FROM task_queue p WHERE p.parked_on = gone.id
                     ORDER BY p.priority DESC, p.created_at, p.id LIMIT 32) w
                 ORDER BY w.priority DESC, w.created_at, w.id LIMIT 32))
               FOR UPDATE SKIP LOCKED)
        UPDATE task_queue t SET ready = (t.status IN ('pending', 'failed') AND NOT t.final AND t.unmet_deps = 0), parked_on = NULL
          FROM woken WHERE t.id = woken.id;
    END IF;
END $$;

DROP FUNCTION claim_tasks(text, text[], boolean, text, integer, integer, interval);
DROP FUNCTION ready_tasks(text[], boolean, text, integer);

-- The first ready tasks of each lane, locked. A row that is being deleted is not waited for. A worker with badges merges one
-- index scan a badge: one plain scan would read its way through everything that waits for other badges.
CREATE FUNCTION lock_ready_tasks(badges text[], strict boolean, lanes text[], wants integer[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    IF badges IS NULL THEN
        RETURN ARRAY(
            SELECT t.id FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
                SELECT q.id FROM task_queue q WHERE q.ready AND q.lane = wanted.lane
                 ORDER BY q.priority DESC, q.created_at, q.id LIMIT wanted.want FOR NO KEY UPDATE SKIP LOCKED) t);
    END IF;
    RETURN ARRAY(
        SELECT t.id FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
            SELECT q.id FROM task_queue q WHERE q.id = ANY (ARRAY(
                SELECT x.id FROM unnest(CASE WHEN strict THEN badges ELSE array_append(badges, '') END) AS key(badge) CROSS JOIN LATERAL (
                    SELECT y.id, y.priority, y.created_at FROM task_queue y
                     WHERE y.ready AND y.lane = wanted.lane AND coalesce(y.service_badge, '') = key.badge
                     ORDER BY y.priority DESC, y.created_at, y.id LIMIT wanted.want) x
                 ORDER BY x.priority DESC, x.created_at, x.id LIMIT wanted.want)) AND q.ready
             FOR NO KEY UPDATE SKIP LOCKED) t);
END $$;

-- Those candidates that may be claimed though types are paused, or older tasks have laid down their intents.
CREATE FUNCTION stand_back(candidates bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT t.id FROM task_queue t
         WHERE t.id = ANY (candidates) AND NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.task_type = t.task_type)
           AND NOT EXISTS (SELECT 1 FROM task_intent i
                            WHERE i.prange && region_paths(t.node_path, t.write_mode) AND i.drange && region_depths(t.node_depth, t.write_mode) AND i.task_id <> t.id
                              AND (i.priority > t.priority OR (i.priority = t.priority AND (i.created_at, i.task_id) < (t.created_at, t.id)))));
END $$;

-- What is in the way of a candidate: a pause of its type, as a negative, an older overlapping intent, or a held region. NULL:
-- it went away.
CREATE OR REPLACE FUNCTION find_blocker(candidate task_queue) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    paths pathrange := region_paths(candidate.node_path, candidate.write_mode);
    depths int4range := region_depths(candidate.node_depth, candidate.write_mode);
BEGIN
    RETURN coalesce(
        (SELECT -p.id FROM paused_task_type p WHERE p.task_type = candidate.task_type),
        (SELECT i.task_id FROM task_intent i
          WHERE i.prange && paths AND i.drange && depths AND i.task_id <> candidate.id
            AND (i.priority > candidate.priority OR (i.priority = candidate.priority AND (i.created_at, i.task_id) < (candidate.created_at, candidate.id)))
          LIMIT 1),
        (SELECT r.task_id FROM task_reservation r WHERE r.prange && paths AND r.drange && depths LIMIT 1));
END $$;

-- Takes a blocked task out of the ready index until its blocker is gone; without this a held subtree with many tasks under it
-- is scanned whole by every claim. A pause gives no right to an intent.
CREATE OR REPLACE FUNCTION park_task(candidate task_queue, blocker bigint, intent_after_parks integer, intent_after interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF blocker IS NULL THEN
        RETURN;  -- it went away while we looked: the next round tries again
    END IF;
    UPDATE task_queue t SET ready = false, parked_on = blocker, park_count = t.park_count + (blocker > 0)::integer,
           parked_since = CASE WHEN blocker > 0 THEN coalesce(t.parked_since, now()) ELSE t.parked_since END WHERE t.id = candidate.id;
    IF blocker > 0 AND (candidate.park_count + 1 >= intent_after_parks OR candidate.parked_since < now() - intent_after) THEN
        INSERT INTO task_intent (task_id, priority, created_at, prange, drange)
        VALUES (candidate.id, candidate.priority, candidate.created_at,
                region_paths(candidate.node_path, candidate.write_mode), region_depths(candidate.node_depth, candidate.write_mode))
        ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Claims up to `wants` tasks of each lane, under the one lock, in the exact order: priority descending, then age. All
-- candidates of a round are reserved by one statement, in their order; the constraint refuses those that overlap a held
-- region or an earlier one. Each statement of a volatile function sees what was committed before it, so what is read under
-- the lock is what its last holder left. The commit is asynchronous, which is safe only because the token is random: a claim
-- that a crash loses leaves its worker with a token that no row has.
-- `badges` NULL: takes every task. `strict`: leaves tasks without a badge alone. The settings hold every plan to the indexes:
-- one made while the queue was short serves when it is long.
CREATE OR REPLACE FUNCTION claim_batch(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], intent_after_parks integer, intent_after interval)
RETURNS SETOF task_queue LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    candidates bigint[]; free bigint[]; has_intents boolean; candidate task_queue; got integer; rounds integer := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock(claim_lock);
    PERFORM wake_tasks();
    IF random() < 0.02 THEN
        -- Meets every region that ended, by which its entry is marked as dead: the checks pass over it from then on, and its
        -- page has room again. Otherwise they would slow down until the next vacuum.
        PERFORM count(*) FROM task_reservation r WHERE r.prange && pathrange(NULL, NULL) AND r.drange && int4range(NULL, NULL);
    END IF;
    LOOP
        rounds := rounds + 1;
        candidates := lock_ready_tasks(badges, strict, lanes, wants);
        EXIT WHEN cardinality(candidates) = 0;
        has_intents := EXISTS (SELECT 1 FROM task_intent);
        free := CASE WHEN has_intents OR EXISTS (SELECT 1 FROM paused_task_type) THEN stand_back(candidates) ELSE candidates END;
        RETURN QUERY
            WITH taken AS (
                INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
                SELECT t.id, gen_random_uuid(), worker_id, t.node_path, t.node_depth, t.write_mode,
                       region_paths(t.node_path, t.write_mode), region_depths(t.node_depth, t.write_mode)
                  FROM task_queue t WHERE t.id = ANY (free) ORDER BY t.priority DESC, t.created_at, t.id
                ON CONFLICT DO NOTHING RETURNING task_id, claim_token)
            UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
                   claim_token = taken.claim_token, parked_on = NULL, parked_since = NULL
              FROM taken WHERE t.id = taken.task_id RETURNING t.*;
        GET DIAGNOSTICS got = ROW_COUNT;
        IF has_intents THEN
            DELETE FROM task_intent i WHERE i.task_id = ANY (free) AND EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = i.task_id);
        END IF;
        EXIT WHEN got = cardinality(candidates);
        FOR candidate IN SELECT t.* FROM task_queue t WHERE t.id = ANY (candidates) LOOP
            IF candidate.claim_token IS NULL THEN
                PERFORM park_task(candidate, find_blocker(candidate), intent_after_parks, intent_after);
            ELSE
                wants := ARRAY(SELECT w.want - (w.lane = candidate.lane)::integer FROM unnest(lanes, wants) AS w(lane, want));
            END IF;
        END LOOP;
        EXIT WHEN rounds >= 64;
    END LOOP;
END $$;

-- `claimed` to `running`, of all that are still held by their tokens; returns those tokens. The commit is asynchronous: a start
-- that a crash loses refuses the task's end, and the task runs again.
CREATE FUNCTION start_tasks(tasks bigint[], tokens uuid[]) RETURNS uuid[] LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE started uuid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH begun AS (
        UPDATE task_queue SET status = 'running', heartbeat_at = clock_timestamp()
         WHERE id = ANY (tasks) AND claim_token = ANY (tokens) AND status = 'claimed' RETURNING claim_token)
    SELECT array_agg(claim_token) INTO started FROM begun;
    RETURN coalesce(started, '{}');
END $$;
DROP FUNCTION start_task(bigint, uuid);

-- The fenced end of a task that was done: its region is free, its dependents come nearer, its attempt is logged. False: the
-- token is stale, or a cancel was asked for.
CREATE OR REPLACE FUNCTION finish_task(task bigint, token uuid, document bigint, of_type text, attempt_number integer, how text, by_worker text, begun timestamptz, fingerprint text, what jsonb)
RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE is_done boolean;
BEGIN
    WITH done AS (
        UPDATE task_queue SET status = 'completed', final = true, claim_token = NULL, heartbeat_at = NULL, error_type = NULL
         WHERE id = task AND claim_token = token AND status = 'running' AND cancel_requested_at IS NULL RETURNING id),
    freed AS (DELETE FROM task_reservation r USING done WHERE r.task_id = done.id),
    nearer AS (
        UPDATE task_queue t SET unmet_deps = t.unmet_deps - 1, ready = (t.unmet_deps = 1 AND t.status = 'pending' AND t.parked_on IS NULL)
          FROM done WHERE t.scope_document_id = document AND t.unmet_deps > 0 AND task = ANY (t.dependencies)),
    logged AS (
        INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, worker, started_at, param_fingerprint, detail)
        SELECT document, task, of_type, attempt_number, how, by_worker, begun, fingerprint, what FROM done)
    SELECT EXISTS (SELECT 1 FROM done) INTO is_done;
    RETURN is_done;
END $$;

-- As before; made anew because its columns have new types.
-- Why an unfinished task is not running: one reason a task, the nearest cause first; NULL where it runs as it should.
-- `at_task` is the task in the way, `until` the time it waits for.
CREATE VIEW task_blockage AS
WITH alive AS (SELECT badges, strict, task_types FROM workers WHERE beat_at > now() - lease),
fleet AS (
    SELECT count(*) AS workers, coalesce(bool_or(badges = '{}'), false) AS takes_all,
           coalesce(bool_or(NOT strict), false) AS takes_unbadged,
           coalesce((SELECT array_agg(DISTINCT b) FROM alive, unnest(badges) AS b), '{}') AS badges,
           coalesce((SELECT array_agg(DISTINCT y) FROM alive, unnest(task_types) AS y), '{}') AS task_types
      FROM alive)
SELECT t.id AS task_id,
       CASE
           WHEN t.status = 'batched' THEN 'batch_parked'
           WHEN t.status IN ('claimed', 'running') THEN
               CASE WHEN t.heartbeat_at < clock_timestamp() - coalesce((SELECT w.lease FROM workers w WHERE w.worker_id = t.claimed_by), interval '90 seconds')
                    THEN 'lease_lapsed' END
           WHEN t.unmet_deps > 0 THEN 'dependency'
           WHEN t.status = 'failed' AND t.retry_after > clock_timestamp() THEN 'backoff'
           WHEN t.parked_on < 0 OR p.id IS NOT NULL THEN 'paused'
           WHEN f.workers = 0 THEN 'no_worker'
           WHEN t.service_badge IS NULL AND NOT f.takes_unbadged THEN 'no_worker_for_badge'
           WHEN t.service_badge IS NOT NULL AND NOT f.takes_all AND t.service_badge <> ALL (f.badges) THEN 'no_worker_for_badge'
           WHEN t.task_type <> ALL (f.task_types) THEN 'no_handler'
           WHEN t.parked_on IS NOT NULL THEN 'reservation'
           ELSE 'workers_busy'
       END AS blocked_by,
       CASE
           WHEN t.status NOT IN ('pending', 'failed') THEN NULL
           WHEN t.unmet_deps > 0 THEN (SELECT min(d.id) FROM task_queue d WHERE d.id = ANY (t.dependencies) AND d.status <> 'completed')
           WHEN t.parked_on > 0 THEN t.parked_on
       END AS at_task,
       CASE WHEN t.status = 'failed' AND t.retry_after > clock_timestamp() THEN t.retry_after END AS until
  FROM task_queue t CROSS JOIN fleet f LEFT JOIN paused_task_type p ON p.task_type = t.task_type
 WHERE NOT t.final;
