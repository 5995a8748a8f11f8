-- The end of a task travels in one message with its COMMIT, and no claim waits for a region whose release is not committed.

-- Where tasks hold the tables for longer the migration gives up, and can be run again.
SET LOCAL lock_timeout = '5s';

-- As finish_task, and raises SV001 where that says false: what follows in the same message, the COMMIT above all, is not run. True:
-- somebody waits for the region.
CREATE FUNCTION end_task(task bigint, token uuid, document bigint, of_type text, attempt_number integer, how text, by_worker text, begun timestamptz, fingerprint text, what jsonb)
RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF NOT finish_task(task, token, document, of_type, attempt_number, how, by_worker, begun, fingerprint, what) THEN
        RAISE EXCEPTION 'the claim of task % is stale, or a cancel was asked for', task USING ERRCODE = 'SV001';
    END IF;
    RETURN EXISTS (SELECT 1 FROM task_queue WHERE parked_on = task);
END $$;

-- As before, with two differences. A candidate whose region meets a reservation is not inserted: the constraint would wait for a
-- transaction that is about to release that reservation, with the lock of the whole fleet in hand, while a plain read still sees
-- the reservation and parks the candidate on it. Whatever else a claim might come to wait for ends it after 200 ms.
CREATE OR REPLACE FUNCTION claim_batch(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], intent_after_parks integer, intent_after interval)
RETURNS SETOF task_queue LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    candidates bigint[]; free bigint[]; some_wait boolean; has_intents boolean; has_pauses boolean; candidate task_queue; token uuid;
    got integer; rounds integer := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock(claim_lock);
    PERFORM set_config('lock_timeout', '200ms', true);
    SELECT EXISTS (SELECT 1 FROM task_queue WHERE retry_after <= now() AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL)
           OR EXISTS (SELECT 1 FROM task_queue WHERE parked_on IS NOT NULL),
           EXISTS (SELECT 1 FROM task_intent), EXISTS (SELECT 1 FROM paused_task_type)
      INTO some_wait, has_intents, has_pauses;
    IF some_wait THEN
        PERFORM wake_tasks();
        has_intents := EXISTS (SELECT 1 FROM task_intent);
    END IF;
    IF random() < 0.02 THEN
        -- Meets every region that ended, by which its entry is marked as dead: the checks pass over it from then on, and its
        -- page has room again. Otherwise they would slow down until the next vacuum.
        PERFORM count(*) FROM task_reservation r WHERE r.prange && pathrange(NULL, NULL) AND r.drange && int4range(NULL, NULL);
    END IF;
    LOOP
        rounds := rounds + 1;
        IF badges IS NULL THEN
            SELECT array_agg(t.id) INTO candidates FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
                SELECT q.id FROM task_queue q WHERE q.ready AND q.lane = wanted.lane
                 ORDER BY q.priority DESC, q.created_at, q.id LIMIT wanted.want FOR NO KEY UPDATE SKIP LOCKED) t;
        ELSE
            candidates := nullif(lock_ready_tasks(badges, strict, lanes, wants), '{}');
        END IF;
        EXIT WHEN candidates IS NULL;
        free := CASE WHEN has_intents OR has_pauses THEN stand_back(candidates) ELSE candidates END;
        IF cardinality(free) = 1 THEN
            -- Nothing to join and nothing to sort.
            INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
            SELECT t.id, gen_random_uuid(), worker_id, t.node_path, t.node_depth, t.write_mode,
                   region_paths(t.node_path, t.write_mode), region_depths(t.node_depth, t.write_mode)
              FROM task_queue t
             WHERE t.id = free[1] AND NOT EXISTS (
                   SELECT 1 FROM task_reservation r WHERE r.prange && region_paths(t.node_path, t.write_mode) AND r.drange && region_depths(t.node_depth, t.write_mode))
            ON CONFLICT DO NOTHING RETURNING claim_token INTO token;
            GET DIAGNOSTICS got = ROW_COUNT;
            IF got = 1 THEN
                RETURN QUERY
                    UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
                           claim_token = token, parked_on = NULL, parked_since = NULL WHERE t.id = free[1] RETURNING t.*;
            END IF;
        ELSE
            RETURN QUERY
                WITH taken AS (
                    INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
                    SELECT t.id, gen_random_uuid(), worker_id, t.node_path, t.node_depth, t.write_mode,
                           region_paths(t.node_path, t.write_mode), region_depths(t.node_depth, t.write_mode)
                      FROM task_queue t
                     WHERE t.id = ANY (free) AND NOT EXISTS (
                           SELECT 1 FROM task_reservation r WHERE r.prange && region_paths(t.node_path, t.write_mode) AND r.drange && region_depths(t.node_depth, t.write_mode))
                     ORDER BY t.priority DESC, t.created_at, t.id
                    ON CONFLICT DO NOTHING RETURNING task_id, claim_token)
                UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
                       claim_token = taken.claim_token, parked_on = NULL, parked_since = NULL
                  FROM taken WHERE t.id = taken.task_id RETURNING t.*;
            GET DIAGNOSTICS got = ROW_COUNT;
        END IF;
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
        has_intents := EXISTS (SELECT 1 FROM task_intent);
        EXIT WHEN rounds >= 64;
    END LOOP;
END $$;
