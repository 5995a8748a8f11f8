-- Has what rules derived follow the facts that it hangs on, whatever the code does: what hangs on a fact that is closed is closed with it,
-- and what hangs on one that comes into another zone is the owner's alone from then on. The predicates of facts that came, went or moved
-- wait until somebody derives anew.
-- What rows were and what they are is brought together by grouping: a join of the two has the plan that suited the first, perhaps single,
-- change of the session, and would compare each row of a large change with each other one.
-- Whether a predicate is ruled is asked once for each predicate: without OFFSET 0 the planner asks it of each new fact, before it makes them distinct.
CREATE OR REPLACE FUNCTION follow_rules() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
    waiting bigint[];
    moved bigint[];
    closed bigint[];
    hanging bigint[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO derivations (predicate_id)
        SELECT w.id FROM (SELECT DISTINCT predicate_id AS id FROM written WHERE derived_by IS NULL OFFSET 0) w WHERE is_ruled(w.id);
        RETURN NULL;
    END IF;
    SELECT array_agg(DISTINCT c.predicate_id) FILTER (WHERE c.is_asserted AND c.was_believed AND (c.is_closed OR c.is_moved)),
           array_agg(c.id) FILTER (WHERE c.is_moved), array_agg(c.id) FILTER (WHERE c.was_believed AND c.is_closed)
      INTO waiting, moved, closed
      FROM (SELECT r.id, min(r.predicate_id) AS predicate_id, bool_and(r.derived_by IS NULL) AS is_asserted, min(r.zone) <> max(r.zone) AS is_moved,
                   bool_or(r.was AND r.invalidated_at IS NULL) AS was_believed, bool_or(NOT r.was AND r.invalidated_at IS NOT NULL) AS is_closed
              FROM (SELECT o.id, o.predicate_id, o.derived_by, o.zone, o.invalidated_at, true AS was FROM before o
                     UNION ALL
                    SELECT n.id, n.predicate_id, n.derived_by, n.zone, n.invalidated_at, false FROM written n) r
             GROUP BY r.id) c;
    INSERT INTO derivations (predicate_id) SELECT w.id FROM unnest(waiting) w(id) WHERE is_ruled(w.id);
    WITH RECURSIVE hung(id) AS (
        SELECT p.derived_id FROM unnest(moved) m(id) JOIN triple_premises p ON p.premise_id = m.id AND p.ended_at IS NULL
         UNION
        SELECT p.derived_id FROM hung h JOIN triple_premises p ON p.premise_id = h.id AND p.ended_at IS NULL)
    SELECT array_agg(h.id) INTO hanging FROM hung h JOIN triples t ON t.id = h.id AND t.zone <> -1;
    IF hanging IS NOT NULL THEN
        moment := take_pen();
        UPDATE triples SET zone = -1, invalidated_at = coalesce(invalidated_at, moment), invalidation = coalesce(invalidation, 'premise_invalidated')
         WHERE id = ANY(hanging);
    END IF;
    WITH RECURSIVE hung(id) AS (
        SELECT p.derived_id FROM unnest(closed) c(id) JOIN triple_premises p ON p.premise_id = c.id AND p.ended_at IS NULL
         UNION
        SELECT p.derived_id FROM hung h JOIN triple_premises p ON p.premise_id = h.id AND p.ended_at IS NULL)
    SELECT array_agg(h.id) INTO hanging FROM hung h JOIN triples t ON t.id = h.id AND t.invalidated_at IS NULL;
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
