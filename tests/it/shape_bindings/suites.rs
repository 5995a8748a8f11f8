//! W3C's tests of SHACL Core, through the service.
use crate::{
    principals::idle,
    support::{TestApp, document, left_out, repository},
};
use oxrdf::{Graph, NamedNodeRef, NamedOrBlankNode, NamedOrBlankNodeRef, Term, TermRef, vocab::rdf};
use oxttl::TurtleParser;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use svc_client::{
    Failure, Json, RdfSyntax, RdfText, TurtleText,
    wire::{
        ImportQuery, NewDocument, NewShapeBinding, OntologyQuery, ShapeBindingPath, ShapeMode, ShapeResult, ShapeTerm,
        ValidationQuery, ValidationReport, WaitQuery,
    },
};

const SH: &str = "http://www.w3.org/ns/shacl#";
const SHT: &str = "http://www.w3.org/ns/shacl-test#";
const MF: &str = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#";
const BASE: &str = "http://suite.example/";

/// The texts of a folder and what is under it that are no manifests.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            files(&path, found);
        } else if name.ends_with(".ttl") && name != "manifest.ttl" {
            found.push(path);
        }
    }
    found.sort();
}

fn parsed(text: &str, base: &str) -> Graph {
    TurtleParser::new().with_base_iri(base).unwrap().for_slice(text.as_bytes()).map(Result::unwrap).collect()
}

fn value<'a>(graph: &'a Graph, subject: NamedOrBlankNodeRef<'_>, iri: &str) -> Option<TermRef<'a>> {
    graph.object_for_subject_predicate(subject, NamedNodeRef::new_unchecked(iri))
}

fn node(term: TermRef<'_>) -> NamedOrBlankNode {
    match term {
        TermRef::NamedNode(node) => node.into_owned().into(),
        TermRef::BlankNode(node) => node.into_owned().into(),
        TermRef::Literal(literal) => panic!("{literal} is no node"),
    }
}

/// A path as the service shows it.
fn path(graph: &Graph, term: TermRef<'_>) -> String {
    let part = |term: TermRef<'_>| match term {
        TermRef::NamedNode(node) => format!("<{}>", node.as_str()),
        other => format!("({})", path(graph, other)),
    };
    let list = |head: TermRef<'_>| {
        let (mut members, mut head) = (Vec::new(), node(head));
        while head != NamedOrBlankNode::from(rdf::NIL.into_owned()) {
            members.push(part(graph.object_for_subject_predicate(&head, rdf::FIRST).unwrap()));
            head = node(graph.object_for_subject_predicate(&head, rdf::REST).unwrap());
        }
        members
    };
    let TermRef::BlankNode(blank) = term else {
        return format!("<{}>", node(term).to_string().trim_matches(['<', '>']));
    };
    let of = |word: &str| value(graph, blank.into(), &format!("{SH}{word}"));
    if graph.object_for_subject_predicate(blank, rdf::FIRST).is_some() {
        return list(term).join("/");
    }
    if let Some(paths) = of("alternativePath") {
        return list(paths).join("|");
    }
    for (word, before, after) in
        [("inversePath", "^", ""), ("zeroOrMorePath", "", "*"), ("oneOrMorePath", "", "+"), ("zeroOrOnePath", "", "?")]
    {
        if let Some(path) = of(word) {
            return format!("{before}{}{after}", part(path));
        }
    }
    panic!("{blank} is no path")
}

/// What a result says, without messages and without the names of nodes that have none.
type Said = (String, Option<String>, Option<String>, String, Option<String>, String);

fn shown(term: &Term) -> String {
    match term {
        Term::BlankNode(_) => "_:".to_owned(),
        other => other.to_string(),
    }
}

fn expected(graph: &Graph, report: NamedOrBlankNodeRef<'_>) -> Vec<Said> {
    let results =
        graph.objects_for_subject_predicate(report, NamedNodeRef::new_unchecked("http://www.w3.org/ns/shacl#result"));
    let mut said: Vec<Said> = results
        .map(|result| {
            let result = node(result);
            let of = |word: &str| value(graph, result.as_ref(), &format!("{SH}{word}")).map(TermRef::into_owned);
            let iri = |word: &str| shown(&of(word).unwrap());
            (
                iri("focusNode"),
                value(graph, result.as_ref(), &format!("{SH}resultPath")).map(|term| path(graph, term)),
                of("value").as_ref().map(shown),
                iri("sourceConstraintComponent"),
                of("sourceShape").as_ref().map(shown).filter(|shape| shape != "_:"),
                iri("resultSeverity"),
            )
        })
        .collect();
    said.sort();
    said
}

