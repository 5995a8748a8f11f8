-- Claims what a worker runs next, in the message that commits the end of a task, unless other claims are under way: no answer to a
-- task's end waits long for the lock of the fleet.
CREATE OR REPLACE FUNCTION claim_at_end(claim_lock bigint, worker_id text, badges text[], strict boolean, lanes text[], wants integer[], lease_of interval)
RETURNS SETOF task_queue LANGUAGE plpgsql AS $$
BEGIN
    IF try_claim_lock(claim_lock) THEN
        RETURN QUERY SELECT * FROM claim_batch(claim_lock, worker_id, badges, strict, lanes, wants, 8, interval '60 seconds', lease_of);
    END IF;
END $$;
