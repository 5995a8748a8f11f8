-- The priority of a task, which only this function computes. A task of a higher upload goes before a task of a lower one, whatever their
-- stages; among equal uploads the later stage goes first, so that files are finished one after the other. There are ten stages
-- at most.
CREATE OR REPLACE FUNCTION task_priority(upload integer, stage integer) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT upload * 10 + stage $$;
