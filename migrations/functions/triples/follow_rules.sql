-- Has what rules derived follow the facts that it hangs on, whatever the code does: what hangs on a fact that is closed is closed with it,
-- and what hangs on one that comes into another zone is the owner's alone from then on. The predicates of facts that came, went or moved
-- wait until somebody derives anew.
CREATE OR REPLACE FUNCTION follow_rules() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
    hanging bigint[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO derivations (predicate_id)
        SELECT w.id FROM (SELECT DISTINCT predicate_id AS id FROM written WHERE derived_by IS NULL) w WHERE is_ruled(w.id);
        RETURN NULL;
    END IF;
    INSERT INTO derivations (predicate_id)
    SELECT w.id FROM (
           SELECT DISTINCT n.predicate_id AS id FROM written n JOIN before o ON o.id = n.id
            WHERE n.derived_by IS NULL AND o.invalidated_at IS NULL AND (n.invalidated_at IS NOT NULL OR n.zone <> o.zone)) w
     WHERE is_ruled(w.id);
    WITH RECURSIVE moved(id) AS (
        SELECT p.derived_id FROM written n JOIN before o ON o.id = n.id AND o.zone <> n.zone JOIN triple_premises p ON p.premise_id = n.id
         UNION
        SELECT p.derived_id FROM moved m JOIN triple_premises p ON p.premise_id = m.id)
    SELECT array_agg(m.id) INTO hanging FROM moved m JOIN triples t ON t.id = m.id AND t.zone <> -1;
    IF hanging IS NOT NULL THEN
        moment := take_pen();
        UPDATE triples SET zone = -1, invalidated_at = coalesce(invalidated_at, moment), invalidation = coalesce(invalidation, 'premise_invalidated')
         WHERE id = ANY(hanging);
    END IF;
    WITH RECURSIVE closed(id) AS (
        SELECT p.derived_id FROM written n JOIN before o ON o.id = n.id AND o.invalidated_at IS NULL AND n.invalidated_at IS NOT NULL
          JOIN triple_premises p ON p.premise_id = n.id
         UNION
        SELECT p.derived_id FROM closed c JOIN triple_premises p ON p.premise_id = c.id)
    SELECT array_agg(c.id) INTO hanging FROM closed c JOIN triples t ON t.id = c.id AND t.invalidated_at IS NULL;
    IF hanging IS NOT NULL THEN
        moment := take_pen();
        UPDATE triples SET invalidated_at = moment, invalidation = 'premise_invalidated' WHERE id = ANY(hanging);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER derive_from_new_facts AFTER INSERT ON triples REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION follow_rules();
CREATE OR REPLACE TRIGGER derive_from_changed_facts AFTER UPDATE ON triples REFERENCING OLD TABLE AS before NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION follow_rules();
