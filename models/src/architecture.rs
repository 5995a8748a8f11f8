use crate::{
    ModelError,
    body::{EncoderWeights, Head, Shape},
    weights::WeightFile,
};
use serde::Deserialize;
use std::{fmt, path::Path};

mod bert;
mod modern_bert;
mod mpnet;
mod nomic_bert;
mod tensors;

/// The families of encoders.
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
    /// Reads `model_type` of a config.json.
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

/// What a config.json says, read and checked. It tells which tensors the weights must hold.
pub(crate) struct EncoderConfig {
    pub shape: Shape,
    family: Family,
}

enum Family {
    Bert(bert::Config),
    Mpnet(mpnet::Config),
    NomicBert(nomic_bert::Config),
    ModernBert(modern_bert::Config),
}

impl EncoderConfig {
    /// Reads a config.json; errors name `path`.
    pub fn from_json(architecture: Architecture, json: &[u8], path: &Path) -> Result<Self, ModelError> {
        let (shape, family) = match architecture {
            Architecture::Bert => bert::read(json, path).map(|(shape, config)| (shape, Family::Bert(config))),
            Architecture::Mpnet => mpnet::read(json, path).map(|(shape, config)| (shape, Family::Mpnet(config))),
            Architecture::NomicBert => {
                nomic_bert::read(json, path).map(|(shape, config)| (shape, Family::NomicBert(config)))
            }
            Architecture::ModernBert => {
                modern_bert::read(json, path).map(|(shape, config)| (shape, Family::ModernBert(config)))
            }
        }?;
        Ok(Self { shape, family })
    }

    /// How many kinds of tokens BERT tells apart; a cross-encoder needs two, one for each text of a pair.
    pub fn token_types(&self) -> usize {
        match &self.family {
            Family::Bert(config) => config.token_types,
            Family::NomicBert(config) => config.token_types,
            Family::Mpnet(_) | Family::ModernBert(_) => 0,
        }
    }

    /// Reads the encoder's tensors, each with the shape that the config demands.
    pub fn load(&self, file: &mut WeightFile) -> Result<EncoderWeights, ModelError> {
        match &self.family {
            Family::Bert(config) => bert::load(file, &self.shape, config),
            Family::Mpnet(config) => mpnet::load(file, &self.shape, config),
            Family::NomicBert(config) => nomic_bert::load(file, &self.shape, config),
            Family::ModernBert(config) => modern_bert::load(file, &self.shape, config),
        }
    }

    /// Does the same as [`Self::load`], and reads the head of a cross-encoder, which BERT alone has here.
    pub fn load_with_head(&self, file: &mut WeightFile) -> Result<EncoderWeights, ModelError> {
        let (weights, hidden) = (self.load(file)?, self.shape.hidden);
        let pooler = tensors::linear(file, "bert.pooler.dense", hidden, hidden)?;
        let classifier = tensors::linear(file, "classifier", hidden, 1)?;
        Ok(EncoderWeights { head: Some(Head { pooler, classifier }), ..weights })
    }
}
