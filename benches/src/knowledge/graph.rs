//! The graph of all facts: PageRank and communities beside networkx and leidenalg, which have the graph in memory already, and what changed and
//! what is wrong.
use crate::{
    figure::{Bound, BoxError, Figure, Peer, median},
    formats::{folder, installed},
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
    process::Command,
    time::Instant,
};
use svc_client::{
    Client, Json, Remote,
    wire::{CentralityMetric, CentralityQuery, CommunityQuery, DiffQuery, GraphQuery, LintRequest},
};

const REQUIREMENTS: &str = include_str!("../../peers/graph-requirements.txt");
/// The documents whose scores are compared, which is the most that one answer shows.
const COMPARED: u32 = 1_000;
/// How often what takes little time is measured.
const TIMES: usize = 5;

/// What leads from one document to another, once for each predicate.
pub type Edges = HashSet<(i64, String, i64)>;

/// What the peers say.
#[derive(Deserialize)]
struct Theirs {
    networkx: String,
    leidenalg: String,
    page_rank_seconds: f64,
    scores: BTreeMap<String, f64>,
    communities_seconds: f64,
    modularity: f64,
}

/// Measures the analyses of a graph with these edges; `moments` are the times at which batches of facts were recorded.
pub async fn measure(
    client: &Client<Remote>,
    edges: &Edges,
    moments: &[DateTime<Utc>],
    triples: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let (mut page_rank, mut communities) = (Vec::new(), Vec::new());
    let (mut scores, mut documents, mut modularity) = (HashMap::new(), 0, 0.0);
    for _ in 0..TIMES {
        let query = CentralityQuery { limit: Some(COMPARED), ..CentralityQuery::default() };
        let begun = Instant::now();
        let found = client.rank_documents(query).await?;
        page_rank.push(begun.elapsed().as_secs_f64());
        documents = found.documents;
        scores = found.results.into_iter().map(|result| (result.document.document_id, result.score)).collect();
        let begun = Instant::now();
        let found = client.find_communities(CommunityQuery { members: Some(1), ..CommunityQuery::default() }).await?;
        communities.push(begun.elapsed().as_secs_f64());
        modularity = found.modularity;
    }
    let theirs = peers(edges, documents)?;
    let difference = scores.iter().map(|(id, score)| {
        let theirs = theirs.scores.get(&id.to_string()).copied().unwrap_or(f64::NAN);
        (score - theirs).abs()
    });
    let networkx = |value| Peer { name: "networkx", version: theirs.networkx.clone().into(), value };
    let leidenalg = |value| Peer { name: "leidenalg", version: theirs.leidenalg.clone().into(), value };
    let name = |what: &str| format!("knowledge/graph/{what}");
    out(Figure::beside(&name("pagerank"), triples, "s", median(&mut page_rank), networkx(theirs.page_rank_seconds)));
    // A score that the peer lacks is no number, and stays none.
    let worst =
        difference.fold(0.0, |worst: f64, one| if one.is_nan() || worst.is_nan() { f64::NAN } else { worst.max(one) });
    out(Figure::alone(&name("pagerank/largest_difference"), scores.len(), "score", worst)
        .meant_to_be(Bound::OursAtMost(1e-6)));
    out(Figure::beside(
        &name("communities"),
        triples,
        "s",
        median(&mut communities),
        leidenalg(theirs.communities_seconds),
    ));
    out(Figure::alone(&name("communities/modularity"), triples, "of 1", modularity));
    out(Figure::alone(&name("communities/modularity_of_leidenalg"), triples, "of 1", theirs.modularity));
    let behind = theirs.modularity - modularity;
    out(Figure::alone(&name("communities/modularity_behind_leidenalg"), triples, "of 1", behind)
        .meant_to_be(Bound::OursAtMost(0.01)));
    let query =
        CentralityQuery { metric: Some(CentralityMetric::Betweenness), limit: Some(10), ..CentralityQuery::default() };
    let begun = Instant::now();
    let found = client.rank_documents(query).await?;
    out(Figure::alone(&name("betweenness"), triples, "s", begun.elapsed().as_secs_f64()));
    out(Figure::alone(&name("betweenness/pivots"), triples, "documents", f64::from(found.pivots.unwrap_or(0))));
    let begun = Instant::now();
    client.read_graph_stats(GraphQuery::default()).await?;
    out(Figure::alone(&name("stats"), triples, "s", begun.elapsed().as_secs_f64()));
    changes(client, moments, triples, out).await
}

/// What the last batch changed, and what is wrong with all facts.
async fn changes(
    client: &Client<Remote>,
    moments: &[DateTime<Utc>],
    triples: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let (mut diff, mut added) = (Vec::new(), 0);
    for _ in 0..TIMES {
        let [.., known_from, known_to] = moments else { return Err("there are less than two batches".into()) };
        let query = DiffQuery { known_from: Some(*known_from), known_to: Some(*known_to), ..DiffQuery::default() };
        let begun = Instant::now();
        added = client.compare_facts(query).await?.added;
        diff.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    out(Figure::alone("knowledge/diff", triples, "ms", median(&mut diff)).meant_to_be(Bound::OursAtMost(100.0)));
    out(Figure::alone("knowledge/diff/added", triples, "facts", added as f64));
    let (mut lint, mut audits) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let begun = Instant::now();
        audits = client.lint_graph(Json(LintRequest::default())).await?.audits;
        lint.push(begun.elapsed().as_secs_f64());
    }
    out(Figure::alone("knowledge/lint", triples, "s", median(&mut lint)).meant_to_be(Bound::OursAtMost(3.0)));
    for audit in audits {
        out(Figure::alone(&format!("knowledge/lint/{}", audit.audit.as_str()), triples, "ms", audit.ms as f64));
    }
    Ok(())
}

/// Has networkx rank the same documents, and leidenalg group them.
fn peers(edges: &Edges, documents: u32) -> Result<Theirs, BoxError> {
    let packages = installed("peers-graph", "graph-requirements.txt", REQUIREMENTS)?;
    let mut text = format!("{documents}\n");
    for (from, _, to) in edges {
        writeln!(text, "{from} {to}")?;
    }
    let folder_of_edges = tempfile::tempdir()?;
    let file = folder_of_edges.path().join("edges");
    std::fs::write(&file, text)?;
    let done =
        Command::new("python3").arg(folder().join("graph.py")).arg(&file).env("PYTHONPATH", packages).output()?;
    if !done.status.success() {
        return Err(format!("the peers failed: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(serde_json::from_slice(&done.stdout)?)
}
