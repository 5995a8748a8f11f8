-- The queue's hot statements, each in one call: a claim holds its lock only while the server works, not while it waits for
-- its caller, and a finish costs one round trip.

-- Claims up to `want` tasks of one lane in the exact order: priority descending, then age. All candidates of a round are
-- reserved by one statement, in their order; the constraint refuses those that overlap a held region or an earlier one.
-- Rows are met by arrays of ids and not by joins, so that a plan made once is right for a queue of any length.
CREATE OR REPLACE FUNCTION claim_tasks(worker_id text, badges text[], strict boolean, wanted_lane text, want integer, intent_after_parks integer, intent_after interval)
RETURNS SETOF task_queue LANGUAGE plpgsql AS $$
DECLARE
    candidate task_queue; candidates bigint[]; got integer := 0; granted integer; blocked integer; rounds integer := 0;
    paused jsonb := (SELECT coalesce(jsonb_object_agg(p.task_type, p.id), '{}') FROM paused_task_type p);
BEGIN
    LOOP
        rounds := rounds + 1;
        -- A row that is being deleted is not waited for, nor a reservation made that would outlive it.
        SELECT array_agg(c.id) INTO candidates FROM (
            SELECT t.id FROM task_queue t WHERE t.id = ANY (ARRAY(SELECT r.id FROM ready_tasks(badges, strict, wanted_lane, want - got + 8) r)) AND t.ready
             ORDER BY t.priority DESC, t.created_at, t.id LIMIT want - got FOR NO KEY UPDATE OF t SKIP LOCKED) c;
        EXIT WHEN candidates IS NULL;
        RETURN QUERY
            WITH taken AS (
                INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
                SELECT t.id, gen_random_uuid(), worker_id, t.node_path, t.node_depth, t.write_mode,
                       region_paths(t.node_path, t.write_mode), region_depths(t.node_depth, t.write_mode)
                  FROM task_queue t
                 WHERE t.id = ANY (candidates) AND NOT paused ? t.task_type
                   AND NOT EXISTS (SELECT 1 FROM task_intent i
                                    WHERE i.prange && region_paths(t.node_path, t.write_mode) AND i.drange && region_depths(t.node_depth, t.write_mode) AND i.task_id <> t.id
                                      AND (i.priority > t.priority OR (i.priority = t.priority AND (i.created_at, i.task_id) < (t.created_at, t.id))))
                 ORDER BY t.priority DESC, t.created_at, t.id
                ON CONFLICT DO NOTHING RETURNING task_id, claim_token),
            met AS (DELETE FROM task_intent i USING taken WHERE i.task_id = taken.task_id)
            UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
                   claim_token = taken.claim_token, parked_on = NULL, parked_since = NULL
              FROM taken WHERE t.id = taken.task_id RETURNING t.*;
        GET DIAGNOSTICS granted = ROW_COUNT;
        got := got + granted;
        blocked := 0;
        IF granted < cardinality(candidates) THEN
            FOR candidate IN SELECT t.* FROM task_queue t WHERE t.id = ANY (candidates) AND t.ready LOOP
                blocked := blocked + 1;
                IF paused ? candidate.task_type THEN
                    UPDATE task_queue t SET ready = false, parked_on = -(paused ->> candidate.task_type)::bigint WHERE t.id = candidate.id;
                ELSE
                    PERFORM park_task(candidate, find_blocker(candidate), intent_after_parks, intent_after);
                END IF;
            END LOOP;
        END IF;
        EXIT WHEN got >= want OR blocked = 0 OR rounds >= 64;
    END LOOP;
END $$;

-- What is in the way of a candidate: an older overlapping intent, else a held region. NULL: it went away.
CREATE FUNCTION find_blocker(candidate task_queue) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    paths pathrange := region_paths(candidate.node_path, candidate.write_mode);
    depths int4range := region_depths(candidate.node_depth, candidate.write_mode);
BEGIN
    RETURN coalesce(
        (SELECT i.task_id FROM task_intent i
          WHERE i.prange && paths AND i.drange && depths AND i.task_id <> candidate.id
            AND (i.priority > candidate.priority OR (i.priority = candidate.priority AND (i.created_at, i.task_id) < (candidate.created_at, candidate.id)))
          LIMIT 1),
        (SELECT r.task_id FROM task_reservation r WHERE r.prange && paths AND r.drange && depths LIMIT 1));
END $$;

DROP FUNCTION try_reserve(task_queue, text);

-- One claim for several lanes, under the one lock. Each statement of a volatile function sees what was committed before it,
-- so what is read under the lock is what its last holder left. The commit is asynchronous, which is safe only because the
-- token is random: a claim that a crash loses leaves its worker with a token that no row has.
CREATE FUNCTION claim_batch(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], intent_after_parks integer, intent_after interval)
RETURNS SETOF task_queue LANGUAGE plpgsql AS $$
DECLARE at integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_advisory_xact_lock(claim_lock);
    PERFORM wake_tasks();
    FOR at IN 1 .. cardinality(lanes) LOOP
        RETURN QUERY SELECT * FROM claim_tasks(worker_id, badges, strict, lanes[at], wants[at], intent_after_parks, intent_after);
    END LOOP;
END $$;

-- `claimed` to `running`. The commit is asynchronous: a start that a crash loses refuses the task's end, and the task runs again.
CREATE FUNCTION start_task(task bigint, token uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE task_queue SET status = 'running', heartbeat_at = clock_timestamp() WHERE id = task AND claim_token = token AND status = 'claimed';
    RETURN FOUND;
END $$;

-- The fenced end of a task that was done: its region is free, its dependents come nearer, its attempt is logged. False: the
-- token is stale, or a cancel was asked for.
CREATE FUNCTION finish_task(task bigint, token uuid, document bigint, of_type text, attempt_number integer, how text, by_worker text, begun timestamptz, fingerprint text, what jsonb)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task_queue SET status = 'completed', final = true, claim_token = NULL, heartbeat_at = NULL, error_type = NULL
     WHERE id = task AND claim_token = token AND status = 'running' AND cancel_requested_at IS NULL;
    IF NOT FOUND THEN RETURN false; END IF;
    DELETE FROM task_reservation WHERE task_id = task;
    INSERT INTO task_release VALUES (task);
    UPDATE task_queue t SET unmet_deps = t.unmet_deps - 1, ready = (t.unmet_deps = 1 AND t.status = 'pending' AND t.parked_on IS NULL)
     WHERE t.scope_document_id = document AND t.unmet_deps > 0 AND task = ANY (t.dependencies);
    INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, worker, started_at, param_fingerprint, detail)
    VALUES (document, task, of_type, attempt_number, how, by_worker, begun, fingerprint, what);
    RETURN true;
END $$;
