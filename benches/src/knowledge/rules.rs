//! Rules: how fast facts are asserted whose predicate has one, and how soon all that follows from them is there.
use crate::figure::{BoxError, Figure};
use sqlx::PgPool;
use std::time::{Duration, Instant};
use svc_client::{
    Client, Json, Remote,
    wire::{NewFact, NewFacts, NewPredicate, OnOverlap},
};

/// The facts of a chain, from which one for each two documents follows that are no neighbours.
const LENGTH: usize = 4;
/// The chains, from which less follows than is allowed by default.
const CHAINS: usize = 15_000;
/// What follows from one chain.
const FOLLOW: usize = (LENGTH + 1) * LENGTH / 2 - LENGTH;
const BATCH: usize = 5_000;
const PAUSE: Duration = Duration::from_millis(20);

pub async fn measure(
    client: &Client<Remote>,
    pool: &PgPool,
    nodes: &[i64],
    triples: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    let chains = CHAINS.min(nodes.len() / (LENGTH + 1));
    let new = NewPredicate { name: "part_of".to_owned(), transitive: true, ..NewPredicate::default() };
    client.create_predicate(Json(new)).await?;
    let ends = nodes.chunks_exact(LENGTH + 1).take(chains).flat_map(|chain| chain.windows(2));
    let facts: Vec<NewFact> = ends
        .map(|ends| NewFact {
            subject_id: Some(ends[0]),
            predicate: Some("part_of".to_owned()),
            object_id: Some(ends[1]),
            ..NewFact::default()
        })
        .collect();
    let count = facts.len();
    let begun = Instant::now();
    for facts in facts.chunks(BATCH) {
        let batch = NewFacts { facts: facts.to_vec(), on_overlap: Some(OnOverlap::Merge) };
        client.assert_facts(Json(batch)).await?;
    }
    let asserted = begun.elapsed();
    let derived = settled(pool).await?;
    let all = begun.elapsed();
    let follow = i64::try_from(FOLLOW * chains)?;
    if derived != follow {
        return Err(format!("{follow} facts follow, and {derived} are there").into());
    }
    out(Figure::alone("knowledge/rules/assert", count, "facts/s", count as f64 / asserted.as_secs_f64()));
    out(Figure::alone("knowledge/rules/derived", triples, "facts", derived as f64));
    out(Figure::alone("knowledge/rules/behind", count, "s", (all - asserted).as_secs_f64()));
    // One more fact of a chain, beside all the others.
    let one = NewFact {
        subject_id: nodes.first().copied(),
        predicate: Some("part_of".to_owned()),
        object_id: nodes.last().copied(),
        ..NewFact::default()
    };
    let begun = Instant::now();
    client.assert_fact(Json(one)).await?;
    settled(pool).await?;
    out(Figure::alone("knowledge/rules/one_more", count, "s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Waits until nothing is to be derived any more, and counts what is.
async fn settled(pool: &PgPool) -> Result<i64, BoxError> {
    while sqlx::query_scalar("SELECT EXISTS (SELECT FROM derivations)").fetch_one(pool).await? {
        tokio::time::sleep(PAUSE).await;
    }
    let query = "SELECT count(*) FROM triples WHERE derived_by IS NOT NULL AND invalidated_at IS NULL";
    Ok(sqlx::query_scalar(query).fetch_one(pool).await?)
}
