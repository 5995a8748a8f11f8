//! Graphs of RDF, out of the store and into it.
use super::{
    predicates::IRI,
    shape_bindings::{ShapeResult, ValidationLimit},
};
use crate::{
    constraint::{Constraint, Form, constrain},
    operation::{Params, Wire},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

const IMPORT: Constraint = Constraint::Text(1, 64, Form::Word);

/// Which facts to read as Turtle.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct TurtleQuery {
    /// Only facts about this document and what is under it, and facts that these state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// Adds what the ontologies that the caller may read say now, wherever they stand: their titles, and the labels, axioms, domains and ranges of
    /// their predicates; with `parent_id` also the facts about their classes.
    pub ontologies: bool,
    /// Leaves out what rules derived.
    pub asserted_only: bool,
    /// Describes each fact as an `rdf:Statement` with `svc:validFrom`, `svc:validUntil`, `svc:recordedAt`, `svc:invalidatedAt`, `svc:derivedBy`,
    /// `svc:source`, `svc:factType` and the ids of documents (`svc:subjectId`, `svc:objectId`, `svc:sourceId`), also those that are no longer believed. Only asserted facts that are believed, hold at all times and have
    /// no source stand there as triples too. An import takes the valid times and the types of what is believed and asserted, and leaves out the
    /// rest.
    pub history: bool,
    /// The time at which the facts hold, now by default; with `history` all times by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_at: Option<DateTime<Utc>>,
    /// What the store believed at this time, now by default; later times are cut to now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_at: Option<DateTime<Utc>>,
}
impl Params for TurtleQuery {
    constrain! { valid_at: Constraint::Moment, known_at: Constraint::Moment }
}

/// Where the facts of a graph go.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct ImportQuery {
    /// The document that states the facts, and gets the new documents under it: facts and documents are as closed as it is. Without one, the
    /// new documents go under a document `Entities` at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// The IRI that relative ones are resolved against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// A name for the graph, 1 to 64 of the characters a-z A-Z 0-9 _ - and the full stop. Blank nodes with the same label in calls with the
    /// same name are one document; without it each call has blank nodes of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import: Option<String>,
}
impl Params for ImportQuery {
    constrain! { base: IRI, import: IMPORT }
}

/// What became of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ImportedGraph {
    /// The triples of the text; one that stands there twice counts once.
    pub triples: u32,
    /// Facts that the store did not believe before.
    pub created: u32,
    /// Facts whose time became longer.
    pub merged: u32,
    /// Facts that the store believed already.
    pub existing: u32,
    pub nodes_created: u32,
    pub predicates_created: u32,
    /// Literals that their datatype does not have; they are kept to the letter.
    pub ill_typed: u32,
    /// The time from which on the store believes this.
    pub recorded_at: DateTime<Utc>,
    /// What bound shapes warn of, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ShapeResult>,
    /// Why bound shapes that only warn were not held against all facts; absent if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnings_truncated: Option<ValidationLimit>,
}
impl Wire for ImportedGraph {}
