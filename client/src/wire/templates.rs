//! Templates of prompts.
use crate::{
    Failure,
    constraint::{Constraint, Form, NAME, TITLE, constrain},
    operation::Wire,
    words::wire_words,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

wire_words! {
    /// What a variable of a template takes. A `document` is given by its id, and has `id`, `title`, `usetype`, `content` and `children` in the
    /// template; `any` takes each JSON value.
    VariableType {
        Any = "any", String = "string", Number = "number", Boolean = "boolean", Array = "array", Object = "object",
        Document = "document",
    }
}

/// A variable of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TemplateVariable {
    /// `any` by default.
    #[serde(default = "any", rename = "type")]
    pub kind: VariableType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its value where a rendering gives none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::value")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    pub default: Option<Value>,
    /// Whether a rendering must give it: by default if it has no default. One that is not given and has no default says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}
impl TemplateVariable {
    /// Whether a rendering must give it.
    pub fn is_required(&self) -> bool {
        self.required.unwrap_or(self.default.is_none())
    }
}

fn any() -> VariableType {
    VariableType::Any
}

/// Another template that the text includes by this name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TemplatePartial {
    pub name: String,
    pub template_id: i64,
}

/// What a template declares: the `structured_content` of its document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateDeclaration {
    pub variables: BTreeMap<String, TemplateVariable>,
    pub partials: Vec<TemplatePartial>,
}

/// The longest text of a template.
const TEXT: Constraint = Constraint::Text(0, 200_000, Form::Any);
/// How many variables and partials a template declares.
const MOST: usize = 100;
/// The most bytes of JSON that they take.
const DECLARED_BYTES: usize = 256 << 10;

/// A template to create.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewTemplate {
    /// 1 to 1,000 characters on one line, not blank and without control characters.
    pub title: String,
    /// The text in the syntax of Jinja, at most 200,000 characters.
    pub content: String,
    /// Each variable that the text uses and does not set itself, by its name; at most 100, and 256 KiB of JSON.
    #[serde(default)]
    pub variables: BTreeMap<String, TemplateVariable>,
    /// The templates that the text includes, at most 100.
    #[serde(default)]
    pub partials: Vec<TemplatePartial>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// Makes the node an access root that only the caller may read.
    #[serde(default)]
    pub private: bool,
}
impl Wire for NewTemplate {
    constrain! { title: TITLE, content: TEXT; |new| check(Some(&new.variables), Some(&new.partials)) }
}

/// What to change of a template; an absent field stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TemplateChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// All variables, in place of those that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variables: Option<BTreeMap<String, TemplateVariable>>,
    /// All partials, in place of those that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partials: Option<Vec<TemplatePartial>>,
}
impl Wire for TemplateChange {
    constrain! { title: TITLE, content: TEXT; |change| check(change.variables.as_ref(), change.partials.as_ref()) }
}

fn check(
    variables: Option<&BTreeMap<String, TemplateVariable>>,
    partials: Option<&Vec<TemplatePartial>>,
) -> Result<(), Failure> {
    for name in variables.into_iter().flat_map(BTreeMap::keys) {
        let mut letters = name.chars();
        let begins = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
        if !begins || name.len() > 100 || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
            let takes = "a name takes letters, digits and underscores, and begins with no digit; at most 100";
            return Err(Failure::field("variables", format!("`{name}`: {takes}")));
        }
    }
    if let Some(variables) = variables {
        let bytes = serde_json::to_string(variables).map_or(usize::MAX, |json| json.len());
        if bytes > DECLARED_BYTES {
            let detail = format!("takes at most {DECLARED_BYTES} bytes of JSON, got {bytes}");
            return Err(Failure::field("variables", detail));
        }
    }
    let partials = partials.map_or(&[][..], Vec::as_slice);
    for (place, partial) in partials.iter().enumerate() {
        NAME.check("partials.name", &partial.name)?;
        if partials[..place].iter().any(|other| other.name == partial.name) {
            return Err(Failure::field("partials", format!("names `{}` twice", partial.name)));
        }
    }
    for (field, count) in [("variables", variables.map_or(0, BTreeMap::len)), ("partials", partials.len())] {
        if count > MOST {
            return Err(Failure::field(field, format!("has {count} entries, but takes at most {MOST}")));
        }
    }
    Ok(())
}

/// The values with which to render a template.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RenderRequest {
    /// The values of variables that are no documents.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    #[serde(deserialize_with = "super::structured::object")]
    pub variables: Map<String, Value>,
    /// The ids of documents, by the names of variables of the type `document`; at most 20.
    pub documents: BTreeMap<String, i64>,
}
impl Wire for RenderRequest {
    fn check(&self) -> Result<(), Failure> {
        match self.documents.len() {
            ..=20 => Ok(()),
            more => Err(Failure::field("documents", format!("names {more} documents, but takes at most 20"))),
        }
    }
}

/// What a template says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RenderedTemplate {
    pub template_id: i64,
    /// At most 1 MiB.
    pub text: String,
    /// The length of the text in tokens of the embedding model; null without a model.
    pub tokens: Option<u64>,
    /// The variables that the template and what it includes use, by name.
    pub used_variables: Vec<String>,
    /// `sha256:<hex>` of the template's text.
    pub content_hash: String,
}
impl Wire for RenderedTemplate {}
