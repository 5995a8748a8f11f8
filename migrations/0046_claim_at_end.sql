-- The end of a task claims what its worker runs next, in the message of its commit.

-- A claim where no other one is under way: whoever ends a task does not wait for the lock of the fleet.
CREATE FUNCTION claim_at_end(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[])
RETURNS SETOF task_queue LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_xact_lock(claim_lock) THEN
        RETURN QUERY SELECT * FROM claim_batch(claim_lock, worker_id, badges, strict, lanes, wants, 8, interval '60 seconds');
    END IF;
END $$;
