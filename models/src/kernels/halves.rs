//! Products of bf16 rows and bf16 weights by `vdpbf16ps`, which adds two products to each f32 sum. Only some processors
//! have it; the others widen the weights and keep the rows in f32.

#[cfg(target_arch = "x86_64")]
use super::{
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
    values: Vec<[u16; 2]>,
    count: usize,
}

impl Halves {
    pub fn new(x: &[f32], inputs: usize) -> Self {
        let count = x.len() / inputs;
        let mut values = vec![[0; 2]; count * inputs.div_ceil(2)];
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
/// The processor has the instruction, `out` has a row of `columns` numbers for each row of `x`, the rows begin
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
    let tiles = x.count.div_ceil(TILE_ROWS);
    assert!(x.count == 0 || first + depth <= stride, "the rows are too short");
    for (at, column) in (0..columns).step_by(WIDTH).enumerate() {
        let panel = &lines[at * depth..][..depth];
        let next = lines.get((at + 1) * depth..).unwrap_or_default();
        let width = WIDTH.min(columns - column);
        for tile_at in 0..tiles {
            let row = x.count * tile_at / tiles;
            let height = x.count * (tile_at + 1) / tiles - row;
            let panel = Panel::of_tile::<Avx512>(panel, next, tile_at, tiles);
            // SAFETY: the rows are long enough (asserted), and the rest is the caller's promise.
            unsafe {
                let values = x.values.as_ptr().add(row * stride + first);
                let out = out.add(row * out_stride + column);
                macro_rules! of_height {
                    ($($height:literal)*) => {
                        match height {
                            $($height => tile::<$height>(values, stride, panel, out, out_stride, width, first > 0),)*
                            _ => unreachable!("a tile has from one to TILE_ROWS rows"),
                        }
                    };
                }
                of_height!(1 2 3 4 5 6 7 8 9 10 11 12);
            }
        }
    }
}

/// Multiplies `M` rows by one panel.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn tile<const M: usize>(
    x: *const [u16; 2],
    stride: usize,
    panel: Panel<'_, HalfPairs>,
    out: *mut f32,
    out_stride: usize,
    columns: usize,
    is_added: bool,
) {
    let (mut sums, mut ahead) = ([_mm512_setzero_ps(); M], panel.ahead);
    // SAFETY: the caller promises that `x` has `M` rows as long as the panel, and `out` has `M` rows of `columns`; the
    // mask keeps the columns behind the last one out.
    unsafe {
        let mask = (u32::MAX >> (32 - columns)) as __mmask16;
        if is_added {
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_maskz_loadu_ps(mask, out.add(row * out_stride));
            }
        }
        for (at, line) in panel.lines.iter().enumerate() {
            let weights: __m512bh = std::mem::transmute(_mm512_load_si512(line.0.as_ptr().cast()));
            for (row, sum) in sums.iter_mut().enumerate() {
                let pair = x.add(row * stride + at).cast::<i32>().read_unaligned();
                *sum =
                    _mm512_dpbf16_ps(*sum, weights, std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(pair)));
            }
            if let Some(ahead) = &mut ahead {
                ahead.prefetch::<Avx512>();
            }
        }
        for (row, sum) in sums.into_iter().enumerate() {
            _mm512_mask_storeu_ps(out.add(row * out_stride), mask, sum);
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
