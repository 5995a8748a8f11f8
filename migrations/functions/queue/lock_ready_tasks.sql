-- Locks the first ready tasks of each lane and returns their ids. It does not wait for a row that is being deleted. A worker with
-- badges merges one index scan per badge, because a single scan would read every task that waits for another badge. Each scan passes over
-- rows that somebody has locked, so that an edit which holds the first tasks of the line hides none of those behind them.
CREATE OR REPLACE FUNCTION lock_ready_tasks(badges text[], strict boolean, lanes text[], wants integer[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    IF badges IS NULL THEN
        RETURN ARRAY(
            SELECT t.id FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
                SELECT q.id FROM task_queue q WHERE q.ready AND q.lane = wanted.lane
                 ORDER BY q.priority DESC, q.created_at, q.id LIMIT wanted.want FOR NO KEY UPDATE SKIP LOCKED) t);
    END IF;
    RETURN ARRAY(
        SELECT t.id FROM unnest(lanes, wants) AS wanted(lane, want) CROSS JOIN LATERAL (
            SELECT x.id FROM (SELECT DISTINCT b FROM unnest(CASE WHEN strict THEN badges ELSE array_append(badges, '') END) AS b) AS key(badge) CROSS JOIN LATERAL (
                SELECT q.id, q.priority, q.created_at FROM task_queue q
                 WHERE q.ready AND q.lane = wanted.lane AND coalesce(q.service_badge, '') = key.badge
                 ORDER BY q.priority DESC, q.created_at, q.id LIMIT wanted.want FOR NO KEY UPDATE SKIP LOCKED) x
             ORDER BY x.priority DESC, x.created_at, x.id LIMIT wanted.want) t);
END $$;
