-- Takes the pen for the rest of the transaction, and returns the moment at which everything that this transaction writes is recorded.
CREATE OR REPLACE FUNCTION take_pen() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
BEGIN
    -- A row that this transaction wrote is the pen in its hand.
    SELECT at INTO moment FROM knowledge_clock WHERE xmin = pg_current_xact_id_if_assigned()::xid;
    IF NOT FOUND THEN
        UPDATE knowledge_clock SET at = greatest(clock_timestamp(), at + interval '1 microsecond'), before = at RETURNING at INTO STRICT moment;
    END IF;
    RETURN moment;
END $$;
