use std::fmt;

use serde::Deserialize;

/// The families of encoders. Only [`Architecture::Bert`] is built so far; the others are known, and refused by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Architecture {
    Bert,
    Mpnet,
    NomicBert,
    #[serde(rename = "modernbert")]
    ModernBert,
}

impl Architecture {
    /// From `model_type` of a config.json.
    pub(crate) fn from_model_type(model_type: &str) -> Option<Self> {
        match model_type {
            "bert" => Some(Self::Bert),
            "mpnet" => Some(Self::Mpnet),
            "nomic_bert" => Some(Self::NomicBert),
            "modernbert" => Some(Self::ModernBert),
            _ => None,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bert => "BERT",
            Self::Mpnet => "MPNet",
            Self::NomicBert => "NomicBERT",
            Self::ModernBert => "ModernBERT",
        })
    }
}
