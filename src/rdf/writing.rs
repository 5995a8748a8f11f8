//! Writes facts as Turtle.
use super::{history, names, reading::Ids};
use crate::{
    graph::named,
    store::{ontologies::SaidRow, triples::export::Edge},
};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use oxrdf::{
    BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple,
    vocab::{rdf, rdfs},
};
use oxttl::turtle::{LowLevelTurtleSerializer, TurtleSerializer};
use std::{collections::HashMap, io};
use svc_ids::{DocumentId, PredicateId};

const OWL: &str = "http://www.w3.org/2002/07/owl#";

/// Facts on their way into a text.
pub struct Writer {
    base: String,
    serializer: LowLevelTurtleSerializer,
    buffer: Vec<u8>,
    predicates: HashMap<PredicateId, NamedNode>,
    /// Whether facts are described, with their times.
    has_history: bool,
}

impl Writer {
    /// Begins a text with the moments that it is of. `base` is what the IRIs of this store begin with.
    pub fn new(base: &str, valid_at: Option<DateTime<Utc>>, known_at: DateTime<Utc>, has_history: bool) -> Writer {
        let own = [("document", format!("{base}document/")), ("predicate", format!("{base}predicate/"))];
        let svc = has_history.then(|| ("svc", history::NAMESPACE.to_owned()));
        let prefixes = own.into_iter().chain(svc);
        let known = names::written_prefixes().map(|(prefix, iri)| (prefix, iri.to_owned()));
        let serializer = known.chain(prefixes).fold(TurtleSerializer::new(), |serializer, (prefix, iri)| {
            // Without a prefix the IRIs are written whole.
            serializer.clone().with_prefix(prefix, iri).unwrap_or(serializer)
        });
        let valid_at = valid_at.map_or_else(|| "any".to_owned(), moment);
        let head = format!("# valid_at {valid_at}\n# known_at {}\n", moment(known_at));
        let serializer = serializer.low_level();
        Writer { base: base.to_owned(), serializer, buffer: head.into_bytes(), predicates: HashMap::new(), has_history }
    }

    /// The predicates among these whose IRIs are still unknown.
    pub fn unknown(&self, predicates: impl Iterator<Item = PredicateId>) -> Vec<PredicateId> {
        let mut unknown: Vec<PredicateId> = predicates.filter(|id| !self.predicates.contains_key(id)).collect();
        unknown.sort_unstable_by_key(|id| id.0);
        unknown.dedup();
        unknown
    }

    pub fn learn(&mut self, id: PredicateId, iri: String) {
        self.predicates.insert(id, NamedNode::new_unchecked(iri));
    }

    /// Writes facts whose predicates are known.
    pub fn write(&mut self, edges: Vec<Edge>) -> io::Result<()> {
        for edge in edges {
            let Some(predicate) = self.predicates.get(&edge.predicate_id).cloned() else { continue };
            let subject = self.node(edge.subject_id, edge.subject_iri, edge.subject_blank);
            let about = self.has_history.then(|| history::Told {
                statement: NamedNode::new_unchecked(format!("{}triple/{}", self.base, edge.id)),
                valid_from: edge.valid_from,
                valid_until: edge.valid_until,
                recorded_at: edge.recorded_at,
                invalidated_at: edge.invalidated_at,
                derived_by: edge.derived_by,
                fact_type: edge.fact_type.0,
                ids: Ids {
                    subject: Some(edge.subject_id.0),
                    object: edge.object_id.map(|id| id.0),
                    sources: edge.cited.iter().map(|id| id.0).collect(),
                },
                source: edge.source_id.map(|id| {
                    let iri = edge.source_iri.unwrap_or_else(|| named::document_iri(&self.base, id));
                    NamedNode::new_unchecked(iri)
                }),
            });
            let object = match (edge.object_id, edge.object_literal) {
                (Some(id), _) => Term::from(self.node(id, edge.object_iri, edge.object_blank)),
                (None, value) => {
                    literal(value.map_or_else(String::new, |value| value.0), edge.object_datatype, edge.object_language)
                        .into()
                }
            };
            let triple = Triple { subject, predicate, object };
            if about.as_ref().is_none_or(history::Told::is_plain) {
                self.serializer.serialize_triple(&triple, &mut self.buffer)?;
            }
            for triple in about.into_iter().flat_map(|about| about.triples(triple.clone())) {
                self.serializer.serialize_triple(&triple, &mut self.buffer)?;
            }
        }
        Ok(())
    }

