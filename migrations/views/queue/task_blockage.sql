-- Why each unfinished task is not running, see blocked_by. `at_task` is the task in the way, `until` the time that the task waits for.
CREATE OR REPLACE VIEW task_blockage AS
SELECT t.id AS task_id,
       blocked_by(t.status, t.status IN ('claimed', 'running') AND is_lapsed(t.lease_until), t.unmet_deps > 0,
                  t.retry_after > clock_timestamp(), t.parked_on < 0 OR p.id IS NOT NULL, t.parked_on IS NOT NULL, t.task_type,
                  t.service_badge, f.workers, f.takes_all, f.takes_unbadged, f.badges, f.serves) AS blocked_by,
       CASE
           WHEN t.status NOT IN ('pending', 'failed') THEN NULL
           WHEN t.unmet_deps > 0 THEN (SELECT min(d.id) FROM task_queue d WHERE d.id = ANY (t.dependencies) AND d.status <> 'completed')
           WHEN t.parked_on > 0 THEN t.parked_on
       END AS at_task,
       CASE WHEN t.status = 'failed' AND t.retry_after > clock_timestamp() THEN t.retry_after END AS until
  FROM task_queue t CROSS JOIN fleet f LEFT JOIN paused_task_type p ON p.task_type = t.task_type
 WHERE NOT t.final;
