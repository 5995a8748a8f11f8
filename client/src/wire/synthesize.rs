//! Answers of a language model with their sources.
use super::{ScopeState, SearchMethod, SearchResult};
use crate::{operation::Wire, words::wire_words};
use serde::{Deserialize, Serialize};
use serde_json::Value;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// An answer from the sources that a search found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SynthesizeResponse {
    /// The sentences, each followed by the numbers of its sources: `Ducks dive [1][3].` Plain text of the language model, never markup. Null
    /// if the sources do not answer.
    pub answer: Option<String>,
    /// Why there is no answer; absent if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<NoAnswer>,
    pub sentences: Vec<AnswerSentence>,
    pub citations: Vec<AnswerCitation>,
    /// The texts that the model read. A source's number is its place here, from 1, and the marker of its citations.
    pub sources: Vec<AnswerSource>,
    /// What the search found, best first, at most `limit`.
    pub results: Vec<SearchResult>,
    /// The method that ranked the results.
    pub method: SearchMethod,
    /// Nodes of the readable scope that a search cannot show.
    pub scope_state: ScopeState,
    /// The model that answered; absent if none was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The instructions that the model had, and their version.
    pub prompt: String,
    /// The answer was broken off: it was as long as it may be, or a filter of the provider ended it.
    pub truncated: bool,
    /// From the request to the end of the answer.
    pub latency_ms: f64,
    /// What the server of the model counted; absent if it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
}
impl Wire for SynthesizeResponse {}

/// The tokens of a call of the language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TokenUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

/// A text that the language model read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AnswerSource {
    /// The number by which sentences name it, from 1.
    pub marker: u32,
    pub document_id: i64,
    pub title: String,
    /// Where it stands in its file: pages, slide, cells or characters. Absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub anchor: Option<Value>,
}

/// A sentence of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AnswerSentence {
    pub text: String,
    /// The numbers of the sources that it cites.
    pub markers: Vec<u32>,
    /// No literal quote from a source supports it; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsupported: bool,
}

/// A literal piece of a source that supports a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AnswerCitation {
    /// The number of the source.
    pub marker: u32,
    /// The number of the sentence in `sentences`, from 0.
    pub sentence: u32,
    pub document_id: i64,
    pub title: String,
    /// Where the source stands in its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub anchor: Option<Value>,
    /// As it stands in the source.
    pub quote: String,
}

/// A part of an answer that is told as it comes; the event has the name of the member.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AnswerPart {
    Sources(Vec<AnswerSource>),
    Delta(AnswerSentence),
    Citations(Vec<AnswerCitation>),
    Done(Box<SynthesizeResponse>),
}
impl Wire for AnswerPart {}

impl AnswerPart {
    /// The name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            AnswerPart::Sources(_) => "sources",
            AnswerPart::Delta(_) => "delta",
            AnswerPart::Citations(_) => "citations",
            AnswerPart::Done(_) => "done",
        }
    }
}

wire_words! {
    /// Why there is no answer. `not_in_sources`: the model finds none in what was found. `no_sources`: nothing with a text was found.
    NoAnswer { NotInSources = "not_in_sources", NoSources = "no_sources", }
}
