use super::{Encoder, Here, Place};
use crate::{
    Precision,
    body::{Activation, Embeddings, EncoderWeights, NormPlace},
    kernels::{self, Attention, LayerNorm, Line, Packed, ROWS_AT_ONCE, RelativeBias, Rotary},
    ragged::{Ragged, TOKENS_PER_PASS},
    weights::Linear,
};
use rayon::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// The fast path works without padding: the rows of all sequences are one matrix in plain memory, and the kernels are
/// our own. Between two attentions a layer works row by row, so that a block of rows passes through all of it while it
/// is in the processor's caches. The threads of the caller's rayon pool share the blocks; if there are too few rows for
/// that, as in a query, they share the outputs of each product.
pub(crate) struct FastEncoder {
    hidden: usize,
    heads: usize,
    embeddings: Embeddings,
    relative_bias: Option<RelativeBias>,
    layers: Vec<Layer>,
    norm_place: NormPlace,
    activation: Activation,
    final_norm: Option<LayerNorm>,
    /// Working memory, kept for further passes.
    spare: Mutex<Vec<Buffers>>,
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
    weight: Packed,
    /// Zeros if the model has no bias but an addition happens anyway.
    bias: Vec<f32>,
}

/// Each buffer has a row for each token of a pass.
#[derive(Default)]
struct Buffers {
    /// The sums that are carried on from layer to layer.
    x: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    keys_values: Vec<Line>,
    scratch: Scratch,
}

/// Rows that go through a layer together.
struct Block<'a> {
    x: &'a mut [f32],
    qkv: &'a mut [f32],
    attended: &'a [f32],
    positions: &'a [u32],
}

/// The working memory of one thread.
#[derive(Default)]
struct Scratch {
    /// The input of a sublayer, if norms come before sublayers.
    normalised: Vec<f32>,
    /// The output of a sublayer.
    y: Vec<f32>,
    wide: Vec<f32>,
    gated: Vec<f32>,
}

/// How a pass is shared among threads.
#[derive(Clone, Copy)]
struct Split {
    rows: usize,
    /// There is one block, and the threads share the outputs of its products.
    by_outputs: bool,
}

impl Split {
    fn of(tokens: usize) -> Self {
        /// With fewer rows per thread, reading the weights would not pay.
        const FEWEST_ROWS: usize = 24;
        /// The value for the most common processors.
        const TILE_ROWS: usize = 6;
        let threads = rayon::current_num_threads();
        if threads > 1 && tokens < threads * FEWEST_ROWS {
            return Self { rows: tokens, by_outputs: true };
        }
        // The blocks have similar heights, consist of whole tiles, and each thread gets as many.
        let blocks = tokens.div_ceil(ROWS_AT_ONCE).next_multiple_of(threads);
        Self { rows: tokens.div_ceil(blocks).next_multiple_of(TILE_ROWS), by_outputs: false }
    }
}

impl Dense {
    fn new(linear: Linear, precision: Precision) -> Self {
        let Linear { weight, bias, inputs, outputs } = linear;
        Self {
            weight: Packed::new(&weight, inputs, outputs, precision),
            bias: bias.unwrap_or_else(|| vec![0.0; outputs]),
        }
    }

    /// Computes `x * weight` without the bias, which the next kernel adds.
    fn product(&self, x: &[f32], out: &mut Vec<f32>, split: Split) {
        out.resize(x.len() / self.weight.inputs() * self.weight.outputs(), 0.0);
        self.product_to(x, out, split);
    }

    fn product_to(&self, x: &[f32], out: &mut [f32], split: Split) {
        match split.by_outputs {
            true => self.weight.product_shared(x, out),
            false => self.weight.product(x, out),
        }
    }
}

