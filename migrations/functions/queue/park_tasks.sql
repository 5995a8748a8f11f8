-- Takes blocked tasks out of the ready index until their blockers are gone; without this, every claim would scan a held subtree with
-- many tasks under it. A task that has waited too long leaves an intent, but not because of a pause. Returns whether some task left
-- one.
CREATE OR REPLACE FUNCTION park_tasks(tasks bigint[], blockers bigint[], intent_after_parks integer, intent_after interval) RETURNS boolean LANGUAGE plpgsql AS $$
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
