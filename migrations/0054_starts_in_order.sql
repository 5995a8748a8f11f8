-- As before, but the rows are locked by their ids, as whoever beats for them or cancels them locks them.
CREATE OR REPLACE FUNCTION start_tasks(tasks bigint[], tokens uuid[]) RETURNS uuid[] LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE started uuid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH held AS MATERIALIZED (
        SELECT id FROM task_queue WHERE id = ANY (tasks) AND claim_token = ANY (tokens) AND status IN ('claimed', 'running') ORDER BY id FOR NO KEY UPDATE),
    begun AS (
        UPDATE task_queue SET status = 'running', heartbeat_at = clock_timestamp()
         WHERE id IN (SELECT id FROM held) AND claim_token = ANY (tokens) AND status IN ('claimed', 'running') RETURNING claim_token)
    SELECT array_agg(claim_token) INTO started FROM begun;
    RETURN coalesce(started, '{}');
END $$;
