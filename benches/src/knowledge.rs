//! Facts: how fast batches of them are asserted, how long paths and lists as of a moment take in a graph of communities with hubs, and how fast
//! graphs of RDF go out and come in, what rules cost, and how long analyses take.
mod graph;
mod rules;

use crate::{
    figure::{Bound, BoxError, Figure},
    sandbox::with_app,
    uploads,
};
use futures_util::TryStreamExt;
use rand::{RngExt as _, SeedableRng, rngs::StdRng};
use sqlx::PgPool;
use std::time::{Duration, Instant};
use svc::app::App;
use svc_client::{
    Client, Json, RdfSyntax, RdfText, Remote,
    wire::{
        DocumentPath, FactQuery, GrantPath, GrantRight, ImportQuery, NewApiToken, NewFact, NewFacts, NewGrant,
        NewPredicate, NewPrincipal, OnOverlap, PathSearch, PrincipalKind, PrincipalPath, TurtleQuery, ValidAt,
    },
};

/// The facts of a batch, which is the most that one takes.
const BATCH: usize = 5_000;
/// The documents of a community, in which half of the facts stay.
const COMMUNITY: usize = 1_000;
/// The triples of an imported graph, on a quarter as many nodes.
const GRAPH: usize = 40_000;
/// The pairs between which a path is looked for.
const PAIRS: usize = 60;
/// The predicates of facts between documents: the second one is asymmetric, and the third one excludes the first.
const PREDICATES: [&str; 3] = ["cites", "leads", "knows"];
/// The predicate of facts with a literal.
const LITERALS: &str = "numbered";
/// A request may take as long as it takes: the figure says how long.
const PATIENCE: Duration = Duration::from_secs(600);

pub async fn run(triples: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    if triples < 10 * COMMUNITY {
        return Err(format!("the size is {triples}; this bench takes at least {} facts", 10 * COMMUNITY).into());
    }
    let patient = |settings: &mut svc::settings::Settings| settings.request_timeout = PATIENCE;
    with_app(patient, async |app: &App| measure(app, triples, out).await).await
}

