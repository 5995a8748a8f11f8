use super::Encoder;
use crate::{
    body::{Activation, EncoderWeights, NormPlace},
    kernels::{LayerNorm, RelativeBias, Rotary},
    ragged::Ragged,
    weights::{Floats, Linear},
};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData, activation, module};
use std::{ops::Range, sync::Arc};

/// The plain path: padded batches on Burn's public tensor API, for any device.
pub(crate) struct PlainEncoder {
    device: Device,
    hidden: usize,
    heads: usize,
    words: Tensor<2>,
    positions: Option<Tensor<2>>,
    token_types: Option<Tensor<2>>,
    embedding_norm: Norm,
    relative_bias: Option<RelativeBias>,
    layers: Vec<Layer>,
    norm_place: NormPlace,
    activation: Activation,
    final_norm: Option<Norm>,
}

struct Layer {
    qkv: Dense,
    output: Dense,
    attention_norm: Option<Norm>,
    up: Dense,
    down: Dense,
    norm: Norm,
    window: Option<usize>,
    rotary: Option<Arc<Rotary>>,
}

struct Dense {
    weight: Tensor<2>,
    bias: Option<Tensor<2>>,
}

struct Norm {
    gain: Tensor<1>,
    offset: Tensor<1>,
    epsilon: f64,
}

/// How many queries have their scores in memory at once, so that the memory of attention grows with the length and not
/// with its square.
const QUERY_ROWS: usize = 512;

fn matrix(data: Floats, columns: usize, device: &Device) -> Tensor<2> {
    let shape = [data.len() / columns, columns];
    Tensor::from_data(data.into_data(shape), device)
}

impl Dense {
    fn new(linear: Linear, device: &Device) -> Self {
        let Linear { weight, bias, outputs, .. } = linear;
        Self { weight: matrix(weight, outputs, device), bias: bias.map(|bias| matrix(bias.into(), outputs, device)) }
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        let product = x.matmul(self.weight.clone());
        match &self.bias {
            Some(bias) => product + bias.clone(),
            None => product,
        }
    }
}

impl Norm {
    fn new(norm: LayerNorm, device: &Device) -> Self {
        let vector = |data: Vec<f32>| {
            let shape = [data.len()];
            Tensor::from_data(TensorData::new(data, shape), device)
        };
        Self { gain: vector(norm.gain), offset: vector(norm.offset), epsilon: f64::from(norm.epsilon) }
    }

    fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        module::layer_norm(x, self.gain.clone(), Some(self.offset.clone()), self.epsilon)
    }
}

/// The sequences side by side, with the shorter ones padded.
struct Padded {
    count: usize,
    longest: usize,
    lengths: Vec<usize>,
}

impl Padded {
    fn new(batch: &Ragged) -> Self {
        let lengths: Vec<usize> = batch.sequences.iter().map(ExactSizeIterator::len).collect();
        Self { count: lengths.len(), longest: lengths.iter().copied().max().unwrap_or(0), lengths }
    }

    /// `[count, longest]`, with zeros as padding.
    fn integers(&self, batch: &Ragged, value: impl Fn(usize) -> i32, device: &Device) -> Tensor<2, Int> {
        let mut integers = vec![0i32; self.count * self.longest];
        for (row, sequence) in integers.chunks_exact_mut(self.longest).zip(&batch.sequences) {
            for (integer, token) in row.iter_mut().zip(sequence.clone()) {
                *integer = value(token);
            }
        }
        Tensor::from_data(TensorData::new(integers, [self.count, self.longest]), device)
    }

    /// `[count, heads, queries, keys]`, true where a query does not see a key because it is padding or outside its
    /// window. Every token sees itself, even padding, whose rows would otherwise not be numbers. `None` if everything
    /// is seen.
    fn mask(
        &self,
        queries: Range<usize>,
        keys: Range<usize>,
        window: Option<usize>,
        heads: usize,
        device: &Device,
    ) -> Option<Tensor<4, Bool>> {
        let window = window.unwrap_or(usize::MAX);
        let mut mask = Vec::with_capacity(self.count * queries.len() * keys.len());
        for &length in &self.lengths {
            for query in queries.clone() {
                mask.extend(keys.clone().map(|key| key != query && (key >= length || key.abs_diff(query) > window)));
            }
        }
        if !mask.contains(&true) {
            return None;
        }
        let mask = TensorData::new(mask, [self.count, 1, queries.len(), keys.len()]);
        Some(Tensor::<4, Bool>::from_data(mask, device).expand([self.count, heads, queries.len(), keys.len()]))
    }
}

