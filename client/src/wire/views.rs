//! Documents as people read them.
use super::{ChildrenMode, DocumentResponse, LinksMode, PresentationResponse, presentations::VIEWED};
use crate::{
    constraint::{CURSOR, constrain},
    operation::Wire,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// A document as people read it: blocks, by the rule of its usetype.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ViewResponse {
    /// The document without its text, which is in `blocks`.
    pub document: DocumentResponse,
    /// The rule by which it is shown.
    pub presentation: PresentationResponse,
    /// The documents above it, root first.
    pub breadcrumbs: Vec<Crumb>,
    /// The file that it comes from; absent if it comes from none that the caller may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ViewSource>,
    /// What could not be read of it or found in it, and what to do about that, as its frontier says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The fields that the rule shows.
    pub fields: Vec<ViewField>,
    /// What the document itself says.
    pub blocks: Vec<ViewBlock>,
    pub children: ViewChildren,
    /// Its links to and from other documents, at most 100.
    pub links: ViewLinks,
    /// The document before it under the same parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Crumb>,
    /// The document behind it under the same parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Crumb>,
}
impl Wire for ViewResponse {}

/// A document by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Crumb {
    /// Null for a document that the caller may not read.
    pub id: Option<i64>,
    pub title: Option<String>,
    pub usetype: Option<String>,
}

/// A field of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ViewField {
    pub name: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub value: Value,
}

/// The file that a document comes from, and the place in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ViewSource {
    /// The node of the file.
    pub document_id: i64,
    pub title: String,
    pub mime_type: String,
    pub byte_size: i64,
    /// Where the bytes are, at the page if the file is a PDF.
    pub href: String,
    /// The first and the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<[u32; 2]>,
    /// The first and the last slide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slides: Option<[u32; 2]>,
    /// Where on its pages the text of a leaf stands, if OCR read it: at most 64 boxes, in the order of the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boxes: Vec<PageBox>,
    /// The cells, such as `'Duck counts'!A2:F2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<String>,
    /// The first character of the file's text, and the one behind the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub characters: Option<[u64; 2]>,
}

/// A rectangle on a page, from its left and its top: in points, or in pixels of a file that is a picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PageBox {
    /// The number of the page, from 1.
    pub page: u32,
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

wire_words! {
    /// What a block is.
    BlockKind {
        Heading = "heading", Markdown = "markdown", Plain = "plain", Code = "code", Table = "table", Turn = "turn",
        Record = "record", Image = "image", Document = "document",
    }
    /// What refers to a document: a link, a fact, or `[[id]]` in a text.
    ReferenceKind { Link = "link", Fact = "fact", Text = "text", }
}

/// A part of a view, in the order of reading. What a kind does not have is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ViewBlock {
    pub kind: BlockKind,
    /// The document whose block it is.
    pub document_id: i64,
    /// Further documents whose texts it has, because a cut between them goes through a paragraph or a table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub continued_by: Vec<i64>,
    /// The level of a heading, 2 to 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// Of a heading, an image or a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The text as it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The text as HTML that holds no script, style, image or form, and no link but to http, https, mailto and documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// True if the block has only the beginning of the text, which is too long for a page, or if the rows of a table have more columns than the 100
    /// that it shows; the view of a row has all of its fields.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Who speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// When it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<DateTime<Utc>>,
    /// The names of a table's columns, or of a record's fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<ViewRow>,
    /// The page of the file on which it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
    /// The slide of the file on which it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slide: Option<u32>,
    /// The usetype of a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usetype: Option<String>,
    /// The bytes of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub href: Option<String>,
}

/// A row of a table: a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ViewRow {
    pub document_id: i64,
    /// Where it stands in its file, such as `'Duck counts'!A2:F2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<String>,
    /// One value for each column; null where the record has none.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Value>))]
    pub values: Vec<Value>,
}

/// A page of what is under a document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ViewChildren {
    pub document_id: i64,
    pub mode: ChildrenMode,
    /// None if the mode is `collapsed` or `hidden`; `POST /view/{id}/expand-children` gives the others.
    pub blocks: Vec<ViewBlock>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for ViewChildren {}

/// A document's links, as its rule shows them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ViewLinks {
    pub mode: LinksMode,
    pub links: Vec<ViewLink>,
}

/// A link and its other end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ViewLink {
    pub id: i64,
    pub link_type: String,
    /// Whether it leads from this document to the other one.
    pub outgoing: bool,
    pub document: Crumb,
}

/// Which children to show.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ExpandRequest {
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many documents, 1 to 500; as many as the rule says by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Wire for ExpandRequest {
    constrain! { cursor: CURSOR, limit: VIEWED }
}

/// The documents above a document, root first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct BreadcrumbList {
    pub breadcrumbs: Vec<Crumb>,
}
impl Wire for BreadcrumbList {}

/// What refers to a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct BackReference {
    pub kind: ReferenceKind,
    /// The document that refers to it.
    pub document: Crumb,
    /// The type of a link, or the predicate of a fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// The id of the link or of the fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
}

/// What refers to a document: links, then facts that hold now, then texts, each by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct BackReferencePage {
    pub references: Vec<BackReference>,
    /// Ask for the next page with this; null on the last page. A page before it may have fewer entries than asked for.
    pub next_cursor: Option<String>,
}
impl Wire for BackReferencePage {}
