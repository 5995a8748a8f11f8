//! Facts between documents, or from a document to a literal.
use super::{
    predicates::IRI,
    shape_bindings::{ShapeResult, ValidationLimit},
};
use crate::{
    Failure,
    constraint::{Constrained, Constraint, Form, constrain},
    operation::{Params, Wire},
    reply::Located,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The most bytes of a literal.
pub const LITERAL_BYTES: usize = 64 * 1024;
/// A predicate by `namespace:name` or by its IRI.
pub(super) const PREDICATE: Constraint = Constraint::Text(1, 2048, Form::NotBlank);
const LITERAL: Constraint = Constraint::Text(0, LITERAL_BYTES, Form::Any);
const LANGUAGE: Constraint = Constraint::Text(1, 100, Form::Language);
const QUOTE: Constraint = Constraint::Text(1, 10_000, Form::NotBlank);
const CONFIDENCE: Constraint = Constraint::Number(0.0, 1.0);
const REASON: Constraint = Constraint::Text(1, 100, Form::NotBlank);
const FACTS: Constraint = Constraint::List(1, 5_000, None);

wire_words! {
    /// Whether a fact may go stale: `atemporal` has no bounds in time, `static` begins or ends and stays true of that time, `dynamic` may
    /// become untrue without anybody saying so.
    FactType { Atemporal = "atemporal", Static = "static", Dynamic = "dynamic", }
    /// What to do if the same statement is believed already for a part of the time: `reject` the fact, or `merge` the times.
    OnOverlap { Reject = "reject", Merge = "merge", }
    /// What became of an asserted fact: `created`, `merged` with believed ones into one, or `existing`, if all of its time was covered.
    FactOutcome { Created = "created", Merged = "merged", Existing = "existing", }
}

/// The fact in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct FactPath {
    /// The fact's id.
    pub id: i64,
}
impl Params for FactPath {}

/// A fact to assert. The caller must be allowed to write the subject, and to read the object and the source.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewFact {
    /// The document that the fact is about. One of `subject_id` and `subject_iri`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_id: Option<i64>,
    /// The same by its IRI: one that it was imported with, or `{SVC_RDF_BASE}document/{id}`; of several the one beside the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_iri: Option<String>,
    /// `namespace:name`, a name of the namespace `default`, or an IRI. One of `predicate` and `predicate_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate_id: Option<i64>,
    /// The document that the fact leads to. One of `object_id`, `object_iri` and `object_literal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_id: Option<i64>,
    /// The same by its IRI, as `subject_iri`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_iri: Option<String>,
    /// A value, at most 64 KiB, kept to the letter: 1.50 and 1.5 are two literals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_literal: Option<String>,
    /// The literal's datatype, an IRI or `xsd:` and a name; `xsd:string` by default. A value that it does not have is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_datatype: Option<String>,
    /// The literal's language, such as `en`; the datatype is then `rdf:langString`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_language: Option<String>,
    /// When the fact begins to hold; open if absent. Times are kept to the microsecond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<DateTime<Utc>>,
    /// When the fact no longer holds; open if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<DateTime<Utc>>,
    /// `dynamic` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact_type: Option<FactType>,
    /// The document that states it. Who may not read the source does not see the fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<i64>,
    /// The words of the source that state it; runs of white space may differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// How sure its reader is, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// `reject` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_overlap: Option<OnOverlap>,
}
impl Wire for NewFact {
    constrain! {
        subject_iri: IRI, predicate: PREDICATE, object_iri: IRI, object_literal: LITERAL, object_datatype: IRI,
        object_language: LANGUAGE, quote: QUOTE, confidence: CONFIDENCE; |new| {
            one_of(&[("subject_id", new.subject_id.is_some()), ("subject_iri", new.subject_iri.is_some())])?;
            one_of(&[("predicate", new.predicate.is_some()), ("predicate_id", new.predicate_id.is_some())])?;
            let object = [("object_id", new.object_id.is_some()), ("object_iri", new.object_iri.is_some())];
            one_of(&[object[0], object[1], ("object_literal", new.object_literal.is_some())])?;
            object_fits(new.object_literal.as_deref(), new.object_datatype.is_some(), new.object_language.is_some())?;
            source_fits(new.source_id, new.quote.is_some(), new.confidence.is_some())?;
            bounds_fit(new.valid_from, new.valid_until)?;
            match (new.fact_type, new.valid_from.is_some() || new.valid_until.is_some()) {
                (Some(FactType::Atemporal), true) => Err(Failure::field("fact_type", "an atemporal fact has neither valid_from nor valid_until")),
                _ => Ok(()),
            }
        }
    }
}

