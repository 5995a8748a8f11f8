-- Whether rules can derive something from facts with a predicate, or such facts from others.
CREATE OR REPLACE FUNCTION is_ruled(predicate bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM predicates p
         WHERE p.id = predicate
           AND (p.is_symmetric OR p.is_transitive OR p.inverse_of IS NOT NULL OR p.sub_property_of <> '{}'
                OR p.iri = 'http://www.w3.org/2000/01/rdf-schema#subClassOf'
                OR (p.iri = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type' AND EXISTS (
                    SELECT FROM predicates s JOIN triples t ON t.predicate_id = s.id AND t.invalidated_at IS NULL
                     WHERE s.iri = 'http://www.w3.org/2000/01/rdf-schema#subClassOf'))
                OR (p.iri = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type' AND EXISTS (
                    SELECT FROM predicates s JOIN predicates q ON s.id = ANY(q.sub_property_of) OR q.inverse_of = s.id OR q.id = s.inverse_of
                     WHERE s.iri = 'http://www.w3.org/2000/01/rdf-schema#subClassOf'))))
        OR EXISTS (SELECT FROM predicates q WHERE q.inverse_of = predicate OR predicate = ANY(q.sub_property_of))
$$;
