//! What a filter says of the values in structured content.
use crate::{
    Failure,
    constraint::{Constrained, Constraint, Form},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Visitor},
};
use serde_json::Number;
use std::fmt;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// What must hold of the value at a key of structured content: all of `in`, `from` and `until` that is given, or `exists`. A list stands for each
/// of its entries, on the way to the value and as the value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KeyFilter {
    /// The keys that lead to the value, the outermost first; each has 1 to 255 characters.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 8))]
    pub path: Vec<String>,
    /// The value is one of these.
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub one_of: Option<Vec<Scalar>>,
    /// The value is a number, or a text, at or above this one. Texts are compared by their code points, which is the order of days and times that are
    /// written in one form of ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Scalar>,
    /// The value is a number, or a text, below this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Scalar>,
    /// Whether there is a value, be it null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
}

/// A value that has no others in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scalar {
    Text(String),
    Number(Number),
    Flag(bool),
}

/// The keys on the way to a value.
const PATH: Constraint = Constraint::List(1, 8, Some(&KEY));
const KEY: Constraint = Constraint::Text(1, 255, Form::Any);
/// The values of which one is asked for.
const VALUES: Constraint = Constraint::List(1, 100, Some(&VALUE));
const VALUE: Constraint = Constraint::Text(0, 1_000, Form::Any);

impl KeyFilter {
    /// How many keys and values it names.
    pub(super) fn named(&self) -> usize {
        self.path.len()
            + self.one_of.as_ref().map_or(0, Vec::len)
            + [&self.from, &self.until].into_iter().flatten().count()
    }

    /// The failure names the field as it stands in the body, of which this is the field `field`.
    pub(super) fn check(&self, field: &str) -> Result<(), Failure> {
        let name = |member: &str| format!("{field}.{member}");
        PATH.check(&name("path"), &self.path)?;
        VALUES.check(&name("in"), &self.one_of)?;
        VALUE.check(&name("from"), &self.from)?;
        VALUE.check(&name("until"), &self.until)?;
        let texts = self.one_of.iter().flatten().chain(&self.from).chain(&self.until).filter_map(Scalar::text);
        if self.path.iter().map(String::as_str).chain(texts).any(|text| text.contains('\0')) {
            return Err(Failure::field(field, "must not contain the character U+0000 (NUL)"));
        }
        for (member, bound) in [("from", &self.from), ("until", &self.until)] {
            if let Some(Scalar::Flag(_)) = bound {
                return Err(Failure::field(&name(member), "takes a number or a text"));
            }
        }
        if let (Some(from), Some(until)) = (&self.from, &self.until)
            && from.text().is_some() != until.text().is_some()
        {
            return Err(Failure::field(&name("until"), "takes what `from` takes: both are numbers, or both are texts"));
        }
        let asks = self.one_of.is_some() || self.from.is_some() || self.until.is_some();
        match (asks, self.exists) {
            (false, None) => {
                Err(Failure::field(field, "asks for nothing")
                    .with("remedy", "give it `in`, `from`, `until` or `exists`"))
            }
            (true, Some(_)) => Err(Failure::field(
                &name("exists"),
                "stands alone: a value that is asked for by `in`, `from` or `until` exists",
            )),
            _ => Ok(()),
        }
    }
}

/// A list checks only how many there are; a filter checks each.
impl Constrained for KeyFilter {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Ok(())
    }
}

impl Scalar {
    fn text(&self) -> Option<&str> {
        match self {
            Scalar::Text(text) => Some(text),
            Scalar::Number(_) | Scalar::Flag(_) => None,
        }
    }
}

/// Only texts have a constraint.
impl Constrained for Scalar {
    fn meets(&self, constraint: &Constraint) -> Result<(), String> {
        match self {
            Scalar::Text(text) => text.meets(constraint),
            Scalar::Number(_) | Scalar::Flag(_) => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct Scalars;
        impl Visitor<'_> for Scalars {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or a truth value")
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar::Flag(value))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value.into()))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value.into()))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
                Number::from_f64(value).map(Scalar::Number).ok_or_else(|| E::custom("takes a finite number"))
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(value.to_owned()))
            }
        }
        // Anything else is refused before it is read, however much it holds.
        deserializer.deserialize_any(Scalars)
    }
}

// Written by hand, because the derive would make a choice of three schemas of it.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Scalar {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::{Type, schema::SchemaType};
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Number, Type::Boolean]))
            .description(Some("A text of at most 1,000 characters, a number or a truth value."))
            .into()
    }
}
#[cfg(feature = "openapi")]
impl ToSchema for Scalar {}
