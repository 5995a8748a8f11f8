//! The part of a subtree that is worth reading within a budget of tokens. The choice is `svc_ranking::choose`;
//! docs/raptor.md describes it.
use super::results::{self, Shows};
use crate::{
    access::Caller,
    core::Core,
    error::OrFail,
    store::{
        self,
        nodes::TextRow,
        raptor::{CandidateRow, ReadingKey},
        vectors::{self, Stored},
    },
};
use pgvector::HalfVector;
use sqlx::PgConnection;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use svc_client::{
    Code, Failure,
    wire::{PORTFOLIO_CANDIDATES, PortfolioNode, PortfolioRequest, PortfolioResponse, PortfolioRule},
};
use svc_ids::DocumentId;
use svc_ranking::{Coverage, GUARANTEE, Points, Portfolio, Rule, choose, dot};

/// The texts that are read and counted at once.
const TEXTS: usize = 256;
/// How much nearness to the query counts: a leaf that is one standard deviation nearer than another counts e to this many
/// times as much. docs/raptor.md has what was measured.
const FOCUS: f64 = 2.0;

/// Chooses what to read under a document.
pub async fn portfolio(
    core: &Core,
    caller: &Caller,
    id: DocumentId,
    body: PortfolioRequest,
) -> Result<PortfolioResponse, Failure> {
    let started = Instant::now();
    let scope = caller.readable();
    let model = core.model().await?;
    {
        let mut conn = core.pool.acquire().await.or_fail()?;
        let there = store::documents::is_readable(&mut conn, &scope, id).await.or_fail()?;
        there.then_some(()).ok_or_else(|| Failure::no_document(id.0))?;
    }
    let query = match &body.query {
        Some(query) => {
            let embedded = core.queries.of(&model, query).await.or_fail()?.ok_or_else(|| {
                Failure::field("query", "the model knows none of its words, so nothing is near to it")
                    .with("remedy", "ask without a query, or with other words")
            })?;
            Some(vectors::unit(&Stored::new(model.identity(), model.native_width(), &embedded).vector))
        }
        None => None,
    };
    let stop = StopOnDrop::default();
    // All of it is read at one moment, so that the texts are those that the vectors are of.
    let mut tx = store::transaction::begin_search(&core.pool).await.or_fail()?;
    let excluded = &core.settings.search_exclude_usetypes;
    let most = PORTFOLIO_CANDIDATES + 1;
    let rows = store::raptor::candidates(&mut tx, &scope, id, model.identity(), excluded, body.summaries, most)
        .await
        .or_fail()?;
    if rows.len() as i64 > PORTFOLIO_CANDIDATES {
        let detail =
            format!("more than {PORTFOLIO_CANDIDATES} texts are under document {id}, which is the most to choose from");
        return Err(Failure::new(Code::TooLarge, detail)
            .with("limit", PORTFOLIO_CANDIDATES)
            .with("remedy", "ask for documents under this one, or search"));
    }
    if !rows.iter().any(|row| row.is_leaf) {
        return Err(Failure::field("id", format!("no text with a vector is under document {id}"))
            .with("remedy", "ask for a document that has others under it, once they are embedded"));
    }
    let mut costs = Vec::with_capacity(rows.len());
    for part in rows.chunks(TEXTS) {
        let ids: Vec<DocumentId> = part.iter().map(|row| row.id).collect();
        let texts = store::nodes::texts(&mut tx, &ids).await.or_fail()?;
        let model = model.clone();
        let counted = tokio::task::spawn_blocking(move || {
            let tokens = |row: TextRow| model.count_content_tokens(&row.content).map(|tokens| tokens.max(1) as u64);
            texts.into_iter().map(tokens).collect::<Result<Vec<u64>, _>>()
        });
        costs.extend(counted.await.map_err(|error| Failure::new(Code::Internal, error))?.or_fail()?);
    }
    let leaves = rows.iter().filter(|row| row.is_leaf).count();
    let candidates = rows.len();
    let (chosen, rows, costs) = choose_within(rows, costs, query, body.tokens.into(), &stop).await?;
    let order = reading_order(&mut tx, id, &rows, &chosen).await?;
    let ids: Vec<DocumentId> = order.iter().map(|turn| rows[chosen.chosen[*turn].candidate].id).collect();
    let shows = Shows::of(None, body.include_content, body.include_embed);
    let mut documents = results::show(core, &mut tx, &scope, &ids, &[], &shows).await?.documents;
    tx.commit().await.or_fail()?;
    let node = |turn: usize| {
        let pick = chosen.chosen[turn];
        let document = documents.remove(&rows[pick.candidate].id)?;
        Some(PortfolioNode { document, tokens: costs[pick.candidate], gain: pick.gain, turn: turn + 1 })
    };
    Ok(PortfolioResponse {
        document_id: id.0,
        nodes: order.into_iter().filter_map(node).collect(),
        tokens: chosen.cost,
        coverage: chosen.value,
        bound: chosen.bound,
        guarantee: GUARANTEE,
        rule: match chosen.rule {
            Rule::GainPerCost => PortfolioRule::GainPerToken,
            Rule::Gain => PortfolioRule::Gain,
            Rule::BestSingle => PortfolioRule::BestSingle,
        },
        leaves,
        candidates,
        model: model.identity().to_owned(),
        latency_ms: started.elapsed().as_secs_f64() * 1e3,
    })
}

