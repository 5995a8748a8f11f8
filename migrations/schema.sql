-- The schema of a fresh database, dumped and normalised. Never edited: the test `schema::schema_sql_shows_a_fresh_database` writes
-- `schema.sql.new` beside it where the two differ; read that, and rename it.

CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;

CREATE TYPE pathrange AS RANGE (
    subtype = text,
    multirange_type_name = pathmultirange,
    collation = pg_catalog."C"
);

CREATE DOMAIN task_error_type AS text
	CONSTRAINT task_error_type_check CHECK ((VALUE = ANY (ARRAY['retryable'::text, 'permanent'::text, 'timeout'::text, 'dependency'::text])));

CREATE DOMAIN task_lane AS text
	CONSTRAINT task_lane_check CHECK ((VALUE = ANY (ARRAY['cpu'::text, 'model'::text, 'llm'::text, 'io'::text])));

CREATE DOMAIN task_status AS text
	CONSTRAINT task_status_check CHECK ((VALUE = ANY (ARRAY['pending'::text, 'claimed'::text, 'running'::text, 'batched'::text, 'completed'::text, 'failed'::text])));

CREATE DOMAIN task_write_mode AS text
	CONSTRAINT task_write_mode_check CHECK ((VALUE = ANY (ARRAY['self'::text, 'children'::text, 'subtree'::text])));

CREATE FUNCTION blocked_by(status text, is_lapsed boolean, has_unmet boolean, backs_off boolean, is_paused boolean, is_parked boolean, task_type text, badge text, workers bigint, takes_all boolean, takes_unbadged boolean, badges text[], task_types text[]) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
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

CREATE TABLE task_queue (
    id bigint NOT NULL,
    task_type text NOT NULL,
    scope_document_id bigint NOT NULL,
    status task_status DEFAULT 'pending'::text NOT NULL,
    write_mode task_write_mode NOT NULL,
    dependencies bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    params jsonb DEFAULT '{}'::jsonb NOT NULL,
    param_fingerprint text DEFAULT ''::text NOT NULL,
    service_badge text,
    claimed_by text,
    heartbeat_at timestamp with time zone,
    batch_id text,
    batched_at timestamp with time zone,
    retry_count integer DEFAULT 0 NOT NULL,
    max_retries integer DEFAULT 5 NOT NULL,
    retry_after timestamp with time zone,
    error_type task_error_type,
    priority integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    lane task_lane NOT NULL,
    node_path text NOT NULL COLLATE pg_catalog."C",
    node_depth integer NOT NULL,
    root_id bigint NOT NULL,
    first_leaf text COLLATE pg_catalog."C",
    last_leaf text COLLATE pg_catalog."C",
    ready boolean DEFAULT true NOT NULL,
    unmet_deps integer DEFAULT 0 NOT NULL,
    parked_on bigint,
    park_count integer DEFAULT 0 NOT NULL,
    parked_since timestamp with time zone,
    claim_token uuid,
    lease_until timestamp with time zone,
    lapses integer DEFAULT 0 NOT NULL,
    lease_losses integer DEFAULT 0 NOT NULL,
    cancel_requested_at timestamp with time zone,
    final boolean DEFAULT false NOT NULL
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE FUNCTION claim_at_end(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], lease_of interval) RETURNS SETOF task_queue
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF pg_try_advisory_xact_lock(claim_lock) THEN
        RETURN QUERY SELECT * FROM claim_batch(claim_lock, worker_id, badges, strict, lanes, wants, 8, interval '60 seconds', lease_of);
    END IF;
END $$;

CREATE FUNCTION claim_batch(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], intent_after_parks integer, intent_after interval, lease_of interval) RETURNS SETOF task_queue
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    -- How many rows one claim looks at beyond those that it grants, so that nobody waits long for the lock.
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
    -- A claimer that queues for the lock must be woken before the next claim begins, and with many in the queue that takes longer than the
    -- claims themselves. So each claimer tries by itself, and queues only after trying in vain for long.
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
        -- This scan meets every region that ended and so marks its entry as dead: from then on the checks skip the entry, and
        -- its page has room again. Otherwise the checks would slow down until the next vacuum.
        PERFORM count(*) FROM task_reservation r WHERE r.prange && pathrange(NULL, NULL) AND r.drange && int4range(NULL, NULL);
    END IF;
    -- Usually nothing is in the way.
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
    -- This looks further and further ahead: it parks blocked tasks and grants the others.
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
        -- Younger tasks stand back for an intent, also in the claim that leaves it.
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

