-- Returns the candidates that may be claimed although some types are paused or older tasks have left intents.
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
