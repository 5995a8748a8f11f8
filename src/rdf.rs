//! Graphs of RDF: read from Turtle and N-Triples, named in the store, and written as Turtle.
pub mod history;
pub mod names;
pub mod ontology;
pub mod reading;
pub mod shapes;
pub mod writing;
