use burn::{
    backend::{Flex, flex::FlexTensor},
    tensor::{Device, Tensor, TensorData},
};

use super::{BertWeights, weights::Linear};
use crate::{
    encoder::Encoder,
    kernels::{self, LayerNorm},
    ragged::Ragged,
};

/// The fast path: the rows of all sequences in one matrix, Burn's matrix products for the linear layers, slice kernels
/// for everything between, on storage reached through Burn's `extension` API.
pub(crate) struct FlexBert {
    device: Device,
    hidden: usize,
    heads: usize,
    head_width: usize,
    words: Vec<f32>,
    positions: Vec<f32>,
    token_type: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<Layer>,
}

struct Layer {
    qkv: Dense,
    output: Dense,
    attention_norm: LayerNorm,
    up: Dense,
    down: Dense,
    norm: LayerNorm,
}

struct Dense {
    weight: Tensor<2>,
    bias: Vec<f32>,
}

impl FlexBert {
    pub fn new(weights: BertWeights) -> Self {
        let device = Device::flex();
        let dense = |linear: Linear| {
            let shape = [linear.inputs, linear.bias.len()];
            Dense { weight: Tensor::from_data(TensorData::new(linear.weight, shape), &device), bias: linear.bias }
        };
        let layers = weights
            .layers
            .into_iter()
            .map(|layer| Layer {
                qkv: dense(layer.qkv),
                output: dense(layer.output),
                attention_norm: layer.attention_norm,
                up: dense(layer.up),
                down: dense(layer.down),
                norm: layer.norm,
            })
            .collect();
        let config = &weights.config;
        Self {
            hidden: config.hidden_size,
            heads: config.num_attention_heads,
            head_width: config.head_width(),
            words: weights.words,
            positions: weights.positions,
            token_type: weights.token_type,
            norm: weights.norm,
            layers,
            device,
        }
    }

    fn embed(&self, batch: &Ragged) -> Vec<f32> {
        let hidden = self.hidden;
        let mut rows = Vec::with_capacity(batch.token_count() * hidden);
        for &id in &batch.token_ids {
            rows.extend_from_slice(&self.words[id as usize * hidden..(id as usize + 1) * hidden]);
        }
        for sequence in &batch.sequences {
            let rows = &mut rows[sequence.start * hidden..sequence.end * hidden];
            kernels::add_normalise(rows, &self.positions[..rows.len()], &self.token_type, &self.norm);
        }
        rows
    }

    fn tensor(&self, rows: Vec<f32>) -> Tensor<2> {
        let shape = [rows.len() / self.hidden, self.hidden];
        Tensor::from_data(TensorData::new(rows, shape), &self.device)
    }
}

/// `x * weight`, without the bias: the kernel that follows adds it.
fn product(x: &Tensor<2>, dense: &Dense) -> FlexTensor {
    primitive(x.clone().matmul(dense.weight.clone()))
}

fn primitive(tensor: Tensor<2>) -> FlexTensor {
    tensor.try_into_primitive::<Flex>().expect("every tensor here is made on the Flex device")
}

impl Encoder for FlexBert {
    fn forward(&self, batch: &Ragged) -> Vec<f32> {
        let mut x = self.tensor(self.embed(batch));
        for layer in &self.layers {
            let mut qkv = product(&x, &layer.qkv);
            kernels::add_bias(qkv.storage_mut::<f32>(), &layer.qkv.bias);
            let mut attended = vec![0f32; batch.token_count() * self.hidden];
            kernels::attention(qkv.storage::<f32>(), &mut attended, &batch.sequences, self.heads, self.head_width);
            drop(qkv);
            let y = product(&self.tensor(attended), &layer.output);
            x = add_normalise(x, &y, &layer.output.bias, &layer.attention_norm);

            let mut wide = product(&x, &layer.up);
            kernels::add_bias_gelu(wide.storage_mut::<f32>(), &layer.up.bias);
            let y = product(&Tensor::from_primitive::<Flex>(wide), &layer.down);
            x = add_normalise(x, &y, &layer.down.bias, &layer.norm);
        }
        primitive(x).storage::<f32>().to_vec()
    }

    fn hidden_size(&self) -> usize {
        self.hidden
    }
}

fn add_normalise(x: Tensor<2>, y: &FlexTensor, bias: &[f32], norm: &LayerNorm) -> Tensor<2> {
    let mut rows = primitive(x);
    kernels::add_normalise(rows.storage_mut::<f32>(), y.storage::<f32>(), bias, norm);
    Tensor::from_primitive::<Flex>(rows)
}
