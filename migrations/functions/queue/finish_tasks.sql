-- Ends many tasks as finish_task ends one, and returns how many of them it ended: one whose token is stale, or of which a cancel was requested,
-- stays as it is. Each array has an entry for each task; `locked` has the tasks whose rows are locked first, in the order of every statement
-- that locks several. The settings and each OFFSET 0 keep the cached plan right, which is made while the queue is short: it would read the
-- whole queue once for each task.
CREATE OR REPLACE FUNCTION finish_tasks(tasks bigint[], tokens uuid[], documents bigint[], types text[], attempts integer[], hows text[], workers text[],
    begins timestamptz[], fingerprints text[], whats jsonb[], locked bigint[])
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE ended bigint;
BEGIN
    PERFORM FROM task_queue t WHERE t.id = ANY (locked) ORDER BY t.id FOR NO KEY UPDATE;
    WITH e AS MATERIALIZED (
        SELECT * FROM unnest(tasks, tokens, documents, types, attempts, hows, workers, begins, fingerprints, whats)
                      AS e(task, token, document, of_type, attempt, how, by_worker, begun, fingerprint, what)),
    done AS (
        UPDATE task_queue t SET status = 'completed', final = true, batch_id = NULL, batched_at = NULL, claim_token = NULL, heartbeat_at = NULL,
               error_type = NULL, put_off_code = NULL, put_off_message = NULL
          FROM e WHERE t.id = e.task AND t.claim_token = e.token AND t.status IN ('claimed', 'running', 'batched') AND t.cancel_requested_at IS NULL
        RETURNING e.*),
    freed AS (DELETE FROM task_reservation r USING done WHERE r.task_id = done.task),
    nearer AS (
        UPDATE task_queue t SET unmet_deps = t.unmet_deps - m.met, ready = (t.unmet_deps = m.met AND t.status = 'pending' AND t.parked_on IS NULL)
          FROM (SELECT w.id, count(*)::integer AS met
                  FROM done CROSS JOIN LATERAL (
                       SELECT w.id FROM task_queue w WHERE w.scope_document_id = done.document AND w.unmet_deps > 0 AND done.task = ANY (w.dependencies)
                       OFFSET 0) w
                 GROUP BY w.id) m
         WHERE t.id = m.id),
    logged AS (
        INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, worker, started_at, param_fingerprint, detail)
        SELECT d.document, d.task, d.of_type, d.attempt, d.how, d.by_worker, d.begun, d.fingerprint, d.what FROM done d)
    SELECT count(*) INTO ended FROM done;
    RETURN ended;
END $$;
