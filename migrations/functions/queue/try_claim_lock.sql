-- Takes the lock under which tasks are claimed, until the transaction ends; gives up after a few milliseconds if others hold it.
CREATE OR REPLACE FUNCTION try_claim_lock(claim_lock bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR try IN 1 .. 4 LOOP
        IF pg_try_advisory_xact_lock(claim_lock) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.0005 + random() * 0.002);
    END LOOP;
    RETURN false;
END $$;
