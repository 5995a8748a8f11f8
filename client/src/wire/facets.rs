//! Counts of what a search matches.
use super::TotalIs;
use crate::{
    Failure,
    constraint::{Constrained, Constraint, Form},
    words::wire_words,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The counts that a search may ask for.
pub(super) const FACETS: Constraint = Constraint::List(1, 10, None);
/// The values that are shown of one.
const VALUES: Constraint = Constraint::Whole(1, 100);
/// A key of structured content.
const KEY: Constraint = Constraint::Text(1, 255, Form::Any);

/// A count of what a search matches: for each value, how many documents have it, or how many groups have a document that has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Facet {
    pub by: FacetBy,
    /// The key of the structured content, 1 to 255 characters; for `structured_content`, and for nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    pub key: Option<String>,
    /// How long a span of time is, in UTC; for `event_time` and `created_at`, where it is `month` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<TimeBucket>,
    /// The most values, 1 to 100; 10 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub limit: Option<u32>,
}

/// A list checks only how many there are; a search checks each.
impl Constrained for Facet {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Ok(())
    }
}

impl Facet {
    /// A count with all defaults.
    pub fn by(by: FacetBy) -> Facet {
        Facet { by, key: None, bucket: None, limit: None }
    }

    /// How many values are shown.
    pub fn shown(&self) -> u32 {
        self.limit.unwrap_or(10)
    }

    pub(super) fn check(&self, field: &str) -> Result<(), Failure> {
        let name = |member: &str| format!("{field}.{member}");
        VALUES.check(&name("limit"), &self.limit)?;
        KEY.check(&name("key"), &self.key)?;
        let is_time = matches!(self.by, FacetBy::EventTime | FacetBy::CreatedAt);
        match (self.by, &self.key) {
            (FacetBy::StructuredContent, None) => {
                Err(Failure::field(&name("key"), "is missing: name the key whose values are counted"))
            }
            (by, Some(_)) if by != FacetBy::StructuredContent => {
                Err(Failure::field(&name("key"), format!("is for structured_content, and not for {by}")))
            }
            (by, _) if self.bucket.is_some() && !is_time => {
                Err(Failure::field(&name("bucket"), format!("is for event_time and created_at, and not for {by}")))
            }
            _ => Ok(()),
        }
    }
}

wire_words! {
    /// What is counted. `usetype`: each document has one. `format`: of the file that a document is or lies in, as far as that may be read.
    /// `structured_content`: the texts, numbers and truth values at one key, those in a list each for itself, but no text of more than 255
    /// characters. `parent`: the document above. `root`: the topmost document at or above that may be read, below `parent_id` if that is given.
    /// `event_time`, `created_at`: spans of time.
    FacetBy {
        Usetype = "usetype",
        Format = "format",
        StructuredContent = "structured_content",
        Parent = "parent",
        Root = "root",
        EventTime = "event_time",
        CreatedAt = "created_at",
    }
    /// A span of time; weeks begin on Mondays.
    TimeBucket { Day = "day", Week = "week", Month = "month", Quarter = "quarter", Year = "year", }
}

/// The counts of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FacetsResponse {
    /// How many documents, or groups of them, were counted: all that match, or those that the best 10,000 matches of each leg have.
    pub counted: u64,
    /// Whether these are all that match, so that every count is exact, or each count is a lower bound.
    pub counted_is: TotalIs,
    /// One for each entry of `facets`, in its order.
    pub facets: Vec<FacetCounts>,
}

/// One count of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FacetCounts {
    pub by: FacetBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<TimeBucket>,
    /// The values with the highest counts first. Spans of time: the latest ones, the latest first.
    pub values: Vec<FacetValue>,
    /// How many further values there are.
    pub more: u64,
    /// How many of what was counted have no value.
    pub without: u64,
}

/// A value, and how many have it. What has several values is counted at each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FacetValue {
    /// A text, a number or a truth value: the id of a `parent` or `root`, and the first day of a span of time.
    pub value: Value,
    /// The title of the `parent` or `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub count: u64,
}