/// Tells the thread that computes that nobody waits any more.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Choice = (Portfolio, Vec<CandidateRow>, Vec<u64>);

async fn choose_within(
    rows: Vec<CandidateRow>,
    costs: Vec<u64>,
    query: Option<Vec<f32>>,
    budget: u64,
    stop: &StopOnDrop,
) -> Result<Choice, Failure> {
    let stopped = stop.0.clone();
    let work = tokio::task::spawn_blocking(move || {
        let is_stopped = || stopped.load(Ordering::Relaxed);
        let coverage = coverage(&rows, &costs, query.as_deref(), &is_stopped)?;
        let chosen = choose(&coverage, &costs, budget, &is_stopped)?;
        Some((chosen, rows, costs))
    });
    let chosen = work.await.map_err(|error| Failure::new(Code::Internal, error))?;
    chosen.ok_or_else(|| Failure::new(Code::Internal, "the choice was stopped"))
}

/// How well each candidate covers each leaf: the cosine of their vectors, beyond that of two leaves on average. Models
/// differ much in that average.
fn coverage(rows: &[CandidateRow], costs: &[u64], query: Option<&[f32]>, stop: &dyn Fn() -> bool) -> Option<Coverage> {
    let unit = |embed: &HalfVector| vectors::unit(embed);
    let mut points = Points::new(rows.first().map_or(1, |row| row.embed.to_vec().len()));
    rows.iter().for_each(|row| points.push(&unit(&row.embed)));
    let leaves: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].is_leaf).collect();
    // The mean of the cosines of all pairs is the squared length of the mean vector.
    let mean = points.select(&leaves).mean();
    let average = (mean.iter().map(|x| x * x).sum::<f64>() as f32).clamp(0.0, 0.99);
    let weights = match query {
        Some(query) => nearness(leaves.iter().map(|leaf| f64::from(dot(query, points.row(*leaf)))).collect()),
        None => leaves.iter().map(|leaf| costs[*leaf] as f64).collect(),
    };
    let similarity = |candidate: usize, leaf: usize| {
        (dot(points.row(candidate), points.row(leaves[leaf])) - average) / (1.0 - average)
    };
    Coverage::new(rows.len(), &weights, similarity, stop)
}

/// The weights of leaves with these cosines to the query.
fn nearness(cosines: Vec<f64>) -> Vec<f64> {
    let n = cosines.len().max(1) as f64;
    let mean = cosines.iter().sum::<f64>() / n;
    let deviation = (cosines.iter().map(|cosine| (cosine - mean).powi(2)).sum::<f64>() / n).sqrt().max(1e-6);
    cosines.into_iter().map(|cosine| (FOCUS * ((cosine - mean) / deviation).clamp(-20.0, 20.0)).exp()).collect()
}

/// The turns of the choice in the order in which the texts are read: summaries first, the later and so the higher ones
/// first of all, and then leaves as the tree has them.
async fn reading_order(
    conn: &mut PgConnection,
    under: DocumentId,
    rows: &[CandidateRow],
    chosen: &Portfolio,
) -> Result<Vec<usize>, Failure> {
    let picked: Vec<&CandidateRow> = chosen.chosen.iter().map(|pick| &rows[pick.candidate]).collect();
    let placed: Vec<_> = picked.iter().map(|row| (row.id, row.path.as_slice(), row.position)).collect();
    let keys = store::raptor::reading_keys(conn, under, &placed).await.or_fail()?;
    let key = |(row, key): (&CandidateRow, ReadingKey)| (row.is_leaf, if row.is_leaf { 0 } else { -row.id.0 }, key);
    let keys: Vec<_> = picked.into_iter().zip(keys).map(key).collect();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|a, b| keys[*a].cmp(&keys[*b]));
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearer_leaves_weigh_more_whatever_the_model_s_range_of_cosines() {
        let weights = nearness(vec![0.1, 0.2, 0.3]);
        assert!(weights.is_sorted_by(|a, b| a < b), "{weights:?}");
        let narrow = nearness(vec![0.81, 0.82, 0.83]);
        assert!(weights.iter().zip(&narrow).all(|(a, b)| (a / b - 1.0).abs() < 1e-6), "{weights:?} {narrow:?}");
        assert!(nearness(vec![0.5; 4]).iter().all(|weight| (*weight - 1.0).abs() < 1e-9));
        assert!(nearness(Vec::new()).is_empty());
    }
}
