-- How many nodes are in this state, 'in_flight' or 'failed', under the document whose path with its own id is `under`, or anywhere if that is empty; counted up to 10,000. Only
-- those count that bear one of these guards, or any with `everything`. Each guard has a stretch of the index, in the order of the tree, so that nothing is read but what counts,
-- however much else waits, and whatever the planner knows of it. With `everything` it looks at the document's own guard and at 1,000 others that bear such nodes: first those
-- after the document, because mostly what lies under it is younger, and then those before it.
CREATE OR REPLACE FUNCTION count_unsettled(state text, everything boolean, guards bigint[], under bigint[]) RETURNS bigint
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    top bigint := under[cardinality(under)];
    behind bigint[] := CASE WHEN top IS NULL THEN '{9223372036854775807}' ELSE trim_array(under, 1) || (top + 1) END;
    own bigint := (SELECT d.guard FROM documents d WHERE d.id = top);
    borne bigint := coalesce(top, -1);
    comes_round boolean := top IS NOT NULL;
    counted bigint;
BEGIN
    counted := (SELECT count(*) FROM (
        SELECT FROM unnest(CASE WHEN everything THEN ARRAY[own] ELSE guards END) AS g(id) CROSS JOIN LATERAL (
            SELECT FROM documents d
             WHERE d.settled <> 'settled' AND d.settled = state AND d.guard <> -1 AND d.guard = g.id AND d.path >= under AND d.path < behind
             ORDER BY d.path LIMIT 10000) s LIMIT 10000) n);
    FOR turn IN 1 .. CASE WHEN everything THEN 1000 ELSE 0 END LOOP
        EXIT WHEN counted >= 10000;
        borne := (SELECT d.guard FROM documents d
                   WHERE d.settled <> 'settled' AND d.settled = state AND d.guard <> -1 AND d.guard > borne ORDER BY d.guard, d.path LIMIT 1);
        IF borne IS NULL THEN
            EXIT WHEN NOT comes_round;
            comes_round := false;
            borne := -1;
            CONTINUE;
        END IF;
        EXIT WHEN borne > top AND NOT comes_round;
        CONTINUE WHEN borne = own;
        counted := counted + (SELECT count(*) FROM (
            SELECT FROM documents d
             WHERE d.settled <> 'settled' AND d.settled = state AND d.guard <> -1 AND d.guard = borne AND d.path >= under AND d.path < behind
             ORDER BY d.path LIMIT 10000 - counted) n);
    END LOOP;
    RETURN counted;
END $$;
