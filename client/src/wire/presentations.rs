//! How documents are shown, by their usetype.
use crate::{
    Failure, Located,
    constraint::{Constraint, Form, NAME, constrain},
    operation::{Params, Wire},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

wire_words! {
    /// What makes blocks of a document's text. `source` is as the file has it: Markdown, or plain for a PDF and a plain text.
    Renderer {
        Markdown = "markdown", Plain = "plain", Code = "code", Table = "table", Conversation = "conversation",
        Transcript = "transcript", Source = "source", Record = "record", Image = "image",
    }
    /// How what is under a document is shown: with its text, in the order of the tree; by name, once somebody asks; by name; not at all.
    ChildrenMode { Inline = "inline", Collapsed = "collapsed", List = "list", Hidden = "hidden", }
    /// Where a document's links are shown: before what is under it, behind that, or not at all.
    LinksMode { Inline = "inline", Footnotes = "footnotes", Hidden = "hidden", }
    /// A field of a document that its view shows.
    ShownField {
        ContentHash = "content_hash", CreatedAt = "created_at", EventTime = "event_time", Position = "position",
        Settled = "settled", StructuredContent = "structured_content", UpdatedAt = "updated_at", Usetype = "usetype",
    }
}

/// How what is under a document is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChildrenRule {
    pub mode: ChildrenMode,
    /// How many documents a page has, 1 to 500.
    pub limit: u32,
}

/// How a document's links are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LinksRule {
    pub mode: LinksMode,
    /// Only links of these types, at most 100; all types if there are none.
    #[serde(default)]
    pub types: Vec<String>,
}

/// How many documents a page of a view has.
pub(super) const VIEWED: Constraint = Constraint::Whole(1, 500);
/// A usetype, or its beginning and an asterisk.
const USETYPE: Constraint = Constraint::Text(1, 101, Form::Prefix);
const TYPES: Constraint = Constraint::List(0, 100, Some(&NAME));
const TITLE: Constraint = Constraint::Text(1, 100, Form::NotBlank);

/// A rule to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPresentation {
    /// A usetype, or the beginning of usetypes and an asterisk, such as `wiki:*`. The rule of the usetype itself wins over one of a beginning,
    /// and a longer beginning over a shorter one.
    pub usetype: String,
    pub renderer: Renderer,
    /// `list` with a limit of 50 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<ChildrenRule>,
    /// `footnotes`, of all types, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinksRule>,
    /// The fields that are shown, in this order.
    #[serde(default)]
    pub show: Vec<ShownField>,
    /// What such a document is called, 1 to 100 characters; by default its usetype.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}
impl Wire for NewPresentation {
    constrain! { usetype: USETYPE, title: TITLE; |new| check(new.children, new.links.as_ref(), Some(&new.show)) }
}

/// What to change of a rule; an absent field stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PresentationChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renderer: Option<Renderer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<ChildrenRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<LinksRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub show: Option<Vec<ShownField>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}
impl Wire for PresentationChange {
    constrain! { title: TITLE; |change| check(change.children, change.links.as_ref(), change.show.as_deref()) }
}

fn check(
    children: Option<ChildrenRule>,
    links: Option<&LinksRule>,
    show: Option<&[ShownField]>,
) -> Result<(), Failure> {
    if let Some(children) = children {
        VIEWED.check("children.limit", &children.limit)?;
    }
    if let Some(links) = links {
        TYPES.check("links.types", &links.types)?;
    }
    let show = show.unwrap_or_default();
    match show.iter().enumerate().find(|(place, field)| show[..*place].contains(field)) {
        Some((_, field)) => Err(Failure::field("show", format!("names `{}` twice", field.as_str()))),
        None => Ok(()),
    }
}

/// The rule in question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct PresentationPath {
    /// The rule's usetype, such as `markdown` or `wiki:*`.
    pub usetype: String,
}
impl Params for PresentationPath {
    constrain! { usetype: USETYPE }
}

/// How documents of a usetype are shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PresentationResponse {
    /// A usetype, or the beginning of usetypes and an asterisk.
    pub usetype: String,
    pub renderer: Renderer,
    pub children: ChildrenRule,
    pub links: LinksRule,
    pub show: Vec<ShownField>,
    /// What such a document is called.
    pub title: String,
    /// Whether the service brings the rule. Such a rule can be changed and reset, and not deleted.
    pub seeded: bool,
    /// When somebody changed it last; null for a rule as the service brings it.
    pub changed_at: Option<DateTime<Utc>>,
}
impl Wire for PresentationResponse {}
impl Located for PresentationResponse {
    fn location(&self) -> String {
        format!("/usetype-presentations/{}", self.usetype)
    }
}

/// All rules, by usetype.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PresentationList {
    pub presentations: Vec<PresentationResponse>,
}
impl Wire for PresentationList {}
