//! Documents: the nodes of the tree.
use crate::{
    Located,
    constraint::{CURSOR, Constraint, Form, NAME, PAGE, PRIORITY, constrain},
    operation::{Params, Wire},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// Which document.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct DocumentPath {
    /// The document's id.
    pub id: i64,
}
impl Params for DocumentPath {}

/// What to show of a document.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct EmbedQuery {
    /// Shows the 768-dimension vector too.
    pub include_embed: bool,
}
impl Params for EmbedQuery {}

/// Whether to wait for the work that a call starts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct WaitQuery {
    /// Answers once the document is embedded and indexed, rather than at once.
    pub wait: bool,
}
impl Params for WaitQuery {}

/// What to embed of a document; a call may say it in its query or in its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams, ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct EmbedOptions {
    /// Token vectors beside the document's; true where left out. A text over the token window is refused with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_tokens: Option<bool>,
}
impl Params for EmbedOptions {}
impl Wire for EmbedOptions {}

/// What was embedded of a document and stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct EmbedResponse {
    pub document_id: i64,
    pub embedded: bool,
    pub with_tokens: bool,
    /// Token vectors that are stored; never a sign that something was cut.
    pub token_count: usize,
}
impl Wire for EmbedResponse {}

/// The token vectors that were made of a document and stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TokensResponse {
    pub document_id: i64,
    /// The model's name and the hash of all that decides what a vector is.
    pub model: String,
    /// Tokens of the document's text.
    pub text_tokens: usize,
    /// Token vectors that are stored: those of the most important tokens.
    pub token_count: usize,
    /// Widths that each is stored in.
    pub widths: Vec<usize>,
}
impl Wire for TokensResponse {}

/// One page of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct PageQuery {
    /// `next_cursor` of the page before; none for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows a page, 1 to 1,000; 100 where left out. A page of large documents ends before, at 8 MiB unless `SVC_PAGE_BYTES` says
    /// otherwise; `next_cursor` tells whether there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Shows the 768-dimension vectors too, where the rows are documents.
    pub include_embed: bool,
    /// Shows the documents' texts; true where left out.
    pub include_content: bool,
}
impl Default for PageQuery {
    fn default() -> Self {
        Self { cursor: None, limit: None, include_embed: false, include_content: true }
    }
}
impl Params for PageQuery {
    constrain! { cursor: CURSOR, limit: PAGE }
}
impl PageQuery {
    /// Rows a page.
    pub fn rows(&self) -> u32 {
        self.limit.unwrap_or(100)
    }
}

/// A document to be created.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewDocument {
    /// 1 to 1,000 characters.
    pub title: String,
    /// May be empty.
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// `markdown` where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usetype: Option<String>,
    /// The caller's own JSON object, of at most 100,000 values, 64 levels and 1 MiB of keys and texts; the service never writes into it.
    #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "super::structured::object")]
    pub structured_content: Map<String, Value>,
    /// Explicit order among siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i32>,
    /// Domain time, for imported content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<DateTime<Utc>>,
    /// Makes the node an access-control root with the caller as sole grantee.
    #[serde(default)]
    pub private: bool,
    /// -100 to 100: the embedding of a document of higher priority goes first.
    #[serde(default)]
    pub priority: i32,
}
impl Wire for NewDocument {
    constrain! { title: Constraint::Text(1, 1000, Form::Any), usetype: NAME, priority: PRIORITY }
}

/// One document, the same form wherever one is returned.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DocumentResponse {
    pub id: i64,
    pub parent_id: Option<i64>,
    pub title: String,
    pub content: String,
    /// Exactly what a caller wrote.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub structured_content: Map<String, Value>,
    /// Ancestors' ids, root first, the document itself not among them.
    pub path: Vec<i64>,
    pub usetype: String,
    pub position: Option<i32>,
    pub event_time: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// `sha256:<hex>` of the content; of the bytes, for a file.
    pub content_hash: String,
    /// `in_flight`, `settled` or `failed`.
    pub settled: Settled,
    /// 768 numbers; only on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embed: Option<Vec<f32>>,
    /// Which of `content` and `structured_content` are empty here although the document may have them: those that were not asked
    /// for, or for which an answer had no room. Reading the document alone shows them. Absent where all is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,
}
impl Wire for DocumentResponse {}
impl Located for DocumentResponse {
    fn location(&self) -> String {
        format!("/documents/{}", self.id)
    }
}

/// Where a node is on its way into the indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    InFlight,
    Settled,
    Failed,
}
impl Settled {
    /// As stored and as sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Settled::InFlight => "in_flight",
            Settled::Settled => "settled",
            Settled::Failed => "failed",
        }
    }
}

/// Documents, page by page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DocumentPage {
    pub documents: Vec<DocumentResponse>,
    /// Ask for the next page with this; null on the last.
    pub next_cursor: Option<String>,
}
impl Wire for DocumentPage {}

/// A typed edge between two documents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LinkResponse {
    pub id: i64,
    pub source_id: i64,
    pub target_id: i64,
    /// For example `contains`, `cites`, `derived_from`.
    pub link_type: String,
    pub score: Option<f64>,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub metadata: Map<String, Value>,
    pub created_at: DateTime<Utc>,
}

/// Links, page by page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LinkPage {
    pub links: Vec<LinkResponse>,
    /// Ask for the next page with this; null on the last.
    pub next_cursor: Option<String>,
}
impl Wire for LinkPage {}

/// All that the pipeline recorded about a document, by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct EvidenceResponse {
    pub document_id: i64,
    /// A name with null: a task ran and produced nothing. A name that is absent: nothing has run.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub evidence: Map<String, Value>,
}
impl Wire for EvidenceResponse {}
