//! Random graphs, each held against a random shape by the service and by pySHACL: the reports have to be the same.
use super::{PREFIX, installed_peers};
use crate::{
    figure::{Bound, BoxError, Figure},
    formats::folder,
};
use rand::{RngExt as _, SeedableRng, rngs::StdRng};
use serde::Deserialize;
use std::process::Command;
use svc_client::{
    Client, Json, RdfSyntax, RdfText, Remote, TurtleText,
    wire::{ImportQuery, NewShapeBinding, OntologyQuery, ShapeBindingPath, ShapeMode, ValidationQuery},
};

const CASES: usize = 200;
const NODES: usize = 8;
const PROPERTIES: usize = 4;
const HEAD: &str = "@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .";

/// What became of the comparison.
#[derive(Deserialize)]
struct Compared {
    alike: usize,
    results: usize,
    /// The numbers of the cases with another report, each with what only one of them has.
    different: Vec<(usize, Vec<String>, Vec<String>)>,
}

pub async fn measure(client: &Client<Remote>, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let packages = installed_peers()?;
    let files = tempfile::tempdir()?;
    let mut random = StdRng::seed_from_u64(5);
    for case in 0..CASES {
        let prefix = format!("{PREFIX} {HEAD} @prefix c: <http://example.org/case{case}/> .\n");
        let (data, shape) = (format!("{prefix}{}", graph(&mut random)), format!("{prefix}{}", shape(&mut random)));
        let text = RdfText { syntax: RdfSyntax::Turtle, text: data.clone() };
        client.import_turtle(ImportQuery::default(), text).await?;
        client.create_ontology(OntologyQuery::default(), TurtleText(shape.clone())).await?;
        let binding = NewShapeBinding {
            shape: format!("http://example.org/case{case}/Shape"),
            document_id: None,
            mode: Some(ShapeMode::Off),
        };
        let path = ShapeBindingPath { id: client.create_shape_binding(Json(binding)).await?.id };
        let report =
            client.validate_shape(path, ValidationQuery { turtle: true, ..ValidationQuery::default() }).await?;
        for (name, text) in
            [("data", data.as_str()), ("shape", &shape), ("ours", report.turtle.as_deref().unwrap_or_default())]
        {
            std::fs::write(files.path().join(format!("{case}.{name}.ttl")), text)?;
        }
    }
    let done = Command::new("python3")
        .arg(folder().join("shapes_random.py"))
        .arg(files.path())
        .arg(CASES.to_string())
        .env("PYTHONPATH", packages)
        .env("PYTHONWARNINGS", "ignore")
        .output()?;
    if !done.status.success() {
        return Err(format!("the peer failed: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    let compared: Compared = serde_json::from_slice(&done.stdout)?;
    for (case, ours, theirs) in &compared.different {
        eprintln!("bench: case {case}: only ours {ours:?}, only pySHACL's {theirs:?}");
        for name in ["data", "shape"] {
            eprintln!("{}", std::fs::read_to_string(files.path().join(format!("{case}.{name}.ttl")))?);
        }
    }
    out(Figure::alone("knowledge/shapes/random/results", CASES, "results", compared.results as f64));
    let alike = Figure::alone("knowledge/shapes/random/alike", CASES, "reports", compared.alike as f64);
    out(alike.meant_to_be(Bound::OursAtLeast(CASES as f64)));
    if compared.alike != CASES {
        return Err(format!("{} of {CASES} reports are as pySHACL's", compared.alike).into());
    }
    Ok(())
}

fn node(random: &mut StdRng) -> String {
    format!("c:n{}", random.random_range(0..NODES))
}

fn property(random: &mut StdRng) -> String {
    format!("c:p{}", random.random_range(0..PROPERTIES))
}

fn class(random: &mut StdRng) -> String {
    format!("c:C{}", random.random_range(0..3))
}

fn one_of<'a>(random: &mut StdRng, all: &[&'a str]) -> &'a str {
    all[random.random_range(0..all.len())]
}

fn literal(random: &mut StdRng) -> String {
    one_of(
        random,
        &[
            "1",
            "2",
            "7",
            "\"a\"",
            "\"heron\"",
            "\"Reiher\"@de",
            "\"heron\"@en",
            "true",
            "1.5",
            "\"2020-01-01\"^^xsd:date",
        ],
    )
    .to_owned()
}

