//! Embedding one document on request: its vector, and the vectors of its tokens.
use crate::{
    Failure,
    constraint::{Constraint, constrain},
    operation::{Params, Wire},
};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// What to embed of a document; a call may give it in its query or in its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams, ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct EmbedOptions {
    /// Whether to store token vectors beside the document's vector; true by default, where any are stored
    /// (`SVC_TOKEN_EMBED_DIMS`). A text over the token window is then refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_tokens: Option<bool>,
}
impl Params for EmbedOptions {}
impl Wire for EmbedOptions {}

/// What was embedded and stored for a document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct EmbedResponse {
    pub document_id: i64,
    pub embedded: bool,
    pub with_tokens: bool,
    /// The number of stored token vectors. A small number never means that a text was cut.
    pub token_count: usize,
}
impl Wire for EmbedResponse {}

/// The token vectors that were made and stored for a document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TokensResponse {
    pub document_id: i64,
    /// The model's name and the hash of everything that decides a vector.
    pub model: String,
    /// The number of tokens in the document's text.
    pub text_tokens: usize,
    /// The number of stored token vectors, which are those of the most important tokens.
    pub token_count: usize,
    /// The widths in which each is stored.
    pub widths: Vec<usize>,
}
impl Wire for TokensResponse {}

/// Documents whose token vectors are to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokensBatch {
    /// 1 to 100 documents, each with a text of its own.
    pub document_ids: Vec<i64>,
}

impl TokensBatch {
    /// The most documents of one call.
    pub const MOST: usize = 100;
}

impl Wire for TokensBatch {
    constrain! { document_ids: Constraint::List(1, TokensBatch::MOST, None) }
}

/// What became of the token vectors of documents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TokensBatchResponse {
    /// One answer for each document of the call, in the order of the call.
    pub documents: Vec<TokensAnswer>,
}
impl Wire for TokensBatchResponse {}

/// The token vectors that were stored for one document, or why there are none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TokensAnswer {
    pub document_id: i64,
    /// Absent if no token vectors could be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<TokensResponse>,
    /// The failure that a call for this document alone would answer, if no token vectors could be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}
