//! Ontologies: what a vocabulary says of its classes and predicates, and the shapes that come with it.
use super::predicates::IRI;
use crate::{
    constraint::constrain,
    operation::{Params, Wire},
    reply::Located,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// Where an ontology goes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct OntologyQuery {
    /// The document that the ontology is put under; without one it stands at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// Whether only the caller may read it. What a principal puts at the top always is.
    pub private: bool,
    /// The IRI that relative ones are resolved against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}
impl Params for OntologyQuery {
    constrain! { base: IRI }
}

/// What became of an ontology: the document that holds its text, and what was read from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct OntologyResponse {
    /// The document with the text of the ontology to the letter.
    pub document_id: i64,
    /// The IRI of the `owl:Ontology`, or `{SVC_RDF_BASE}document/{id}` if the text names none.
    pub iri: String,
    pub title: String,
    /// How many classes it has; each is a document.
    pub classes: u32,
    /// How many predicates it describes.
    pub predicates: u32,
    /// The IRIs of its shapes, by which bindings name them.
    pub shapes: Vec<String>,
    /// How many facts it states: of its classes, and of individuals.
    pub facts: u32,
    /// What of the text says nothing to the service, by predicate or class, with the number of triples.
    pub not_used: BTreeMap<String, u32>,
    pub created_at: DateTime<Utc>,
    /// When its text was loaded last.
    pub updated_at: DateTime<Utc>,
}
impl Wire for OntologyResponse {}
impl Located for OntologyResponse {
    fn location(&self) -> String {
        format!("/ontologies/{}", self.document_id)
    }
}

/// Ontologies, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct OntologyPage {
    pub ontologies: Vec<OntologyResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for OntologyPage {}

/// A class of an ontology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct OntologyClass {
    pub document_id: i64,
    pub iri: String,
    pub title: String,
    /// The classes that it is below now, by their documents, as far as the caller may read them.
    pub sub_class_of: Vec<i64>,
}

/// The classes of an ontology, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ClassPage {
    pub classes: Vec<OntologyClass>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for ClassPage {}
