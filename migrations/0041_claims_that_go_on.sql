-- Claims that cost the same however much waits: what a task held up is found by its end, what is in the way is parked in a few
-- statements, and a claim that did not see the end of the line says so. A lease stands on its row, and a task that lost one runs alone.

-- Where tasks hold the tables for longer the migration gives up, and can be run again.
SET LOCAL lock_timeout = '5s';
-- In the order in which a task locks them.
LOCK TABLE task_queue, task_reservation, task_intent, paused_task_type;

-- Until when its worker has the task, by the worker's own lease; NULL where an older program claimed it.
ALTER TABLE task_queue ADD COLUMN lease_until timestamptz;
-- Of a task that writes the leaves from one to another under its node and nothing else: their keys, the first and the last of them.
ALTER TABLE task_queue ADD COLUMN first_leaf text COLLATE "C", ADD COLUMN last_leaf text COLLATE "C";
-- Something is parked on it, or was.
ALTER TABLE task_reservation ADD COLUMN is_waited_for boolean NOT NULL DEFAULT false;
UPDATE task_reservation r SET is_waited_for = true WHERE EXISTS (SELECT 1 FROM task_queue q WHERE q.parked_on = r.task_id);

-- Blockers that may be gone: the next claim looks at what is parked on them. A task's id, or the negative of a pause's.
CREATE TABLE task_release (task_id bigint NOT NULL)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
INSERT INTO task_release SELECT DISTINCT parked_on FROM task_queue WHERE parked_on IS NOT NULL;

CREATE FUNCTION tell_of_release() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO task_release VALUES (OLD.task_id);
    RETURN NULL;
END $$;
CREATE TRIGGER task_reservation_release AFTER DELETE ON task_reservation FOR EACH ROW WHEN (OLD.is_waited_for) EXECUTE FUNCTION tell_of_release();
CREATE TRIGGER task_intent_release AFTER DELETE ON task_intent FOR EACH ROW EXECUTE FUNCTION tell_of_release();

CREATE FUNCTION tell_of_resumption() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO task_release VALUES (-OLD.id);
    RETURN NULL;
END $$;
CREATE TRIGGER paused_task_type_release AFTER DELETE ON paused_task_type FOR EACH ROW EXECUTE FUNCTION tell_of_resumption();

-- The region of a task, which is that of its write mode, or its leaves. Those have the depths below the task's node, so that they meet
-- whatever has the node's children or its subtree, and not what has the node alone.
CREATE FUNCTION region_paths(path text, mode text, first_leaf text, last_leaf text) RETURNS pathrange LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (CASE WHEN first_leaf IS NOT NULL THEN '[' || first_leaf || ',' || left(last_leaf, -1) || '0)'
                 WHEN mode = 'self' THEN '[' || path || ',' || path || ']'
                 ELSE '[' || path || ',' || left(path, -1) || '0)' END)::pathrange $$;
CREATE FUNCTION region_depths(depth integer, mode text, first_leaf text) RETURNS int4range LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN first_leaf IS NOT NULL THEN int4range(depth + 1, NULL)
                WHEN mode = 'self' THEN int4range(depth, depth, '[]')
                WHEN mode = 'children' THEN int4range(depth, depth + 1, '[]')
                ELSE int4range(depth, NULL) END $$;

