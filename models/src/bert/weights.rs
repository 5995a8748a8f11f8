use super::BertConfig;
use crate::{ModelError, kernels::LayerNorm, weights::WeightFile};

/// All weights as plain numbers, the linear ones `[inputs, outputs]`.
pub(crate) struct BertWeights {
    pub config: BertConfig,
    pub words: Vec<f32>,
    pub positions: Vec<f32>,
    /// The row of token type 0: single texts have no other.
    pub token_type: Vec<f32>,
    pub norm: LayerNorm,
    pub layers: Vec<LayerWeights>,
}

pub(crate) struct LayerWeights {
    /// Queries, keys and values side by side: one product instead of three.
    pub qkv: Linear,
    pub output: Linear,
    pub attention_norm: LayerNorm,
    pub up: Linear,
    pub down: Linear,
    pub norm: LayerNorm,
}

pub(crate) struct Linear {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
    pub inputs: usize,
}

impl BertWeights {
    pub fn load(file: &mut WeightFile, config: BertConfig) -> Result<Self, ModelError> {
        // Models saved with a head on top carry this prefix.
        let root = if file.contains("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let epsilon = config.layer_norm_eps as f32;
        let words = file.tensor(&format!("{root}embeddings.word_embeddings.weight"), &[config.vocab_size, hidden])?;
        let positions = file.tensor(
            &format!("{root}embeddings.position_embeddings.weight"),
            &[config.max_position_embeddings, hidden],
        )?;
        let mut token_type =
            file.tensor(&format!("{root}embeddings.token_type_embeddings.weight"), &[config.type_vocab_size, hidden])?;
        token_type.truncate(hidden);
        let norm = load_norm(file, &format!("{root}embeddings.LayerNorm"), hidden, epsilon)?;
        let mut layers = Vec::new();
        for layer in 0..config.num_hidden_layers {
            let name = |part: &str| format!("{root}encoder.layer.{layer}.{part}");
            let query = load_linear(file, &name("attention.self.query"), hidden, hidden)?;
            let key = load_linear(file, &name("attention.self.key"), hidden, hidden)?;
            let value = load_linear(file, &name("attention.self.value"), hidden, hidden)?;
            layers.push(LayerWeights {
                qkv: side_by_side([query, key, value]),
                output: load_linear(file, &name("attention.output.dense"), hidden, hidden)?,
                attention_norm: load_norm(file, &name("attention.output.LayerNorm"), hidden, epsilon)?,
                up: load_linear(file, &name("intermediate.dense"), hidden, wide)?,
                down: load_linear(file, &name("output.dense"), wide, hidden)?,
                norm: load_norm(file, &name("output.LayerNorm"), hidden, epsilon)?,
            });
        }
        Ok(Self { config, words, positions, token_type, norm, layers })
    }
}

fn load_linear(file: &mut WeightFile, name: &str, inputs: usize, outputs: usize) -> Result<Linear, ModelError> {
    let weight = file.linear(&format!("{name}.weight"), inputs, outputs)?;
    Ok(Linear { weight, bias: file.tensor(&format!("{name}.bias"), &[outputs])?, inputs })
}

fn load_norm(file: &mut WeightFile, name: &str, width: usize, epsilon: f32) -> Result<LayerNorm, ModelError> {
    let gain = file.tensor(&format!("{name}.weight"), &[width])?;
    Ok(LayerNorm { gain, offset: file.tensor(&format!("{name}.bias"), &[width])?, epsilon })
}

fn side_by_side(parts: [Linear; 3]) -> Linear {
    let inputs = parts[0].inputs;
    let mut weight = Vec::with_capacity(parts.iter().map(|part| part.weight.len()).sum());
    for input in 0..inputs {
        for part in &parts {
            let outputs = part.bias.len();
            weight.extend_from_slice(&part.weight[input * outputs..(input + 1) * outputs]);
        }
    }
    let bias = parts.iter().flat_map(|part| part.bias.iter().copied()).collect();
    Linear { weight, bias, inputs }
}
