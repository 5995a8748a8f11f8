-- The first task that was queued after a moment, or what would be the next one. Tasks are queued in the order of their numbers, so it halves
-- the numbers instead of reading the table; those that are queued at the same time may stand in another order, by which it may be off by a few.
CREATE OR REPLACE FUNCTION first_task_since(since timestamptz) RETURNS bigint LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE low bigint; high bigint; middle bigint; found_at timestamptz; found_id bigint;
BEGIN
    SELECT coalesce(min(id), 0), coalesce(max(id), 0) + 1 INTO low, high FROM task_queue;
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT id, created_at INTO found_id, found_at FROM task_queue WHERE id >= middle ORDER BY id LIMIT 1;
        IF found_at < since THEN
            low := found_id + 1;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN low;
END $$;