async fn measure(app: &App, triples: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let base = format!("http://{}", app.address);
    let (client, pool) = (uploads::client(&base)?, &app.service.pool);
    let nodes = fill(pool, triples / 10).await?;
    // What a literal says of a document, it says alone; some facts contradict others.
    let mut first = None;
    for (number, name) in PREDICATES.iter().chain(&[LITERALS]).enumerate() {
        let new = NewPredicate {
            name: (*name).to_owned(),
            asymmetric: number == 1,
            disjoint_with: first.filter(|_| number == 2).into_iter().collect(),
            functional: *name == LITERALS,
            ..NewPredicate::default()
        };
        let id = client.create_predicate(Json(new)).await?.id;
        first.get_or_insert(id);
    }
    let reader = reader(pool, &client, &base).await?;
    let mut random = StdRng::seed_from_u64(7);
    let (mut taken, mut rates) = (Duration::ZERO, Vec::new());
    let (mut moments, mut edges) = (Vec::new(), graph::Edges::new());
    for from in (0..triples).step_by(BATCH) {
        let facts: Vec<NewFact> = (from..triples.min(from + BATCH)).map(|_| fact(&mut random, &nodes)).collect();
        let count = facts.len();
        let edge = |fact: &NewFact| Some((fact.subject_id?, fact.predicate.clone()?, fact.object_id?));
        edges.extend(facts.iter().filter_map(edge));
        let batch = NewFacts { facts, on_overlap: Some(OnOverlap::Merge) };
        let begun = Instant::now();
        moments.push(client.assert_facts(Json(batch)).await?.recorded_at);
        let time = begun.elapsed();
        taken += time;
        rates.push(count as f64 / time.as_secs_f64());
    }
    let rate = triples as f64 / taken.as_secs_f64();
    out(Figure::alone("knowledge/assert/batches", triples, "facts/s", rate).meant_to_be(Bound::OursAtLeast(10_000.0)));
    let best = rates.iter().copied().fold(0.0, f64::max);
    out(Figure::alone("knowledge/assert/best_batch", BATCH, "facts/s", best));
    sqlx::raw_sql("VACUUM (ANALYZE) triples, documents, triple_citations").execute(pool).await?;

    // The reader may read every second community.
    let seen: Vec<i64> = nodes.chunks(COMMUNITY).step_by(2).flatten().copied().collect();
    let pairs: Vec<(i64, i64)> = (0..PAIRS)
        .map(|_| (seen[random.random_range(0..seen.len())], seen[random.random_range(0..seen.len())]))
        .collect();
    for (who, client) in [("owner", &client), ("reader", &reader)] {
        let (mut times, mut visited) = (Vec::new(), 0_usize);
        for (from_id, to_id) in pairs.iter().copied() {
            let begun = Instant::now();
            let found = client.find_paths(Json(search(from_id, to_id))).await?;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
            visited += found.visited as usize;
        }
        let [half, most, worst] = shares(&mut times);
        out(Figure::alone(&format!("knowledge/path/{who}/p50"), triples, "ms", half));
        out(Figure::alone(&format!("knowledge/path/{who}/p95"), triples, "ms", most)
            .meant_to_be(Bound::OursAtMost(200.0)));
        out(Figure::alone(&format!("knowledge/path/{who}/worst"), triples, "ms", worst));
        out(Figure::alone(&format!("knowledge/path/{who}/visited"), triples, "documents", (visited / PAIRS) as f64));
        let mut times = Vec::new();
        for _ in 0..PAIRS {
            let query = FactQuery {
                subject_id: Some(seen[random.random_range(0..seen.len())]),
                known_at: Some(moments[random.random_range(0..moments.len())]),
                valid_at: Some(ValidAt::Any),
                ..FactQuery::default()
            };
            let begun = Instant::now();
            client.list_facts(query).await?;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
        let [half, most, _] = shares(&mut times);
        out(Figure::alone(&format!("knowledge/as_of/{who}/p50"), triples, "ms", half));
        out(Figure::alone(&format!("knowledge/as_of/{who}/p95"), triples, "ms", most));
        export(client, who, triples, out).await?;
    }
    graph::measure(&client, &edges, &moments, triples, out).await?;
    rules::measure(&client, pool, &nodes, triples, out).await?;
    import(&client, out).await
}

/// How soon an export begins, how long it takes, and how much memory the process has more at most while it does.
async fn export(
    client: &Client<Remote>,
    who: &str,
    triples: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let before = resident_mib()?;
    let begun = Instant::now();
    let mut pieces = client.export_turtle(TurtleQuery::default()).await?;
    let (mut first, mut bytes, mut most) = (None, 0, before);
    while let Some(piece) = pieces.try_next().await? {
        first.get_or_insert_with(|| begun.elapsed());
        bytes += piece.len();
        most = most.max(resident_mib()?);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let first = first.map_or(f64::NAN, |first| first.as_secs_f64() * 1000.0);
    out(Figure::alone(&format!("knowledge/export/{who}/first_byte"), triples, "ms", first)
        .meant_to_be(Bound::OursAtMost(500.0)));
    out(Figure::alone(&format!("knowledge/export/{who}/all"), triples, "s", seconds));
    out(Figure::alone(&format!("knowledge/export/{who}/size"), triples, "MiB", bytes as f64 / f64::from(1 << 20)));
    out(Figure::alone(&format!("knowledge/export/{who}/memory"), triples, "MiB", most - before)
        .meant_to_be(Bound::OursAtMost(64.0)));
    Ok(())
}

/// What the process holds in memory now, with the client of this bench in it.
fn resident_mib() -> Result<f64, BoxError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// How fast a graph becomes documents, predicates and facts, and how fast it is found to be there.
async fn import(client: &Client<Remote>, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let text: String = (0..GRAPH)
        .map(|number| {
            format!(
                "<http://e/{}> <http://v/{}> <http://e/{}> .\n",
                number / 4,
                number % 20,
                (number * 7919) % (GRAPH / 4)
            )
        })
        .collect();
    for what in ["new", "known"] {
        let text = RdfText { syntax: RdfSyntax::Turtle, text: text.clone() };
        let begun = Instant::now();
        let done = client.import_turtle(ImportQuery::default(), text).await?;
        let rate = f64::from(done.triples) / begun.elapsed().as_secs_f64();
        out(Figure::alone(&format!("knowledge/import/{what}"), GRAPH, "triples/s", rate));
    }
    Ok(())
}

/// The median, the value below which 95 of 100 are, and the largest.
fn shares(times: &mut [f64]) -> [f64; 3] {
    times.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| {
        times.get((times.len() * share / 100).min(times.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    };
    [at(50), at(95), at(100)]
}

fn search(from_id: i64, to_id: i64) -> PathSearch {
    PathSearch { max_depth: Some(6), ..PathSearch::new(from_id, to_id) }
}

/// A fact: one of ten leads to a literal, half of the others stay in their community, and low numbers are hubs.
fn fact(random: &mut StdRng, nodes: &[i64]) -> NewFact {
    let at = random.random_range(0..nodes.len());
    let community = at / COMMUNITY * COMMUNITY;
    let skewed = |random: &mut StdRng, most: usize| (random.random::<f64>().powi(3) * most as f64) as usize;
    let to = match random.random_bool(0.5) {
        true => community + skewed(random, COMMUNITY.min(nodes.len() - community)),
        false => skewed(random, nodes.len()),
    };
    let fact = NewFact {
        subject_id: Some(nodes[at]),
        predicate: Some(PREDICATES[random.random_range(0..PREDICATES.len())].to_owned()),
        ..NewFact::default()
    };
    match random.random_bool(0.1) {
        true => NewFact {
            predicate: Some(LITERALS.to_owned()),
            object_literal: Some(random.random_range(0..1_000_000).to_string()),
            ..fact
        },
        false => NewFact { object_id: Some(nodes[to]), ..fact },
    }
}

/// Stores communities of documents, each under a folder, and returns the ids of the documents.
async fn fill(pool: &PgPool, count: usize) -> Result<Vec<i64>, BoxError> {
    let mut nodes = Vec::with_capacity(count);
    for from in (0..count).step_by(COMMUNITY) {
        let made: Vec<i64> = sqlx::query_scalar(
            "WITH folder AS (
                 INSERT INTO documents (title, content, usetype, content_hash, guard) VALUES ('Folder', '', 'markdown', 'sha256:', 0) RETURNING id)
             INSERT INTO documents (parent_id, path, title, content, usetype, position, content_hash, guard)
             SELECT f.id, ARRAY[f.id], 'Node ' || n, 'What is known of it.', 'markdown', n, 'sha256:' || n, 0
               FROM folder f, generate_series(1, $1) n RETURNING id",
        )
        .bind(i32::try_from(COMMUNITY.min(count - from))?)
        .fetch_all(pool)
        .await?;
        nodes.extend(made);
    }
    nodes.sort_unstable();
    eprintln!("bench: {} documents", nodes.len());
    Ok(nodes)
}

/// A principal who may read every second folder of those that are all closed.
async fn reader(pool: &PgPool, client: &Client<Remote>, base: &str) -> Result<Client<Remote>, BoxError> {
    let folders: Vec<i64> =
        sqlx::query_scalar("SELECT id FROM documents WHERE parent_id IS NULL ORDER BY id").fetch_all(pool).await?;
    let new = NewPrincipal { name: "reader".to_owned(), kind: PrincipalKind::User };
    let principal_id = client.create_principal(Json(new)).await?.id;
    for (number, id) in folders.into_iter().enumerate() {
        if number % 2 == 0 {
            client.put_grant(GrantPath { id, principal_id }, Json(NewGrant { right: GrantRight::Read })).await?;
        } else {
            client.protect_document(DocumentPath { id }).await?;
        }
    }
    let new = NewApiToken { name: "bench".to_owned(), expires_at: None };
    let token = client.issue_api_token(PrincipalPath { id: principal_id }, Json(new)).await?.secret;
    let http = reqwest::Client::builder().no_proxy().build()?;
    Ok(Client(Remote::new(base, &token, http)))
}
