//! Tells what is wrong: as values of the contract, and as Turtle in the words of SHACL.
use super::{
    SH, Shapes,
    data::{Data, Term, TermId},
    validating::{Outcome, View},
    violation::{At, Violation},
};
use crate::{error::OrFail, graph::named, rdf::names, store::predicates};
use oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term as OxTerm, Triple, vocab::rdf};
use oxttl::turtle::TurtleSerializer;
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashMap};
use svc_client::{
    Failure,
    wire::{ShapeResult, ShapeTerm},
};
use svc_ids::PredicateId;

/// The IRIs of the predicates that no shape names and that are at fault.
pub async fn predicates(
    conn: &mut PgConnection,
    view: &View,
    violations: &[Violation],
) -> Result<HashMap<PredicateId, String>, Failure> {
    let named: BTreeSet<PredicateId> = violations
        .iter()
        .filter_map(|violation| match violation.path {
            At::Predicate(predicate) => Some(predicate),
            At::Shape => None,
        })
        .collect();
    let named: Vec<PredicateId> = named.into_iter().collect();
    let mut iris: HashMap<PredicateId, String> = HashMap::new();
    if !named.is_empty() {
        for (id, namespace, name, iri) in predicates::names(conn, &named).await.or_fail()? {
            iris.insert(id, iri.unwrap_or_else(|| named::derived_iri(&view.base, &namespace, &name)));
        }
    }
    Ok(iris)
}

/// Violations as callers see them.
pub fn results(
    shapes: &Shapes,
    data: &Data,
    base: &str,
    iris: &HashMap<PredicateId, String>,
    violations: Vec<Violation>,
) -> Vec<ShapeResult> {
    let shown = |term: TermId| shown(shapes, data, base, term);
    let results = violations.into_iter().map(|violation| {
        let shape = &shapes.shapes[violation.shape];
        let path = match violation.path {
            At::Predicate(predicate) => iris.get(&predicate).map(|iri| format!("<{iri}>")),
            At::Shape => shape.path.as_ref().map(|path| path.shown(shapes)),
        };
        ShapeResult {
            focus: shown(violation.focus),
            path,
            value: violation.value.map(shown),
            component: format!("{SH}{}ConstraintComponent", violation.component),
            shape: shape.name.clone(),
            severity: shape.severity.clone(),
            message: violation.says,
            triple_ids: violation.facts.iter().map(|fact| fact.0).collect(),
        }
    });
    results.collect()
}

fn shown(shapes: &Shapes, data: &Data, base: &str, term: TermId) -> ShapeTerm {
    match data.is(term) {
        Term::Iri(iri) => ShapeTerm { iri: Some(shapes.iris[*iri].clone()), ..ShapeTerm::default() },
        Term::Literal(literal) => ShapeTerm {
            literal: Some(literal.value.clone()),
            datatype: Some(literal.datatype.clone()),
            language: literal.language.clone(),
            ..ShapeTerm::default()
        },
        Term::Node(id) => {
            let name = data.name_of(*id);
            let iri = match name.is_blank {
                true => format!("_:b{id}"),
                false => name.iri.unwrap_or_else(|| named::document_iri(base, *id)),
            };
            ShapeTerm { document_id: Some(id.0), iri: Some(iri), ..ShapeTerm::default() }
        }
    }
}

/// A report as Turtle. It says that facts conform only if all of them were looked at.
pub fn turtle(shapes: &Shapes, outcome: &Outcome) -> Result<String, std::io::Error> {
    let serializer = names::written_prefixes().fold(TurtleSerializer::new(), |serializer, (prefix, iri)| {
        serializer.clone().with_prefix(prefix, iri).unwrap_or(serializer)
    });
    let mut serializer = serializer.low_level();
    let (mut text, mut labels) = (Vec::new(), 0);
    let report = BlankNode::new_unchecked("report");
    let word = |word: &str| NamedNode::new_unchecked(format!("{SH}{word}"));
    let mut triples = vec![
        Triple::new(report.clone(), rdf::TYPE, word("ValidationReport")),
        Triple::new(
            report.clone(),
            word("conforms"),
            Literal::from(outcome.results.is_empty() && outcome.truncated.is_none()),
        ),
    ];
    // A path is described once, however many results have it.
    let paths: HashMap<String, &super::paths::Path> =
        shapes.shapes.iter().filter_map(|shape| shape.path.as_ref()).map(|path| (path.shown(shapes), path)).collect();
    let mut written: HashMap<String, NamedOrBlankNode> = HashMap::new();
    for (at, result) in outcome.results.iter().enumerate() {
        let node = BlankNode::new_unchecked(format!("r{at}"));
        triples.push(Triple::new(report.clone(), word("result"), node.clone()));
        let mut say = |predicate: NamedNode, object: OxTerm| {
            triples.push(Triple::new(node.clone(), predicate, object));
        };
        say(rdf::TYPE.into_owned(), word("ValidationResult").into());
        say(word("focusNode"), term(&result.focus));
        if let Some(value) = &result.value {
            say(word("value"), term(value));
        }
        say(word("sourceConstraintComponent"), NamedNode::new_unchecked(&result.component).into());
        say(word("sourceShape"), named_or_blank(&result.shape).into());
        say(word("resultSeverity"), NamedNode::new_unchecked(&result.severity).into());
        say(word("resultMessage"), Literal::new_simple_literal(&result.message).into());
        if let Some(path) = &result.path {
            let node_of_path = match (written.get(path), paths.get(path)) {
                (Some(known), _) => known.clone(),
                (None, Some(known)) => known.written(shapes, &mut labels, &mut triples),
                (None, None) => NamedNode::new_unchecked(path.trim_matches(['<', '>'])).into(),
            };
            written.insert(path.clone(), node_of_path.clone());
            triples.push(Triple::new(node, word("resultPath"), OxTerm::from(node_of_path)));
        }
    }
    for triple in &triples {
        serializer.serialize_triple(triple, &mut text)?;
    }
    serializer.finish(&mut text)?;
    String::from_utf8(text).map_err(std::io::Error::other)
}

fn named_or_blank(name: &str) -> NamedOrBlankNode {
    match name.strip_prefix("_:") {
        Some(label) => BlankNode::new_unchecked(label).into(),
        None => NamedNode::new_unchecked(name).into(),
    }
}

fn term(term: &ShapeTerm) -> OxTerm {
    match (&term.iri, &term.literal) {
        (Some(iri), _) => named_or_blank(iri).into(),
        (None, value) => {
            let value = value.clone().unwrap_or_default();
            match (&term.language, &term.datatype) {
                (Some(language), _) => Literal::new_language_tagged_literal_unchecked(value, language).into(),
                (None, Some(datatype)) => Literal::new_typed_literal(value, NamedNode::new_unchecked(datatype)).into(),
                (None, None) => Literal::new_simple_literal(value).into(),
            }
        }
    }
}
