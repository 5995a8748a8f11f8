use std::ops::Range;

use rayon::prelude::*;

use super::{
    LANES, exp,
    product::{Destination, View, multiply},
};
use crate::encoder::RelativeBias;

/// Queries handled at once.
const QUERY_ROWS: usize = 128;
/// Keys handled at once. The scores of one such block stay in the processor's second cache, and what attention takes beside
/// its input and output does not grow with the sequence.
const KEY_COLUMNS: usize = 512;
/// The score of a key that is not seen. Finite: a block in which a query sees nothing must not become 0 / 0, and what it
/// left is scaled to nothing by the block in which the query sees itself.
const UNSEEN: f32 = -1e30;

/// Attention inside each sequence.
pub(crate) struct Attention<'a> {
    pub heads: usize,
    pub head_width: usize,
    /// Tokens that a token sees to each side; `None`: all.
    pub window: Option<usize>,
    pub bias: Option<&'a RelativeBias>,
}

/// Some queries of one sequence, and where their result goes.
struct Tile<'a> {
    sequence: Range<usize>,
    /// Counted from the start of the sequence.
    queries: Range<usize>,
    out: &'a mut [f32],
}

/// What is kept of a query's scores while its keys come block by block.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    greatest: f32,
    sum: f32,
    /// What the result so far must be multiplied by.
    factor: f32,
}

const NOTHING_SEEN: Running = Running { greatest: f32::NEG_INFINITY, sum: 0.0, factor: 0.0 };

/// The softmax's numerators in place of scores, relative to the greatest score so far.
#[inline(always)]
fn exponents_body(scores: &mut [f32], width: usize, scale: f32, running: &mut [Running]) {
    for (row, running) in scores.chunks_exact_mut(width).zip(running) {
        let (xs, tail) = row.as_chunks_mut::<LANES>();
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for x in xs.iter() {
            for i in 0..LANES {
                lanes[i] = if x[i] > lanes[i] { x[i] } else { lanes[i] };
            }
        }
        let greatest = lanes.iter().chain(tail.iter()).copied().fold(f32::NEG_INFINITY, f32::max) * scale;
        let greatest = greatest.max(running.greatest);
        let mut sums = [0f32; LANES];
        for x in xs {
            for i in 0..LANES {
                x[i] = exp(x[i].mul_add(scale, -greatest));
                sums[i] += x[i];
            }
        }
        for (x, sum) in tail.iter_mut().zip(&mut sums) {
            *x = exp(x.mul_add(scale, -greatest));
            *sum += *x;
        }
        let factor = exp(running.greatest - greatest);
        let sum = running.sum.mul_add(factor, sums.iter().sum::<f32>());
        *running = Running { greatest, sum, factor };
    }
}
dispatch!(
    exponents, exponents_body, (scores: &mut [f32], width: usize, scale: f32, running: &mut [Running]));

#[inline(always)]
fn add_scaled_body(scores: &mut [f32], scale: f32, bias: &[f32]) {
    for (score, bias) in scores.iter_mut().zip(bias) {
        *score = score.mul_add(scale, *bias);
    }
}
dispatch!(
    /// `scores = scores * scale + bias`.
    add_scaled, add_scaled_body, (scores: &mut [f32], scale: f32, bias: &[f32]));

#[inline(always)]
fn scale_rows_body(out: &mut [f32], stride: usize, width: usize, running: &[Running]) {
    for (row, running) in out.chunks_mut(stride).zip(running) {
        for x in &mut row[..width] {
            *x *= running.factor;
        }
    }
}
dispatch!(
    /// Multiplies the first `width` numbers of each row by its factor; rows stand `stride` apart.
    scale_rows, scale_rows_body, (out: &mut [f32], stride: usize, width: usize, running: &[Running]));