fn one_of(fields: &[(&str, bool)]) -> Result<(), Failure> {
    let mut given = fields.iter().filter(|(_, is_given)| *is_given).map(|(field, _)| *field);
    let names: Vec<String> = fields.iter().map(|(field, _)| format!("`{field}`")).collect();
    match (given.next(), given.next()) {
        (None, _) => Err(Failure::field(fields[0].0, format!("one of {} is needed", names.join(", ")))),
        (Some(first), Some(second)) => {
            Err(Failure::field(second, format!("does not go with `{first}`: name one of {}", names.join(", "))))
        }
        _ => Ok(()),
    }
}

fn object_fits(literal: Option<&str>, has_datatype: bool, has_language: bool) -> Result<(), Failure> {
    match literal {
        Some(literal) if literal.len() > LITERAL_BYTES => {
            Err(Failure::field("object_literal", format!("takes at most {LITERAL_BYTES} bytes, got {}", literal.len())))
        }
        Some(_) if has_datatype && has_language => Err(Failure::field(
            "object_language",
            "does not go with `object_datatype`: a text in a language is an rdf:langString",
        )),
        None if has_datatype => Err(Failure::field("object_datatype", "goes with `object_literal` only")),
        None if has_language => Err(Failure::field("object_language", "goes with `object_literal` only")),
        _ => Ok(()),
    }
}

fn source_fits(source_id: Option<i64>, has_quote: bool, has_confidence: bool) -> Result<(), Failure> {
    match source_id {
        None if has_quote => Err(Failure::field("quote", "goes with `source_id` only")),
        None if has_confidence => Err(Failure::field("confidence", "goes with `source_id` only")),
        _ => Ok(()),
    }
}

/// Refuses an interval that is empty at the precision of the store, or beyond the years that it can hold.
fn bounds_fit(from: Option<DateTime<Utc>>, until: Option<DateTime<Utc>>) -> Result<(), Failure> {
    Constraint::Moment.check("valid_from", &from)?;
    Constraint::Moment.check("valid_until", &until)?;
    match from.zip(until) {
        Some((from, until)) if from.timestamp_micros() >= until.timestamp_micros() => {
            Err(Failure::field("valid_until", "must be after valid_from"))
        }
        _ => Ok(()),
    }
}

/// A list checks only how many there are; [`NewFacts`] checks each.
impl Constrained for NewFact {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Err("takes no constraint of a single value".to_owned())
    }
}

/// Facts to assert: all of them, or none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewFacts {
    /// 1 to 5,000 facts, each without an `on_overlap` of its own.
    pub facts: Vec<NewFact>,
    /// `reject` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_overlap: Option<OnOverlap>,
}
impl Wire for NewFacts {
    constrain! { facts: FACTS; |new| {
        for (index, fact) in new.facts.iter().enumerate() {
            let at = |failure: Failure| {
                let field = failure.members.get("field").and_then(|field| field.as_str()).unwrap_or_default().to_owned();
                failure.with("index", index).with("field", format!("facts[{index}].{field}"))
            };
            fact.check().map_err(at)?;
            if fact.on_overlap.is_some() {
                return Err(at(Failure::field("on_overlap", "is said once, beside `facts`")));
            }
        }
        Ok(())
    } }
}

/// A document that states a fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Citation {
    pub document_id: i64,
    /// The words that state it; null if none were given, or if the document's text has changed since.
    pub quote: Option<String>,
    /// Where the words begin, in characters of the text that has the hash `source_hash`.
    pub quote_start: Option<i32>,
    pub quote_end: Option<i32>,
    /// The document's `content_hash` when it was cited.
    pub source_hash: String,
    pub confidence: Option<f64>,
    pub cited_at: DateTime<Utc>,
}

