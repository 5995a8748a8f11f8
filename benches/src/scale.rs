//! Many small nodes in one service: what a tenth of them and all of them cost in memory, time and searches, what it takes to move them, what a node
//! weighs, and what a standby takes off the primary.
mod moving;
mod offload;

use crate::{
    figure::{BoxError, Figure, median},
    markdown::{self, Prose},
    sandbox::{Sandbox, interruptible},
    service_process::{Memory, ServiceProcess},
    uploads,
};
use std::time::Instant;
use svc_client::{
    Client, Json, Remote,
    wire::{Bm25Search, FulltextSearch, HybridSearch, VectorSearch},
};

/// The nodes of a file: itself, and two for each section.
const FILE: usize = 1_001;
/// How many searches of each method run; the first ones, which warm it up, do not count.
const SEARCHES: usize = 60;
const WARMING: usize = 10;

pub async fn run(nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let sandbox = Sandbox::new()?;
    let mut service = ServiceProcess::start(&sandbox)?;
    let measured = interruptible(measure(&mut service, &sandbox, nodes, out)).await;
    let stopped = service.stop().await;
    measured.and(stopped)
}

async fn measure(
    service: &mut ServiceProcess,
    sandbox: &Sandbox,
    nodes: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let base = service.base().await?;
    let client = uploads::client(&base)?;
    // There are at least ten files, whatever the size, so that a tenth exists.
    let files = (nodes / FILE).max(10);
    let sections = (nodes / files).saturating_sub(1).max(2) / 2;
    let file = |number: usize| (format!("ledger-{number}.md"), markdown::ledger(number, sections));
    let tenth = files / 10;
    memory("empty", 0, service.memory()?, out);

    let start = Instant::now();
    let first = uploads::ingest(&client, (0..tenth).map(file)).await?;
    let first_seconds = start.elapsed().as_secs_f64();
    out(Figure::alone("scale/tenth/ingest", first, "nodes/s", first as f64 / first_seconds));
    let at_tenth = service.memory()?;
    memory("tenth", first, at_tenth, out);
    searches(&client, "tenth", first, out).await?;

    let start = Instant::now();
    let rest = uploads::ingest(&client, (tenth..files).map(file)).await?;
    let rest_seconds = start.elapsed().as_secs_f64();
    out(Figure::alone("scale/rest/ingest", rest, "nodes/s", rest as f64 / rest_seconds));
    let all = first + rest;
    out(Figure::alone("scale/all/ingest", all, "nodes/s", all as f64 / (first_seconds + rest_seconds)));
    let at_end = service.memory()?;
    memory("all", all, at_end, out);
    out(Figure::alone("scale/memory_growth", rest, "bytes/node", (at_end.now - at_tenth.now) / rest as f64));
    searches(&client, "all", all, out).await?;
    moving::measure(&client, &base, sandbox, all, out).await?;
    offload::measure(sandbox, nodes, out).await
}

fn memory(when: &str, nodes: usize, memory: Memory, out: &mut dyn FnMut(Figure)) {
    out(Figure::alone(&format!("scale/{when}/memory"), nodes, "MB", memory.now / 1e6));
    out(Figure::alone(&format!("scale/{when}/memory_peak"), nodes, "MB", memory.peak / 1e6));
}

/// The time of each search method as a caller sees it.
async fn searches(
    client: &Client<Remote>,
    when: &str,
    nodes: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    for method in ["vector", "fulltext", "bm25", "hybrid"] {
        let mut prose = Prose::new(7);
        let mut times = Vec::with_capacity(SEARCHES);
        let mut found = 0;
        for number in 0..SEARCHES {
            let query = prose.words(3);
            // The service keeps the vector of a query, so the times are those of the searches alone.
            client.search_vector(Json(VectorSearch { limit: 1, ..VectorSearch::new(&query) })).await?;
            let start = Instant::now();
            let answer = match method {
                "vector" => client.search_vector(Json(VectorSearch::new(&query))).await?,
                "fulltext" => client.search_fulltext(Json(FulltextSearch::new(&query))).await?,
                "bm25" => client.search_bm25(Json(Bm25Search::new(&query))).await?,
                _ => client.search_hybrid(Json(HybridSearch::new(&query))).await?,
            };
            if number >= WARMING {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            found += answer.results.len();
        }
        if found == 0 {
            return Err(format!("{method} search finds nothing among {nodes} nodes").into());
        }
        out(Figure::alone(&format!("scale/{when}/search_p50/{method}"), nodes, "ms", median(&mut times)));
    }
    Ok(())
}
