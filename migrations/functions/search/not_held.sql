-- What the legs of a hybrid search cannot find because it is not in their index: which documents that were found by their vectors are not in an index
-- of words, and which that were found by their words have no vector of a model. Each search asks this of a few documents, so it is planned once for
-- each connection, and looks up each of them however large the tables were then.
CREATE OR REPLACE FUNCTION not_held(near bigint[], index_name text, worded bigint[], model text, in_parts boolean, OUT by_words bigint[], OUT by_vectors bigint[])
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    searched bigint;
BEGIN
    SELECT i.id INTO searched FROM search_indexes i WHERE i.name = index_name;
    by_words := ARRAY(SELECT n.id FROM unnest(near) AS n(id)
                       WHERE (SELECT true FROM search_index_entries e WHERE e.document_id = n.id AND e.index_id = searched) IS NULL);
    IF in_parts THEN
        -- A vector in parts is looked up in the part of its document's root.
        by_vectors := ARRAY(SELECT d.id FROM documents d
                             WHERE d.id = ANY(worded)
                               AND (SELECT true FROM document_vectors v
                                     WHERE v.document_id = d.id AND v.embed_model = model AND v.root_id = coalesce(d.path[1], d.id) LIMIT 1) IS NULL);
    ELSE
        by_vectors := ARRAY(SELECT w.id FROM unnest(worded) AS w(id)
                             WHERE CASE WHEN (SELECT true FROM document_vectors v WHERE v.document_id = w.id AND v.embed_model = model LIMIT 1) IS NULL
                                        THEN EXISTS (SELECT FROM documents d WHERE d.id = w.id) END);
    END IF;
END $$;
