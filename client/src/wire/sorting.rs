//! Results in another order than that of their scores.
use super::TotalIs;
use crate::{Failure, constraint::Constraint, words::wire_words};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

wire_words! {
    /// What decides the order of results. `title`: without regard to upper and lower case. A document without an `event_time` comes last in either order.
    SortBy { Score = "score", CreatedAt = "created_at", UpdatedAt = "updated_at", EventTime = "event_time", Title = "title", }
    /// A direction: `asc` begins with the earliest time or the first title, `desc` with the latest or the last.
    SortOrder { Asc = "asc", Desc = "desc", }
}

/// How many results are put into order.
pub(super) const SORT_TOP: Constraint = Constraint::Whole(1, 1_000);
/// How many are by default.
const DEFAULT_TOP: u32 = 100;

/// The order of the results of a search, if it is another than that of their scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    pub by: SortBy,
    pub order: SortOrder,
    /// How many of the best results are put into order.
    pub top: u32,
}

impl Sorting {
    pub(super) fn of(by: Option<SortBy>, order: Option<SortOrder>, top: Option<u32>) -> Option<Sorting> {
        let by = by.filter(|by| *by != SortBy::Score)?;
        // Whoever asks for times wants the newest, and titles begin with A.
        let usual = if by == SortBy::Title { SortOrder::Asc } else { SortOrder::Desc };
        Some(Sorting { by, order: order.unwrap_or(usual), top: top.unwrap_or(DEFAULT_TOP) })
    }
}

/// `others` are the fields that would decide the order as well, each with whether it is given.
pub(super) fn check_sorting(
    by: Option<SortBy>,
    order: Option<SortOrder>,
    top: Option<u32>,
    others: &[(&str, bool)],
) -> Result<(), Failure> {
    SORT_TOP.check("sort_top", &top)?;
    if Sorting::of(by, order, top).is_some() {
        return match others.iter().find(|(_, is_given)| *is_given) {
            Some((other, _)) => {
                Err(Failure::field("sort", format!("does not go with `{other}`: either would decide the order"))
                    .with("remedy", "leave one of them out"))
            }
            None => Ok(()),
        };
    }
    for (field, is_given) in [("sort_order", order.is_some()), ("sort_top", top.is_some())] {
        if is_given {
            return Err(Failure::field(field, "is for a search with a `sort` other than `score`")
                .with("remedy", "give `sort`: created_at, updated_at, event_time or title"));
        }
    }
    Ok(())
}

/// How the results of a search were sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SortedResponse {
    pub by: SortBy,
    pub order: SortOrder,
    /// How many results, or groups of them, were put into order: the best by their scores. The pages lead through these.
    pub count: u64,
    /// `exact` if these are all that match, and `at_least` if others match whose scores are lower: these are on no page.
    pub count_is: TotalIs,
}
