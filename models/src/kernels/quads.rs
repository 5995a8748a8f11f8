//! Products of u8 rows and i8 weights by `vpdpbusd`, which adds four products to each i32 sum. Only some processors have
//! it; the others multiply pairs ([`super::integers`]).
#![cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86_64 has processors with the instruction"))]

use super::{aligned::Aligned, lanes::WIDTH, tile::Line};
#[cfg(target_arch = "x86_64")]
use {
    super::{amx, lanes::Avx512, tile::Panel},
    std::arch::x86_64::*,
};

/// The weights of sixteen outputs for four inputs.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct QuadLine([[i8; 4]; WIDTH]);

/// How many lines have a scale of their own. With more, a single great input would cost the others their digits.
const GROUP: usize = 16;
const GROUP_INPUTS: usize = 4 * GROUP;
/// The greatest absolute value of an input and of a weight.
const LIMIT: f32 = 127.0;
/// Is added to each input, because the instruction takes them without a sign.
const SHIFT: u8 = 128;

/// Whether this processor has the instruction.
pub(super) fn is_here() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Rows as integers: each number is its integer, less the shift, times its group's scale.
pub(super) struct Bytes {
    /// Each row has a whole number of quads; what fills it up meets weights of zero.
    values: Aligned<[u8; 4]>,
    scales: Vec<f32>,
    count: usize,
}

impl Bytes {
    pub fn new(x: &[f32], inputs: usize) -> Self {
        let count = x.len() / inputs;
        let (quads, groups) = (inputs.div_ceil(4), inputs.div_ceil(GROUP_INPUTS));
        let (values, scales) = (Aligned::new([0u8; 4], count * quads), vec![0.0; count * groups]);
        let mut bytes = Self { values, scales, count };
        to_bytes(x, inputs, bytes.values.as_flattened_mut(), &mut bytes.scales);
        bytes
    }
}

#[inline(always)]
fn to_bytes_body(x: &[f32], inputs: usize, values: &mut [u8], scales: &mut [f32]) {
    let rows = x.chunks_exact(inputs).zip(values.chunks_exact_mut(inputs.next_multiple_of(4)));
    for ((x, values), scales) in rows.zip(scales.chunks_exact_mut(inputs.div_ceil(GROUP_INPUTS))) {
        let groups = x.chunks(GROUP_INPUTS).zip(values.chunks_mut(GROUP_INPUTS));
        for ((x, values), scale) in groups.zip(scales) {
            // As integers, absolute values have the order of the numbers, and a value that is not a number is greater
            // than all of them.
            let greatest = x.iter().map(|x| x.to_bits() & 0x7FFF_FFFF).fold(0, u32::max);
            let greatest = f32::from_bits(greatest);
            let factor = if greatest > 0.0 { LIMIT / greatest } else { 0.0 };
            *scale = if greatest.is_finite() { greatest / LIMIT } else { f32::NAN };
            for (value, x) in values.iter_mut().zip(x) {
                // Adding 1.5 * 2^23 leaves the rounded number in the low bits of the mantissa.
                *value = x.mul_add(factor, 12_582_912.0 + f32::from(SHIFT)).to_bits() as u8;
            }
        }
    }
}
dispatch!(
    to_bytes, to_bytes_body, (x: &[f32], inputs: usize, values: &mut [u8], scales: &mut [f32]));

/// Panels of sixteen outputs.
pub(super) struct Weights {
    lines: Vec<QuadLine>,
    /// For each group of lines, the scale of each output's weights.
    scales: Vec<Line>,
    /// For each group of lines, what the shift of the inputs adds to each sum, negated.
    corrections: Vec<[i32; WIDTH]>,
    inputs: usize,
}

impl Weights {
    /// Packs a weight `[inputs, outputs]`.
    pub fn new(weight: &[f32], inputs: usize, outputs: usize) -> Self {
        let (mut lines, mut scales, mut corrections) = (Vec::new(), Vec::new(), Vec::new());
        for first in (0..outputs).step_by(WIDTH) {
            for group in (0..inputs).step_by(GROUP_INPUTS) {
                let group = group..inputs.min(group + GROUP_INPUTS);
                let number = |input: usize, at: usize| {
                    let is_inside = input < inputs && first + at < outputs;
                    if is_inside { weight[input * outputs + first + at] } else { 0.0 }
                };
                let greatest = |at| group.clone().map(|input| number(input, at).abs()).fold(0.0, f32::max);
                let scale: [f32; WIDTH] = std::array::from_fn(|at| greatest(at) / LIMIT);
                let mut correction = [0i32; WIDTH];
                for input in group.clone().step_by(4) {
                    let integer = |input: usize, at: usize| match scale[at] > 0.0 {
                        true => (number(input, at) / scale[at]).round_ties_even() as i8,
                        false => 0,
                    };
                    let line: [[i8; 4]; WIDTH] =
                        std::array::from_fn(|at| std::array::from_fn(|of_quad| integer(input + of_quad, at)));
                    for (correction, quad) in correction.iter_mut().zip(line) {
                        *correction -= i32::from(SHIFT) * quad.map(i32::from).iter().sum::<i32>();
                    }
                    lines.push(QuadLine(line));
                }
                scales.push(Line(scale));
                corrections.push(correction);
            }
        }
        Self { lines, scales, corrections, inputs }
    }
}

