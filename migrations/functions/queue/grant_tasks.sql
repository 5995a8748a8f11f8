-- Grants tasks whose rows the caller has locked, in their order, with a lease of `lease_of`, which heartbeats extend; those that run at
-- once are running from here on. It leaves out a task whose region meets one that is held, even by a transaction that is about to release
-- it, or one that was granted before: the constraint alone would wait for that transaction, with the lock of the whole fleet in hand.
-- Each OFFSET 0 keeps the planner from joining every region with every other one: it looks each one up.
CREATE OR REPLACE FUNCTION grant_tasks(worker_id text, tasks bigint[], lease_of interval, runs boolean DEFAULT false) RETURNS SETOF task_queue LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE token uuid;
BEGIN
    IF cardinality(tasks) = 1 THEN
        -- A single task needs neither a join nor a sort.
        INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
        SELECT t.id, gen_random_uuid(), worker_id, t.node_path, t.node_depth, t.write_mode,
               region_paths(t.node_path, t.write_mode, t.first_leaf, t.last_leaf), region_depths(t.node_depth, t.write_mode, t.first_leaf)
          FROM task_queue t
         WHERE t.id = tasks[1] AND NOT EXISTS (
               SELECT 1 FROM task_reservation r WHERE r.prange && region_paths(t.node_path, t.write_mode, t.first_leaf, t.last_leaf)
                  AND r.drange && region_depths(t.node_depth, t.write_mode, t.first_leaf))
        ON CONFLICT DO NOTHING RETURNING claim_token INTO token;
        IF FOUND THEN
            RETURN QUERY
                UPDATE task_queue t SET status = CASE WHEN runs THEN 'running' ELSE 'claimed' END, ready = false, claimed_by = worker_id,
                       heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + lease_of, claim_token = token, parked_on = NULL,
                       parked_since = NULL
                 WHERE t.id = tasks[1] RETURNING t.*;
        END IF;
        RETURN;
    END IF;
    RETURN QUERY
        WITH taken AS (
            INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
            SELECT w.id, gen_random_uuid(), worker_id, w.node_path, w.node_depth, w.write_mode, w.prange, w.drange
              FROM (SELECT t.id, t.node_path, t.node_depth, t.write_mode, t.priority, t.created_at,
                           region_paths(t.node_path, t.write_mode, t.first_leaf, t.last_leaf) AS prange,
                           region_depths(t.node_depth, t.write_mode, t.first_leaf) AS drange
                      FROM task_queue t WHERE t.id = ANY (tasks) OFFSET 0) w
             WHERE NOT EXISTS (SELECT 1 FROM task_reservation r WHERE r.prange && w.prange AND r.drange && w.drange OFFSET 0)
             ORDER BY w.priority DESC, w.created_at, w.id
            ON CONFLICT DO NOTHING RETURNING task_id, claim_token)
        UPDATE task_queue t SET status = CASE WHEN runs THEN 'running' ELSE 'claimed' END, ready = false, claimed_by = worker_id,
               heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + lease_of, claim_token = taken.claim_token, parked_on = NULL,
               parked_since = NULL
          FROM taken WHERE t.id = taken.task_id RETURNING t.*;
END $$;
