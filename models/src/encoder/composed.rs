//! The operations of an encoder, composed of Burn's own. Only attention pads, since Burn has none for ragged rows.

use super::{
    Composed,
    ops::{Batch, Dense, Heads, Norm},
};
use crate::{
    Pooling,
    body::Activation,
    kernels::{RelativeBias, Rotary},
    ragged::Ragged,
};
use burn::tensor::{Bool, Device, FloatDType, Int, Tensor, TensorData, activation, module};
use std::{ops::Range, sync::Arc};

/// How many queries have their scores in memory at once, so that the memory of attention grows with the length and not
/// with its square.
const QUERY_ROWS: usize = 512;

pub(super) fn linear(x: Tensor<2>, dense: &Dense, then: Activation) -> Tensor<2> {
    let Dense::Tensors { weight, bias } = dense else { unreachable!("only kernels read packed weights") };
    let product = x.matmul(weight.clone());
    let y = match bias {
        Some(bias) => product + bias.clone(),
        None => product,
    };
    let half = y.dims()[1] / 2;
    let part = |at| y.clone().narrow(1, at, half);
    match then {
        Activation::Nothing => y,
        Activation::Tanh => y.tanh(),
        Activation::Gelu => activation::gelu(y),
        Activation::GatedGelu => activation::gelu(part(0)) * part(half),
        Activation::GatedSilu => activation::silu(part(0)) * part(half),
    }
}

pub(super) fn normalise(x: Tensor<2>, norm: &Norm) -> Tensor<2> {
    let Norm::Tensors { gain, offset, epsilon } = norm else { unreachable!("only kernels read plain numbers") };
    let floats = FloatDType::from(x.dtype());
    // The mean and the variance of a row would lose too much in 16 bits.
    module::layer_norm(x.cast(FloatDType::F32), gain.clone(), Some(offset.clone()), *epsilon).cast(floats)
}

pub(super) fn add(x: Tensor<2>, y: Tensor<2>, norm: Option<&Norm>) -> Tensor<2> {
    let sum = x + y;
    match norm {
        Some(norm) => normalise(sum, norm),
        None => sum,
    }
}

/// The sequences side by side, and what the attention of each layer needs for them. It is made once for a pass and kept
/// on the device.
pub(super) struct Padded {
    count: usize,
    longest: usize,
    /// `None` if all sequences have this length.
    places: Option<Places>,
    /// The blocks of each window.
    blocks: Vec<(Option<usize>, Vec<Block>)>,
    /// Cosines and sines, `[1, 1, longest, half]`.
    rotations: Vec<(Arc<Rotary>, [Tensor<4>; 2])>,
}

struct Places {
    /// For each padded place, the row that stands there. Padding repeats the last row of its own sequence, so that what is
    /// no number stays in its text.
    of_padded: Tensor<1, Int>,
    /// For each row, its padded place.
    of_rows: Tensor<1, Int>,
    /// `[count, longest, 1]`
    is_padding: Tensor<3, Bool>,
}

/// Queries whose attention is computed at once, and the keys that they see.
struct Block {
    queries: Range<usize>,
    keys: Range<usize>,
    mask: Option<Tensor<4, Bool>>,
    bias: Option<Tensor<4>>,
}

impl Places {
    fn new(batch: &Ragged, longest: usize, device: &Device) -> Self {
        let (mut of_padded, mut of_rows, mut is_padding) = (Vec::new(), Vec::new(), Vec::new());
        for (at, sequence) in batch.sequences.iter().enumerate() {
            of_rows.extend((0..sequence.len()).map(|place| (at * longest + place) as i32));
            let last = sequence.len().saturating_sub(1);
            let rows = (0..longest).map(|place| (sequence.start + place.min(last)).min(batch.token_count() - 1) as i32);
            of_padded.extend(rows);
            is_padding.extend((0..longest).map(|place| place >= sequence.len()));
        }
        let integers = |numbers: Vec<i32>| {
            let count = numbers.len();
            Tensor::<1, Int>::from_data(TensorData::new(numbers, [count]), device)
        };
        let is_padding = TensorData::new(is_padding, [batch.sequences.len(), longest, 1]);
        Self {
            of_padded: integers(of_padded),
            of_rows: integers(of_rows),
            is_padding: Tensor::from_data(is_padding, device),
        }
    }
}