/// Nodes with classes, of which some are under others, and with properties that lead to nodes and literals.
fn graph(random: &mut StdRng) -> String {
    let mut text = "c:C1 rdfs:subClassOf c:C0 .\n".to_owned();
    for number in 0..NODES {
        if random.random_bool(0.7) {
            text.push_str(&format!("c:n{number} a {} .\n", class(random)));
        }
    }
    for _ in 0..random.random_range(5..25) {
        let object = if random.random_bool(0.5) { node(random) } else { literal(random) };
        text.push_str(&format!("{} {} {object} .\n", node(random), property(random)));
    }
    text
}

fn shape(random: &mut StdRng) -> String {
    let target = match random.random_range(0..5) {
        0 => format!("sh:targetNode {}, {}", node(random), node(random)),
        1 => format!("sh:targetSubjectsOf {}", property(random)),
        2 => format!("sh:targetObjectsOf {}", property(random)),
        _ => format!("sh:targetClass {}", class(random)),
    };
    let mut text = format!("c:Shape a sh:NodeShape ; {target}");
    for _ in 0..random.random_range(1..4) {
        text.push_str(&format!(" ;\n  sh:property [ sh:path {} ; {} ]", path(random), of_property(random)));
    }
    if random.random_bool(0.3) {
        text.push_str(&format!(" ;\n  {}", constraint(random, 1)));
    }
    text.push_str(" .\n");
    text
}

fn path(random: &mut StdRng) -> String {
    let (one, other) = (property(random), property(random));
    match random.random_range(0..10) {
        0 => format!("[ sh:inversePath {one} ]"),
        1 => format!("( {one} {other} )"),
        2 => format!("[ sh:alternativePath ( {one} {other} ) ]"),
        3 => format!("[ sh:zeroOrMorePath {one} ]"),
        4 => format!("[ sh:oneOrMorePath {one} ]"),
        5 => format!("[ sh:zeroOrOnePath {one} ]"),
        _ => one,
    }
}

/// What values of a property must be, or how many there must be.
fn of_property(random: &mut StdRng) -> String {
    match random.random_range(0..9) {
        0 => format!("sh:minCount {}", random.random_range(1..3)),
        1 => format!("sh:maxCount {}", random.random_range(0..2)),
        2 => format!("sh:equals {}", property(random)),
        3 => format!("sh:disjoint {}", property(random)),
        4 => "sh:uniqueLang true".to_owned(),
        5 => format!("sh:hasValue {}", literal(random)),
        6 => format!(
            "sh:qualifiedValueShape [ {} ] ; sh:qualified{}Count {}",
            constraint(random, 1),
            one_of(random, &["Min", "Max"]),
            random.random_range(1..3)
        ),
        _ => constraint(random, 2),
    }
}

/// What a value must be.
fn constraint(random: &mut StdRng, depth: usize) -> String {
    let inner = |random: &mut StdRng| constraint(random, depth - 1);
    match random.random_range(if depth == 0 { 4 } else { 0 }..14) {
        0 => format!("sh:not [ {} ]", inner(random)),
        1 => format!("sh:or ( [ {} ] [ {} ] )", inner(random), inner(random)),
        2 => format!("sh:and ( [ {} ] [ {} ] )", inner(random), inner(random)),
        3 => format!("sh:xone ( [ {} ] [ {} ] )", inner(random), inner(random)),
        4 => format!("sh:class {}", class(random)),
        5 => format!("sh:nodeKind {}", one_of(random, &["sh:IRI", "sh:Literal", "sh:BlankNodeOrLiteral"])),
        6 => format!("sh:datatype {}", one_of(random, &["xsd:string", "xsd:integer", "xsd:boolean", "xsd:decimal"])),
        7 => format!("sh:{} {}", one_of(random, &["minInclusive", "maxExclusive"]), random.random_range(1..7)),
        8 => format!("sh:minLength {}", random.random_range(1..8)),
        9 => format!("sh:maxLength {}", random.random_range(1..30)),
        10 => format!("sh:pattern \"{}\"", one_of(random, &["^h", "n[0-3]", "a"])),
        11 => format!("sh:in ( {} {} {} )", node(random), literal(random), literal(random)),
        12 => "sh:languageIn ( \"en\" )".to_owned(),
        _ => format!("sh:nodeKind {}", one_of(random, &["sh:IRI", "sh:IRIOrLiteral"])),
    }
}
