//! Embedding one document on request: its vector, and the vectors of its tokens.
use crate::operation::{Params, Wire};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// What to embed of a document; a call may give it in its query or in its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams, ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct EmbedOptions {
    /// Whether to store token vectors beside the document's vector; true by default. A text over the token window is
    /// then refused.
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
