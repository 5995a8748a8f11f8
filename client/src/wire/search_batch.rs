//! Many searches in one call.
use super::{MethodSearch, SearchResponse, facets::FACETS, fields::FIELDS, search, sorting::SORT_TOP};
use crate::{
    Failure,
    constraint::{CURSOR, Constrained, Constraint, NAME},
    operation::Wire,
};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Searches that are asked together.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SearchBatch {
    /// 1 to 20 searches.
    pub searches: Vec<MethodSearch>,
}

impl SearchBatch {
    /// The most searches of one call.
    pub const MOST: usize = 20;
}

/// How many searches there are.
const SEARCHES: Constraint = Constraint::List(1, SearchBatch::MOST, None);

/// A list checks only how many there are; [`SearchBatch`] checks each.
impl Constrained for MethodSearch {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Ok(())
    }
}

impl Wire for SearchBatch {
    const SHOWS_EMBED: bool = true;
    fn show_embed(&mut self) {
        self.searches.iter_mut().for_each(MethodSearch::show_embed);
    }
    fn constraints() -> Vec<(&'static str, Constraint)> {
        // Those of weights and filters stand in their own schemas, which the other searches share.
        vec![
            ("searches", SEARCHES),
            ("searches.query", search::QUERY),
            ("searches.context", NAME),
            ("searches.limit", search::LIMIT),
            ("searches.usetype", search::USETYPES),
            ("searches.rerank_top", search::LIMIT),
            ("searches.mmr_lambda", search::SHARE),
            ("searches.recency_half_life_days", search::HALF_LIFE),
            ("searches.sort_top", SORT_TOP),
            ("searches.fields", FIELDS),
            ("searches.per_group", search::PER_GROUP),
            ("searches.cursor", CURSOR),
            ("searches.facets", FACETS),
            ("searches.min_similarity", search::SIMILARITY),
            ("searches.index", NAME),
        ]
    }
    fn check(&self) -> Result<(), Failure> {
        SEARCHES.check("searches", &self.searches)?;
        self.searches.iter().enumerate().try_for_each(|(index, search)| {
            search.check().map_err(|failure| failure.within(&format!("searches[{index}]")).with("index", index))
        })
    }
}

/// What became of searches that were asked together.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchBatchResponse {
    /// One for each search of the call, in its order.
    pub answers: Vec<SearchAnswer>,
    pub latency_ms: f64,
}
impl Wire for SearchBatchResponse {}

/// What one search found, or why it could not be answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchAnswer {
    /// Absent if the search failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<SearchResponse>,
    /// What the search would be answered alone, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl From<Result<SearchResponse, Failure>> for SearchAnswer {
    fn from(answer: Result<SearchResponse, Failure>) -> SearchAnswer {
        match answer {
            Ok(found) => SearchAnswer { found: Some(found), failure: None },
            Err(failure) => SearchAnswer { found: None, failure: Some(failure) },
        }
    }
}
