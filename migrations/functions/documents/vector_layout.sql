-- How the vectors are laid out that a search meets: in how many parts they are, which share of them the largest part has, the only root whose
-- part has to be read if all is under a place, about how many vectors the index of bits has if the model has no index of halves, and whether it
-- has no index at all. Each search asks this first, so what it reads is planned once for each connection.
CREATE OR REPLACE FUNCTION vector_layout(halves text, bits text, place bigint, OUT parts bigint, OUT largest double precision, OUT root bigint, OUT vectors double precision, OUT unindexed boolean)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    SELECT count(*), coalesce(max(greatest(c.reltuples, 0)) / nullif(sum(greatest(c.reltuples, 0)), 0), 0) INTO parts, largest
      FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid WHERE h.inhparent = to_regclass('document_vectors');
    IF parts > 0 AND place IS NOT NULL THEN
        SELECT coalesce(d.path[1], d.id) INTO root FROM documents d WHERE d.id = place;
    END IF;
    unindexed := NOT EXISTS (SELECT FROM pg_index i WHERE i.indexrelid IN (to_regclass(halves), to_regclass(bits)) AND i.indisvalid);
    IF NOT unindexed AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indexrelid = to_regclass(halves) AND i.indisvalid) THEN
        SELECT coalesce(sum(greatest(c.reltuples, 0)), 0) INTO vectors FROM pg_class c
         WHERE c.oid = to_regclass(bits) OR c.oid IN (SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = to_regclass(bits));
    END IF;
END $$;
