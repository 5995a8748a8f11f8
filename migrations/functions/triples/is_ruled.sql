-- Whether rules can derive something from facts with a predicate, or such facts from others, by whatever was said of it by hand or in an ontology.
CREATE OR REPLACE FUNCTION is_ruled(predicate bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    WITH said AS (
        SELECT id, is_symmetric, is_transitive, inverse_of, sub_property_of FROM predicates
         WHERE is_symmetric OR is_transitive OR inverse_of IS NOT NULL OR sub_property_of <> '{}'
         UNION ALL
        SELECT predicate_id, is_symmetric, is_transitive, inverse_of, sub_property_of FROM ontology_predicates
         WHERE is_symmetric OR is_transitive OR inverse_of IS NOT NULL OR sub_property_of <> '{}')
    SELECT EXISTS (SELECT FROM said s WHERE s.id = predicate OR s.inverse_of = predicate OR predicate = ANY(s.sub_property_of))
        OR EXISTS (
        SELECT FROM predicates p
         WHERE p.id = predicate
           AND (p.iri = 'http://www.w3.org/2000/01/rdf-schema#subClassOf'
                OR (p.iri = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type' AND EXISTS (
                    SELECT FROM predicates c JOIN triples t ON t.predicate_id = c.id AND t.invalidated_at IS NULL
                     WHERE c.iri = 'http://www.w3.org/2000/01/rdf-schema#subClassOf'))
                OR (p.iri = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type' AND EXISTS (
                    SELECT FROM predicates c JOIN said s ON c.id = ANY(s.sub_property_of) OR s.inverse_of = c.id OR (s.id = c.id AND s.inverse_of IS NOT NULL)
                     WHERE c.iri = 'http://www.w3.org/2000/01/rdf-schema#subClassOf'))))
$$;
