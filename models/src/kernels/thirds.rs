//! Products of f32 by AMX, which multiplies only bf16. A number of f32 is the exact sum of three of bf16, its thirds, each of which has eight of its
//! 24 digits: the high one, the middle one, which is the high one of what is left, and the low one, which is the rest. The product of two numbers has
//! nine parts, of which six are computed, as in `float_to_bf16x3` of oneMKL.
//!
//! Thirds of rows are rounded, and those of weights are cut off, which takes fewer instructions. Middle and low thirds of rows have any sign, so what
//! is left out (middle times low, low times middle and low times low) does not add up; with u = 2^-24, it is at most 4.01 u of a product. An
//! instruction sums 32 products in f32 before it adds them to a sum, so a sum of K products is rounded 17 + 6 K / 32 times and is off by at most
//! (22 + K / 5) u times the sum of their absolute values. AVX-512 adds each product to the sum at once, so its bound is K u; on random numbers it
//! is off by twice as much.
//!
//! The instruction takes numbers below 2^-126 for zero, and thirds of numbers below 2^-103 may be that small, so such numbers lose digits. An
//! infinity in a row becomes no number, and so does a number that rounds to one in bf16, from 3.39e38 on.

use super::{
    amx::{self, ROWS, Sides, TILE, add_products, after_two, fetch_ahead, load_rows, load_weights, multiply_sides},
    tile::Line,
};
use std::{arch::x86_64::*, mem::MaybeUninit};

/// How many inputs are multiplied at once; a block of inputs needs a multiple of it.
const AT_ONCE: usize = 2 * amx::AT_ONCE;

/// Sixteen pairs of numbers as pairs of their high thirds, of their middle ones and of their low ones, which are lines of three tiles.
type Thirds = [__m512i; 3];
const HIGH: usize = 0;
const MIDDLE: usize = 1;
const LOW: usize = 2;
/// The bytes from line to line of a tile.
const STRIDE: usize = size_of::<Thirds>();

/// Takes the next third of each number off it. The upper halves of what is returned are the thirds.
#[inline]
#[target_feature(enable = "avx512f")]
fn take_third<const IS_ROUNDED: bool>(numbers: &mut __m512) -> __m512i {
    let mut bits = _mm512_castps_si512(*numbers);
    if IS_ROUNDED {
        // A number half way goes away from zero.
        bits = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
    }
    let thirds = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(!0xFFFF)));
    *numbers = _mm512_sub_ps(*numbers, thirds);
    bits
}

/// Makes pairs of the upper halves of `first` and `second`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pairs(first: __m512i, second: __m512i) -> __m512i {
    _mm512_mask_blend_epi16(0xAAAA_AAAA, _mm512_srli_epi32::<16>(first), second)
}

/// Pairs each number of `first` with that of `second`, and splits both.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn split<const IS_ROUNDED: bool>(mut first: __m512, mut second: __m512) -> Thirds {
    let high = pairs(take_third::<IS_ROUNDED>(&mut first), take_third::<IS_ROUNDED>(&mut second));
    let middle = pairs(take_third::<IS_ROUNDED>(&mut first), take_third::<IS_ROUNDED>(&mut second));
    // What is left is exact in bf16, and what is no number would become one if it were rounded.
    [high, middle, pairs(_mm512_castps_si512(first), _mm512_castps_si512(second))]
}

/// The thirds of all numbers, in the order in which tiles take them: blocks of sixteen rows, of which the last may have fewer, within them steps of
/// [`AT_ONCE`] inputs, and within these the rows.
#[target_feature(enable = "avx512f,avx512bw")]
fn split_rows(x: &[f32], inputs: usize) -> Vec<Thirds> {
    let mut thirds = Vec::with_capacity(x.len() / AT_ONCE);
    for block in x.chunks(TILE * inputs) {
        for step in 0..inputs / AT_ONCE {
            for row in block.chunks_exact(inputs) {
                let (first, second) = row[step * AT_ONCE..][..AT_ONCE].split_at(TILE);
                // SAFETY: both have sixteen numbers.
                let (first, second) = unsafe { (_mm512_loadu_ps(first.as_ptr()), _mm512_loadu_ps(second.as_ptr())) };
                thirds.push(split::<true>(first, second));
            }
        }
    }
    thirds
}

