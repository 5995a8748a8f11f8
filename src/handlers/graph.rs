//! Analyses of the graph that the documents make with their facts and links.
mod comparing;
mod lint;
mod near;

use super::{lists::must_exist, triples::known};
use crate::{
    access::Caller,
    admission::Place,
    error::OrFail,
    graph::network::{Graph, Wanted, compute},
    registry::Handle,
    service::Service,
    store::{
        self,
        graph::{self, Named, stats},
        triples::around::Moment,
    },
};
use chrono::{DateTime, SubsecRound, Utc};
use sqlx::PgConnection;
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};
use svc_client::{
    Call, Failure, ops,
    wire::{
        AuthorityResponse, CentralDocument, CentralityMetric, CentralityResponse, CommunitiesResponse, CommunityMember,
        CommunityResponse, Derivation, EdgeKind, GraphDocument, GraphStats, PredicateCount, SpineResponse,
        SpinesResponse, SubtreeAuthority, predicate_name,
    },
};
use svc_ids::DocumentId;
use svc_ranking::{Betweenness, Communities, Network, PageRank};

/// How long shortest paths are looked for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of how many documents the paths are looked at, if the caller does not say.
const PIVOTS: u32 = 256;
/// The most documents that an answer shows in all of its groups.
const MEMBERS: usize = 100_000;
/// How many predicates that were given up are shown.
const GIVEN_UP: i64 = 1_000;

/// What every analysis is asked for.
struct Asked {
    parent_id: Option<i64>,
    edges: Option<EdgeKind>,
    valid_at: Option<DateTime<Utc>>,
    known_at: Option<DateTime<Utc>>,
    asserted_only: bool,
}

macro_rules! asked {
    ($query:expr, $parent_id:expr) => {
        Asked {
            parent_id: $parent_id,
            edges: $query.edges,
            valid_at: $query.valid_at,
            known_at: $query.known_at,
            asserted_only: $query.asserted_only,
        }
    };
}

/// A graph in memory, with the slot that it takes.
struct Loaded {
    graph: Graph,
    moment: Moment,
    place: Place,
}

/// The moment that is asked for, now by default.
async fn moment(
    conn: &mut PgConnection,
    valid_at: Option<DateTime<Utc>>,
    known_at: Option<DateTime<Utc>>,
    asserted_only: bool,
) -> Result<Moment, Failure> {
    let valid_at = valid_at.unwrap_or_else(Utc::now).trunc_subsecs(6);
    Ok(Moment { valid_at, known_at: known(conn, known_at).await?, asserted_only })
}

async fn load(service: &Service, caller: &Caller, asked: Asked) -> Result<Loaded, Failure> {
    let place = service.admission.analysis().await?;
    let mut tx = store::transaction::begin_search(&service.pool).await.or_fail()?;
    let parent_id = asked.parent_id.map(DocumentId);
    if let Some(id) = parent_id {
        must_exist(&mut tx, caller, id).await?;
    }
    let moment = moment(&mut tx, asked.valid_at, asked.known_at, asked.asserted_only).await?;
    let (edges, most) = (asked.edges.unwrap_or(EdgeKind::Both), service.settings.graph_max_edges);
    let wanted = Wanted { parent_id, edges, moment, most };
    let graph = Graph::read(&mut tx, &caller.readable(), &wanted).await?;
    Ok(Loaded { graph, moment, place })
}

