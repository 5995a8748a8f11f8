-- A claim at the end of a task writes the lease of its worker, as every claim does.
DROP FUNCTION claim_at_end(bigint, text, text[], boolean, text[], integer[]);
CREATE FUNCTION claim_at_end(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], lease_of interval)
RETURNS SETOF task_queue LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_xact_lock(claim_lock) THEN
        -- The row of NULLs that asks for another look is left out: the worker looks again anyway.
        RETURN QUERY SELECT * FROM claim_batch(claim_lock, worker_id, badges, strict, lanes, wants, 8, interval '60 seconds', lease_of) c WHERE c.id IS NOT NULL;
    END IF;
END $$;
