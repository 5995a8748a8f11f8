-- Whether the lease of a claimed task is over. Every claim has a lease; a claim without one would be held for ever.
CREATE OR REPLACE FUNCTION is_lapsed(lease_until timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(lease_until < clock_timestamp(), true) $$;
