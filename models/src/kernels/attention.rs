use super::{
    LANES, exp, greatest_of,
    lanes::WIDTH,
    sum_of,
    tile::{Line, Panels, Rows, multiply},
};
use rayon::prelude::*;
use std::ops::Range;

/// A number added to each score, which depends on the distance between key and query.
pub(crate) struct RelativeBias {
    /// For each head, the bias of each distance from `1 - positions` to `positions - 1`.
    pub values: Vec<f32>,
    pub positions: usize,
}

impl RelativeBias {
    /// For one head and one query, the biases of the keys from `first_key` on.
    pub fn row(&self, head: usize, query: usize, first_key: usize) -> &[f32] {
        let width = 2 * self.positions - 1;
        let at = (self.positions - 1 + first_key).saturating_sub(query);
        &self.values[head * width + at..(head + 1) * width]
    }
}

/// How many queries are handled at once.
const QUERY_ROWS: usize = 96;
/// The same under a window. There are fewer, because otherwise most of the computed scores would be outside the window.
const QUERY_ROWS_IN_WINDOW: usize = 48;
/// How many keys are handled at once. The scores of one such block stay in the processor's second cache, and the memory
/// of attention besides its input and output does not grow with the square of the sequence.
const KEY_COLUMNS: usize = 512;
/// The score of an unseen key. It is finite, because a block in which a query sees nothing must not become 0 / 0. What
/// that block leaves is scaled to nothing by the block in which the query sees itself.
const UNSEEN: f32 = -1e30;

/// Attention inside each sequence.
pub(crate) struct Attention<'a> {
    pub heads: usize,
    pub head_width: usize,
    /// How many tokens a token sees to each side; `None`: all.
    pub window: Option<usize>,
    pub bias: Option<&'a RelativeBias>,
}

/// Some queries of one sequence, and where their result goes.
struct Tile<'a> {
    sequence: Range<usize>,
    /// Counted from the start of the sequence.
    queries: Range<usize>,
    /// The keys and values of the sequence, head by head; `None` if this tile alone reads them, and packs each head when its turn comes.
    heads: Option<&'a [Line]>,
    out: &'a mut [f32],
}

/// What a thread works in. It grows to what the longest sequence needs, and stays in the processor's caches from sequence to sequence.
#[derive(Default)]
struct Scratch {
    lines: Vec<Line>,
    scores: Vec<f32>,
}

/// Room for `count` items; the caller reads none before it has written it.
fn room<T: Copy>(items: &mut Vec<T>, count: usize, filler: T) -> &mut [T] {
    if items.len() < count {
        items.resize(count, filler);
    }
    &mut items[..count]
}

/// What is kept of a query's scores while its keys come block by block.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    greatest: f32,
    sum: f32,
    /// The factor by which the result so far must be multiplied.
    factor: f32,
}

const NOTHING_SEEN: Running = Running { greatest: f32::NEG_INFINITY, sum: 0.0, factor: 0.0 };

/// Replaces scores by the numerators of the softmax, relative to the greatest score so far.
#[inline(always)]
fn exponents_body(scores: &mut [f32], stride: usize, width: usize, scale: f32, running: &mut [Running]) {
    for (row, running) in scores.chunks_exact_mut(stride).zip(running) {
        // The row is filled up to whole lines, because what is left of a line would be computed number by number.
        row[width..].fill(UNSEEN);
        let (xs, _) = row.as_chunks_mut::<LANES>();
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for x in xs.iter() {
            for i in 0..LANES {
                lanes[i] = if x[i] > lanes[i] { x[i] } else { lanes[i] };
            }
        }
        let greatest = (greatest_of(lanes) * scale).max(running.greatest);
        let mut sums = [0f32; LANES];
        for x in xs {
            for i in 0..LANES {
                x[i] = exp(x[i].mul_add(scale, -greatest));
                sums[i] += x[i];
            }
        }
        let factor = exp(running.greatest - greatest);
        *running = Running { greatest, sum: running.sum.mul_add(factor, sum_of(sums)), factor };
    }
}
dispatch!(
    /// Works on the first `width` numbers of each row, and writes over the others; rows begin `stride` apart, which is a multiple of `LANES`.
    exponents, exponents_body, (scores: &mut [f32], stride: usize, width: usize, scale: f32, running: &mut [Running]));

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
    /// Multiplies the first `width` numbers of each row by the row's factor; rows begin `stride` apart.
    scale_rows, scale_rows_body, (out: &mut [f32], stride: usize, width: usize, running: &[Running]));

