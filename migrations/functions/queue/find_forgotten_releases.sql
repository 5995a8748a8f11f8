-- Finds blockers that are gone without having announced it, and announces them. It steps through the parked tasks from blocker to
-- blocker, for a sweep, and returns how many blockers were forgotten.
CREATE OR REPLACE FUNCTION find_forgotten_releases() RETURNS bigint LANGUAGE sql SET enable_seqscan = off AS $$
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
