use std::path::Path;

use serde::Deserialize;

use crate::ModelError;

/// The part of a config.json that the encoder is built from.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BertConfig {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_attention_heads: usize,
    pub num_hidden_layers: usize,
    pub max_position_embeddings: usize,
    #[serde(default = "two")]
    pub type_vocab_size: usize,
    #[serde(default = "default_epsilon")]
    pub layer_norm_eps: f64,
    #[serde(default = "gelu")]
    pub hidden_act: String,
    #[serde(default)]
    pub position_embedding_type: Option<String>,
    #[serde(default)]
    pub is_decoder: bool,
}

fn two() -> usize {
    2
}

fn default_epsilon() -> f64 {
    1e-12
}

fn gelu() -> String {
    "gelu".to_owned()
}

impl BertConfig {
    pub fn from_json(json: &[u8], path: &Path) -> Result<Self, ModelError> {
        let corrupt = |problem| ModelError::Corrupt { path: path.to_owned(), problem };
        let unsupported = |what, supported| Err(ModelError::Unsupported { path: path.to_owned(), what, supported });
        let config: Self = serde_json::from_slice(json).map_err(|error| corrupt(error.to_string()))?;
        for (name, value) in [
            ("vocab_size", config.vocab_size),
            ("hidden_size", config.hidden_size),
            ("intermediate_size", config.intermediate_size),
            ("num_attention_heads", config.num_attention_heads),
            ("num_hidden_layers", config.num_hidden_layers),
            ("max_position_embeddings", config.max_position_embeddings),
            ("type_vocab_size", config.type_vocab_size),
        ] {
            // Far above any encoder; keeps products of two of them inside usize.
            if value == 0 || value > 10_000_000 {
                return Err(corrupt(format!("{name} is {value}")));
            }
        }
        if !config.hidden_size.is_multiple_of(config.num_attention_heads) {
            return Err(corrupt(format!(
                "hidden_size {} is no multiple of num_attention_heads {}",
                config.hidden_size, config.num_attention_heads
            )));
        }
        if !(config.layer_norm_eps >= 0.0 && config.layer_norm_eps < 1.0) {
            return Err(corrupt(format!("layer_norm_eps is {}", config.layer_norm_eps)));
        }
        if config.hidden_act != "gelu" {
            return unsupported(format!("hidden_act {:?}", config.hidden_act), "supported: gelu");
        }
        if let Some(kind) = config.position_embedding_type.as_deref().filter(|&kind| kind != "absolute") {
            return unsupported(format!("position_embedding_type {kind:?}"), "supported: absolute");
        }
        if config.is_decoder {
            return unsupported("a decoder".to_owned(), "supported: encoders");
        }
        Ok(config)
    }

    pub fn head_width(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }
}
