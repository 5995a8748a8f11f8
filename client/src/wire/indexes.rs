//! Search indexes: how they read texts, and which documents they hold.
use crate::{
    Failure,
    constraint::{Constraint, NAME, constrain},
    operation::{Params, Wire},
    reply::Located,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The saturation of frequencies.
const K1: Constraint = Constraint::Number(0.0, 1000.0);
/// The normalisation of lengths.
const B: Constraint = Constraint::Number(0.0, 1.0);
/// How often a word of a title counts.
const TITLE_WEIGHT: Constraint = Constraint::Whole(0, 10);
/// The most subtrees that one call names.
const MOST_MEMBERS: usize = 10_000;

/// The index in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct IndexPath {
    /// The index's id.
    pub id: i64,
}
impl Params for IndexPath {}

/// A document and an index.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct IndexDocumentPath {
    /// The index's id.
    pub id: i64,
    /// The document's id.
    pub document_id: i64,
}
impl Params for IndexDocumentPath {}

wire_words! {
    /// The language whose stems an index uses; `detect` finds out that of each document, and `none` leaves words as they are written.
    IndexLanguage {
        Detect = "detect", None = "none", Arabic = "arabic", Danish = "danish", Dutch = "dutch", English = "english", Finnish = "finnish",
        French = "french", German = "german", Greek = "greek", Hungarian = "hungarian", Italian = "italian", Norwegian = "norwegian",
        Portuguese = "portuguese", Romanian = "romanian", Russian = "russian", Spanish = "spanish", Swedish = "swedish", Tamil = "tamil",
        Turkish = "turkish",
    }
    /// Whether the most common words are searched for. They can only be removed in English.
    IndexStopWords { Keep = "keep", Remove = "remove", }
    /// Whether an index has everything that it covers.
    IndexState {
        /// It is being built, and finds what it has.
        Building = "building",
        Ready = "ready",
    }
}

/// How an index reads texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IndexAnalyzer {
    pub language: IndexLanguage,
    /// By default they are removed in English, and kept otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_words: Option<IndexStopWords>,
}

/// What an index is for, one or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IndexCapabilities {
    /// It holds words.
    pub bm25: bool,
    /// The token vectors of its documents are kept.
    #[serde(default)]
    pub maxsim: bool,
}

/// An index to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewIndex {
    /// 1 to 100 characters, of a-z A-Z 0-9 _ - : and the full stop; no two indexes have the same name.
    pub name: String,
    /// The saturation of frequencies, 0 to 1000; by default that of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k1: Option<f64>,
    /// The normalisation of lengths, 0 to 1; by default that of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<f64>,
    /// By default English without its most common words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analyzer: Option<IndexAnalyzer>,
    /// How often each word of a title counts, 0 to 10; by default once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title_weight: Option<u32>,
    /// Whether it also has the titles above a chunk; by default as the settings have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title_paths: Option<bool>,
    /// By default for BM25 alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<IndexCapabilities>,
    /// The documents whose subtrees it covers, 1 to 10,000; if absent, it covers everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<i64>>,
}
impl Wire for NewIndex {
    constrain! { name: NAME, k1: K1, b: B, title_weight: TITLE_WEIGHT; |new| {
        if new.capabilities.is_some_and(|capabilities| !capabilities.bm25 && !capabilities.maxsim) {
            return Err(Failure::field("capabilities", "needs `bm25` or `maxsim`: an index without both finds nothing"));
        }
        new.members.as_deref().map_or(Ok(()), |members| check_members("members", members))
    } }
}

fn check_members(field: &str, members: &[i64]) -> Result<(), Failure> {
    match members.len() {
        0 => Err(Failure::field(field, "must not be empty")),
        1..=MOST_MEMBERS => Ok(()),
        count => Err(Failure::field(field, format!("takes at most {MOST_MEMBERS} entries, got {count}"))),
    }
}

/// What to change of an index; an absent field stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct IndexChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k1: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<f64>,
    /// With another analyzer the index is emptied and built anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analyzer: Option<IndexAnalyzer>,
    /// With another weight it is built anew, and finds what it found until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title_weight: Option<u32>,
    /// So it is with or without the titles above chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title_paths: Option<bool>,
}
impl Wire for IndexChange {
    constrain! { name: NAME, k1: K1, b: B, title_weight: TITLE_WEIGHT }
}

/// Documents whose subtrees an index is to cover.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewMembers {
    /// 1 to 10,000 documents.
    pub members: Vec<i64>,
}
impl Wire for NewMembers {
    fn check(&self) -> Result<(), Failure> {
        check_members("members", &self.members)
    }
}

/// A search index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct IndexResponse {
    pub id: i64,
    pub name: String,
    pub k1: f64,
    pub b: f64,
    pub analyzer: IndexAnalyzer,
    /// How often each word of a title counts.
    pub title_weight: u32,
    /// Whether it also has the titles above a chunk.
    pub title_paths: bool,
    pub capabilities: IndexCapabilities,
    /// Whether it covers the subtrees of its members alone; otherwise it covers everything.
    pub restricted: bool,
    /// How many members it has. A deleted document is no member any more; without its last one a restricted index covers nothing.
    pub members: i64,
    /// How many documents it holds.
    pub documents: i64,
    pub state: IndexState,
    pub created_at: DateTime<Utc>,
}
impl Wire for IndexResponse {}
impl Located for IndexResponse {
    fn location(&self) -> String {
        format!("/indexes/{}", self.id)
    }
}

/// Indexes, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct IndexPage {
    pub indexes: Vec<IndexResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for IndexPage {}

/// The documents whose subtrees an index covers, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct MemberPage {
    pub members: Vec<i64>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for MemberPage {}

/// What became of a document in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct IndexedDocument {
    pub index_id: i64,
    pub document_id: i64,
    /// Whether the index holds it now: it must be settled, have a text, be covered, and not be of an excluded usetype.
    pub indexed: bool,
}
impl Wire for IndexedDocument {}
