//! The documents as a graph: which of them are central, how they group, what is around one, and what has changed.
use super::{facts::Direction, triples::FactResponse};
use crate::{
    constraint::{CURSOR, Constraint, Form, NAME, PAGE, constrain},
    operation::{Params, Wire},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

const PIVOTS: Constraint = Constraint::Whole(2, 100_000);
const RESOLUTION: Constraint = Constraint::Number(0.01, 100.0);
const LEAST: Constraint = Constraint::Whole(1, 1_000_000);
const PREDICATES: Constraint = Constraint::Text(1, 8192, Form::NotBlank);
const STEPS: Constraint = Constraint::Whole(1, 4);

wire_words! {
    /// What leads from one document to another: facts between them (`triples`), links (`links`), or `both`. The facts of rdf: and rdfs: are
    /// about classes and names, and lead nowhere.
    EdgeKind { Triples = "triples", Links = "links", Both = "both", }
    /// By what documents are central: the share of a random walk that is spent at each (`pagerank`), the number of edges (`degree`), or the
    /// share of shortest paths that lead through each, along edges in either direction (`betweenness`).
    CentralityMetric { Pagerank = "pagerank", Degree = "degree", Betweenness = "betweenness", }
    /// What became of a fact between two moments: it was `added`, `removed`, or `superseded` by another one.
    FactChange { Added = "added", Removed = "removed", Superseded = "superseded", }
}

macro_rules! graph_query { (
    $(#[doc = $doc:literal])* $name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* } check { $($checked:ident: $constraint:expr),* $(,)? }
) => {
    $(#[doc = $doc])*
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(IntoParams))]
    #[serde(deny_unknown_fields)]
    pub struct $name {
        $($(#[$meta])* pub $field: $type,)*
        /// `both` by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", param(inline))]
        pub edges: Option<EdgeKind>,
        /// Along facts that hold at this time; now by default. Links have no time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub valid_at: Option<DateTime<Utc>>,
        /// And that the store believed at this time; now by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub known_at: Option<DateTime<Utc>>,
        /// Leaves out what rules derived.
        #[serde(default)]
        pub asserted_only: bool,
        /// The most results, 1 to 1,000; 100 by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }
    impl Params for $name {
        constrain! { limit: PAGE, valid_at: Constraint::Moment, known_at: Constraint::Moment $(, $checked: $constraint)* }
    }
    impl $name {
        /// The most results.
        pub fn results(&self) -> usize {
            self.limit.unwrap_or(100) as usize
        }
    }
} }

graph_query! {
/// Which documents are central, in the graph of those that the caller may read.
CentralityQuery {
    /// `pagerank` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metric: Option<CentralityMetric>,
    /// Of how many documents the paths are looked at for `betweenness` in a graph of more than 2,000 documents with edges, 2 to 100,000; 256
    /// by default. It ends early after 30 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pivots: Option<u32>,
    /// Only the graph of this document and what is under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_id: Option<i64>,
    /// Shows documents of this usetype only; the graph has the others too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usetype: Option<String>,
} check { pivots: PIVOTS, usetype: NAME } }

graph_query! {
/// Which subtrees the rest of the graph leads to.
AuthorityQuery {
    /// Only the graph of this document and what is under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_id: Option<i64>,
    /// Shows documents of this usetype only; the graph has the others too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usetype: Option<String>,
} check { usetype: NAME } }

graph_query! {
/// Which chains of documents a tree hangs on.
SpineQuery {
    /// The root of the tree. The graph is that of this document and what is under it.
    document_id: i64,
} check {} }

graph_query! {
/// Which groups of documents have more edges among them than to others.
CommunityQuery {
    /// Only the graph of this document and what is under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_id: Option<i64>,
    /// A higher one gives more and smaller groups, 0.01 to 100; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolution: Option<f64>,
    /// Leaves out smaller groups; 2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_size: Option<u32>,
    /// How many documents of each group are shown, those with the most edges first, 1 to 1,000; 10 by default. Times `limit` at most 100,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    members: Option<u32>,
} check { resolution: RESOLUTION, min_size: LEAST, members: PAGE } }

/// A document in a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct GraphDocument {
    pub document_id: i64,
    pub title: String,
    pub usetype: String,
}

/// How central a document is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct CentralDocument {
    #[serde(flatten)]
    pub document: GraphDocument,
    /// By `pagerank` and `betweenness` a share of 1; by `degree` the sum of the edges in both directions.
    pub score: f64,
    /// How far the score is likely to be off, as its standard error; null if it is exact. It is a rough one for small scores.
    pub standard_error: Option<f64>,
    /// How many facts and links lead to it.
    pub in_degree: u64,
    /// How many lead away from it.
    pub out_degree: u64,
}

macro_rules! graph_answer { ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $field_doc:literal])* $field:ident: $type:ty,)* }) => {
    $(#[doc = $doc])*
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(ToSchema))]
    pub struct $name {
        $($(#[doc = $field_doc])* pub $field: $type,)*
        /// How many documents the graph has.
        pub documents: u32,
        /// How many pairs of documents have an edge from one to the other.
        pub edges: u32,
        pub valid_at: DateTime<Utc>,
        pub known_at: DateTime<Utc>,
    }
    impl Wire for $name {}
} }