-- Makes ready what may be claimed again: retries whose time has come, and tasks whose blocker is gone; a few at a time, so that no
-- claim waits long. A blocker that is still there, since its end is not committed or since it was claimed once more, is looked at again
-- by the next claim.
CREATE OR REPLACE FUNCTION wake_tasks() RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE gone bigint[];
BEGIN
    IF EXISTS (SELECT 1 FROM task_queue WHERE retry_after <= now() AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL) THEN
        UPDATE task_queue t SET ready = true WHERE t.id = ANY (ARRAY(
            SELECT q.id FROM task_queue q
             WHERE q.retry_after <= now() AND NOT q.ready AND NOT q.final AND q.parked_on IS NULL AND q.claim_token IS NULL AND q.status = 'failed'
             ORDER BY q.retry_after LIMIT 100 FOR UPDATE SKIP LOCKED));
    END IF;
    gone := ARRAY(
        SELECT r.task_id FROM (SELECT DISTINCT task_id FROM task_release) r
         WHERE NOT EXISTS (SELECT 1 FROM task_reservation h WHERE h.task_id = r.task_id)
           AND NOT EXISTS (SELECT 1 FROM task_intent i WHERE i.task_id = r.task_id)
           AND NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.id = -r.task_id));
    IF gone = '{}' THEN
        RETURN;
    END IF;
    WITH woken AS (
        SELECT q.id FROM task_queue q WHERE q.parked_on IS NOT NULL AND q.id = ANY (ARRAY(
            SELECT w.id FROM unnest(gone) AS blocker(id) CROSS JOIN LATERAL (
                SELECT p.id, p.priority, p.created_at FROM task_queue p WHERE p.parked_on = blocker.id
                 ORDER BY p.priority DESC, p.created_at, p.id LIMIT 32) w
             ORDER BY w.priority DESC, w.created_at, w.id LIMIT 32))
           FOR UPDATE SKIP LOCKED)
    UPDATE task_queue t SET ready = (t.status IN ('pending', 'failed') AND NOT t.final AND t.unmet_deps = 0), parked_on = NULL
      FROM woken WHERE t.id = woken.id;
    DELETE FROM task_release r WHERE r.task_id = ANY (gone) AND NOT EXISTS (SELECT 1 FROM task_queue p WHERE p.parked_on = r.task_id);
END $$;

-- Says of every blocker which is gone that it may be, should that ever have been forgotten. For a sweep: it steps through the parked
-- tasks from blocker to blocker. Returns how many there were that nobody had told of.
CREATE FUNCTION find_forgotten_releases() RETURNS bigint LANGUAGE sql SET enable_seqscan = off AS $$
    WITH RECURSIVE blocker(id) AS (
        (SELECT q.parked_on FROM task_queue q WHERE q.parked_on IS NOT NULL ORDER BY q.parked_on LIMIT 1)
        UNION ALL
        SELECT (SELECT q.parked_on FROM task_queue q WHERE q.parked_on > b.id ORDER BY q.parked_on LIMIT 1) FROM blocker b WHERE b.id IS NOT NULL),
    forgotten AS (
        INSERT INTO task_release
        SELECT b.id FROM blocker b
         WHERE b.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task_release l WHERE l.task_id = b.id)
           AND NOT EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = b.id)
           AND NOT EXISTS (SELECT 1 FROM task_intent i WHERE i.task_id = b.id)
           AND NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.id = -b.id)
        RETURNING 1)
    SELECT count(*) FROM forgotten $$;

-- As before, for leaves too.
CREATE OR REPLACE FUNCTION stand_back(candidates bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT t.id FROM task_queue t
         WHERE t.id = ANY (candidates) AND NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.task_type = t.task_type)
           AND NOT EXISTS (SELECT 1 FROM task_intent i
                            WHERE i.prange && region_paths(t.node_path, t.write_mode, t.first_leaf, t.last_leaf)
                              AND i.drange && region_depths(t.node_depth, t.write_mode, t.first_leaf) AND i.task_id <> t.id
                              AND (i.priority > t.priority OR (i.priority = t.priority AND (i.created_at, i.task_id) < (t.created_at, t.id)))));
END $$;

CREATE OR REPLACE FUNCTION find_blocker(candidate task_queue) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    paths pathrange := region_paths(candidate.node_path, candidate.write_mode, candidate.first_leaf, candidate.last_leaf);
    depths int4range := region_depths(candidate.node_depth, candidate.write_mode, candidate.first_leaf);
BEGIN
    RETURN coalesce(
        (SELECT -p.id FROM paused_task_type p WHERE p.task_type = candidate.task_type),
        (SELECT i.task_id FROM task_intent i
          WHERE i.prange && paths AND i.drange && depths AND i.task_id <> candidate.id
            AND (i.priority > candidate.priority OR (i.priority = candidate.priority AND (i.created_at, i.task_id) < (candidate.created_at, candidate.id)))
          LIMIT 1),
        (SELECT r.task_id FROM task_reservation r WHERE r.prange && paths AND r.drange && depths LIMIT 1));
END $$;