impl Attention<'_> {
    /// `qkv` has a row `[queries | keys | values]` per token, `out` a row of `heads * head_width`; heads are read and
    /// written where they lie. `sequences` lie end to end.
    pub fn attend(&self, qkv: &[f32], out: &mut [f32], sequences: &[Range<usize>]) {
        let hidden = self.heads * self.head_width;
        let longest = sequences.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        // Few queries at once where they see few keys, or most of what is computed would be out of sight.
        let rows = self.window.map_or(QUERY_ROWS, |window| window.clamp(32, QUERY_ROWS));
        let mut tiles = Vec::new();
        let mut rest = out;
        for sequence in sequences {
            for first in (0..sequence.len()).step_by(rows) {
                let queries = first..sequence.len().min(first + rows);
                let (out, after) = std::mem::take(&mut rest).split_at_mut(queries.len() * hidden);
                rest = after;
                tiles.push(Tile { sequence: sequence.clone(), queries, out });
            }
        }
        let scores = || vec![0f32; rows.min(longest) * KEY_COLUMNS.min(longest)];
        if rayon::current_num_threads() == 1 {
            let mut scores = scores();
            tiles.into_iter().for_each(|tile| self.attend_tile(qkv, tile, &mut scores));
        } else {
            tiles.into_par_iter().for_each_init(scores, |scores, tile| self.attend_tile(qkv, tile, scores));
        }
    }

    fn attend_tile(&self, qkv: &[f32], tile: Tile<'_>, scores: &mut [f32]) {
        let (hidden, head_width) = (self.heads * self.head_width, self.head_width);
        let tokens = &qkv[tile.sequence.start * 3 * hidden..tile.sequence.end * 3 * hidden];
        let Range { start: first, end } = tile.queries;
        let rows = end - first;
        let window = self.window.unwrap_or(tile.sequence.len());
        let seen = first.saturating_sub(window)..tile.sequence.len().min(end.saturating_add(window));
        let mut running = [NOTHING_SEEN; QUERY_ROWS];
        let running = &mut running[..rows];
        for head in 0..self.heads {
            running.fill(NOTHING_SEEN);
            let part = |token: usize, third: usize| &tokens[token * 3 * hidden + third * hidden + head * head_width..];
            let row_stride = 3 * hidden;
            let queries = View { data: part(first, 0), rows, columns: head_width, row_stride, column_stride: 1 };
            let out = &mut tile.out[head * head_width..];
            for from in seen.clone().step_by(KEY_COLUMNS) {
                let keys = from..seen.end.min(from + KEY_COLUMNS);
                let columns = keys.len();
                let scores = &mut scores[..rows * columns];
                let transposed =
                    View { data: part(from, 1), rows: head_width, columns, row_stride: 1, column_stride: row_stride };
                multiply(scores, columns, queries, transposed, Destination::Replaced);
                let scale = self.finish_scores(scores, first, &keys, head);
                exponents(scores, columns, scale, running);
                let into = if from == seen.start { Destination::Replaced } else { Destination::Added };
                if into == Destination::Added {
                    scale_rows(out, hidden, head_width, running);
                }
                let weights = View { data: scores, rows, columns, row_stride: columns, column_stride: 1 };
                let values =
                    View { data: part(from, 2), rows: columns, columns: head_width, row_stride, column_stride: 1 };
                multiply(out, hidden, weights, values, into);
            }
            for running in running.iter_mut() {
                running.factor = 1.0 / running.sum;
            }
            scale_rows(out, hidden, head_width, running);
        }
    }

    /// Adds the bias and takes away what is not seen; gives what scores are still to be multiplied by.
    fn finish_scores(&self, scores: &mut [f32], first: usize, keys: &Range<usize>, head: usize) -> f32 {
        let mut scale = 1.0 / (self.head_width as f32).sqrt();
        if let Some(bias) = self.bias {
            for (query, row) in (first..).zip(scores.chunks_exact_mut(keys.len())) {
                add_scaled(row, scale, bias.row(head, query, keys.start));
            }
            scale = 1.0;
        }
        if let Some(window) = self.window {
            for (query, row) in (first..).zip(scores.chunks_exact_mut(keys.len())) {
                let seen_from = query.saturating_sub(window).clamp(keys.start, keys.end) - keys.start;
                let seen_to = query.saturating_add(window).saturating_add(1).clamp(keys.start, keys.end) - keys.start;
                row[..seen_from].fill(UNSEEN);
                row[seen_to..].fill(UNSEEN);
            }
        }
        scale
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::samples::*, *};

    /// Softmax over the whole row at once, in f64.
    fn textbook(attention: &Attention<'_>, qkv: &[f32], sequences: &[Range<usize>]) -> Vec<f64> {
        let &Attention { heads, head_width, window, bias } = attention;
        let hidden = heads * head_width;
        let at = |token: usize, third: usize, head: usize, i: usize| {
            f64::from(qkv[token * 3 * hidden + third * hidden + head * head_width + i])
        };
        let mut out = vec![0f64; qkv.len() / 3];
        for sequence in sequences {
            for head in 0..heads {
                for query in sequence.clone() {
                    let seen: Vec<usize> =
                        sequence.clone().filter(|key| key.abs_diff(query) <= window.unwrap_or(usize::MAX)).collect();
                    let score = |&key: &usize| {
                        let product = (0..head_width).map(|i| at(query, 0, head, i) * at(key, 1, head, i)).sum::<f64>();
                        let bias = bias.map_or(0.0, |bias| {
                            let middle = head * (2 * bias.positions - 1) + bias.positions - 1;
                            f64::from(bias.values[(middle + key) - query])
                        });
                        (product / (head_width as f64).sqrt() + bias).exp()
                    };
                    let weights: Vec<f64> = seen.iter().map(score).collect();
                    let sum: f64 = weights.iter().sum();
                    for i in 0..head_width {
                        out[query * hidden + head * head_width + i] =
                            seen.iter().zip(&weights).map(|(&key, weight)| weight / sum * at(key, 2, head, i)).sum();
                    }
                }
            }
        }
        out
    }

    fn end_to_end(lengths: &[usize]) -> Vec<Range<usize>> {
        let mut end = 0;
        lengths
            .iter()
            .map(|length| {
                end += length;
                end - length..end
            })
            .collect()
    }

    proptest! {
        // The longest is over a block of keys and several tiles of queries.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn attention_is_that_of_the_textbook(
            lengths in prop::collection::vec(prop_oneof![4 => 1usize..40, 2 => 120usize..140, 1 => 500usize..600], 1..4),
            heads in 1usize..4,
            head_width in 1usize..20,
            window in prop::option::of(prop_oneof![0usize..80, 200usize..700]),
            is_biased: bool,
            threads in 1usize..4,
            seed: u32,
        ) {
            let sequences = end_to_end(&lengths);
            let total = sequences.last().map_or(0, |last| last.end);
            let positions = 600;
            let bias = RelativeBias { values: values(heads * (2 * positions - 1), seed ^ 7), positions };
            let attention = Attention { heads, head_width, window, bias: is_biased.then_some(&bias) };
            let qkv = values(total * 3 * heads * head_width, seed);
            let mut got = vec![f32::NAN; total * heads * head_width];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| attention.attend(&qkv, &mut got, &sequences));
            close(&got, &textbook(&attention, &qkv, &sequences), 2e-4)?;
        }
    }

    /// Scores of a usual size: with these the sums of blocks are exact to 1e-5.
    #[test]
    fn blocks_of_keys_are_as_good_as_the_whole_row() {
        for window in [None, Some(64)] {
            let attention = Attention { heads: 2, head_width: 16, window, bias: None };
            let qkv: Vec<f32> = values(1400 * 3 * 32, 5).iter().map(|x| x / 4.0).collect();
            let mut got = vec![f32::NAN; 1400 * 32];
            let sequences = end_to_end(&[1100, 300]);
            attention.attend(&qkv, &mut got, &sequences);
            for (got, want) in got.iter().zip(textbook(&attention, &qkv, &sequences)) {
                assert!((f64::from(*got) - want).abs() < 1e-5, "{got} where {want} was due");
            }
        }
    }
}
