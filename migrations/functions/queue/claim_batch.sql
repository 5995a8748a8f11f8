-- Claims up to `wants` tasks of each lane, under one lock, in the exact order: priority descending, then age. Each statement of a
-- volatile function sees what was committed before the statement, so what is read under the lock is what the lock's last holder left.
-- The commit is asynchronous, which is safe only because the token is random: a claim that a crash loses leaves its worker with a
-- token that no row has. A claim that would wait for anything else ends after 200 ms.
-- If `badges` is NULL, the worker takes every task; if `strict` is true, it leaves tasks without a badge alone. The planner
-- settings force index scans, because a plan cached while the queue is short is reused when it is long.
-- A task that lost a lease is the last of its claim: its worker runs it alone, because it may take its worker down.
-- A last row of NULLs says that the claim did not see the end of the line: a worker that asks again at once may get more.
CREATE OR REPLACE FUNCTION claim_batch(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], intent_after_parks integer, intent_after interval, lease_of interval)
RETURNS SETOF task_queue LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- How many rows one claim looks at beyond those that it grants, so that nobody waits long for the lock.
    most_looks constant integer := 1024;
    candidates bigint[]; free bigint[]; parked bigint[]; blockers bigint[]; has_lock boolean; some_wait boolean; has_intents boolean;
    has_pauses boolean; has_suspects boolean; got task_queue; granted integer; looks integer := 0; ahead integer := 32;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM unnest(lanes) AS wanted(lane) WHERE EXISTS (SELECT 1 FROM task_queue q WHERE q.ready AND q.lane = wanted.lane))
       AND NOT EXISTS (SELECT 1 FROM task_queue WHERE retry_after <= now() AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL)
       AND NOT EXISTS (SELECT 1 FROM task_release) THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    -- A claimer that queues for the lock must be woken before the next claim begins, and with many in the queue that takes longer than the
    -- claims themselves. So each claimer tries by itself, and queues only after trying in vain for long.
    FOR try IN 1 .. 100 LOOP
        has_lock := pg_try_advisory_xact_lock(claim_lock);
        EXIT WHEN has_lock;
        PERFORM pg_sleep(0.0005 + random() * 0.002 * least(try, 20));
    END LOOP;
    IF NOT has_lock THEN
        PERFORM pg_advisory_xact_lock(claim_lock);
    END IF;
    PERFORM set_config('lock_timeout', '200ms', true);
    SELECT EXISTS (SELECT 1 FROM task_queue WHERE retry_after <= now() AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL)
           OR EXISTS (SELECT 1 FROM task_release),
           EXISTS (SELECT 1 FROM task_intent), EXISTS (SELECT 1 FROM paused_task_type)
      INTO some_wait, has_intents, has_pauses;
    IF some_wait THEN
        PERFORM wake_tasks();
    END IF;
    IF random() < 0.02 THEN
        -- This scan meets every region that ended and so marks its entry as dead: from then on the checks skip the entry, and
        -- its page has room again. Otherwise the checks would slow down until the next vacuum.
        PERFORM count(*) FROM task_reservation r WHERE r.prange && pathrange(NULL, NULL) AND r.drange && int4range(NULL, NULL);
    END IF;
    -- Usually nothing is in the way.
    IF badges IS NULL THEN
        SELECT array_agg(t.id), bool_or(t.lease_losses > 0) INTO candidates, has_suspects
          FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
            SELECT q.id, q.lease_losses FROM task_queue q WHERE q.ready AND q.lane = wanted.lane
             ORDER BY q.priority DESC, q.created_at, q.id LIMIT wanted.want FOR NO KEY UPDATE SKIP LOCKED) t;
    ELSE
        candidates := nullif(lock_ready_tasks(badges, strict, lanes, wants), '{}');
        has_suspects := EXISTS (SELECT 1 FROM task_queue t WHERE t.id = ANY (candidates) AND t.lease_losses > 0);
    END IF;
    IF candidates IS NULL THEN
        RETURN;
    END IF;
    IF NOT has_suspects THEN
        free := CASE WHEN has_intents OR has_pauses THEN stand_back(candidates) ELSE candidates END;
        granted := 0;
        IF free <> '{}' THEN
            FOR got IN SELECT * FROM grant_tasks(worker_id, free, lease_of) LOOP
                granted := granted + 1;
                wants[array_position(lanes, got.lane::text)] := wants[array_position(lanes, got.lane::text)] - 1;
                RETURN NEXT got;
            END LOOP;
            IF has_intents THEN
                DELETE FROM task_intent i WHERE i.task_id = ANY (free) AND EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = i.task_id);
            END IF;
        END IF;
        IF granted = cardinality(candidates) THEN
            RETURN;
        END IF;
    END IF;
    -- This looks further and further ahead: it parks blocked tasks and grants the others.
    WHILE 0 < ANY (wants) LOOP
        IF looks >= most_looks THEN
            RETURN NEXT NULL::task_queue;
            RETURN;
        END IF;
        candidates := lock_ready_tasks(badges, strict, lanes, ARRAY(SELECT CASE WHEN want > 0 THEN want + ahead ELSE 0 END FROM unnest(wants) AS want));
        EXIT WHEN candidates = '{}';
        looks := looks + cardinality(candidates);
        ahead := least(ahead * 4, 512);
        WITH seen AS MATERIALIZED (
            SELECT t.id, t.lane, t.priority, t.created_at, t.lease_losses > 0 AS is_suspect, find_blocker(t) AS blocker FROM task_queue t WHERE t.id = ANY (candidates)),
        first AS (
            SELECT s.id, s.is_suspect, s.priority, s.created_at FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
                SELECT x.* FROM seen x WHERE x.lane = wanted.lane AND x.blocker IS NULL
                 ORDER BY x.priority DESC, x.created_at, x.id LIMIT wanted.want) s),
        cut AS (
            SELECT f.id, coalesce(bool_or(f.is_suspect) OVER (ORDER BY f.priority DESC, f.created_at, f.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS is_behind
              FROM first f)
        SELECT ARRAY(SELECT c.id FROM cut c WHERE NOT c.is_behind),
               ARRAY(SELECT s.id FROM seen s WHERE s.blocker IS NOT NULL ORDER BY s.id),
               ARRAY(SELECT s.blocker FROM seen s WHERE s.blocker IS NOT NULL ORDER BY s.id)
          INTO free, parked, blockers;
        -- Younger tasks stand back for an intent, also in the claim that leaves it.
        CONTINUE WHEN parked <> '{}' AND park_tasks(parked, blockers, intent_after_parks, intent_after);
        granted := 0;
        IF free <> '{}' THEN
            has_suspects := false;
            FOR got IN SELECT * FROM grant_tasks(worker_id, free, lease_of) LOOP
                granted := granted + 1;
                has_suspects := has_suspects OR got.lease_losses > 0;
                wants[array_position(lanes, got.lane::text)] := wants[array_position(lanes, got.lane::text)] - 1;
                RETURN NEXT got;
            END LOOP;
            DELETE FROM task_intent i WHERE i.task_id = ANY (free) AND EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = i.task_id);
            EXIT WHEN has_suspects;
        END IF;
        EXIT WHEN granted = 0 AND parked = '{}';
    END LOOP;
END $$;