/// Rows of f32, split for tiles. An input of the first half of a step is in a pair with that of the second half.
pub(super) struct SplitRows {
    thirds: Vec<Thirds>,
    count: usize,
    /// How many steps a row has.
    steps: usize,
}

impl SplitRows {
    /// Splits rows of so many inputs, a multiple of [`AT_ONCE`].
    pub fn new(x: &[f32], inputs: usize) -> Self {
        assert!(amx::is_here() && inputs.is_multiple_of(AT_ONCE), "only AMX takes thirds, in whole tiles");
        // SAFETY: a processor with AMX has the features.
        let thirds = unsafe { split_rows(x, inputs) };
        Self { thirds, count: x.len() / inputs, steps: inputs / AT_ONCE }
    }

    /// Where the tiles of the block of rows from `row` on begin; anywhere if there is no such row.
    fn block(&self, row: usize, step: usize) -> *const Thirds {
        let height = self.count.saturating_sub(row).min(TILE);
        self.thirds.as_ptr().wrapping_add(row * self.steps + step * height)
    }
}

/// Rows, and panels of f32 whose thirds are made while the first rows are multiplied: memory has four bytes for each weight, as it has without AMX.
struct ThirdSides<'a> {
    x: &'a SplitRows,
    /// The step of the rows that is the panels' first one.
    first: usize,
    lines: &'a [Line],
    /// How many lines a panel has.
    depth: usize,
    /// The thirds of the two panels that are multiplied: for each step sixteen of the first panel, then sixteen of the second. Each pairs two lines.
    split: Box<[MaybeUninit<Thirds>]>,
}

impl ThirdSides<'_> {
    /// Splits one step of one or two panels.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn split_step(&mut self, panel: usize, panels: usize, step: usize) {
        for at in 0..panels {
            let lines = &self.lines[(panel + at) * self.depth + step * AT_ONCE..][..AT_ONCE];
            let thirds = &mut self.split[(2 * step + at) * TILE..][..TILE];
            let (first, second) = lines.split_at(TILE);
            for ((first, second), thirds) in first.iter().zip(second).zip(thirds) {
                // SAFETY: a line has sixteen numbers, and is aligned.
                let (first, second) = unsafe { (_mm512_load_ps(first.0.as_ptr()), _mm512_load_ps(second.0.as_ptr())) };
                thirds.write(split::<false>(first, second));
            }
        }
    }
}

impl Sides for ThirdSides<'_> {
    fn steps(&self) -> usize {
        self.depth / AT_ONCE
    }

    unsafe fn begin(&mut self, row: usize, panel: usize, panels: usize) {
        if row == 0 {
            // SAFETY: whoever made the rows asked for the features.
            unsafe { self.split_step(panel, panels, 0) };
        }
    }

    #[inline(always)]
    unsafe fn add<const M: usize, const N: usize>(&mut self, row: usize, panel: usize, step: usize) {
        let blocks = [row, row + TILE].map(|row| self.x.block(row, self.first + step).cast::<__m512i>());
        let split = self.split.as_ptr().cast::<__m512i>();
        let panels = [2 * step, 2 * step + 1].map(|at| split.wrapping_add(at * TILE * 3));
        // SAFETY: the caller's promise; `begin` or the step before has split the panels of this one, at the latest for the first rows.
        unsafe {
            let rows = |third: usize| blocks.map(|block| block.wrapping_add(third).cast::<u8>());
            let weights = |third: usize| panels.map(|panel| panel.wrapping_add(third).cast::<u8>());
            // From part to part one side stays. The greatest part comes last.
            load_rows::<M>(rows(LOW), STRIDE);
            load_weights::<N>(weights(HIGH), STRIDE);
            add_products::<M, N>();
            load_rows::<M>(rows(MIDDLE), STRIDE);
            add_products::<M, N>();
            load_weights::<N>(weights(MIDDLE), STRIDE);
            add_products::<M, N>();
            load_rows::<M>(rows(HIGH), STRIDE);
            add_products::<M, N>();
            load_weights::<N>(weights(LOW), STRIDE);
            add_products::<M, N>();
            load_weights::<N>(weights(HIGH), STRIDE);
            add_products::<M, N>();
        }
        // While the tiles multiply, the rest of the processor splits the next step, and the cache fetches a share of the next panels. With few rows,
        // as in a query, the memory decides how long a product takes, so it must never rest.
        if row == 0 && step + 1 < self.steps() {
            // SAFETY: as in `begin`.
            unsafe { self.split_step(panel, N, step + 1) };
        }
        let (share, shares) = (row / ROWS * self.steps() + step, self.x.count.div_ceil(ROWS) * self.steps());
        fetch_ahead(after_two(self.lines, panel, self.depth), share, shares);
    }
}