/// A fact as the store believes it, or believed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FactResponse {
    pub id: i64,
    pub subject_id: i64,
    /// The document that the fact was stated of, if that is taken for another one, which `subject_id` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated_subject_id: Option<i64>,
    pub predicate_id: i64,
    /// `namespace:name`.
    pub predicate: String,
    pub object_id: Option<i64>,
    /// The same for the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated_object_id: Option<i64>,
    pub object_literal: Option<String>,
    /// The whole IRI of the literal's datatype.
    pub object_datatype: Option<String>,
    pub object_language: Option<String>,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub fact_type: FactType,
    /// The document that states it, and decides with subject and object who sees it.
    pub source_id: Option<i64>,
    /// When the statement was first learned.
    pub created_at: DateTime<Utc>,
    /// Since when the store has believed it in this form.
    pub recorded_at: DateTime<Utc>,
    /// When the store ceased to.
    pub invalidated_at: Option<DateTime<Utc>>,
    /// The fact that took its place, if one did and the caller may see it.
    pub invalidated_by: Option<i64>,
    /// Why: `superseded`, `merged`, `withdrawn`, `source_deleted`, `reprocessed`, `replaced`, or what the caller said; of a derived fact
    /// `premise_invalidated`, `rederived` if it follows no longer or for another time, or `asserted` if somebody says so by now.
    pub invalidation: Option<String>,
    /// The fact that this one is left of, after a part of its time was taken away, if the caller may see it.
    pub previous_id: Option<i64>,
    /// The rule that wrote it; null for what somebody asserted.
    pub derived_by: Option<String>,
    /// What a derived fact follows from: the first hundred facts that the caller may read. Some may be derived themselves.
    pub premises: Vec<i64>,
    /// Ten at most that the caller may read: first those whose text is what it was when it was cited, the oldest first.
    pub citations: Vec<Citation>,
}
impl Wire for FactResponse {}

/// A fact that was asserted just now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AssertedFact {
    #[serde(flatten)]
    pub fact: FactResponse,
    pub outcome: FactOutcome,
    /// What bound shapes warn of, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ShapeResult>,
    /// Why bound shapes that only warn were not held against all facts; absent if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnings_truncated: Option<ValidationLimit>,
}
impl Wire for AssertedFact {}
impl Located for AssertedFact {
    fn location(&self) -> String {
        format!("/triples/{}", self.fact.id)
    }
}

/// What became of one fact of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct BatchedFact {
    /// Its position in the request, from 0.
    pub index: u32,
    pub id: i64,
    pub outcome: FactOutcome,
}

/// What became of the facts of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct BatchedFacts {
    pub facts: Vec<BatchedFact>,
    /// When all of them were recorded.
    pub recorded_at: DateTime<Utc>,
    /// What bound shapes warn of, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ShapeResult>,
    /// Why bound shapes that only warn were not held against all facts; absent if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnings_truncated: Option<ValidationLimit>,
}
impl Wire for BatchedFacts {}

/// What takes the place of a fact's object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Supersession {
    /// One of `object_id`, `object_iri` and `object_literal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_iri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_literal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_datatype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_language: Option<String>,
    /// Since when the new object holds. If both bounds are absent, it takes the whole time of the old one, which is a correction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
}
impl Wire for Supersession {
    constrain! {
        object_iri: IRI, object_literal: LITERAL, object_datatype: IRI, object_language: LANGUAGE, quote: QUOTE, confidence: CONFIDENCE; |new| {
            let object = [("object_id", new.object_id.is_some()), ("object_iri", new.object_iri.is_some())];
            one_of(&[object[0], object[1], ("object_literal", new.object_literal.is_some())])?;
            object_fits(new.object_literal.as_deref(), new.object_datatype.is_some(), new.object_language.is_some())?;
            source_fits(new.source_id, new.quote.is_some(), new.confidence.is_some())?;
            bounds_fit(new.valid_from, new.valid_until)
        }
    }
}

/// A fact that took the place of another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SupersededFact {
    pub fact: FactResponse,
    /// The old fact, closed.
    pub closed: FactResponse,
    /// What the old one is left of outside the time of the new one.
    pub remainders: Vec<FactResponse>,
    /// What bound shapes warn of, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ShapeResult>,
    /// Why bound shapes that only warn were not held against all facts; absent if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnings_truncated: Option<ValidationLimit>,
}
impl Wire for SupersededFact {}
impl Located for SupersededFact {
    fn location(&self) -> String {
        format!("/triples/{}", self.fact.id)
    }
}

/// Which part of a fact's time is no longer believed; all of it if both bounds are absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Invalidation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<DateTime<Utc>>,
    /// Why, in 1 to 100 characters; `withdrawn` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
impl Wire for Invalidation {
    constrain! { reason: REASON; |new| bounds_fit(new.valid_from, new.valid_until) }
}

/// A fact that is no longer believed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct InvalidatedFact {
    pub closed: FactResponse,
    /// What is left of it outside that time.
    pub remainders: Vec<FactResponse>,
    /// How many derived facts were closed with it, as far as the caller may read them.
    pub derived_closed: u64,
    /// What bound shapes warn of, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ShapeResult>,
    /// Why bound shapes that only warn were not held against all facts; absent if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnings_truncated: Option<ValidationLimit>,
}
impl Wire for InvalidatedFact {}
