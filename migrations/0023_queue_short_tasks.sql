-- Fewer round trips and statements for a task that takes no time: it need not be written as running before it ends, and a
-- claim that nothing is in the way of is one statement.

-- Where tasks hold the table for longer the migration gives up, and can be run again.
SET LOCAL lock_timeout = '5s';

-- Read and planned anew by every statement that writes a row. Of what it said, the reservation's key refuses a second claim,
-- and the only statement that lowers unmet_deps looks for what is above 0; the rest is for the tests to find.
ALTER TABLE task_queue DROP CONSTRAINT task_queue_check;

-- Written as text and read as a range: the constructor of a type of our own is looked up by its name, among all functions of
-- the server, by every statement that calls it.
CREATE OR REPLACE FUNCTION region_paths(path text, mode text) RETURNS pathrange LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (CASE mode WHEN 'self' THEN '[' || path || ',' || path || ']' ELSE '[' || path || ',' || left(path, -1) || '0)' END)::pathrange $$;

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
    candidates bigint[]; free bigint[]; some_wait boolean; has_intents boolean; has_pauses boolean; candidate task_queue; got integer; rounds integer := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock(claim_lock);
    SELECT EXISTS (SELECT 1 FROM task_queue WHERE retry_after <= now() AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL)
           OR EXISTS (SELECT 1 FROM task_queue WHERE parked_on IS NOT NULL),
           EXISTS (SELECT 1 FROM task_intent), EXISTS (SELECT 1 FROM paused_task_type)
      INTO some_wait, has_intents, has_pauses;
    IF some_wait THEN
        PERFORM wake_tasks();
    END IF;
    IF random() < 0.02 THEN
        -- Meets every region that ended, by which its entry is marked as dead: the checks pass over it from then on, and its
        -- page has room again. Otherwise they would slow down until the next vacuum.
        PERFORM count(*) FROM task_reservation r WHERE r.prange && pathrange(NULL, NULL) AND r.drange && int4range(NULL, NULL);
    END IF;
    IF badges IS NULL AND NOT has_intents AND NOT has_pauses THEN
        -- The common case, all in one. What it leaves, because a region is in the way, the rounds below find and park.
        FOR candidate IN
            WITH first AS (
                SELECT t.* FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
                    SELECT q.id, q.priority, q.created_at, q.node_path, q.node_depth, q.write_mode FROM task_queue q WHERE q.ready AND q.lane = wanted.lane
                     ORDER BY q.priority DESC, q.created_at, q.id LIMIT wanted.want FOR NO KEY UPDATE SKIP LOCKED) t),
            taken AS (
                INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
                SELECT f.id, gen_random_uuid(), worker_id, f.node_path, f.node_depth, f.write_mode,
                       region_paths(f.node_path, f.write_mode), region_depths(f.node_depth, f.write_mode)
                  FROM first f ORDER BY f.priority DESC, f.created_at, f.id
                ON CONFLICT DO NOTHING RETURNING task_id, claim_token)
            UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
                   claim_token = taken.claim_token, parked_on = NULL, parked_since = NULL
              FROM taken WHERE t.id = taken.task_id RETURNING t.*
        LOOP
            RETURN NEXT candidate;
            wants[array_position(lanes, candidate.lane)] := wants[array_position(lanes, candidate.lane)] - 1;
        END LOOP;
        IF 0 = ALL (wants) THEN
            RETURN;
        END IF;
    END IF;
    LOOP
        rounds := rounds + 1;
        candidates := lock_ready_tasks(badges, strict, lanes, wants);
        EXIT WHEN cardinality(candidates) = 0;
        has_intents := EXISTS (SELECT 1 FROM task_intent);
        free := CASE WHEN has_intents OR has_pauses THEN stand_back(candidates) ELSE candidates END;
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

-- The fenced end of a task that was done: its region is free, its dependents come nearer, its attempt is logged. False: the
-- token is stale, or a cancel was asked for. The start of a short task is never written by itself: it runs and is completed
-- in this one transaction.
CREATE OR REPLACE FUNCTION finish_task(task bigint, token uuid, document bigint, of_type text, attempt_number integer, how text, by_worker text, begun timestamptz, fingerprint text, what jsonb)
RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE is_done boolean;
BEGIN
    WITH done AS (
        UPDATE task_queue SET status = 'completed', final = true, claim_token = NULL, heartbeat_at = NULL, error_type = NULL
         WHERE id = task AND claim_token = token AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL RETURNING id),
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

-- `claimed` to `running`, of all that are still held by their tokens; returns those tokens, also of what runs already: whoever
-- got no answer asks again. The commit is asynchronous: what a crash loses is only that the task was seen to run.
CREATE OR REPLACE FUNCTION start_tasks(tasks bigint[], tokens uuid[]) RETURNS uuid[] LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE started uuid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH begun AS (
        UPDATE task_queue SET status = 'running', heartbeat_at = clock_timestamp()
         WHERE id = ANY (tasks) AND claim_token = ANY (tokens) AND status IN ('claimed', 'running') RETURNING claim_token)
    SELECT array_agg(claim_token) INTO started FROM begun;
    RETURN coalesce(started, '{}');
END $$;