/// Computes the products of `x` from its input `first` on with some panels of `depth` inputs each, and writes them to `out` or adds them. Both
/// are multiples of [`AT_ONCE`].
///
/// # Safety
///
/// `out` has a row of `columns` numbers for each row of `x`, the rows begin `out_stride` apart, and nobody else reads or writes them.
pub(super) unsafe fn multiply(
    x: &SplitRows,
    first: usize,
    depth: usize,
    lines: &[Line],
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    assert!(first.is_multiple_of(AT_ONCE) && depth.is_multiple_of(AT_ONCE), "only whole tiles are multiplied");
    assert!((first + depth) / AT_ONCE <= x.steps, "the rows are too short");
    assert!(columns.div_ceil(TILE) * depth <= lines.len(), "the panels are too short");
    let split = Box::new_uninit_slice(depth);
    let mut sides = ThirdSides { x, first: first / AT_ONCE, lines, depth, split };
    // SAFETY: rows are only split where AMX is, both sides are long enough (asserted), and the rest is the caller's promise.
    unsafe { multiply_sides(&mut sides, x.count, out, out_stride, columns, first > 0) };
}

#[cfg(test)]
mod tests {
    use super::{super::samples::values, *};
    use crate::{Precision, kernels::Packed};
    use proptest::prelude::*;

    /// Rows and the weight that they are multiplied by.
    struct Case {
        x: Vec<f32>,
        weight: Vec<f32>,
        inputs: usize,
        outputs: usize,
        packed: Packed,
    }

    impl Case {
        /// With numbers of so many magnitudes, each twice the one before.
        fn new(magnitudes: usize, rows: usize, inputs: usize, outputs: usize, seed: u32) -> Self {
            let scaled = |count: usize, seed: u32| -> Vec<f32> {
                let numbers = values(count, seed).into_iter().enumerate();
                let scale = |at: usize| 2f32.powi((at * 7 % magnitudes) as i32 - (magnitudes / 2) as i32);
                numbers.map(|(at, number)| number * scale(at)).collect()
            };
            let (x, weight) = (scaled(rows * inputs, seed), scaled(inputs * outputs, seed ^ 1));
            let packed = Packed::new(&weight, inputs, outputs, Precision::F32);
            Self { x, weight, inputs, outputs, packed }
        }

        fn run(&self, multiply: impl FnOnce(&Packed, &[f32], &mut [f32])) -> Vec<f32> {
            let mut out = vec![f32::NAN; self.x.len() / self.inputs * self.outputs];
            multiply(&self.packed, &self.x, &mut out);
            out
        }

        /// How far each sum is off, as a share of the sum of the absolute values of its products, in units of 2^-24.
        fn off(&self, got: &[f32]) -> Vec<f64> {
            let of_sum = |(at, got): (usize, &f32)| {
                let weights = self.weight[at % self.outputs..].iter().step_by(self.outputs);
                let (mut sum, mut size) = (0.0, 0.0);
                for (x, weight) in self.x[at / self.outputs * self.inputs..][..self.inputs].iter().zip(weights) {
                    let product = f64::from(*x) * f64::from(*weight);
                    sum += product;
                    size += product.abs();
                }
                (f64::from(*got) - sum).abs() / size * 2f64.powi(24)
            };
            got.iter().enumerate().map(of_sum).collect()
        }
    }

