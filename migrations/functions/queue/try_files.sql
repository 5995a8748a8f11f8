-- Takes the locks of those of these files under whose root no other transaction settles, until the transaction ends, and returns these files.
CREATE OR REPLACE FUNCTION try_files(roots bigint[], tree_lock integer, file_lock integer) RETURNS SETOF bigint
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT t.id FROM (SELECT r.id, coalesce((SELECT d.path[1] FROM documents d WHERE d.id = r.id), r.id) AS tree FROM unnest(roots) AS r(id)) t
     WHERE CASE WHEN pg_try_advisory_xact_lock_shared(tree_lock, hashint8(t.tree)) THEN pg_try_advisory_xact_lock(file_lock, hashint8(t.id)) ELSE false END;
END $$;
