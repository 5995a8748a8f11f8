use std::sync::Arc;

use burn::{
    backend::{Flex, flex::FlexTensor},
    tensor::{Device, Tensor, TensorData},
};
use rayon::prelude::*;

use super::{Activation, Embeddings, Encoder, EncoderWeights, Linear, NormPlace, RelativeBias};
use crate::{
    kernels::{self, Attention, LayerNorm, Rotary},
    ragged::Ragged,
};

/// The fast path: the rows of all sequences in one matrix, Burn's matrix products for the linear layers, slice kernels
/// for everything between, on storage reached through Burn's `extension` API. What it shares out it shares over the
/// threads of the rayon pool that it is called in.
pub(crate) struct FlexEncoder {
    device: Device,
    hidden: usize,
    heads: usize,
    embeddings: Embeddings,
    relative_bias: Option<RelativeBias>,
    layers: Vec<Layer>,
    norm_place: NormPlace,
    activation: Activation,
    final_norm: Option<LayerNorm>,
}

struct Layer {
    qkv: Dense,
    output: Dense,
    attention_norm: Option<LayerNorm>,
    up: Dense,
    down: Dense,
    norm: LayerNorm,
    window: Option<usize>,
    rotary: Option<Arc<Rotary>>,
}

struct Dense {
    weight: Tensor<2>,
    inputs: usize,
    outputs: usize,
    bias: Option<Vec<f32>>,
}

impl Dense {
    fn new(linear: Linear, device: &Device) -> Self {
        let Linear { weight, bias, inputs, outputs } = linear;
        Self { weight: Tensor::from_data(weight.into_data([inputs, outputs]), device), inputs, outputs, bias }
    }

    /// `x * weight`, without the bias: the kernel that follows adds it.
    fn product(&self, x: &Tensor<2>) -> FlexTensor {
        let rows = x.dims()[0];
        // Flex runs products of fewer multiplications on one thread. A single short query has nothing else to share.
        const SHARED_BY_FLEX: usize = 192 * 192 * 192;
        if rayon::current_num_threads() == 1 || rows * self.inputs * self.outputs >= SHARED_BY_FLEX {
            return primitive(x.clone().matmul(self.weight.clone()));
        }
        let (x, weight) = (primitive(x.clone()), primitive(self.weight.clone()));
        let mut out = vec![0f32; rows * self.outputs];
        kernels::product(x.storage(), weight.storage(), &mut out, self.inputs, self.outputs);
        primitive(Tensor::<2>::from_data(TensorData::new(out, [rows, self.outputs]), &Device::flex()))
    }

    /// The bias as a row to add where another addition happens anyway.
    fn bias_or_zeros(&mut self) {
        self.bias.get_or_insert_with(|| vec![0.0; self.outputs]);
    }
}

impl FlexEncoder {
    pub fn new(weights: EncoderWeights) -> Self {
        let device = Device::flex();
        let layers = weights.layers.into_iter().map(|layer| {
            let mut layer = Layer {
                qkv: Dense::new(layer.qkv, &device),
                output: Dense::new(layer.output, &device),
                attention_norm: layer.attention_norm,
                up: Dense::new(layer.up, &device),
                down: Dense::new(layer.down, &device),
                norm: layer.norm,
                window: layer.window,
                rotary: layer.rotary,
            };
            layer.output.bias_or_zeros();
            layer.down.bias_or_zeros();
            if weights.activation == Activation::Gelu {
                layer.up.bias_or_zeros();
            }
            layer
        });
        Self {
            hidden: weights.shape.hidden,
            heads: weights.shape.heads,
            layers: layers.collect(),
            embeddings: weights.embeddings,
            relative_bias: weights.relative_bias,
            norm_place: weights.norm_place,
            activation: weights.activation,
            final_norm: weights.final_norm,
            device,
        }
    }

