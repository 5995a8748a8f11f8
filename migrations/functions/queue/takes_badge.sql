-- Whether a worker takes tasks with this badge; the empty one stands for tasks without.
CREATE OR REPLACE FUNCTION takes_badge(badges text[], strict boolean, badge text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT badges = '{}' OR badge = ANY (badges) OR (badge = '' AND NOT strict) $$;
