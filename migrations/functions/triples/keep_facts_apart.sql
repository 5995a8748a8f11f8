-- Refuses two believed facts with one statement in one zone that hold at the same time, and a fact that is recorded at another moment
-- than the pen's, whatever the code does. What is asserted takes the place of what rules derived in the same statement.
-- Of facts that overlap two that follow each other by their beginnings do, and one of these is new. What was derived and overlaps a new fact follows
-- another new one or is the one before it. So each new fact is compared with its neighbours alone, by an index: a plan lasts as long as the session, and one that was made when few facts were derived, or few
-- were written, would compare all of those with all of these.
CREATE OR REPLACE FUNCTION keep_facts_apart() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    moment timestamptz;
    replaced bigint[];
    replacing bigint[];
    one bigint;
    other bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        moment := take_pen();
        SELECT n.id INTO one FROM written n WHERE n.recorded_at <> moment LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'fact % is not recorded at the moment of the pen', one USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    SELECT array_agg(r.old), array_agg(r.new) INTO replaced, replacing FROM (
        SELECT t.id AS old, min(n.id) AS new
          FROM written n CROSS JOIN LATERAL believed_during(n.statement, n.zone, n.valid) t
         WHERE n.invalidated_at IS NULL AND n.derived_by IS NULL AND t.derived_by IS NOT NULL GROUP BY t.id) r;
    IF replaced IS NOT NULL THEN
        moment := take_pen();
        UPDATE triples t SET invalidated_at = moment, invalidation = 'asserted', invalidated_by = r.new
          FROM unnest(replaced, replacing) r(old, new) WHERE t.id = r.old;
    END IF;
    SELECT n.id, t.id INTO one, other
      FROM written n CROSS JOIN LATERAL believed_during(n.statement, n.zone, n.valid) t
     WHERE n.invalidated_at IS NULL AND t.id <> n.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'facts % and % overlap', one, other USING ERRCODE = 'exclusion_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER keep_new_facts_apart AFTER INSERT ON triples REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION keep_facts_apart();
CREATE OR REPLACE TRIGGER keep_moved_facts_apart AFTER UPDATE ON triples REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION keep_facts_apart();