    fn embed(&self, batch: &Ragged, positions: &[u32]) -> Tensor<2> {
        let hidden = self.hidden;
        let Embeddings { words, positions: table, token_types, norm } = &self.embeddings;
        let row = |index: usize| index * hidden..(index + 1) * hidden;
        let mut rows = vec![0f32; batch.token_count() * hidden];
        share(&mut rows, hidden, |first, rows| {
            for (token, x) in (first..).zip(rows.chunks_exact_mut(hidden)) {
                x.copy_from_slice(&words[row(batch.token_ids[token] as usize)]);
                if let Some(types) = token_types {
                    add(x, &types[row(usize::from(batch.token_types[token]))]);
                }
                if let Some(table) = table {
                    add(x, &table[row(positions[token] as usize)]);
                }
            }
            kernels::normalise(rows, norm);
        });
        self.tensor(rows, hidden)
    }

    fn tensor(&self, rows: Vec<f32>, width: usize) -> Tensor<2> {
        let shape = [rows.len() / width, width];
        Tensor::from_data(TensorData::new(rows, shape), &self.device)
    }

    /// The attention's output, without its last bias.
    fn attend(&self, layer: &Layer, x: &Tensor<2>, batch: &Ragged, positions: &[u32]) -> FlexTensor {
        let hidden = self.hidden;
        let mut qkv = layer.qkv.product(x);
        let head_width = hidden / self.heads;
        if layer.qkv.bias.is_some() || layer.rotary.is_some() {
            share(qkv.storage_mut(), 3 * hidden, |first, rows| {
                if let Some(bias) = &layer.qkv.bias {
                    kernels::add_bias(rows, bias);
                }
                if let Some(rotary) = &layer.rotary {
                    kernels::rotate(rows, 3 * hidden, 2 * hidden, &positions[first..], rotary);
                }
            });
        }
        let mut attended = vec![0f32; batch.token_count() * hidden];
        let bias = self.relative_bias.as_ref();
        let attention = Attention { heads: self.heads, head_width, window: layer.window, bias };
        attention.attend(qkv.storage(), &mut attended, &batch.sequences);
        drop(qkv);
        layer.output.product(&self.tensor(attended, hidden))
    }

    /// The feed-forward part's output, without its last bias.
    fn feed_forward(&self, layer: &Layer, x: &Tensor<2>) -> FlexTensor {
        let mut wide = layer.up.product(x);
        if self.activation == Activation::Gelu {
            let bias = layer.up.bias.as_deref().unwrap_or_default();
            share(wide.storage_mut(), bias.len(), |_, rows| kernels::add_bias_gelu(rows, bias));
            return layer.down.product(&Tensor::from_primitive::<Flex>(wide));
        }
        let width = layer.down.inputs;
        let wide: &[f32] = wide.storage();
        let mut gated = vec![0f32; wide.len() / 2];
        share(&mut gated, width, |first, rows| {
            let wide = &wide[2 * first * width..][..2 * rows.len()];
            match self.activation {
                Activation::GatedSilu => kernels::gated_silu(wide, rows, width),
                Activation::Gelu | Activation::GatedGelu => kernels::gated_gelu(wide, rows, width),
            }
        });
        layer.down.product(&self.tensor(gated, width))
    }

    fn norms_after(&self, mut x: Tensor<2>, batch: &Ragged, positions: &[u32]) -> Tensor<2> {
        let add_normalise = |x: Tensor<2>, y: &FlexTensor, dense: &Dense, norm: Option<&LayerNorm>| {
            let (mut rows, width) = (primitive(x), self.hidden);
            let (y, bias): (&[f32], _) = (y.storage(), dense.bias.as_deref().unwrap_or_default());
            share(rows.storage_mut(), width, |first, rows| {
                let y = &y[first * width..][..rows.len()];
                match norm {
                    Some(norm) => kernels::add_normalise(rows, y, bias, norm),
                    None => {
                        add(rows, y);
                        kernels::add_bias(rows, bias);
                    }
                }
            });
            Tensor::from_primitive::<Flex>(rows)
        };
        for layer in &self.layers {
            let y = self.attend(layer, &x, batch, positions);
            x = add_normalise(x, &y, &layer.output, layer.attention_norm.as_ref());
            let y = self.feed_forward(layer, &x);
            x = add_normalise(x, &y, &layer.down, Some(&layer.norm));
        }
        x
    }