/// What all layers of one pass share; it is made once on the host and kept on the device.
struct Pass {
    padded: Padded,
    /// The blocks for each window.
    blocks: Vec<(Option<usize>, Vec<Block>)>,
    /// Cosines and sines, `[1, 1, longest, half]`.
    rotations: Vec<(Arc<Rotary>, [Tensor<4>; 2])>,
}

/// Queries whose attention is computed at once, and the keys that they see.
struct Block {
    queries: Range<usize>,
    keys: Range<usize>,
    mask: Option<Tensor<4, Bool>>,
    bias: Option<Tensor<4>>,
}

impl PlainEncoder {
    pub fn new(weights: EncoderWeights, device: Device) -> Self {
        let hidden = weights.shape.hidden;
        let layers = weights.layers.into_iter().map(|layer| Layer {
            qkv: Dense::new(layer.qkv, &device),
            output: Dense::new(layer.output, &device),
            attention_norm: layer.attention_norm.map(|norm| Norm::new(norm, &device)),
            up: Dense::new(layer.up, &device),
            down: Dense::new(layer.down, &device),
            norm: Norm::new(layer.norm, &device),
            window: layer.window,
            rotary: layer.rotary,
        });
        let embeddings = weights.embeddings;
        Self {
            hidden,
            heads: weights.shape.heads,
            layers: layers.collect(),
            words: matrix(embeddings.words, hidden, &device),
            positions: embeddings.positions.map(|rows| matrix(rows, hidden, &device)),
            token_types: embeddings.token_types.map(|rows| matrix(rows, hidden, &device)),
            embedding_norm: Norm::new(embeddings.norm, &device),
            relative_bias: weights.relative_bias,
            norm_place: weights.norm_place,
            activation: weights.activation,
            final_norm: weights.final_norm.map(|norm| Norm::new(norm, &device)),
            device,
        }
    }

    fn embed(&self, batch: &Ragged, padded: &Padded) -> Tensor<2> {
        let ids = padded.integers(batch, |token| batch.token_ids[token] as i32, &self.device);
        let mut x = module::embedding(self.words.clone(), ids);
        if let Some(types) = &self.token_types {
            let ids = padded.integers(batch, |token| i32::from(batch.token_types[token]), &self.device);
            x = x + module::embedding(types.clone(), ids);
        }
        if let Some(positions) = &self.positions {
            let positions = positions.clone().narrow(0, 0, padded.longest);
            x = x + positions.reshape([1, padded.longest, self.hidden]);
        }
        self.embedding_norm.apply(x.reshape([padded.count * padded.longest, self.hidden]))
    }

    fn pass(&self, batch: &Ragged) -> Pass {
        let mut pass = Pass { padded: Padded::new(batch), blocks: Vec::new(), rotations: Vec::new() };
        for layer in &self.layers {
            if pass.blocks.iter().all(|(window, _)| *window != layer.window) {
                pass.blocks.push((layer.window, self.blocks(layer.window, &pass.padded)));
            }
            if let Some(rotary) = &layer.rotary
                && pass.rotations.iter().all(|(known, _)| !Arc::ptr_eq(known, rotary))
            {
                let table = |values: &[f32]| {
                    let (longest, half) = (pass.padded.longest, self.hidden / self.heads / 2);
                    let values = TensorData::new(values[..longest * half].to_vec(), [1, 1, longest, half]);
                    Tensor::<4>::from_data(values, &self.device)
                };
                pass.rotations.push((Arc::clone(rotary), [table(&rotary.cosines), table(&rotary.sines)]));
            }
        }
        pass
    }

    fn blocks(&self, window: Option<usize>, padded: &Padded) -> Vec<Block> {
        let longest = padded.longest;
        let block = |first: usize| {
            let queries = first..longest.min(first + QUERY_ROWS);
            let reach = window.unwrap_or(longest);
            let keys = first.saturating_sub(reach)..longest.min(queries.end.saturating_add(reach));
            let mask = padded.mask(queries.clone(), keys.clone(), window, self.heads, &self.device);
            let bias =
                self.relative_bias.as_ref().map(|bias| self.bias(bias, queries.clone(), keys.clone(), padded.count));
            Block { queries, keys, mask, bias }
        };
        (0..longest).step_by(QUERY_ROWS).map(block).collect()
    }

