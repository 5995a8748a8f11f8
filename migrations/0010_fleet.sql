-- What an operator may do to the queue, and what it says of itself.

ALTER TABLE workers ADD COLUMN strict boolean NOT NULL DEFAULT false;  -- leaves tasks without a badge alone

-- Task types that nobody may claim for now. A candidate of such a type is parked on the negative of this id.
CREATE TABLE paused_task_type (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_type text NOT NULL UNIQUE,
    since     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- As before, and passes over paused types.
CREATE OR REPLACE FUNCTION claim_tasks(worker_id text, badges text[], strict boolean, wanted_lane text, want integer, intent_after_parks integer, intent_after interval)
RETURNS SETOF task_queue LANGUAGE plpgsql AS $$
DECLARE
    candidate task_queue; held task_queue; got integer := 0; blocked integer; rounds integer := 0; blocker bigint; token uuid;
    paused jsonb := (SELECT coalesce(jsonb_object_agg(p.task_type, p.id), '{}') FROM paused_task_type p);
BEGIN
    LOOP
        blocked := 0; rounds := rounds + 1;
        FOR candidate IN SELECT * FROM ready_tasks(badges, strict, wanted_lane, want - got + 8) LOOP
            -- A row that is being deleted is not waited for, nor a reservation made that would outlive it.
            PERFORM 1 FROM task_queue t WHERE t.id = candidate.id AND t.ready FOR NO KEY UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            IF paused ? candidate.task_type THEN
                UPDATE task_queue t SET ready = false, parked_on = -(paused ->> candidate.task_type)::bigint WHERE t.id = candidate.id;
                blocked := blocked + 1;
                CONTINUE;
            END IF;
            SELECT * FROM try_reserve(candidate, worker_id) INTO token, blocker;
            IF token IS NOT NULL THEN
                UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
                       claim_token = token, parked_on = NULL, parked_since = NULL WHERE t.id = candidate.id RETURNING * INTO held;
                got := got + 1;
                RETURN NEXT held;
                EXIT WHEN got >= want;
            ELSE
                blocked := blocked + 1;
                PERFORM park_task(candidate, blocker, intent_after_parks, intent_after);
            END IF;
        END LOOP;
        EXIT WHEN got >= want OR blocked = 0 OR rounds >= 64;
    END LOOP;
END $$;

-- Why an unfinished task is not running: one reason a task, the nearest cause first; NULL where it runs as it should.
-- `at_task` is the task in the way, `until` the time it waits for.
CREATE VIEW task_blockage AS
WITH alive AS (SELECT badges, strict, task_types FROM workers WHERE beat_at > now() - lease),
fleet AS (
    SELECT count(*) AS workers, coalesce(bool_or(badges = '{}'), false) AS takes_all,
           coalesce(bool_or(NOT strict), false) AS takes_unbadged,
           coalesce((SELECT array_agg(DISTINCT b) FROM alive, unnest(badges) AS b), '{}') AS badges,
           coalesce((SELECT array_agg(DISTINCT y) FROM alive, unnest(task_types) AS y), '{}') AS task_types
      FROM alive)
SELECT t.id AS task_id,
       CASE
           WHEN t.status = 'batched' THEN 'batch_parked'
           WHEN t.status IN ('claimed', 'running') THEN
               CASE WHEN t.heartbeat_at < clock_timestamp() - coalesce((SELECT w.lease FROM workers w WHERE w.worker_id = t.claimed_by), interval '90 seconds')
                    THEN 'lease_lapsed' END
           WHEN t.unmet_deps > 0 THEN 'dependency'
           WHEN t.status = 'failed' AND t.retry_after > clock_timestamp() THEN 'backoff'
           WHEN t.parked_on < 0 OR p.id IS NOT NULL THEN 'paused'
           WHEN f.workers = 0 THEN 'no_worker'
           WHEN t.service_badge IS NULL AND NOT f.takes_unbadged THEN 'no_worker_for_badge'
           WHEN t.service_badge IS NOT NULL AND NOT f.takes_all AND t.service_badge <> ALL (f.badges) THEN 'no_worker_for_badge'
           WHEN t.task_type <> ALL (f.task_types) THEN 'no_handler'
           WHEN t.parked_on IS NOT NULL THEN 'reservation'
           ELSE 'workers_busy'
       END AS blocked_by,
       CASE
           WHEN t.status NOT IN ('pending', 'failed') THEN NULL
           WHEN t.unmet_deps > 0 THEN (SELECT min(d.id) FROM task_queue d WHERE d.id = ANY (t.dependencies) AND d.status <> 'completed')
           WHEN t.parked_on > 0 THEN t.parked_on
       END AS at_task,
       CASE WHEN t.status = 'failed' AND t.retry_after > clock_timestamp() THEN t.retry_after END AS until
  FROM task_queue t CROSS JOIN fleet f LEFT JOIN paused_task_type p ON p.task_type = t.task_type
 WHERE NOT t.final;
