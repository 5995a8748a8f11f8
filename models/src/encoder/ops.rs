//! The operations of an encoder, as an extension of Burn's backends.

use super::composed::{self, Padded};
use crate::{
    Pooling, Precision,
    body::Activation,
    encoder::Place,
    kernels::{self, Attention, LayerNorm, Packed, ROWS_AT_ONCE, RelativeBias, Rotary, TILE_ROWS},
    ragged::Ragged,
};
#[cfg(any(feature = "wgpu", feature = "cuda"))]
use burn::backend::Cube;
#[cfg(feature = "ndarray")]
#[expect(deprecated, reason = "Burn advises Flex, which is the default here; this one is an extra")]
use burn::backend::NdArray;
use burn::{
    backend::{
        Backend, Dispatch, DispatchKindConversion, DispatchTensor, Flex, backend_extension,
        flex::{FlexTensor, Layout},
        tensor::FloatTensor,
    },
    tensor::{Bytes, DType, Shape, Tensor},
};
use rayon::prelude::*;
use std::sync::Arc;

/// A linear layer.
#[expect(clippy::large_enum_variant, reason = "a model has a few dozen of them")]
pub(super) enum Dense {
    /// Its bias is zeros if the model has none.
    Packed { weight: Packed, bias: Vec<f32> },
    Tensors {
        /// `[inputs, outputs]`
        weight: Tensor<2>,
        /// `[1, outputs]`
        bias: Option<Tensor<2>>,
    },
}

/// A layer's normalisation.
#[expect(clippy::large_enum_variant, reason = "a model has a few dozen of them")]
pub(super) enum Norm {
    Numbers(LayerNorm),
    Tensors { gain: Tensor<1>, offset: Tensor<1>, epsilon: f64 },
}

/// What the attention of a layer has besides its weights.
pub(super) struct Heads {
    pub count: usize,
    pub width: usize,
    /// How many tokens a token sees to each side; `None`: all.
    pub window: Option<usize>,
    pub rotary: Option<Arc<Rotary>>,
    pub bias: Option<Arc<RelativeBias>>,
}

/// The sequences of a pass.
pub(super) struct Batch<'a> {
    pub ragged: &'a Ragged,
    pub place: &'a dyn Place,
    /// For each token, its position in its sequence.
    pub positions: Vec<u32>,
    /// What composed operations need; `None` where kernels run.
    pub padded: Option<Padded>,
}

impl Dense {
    pub fn packed(weight: &[f32], bias: Option<Vec<f32>>, inputs: usize, outputs: usize, precision: Precision) -> Self {
        Self::Packed {
            weight: Packed::new(weight, inputs, outputs, precision),
            bias: bias.unwrap_or_else(|| vec![0.0; outputs]),
        }
    }
}

#[backend_extension(Flex, NdArray: cfg(feature = "ndarray"), Cube: cfg(any(feature = "wgpu", feature = "cuda")))]
pub(super) trait EncoderOps: Backend {
    /// Multiplies rows by the weight, adds the bias and applies `then`.
    fn linear(x: FloatTensor<Self>, dense: &Dense, then: Activation, batch: &Batch<'_>) -> FloatTensor<Self>;
    /// Attention inside each sequence. A row of `qkv` is `[queries | keys | values]` of a token.
    fn attention(qkv: FloatTensor<Self>, batch: &Batch<'_>, heads: &Heads) -> FloatTensor<Self>;
    fn normalise(x: FloatTensor<Self>, norm: &Norm) -> FloatTensor<Self>;
    /// Adds `y` to `x`, and normalises the sum if there is a norm.
    fn add(x: FloatTensor<Self>, y: FloatTensor<Self>, norm: Option<&Norm>) -> FloatTensor<Self>;
    /// Makes one row of each sequence, so that only these leave the device. The sum stands for the mean, because it
    /// points the same way.
    fn pool(x: FloatTensor<Self>, batch: &Batch<'_>, how: Pooling) -> FloatTensor<Self>;
}

pub(super) fn linear(x: Tensor<2>, dense: &Dense, then: Activation, batch: &Batch<'_>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::linear(x.into_dispatch(), dense, then, batch))
}

pub(super) fn attention(qkv: Tensor<2>, batch: &Batch<'_>, heads: &Heads) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::attention(qkv.into_dispatch(), batch, heads))
}

pub(super) fn normalise(x: Tensor<2>, norm: &Norm) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::normalise(x.into_dispatch(), norm))
}

pub(super) fn add(x: Tensor<2>, y: Tensor<2>, norm: Option<&Norm>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::add(x.into_dispatch(), y.into_dispatch(), norm))
}

pub(super) fn pool(x: Tensor<2>, batch: &Batch<'_>, how: Pooling) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::pool(x.into_dispatch(), batch, how))
}