impl Padded {
    pub fn new<'a>(
        batch: &Ragged,
        layers: impl Iterator<Item = &'a Heads>,
        Composed { floats, tile }: Composed,
        device: &Device,
    ) -> Self {
        let lengths: Vec<usize> = batch.sequences.iter().map(ExactSizeIterator::len).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0).next_multiple_of(tile);
        let is_ragged = lengths.iter().any(|&length| length < longest);
        let mut padded = Self {
            count: lengths.len(),
            longest,
            places: is_ragged.then(|| Places::new(batch, longest, device)),
            blocks: Vec::new(),
            rotations: Vec::new(),
        };
        for heads in layers {
            if padded.blocks.iter().all(|(window, _)| *window != heads.window) {
                padded.blocks.push((heads.window, blocks(heads, longest, &lengths, floats, device)));
            }
            if let Some(rotary) = &heads.rotary
                && padded.rotations.iter().all(|(known, _)| !Arc::ptr_eq(known, rotary))
            {
                let table = |values: &[f32]| {
                    let half = heads.width / 2;
                    // What turns padding does not matter, and the table may end before it.
                    let mut values = values[..values.len().min(longest * half)].to_vec();
                    values.resize(longest * half, 0.0);
                    let values = TensorData::new(values, [1, 1, longest, half]);
                    Tensor::<4>::from_data(values, device).cast(floats)
                };
                padded.rotations.push((Arc::clone(rotary), [table(&rotary.cosines), table(&rotary.sines)]));
            }
        }
        padded
    }

    /// `[count, longest, columns]`
    fn pad(&self, rows: Tensor<2>) -> Tensor<3> {
        let columns = rows.dims()[1];
        let rows = match &self.places {
            Some(places) => rows.select(0, places.of_padded.clone()),
            None => rows,
        };
        rows.reshape([self.count, self.longest, columns])
    }

    fn rows(&self, padded: Tensor<3>) -> Tensor<2> {
        let columns = padded.dims()[2];
        let rows = padded.reshape([self.count * self.longest, columns]);
        match &self.places {
            Some(places) => rows.select(0, places.of_rows.clone()),
            None => rows,
        }
    }
}

fn blocks(heads: &Heads, longest: usize, lengths: &[usize], floats: FloatDType, device: &Device) -> Vec<Block> {
    let block = |first: usize| {
        let queries = first..longest.min(first + QUERY_ROWS);
        let reach = heads.window.unwrap_or(longest);
        let keys = first.saturating_sub(reach)..longest.min(queries.end.saturating_add(reach));
        let mask = mask(lengths, &queries, &keys, heads, device);
        let bias = heads.bias.as_ref().map(|bias| {
            biases(bias, heads.count, &queries, &keys, device).cast(floats).expand([
                lengths.len(),
                heads.count,
                queries.len(),
                keys.len(),
            ])
        });
        Block { queries, keys, mask, bias }
    };
    (0..longest).step_by(QUERY_ROWS).map(block).collect()
}

/// `[count, heads, queries, keys]`, true where a query does not see a key because it is padding or outside its window.
/// With a window every token sees itself, even padding, whose rows would otherwise not be numbers: no key of its text may be near.
/// `None` if everything is seen.
fn mask(
    lengths: &[usize],
    queries: &Range<usize>,
    keys: &Range<usize>,
    heads: &Heads,
    device: &Device,
) -> Option<Tensor<4, Bool>> {
    let on_device =
        |mask: Vec<bool>, shape: [usize; 4]| Tensor::<4, Bool>::from_data(TensorData::new(mask, shape), device);
    let padding: Vec<bool> = lengths.iter().flat_map(|&length| keys.clone().map(move |key| key >= length)).collect();
    // The parts are small, and the device puts them together: all pairs of all texts would take long to make here and to send.
    let padding = padding.contains(&true).then(|| on_device(padding, [lengths.len(), 1, 1, keys.len()]));
    let pairs = |holds: &dyn Fn(usize, usize) -> bool| -> Vec<bool> {
        queries.clone().flat_map(|query| keys.clone().map(move |key| holds(query, key))).collect()
    };
    let shape = [1, 1, queries.len(), keys.len()];
    let mask = match (padding, heads.window) {
        (padding, None) => padding?,
        (padding, Some(window)) => {
            let far = pairs(&|query, key| key.abs_diff(query) > window);
            let far = far.contains(&true).then(|| on_device(far, shape));
            match (padding, far) {
                (None, far) => far?,
                (Some(padding), far) => {
                    let all = [lengths.len(), 1, queries.len(), keys.len()];
                    let unseen = match far {
                        Some(far) => padding.expand(all).bool_or(far.expand(all)),
                        None => padding.expand(all),
                    };
                    unseen.bool_and(on_device(pairs(&|query, key| key != query), shape).expand(all))
                }
            }
        }
    };
    Some(mask.expand([lengths.len(), heads.count, queries.len(), keys.len()]))
}

