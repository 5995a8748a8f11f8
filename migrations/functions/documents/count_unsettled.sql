-- How many nodes are in this state, 'in_flight' or 'failed', under the document whose path with its own id is `under`, or anywhere if that is empty; counted up to 10,000. Only
-- those count that bear one of these guards, or any with `everything`. Each guard has a stretch of the index, in the order of the tree, so that nothing is read but what counts,
-- however much else waits, and whatever the planner knows of it. With `everything` it looks at the first 1,000 guards that bear such nodes.
CREATE OR REPLACE FUNCTION count_unsettled(state text, everything boolean, guards bigint[], under bigint[]) RETURNS bigint
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    behind bigint[] := CASE cardinality(under) WHEN 0 THEN '{9223372036854775807}' ELSE trim_array(under, 1) || (under[cardinality(under)] + 1) END;
    borne bigint := -1;
    counted bigint := 0;
BEGIN
    FOR turn IN 1 .. CASE WHEN everything THEN 1000 ELSE cardinality(guards) END LOOP
        IF everything THEN
            borne := (SELECT d.guard FROM documents d
                       WHERE d.settled <> 'settled' AND d.settled = state AND d.guard <> -1 AND d.guard > borne ORDER BY d.guard, d.path LIMIT 1);
            EXIT WHEN borne IS NULL;
        ELSE
            borne := guards[turn];
        END IF;
        counted := counted + (SELECT count(*) FROM (
            SELECT FROM documents d
             WHERE d.settled <> 'settled' AND d.settled = state AND d.guard <> -1 AND d.guard = borne AND d.path >= under AND d.path < behind
             ORDER BY d.path LIMIT 10000 - counted) n);
        EXIT WHEN counted >= 10000;
    END LOOP;
    RETURN counted;
END $$;
