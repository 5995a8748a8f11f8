//! Facts that a language model reads in texts.
use crate::{
    constraint::{Constraint, constrain},
    operation::Wire,
    words::wire_words,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The most texts that one call has facts extracted from.
pub const EXTRACT_TEXTS: i64 = 10_000;
const MAX_FACTS: Constraint = Constraint::Whole(1, 1_000);
const CONFIDENCE: Constraint = Constraint::Number(0.0, 1.0);

wire_words! {
    /// What becomes of a fact whose predicate nobody has made: `allow` makes it in the namespace `extracted`, `closed` drops the fact.
    NewPredicates { Allow = "allow", Closed = "closed", }
    /// How names are taken for entities that are there: by the same name (`exact`), also by one that means nearly the same (`similar`), or not at
    /// all (`off`).
    ResolveNames { Exact = "exact", Similar = "similar", Off = "off", }
    /// Whether a fact takes the place of an older one of a functional predicate.
    SupersedeFacts { Auto = "auto", Never = "never", }
}

/// How facts are extracted. What is absent is as the settings say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ExtractFactsRequest {
    /// The most facts that are taken from one text, 1 to 1,000; by default as `SVC_EXTRACTION_MAX_FACTS` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_facts: Option<u32>,
    /// Facts of which the model is less sure are dropped, 0 to 1; by default as `SVC_EXTRACTION_CONFIDENCE_THRESHOLD` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence_threshold: Option<f64>,
    /// `allow` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_predicates: Option<NewPredicates>,
    /// `similar` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolve: Option<ResolveNames>,
    /// `never` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersede: Option<SupersedeFacts>,
    /// Closes what the texts were said to state and are not found to state any more.
    pub replace: bool,
    /// Writes no fact: the evidence `facts.dry_run` shows what would be written.
    pub dry_run: bool,
}
impl Wire for ExtractFactsRequest {
    constrain! { max_facts: MAX_FACTS, confidence_threshold: CONFIDENCE }
}

/// The extraction of facts from the texts at and under a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ExtractFactsResponse {
    pub document_id: i64,
    /// How many tasks read texts, one for each text that has settled.
    pub tasks: i64,
    /// What came of them, if the call waited and all ended in that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<ExtractedFacts>,
}
impl Wire for ExtractFactsResponse {}

/// What came of an extraction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ExtractedFacts {
    /// The facts that the texts state, also those that were believed before.
    pub facts: i64,
    /// How many facts of the answers were dropped, by the reason.
    pub dropped: BTreeMap<String, i64>,
    /// How many entities were made.
    pub entities: i64,
    /// How many of these were merged with one that was there.
    pub merges: i64,
    /// How many tasks failed; the attempts in the evidence of their documents say why.
    pub failed: i64,
}
