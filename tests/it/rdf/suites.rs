//! W3C's tests of Turtle and N-Triples, through the service.
use super::{canonical, export, lines};
use crate::{
    principals::idle,
    support::{TestApp, document, left_out, repository},
};
use oxrdf::{Graph, NamedNodeRef, Term, vocab::rdf};
use oxttl::{NTriplesParser, TurtleParser};
use std::{collections::BTreeMap, fs, path::Path};
use svc_client::{
    Failure, Json, RdfSyntax, RdfText,
    wire::{ImportQuery, ImportedGraph, NewDocument, TurtleQuery, WaitQuery},
};

/// One test of a suite.
struct Case {
    kind: String,
    name: String,
    /// The IRI that the text is at.
    base: String,
    text: Vec<u8>,
    /// What the text says, if that is tested.
    result: Option<Vec<u8>>,
}

/// The tests of a folder.
fn cases(folder: &Path, base: &str) -> Vec<Case> {
    let manifest = fs::read(folder.join("manifest.ttl")).unwrap();
    let parser = TurtleParser::new().with_base_iri(format!("{base}manifest.ttl")).unwrap();
    let manifest: Graph = parser.for_slice(&manifest).map(Result::unwrap).collect();
    let file = |iri: &str| fs::read(folder.join(iri.rsplit('/').next().unwrap())).unwrap();
    let mut cases = Vec::new();
    for triple in manifest.triples_for_predicate(rdf::TYPE) {
        let Term::NamedNode(kind) = triple.object.into_owned() else { continue };
        let Some(kind) = kind.as_str().strip_prefix("http://www.w3.org/ns/rdftest#") else { continue };
        let of = |name: &str| {
            let iri = format!("http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#{name}");
            match manifest.object_for_subject_predicate(triple.subject, NamedNodeRef::new_unchecked(&iri)) {
                Some(oxrdf::TermRef::NamedNode(node)) => Some(node.as_str().to_owned()),
                _ => None,
            }
        };
        let action = of("action").unwrap();
        let case = Case {
            kind: kind.to_owned(),
            name: action.rsplit('/').next().unwrap().to_owned(),
            text: file(&action),
            result: of("result").map(|iri| file(&iri)),
            base: action,
        };
        cases.push(case);
    }
    cases
}

/// Sends a text under a document of its own, as closed as that; returns the document.
async fn send(app: &TestApp, case: &Case, syntax: RdfSyntax) -> (i64, Result<ImportedGraph, Failure>) {
    let new = NewDocument { private: true, ..document(&case.name, "") };
    let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    let base = (syntax == RdfSyntax::Turtle).then(|| case.base.clone());
    let query = ImportQuery { parent_id: Some(id), base, ..ImportQuery::default() };
    let Ok(text) = String::from_utf8(case.text.clone()) else { panic!("{} is no text", case.name) };
    (id, app.client.import_turtle(query, RdfText { syntax, text }).await)
}

async fn run(app: &TestApp, cases: Vec<Case>, syntax: RdfSyntax) -> BTreeMap<String, usize> {
    let (mut right, mut wrong) = (BTreeMap::new(), Vec::new());
    for case in cases {
        let (id, done) = send(app, &case, syntax).await;
        let is_right = match (&done, &case.result) {
            _ if case.kind.contains("Negative") => done.as_ref().is_err_and(|refused| refused.status == 422),
            (Err(_), _) => false,
            (Ok(_), None) => true,
            (Ok(_), Some(result)) => {
                let expected = lines(NTriplesParser::new().for_slice(result).map(Result::unwrap).collect());
                let query = TurtleQuery { parent_id: Some(id), ..TurtleQuery::default() };
                canonical(&export(&app.client, query).await) == expected
            }
        };
        match is_right {
            true => *right.entry(case.kind).or_default() += 1,
            false => wrong.push((case.name, done)),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    right
}

#[tokio::test]
async fn turtle_and_n_triples_are_read_and_written_as_the_w3c_tests_them() {
    let suites = repository().join("../shared/suites");
    if !suites.exists() {
        left_out("W3C's tests of Turtle and N-Triples (no ../shared/suites)");
        return;
    }
    let app = idle().await;
    let base = "https://w3c.github.io/rdf-tests/rdf/rdf11";
    let turtle = cases(&suites.join("rdf11/rdf-turtle"), &format!("{base}/rdf-turtle/"));
    let right = run(&app, turtle, RdfSyntax::Turtle).await;
    let count = |right: &BTreeMap<String, usize>| right.values().sum::<usize>();
    assert_eq!((count(&right), right["TestTurtleEval"]), (313, 145), "{right:?}");
    let n_triples = cases(&suites.join("rdf11/rdf-n-triples"), &format!("{base}/rdf-n-triples/"));
    let right = run(&app, n_triples, RdfSyntax::NTriples).await;
    assert_eq!(count(&right), 70, "{right:?}");

    // What RDF 1.2 adds is refused, and says where.
    let mut refused = 0;
    for kind in ["eval", "syntax"] {
        for file in fs::read_dir(suites.join("rdf12/rdf-turtle").join(kind)).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".ttl") || name == "manifest.ttl" {
                continue;
            }
            let case = Case {
                kind: kind.to_owned(),
                base: format!("http://e/{name}"),
                text: fs::read(&path).unwrap(),
                name,
                result: None,
            };
            let (_, done) = send(&app, &case, RdfSyntax::Turtle).await;
            let failure = done.expect_err(&case.name);
            assert!(failure.status == 422 && failure.detail.contains("line "), "{}: {failure:?}", case.name);
            refused += 1;
        }
    }
    assert_eq!(refused, 104);
    app.end().await;
}
