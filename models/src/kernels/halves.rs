//! Products of bf16 rows and bf16 weights by `vdpbf16ps`, which adds two products to each f32 sum. Only some processors
//! have it; the others widen the weights and keep the rows in f32.
#![cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86_64 has processors with the instruction"))]

use super::aligned::Aligned;
#[cfg(target_arch = "x86_64")]
use super::{
    amx::{self, ROWS, Sides, TILE, add_products, after_two, fetch_ahead, load_rows, load_weights, multiply_sides},
    lanes::{Avx512, WIDTH},
    tile::Panel,
};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// The weights of sixteen outputs for two inputs, pair by pair.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct HalfPairs(pub [[u16; 2]; 16]);

/// Whether this processor has the instruction.
pub(super) fn is_here() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Rounds to the nearest bf16. What is no number stays none.
#[inline(always)]
fn half(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
    let rounded = if x.is_nan() { 0x7FC0_0000 } else { rounded };
    (rounded >> 16) as u16
}

#[inline(always)]
fn to_halves_body(x: &[f32], inputs: usize, values: &mut [u16]) {
    let rows = x.chunks_exact(inputs).zip(values.chunks_exact_mut(inputs.next_multiple_of(2)));
    for (x, values) in rows {
        for (value, x) in values.iter_mut().zip(x) {
            *value = half(*x);
        }
    }
}
dispatch!(
    to_halves, to_halves_body, (x: &[f32], inputs: usize, values: &mut [u16]));

/// Rows in bf16. Each has an even number of inputs; the last one may be a zero that fills it up.
pub(super) struct Halves {
    values: Aligned<[u16; 2]>,
    count: usize,
}

impl Halves {
    pub fn new(x: &[f32], inputs: usize) -> Self {
        let count = x.len() / inputs;
        let mut values = Aligned::new([0u16; 2], count * inputs.div_ceil(2));
        to_halves(x, inputs, values.as_flattened_mut());
        Self { values, count }
    }
}

/// Makes panels of sixteen outputs from a weight `[inputs, outputs]`, in blocks of `depth` inputs, an even number.
pub(super) fn pack(weight: &[f32], inputs: usize, outputs: usize, depth: usize) -> Vec<HalfPairs> {
    let number = |input: usize, output: usize| {
        let is_inside = input < inputs && output < outputs;
        if is_inside { half(weight[input * outputs + output]) } else { 0 }
    };
    let mut lines = Vec::with_capacity(inputs.div_ceil(2) * outputs.div_ceil(16));
    for block in (0..inputs).step_by(depth) {
        for first in (0..outputs).step_by(16) {
            for input in (block..inputs.min(block + depth)).step_by(2) {
                lines.push(HalfPairs(std::array::from_fn(|at| {
                    [number(input, first + at), number(input + 1, first + at)]
                })));
            }
        }
    }
    lines
}

/// Computes the products of `x` from its pair `first` on with some panels of `depth` pairs each, and writes them to
/// `out` or adds them.
///
/// # Safety
///
/// The processor has the instruction ([`is_here`]), `out` has a row of `columns` numbers for each row of `x`, the rows begin
/// `out_stride` apart, and nobody else reads or writes them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn multiply(
    x: &Halves,
    first: usize,
    depth: usize,
    lines: &[HalfPairs],
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    /// How many rows of a tile have their sums in registers.
    const TILE_ROWS: usize = 12;
    let stride = x.values.len() / x.count.max(1);
    assert!(x.count == 0 || first + depth <= stride, "the rows are too short");
    if depth.is_multiple_of(amx::AT_ONCE) && amx::is_here() {
        assert!(columns.div_ceil(WIDTH) * depth <= lines.len(), "the panels are too short");
        let pairs = x.values.as_ptr().wrapping_add(first);
        let mut sides = HalfSides { pairs, stride, count: x.count, lines, depth };
        // SAFETY: both sides are long enough (asserted), and the rest is the caller's promise.
        return unsafe { multiply_sides(&mut sides, x.count, out, out_stride, columns, first > 0) };
    }
    let tiles = x.count.div_ceil(TILE_ROWS);
    let mut rest = lines;
    for column in (0..columns).step_by(2 * WIDTH) {
        let width = (2 * WIDTH).min(columns - column);
        let (panels, next) = rest.split_at(width.div_ceil(WIDTH) * depth);
        rest = next;
        for tile_at in 0..tiles {
            let row = x.count * tile_at / tiles;
            let height = x.count * (tile_at + 1) / tiles - row;
            let panels = Panel::of_tile::<Avx512>(panels, next, tile_at, tiles);
            // SAFETY: the rows are long enough (asserted), and the rest is the caller's promise.
            unsafe {
                let values = x.values.as_ptr().add(row * stride + first);
                let out = out.add(row * out_stride + column);
                macro_rules! of_height {
                    ($($height:literal)*) => {
                        match height {
                            $($height if width > WIDTH =>
                                tile::<$height, 2>(values, stride, panels, out, out_stride, width, first > 0),
                            $height => tile::<$height, 1>(values, stride, panels, out, out_stride, width, first > 0),)*
                            _ => unreachable!("a tile has from one to TILE_ROWS rows"),
                        }
                    };
                }
                of_height!(1 2 3 4 5 6 7 8 9 10 11 12);
            }
        }
    }
}

