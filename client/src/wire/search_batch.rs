//! Many searches in one call.
use super::{MethodSearch, SearchResponse};
use crate::{
    Failure,
    constraint::{Constrained, Constraint},
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
    fn constraints() -> Vec<(&'static str, Constraint)> {
        vec![("searches", SEARCHES)]
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
