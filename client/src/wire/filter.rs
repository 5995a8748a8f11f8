//! What narrows a search.
use super::{KeyFilter, search::USETYPES};
use crate::{
    Failure,
    constraint::{Constrained, Constraint},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// What may be found: all of it must hold. Filters lie in each other at most 4 deep, 100 in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SearchFilter {
    /// At or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time_from: Option<DateTime<Utc>>,
    /// Before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time_until: Option<DateTime<Utc>>,
    /// At or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at_from: Option<DateTime<Utc>>,
    /// Before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at_until: Option<DateTime<Utc>>,
    /// The document's structured content must contain this object.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::optional")]
    pub structured_content: Option<Map<String, Value>>,
    /// Each must hold of the document's structured content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<KeyFilter>>,
    /// None of these documents, and nothing under them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<Vec<i64>>,
    /// Only what is under one of these documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<Vec<i64>>,
    /// Only these usetypes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usetype: Option<Vec<String>>,
    /// Only files of these formats and what lies in them, by the nearest file at or above a document that the caller may read; the names are those that
    /// the facet `format` counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Vec<String>>,
    /// At least one of these filters, each like this one, must hold.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any: Option<Vec<SearchFilter>>,
    /// Each must hold.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Vec<SearchFilter>>,
    /// None may hold.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub none: Option<Vec<SearchFilter>>,
}

/// What a search leaves out.
pub(super) const EXCLUDE: Constraint = Constraint::List(0, 1000, None);
/// An empty list would find nothing, which nobody wants.
pub(super) const UNDER: Constraint = Constraint::List(1, 1000, None);
/// The filters in a filter.
pub(super) const FILTERS: Constraint = Constraint::List(1, MOST, None);
/// What a filter says of keys.
pub(super) const KEYS: Constraint = Constraint::List(1, 100, None);
/// How deep filters lie in each other.
const DEEPEST: usize = 4;
/// The most filters in a filter, at any depth.
const MOST: usize = 100;
/// The most ids, usetypes, formats, keys and values of keys that a filter names, with those in it.
const MOST_NAMED: usize = 2_000;

/// The constraints of a filter that is the field `$field` of a body.
macro_rules! filter_constraints {
    ($field:literal) => {
        [
            (concat!($field, ".exclude"), $crate::wire::filter::EXCLUDE),
            (concat!($field, ".under"), $crate::wire::filter::UNDER),
            (concat!($field, ".usetype"), $crate::wire::search::USETYPES),
            (concat!($field, ".format"), $crate::wire::search::USETYPES),
            (concat!($field, ".keys"), $crate::wire::filter::KEYS),
            (concat!($field, ".any"), $crate::wire::filter::FILTERS),
            (concat!($field, ".all"), $crate::wire::filter::FILTERS),
            (concat!($field, ".none"), $crate::wire::filter::FILTERS),
        ]
    };
}
pub(super) use filter_constraints;

/// What a filter has in it.
#[derive(Default)]
struct Size {
    filters: usize,
    named: usize,
}

/// Only lists of filters have a constraint.
impl Constrained for SearchFilter {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Ok(())
    }
}

impl SearchFilter {
    /// The filters in this one, by the name of the field that has them.
    fn parts(&self) -> [(&'static str, &Option<Vec<SearchFilter>>); 3] {
        [("any", &self.any), ("all", &self.all), ("none", &self.none)]
    }

    /// The failure names the field as it stands in the body, of which this filter is the field `field`.
    pub(super) fn check(&self, field: &str) -> Result<(), Failure> {
        self.measure(field, 0, &mut Size::default())
    }

    fn measure(&self, field: &str, depth: usize, size: &mut Size) -> Result<(), Failure> {
        EXCLUDE.check(&format!("{field}.exclude"), &self.exclude)?;
        UNDER.check(&format!("{field}.under"), &self.under)?;
        USETYPES.check(&format!("{field}.usetype"), &self.usetype)?;
        USETYPES.check(&format!("{field}.format"), &self.format)?;
        KEYS.check(&format!("{field}.keys"), &self.keys)?;
        for (place, key) in self.keys.iter().flatten().enumerate() {
            key.check(&format!("{field}.keys[{place}]"))?;
            size.named += key.named();
        }
        for (name, time) in [
            ("event_time_from", self.event_time_from),
            ("event_time_until", self.event_time_until),
            ("created_at_from", self.created_at_from),
            ("created_at_until", self.created_at_until),
        ] {
            Constraint::Moment.check(&format!("{field}.{name}"), &time)?;
        }
        let ids = [&self.exclude, &self.under].into_iter().flatten().map(Vec::len).sum::<usize>();
        size.named += ids + [&self.usetype, &self.format].into_iter().flatten().map(Vec::len).sum::<usize>();
        if size.named > MOST_NAMED {
            let reason =
                format!("with it the filter names more than {MOST_NAMED} ids, usetypes, formats, keys and values");
            return Err(Failure::field(field, reason)
                .with("limit", MOST_NAMED)
                .with("remedy", "name a document above them, or search several times"));
        }
        for (name, filters) in self.parts() {
            let Some(filters) = filters else { continue };
            let field = format!("{field}.{name}");
            FILTERS.check(&field, filters)?;
            if depth == DEEPEST {
                return Err(Failure::field(&field, format!("filters lie in each other at most {DEEPEST} deep"))
                    .with("limit", DEEPEST)
                    .with(
                        "remedy",
                        "the members of one filter hold together, so an `all` of one filter is that filter",
                    ));
            }
            size.filters += filters.len();
            if size.filters > MOST {
                return Err(Failure::field(&field, format!("with it the filter has more than {MOST} filters in it"))
                    .with("limit", MOST)
                    .with("remedy", "give `usetype` and `under` several values instead of a filter for each"));
            }
            for (place, filter) in filters.iter().enumerate() {
                filter.measure(&format!("{field}[{place}]"), depth + 1, size)?;
            }
        }
        Ok(())
    }

    /// The usetypes that this filter asks for.
    pub fn named_usetypes(&self) -> Vec<&str> {
        let own = self.usetype.iter().flatten().map(String::as_str);
        let parts = [&self.any, &self.all].into_iter().flatten().flatten();
        own.chain(parts.flat_map(SearchFilter::named_usetypes)).collect()
    }

    /// The formats that this filter or one in it names.
    pub fn named_formats(&self) -> Vec<&str> {
        let own = self.format.iter().flatten().map(String::as_str);
        let parts = [&self.any, &self.all, &self.none].into_iter().flatten().flatten();
        own.chain(parts.flat_map(SearchFilter::named_formats)).collect()
    }
}