/// A tensor of this backend, as Burn's own operations take it.
fn tensor<B: Backend>(x: FloatTensor<B>) -> Tensor<2>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    Tensor::from_primitive::<B>(x)
}

fn primitive<B: Backend>(x: Tensor<2>) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    x.try_into_primitive::<B>().expect("an operation's result is on the backend of its input")
}

/// Serves backends for which there are no kernels.
#[cfg(any(feature = "ndarray", feature = "wgpu", feature = "cuda"))]
macro_rules! compose {
    ($backend:ty) => {
        impl EncoderOps for $backend {
            fn linear(x: FloatTensor<Self>, dense: &Dense, then: Activation, _: &Batch<'_>) -> FloatTensor<Self> {
                primitive::<Self>(composed::linear(tensor::<Self>(x), dense, then))
            }

            fn attention(qkv: FloatTensor<Self>, batch: &Batch<'_>, heads: &Heads) -> FloatTensor<Self> {
                primitive::<Self>(composed::attention(tensor::<Self>(qkv), batch, heads))
            }

            fn normalise(x: FloatTensor<Self>, norm: &Norm) -> FloatTensor<Self> {
                primitive::<Self>(composed::normalise(tensor::<Self>(x), norm))
            }

            fn add(x: FloatTensor<Self>, y: FloatTensor<Self>, norm: Option<&Norm>) -> FloatTensor<Self> {
                primitive::<Self>(composed::add(tensor::<Self>(x), tensor::<Self>(y), norm))
            }

            fn pool(x: FloatTensor<Self>, batch: &Batch<'_>, how: Pooling) -> FloatTensor<Self> {
                primitive::<Self>(composed::pool(tensor::<Self>(x), batch, how))
            }
        }
    };
}

#[cfg(feature = "ndarray")]
compose!(NdArray);
#[cfg(any(feature = "wgpu", feature = "cuda"))]
compose!(Cube);

/// On the processor the kernels of this crate are the bodies. Composed bodies serve here too, so that each can check the
/// other without another device.
impl EncoderOps for Flex {
    fn linear(x: FlexTensor, dense: &Dense, then: Activation, batch: &Batch<'_>) -> FlexTensor {
        let Dense::Packed { weight, bias } = dense else {
            return primitive::<Self>(composed::linear(tensor::<Self>(x), dense, then));
        };
        let (inputs, outputs) = (weight.inputs(), weight.outputs());
        let width = if then.is_gated() { outputs / 2 } else { outputs };
        let x = whole(x);
        let mut out = vec![0f32; x.storage::<f32>().len() / inputs * width];
        let pause = || batch.place.pause();
        let split = Split::of(out.len() / width, weight.rows_at_once(), weight.tile_rows());
        split.run(pause, (x.storage(), inputs), (&mut out, width), |x, out, is_shared| {
            let product = |out: &mut [f32]| match is_shared {
                true => weight.product_shared(x, out),
                false => weight.product(x, out),
            };
            if then.is_gated() {
                let mut wide = vec![0f32; x.len() / inputs * outputs];
                product(&mut wide);
                kernels::add_bias(&mut wide, bias);
                match then {
                    Activation::GatedSilu => kernels::gated_silu(&wide, out, width),
                    _ => kernels::gated_gelu(&wide, out, width),
                }
                return;
            }
            product(out);
            match then {
                Activation::Gelu => kernels::add_bias_gelu(out, bias),
                _ => kernels::add_bias(out, bias),
            }
            if then == Activation::Tanh {
                out.iter_mut().for_each(|x| *x = x.tanh());
            }
        });
        matrix(out, width)
    }

    fn attention(qkv: FlexTensor, batch: &Batch<'_>, heads: &Heads) -> FlexTensor {
        if batch.padded.is_some() {
            return primitive::<Self>(composed::attention(tensor::<Self>(qkv), batch, heads));
        }
        let hidden = heads.count * heads.width;
        let mut qkv = whole(qkv);
        if let Some(rotary) = &heads.rotary {
            let rows = qkv.storage_mut::<f32>();
            if rayon::current_num_threads() > 1 {
                let blocks = rows.par_chunks_mut(ROWS_AT_ONCE * 3 * hidden);
                blocks.zip(batch.positions.par_chunks(ROWS_AT_ONCE)).for_each(|(rows, positions)| {
                    kernels::rotate(rows, 3 * hidden, 2 * hidden, positions, rotary);
                });
            } else {
                kernels::rotate(rows, 3 * hidden, 2 * hidden, &batch.positions, rotary);
            }
        }
        let qkv = qkv.storage::<f32>();
        let mut out = vec![0f32; qkv.len() / 3];
        let Heads { count, width, window, bias, .. } = heads;
        let attention = Attention { heads: *count, head_width: *width, window: *window, bias: bias.as_deref() };
        attention.attend(qkv, &mut out, &batch.ragged.sequences, || batch.place.pause());
        matrix(out, hidden)
    }

