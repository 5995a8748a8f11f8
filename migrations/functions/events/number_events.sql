-- Gives the next numbers to committed events, oldest first, tells whoever listens, and returns how many it numbered. The lock on the counter
-- makes numbers visible in their order, also if two sessions should number at once. There are no gaps.
CREATE OR REPLACE FUNCTION number_events(most integer, channel text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
    given integer;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM event_outbox WHERE seq IS NULL) THEN
        RETURN 0;
    END IF;
    SELECT last INTO STRICT before FROM event_counter FOR UPDATE;
    WITH part AS MATERIALIZED (SELECT id FROM event_outbox WHERE seq IS NULL ORDER BY id LIMIT most),
         place AS MATERIALIZED (SELECT id, row_number() OVER (ORDER BY id) AS number FROM part)
    UPDATE event_outbox e SET seq = before + place.number FROM place WHERE e.id = place.id;
    GET DIAGNOSTICS given = ROW_COUNT;
    IF given > 0 THEN
        UPDATE event_counter SET last = before + given;
        PERFORM pg_notify(channel, (before + given)::text);
    END IF;
    RETURN given;
END $$;
