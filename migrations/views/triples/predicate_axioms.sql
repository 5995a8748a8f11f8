-- What is said of each predicate, with the zone that it holds in: 0 for what was said by hand or in an open ontology, which holds for all facts.
CREATE OR REPLACE VIEW predicate_axioms AS
SELECT id AS predicate_id, iri, 0::bigint AS zone, is_functional, is_inverse_functional, is_symmetric, is_asymmetric, is_transitive, is_irreflexive,
       inverse_of, sub_property_of, disjoint_with
  FROM predicates
 UNION ALL
SELECT a.predicate_id, NULL, d.guard, a.is_functional, a.is_inverse_functional, a.is_symmetric, a.is_asymmetric, a.is_transitive, a.is_irreflexive,
       a.inverse_of, a.sub_property_of, a.disjoint_with
  FROM ontology_predicates a JOIN documents d ON d.id = a.ontology_id;
