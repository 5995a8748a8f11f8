-- Keeps a document that has this path as it is until the transaction ends, and those of its ancestors that are named, from the top down, from being
-- deleted. It returns false where one of them is gone, the document has another path by now or, unless this waits, somebody has one of them locked. A delete
-- locks the top of what it deletes before the rest, so this locks nothing below the first ancestor that it does not get: a delete would wait there for
-- this transaction, which may wait for that delete further up.
CREATE OR REPLACE FUNCTION keep_in_place(document bigint, its_path bigint[], above bigint[], waits boolean) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ancestor bigint;
BEGIN
    FOREACH ancestor IN ARRAY above LOOP
        IF waits THEN
            PERFORM FROM documents d WHERE d.id = ancestor FOR KEY SHARE;
        ELSE
            PERFORM FROM documents d WHERE d.id = ancestor FOR KEY SHARE SKIP LOCKED;
        END IF;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END LOOP;
    IF waits THEN
        PERFORM FROM documents d WHERE d.id = document AND d.path = its_path FOR NO KEY UPDATE;
    ELSE
        PERFORM FROM documents d WHERE d.id = document AND d.path = its_path FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    RETURN FOUND;
END $$;