/// Packs one head of one sequence. Keys go to panels of sixteen tokens, one component per line; values go to panels of
/// sixteen components, one token per line. `tokens` begin with the head's own part.
#[inline(always)]
fn pack_head_body(
    tokens: &[f32],
    row: usize,
    hidden: usize,
    head_width: usize,
    keys: &mut [Line],
    values: &mut [Line],
) {
    for (tokens, panel) in tokens.chunks(WIDTH * row).zip(keys.chunks_exact_mut(head_width)) {
        if tokens.len() <= (WIDTH - 1) * row {
            panel.fill(Line::ZERO);
        }
        for (place, token) in tokens.chunks(row).enumerate() {
            for (line, value) in panel.iter_mut().zip(&token[hidden..hidden + head_width]) {
                line.0[place] = *value;
            }
        }
    }
    let length = tokens.len().div_ceil(row);
    for (first, panel) in (0..head_width).step_by(WIDTH).zip(values.chunks_exact_mut(length)) {
        let width = WIDTH.min(head_width - first);
        for (token, line) in tokens.chunks(row).zip(panel) {
            let values = &token[2 * hidden + first..][..width];
            if width < WIDTH {
                *line = Line::ZERO;
            }
            line.0[..width].copy_from_slice(values);
        }
    }
}
dispatch!(
    pack_head, pack_head_body,
    (tokens: &[f32], row: usize, hidden: usize, head_width: usize, keys: &mut [Line], values: &mut [Line]));

