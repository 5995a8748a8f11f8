-- The fenced end of a task that is done: it frees the region, lowers the dependents' counts of unmet dependencies and logs the attempt.
-- It returns false if the token is stale or a cancel was requested. The start of a short task is never written separately: the task
-- runs and is completed in this one transaction.
CREATE OR REPLACE FUNCTION finish_task(task bigint, token uuid, document bigint, of_type text, attempt_number integer, how text, by_worker text, begun timestamptz, fingerprint text, what jsonb)
RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE is_done boolean;
BEGIN
    WITH done AS (
        UPDATE task_queue SET status = 'completed', final = true, claim_token = NULL, heartbeat_at = NULL, error_type = NULL, put_off_code = NULL, put_off_message = NULL
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
