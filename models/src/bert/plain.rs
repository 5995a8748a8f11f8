use burn::tensor::{Bool, Device, Int, Tensor, TensorData, activation, module};

use super::{BertWeights, weights::Linear};
use crate::{encoder::Encoder, kernels::LayerNorm, ragged::Ragged};

/// The plain path: padded batches on Burn's public tensor API, for any device.
pub(crate) struct PlainBert {
    device: Device,
    hidden: usize,
    heads: usize,
    words: Tensor<2>,
    positions: Tensor<2>,
    token_type: Tensor<2>,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    qkv: Dense,
    output: Dense,
    attention_norm: Norm,
    up: Dense,
    down: Dense,
    norm: Norm,
}

struct Dense {
    weight: Tensor<2>,
    bias: Tensor<2>,
}

struct Norm {
    gain: Tensor<1>,
    offset: Tensor<1>,
    epsilon: f64,
}

impl PlainBert {
    pub fn new(weights: BertWeights, device: Device) -> Self {
        let hidden = weights.config.hidden_size;
        let matrix = |data: Vec<f32>, columns: usize| {
            let shape = [data.len() / columns, columns];
            Tensor::<2>::from_data(TensorData::new(data, shape), &device)
        };
        let vector = |data: Vec<f32>| {
            let shape = [data.len()];
            Tensor::<1>::from_data(TensorData::new(data, shape), &device)
        };
        let dense = |linear: Linear| {
            let outputs = linear.bias.len();
            Dense { weight: matrix(linear.weight, outputs), bias: matrix(linear.bias, outputs) }
        };
        let norm = |norm: LayerNorm| Norm {
            gain: vector(norm.gain),
            offset: vector(norm.offset),
            epsilon: f64::from(norm.epsilon),
        };
        let layers = weights
            .layers
            .into_iter()
            .map(|layer| Layer {
                qkv: dense(layer.qkv),
                output: dense(layer.output),
                attention_norm: norm(layer.attention_norm),
                up: dense(layer.up),
                down: dense(layer.down),
                norm: norm(layer.norm),
            })
            .collect();
        Self {
            hidden,
            heads: weights.config.num_attention_heads,
            words: matrix(weights.words, hidden),
            positions: matrix(weights.positions, hidden),
            token_type: matrix(weights.token_type, hidden),
            norm: norm(weights.norm),
            layers,
            device,
        }
    }
}

impl Dense {
    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        x.matmul(self.weight.clone()) + self.bias.clone()
    }
}

impl Norm {
    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        module::layer_norm(x, self.gain.clone(), Some(self.offset.clone()), self.epsilon)
    }
}

impl Encoder for PlainBert {
    fn forward(&self, batch: &Ragged) -> Vec<f32> {
        let (hidden, heads) = (self.hidden, self.heads);
        let head_width = hidden / heads;
        let count = batch.sequences.len();
        let longest = batch.sequences.iter().map(|sequence| sequence.len()).max().unwrap_or(0);
        let mut ids = vec![0i32; count * longest];
        let mut is_padding = vec![true; count * longest];
        for (row, sequence) in batch.sequences.iter().enumerate() {
            for (column, &id) in batch.token_ids[sequence.clone()].iter().enumerate() {
                ids[row * longest + column] = id as i32;
                is_padding[row * longest + column] = false;
            }
        }
        let mask = is_padding.contains(&true).then(|| {
            let mask = Tensor::<4, Bool>::from_data(TensorData::new(is_padding, [count, 1, 1, longest]), &self.device);
            mask.expand([count, heads, longest, longest])
        });

        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [count, longest]), &self.device);
        let positions = self.positions.clone().narrow(0, 0, longest) + self.token_type.clone();
        let x = module::embedding(self.words.clone(), ids) + positions.reshape([1, longest, hidden]);
        let mut x = self.norm.apply(x.reshape([count * longest, hidden]));
        for layer in &self.layers {
            let qkv = layer.qkv.apply(x.clone()).reshape([count, longest, 3 * heads, head_width]).swap_dims(1, 2);
            let third = |at: usize| qkv.clone().slice([0..count, at * heads..(at + 1) * heads]);
            let attended = module::attention(third(0), third(1), third(2), mask.clone(), None, Default::default());
            let attended = attended.swap_dims(1, 2).reshape([count * longest, hidden]);
            x = layer.attention_norm.apply(x + layer.output.apply(attended));
            let wide = activation::gelu(layer.up.apply(x.clone()));
            x = layer.norm.apply(x + layer.down.apply(wide));
        }

        let rows = x.into_data().try_to_vec::<f32>().expect("the tensor was made of f32");
        let mut kept = Vec::with_capacity(batch.token_count() * hidden);
        for (row, sequence) in batch.sequences.iter().enumerate() {
            kept.extend_from_slice(&rows[row * longest * hidden..][..sequence.len() * hidden]);
        }
        kept
    }

    fn hidden_size(&self) -> usize {
        self.hidden
    }
}
