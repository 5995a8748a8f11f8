-- What a worker serves, for is_served: each of its task types with a blank and a badge, which is empty for tasks without one. The type alone
-- stands for tasks with any badge and without.
CREATE OR REPLACE FUNCTION serves(badges text[], strict boolean, task_types text[]) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY(SELECT y || b FROM unnest(task_types) AS y CROSS JOIN unnest(
        CASE WHEN badges = '{}' THEN ARRAY[''] ELSE ARRAY(SELECT ' ' || x FROM unnest(badges) AS x UNION ALL SELECT ' ' WHERE NOT strict) END) AS b) $$;
