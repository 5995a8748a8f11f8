-- The same as finish_task, but it raises SV001 where finish_task returns false, so that nothing after it in the same message runs,
-- above all not the COMMIT. It returns whether another task waits for the region.
CREATE OR REPLACE FUNCTION end_task(task bigint, token uuid, document bigint, of_type text, attempt_number integer, how text, by_worker text, begun timestamptz, fingerprint text, what jsonb)
RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF NOT finish_task(task, token, document, of_type, attempt_number, how, by_worker, begun, fingerprint, what) THEN
        RAISE EXCEPTION 'the claim of task % is stale, or a cancel was asked for', task USING ERRCODE = 'SV001';
    END IF;
    RETURN EXISTS (SELECT 1 FROM task_queue WHERE parked_on = task);
END $$;
