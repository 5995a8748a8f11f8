-- Why a task is not running: the nearest cause, or NULL if it runs as it should. It takes columns and not a row, so that
-- a query can group tasks that are alike and ask once for the group. What no worker can run is reported before the time of
-- the next try, because such a task is put off again and again.
CREATE OR REPLACE FUNCTION blocked_by(status text, is_lapsed boolean, has_unmet boolean, backs_off boolean, is_paused boolean, is_parked boolean,
    task_type text, badge text, workers bigint, takes_all boolean, takes_unbadged boolean, badges text[], serves text[])
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN status = 'batched' THEN 'batch_parked'
        WHEN status IN ('claimed', 'running') THEN CASE WHEN is_lapsed THEN 'lease_lapsed' END
        WHEN has_unmet THEN 'dependency'
        WHEN status = 'failed' AND backs_off AND (workers = 0 OR is_served(task_type, badge, serves)) THEN 'backoff'
        WHEN is_paused THEN 'paused'
        WHEN workers = 0 THEN 'no_worker'
        WHEN badge IS NULL AND NOT takes_unbadged THEN 'no_worker_for_badge'
        WHEN badge IS NOT NULL AND NOT takes_all AND badge <> ALL (badges) THEN 'no_worker_for_badge'
        WHEN NOT is_served(task_type, badge, serves) THEN 'no_handler'
        WHEN is_parked THEN 'reservation'
        ELSE 'workers_busy'
    END $$;