impl FastEncoder {
    pub fn new(weights: EncoderWeights, precision: Precision) -> Self {
        let layers = weights.layers.into_iter().map(|layer| Layer {
            qkv: Dense::new(layer.qkv, precision),
            output: Dense::new(layer.output, precision),
            attention_norm: layer.attention_norm,
            up: Dense::new(layer.up, precision),
            down: Dense::new(layer.down, precision),
            norm: layer.norm,
            window: layer.window,
            rotary: layer.rotary,
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
            spare: Mutex::new(Vec::new()),
        }
    }

    /// Fills `x` of the block whose first token is `first`.
    fn embed(&self, batch: &Ragged, first: usize, block: &mut Block<'_>) {
        let hidden = self.hidden;
        let Embeddings { words, positions, token_types, norm } = &self.embeddings;
        let row = |index: usize| index * hidden..(index + 1) * hidden;
        for ((token, x), &position) in (first..).zip(block.x.chunks_exact_mut(hidden)).zip(block.positions) {
            x.copy_from_slice(&words[row(batch.token_ids[token] as usize)]);
            if let Some(types) = token_types {
                add(x, &types[row(usize::from(batch.token_types[token]))]);
            }
            if let Some(positions) = positions {
                add(x, &positions[row(position as usize)]);
            }
        }
        kernels::normalise(block.x, norm);
    }

    /// Computes queries, keys and values of a layer from the output of the layer before.
    fn queries_keys_values(&self, layer: &Layer, block: &mut Block<'_>, scratch: &mut Scratch, split: Split) {
        let hidden = self.hidden;
        let seen = match (self.norm_place, &layer.attention_norm) {
            (NormPlace::Before, Some(norm)) => {
                normalise_to(&mut scratch.normalised, block.x, norm);
                &scratch.normalised
            }
            _ => &*block.x,
        };
        layer.qkv.product_to(seen, block.qkv, split);
        kernels::add_bias(block.qkv, &layer.qkv.bias);
        if let Some(rotary) = &layer.rotary {
            kernels::rotate(block.qkv, 3 * hidden, 2 * hidden, block.positions, rotary);
        }
    }

    /// Runs a layer from the result of its attention to its end.
    fn finish_layer(&self, layer: &Layer, block: &mut Block<'_>, scratch: &mut Scratch, split: Split) {
        let Scratch { normalised, y, wide, gated } = scratch;
        layer.output.product(block.attended, y, split);
        let seen = match self.norm_place {
            NormPlace::After => {
                add_normalise(block.x, y, &layer.output.bias, layer.attention_norm.as_ref());
                &*block.x
            }
            NormPlace::Before => {
                add_normalise(block.x, y, &layer.output.bias, None);
                normalise_to(normalised, block.x, &layer.norm);
                normalised
            }
        };
        layer.up.product(seen, wide, split);
        if self.activation == Activation::Gelu {
            kernels::add_bias_gelu(wide, &layer.up.bias);
            layer.down.product(wide, y, split);
        } else {
            let width = layer.down.weight.inputs();
            gated.resize(wide.len() / 2, 0.0);
            match self.activation {
                Activation::GatedSilu => kernels::gated_silu(wide, gated, width),
                Activation::Gelu | Activation::GatedGelu => kernels::gated_gelu(wide, gated, width),
            }
            layer.down.product(gated, y, split);
        }
        let norm = (self.norm_place == NormPlace::After).then_some(&layer.norm);
        add_normalise(block.x, y, &layer.down.bias, norm);
    }

    fn run(&self, batch: &Ragged, buffers: &mut Buffers, place: &dyn Place) {
        let (hidden, tokens) = (self.hidden, batch.token_count());
        let positions = batch.positions();
        buffers.x.resize(tokens * hidden, 0.0);
        buffers.qkv.resize(tokens * 3 * hidden, 0.0);
        buffers.attended.resize(tokens * hidden, 0.0);
        let mut done = 0;
        while done <= self.layers.len() {
            place.run(&mut |is_left| {
                let split = Split::of(tokens);
                loop {
                    self.step(done, batch, &positions, buffers, split);
                    done += 1;
                    if done > self.layers.len() || is_left() {
                        return;
                    }
                }
            });
        }
    }

    /// Runs one step. Step 0 leads from the tokens to the first layer's attention; each other step leads from one
    /// layer's attention to the next one's.
    fn step(&self, number: usize, batch: &Ragged, positions: &[u32], buffers: &mut Buffers, split: Split) {
        let hidden = self.hidden;
        let Some(before) = number.checked_sub(1) else {
            return blocks(buffers, positions, hidden, split, |first, block, scratch| {
                self.embed(batch, first, block);
                if let Some(layer) = self.layers.first() {
                    self.queries_keys_values(layer, block, scratch, split);
                }
            });
        };
        let layer = &self.layers[before];
        let (head_width, bias) = (hidden / self.heads, self.relative_bias.as_ref());
        let attention = Attention { heads: self.heads, head_width, window: layer.window, bias };
        let Buffers { qkv, attended, keys_values, .. } = buffers;
        attention.attend(qkv, attended, &batch.sequences, keys_values);
        blocks(buffers, positions, hidden, split, |_, block, scratch| {
            self.finish_layer(layer, block, scratch, split);
            if let Some(next) = self.layers.get(number) {
                self.queries_keys_values(next, block, scratch, split);
            } else if let Some(norm) = &self.final_norm {
                kernels::normalise(block.x, norm);
            }
        });
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<Buffers>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Encoder for FastEncoder {
    fn forward(&self, batch: &Ragged) -> Vec<f32> {
        self.forward_in(batch, &Here)
    }

    fn forward_in(&self, batch: &Ragged, place: &dyn Place) -> Vec<f32> {
        if batch.token_count() == 0 {
            return Vec::new();
        }
        let mut buffers = self.spare().pop().unwrap_or_default();
        self.run(batch, &mut buffers, place);
        let rows = buffers.x.clone();
        // Memory for a long text goes back to the system.
        if batch.token_count() <= TOKENS_PER_PASS {
            self.spare().push(buffers);
        }
        rows
    }

    fn hidden_size(&self) -> usize {
        self.hidden
    }
}

/// Runs `f` on every block of rows, passing the block's first token.
fn blocks(
    buffers: &mut Buffers,
    positions: &[u32],
    hidden: usize,
    split: Split,
    f: impl Fn(usize, &mut Block<'_>, &mut Scratch) + Sync,
) {
    let Buffers { x, qkv, attended, scratch, .. } = buffers;
    let rows = split.rows * hidden;
    if x.len() <= rows {
        return f(0, &mut Block { x, qkv, attended, positions }, scratch);
    }
    if rayon::current_num_threads() == 1 {
        let parts = x.chunks_mut(rows).zip(qkv.chunks_mut(3 * rows)).zip(attended.chunks(rows));
        for (at, (((x, qkv), attended), positions)) in parts.zip(positions.chunks(split.rows)).enumerate() {
            f(at * split.rows, &mut Block { x, qkv, attended, positions }, scratch);
        }
        return;
    }
    let parts = x.par_chunks_mut(rows).zip(qkv.par_chunks_mut(3 * rows)).zip(attended.par_chunks(rows));
    let parts = parts.zip(positions.par_chunks(split.rows)).enumerate();
    parts.for_each_init(Scratch::default, |scratch, (at, (((x, qkv), attended), positions))| {
        f(at * split.rows, &mut Block { x, qkv, attended, positions }, scratch);
    });
}

/// Computes `x = normalise(x + y + bias)`, or only the sum.
fn add_normalise(x: &mut [f32], y: &[f32], bias: &[f32], norm: Option<&LayerNorm>) {
    match norm {
        Some(norm) => kernels::add_normalise(x, y, bias, norm),
        None => {
            add(x, y);
            kernels::add_bias(x, bias);
        }
    }
}

fn normalise_to(normalised: &mut Vec<f32>, x: &[f32], norm: &LayerNorm) {
    normalised.clear();
    normalised.extend_from_slice(x);
    kernels::normalise(normalised, norm);
}

fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}