/// What documents are called, by id. One that the caller may not read any more is not among them.
async fn names(
    service: &Service,
    caller: &Caller,
    ids: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, GraphDocument>, Failure> {
    let ids: Vec<i64> = ids.collect();
    let mut conn = service.pool.acquire().await.or_fail()?;
    let named = graph::names(&mut conn, &caller.readable(), &ids).await.or_fail()?;
    let named = named.into_iter();
    Ok(named.map(|Named { id, title, usetype }| (id, GraphDocument { document_id: id, title, usetype })).collect())
}

/// Whether a document is to be shown.
async fn shown(
    service: &Service,
    caller: &Caller,
    parent_id: Option<i64>,
    usetype: Option<&str>,
) -> Result<Option<HashSet<i64>>, Failure> {
    let Some(usetype) = usetype else { return Ok(None) };
    let mut conn = service.pool.acquire().await.or_fail()?;
    let ids = graph::of_usetype(&mut conn, &caller.readable(), parent_id.map(DocumentId), usetype).await.or_fail()?;
    Ok(Some(ids.into_iter().collect()))
}

/// The numbers of at most `limit` documents with the highest values, those first; of equal ones the smaller.
fn top(graph: &Graph, limit: usize, shown: Option<&HashSet<i64>>, value: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut all: Vec<usize> =
        (0..graph.ids.len()).filter(|at| shown.is_none_or(|shown| shown.contains(&graph.ids[*at]))).collect();
    let order = |a: &usize, b: &usize| value(*b).total_cmp(&value(*a)).then(a.cmp(b));
    if all.len() > limit {
        all.select_nth_unstable_by(limit, order);
        all.truncate(limit);
    }
    all.sort_unstable_by(order);
    all
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A degree, which is a sum of ones.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of edges")]
fn whole(degree: f64) -> u64 {
    degree as u64
}

fn degree(network: &Network, at: usize) -> f64 {
    network.in_degree(at) + network.out_degree(at)
}

/// Scores, with their errors and the number of pivots if they are estimates.
struct Scores {
    scores: Vec<f64>,
    errors: Option<Vec<f64>>,
    pivots: Option<u32>,
}

impl Handle<ops::rank_documents> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::rank_documents>) -> Result<CentralityResponse, Failure> {
        let query = call.query;
        let Loaded { graph, moment, place } = load(self, caller, asked!(query, query.parent_id)).await?;
        let shown = shown(self, caller, query.parent_id, query.usetype.as_deref()).await?;
        let metric = query.metric.unwrap_or(CentralityMetric::Pagerank);
        let pivots = query.pivots.unwrap_or(PIVOTS) as usize;
        let limit = query.results();
        let (graph, found, best) = compute(move |stop| {
            let _place = place;
            let found = match metric {
                CentralityMetric::Pagerank => {
                    Scores { scores: PageRank::new(&graph.network, stop)?.scores, errors: None, pivots: None }
                }
                CentralityMetric::Degree => {
                    let scores = (0..graph.ids.len()).map(|at| degree(&graph.network, at)).collect();
                    Scores { scores, errors: None, pivots: None }
                }
                CentralityMetric::Betweenness => {
                    let begun = Instant::now();
                    let found = Betweenness::new(&graph.network, pivots, stop, &|| begun.elapsed() > PATIENCE)?;
                    Scores { scores: found.scores, errors: found.errors, pivots: Some(count(found.pivots)) }
                }
            };
            let best = top(&graph, limit, shown.as_ref(), |at| found.scores[at]);
            Some((graph, found, best))
        })
        .await?;
        let mut named = names(self, caller, best.iter().map(|at| graph.ids[*at])).await?;
        let result = |at: usize| {
            Some(CentralDocument {
                document: named.remove(&graph.ids[at])?,
                score: found.scores[at],
                standard_error: found.errors.as_ref().map(|errors| errors[at]),
                in_degree: whole(graph.network.in_degree(at)),
                out_degree: whole(graph.network.out_degree(at)),
            })
        };
        Ok(CentralityResponse {
            results: best.into_iter().filter_map(result).collect(),
            metric,
            estimate: found.errors.is_some(),
            pivots: found.pivots,
            documents: count(graph.ids.len()),
            edges: count(graph.network.edges()),
            valid_at: moment.valid_at,
            known_at: moment.known_at,
        })
    }
}

