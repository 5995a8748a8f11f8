-- The depths that a task's region covers, see region_paths. Leaves have the depths below the task's node, so that they meet a task
-- that has the node's children or its subtree, and not a task that has the node alone.
CREATE OR REPLACE FUNCTION region_depths(depth integer, mode text, first_leaf text) RETURNS int4range LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN first_leaf IS NOT NULL THEN int4range(depth + 1, NULL)
                WHEN mode = 'self' THEN int4range(depth, depth, '[]')
                WHEN mode = 'children' THEN int4range(depth, depth + 1, '[]')
                ELSE int4range(depth, NULL) END $$;