CREATE FUNCTION end_task(task bigint, token uuid, document bigint, of_type text, attempt_number integer, how text, by_worker text, begun timestamp with time zone, fingerprint text, what jsonb) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    IF NOT finish_task(task, token, document, of_type, attempt_number, how, by_worker, begun, fingerprint, what) THEN
        RAISE EXCEPTION 'the claim of task % is stale, or a cancel was asked for', task USING ERRCODE = 'SV001';
    END IF;
    RETURN EXISTS (SELECT 1 FROM task_queue WHERE parked_on = task);
END $$;

CREATE FUNCTION find_blocker(candidate task_queue) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION find_forgotten_releases() RETURNS bigint
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION finish_task(task bigint, token uuid, document bigint, of_type text, attempt_number integer, how text, by_worker text, begun timestamp with time zone, fingerprint text, what jsonb) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE is_done boolean;
BEGIN
    WITH done AS (
        UPDATE task_queue SET status = 'completed', final = true, claim_token = NULL, heartbeat_at = NULL, error_type = NULL
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

CREATE FUNCTION forget_attempts() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    DELETE FROM task_attempts WHERE document_id = OLD.id;
    RETURN NULL;
END $$;

CREATE FUNCTION free_region() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    DELETE FROM task_reservation WHERE task_id = OLD.id;
    RETURN NULL;
END $$;

CREATE FUNCTION grant_tasks(worker_id text, tasks bigint[], lease_of interval) RETURNS SETOF task_queue
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION is_lapsed(lease_until timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(lease_until < clock_timestamp(), true) $$;

CREATE FUNCTION lock_ready_tasks(badges text[], strict boolean, lanes text[], wants integer[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF badges IS NULL THEN
        RETURN ARRAY(
            SELECT t.id FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
                SELECT q.id FROM task_queue q WHERE q.ready AND q.lane = wanted.lane
                 ORDER BY q.priority DESC, q.created_at, q.id LIMIT wanted.want FOR NO KEY UPDATE SKIP LOCKED) t);
    END IF;
    RETURN ARRAY(
        SELECT t.id FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
            SELECT q.id FROM task_queue q WHERE q.id = ANY (ARRAY(
                SELECT x.id FROM unnest(CASE WHEN strict THEN badges ELSE array_append(badges, '') END) AS key(badge) CROSS JOIN LATERAL (
                    SELECT y.id, y.priority, y.created_at FROM task_queue y
                     WHERE y.ready AND y.lane = wanted.lane AND coalesce(y.service_badge, '') = key.badge
                     ORDER BY y.priority DESC, y.created_at, y.id LIMIT wanted.want) x
                 ORDER BY x.priority DESC, x.created_at, x.id LIMIT wanted.want)) AND q.ready
             FOR NO KEY UPDATE SKIP LOCKED) t);
END $$;

CREATE FUNCTION park_tasks(tasks bigint[], blockers bigint[], intent_after_parks integer, intent_after interval) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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
    -- From here on the end of each blocker announces itself. A blocker whose row is locked is ending now, and one without a row has ended
    -- since we looked: the next claim looks at those in any case.
    UPDATE task_reservation r SET is_waited_for = true WHERE r.task_id = ANY (ARRAY(
        SELECT h.task_id FROM task_reservation h WHERE h.task_id = ANY (blockers) AND NOT h.is_waited_for FOR NO KEY UPDATE SKIP LOCKED));
    INSERT INTO task_release
    SELECT DISTINCT b.id FROM unnest(blockers) AS b(id)
     WHERE b.id > 0 AND NOT EXISTS (SELECT 1 FROM task_reservation r WHERE r.task_id = b.id AND r.is_waited_for)
       AND NOT EXISTS (SELECT 1 FROM task_intent i WHERE i.task_id = b.id)
       AND NOT EXISTS (SELECT 1 FROM task_release l WHERE l.task_id = b.id);
    RETURN intents > 0;
END $$;

CREATE FUNCTION region_depths(depth integer, mode text, first_leaf text) RETURNS int4range
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN first_leaf IS NOT NULL THEN int4range(depth + 1, NULL)
                WHEN mode = 'self' THEN int4range(depth, depth, '[]')
                WHEN mode = 'children' THEN int4range(depth, depth + 1, '[]')
                ELSE int4range(depth, NULL) END $$;

CREATE FUNCTION region_paths(path text, mode text, first_leaf text, last_leaf text) RETURNS pathrange
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT (CASE WHEN first_leaf IS NOT NULL THEN '[' || first_leaf || ',' || left(last_leaf, -1) || '0)'
                 WHEN mode = 'self' THEN '[' || path || ',' || path || ']'
                 ELSE '[' || path || ',' || left(path, -1) || '0)' END)::pathrange $$;

CREATE FUNCTION release_blob() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF current_setting('svc.unlink_later', true) = 'on' THEN
        INSERT INTO blob_orphan VALUES (OLD.lob);
    ELSE
        PERFORM lo_unlink(OLD.lob);
    END IF;
    RETURN OLD;
END $$;

CREATE FUNCTION retryable(t task_queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT t.error_type IN ('retryable', 'timeout') $$;

CREATE FUNCTION stand_back(candidates bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN ARRAY(
        SELECT t.id FROM task_queue t
         WHERE t.id = ANY (candidates) AND NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.task_type = t.task_type)
           AND NOT EXISTS (SELECT 1 FROM task_intent i
                            WHERE i.prange && region_paths(t.node_path, t.write_mode, t.first_leaf, t.last_leaf)
                              AND i.drange && region_depths(t.node_depth, t.write_mode, t.first_leaf) AND i.task_id <> t.id
                              AND (i.priority > t.priority OR (i.priority = t.priority AND (i.created_at, i.task_id) < (t.created_at, t.id)))));
END $$;

CREATE FUNCTION start_tasks(tasks bigint[], tokens uuid[], lease_of interval) RETURNS uuid[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION task_priority(upload integer, stage integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT upload * 10 + stage $$;

CREATE FUNCTION tell_of_release() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO task_release VALUES (OLD.task_id);
    RETURN NULL;
END $$;

CREATE FUNCTION tell_of_resumption() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO task_release VALUES (-OLD.id);
    RETURN NULL;
END $$;

CREATE FUNCTION wake_tasks() RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION with_upload_priority(priority integer, upload integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT task_priority(upload, mod(mod(priority, 10) + 10, 10)) $$;

CREATE TABLE access_grants (
    principal_id bigint NOT NULL,
    document_id bigint NOT NULL,
    can_write boolean NOT NULL
);

CREATE TABLE access_roots (
    document_id bigint NOT NULL,
    above bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE blob_orphan (
    lob oid NOT NULL
);

CREATE TABLE document_blobs (
    document_id bigint NOT NULL,
    lob oid NOT NULL,
    mime_type text,
    declared_mime text,
    detected_by text,
    format text,
    byte_size bigint NOT NULL,
    content_hash text NOT NULL,
    options jsonb NOT NULL
);

CREATE TABLE document_links (
    id bigint NOT NULL,
    source_id bigint NOT NULL,
    target_id bigint NOT NULL,
    link_type text NOT NULL,
    score double precision,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE document_links ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME document_links_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE document_vectors (
    document_id bigint NOT NULL,
    root_id bigint NOT NULL,
    embed_model text NOT NULL,
    embed halfvec NOT NULL
);
ALTER TABLE ONLY document_vectors ALTER COLUMN embed SET STORAGE PLAIN;

CREATE TABLE document_words (
    document_id bigint NOT NULL,
    words tsvector NOT NULL
);

CREATE TABLE documents (
    id bigint NOT NULL,
    parent_id bigint,
    path bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    title text NOT NULL,
    content text NOT NULL,
    structured_content jsonb DEFAULT '{}'::jsonb NOT NULL,
    usetype text NOT NULL,
    "position" integer,
    event_time timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    content_hash text NOT NULL,
    settled text DEFAULT 'settled'::text NOT NULL,
    guard bigint NOT NULL,
    CONSTRAINT documents_settled_check CHECK ((settled = ANY (ARRAY['in_flight'::text, 'settled'::text, 'failed'::text]))),
    CONSTRAINT documents_structured_content_check CHECK ((jsonb_typeof(structured_content) = 'object'::text))
)
WITH (fillfactor='85');

ALTER TABLE documents ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME documents_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE extractions (
    document_id bigint NOT NULL,
    text text NOT NULL,
    layout jsonb NOT NULL
);

CREATE TABLE workers (
    worker_id text NOT NULL,
    boot_nonce uuid NOT NULL,
    version text NOT NULL,
    badges text[] NOT NULL,
    strict boolean DEFAULT false NOT NULL,
    task_types text[] NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    beat_at timestamp with time zone DEFAULT now() NOT NULL,
    lease interval NOT NULL,
    snapshot jsonb DEFAULT '{}'::jsonb NOT NULL
);

CREATE VIEW fleet AS
 WITH alive AS (
         SELECT workers.badges,
            workers.strict,
            workers.task_types
           FROM workers
          WHERE (workers.beat_at > (now() - workers.lease))
        )
 SELECT count(*) AS workers,
    COALESCE(bool_or((badges = '{}'::text[])), false) AS takes_all,
    COALESCE(bool_or((NOT strict)), false) AS takes_unbadged,
    COALESCE(( SELECT array_agg(DISTINCT b.b) AS array_agg
           FROM alive alive_1,
            LATERAL unnest(alive_1.badges) b(b)), '{}'::text[]) AS badges,
    COALESCE(( SELECT array_agg(DISTINCT y.y) AS array_agg
           FROM alive alive_1,
            LATERAL unnest(alive_1.task_types) y(y)), '{}'::text[]) AS task_types
   FROM alive;

CREATE TABLE frontier_delta (
    root_id bigint NOT NULL,
    total bigint NOT NULL,
    in_flight bigint NOT NULL,
    settled bigint NOT NULL,
    failed bigint NOT NULL
);

CREATE TABLE ingest_node (
    document_id bigint NOT NULL,
    parent_id bigint,
    file_root bigint NOT NULL,
    open_tasks integer DEFAULT 0 NOT NULL,
    open_children integer DEFAULT 0 NOT NULL,
    failed_children integer DEFAULT 0 NOT NULL,
    tokens bigint DEFAULT 0 NOT NULL,
    rollup text DEFAULT 'none'::text NOT NULL,
    cancelled boolean DEFAULT false NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    CONSTRAINT ingest_node_open_children_check CHECK ((open_children >= 0)),
    CONSTRAINT ingest_node_open_tasks_check CHECK ((open_tasks >= 0)),
    CONSTRAINT ingest_node_rollup_check CHECK ((rollup = ANY (ARRAY['none'::text, 'queued'::text, 'done'::text])))
);

CREATE TABLE node_evidence (
    document_id bigint NOT NULL,
    name text NOT NULL,
    value jsonb NOT NULL,
    recorded_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE node_origins (
    document_id bigint NOT NULL,
    rule text NOT NULL,
    anchor jsonb
);

CREATE TABLE paused_task_type (
    id bigint NOT NULL,
    task_type text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE paused_task_type ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME paused_task_type_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE schema_functions (
    name text NOT NULL,
    hash text NOT NULL,
    migration bigint NOT NULL,
    version text NOT NULL,
    replaced_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE SEQUENCE search_docno_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE search_index_deltas (
    id bigint NOT NULL,
    index_id bigint NOT NULL,
    docs integer NOT NULL,
    tokens bigint NOT NULL
);

ALTER TABLE search_index_deltas ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME search_index_deltas_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE search_index_entries (
    index_id bigint NOT NULL,
    docno integer NOT NULL,
    document_id bigint NOT NULL,
    length integer NOT NULL,
    terms integer[] NOT NULL,
    tfs smallint[] NOT NULL
);

CREATE TABLE search_index_members (
    index_id bigint NOT NULL,
    root_document_id bigint NOT NULL
);

CREATE TABLE search_indexes (
    id bigint NOT NULL,
    name text NOT NULL,
    config jsonb NOT NULL,
    capabilities jsonb DEFAULT '{"bm25": true, "maxsim": false}'::jsonb NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    rescored_at bigint DEFAULT 0 NOT NULL,
    avgdl_built double precision DEFAULT 0 NOT NULL,
    docs bigint DEFAULT 0 NOT NULL,
    tokens bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT search_indexes_name_check CHECK ((name <> ''::text))
);

ALTER TABLE search_indexes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME search_indexes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE search_term_postings (
    index_id bigint NOT NULL,
    term_id integer NOT NULL,
    first_doc integer NOT NULL,
    last_doc integer NOT NULL,
    n integer NOT NULL,
    ub real NOT NULL,
    sealed boolean NOT NULL,
    data bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02');
ALTER TABLE ONLY search_term_postings ALTER COLUMN data SET STORAGE PLAIN;

CREATE TABLE search_term_stats (
    index_id bigint NOT NULL,
    term text NOT NULL COLLATE pg_catalog."C",
    term_id integer NOT NULL,
    df integer DEFAULT 0 NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    avgdl_built real DEFAULT 0 NOT NULL,
    seal bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='80');

CREATE SEQUENCE search_term_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE search_term_seq OWNED BY search_term_stats.term_id;

CREATE TABLE search_term_tombstones (
    index_id bigint NOT NULL,
    term_id integer NOT NULL,
    first_doc integer NOT NULL,
    docs integer[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02');

CREATE TABLE settle_event (
    id bigint NOT NULL,
    file_root bigint NOT NULL,
    document_id bigint NOT NULL,
    done integer NOT NULL,
    failed integer NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE settle_event ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME settle_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE task_attempts (
    id bigint NOT NULL,
    document_id bigint NOT NULL,
    task_id bigint NOT NULL,
    task_type text NOT NULL,
    attempt integer NOT NULL,
    outcome text NOT NULL,
    error_type text,
    code text,
    message text,
    worker text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    param_fingerprint text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE task_attempts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME task_attempts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW task_blockage AS
 SELECT t.id AS task_id,
    blocked_by((t.status)::text, (((t.status)::text = ANY (ARRAY['claimed'::text, 'running'::text])) AND is_lapsed(t.lease_until)), (t.unmet_deps > 0), (t.retry_after > clock_timestamp()), ((t.parked_on < 0) OR (p.id IS NOT NULL)), (t.parked_on IS NOT NULL), t.task_type, t.service_badge, f.workers, f.takes_all, f.takes_unbadged, f.badges, f.task_types) AS blocked_by,
        CASE
            WHEN ((t.status)::text <> ALL (ARRAY['pending'::text, 'failed'::text])) THEN NULL::bigint
            WHEN (t.unmet_deps > 0) THEN ( SELECT min(d.id) AS min
               FROM task_queue d
              WHERE ((d.id = ANY (t.dependencies)) AND ((d.status)::text <> 'completed'::text)))
            WHEN (t.parked_on > 0) THEN t.parked_on
            ELSE NULL::bigint
        END AS at_task,
        CASE
            WHEN (((t.status)::text = 'failed'::text) AND (t.retry_after > clock_timestamp())) THEN t.retry_after
            ELSE NULL::timestamp with time zone
        END AS until
   FROM ((task_queue t
     CROSS JOIN fleet f)
     LEFT JOIN paused_task_type p ON ((p.task_type = t.task_type)))
  WHERE (NOT t.final);

CREATE TABLE task_intent (
    task_id bigint NOT NULL,
    priority integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    prange pathrange NOT NULL,
    drange int4range NOT NULL
);

CREATE TABLE task_loss (
    task_id bigint NOT NULL,
    boot_nonce uuid NOT NULL,
    lost_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE task_queue ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME task_queue_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE task_release (
    task_id bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0');

CREATE TABLE task_reservation (
    task_id bigint NOT NULL,
    claim_token uuid NOT NULL,
    worker text NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL,
    node_path text NOT NULL COLLATE pg_catalog."C",
    node_depth integer NOT NULL,
    write_mode text NOT NULL,
    prange pathrange NOT NULL,
    drange int4range NOT NULL,
    is_waited_for boolean DEFAULT false NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE token_embeddings (
    document_id bigint NOT NULL,
    token_idx integer NOT NULL,
    token_id integer NOT NULL,
    tier smallint NOT NULL,
    embed_256 halfvec(256),
    embed_384 halfvec(384),
    embed_512 halfvec(512),
    CONSTRAINT token_embeddings_tier_check CHECK (((tier >= 10) AND (tier <= 100)))
);
ALTER TABLE ONLY token_embeddings ALTER COLUMN embed_256 SET STORAGE PLAIN;
ALTER TABLE ONLY token_embeddings ALTER COLUMN embed_384 SET STORAGE PLAIN;
ALTER TABLE ONLY token_embeddings ALTER COLUMN embed_512 SET STORAGE PLAIN;

CREATE TABLE token_packs (
    document_id bigint NOT NULL,
    model text NOT NULL,
    width integer NOT NULL,
    tokens integer NOT NULL,
    vectors bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT token_packs_check CHECK ((octet_length(vectors) = ((2 * width) * tokens))),
    CONSTRAINT token_packs_tokens_check CHECK ((tokens >= 0)),
    CONSTRAINT token_packs_width_check CHECK ((width > 0))
);
ALTER TABLE ONLY token_packs ALTER COLUMN vectors SET STORAGE EXTERNAL;

CREATE TABLE upkeep_turn (
    name text NOT NULL,
    taken_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY search_term_stats ALTER COLUMN term_id SET DEFAULT nextval('search_term_seq'::regclass);

ALTER TABLE ONLY access_grants
    ADD CONSTRAINT access_grants_pkey PRIMARY KEY (principal_id, document_id);

ALTER TABLE ONLY access_roots
    ADD CONSTRAINT access_roots_pkey PRIMARY KEY (document_id);

ALTER TABLE ONLY blob_orphan
    ADD CONSTRAINT blob_orphan_pkey PRIMARY KEY (lob);

ALTER TABLE ONLY document_blobs
    ADD CONSTRAINT document_blobs_lob_key UNIQUE (lob);

ALTER TABLE ONLY document_blobs
    ADD CONSTRAINT document_blobs_pkey PRIMARY KEY (document_id);

ALTER TABLE ONLY document_links
    ADD CONSTRAINT document_links_pkey PRIMARY KEY (id);

ALTER TABLE ONLY document_links
    ADD CONSTRAINT document_links_source_id_target_id_link_type_key UNIQUE (source_id, target_id, link_type);

ALTER TABLE ONLY document_vectors
    ADD CONSTRAINT document_vectors_pkey PRIMARY KEY (document_id) INCLUDE (embed_model);

ALTER TABLE ONLY document_words
    ADD CONSTRAINT document_words_pkey PRIMARY KEY (document_id);

ALTER TABLE ONLY documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (id);

ALTER TABLE ONLY extractions
    ADD CONSTRAINT extractions_pkey PRIMARY KEY (document_id);

ALTER TABLE ONLY ingest_node
    ADD CONSTRAINT ingest_node_pkey PRIMARY KEY (document_id);

ALTER TABLE ONLY node_evidence
    ADD CONSTRAINT node_evidence_pkey PRIMARY KEY (document_id, name);

ALTER TABLE ONLY node_origins
    ADD CONSTRAINT node_origins_pkey PRIMARY KEY (document_id);

ALTER TABLE ONLY paused_task_type
    ADD CONSTRAINT paused_task_type_pkey PRIMARY KEY (id);

ALTER TABLE ONLY paused_task_type
    ADD CONSTRAINT paused_task_type_task_type_key UNIQUE (task_type);

ALTER TABLE ONLY schema_functions
    ADD CONSTRAINT schema_functions_pkey PRIMARY KEY (name);

ALTER TABLE ONLY search_index_deltas
    ADD CONSTRAINT search_index_deltas_pkey PRIMARY KEY (id);

ALTER TABLE ONLY search_index_entries
    ADD CONSTRAINT search_index_entries_document UNIQUE (document_id, index_id);

ALTER TABLE ONLY search_index_entries
    ADD CONSTRAINT search_index_entries_pkey PRIMARY KEY (index_id, docno);

ALTER TABLE ONLY search_index_members
    ADD CONSTRAINT search_index_members_pkey PRIMARY KEY (index_id, root_document_id);

ALTER TABLE ONLY search_indexes
    ADD CONSTRAINT search_indexes_name_key UNIQUE (name);

ALTER TABLE ONLY search_indexes
    ADD CONSTRAINT search_indexes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY search_term_postings
    ADD CONSTRAINT search_term_postings_pkey PRIMARY KEY (index_id, sealed, term_id, first_doc);

ALTER TABLE ONLY search_term_stats
    ADD CONSTRAINT search_term_stats_pkey PRIMARY KEY (index_id, term);

ALTER TABLE ONLY search_term_tombstones
    ADD CONSTRAINT search_term_tombstones_pkey PRIMARY KEY (index_id, term_id, first_doc);

ALTER TABLE ONLY settle_event
    ADD CONSTRAINT settle_event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY task_attempts
    ADD CONSTRAINT task_attempts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY task_intent
    ADD CONSTRAINT task_intent_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY task_loss
    ADD CONSTRAINT task_loss_pkey PRIMARY KEY (task_id, lost_at);

ALTER TABLE ONLY task_queue
    ADD CONSTRAINT task_queue_pkey PRIMARY KEY (id);

ALTER TABLE ONLY task_reservation
    ADD CONSTRAINT task_reservation_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY task_reservation
    ADD CONSTRAINT task_reservation_prange_drange_excl EXCLUDE USING gist (prange WITH &&, drange WITH &&);

ALTER TABLE ONLY token_embeddings
    ADD CONSTRAINT token_embeddings_pkey PRIMARY KEY (document_id, token_idx);

ALTER TABLE ONLY token_packs
    ADD CONSTRAINT token_packs_pkey PRIMARY KEY (document_id);

ALTER TABLE ONLY upkeep_turn
    ADD CONSTRAINT upkeep_turn_pkey PRIMARY KEY (name);

ALTER TABLE ONLY workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (worker_id);

CREATE INDEX access_grants_document ON access_grants USING btree (document_id);

CREATE INDEX access_roots_above ON access_roots USING btree (above);

CREATE INDEX document_links_target ON document_links USING btree (target_id);

CREATE INDEX document_words_words ON document_words USING gin (words);

CREATE INDEX documents_file_hash ON documents USING btree (content_hash) WHERE (usetype = 'file'::text);

CREATE INDEX documents_guard ON documents USING btree (guard);

CREATE INDEX documents_path ON documents USING gin (path);

CREATE INDEX documents_roots ON documents USING btree (id) WHERE (parent_id IS NULL);

CREATE INDEX documents_siblings ON documents USING btree (parent_id, "position", id);

CREATE INDEX documents_unsettled ON documents USING btree (settled, id) WHERE (settled <> 'settled'::text);

CREATE INDEX frontier_delta_root ON frontier_delta USING btree (root_id);

CREATE INDEX ingest_node_cancelled ON ingest_node USING btree (document_id) WHERE cancelled;

CREATE INDEX ingest_node_parent ON ingest_node USING btree (parent_id);

CREATE INDEX ingest_node_root ON ingest_node USING btree (file_root);

CREATE INDEX search_index_deltas_index ON search_index_deltas USING btree (index_id) INCLUDE (docs, tokens);

CREATE UNIQUE INDEX search_term_stats_term_id ON search_term_stats USING btree (index_id, term_id);

CREATE INDEX settle_event_root ON settle_event USING btree (file_root, id);

CREATE INDEX task_attempts_document ON task_attempts USING btree (document_id, id);

CREATE INDEX task_intent_region ON task_intent USING gist (prange, drange);

CREATE INDEX task_loss_worker ON task_loss USING btree (boot_nonce);

CREATE INDEX task_queue_document_embeds ON task_queue USING btree (scope_document_id) WHERE ((task_type = 'embed'::text) AND (root_id = scope_document_id) AND ((NOT final) OR (error_type IS NOT NULL)));

CREATE INDEX task_queue_failed ON task_queue USING btree (id) WHERE (final AND (error_type IS NOT NULL));

CREATE INDEX task_queue_held ON task_queue USING btree (claim_token) WHERE (claim_token IS NOT NULL);

CREATE INDEX task_queue_open ON task_queue USING btree (root_id) WHERE (NOT final);

CREATE INDEX task_queue_parked ON task_queue USING btree (parked_on, priority DESC, created_at, id) WHERE (parked_on IS NOT NULL);

CREATE INDEX task_queue_ready ON task_queue USING btree (lane, priority DESC, created_at, id) WHERE ready;

CREATE INDEX task_queue_ready_badge ON task_queue USING btree (lane, COALESCE(service_badge, ''::text), priority DESC, created_at, id) WHERE ready;

CREATE INDEX task_queue_retry ON task_queue USING btree (retry_after) WHERE ((retry_after IS NOT NULL) AND (NOT ready) AND (NOT final) AND (parked_on IS NULL) AND (claim_token IS NULL));

CREATE INDEX task_queue_scope ON task_queue USING btree (scope_document_id);

CREATE INDEX task_queue_unfinished ON task_queue USING btree (task_type, created_at) WHERE (NOT final);

CREATE TRIGGER document_blobs_release AFTER DELETE ON document_blobs FOR EACH ROW EXECUTE FUNCTION release_blob();

CREATE TRIGGER documents_attempts AFTER DELETE ON documents FOR EACH ROW EXECUTE FUNCTION forget_attempts();

CREATE TRIGGER paused_task_type_release AFTER DELETE ON paused_task_type FOR EACH ROW EXECUTE FUNCTION tell_of_resumption();

CREATE TRIGGER task_intent_release AFTER DELETE ON task_intent FOR EACH ROW EXECUTE FUNCTION tell_of_release();

CREATE TRIGGER task_queue_region AFTER DELETE ON task_queue FOR EACH ROW EXECUTE FUNCTION free_region();

CREATE TRIGGER task_reservation_release AFTER DELETE ON task_reservation FOR EACH ROW WHEN (old.is_waited_for) EXECUTE FUNCTION tell_of_release();

ALTER TABLE ONLY access_grants
    ADD CONSTRAINT access_grants_document_id_fkey FOREIGN KEY (document_id) REFERENCES access_roots(document_id) ON DELETE CASCADE;

ALTER TABLE ONLY access_roots
    ADD CONSTRAINT access_roots_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY document_blobs
    ADD CONSTRAINT document_blobs_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY document_links
    ADD CONSTRAINT document_links_source_id_fkey FOREIGN KEY (source_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY document_links
    ADD CONSTRAINT document_links_target_id_fkey FOREIGN KEY (target_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY document_vectors
    ADD CONSTRAINT document_vectors_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY document_words
    ADD CONSTRAINT document_words_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY documents
    ADD CONSTRAINT documents_parent_id_fkey FOREIGN KEY (parent_id) REFERENCES documents(id);

ALTER TABLE ONLY extractions
    ADD CONSTRAINT extractions_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY ingest_node
    ADD CONSTRAINT ingest_node_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY node_evidence
    ADD CONSTRAINT node_evidence_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY node_origins
    ADD CONSTRAINT node_origins_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY search_index_members
    ADD CONSTRAINT search_index_members_index_id_fkey FOREIGN KEY (index_id) REFERENCES search_indexes(id) ON DELETE CASCADE;

ALTER TABLE ONLY task_intent
    ADD CONSTRAINT task_intent_task_id_fkey FOREIGN KEY (task_id) REFERENCES task_queue(id) ON DELETE CASCADE;

ALTER TABLE ONLY task_loss
    ADD CONSTRAINT task_loss_task_id_fkey FOREIGN KEY (task_id) REFERENCES task_queue(id) ON DELETE CASCADE;

ALTER TABLE ONLY task_queue
    ADD CONSTRAINT task_queue_scope_document_id_fkey FOREIGN KEY (scope_document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY token_embeddings
    ADD CONSTRAINT token_embeddings_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;

ALTER TABLE ONLY token_packs
    ADD CONSTRAINT token_packs_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents(id) ON DELETE CASCADE;