impl Handle<ops::rank_subtrees> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::rank_subtrees>) -> Result<AuthorityResponse, Failure> {
        let query = call.query;
        let Loaded { graph, moment, place } = load(self, caller, asked!(query, query.parent_id)).await?;
        let shown = shown(self, caller, query.parent_id, query.usetype.as_deref()).await?;
        let limit = query.results();
        let (graph, found) = compute(move |stop| {
            let _place = place;
            let ranks = PageRank::new(&graph.network, stop)?;
            let (authority, inflow) = (graph.forest.sums(&ranks.scores), graph.forest.inflow(&graph.network, &ranks));
            let sizes = graph.forest.sums(&vec![1.0; graph.ids.len()]);
            let best = top(&graph, limit, shown.as_ref(), |at| inflow[at]);
            let found: Vec<_> = best.into_iter().map(|at| (at, inflow[at], authority[at], sizes[at])).collect();
            Some((graph, found))
        })
        .await?;
        let mut named = names(self, caller, found.iter().map(|(at, ..)| graph.ids[*at])).await?;
        let result = |(at, inflow, authority, size): (usize, f64, f64, f64)| {
            Some(SubtreeAuthority {
                document: named.remove(&graph.ids[at])?,
                inflow,
                authority,
                size: u32::try_from(whole(size)).unwrap_or(u32::MAX),
                inflow_per_document: inflow / size,
                authority_per_document: authority / size,
            })
        };
        Ok(AuthorityResponse {
            results: found.into_iter().filter_map(result).collect(),
            documents: count(graph.ids.len()),
            edges: count(graph.network.edges()),
            valid_at: moment.valid_at,
            known_at: moment.known_at,
        })
    }
}

impl Handle<ops::find_spines> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::find_spines>) -> Result<SpinesResponse, Failure> {
        let query = call.query;
        let Loaded { graph, moment, place } = load(self, caller, asked!(query, Some(query.document_id))).await?;
        let (limit, root) = (query.results(), query.document_id);
        let (graph, spines, all) = compute(move |stop| {
            let _place = place;
            let ranks = PageRank::new(&graph.network, stop)?;
            let root = graph.number(root);
            let mut spines = root.map_or(Vec::new(), |root| graph.forest.spines(root, &ranks.scores, &graph.places));
            let all = spines.len();
            spines.truncate(limit);
            Some((graph, spines, all))
        })
        .await?;
        let on = spines.iter().flat_map(|spine| &spine.nodes).map(|node| graph.ids[*node as usize]);
        let mut named = names(self, caller, on).await?;
        let spines = spines.into_iter().map(|spine| {
            let documents = spine.nodes.iter().filter_map(|node| named.remove(&graph.ids[*node as usize]));
            SpineResponse { documents: documents.collect(), weight: spine.weight }
        });
        Ok(SpinesResponse {
            spines: spines.filter(|spine| !spine.documents.is_empty()).collect(),
            count: count(all),
            documents: count(graph.ids.len()),
            edges: count(graph.network.edges()),
            valid_at: moment.valid_at,
            known_at: moment.known_at,
        })
    }
}

