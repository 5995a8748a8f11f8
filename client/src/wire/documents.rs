//! Documents: the nodes of the tree.
use crate::{
    Located,
    constraint::{CURSOR, Constraint, NAME, PAGE, PRIORITY, TITLE, constrain},
    operation::{Params, Wire},
    wire::DocumentField,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::ops::Deref;
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The document in question.
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
    /// Whether to include the 768-dimension vector.
    pub include_embed: bool,
}
impl Params for EmbedQuery {}

/// Whether to wait for the work that a call starts, and what to show of the document.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct WaitQuery {
    /// Answer once the document is embedded and indexed, and not at once. Only then can `warnings` say what it lacks.
    pub wait: bool,
    /// Whether to include the 768-dimension vector, which a new text has only after `wait`.
    pub include_embed: bool,
}
impl Params for WaitQuery {}

/// One page of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct PageQuery {
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 100 by default. A page of large documents, links or facts ends earlier, at 8 MiB unless
    /// `SVC_PAGE_BYTES` says otherwise; `next_cursor` tells whether there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Whether to include the 768-dimension vectors, if the rows are documents.
    pub include_embed: bool,
    /// Whether to include the documents' texts; true by default.
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
    /// The number of rows per page.
    pub fn rows(&self) -> u32 {
        self.limit.unwrap_or(100)
    }
}

/// Makes a type of documents to create: what all of them take, and fields of its own. A flattened struct would take unknown fields.
macro_rules! document_to_create { ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
    $(#[$meta])*
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(ToSchema))]
    #[serde(deny_unknown_fields)]
    pub struct $name {
        /// 1 to 1,000 characters on one line, not blank and without control characters.
        #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1000, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"))]
        pub title: String,
        /// May be empty.
        pub content: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_id: Option<i64>,
        /// `markdown` by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 100, pattern = "^[a-zA-Z0-9_:.-]+$"))]
        pub usetype: Option<String>,
        /// The caller's own JSON object, with at most 100,000 values, 64 levels and 1 MiB of keys and texts. The service
        /// never writes into it.
        #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "super::structured::object")]
        pub structured_content: Map<String, Value>,
        /// The explicit order among siblings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub position: Option<i32>,
        /// The time that the content is about, for imported content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub event_time: Option<DateTime<Utc>>,
        /// Makes the node an access root that only the caller may read.
        #[serde(default)]
        pub private: bool,
        $($(#[$field_meta])* pub $field: $type,)*
    }
} }
pub(super) use document_to_create;

document_to_create! {
/// A document to create.
NewDocument {
    /// A priority from -100 to 100: documents with a higher one are embedded first.
    #[serde(default)]
    priority: i32,
} }
impl Wire for NewDocument {
    constrain! {
        title: TITLE, usetype: NAME, event_time: Constraint::Moment, priority: PRIORITY,
    }
}

/// One document, in the same form in every answer.
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
    /// The ids of its ancestors, root first, without its own id.
    pub path: Vec<i64>,
    pub usetype: String,
    pub position: Option<i32>,
    pub event_time: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// `sha256:<hex>` of the content, or of the bytes for a file.
    pub content_hash: String,
    /// `in_flight`, `settled` or `failed`.
    pub settled: Settled,
    /// 768 numbers, only on request. Absent too if the document has no vector; its evidence says why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<f32>, required = false))]
    pub embed: Option<Vec<f32>>,
    /// Which of `content` and `structured_content` are empty here although the document may have them, because they
    /// were not asked for or the answer had no room. Reading the document by itself shows them. Absent if everything is
    /// shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,
    /// The fields that the answer of a search shows; absent if it shows all. What it does not show has its default.
    #[serde(skip)]
    pub shown: Option<Vec<DocumentField>>,
}
impl Wire for DocumentResponse {}
impl Located for DocumentResponse {
    fn location(&self) -> String {
        format!("/documents/{}", self.id)
    }
}

