//! Graphs of RDF: read from Turtle and N-Triples, named in the store, and written as Turtle.
pub mod names;
pub mod reading;
pub mod writing;