-- Takes blocked tasks out of the ready index until their blockers are gone; without this a held subtree with many tasks under it is
-- scanned whole by every claim. A pause gives no right to an intent. True where one laid down an intent.
CREATE FUNCTION park_tasks(tasks bigint[], blockers bigint[], intent_after_parks integer, intent_after interval) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE intents integer;
BEGIN
    WITH parked AS (
        UPDATE task_queue t SET ready = false, parked_on = p.blocker, park_count = t.park_count + (p.blocker > 0)::integer,
               parked_since = CASE WHEN p.blocker > 0 THEN coalesce(t.parked_since, now()) ELSE t.parked_since END
          FROM unnest(tasks, blockers) AS p(id, blocker) WHERE t.id = p.id
        RETURNING t.id, t.priority, t.created_at, t.node_path, t.node_depth, t.write_mode, t.first_leaf, t.last_leaf, t.park_count, t.parked_since, t.parked_on)
    INSERT INTO task_intent (task_id, priority, created_at, prange, drange)
    SELECT id, priority, created_at, region_paths(node_path, write_mode, first_leaf, last_leaf), region_depths(node_depth, write_mode, first_leaf)
      FROM parked WHERE parked_on > 0 AND (park_count >= intent_after_parks OR parked_since < now() - intent_after)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS intents = ROW_COUNT;
    -- The end of each blocker tells of itself from here on. One whose row is locked is ending just now, and one that has no row has ended
    -- since we looked: the next claim looks at those whatever their ends say.
    UPDATE task_reservation r SET is_waited_for = true WHERE r.task_id = ANY (ARRAY(
        SELECT h.task_id FROM task_reservation h WHERE h.task_id = ANY (blockers) AND NOT h.is_waited_for FOR NO KEY UPDATE SKIP LOCKED));
    INSERT INTO task_release
    SELECT DISTINCT b.id FROM unnest(blockers) AS b(id)
     WHERE b.id > 0 AND NOT EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = b.id AND r.is_waited_for)
       AND NOT EXISTS (SELECT 1 FROM task_intent i WHERE i.task_id = b.id)
       AND NOT EXISTS (SELECT 1 FROM task_release l WHERE l.task_id = b.id);
    RETURN intents > 0;
END $$;

-- Grants tasks whose rows the caller has locked, in their order, but for those whose regions meet one that is held, if only by
-- a transaction that is about to release it, or one that was granted before. To the end of `lease_of`, unless the worker beats.
CREATE FUNCTION grant_tasks(worker_id text, tasks bigint[], lease_of interval) RETURNS SETOF task_queue LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE token uuid;
BEGIN
    IF cardinality(tasks) = 1 THEN
        -- Nothing to join and nothing to sort.
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
                UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
                       lease_until = clock_timestamp() + lease_of, claim_token = token, parked_on = NULL, parked_since = NULL
                 WHERE t.id = tasks[1] RETURNING t.*;
        END IF;
        RETURN;
    END IF;
    RETURN QUERY
        WITH taken AS (
            INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
            SELECT t.id, gen_random_uuid(), worker_id, t.node_path, t.node_depth, t.write_mode,
                   region_paths(t.node_path, t.write_mode, t.first_leaf, t.last_leaf), region_depths(t.node_depth, t.write_mode, t.first_leaf)
              FROM task_queue t
             WHERE t.id = ANY (tasks) AND NOT EXISTS (
                   SELECT 1 FROM task_reservation r WHERE r.prange && region_paths(t.node_path, t.write_mode, t.first_leaf, t.last_leaf)
                      AND r.drange && region_depths(t.node_depth, t.write_mode, t.first_leaf))
             ORDER BY t.priority DESC, t.created_at, t.id
            ON CONFLICT DO NOTHING RETURNING task_id, claim_token)
        UPDATE task_queue t SET status = 'claimed', ready = false, claimed_by = worker_id, heartbeat_at = clock_timestamp(),
               lease_until = clock_timestamp() + lease_of, claim_token = taken.claim_token, parked_on = NULL, parked_since = NULL
          FROM taken WHERE t.id = taken.task_id RETURNING t.*;
END $$;