/// `[1, heads, queries, keys]`
fn biases(
    bias: &RelativeBias,
    heads: usize,
    queries: &Range<usize>,
    keys: &Range<usize>,
    device: &Device,
) -> Tensor<4> {
    let mut values = Vec::with_capacity(heads * queries.len() * keys.len());
    for head in 0..heads {
        for query in queries.clone() {
            let row = bias.row(head, query, keys.start);
            values.extend(keys.clone().zip(row).map(|(_, &value)| value));
            // Padding may go on where the table ends.
            values.resize(values.len() + keys.len().saturating_sub(row.len()), 0.0);
        }
    }
    let values = TensorData::new(values, [1, heads, queries.len(), keys.len()]);
    Tensor::from_data(values, device)
}

fn padded<'a>(batch: &'a Batch<'_>) -> &'a Padded {
    batch.padded.as_ref().unwrap_or_else(|| unreachable!("only kernels do without padding"))
}

pub(super) fn attention(qkv: Tensor<2>, batch: &Batch<'_>, heads: &Heads) -> Tensor<2> {
    let padded = padded(batch);
    let (count, longest) = (padded.count, padded.longest);
    let qkv = padded.pad(qkv).reshape([count, longest, 3 * heads.count, heads.width]).swap_dims(1, 2);
    let third = |at: usize| qkv.clone().narrow(1, at * heads.count, heads.count);
    let (mut queries, mut keys, values) = (third(0), third(1), third(2));
    let is_of_layer = |rotary: &Arc<Rotary>| heads.rotary.as_ref().is_some_and(|of| Arc::ptr_eq(of, rotary));
    if let Some((_, tables)) = padded.rotations.iter().find(|(rotary, _)| is_of_layer(rotary)) {
        (queries, keys) = (rotated(queries, tables), rotated(keys, tables));
    }
    let blocks = padded.blocks.iter().filter(|(window, _)| *window == heads.window).flat_map(|(_, blocks)| blocks);
    let part = |x: &Tensor<4>, rows: &Range<usize>| match rows.len() == longest {
        true => x.clone(),
        false => x.clone().narrow(2, rows.start, rows.len()),
    };
    let attended = blocks.map(|block| {
        module::attention(
            part(&queries, &block.queries),
            part(&keys, &block.keys),
            part(&values, &block.keys),
            block.mask.clone(),
            block.bias.clone(),
            Default::default(),
        )
    });
    let mut attended: Vec<Tensor<4>> = attended.collect();
    // To put one block together would copy it.
    let whole = if attended.len() == 1 { attended.remove(0) } else { Tensor::cat(attended, 2) };
    let attended = whole.swap_dims(1, 2);
    padded.rows(attended.reshape([count, longest, heads.count * heads.width]))
}

/// Multiplies each half of a head by the cosines and adds the other half, negated once, times the sines.
fn rotated(x: Tensor<4>, [cosines, sines]: &[Tensor<4>; 2]) -> Tensor<4> {
    let half = x.dims()[3] / 2;
    let (first, second) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
    let turned = first.clone() * cosines.clone() - second.clone() * sines.clone();
    Tensor::cat(vec![turned, second * cosines.clone() + first * sines.clone()], 3)
}

pub(super) fn pool(x: Tensor<2>, batch: &Batch<'_>, how: Pooling) -> Tensor<2> {
    let (padded, width) = (padded(batch), x.dims()[1]);
    // A sum of many rows would lose too much in 16 bits.
    let rows = padded.pad(x).cast(FloatDType::F32);
    let pooled = match (how, &padded.places) {
        (Pooling::Cls, _) => rows.narrow(1, 0, 1),
        (Pooling::Mean, None) => rows.sum_dim(1),
        (Pooling::Mean, Some(places)) => {
            let is_padding = places.is_padding.clone().expand([padded.count, padded.longest, width]);
            rows.mask_fill(is_padding, 0.0).sum_dim(1)
        }
    };
    pooled.reshape([padded.count, width])
}
