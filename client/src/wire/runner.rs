//! Vectors for texts, for workers and services that load no model.
use crate::{
    constraint::{Constraint, constrain},
    operation::{Params, Wire},
    wire::ModelState,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// Whether to send the model's tokenizer.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct RunnerModelQuery {
    /// Whether to include the tokenizer, which has megabytes for some models; false by default.
    pub tokenizer: bool,
}
impl Params for RunnerModelQuery {}

/// The model of a runner: everything that a caller needs to cut texts to its windows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RunnerModel {
    pub model: ModelState,
    /// Put before each document; it counts towards the document's tokens.
    pub document_prefix: String,
    /// The text of the model's tokenizer.json, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
}
impl Wire for RunnerModel {}

/// The role of a text; the model may prefix queries and documents differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunnerTextKind {
    #[default]
    Document,
    /// Goes before all waiting documents.
    Query,
}

macro_rules! runner_texts { ($(#[doc = $doc:literal])* $name:ident, $most:expr, $about:literal) => {
    $(#[doc = $doc])*
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(ToSchema))]
    #[serde(deny_unknown_fields)]
    pub struct $name {
        #[doc = $about]
        pub texts: Vec<String>,
        /// `document` by default.
        #[serde(default)]
        pub kind: RunnerTextKind,
        /// The identity of the model that the caller expects; 409 if the runner has another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub model: Option<String>,
    }
    impl $name {
        /// The most texts of one call.
        pub const MOST: usize = $most;
    }
    impl Wire for $name {
        constrain! { texts: Constraint::List(1, Self::MOST, None) }
    }
} }

runner_texts! {
    /// Texts that each get one vector.
    RunnerTexts, 256, "1 to 256 texts; if one exceeds the model's document window, the whole call is refused."
}
runner_texts! {
    /// Texts that each get one vector per token.
    RunnerTokenTexts, 32, "1 to 32 texts; if one exceeds the model's token window, the whole call is refused."
}

/// One vector per text, in the order of the texts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RunnerVectors {
    /// The identity of the model.
    pub model: String,
    /// Each has unit length and as many components as the model gives.
    pub vectors: Vec<Floats>,
    /// How much each document counts in the vector of what contains it; empty for queries.
    pub weights: Floats,
}
impl Wire for RunnerVectors {}

/// The tokens of each text, in the order of the texts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RunnerTokenVectors {
    /// The identity of the model.
    pub model: String,
    pub texts: Vec<RunnerTokens>,
}
impl Wire for RunnerTokenVectors {}

/// A text token by token, without special tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RunnerTokens {
    /// The id of each token in the vocabulary.
    pub token_ids: Vec<u32>,
    /// The start and the end, in bytes of the text, of each token.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<[usize; 2]>))]
    pub offsets: Vec<(usize, usize)>,
    /// The number of components in one token's vector.
    pub width: usize,
    /// The vectors one after the other, each of unit length.
    pub values: Floats,
    /// How much each token matters; comparable only within a text.
    pub importance: Floats,
    /// 10 for the most important tenth of the tokens, and so on to 100.
    pub tiers: Vec<u8>,
}

/// 32-bit numbers, little-endian, one after the other, as base64: exact, and a third of their size as JSON numbers.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "openapi", derive(ToSchema), schema(value_type = String, format = Byte))]
pub struct Floats(pub Vec<f32>);

impl Serialize for Floats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|number| number.to_le_bytes()).collect();
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Floats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Floats, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(D::Error::custom(format!("{} bytes are not a whole number of 32-bit floats", bytes.len())));
        }
        Ok(Floats(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_come_back_to_the_bit_and_a_torn_list_is_refused() {
        let floats = Floats(vec![0.1, -0.0, f32::MIN_POSITIVE, 1.0e-45, 3.402_823_5e38]);
        let text = serde_json::to_string(&floats).expect("text");
        let back: Floats = serde_json::from_str(&text).expect("floats");
        let bits = |floats: &Floats| floats.0.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(&floats));
        for torn in [r#""AAAA""#, r#""A""#, r#""äöü""#, "[1.0]", "null"] {
            assert!(serde_json::from_str::<Floats>(torn).is_err(), "{torn}");
        }
    }

    #[test]
    fn no_text_and_too_many_texts_are_refused_by_name() {
        let texts =
            |count| RunnerTexts { texts: vec![String::new(); count], kind: RunnerTextKind::Document, model: None };
        for (count, ok) in [(0, false), (1, true), (RunnerTexts::MOST, true), (RunnerTexts::MOST + 1, false)] {
            let checked = texts(count).check();
            assert_eq!(checked.is_ok(), ok, "{count}");
            assert!(checked.err().is_none_or(|failure| failure.members["field"] == "texts"));
        }
    }
}