-- Claims up to `wants` tasks of each lane, under the one lock, in the exact order: priority descending, then age. Each statement of
-- a volatile function sees what was committed before it, so what is read under the lock is what its last holder left. The commit is
-- asynchronous, which is safe only because the token is random: a claim that a crash loses leaves its worker with a token that no row
-- has. `badges` NULL: takes every task. `strict`: leaves tasks without a badge alone. The settings hold every plan to the indexes: one
-- made while the queue was short serves when it is long.
-- A task that lost a lease is the last of its claim: its worker lets it run alone, in case it takes its worker with it.
-- A last row of NULLs says that the end of the line was not seen: whoever asks again at once may get more.
CREATE FUNCTION claim_batch(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], intent_after_parks integer, intent_after interval, lease_of interval)
RETURNS SETOF task_queue LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- Rows that one claim looks at beyond those that it grants, so that nobody waits long for the lock.
    most_looks constant integer := 1024;
    candidates bigint[]; free bigint[]; parked bigint[]; blockers bigint[]; has_lock boolean; some_wait boolean; has_intents boolean;
    has_pauses boolean; has_suspects boolean; got task_queue; granted integer; looks integer := 0; ahead integer := 32;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM unnest(lanes) AS wanted(lane) WHERE EXISTS (SELECT 1 FROM task_queue q WHERE q.ready AND q.lane = wanted.lane))
       AND NOT EXISTS (SELECT 1 FROM task_queue WHERE retry_after <= now() AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL)
       AND NOT EXISTS (SELECT 1 FROM task_release) THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    -- Whoever stands in line for the lock has to be woken before the next claim begins, and with many in line that takes longer than the
    -- claims. So each looks again by itself, and stands in line only where that was in vain for long.
    FOR try IN 1 .. 100 LOOP
        has_lock := pg_try_advisory_xact_lock(claim_lock);
        EXIT WHEN has_lock;
        PERFORM pg_sleep(0.0005 + random() * 0.002 * least(try, 20));
    END LOOP;
    IF NOT has_lock THEN
        PERFORM pg_advisory_xact_lock(claim_lock);
    END IF;
    PERFORM set_config('lock_timeout', '200ms', true);
    SELECT EXISTS (SELECT 1 FROM task_queue WHERE retry_after <= now() AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL)
           OR EXISTS (SELECT 1 FROM task_release),
           EXISTS (SELECT 1 FROM task_intent), EXISTS (SELECT 1 FROM paused_task_type)
      INTO some_wait, has_intents, has_pauses;
    IF some_wait THEN
        PERFORM wake_tasks();
    END IF;
    IF random() < 0.02 THEN
        -- Meets every region that ended, by which its entry is marked as dead: the checks pass over it from then on, and its
        -- page has room again. Otherwise they would slow down until the next vacuum.
        PERFORM count(*) FROM task_reservation r WHERE r.prange && pathrange(NULL, NULL) AND r.drange && int4range(NULL, NULL);
    END IF;
    -- Mostly nothing is in the way.
    IF badges IS NULL THEN
        SELECT array_agg(t.id), bool_or(t.lease_losses > 0) INTO candidates, has_suspects
          FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
            SELECT q.id, q.lease_losses FROM task_queue q WHERE q.ready AND q.lane = wanted.lane
             ORDER BY q.priority DESC, q.created_at, q.id LIMIT wanted.want FOR NO KEY UPDATE SKIP LOCKED) t;
    ELSE
        candidates := nullif(lock_ready_tasks(badges, strict, lanes, wants), '{}');
        has_suspects := EXISTS (SELECT 1 FROM task_queue t WHERE t.id = ANY (candidates) AND t.lease_losses > 0);
    END IF;
    IF candidates IS NULL THEN
        RETURN;
    END IF;
    IF NOT has_suspects THEN
        free := CASE WHEN has_intents OR has_pauses THEN stand_back(candidates) ELSE candidates END;
        granted := 0;
        IF free <> '{}' THEN
            FOR got IN SELECT * FROM grant_tasks(worker_id, free, lease_of) LOOP
                granted := granted + 1;
                wants[array_position(lanes, got.lane::text)] := wants[array_position(lanes, got.lane::text)] - 1;
                RETURN NEXT got;
            END LOOP;
            IF has_intents THEN
                DELETE FROM task_intent i WHERE i.task_id = ANY (free) AND EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = i.task_id);
            END IF;
        END IF;
        IF granted = cardinality(candidates) THEN
            RETURN;
        END IF;
    END IF;
    -- Looks further and further ahead: parks what is in somebody's way, grants what is not.
    WHILE 0 < ANY (wants) LOOP
        IF looks >= most_looks THEN
            RETURN NEXT NULL::task_queue;
            RETURN;
        END IF;
        candidates := lock_ready_tasks(badges, strict, lanes, ARRAY(SELECT CASE WHEN want > 0 THEN want + ahead ELSE 0 END FROM unnest(wants) AS want));
        EXIT WHEN candidates = '{}';
        looks := looks + cardinality(candidates);
        ahead := least(ahead * 4, 512);
        WITH seen AS MATERIALIZED (
            SELECT t.id, t.lane, t.priority, t.created_at, t.lease_losses > 0 AS is_suspect, find_blocker(t) AS blocker FROM task_queue t WHERE t.id = ANY (candidates)),
        first AS (
            SELECT s.id, s.is_suspect, s.priority, s.created_at FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
                SELECT x.* FROM seen x WHERE x.lane = wanted.lane AND x.blocker IS NULL
                 ORDER BY x.priority DESC, x.created_at, x.id LIMIT wanted.want) s),
        cut AS (
            SELECT f.id, coalesce(bool_or(f.is_suspect) OVER (ORDER BY f.priority DESC, f.created_at, f.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS is_behind
              FROM first f)
        SELECT ARRAY(SELECT c.id FROM cut c WHERE NOT c.is_behind),
               ARRAY(SELECT s.id FROM seen s WHERE s.blocker IS NOT NULL ORDER BY s.id),
               ARRAY(SELECT s.blocker FROM seen s WHERE s.blocker IS NOT NULL ORDER BY s.id)
          INTO free, parked, blockers;
        -- Younger ones stand back for an intent, also in the claim that lays it down.
        CONTINUE WHEN parked <> '{}' AND park_tasks(parked, blockers, intent_after_parks, intent_after);
        granted := 0;
        IF free <> '{}' THEN
            has_suspects := false;
            FOR got IN SELECT * FROM grant_tasks(worker_id, free, lease_of) LOOP
                granted := granted + 1;
                has_suspects := has_suspects OR got.lease_losses > 0;
                wants[array_position(lanes, got.lane::text)] := wants[array_position(lanes, got.lane::text)] - 1;
                RETURN NEXT got;
            END LOOP;
            DELETE FROM task_intent i WHERE i.task_id = ANY (free) AND EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = i.task_id);
            EXIT WHEN has_suspects;
        END IF;
        EXIT WHEN granted = 0 AND parked = '{}';
    END LOOP;
END $$;

-- For programs that write no lease and do not ask again.
CREATE OR REPLACE FUNCTION claim_batch(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], intent_after_parks integer, intent_after interval)
RETURNS SETOF task_queue LANGUAGE sql AS $$
    SELECT * FROM claim_batch(claim_lock, worker_id, badges, strict, lanes, wants, intent_after_parks, intent_after, NULL) c WHERE c.id IS NOT NULL $$;