/// A document that was created just now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct CreatedDocument {
    #[serde(flatten)]
    pub document: DocumentResponse,
    /// Why some searches cannot find the document, for example `embed: unknown_tokens (...)` if it has no vector,
    /// `embed: left_out (...)` if its vector lacks the end of a very long text, or `embed: failed (...)` if the task
    /// that embeds it failed or was cancelled; absent if all can. Only an
    /// answer after `wait` can say so; otherwise the document's evidence says it later, by the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
impl Wire for CreatedDocument {}
impl Located for CreatedDocument {
    fn location(&self) -> String {
        self.document.location()
    }
}
impl Deref for CreatedDocument {
    type Target = DocumentResponse;
    fn deref(&self) -> &DocumentResponse {
        &self.document
    }
}

/// What to change of a document; an absent field stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DocumentChange {
    /// 1 to 1,000 characters on one line, not blank and without control characters.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    pub title: Option<String>,
    /// May be empty. A file, a section or another container of an ingested file has no text of its own.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    pub content: Option<String>,
    /// Takes the place of the whole object, with the limits of a new one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::present")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object, required = false))]
    pub structured_content: Option<Map<String, Value>>,
    /// The parts of an ingested file keep theirs.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    pub usetype: Option<String>,
    /// The explicit order among siblings; null for none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i32>))]
    pub position: Option<Option<i32>>,
    /// The time that the content is about; null for none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<DateTime<Utc>>))]
    pub event_time: Option<Option<DateTime<Utc>>>,
    /// The document under which this one is put, with all under it; null puts it at the top. The caller must be allowed to
    /// write both. The parts of an ingested file stay in it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub parent_id: Option<Option<i64>>,
}
impl Wire for DocumentChange {
    constrain! { title: TITLE, usetype: NAME, event_time: Constraint::Moment }
}

/// Reads a field that takes no null.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a field whose null is a value.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A document after a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct UpdatedDocument {
    #[serde(flatten)]
    pub document: DocumentResponse,
    /// Why some searches cannot find the document, as after its creation; only an answer after `wait` can say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
impl Wire for UpdatedDocument {}
impl Deref for UpdatedDocument {
    type Target = DocumentResponse;
    fn deref(&self) -> &DocumentResponse {
        &self.document
    }
}

wire_words! {
    /// How far a node has come on its way into the indexes.
    Settled { InFlight = "in_flight", Settled = "settled", Failed = "failed", }
}

/// Documents, page by page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DocumentPage {
    pub documents: Vec<DocumentResponse>,
    /// Ask for the next page with this; null on the last page.
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

/// A link to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewLink {
    /// The document that the link leads to; the caller must be allowed to read it.
    pub target_id: i64,
    /// For example `contains`, `cites`, `derived_from`. Links of the type `contains` form no circle, neither among
    /// themselves nor with the tree.
    pub link_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The caller's own JSON object, with the limits of a document's.
    #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "super::structured::object")]
    pub metadata: Map<String, Value>,
}
impl Wire for NewLink {
    constrain! { link_type: NAME }
}

/// A link of a document.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct LinkPath {
    /// The id of the document that the link leads from.
    pub id: i64,
    /// The link's id.
    pub link_id: i64,
}
impl Params for LinkPath {}

impl Wire for LinkResponse {}
impl Located for LinkResponse {
    fn location(&self) -> String {
        format!("/documents/{}/links/{}", self.source_id, self.id)
    }
}

/// Links, page by page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LinkPage {
    pub links: Vec<LinkResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for LinkPage {}

/// Everything that the pipeline recorded about a document, by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct EvidenceResponse {
    pub document_id: i64,
    /// If a name has null, a task ran and produced nothing. If a name is absent, nothing has run. docs/evidence.md lists
    /// the names.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub evidence: Map<String, Value>,
}
impl Wire for EvidenceResponse {}
