//! Predicates: what a fact says of its subject.
use super::PageQuery;
use crate::{
    Failure,
    constraint::{CURSOR, Constraint, Form, PAGE, constrain},
    operation::{Params, Wire},
    reply::Located,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// A namespace has no colon, so that `namespace:name` reads one way only.
pub(super) const NAMESPACE: Constraint = Constraint::Text(1, 100, Form::Word);
const PREDICATE_NAME: Constraint = Constraint::Text(1, 200, Form::NotBlank);
pub(super) const IRI: Constraint = Constraint::Text(1, 2048, Form::Iri);
const LABEL: Constraint = Constraint::Text(1, 1000, Form::NotBlank);
const DESCRIPTION: Constraint = Constraint::Text(0, 10_000, Form::Any);
const OTHERS: Constraint = Constraint::List(0, 100, None);

/// Writes a predicate as `namespace:name`, by which requests name it.
pub fn predicate_name(namespace: &str, name: &str) -> String {
    format!("{namespace}:{name}")
}

/// The predicate in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct PredicatePath {
    /// The predicate's id.
    pub id: i64,
}
impl Params for PredicatePath {}

/// A page of predicates.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct PredicateQuery {
    /// Only predicates of this namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Only predicates whose name or label has this text somewhere, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only what all callers may read: predicates that somebody declared or with which something open is stated, with what was said of them by hand
    /// and in open ontologies.
    pub open: bool,
}
impl Params for PredicateQuery {
    constrain! { namespace: NAMESPACE, q: LABEL, cursor: CURSOR, limit: PAGE }
}
impl PredicateQuery {
    /// The number of rows per page.
    pub fn rows(&self) -> u32 {
        PageQuery { limit: self.limit, ..PageQuery::default() }.rows()
    }
}

/// A predicate to create. What it says of all facts with it is as in OWL: lint and rules read it, and no write is refused by it. The owner alone may
/// say it, since it holds for the facts of all; a principal names a predicate, and loads an ontology for what is to hold in its own zone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPredicate {
    /// 1 to 200 characters; the only one of its name in its namespace.
    pub name: String,
    /// `default` by default: 1 to 100 of the characters a-z A-Z 0-9 _ - and the full stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// An absolute IRI of at most 2,048 bytes, outside `SVC_RDF_BASE`. Without one the predicate's IRI is
    /// `{SVC_RDF_BASE}predicate/{namespace}/{name}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iri: Option<String>,
    /// How people call it, 1 to 1,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// At most 10,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A subject has one object at a time.
    #[serde(default)]
    pub functional: bool,
    /// An object has one subject at a time.
    #[serde(default)]
    pub inverse_functional: bool,
    /// What holds from subject to object holds from object to subject.
    #[serde(default)]
    pub symmetric: bool,
    /// It never holds in both directions.
    #[serde(default)]
    pub asymmetric: bool,
    /// What holds over two steps holds over one.
    #[serde(default)]
    pub transitive: bool,
    /// No subject has itself as object.
    #[serde(default)]
    pub irreflexive: bool,
    /// The predicate that says the same from object to subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inverse_of: Option<i64>,
    /// The predicates that this one implies, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_property_of: Vec<i64>,
    /// The predicates that never hold between the same two, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disjoint_with: Vec<i64>,
}
impl Wire for NewPredicate {
    constrain! {
        name: PREDICATE_NAME, namespace: NAMESPACE, iri: IRI, label: LABEL, description: DESCRIPTION,
        sub_property_of: OTHERS, disjoint_with: OTHERS;
        |new| {
            opposed(new.symmetric, new.asymmetric)?;
            no_iri(new.namespace.as_deref(), Some(&new.name))
        }
    }
}

/// Refuses a predicate that is symmetric and asymmetric: no fact could have it.
pub fn opposed(symmetric: bool, asymmetric: bool) -> Result<(), Failure> {
    match symmetric && asymmetric {
        true => Err(Failure::field("asymmetric", "is the opposite of symmetric: no fact could have such a predicate")),
        false => Ok(()),
    }
}

/// What to change of a predicate; an absent field stays. Facts stay as they are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PredicateChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Null for the IRI that is derived from `SVC_RDF_BASE`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::documents::nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub iri: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::documents::nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub label: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::documents::nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub description: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functional: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inverse_functional: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symmetric: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asymmetric: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transitive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irreflexive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::documents::nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub inverse_of: Option<Option<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_property_of: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disjoint_with: Option<Vec<i64>>,
}
impl Wire for PredicateChange {
    constrain! {
        name: PREDICATE_NAME, namespace: NAMESPACE, iri: IRI, label: LABEL, description: DESCRIPTION,
        sub_property_of: OTHERS, disjoint_with: OTHERS; |change| no_iri(change.namespace.as_deref(), change.name.as_deref())
    }
}

/// Refuses a predicate whose `namespace:name` could be taken for the IRI of another.
fn no_iri(namespace: Option<&str>, name: Option<&str>) -> Result<(), Failure> {
    if name.is_some_and(|name| name.starts_with("//")) {
        return Err(Failure::field("name", "must not begin with //: with its namespace it would read as an IRI")
            .with("remedy", "give the IRI in `iri`, and another name"));
    }
    match namespace {
        Some(namespace) if namespace.eq_ignore_ascii_case("urn") => {
            Err(Failure::field("namespace", "must not be urn: with its name it would read as an IRI")
                .with("remedy", "give the IRI in `iri`, and another namespace"))
        }
        _ => Ok(()),
    }
}

/// A predicate, with what is said of it by hand and in the ontologies that the caller may read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PredicateResponse {
    pub id: i64,
    pub namespace: String,
    pub name: String,
    /// Its own IRI, or the one that is derived from `SVC_RDF_BASE`.
    pub iri: String,
    pub label: Option<String>,
    pub description: Option<String>,
    pub functional: bool,
    pub inverse_functional: bool,
    pub symmetric: bool,
    pub asymmetric: bool,
    pub transitive: bool,
    pub irreflexive: bool,
    pub inverse_of: Option<i64>,
    pub sub_property_of: Vec<i64>,
    pub disjoint_with: Vec<i64>,
    /// The first ontology that says something of it and that the caller may read, open ones before others.
    pub ontology_id: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
impl Wire for PredicateResponse {}
impl Located for PredicateResponse {
    fn location(&self) -> String {
        format!("/triples/predicates/{}", self.id)
    }
}

/// Predicates, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PredicatePage {
    pub predicates: Vec<PredicateResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for PredicatePage {}