DROP FUNCTION park_task(task_queue, bigint, integer, interval);

-- As before, and the lease of the worker begins anew.
CREATE FUNCTION start_tasks(tasks bigint[], tokens uuid[], lease_of interval) RETURNS uuid[] LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE started uuid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- By their ids, as everybody who locks several of them does.
    WITH held AS MATERIALIZED (SELECT id FROM task_queue WHERE id = ANY (tasks) AND claim_token = ANY (tokens) ORDER BY id FOR NO KEY UPDATE),
    begun AS (
        UPDATE task_queue SET status = 'running', heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + lease_of
         WHERE id IN (SELECT id FROM held) AND claim_token = ANY (tokens) AND status IN ('claimed', 'running') RETURNING claim_token)
    SELECT array_agg(claim_token) INTO started FROM begun;
    RETURN coalesce(started, '{}');
END $$;

-- By the lease on the row; of an older program's claim by what its worker said of its lease.
CREATE FUNCTION is_lapsed(lease_until timestamptz, worker text, heartbeat timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN lease_until IS NOT NULL THEN lease_until < clock_timestamp() ELSE is_lapsed(worker, heartbeat) END $$;

CREATE OR REPLACE VIEW task_blockage AS
SELECT t.id AS task_id,
       blocked_by(t.status, t.status IN ('claimed', 'running') AND is_lapsed(t.lease_until, t.claimed_by, t.heartbeat_at), t.unmet_deps > 0,
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