graph_answer! {
/// The most central documents, those with the highest scores first.
CentralityResponse {
    results: Vec<CentralDocument>,
    metric: CentralityMetric,
    /// Whether the scores are estimates.
    estimate: bool,
    /// Of how many documents the paths were looked at; null for other metrics than `betweenness`.
    pivots: Option<u32>,
} }

/// What the graph gives to a document and all under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SubtreeAuthority {
    #[serde(flatten)]
    pub document: GraphDocument,
    /// The share of a random walk that comes in along edges from elsewhere, which a subtree cannot raise by leading to itself.
    pub inflow: f64,
    /// The share that is spent there.
    pub authority: f64,
    /// The document and all under it, as far as the caller may read them.
    pub size: u32,
    pub inflow_per_document: f64,
    pub authority_per_document: f64,
}

graph_answer! {
/// The subtrees with the most inflow first.
AuthorityResponse {
    results: Vec<SubtreeAuthority>,
} }

/// A chain of documents, each under the one before it, down to a leaf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SpineResponse {
    pub documents: Vec<GraphDocument>,
    /// The share of a random walk through the graph of the tree that is spent on it.
    pub weight: f64,
}

graph_answer! {
/// The chains of the heaviest documents that cover a tree, the heaviest first: each document is on one. A chain goes on to the child under which
/// a random walk spends the most time.
SpinesResponse {
    spines: Vec<SpineResponse>,
    /// How many chains cover the tree.
    count: u32,
} }

/// A document of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct CommunityMember {
    #[serde(flatten)]
    pub document: GraphDocument,
    /// How many facts and links lead to it and away from it.
    pub degree: u64,
}

/// A group of documents. Each can be reached from each along edges within the group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct CommunityResponse {
    pub size: u32,
    /// Those with the most edges first.
    pub members: Vec<CommunityMember>,
}

graph_answer! {
/// The groups of documents, the largest first. A document without edges is in none.
CommunitiesResponse {
    communities: Vec<CommunityResponse>,
    /// How many groups of at least `min_size` there are.
    count: u32,
    /// How much more of the edges lies within groups than chance would have it, as a share of all edges.
    modularity: f64,
} }

/// What is around a document.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct NeighborQuery {
    pub document_id: i64,
    /// How many facts away, 1 to 4; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// `any` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Only along facts with these predicates, at most 100, with commas between them, each as `namespace:name` or by its IRI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicates: Option<String>,
    /// The most documents, 1 to 1,000; 100 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Along facts that hold at this time; now by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_at: Option<DateTime<Utc>>,
    /// And that the store believed at this time; now by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_at: Option<DateTime<Utc>>,
    /// Leaves out what rules derived.
    #[serde(default)]
    pub asserted_only: bool,
}
impl Params for NeighborQuery {
    constrain! {
        depth: STEPS, predicates: PREDICATES, limit: PAGE, valid_at: Constraint::Moment, known_at: Constraint::Moment,
    }
}

/// A document near another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Neighbor {
    #[serde(flatten)]
    pub document: GraphDocument,
    /// How many facts away it is.
    pub distance: u32,
}

/// A fact between two documents that are shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct NeighborFact {
    pub triple_id: i64,
    pub subject_id: i64,
    /// The document that the fact was stated of, if that is taken for another one, which `subject_id` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated_subject_id: Option<i64>,
    /// `namespace:name`.
    pub predicate: String,
    pub object_id: i64,
    /// The same for the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated_object_id: Option<i64>,
}

