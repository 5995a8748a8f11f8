-- Marks claimed tasks as running, restarts their lease, and returns the tokens that are still valid, including those of tasks that run
-- already, so that a worker which got no answer can ask again. The rows are locked by their ids, in the order of every statement that locks
-- several. The commit is asynchronous: a crash loses only that a task was seen to run.
CREATE OR REPLACE FUNCTION start_tasks(tasks bigint[], tokens uuid[], lease_of interval) RETURNS uuid[] LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE started uuid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- They are locked by id, as everybody does who locks several of them.
    WITH held AS MATERIALIZED (SELECT id FROM task_queue WHERE id = ANY (tasks) AND claim_token = ANY (tokens) ORDER BY id FOR NO KEY UPDATE),
    begun AS (
        UPDATE task_queue SET status = 'running', heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + lease_of
         WHERE id IN (SELECT id FROM held) AND claim_token = ANY (tokens) AND status IN ('claimed', 'running') RETURNING claim_token)
    SELECT array_agg(claim_token) INTO started FROM begun;
    RETURN coalesce(started, '{}');
END $$;
