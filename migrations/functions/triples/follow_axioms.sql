-- The predicates of which somebody says other axioms by hand, and those that they name, wait until somebody derives anew what follows from their facts.
CREATE OR REPLACE FUNCTION follow_axioms() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named bigint[] := ARRAY[NEW.id, NEW.inverse_of] || NEW.sub_property_of;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (OLD.is_symmetric, OLD.is_transitive, OLD.inverse_of, OLD.sub_property_of, OLD.iri)
           IS NOT DISTINCT FROM (NEW.is_symmetric, NEW.is_transitive, NEW.inverse_of, NEW.sub_property_of, NEW.iri) THEN
            RETURN NULL;
        END IF;
        named := named || OLD.inverse_of || OLD.sub_property_of;
        -- Types follow from others by the predicate of classes, and no longer by one that has lost its IRI.
        IF 'http://www.w3.org/2000/01/rdf-schema#subClassOf' IN (OLD.iri, NEW.iri) THEN
            named := named || ARRAY(SELECT id FROM predicates WHERE iri = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type');
        END IF;
    ELSIF NOT (NEW.is_symmetric OR NEW.is_transitive OR NEW.inverse_of IS NOT NULL OR NEW.sub_property_of <> '{}') THEN
        RETURN NULL;
    END IF;
    INSERT INTO derivations (predicate_id) SELECT DISTINCT n FROM unnest(named) n WHERE n IS NOT NULL;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER follow_axioms AFTER INSERT OR UPDATE ON predicates FOR EACH ROW EXECUTE FUNCTION follow_axioms();
