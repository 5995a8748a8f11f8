-- Makes tasks ready that may be claimed again: due retries, and tasks whose blocker is gone. It wakes a few at a time, so
-- that no claim waits long. A blocker that is still there, because its end is not committed or because it was claimed again, is
-- looked at again by the next claim.
CREATE OR REPLACE FUNCTION wake_tasks() RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE gone bigint[]; woken bigint[];
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
    woken := ARRAY(
        SELECT q.id FROM task_queue q WHERE q.parked_on IS NOT NULL AND q.id = ANY (ARRAY(
            SELECT w.id FROM unnest(gone) AS blocker(id) CROSS JOIN LATERAL (
                SELECT p.id, p.priority, p.created_at FROM task_queue p WHERE p.parked_on = blocker.id
                 ORDER BY p.priority DESC, p.created_at, p.id LIMIT 32) w
             ORDER BY w.priority DESC, w.created_at, w.id LIMIT 32))
           FOR UPDATE SKIP LOCKED);
    IF woken = '{}' THEN
        -- Somebody may have locked all of these, as an edit locks what waits in its tree, so this passes over what is locked. It comes second
        -- because it locks the first tasks of each blocker.
        woken := ARRAY(
            SELECT w.id FROM unnest(gone) AS blocker(id) CROSS JOIN LATERAL (
                SELECT p.id, p.priority, p.created_at FROM task_queue p WHERE p.parked_on = blocker.id
                 ORDER BY p.priority DESC, p.created_at, p.id LIMIT 32 FOR UPDATE SKIP LOCKED) w
             ORDER BY w.priority DESC, w.created_at, w.id LIMIT 32);
    END IF;
    UPDATE task_queue t SET ready = (t.status IN ('pending', 'failed') AND NOT t.final AND t.unmet_deps = 0), parked_on = NULL WHERE t.id = ANY (woken);
    DELETE FROM task_release r WHERE r.task_id = ANY (gone) AND NOT EXISTS (SELECT 1 FROM task_queue p WHERE p.parked_on = r.task_id);
END $$;