    fn normalise(x: FlexTensor, norm: &Norm) -> FlexTensor {
        let Norm::Numbers(norm) = norm else {
            return primitive::<Self>(composed::normalise(tensor::<Self>(x), norm));
        };
        let mut x = whole(x);
        kernels::normalise(x.storage_mut(), norm);
        x
    }

    fn add(x: FlexTensor, y: FlexTensor, norm: Option<&Norm>) -> FlexTensor {
        if let Some(Norm::Tensors { .. }) = norm {
            return primitive::<Self>(composed::add(tensor::<Self>(x), tensor::<Self>(y), norm));
        }
        let width = x.layout().shape()[1];
        let (mut x, y) = (whole(x), whole(y));
        let rows = x.storage_mut::<f32>();
        Split::of(rows.len() / width, ROWS_AT_ONCE, TILE_ROWS).run(
            || {},
            (y.storage(), width),
            (rows, width),
            |y, x, _| match norm {
                Some(Norm::Numbers(norm)) => kernels::add_normalise(x, y, norm),
                _ => x.iter_mut().zip(y).for_each(|(x, y)| *x += y),
            },
        );
        x
    }

    fn pool(x: FlexTensor, batch: &Batch<'_>, how: Pooling) -> FlexTensor {
        if batch.padded.is_some() {
            return primitive::<Self>(composed::pool(tensor::<Self>(x), batch, how));
        }
        let x = whole(x);
        let width = x.storage::<f32>().len() / batch.positions.len();
        let mut out = vec![0f32; batch.ragged.sequences.len() * width];
        for (out, sequence) in out.chunks_exact_mut(width).zip(&batch.ragged.sequences) {
            let seen = match how {
                Pooling::Mean => sequence.clone(),
                Pooling::Cls => sequence.start..sequence.end.min(sequence.start + 1),
            };
            for row in x.storage::<f32>()[seen.start * width..seen.end * width].chunks_exact(width) {
                out.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
        }
        matrix(out, width)
    }
}

/// The same tensor, row by row without gaps, as kernels read it.
fn whole(x: FlexTensor) -> FlexTensor {
    let is_whole = x.is_contiguous() && x.storage::<f32>().len() == x.layout().num_elements();
    if is_whole { x } else { x.to_contiguous() }
}

fn matrix(rows: Vec<f32>, columns: usize) -> FlexTensor {
    let shape = Shape::from(vec![rows.len() / columns, columns]);
    FlexTensor::new(Bytes::from_elems(rows), Layout::contiguous(shape), DType::F32)
}

/// How the rows of an operation are shared among the threads of the caller's rayon pool.
struct Split {
    rows: usize,
    /// There is one block, and the threads share the outputs of its product.
    by_outputs: bool,
}

impl Split {
    /// Cuts into blocks of about so many rows, of which `tile_rows` fill the processor's tiles.
    fn of(tokens: usize, rows_at_once: usize, tile_rows: usize) -> Self {
        /// With fewer rows per thread, reading the weights would not pay.
        const FEWEST_ROWS: usize = 24;
        let threads = rayon::current_num_threads();
        if threads > 1 && tokens < threads * FEWEST_ROWS {
            return Self { rows: tokens, by_outputs: true };
        }
        // The blocks have similar heights, consist of whole tiles, and each thread gets as many. Threads wait for the one with the most rows, so the
        // blocks of several threads are not rounded up to tiles as large as those of AMX.
        let blocks = tokens.div_ceil(rows_at_once).next_multiple_of(threads);
        let tile_rows = if threads > 1 { tile_rows.min(TILE_ROWS) } else { tile_rows };
        Self { rows: tokens.div_ceil(blocks).next_multiple_of(tile_rows), by_outputs: false }
    }

    /// Runs `f` on each block of rows of `x` and of `out`, which come with their widths. If one thread runs all blocks,
    /// it pauses after each.
    fn run(
        &self,
        pause: impl Fn(),
        (x, x_width): (&[f32], usize),
        (out, width): (&mut [f32], usize),
        f: impl Fn(&[f32], &mut [f32], bool) + Sync,
    ) {
        if out.len() <= self.rows * width {
            return f(x, out, self.by_outputs);
        }
        if rayon::current_num_threads() == 1 {
            let blocks = x.chunks(self.rows * x_width).zip(out.chunks_mut(self.rows * width));
            return blocks.for_each(|(x, out)| {
                f(x, out, false);
                pause();
            });
        }
        let blocks = x.par_chunks(self.rows * x_width).zip(out.par_chunks_mut(self.rows * width));
        blocks.for_each(|(x, out)| f(x, out, false));
    }
}
