-- What is left to do under each of these roots: whether there are events that nobody has taken, and which generations have ended, of the root itself and of those
-- that are built for it. The plan is made once, because making it takes longer than running it. An EXISTS might be answered by reading the events of all roots.
CREATE OR REPLACE FUNCTION left_to_settle(roots bigint[]) RETURNS TABLE (root_id bigint, has_events boolean, ended bigint[])
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT r.id, (SELECT true FROM settle_event e WHERE e.root_id = r.id LIMIT 1) IS NOT NULL,
           ARRAY(SELECT g.generation_id FROM generations g CROSS JOIN LATERAL (SELECT d.settled FROM documents d WHERE d.id = g.generation_id OFFSET 0) d
                  WHERE (g.generation_id = r.id OR g.document_id = r.id)
                    AND (g.abandoned OR g.document_id IS NULL OR d.settled <> 'in_flight'))
      FROM unnest(roots) AS r(id);
END $$;