    /// Writes the head of an ontology.
    pub fn write_head(&mut self, id: DocumentId, iri: Option<String>, title: String) -> io::Result<()> {
        let ontology = NamedNode::new_unchecked(iri.unwrap_or_else(|| named::document_iri(&self.base, id)));
        self.say(&ontology, rdf::TYPE.into_owned(), NamedNode::new_unchecked(format!("{OWL}Ontology")))?;
        self.say(&ontology, rdfs::LABEL.into_owned(), Literal::new_simple_literal(title))
    }

    /// Writes what an ontology says of a predicate; the predicates that it names are known.
    pub fn write_said(&mut self, said: SaidRow) -> io::Result<()> {
        let Some(predicate) = self.predicates.get(&said.predicate_id).cloned() else { return Ok(()) };
        let owl = |word: &str| NamedNode::new_unchecked(format!("{OWL}{word}"));
        let kinds = [
            (true, rdf::PROPERTY.into_owned()),
            (said.is_functional, owl("FunctionalProperty")),
            (said.is_inverse_functional, owl("InverseFunctionalProperty")),
            (said.is_symmetric, owl("SymmetricProperty")),
            (said.is_asymmetric, owl("AsymmetricProperty")),
            (said.is_transitive, owl("TransitiveProperty")),
            (said.is_irreflexive, owl("IrreflexiveProperty")),
        ];
        for (_, kind) in kinds.into_iter().filter(|(is_said, _)| *is_said) {
            self.say(&predicate, rdf::TYPE.into_owned(), kind)?;
        }
        for (term, text) in [(rdfs::LABEL, said.label), (rdfs::COMMENT, said.description)] {
            if let Some(text) = text {
                self.say(&predicate, term.into_owned(), Literal::new_simple_literal(text))?;
            }
        }
        for (term, others) in [
            (owl("inverseOf"), said.inverse_of.into_iter().collect()),
            (rdfs::SUB_PROPERTY_OF.into_owned(), said.sub_property_of),
            (owl("propertyDisjointWith"), said.disjoint_with),
        ] {
            let others: Vec<NamedNode> =
                others.iter().filter_map(|other: &PredicateId| self.predicates.get(other).cloned()).collect();
            for other in others {
                self.say(&predicate, term.clone(), other)?;
            }
        }
        for (term, classes) in [(rdfs::DOMAIN, said.domains), (rdfs::RANGE, said.ranges)] {
            for class in classes {
                self.say(&predicate, term.into_owned(), NamedNode::new_unchecked(class))?;
            }
        }
        Ok(())
    }

    fn say(&mut self, subject: &NamedNode, predicate: NamedNode, object: impl Into<Term>) -> io::Result<()> {
        let triple = Triple::new(subject.clone(), predicate, object);
        self.serializer.serialize_triple(&triple, &mut self.buffer)
    }

    fn node(&self, id: DocumentId, iri: Option<String>, blank: Option<bool>) -> NamedOrBlankNode {
        match (iri, blank) {
            (_, Some(true)) => BlankNode::new_unchecked(format!("b{id}")).into(),
            (Some(iri), _) => NamedNode::new_unchecked(iri).into(),
            (None, _) => NamedNode::new_unchecked(named::document_iri(&self.base, id)).into(),
        }
    }

    /// What has been written since this was called last.
    pub fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.buffer).into()
    }

    /// Ends the text.
    pub fn end(&mut self) -> io::Result<()> {
        self.serializer.finish(&mut self.buffer)
    }
}

/// A moment to the microsecond.
pub(super) fn moment(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn literal(value: String, datatype: Option<String>, language: Option<String>) -> Literal {
    match (language, datatype) {
        (Some(language), _) => Literal::new_language_tagged_literal_unchecked(value, language),
        (None, Some(datatype)) => Literal::new_typed_literal(value, NamedNode::new_unchecked(datatype)),
        (None, None) => Literal::new_simple_literal(value),
    }
}
