-- Returns what blocks a candidate: a paused type (as a negative number), the overlapping intent of a task that comes before it, or a
-- held region. NULL says that nothing blocks it any more.
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
