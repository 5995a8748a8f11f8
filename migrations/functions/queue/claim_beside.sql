-- Claims what shares the pass of a held task that embeds one short document: the tasks of the same kind and badge that come next in the
-- order of all claims, up to the first of another kind, so that none is passed over, or of a lower priority, for which this one does not
-- wait. What waits for another badge is not looked at. They have regions and tokens of their own and run at once. It returns nothing if
-- other claims are under way, because the pass need not wait for them. See claim_batch for the settings.
CREATE OR REPLACE FUNCTION claim_beside(claim_lock bigint, task bigint, token uuid, worker_id text, most integer, most_bytes integer, lease_of interval)
RETURNS SETOF task_queue LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    own task_queue; own_bytes integer; candidates bigint[]; has_intents boolean;
BEGIN
    SELECT t.* INTO own FROM task_queue t WHERE t.id = task AND t.claim_token = token;
    IF NOT EXISTS (SELECT 1 FROM task_queue q
                    WHERE q.ready AND q.lane = own.lane AND coalesce(q.service_badge, '') = coalesce(own.service_badge, '') AND q.priority >= own.priority) THEN
        RETURN;
    END IF;
    own_bytes := (SELECT b.bytes FROM short_text(task) AS b(bytes));
    IF own_bytes IS NULL OR own_bytes >= most_bytes THEN
        RETURN;
    END IF;
    IF NOT try_claim_lock(claim_lock) THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '200ms', true);
    WITH line AS MATERIALIZED (
        SELECT q.id, q.priority, q.created_at FROM task_queue q
         WHERE q.ready AND q.lane = own.lane AND coalesce(q.service_badge, '') = coalesce(own.service_badge, '') AND q.priority >= own.priority
         ORDER BY q.priority DESC, q.created_at, q.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED),
    summed AS (
        SELECT l.id, sum(b.bytes) OVER up_to_here AS bytes, bool_and(b.bytes IS NOT NULL) OVER up_to_here AS is_alike
          FROM line l LEFT JOIN LATERAL short_text(l.id) AS b(bytes) ON true
        WINDOW up_to_here AS (ORDER BY l.priority DESC, l.created_at, l.id))
    SELECT array_agg(n.id) INTO candidates FROM summed n WHERE n.is_alike AND own_bytes + n.bytes <= most_bytes;
    IF candidates IS NULL THEN
        RETURN;
    END IF;
    has_intents := EXISTS (SELECT 1 FROM task_intent);
    IF has_intents OR EXISTS (SELECT 1 FROM paused_task_type) THEN
        candidates := stand_back(candidates);
    END IF;
    -- What a worker has only claimed, and its heart does not know of, is given back; so these run.
    RETURN QUERY SELECT * FROM grant_tasks(worker_id, candidates, lease_of, true);
    IF has_intents THEN
        DELETE FROM task_intent i WHERE i.task_id = ANY (candidates) AND EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = i.task_id);
    END IF;
END $$;