impl Attention<'_> {
    /// Computes the attention. `qkv` has a row `[queries | keys | values]` per token, `out` a row of `heads *
    /// head_width`. Queries are read and results written in place; keys and values are read from a copy.
    /// `sequences` follow one another without gaps. If one thread does all, it pauses after each tile.
    pub fn attend(&self, qkv: &[f32], out: &mut [f32], sequences: &[Range<usize>], pause: impl Fn()) {
        let (hidden, mut rest) = (self.heads * self.head_width, out);
        let outs = sequences.iter().map(|sequence| {
            let (out, after) = std::mem::take(&mut rest).split_at_mut(sequence.len() * hidden);
            rest = after;
            (sequence, out)
        });
        if rayon::current_num_threads() == 1 {
            let (mut packed, mut scratch) = (Vec::new(), Scratch::default());
            for (sequence, out) in outs {
                let lines = room(&mut packed, self.lines_for_tiles(sequence), Line::ZERO);
                self.heads_of(sequence, lines).for_each(|(head, lines)| self.pack(qkv, sequence, head, lines));
                for tile in self.tiles(sequence, lines, out) {
                    self.attend_tile(qkv, tile, &mut scratch);
                    pause();
                }
            }
            return;
        }
        let mut packed = vec![Line::ZERO; sequences.iter().map(|sequence| self.lines_for_tiles(sequence)).sum()];
        let mut rest = &mut packed[..];
        let mut heads = Vec::new();
        for sequence in sequences {
            let (lines, after) = rest.split_at_mut(self.lines_for_tiles(sequence));
            rest = after;
            heads.extend(self.heads_of(sequence, lines).map(|(head, lines)| (sequence, head, lines)));
        }
        heads.into_par_iter().for_each(|(sequence, head, lines)| self.pack(qkv, sequence, head, lines));
        let mut lines = &packed[..];
        let mut tiles = Vec::with_capacity(sequences.len());
        for (sequence, out) in outs {
            let (of_sequence, after) = lines.split_at(self.lines_for_tiles(sequence));
            lines = after;
            tiles.extend(self.tiles(sequence, of_sequence, out));
        }
        let tiles = tiles.into_par_iter();
        tiles.for_each_init(Scratch::default, |scratch, tile| self.attend_tile(qkv, tile, scratch));
    }

    /// The most queries of a tile.
    fn most_rows(&self) -> usize {
        if self.window.is_some() { QUERY_ROWS_IN_WINDOW } else { QUERY_ROWS }
    }

    /// How many lines the tiles of a sequence share; a sequence with one tile needs none.
    fn lines_for_tiles(&self, sequence: &Range<usize>) -> usize {
        if sequence.len() > self.most_rows() { self.heads * self.lines_of_head(sequence.len()) } else { 0 }
    }

    /// The lines of each head, if the tiles of the sequence share some.
    fn heads_of<'a>(
        &self,
        sequence: &Range<usize>,
        lines: &'a mut [Line],
    ) -> impl Iterator<Item = (usize, &'a mut [Line])> {
        lines.chunks_exact_mut(self.lines_of_head(sequence.len()).max(1)).enumerate()
    }

    fn pack(&self, qkv: &[f32], sequence: &Range<usize>, head: usize, lines: &mut [Line]) {
        let hidden = self.heads * self.head_width;
        let (keys, values) = lines.split_at_mut(self.lines_of_keys(sequence.len()));
        let tokens = &qkv[sequence.start * 3 * hidden + head * self.head_width..sequence.end * 3 * hidden];
        pack_head(tokens, 3 * hidden, hidden, self.head_width, keys, values);
    }

    /// Cuts the queries of a sequence into tiles of similar heights. `lines` are those that they share.
    fn tiles<'a>(
        &self,
        sequence: &Range<usize>,
        lines: &'a [Line],
        out: &'a mut [f32],
    ) -> impl Iterator<Item = Tile<'a>> {
        let length = sequence.len();
        let rows = length.div_ceil(length.div_ceil(self.most_rows()).max(1)).max(1);
        out.chunks_mut(rows * self.heads * self.head_width).enumerate().map(move |(at, out)| Tile {
            sequence: sequence.clone(),
            queries: at * rows..length.min((at + 1) * rows),
            heads: Some(lines).filter(|lines| !lines.is_empty()),
            out,
        })
    }

    fn lines_of_keys(&self, length: usize) -> usize {
        length.div_ceil(WIDTH) * self.head_width
    }

    fn lines_of_head(&self, length: usize) -> usize {
        self.lines_of_keys(length) + self.head_width.div_ceil(WIDTH) * length
    }

    fn attend_tile(&self, qkv: &[f32], tile: Tile<'_>, scratch: &mut Scratch) {
        let (hidden, head_width, length) = (self.heads * self.head_width, self.head_width, tile.sequence.len());
        let Range { start: first, end } = tile.queries;
        let rows = end - first;
        let window = self.window.unwrap_or(length);
        // The range begins at the start of a panel.
        let seen = first.saturating_sub(window) / WIDTH * WIDTH..length.min(end.saturating_add(window));
        let mut running = [NOTHING_SEEN; QUERY_ROWS];
        let running = &mut running[..rows];
        let lines_of_head = self.lines_of_head(length);
        for head in 0..self.heads {
            running.fill(NOTHING_SEEN);
            let lines = match tile.heads {
                Some(heads) => &heads[head * lines_of_head..][..lines_of_head],
                None => {
                    let lines = room(&mut scratch.lines, lines_of_head, Line::ZERO);
                    self.pack(qkv, &tile.sequence, head, lines);
                    &*lines
                }
            };
            let (packed_keys, packed_values) = lines.split_at(self.lines_of_keys(length));
            let queries = &qkv[(tile.sequence.start + first) * 3 * hidden + head * head_width..];
            let queries = Rows { data: queries, count: rows, stride: 3 * hidden };
            let out = &mut tile.out[head * head_width..];
            for from in seen.clone().step_by(KEY_COLUMNS) {
                let keys = from..seen.end.min(from + KEY_COLUMNS);
                let columns = keys.len();
                // The stride covers whole panels; what comes after the last key counts nowhere.
                let stride = columns.next_multiple_of(WIDTH);
                let scores = room(&mut scratch.scores, rows * stride, 0.0);
                let transposed = Panels {
                    lines: &packed_keys[from / WIDTH * head_width..],
                    stride: head_width,
                    depth: head_width,
                    columns: stride,
                };
                // SAFETY: `scores` has `rows` rows of `stride` numbers, and is borrowed mutably.
                unsafe { multiply(queries, transposed, scores.as_mut_ptr(), stride, false) };
                let scale = self.finish_scores(scores, stride, first, &keys, head);
                exponents(scores, stride, columns, scale, running);
                if from > seen.start {
                    scale_rows(out, hidden, head_width, running);
                }
                let weights = Rows { data: scores, count: rows, stride };
                let values =
                    Panels { lines: &packed_values[from..], stride: length, depth: columns, columns: head_width };
                assert!((rows - 1) * hidden + head_width <= out.len());
                // SAFETY: `out` has `rows` rows of `head_width` numbers that begin `hidden` apart (asserted), and is
                // borrowed mutably.
                unsafe { multiply(weights, values, out.as_mut_ptr(), hidden, from > seen.start) };
            }
            for running in running.iter_mut() {
                running.factor = 1.0 / running.sum;
            }
            scale_rows(out, hidden, head_width, running);
        }
    }

    /// Adds the bias and hides what is not seen; returns the factor by which scores are still to be multiplied.
    fn finish_scores(&self, scores: &mut [f32], stride: usize, first: usize, keys: &Range<usize>, head: usize) -> f32 {
        let mut scale = 1.0 / (self.head_width as f32).sqrt();
        if let Some(bias) = self.bias {
            for (query, row) in (first..).zip(scores.chunks_exact_mut(stride)) {
                add_scaled(&mut row[..keys.len()], scale, bias.row(head, query, keys.start));
            }
            scale = 1.0;
        }
        if let Some(window) = self.window {
            for (query, row) in (first..).zip(scores.chunks_exact_mut(stride)) {
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
    use super::{super::samples::*, *};
    use proptest::prelude::*;

    /// Computes the softmax over the whole row at once, in f64.
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
        // The longest sequence exceeds a block of keys and several tiles of queries.
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
            pool.install(|| attention.attend(&qkv, &mut got, &sequences, || {}));
            close(&got, &textbook(&attention, &qkv, &sequences), 2e-4)?;
        }
    }

    /// With scores of a usual size, the sums of blocks are exact to 1e-5.
    #[test]
    fn blocks_of_keys_are_as_good_as_the_whole_row() {
        for window in [None, Some(64)] {
            let attention = Attention { heads: 2, head_width: 16, window, bias: None };
            let qkv: Vec<f32> = values(1400 * 3 * 32, 5).iter().map(|x| x / 4.0).collect();
            let mut got = vec![f32::NAN; 1400 * 32];
            let sequences = end_to_end(&[1100, 300]);
            attention.attend(&qkv, &mut got, &sequences, || {});
            for (got, want) in got.iter().zip(textbook(&attention, &qkv, &sequences)) {
                assert!((f64::from(*got) - want).abs() < 1e-5, "{got} where {want} was due");
            }
        }
    }
}
