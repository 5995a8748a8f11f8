//! Search contexts: searches prepared under a name.
use super::{
    Fusion, GroupBy, HybridWeights, RerankMethod, SearchFilter, SearchMethod, filter::filter_constraints, search,
};
use crate::{
    Failure,
    constraint::{Constraint, NAME},
    operation::{Params, Wire},
    reply::Located,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// What a search takes from its context where it says nothing itself. Each method takes what it knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ContextConfig {
    /// The method of `POST /search/auto` and `GET /search/`; if absent, the query decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<SearchMethod>,
    /// How much each leg of `hybrid` counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<HybridWeights>,
    /// By what the legs of `hybrid` count together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Fusion>,
    /// Finds only documents with these usetypes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usetype: Option<Vec<String>>,
    /// Finds only documents under this one. Who may not read it, or a document that the filter names, does not see the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<SearchFilter>,
    /// The BM25 index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Whether terms of the best texts of a first search are added to the query of `bm25` and `hybrid` (RM3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expand: Option<bool>,
    /// The least similarity of results by `vector`; -1 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_similarity: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerank: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerank_method: Option<RerankMethod>,
    /// How many candidates are ranked again, 1 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerank_top: Option<u32>,
    /// How much relevance counts against likeness to the results before, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mmr_lambda: Option<f64>,
    /// With each span of so many days a result counts half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recency_half_life_days: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// Whether groups are ordered by their whole and their best text together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_whole: Option<bool>,
}

impl ContextConfig {
    fn constraints() -> impl Iterator<Item = (&'static str, Constraint)> {
        let own = [
            ("config.weights.vector", search::WEIGHT),
            ("config.weights.bm25", search::WEIGHT),
            ("config.usetype", search::USETYPES),
            ("config.index", NAME),
            ("config.min_similarity", search::SIMILARITY),
            ("config.rerank_top", search::LIMIT),
            ("config.mmr_lambda", search::SHARE),
            ("config.recency_half_life_days", search::HALF_LIFE),
        ];
        own.into_iter().chain(filter_constraints!("config.filter"))
    }

    fn check(&self) -> Result<(), Failure> {
        if let Some(weights) = &self.weights {
            weights.check().map_err(|failure| failure.within("config"))?;
        }
        search::USETYPES.check("config.usetype", &self.usetype)?;
        self.filter.as_ref().map_or(Ok(()), |filter| filter.check("config.filter"))?;
        NAME.check("config.index", &self.index)?;
        search::SIMILARITY.check("config.min_similarity", &self.min_similarity)?;
        search::LIMIT.check("config.rerank_top", &self.rerank_top)?;
        search::SHARE.check("config.mmr_lambda", &self.mmr_lambda)?;
        search::HALF_LIFE.check("config.recency_half_life_days", &self.recency_half_life_days)
    }
}

/// The search context in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct ContextPath {
    /// The context's id.
    pub id: i64,
}
impl Params for ContextPath {}

/// A search context to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewContext {
    /// 1 to 100 characters, of a-z A-Z 0-9 _ - : and the full stop; no two contexts have the same name.
    pub name: String,
    #[serde(default)]
    pub config: ContextConfig,
}
impl Wire for NewContext {
    fn constraints() -> Vec<(&'static str, Constraint)> {
        [("name", NAME)].into_iter().chain(ContextConfig::constraints()).collect()
    }
    fn check(&self) -> Result<(), Failure> {
        NAME.check("name", &self.name)?;
        self.config.check()
    }
}

/// What to change of a search context; an absent field stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ContextChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Takes the place of the whole old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ContextConfig>,
}
impl Wire for ContextChange {
    fn constraints() -> Vec<(&'static str, Constraint)> {
        NewContext::constraints()
    }
    fn check(&self) -> Result<(), Failure> {
        NAME.check("name", &self.name)?;
        self.config.as_ref().map_or(Ok(()), ContextConfig::check)
    }
}

/// A search context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ContextResponse {
    pub id: i64,
    pub name: String,
    pub config: ContextConfig,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
impl Wire for ContextResponse {}
impl Located for ContextResponse {
    fn location(&self) -> String {
        format!("/search-contexts/{}", self.id)
    }
}

/// Search contexts, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ContextPage {
    pub contexts: Vec<ContextResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for ContextPage {}
