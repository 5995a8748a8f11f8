//! Shapes: how long nodes are held against three constraints, beside pySHACL and rudof, which have the graph in memory already, and what a bound shape costs a write.
mod random;

use crate::{
    figure::{BoxError, Figure, Peer, median},
    formats::{folder, installed},
    sandbox::with_app,
    uploads,
};
use serde::Deserialize;
use std::{fmt::Write as _, path::PathBuf, process::Command, time::Instant};
use svc::app::App;
use svc_client::{
    Client, Json, RdfSyntax, RdfText, Remote, TurtleText,
    wire::{
        ImportQuery, NewFact, NewShapeBinding, OntologyQuery, ShapeBindingChange, ShapeBindingPath, ShapeMode,
        ValidationQuery,
    },
};

const REQUIREMENTS: &str = include_str!("../peers/shapes-requirements.txt");
/// The people of the whole graph: more of them take pySHACL many minutes.
const PEOPLE: usize = 20_000;
/// The people of one call.
const TOGETHER: usize = 10_000;
/// One of so many people has no name.
const FAULTY: usize = 100;
/// The single facts that are asserted.
const WRITES: usize = 50;
const PREFIX: &str = "@prefix ex: <http://example.org/> .\n";
const SHAPES: &str = "@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix ex: <http://example.org/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
    ex:PersonShape a sh:NodeShape ; sh:targetClass ex:Person ;
        sh:property [ sh:path ex:name ; sh:minCount 1 ; sh:maxCount 1 ; sh:datatype xsd:string ] ;
        sh:property [ sh:path ex:age ; sh:datatype xsd:integer ; sh:minInclusive 0 ] ;
        sh:property [ sh:path ex:knows ; sh:class ex:Person ] .";

pub async fn run(out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(|_| {}, async |app: &App| measure(app, PEOPLE, out).await).await
}

/// What a peer says.
#[derive(Deserialize)]
struct Theirs {
    version: String,
    seconds: f64,
    results: usize,
}

async fn measure(app: &App, people: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let base = format!("http://{}", app.address);
    let client = uploads::client(&base)?;
    let mut whole = PREFIX.to_owned();
    for from in (0..people).step_by(TOGETHER) {
        let text = graph(from, people.min(from + TOGETHER), people)?;
        whole.push_str(&text);
        let text = RdfText { syntax: RdfSyntax::Turtle, text: format!("{PREFIX}{text}") };
        client.import_turtle(ImportQuery::default(), text).await?;
    }
    client.create_ontology(OntologyQuery::default(), TurtleText(SHAPES.to_owned())).await?;
    let shape = "http://example.org/PersonShape".to_owned();
    let binding = NewShapeBinding { shape, document_id: None, mode: Some(ShapeMode::Off) };
    let path = ShapeBindingPath { id: client.create_shape_binding(Json(binding)).await?.id };
    sqlx::raw_sql("VACUUM (ANALYZE) triples, documents, graph_nodes").execute(&app.service.pool).await?;
    let begun = Instant::now();
    let report = client.validate_shape(path, ValidationQuery::default()).await?;
    let ours = begun.elapsed().as_secs_f64();
    if let Some(limit) = report.truncated {
        return Err(format!("the validation ended early, at the limit of {limit}").into());
    }
    for (name, theirs) in ["pySHACL", "rudof"].into_iter().zip(peers(&whole)?) {
        if theirs.results != report.results.len() {
            return Err(format!("{name} has {} results, and ours are {}", theirs.results, report.results.len()).into());
        }
        let peer = Peer { name, version: theirs.version.into(), value: theirs.seconds };
        out(Figure::beside(&format!("knowledge/shapes/validate/{name}"), people, "s", ours, peer));
    }

    // What a write costs with a shape on its subject, beside one without.
    let mut without = writes(&client, "without").await?;
    client.update_shape_binding(path, Json(ShapeBindingChange { mode: ShapeMode::Reject })).await?;
    let mut with = writes(&client, "with").await?;
    out(Figure::alone("knowledge/shapes/write/off", WRITES, "ms", median(&mut without)));
    out(Figure::alone("knowledge/shapes/write/reject", WRITES, "ms", median(&mut with)));
    random::measure(&client, out).await
}

/// Asserts single facts about people, and returns how many milliseconds each took.
async fn writes(client: &Client<Remote>, text: &str) -> Result<Vec<f64>, BoxError> {
    let mut times = Vec::with_capacity(WRITES);
    for number in 1..=WRITES {
        let fact = NewFact {
            subject_iri: Some(format!("http://example.org/p{number}")),
            predicate: Some("ex:note".to_owned()),
            object_literal: Some(text.to_owned()),
            ..NewFact::default()
        };
        let begun = Instant::now();
        client.assert_fact(Json(fact)).await?;
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}

/// People with names, ages and acquaintances; one of a hundred has no name.
fn graph(from: usize, to: usize, people: usize) -> Result<String, BoxError> {
    let mut text = String::new();
    for number in from..to {
        write!(
            text,
            "ex:p{number} a ex:Person ; ex:age {} ; ex:knows ex:p{}",
            number % 90,
            (number * 7919 + 1) % people
        )?;
        if number % FAULTY != 0 {
            write!(text, " ; ex:name \"Person {number}\"")?;
        }
        writeln!(text, " ; ex:note \"a\" .")?;
    }
    Ok(text)
}

fn installed_peers() -> Result<PathBuf, BoxError> {
    installed("peers-shapes", "shapes-requirements.txt", REQUIREMENTS)
}

/// Holds the same graph against the same shapes with pySHACL and with rudof.
fn peers(graph: &str) -> Result<Vec<Theirs>, BoxError> {
    let packages = installed_peers()?;
    let folder_of_texts = tempfile::tempdir()?;
    let [data, shapes] = ["data.ttl", "shapes.ttl"].map(|name| folder_of_texts.path().join(name));
    std::fs::write(&data, graph)?;
    std::fs::write(&shapes, SHAPES)?;
    let done = Command::new("python3")
        .arg(folder().join("shapes.py"))
        .args([&data, &shapes])
        .env("PYTHONPATH", packages)
        .env("PYTHONWARNINGS", "ignore")
        .output()?;
    if !done.status.success() {
        return Err(format!("the peers failed: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(serde_json::from_slice(&done.stdout)?)
}
