-- Why tasks wait, also of a hundred thousand at once: the reason is a function of a few words, so that tasks which are alike
-- are counted first and asked for their reason once.

-- The living workers as one.
CREATE VIEW fleet AS
WITH alive AS (SELECT badges, strict, task_types FROM workers WHERE beat_at > now() - lease)
SELECT count(*) AS workers, coalesce(bool_or(badges = '{}'), false) AS takes_all, coalesce(bool_or(NOT strict), false) AS takes_unbadged,
       coalesce((SELECT array_agg(DISTINCT b) FROM alive, unnest(badges) AS b), '{}') AS badges,
       coalesce((SELECT array_agg(DISTINCT y) FROM alive, unnest(task_types) AS y), '{}') AS task_types
  FROM alive;

-- One reason a task, the nearest cause first; NULL where it runs as it should. A type that nobody can run is told of before the
-- time that it was put off for, which is over and comes again.
CREATE FUNCTION blocked_by(status text, is_lapsed boolean, has_unmet boolean, backs_off boolean, is_paused boolean, is_parked boolean,
    task_type text, badge text, workers bigint, takes_all boolean, takes_unbadged boolean, badges text[], task_types text[])
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN status = 'batched' THEN 'batch_parked'
        WHEN status IN ('claimed', 'running') THEN CASE WHEN is_lapsed THEN 'lease_lapsed' END
        WHEN has_unmet THEN 'dependency'
        WHEN status = 'failed' AND backs_off AND (workers = 0 OR task_type = ANY (task_types)) THEN 'backoff'
        WHEN is_paused THEN 'paused'
        WHEN workers = 0 THEN 'no_worker'
        WHEN badge IS NULL AND NOT takes_unbadged THEN 'no_worker_for_badge'
        WHEN badge IS NOT NULL AND NOT takes_all AND badge <> ALL (badges) THEN 'no_worker_for_badge'
        WHEN task_type <> ALL (task_types) THEN 'no_handler'
        WHEN is_parked THEN 'reservation'
        ELSE 'workers_busy'
    END $$;

CREATE FUNCTION is_lapsed(worker text, heartbeat timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT heartbeat < clock_timestamp() - coalesce((SELECT w.lease FROM workers w WHERE w.worker_id = worker), interval '90 seconds') $$;

-- As before, but for the one truth about reasons. `at_task` is the task in the way, `until` the time it waits for.
CREATE OR REPLACE VIEW task_blockage AS
SELECT t.id AS task_id,
       blocked_by(t.status, t.status IN ('claimed', 'running') AND is_lapsed(t.claimed_by, t.heartbeat_at), t.unmet_deps > 0,
                  t.retry_after > clock_timestamp(), t.parked_on < 0 OR p.id IS NOT NULL, t.parked_on IS NOT NULL, t.task_type,
                  t.service_badge, f.workers, f.takes_all, f.takes_unbadged, f.badges, f.task_types) AS blocked_by,
       CASE
           WHEN t.status NOT IN ('pending', 'failed') THEN NULL
           WHEN t.unmet_deps > 0 THEN (SELECT min(d.id) FROM task_queue d WHERE d.id = ANY (t.dependencies) AND d.status <> 'completed')
           WHEN t.parked_on > 0 THEN t.parked_on
       END AS at_task,
       CASE WHEN t.status = 'failed' AND t.retry_after > clock_timestamp() THEN t.retry_after END AS until
  FROM task_queue t CROSS JOIN fleet f LEFT JOIN paused_task_type p ON p.task_type = t.task_type
 WHERE NOT t.final;