/// What is around a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct NeighborResponse {
    /// The nearest first, then by id; the document itself comes first.
    pub documents: Vec<Neighbor>,
    /// The facts that the search went along, between documents that are shown, by id; at most 10,000.
    pub facts: Vec<NeighborFact>,
    /// Whether there are more documents or facts than are shown.
    pub truncated: bool,
    pub valid_at: DateTime<Utc>,
    pub known_at: DateTime<Utc>,
}
impl Wire for NeighborResponse {}

/// Two moments to compare: of the store's knowledge, by `known_from` and `known_to`, or in the world, by `valid_from` and `valid_to`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct DiffQuery {
    /// What the store believed at this time is compared...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_from: Option<DateTime<Utc>>,
    /// ...with what it believed at this one; now by default. Every row of a fact counts, whenever it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_to: Option<DateTime<Utc>>,
    /// What holds at this time, as the store believes now, is compared...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<DateTime<Utc>>,
    /// ...with what holds at this one; now by default. Statements count, whichever rows they have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_to: Option<DateTime<Utc>>,
    /// Only facts about this document and what is under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// Only changes of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FactChange>,
    /// Leaves out what rules derived.
    pub asserted_only: bool,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 100 by default. A page of long literals and quotes ends earlier, at 8 MiB unless `SVC_PAGE_BYTES` says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for DiffQuery {
    constrain! {
        known_from: Constraint::Moment, known_to: Constraint::Moment, valid_from: Constraint::Moment, valid_to: Constraint::Moment,
        cursor: CURSOR, limit: PAGE,
    }
}
impl DiffQuery {
    /// The number of rows per page.
    pub fn rows(&self) -> u32 {
        self.limit.unwrap_or(100)
    }
}

/// What became of a fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ChangedFact {
    pub kind: FactChange,
    /// The fact that was added, removed or superseded.
    pub fact: FactResponse,
    /// The fact that took its place, of one that was superseded.
    pub by: Option<FactResponse>,
}

/// What changed between two moments: what was believed or held at the first, without what was removed and superseded, and with what was added
/// and what took the place of others, is what was believed or held at the second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DiffResponse {
    /// How many facts were added, without those that took the place of others.
    pub added: u64,
    pub removed: u64,
    /// How many facts were superseded. Between two moments in the world none is.
    pub superseded: u64,
    /// By the id of `fact`.
    pub changes: Vec<ChangedFact>,
    /// Ask for the next page with this, and with the moments as they are here; null on the last page.
    pub next_cursor: Option<String>,
    /// The first moment.
    pub from: DateTime<Utc>,
    /// The second moment. Who follows what the store believes sends it as the next `known_from`, not the time of day, because what is being written is
    /// recorded before it can be seen.
    pub to: DateTime<Utc>,
}
impl Wire for DiffResponse {}

graph_query! {
/// What there is in a graph.
GraphQuery {
    /// Only documents at and under this one, and facts about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_id: Option<i64>,
} check {} }

/// How many facts have a predicate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PredicateCount {
    /// `namespace:name`.
    pub predicate: String,
    pub facts: u64,
}

graph_answer! {
/// What there is in the graph that the caller may read.
GraphStats {
    /// Facts that hold and are believed.
    facts: u64,
    /// Those of them that lead to a literal.
    literals: u64,
    /// Those that rules derived.
    derived: u64,
    atemporal: u64,
    r#static: u64,
    dynamic: u64,
    /// How many predicates these facts have.
    predicates: u32,
    /// The predicates with the most facts first, at most `limit`.
    by_predicate: Vec<PredicateCount>,
    /// Documents with an edge.
    connected: u32,
    /// How many parts the documents with edges fall into, between which no edge leads.
    components: u32,
    /// How many documents the largest part has.
    largest_component: u32,
    /// The most facts and links that lead to a document and away from it.
    highest_degree: u64,
    /// How many do on average, of documents with an edge.
    mean_degree: f64,
    derivation: Derivation,
} }

/// How far rules have come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Derivation {
    /// How many predicates have facts or axioms that changed since what follows from them was derived.
    pub pending: u32,
    /// Predicates of groups from which more follows in a zone than SVC_RULES_MAX_DERIVED allows, so that none of it is written there; at most
    /// 1,000, as `namespace:name`.
    pub given_up: Vec<String>,
}