/// Rows and panels of bf16, as tiles of AMX take them.
#[cfg(target_arch = "x86_64")]
struct HalfSides<'a> {
    pairs: *const [u16; 2],
    /// The distance from row to row.
    stride: usize,
    /// How many rows there are.
    count: usize,
    lines: &'a [HalfPairs],
    /// How many pairs of a row count, and how many lines a panel has.
    depth: usize,
}

#[cfg(target_arch = "x86_64")]
impl Sides for HalfSides<'_> {
    fn steps(&self) -> usize {
        self.depth / amx::AT_ONCE
    }

    unsafe fn begin(&mut self, row: usize, panel: usize, _: usize) {
        fetch_ahead(after_two(self.lines, panel, self.depth), row / ROWS, self.count.div_ceil(ROWS));
    }

    #[inline(always)]
    unsafe fn add<const M: usize, const N: usize>(&mut self, row: usize, panel: usize, step: usize) {
        let &mut Self { pairs, stride, lines, depth, .. } = self;
        let at = step * amx::AT_ONCE;
        let blocks = [row, row + TILE].map(|row| pairs.wrapping_add(row * stride + at).cast::<u8>());
        let panels = [panel, panel + 1].map(|panel| lines.as_ptr().wrapping_add(panel * depth + at).cast::<u8>());
        // SAFETY: the caller's promise.
        unsafe {
            load_rows::<M>(blocks, stride * size_of::<[u16; 2]>());
            load_weights::<N>(panels, size_of::<HalfPairs>());
            add_products::<M, N>();
        }
    }
}

/// Multiplies `M` rows by `N` panels. With one panel the instruction's latency would keep the processor waiting.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn tile<const M: usize, const N: usize>(
    x: *const [u16; 2],
    stride: usize,
    panels: Panel<'_, HalfPairs>,
    out: *mut f32,
    out_stride: usize,
    columns: usize,
    is_added: bool,
) {
    let depth = panels.lines.len() / N;
    let (mut sums, mut ahead) = ([[_mm512_setzero_ps(); N]; M], panels.ahead);
    let mut masks = [u16::MAX; N];
    masks[N - 1] = u16::MAX >> (N * WIDTH - columns);
    // SAFETY: the caller promises that `x` has `M` rows as long as a panel, and `out` has `M` rows of `columns`; the
    // last mask keeps the columns behind the last one out.
    unsafe {
        if is_added {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (panel, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_maskz_loadu_ps(masks[panel], out.add(row * out_stride + panel * WIDTH));
                }
            }
        }
        for at in 0..depth {
            let mut weights = [_mm512_setzero_si512(); N];
            for (panel, weights) in weights.iter_mut().enumerate() {
                *weights = _mm512_load_si512(panels.lines.as_ptr().add(panel * depth + at).cast());
                if let Some(ahead) = &mut ahead {
                    ahead.prefetch::<Avx512>();
                }
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let pair = _mm512_set1_epi32(x.add(row * stride + at).cast::<i32>().read_unaligned());
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_dpbf16_ps(
                        *sum,
                        std::mem::transmute::<__m512i, __m512bh>(weights),
                        std::mem::transmute::<__m512i, __m512bh>(pair),
                    );
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            for (panel, sum) in sums.into_iter().enumerate() {
                _mm512_mask_storeu_ps(out.add(row * out_stride + panel * WIDTH), masks[panel], sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_bf16() {
        let odd = [0.0, -0.0, 1.0, 1.003_906_3, 1.011_718_8, 3.4e38, 1e-40, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
        for x in odd.into_iter().chain((0..100_000).map(|at| f32::from_bits(at * 42_949))) {
            let want = ::half::bf16::from_f32(x);
            assert!(half(x) == want.to_bits() || (x.is_nan() && want.is_nan()), "{x}");
        }
        assert!(::half::bf16::from_bits(half(f32::NAN)).is_nan());
        assert!(::half::bf16::from_bits(half(f32::from_bits(0x7FFF_FFFF))).is_nan());
    }
}
