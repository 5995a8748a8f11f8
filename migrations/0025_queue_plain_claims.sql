-- Plainer statements for a claim that finds one task, as a busy worker's do, whose lanes are full but for one; and fewer checks of
-- what cannot be otherwise.

-- Where tasks hold the tables for longer the migration gives up, and can be run again.
SET LOCAL lock_timeout = '5s';
-- In the order in which a task locks them.
LOCK TABLE task_queue, task_reservation, task_attempts;

-- By its foreign key each reservation looked its task's row up and locked it once more. Whoever inserts one holds that row, on
-- which its deletion waits before it comes to this trigger.
ALTER TABLE task_reservation DROP CONSTRAINT task_reservation_task_id_fkey;
CREATE FUNCTION free_region() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM task_reservation WHERE task_id = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER task_queue_region AFTER DELETE ON task_queue FOR EACH ROW EXECUTE FUNCTION free_region();

-- Their plans are kept, and are made while the tables are small.
ALTER FUNCTION forget_attempts() SET enable_seqscan = off;

-- Read and planned anew by every statement that writes a row, and only svc's own words are written here.
ALTER TABLE task_attempts DROP CONSTRAINT task_attempts_outcome_check;

-- As before, with one way for all: what is ready is locked, what may be taken of it is taken, what is in the way is parked.
CREATE OR REPLACE FUNCTION claim_batch(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], intent_after_parks integer, intent_after interval)
RETURNS SETOF task_queue LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    candidates bigint[]; free bigint[]; some_wait boolean; has_intents boolean; has_pauses boolean; candidate task_queue; token uuid;
    got integer; rounds integer := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock(claim_lock);
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
              FROM task_queue t WHERE t.id = free[1]
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
                      FROM task_queue t WHERE t.id = ANY (free) ORDER BY t.priority DESC, t.created_at, t.id
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
