-- Refuses two believed facts with one statement in one zone that hold at the same time, and a fact that is recorded at another moment
-- than the pen's, whatever the code does. What is asserted takes the place of what rules derived in the same statement.
CREATE OR REPLACE FUNCTION keep_facts_apart() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
    replaced bigint[];
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
    SELECT array_agg(DISTINCT t.id) INTO replaced
      FROM written n JOIN triples t ON t.statement = n.statement AND t.zone = n.zone AND t.invalidated_at IS NULL AND t.valid && n.valid
     WHERE n.invalidated_at IS NULL AND n.derived_by IS NULL AND t.derived_by IS NOT NULL;
    IF replaced IS NOT NULL THEN
        moment := take_pen();
        UPDATE triples t SET invalidated_at = moment, invalidation = 'asserted', invalidated_by = b.id
          FROM (SELECT d.id AS old, min(n.id) AS id FROM triples d JOIN written n ON n.statement = d.statement AND n.zone = d.zone AND n.valid && d.valid
                 WHERE d.id = ANY(replaced) AND n.invalidated_at IS NULL AND n.derived_by IS NULL GROUP BY d.id) b
         WHERE t.id = b.old;
    END IF;
    SELECT n.id, t.id INTO one, other
      FROM written n JOIN triples t ON t.statement = n.statement AND t.zone = n.zone AND t.invalidated_at IS NULL AND t.id <> n.id AND t.valid && n.valid
     WHERE n.invalidated_at IS NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'facts % and % overlap', one, other USING ERRCODE = 'exclusion_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER keep_new_facts_apart AFTER INSERT ON triples REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION keep_facts_apart();
CREATE OR REPLACE TRIGGER keep_moved_facts_apart AFTER UPDATE ON triples REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION keep_facts_apart();