    fn norms_before(&self, x: Tensor<2>, batch: &Ragged, positions: &[u32]) -> Tensor<2> {
        let width = self.hidden;
        // The sums run on in `x`; `normalised` is what the next sublayer sees.
        let mut x: Vec<f32> = primitive(x).storage().to_vec();
        let add_normalised = |x: &mut [f32], y: &FlexTensor, norm: Option<&LayerNorm>| {
            let y: &[f32] = y.storage();
            let mut normalised = vec![0f32; x.len()];
            share_two(x, &mut normalised, width, |first, x, normalised| {
                add(x, &y[first * width..][..x.len()]);
                normalised.copy_from_slice(x);
                if let Some(norm) = norm {
                    kernels::normalise(normalised, norm);
                }
            });
            self.tensor(normalised, width)
        };
        let mut normalised = x.clone();
        if let Some(norm) = self.layers.first().and_then(|layer| layer.attention_norm.as_ref()) {
            share(&mut normalised, width, |_, rows| kernels::normalise(rows, norm));
        }
        let mut normalised = self.tensor(normalised, width);
        for (at, layer) in self.layers.iter().enumerate() {
            let y = self.attend(layer, &normalised, batch, positions);
            normalised = add_normalised(&mut x, &y, Some(&layer.norm));
            let y = self.feed_forward(layer, &normalised);
            let next = match self.layers.get(at + 1) {
                Some(next) => next.attention_norm.as_ref(),
                None => self.final_norm.as_ref(),
            };
            normalised = add_normalised(&mut x, &y, next);
        }
        normalised
    }
}

impl Encoder for FlexEncoder {
    fn forward(&self, batch: &Ragged) -> Vec<f32> {
        if batch.token_count() == 0 {
            return Vec::new();
        }
        let positions = batch.positions();
        let x = self.embed(batch, &positions);
        let x = match self.norm_place {
            NormPlace::After => self.norms_after(x, batch, &positions),
            NormPlace::Before => self.norms_before(x, batch, &positions),
        };
        primitive(x).storage::<f32>().to_vec()
    }

    fn hidden_size(&self) -> usize {
        self.hidden
    }
}

fn primitive(tensor: Tensor<2>) -> FlexTensor {
    tensor.try_into_primitive::<Flex>().expect("every tensor here is made on the Flex device")
}

fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// Fewer numbers than this take less time than handing them to another thread.
const SHARED_NUMBERS: usize = 16 * 1024;

fn rows_of_a_part(numbers: usize, width: usize) -> usize {
    let parts = rayon::current_num_threads().min(numbers.div_ceil(SHARED_NUMBERS)).max(1);
    (numbers / width.max(1)).div_ceil(parts).max(1)
}

/// Runs `f` on all of `rows`, part by part over the threads of the pool; it is told the part's first row.
fn share(rows: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let part = rows_of_a_part(rows.len(), width);
    if rows.len() <= part * width {
        return f(0, rows);
    }
    rows.par_chunks_mut(part * width).enumerate().for_each(|(at, rows)| f(at * part, rows));
}

/// As [`share`], for two matrices of the same shape.
fn share_two(left: &mut [f32], right: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32], &mut [f32]) + Sync) {
    let part = rows_of_a_part(left.len(), width);
    if left.len() <= part * width {
        return f(0, left, right);
    }
    let parts = left.par_chunks_mut(part * width).zip(right.par_chunks_mut(part * width));
    parts.enumerate().for_each(|(at, (left, right))| f(at * part, left, right));
}
