-- Whether one of the workers that serve this both runs the task type and takes the badge. A worker that only runs the type never gets the task, and one that
-- only takes the badge puts it off again and again.
CREATE OR REPLACE FUNCTION is_served(task_type text, badge text, serves text[]) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT task_type = ANY (serves) OR task_type || ' ' || coalesce(badge, '') = ANY (serves) $$;
