-- What is left to do under each of these roots: whether there are events that nobody has taken, and which generations have ended, of the root itself and of those
-- that are built for it. The plan is made once, for it would take longer than to run it.
CREATE OR REPLACE FUNCTION left_to_settle(roots bigint[]) RETURNS TABLE (root_id bigint, has_events boolean, ended bigint[])
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT r.id, EXISTS (SELECT 1 FROM settle_event e WHERE e.root_id = r.id),
           ARRAY(SELECT g.generation_id FROM generations g JOIN documents d ON d.id = g.generation_id
                  WHERE (g.generation_id = r.id OR g.document_id = r.id)
                    AND (g.abandoned OR g.document_id IS NULL OR d.settled <> 'in_flight'))
      FROM unnest(roots) AS r(id);
END $$;
