-- The predicates of which an ontology says other axioms, and those that it names there, wait until somebody derives anew what follows from
-- their facts, however the ontology comes and goes.
CREATE OR REPLACE FUNCTION follow_ontologies() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named bigint[] := '{}';
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.is_symmetric, OLD.is_transitive, OLD.inverse_of, OLD.sub_property_of)
       IS NOT DISTINCT FROM (NEW.is_symmetric, NEW.is_transitive, NEW.inverse_of, NEW.sub_property_of) THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'DELETE' AND (NEW.is_symmetric OR NEW.is_transitive OR NEW.inverse_of IS NOT NULL OR NEW.sub_property_of <> '{}') THEN
        named := named || NEW.predicate_id || NEW.inverse_of || NEW.sub_property_of;
    END IF;
    IF TG_OP <> 'INSERT' AND (OLD.is_symmetric OR OLD.is_transitive OR OLD.inverse_of IS NOT NULL OR OLD.sub_property_of <> '{}') THEN
        named := named || OLD.predicate_id || OLD.inverse_of || OLD.sub_property_of;
    END IF;
    INSERT INTO derivations (predicate_id) SELECT DISTINCT n FROM unnest(named) n WHERE n IS NOT NULL;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER follow_ontologies AFTER INSERT OR UPDATE OR DELETE ON ontology_predicates
    FOR EACH ROW EXECUTE FUNCTION follow_ontologies();
