-- The priority that a task has if its upload gets another one: the task keeps its stage.
CREATE OR REPLACE FUNCTION with_upload_priority(priority integer, upload integer) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT task_priority(upload, mod(mod(priority, 10) + 10, 10)) $$;