impl Handle<ops::find_communities> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::find_communities>) -> Result<CommunitiesResponse, Failure> {
        let query = call.query;
        let (limit, resolution) = (query.results(), query.resolution.unwrap_or(1.0));
        let (least, most) = (query.min_size.unwrap_or(2) as usize, query.members.unwrap_or(10) as usize);
        if limit.saturating_mul(most) > MEMBERS {
            let detail =
                format!("`limit` times `members` is {}, and {MEMBERS} are allowed", limit.saturating_mul(most));
            return Err(Failure::field("members", detail)
                .with("limit", MEMBERS)
                .with("remedy", "ask for fewer of one"));
        }
        let Loaded { graph, moment, place } = load(self, caller, asked!(query, query.parent_id)).await?;
        let (graph, found, all, modularity) = compute(move |stop| {
            let _place = place;
            let Communities { mut members, modularity } = Communities::new(&graph.network, resolution, stop)?;
            members.retain(|members| members.len() >= least);
            let all = members.len();
            members.truncate(limit);
            let found = members.into_iter().map(|mut members| {
                let size = count(members.len());
                let degree = |at: &u32| degree(&graph.network, *at as usize);
                members.sort_by(|a, b| degree(b).total_cmp(&degree(a)).then(a.cmp(b)));
                members.truncate(most);
                (size, members)
            });
            let found: Vec<(u32, Vec<u32>)> = found.collect();
            Some((graph, found, all, modularity))
        })
        .await?;
        let on = found.iter().flat_map(|(_, members)| members).map(|at| graph.ids[*at as usize]);
        let mut named = names(self, caller, on).await?;
        let mut member = |at: u32| {
            let document = named.remove(&graph.ids[at as usize])?;
            Some(CommunityMember { document, degree: whole(degree(&graph.network, at as usize)) })
        };
        let communities = found.into_iter().map(|(size, members)| CommunityResponse {
            size,
            members: members.into_iter().filter_map(&mut member).collect(),
        });
        Ok(CommunitiesResponse {
            communities: communities.collect(),
            count: count(all),
            modularity,
            documents: count(graph.ids.len()),
            edges: count(graph.network.edges()),
            valid_at: moment.valid_at,
            known_at: moment.known_at,
        })
    }
}

impl Handle<ops::read_graph_stats> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_graph_stats>) -> Result<GraphStats, Failure> {
        let query = call.query;
        let Loaded { graph, moment, place } = load(self, caller, asked!(query, query.parent_id)).await?;
        let mut tx = store::transaction::begin_search(&self.pool).await.or_fail()?;
        let (scope, parent_id) = (caller.readable(), query.parent_id.map(DocumentId));
        let counts = stats::counts(&mut tx, &scope, &moment, parent_id).await.or_fail()?;
        let limit = i64::try_from(query.results()).unwrap_or(i64::MAX);
        let predicates = stats::by_predicate(&mut tx, &scope, &moment, parent_id, limit).await.or_fail()?;
        let waiting = store::predicates::waiting(&mut tx, &scope).await.or_fail()?;
        let given_up = store::predicates::given_up(&mut tx, &scope, GIVEN_UP).await.or_fail()?;
        drop(tx);
        let (graph, components, degrees) = compute(move |_| {
            let _place = place;
            let components = graph.network.components();
            let degrees: Vec<f64> = (0..graph.ids.len()).map(|at| degree(&graph.network, at)).collect();
            Some((graph, components, degrees))
        })
        .await?;
        let connected = degrees.iter().filter(|degree| **degree > 0.0).count();
        let number = |count: i64| u64::try_from(count).unwrap_or(0);
        let by_predicate = predicates.into_iter().map(|(namespace, name, facts)| PredicateCount {
            predicate: predicate_name(&namespace, &name),
            facts: number(facts),
        });
        Ok(GraphStats {
            facts: number(counts.facts),
            literals: number(counts.literals),
            derived: number(counts.derived),
            atemporal: number(counts.atemporal),
            r#static: number(counts.r#static),
            dynamic: number(counts.dynamic),
            predicates: u32::try_from(counts.predicates).unwrap_or(u32::MAX),
            by_predicate: by_predicate.collect(),
            connected: count(connected),
            components: count(components.len()),
            largest_component: count(components.iter().copied().max().unwrap_or(0)),
            highest_degree: whole(degrees.iter().copied().fold(0.0, f64::max)),
            mean_degree: if connected == 0 { 0.0 } else { degrees.iter().sum::<f64>() / connected as f64 },
            derivation: Derivation {
                pending: u32::try_from(waiting).unwrap_or(u32::MAX),
                given_up: given_up.iter().map(|(namespace, name)| predicate_name(namespace, name)).collect(),
            },
            documents: count(graph.ids.len()),
            edges: count(graph.network.edges()),
            valid_at: moment.valid_at,
            known_at: moment.known_at,
        })
    }
}
