//! Shape bindings: which facts are held against which shapes, and what comes of it.
use super::predicates::IRI;
use crate::{
    constraint::{Constraint, constrain},
    operation::{Params, Wire},
    reply::Located,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

wire_words! {
    /// What becomes of a write that breaks a shape: nothing (`off`), a warning in the answer (`warn`), or a refusal (`reject`).
    ShapeMode { Off = "off", Warn = "warn", Reject = "reject", }
    /// Why a validation ended early: more than 100,000 focus nodes, more than 10,000 results, paths deeper than 30 facts, more facts around a
    /// few nodes than fit, or more than 10 seconds.
    ValidationLimit { FocusNodes = "focus_nodes", Results = "results", Depth = "depth", Facts = "facts", Time = "time", }
}

/// The binding in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct ShapeBindingPath {
    /// The binding's id.
    pub id: i64,
}
impl Params for ShapeBindingPath {}

/// A shape to bind. The caller must be allowed to read the ontology and to write the document; without a document it is the owner's to bind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewShapeBinding {
    /// The IRI of a shape with a target, or that of an ontology, for all of its shapes with targets.
    pub shape: String,
    /// Only nodes at and under this document are held against the shape; all nodes if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_id: Option<i64>,
    /// `warn` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ShapeMode>,
}
impl Wire for NewShapeBinding {
    constrain! { shape: IRI }
}

/// What to change of a binding.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ShapeBindingChange {
    pub mode: ShapeMode,
}
impl Wire for ShapeBindingChange {}

/// A shape that is bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ShapeBindingResponse {
    pub id: i64,
    /// The IRI of the shape, or of the ontology if all of its shapes are bound; that of the ontology's document if the caller may not read the ontology.
    pub shape: String,
    /// The document of the ontology that the shape stands in.
    pub ontology_id: i64,
    pub document_id: Option<i64>,
    pub mode: ShapeMode,
    /// Whether facts are held against it, as `mode` says: what a principal bound holds for as long as that principal may write the document, and is not disabled.
    pub holds: bool,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
impl Wire for ShapeBindingResponse {}
impl Located for ShapeBindingResponse {
    fn location(&self) -> String {
        format!("/shape-bindings/{}", self.id)
    }
}

/// Shape bindings, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ShapeBindingPage {
    pub bindings: Vec<ShapeBindingResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for ShapeBindingPage {}

/// At which moments facts are held against a shape.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct ValidationQuery {
    /// The time at which the facts hold, now by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_at: Option<DateTime<Utc>>,
    /// What the store believed at this time, now by default; later times are cut to now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_at: Option<DateTime<Utc>>,
    /// Leaves out what rules derived.
    pub asserted_only: bool,
    /// Whether the report is given as Turtle too, in the words of SHACL.
    pub turtle: bool,
}
impl Params for ValidationQuery {
    constrain! { valid_at: Constraint::Moment, known_at: Constraint::Moment }
}

/// A node with its IRI and, if it has one, its document, or a literal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ShapeTerm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_id: Option<i64>,
    /// The node's IRI, or a label after `_:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub literal: Option<String>,
    /// The datatype's whole IRI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datatype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}

/// One thing that is not as a shape wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ShapeResult {
    /// The node that was held against the shape.
    pub focus: ShapeTerm,
    /// The path from it to the values, as in SPARQL; null for the node itself.
    pub path: Option<String>,
    /// The value at fault, if it is a single one.
    pub value: Option<ShapeTerm>,
    /// The IRI of SHACL's constraint component.
    pub component: String,
    /// The IRI of the shape, or its label after `_:`.
    pub shape: String,
    /// An IRI, such as `http://www.w3.org/ns/shacl#Violation`.
    pub severity: String,
    pub message: String,
    /// The facts that lead to the value, at most ten.
    pub triple_ids: Vec<i64>,
}

/// How facts are by a shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ValidationReport {
    /// Whether all is as the shape wants it; null if the validation ended early and had found nothing wrong until then.
    pub conforms: Option<bool>,
    /// How many nodes were held against the shape, once for each shape that has them as a target.
    pub focus_nodes: u32,
    pub results: Vec<ShapeResult>,
    /// Why it ended early; null if all was looked at.
    pub truncated: Option<ValidationLimit>,
    pub valid_at: DateTime<Utc>,
    pub known_at: DateTime<Utc>,
    /// The report as Turtle, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turtle: Option<String>,
}
impl Wire for ValidationReport {}