    proptest! {
        #[test]
        fn tiles_are_as_exact_as_is_said_and_a_row_is_the_same_in_any_company(
            magnitudes in 1usize..42, rows in 1usize..40, inputs in (1usize..30).prop_map(|steps| AT_ONCE * steps), outputs in 1usize..50, seed: u32,
        ) {
            if amx::is_here() {
                let case = Case::new(magnitudes, rows, inputs, outputs, seed);
                let tiles = case.run(Packed::product);
                let off = case.off(&tiles);
                prop_assert!(off.iter().all(|&off| off <= 22.0 + inputs as f64 / 5.0), "tiles: {:?}", off);
                let off = case.off(&case.run(Packed::product_by_lines));
                prop_assert!(off.iter().all(|&off| off <= inputs as f64), "lines: {:?}", off);
                let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
                let shared = case.run(|packed, x, out| pool.install(|| packed.product_shared(x, out)));
                prop_assert_eq!(&tiles, &shared);
                let alone = case.run(|packed, x, out| {
                    let rows = x.chunks_exact(inputs).zip(out.chunks_exact_mut(outputs));
                    rows.for_each(|(x, out)| packed.product(x, out));
                });
                prop_assert_eq!(tiles, alone);
            }
        }
    }

    #[test]
    fn tiles_are_no_less_exact_than_lines() {
        if !amx::is_here() {
            return;
        }
        let case = Case::new(1, 9, 768, 48, 1);
        let squares = |got: Vec<f32>| case.off(&got).into_iter().map(|off| off * off).sum::<f64>();
        let (tiles, lines) = (squares(case.run(Packed::product)), squares(case.run(Packed::product_by_lines)));
        assert!(tiles <= lines, "the squares of the errors sum up to {tiles} and {lines}");
    }

    /// The thirds of as many numbers as are multiplied at once.
    fn thirds_of(numbers: &[f32; AT_ONCE], is_rounded: bool) -> [[f32; AT_ONCE]; 3] {
        // SAFETY: the callers asked for the features, each half has sixteen numbers, and any bits are numbers.
        let thirds = unsafe {
            let (first, second) = (_mm512_loadu_ps(numbers.as_ptr()), _mm512_loadu_ps(numbers[TILE..].as_ptr()));
            let thirds = if is_rounded { split::<true>(first, second) } else { split::<false>(first, second) };
            std::mem::transmute::<Thirds, [[[u16; 2]; TILE]; 3]>(thirds)
        };
        let number = |half: u16| f32::from_bits(u32::from(half) << 16);
        thirds.map(|pairs| std::array::from_fn(|at| number(pairs[at % TILE][at / TILE])))
    }

    #[test]
    fn a_number_is_the_exact_sum_of_its_thirds() {
        if !amx::is_here() {
            return;
        }
        let mut numbers =
            vec![0.0, -0.0, 1.0, -1.0, 1.003_906_3, 1.011_718_8, 0.1, f32::EPSILON, 1.0 - f32::EPSILON / 2.0];
        // Below these, a third may be too small for the tiles; above them, it may be infinite.
        let bits = (0..1 << 16).map(|at: u32| f32::from_bits(at.wrapping_mul(2_654_435_769)));
        numbers.extend(bits.filter(|x| (1e-30..3.38e38).contains(&x.abs())));
        assert!(numbers.len() > 40_000);
        for numbers in numbers.as_chunks().0 {
            // A number that is cut off loses up to twice as much as one that is rounded.
            for (is_rounded, middle_digits, low_digits) in [(true, 8, 16), (false, 7, 15)] {
                let [high, middle, low] = thirds_of(numbers, is_rounded);
                for (at, &number) in numbers.iter().enumerate() {
                    let (high, middle, low) = (high[at], middle[at], low[at]);
                    let sum = f64::from(high) + f64::from(middle) + f64::from(low);
                    assert_eq!(sum, f64::from(number), "{high} + {middle} + {low}");
                    let most = |digits: i32| number.abs() * 2f32.powi(-digits);
                    let are_small = middle.abs() <= most(middle_digits) && low.abs() <= most(low_digits);
                    assert!(are_small, "{number} is {high} + {middle} + {low}");
                }
            }
        }
    }

    #[test]
    fn the_thirds_of_what_is_no_number_are_not_all_numbers() {
        if !amx::is_here() {
            return;
        }
        for bits in [0x7FC0_0000, 0x7F80_0001, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7F80_0000, 0xFF80_0000] {
            let thirds = thirds_of(&[f32::from_bits(bits); AT_ONCE], true);
            for at in 0..AT_ONCE {
                assert!(thirds.iter().any(|third| third[at].is_nan()), "{bits:x}: {:?}", thirds.map(|third| third[at]));
            }
        }
    }
}
