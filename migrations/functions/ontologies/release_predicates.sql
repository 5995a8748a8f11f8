-- What an ontology said of its predicates goes with it, however it is deleted. The predicates stay, because facts have them.
CREATE OR REPLACE FUNCTION release_predicates() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE predicates
       SET is_functional = false, is_inverse_functional = false, is_symmetric = false, is_asymmetric = false, is_transitive = false,
           is_irreflexive = false, inverse_of = NULL, sub_property_of = '{}', disjoint_with = '{}', ontology_id = NULL,
           updated_at = clock_timestamp()
     WHERE ontology_id = OLD.document_id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER release_predicates AFTER DELETE ON ontologies FOR EACH ROW EXECUTE FUNCTION release_predicates();
