//! Trees of summaries, after RAPTOR (Sarthi et al., ICLR 2024): texts are clustered by their vectors, each cluster gets a
//! summary, the summaries are clustered in turn, and so on. docs/raptor.md describes it.
mod summary;

use crate::{
    search::bm25,
    store::{self, places::Place},
};
use sqlx::PgConnection;
use std::{collections::BTreeMap, slice};
use summary::{Budget, summarise};
pub use summary::{Method, Summary};
use svc_client::wire::RaptorRequest;
use svc_ids::DocumentId;
use svc_ranking::{Analyzer, AnalyzerConfig, Clustering, Points};

/// The most components of one mixture, as in the paper's program.
const COMPONENTS: usize = 50;

/// A text on some level of the tree: a leaf, or a summary that was made before.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: DocumentId,
    pub title: String,
    pub text: String,
    pub tokens: usize,
    /// Where the first leaf under it stands in the order in which the leaves are read.
    pub first_leaf: usize,
    /// Of length 1.
    pub vector: Vec<f32>,
}

/// A summary to be stored.
#[derive(Clone, Debug)]
pub struct NewSummary {
    pub title: String,
    pub summary: Summary,
    /// The most tokens that it may have.
    pub room: usize,
    /// Why no language model wrote it, though one was asked.
    pub not_written: Option<String>,
    pub first_leaf: usize,
    /// The index of each text that it summarises, and the share of that text which belongs to it.
    pub members: Vec<(usize, f64)>,
}

/// One level: its summaries, and the texts that are alone in all their clusters.
#[derive(Clone, Debug, Default)]
pub struct Level {
    pub summaries: Vec<NewSummary>,
    pub alone: Vec<usize>,
}

/// Clusters the texts and summarises each cluster; the texts come in the order in which they are read. `window` is the
/// most tokens that the model takes. `None` if `stop` said so. This takes long, so call it on a blocking thread.
pub fn level(
    nodes: &[Node],
    request: &RaptorRequest,
    window: usize,
    count: &dyn Fn(&str) -> usize,
    stop: &dyn Fn() -> bool,
) -> Option<Level> {
    let mut points = Points::new(nodes.first().map_or(1, |node| node.vector.len()));
    nodes.iter().for_each(|node| points.push(&node.vector));
    let sizes: Vec<u64> = nodes.iter().map(|node| node.tokens as u64).collect();
    let clustering = Clustering {
        seed: request.seed.into(),
        dimensions: request.dimensions as usize,
        threshold: request.threshold,
        components: COMPONENTS,
        most_size: request.cluster_tokens.into(),
    };
    let clusters = clustering.clusters(&points, &sizes, stop)?;
    let analyzer = Analyzer::new(AnalyzerConfig::default());
    let mut level = Level::default();
    let mut is_summarised = vec![false; nodes.len()];
    for cluster in clusters.iter().filter(|cluster| cluster.len() > 1) {
        let members: Vec<&Node> = cluster.iter().map(|member| &nodes[member.point]).collect();
        let title = title(&members);
        // The title is embedded with the text.
        let room = window.saturating_sub(count(&title) + 4).min(request.summary_tokens as usize).max(1);
        let texts: Vec<&str> = members.iter().map(|node| node.text.as_str()).collect();
        let summary = summarise(&texts, &Budget { tokens: room, count, analyzer: &analyzer, stop })?;
        cluster.iter().for_each(|member| is_summarised[member.point] = true);
        level.summaries.push(NewSummary {
            title,
            summary,
            room,
            not_written: None,
            first_leaf: members.iter().map(|node| node.first_leaf).min().unwrap_or(0),
            members: cluster.iter().map(|member| (member.point, member.share)).collect(),
        });
    }
    level.alone = (0..nodes.len()).filter(|at| !is_summarised[*at]).collect();
    Some(level)
}

/// The title that most members have; if several are equally frequent, the first of them.
fn title(members: &[&Node]) -> String {
    let mut counts: BTreeMap<&str, (usize, std::cmp::Reverse<usize>)> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        counts.entry(&member.title).or_insert((0, std::cmp::Reverse(at))).0 += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(title, _)| title.to_owned()).unwrap_or_default()
}

/// Removes the trees of summaries that quote something at or under these places, and the summaries that language models made of it. Whoever
/// deletes a place or gives it another text or guard must do this in the same transaction, since a summary tells what it summarises.
/// Returns how many trees there were.
pub async fn forget_over(conn: &mut PgConnection, places: &[Place]) -> Result<usize, bm25::Error> {
    store::summaries::forget_over(conn, places).await?;
    remove_over(conn, places).await
}

/// Does the same before a place is moved away, which changes nothing of what was asked of the place itself.
pub async fn forget_above(conn: &mut PgConnection, place: &Place) -> Result<(), bm25::Error> {
    store::summaries::forget_above(conn, place).await?;
    remove_over(conn, slice::from_ref(place)).await.map(|_| ())
}

async fn remove_over(conn: &mut PgConnection, places: &[Place]) -> Result<usize, bm25::Error> {
    let trees = store::raptor::over(conn, places).await?;
    for tree in &trees {
        remove(conn, tree).await?;
    }
    Ok(trees.len())
}

/// Removes a tree of summaries.
pub async fn remove(conn: &mut PgConnection, tree: &Place) -> Result<(), bm25::Error> {
    let under = tree.path().last().copied().map(DocumentId);
    let gone = store::documents::delete_subtrees(conn, slice::from_ref(tree)).await?;
    bm25::remove(conn, None, &gone.ids).await?;
    store::ingest_nodes::forget(conn, &gone.ids).await?;
    if let Some(under) = under {
        store::ingest_nodes::count(conn, under, -gone.counts).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(at: usize, direction: usize, text: &str) -> Node {
        let vector =
            (0..8).map(|axis| if axis == direction { 1.0 } else { 0.02 * ((at * 7 + axis) % 5) as f32 }).collect();
        let tokens = text.split_whitespace().count();
        let title = format!("Part {direction}");
        Node { id: DocumentId(at as i64), title, text: text.to_owned(), tokens, first_leaf: at, vector }
    }

    #[test]
    fn a_level_summarises_what_belongs_together_and_the_seed_decides_it() {
        let texts =
            ["The heron hunts fish at dawn.", "The gauge measures the level of the tank.", "A vote needs two thirds."];
        let nodes: Vec<Node> = (0..60).map(|at| leaf(at, at % 3, texts[at % 3])).collect();
        let request = RaptorRequest { summary_tokens: 32, cluster_tokens: 200, ..RaptorRequest::default() };
        let count = |text: &str| text.split_whitespace().count();
        let of = |seed| level(&nodes, &RaptorRequest { seed, ..request }, 512, &count, &|| false).unwrap();
        let made = of(1);
        assert!(made.alone.is_empty() && made.summaries.len() >= 3, "{made:?}");
        for new in &made.summaries {
            let about: std::collections::BTreeSet<usize> = new.members.iter().map(|(member, _)| member % 3).collect();
            assert_eq!(about.len(), 1, "{new:?}");
            assert_eq!(new.title, format!("Part {}", new.members[0].0 % 3));
            assert!(new.summary.tokens <= 32 && new.first_leaf == new.members[0].0, "{new:?}");
        }
        assert_eq!(format!("{:?}", of(1)), format!("{made:?}"));
        assert!(level(&nodes, &request, 512, &count, &|| true).is_none());
    }
}