/// Computes the products of `x` with the panels from `first_panel` on and writes them to `out`.
///
/// # Safety
///
/// The processor has the instruction, `out` has a row of `columns` numbers for each row of `x`, the rows begin
/// `out_stride` apart, and nobody else reads or writes them.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn multiply(
    x: &Bytes,
    weights: &Weights,
    first_panel: usize,
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    assert!(x.values.len() == x.count * weights.inputs.div_ceil(4), "the rows have other inputs than the weights");
    // SAFETY: the caller's promise is passed on.
    unsafe {
        if weights.inputs.is_multiple_of(GROUP_INPUTS) && amx::is_here() {
            multiply_by_tiles(x, weights, first_panel, out, out_stride, columns);
        } else {
            multiply_by_lines(x, weights, first_panel, out, out_stride, columns);
        }
    }
}

/// # Safety
///
/// The same as for [`multiply`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn multiply_by_lines(
    x: &Bytes,
    weights: &Weights,
    first_panel: usize,
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    /// How many rows of a tile have their sums in registers.
    const TILE_ROWS: usize = 12;
    let (quads, groups) = (weights.inputs.div_ceil(4), weights.inputs.div_ceil(GROUP_INPUTS));
    let tiles = x.count.div_ceil(TILE_ROWS);
    for (at, column) in (0..columns).step_by(WIDTH).enumerate() {
        let at = first_panel + at;
        let lines = &weights.lines[at * quads..][..quads];
        let next = &weights.lines[(at + 1) * quads..];
        let groups_of_panel = at * groups..(at + 1) * groups;
        let (scales, corrections) = (&weights.scales[groups_of_panel.clone()], &weights.corrections[groups_of_panel]);
        for tile_at in 0..tiles {
            let row = x.count * tile_at / tiles;
            let height = x.count * (tile_at + 1) / tiles - row;
            let panel = Panel::of_tile::<Avx512>(lines, next, tile_at, tiles);
            // SAFETY: the rows are as long as the panels (asserted), and the rest is the caller's promise.
            unsafe {
                let values = x.values.as_ptr().add(row * quads);
                let row_scales = x.scales.as_ptr().add(row * groups);
                let out = out.add(row * out_stride + column);
                let width = WIDTH.min(columns - column);
                macro_rules! of_height {
                    ($($height:literal)*) => {
                        match height {
                            $($height => tile::<$height>(
                                values, row_scales, panel, scales, corrections, out, out_stride, width),)*
                            _ => unreachable!("a tile has from one to TILE_ROWS rows"),
                        }
                    };
                }
                of_height!(1 2 3 4 5 6 7 8 9 10 11 12);
            }
        }
    }
}

/// Does the same as [`multiply_by_lines`] by AMX, to the last bit.
///
/// # Safety
///
/// The same as for [`multiply`], [`amx::is_here`], and the inputs are whole groups.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn multiply_by_tiles(
    x: &Bytes,
    weights: &Weights,
    first_panel: usize,
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    let (quads, groups) = (weights.inputs.div_ceil(4), weights.inputs.div_ceil(GROUP_INPUTS));
    let (mut integers, mut sums) = (amx::Integers([[[0; WIDTH]; amx::ROWS]; 2]), [[Line::ZERO; amx::ROWS]; 2]);
    let mut shapes = amx::Shapes::NONE;
    for column in (0..columns).step_by(2 * WIDTH) {
        let at = first_panel + column / WIDTH;
        let panels = (columns - column).div_ceil(WIDTH).min(2);
        let lines = &weights.lines[at * quads..][..panels * quads];
        let next = &weights.lines[(at + panels) * quads..];
        let next = &next[..next.len().min(2 * quads)];
        for row in (0..x.count).step_by(amx::ROWS) {
            let count = amx::ROWS.min(x.count - row);
            amx::fetch_ahead(next, row / amx::ROWS, x.count.div_ceil(amx::ROWS));
            sums.iter_mut().for_each(|sums| sums[..count].fill(Line::ZERO));
            // SAFETY: the rows are as long as the panels, with a scale for each group; the rest is the caller's promise. The mask keeps the columns
            // behind the last one out.
            unsafe {
                shapes.set(count);
                for group in 0..groups {
                    let values = x.values.as_ptr().add(row * quads + group * GROUP);
                    let lines = lines.as_ptr().add(group * GROUP);
                    amx::multiply_quads((values, quads), count, (lines, quads), panels, &mut integers);
                    for (panel, sums) in sums.iter_mut().enumerate().take(panels) {
                        let of_group = (at + panel) * groups + group;
                        let corrections = _mm512_loadu_si512(weights.corrections[of_group].as_ptr().cast());
                        let scales = _mm512_load_ps(weights.scales[of_group].0.as_ptr());
                        let row_scales = x.scales[row * groups + group..].iter().step_by(groups);
                        let rows = integers.0[panel][..count].iter().zip(sums).zip(row_scales);
                        for ((integers, sum), row_scale) in rows {
                            let integers = _mm512_loadu_si512(integers.as_ptr().cast());
                            let numbers = _mm512_cvtepi32_ps(_mm512_add_epi32(integers, corrections));
                            let scales = _mm512_mul_ps(scales, _mm512_set1_ps(*row_scale));
                            let added = _mm512_fmadd_ps(numbers, scales, _mm512_load_ps(sum.0.as_ptr()));
                            _mm512_store_ps(sum.0.as_mut_ptr(), added);
                        }
                    }
                }
                for (panel, sums) in sums.iter().enumerate().take(panels) {
                    let first = column + panel * WIDTH;
                    let mask = (u32::MAX >> (32 - WIDTH.min(columns - first))) as __mmask16;
                    for (at, sum) in sums[..count].iter().enumerate() {
                        let out = out.add((row + at) * out_stride + first);
                        _mm512_mask_storeu_ps(out, mask, _mm512_load_ps(sum.0.as_ptr()));
                    }
                }
            }
        }
    }
}

