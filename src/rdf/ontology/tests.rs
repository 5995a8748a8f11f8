//! Ontologies as they are read.
use super::*;
use crate::rdf::reading;
use svc_client::RdfSyntax;

const HEAD: &str = "@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
    @prefix sh: <http://www.w3.org/ns/shacl#> . @prefix ex: <http://example.org/> .\n";

fn ontology(text: &str) -> Result<Ontology, Failure> {
    read(reading::read(&format!("{HEAD}{text}"), RdfSyntax::Turtle, None, 1_000).unwrap())
}

#[test]
fn classes_predicates_shapes_and_individuals_are_told_apart() {
    let read = ontology(
        "<http://example.org/> a owl:Ontology ; rdfs:label 'Leute'@de, 'People'@en ; owl:imports <http://other/> .
         ex:Person a owl:Class, sh:NodeShape ; rdfs:label 'Person' ; sh:property [ sh:path ex:name ; sh:minCount 1 ] ;
             rdfs:subClassOf ex:Agent, [ a owl:Restriction ; owl:onProperty ex:name ; owl:cardinality 1 ] .
         ex:name a owl:DatatypeProperty, owl:FunctionalProperty ; rdfs:label 'name' ; rdfs:comment 'What one is called' ; rdfs:domain ex:Person, [ owl:unionOf ex:Person ] .
         ex:knows a owl:SymmetricProperty ; rdfs:subPropertyOf ex:met ; owl:propertyDisjointWith ex:parent .
         ex:parent a owl:ObjectProperty ; owl:inverseOf ex:child .
         ex:NameShape a sh:NodeShape ; rdfs:label 'not a fact' ; sh:targetSubjectsOf ex:name .
         ex:ada a ex:Person ; ex:name 'Ada' ; ex:knows [ ex:name 'Bea' ] .",
    )
    .unwrap();
    assert_eq!((read.iri.as_deref(), read.title.as_deref()), (Some("http://example.org/"), Some("People")));
    let classes: Vec<&Node> = read.classes.iter().map(|node| &read.facts.nodes[*node]).collect();
    let iri = |name: &str| Node::Iri(format!("http://example.org/{name}"));
    assert_eq!(classes, [&iri("Person"), &iri("Agent")]);
    assert_eq!(read.shapes, ["http://example.org/Person", "http://example.org/NameShape"]);
    // Of the class its type, label and superclass; of the individuals all.
    assert_eq!(read.facts.triples.len(), 7, "{:?}", read.facts);
    let of = |name: &str| {
        read.properties.iter().find(|property| property.iri == format!("http://example.org/{name}")).unwrap()
    };
    let name = of("name");
    assert!(name.functional && name.label.as_deref() == Some("name"));
    assert_eq!(name.description.as_deref(), Some("What one is called"));
    let of_ends = |ends: &BTreeSet<String>| ends.iter().cloned().collect::<Vec<_>>();
    assert_eq!((of_ends(&name.domains), of_ends(&name.ranges)), (vec!["http://example.org/Person".to_owned()], vec![]));
    assert!(of("knows").symmetric && of("knows").sub_property_of.contains("http://example.org/met"));
    assert!(of("knows").disjoint_with.contains("http://example.org/parent"));
    assert_eq!(of("parent").inverse_of.as_deref(), Some("http://example.org/child"));
    let not_used: Vec<(&str, u32)> = read
        .not_used
        .iter()
        .map(|(term, count)| (term.rsplit(['#', '/']).next().unwrap_or_default(), *count))
        .collect();
    let owl = [("cardinality", 1), ("imports", 1), ("onProperty", 1), ("unionOf", 1)];
    let expected = [("domain", 1), ("subClassOf", 1), ("Restriction", 1)].into_iter().chain(owl);
    let expected: BTreeSet<(&str, u32)> = expected.collect();
    assert_eq!(not_used.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn a_property_that_no_fact_could_have_is_refused() {
    let refused = ontology("ex:p a owl:SymmetricProperty, owl:AsymmetricProperty .").unwrap_err();
    assert!(refused.detail.contains("<http://example.org/p>"), "{}", refused.detail);
}

#[test]
fn a_node_without_a_name_has_the_same_one_whenever_the_text_is_read() {
    let text = "[] ex:p [ ex:q 1 ] .";
    let (one, other) = (ontology(text).unwrap().facts, ontology(text).unwrap().facts);
    assert_eq!((one.nodes, one.triples), (other.nodes, other.triples));
}
