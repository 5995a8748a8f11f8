//! Facts as they are read: lists, histories and paths, at a moment in the world and in the store.
use super::{
    DocumentResponse, PageQuery,
    triples::{FactResponse, FactType, PREDICATE},
};
use crate::{
    constraint::{CURSOR, Constrained, Constraint, Form, PAGE, constrain, shows_embed},
    operation::{Params, Wire},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

const LITERAL: Constraint = Constraint::Text(0, 8_192, Form::Any);
const DEPTH: Constraint = Constraint::Whole(1, 8);
const PATHS: Constraint = Constraint::Whole(1, 10);
const PREDICATES: Constraint = Constraint::List(0, 100, Some(&PREDICATE));

/// The moment in the world at which facts are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidAt {
    /// Facts of all times; each carries its own.
    Any,
    At(DateTime<Utc>),
}
impl Serialize for ValidAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ValidAt::Any => serializer.serialize_str("any"),
            ValidAt::At(moment) => moment.serialize(serializer),
        }
    }
}
impl<'de> Deserialize<'de> for ValidAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ValidAt, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "any" => Ok(ValidAt::Any),
            text => text.parse().map(ValidAt::At).map_err(|_| D::Error::custom("takes a time by RFC 3339, or any")),
        }
    }
}

impl Constrained for ValidAt {
    fn meets(&self, constraint: &Constraint) -> Result<(), String> {
        match self {
            ValidAt::Any => Ok(()),
            ValidAt::At(moment) => moment.meets(constraint),
        }
    }
}

/// Which facts to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct FactQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_id: Option<i64>,
    /// A predicate as `namespace:name` or by its IRI; a name alone is of the namespace `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_id: Option<i64>,
    /// Only facts with this literal, to the letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_literal: Option<String>,
    /// Only facts that this document states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_id: Option<i64>,
    /// Only facts about this document and what is under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fact_type: Option<FactType>,
    /// Those that the store no longer believes, in place of those that it believes.
    pub invalidated: bool,
    /// Leaves out what rules derived.
    pub asserted_only: bool,
    /// Only what rules derived, or only the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derived: Option<bool>,
    /// Only facts that hold at this time, now by default; `any` for all times.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub valid_at: Option<ValidAt>,
    /// What the store believed at this time, now by default; later times are cut to now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_at: Option<DateTime<Utc>>,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 100 by default. A page of long literals and quotes ends earlier, at 8 MiB unless `SVC_PAGE_BYTES` says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for FactQuery {
    constrain! {
        predicate: PREDICATE, object_literal: LITERAL, valid_at: Constraint::Moment, known_at: Constraint::Moment, cursor: CURSOR,
        limit: PAGE,
    }
}
impl FactQuery {
    /// The number of rows per page.
    pub fn rows(&self) -> u32 {
        PageQuery { limit: self.limit, ..PageQuery::default() }.rows()
    }
}

/// Facts, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FactPage {
    pub facts: Vec<FactResponse>,
    /// Ask for the next page with this, and with `valid_at` and `known_at` as they are here; null on the last page.
    pub next_cursor: Option<String>,
    /// The time at which the facts hold; `any` for all times.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub valid_at: ValidAt,
    /// The time at which the store believed this.
    pub known_at: DateTime<Utc>,
}
impl Wire for FactPage {}

wire_words! {
    /// Which way along facts: subject to object, object to subject, or either.
    Direction { Any = "any", Out = "out", In = "in", }
    /// Which budget a search for paths used up: `nodes` or `time`.
    PathLimit { Nodes = "nodes", Time = "time", }
}

/// A search for the shortest paths between two documents along facts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PathSearch {
    pub from_id: i64,
    pub to_id: i64,
    /// The longest path in facts, 1 to 8; 4 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// `any` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Only along facts with these predicates, each as `namespace:name` or by its IRI; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predicates: Vec<String>,
    /// How many paths, 1 to 10; 1 by default. All are of the shortest length, and those with the smallest ids of facts come first.
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
    /// Whether to include the 768-dimension vectors of the documents.
    #[serde(default)]
    pub include_embed: bool,
}
impl PathSearch {
    /// A search with everything at its default.
    pub fn new(from_id: i64, to_id: i64) -> PathSearch {
        PathSearch { from_id, to_id, ..PathSearch::default() }
    }
}
impl Wire for PathSearch {
    shows_embed! {}
    constrain! {
        max_depth: DEPTH, predicates: PREDICATES, limit: PATHS, valid_at: Constraint::Moment, known_at: Constraint::Moment,
    }
}

/// One fact on a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PathStep {
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
    /// Whether the path goes from subject to object.
    pub forward: bool,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FoundPath {
    /// The number of facts.
    pub length: u32,
    pub steps: Vec<PathStep>,
}

/// The shortest paths between two documents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PathResponse {
    /// Empty if there is none of at most `max_depth` facts, unless `truncated` says that the search gave up.
    pub paths: Vec<FoundPath>,
    /// The documents on the paths, by id. Texts that do not fit into 8 MiB (`SVC_PAGE_BYTES`) are left out, and `omitted` says so.
    pub documents: Vec<DocumentResponse>,
    /// How many documents the search came to.
    pub visited: u32,
    /// The budget that ended the search before it was done: the documents of `SVC_PATH_MAX_DOCUMENTS`, which also count if the facts between
    /// them or their merges are too many, or the time of `SVC_PATH_TIMEOUT_SECONDS`. Null if it was done.
    pub truncated: Option<PathLimit>,
    pub valid_at: DateTime<Utc>,
    pub known_at: DateTime<Utc>,
}
impl Wire for PathResponse {}

/// Every form that a statement had in the store, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FactHistory {
    pub facts: Vec<FactResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for FactHistory {}