fn term(term: &ShapeTerm) -> String {
    use oxrdf::{Literal, NamedNode};
    match (&term.iri, &term.literal) {
        (Some(iri), _) if iri.starts_with("_:") => "_:".to_owned(),
        (Some(iri), _) => NamedNode::new_unchecked(iri).to_string(),
        (None, Some(value)) => match (&term.language, &term.datatype) {
            (Some(language), _) => Literal::new_language_tagged_literal_unchecked(value, language).to_string(),
            (None, Some(datatype)) => Literal::new_typed_literal(value, NamedNode::new_unchecked(datatype)).to_string(),
            (None, None) => panic!("a literal without a datatype"),
        },
        (None, None) => panic!("a term without a form"),
    }
}

fn found(results: &[ShapeResult]) -> Vec<Said> {
    let mut said: Vec<Said> = results
        .iter()
        .map(|result| {
            (
                term(&result.focus),
                result.path.clone(),
                result.value.as_ref().map(term),
                format!("<{}>", result.component),
                (!result.shape.starts_with("_:")).then(|| format!("<{}>", result.shape)),
                format!("<{}>", result.severity),
            )
        })
        .collect();
    said.sort();
    said
}

/// Holds a graph of data against one of shapes.
async fn validate(app: &TestApp, data: (&str, &str), shapes: (&str, &str)) -> Result<ValidationReport, Failure> {
    let new = |title: &str| NewDocument { private: true, ..document(title, "") };
    let under = app.client.create_document(WaitQuery::default(), Json(new("data"))).await?.id;
    let (base, text) = data;
    let query = ImportQuery { parent_id: Some(under), base: Some(base.to_owned()), ..ImportQuery::default() };
    app.client.import_turtle(query, RdfText { syntax: RdfSyntax::Turtle, text: text.to_owned() }).await?;
    let (base, text) = shapes;
    let query = OntologyQuery { private: true, base: Some(base.to_owned()), ..OntologyQuery::default() };
    let ontology = app.client.create_ontology(query, TurtleText(text.to_owned())).await?;
    let shape = format!("urn:svc:document/{}", ontology.document_id);
    let binding = NewShapeBinding { shape, document_id: Some(under), mode: Some(ShapeMode::Off) };
    let binding = app.client.create_shape_binding(Json(binding)).await?;
    let query = ValidationQuery { turtle: true, ..ValidationQuery::default() };
    app.client.validate_shape(ShapeBindingPath { id: binding.id }, query).await
}

#[tokio::test]
async fn shapes_are_held_against_facts_as_the_w3c_tests_them() {
    let suite = repository().join("../shared/suites/shacl/core");
    if !suite.exists() {
        left_out("W3C's tests of SHACL Core (no ../shared/suites)");
        return;
    }
    let mut paths = Vec::new();
    files(&suite, &mut paths);
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let base = |path: &Path| format!("{BASE}{}", path.strip_prefix(&suite).unwrap().display());
    let texts: BTreeMap<String, String> = paths.iter().map(|path| (base(path), read(path))).collect();
    let app = idle().await;
    let (mut right, mut wrong) = (0, Vec::new());
    for (at, text) in &texts {
        let graph = parsed(text, at);
        let case =
            graph.subject_for_predicate_object(rdf::TYPE, NamedNodeRef::new_unchecked(&format!("{SHT}Validate")));
        let Some(case) = case else { continue };
        let action = node(value(&graph, case, &format!("{MF}action")).unwrap());
        let iri = |word: &str| match value(&graph, action.as_ref(), &format!("{SHT}{word}")) {
            Some(TermRef::NamedNode(node)) => node.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        let (data, shapes) = (iri("dataGraph"), iri("shapesGraph"));
        let report = node(value(&graph, case, &format!("{MF}result")).unwrap());
        let expected = expected(&graph, report.as_ref());
        let done = validate(&app, (&data, &texts[&data]), (&shapes, &texts[&shapes])).await;
        let is_right = done.as_ref().is_ok_and(|report| {
            let said = found(&report.results);
            let written = parsed(report.turtle.as_deref().unwrap(), BASE);
            let conforms = NamedNodeRef::new_unchecked("http://www.w3.org/ns/shacl#conforms");
            let root = node(written.triples_for_predicate(conforms).next().unwrap().subject.into());
            let written = self::expected(&written, root.as_ref());
            report.conforms == Some(expected.is_empty()) && said == expected && written == expected
        });
        match is_right {
            true => right += 1,
            false => wrong.push((at.clone(), expected, done.map(|report| found(&report.results)))),
        }
    }
    for (at, expected, done) in &wrong {
        eprintln!("{at}\n  expected {expected:?}\n  found {done:?}");
    }
    assert_eq!((right, wrong.len()), (98, 0));
    app.end().await;
}