    fn attend(&self, layer: &Layer, x: Tensor<2>, pass: &Pass) -> Tensor<2> {
        let (heads, head_width) = (self.heads, self.hidden / self.heads);
        let Padded { count, longest, .. } = pass.padded;
        let qkv = layer.qkv.apply(x).reshape([count, longest, 3 * heads, head_width]).swap_dims(1, 2);
        let third = |at: usize| qkv.clone().narrow(1, at * heads, heads);
        let (mut queries, mut keys, values) = (third(0), third(1), third(2));
        let is_of_layer = |rotary: &Arc<Rotary>| layer.rotary.as_ref().is_some_and(|of| Arc::ptr_eq(of, rotary));
        if let Some((_, tables)) = pass.rotations.iter().find(|(rotary, _)| is_of_layer(rotary)) {
            (queries, keys) = (rotated(queries, tables), rotated(keys, tables));
        }
        let blocks = pass.blocks.iter().filter(|(window, _)| *window == layer.window).flat_map(|(_, blocks)| blocks);
        let attended = blocks.map(|block| {
            module::attention(
                queries.clone().narrow(2, block.queries.start, block.queries.len()),
                keys.clone().narrow(2, block.keys.start, block.keys.len()),
                values.clone().narrow(2, block.keys.start, block.keys.len()),
                block.mask.clone(),
                block.bias.clone(),
                Default::default(),
            )
        });
        let attended = Tensor::cat(attended.collect(), 2);
        layer.output.apply(attended.swap_dims(1, 2).reshape([count * longest, self.hidden]))
    }

    fn bias(&self, bias: &RelativeBias, queries: Range<usize>, keys: Range<usize>, count: usize) -> Tensor<4> {
        let mut values = Vec::with_capacity(self.heads * queries.len() * keys.len());
        for head in 0..self.heads {
            for query in queries.clone() {
                values.extend_from_slice(&bias.row(head, query, keys.start)[..keys.len()]);
            }
        }
        let values = TensorData::new(values, [1, self.heads, queries.len(), keys.len()]);
        Tensor::<4>::from_data(values, &self.device).expand([count, self.heads, queries.len(), keys.len()])
    }

    fn feed_forward(&self, layer: &Layer, x: Tensor<2>) -> Tensor<2> {
        let wide = layer.up.apply(x);
        let half = wide.dims()[1] / 2;
        let gate = |at| wide.clone().narrow(1, at, half);
        layer.down.apply(match self.activation {
            Activation::Gelu => activation::gelu(wide),
            Activation::GatedGelu => activation::gelu(gate(0)) * gate(half),
            Activation::GatedSilu => activation::silu(gate(0)) * gate(half),
        })
    }
}

/// Multiplies each half of a head by the cosines and adds the other half, negated once, times the sines.
fn rotated(x: Tensor<4>, [cosines, sines]: &[Tensor<4>; 2]) -> Tensor<4> {
    let half = x.dims()[3] / 2;
    let (first, second) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
    let turned = first.clone() * cosines.clone() - second.clone() * sines.clone();
    Tensor::cat(vec![turned, second * cosines.clone() + first * sines.clone()], 3)
}

fn normalised(norm: Option<&Norm>, x: Tensor<2>) -> Tensor<2> {
    norm.map_or(x.clone(), |norm| norm.apply(x))
}

impl Encoder for PlainEncoder {
    fn forward(&self, batch: &Ragged) -> Vec<f32> {
        if batch.token_count() == 0 {
            return Vec::new();
        }
        let pass = self.pass(batch);
        let mut x = self.embed(batch, &pass.padded);
        for layer in &self.layers {
            let norm = layer.attention_norm.as_ref();
            match self.norm_place {
                NormPlace::After => {
                    x = normalised(norm, x.clone() + self.attend(layer, x, &pass));
                    x = layer.norm.apply(x.clone() + self.feed_forward(layer, x));
                }
                NormPlace::Before => {
                    x = x.clone() + self.attend(layer, normalised(norm, x), &pass);
                    x = x.clone() + self.feed_forward(layer, layer.norm.apply(x));
                }
            }
        }
        let rows = normalised(self.final_norm.as_ref(), x);
        let rows = rows.into_data().try_to_vec::<f32>().expect("the tensor was made of f32");
        let mut kept = Vec::with_capacity(batch.token_count() * self.hidden);
        for (rows, length) in rows.chunks_exact(pass.padded.longest * self.hidden).zip(pass.padded.lengths) {
            kept.extend_from_slice(&rows[..length * self.hidden]);
        }
        kept
    }

    fn hidden_size(&self) -> usize {
        self.hidden
    }
}