/// Multiplies `M` rows by one panel.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[expect(clippy::too_many_arguments, reason = "each is a pointer or a size of one product")]
unsafe fn tile<const M: usize>(
    x: *const [u8; 4],
    row_scales: *const f32,
    panel: Panel<'_, QuadLine>,
    scales: &[Line],
    corrections: &[[i32; WIDTH]],
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    let (mut sums, mut ahead) = ([_mm512_setzero_ps(); M], panel.ahead);
    let (stride, groups) = (panel.lines.len(), scales.len());
    // SAFETY: the caller promises that `x` has `M` rows as long as the panel with a scale for each group, and `out` has
    // `M` rows of `columns`; the mask keeps the columns behind the last one out.
    unsafe {
        let mut at = 0;
        for (group, lines) in panel.lines.chunks(GROUP).enumerate() {
            let mut integers = [_mm512_loadu_si512(corrections[group].as_ptr().cast()); M];
            for line in lines {
                let weights = _mm512_load_si512(line.0.as_ptr().cast());
                for (row, integers) in integers.iter_mut().enumerate() {
                    let quad = x.add(row * stride + at).cast::<i32>().read_unaligned();
                    *integers = _mm512_dpbusd_epi32(*integers, _mm512_set1_epi32(quad), weights);
                }
                if let Some(ahead) = &mut ahead {
                    ahead.prefetch::<Avx512>();
                }
                at += 1;
            }
            let scales = _mm512_load_ps(scales[group].0.as_ptr());
            for (row, sum) in sums.iter_mut().enumerate() {
                let scales = _mm512_mul_ps(scales, _mm512_set1_ps(*row_scales.add(row * groups + group)));
                *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[row]), scales, *sum);
            }
        }
        let mask = (u32::MAX >> (32 - columns)) as __mmask16;
        for (row, sum) in sums.into_iter().enumerate() {
            _mm512_mask_storeu_ps(out.add(row * out_stride), mask, sum);
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{super::samples::values, *};
    use proptest::prelude::*;

    type Multiply = unsafe fn(&Bytes, &Weights, usize, *mut f32, usize, usize);

    proptest! {
        #[test]
        fn tiles_give_the_same_bits_as_lines(
            rows in 1usize..70, inputs in (1usize..7).prop_map(|groups| groups * GROUP_INPUTS), outputs in 1usize..100, first in 0usize..3, seed: u32,
        ) {
            if is_here() && amx::is_here() {
                let x = Bytes::new(&values(rows * inputs, seed), inputs);
                let weights = Weights::new(&values(inputs * outputs, seed ^ 1), inputs, outputs);
                let first = first.min((outputs - 1) / WIDTH);
                let columns = outputs - first * WIDTH;
                let of = |multiply: Multiply| {
                    // A column too many shows what is written behind the last one.
                    let mut out = vec![7f32; rows * (columns + 1)];
                    // SAFETY: `out` has a row for each of `x`.
                    unsafe { multiply(&x, &weights, first, out.as_mut_ptr(), columns + 1, columns) };
                    out
                };
                let [lines, tiles] = [multiply_by_lines as Multiply, multiply_by_tiles].map(of);
                prop_assert!(lines.iter().skip(columns).step_by(columns + 1).all(|untouched| *untouched == 7.0));
                prop_assert_eq!(lines, tiles);
            }
        }
    }
}
